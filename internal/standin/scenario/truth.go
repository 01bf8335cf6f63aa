package scenario

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// Truth is what really happened on one GPU: what a perfect reader of the driver would find out. Times
// are of the scenario. It is safe for concurrent use.
type Truth struct {
	s *Scenario
	c *GPU
}

// Truth returns the truth of a GPU, by its number. It panics if there is no such GPU.
func (s *Scenario) Truth(dev int) Truth { return Truth{s: s, c: &s.GPUs[dev]} }

// sums are integrals of one span, in seconds of busy time.
type sums struct {
	busy, dram float64
	gi         [maxGI]float64
	demands    []float64 // each demand's share
}

// wave reports whether a demand is on, and until when.
func (d *demand) wave(t time.Duration) (on bool, until time.Duration) {
	switch {
	case t < d.from:
		return false, d.from
	case t >= d.to || d.on <= 0:
		return false, forever
	case d.on >= d.period:
		return true, d.to
	}
	position := (t - d.from - d.phase) % d.period
	if position < 0 {
		position += d.period
	}
	if position < d.on {
		return true, min(d.to, t+d.on-position)
	}
	return false, min(d.to, t+d.period-position)
}

func (c *GPU) layoutAt(t time.Duration) layout {
	found := layout{}
	for _, l := range c.layouts {
		if l.at <= t {
			found = l
		}
	}
	return found
}

// group is where a demand runs: 0 the whole GPU, 1+gi an instance, -1 nowhere.
func (d *demand) group(l layout) int {
	switch {
	case !l.current && d.gi < 0:
		return 0
	case l.current && d.gi >= 0 && slices.ContainsFunc(l.devices, func(m migDevice) bool { return m.gi == d.gi }):
		return 1 + d.gi
	}
	return -1
}

// weight is the part of the GPU that a group is.
func (c *GPU) weight(group int, l layout) float64 {
	if group == 0 {
		return 1
	}
	for _, m := range l.devices {
		if m.gi == group-1 {
			return float64(c.profiles[m.profile].slices) / float64(GPUSlices(c.profiles))
		}
	}
	return 0
}

// integrate adds up what happens from t0 until t1, from edge to edge of the square waves.
func (c *GPU) integrate(t0, t1 time.Duration) sums {
	out := sums{demands: make([]float64, len(c.demands))}
	groups := make([]int, len(c.demands))
	for t := max(0, t0); t < t1; {
		l, next := c.layoutAt(t), t1
		for _, other := range c.layouts {
			if other.at > t {
				next = min(next, other.at)
			}
		}
		var on [maxGI + 1]int
		for i := range c.demands {
			busy, until := c.demands[i].wave(t)
			next = min(next, until)
			groups[i] = -1
			if busy {
				groups[i] = c.demands[i].group(l)
			}
			if groups[i] >= 0 {
				on[groups[i]]++
			}
		}
		dt := (next - t).Seconds()
		for g, n := range on {
			if n == 0 {
				continue
			}
			out.busy += dt * c.weight(g, l)
			if g > 0 {
				out.gi[g-1] += dt
			}
		}
		for i, g := range groups {
			if g >= 0 {
				part := dt / float64(on[g])
				out.demands[i] += part
				out.dram += part * c.demands[i].dram * c.weight(g, l)
			}
		}
		t = next
	}
	return out
}

// Busy is the time from t0 until t1 in which the GPU worked. Under MIG each instance counts with its
// share of the GPU.
func (t Truth) Busy(t0, t1 time.Duration) gpu.Seconds { return gpu.Seconds(t.c.integrate(t0, t1).busy) }

// halfUp rounds to the nearest number, exact halves up although part is the result of a division.
const halfUp = 0.5 + 1e-9

// Sampled is Busy as of the driver's samples: the sum over those that end after t0 and until t1, each in whole
// percent of its length. It goes away from Busy by up to half a percent of the time, and steadily so while a load keeps
// step with the samples: no reader of samples can be more exact. Without a ring it is Busy.
func (t Truth) Sampled(t0, t1 time.Duration) gpu.Seconds {
	length := t.c.ring.period
	if t.c.ring.entries == 0 || length == 0 {
		return t.Busy(t0, t1)
	}
	percents := 0.0
	for cell := max(0, t0)/length + 1; cell*length <= t1; cell++ {
		part := t.c.integrate((cell-1)*length, cell*length).busy / length.Seconds()
		percents += math.Floor(100*part + halfUp)
	}
	return gpu.Seconds(percents / 100 * length.Seconds())
}

// MemoryBusy is the time in which memory was read or written.
func (t Truth) MemoryBusy(t0, t1 time.Duration) gpu.Seconds {
	return gpu.Seconds(t.c.integrate(t0, t1).dram)
}

// ProcessBusy is one process's share of Busy (under MIG: of its instance's). Processes that are on at
// once share alike.
func (t Truth) ProcessBusy(pid int, t0, t1 time.Duration) gpu.Seconds {
	total := 0.0
	for i, share := range t.c.integrate(t0, t1).demands {
		if t.c.demands[i].pid == pid {
			total += share
		}
	}
	return gpu.Seconds(total)
}

// Energy is what the GPU used from t0 until t1.
func (t Truth) Energy(t0, t1 time.Duration) gpu.Joules {
	m := t.c.model
	busy := t.c.integrate(t0, t1).busy
	return gpu.Joules(m.idleWatts*(t1-max(0, t0)).Seconds() + (m.busyWatts-m.idleWatts)*busy)
}

// Utilization is the busy part of a window that ends at a time; of a shorter one if the scenario is younger.
func (t Truth) Utilization(at, window time.Duration) gpu.Ratio {
	from := max(0, at-window)
	if at <= from {
		return 0
	}
	return gpu.Ratio(t.c.integrate(from, at).busy / (at - from).Seconds())
}

// Processes lists the processes that run at a time, in the order of the file.
func (t Truth) Processes(at time.Duration) []Process {
	var out []Process
	l := t.c.layoutAt(at)
	for _, d := range t.c.demands {
		if d.listed && at >= d.from && at < d.to && d.group(l) >= 0 {
			out = append(out, d.process(t.c.Index))
		}
	}
	return out
}

// Allocated is the memory of processes and loads at a time.
func (t Truth) Allocated(at time.Duration) gpu.Bytes {
	allocated := gpu.Bytes(0)
	l := t.c.layoutAt(at)
	for _, d := range t.c.demands {
		if at >= d.from && at < d.to && d.group(l) >= 0 {
			allocated += gpu.Bytes(d.memory)
		}
	}
	return allocated
}

// XIDs counts the XIDs that happened after t0, up to and including t1, by code.
func (t Truth) XIDs(t0, t1 time.Duration) map[int]int {
	counts := map[int]int{}
	for _, e := range t.s.events {
		if e.dev == t.c.Index && e.kind == eventXID && e.at > t0 && e.at <= t1 {
			counts[int(e.data)]++
		}
	}
	return counts
}

// State is the code that calls on the GPU return at a time: "" while it works, else GPU_IS_LOST or RESET_REQUIRED.
func (t Truth) State(at time.Duration) string {
	state := ""
	for _, f := range t.c.faults {
		if f.at > at {
			break
		}
		state = map[string]string{"lose": "GPU_IS_LOST", "remove": "GPU_IS_LOST", "reset_required": "RESET_REQUIRED"}[f.kind]
	}
	return state
}

// MIGDevice is a MIG device as it ought to be found.
type MIGDevice struct {
	UUID                gpu.UUID
	Index, GI, CI       int
	Profile             string
	Start, Size, Slices int // placement in memory slices; compute slices of the compute instance
	GISlices            int
	Memory              gpu.Bytes
}

// MIG reports whether the GPU is in MIG mode at a time, and its devices, in the order of GI and CI.
func (t Truth) MIG(at time.Duration) (on bool, devices []MIGDevice) {
	l := t.c.layoutAt(at)
	for _, d := range l.devices {
		p := t.c.profiles[d.profile]
		devices = append(devices, MIGDevice{UUID: d.uuid, Index: d.index, GI: d.gi, CI: d.ci, Profile: p.name,
			Start: d.start,
			Size:  d.size, Slices: d.slices, GISlices: p.slices, Memory: gpu.Bytes(p.memoryMiB) << 20})
	}
	slices.SortFunc(devices, func(a, b MIGDevice) int {
		return cmp.Or(cmp.Compare(a.GI, b.GI), cmp.Compare(a.CI, b.CI))
	})
	return l.current, devices
}

// loadedSince is when the driver was last loaded: its counters count from there.
func (s *Scenario) loadedSince(at time.Duration) time.Duration {
	since := time.Duration(0)
	for _, d := range s.driver {
		if d.at <= at && (d.kind == "load" || d.kind == "replace") {
			since = d.at
		}
	}
	return since
}

// Answer is what the driver answers.
type Answer struct {
	// Code is the name of NVML's return code, "" for success.
	Code string
	// Numbers has the components by name; Text is used where the answer is a text.
	Numbers map[string]float64
	Text    string
}

// Answer returns the answer of a key at a time: "Temperature[gpu]", "Field[185,0]", "MemoryInfo_v2". The
// GPU is -1 for the system. It is false where the scenario has none, for which the driver returns
// NOT_SUPPORTED.
func (s *Scenario) Answer(dev int, key string, at time.Duration) (Answer, bool) {
	k, names, err := parseKey(key)
	if err != nil || len(names) != 1 {
		return Answer{}, false
	}
	answers := s.system
	var c *GPU
	if dev >= 0 {
		c = &s.GPUs[dev]
		answers = c.answers
	}
	var found *answer
	for i := range answers {
		if answers[i].key == names[0] && answers[i].at <= at {
			found = &answers[i]
		}
	}
	switch {
	case found == nil:
		return Answer{}, false
	case found.value.code != 0:
		return Answer{Code: codeName(found.value.code)}, true
	}
	a := Answer{Numbers: map[string]float64{}}
	for i, component := range found.value.components {
		if component.isText {
			a.Text = component.text
			continue
		}
		n := s.evaluate(c, component, at)
		if k.name == "Field" && found.value.valueType == typeUint && n >= 1<<32 {
			n = math.Mod(n, 1<<32)
		}
		a.Numbers[k.components[i]] = n
	}
	return a, true
}

func (s *Scenario) evaluate(c *GPU, v component, at time.Duration) float64 {
	if v.isExact {
		if v.exact > 1<<63 && v.exact != ^uint64(0) {
			return float64(int64(v.exact))
		}
		return float64(v.exact)
	}
	sum := 0.0
	for _, t := range v.terms {
		sum += t.factor * s.variable(c, t.variable, at)
	}
	if v.modulus > 0 {
		sum -= v.modulus * math.Floor(sum/v.modulus)
	}
	return sum
}

func (s *Scenario) variable(c *GPU, name string, at time.Duration) float64 {
	since := s.loadedSince(at)
	switch name {
	case "1":
		return 1
	case "t":
		return (at - since).Seconds()
	}
	if c == nil {
		return 0
	}
	truth := Truth{s: s, c: c}
	window := cmp.Or(c.ring.window, time.Second)
	watts := func(over time.Duration) float64 {
		return 1000 * (c.model.idleWatts + (c.model.busyWatts-c.model.idleWatts)*float64(truth.Utilization(at, over)))
	}
	switch name {
	case "busy":
		return float64(truth.Busy(since, at))
	case "membusy":
		return float64(truth.MemoryBusy(since, at))
	case "util":
		return float64(truth.Utilization(at, window))
	case "memutil":
		from := max(0, at-window)
		if at <= from {
			return 0
		}
		return float64(truth.MemoryBusy(from, at)) / (at - from).Seconds()
	case "active":
		if truth.Utilization(at, window) > 0 {
			return 1
		}
		return 0
	case "power":
		return watts(time.Second)
	case "power_instant":
		return watts(time.Second / 50)
	case "energy":
		return 1000 * float64(truth.Energy(since, at))
	case "process_memory":
		return float64(truth.Allocated(at))
	case "temperature":
		return c.model.idleCelsius + (c.model.busyCelsius-c.model.idleCelsius)*float64(truth.Utilization(at, 10*time.Second))
	}
	return 0
}
