package main

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// key names a series of the exposition: rest are the labels besides those of the GPU, the pod and the node.
type key struct {
	family string
	dev    int // everyGPU: of none, or of one without its name
	pod    string
	rest   string
}

// page is an exposition by series.
type page map[key]float64

// want is a value that a GPU that works shows, and in which bounds.
var instant = []struct {
	family    string
	low, high float64
}{
	{"gpu_power_watts", 60, 720}, {"gpu_power_instant_watts", 60, 720}, {"gpu_memory_total_bytes", 80e9, 90e9},
	{"gpu_clock_hertz", 300e6, 3e9}, {"gpu_temperature_celsius", 25, 90}, {"gpu_power_limit_watts", 699, 701},
}

// ending are families that a GPU that cannot be read does not show.
var ending = []string{"gpu_power_watts", "gpu_memory_used_bytes", "gpu_memory_free_bytes", "gpu_busy_seconds_total",
	"gpu_utilization_ratio", "gpu_clock_hertz", "gpu_energy_joules_total"}

// moving are families that come and go on a GPU that works, with what runs there or with who holds it.
func moving(family string) bool {
	return strings.HasPrefix(family, "gpu_mig_") || family == "gpu_allocation_ratio" || family == "gpu_unmeasured_info" ||
		family == "gpu_unattributed_memory_used_bytes" ||
		family == "gpu_kubelet_healthy" || // while the kubelet's responses are good
		family == "gpu_clock_event_active" // while there is a reason
}

// checker compares what the program says with what the world knows, after every step.
type checker struct {
	*trial
	of       map[string]*workload
	last     page // every series at its last value
	now      page
	devs     [worldGPUs]GPUCheck
	pods     map[*workload]*podCheck
	wrongAll time.Duration // when something was wrong that concerns all GPUs, by the monotonic clock
	ended    int           // for how many polls there has been no driver
	paused   time.Duration // in all
	sought   time.Duration // when a new session might have begun for a missing GPU: it costs the others a tick
	calmed   struct {
		goroutines int
		heap       uint64
		seen       bool
	}
	xidsDue []xidDue
	low     map[[2]int]int // XIDs by GPU and code: at least, at most
	high    map[[2]int]int
	before  time.Duration // the scenario's time of the step before
	renewed time.Duration // when GPUFree was last replaced, or returned, by the monotonic clock
	takes   time.Duration // when the driver's events were last another process'
	summed  time.Duration // the monotonic clock when the sums were last checked
}

type xidDue struct {
	outcry
	wrong, foreign bool
}

// gpuCheck is what is known of one GPU.
type GPUCheck struct {
	wrong  time.Duration // when something was last wrong with it, by the monotonic clock
	faulty time.Duration // when a fault of its own was last there
	hard   int           // for how many polls it has been lost
	// busy and energy are the truth since the beginning, sampled what the driver's samples tell of busy in whole percents.
	busy, sampled, energy float64

	allocated []float64 // the memory of the latest steps
	marks     []mark    // in a time without faults
	offered   map[string]bool
	seeks     bool    // it was not there when a session began
	refused   bool    // its process lists or samples may be missing
	estimated float64 // seconds in which that was so
}

// mark is a moment of a GPU that works: what it says, and what is true.
type mark struct{ at, busy, energy, trueBusy, trueEnergy float64 }

// podCheck is what is known of one pod.
type podCheck struct {
	ran       time.Duration // when its process was first there at a step, by the monotonic clock
	supported time.Duration // when something last spoke for its allocation or using its GPU
	busy      float64       // truth, in seconds of the GPU
	slept     float64       // time in which the machine slept, and the GPU of the scenario worked on
	amnesty   float64       // work of its GPU that it may have got for want of anybody who could tell
}

func (c *checker) begin(r *trial) {
	c.trial = r
	c.of, c.pods, c.last = map[string]*workload{}, map[*workload]*podCheck{}, page{}
	c.low, c.high = map[[2]int]int{}, map[[2]int]int{}
	for _, p := range r.w.workloads {
		c.of[p.name] = p
		c.pods[p] = &podCheck{supported: -time.Hour}
	}
	for i := range c.devs {
		c.devs[i].offered = map[string]bool{}
	}
	for _, x := range r.w.xids {
		c.xidsDue = append(c.xidsDue, xidDue{outcry: x})
	}
}

// step is called after every poll.
func (c *checker) step(active []fault) {
	c.read()
	c.learn()
	if c.round%c.every != 0 && c.round > 1 {
		c.before = c.at
		return
	}
	c.names()
	c.ownership()
	c.zeros()
	c.counters()
	c.sums()
	c.values()
	c.frozen()
	c.xids()
	c.sources()
	c.bounds(active)
	if c.round%40 == 1 {
		c.scrape()
	}
	if c.has("network cuts") && c.round%5 == 0 {
		c.cuts()
		c.read() // what its poll has read is of this moment
	}
	for k, v := range c.now {
		c.last[k] = v
	}
	c.before = c.at
}

// holds checks one statement.
func (c *checker) expect(ok bool, invariant, format string, args ...any) {
	c.figures.Checks++
	if !ok {
		c.violate(invariant, format, args...)
	}
}

// read takes the families as a scrape would show them.
func (c *checker) read() {
	before := c.st.calls()
	families, err := c.st.e.metrics.Gather()
	c.expect(err == nil, "scrape", "%v", err)
	c.expect(c.st.calls() == before, "scrape", "it called the driver")
	c.now = make(page, len(c.last))
	for _, f := range families {
		if f.GetType() == dto.MetricType_HISTOGRAM {
			continue
		}
	metrics:
		for _, m := range f.Metric {
			k, v := key{family: f.GetName(), dev: everyGPU}, m.GetGauge().GetValue()
			if m.Counter != nil {
				v = m.GetCounter().GetValue()
			}
			for _, l := range m.Label {
				switch l.GetName() {
				case "node", "gpu", "namespace", "container":
				case "uuid":
					if l.GetValue() == anotherUUID {
						continue metrics // only that of the GPU which it replaces is compared
					}
					i, known := c.door.devs[gpu.UUID(l.GetValue())]
					if known {
						k.dev = i
					} else {
						k.rest += l.GetValue() + ","
					}
				case "pod":
					k.pod = l.GetValue()
				default:
					k.rest += l.GetName() + "=" + l.GetValue() + ","
				}
			}
			_, twice := c.now[k]
			c.expect(!twice, "scrape", "%v stands twice", k)
			c.expect(!math.IsNaN(v) && !math.IsInf(v, 0), "false zero", "%v is %v", k, v)
			c.now[k] = v
		}
	}
}

// learn brings what is known up to the moment.
func (c *checker) learn() {
	now := c.hands.awake()
	for _, f := range c.w.faults {
		if f.from > c.at || f.to <= c.before {
			continue // it was not there since the step before
		}
		switch {
		case strings.HasPrefix(f.kind, "driver"), f.kind == "mig pending", f.kind == "suspend", f.kind == "exporter stopped":
			c.wrongAll = now
		case f.dev >= 0:
			c.devs[f.dev].wrong, c.devs[f.dev].faulty = now, now
		}
	}
	swapped := false
	for _, f := range c.w.faults {
		if f.kind == "driver finds another GPU" && c.at >= f.from && c.before <= f.to {
			swapped, c.renewed = f.has(c.at), now
		}
		// A session that began without the GPU finds it again in a while, and not at once.
		if f.kind == "GPU removed" && f.has(c.at) && now-c.wrongAll < recovery {
			c.devs[f.dev].seeks = true
		}
		if k := &c.devs[max(f.dev, 0)]; f.kind == "GPU removed" && k.seeks && c.at >= f.to && c.at < f.to+2*time.Minute {
			k.wrong, c.sought = now, now
		} else if f.kind == "GPU removed" && c.at >= f.to+2*time.Minute && c.at < f.to+2*time.Minute+tick {
			k.seeks = false
		}
	}
	for k := range c.last { // the account of a GPU ends with it, and that of an address with the GPU which is found there
		if (k.dev == GPUFree || strings.Contains(k.rest, ":00.0,")) && c.renews() {
			delete(c.last, k)
		}
	}
	c.ended++
	if c.w.driven(c.at) {
		c.ended = 0
	}
	if k := &c.devs[GPUFree]; c.renews() && (c.ended > 0 || k.hard > 0 || k.seeks || c.door.hungFor(GPUFree) > 0) {
		c.renewed = now // it is not known yet which GPU is there
	}
	recent := now-c.wrongAll < recovery
	for i := range c.devs {
		if c.door.hungFor(i) > 0 {
			c.devs[i].wrong = now
			if recent {
				c.wrongAll = now // the driver is not shut down under a call
			}
		}
	}
	if c.now[key{family: "gpu_exporter_paused", dev: everyGPU, rest: "reason=mig_change,"}] == 1 {
		c.wrongAll = now
		c.paused += c.tick
		pending := 0
		for _, f := range c.w.faults {
			if f.kind == "mig pending" && f.from <= c.at {
				pending++
			}
		}
		c.expect(c.paused <= time.Duration(pending)*34*time.Second, "recovery", "the driver was shut down for %v, for %d changes", c.paused,
			pending)
	}
	for i := range c.devs {
		k := &c.devs[i]
		truth := c.s.Truth(i)
		k.busy += float64(truth.Busy(c.before, c.at))
		k.sampled += float64(truth.Sampled(c.before, c.at)) * (1 + c.fast(i))
		k.energy += float64(truth.Energy(c.before, c.at))
		if k.allocated = append(k.allocated, float64(truth.Allocated(c.at))); len(k.allocated) > 9 {
			k.allocated = k.allocated[1:]
		}
		k.hard++
		if truth.State(c.at) == "" && !(swapped && i == GPUFree) {
			k.hard = 0
		}
		k.refused = false
		for _, f := range c.w.faults {
			k.refused = k.refused || f.dev == i && f.kind == "refused" && c.at >= f.from && c.at < f.to+40*time.Second
		}
		if k.refused {
			k.estimated += (c.at - c.before).Seconds()
		}
	}
	for _, p := range c.accepted {
		if c.owned() {
			c.pods[p].supported = now
		}
	}
	blind := now-c.procWrong < 45*time.Second && c.procWrong > 0
	stale := now-c.kubeletWrong < 45*time.Second && c.kubeletWrong > 0
	for _, p := range c.w.workloads {
		k := c.pods[p]
		if gap := c.at - c.before; gap > c.tick && (p.listed.has(c.at) || now-k.supported < gap+acceptedFor+askEvery) {
			k.amnesty += 13 // in a scenario pods change while the machine sleeps, and the driver's ring tells of the latest seconds
			if gap > time.Minute {
				k.supported = now // the program learns now only that the pod went
			}
		}
		if p.dev == everyGPU || c.at < p.listed.from {
			continue
		}
		// Where the kubelet's word is old and the processes cannot be distinguished, a successor's work looks like his.
		word := askEvery + tick
		if stale {
			word += acceptedFor
		}
		if (blind || c.devs[p.dev].refused) && now-k.supported < word {
			k.amnesty += float64(c.s.Truth(p.dev).Busy(c.before, c.at))
		}
		if c.before > p.runs.to {
			continue
		}
		from, to := max(p.runs.from, c.before), min(p.runs.to, c.at)
		if p.runs.has(c.at) || from < to {
			k.supported = now
			if k.ran == 0 {
				if k.ran = now; !c.well(p.dev) {
					k.slept += 13 // the first ring after a time without any tells of what was before
				}
			}
		}
		share := 1.0
		if c.w.devs[p.dev].mig {
			share = p.share
		}
		k.amnesty += c.fast(p.dev) * (c.at - c.before).Seconds()
		k.slept += c.fast(p.dev) * (c.at - c.before).Seconds()
		if from < to && c.at-c.before > c.tick {
			k.slept += (c.at - c.before).Seconds()
		}
		if from < to {
			k.busy += share * float64(c.s.Truth(p.dev).ProcessBusy(p.pid, from, to))
		}
	}
}

// renews reports whether the account of GPUFree may end or begin, and what is told of its address be of another.
func (c *checker) renews() bool { return c.renewed > 0 && c.hands.awake()-c.renewed < 40*time.Second }

// moved reports whether it is known for long that GPUCalm is in the place of GPUFree.
func (c *checker) moved() bool {
	i := slices.IndexFunc(c.w.faults, func(f fault) bool { return f.kind == "driver finds another GPU" && f.has(c.at) })
	return i >= 0 && c.at > c.w.faults[i].from+45*time.Second && c.at < c.w.faults[i].to-11*time.Second &&
		!slices.ContainsFunc(c.w.faults, func(f fault) bool {
			return f != c.w.faults[i] && f.touches(GPUCalm) && f.from <= c.at && f.to >= c.w.faults[i].from
		})
}

// fast is by how much the driver's clock on a GPU is fast.
func (c *checker) fast(dev int) (by float64) {
	for _, f := range c.w.faults {
		if f.kind == "samples fast" && f.dev == dev && f.from < c.at && c.before < f.to+10*time.Second {
			by += fastBy
		}
	}
	return by
}

// well reports whether nothing has been wrong with a GPU, or with all, for long enough.
func (c *checker) well(dev int) bool {
	now := c.hands.awake()
	since := recovery
	return now-c.wrongAll > since && (now-c.devs[dev].wrong > since || c.devs[dev].wrong == 0) && now > since
}

// category is what a fault of a GPU that should be well is called.
func (c *checker) category(dev int) string {
	if c.devs[dev].faulty == 0 || c.hands.awake()-c.devs[dev].faulty > recovery+10*time.Second {
		return "healthy"
	}
	return "recovery"
}

// lingers is for how long a name may stand after the last that spoke for it: a process list, its expiry, the grace.
const lingers = 5*time.Minute + 80*time.Second

// names: a pod is named only on its own GPU, not before it was there, and not long after.
func (c *checker) names() {
	now := c.hands.awake()
	for k, v := range c.now {
		if k.pod == "" {
			continue
		}
		p := c.of[k.pod]
		if p == nil {
			c.expect(false, "wrong pod", "%v names a pod that never was", k)
			continue
		}
		c.expect(k.dev == p.dev || k.dev == everyGPU, "wrong pod", "%v names a pod of GPU %d", k, p.dev)
		age := now - c.pods[p].supported
		c.expect(age < lingers, "leak", "%v stands %v after the pod went", k, age)
		if k.family == "gpu_container_busy_seconds_total" {
			q := c.pods[p]
			most := 1.25*q.busy + 4 + q.amnesty
			if p.share == 1 || c.w.devs[k.dev].mig {
				most = 1.02*q.busy + 0.5 + c.tick.Seconds() + q.amnesty // a window is one tick
			}
			c.expect(v <= most, "wrong pod", "%v has %.1f s of work, and did %.1f s", k, v, q.busy)
			// What was observed and not busy is said to have been idle.
			idle := c.now[key{"gpu_container_observed_seconds_total", k.dev, k.pod, k.rest}] - v
			share := 1.0
			if c.w.devs[k.dev].mig {
				share = p.share
			}
			c.expect(idle <= share*(c.at-p.listed.from).Seconds()-0.75*q.busy+5+q.slept, "false zero",
				"%v is said to have been idle for %.1f s of %v, and worked for %.1f s", k, idle, c.at-p.listed.from, q.busy)
		}
	}
}

// ownership: what the kubelet last got across, and nothing once that is old.
func (c *checker) ownership() {
	owned := c.owned()
	var sums [worldGPUs]float64
	strangers := false
	expected := map[key]float64{}
	for _, p := range c.accepted {
		if p.dev == everyGPU {
			strangers = true
			continue
		}
		mig := ""
		if c.w.devs[p.dev].mig {
			mig = p.id
		}
		expected[key{"gpu_container_allocation_ratio", p.dev, p.name,
			"mig_uuid=" + mig + ",resource=" + labelOf(p.resource) + ","}] = p.share
		sums[p.dev] += p.share
	}
	for k, v := range c.now {
		switch k.family {
		case "gpu_container_allocation_ratio":
			share, ok := expected[k]
			c.expect(owned, "stale", "%v is shown although the kubelet's last word is %v old", k, c.hands.awake()-c.lastSuccess)
			c.expect(!owned || ok, "wrong pod", "%v holds nothing there", k)
			c.expect(!owned || !ok || math.Abs(v-share) < 1e-6, "truth", "%v is %v, not %v", k, v, share)
		case "gpu_allocation_ratio":
			if k.dev < 0 {
				continue
			}
			c.expect(owned, "stale", "%v is shown although the kubelet's last word is %v old", k, c.hands.awake()-c.lastSuccess)
			c.expect(!owned || v >= sums[k.dev]-1e-6, "false zero", "%v is %v, and %v is allocated", k, v, sums[k.dev])
			c.expect(!owned || v <= sums[k.dev]+1e-6, "truth", "%v is %v, and %v is allocated", k, v, sums[k.dev])
			c.expect(!strangers || v > 0.999, "false zero", "%v is %v while an unknown GPU is allocated", k, v)
		}
	}
	if !owned {
		return
	}
	for k, share := range expected {
		if k.dev == GPUMIG || !c.well(k.dev) {
			continue
		}
		c.expect(c.now[k] == share, c.category(k.dev), "%v is missing", k)
	}
}

// labelOf spells a resource as a label does.
func labelOf(resource string) string {
	return strings.NewReplacer("/", "_", ".", "_", "-", "_").Replace(resource)
}

// zeros: what cannot be zero is not shown as zero.
func (c *checker) zeros() {
	for k, v := range c.now {
		if k.dev < 0 || v != 0 {
			continue
		}
		switch k.family {
		case "gpu_power_watts", "gpu_power_instant_watts", "gpu_memory_total_bytes", "gpu_memory_free_bytes", "gpu_clock_hertz",
			"gpu_power_limit_watts", "gpu_memory_reserved_bytes":
			c.expect(false, "false zero", "%v", k)
		case "gpu_temperature_celsius":
			c.expect(false, "false zero", "%v", k)
		case "gpu_memory_used_bytes":
			least := math.Inf(1)
			for _, h := range c.devs[k.dev].allocated {
				least = min(least, h)
			}
			c.expect(least == 0, "false zero", "%v, and %v bytes were used throughout", k, least)
		case "gpu_container_memory_used_bytes", "gpu_container_processes":
			p := c.of[k.pod]
			c.expect(p == nil || c.pods[p].ran == 0 || c.hands.awake() < c.pods[p].ran+34*time.Second || c.at >= p.runs.to, "false zero",
				"%v, and its process runs since %v", k, p.runs.from)
		}
	}
}

// counters: none ever falls, over any absence.
func (c *checker) counters() {
	for k, v := range c.now {
		if !strings.HasSuffix(k.family, "_total") {
			continue
		}
		was, before := c.last[k]
		c.expect(v >= 0 && (!before || v >= was-1e-9*max(1, was)), "counter", "%v fell from %v to %v", k, was, v)
		if k.dev < 0 {
			continue
		}
		switch t := &c.devs[k.dev]; k.family {
		case "gpu_busy_seconds_total":
			// Where the samples are refused, the driver's last sampling period stands for the time between two polls.
			worked, slack := t.sampled, 0.5+0.1*t.estimated
			if k.dev == GPUMIG {
				worked, slack = t.busy, 2.5+0.02*t.busy // the instances' figures are profiles, not samples
			}
			c.expect(v <= worked+slack, "twice", "%v is %v, and the GPU worked %v s", k, v, worked)
		case "gpu_pcie_transmit_bytes_total":
			// Until an estimate that is off is doubted, each step may be an overflow too large.
			sent := pcieRate * c.at.Seconds()
			c.expect(v <= sent+100<<30, "twice", "%v is %v, and the GPU sent %v", k, v, sent)
		case "gpu_energy_joules_total":
			c.expect(v <= 1.001*t.energy+700, "twice", "%v is %v, and the GPU used %v J", k, v, t.energy)
		}
	}
}

// sums: the increases of the parts are that of the GPU, of the states that of the monotonic clock, and so is memory.
func (c *checker) sums() {
	awake := c.hands.awake()
	passed := (awake - c.summed).Seconds()
	c.summed = awake
	var device, parts [worldGPUs][2]float64
	var spent, spentBefore, measured [worldGPUs]float64
	var used, given [worldGPUs]float64
	var shown [worldGPUs]bool
	for k, v := range c.now {
		if k.dev < 0 {
			continue
		}
		increase := v - c.last[k]
		switch k.family {
		case "gpu_busy_seconds_total":
			device[k.dev][0] += increase
		case "gpu_energy_joules_total":
			if _, before := c.last[k]; before {
				device[k.dev][1] += increase // the first value is the driver's, from before
			}
		case "gpu_container_busy_seconds_total", "gpu_unattributed_busy_seconds_total":
			parts[k.dev][0] += increase
		case "gpu_container_energy_joules_total", "gpu_unattributed_energy_joules_total":
			parts[k.dev][1] += increase
		case "gpu_memory_used_bytes":
			used[k.dev], shown[k.dev] = v, true
		case "gpu_container_memory_used_bytes", "gpu_unattributed_memory_used_bytes":
			given[k.dev] += v
		case "gpu_time_seconds_total":
			if spent[k.dev] += v; k.rest == "state=busy," || k.rest == "state=gap," || k.rest == "state=idle," {
				measured[k.dev] += v
			}
			spentBefore[k.dev] += c.last[k]
		case "gpu_attribution_error_ratio":
			c.expect(math.Abs(v) <= 0.001, "sum", "%v is %v", k, v)
		}
	}
	for i := range c.devs {
		c.expect(spentBefore[i] == 0 || math.Abs(spent[i]-spentBefore[i]-passed) <= 1e-6*spent[i], "sum",
			"the states of GPU %d grew by %v s in %v s", i, spent[i]-spentBefore[i], passed)
		observed, ok := c.now[key{family: "gpu_observed_seconds_total", dev: i}]
		c.expect(!ok || i == GPUMIG || measured[i] <= observed+1e-6*max(1, observed), "false zero",
			"%v s of GPU %d are busy, gap or idle, and %v s were observed", measured[i], i, observed)
		for q, quantity := range []string{"busy seconds", "joules"} {
			whole, of := device[i][q], parts[i][q]
			c.expect(i == GPUFree && c.renews() || math.Abs(whole-of) <= 1e-6*max(1, math.Abs(whole)), "sum",
				"the %s of GPU %d grew by %v, its parts by %v",
				quantity, i,
				whole, of)
		}
		if shown[i] {
			c.expect(math.Abs(used[i]-given[i]) <= 0.001*used[i], "sum", "GPU %d uses %v bytes, its parts %v", i, used[i], given[i])
		}
	}
}

// values: what a GPU shows that is well, and that one shows nothing that is not.
func (c *checker) values() {
	families := [worldGPUs]map[string]bool{}
	for i := range families {
		families[i] = map[string]bool{}
	}
	for k, v := range c.now {
		if k.dev < 0 {
			continue
		}
		if k.pod == "" {
			families[k.dev][k.family] = true
		}
		for _, in := range instant {
			if k.family == in.family {
				c.expect(v >= in.low && v <= in.high || v == 0, "truth", "%v is %v", k, v)
			}
		}
		if k.family == "gpu_kubelet_healthy" && c.hands.awake()-c.kubeletWrong > 45*time.Second {
			c.expect(v == 1, c.category(k.dev), "%v, and no plugin reports a fault", k)
		}
		if k.family == "gpu_memory_used_bytes" && c.well(k.dev) {
			known := false
			for _, h := range c.devs[k.dev].allocated {
				known = known || v == h || v == h+479<<20
			}
			c.expect(known, c.category(k.dev), "%v is %v, and allocated are %v", k, v, c.devs[k.dev].allocated)
		}
	}
	for k := range c.now {
		c.expect(k.family != "gpu_info" || k.dev != GPUCalm || !c.moved() ||
			strings.Contains(k.rest, "pci_bus_id="+c.w.devs[GPUFree].pci), "truth", "%v is shown in another place", k)
	}
	unloaded := 3 // polls until a driver that went is noticed; a hung call delays it
	for i := range c.devs {
		if c.door.hungFor(i) > 0 {
			unloaded = 6
		}
	}
	for i := range c.devs {
		k := &c.devs[i]
		up, known := c.now[key{family: "gpu_device_up", dev: i}]
		lost := k.hard > 3 || c.ended > unloaded || c.door.hungFor(i) > 5*time.Second+3*tick
		if lost && known && c.now[key{family: "gpu_exporter_paused", dev: everyGPU, rest: "reason=mig_change,"}] == 0 {
			c.expect(up == 0, "ended", "GPU %d cannot be read, and is up", i)
			for _, f := range ending {
				c.expect(!families[i][f], "ended", "GPU %d cannot be read, and shows %s", i, f)
			}
		}
		if !c.well(i) {
			k.marks = k.marks[:0]
			continue
		}
		c.expect(up == 1, c.category(i), "GPU %d is not up", i)
		for f := range families[i] {
			k.offered[f] = true
		}
		for f := range k.offered {
			// Polls that come too late cannot resolve the overflows of 32 bits.
			late := strings.HasPrefix(f, "gpu_pcie_") &&
				c.now[key{family: "gpu_unmeasured_info", dev: i, rest: "reading=pcie_bytes,reason=counter_overflow,"}] == 1
			// A permission that is missing is not asked for again.
			denied := i == GPUShared && f == "gpu_processes" && slices.ContainsFunc(c.w.faults, func(f fault) bool {
				return f.kind == "rights taken away" && f.from <= c.at
			})
			c.expect(families[i][f] || moving(f) || late || denied || i == GPUMIG && strings.HasPrefix(f, "gpu_utilization"), c.category(i),
				"GPU %d does not show %s any more", i, f)
		}
		c.rates(i)
	}
}

// frozen: what a driver repeats for longer than two minutes is not shown, with the reason, and nothing else is said to be so.
func (c *checker) frozen() {
	const slow = 2*time.Minute + 10*time.Second + 3*tick
	for i := range c.devs {
		may, must := false, false
		for n, f := range c.w.faults {
			if f.kind != "values frozen" || f.dev != i || f.from > c.at || f.to+20*time.Second < c.at {
				continue
			}
			may = true
			must = f.has(c.at) && c.at > f.from+slow
			for m, other := range c.w.faults {
				must = must && (n == m || other.to < f.from || other.from > c.at || !other.touches(i))
			}
		}
		reason := c.now[key{family: "gpu_unmeasured_info", dev: i, rest: "reading=sensors,reason=frozen,"}] == 1
		_, shown := c.now[key{family: "gpu_power_watts", dev: i}]
		c.expect(!reason || may, "frozen", "the readings of GPU %d are said to be frozen", i)
		c.expect(!must || reason && !shown, "frozen", "the readings of GPU %d are frozen: said %v, shown %v", i, reason, shown)
	}
}

// rates: over half a minute or more, a GPU that is well tells of all its work and energy.
func (c *checker) rates(i int) {
	if i == GPUMIG {
		return // the instances' own figures are profiles, which are means of what a pair of samples encloses
	}
	k := &c.devs[i]
	if c.sought == c.hands.awake() {
		k.marks = k.marks[:0]
	}
	observed := key{family: "gpu_observed_seconds_total", dev: i}
	if c.now[observed] == c.last[observed] {
		return // the rings were not due
	}
	k.marks = append(k.marks, mark{c.at.Seconds(), c.now[key{family: "gpu_busy_seconds_total", dev: i}],
		c.now[key{family: "gpu_energy_joules_total", dev: i}], k.busy, k.energy})
	a, b := k.marks[0], k.marks[len(k.marks)-1]
	if b.at-a.at < 30 {
		return
	}
	k.marks = k.marks[1:]
	c.expect(math.Abs((b.busy-a.busy)-(b.trueBusy-a.trueBusy)) < 0.5, c.category(i), "GPU %d worked %.2f s in %.0f s and shows %.2f s", i,
		b.trueBusy-a.trueBusy, b.at-a.at, b.busy-a.busy)
	if b.energy > 0 {
		c.expect(math.Abs((b.energy-a.energy)-(b.trueEnergy-a.trueEnergy)) < 0.01*(b.trueEnergy-a.trueEnergy)+1, c.category(i),
			"GPU %d used %.1f J in %.0f s and shows %.1f J", i,
			b.trueEnergy-a.trueEnergy, b.at-a.at, b.energy-a.energy)
	}
}

// xids: each event once, whoever told of it, and none lost that could be heard.
func (c *checker) xids() {
	if c.takes = cmp.Or(c.takes, -time.Hour); c.has("events taken") {
		c.takes = c.at
	}
	kept := c.xidsDue[:0]
	for _, x := range c.xidsDue {
		id := [2]int{x.dev, x.code}
		if x.at > c.at {
			kept = append(kept, x)
			continue
		}
		// The driver's events may be lost, also between two sessions.
		if !c.well(x.dev) || c.at-c.takes < 3*tick || c.sought == c.hands.awake() {
			x.wrong = true
		}
		x.foreign = x.foreign || c.renews() && (x.dev == GPUFree || x.dev == GPUCalm && !c.moved())
		if c.at-x.at < 2*tick {
			kept = append(kept, x)
			continue
		}
		switch {
		case x.foreign: // the two change places
			for _, dev := range []int{GPUFree, GPUCalm} {
				c.high[[2]int{dev, x.code}] += x.nvml + x.kmsg
			}
		case x.wrong:
			c.low[id] += x.kmsg
			c.high[id] += x.nvml + x.kmsg
		default:
			c.low[id] += max(x.nvml, x.kmsg)
			c.high[id] += max(x.nvml, x.kmsg)
		}
	}
	c.xidsDue = kept
	young := map[[2]int]bool{}
	for _, x := range c.xidsDue {
		for dev := range worldGPUs {
			if x.at <= c.at && (dev == x.dev || x.foreign) {
				young[[2]int{dev, x.code}] = true
			}
		}
	}
	for id, low := range c.low {
		_, ok := c.now[key{family: "gpu_xid_events_total", dev: id[0], rest: "xid=" + strconv.Itoa(id[1]) + ","}]
		c.expect(ok || low == 0 || !c.well(id[0]), "xid lost", "XID %d of GPU %d is absent, and at least %d were told", id[1], id[0], low)
	}
	for k, v := range c.now {
		if k.family != "gpu_xid_events_total" || k.dev < 0 {
			continue
		}
		id := [2]int{k.dev, xidOf(k.rest)}
		c.expect(int(v) >= c.low[id], "xid lost", "%v is %v, and at least %d were told", k, v, c.low[id])
		if !young[id] {
			c.expect(int(v) <= c.high[id], "xid doubled", "%v is %v, and at most %d were told", k, v, c.high[id])
		}
	}
}

func xidOf(rest string) int {
	n, _ := strconv.Atoi(strings.Trim(rest, "xid=,"))
	return n
}

// sources: each is up again a while after what ailed it.
func (c *checker) sources() {
	now := c.hands.awake()
	up := func(name string) float64 {
		return c.now[key{family: "gpu_exporter_source_up", dev: everyGPU, rest: "source=" + name + ","}]
	}
	if c.well(GPUCalm) {
		c.expect(up(gpu.SourceNVML) == 1, "recovery", "the driver is not up")
		c.expect(up(gpu.SourceEvents) == 1, "recovery", "the driver's events are not up")
	}
	if now-c.kubeletWrong > recovery && now > recovery {
		c.expect(up(gpu.SourcePodResources) == 1, "recovery", "the kubelet is not up")
		c.expect(c.owned(), "recovery", "allocations are unknown")
	}
}

// bounds: neither series nor memory nor goroutines grow without end.
func (c *checker) bounds(active []fault) {
	c.figures.Series = max(c.figures.Series, len(c.now))
	c.expect(len(c.now) < 1600, "bounded", "%d series", len(c.now))
	c.expect(c.st.control.Overlaps() == 0, "bounded", "%d calls found another under way on the same GPU", c.st.control.Overlaps())
	c.expect(c.st.control.Sessions() <= 1, "bounded", "%d sessions of the driver are open", c.st.control.Sessions())
	if len(active) > 0 || c.round%60 != 0 {
		return
	}
	for i := range c.devs {
		if !c.well(i) {
			return
		}
	}
	goroutines, heap := c.measure()
	if !c.calmed.seen {
		c.calmed.seen, c.calmed.goroutines, c.calmed.heap = true, goroutines, heap
	}
	c.expect(goroutines <= c.calmed.goroutines+12, "bounded", "%d goroutines, and %d at first", goroutines, c.calmed.goroutines)
	c.expect(heap <= c.calmed.heap+24<<20, "bounded", "%d bytes on the heap, and %d at first", heap, c.calmed.heap)
}
