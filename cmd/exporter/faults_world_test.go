package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/standin"
	"github.com/gpu-exporter/gpu-exporter/internal/standin/faultkinds"
	"github.com/gpu-exporter/gpu-exporter/internal/standin/scenario"
)

// span is a time of the scenario: from its beginning until before its end.
type span struct{ from, to time.Duration }

func (s span) has(t time.Duration) bool { return t >= s.from && t < s.to }

// everyGPU is the GPU of a fault that concerns the driver, the kubelet or the clock.
const everyGPU = -1

// fault is one thing that goes wrong, from its beginning until it is healed.
type fault struct {
	span
	kind string
	dev  int
	size time.Duration // of a step of the clock
}

// touches reports whether a fault affects what is read of a GPU.
func (f *fault) touches(dev int) bool {
	return f.dev == dev || slices.ContainsFunc([]string{"driver", "mig", "suspend", "exporter"}, func(what string) bool {
		return strings.HasPrefix(f.kind, what)
	})
}

// container is a pod with one container, which holds one GPU, instance or replica and has one process there.
type workload struct {
	name     string
	dev      int // everyGPU: its ids tell no GPU
	resource string
	id       string
	share    float64 // of the physical GPU
	listed   span    // by the kubelet
	pid      int
	runs     span // its process
	begun    int  // its process's start, in ticks
	memory   int  // MiB
}

// outcry is an XID at one moment of one GPU: how often each source tells of it.
type outcry struct {
	at         time.Duration
	dev, code  int
	nvml, kmsg int
}

// world is a node and all that happens to it, made from a seed alone.
type world struct {
	seed      uint64
	length    time.Duration
	pace      float64 // by how much longer pods live than in the shortest world
	symbols   string
	devs      []worldGPU
	workloads []*workload
	faults    []fault
	xids      []outcry
	drivers   []driverChange
	// storms are the times in which something may be wrong.
	storms []span
	script strings.Builder
}

// driverChange is a line of the script that concerns the driver.
type driverChange struct {
	at     time.Duration
	loaded bool
}

type worldGPU struct {
	uuid, pci string
	mig       bool
	migs      []string // all names its instances ever have
}

// The GPUs, by what happens on them.
const (
	GPUCalm   = 0 // never fails; one pod after the other has all of it
	GPUShared = 1 // four replicas
	GPUWhole  = 2 // one pod after the other, often at once, with the same PID
	GPUFree   = 3 // mostly free; others name it in ids that cannot be believed
	GPUMIG    = 4
	worldGPUs = 5
)

// anotherUUID is that of the GPU by which one is replaced at its address.
const anotherUUID = "GPU-ffffffff-0000-4000-8000-000000000000"

// pcieRate is how many bytes a second a GPU sends.
const pcieRate = 26e9

// Times of a world: storms and the quiet after each, in which all has to be right again.
const (
	tick      = fastPoll
	recovery  = 90 * time.Second
	calmAfter = recovery + 50*time.Second
	exchange  = 90 * time.Second // how long another GPU is in the place of one
)

// kinds are dealt out as a deck, so that each comes as often as the others; which of them meet is left to chance. Some of
// unscripted are in each storm, beside those.
var kinds, unscripted = faultkinds.Names(false), faultkinds.Names(true)

// besides is how many of unscripted a storm has.
const besides = 6

// newWorld makes the world of a seed, about so long.
func newWorld(seed uint64, length time.Duration) *world { return makeWorld(seed, length, true) }

// newQuietWorld makes one in which nothing fails: pods come and go, the MIG layout changes, XIDs come in storms. All
// that is the slower the longer it lasts, for a scenario has room for some hundred processes of a GPU.
func newQuietWorld(seed uint64, length time.Duration) *world { return makeWorld(seed, length, false) }

func makeWorld(seed uint64, length time.Duration, failing bool) *world {
	w := &world{seed: seed, length: length, pace: max(1, length.Hours()/4)}
	r := rand.New(rand.NewPCG(seed, 0x6770752d65787030))
	w.symbols = scenario.WidelySpaced[(int(seed)+2)%len(scenario.WidelySpaced)]
	fmt.Fprintf(&w.script, "scenario 1\ntitle \"world %d\"\ninclude boards/h100-sxm.scenario\nsymbols %s\nsystem DriverVersion = "+
		"\"580.105.08\"\n", seed, w.symbols)
	for i := range worldGPUs {
		c := worldGPU{uuid: fmt.Sprintf("GPU-%08x-0000-4000-8000-00000000000%d", 0xaaaaaaa0+i, i),
			pci: fmt.Sprintf("0000:%02x:00.0", 0x18+0x11*i), mig: i == GPUMIG}
		w.devs = append(w.devs, c)
		// Fast enough for its PCIe counters of 32 bits to overflow several times from poll to poll.
		fmt.Fprintf(&w.script, "gpu %d board=h100 uuid=%s pci=%s minor=%d\n  Field[197] = %g*t\n  Gpm[20] = %g\n", i, c.uuid,
			c.pci, i, pcieRate, pcieRate/(1<<20))
	}
	if failing && seed%2 == 0 {
		w.happens(0, "driver unload")
		w.happens(41*time.Second, "driver load")
		w.faults = append(w.faults, fault{span: span{0, 41 * time.Second}, kind: "driver absent", dev: everyGPU})
		w.storms = append(w.storms, span{0, 41 * time.Second})
	}
	w.placeWorkloads(r)
	if failing {
		w.layFaults(r)
	} else {
		for t := 10 * time.Minute; t < length-5*time.Minute; t += w.paced(r, 600, 1800) {
			w.faults = append(w.faults, fault{span: span{t, t + time.Minute},
				kind: []string{"xid storm", "xid kernel storm", "xid both storm"}[r.IntN(3)], dev: everyGPU})
		}
	}
	w.layXIDs(r)
	w.layUnscripted(rand.New(rand.NewPCG(seed, 0x6e6f6465)))
	for _, p := range w.workloads {
		if p.dev == everyGPU || p.runs.from >= p.runs.to {
			continue
		}
		gi := ""
		if w.devs[p.dev].mig {
			_, place, _ := strings.Cut(p.name, "-gi")
			place, _, _ = strings.Cut(place, "-")
			gi = " gi=" + place
		}
		busy := 8 + r.IntN(15)
		if p.share == 1 {
			busy = 20 + r.IntN(70)
		}
		fmt.Fprintf(&w.script, "process gpu=%d pid=%d%s memory=%dMiB busy=%d%% period=%dms from=%dms to=%dms\n", p.dev, p.pid, gi, p.memory,
			busy,
			700+r.IntN(2000), p.runs.from.Milliseconds(), p.runs.to.Milliseconds())
	}
	return w
}

// happens writes a line of the script.
func (w *world) happens(at time.Duration, format string, args ...any) {
	line := fmt.Sprintf(format, args...)
	fmt.Fprintf(&w.script, "at %dms %s\n", at.Milliseconds(), line)
	if what, isDriver := strings.CutPrefix(line, "driver "); isDriver {
		w.drivers = append(w.drivers, driverChange{at, what == "load"})
		slices.SortStableFunc(w.drivers, func(a, b driverChange) int { return int(a.at - b.at) })
	}
}

// parse reads the script.
func (w *world) parse(t *testing.T) *scenario.Scenario {
	t.Helper()
	return parseScenario(t, w.script.String())
}

// odd is a moment between two ticks.
func odd(t time.Duration) time.Duration { return t.Truncate(tick) + tick/2 }

func seconds(r *rand.Rand, low, high int) time.Duration {
	return time.Duration(low+r.IntN(high-low+1)) * time.Second
}

// paced is a time at the pace of the world.
func (w *world) paced(r *rand.Rand, low, high int) time.Duration {
	return time.Duration(float64(seconds(r, low, high)) * w.pace).Truncate(time.Second)
}

// layTenants puts pods on the GPUs.
func (w *world) placeWorkloads(r *rand.Rand) {
	begun := 1000
	add := func(p workload) {
		begun += 7
		p.begun, p.memory = begun, 500+r.IntN(4000)
		w.workloads = append(w.workloads, &p)
	}
	whole := func(dev int, pause func() time.Duration) {
		for t, n := odd(10*time.Second), 0; t < w.length; n++ {
			end := odd(t + w.paced(r, 60, 240))
			p := workload{name: fmt.Sprintf("card%d-%d", dev, n), dev: dev, resource: "nvidia.com/gpu", id: w.devs[dev].uuid, share: 1,
				listed: span{t, end},
				pid:    5000 + 100*dev, runs: span{odd(t + seconds(r, 2, 8)), end}}
			add(p)
			t = odd(end + pause())
		}
	}
	whole(GPUCalm, func() time.Duration { return seconds(r, 0, 30) })
	whole(GPUWhole, func() time.Duration {
		if r.IntN(2) == 0 {
			return 0
		}
		return seconds(r, 5, 60)
	})
	whole(GPUFree, func() time.Duration { return w.paced(r, 200, 500) })
	for slot := range 4 {
		for t, n := odd(seconds(r, 4, 60)), 0; t < w.length; n++ {
			end := odd(t + w.paced(r, 60, 400))
			add(workload{name: fmt.Sprintf("slot%d-%d", slot, n), dev: GPUShared, resource: "nvidia.com/gpu.shared",
				id:    fmt.Sprintf("%s::%d", w.devs[GPUShared].uuid, slot),
				share: 0.25, listed: span{t, end}, pid: 5000 + 100*GPUShared + slot, runs: span{odd(t + seconds(r, 2, 8)), end}})
			t = odd(end + seconds(r, 0, 40))
		}
	}
	w.layInstances(r, add)
}

// migLayouts are what the MIG GPU is divided into in turn.
var migLayouts = [][]struct {
	gi, start, size, slices int
	profile                 string
}{
	{{1, 0, 4, 3, "3g.40gb"}, {2, 4, 4, 3, "3g.40gb"}},
	{{3, 0, 4, 4, "4g.40gb"}, {4, 4, 2, 2, "2g.20gb"}, {5, 6, 1, 1, "1g.10gb"}},
	{{6, 0, 8, 7, "7g.80gb"}},
}

// layInstances divides the MIG GPU anew every few minutes and puts a pod on each instance.
func (w *world) layInstances(r *rand.Rand, add func(workload)) {
	c := &w.devs[GPUMIG]
	epoch := max(9*time.Minute, w.length/50) // a GPU may have so many layouts
	for t, n := time.Duration(0), 0; t < w.length; n++ {
		end := odd(t + epoch + seconds(r, 0, 120))
		var layout []string
		for _, in := range migLayouts[n%len(migLayouts)] {
			uuid := fmt.Sprintf("MIG-%08x-000%d-4000-8000-000000000000", n+1, in.gi)
			c.migs = append(c.migs, uuid)
			layout = append(layout, fmt.Sprintf("gi=%d profile=%s start=%d size=%d uuid=%s", in.gi, in.profile, in.start, in.size, uuid))
			from, to := odd(t+seconds(r, 15, 60)), odd(end-seconds(r, 15, 60))
			add(workload{name: fmt.Sprintf("mig%d-gi%d-x", n, in.gi), dev: GPUMIG, resource: "nvidia.com/mig-" + in.profile, id: uuid,
				share:  float64(in.slices) / 7,
				listed: span{from, to}, pid: 5000 + 100*GPUMIG + in.gi, runs: span{odd(from + 4*time.Second), to}})
		}
		text := strings.Join(layout, " ; ")
		if n == 0 {
			fmt.Fprintf(&w.script, "mig gpu=%d layout=\"%s\"\n", GPUMIG, text)
		} else {
			w.happens(t, "gpu %d mig apply layout=\"%s\"", GPUMIG, text)
		}
		t = end
	}
}

// layFaults deals faults out in storms.
func (w *world) layFaults(r *rand.Rand) {
	var cases []string
	deal := func() string {
		if len(cases) == 0 {
			cases = slices.Clone(kinds)
			r.Shuffle(len(cases), func(i, j int) { cases[i], cases[j] = cases[j], cases[i] })
		}
		k := cases[len(cases)-1]
		cases = cases[:len(cases)-1]
		return k
	}
	begin := 70 * time.Second
	if len(w.storms) > 0 {
		begin = w.storms[0].to + calmAfter
	}
	for begin < w.length-calmAfter {
		end := begin
		for range 4 + r.IntN(5) {
			f := fault{kind: deal(), dev: everyGPU}
			f.from = odd(begin + seconds(r, 0, 90))
			f.to = odd(f.from + seconds(r, 12, 100))
			w.add(r, &f)
			end = max(end, f.to)
		}
		w.storms = append(w.storms, span{begin, end})
		begin = end + calmAfter
	}
	w.length = begin
}

// layUnscripted adds faults to each storm. They have a random source of their own, so that the worlds stay what they are.
func (w *world) layUnscripted(r *rand.Rand) {
	for i := range w.storms {
		storm := &w.storms[i]
		for n := range besides {
			from := odd(storm.from + seconds(r, 0, 20))
			f := fault{kind: unscripted[(besides*i+n+int(w.seed%1000))%len(unscripted)], dev: everyGPU,
				span: span{from, min(odd(from+seconds(r, 12, 60)), storm.to)}}
			for f.kind == "driver finds another GPU" && w.uncertain(f.from, f.from+exchange) && f.from < storm.to {
				f.from += 10 * time.Second
			}
			if w.driven(f.from) && f.from < storm.to {
				w.add(r, &f)
			}
		}
	}
}

// uncertain reports whether a driver could not change its GPUs then: it is loaded or unloaded otherwise, or a call keeps it. What the
// kernel says of them while the machine sleeps is read when they are back, so that an address means another.
func (w *world) uncertain(from, to time.Duration) bool {
	return slices.ContainsFunc(w.drivers, func(d driverChange) bool { return from <= d.at && d.at <= to }) ||
		slices.ContainsFunc(w.faults, func(f fault) bool {
			return (f.kind == "call hangs" || f.kind == "suspend") && f.from <= to && f.to >= from
		})
}

// hanging are calls of every poll group, and of what an inventory asks.
var hanging = []string{"UtilizationRates", "FieldValues", "ComputeRunningProcesses", "MemoryInfo_v2", "Samples", "EnforcedPowerLimit",
	"PerformanceState"}

// lies are responds that cannot be true, as drivers have been seen to give them.
var lies = []string{
	"UtilizationRates = gpu=808334905 memory=3", "Samples[gpu] = 808334905", "ProcessUtilization = sm=808334905", "PowerUsage = 0xffffffff",
	"Field[185,gpu] = 0xffffffff", "Temperature[gpu] = 4294967295", "Field[82] = 0xffffffff",
	"MemoryInfo_v2 = total=80GiB used=ones free=ones reserved=479MiB",
	"Gpm[2] = 1e308", "Field[83] = 0x7fffffffffffffff", "Field[197] = 0x7fffffffffffffff",
}

// frozenValues are what a driver repeats whose firmware hangs. A scenario cannot hold an energy that it has counted.
var frozenValues = []string{"Field[83] = !UNKNOWN", "TotalEnergyConsumption = !UNKNOWN", "Field[185,gpu] = 345678",
	"Field[186,gpu] = 345678", "Field[185,memory] = 40000", "PowerUsage = 345678", "Temperature[gpu] = 61", "Field[82] = 62",
	"MarginTemperature = 26", "UtilizationRates = gpu=50 memory=20", "ClockInfo[graphics] = 1980",
	"ClockInfo[sm] = 1980", "ClockInfo[video] = 1545"}

// refusals are calls that fail alone. NO_PERMISSION is none of them: it covers a right, which is asked for once.
var refusals = []string{"ComputeRunningProcesses = !UNKNOWN", "FieldValues = !UNKNOWN", "Samples = !UNKNOWN", "MemoryInfo_v2 = !UNKNOWN",
	"ProcessUtilization = !UNKNOWN",
	"UtilizationRates = !TIMEOUT", "ClockInfo = !UNKNOWN", "TotalEnergyConsumption = !UNKNOWN"}

// add completes a fault and writes down what it does to the driver.
func (w *world) add(r *rand.Rand, f *fault) {
	sick := 1 + r.IntN(worldGPUs-1) // the calm GPU is spared
	both := func(from, to string) {
		w.happens(f.from, "gpu %d %s", f.dev, from)
		w.happens(f.to, "gpu %d %s", f.dev, to)
	}
	some := func(of []string) {
		for _, i := range r.Perm(len(of))[:1+r.IntN(4)] {
			key, _, _ := strings.Cut(of[i], " ")
			both(of[i], key+" = default")
		}
	}
	switch f.kind {
	case "driver absent":
		w.happens(f.from, "driver unload")
		w.happens(f.to, "driver load")
	case "driver mismatch":
		w.happens(f.from, "driver mismatch")
		w.happens(f.to, "driver load")
	case "mig pending":
		f.to = f.from + 70*time.Second // it is seen by the slow poll group
		w.happens(f.from, "gpu %d mig pending on", GPUFree)
		w.happens(f.to, "gpu %d mig pending off", GPUFree)
	case "GPU lost":
		f.dev = sick
		both("lose", "restore")
	case "GPU removed":
		f.dev = sick
		both("remove", "restore")
	case "reset required":
		f.dev = sick
		both("reset_required", "restore")
	case "call hangs":
		f.dev = sick
		both("hang "+hanging[r.IntN(len(hanging))], "restore")
	case "call slow":
		f.dev = sick
		call := hanging[r.IntN(len(hanging))]
		both("delay "+call+" 3ms", "delay "+call+" 0s")
	case "implausible":
		f.dev = sick
		some(lies)
	case "refused":
		f.dev = sick
		some(refusals)
	case "process vanishes", "cgroup garbage", "samples fast", "GPM biased", "GPM late":
		f.dev = sick
	case "rights taken away":
		f.dev = GPUShared
		both("ComputeRunningProcesses = !NO_PERMISSION", "ComputeRunningProcesses = default")
		both("ProcessUtilization = !NO_PERMISSION", "ProcessUtilization = default")
	case "driver finds another GPU":
		f.to = f.from + exchange
		w.happens(f.from, "driver unload")
		w.happens(f.from+10*time.Second, "driver load")
		w.happens(f.to-10*time.Second, "driver unload")
		w.happens(f.to, "driver load")
	case "PID twice": // the driver lists a process again, with other memory
		for _, p := range w.workloads {
			if p.dev == GPUShared && p.runs.has(f.from) {
				fmt.Fprintf(&w.script, "process gpu=%d pid=%d memory=64MiB busy=0%% period=1s from=%dms to=%dms\n", p.dev, p.pid,
					f.from.Milliseconds(), f.to.Milliseconds())
			}
		}
	case "counter flips": // one of its low bits
		f.dev = sick
		both("Field[83] = 65536 + energy", "Field[83] = default")
	case "values frozen":
		f.dev, f.to = GPUFree, f.from+seconds(r, 150, 200)
		for _, v := range frozenValues {
			key, _, _ := strings.Cut(v, " ")
			both(v, key+" = default")
		}
	case "exporter stopped":
		f.size = seconds(r, 61, 200).Truncate(tick)
		f.to = f.from + f.size
	case "kubelet stale", "checkpoint old", "list behind checkpoint", "API servers disagree":
		f.size = seconds(r, 15, 40)
	case "clock forward":
		f.size, f.to = seconds(r, 1, 7200), f.from+tick
	case "clock back":
		f.size, f.to = -seconds(r, 1, 3600), f.from+tick
	case "suspend":
		f.size = seconds(r, 20, 600).Truncate(tick)
		f.to = f.from + f.size
	case "kubelet restarted", "kubelet socket recreated":
		f.to = f.from + tick
	case "kubelet hangs":
		f.to = min(f.to, f.from+30*time.Second) // each answer is waited for in real time
	case "kubelet down":
		f.to += 60 * time.Second // longer than an answer is believed, at times
	case "ids unknown", "ids lying":
		name := fmt.Sprintf("stranger-%d", len(w.workloads))
		id := fmt.Sprintf("warp-core-%d", r.IntN(9))
		if f.kind == "ids lying" {
			id = w.devs[GPUFree].uuid + "-0" // a GPU by its looks; the plugin may have given another
		}
		w.workloads = append(w.workloads, &workload{name: name, dev: everyGPU, resource: "nvidia.com/gpu", id: id, listed: f.span})
	}
	w.faults = append(w.faults, *f)
}

// layXIDs writes events down: some at any time, many in storms of them.
func (w *world) layXIDs(r *rand.Rand) {
	codes := []int{13, 31, 48, 63, 79, 94, 119}
	heard := func(at time.Duration) time.Duration {
		for _, f := range w.faults {
			if (f.kind == "suspend" || f.kind == "exporter stopped") && f.has(at) {
				at = f.to
			}
		}
		return at
	}
	add := func(x outcry) {
		if slices.ContainsFunc(w.xids, func(o outcry) bool {
			return o.dev == x.dev && o.code == x.code && (heard(o.at)-heard(x.at)).Abs() <= 6*time.Second
		}) {
			return // two outcries of one code within seconds could not be told apart
		}
		for range x.nvml {
			w.happens(x.at, "gpu %d xid %d", x.dev, x.code)
		}
		if x.code == 79 || x.code == 119 {
			x.nvml = 0 // they are in the kernel log alone
		}
		w.xids = append(w.xids, x)
	}
	for t := 20 * time.Second; t < w.length; t += w.paced(r, 10, 90) {
		x := outcry{at: odd(t), dev: r.IntN(worldGPUs), code: codes[r.IntN(len(codes))], nvml: r.IntN(3), kmsg: r.IntN(3)}
		if x.nvml+x.kmsg > 0 {
			add(x)
		}
	}
	for _, f := range w.faults {
		x := outcry{dev: r.IntN(worldGPUs), code: codes[r.IntN(len(codes))]}
		switch f.kind {
		case "xid storm":
			x.nvml = 5 + r.IntN(80)
		case "xid kernel storm":
			x.kmsg = 5 + r.IntN(80)
		case "xid both storm":
			x.nvml, x.kmsg = 5+r.IntN(80), 5+r.IntN(80)
		default:
			continue
		}
		for range 3 {
			x.at = odd(f.from + seconds(r, 0, 60))
			add(x)
		}
	}
	slices.SortStableFunc(w.xids, func(a, b outcry) int { return int(a.at - b.at) })
}

// node is what the kubelet would list at a moment.
func (w *world) node(at time.Duration) standin.KubeletNode {
	n := standin.KubeletNode{Allocatable: map[string][]string{},
		Pods: []standin.KubeletPod{{Namespace: "monitoring", Name: "gpu-exporter"}}}
	for i, c := range w.devs {
		switch {
		case i == GPUShared:
			for slot := range 4 {
				n.Allocatable["nvidia.com/gpu.shared"] = append(n.Allocatable["nvidia.com/gpu.shared"], fmt.Sprintf("%s::%d", c.uuid, slot))
			}
		case !c.mig:
			n.Allocatable["nvidia.com/gpu"] = append(n.Allocatable["nvidia.com/gpu"], c.uuid)
		}
	}
	for _, p := range w.workloads {
		if p.listed.has(at) {
			n.Pods = append(n.Pods, standin.KubeletPod{Namespace: "team", Name: p.name,
				Containers: []standin.KubeletContainer{{Name: "main",
					Devices: []standin.KubeletDevices{{Resource: p.resource, IDs: []string{p.id}}}}}})
		}
	}
	return n
}

// during lists the faults that last at a moment.
func (w *world) during(at time.Duration) []fault {
	var out []fault
	for _, f := range w.faults {
		if f.has(at) {
			out = append(out, f)
		}
	}
	return out
}

// driven reports whether there is a driver to speak of at a moment.
func (w *world) driven(at time.Duration) bool {
	loaded := true
	for _, d := range w.drivers {
		if d.at <= at {
			loaded = d.loaded
		}
	}
	return loaded
}
