package sampler

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// A GPU that is lost for two seconds is back within the next five; one that stays lost is looked for less and less often.
func TestLostForSeconds(t *testing.T) {
	d := newFake(t, 2)
	bubble(t, d, Options{}, func(s *stand) {
		s.step(5)
		d.with(func() { d.devs[0].err = gpu.ErrResetRequired })
		s.step(1)
		d.with(func() { d.devs[0].err = nil })
		back := 0
		for s.dev(0).State != gpu.DeviceUp && back < 30 {
			s.step(1)
			back += 2
		}
		if back > 5 {
			t.Errorf("unavailable for %d s after it was readable again", back)
		}
		s.step(5)
		d.with(func() { d.devs[0].err, d.scans = gpu.ErrLost, 0 })
		if s.step(150); d.scans < 10 || d.scans > 16 { // 4, 10, 22, 46 s, then each 30 s
			t.Errorf("%d scans in 5 min", d.scans)
		}
	})
}

// Whatever happens between the polls of a GPU and to its driver, each second since its first poll is in exactly one state, and
// the exported check says so: the process is stopped or starved, the clock goes back, calls hang or fail, GPUs are lost and
// return, sessions end, a MIG change is pending.
func wholeTime(t *testing.T, choose func(n int) int, steps int) {
	d := newFake(t, 3)
	d.devs[1].depth, d.devs[2].noRing = 15*time.Second, true
	resolver := &fakeResolver{h: gpu.Allocations{Known: true, Configured: true,
		List: []gpu.Allocation{holdsWhole("a", "GPU-0"), holdsWhole("b", "GPU-1")}}}
	bubble(t, d, Options{Resolver: resolver}, func(s *stand) {
		counted, before := map[gpu.UUID]float64{}, map[gpu.UUID]float64{}
		set := time.Duration(0) // by how much the clock is off
		last := time.Time{}
		for step := range steps {
			g := d.devs[choose(len(d.devs))]
			d.with(func() {
				switch choose(14) {
				case 0:
					g.util = float64(choose(101)) / 100
				case 1:
					g.err = []error{nil, nil, gpu.ErrLost, gpu.ErrResetRequired, errOdd, gpu.ErrUninitialized}[choose(6)]
				case 2:
					g.errs[choose(3)] = []error{nil, errOdd, gpu.ErrPanic}[choose(3)]
				case 3:
					if g.hang == nil {
						g.hang = make(chan struct{})
					} else {
						close(g.hang)
						g.hang = nil
					}
				case 4:
					g.mig = gpu.Some(gpu.ModePair{Pending: choose(2) == 0})
				case 5:
					d.openErr = []error{nil, nil, errOdd}[choose(3)]
				case 6:
					g.noRing = choose(3) == 0
				case 7: // the sampler's clock has no monotonic part and is set back
					set -= time.Duration(choose(5000)) * time.Second
				}
			})
			pause := []time.Duration{2, 2, 2, 2, 3, 7, 20, 92, 600}[choose(9)] * time.Second
			if choose(3) == 0 {
				pause = time.Duration(1+choose(1900)) * time.Millisecond
			}
			time.Sleep(pause)
			now := time.Now().Add(set).Round(0)
			elapsed := max(0, now.Sub(last).Seconds())
			back := now.Before(last)
			last = now
			s.Step(now)
			for i := range s.Latest().GPUs {
				c := s.dev(i)
				sum := 0.0
				for _, v := range c.GPUSeconds {
					if sum += float64(v); v < 0 {
						t.Fatalf("step %d: %v", step, c.GPUSeconds)
					}
				}
				if was, seen := before[c.UUID]; seen {
					counted[c.UUID] += elapsed
					if math.Abs(sum-was-elapsed) > 1e-6*max(1, sum) {
						t.Fatalf("step %d: the states of %s grew by %v s in %v s (%s): %v", step, c.UUID, sum-was, elapsed, c.State,
							c.GPUSeconds)
					}
				} else if sum != 0 {
					t.Fatalf("step %d: %s begins with %v", step, c.UUID, c.GPUSeconds)
				}
				before[c.UUID] = sum
				for _, e := range c.AttributionErrors {
					if e.Quantity == "time" && set == 0 && !back {
						t.Fatalf("step %d: %s: %+v after %v s", step, c.UUID, e, counted[c.UUID])
					}
				}
			}
		}
	})
}

// A driver call hangs for 40 s on a GPU that is half busy and whose deep ring is read every 6 s. None of the seconds after its
// return is a gap that nobody saw, and its work is counted from the second reading on.
func TestTimeAfterAHungCall(t *testing.T) {
	d := newFake(t, 1)
	d.devs[0].depth, d.devs[0].util = 15*time.Second, .5
	bubble(t, d, Options{Resolver: &fakeResolver{h: gpu.Allocations{Known: true, Configured: true,
		List: []gpu.Allocation{holdsWhole("a", "GPU-0")}}}}, func(s *stand) {
		s.step(20)
		hang := make(chan struct{})
		d.with(func() { d.devs[0].hang = hang })
		s.step(20)
		before := s.dev(0).GPUSeconds
		d.with(func() { d.devs[0].hang = nil })
		close(hang)
		time.Sleep(time.Millisecond)
		after := s.step(6).GPUs[0].GPUSeconds
		got := map[gpu.TimeState]float64{}
		for _, use := range gpu.TimeStates {
			got[use] = float64(after[use] - before[use])
		}
		t.Logf("of 12 s after the call returned: %v", got)
		if got[gpu.TimeGap] > got[gpu.TimeBusy]+.2 || got[gpu.TimeBusy] < 5 || got[gpu.TimeUnknown] > 4.1 {
			t.Errorf("%v", got)
		}
	})
}

func TestWholeTime(t *testing.T) {
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 11))
		if wholeTime(t, rng.IntN, 150); t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func FuzzWholeTime(f *testing.F) {
	for seed := range uint64(4) {
		rng := rand.New(rand.NewPCG(seed, 12))
		b := make([]byte, 400)
		for i := range b {
			b[i] = byte(rng.IntN(256))
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		at := 0
		wholeTime(t, func(n int) int {
			if at >= len(data) {
				return 0
			}
			at++
			return int(data[at-1]) % n
		}, min(60, len(data)/6))
	})
}
