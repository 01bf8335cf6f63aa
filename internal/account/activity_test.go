package account

import (
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// The method of a GPU, reading by reading: the ring where it is offered and has samples while the GPU is busy, the
// driver's latest value where the ring is missing for 30 s or empty for 10 s under load, profiling where neither is
// offered.
func TestMethodOfActivity(t *testing.T) {
	rate := func(v float64) gpu.Opt[gpu.Utilization] {
		return gpu.Some(gpu.Utilization{GPU: gpu.Ratio(v), Memory: gpu.Ratio(v / 2)})
	}
	gpm := gpu.Some(gpu.GPM{Window: 3 * time.Second, GraphicsActive: gpu.Some(gpu.Ratio(.5))})
	ring := func(at float64) gpu.Opt[gpu.Ring] { return gpu.Some(regular(at-1, at, .1, 100)) }
	empty := gpu.Some(gpu.Ring{})
	type reading struct {
		elapsed        float64
		f              gpu.Fast
		method         gpu.Method
		busy, observed float64 // of the increment
		lost           float64
	}
	for name, readings := range map[string][]reading{
		"nothing": {{1, gpu.Fast{}, "", 0, 0, 0}},
		"a ring": {{1, gpu.Fast{Busy: ring(1)}, gpu.MethodRing, 0, 0, 0}, {1, gpu.Fast{Busy: ring(2)}, gpu.MethodRing, 1, 1, 0},
			{29, gpu.Fast{Utilization: rate(1)}, gpu.MethodRing, 0, 0, 0}, {.9, gpu.Fast{Utilization: rate(1)}, gpu.MethodRing, 0, 0, 0},
			{.1, gpu.Fast{Utilization: rate(1)}, gpu.MethodRate, 0, 0, 0}, {2, gpu.Fast{Utilization: rate(1)}, gpu.MethodRate, 2, 2, 0},
			{7, gpu.Fast{Utilization: rate(.5)}, gpu.MethodRate, 2.5, 5, 2}, {1, gpu.Fast{Busy: ring(50)}, gpu.MethodRing, 0, 0, 0},
			{1, gpu.Fast{Busy: ring(51)}, gpu.MethodRing, 1, 1, 0}},
		"a ring that misses one reading in two": {{1, gpu.Fast{Busy: ring(1)}, gpu.MethodRing, 0, 0, 0},
			{20, gpu.Fast{Utilization: rate(1)}, gpu.MethodRing, 0, 0, 0}, {1, gpu.Fast{Busy: ring(2)}, gpu.MethodRing, 1, 1, 0},
			{20, gpu.Fast{Utilization: rate(1)}, gpu.MethodRing, 0, 0, 0}},
		"an empty ring under load": {{1, gpu.Fast{Busy: empty, Utilization: rate(.1)}, gpu.MethodRing, 0, 0, 0},
			{8.9, gpu.Fast{Busy: empty, Utilization: rate(.1)}, gpu.MethodRing, 0, 0, 0},
			{9, gpu.Fast{Busy: empty, Utilization: rate(0)}, gpu.MethodRing, 0, 9, 0},
			{.1, gpu.Fast{Busy: empty, Utilization: rate(.1)}, gpu.MethodRate, 0, 0, 0},
			{2, gpu.Fast{Busy: empty, Utilization: rate(.5)}, gpu.MethodRate, 1, 2, 0},
			{1, gpu.Fast{Busy: ring(9)}, gpu.MethodRing, 0, 0, 0},
			{9, gpu.Fast{Busy: empty, Utilization: rate(.1)}, gpu.MethodRing, 0, 0, 0}},
		"a rate": {{2, gpu.Fast{Utilization: rate(.5)}, gpu.MethodRate, 0, 0, 0},
			{2, gpu.Fast{Utilization: rate(.5)}, gpu.MethodRate, 1, 2, 0},
			{5, gpu.Fast{Utilization: rate(.5)}, gpu.MethodRate, 2.5, 5, 0},
			{5.5, gpu.Fast{Utilization: rate(0)}, gpu.MethodRate, 0, 5, .5}},
		"profiling": {{2, gpu.Fast{GPM: gpm}, gpu.MethodGPM, 1.5, 3, 0}, {1, gpu.Fast{GPM: gpm}, gpu.MethodGPM, 1, 2, 0},
			{1, gpu.Fast{}, gpu.MethodGPM, 0, 0, 0}},
		"profiling without the value": {{2, gpu.Fast{GPM: gpu.Some(gpu.GPM{Window: time.Second})}, "", 0, 0, 0}},
	} {
		var a activity
		for i, r := range readings {
			in := a.read(&r.f, r.elapsed, func(reading string) { t.Errorf("%s: %s is rejected", name, reading) })
			if a.method != r.method {
				t.Errorf("%s, reading %d: method %q, want %q", name, i, a.method, r.method)
			}
			near(t, name+": busy", in.busy, r.busy)
			near(t, name+": observed", in.observed, r.observed)
			near(t, name+": lost", in.lost, r.lost)
		}
	}
}

// Rejected samples are counted by their ring.
func TestRejectedSamplesByRing(t *testing.T) {
	var a activity
	got := map[string]int{}
	for range 2 {
		bad := gpu.Some(samples(1, 101))
		a.read(&gpu.Fast{Busy: bad, MemoryBusy: gpu.Some(samples(1, 101, 2, -1)), Utilization: gpu.Some(gpu.Utilization{})}, 1,
			func(reading string) { got[reading]++ })
	}
	// The position is unknown until there was a sample, so that each is counted again.
	if got["utilization_sample"] != 2 || got["memory_utilization_sample"] != 4 {
		t.Errorf("%v", got)
	}
}

// The mean is that of what was observed in the last minute, the peak the highest of it: at 60 s a reading is over.
func TestMeanOfAMinute(t *testing.T) {
	var a activity
	a.method = gpu.MethodRing
	add := func(clock, busy, observed, peak float64, sampled bool) {
		a.sum(increment{busy: busy, observed: observed, peak: peak, sampled: sampled}, clock, epoch)
	}
	check := func(clock float64, mean, peak float64) {
		t.Helper()
		out := a.publish(clock, true)
		if mean < 0 {
			absent(t, "mean", out.Mean)
			absent(t, "peak", out.Peak)
			return
		}
		value(t, "mean", out.Mean, mean)
		value(t, "peak", out.Peak, peak)
	}
	check(0, -1, 0)
	add(10, 8, 10, .9, true)
	check(10, .8, .9)
	add(20, 1, 10, .3, true)
	check(20, .45, .9)
	check(69.9, .45, .9)
	check(70, .1, .3) // the first is over
	check(80, -1, 0)
	add(80, 0, 0, 0, false) // nothing was read
	if len(a.recent) != 0 {
		t.Errorf("%+v", a.recent)
	}
	add(90, 0, 5, 0, false) // a ring that stopped
	check(90, 0, 0)
	add(91, 2, 1, 1, true) // late samples: never more than all of the time
	add(92, 9, 1, 1, true)
	check(92, 1, 1)
	if out := a.publish(92, false); out.Mean.Present() || out.Peak.Present() || !out.Busy.Present() {
		t.Errorf("of a GPU that is not read: %+v", out)
	}
	add(93, 1, 0, 1, true) // a sample of an unknown period counts with the next
	if n := len(a.recent); n != 4 {
		t.Errorf("%d readings are kept", n)
	}
}

// Each metric is the integral of its own value, and absent where it was never measured.
func TestProfilingMetrics(t *testing.T) {
	some := func(v float64) gpu.Opt[gpu.Ratio] { return gpu.Some(gpu.Ratio(v)) }
	var a activity
	a.profile(gpu.None[gpu.GPM](), 9)
	if out := a.publish(0, true); out.Profiled.Present() || out.Pipes != nil {
		t.Errorf("%+v", out)
	}
	a.profile(gpu.Some(gpu.GPM{Window: 2 * time.Second, SMOccupancy: some(.25), DRAMActive: some(0), FP32Active: some(.5)}), 2)
	a.profile(gpu.Some(gpu.GPM{Window: 2 * time.Second, SMActive: some(1), FP64Active: some(.1), IntegerActive: some(0)}), .5)
	a.profile(gpu.Some(gpu.GPM{Window: -time.Second, SMActive: some(1)}), 2)
	out := a.publish(0, false)
	value(t, "profiled", out.Profiled, 3.5)
	value(t, "SM active", out.SMActive, 1.5)
	value(t, "occupancy", out.SMOccupancy, .5)
	value(t, "DRAM", out.DRAMActive, 0)
	absent(t, "tensor", out.TensorActive)
	want := map[gpu.Pipe]gpu.Seconds{gpu.PipeFP32: 1, gpu.PipeFP64: .15, gpu.PipeInteger: 0}
	for _, pipe := range []gpu.Pipe{gpu.PipeFP16, gpu.PipeFP32, gpu.PipeFP64, gpu.PipeInteger} {
		v, ok := out.Pipes[pipe]
		w, offered := want[pipe]
		if ok != offered {
			t.Errorf("%s: %v", pipe, ok)
		}
		near(t, string(pipe), float64(v), float64(w))
	}
}
