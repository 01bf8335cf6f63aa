package compat

import (
	"strings"
	"sync/atomic"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/catalog"
	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// Release is a release of another exporter whose exposition is rendered.
type Release string

// 4.8 stands for 4.8.0 to 4.8.4; 4.9 renamed 22 of its families and a label. NvidiaSMI is nvidia_gpu_exporter 1.9.
const (
	DCGM48    Release = "dcgm-4.8"
	DCGM49    Release = "dcgm-4.9"
	NvidiaSMI Release = "nvidia-smi"
)

// Releases lists them all, as values of --compat.
func Releases() []string { return []string{string(DCGM48), string(DCGM49), string(NvidiaSMI)} }

// Path is where the exposition is served.
func (r Release) Path() string {
	if r == NvidiaSMI {
		return "/metrics/nvidia-smi"
	}
	return "/metrics/dcgm"
}

// Options select a page.
type Options struct {
	Release Release
	// Copies repeats the series of a shared GPU for each of its containers, as dcgm-exporter does with
	// KUBERNETES_VIRTUAL_GPUS=true. Otherwise each GPU has one series, without a pod if several share it.
	Copies bool
	// PodLabels are the labels of pods that become labels of series, by their names in Kubernetes.
	PodLabels []string
	// DeviceLabels are the keys of the label-typed fields to add: see DeviceLabels.
	DeviceLabels []string

	// Collectors are the only fields of a page of dcgm-exporter, in either release's names, with their types and help; nil:
	// all of Release. The labels are theirs, too.
	Collectors []Collector
	// Settings are those of dcgm-exporter's other flags.
	Settings
}

// Collector is a line of dcgm-exporter's collector file.
type Collector struct{ Field, Type, Help string }

// Devices are those that --devices of dcgm-exporter selects; the zero value is all: MIG instances where there are any, else GPUs.
type Devices struct {
	// Kind is "g" for GPUs, which have no series of their instances, "i" for MIG instances only, and empty for all.
	Kind string
	// Numbers are the indices of GPUs, or of instances counted over all GPUs; nil: all.
	Numbers []int
}

// Settings are what flags of dcgm-exporter change on its page. The zero value is that of a page beside the exporter's own.
type Settings struct {
	// NoHostname and NoPodUID omit labels; OldLabels has those of its releases 1.x, and Dashes none of the blanks of models.
	NoHostname, NoPodUID, OldLabels, Dashes bool
	// Devices selects GPUs and MIG instances.
	Devices Devices
	// XIDWindow and ClockWindow are the periods of the families DCGM_EXP_*; 0: five minutes.
	XIDWindow, ClockWindow time.Duration
}

// DeviceLabels are the label-typed fields of dcgm-exporter that are not in its default configuration.
func DeviceLabels() []string {
	return []string{"DCGM_FI_DEV_SERIAL", "DCGM_FI_DEV_VBIOS_VERSION", "DCGM_FI_DEV_BRAND", "DCGM_FI_NVML_VERSION",
		"DCGM_FI_DEV_OEM_INFOROM_VER", "DCGM_FI_DEV_ECC_INFOROM_VER", "DCGM_FI_DEV_POWER_INFOROM_VER",
		"DCGM_FI_DEV_INFOROM_IMAGE_VER"}
}

// Page renders one release. Published is for one goroutine; everything else is safe for concurrent use.
type Page struct {
	Options
	families map[string]catalog.Family
	rows     []Row
	driver   string   // the label of the driver's version
	absent   []string // Collectors that have no row
	history  atomic.Pointer[history]
	frame    atomic.Pointer[frame] // of the view that was rendered last
}

// Row is a family of dcgm-exporter: a row of table.csv.
type Row struct {
	Name    string // in 4.8
	Renamed string // in 4.9; empty: as in 4.8
	Type    catalog.Type
	Shipped Shipped
	help    string // without the unit
	Unit    Unit
	// GPU is the value of a GPU and Instance that of a MIG instance; without Instance, the GPU's value is repeated for
	// each instance (see repeated). Container is the part of a container that shares a GPU.
	GPU, Instance, Container *Figure
	// paired marks a family that is not shipped and by which users divide: it has the labels of the dividend.
	paired bool
	// Differs describes the difference to dcgm-exporter; empty: none.
	Differs string
	// Rewrite is what of a query is equal with the family replaced by GPU: see test/compat, which evaluates both.
	Rewrite Rewrite
	// ByHand says what to use where a query is not rewritten; empty: GPU.
	ByHand string

	in     Release // the release of the name on a page
	chosen bool    // by a collector file
}

// Rewrite is which queries of a family gpu-migrate rewrites.
type Rewrite string

const (
	// NoRewrite is for families whose values or series are others here.
	NoRewrite Rewrite = ""
	// Same families have the same samples, in another unit.
	Same Rewrite = "same"
	// Near families are computed, or means of other periods: they are near where the value is steady.
	Near Rewrite = "near"
	// Increasing families are counters that begin at another value, such as after a reload of the driver: only their
	// increase is the same.
	Increasing Rewrite = "counter"
)

// Shipped reports whether dcgm-exporter exports a family by default.
type Shipped string

const (
	ByDefault Shipped = "default"   // in its collector file
	Commented Shipped = "commented" // in its collector file, as a comment
	Custom    Shipped = "custom"    // a DCGM field that a user's own collector file may name
)

// Unit converts a value of ours, in base units, into one of theirs.
type Unit struct {
	Name, New string // New in 4.9, of renamed families, which have base units there
	// A value is the one in base units times Times, divided by By; 0 is 1.
	Times, By float64
	whole     bool // rounded down to whole numbers
	percent   bool // rounded to whole numbers, above 0 to 1 at least
}

// Figure is a value made of families of the catalog.
type Figure struct {
	Of   []Term // added up; without any there is no value
	Less []Term // subtracted
	Over []Term // divisor, added up
	By   string // an own label that the series keep
	// mask makes the value 1 if one of these bits is set, else 0; 0 leaves it as it is.
	mask     int
	Operator Operator
}

// Term is a family and the own labels that select its series, with their values, in pairs.
type Term struct {
	Name string
	With []string
}

// Operator says what a figure does with its terms; without one it adds up their current values.
type Operator string

const (
	// Rate is the increase in the last minute, divided by that of Over, or by the seconds between the readings.
	Rate Operator = "rate"
	// Last5m is the increase in the last five minutes.
	Last5m Operator = "last5m"
	// Latest is the label By of the series with the highest value.
	Latest Operator = "latest"
	// Events counts, by bit of a mask, the views of the last five minutes in which it was set.
	Events Operator = "events"
	// Count is the number of the node's series.
	Count Operator = "count"
	// State is the position of the active state of a state set, which is NVML's number; State1 counts from 1.
	State  Operator = "state"
	State1 Operator = "state1"
	// Health is DCGM's health of a GPU, as far as the catalog has it.
	Health Operator = "health"
)

var operators = []Operator{Rate, Last5m, Latest, Events, Count, State, State1, Health}

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

// frame has the GPUs of a view, their parts, the containers to which each is allocated, and the labels of their pods.
type frame struct {
	view *gpu.View
	gpus []device
	pods map[gpu.PodName][]string
}

// device is a GPU that NVML has reported.
type device struct {
	uuid  string
	base  []string // label values of the GPU
	parts []instance
	count map[gpu.Container]int // parts of the GPU allocated to each container
}

// instance is what is allocated as one: a MIG instance, or the GPU.
type instance struct {
	uuid, profile, id, ci string // empty for a whole GPU; ci also for several compute instances
	containers            []gpu.Container
	workload              [][]string // label values of each container: vgpu and those of its DRA claim
}

// history is what is kept of earlier views, oldest first. It is replaced, never changed.
type history struct {
	sums []*gpu.View // of a minute: what was summed, no readings
	xids []*gpu.View // of five minutes: the XIDs
}

// smiUUID spells a UUID as nvidia_gpu_exporter does: in lower case, without the prefix.
func smiUUID(uuid gpu.UUID) string {
	return strings.ToLower(strings.TrimPrefix(strings.TrimPrefix(string(uuid), "GPU-"), "MIG-"))
}
