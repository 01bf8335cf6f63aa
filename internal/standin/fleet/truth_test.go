package fleet_test

import (
	"maps"
	"reflect"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/internal/standin/fleet"
)

// Every second of every GPU is in the truth once, over the edges of cycles, too.
func TestTruthAddsUp(t *testing.T) {
	f := newFleet(t, fleet.Demo(1))
	gpus := 0
	for i := range f.Len() {
		gpus += f.Node(i).GPUs
	}
	for _, length := range []time.Duration{time.Second, 50 * time.Minute, 16 * 24 * time.Hour} {
		truth := f.Truth(someDay, someDay.Add(length))
		sum := 0.0
		for _, s := range truth.GPUs {
			sum += float64(s)
		}
		if want := float64(gpus) * length.Seconds(); !near(sum, want) {
			t.Errorf("over %v: %v gpu-seconds of %v", length, sum, want)
		}
		if truth.GPUs[gpu.TimeUnknown] != 0 {
			t.Errorf("the truth does not know %v seconds", truth.GPUs[gpu.TimeUnknown])
		}
		var parts account
		for _, w := range truth.Workloads {
			parts.busy += float64(w.Busy)
			if w.Busy+w.Idle+w.Gap > w.Allocated*5 || w.Allocated < 0 || w.Lost > w.Allocated {
				t.Errorf("workload %s: %+v", w.Name, w)
			}
		}
		if !near(parts.busy, float64(truth.GPUs[gpu.TimeBusy])) {
			t.Errorf("workloads were busy for %v, gpus for %v", parts.busy, truth.GPUs[gpu.TimeBusy])
		}
	}
}

// The parts of a stretch come to the whole.
func TestTruthOfPartsIsTheWhole(t *testing.T) {
	f := newFleet(t, fleet.Demo(9))
	mid, end := someDay.Add(7*time.Hour+13*time.Second), someDay.Add(20*time.Hour)
	whole := f.Truth(someDay, end)
	for id, want := range whole.GPUs {
		if got := f.Truth(someDay, mid).GPUs[id] + f.Truth(mid, end).GPUs[id]; !near(float64(got), float64(want)) {
			t.Errorf("%s: %v in parts, %v in whole", id, got, want)
		}
	}
	if !reflect.DeepEqual(whole, newFleet(t, fleet.Demo(9)).Truth(someDay, end)) {
		t.Error("the truth depends on what was asked before")
	}
}

// What an exporter counts of a workload is what it truly did, where it can tell.
func TestExporterCountsTheTruth(t *testing.T) {
	f := newFleet(t, fleet.Demo(1))
	from, to := someDay, someDay.Add(9*time.Hour)
	type sums struct{ allocated, busy, idle, gap, energy float64 }
	grown := map[[2]string]sums{} // by namespace and workload
	for i := range f.Len() {
		before := map[gpu.Container]map[gpu.UUID]gpu.ContainerGPU{}
		owner := map[[2]string]string{}
		add := func(v *gpu.View) {
			for _, p := range v.Pods {
				owner[[2]string{p.Namespace, p.Pod}] = p.Meta.Workload
			}
			for _, c := range v.Containers {
				b := before[c.Container][c.GPU]
				key := [2]string{c.Namespace, owner[[2]string{c.Namespace, c.Pod}]}
				s := grown[key]
				s.allocated += float64(c.Allocated.Or(0) - b.Allocated.Or(0))
				s.busy += float64(c.Busy.Or(0) - b.Busy.Or(0))
				s.idle += float64(c.Idle.Or(0) - b.Idle.Or(0))
				s.gap += float64(c.Gap.Or(0) - b.Gap.Or(0))
				s.energy += float64(c.Energy.Or(0) - b.Energy.Or(0))
				grown[key] = s
				if before[c.Container] == nil {
					before[c.Container] = map[gpu.UUID]gpu.ContainerGPU{}
				}
				before[c.Container][c.GPU] = c
			}
		}
		for at := from; !at.After(to); at = at.Add(3 * time.Minute) {
			v := f.View(i, at)
			if v == nil {
				continue
			}
			if at.Equal(from) {
				kept := maps.Clone(grown)
				add(v) // what was counted before does not count
				grown = kept
				continue
			}
			add(v)
		}
	}
	compared := 0
	for _, w := range f.Truth(from, to).Workloads {
		if !w.Measured || w.Lost > 0 || w.Class == fleet.Pending {
			continue
		}
		s, ok := grown[[2]string{w.Namespace, w.Name}]
		if !ok {
			t.Errorf("%s/%s was never seen", w.Namespace, w.Name)
			continue
		}
		compared++
		if !near(s.allocated, float64(w.Allocated)) || !near(s.busy, float64(w.Busy)) || !near(s.idle, float64(w.Idle)) ||
			!near(s.gap, float64(w.Gap)) || !near(s.energy, float64(w.Energy)) {
			t.Errorf("%s/%s: counted %+v, truth %+v", w.Namespace, w.Name, s, w)
		}
	}
	if compared < 30 {
		t.Errorf("only %d workloads were compared", compared)
	}
}

// Each class is what its name says, on GPUs that can be seen by anybody who knows the truth.
func TestClassesAreWhatTheySay(t *testing.T) {
	f := newFleet(t, fleet.Big(11, 120, 8))
	from := someDay
	truth := f.Truth(from, from.Add(24*time.Hour))
	seen := map[fleet.Class]int{}
	for _, w := range truth.Workloads {
		seen[w.Class]++
		rate := float64(w.Busy) / max(1, float64(w.Allocated-w.Lost))
		memory := float64(w.MemoryPeak) / float64(max(1, w.DeviceMemory))
		long := w.Allocated-w.Lost > 12*3600
		wrong := ""
		switch w.Class {
		case fleet.Training:
			if long && rate < 0.75 {
				wrong = "hardly works"
			}
		case fleet.Loaded:
			if w.Busy > 0 || memory < 0.05 {
				wrong = "works, or has nothing in memory"
			}
		case fleet.NeverUsed:
			if w.Busy > 0 || w.MemoryPeak > 0 || w.LastBusy.Present() {
				wrong = "was used"
			}
		case fleet.Stopped:
			if rate > 0.5 && long {
				wrong = "goes on"
			}
		case fleet.Preallocated:
			if rate > 0.3 || w.Measured && memory < 0.2 {
				wrong = "works much, or has little memory"
			}
		case fleet.Imbalanced:
			if w.Devices < 2 && w.Allocated > 0 {
				wrong = "has one gpu"
			}
		case fleet.Small:
			if rate > 0.2 || memory > 0.2 {
				wrong = "is not small"
			}
		case fleet.Pending:
			if w.Allocated > 0 || w.Waited <= 0 {
				wrong = "does not wait"
			}
		}
		if wrong != "" {
			t.Errorf("%s %s/%s %s: rate %.3f, memory %.3f, %+v", w.Class, w.Namespace, w.Name, wrong, rate, memory, w)
		}
	}
	for _, c := range fleet.Classes {
		if seen[c] == 0 && c != fleet.Free {
			t.Errorf("no workload is %s", c)
		}
	}
}
