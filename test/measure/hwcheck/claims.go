package hwcheck

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/hardware"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
)

// period is a time in which one GPU was watched from both sides.
type period struct {
	stage, uuid   string
	loads         map[string]*load // by role
	before, after *scrape
	smi           []observation
	probe         *probed
	// noted are numbers that the stage measured by itself, absent the reasons why one has none; "" for all.
	noted  map[string]float64
	absent map[string]string
	// remarked is shown with the claim that is checked.
	remarked string
	// fast is the interval of the exporter's fast polls in seconds, and watched what the PCIe counters did meanwhile.
	fast    float64
	watched *pcieWatch
}

func (p *period) remark(text string) { p.remarked = text }

// observation is what nvidia-smi reported of the GPU at a Unix time, by field; missing values are left out.
type observation struct {
	at     float64
	values map[string]float64
}

// smiInterval is no simple fraction of the load's period: else all queries would meet the load in the same phase.
const smiInterval = 730 * time.Millisecond

// observe scrapes, queries nvidia-smi again and again for length, and scrapes once more.
func observe(ctx context.Context, e *exporter, s smi, length time.Duration, p *period, align func()) (err error) {
	if p.before, err = e.scrape(ctx); err != nil {
		return err
	}
	fields := []string{"power.draw", "utilization.gpu"}
	end := time.After(length)
	tick := time.NewTicker(smiInterval)
	defer tick.Stop()
	for done := false; !done; {
		start := time.Now()
		devices, err := s.query(ctx, fields, "--id="+p.uuid)
		if err != nil {
			return err
		}
		o := observation{seconds(start.Add(time.Since(start) / 2)), map[string]float64{}}
		for _, d := range devices {
			for _, f := range fields {
				if v, err := parseNumber(d[f]); err == nil && d["uuid"] == p.uuid {
					o.values[f] = v
				}
			}
		}
		p.smi = append(p.smi, o)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-e.Done():
			return e.Exited()
		case <-end:
			done = true
		case <-tick.C:
		}
	}
	align()
	p.after, err = e.scrape(ctx)
	return err
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

// bound is on which side of the expected value the measured one may be.
type bound string

const (
	exactly bound = "±"
	atMost  bound = "at most +"
	atLeast bound = "at least -"
)

// claim is a statement about a stage: how it is measured, what is expected, and by how much the two may differ. An
// error of either side means that the GPU, the driver or the machine does not offer it.
type claim struct {
	name               string
	stage              string // that it is checked in; stageAny: in every watched period
	measured, expected func(p *period) (float64, error)
	against            string // what expected is, for the report
	bound              bound
	tolerance          float64
	relative           float64 // tolerance as a fraction of the expected value, if that is more
	polls              float64 // tolerance in fast polls by the length of the period, if that is more
	because            string  // why the tolerance is what it is
	// margin is how uncertain the measured value is: a claim that is neither met nor missed by more is not settled.
	margin  func(p *period) (float64, error)
	applies func(p *period) bool
}

// busyTolerance is in shares of time.
const busyTolerance = 0.03

const pollEdges = "the edges of the period meet two fast polls"

func is(v float64) func(*period) (float64, error) {
	return func(*period) (float64, error) { return v, nil }
}

// noted is a number that the stage measured by itself.
func noted(name string) func(*period) (float64, error) {
	return func(p *period) (float64, error) {
		if v, ok := p.noted[name]; ok {
			return v, nil
		}
		return 0, errors.New(cmp.Or(p.absent[name], p.absent[""], "not measured"))
	}
}

// container is the busy share of the container of a pod of the stage shared.
func container(pod string) func(*period) (float64, error) {
	return func(p *period) (float64, error) {
		return p.shareOf("gpu_container_busy_seconds_total", equal("pod", pod))
	}
}

// shareOf is the increase of a counter of the GPU by second.
func (p *period) shareOf(family string, matchers ...*labels.Matcher) (float64, error) {
	matchers = append(matchers, equal("uuid", p.uuid))
	b, _ := p.before.sum(family, matchers...) // a counter may begin within the period
	a, ok := p.after.sum(family, matchers...)
	if !ok {
		return 0, wrong("no %s for it", family)
	}
	from, to := p.bounds()
	return (a - b) / (to - from), nil
}

// logged is the busy share by the log of a load.
func logged(role string) func(*period) (float64, error) {
	return func(p *period) (float64, error) {
		from, to := p.bounds()
		busy, _ := p.loads[role].did(from, to)
		return busy / (to - from), nil
	}
}

// copied is the rate in bytes per second by the log of a load, times a factor.
func copied(role string, factor float64) func(*period) (float64, error) {
	return func(p *period) (float64, error) {
		if p.loads[role] == nil {
			return 0, errors.New(cmp.Or(p.absent[role], "no such copies"))
		}
		from, to := p.bounds()
		_, bytes := p.loads[role].did(from, to)
		return bytes * factor / (to - from), nil
	}
}

func rate(family string) func(*period) (float64, error) {
	return func(p *period) (float64, error) { return p.rate(family) }
}

// costClaim compares what was measured with an exporter and without.
func costClaim(name, of, unit string, tolerance, relative float64) claim {
	return claim{name: name, stage: stageCost, against: unit + " without the exporter", bound: atMost,
		tolerance: tolerance, relative: relative, because: fmt.Sprintf("%d pairs in turn", costPairs),
		measured: noted(of + " on"), expected: noted(of + " off"), margin: noted(of + " margin")}
}

// claims are all claims, by stage.
func claims() []claim {
	return slices.Concat(stateClaims(), ringClaims(), pcieClaims())
}

func stateClaims() []claim {
	percent := func(field string) func(p *period) (float64, error) {
		return func(p *period) (float64, error) {
			v, err := p.mean(field)
			return v / 100, err
		}
	}
	notShared := func(p *period) bool { return p.stage == stageIdle || p.stage == stageLoad }
	count := func(of func(p *probed) (int, string)) func(p *period) (float64, error) {
		return func(p *period) (float64, error) {
			n, which := of(p.probe)
			p.remark(which)
			return float64(n), nil
		}
	}
	return []claim{
		{name: "time observed", against: "all of the time", bound: exactly, tolerance: 0.1, polls: 2,
			because:  pollEdges,
			measured: rate("gpu_observed_seconds_total"), expected: is(1)},
		{name: "busy seconds against a known load", stage: stageLoad, against: "the load's own log", bound: exactly,
			// Half a sample of the ring at an edge, which matters in periods of few polls.
			tolerance: busyTolerance, polls: 0.05, because: pollEdges,
			applies:  func(p *period) bool { return !p.loads[roleBusy].disturbed },
			measured: (*period).busy, expected: logged(roleBusy)},
		{name: "utilization against nvidia-smi", against: "mean of nvidia-smi", bound: exactly, tolerance: 0.1,
			because: "momentary values make a rough mean", applies: notShared,
			measured: (*period).busy, expected: percent("utilization.gpu")},
		{name: "energy against integrated power", against: "watts, mean of nvidia-smi", bound: exactly, tolerance: 1,
			relative: 0.05, because: "the sensor's accuracy is 5 %", applies: notShared,
			measured: rate("gpu_energy_joules_total"), expected: percentOf("power.draw", 1)},
		// SM activity cannot exceed busy time, and equals it under a load that fills the GPU. GPM's own graphics
		// activity is exported for MIG instances alone.
		{name: "SM activity (GPM) is at most busy time", against: "busy share", bound: atMost, tolerance: 0.05,
			because: "the two have different periods", applies: notShared, measured: smActive,
			expected: (*period).busy},
		{name: "SM activity (GPM) of a full load", stage: stageLoad, against: "busy share", bound: atLeast,
			tolerance: 0.05,
			because:   "start and end of a burst are not full",
			applies:   func(p *period) bool { return p.loads[roleBusy].full },
			measured:  smActive, expected: (*period).busy},
		// Each read takes a lock of the driver for all GPUs. A GPU has two rings and the samples of its processes.
		{name: "reads of the sample rings", against: "per GPU and fast poll", bound: atMost, tolerance: 0.3,
			because: pollEdges,
			applies: notShared, expected: is(3),
			measured: func(p *period) (float64, error) {
				from, to := p.bounds()
				reads := p.reads("nvmlDeviceGetSamples") + p.reads("nvmlDeviceGetProcessUtilization")
				if reads == 0 {
					return 0, errors.New("the driver has no sample rings")
				}
				return reads / ((to - from) / p.fast), nil
			}},

		// What the driver returns to direct calls.
		{name: "field values: codes and types", stage: stageIdle, against: "fields that changed between two sweeps",
			bound: atMost, because: "a field is offered or not", measured: count((*probed).changed), expected: is(0)},
		{name: "field values: types", stage: stageIdle, against: "fields of another type than the table of calls has",
			bound: atMost, because: "the type decides where a counter overflows", measured: count((*probed).otherTypes),
			expected: is(0)},
		{name: "field values: counters", stage: stageIdle, against: "64-bit counters that decreased between two sweeps",
			bound: atMost, because: "a counter does not decrease", measured: count((*probed).decreased),
			expected: is(0)},
		{name: "field values: timestamps", stage: stageIdle, against: "fields with a value and no time",
			bound: atMost, because: "an entry without a time counts as not filled in",
			measured: count((*probed).timeless), expected: is(0)},
		{name: "field values: latency", stage: stageIdle, against: "milliseconds of the slowest batch", bound: atMost,
			because:  "8 GPUs with two batches each have to fit into a poll of 1 s",
			expected: is(float64(slowField.Milliseconds())),
			measured: func(p *period) (float64, error) {
				slowest := slices.MaxFunc(p.probe.Fields, func(a, b fieldAnswer) int { return cmp.Compare(a.Latency, b.Latency) })
				p.remark(fmt.Sprintf("field %d", slowest.ID))
				return float64(slowest.Latency) / 1e3, nil
			}},
		{name: "BAR1 against memory", stage: stageIdle, against: "BAR1 by device memory", bound: atMost,
			tolerance: -1e-6,
			because:   "beyond twice the memory the exporter rejects the memory as too small", expected: is(2),
			measured: func(p *period) (float64, error) {
				if p.probe.BAR1 == 0 || p.probe.Memory == 0 {
					return 0, errors.New("the driver reports no BAR1, or no memory")
				}
				return float64(p.probe.BAR1) / float64(p.probe.Memory), nil
			}},
		{name: "sample ring: period", stage: stageLoad, against: "longest time between two samples by the median",
			bound:     atMost,
			tolerance: 0.5, because: "a missing sample makes it 2", expected: is(1), measured: ringGap},
		{name: "sample ring: depth", stage: stageLoad, against: "seconds, three times the time between two reads",
			bound:   atLeast,
			because: "a poll may be late by one, and one may fail", measured: ringSpan,
			expected: func(p *period) (float64, error) {
				from, to := p.bounds()
				return 3 * (to - from) / max(1, p.reads("nvmlDeviceGetSamples")/2), nil
			}},
		{name: "every busy sample of the ring has a PID", stage: stageLoad,
			against: "busy time of processes by that of the ring",
			bound:   atLeast, tolerance: 0.1, because: "whole percents per process and window", expected: is(1),
			measured: explained},
		{name: "samples of processes at 0.2 to 5 s", stage: stageLoad,
			against: "largest ratio of a window's processes to its ring",
			bound:   atMost, tolerance: 0.15, because: "whole percents per process and window", expected: is(1),
			measured: windowRatio},
		{name: "sample ring: rounding at 2 % duty", stage: stageLittle, against: "the load's own log", bound: exactly,
			tolerance: 0.005,
			because:   "half a percent is what truncation would take", expected: logged(roleBusy), measured: ringMean},

		// Containers that share the GPU.
		{name: "container busy 60 %", stage: stageShared, against: "the load's own log", bound: exactly,
			tolerance: busyTolerance,
			because:   pollEdges, measured: container("hwcheck-60"), expected: logged("hwcheck-60")},
		{name: "container busy 20 %", stage: stageShared, against: "the load's own log", bound: exactly,
			tolerance: busyTolerance,
			because:   pollEdges, measured: container("hwcheck-20"), expected: logged("hwcheck-20")},
		{name: "container with memory only", stage: stageShared, against: "busy share", bound: atMost, tolerance: 0.01,
			because: "rounding of the other two", measured: container("hwcheck-memory"), expected: is(0)},
		{name: "memory of a container", stage: stageShared, against: "bytes that the load allocated", bound: exactly,
			tolerance: 1 << 30, because: "a CUDA context takes up to 1 GiB more",
			measured: func(p *period) (float64, error) {
				v, ok := p.after.sum("gpu_container_memory_used_bytes", equal("pod", "hwcheck-memory"), equal("uuid", p.uuid))
				if !ok {
					return 0, wrong("no gpu_container_memory_used_bytes for it")
				}
				return v, nil
			},
			expected: func(p *period) (float64, error) { return memoryLoad, nil }},
		{name: "hidden busy time", stage: stageShared, against: "share of time", bound: atMost, tolerance: 0.02,
			because: "rounding of two processes",
			measured: func(p *period) (float64, error) {
				v, err := p.shareOf("gpu_unattributed_busy_seconds_total", equal("reason", "hidden"))
				if errors.As(err, new(failure)) {
					return 0, nil
				}
				return v, err
			}, expected: is(0)},
		{name: "MPS clients", stage: stageMPS, against: "share of time", bound: exactly, tolerance: 0.02,
			because: pollEdges,
			measured: func(p *period) (float64, error) {
				inside, _ := p.shareOf("gpu_container_busy_seconds_total")
				outside, _ := p.shareOf("gpu_unattributed_busy_seconds_total")
				return inside + outside, nil
			}, expected: rate("gpu_busy_seconds_total")},

		{name: "NVLink sent bytes", stage: stageCopyPeer, against: "bytes per second copied to the next GPU",
			bound: exactly, relative: 0.15,
			because: "newer links count headers", measured: rate("gpu_nvlink_transmit_bytes_total"),
			expected: copied(roleCopy, 1.07)},

		// What the exporter costs, against the same without it.
		costClaim("launch of an empty kernel, p50", "p50", "microseconds", 2, 0.05),
		costClaim("launch of an empty kernel, p99", "p99", "microseconds", 10, 0.2),
		costClaim("launch of an empty kernel, p99.9", "p99.9", "microseconds", 50, 0.5),
		costClaim("power of the idle GPU", "watts", "watts", 2, 0.03),
		{name: "ioctls per driver call", stage: stageCost, against: "ioctls", bound: atMost,
			because:  "a batch is one call of NVML and several of the kernel",
			measured: noted("ioctls"), expected: is(8)},
		{name: "families as uid 0 without capabilities", stage: stageUsers,
			against: "families of root that are missing", bound: atMost,
			because: "the container runs like this", measured: noted("missing as 0"), expected: is(0)},
		{name: "families as uid 65534", stage: stageUsers, against: "families of root that are missing", bound: atMost,
			because: "the host's service runs like this", measured: noted("missing as 65534"), expected: is(0)},

		{name: "closed on SIGUSR1", stage: stageLetGo, against: "seconds until no device file is open", bound: atMost,
			because:  "a tool waits for it",
			measured: noted("closed after"), expected: is(1)},
		{name: "opened on SIGUSR2", stage: stageLetGo, against: "seconds until the GPU is read", bound: atMost,
			because: "GPUs without persistence mode are initialized meanwhile", measured: noted("read after"), expected: is(5)},
		{name: "suspended GPU", stage: stageSuspend, against: "milliseconds in which it was active", bound: atMost,
			because: "the exporter calls no driver", measured: noted("active"), expected: is(0)},

		// What changes the GPU, by a flag of its own.
		{name: "MIG instance busy", stage: stageMIG, against: "the load's own log", bound: exactly, tolerance: 0.05,
			because:  pollEdges,
			measured: noted("busy of the instance"), expected: noted("log of the load")},
		{name: "GPM of the whole GPU in MIG mode", stage: stageMIG, against: "PCIe rates, 1 where they are offered",
			bound: atLeast, because: "the PCIe bytes of GPUs in MIG mode rest on them", measured: noted("gpm"), expected: is(1)},
		{name: "MIG layout changed live", stage: stageMIG,
			against: "instances, as nvidia-smi lists them after the change", bound: exactly,
			because: "within 60 s", measured: noted("instances exported"), expected: noted("instances listed")},
		{name: "XID 31", stage: stageXID, against: "events of a caused fault", bound: exactly,
			because:  "one fault, by NVML and the kernel log",
			measured: noted("xid 31"), expected: is(1)},
		{name: "XID 43", stage: stageXID, against: "events of a caused trap", bound: exactly,
			because:  "one trap, by NVML and the kernel log",
			measured: noted("xid 43"), expected: is(1)},
		{name: "XID 31 in the kernel log", stage: stageXID, against: "lines of a caused fault", bound: atLeast,
			because:  "the log may repeat it",
			measured: noted("log 31"), expected: is(1)},
		{name: "XID 43 in the kernel log", stage: stageXID, against: "lines of a caused trap", bound: atLeast,
			because:  "the log may repeat it",
			measured: noted("log 43"), expected: is(1)},
	}
}

func percentOf(field string, scale float64) func(p *period) (float64, error) {
	return func(p *period) (float64, error) {
		v, err := p.mean(field)
		return v * scale, err
	}
}

func smActive(p *period) (float64, error) {
	return p.ratio("gpu_sm_active_seconds_total", "gpu_profiled_seconds_total")
}

// reads is how often a call was made for each GPU.
func (p *period) reads(call string) float64 {
	gpus, _ := p.after.sum("gpu_device_up")
	if h := p.calls()[call]; h != nil && gpus > 0 {
		return h.Count / gpus
	}
	return 0
}

// failure is an error that is a failed claim, where another error means that the claim cannot be tested.
type failure struct{ error }

func wrong(format string, args ...any) error { return failure{fmt.Errorf(format, args...)} }

// check judges a claim.
func (c claim) check(p *period) Check {
	out := Check{Name: c.name, Number: hardware.Number(c.name)}
	if c.stage == "" {
		out.Name += ", " + p.stage
	}
	p.remarked = ""
	measured, err := c.measured(p)
	expected, err2 := c.expected(p)
	err = cmp.Or(err, err2)
	switch {
	case errors.As(err, new(failure)):
		return out.judge(false, "%v", err)
	case err != nil:
		return out.skipped("%v", err)
	}
	tolerance := max(c.tolerance, c.relative*expected)
	if c.tolerance < 0 {
		tolerance = c.tolerance
	}
	if c.polls > 0 {
		from, to := p.bounds()
		tolerance = max(tolerance, c.polls*p.fast/(to-from))
	}
	out.Expected = fmt.Sprintf("%.4g %s%.3g (%s)", expected, c.bound, tolerance, c.against)
	out.Measured = fmt.Sprintf("%.4g", measured)
	margin := 0.0
	if c.margin != nil {
		margin, _ = c.margin(p)
		out.Measured += fmt.Sprintf(" ± %.2g", margin)
		if best, worst := c.within(measured-margin, expected, tolerance), c.within(measured+margin, expected, tolerance); best &&
			!worst {
			return out.incomplete("not settled, the confidence interval of 95 %% has both; %s; %s", c.because, p.remarked)
		}
	}
	return out.judge(c.within(measured-margin, expected, tolerance), "tolerance: %s; %s", c.because, p.remarked)
}

// within reports whether the claim holds for a value.
func (c claim) within(measured, expected, tolerance float64) bool {
	switch c.bound {
	case atMost:
		return measured <= expected+tolerance
	case atLeast:
		return measured >= expected-tolerance
	}
	return math.Abs(measured-expected) <= tolerance
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
