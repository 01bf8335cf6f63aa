package sampler

import (
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// Readings are frozen after two minutes without any change, in at least 20 reads: of the energy of a GPU that draws power,
// or, where it is not counted, of the power of a busy one. A change of a single one ends that.
func TestFrozen(t *testing.T) {
	joules, watts, degrees := gpu.Some[gpu.Joules], gpu.Some[gpu.Watts], gpu.Some[gpu.Celsius]
	busy := gpu.Some(gpu.Utilization{GPU: 0.5})
	type poll struct {
		f gpu.Fast
		m gpu.Medium
	}
	base := func() poll {
		return poll{gpu.Fast{Energy: joules(7), Power: watts(300), Utilization: busy},
			gpu.Medium{Temperature: degrees(60), Margin: degrees(20), Clocks: map[gpu.Clock]gpu.Hertz{gpu.ClockSM: 1}}}
	}
	for name, tt := range map[string]struct {
		every  time.Duration
		change func(n int, p *poll) // of the poll at n s
		from   int                  // the poll in which the readings are frozen, in s; 0: never
	}{
		"nothing changes":    {2 * time.Second, func(int, *poll) {}, 120},
		"few reads":          {10 * time.Second, func(int, *poll) {}, 200},
		"energy":             {2 * time.Second, func(n int, p *poll) { p.f.Energy = joules(gpu.Joules(n)) }, 0},
		"power":              {2 * time.Second, func(n int, p *poll) { p.f.Power = watts(gpu.Watts(n)) }, 0},
		"instant power":      {2 * time.Second, func(n int, p *poll) { p.f.PowerInstant = watts(gpu.Watts(n)) }, 0},
		"temperature":        {2 * time.Second, func(n int, p *poll) { p.m.Temperature = degrees(gpu.Celsius(n)) }, 0},
		"margin":             {2 * time.Second, func(n int, p *poll) { p.m.Margin = degrees(gpu.Celsius(n)) }, 0},
		"memory temperature": {2 * time.Second, func(n int, p *poll) { p.f.MemoryTemperature = degrees(gpu.Celsius(n)) }, 0},
		"utilization": {2 * time.Second, func(n int, p *poll) {
			p.f.Utilization = gpu.Some(gpu.Utilization{GPU: gpu.Ratio(n)})
		}, 0},
		"a clock":           {2 * time.Second, func(n int, p *poll) { p.m.Clocks[gpu.ClockSM] = gpu.Hertz(n) }, 0},
		"a change at 100 s": {2 * time.Second, func(n int, p *poll) { p.f.Energy = joules(gpu.Joules(7 + n/100)) }, 0},
		"unsampled": {2 * time.Second, func(n int, p *poll) {
			p.f.Unsampled, p.f.Utilization = true, gpu.Opt[gpu.Utilization]{}
		}, 120},
		"no power":              {2 * time.Second, func(_ int, p *poll) { p.f.Power = watts(0) }, 0},
		"energy is not counted": {2 * time.Second, func(_ int, p *poll) { p.f.Energy = gpu.Opt[gpu.Joules]{} }, 120},
		"energy is 0":           {2 * time.Second, func(_ int, p *poll) { p.f.Energy = joules(0) }, 120},
		"idle, and is not counted": {2 * time.Second, func(_ int, p *poll) {
			p.f.Energy, p.f.Utilization = gpu.Opt[gpu.Joules]{}, gpu.Some(gpu.Utilization{})
		}, 0},
	} {
		var z frozen
		first, news := 0, 0
		for at := time.Duration(0); at <= 5*time.Minute; at += tt.every {
			p := base()
			n := int(at / time.Second)
			tt.change(n, &p)
			z.fast(&p.f, at)
			u, found := z.medium(&p.m, at)
			if found {
				news++
			}
			dropped := !p.f.Power.Present() && !p.f.Utilization.Present() && !p.m.Temperature.Present() && len(p.m.Clocks) == 0 &&
				!p.m.Margin.Present()
			if dropped != (len(p.m.Unmeasured) == 1) || dropped && !found && news == 0 ||
				found && (u.Reading != "sensors" || u.Reason != "frozen" || u.Detail == "") {
				t.Errorf("%s at %d s: %+v, %+v, %v", name, n, p, u, found)
			}
			if dropped && first == 0 {
				first = n
			}
		}
		if first != tt.from || news != min(1, tt.from) {
			t.Errorf("%s: frozen from %d s, want %d; new %d times", name, first, tt.from, news)
		}
	}
}
