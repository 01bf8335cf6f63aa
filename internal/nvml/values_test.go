package nvml

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/internal/nvml/calls"
)

// TestEverySourceOfAValue gives each plain reading of the table a value of its own by each of its sources alone, of which most
// boards have one and small numbers: no reading is made of another's value, or in another unit.
func TestEverySourceOfAValue(t *testing.T) {
	states := map[string]int{calls.Switch.Go: 2, calls.Flag.Go: 2, calls.OneOf("ComputeModes").Go: len(gpu.ComputeModes),
		calls.OneOf("RecoveryActions").Go: len(gpu.RecoveryActions)}
	units := map[string]calls.Reading{}
	for _, r := range calls.All() {
		for _, to := range r.To {
			units[to] = r
		}
	}
	list := checks()
	list = list[:len(list)-len(byHand())]
	text := &strings.Builder{}
	const ranks, variants = 3, 5
	for n := range ranks * variants {
		rank, variant := n/variants, n%variants
		answers := map[string][]string{}
		for i, c := range list {
			if rank >= len(c.sources) {
				continue
			}
			value := 700_000 + 1000*(variants*i+variant)
			if states := states[units[c.name].Unit.Go]; states > 0 {
				value = (i + variant) % states
			} else if c.name == "PState" {
				value = 2*variant + 1
			} else if strings.HasPrefix(c.name, "MarginLimits") {
				value = i + 3*variant
			}
			src := c.sources[rank]
			key, component := src.key, src.component
			if component == "links" {
				key, component = strings.Replace(key, "]", ",1]", 1), ""
			}
			if component != "" {
				component += "="
			}
			answers[key] = append(answers[key], fmt.Sprintf("%s%d", component, value))
		}
		fmt.Fprintf(text, "gpu %d board=b\n", n)
		for key, values := range answers {
			if at := slices.IndexFunc(calls.Calls, func(c calls.Call) bool { return c.ScenarioKey() == key }); at >= 0 {
				for _, name := range calls.Calls[at].Values { // all of a call's values are required
					if strings.Contains(values[0], "=") && !strings.Contains(strings.Join(values, " "), name+"=") {
						values = append(values, name+"=1")
					}
				}
			}
			fmt.Fprintf(text, "  %s = %s\n", key, strings.Join(values, " "))
		}
	}
	r := playText(t, text.String())
	r.at(20 * time.Second)
	for n, c := range r.open() {
		if !strings.Contains(text.String(), fmt.Sprintf("gpu %d ", n)) {
			t.Fatal(n)
		}
		l, found := readAll(t, c), 0
		for _, check := range list {
			want, _, present := check.want(r.scenario, n, r.control.Now(), r.session.offers, false)
			got, ok := check.got(l)
			if ok != present || ok && math.Abs(got-want) > 1e-9*max(1, want) {
				t.Errorf("GPU %d, %s: got %v (%v), want %v (%v)", n, check.name, got, ok, want, present)
			}
			if ok {
				found++
			}
		}
		if want := []int{60, 13, 1}[n/variants]; found < want {
			t.Errorf("GPU %d: %d readings, fewer than %d", n, found, want)
		}
	}
}

// A field whose type is unknown, or whose number is none of the states, has no value.
func TestFieldsWithoutAValue(t *testing.T) {
	unusable := func(name string, got any, zero any) {
		if !reflect.DeepEqual(got, zero) {
			t.Errorf("%s: %+v", name, got)
		}
	}
	fields := 0
	for _, v := range []value{{kind: 99}, {kind: nvml.VALUE_TYPE_DOUBLE, raw: [8]byte{255, 255, 255, 255, 255, 255, 255, 255}}} {
		for _, row := range fastValues {
			if row.set != nil {
				fields++
				var to gpu.Fast
				row.set(&to, v)
				unusable(row.reading, to, gpu.Fast{})
			}
		}
		for _, row := range mediumValues {
			if row.set != nil {
				fields++
				var to gpu.Medium
				row.set(&to, v)
				unusable(row.reading, to, gpu.Medium{})
			}
		}
		for _, row := range slowValues {
			if row.set != nil {
				fields++
				var to gpu.Slow
				row.set(&to, v)
				unusable(row.reading, to, gpu.Slow{})
			}
		}
	}
	if fields < 80 {
		t.Errorf("%d fields", fields)
	}
	for n, want := range map[string]string{"0": "none default", "7": "system_reboot –", "8": "– –",
		"3": "drain_p2p exclusive_process", "4": "drain_and_reset –"} {
		t.Run(n, func(t *testing.T) {
			r := playText(t, "gpu 0 board=b\n  Field[230] = "+n+"\n  ComputeMode = "+n+"\n")
			c := r.open()[0]
			if got := fmt.Sprint(medium(t, c).Recovery, " ", slow(t, c).ComputeMode); got != want {
				t.Errorf("state %s: %s, want %s", n, got, want)
			}
		})
	}
	t.Run("performance", func(t *testing.T) {
		r := playText(t, "gpu 0 board=b\n  PerformanceState = 15\ngpu 1 board=b\n  PerformanceState = 32\ngpu 2 board=b\n"+
			"  PerformanceState = 0\ngpu 3 board=b\n  PerformanceState = 16\n")
		for i, c := range r.open() {
			if got := medium(t, c).PState; got != []gpu.Opt[int]{gpu.Some(15), {}, gpu.Some(0), {}}[i] {
				t.Errorf("GPU %d: state %v", i, got)
			}
		}
	})
}

// A field that fails after it worked is absent and counted: its last value is no value. Only the counters of links keep it.
func TestFieldThatFailsLater(t *testing.T) {
	r := playText(t, `
gpu 0 board=b
  Field[83] = 5000
  Field[82] = 60
  Field[193] = -8 type=int
at 10s gpu 0 Field[83] = !UNKNOWN
at 10s gpu 0 Field[82] = !UNTOUCHED
at 20s gpu 0 Field[83] = 9000
at 20s gpu 0 Field[82] = 61
`)
	c := r.open()[0]
	for at, want := range []string{"5 60", "– –", "9 61"} {
		r.at(time.Duration(at) * 10 * time.Second)
		f := fast(t, c)
		if got := fmt.Sprint(f.Energy, " ", f.MemoryTemperature); got != want {
			t.Errorf("at %d0 s: %s, want %s", at, got, want)
		}
	}
	if got := slow(t, c).MarginLimits; fmt.Sprint(got) != "map[gpu shutdown:-8]" {
		t.Errorf("margins %v", got)
	}
	if e := r.errors("nvmlDeviceGetFieldValues"); e["UNKNOWN"] != 1 || len(e) != 1 {
		t.Errorf("errors %v", e)
	}
}

// One field that the driver refuses, from the start or once it has worked, must not cost the others of its batch. It is left out
// of later batches.
func TestBatchIsRejected(t *testing.T) {
	for _, tt := range []struct {
		code nvml.Return
		from int // the first poll in which the field is refused
	}{{nvml.ERROR_INVALID_ARGUMENT, 0}, {nvml.ERROR_NOT_SUPPORTED, 0}, {nvml.ERROR_NOT_SUPPORTED, 1}} {
		// Once the power is known as not offered, these two are the batch.
		r := playText(t, "gpu 0 board=b\n  Field[83] = 5000\n  Field[82] = 60\n"+
			"  Field[185,gpu] = !NOT_SUPPORTED\n  Field[186,gpu] = !NOT_SUPPORTED\n")
		poll, calls := 0, 0
		r.options.Intercept = func(_ int, call string, _ []int, value any, run func() int32) int32 {
			if call == "nvmlDeviceGetFieldValues" {
				if calls++; poll >= tt.from && slices.ContainsFunc(*value.(*[]nvml.FieldValue),
					func(f nvml.FieldValue) bool { return f.FieldId == 82 }) {
					return int32(tt.code)
				}
			}
			return run()
		}
		c := r.open()[0]
		for poll = range 3 {
			calls = 0
			if f := fast(t, c); f.Energy != gpu.Some(gpu.Joules(5)) || f.MemoryTemperature.Present() != (poll < tt.from) {
				t.Errorf("%s from poll %d, poll %d: %v, %v", codeName(tt.code), tt.from, poll, f.Energy, f.MemoryTemperature)
			}
		}
		if calls != 1 {
			t.Errorf("%s from poll %d: then %d calls", codeName(tt.code), tt.from, calls)
		}
	}
}

// A GPU that is lost while its fields, or its links, are read is lost.
func TestLostWithinABatch(t *testing.T) {
	for _, key := range []string{"Field[83]", "Field[32]"} {
		t.Run(key, func(t *testing.T) {
			r := playText(t, "gpu 0 board=b\n  Field[83] = 5000\n  Field[32] = 1\nat 10s gpu 0 "+key+" = !GPU_IS_LOST\n")
			r.options.Links = true
			c := r.open()[0]
			if m := medium(t, c); fast(t, c).Energy != gpu.Some(gpu.Joules(5)) || len(m.Links) != 1 {
				t.Errorf("before: %+v", m)
			}
			r.at(10 * time.Second)
			_, err1 := c.Fast(true)
			_, err2 := c.Medium()
			if c.Err() == nil || err2 == nil || (err1 == nil) != (key != "Field[83]") {
				t.Errorf("%v, %v, %v", err1, err2, c.Err())
			}
		})
	}
}

// A poll that takes no profiling sample has the PCIe counters of the sample before: the two have one period. Where the driver
// refuses the sample, it has its own.
func TestPCIeCountersOfAPollWithoutASample(t *testing.T) {
	r := playText(t, "  GpmQueryDeviceSupport = 1\n  Gpm[1] = 100*util\n  Field[197] = 1000*t\n  Field[198] = 2000*t\n"+
		"gpu 0 board=b\ngpu 1 board=b\n  GpmSampleGet = !UNKNOWN\n")
	devs := r.open()
	for _, step := range []struct {
		at   time.Duration
		want [2]gpu.Bytes // of the GPU with samples, and of the other
	}{{10000, [2]gpu.Bytes{10000, 10000}}, {10050, [2]gpu.Bytes{10000, 10050}}, {12000, [2]gpu.Bytes{12000, 12000}},
		{12099, [2]gpu.Bytes{12000, 12099}}, {14000, [2]gpu.Bytes{14000, 14000}}} {
		r.at(step.at * time.Millisecond)
		for i, c := range devs {
			if f := fast(t, c); f.PCIeTransmit != gpu.Some(step.want[i]) || f.PCIeReceive != gpu.Some(2*step.want[i]) {
				t.Errorf("at %v ms, GPU %d: %v, %v, want %d", int(step.at), i, f.PCIeTransmit, f.PCIeReceive, step.want[i])
			}
		}
	}
}

// A GPU that can be profiled, and has none of the metrics, is queried for them once.
func TestProfilingWithoutMetrics(t *testing.T) {
	r := playText(t, "  GpmQueryDeviceSupport = 1\ngpu 0 board=b\n")
	c := r.open()[0]
	for range 5 {
		if g := fast(t, c).GPM; g.Present() {
			t.Errorf("%v", g)
		}
		r.control.Advance(2 * time.Second)
	}
	if n := r.control.Calls("nvmlGpmMetricsGet"); n != 1 || !slices.Contains(c.NotOffered(), "gpm") {
		t.Errorf("%d calls, not offered %v", n, c.NotOffered())
	}
}

// Rings are read where they are due alone; every reading has the time at which it was read.
func TestSampledReadings(t *testing.T) {
	r := playText(t, "gpu 0 board=b\n  UtilizationRates = gpu=50 memory=40\nprocess gpu=0 pid=7 busy=50%\n")
	c := r.open()[0]
	for i, samples := range []bool{true, false, true} {
		want := map[bool]gpu.Opt[gpu.Utilization]{true: gpu.Some(gpu.Utilization{GPU: .5, Memory: .4})}[samples]
		r.control.Advance(2 * time.Second)
		before := r.control.Calls("nvmlDeviceGetSamples")
		f, err := c.Fast(samples)
		if err != nil || f.Unsampled == samples || f.Busy.Present() != samples || f.Utilization != want {
			t.Errorf("poll %d, samples %v: %+v, %v", i, samples, f, err)
		}
		// Two rings: of the first, the driver is called for the size as well.
		if n := r.control.Calls("nvmlDeviceGetSamples") - before; n != []uint64{3, 0, 2}[i] {
			t.Errorf("poll %d: %d calls for rings", i, n)
		}
		for _, taken := range []time.Time{f.Taken, medium(t, c).Taken, slow(t, c).Taken} {
			if !taken.Equal(r.control.Time()) {
				t.Errorf("taken at %v, not %v", taken, r.control.Time())
			}
		}
	}
}

// A process sample may be ten seconds ahead of the GPU's newest one; without a ring there is nothing to compare it with. One that is
// further ahead is garbage (Syllo/nvtop#110) and must not hide the later ones.
func TestProcessSamplesAhead(t *testing.T) {
	for _, tt := range []struct {
		newest, at uint64
		want       int
	}{{1e12, 1e12 + 10e6, 1}, {1e12, 1e12 + 10e6 + 1, 0}, {0, 1e12, 1}} {
		c := stubGPU(&stub{utilization: func() ([]nvml.ProcessUtilizationSample, nvml.Return) {
			return []nvml.ProcessUtilizationSample{{Pid: 7, TimeStamp: tt.at, SmUtil: 1, MemUtil: 2, EncUtil: 3,
				DecUtil: 4}}, nvml.SUCCESS
		}})
		c.procsSeen, c.busy = true, cursor(tt.newest)
		var to gpu.Fast
		want := slices.Repeat([]gpu.ProcessSample{{PID: 7, Time: int64(tt.at), SM: 1, Memory: 2, Encoder: 3, Decoder: 4}}, tt.want)
		if readProcessSamples(c, &to); !slices.Equal(to.Processes.Or(nil), want) || (c.procs == cursor(tt.at)) != (tt.want == 1) {
			t.Errorf("%d after %d: %v, cursor %d", tt.at, tt.newest, to.Processes, c.procs)
		}
	}
}

// More processes than the buffer has room for are read with a larger one, in the same poll.
func TestManyActiveProcesses(t *testing.T) {
	text := "gpu 0 board=b\n  ring period=10ms entries=1000\n"
	for pid := range 200 {
		text += fmt.Sprintf("process gpu=0 pid=%d busy=100%%\n", 1000+pid)
	}
	r := playText(t, text)
	r.at(10 * time.Second)
	c := r.open()[0]
	fast(t, c)
	r.control.Advance(9 * time.Second)
	seen := map[int]bool{}
	for _, p := range fast(t, c).Processes.Or(nil) {
		seen[p.PID] = true
	}
	if len(seen) <= processBuffer || len(r.errors("nvmlDeviceGetProcessUtilization")) > 0 {
		t.Errorf("%d processes, errors %v", len(seen), r.errors("nvmlDeviceGetProcessUtilization"))
	}
}
