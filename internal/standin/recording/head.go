package recording

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/internal/nvml/calls"
	"github.com/gpu-exporter/gpu-exporter/internal/standin/scenario"
)

// addresses gives every GPU its PCI address and returns those that are taken. A GPU that did not report its own gets
// the first of the bus that no other has, or one that no machine has.
func (r *recording) addresses() []string {
	var taken []string
	for _, d := range r.gpus {
		var pci struct{ Domain, Bus, Slot uint32 }
		if decode(d.last("PciInfo"), &pci) {
			at := string(gpu.NewPCIAddress(pci.Domain, pci.Bus, pci.Slot, 0))
			d.draft.Options = append(d.draft.Options, "pci="+at)
			taken = append(taken, at)
		}
	}
	for i, d := range r.gpus {
		if len(d.draft.Options) == 0 {
			at := string(gpu.NewPCIAddress(0xffff, uint32(i), 0, 0))
			for _, b := range r.header.Bus {
				if !slices.Contains(taken, b.PCI) {
					at = b.PCI
					break
				}
			}
			d.note("it did not report its PCI address; the one here is a guess.")
			d.draft.Options = append(d.draft.Options, "pci="+at)
			taken = append(taken, at)
		}
		for _, b := range r.header.Bus {
			if b.NUMA != nil && d.draft.Options[0] == "pci="+b.PCI {
				d.draft.Answers.Set("NumaNodeId", scenario.Numbers(strconv.Itoa(*b.NUMA)))
			}
		}
	}
	return taken
}

// missing adds the GPUs that the PCI bus has and the driver does not list.
func (r *recording) missing(taken []string) {
	for _, b := range r.header.Bus {
		index := len(r.draft.GPUs)
		if slices.Contains(taken, b.PCI) || index >= scenario.MaxGPUs {
			continue
		}
		r.notes = append(r.notes, fmt.Sprintf("GPU %d is on the PCI bus; the driver does not list it.", index))
		r.draft.GPUs = append(r.draft.GPUs, scenario.DraftGPU{Options: []string{"pci=" + b.PCI},
			Statements: []string{fmt.Sprintf("at 0s gpu %d remove", index)}})
	}
}

// head writes what concerns the whole file.
func (r *recording) head() {
	exports := func(symbol string) bool { return slices.Contains(r.header.Symbols, symbol) }
	for key, symbols := range map[string][]string{"EventSetCreate": {"nvmlEventSetCreate"},
		"EventSetWait": {"nvmlEventSetWait", "nvmlEventSetWait_v2"}} {
		if !slices.ContainsFunc(symbols, exports) {
			r.draft.System.Set(key, scenario.Code("FUNCTION_NOT_FOUND"))
		}
	}
	driver := r.draft.System.Text("DriverVersion")
	r.draft.Symbols = nearestSet(exports, driver, r.field, r.metric)

	var models []string
	count := map[string]int{}
	for _, d := range r.gpus {
		name := d.name
		if name == "" {
			name = "a GPU without a name"
		}
		if count[name] == 0 {
			models = append(models, name)
		}
		count[name]++
	}
	for i, name := range models {
		models[i] = fmt.Sprintf("%d x %s", count[name], name)
	}
	r.draft.Title = fmt.Sprintf("Recorded: %s, driver %s", strings.Join(models, ", "), driver)
	r.draft.Comment = []string{
		fmt.Sprintf("Made from a journal of %s, %s, over %s. %s", r.header.Program, r.header.Date, seconds(r.seconds),
			r.header.Note),
		"Values are those at the end of the journal. A counter of work goes on at the rate at which it grew. busy= " +
			"is the mean of the journal, in time slices of one second. FUNCTION_NOT_FOUND is a function that the " +
			"driver's library does not have.",
	}
	if len(r.notes) > 0 {
		r.draft.Comment = append(r.draft.Comment, strings.Join(r.notes, " "))
	}
}

// symbolSet is a driver branch as a scenario names it: what the stand-in driver exports and answers then.
type symbolSet struct {
	name   string
	branch int
	// fields and metrics are the first field and metric that it does not know.
	fields, metrics int
}

// symbolSets in the order of their age. A test compares them with the stand-in driver.
var symbolSets = []symbolSet{
	{name: "R470", branch: 470, fields: 161, metrics: 1},
	{name: "R535", branch: 535, fields: 197, metrics: 98},
	{name: "R550", branch: 550, fields: 197, metrics: 98},
	{name: "R580", branch: 580, fields: 274, metrics: 210},
	{name: "R595", branch: 595, fields: 303, metrics: 333},
	{name: "R610", branch: 610, fields: 1 << 30, metrics: 1 << 30},
	{name: "R615", branch: 615, fields: 1 << 30, metrics: 1 << 30},
	{name: "R620", branch: 620, fields: 1 << 30, metrics: 1 << 30},
	{name: "newest", branch: 621, fields: 1 << 30, metrics: 1 << 30},
}

// adds are the functions that the exporter calls and that the set has and the one before lacks.
func (s symbolSet) adds() []string {
	var list []string
	for i := range calls.Calls {
		switch c := &calls.Calls[i]; {
		case c.Unused:
		case c.Since == s.branch:
			list = append(list, c.Symbols()...)
		case c.NewestSince == s.branch:
			list = append(list, c.Symbols()[0])
		}
	}
	return list
}

// nearestSet chooses the set for a library: the oldest that has every function that the library exports and every
// field and metric that it answered, or the driver's own branch if that is newer. What a set has and the library
// lacks is in the recording line by line.
func nearestSet(exports func(symbol string) bool, driver string, field, metric int) string {
	branch, _, _ := strings.Cut(driver, ".")
	number, _ := strconv.Atoi(branch)
	at := 0
	for i, set := range symbolSets {
		if slices.ContainsFunc(set.adds(), exports) || set.branch <= number {
			at = i
		}
	}
	for at < len(symbolSets)-1 && (field >= symbolSets[at].fields || metric >= symbolSets[at].metrics) {
		at++
	}
	return symbolSets[at].name
}
