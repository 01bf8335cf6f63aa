package account

import (
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// The profiling counters fill a gap of the ring where they cover the same time and agreed with the ring before, up to the
// length of the gap.
func TestProfilingFillsAGap(t *testing.T) {
	type step struct {
		since, busy, observed, lost float64
		profiled, covered           float64
		want                        increment // busy, observed, lost, unsampled
	}
	for name, steps := range map[string][]step{
		"a gap": {
			{2, 1, 2, 0, 1, 2, increment{busy: 1, observed: 2}},
			{60, 5, 14, 46, 35, 60, increment{busy: 35, observed: 60, unsampled: 30, unsampledTime: 46}},
			{2, 1, 2, 0, 1, 2, increment{busy: 1, observed: 2}}},
		"idle time":              {{60, 0, 14, 46, 0, 60, increment{observed: 60, unsampledTime: 46}}},
		"less than the ring":     {{60, 10, 14, 46, 9.9, 60, increment{busy: 10, observed: 60, unsampledTime: 46}}},
		"more than was lost":     {{60, 0, 14, 46, 60, 60, increment{busy: 46, observed: 60, unsampled: 46, unsampledTime: 46}}},
		"a sample of the ring":   {{2, 1, 1.8, .2, 1.2, 2, increment{busy: 1, observed: 1.8, lost: .2}}},
		"a pair is missing":      {{60, 5, 14, 46, 30, 54, increment{busy: 5, observed: 14, lost: 46}}},
		"the machine was asleep": {{2, 1, 14, 3600, 1, 2, increment{busy: 1, observed: 14, lost: 3600}}},
		"they disagree": {
			{100, 90, 100, 0, 87, 100, increment{busy: 90, observed: 100}},
			{60, 5, 14, 46, 35, 60, increment{busy: 5, observed: 14, lost: 46}}},
		"they disagreed an hour ago": {
			{100, 90, 100, 0, 60, 100, increment{busy: 90, observed: 100}},
			{3600, 1800, 3600, 0, 1800, 3600, increment{busy: 1800, observed: 3600}},
			{60, 5, 14, 46, 35, 60, increment{busy: 35, observed: 60, unsampled: 30, unsampledTime: 46}}},
	} {
		var p profiled
		for i, s := range steps {
			p.add(gpu.Some(gpu.GPM{Window: time.Duration(s.covered * float64(time.Second)),
				GraphicsActive: gpu.Some(gpu.Ratio(s.profiled / s.covered))}), s.covered)
			in := increment{busy: s.busy, observed: s.observed, lost: s.lost, wasBusy: s.busy > 0}
			p.fill(&in, s.since)
			for what, v := range map[string][2]float64{"busy": {in.busy, s.want.busy}, "observed": {in.observed, s.want.observed},
				"lost": {in.lost, s.want.lost}, "unsampled": {in.unsampled, s.want.unsampled},
				"its time": {in.unsampledTime, s.want.unsampledTime}} {
				near(t, name+": "+what, v[0], v[1])
			}
			if in.wasBusy != (in.busy > 0) || in.unsampled > 0 && s.busy == 0 && in.sinceBusy != s.observed {
				t.Errorf("%s, step %d: busy %v, %v s ago", name, i, in.wasBusy, in.sinceBusy)
			}
		}
	}
}

// Where containers share a GPU, the busy time of a gap is attributed to none of them: the processes after it need not be
// those that caused it. Where a GPU is allocated to one container as a whole, it is the container's if the kubelet listed it
// after the gap, too.
func TestBusyTimeOfAGap(t *testing.T) {
	for name, shares := range map[string]map[string]float64{"shared": {"p": .5, "q": .5}, "whole": {"p": 1}, "not asked since": {"p": 1},
		"replaced": {"p": 1}} {
		l := New(Options{Processes: 9})
		at := 1000.0
		busy := func(pod string) float64 {
			w := world{Ledger: l, t: t}
			return float64(w.container(pod, "A").Busy.Or(0))
		}
		var before float64
		for i, seconds := range []float64{2, 2, 2, 60, 2} {
			from := at
			switch i {
			case 0:
				from -= 10
			case 3:
				before, from = busy("p"), at+46 // the ring has the last 14 s
			}
			at += seconds
			if i >= 3 && name == "replaced" {
				shares = map[string]float64{"q": 1}
			}
			asked := epoch
			if name == "not asked since" {
				asked = asked.Add(-15 * time.Second)
			}
			allocations := gpu.Allocations{Known: true, Configured: true, Sources: []gpu.Source{
				{Name: gpu.SourceProcesses, Up: true, LastSuccess: gpu.Some(epoch)},
				{Name: gpu.SourcePodResources, Up: true, LastSuccess: gpu.Some(asked)}}}
			for _, pod := range []string{"p", "q"} {
				if shares[pod] > 0 {
					allocations.List = append(allocations.List, allocate(pod, "A", shares[pod]))
				}
			}
			f := &gpu.Fast{Busy: gpu.Some(regular(from, at, .1, 100)),
				GPM:       gpu.Some(gpu.GPM{Window: time.Duration(seconds * 1e9), GraphicsActive: gpu.Some[gpu.Ratio](1)}),
				Processes: gpu.Some([]gpu.ProcessSample{{PID: 1, SM: 100, Time: int64(at * 1e6)}})}
			l.Advance(Poll{Now: epoch, Elapsed: time.Duration(seconds * float64(time.Second)), Users: testUsers, Allocations: allocations,
				GPUs: []Reading{{Identity: gpu.Identity{UUID: "A"}, Fast: f, Medium: medium(1, 1, 1)}}})
		}
		w := world{Ledger: l, t: t}
		near(t, name+": the GPU", float64(w.device("A").Activity.Busy.Or(0)), 66)
		near(t, name+": p", busy("p")-before, map[string]float64{"shared": 16, "whole": 62, "not asked since": 16, "replaced": 16}[name])
		for _, u := range w.device("A").Unattributed {
			want := 0.0
			if u.Reason == gpu.UnattributedUnresolved && name != "whole" {
				want = 46
			}
			near(t, name+": "+string(u.Reason), float64(u.Busy.Or(0)), want)
		}
	}
}

// A container that a GPU was allocated to within a gap, as while the driver hangs, has none of the gap's busy time.
func TestSuccessorInAGap(t *testing.T) {
	l := New(Options{Processes: 9})
	at := 1000.0
	for i, seconds := range []float64{2, 2, 30, 30, 2} {
		f := &gpu.Fast{Busy: gpu.Some(regular(at, at+seconds, .1, 100)),
			GPM: gpu.Some(gpu.GPM{Window: time.Duration(seconds * 1e9), GraphicsActive: gpu.Some[gpu.Ratio](1)})}
		pod := "p"
		switch i {
		case 0:
			f.Busy = gpu.Some(regular(at-10, at+seconds, .1, 100))
		case 2:
			f, pod = nil, "q"
		case 3:
			pod = "q"
			f.Busy = gpu.Some(regular(at+16, at+seconds, .1, 100)) // the ring has the last 14 s
			f.GPM = gpu.Some(gpu.GPM{Window: time.Minute, GraphicsActive: gpu.Some[gpu.Ratio](1)})
		case 4:
			pod = "q"
		}
		at += seconds
		l.Advance(Poll{Now: epoch, Elapsed: time.Duration(seconds * float64(time.Second)), Users: testUsers, Allocations: gpu.Allocations{
			Known: true, Configured: true, List: []gpu.Allocation{allocate(pod, "A", 1)},
			Sources: []gpu.Source{{Name: gpu.SourcePodResources, Up: true, LastSuccess: gpu.Some(epoch)}}},
			GPUs: []Reading{{Identity: gpu.Identity{UUID: "A"}, Fast: f}}})
	}
	w := world{Ledger: l, t: t}
	near(t, "the GPU", float64(w.device("A").Activity.Busy.Or(0)), 64)
	near(t, "the successor", float64(w.container("q", "A").Busy.Or(0)), 16)
	for _, u := range w.device("A").Unattributed {
		if u.Reason == gpu.UnattributedUnresolved {
			near(t, "unresolved", float64(u.Busy.Or(0)), 46)
		}
	}
}
