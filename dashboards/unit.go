package dashboards

// Unit is a unit of Grafana, by its id.
type Unit string

// The units of the dashboards. Number is a count with an SI suffix; Plain is neither scaled nor suffixed.
const (
	Number   Unit = "short"
	Plain    Unit = "none"
	Text     Unit = "string" // labels: without it Grafana shows the version 638e076 as a number
	Ratio    Unit = "percentunit"
	Bytes    Unit = "bytes"
	BytesPS  Unit = "binBps"
	Watts    Unit = "watt"
	KWh      Unit = "kwatth"
	Celsius  Unit = "celsius"
	Hertz    Unit = "hertz"
	Seconds  Unit = "s"
	Duration Unit = "dtdurations"
	Hours    Unit = "suffix:h"        // GPU-hours, never scaled to minutes or days
	When     Unit = "dateTimeFromNow" // milliseconds since 1970
	PerSec   Unit = "cps"
)
