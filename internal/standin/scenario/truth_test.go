package scenario

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

func near(a, b, tolerance float64) bool { return math.Abs(a-b) <= tolerance }

func TestTruthByHand(t *testing.T) {
	const s, ms = time.Second, time.Millisecond
	for _, tc := range []struct {
		name, lines string
		t0, t1      time.Duration
		busy        float64
		processes   map[int]float64
	}{
		{"nothing", ``, 0, 10 * s, 0, nil},
		{"a square wave", `process gpu=0 pid=1 busy=30% period=1s`, 0, 10 * s, 3, map[int]float64{1: 3}},
		{"in the middle of it", `process gpu=0 pid=1 busy=30% period=1s`, 200 * ms, 1100 * ms, 0.2, map[int]float64{1: 0.2}},
		{"with a phase", `process gpu=0 pid=1 busy=50% period=2s phase=1500ms`, 0, 2 * s, 1, nil},
		{"with a phase, at its edge", `process gpu=0 pid=1 busy=50% period=2s phase=1500ms`, 500 * ms, 1500 * ms, 0, nil},
		{"with an end", `process gpu=0 pid=1 busy=100% from=3s to=4500ms`, 0, 10 * s, 1.5, map[int]float64{1: 1.5}},
		{"two at once share", `process gpu=0 pid=1 busy=50% period=1s
process gpu=0 pid=2 busy=50% period=1s`, 0, 10 * s, 5, map[int]float64{1: 2.5, 2: 2.5}},
		{"two in turn add up", `process gpu=0 pid=1 busy=50% period=1s
process gpu=0 pid=2 busy=50% period=1s phase=500ms`, 0, 10 * s, 10, map[int]float64{1: 5, 2: 5}},
		{"one and a half", `process gpu=0 pid=1 busy=100%
process gpu=0 pid=2 busy=50% period=1s`, 0, 10 * s, 10, map[int]float64{1: 7.5, 2: 2.5}},
		{"load without a process", `load gpu=0 busy=25% period=4s`, 0, 8 * s, 2, nil},
		{"an instance without MIG", `process gpu=0 pid=1 gi=1 busy=100%`, 0, 10 * s, 0, map[int]float64{1: 0}},
		{"an instance", `mig gpu=0 layout="gi=1 profile=1g"
process gpu=0 pid=1 gi=1 busy=100%
process gpu=0 pid=2 busy=100%`, 0, 7 * s, 1, map[int]float64{1: 7, 2: 0}},
		{"until the layout changes", `mig gpu=0 layout="gi=1 profile=7g"
process gpu=0 pid=1 gi=1 busy=100%
at 4s gpu 0 mig apply layout=""`, 0, 7 * s, 4, map[int]float64{1: 4}},
	} {
		truth := parse(t, minimal+tc.lines+"\n").Truth(0)
		if got := float64(truth.Busy(tc.t0, tc.t1)); !near(got, tc.busy, 1e-9) {
			t.Errorf("%s: busy %v, want %v", tc.name, got, tc.busy)
		}
		for pid, want := range tc.processes {
			if got := float64(truth.ProcessBusy(pid, tc.t0, tc.t1)); !near(got, want, 1e-9) {
				t.Errorf("%s: process %d busy %v, want %v", tc.name, pid, got, want)
			}
		}
		wantEnergy := 50*(tc.t1-tc.t0).Seconds() + 200*tc.busy
		if got := float64(truth.Energy(tc.t0, tc.t1)); !near(got, wantEnergy, 1e-6) {
			t.Errorf("%s: energy %v J, want %v", tc.name, got, wantEnergy)
		}
	}
}

// Integrals add up over adjacent spans, and processes to the GPU.
func TestTruthCloses(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	truth := parse(t, minimal+`
process gpu=0 pid=1 busy=31% period=1300ms phase=70ms
process gpu=0 pid=2 busy=57% period=900ms from=2s to=31s
process gpu=0 pid=3 busy=3% period=17s
load gpu=0 pid=4 busy=12% period=250ms
`).Truth(0)
	for range 200 {
		a := time.Duration(rng.Int64N(int64(30 * time.Second)))
		b := a + time.Duration(rng.Int64N(int64(30*time.Second)))
		c := b + time.Duration(rng.Int64N(int64(30*time.Second)))
		if whole, parts := truth.Busy(a, c), truth.Busy(a, b)+truth.Busy(b, c); !near(float64(whole), float64(parts), 1e-9) {
			t.Fatalf("from %v over %v to %v: %v is not %v", a, b, c, whole, parts)
		}
		var sum gpu.Seconds
		for pid := 1; pid <= 4; pid++ {
			sum += truth.ProcessBusy(pid, a, c)
		}
		if busy := truth.Busy(a, c); !near(float64(busy), float64(sum), 1e-9) {
			t.Fatalf("from %v to %v: processes %v, gpu %v", a, c, sum, busy)
		}
	}
}

// What samples tell adds up over any cut, and is never further from the truth than whole percents are.
func TestSampledTruth(t *testing.T) {
	// Four tenths of a period that three samples make: 40 % of 0.3 s end amid the second sample, which is busy for a fifth.
	truth := parse(t, minimal+"process gpu=0 pid=1 busy=40% period=300ms\n").Truth(0)
	if got := truth.Sampled(0, 3*time.Second); !near(float64(got), 1.2, 1e-9) {
		t.Errorf("%v s of whole percents, want 1.2 s", got)
	}
	// A load in step with the samples is told wrong in the same way for ever.
	truth = parse(t, minimal+"process gpu=0 pid=1 busy=40.4% period=100ms\n").Truth(0)
	if got := truth.Sampled(0, 100*time.Second); !near(float64(got), 40, 1e-9) {
		t.Errorf("40.4 s are told as %v s, want 40 s", got)
	}
	truth = parse(t, minimal+"process gpu=0 pid=1 busy=31% period=1300ms phase=70ms\nprocess gpu=0 pid=2 busy=57% period=900ms\n").Truth(0)
	rng := rand.New(rand.NewPCG(3, 4))
	for range 100 {
		a := time.Duration(rng.Int64N(int64(30 * time.Second)))
		b := a + time.Duration(rng.Int64N(int64(30*time.Second)))
		c := b + time.Duration(rng.Int64N(int64(30*time.Second)))
		if whole, parts := truth.Sampled(a, c), truth.Sampled(a, b)+truth.Sampled(b, c); !near(float64(whole), float64(parts), 1e-9) {
			t.Fatalf("from %v over %v to %v: %v is not %v", a, b, c, whole, parts)
		}
		if d := float64(truth.Sampled(a, c) - truth.Busy(a, c)); d > 0.005*(c-a).Seconds()+0.1 || d < -0.005*(c-a).Seconds()-0.1 {
			t.Fatalf("from %v to %v: off by %v s", a, c, d)
		}
	}
}

func TestMIGTruth(t *testing.T) {
	s := parse(t, minimal+`
mig gpu=0 layout="gi=3 ci=1 profile=7g start=0 size=8 slices=4 uuid=MIG-b ; gi=3 ci=0 slices=3 uuid=MIG-a index=5"
at 10s gpu 0 mig pending off
at 12s gpu 0 mig apply layout=""
`)
	truth := s.Truth(0)
	on, devices := truth.MIG(11 * time.Second)
	if !on || len(devices) != 2 || devices[0].UUID != "MIG-a" || devices[0].Index != 5 || devices[1].Slices != 4 || devices[1].Size != 8 {
		t.Errorf("MIG is %v, %+v", on, devices)
	}
	if on, devices := truth.MIG(12 * time.Second); on || len(devices) != 0 {
		t.Errorf("MIG afterwards is %v, %+v", on, devices)
	}
}
