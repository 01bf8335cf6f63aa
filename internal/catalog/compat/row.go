package compat

import (
	"math"
	"strconv"

	"github.com/gpu-exporter/gpu-exporter/internal/catalog"
	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// row is one family of the old exporter.
type row struct {
	name    string // in 4.8
	renamed string // in 4.9; empty: as in 4.8
	typ     catalog.Type
	shipped shipped
	help    string // what it is, without its unit
	unit    unit
	// GPU is read for a GPU, instance for a MIG instance; where instance is not set, the GPU's reading stands for
	// each of its instances, as in the old exporter (see copied). Tenant is the part of a container that shares a GPU.
	dev, instance, tenant *figure
	// paired marks what is not shown by default and is what one divides by: it has the labels of what is divided.
	paired bool
	// differs says what is not as in the old exporter, and why; empty: it is equal.
	differs string
}

// shipped says whether a release shows a family unless told otherwise.
type shipped string

// On is in the collector file that is shipped, off is there as a comment, and chosen is a field of DCGM that a
// user's own file may name.
const (
	on     shipped = "default"
	off    shipped = "shipped, off"
	chosen shipped = "own list"
)

// unit is how a figure of ours, in base units, becomes one of theirs.
type unit struct {
	old, new string // their names; new in 4.9, of families that were renamed
	times    float64
	by       float64 // the old unit is the base unit times and by this; 0 is 1
	whole    bool    // the old unit knows whole numbers alone, rounded down
}

// The units. New is what 4.9 has under a new name.
var (
	celsius     = unit{old: "°C", new: "°C"}
	watts       = unit{old: "W", new: "W"}
	megahertz   = unit{old: "MHz", new: "Hz", by: 1e6}
	percent     = unit{old: "percent", new: "ratio 0 to 1", times: 100}
	ratio       = unit{old: "ratio 0 to 1", new: "ratio 0 to 1"}
	mebibytes   = unit{old: "MiB", new: "bytes", by: 1 << 20, whole: true}
	millijoules = unit{old: "mJ", new: "J", times: 1000}
	nanoseconds = unit{old: "ns", new: "s", times: 1e9}
	perSecond   = unit{old: "bytes/s", new: "bytes/s"}
	// A link's megabyte is a thousand times the 1,024 bytes in which the driver counts.
	megabytesPerSecond = unit{old: "MB/s", new: "bytes/s", by: 1024 * 1000}
)

// scaleIn returns the conversion in a release.
func (u unit) scaleIn(r Release, renamed bool) func(float64) float64 {
	if r == DCGM49 && renamed {
		return func(v float64) float64 { return v }
	}
	return func(v float64) float64 {
		if u.times != 0 {
			v *= u.times
		}
		if u.by != 0 {
			v /= u.by
		}
		if u.whole {
			v = math.Floor(v)
		}
		return v
	}
}

// nameIn returns the family's name in a release.
func (r *row) nameIn(release Release) string {
	if release == DCGM49 && r.renamed != "" {
		return r.renamed
	}
	return r.name
}

// unitIn returns the name of its unit in a release.
func (r *row) unitIn(release Release) string {
	if release == DCGM49 && r.renamed != "" {
		return r.unit.new
	}
	return r.unit.old
}

// helpIn returns the HELP of the exposition.
func (r *row) helpIn(release Release) string {
	h := r.help
	if u := r.unitIn(release); u != "" {
		h += " (" + u + ")"
	}
	return h + "."
}

// own lists the labels that only this family has.
func (r *row) own() []string {
	switch {
	case r.dev.latest:
		return []string{"err_code", "err_msg"}
	case r.dev.by != "":
		return []string{r.dev.by}
	}
	return nil
}

// copied tells whether a GPU's reading stands at each of its instances and each of its holders. What the old exporter
// does not show by default stands once, unless it speaks of instances or is divided by.
func (r *row) copied() bool { return r.shipped == on || r.instance != nil || r.paired }

// figures lists those that are set.
func (r *row) figures() []*figure {
	var out []*figure
	for _, f := range []*figure{r.dev, r.instance, r.tenant} {
		if f != nil {
			out = append(out, f)
		}
	}
	return out
}

// number reads a code; what is none is 0.
func number(code string) int {
	n, err := strconv.Atoi(code)
	if err != nil {
		return 0
	}
	return n
}

// xidMessage says of a code what is to be done. The words are ours, not the driver's.
func xidMessage(xid int) string {
	if xid == 0 {
		return "no XID since the exporter started"
	}
	switch gpu.XIDTierOf(xid) {
	case gpu.XIDCritical:
		return "the GPU or the node needs an operator"
	case gpu.XIDApplication:
		return "a program's fault: restart or mend it"
	case gpu.XIDInfo:
		return "nothing to do"
	default:
		return "watch the GPU"
	}
}
