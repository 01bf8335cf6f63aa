package web

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/catalog"
	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// nodePage is the View and what the template cannot compute from it.
type nodePage struct {
	*gpu.View
	Driver   *gpu.System // nil without a driver
	Counts   []count
	Rows     []gpuRow
	Span     string // period of the plots
	Lacks    []lack
	Disabled string // features that lack a permission
	Compat   nodeLink
}

// nodeLink is the path and name of another exposition, if there is one, and what it lacks.
type nodeLink struct{ Path, Name, Note string }

// Documentation is the link to the first page of the documentation.
func (nodePage) Documentation() string { return catalog.Documentation + "README.md" }

// lack is what has no value on the same GPUs for the same reason.
type lack struct{ GPUs, Reason, Readings string }

// count is a number at the top of the page.
type count struct {
	Count        int
	Label, Class string
}

// gpuRow is a GPU of the table. Fast, Medium, Slow and Memory are nil without current readings.
type gpuRow struct {
	*gpu.GPU
	Fast        *gpu.Fast
	Medium      *gpu.Medium
	Slow        *gpu.Slow
	Memory      *gpu.Memory
	Allocations []allocationRow
	Users       []userRow
	Instances   []instanceRow
	Visible     []string // containers in which the GPU is visible without being allocated
	Issues      []string
	Plot        string // SVG path
	Unallocated bool
	Readings    []chapter
	Processes   []gpu.ProcessActivity
}

type instanceRow struct {
	gpu.InstanceActivity
	Mem         *gpu.Memory
	Allocations []allocationRow
	Unallocated bool
}

type allocationRow struct {
	gpu.ContainerAllocation
	Activity string
}

// userRow is a container that uses a GPU not allocated to it. Mismatch is set if it is known that it should not.
type userRow struct {
	gpu.Container
	Activity string
	Mismatch bool
}

func newNodePage(v *gpu.View, compat nodeLink) nodePage {
	p := nodePage{View: v, Driver: pointer(v.System), Counts: counts(v), Lacks: lacks(v), Compat: compat}
	readings := readings(v)
	for i := range v.GPUs {
		p.Rows = append(p.Rows, newGPURow(v, &v.GPUs[i]))
		p.Rows[i].Readings = readings[v.GPUs[i].UUID]
		if s := span(v.GPUs[i].History); len(s) > len(p.Span) {
			p.Span = s
		}
	}
	var disabled []string
	for _, f := range v.Features {
		if f.State == gpu.FeatureMissingPermission {
			disabled = append(disabled, strings.ReplaceAll(f.Name, "_", " "))
		}
	}
	p.Disabled = strings.Join(disabled, ", ")
	return p
}

func newGPURow(v *gpu.View, g *gpu.GPU) gpuRow {
	row := gpuRow{GPU: g, Plot: plot(g.History), Unallocated: isZero(g.AllocationRatio), Issues: issues(v, g),
		Visible: visibleIn(v, g.UUID), Users: users(v, g.UUID)}
	// The last readings of an unavailable GPU are not current.
	if g.State == gpu.DeviceUp {
		row.Fast, row.Medium, row.Slow = g.Fast.Or(nil), g.Medium.Or(nil), g.Slow.Or(nil)
	}
	if row.Medium != nil {
		row.Memory = pointer(row.Medium.Memory)
	}
	for _, in := range g.Instances {
		row.Instances = append(row.Instances, instanceRow{
			InstanceActivity: in, Mem: pointer(in.Memory), Unallocated: isZero(in.AllocationRatio),
			Allocations: allocations(v, g.UUID, func(uuid gpu.UUID) bool {
				return uuid != "" && (uuid == in.UUID ||
					slices.ContainsFunc(in.Compute, func(ci gpu.ComputeInstance) bool { return ci.UUID == uuid }))
			}),
		})
	}
	row.Processes = processes(g, row.Medium)
	row.Allocations = allocations(v, g.UUID, func(uuid gpu.UUID) bool { return uuid == "" })
	return row
}

func isZero(r gpu.Opt[gpu.Ratio]) bool { return r.Present() && r.Or(1) == 0 }

func pointer[T any](o gpu.Opt[T]) *T {
	if v, ok := o.Get(); ok {
		return &v
	}
	return nil
}

// isAllocated reports whether any part of the GPU is allocated to the container.
func isAllocated(v *gpu.View, uuid gpu.UUID, to gpu.Container) bool {
	return slices.ContainsFunc(v.Allocations, func(a gpu.ContainerAllocation) bool { return a.GPU == uuid && a.Container == to })
}

func allocations(v *gpu.View, uuid gpu.UUID, instance func(gpu.UUID) bool) []allocationRow {
	var out []allocationRow
	for _, a := range v.Allocations {
		if a.GPU != uuid || !instance(a.Instance) {
			continue
		}
		row := allocationRow{ContainerAllocation: a}
		for i := range v.Containers {
			if c := &v.Containers[i]; c.Container == a.Container && c.GPU == uuid && !c.Ended {
				row.Activity = activity(v.At, c)
			}
		}
		out = append(out, row)
	}
	return out
}

// users lists the containers that use a GPU not allocated to them.
func users(v *gpu.View, uuid gpu.UUID) []userRow {
	var out []userRow
	for i := range v.Containers {
		c := &v.Containers[i]
		if c.GPU != uuid || c.Ended || isAllocated(v, uuid, c.Container) {
			continue
		}
		parts := []string{activity(v.At, c)}
		for _, kind := range c.Mismatch {
			parts = append(parts, mismatch(kind))
		}
		parts = slices.DeleteFunc(parts, func(s string) bool { return s == "" })
		out = append(out, userRow{c.Container, strings.Join(parts, "; "), len(c.Mismatch) > 0})
	}
	return out
}

func mismatch(kind string) string {
	switch kind {
	case "used_not_allocated":
		return "no GPU is allocated to it: the GPU is visible through its environment or privileges, or its pod was " +
			"force-deleted"
	case "used_other_gpu":
		return "another GPU is allocated to it"
	}
	return strings.ReplaceAll(kind, "_", " ")
}

// maxVisible is how many containers are listed in which a GPU is visible without being allocated.
const maxVisible = 8

func visibleIn(v *gpu.View, uuid gpu.UUID) []string {
	var out []string
	for _, c := range v.Visible {
		if c.GPU == uuid && !isAllocated(v, uuid, c.Container) {
			out = append(out, strings.Trim(c.Namespace+"/"+c.Pod+" "+c.Name, "/ "))
		}
	}
	if more := len(out) - maxVisible; more > 0 {
		out = append(out[:maxVisible], fmt.Sprintf("%d more", more))
	}
	return out
}

// lacks lists each reading without a value once, with others that lack it on the same GPUs for the same reason.
func lacks(v *gpu.View) (out []lack) {
	var order []lack
	of := map[lack][]string{}
	add := func(g *gpu.GPU, reading, reason string) {
		key, name := lack{Reason: inWords(reason), Readings: inWords(reading)}, string(g.UUID)
		if g.Index >= 0 {
			name = strconv.Itoa(g.Index)
		}
		if of[key] == nil {
			order = append(order, key)
		}
		of[key] = append(of[key], name)
	}
	for i := range v.GPUs {
		g := &v.GPUs[i]
		if n := slices.IndexFunc(v.NotOffered, func(n gpu.NotOffered) bool { return n.GPU == g.UUID }); n >= 0 {
			for _, r := range v.NotOffered[n].Readings {
				add(g, r, "not supported by the GPU or its driver")
			}
		}
		for _, u := range g.Activity.Unmeasured {
			add(g, u.Reading, u.Reason)
		}
	}
	for _, key := range order {
		l := lack{strings.Join(of[key], ", "), key.Reason, key.Readings}
		if i := slices.IndexFunc(out, func(o lack) bool { return o.GPUs == l.GPUs && o.Reason == l.Reason }); i >= 0 {
			out[i].Readings += ", " + l.Readings
		} else {
			out = append(out, l)
		}
	}
	return out
}

// terms are written as NVIDIA writes them.
var terms = strings.NewReplacer("c2c", "C2C", "ecc", "ECC", "edpp", "EDPp", "gpm", "GPM", "gpu", "GPU",
	"gsp", "GSP", "inforom", "InfoROM", "jpeg", "JPEG", "mig", "MIG", "nvlink", "NVLink", "ofa", "OFA", "pcie", "PCIe",
	"sram", "SRAM", "tpc", "TPC", "xid", "XID", "_", " ")

// inWords returns an internal name for a person.
func inWords(name string) string { return terms.Replace(name) }

// issues lists what needs attention.
func issues(v *gpu.View, g *gpu.GPU) []string {
	var out []string
	if verdict, reasons := g.Health(v.At); verdict != gpu.Healthy && g.State != gpu.DeviceDetached {
		text := strings.ReplaceAll(string(verdict), "_", " ")
		for i, r := range reasons {
			text += [2]string{": ", ", "}[min(i, 1)] + strings.ReplaceAll(r.Reason, "_", " ")
		}
		out = append(out, text)
	}
	if a, ok := g.Recovery.Get(); ok && a != gpu.RecoveryNone {
		out = append(out, "recommended action: "+strings.ReplaceAll(string(a), "_", " "))
	}
	for _, x := range g.XIDs {
		if t, ok := x.Last.Get(); ok {
			text := fmt.Sprintf("XID %d, %s", x.XID, since(v.At, t))
			if gi, ok := x.GI.Get(); ok {
				text += fmt.Sprintf(", GPU instance %d", gi)
			}
			if x.Container.Pod != "" {
				text += ", " + strings.Trim(x.Container.Namespace+"/"+x.Container.Pod+"/"+x.Container.Name, "/")
			}
			out = append(out, text)
		}
	}
	return out
}

// activity describes the memory and the last activity of a container on a GPU, as far as they were measured.
func activity(now time.Time, c *gpu.ContainerGPU) string {
	var parts []string
	if m, ok := c.Memory.Get(); ok {
		parts = append(parts, humanBytes(m))
	}
	last, ok := c.LastBusy.Get()
	switch {
	case !c.Busy.Present():
		parts = append(parts, "activity not measured")
	case ok && c.Busy.Or(0) == 0:
		parts = append(parts, "never busy")
	case ok:
		parts = append(parts, "last busy "+since(now, last))
	}
	return strings.Join(parts, ", ")
}

// idleAfter is when an allocated GPU is idle.
const idleAfter = time.Minute

func counts(v *gpu.View) []count {
	if v.Devices == nil {
		return nil
	}
	out := []count{{v.Devices[gpu.DeviceUp], "up", "good"}}
	some := func(n int, label, class string) {
		if n > 0 {
			out = append(out, count{n, label, class})
		}
	}
	some(v.Devices[gpu.DeviceFailed], string(gpu.DeviceFailed), "bad")
	some(v.Devices[gpu.DeviceMissing], string(gpu.DeviceMissing), "bad")
	some(v.Devices[gpu.DeviceDetached], string(gpu.DeviceDetached), "")
	if !v.Ownership {
		return out
	}
	allocated, unallocated, idle := 0, 0, 0
	for i := range v.GPUs {
		g := &v.GPUs[i]
		switch {
		case isZero(g.AllocationRatio):
			unallocated++
		case g.AllocationRatio.Present():
			allocated++
			if t, ok := g.Activity.LastBusy.Get(); ok && g.State == gpu.DeviceUp && v.At.Sub(t) > idleAfter {
				idle++
			}
		}
	}
	out = append(out, count{allocated, catalog.Allocated.Lower(), ""}, count{unallocated, catalog.Unallocated.Lower(), ""})
	some(idle, catalog.Idle.Lower(), "warn")
	mismatched := map[gpu.UUID]bool{}
	for i := range v.Containers {
		if c := &v.Containers[i]; !c.Ended && len(c.Mismatch) > 0 {
			mismatched[c.GPU] = true
		}
	}
	some(len(mismatched), "used without allocation", "warn")
	return out
}

// plot draws the utilization of the last minutes as an SVG path in a box of 100 by 24, with gaps where it is unknown.
func plot(history []gpu.HistoryPoint) string {
	if len(history) < 2 {
		return ""
	}
	first, last := history[0].At, history[len(history)-1].At
	if !last.After(first) {
		return ""
	}
	var b strings.Builder
	command := "M"
	for _, p := range history {
		u, ok := p.Utilization.Get()
		if !ok {
			command = "M"
			continue
		}
		x := float64(p.At.Sub(first)) / float64(last.Sub(first)) * 100
		fmt.Fprintf(&b, "%s%.1f %.1f", command, x, 23-float64(u)*22)
		command = "L"
	}
	return b.String()
}

func span(history []gpu.HistoryPoint) string {
	if len(history) < 2 {
		return ""
	}
	return fmt.Sprintf("last %.0f minutes", history[len(history)-1].At.Sub(history[0].At).Minutes())
}
