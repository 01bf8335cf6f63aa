package compat

import (
	"embed"
	"encoding/csv"
	"fmt"
	"math"

	"github.com/gpu-exporter/gpu-exporter/internal/catalog"
	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

var units = map[string]Unit{
	"":                   {},
	"celsius":            {Name: "°C", New: "°C"},
	"watts":              {Name: "W", New: "W"},
	"megahertz":          {Name: "MHz", New: "Hz", By: 1e6},
	"percent":            {Name: "percent", New: "ratio 0 to 1", Times: 100, percent: true},
	"ratio":              {Name: "ratio 0 to 1", New: "ratio 0 to 1"},
	"mebibytes":          {Name: "MiB", New: "bytes", By: 1 << 20, whole: true},
	"millijoules":        {Name: "mJ", New: "J", Times: 1000},
	"nanoseconds":        {Name: "ns", New: "s", Times: 1e9},
	"perSecond":          {Name: "bytes/s", New: "bytes/s"},
	"kilobytesPerSecond": {Name: "KB/s", New: "KB/s", By: 1000},
	// NVLink megabytes are a thousand times the 1,024 bytes in which the driver counts.
	"megabytesPerSecond": {Name: "MB/s", New: "bytes/s", By: 1024 * 1000},
}

//go:embed table.csv nvidia-smi.csv
var tables embed.FS

// table returns the rows of a release: those of nvidia-smi.csv have fewer columns.
func table(release Release) ([]Row, error) {
	name := "table.csv"
	if release == NvidiaSMI {
		name = "nvidia-smi.csv"
	}
	file, err := tables.Open(name)
	if err != nil {
		return nil, err
	}
	lines, err := csv.NewReader(file).ReadAll()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	rows := make([]Row, 0, len(lines))
	for _, l := range lines[1:] {
		if release == NvidiaSMI {
			rows = append(rows, Row{in: release, Name: "nvidia_smi_" + l[0], Type: catalog.Type(l[1]), Shipped: Custom,
				GPU: parseFigure(l[2]), help: l[3], Differs: l[4], Rewrite: Rewrite(l[5]), ByHand: l[6]})
			continue
		}
		u, ok := units[l[5]]
		if !ok {
			return nil, fmt.Errorf("%s: unknown unit %q", l[0], l[5])
		}
		rows = append(rows, Row{in: release, Name: l[0], Renamed: l[1], Type: catalog.Type(l[2]), Shipped: Shipped(l[3]),
			paired: l[4] != "", Unit: u,
			GPU: parseFigure(l[6]), Instance: parseFigure(l[7]), Container: parseFigure(l[8]), help: l[9],
			Differs: l[10], Rewrite: Rewrite(l[11]), ByHand: l[12]})
	}
	return rows, nil
}

// scale returns the conversion of a value.
func (r *Row) scale() func(float64) float64 {
	u := r.UnitIn(r.in)
	return func(v float64) float64 {
		if u.Times != 0 {
			v *= u.Times
		}
		if u.By != 0 {
			v /= u.By
		}
		switch {
		case u.whole:
			v = math.Floor(v)
		case u.percent && v > 0:
			// DCGM has whole percents. Only what was idle for the whole minute is 0: autoscalers stop such pods.
			v = max(1, math.Round(v))
		}
		return v
	}
}

// name returns the family's name on the page.
func (r *Row) name() string {
	if r.in == DCGM49 && r.Renamed != "" {
		return r.Renamed
	}
	return r.Name
}

// UnitIn returns the unit in a release.
func (r *Row) UnitIn(release Release) Unit {
	if release == DCGM49 && r.Renamed != "" {
		return Unit{Name: r.Unit.New}
	}
	return r.Unit
}

// helpText returns the HELP of the exposition: that of a collector file as it is.
func (r *Row) helpText() string {
	if r.in == NvidiaSMI || r.chosen {
		return r.help // of nvidia_gpu_exporter the name of the field, as there
	}
	if u := r.UnitIn(r.in).Name; u != "" {
		return r.help + " (" + u + ")."
	}
	return r.help + "."
}

// own lists the labels that only this family has.
func (r *Row) own() []string {
	switch {
	case r.GPU.Operator == Latest:
		return []string{"err_code", "err_msg"}
	case r.GPU.Operator == Events:
		return []string{"clock_event", "window_size_in_ms"}
	case r.GPU.Operator == Health:
		return []string{"health_watch", "health_error_code"}
	case r.GPU.Operator == Last5m:
		return []string{r.GPU.By, "window_size_in_ms"}
	case r.GPU.By != "":
		return []string{r.GPU.By}
	}
	return nil
}

// repeated reports whether a GPU's value is repeated for each of its instances and containers, as there for every field.
func (r *Row) repeated() bool {
	return r.Shipped == ByDefault || r.Instance != nil || r.paired || r.chosen
}

// xidMessage describes what to do about an XID; these are not the driver's messages.
func xidMessage(xid int) string {
	if xid == 0 {
		return "no XID since the exporter started"
	}
	switch gpu.XIDTierOf(xid) {
	case gpu.XIDCritical:
		return "the GPU or the node needs an operator"
	case gpu.XIDApplication:
		return "application fault: restart or fix it"
	case gpu.XIDInfo:
		return "no action needed"
	default:
		return "monitor the GPU"
	}
}
