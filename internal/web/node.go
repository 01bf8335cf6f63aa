package web

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// nodePage is what the template shows: the View, and beside it what the template cannot work out.
type nodePage struct {
	*gpu.View
	Driver *gpu.System // nil without a driver
	Tally  []tally
	Rows   []GPURow
	Span   string // how far back the plots reach
	Lacks  []lack
	Locked string // the features that want a right which an administrator can give
	Compat nodeLink
}

// nodeLink leads to an exposition under other names; empty where there is none.
type nodeLink struct{ Path, Name string }

// lack is what some GPUs do not offer.
type lack struct{ GPUs, Readings string }

// tally is one number at the top of the page.
type tally struct {
	Count        int
	Label, Class string
}

// gpuRow is one GPU of the table with its holders. The poll groups are nil where there is nothing live to show.
type GPURow struct {
	*gpu.GPU
	Fast      *gpu.Fast
	Medium    *gpu.Medium
	Slow      *gpu.Slow
	Memory    *gpu.Memory
	Holders   []holderRow
	Users     []userRow
	Instances []instanceRow
	Seen      []string // the containers that see the GPU and do not hold it
	Trouble   []string
	Past      string // the path of the plot
	Free      bool   // known to be free
}

type instanceRow struct {
	gpu.InstanceActivity
	Mem     *gpu.Memory
	Holders []holderRow
	Free    bool
}

// holderRow is one holder, and what it does with what it holds, in words.
type holderRow struct {
	gpu.ContainerAllocation
	Does string
}

// userRow is somebody who uses a GPU without holding it, and what is to be said of that. Wrong is set where it is
// known not to be his.
type userRow struct {
	gpu.Container
	Says  string
	Wrong bool
}

func newNodePage(v *gpu.View) nodePage {
	p := nodePage{View: v}
	if s, ok := v.System.Get(); ok {
		p.Driver = &s
	}
	for i := range v.GPUs {
		p.Rows = append(p.Rows, newGPURow(v, &v.GPUs[i]))
		if s := span(v.GPUs[i].History); len(s) > len(p.Span) {
			p.Span = s
		}
	}
	p.Tally = tallies(v)
	p.Lacks = lacks(v)
	p.Locked = locked(v)
	return p
}

func newGPURow(v *gpu.View, c *gpu.GPU) GPURow {
	row := GPURow{GPU: c, Past: plot(c.History), Free: c.AllocationRatio.Present() && c.AllocationRatio.Or(1) == 0}
	// What was last read of a GPU that cannot be read now is not shown as if it were live.
	if c.State == gpu.DeviceUp {
		row.Fast, row.Medium, row.Slow = c.Fast.Or(nil), c.Medium.Or(nil), c.Slow.Or(nil)
	}
	if row.Medium != nil {
		row.Memory = pointer(row.Medium.Memory)
	}
	row.Trouble = trouble(v, c)
	row.Seen = onlookers(v, c.UUID)
	for _, in := range c.Instances {
		row.Instances = append(row.Instances, instanceRow{
			InstanceActivity: in, Mem: pointer(in.Memory), Free: in.AllocationRatio.Present() && in.AllocationRatio.Or(1) == 0,
			Holders: holders(v, c.UUID, func(h gpu.UUID) bool {
				return h != "" && (h == in.UUID || slices.ContainsFunc(in.Compute, func(ci gpu.ComputeInstance) bool { return ci.UUID == h }))
			}),
		})
	}
	row.Holders = holders(v, c.UUID, func(in gpu.UUID) bool { return in == "" })
	row.Users = users(v, c.UUID)
	return row
}

// users lists who uses a GPU without holding anything of it.
func users(v *gpu.View, dev gpu.UUID) []userRow {
	var out []userRow
	for i := range v.Containers {
		c := &v.Containers[i]
		holds := func(h gpu.ContainerAllocation) bool { return h.GPU == dev && h.Container == c.Container }
		if c.GPU != dev || c.Ended || slices.ContainsFunc(v.Allocations, holds) {
			continue
		}
		row := userRow{Container: c.Container, Wrong: len(c.Mismatch) > 0}
		parts := []string{does(v.At, c)}
		for _, kind := range c.Mismatch {
			parts = append(parts, mismatch(kind))
		}
		row.Says = strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), "; ")
		out = append(out, row)
	}
	return out
}

// mismatch says in words what is wrong with a use.
func mismatch(kind string) string {
	switch kind {
	case "used_not_allocated":
		return "it holds no GPU: it sees this one by its environment or its privileges, or its pod was deleted by force"
	case "used_other_gpu":
		return "it holds another GPU and works on this one"
	}
	return strings.ReplaceAll(kind, "_", " ")
}

// locked lists the features that are locked.
func locked(v *gpu.View) string {
	var names []string
	for _, f := range v.Features {
		if f.State == gpu.FeatureLocked {
			names = append(names, strings.ReplaceAll(f.Name, "_", " "))
		}
	}
	return strings.Join(names, ", ")
}

// lacks groups GPUs that lack the same readings.
func lacks(v *gpu.View) []lack {
	var out []lack
	for _, n := range v.NotOffered {
		if len(n.Readings) == 0 {
			continue
		}
		name := string(n.GPU)
		for i := range v.GPUs {
			if v.GPUs[i].UUID == n.GPU && v.GPUs[i].Index >= 0 {
				name = fmt.Sprint(v.GPUs[i].Index)
			}
		}
		readings := strings.Join(n.Readings, ", ")
		if i := slices.IndexFunc(out, func(l lack) bool { return l.Readings == readings }); i >= 0 {
			out[i].GPUs += ", " + name
		} else {
			out = append(out, lack{name, readings})
		}
	}
	return out
}

func pointer[T any](o gpu.Opt[T]) *T {
	if v, ok := o.Get(); ok {
		return &v
	}
	return nil
}

// trouble lists what a person should look at, in words.
func trouble(v *gpu.View, c *gpu.GPU) []string {
	var out []string
	if a, ok := c.Recovery.Get(); ok && a != gpu.RecoveryNone {
		out = append(out, "wants: "+strings.ReplaceAll(string(a), "_", " "))
	}
	for _, x := range c.XIDs {
		if t, ok := x.Last.Get(); ok {
			out = append(out, fmt.Sprintf("XID %d, %s", x.XID, since(v.At, t)))
		}
	}
	return out
}

func holders(v *gpu.View, dev gpu.UUID, instance func(gpu.UUID) bool) []holderRow {
	var out []holderRow
	for _, h := range v.Allocations {
		if h.GPU != dev || !instance(h.Instance) {
			continue
		}
		row := holderRow{ContainerAllocation: h}
		for i := range v.Containers {
			c := &v.Containers[i]
			if c.Container == h.Container && c.GPU == dev && !c.Ended {
				row.Does = does(v.At, c)
			}
		}
		out = append(out, row)
	}
	return out
}

// mostOnlookers is how many containers that only see a GPU are named.
const mostOnlookers = 8

// onlookers names the containers that see a GPU and do not hold it.
func onlookers(v *gpu.View, dev gpu.UUID) []string {
	var out []string
	more := 0
	for _, s := range v.Visible {
		if s.GPU != dev || slices.ContainsFunc(v.Allocations, func(h gpu.ContainerAllocation) bool { return h.GPU == dev && h.Container == s.Container }) {
			continue
		}
		if len(out) == mostOnlookers {
			more++
			continue
		}
		out = append(out, strings.Trim(s.Namespace+"/"+s.Pod+" "+s.Name, "/ "))
	}
	if more > 0 {
		out = append(out, fmt.Sprintf("%d more", more))
	}
	return out
}

// does says what a container does on a GPU, as far as it was measured.
func does(now time.Time, c *gpu.ContainerGPU) string {
	var parts []string
	if m, ok := c.Memory.Get(); ok {
		parts = append(parts, humanBytes(m))
	}
	if !c.Busy.Present() {
		return strings.Join(append(parts, "work not measured"), ", ")
	}
	if t, ok := c.LastBusy.Get(); ok {
		if c.Busy.Or(0) == 0 {
			parts = append(parts, "no work seen yet")
		} else {
			parts = append(parts, "worked "+since(now, t))
		}
	}
	return strings.Join(parts, ", ")
}

func tallies(v *gpu.View) []tally {
	if v.Devices == nil {
		return nil
	}
	out := []tally{{v.Devices[gpu.DeviceUp], "up", "good"}}
	for _, bad := range []struct {
		state gpu.DeviceState
		class string
	}{{gpu.DeviceFailed, "bad"}, {gpu.DeviceMissing, "bad"}, {gpu.DeviceDetached, ""}} {
		if n := v.Devices[bad.state]; n > 0 {
			out = append(out, tally{n, string(bad.state), bad.class})
		}
	}
	if v.Ownership {
		held, free, idle := 0, 0, 0
		for i := range v.GPUs {
			c := &v.GPUs[i]
			a, ok := c.AllocationRatio.Get()
			switch {
			case !ok:
			case a == 0:
				free++
			default:
				held++
				if t, ok := c.Activity.LastBusy.Get(); ok && c.State == gpu.DeviceUp && v.At.Sub(t) > idleAfter {
					idle++
				}
			}
		}
		out = append(out, tally{held, "held", ""}, tally{free, "free", ""})
		if idle > 0 {
			out = append(out, tally{idle, "held and idle", "warn"})
		}
		wrong := map[gpu.UUID]bool{}
		for i := range v.Containers {
			if c := &v.Containers[i]; !c.Ended && len(c.Mismatch) > 0 {
				wrong[c.GPU] = true
			}
		}
		if len(wrong) > 0 {
			out = append(out, tally{len(wrong), "used by others than the holders", "warn"})
		}
	}
	return out
}

// idleAfter is when a held GPU counts as idle on the page.
const idleAfter = 10 * time.Minute

// plot draws the utilization of the last minutes as an SVG path in a box of 100 by 24; gaps stay gaps.
func plot(past []gpu.HistoryPoint) string {
	if len(past) < 2 {
		return ""
	}
	first, last := past[0].At, past[len(past)-1].At
	if !last.After(first) {
		return ""
	}
	var b strings.Builder
	pen := "M"
	for _, p := range past {
		u, ok := p.Utilization.Get()
		if !ok {
			pen = "M"
			continue
		}
		x := float64(p.At.Sub(first)) / float64(last.Sub(first)) * 100
		fmt.Fprintf(&b, "%s%.1f %.1f", pen, x, 23-float64(u)*22)
		pen = "L"
	}
	return b.String()
}

func span(past []gpu.HistoryPoint) string {
	if len(past) < 2 {
		return ""
	}
	return fmt.Sprintf("last %.0f minutes", past[len(past)-1].At.Sub(past[0].At).Minutes())
}
