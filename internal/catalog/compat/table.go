package compat

import (
	"embed"
	"encoding/csv"
	"fmt"
	"math"

	"github.com/gpu-exporter/gpu-exporter/internal/catalog"
	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

var units = map[string]unit{
	"":                   {},
	"celsius":            {old: "°C", new: "°C"},
	"watts":              {old: "W", new: "W"},
	"megahertz":          {old: "MHz", new: "Hz", by: 1e6},
	"percent":            {old: "percent", new: "ratio 0 to 1", times: 100, percent: true},
	"ratio":              {old: "ratio 0 to 1", new: "ratio 0 to 1"},
	"mebibytes":          {old: "MiB", new: "bytes", by: 1 << 20, whole: true},
	"millijoules":        {old: "mJ", new: "J", times: 1000},
	"nanoseconds":        {old: "ns", new: "s", times: 1e9},
	"perSecond":          {old: "bytes/s", new: "bytes/s"},
	"kilobytesPerSecond": {old: "KB/s", new: "KB/s", by: 1000},
	// NVLink megabytes are a thousand times the 1,024 bytes in which the driver counts.
	"megabytesPerSecond": {old: "MB/s", new: "bytes/s", by: 1024 * 1000},
}

//go:embed table.csv nvidia-smi.csv labels.csv
var tables embed.FS

// table returns the rows of a release: those of nvidia-smi.csv have fewer columns.
func table(release Release) ([]row, error) {
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
	rows := make([]row, 0, len(lines))
	for _, l := range lines[1:] {
		if release == NvidiaSMI {
			rows = append(rows, row{name: "nvidia_smi_" + l[0], typ: catalog.Type(l[1]), shipped: custom,
				gpu: parseFigure(l[2]), help: l[3], differs: l[4]})
			continue
		}
		u, ok := units[l[5]]
		if !ok {
			return nil, fmt.Errorf("%s: unknown unit %q", l[0], l[5])
		}
		rows = append(rows, row{name: l[0], renamed: l[1], typ: catalog.Type(l[2]), shipped: shipped(l[3]),
			paired: l[4] != "", unit: u,
			gpu: parseFigure(l[6]), instance: parseFigure(l[7]), container: parseFigure(l[8]), help: l[9],
			differs: l[10]})
	}
	return rows, nil
}

// scaleIn returns the conversion of a value in a release.
func (r *row) scaleIn(release Release) func(float64) float64 {
	u := r.unit
	if release == DCGM49 && r.renamed != "" {
		u = unit{}
	}
	return func(v float64) float64 {
		if u.times != 0 {
			v *= u.times
		}
		if u.by != 0 {
			v /= u.by
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

// factorIn is what a value in base units is multiplied by in a release, before it is rounded.
func (r *row) factorIn(release Release) float64 {
	u := r.unit
	if release == DCGM49 && r.renamed != "" {
		u = unit{}
	}
	return max(1, u.times) / max(1, u.by)
}

// nameIn returns the family's name in a release.
func (r *row) nameIn(release Release) string {
	if release == DCGM49 && r.renamed != "" {
		return r.renamed
	}
	return r.name
}

// unitIn returns the name of the unit in a release.
func (r *row) unitIn(release Release) string {
	if release == DCGM49 && r.renamed != "" {
		return r.unit.new
	}
	return r.unit.old
}

// helpIn returns the HELP of the exposition.
func (r *row) helpIn(release Release) string {
	if u := r.unitIn(release); u != "" {
		return r.help + " (" + u + ")."
	}
	if release == NvidiaSMI {
		return r.help // the name of the field, as there
	}
	return r.help + "."
}

// own lists the labels that only this family has.
func (r *row) own() []string {
	switch {
	case r.gpu.operator == latest:
		return []string{"err_code", "err_msg"}
	case r.gpu.operator == events:
		return []string{"clock_event", "window_size_in_ms"}
	case r.gpu.operator == health:
		return []string{"health_watch", "health_error_code"}
	case r.gpu.operator == last5m:
		return []string{r.gpu.by, "window_size_in_ms"}
	case r.gpu.by != "":
		return []string{r.gpu.by}
	}
	return nil
}

// repeated reports whether a GPU's value is repeated for each of its instances and containers.
func (r *row) repeated() bool { return r.shipped == byDefault || r.instance != nil || r.paired }

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
