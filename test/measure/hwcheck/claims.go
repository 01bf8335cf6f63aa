package hwcheck

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/prometheus/prometheus/model/histogram"
)

// period is a time in which one GPU was watched from both sides.
type period struct {
	uuid          string
	load          *load // nil: idle
	before, after *scrape
	smi           []observation
}

// observation is what nvidia-smi reported of the GPU at a Unix time, by field; missing values are left out.
type observation struct {
	at     float64
	values map[string]float64
}

// smiInterval is no simple fraction of loadPeriod: else all queries would meet the load in the same phase.
const smiInterval = 730 * time.Millisecond

// observe scrapes, queries nvidia-smi again and again for length, and scrapes once more.
func observe(ctx context.Context, e *exporter, s smi, uuid string, length time.Duration,
	l *load) (p *period, err error) {
	p = &period{uuid: uuid, load: l}
	if p.before, err = e.scrape(ctx); err != nil {
		return nil, err
	}
	fields := []string{"power.draw", "utilization.gpu", "utilization.encoder"}
	end := time.After(length)
	tick := time.NewTicker(smiInterval)
	defer tick.Stop()
	for done := false; !done; {
		start := time.Now()
		devices, err := s.query(ctx, fields, "--id="+uuid)
		if err != nil {
			return nil, err
		}
		o := observation{seconds(start.Add(time.Since(start) / 2)), map[string]float64{}}
		for _, d := range devices {
			for _, f := range fields {
				if v, err := parseNumber(d[f]); err == nil && d["uuid"] == uuid {
					o.values[f] = v
				}
			}
		}
		p.smi = append(p.smi, o)
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-e.Done():
			return nil, e.Exited()
		case <-end:
			done = true
		case <-tick.C:
		}
	}
	p.after, err = e.scrape(ctx)
	return p, err
}

// increase is by how much a counter of the GPU grew.
func (p *period) increase(family string) (float64, error) {
	b, ok := p.before.sum(family, equal("uuid", p.uuid))
	a, still := p.after.sum(family, equal("uuid", p.uuid))
	if !ok || !still {
		return 0, fmt.Errorf("the GPU has no %s", family)
	}
	return a - b, nil
}

// bounds are the times of the first and last fast reading, over which counters grew.
func (p *period) bounds() (from, to float64) {
	at := func(s *scrape) float64 {
		v, _ := s.sum("gpu_last_read_timestamp_seconds", equal("uuid", p.uuid), equal("poll", "fast"))
		return v
	}
	return at(p.before), at(p.after)
}

// rate is the increase of a counter by second.
func (p *period) rate(family string) (float64, error) {
	grew, err := p.increase(family)
	from, to := p.bounds()
	return grew / (to - from), err
}

// ratio is the increase of one counter by that of another.
func (p *period) ratio(family, by string) (float64, error) {
	a, err := p.increase(family)
	if err != nil {
		return 0, err
	}
	b, err := p.increase(by)
	if err == nil && b <= 0 {
		err = fmt.Errorf("%s did not grow", by)
	}
	return a / b, err
}

// busy is the busy share of the observed time.
func (p *period) busy() (float64, error) {
	return p.ratio("gpu_busy_seconds_total", "gpu_observed_seconds_total")
}

// minObservations is how many values of nvidia-smi make a mean.
const minObservations = 4

// mean integrates a field of nvidia-smi over time.
func (p *period) mean(field string) (float64, error) {
	var area, span float64
	last, n := -1, 0
	for i, o := range p.smi {
		v, ok := o.values[field]
		if !ok {
			continue
		}
		if n++; last >= 0 {
			dt := o.at - p.smi[last].at
			area, span = area+(v+p.smi[last].values[field])/2*dt, span+dt
		}
		last = i
	}
	if n < minObservations || span == 0 {
		return 0, fmt.Errorf("nvidia-smi reported %s %d times", field, n)
	}
	return area / span, nil
}

// calls are the latencies of driver calls within the period.
func (p *period) calls() map[string]*histogram.FloatHistogram {
	out := map[string]*histogram.FloatHistogram{}
	for call, h := range p.after.calls {
		h = h.Copy()
		if b := p.before.calls[call]; b != nil {
			if d, _, _, err := h.Sub(b); err == nil {
				h = d
			}
		}
		out[call] = h
	}
	return out
}

// claim is a statement about a period: how it is measured, what is expected, and by how much the two may differ. An
// error of either side means that the GPU or nvidia-smi does not offer it.
type claim struct {
	name       string
	applies    func(p *period) bool // nil: to every period
	measured   func(p *period) (float64, error)
	expected   func(p *period) (float64, error)
	against    string // what expected is, for the report
	tolerance  float64
	relative   float64              // tolerance as a fraction of the expected value, if that is more
	upperBound func(p *period) bool // true: less than expected is fine
}

// busyTolerance is in shares of time.
const busyTolerance = 0.03

func claims() []claim {
	never := func(*period) bool { return false }
	percent := func(field string) func(p *period) (float64, error) {
		return func(p *period) (float64, error) {
			v, err := p.mean(field)
			return v / 100, err
		}
	}
	const observed = "gpu_observed_seconds_total"
	return []claim{
		{name: "time observed", against: "all of the time", tolerance: 0.1, upperBound: never,
			measured: func(p *period) (float64, error) { return p.rate(observed) },
			expected: func(*period) (float64, error) { return 1, nil }},
		{name: "busy seconds against a known load", against: "the load's own log", tolerance: busyTolerance, upperBound: never,
			applies:  func(p *period) bool { return p.load != nil && p.load.known && !p.load.disturbed },
			measured: (*period).busy,
			expected: func(p *period) (float64, error) { return p.load.busy(p.bounds()), nil }},
		// Momentary values of nvidia-smi make a rough mean.
		{name: "utilization against nvidia-smi", against: "mean of nvidia-smi", tolerance: 0.1, upperBound: never,
			measured: (*period).busy, expected: percent("utilization.gpu")},
		{name: "energy against integrated power", against: "watts, mean of nvidia-smi", tolerance: 1, relative: 0.05, upperBound: never,
			measured: func(p *period) (float64, error) { return p.rate("gpu_energy_joules_total") },
			expected: func(p *period) (float64, error) { return p.mean("power.draw") }},
		// SM activity cannot exceed busy time, and equals it under a load that fills the GPU. GPM's own graphics
		// activity is exported for MIG instances alone.
		{name: "SM activity (GPM) against utilization", against: "busy share", tolerance: 0.05,
			upperBound: func(p *period) bool { return p.load == nil || !p.load.full },
			measured: func(p *period) (float64, error) {
				return p.ratio("gpu_sm_active_seconds_total", "gpu_profiled_seconds_total")
			},
			expected: (*period).busy},
		// Each read takes a lock of the driver for all GPUs. A GPU has two rings and the samples of its processes.
		{name: "reads of the sample rings", against: "per GPU and fast poll", tolerance: 0.3,
			upperBound: func(*period) bool { return true },
			measured: func(p *period) (float64, error) {
				gpus, _ := p.after.sum("gpu_device_up")
				from, to := p.bounds()
				reads, calls := 0.0, p.calls()
				for _, call := range []string{"nvmlDeviceGetSamples", "nvmlDeviceGetProcessUtilization"} {
					if h := calls[call]; h != nil {
						reads += h.Count
					}
				}
				if reads == 0 || gpus == 0 {
					return 0, errors.New("the driver has no sample rings")
				}
				return reads / gpus / ((to - from) / fastPoll.Seconds()), nil
			},
			expected: func(*period) (float64, error) { return 3, nil }},
		{name: "encoder utilization", against: "mean of nvidia-smi", tolerance: 0.25, upperBound: never,
			applies: func(p *period) bool { return p.load != nil && !p.load.known },
			measured: func(p *period) (float64, error) {
				v, ok := p.after.sum("gpu_engine_utilization_ratio", equal("uuid", p.uuid), equal("engine", "encoder"))
				if !ok || v == 0 {
					return math.NaN(), nil
				}
				return v, nil
			},
			expected: percent("utilization.encoder")},
	}
}

// check judges a claim.
func (c claim) check(p *period) Check {
	out := Check{Name: c.name + ", idle"}
	if p.load != nil {
		out.Name = c.name + ", loaded"
	}
	measured, err := c.measured(p)
	if err != nil {
		return out.skipped("%v", err)
	}
	expected, err := c.expected(p)
	if err != nil {
		return out.skipped("%v", err)
	}
	tolerance := max(c.tolerance, c.relative*expected)
	ok, bound := math.Abs(measured-expected) <= tolerance, "±"
	if c.upperBound(p) {
		ok, bound = measured <= expected+tolerance, "at most +"
	}
	return out.judge(ok, "%.4g, expected %.4g (%s) %s%.3g", measured, expected, c.against, bound, tolerance)
}

// checkCounters: no driver call failed and no value was rejected as implausible.
func checkCounters(s *scrape) []Check {
	var out []Check
	for _, c := range []struct {
		name, family string
		labels       []string
	}{
		{"failed driver calls", "gpu_exporter_call_errors_total", []string{"call", "code"}},
		{"rejected values", "gpu_exporter_rejected_values_total", []string{"reading"}},
	} {
		var found []string
		for _, x := range s.find(c.family) {
			if x.value == 0 {
				continue
			}
			var words []string
			for _, l := range c.labels {
				words = append(words, x.Get(l))
			}
			found = append(found, fmt.Sprintf("%s: %g", strings.Join(words, " "), x.value))
		}
		out = append(out, Check{Name: c.name}.judge(len(found) == 0, "%d %s", len(found), strings.Join(found, ", ")))
	}
	return out
}
