package main

import (
	"context"
	"fmt"
	"math"
	"time"
)

// window is a stretch of time in which one GPU was watched from both sides.
type window struct {
	dev           dev
	before, after exposition
	calls         map[string]histogram // of the window alone
	moments       []moment
}

// moment is what nvidia-smi said of the GPU at one moment; what it does not tell is NaN.
type moment struct{ at, watts, gpu, encoder float64 }

// smiEvery is no simple part of loadPeriod: else all questions would meet the load in the same state.
const smiEvery = 730 * time.Millisecond

// watch scrapes, asks nvidia-smi about the GPU again and again for length, and scrapes once more.
func watch(ctx context.Context, e *exporter, s smi, c dev, length time.Duration) (*window, error) {
	w := &window{dev: c}
	var err error
	if w.before, err = e.scrape(ctx); err != nil {
		return nil, err
	}
	earlier, err := e.durations(ctx)
	if err != nil {
		return nil, err
	}
	end := time.After(length)
	tick := time.NewTicker(smiEvery)
	defer tick.Stop()
	for done := false; !done; {
		asked := time.Now()
		devs, err := s.query(ctx, []string{"power.draw", "utilization.gpu", "utilization.encoder"}, "--id="+c["uuid"])
		if err != nil {
			return nil, err
		}
		at := asked.Add(time.Since(asked) / 2)
		for _, got := range devs {
			if got["uuid"] == c["uuid"] {
				w.moments = append(w.moments, moment{seconds(at), numberOr(got["power.draw"]), numberOr(got["utilization.gpu"]), numberOr(got["utilization.encoder"])})
			}
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-e.done:
			return nil, fmt.Errorf("the exporter ended: %w: %s", e.err, e.log.last())
		case <-end:
			done = true
		case <-tick.C:
		}
	}
	if w.after, err = e.scrape(ctx); err != nil {
		return nil, err
	}
	later, err := e.durations(ctx)
	if err != nil {
		return nil, err
	}
	w.calls = map[string]histogram{}
	for call, h := range later {
		w.calls[call] = h.less(earlier[call])
	}
	return w, nil
}

func numberOr(text string) float64 {
	if v, err := parseNumber(text); err == nil {
		return v
	}
	return math.NaN()
}

// growth is by how much a counter of the GPU grew, and whether the GPU has it.
func (w *window) growth(family string) (float64, bool) {
	b, known := w.before.sum(family, is("uuid", w.dev["uuid"]))
	a, still := w.after.sum(family, is("uuid", w.dev["uuid"]))
	return a - b, known && still
}

// bounds are the moments of the first and the last fast reading: what a counter's growth is over.
func (w *window) bounds() (from, to float64) {
	at := func(e exposition) float64 {
		v, _ := e.sum("gpu_last_read_timestamp_seconds", is("uuid", w.dev["uuid"]), is("poll", "fast"))
		return v
	}
	return at(w.before), at(w.after)
}

// mean integrates what nvidia-smi said of the GPU and divides by the time; n is the number of its answers.
func (w *window) mean(of func(moment) float64) (mean float64, n int) {
	var area, span float64
	var last *moment
	for i := range w.moments {
		m := &w.moments[i]
		if math.IsNaN(of(*m)) {
			continue
		}
		if n++; last != nil {
			area += (of(*m) + of(*last)) / 2 * (m.at - last.at)
			span += m.at - last.at
		}
		last = m
	}
	if span == 0 {
		return math.NaN(), n
	}
	return area / span, n
}

// The tolerances of the windows.
const (
	busyTolerance    = 0.03 // of the time
	loosely          = 0.10 // of the time, where nvidia-smi's moments are the measure
	energyTolerance  = 0.05 // of the power
	leastWatts       = 1.0
	profileTolerance = 0.05 // of the time
	leastObserved    = 0.90 // of the time
	fewestMoments    = 4
)

// checkObserved: the busy counter must speak of the whole time.
func checkObserved(w *window, when string) check {
	c := check{name: "time observed, " + when}
	observed, known := w.growth("gpu_observed_seconds_total")
	if !known {
		return c.skipped("the GPU has no gpu_observed_seconds_total")
	}
	from, to := w.bounds()
	part := observed / (to - from)
	return c.judge(part >= leastObserved && part <= 2-leastObserved, "%.3f s observed in %.3f s (%s)", observed, to-from, w.method())
}

func (w *window) method() string {
	for _, s := range w.after.find("gpu_sampling_info", is("uuid", w.dev["uuid"])) {
		return "method " + s.labels["method"]
	}
	return "method unknown"
}

// busy is the busy part of the observed time, false where it is not known.
func (w *window) busy() (float64, bool) {
	busy, known := w.growth("gpu_busy_seconds_total")
	observed, too := w.growth("gpu_observed_seconds_total")
	return busy / observed, known && too && observed > 0
}

// checkBusy holds the busy part against what the load did.
func checkBusy(w *window, l *load) check {
	c := check{name: "busy seconds against a known load"}
	part, known := w.busy()
	if !known {
		return c.skipped("the GPU has no gpu_busy_seconds_total: in MIG mode, choose another with --GPU")
	}
	from, to := w.bounds()
	did := l.busy(from, to)
	return c.judge(math.Abs(part-did) <= busyTolerance, "%.4f of the time, the load worked %.4f of it; ±%g (%s; %s)", part, did, busyTolerance, l.how, w.method())
}

// checkUtilisation holds the busy part loosely against the mean of nvidia-smi's moments.
func checkUtilisation(w *window, when string) check {
	c := check{name: "utilization against nvidia-smi, " + when}
	part, known := w.busy()
	mean, n := w.mean(func(m moment) float64 { return m.gpu / 100 })
	switch {
	case n < fewestMoments:
		return c.skipped("nvidia-smi told the GPU's utilization %d times", n)
	case !known:
		return c.skipped("the GPU has no gpu_busy_seconds_total")
	}
	return c.judge(math.Abs(part-mean) <= loosely, "%.4f, nvidia-smi's %d answers mean %.4f; ±%g", part, n, mean, loosely)
}

// checkEnergy holds the energy counter against the integral of nvidia-smi's power.
func checkEnergy(w *window, when string) check {
	c := check{name: "energy against integrated power, " + when}
	joules, known := w.growth("gpu_energy_joules_total")
	if !known {
		return c.skipped("the GPU has no energy counter")
	}
	watts, n := w.mean(func(m moment) float64 { return m.watts })
	if n < fewestMoments {
		return c.skipped("nvidia-smi told the GPU's power %d times", n)
	}
	from, to := w.bounds()
	ours := joules / (to - from)
	return c.judge(math.Abs(ours-watts) <= max(leastWatts, energyTolerance*watts), "%.1f J in %.3f s are %.2f W; nvidia-smi's %d answers mean %.2f W; ±%g%%",
		joules, to-from, ours, n, watts, 100*energyTolerance)
}

// checkProfile holds GPM's SM activity against the busy part: it can be no more, and under a load that fills
// the GPU it is as much. GPM's own graphics activity is exported of MIG instances alone, so the busy part
// stands for it.
func checkProfile(w *window, l *load, when string) check {
	c := check{name: "SM activity (GPM) against utilization, " + when}
	sm, known := w.growth("gpu_sm_active_seconds_total")
	profiled, too := w.growth("gpu_profiled_seconds_total")
	if !known || !too || profiled <= 0 {
		return c.skipped("the GPU has no GPM: Hopper and newer do")
	}
	busy, known := w.busy()
	if !known {
		return c.skipped("the GPU has no gpu_busy_seconds_total")
	}
	active := sm / profiled
	if l != nil && l.full {
		return c.judge(math.Abs(active-busy) <= profileTolerance, "%.4f, busy %.4f; the load fills the GPU, so ±%g", active, busy, profileTolerance)
	}
	return c.judge(active <= busy+profileTolerance, "%.4f, busy %.4f; no more than %g above it", active, busy, profileTolerance)
}

// checkEncoder holds the encoder's utilization against nvidia-smi's, under a load of the encoder.
func checkEncoder(w *window) check {
	c := check{name: "encoder utilization under load"}
	ours, known := w.after.sum("gpu_engine_utilization_ratio", is("uuid", w.dev["uuid"]), is("engine", "encoder"))
	mean, n := w.mean(func(m moment) float64 { return m.encoder / 100 })
	if !known || n < fewestMoments {
		return c.skipped("the GPU or nvidia-smi does not tell it")
	}
	return c.judge(ours > 0 && math.Abs(ours-mean) <= 0.25, "%.2f at the end, nvidia-smi's %d answers mean %.2f; ±0.25", ours, n, mean)
}

// checkCalls: no driver call may fail, and no value may be one that cannot be.
func checkCalls(e exposition) []check {
	failed := check{name: "driver calls that failed"}
	var which []string
	for _, s := range e.find("gpu_exporter_call_errors_total") {
		if s.value > 0 {
			which = append(which, fmt.Sprintf("%s %s %g times", s.labels["call"], s.labels["code"], s.value))
		}
	}
	rejected := check{name: "values that cannot be"}
	var values []string
	for _, s := range e.find("gpu_exporter_rejected_values_total") {
		if s.value > 0 {
			values = append(values, fmt.Sprintf("%s %g times", s.labels["reading"], s.value))
		}
	}
	return []check{failed.judge(len(which) == 0, "%s", list(which)), rejected.judge(len(values) == 0, "%s", list(values))}
}
