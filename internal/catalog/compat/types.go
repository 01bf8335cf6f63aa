package compat

import (
	"sync/atomic"

	"github.com/gpu-exporter/gpu-exporter/internal/catalog"
	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// Release is a release of dcgm-exporter whose exposition is rendered.
type Release string

// 4.8 stands for 4.8.0 to 4.8.4; 4.9 renamed 22 of its families and a label.
const (
	DCGM48 Release = "dcgm-4.8"
	DCGM49 Release = "dcgm-4.9"
)

// Releases lists them all, as values of --compat.
func Releases() []string { return []string{string(DCGM48), string(DCGM49)} }

// Path is where the exposition is served.
const Path = "/metrics/dcgm"

// Page renders one release. Published is for one goroutine; everything else is safe for concurrent use.
type Page struct {
	release  Release
	families map[string]catalog.Family
	rows     []row
	history  atomic.Pointer[history]
	frame    atomic.Pointer[frame] // of the view that was rendered last
}

// row is a family of dcgm-exporter: a row of table.csv.
type row struct {
	name    string // in 4.8
	renamed string // in 4.9; empty: as in 4.8
	typ     catalog.Type
	shipped shipped
	help    string // without the unit
	unit    unit
	// gpu is the value of a GPU and instance that of a MIG instance; without instance, the GPU's value is repeated for
	// each instance (see repeated). container is the part of a container that shares a GPU.
	gpu, instance, container *figure
	// paired marks a family that is not shipped and by which users divide: it has the labels of the dividend.
	paired bool
	// differs describes the difference to dcgm-exporter; empty: none.
	differs string
}

// shipped tells whether dcgm-exporter exports a family by default.
type shipped string

const (
	byDefault shipped = "default"   // in its collector file
	commented shipped = "commented" // in its collector file, as a comment
	custom    shipped = "custom"    // a DCGM field that a user's own collector file may name
)

// unit converts a value of ours, in base units, into one of theirs.
type unit struct {
	old, new string // names; new in 4.9, of renamed families
	times    float64
	by       float64 // the old unit is the base unit times and by this; 0 is 1
	whole    bool    // rounded down to whole numbers
}

// figure is a value made of families of the catalog.
type figure struct {
	of   []string // whose series selected by with are added up; without any there is no value
	less string   // subtracted
	over []string // divisor; with does not select there
	with []string // own labels and their values, in pairs
	by   string   // an own label that the series keep
	// increase takes the increase in the last minute, divided by that of over, or by the seconds between the readings.
	increase bool
	// fiveMinutes takes the increase in the last five minutes.
	fiveMinutes bool
	// latest takes the label by as the value: that of the series with the highest value.
	latest bool
}

// key identifies what a reading is of. Instance and container are empty for a GPU.
type key struct {
	gpu, instance string
	container     gpu.Container
}

// reading is a value and the values of its own labels.
type reading struct {
	value float64
	own   []string
}

// sums are the sums of series of a family, by what they are of and by a label.
type sums map[key]map[string]float64

// frame has the GPUs of a view, their parts, and the containers to which each is allocated.
type frame struct {
	view *gpu.View
	gpus []device
}

// device is a GPU that NVML has reported.
type device struct {
	uuid  string
	base  []string // label values up to the driver version
	parts []instance
	count map[gpu.Container]int // parts of the GPU allocated to each container
}

// instance is what is allocated as one: a MIG instance, or the GPU.
type instance struct {
	uuid, profile, id string // empty for a whole GPU
	containers        []gpu.Container
}

// history is what is kept of earlier views, oldest first. It is replaced, never changed.
type history struct {
	sums []*gpu.View // of a minute: what was summed, no readings
	xids []*gpu.View // of five minutes: the XIDs
}
