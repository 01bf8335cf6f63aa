package replay_test

import (
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/gpu-exporter/gpu-exporter/internal/catalog"
	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// Readings of a GPU, each absent where the exporter has none.
func one(*gpuNow) (float64, bool) { return 1, true }

func up(g *gpuNow) (float64, bool) {
	if g.now.State == gpu.DeviceUp {
		return 1, true
	}
	return 0, true
}

func allocated(g *gpuNow) (float64, bool) { return opt(g.now.AllocationRatio) }

func unallocated(g *gpuNow) (float64, bool) {
	share, known := allocated(g)
	u, _ := up(g)
	return u * (1 - share), known
}

func medium(of func(*gpu.Medium) (float64, bool)) func(*gpuNow) (float64, bool) {
	return func(g *gpuNow) (float64, bool) {
		m, ok := g.now.Medium.Get()
		if !ok {
			return 0, false
		}
		return of(m)
	}
}

func slow(of func(*gpu.Slow) (float64, bool)) func(*gpuNow) (float64, bool) {
	return func(g *gpuNow) (float64, bool) {
		m, ok := g.now.Slow.Get()
		if !ok {
			return 0, false
		}
		return of(m)
	}
}

func usedMemory(m *gpu.Medium) (float64, bool) {
	x, ok := m.Memory.Get()
	return float64(x.Used), ok
}

func totalMemory(m *gpu.Medium) (float64, bool) {
	x, ok := m.Memory.Get()
	return float64(x.Total), ok
}

func temperature(m *gpu.Medium) (float64, bool) { return opt(m.Temperature) }

func powerLimit(s *gpu.Slow) (float64, bool) { return opt(s.PowerLimit) }

func oneIf(on bool) float64 {
	if on {
		return 1
	}
	return 0
}

// Counters of a GPU.
func busy(g *gpu.GPU) (float64, bool)     { return opt(g.Activity.Busy) }
func observed(g *gpu.GPU) (float64, bool) { return opt(g.Activity.Observed) }
func smActive(g *gpu.GPU) (float64, bool) { return opt(g.Activity.SMActive) }
func tensor(g *gpu.GPU) (float64, bool)   { return opt(g.Activity.TensorActive) }
func dram(g *gpu.GPU) (float64, bool)     { return opt(g.Activity.DRAMActive) }
func profiled(g *gpu.GPU) (float64, bool) { return opt(g.Activity.Profiled) }
func energy(g *gpu.GPU) (float64, bool)   { return opt(g.Activity.Energy) }

// Counters of a container on a GPU.
func allocatedTime(c *gpu.ContainerGPU) (float64, bool) { return opt(c.Allocated) }
func busyTime(c *gpu.ContainerGPU) (float64, bool)      { return opt(c.Busy) }
func observedTime(c *gpu.ContainerGPU) (float64, bool)  { return opt(c.Observed) }
func joules(c *gpu.ContainerGPU) (float64, bool)        { return opt(c.Energy) }
func idleTime(c *gpu.ContainerGPU) (float64, bool)      { return opt(c.Idle) }

func unusedTime(c *gpu.ContainerGPU) (float64, bool) {
	gap, ok := opt(c.Gap)
	idle, _ := opt(c.Idle)
	return gap + idle, ok
}

// Gauges of a container on a GPU.
func share(c *containerNow) (float64, bool) {
	if c.allocation == nil {
		return 0, false
	}
	return opt(c.allocation.AllocationRatio)
}

func containerMemory(c *containerNow) (float64, bool)    { return opt(c.now.Memory) }
func containerProcesses(c *containerNow) (float64, bool) { return opt(c.now.Processes) }

func memoryLimit(c *containerNow) (float64, bool) {
	if c.allocation == nil {
		return 0, false
	}
	return opt(c.allocation.MemoryLimit)
}

func computeLimit(c *containerNow) (float64, bool) {
	if c.allocation == nil {
		return 0, false
	}
	return opt(c.allocation.ComputeLimit)
}

func containerLastBusy(c *containerNow) (float64, bool) {
	at, ok := c.now.LastBusy.Get()
	return float64(at.UnixMilli()), ok
}

func since(c *containerNow) (float64, bool) {
	at, ok := c.now.Since.Get()
	return float64(at.UnixMilli()), ok
}

const (
	perGPU       = "cluster node uuid gpu"
	perContainer = "cluster node uuid gpu namespace pod container"
	perWorkload  = "cluster namespace workload_type workload"
)

// current compares the tiles and columns that show the present with the script: rules has rates over five minutes, raw
// those over the rate interval of Grafana.
func (c comparison) current(rules, raw, half *script) {
	c.placed(rules)
	c.onNodes(raw)
	c.ofContainers(rules, raw)
	c.ofDevices(raw)
	c.ofHealth(rules, raw)
	const pod = "cluster namespace pod"
	wasted, usage := half.rates(pod, unusedTime), half.rates(pod, busyTime).over(half.measured(pod))
	for k, v := range usage.of {
		if math.Abs(v-catalog.WellUsed) < 0.01 {
			wasted.unsure[k] = true
		}
	}
	c.top("gpu-fleet/Pods with unused GPUs A", pod,
		wasted.only(func(k string, v float64) bool { return v > 0 && usage.of[k] <= catalog.WellUsed }), 0.002)
	const byModel = perWorkload + " model"
	c.subset("gpu-capacity/Underused workloads C", byModel, rules.gauges(byModel, add, share), 1e-9)
	c.subset("gpu-capacity/Underused workloads D", byModel, rules.rates(byModel, joules), 0.002)
}

// keys are those of the rows that a column shows.
func (c comparison) keys(column, by string) map[string]float64 {
	out := map[string]float64{}
	for _, e := range c.cells[column] {
		out[thing{e.Metric.Map()}.key(by)] = e.F
	}
	return out
}

// subset compares the rows that a table shows of many.
func (c comparison) subset(column, by string, want values, share float64) {
	c.Helper()
	shown := c.keys(column, by)
	c.show(column, by, want.only(func(k string, _ float64) bool { _, ok := shown[k]; return ok }), share, 1e-6)
}

// top compares the rows of a table of the twenty largest, and requires that no other is larger.
func (c comparison) top(column, by string, want values, share float64) {
	c.Helper()
	shown, lowest := c.keys(column, by), math.Inf(1)
	for _, v := range shown {
		lowest = min(lowest, v)
	}
	for k, v := range want.of {
		if _, ok := shown[k]; !ok && !want.unsure[k] && (len(shown) < 20 || v > lowest*(1+share)) {
			c.Errorf("%s lacks %s with %v, and has a row of %v", column, k, v, lowest)
		}
	}
	if len(shown) > 20 {
		c.Errorf("%s has %d rows", column, len(shown))
	}
	c.subset(column, by, want, share)
}

// placed are the columns by model, pool, zone, rack and node.
func (c comparison) placed(s *script) {
	for _, table := range []struct {
		name, by, refs string // of GPUs, available, allocated, utilization
		ratios         bool
	}{{"gpu-fleet/Models ", "cluster model", "ABCD", true}, {"gpu-fleet/Node pools ", "pool", "ABCD", true},
		{"gpu-fleet/Zones ", "zone", "ABCD", true}, {"gpu-fleet/Racks ", "rack", "ABCD", true},
		{"gpu-capacity/", "", "", false}} {
		gpus := s.sum(table.by, one)
		if !table.ratios {
			c.show(table.name+"GPUs A", "", gpus, 0, 0)
			c.show("gpu-fleet/GPUs A", "", gpus, 0, 0)
			c.show(table.name+"Available A", "", s.sum("", up), 0, 0)
			c.show("gpu-fleet/Available A", "", s.sum("", up).over(gpus), 1e-9, 0)
			c.show(table.name+"Allocated A", "", s.sum("", allocated), 1e-9, 0)
			c.show("gpu-fleet/Allocated A", "", s.sum("", allocated).over(gpus), 1e-9, 0)
			for _, tile := range []string{table.name + "Utilization A", "gpu-fleet/Utilization A"} {
				c.show(tile, "", s.rate("", busy).over(s.rate("", observed)), 0.002, 0)
			}
			c.show("gpu-fleet/Measured A", "", s.rate("", observed).over(gpus), 0.002, 0)
			continue
		}
		ref := func(i int) string { return table.name + table.refs[i:i+1] }
		c.show(ref(0), table.by, gpus, 0, 0)
		c.show(ref(1), table.by, s.sum(table.by, up).over(gpus), 1e-9, 0)
		c.show(ref(2), table.by, s.sum(table.by, allocated).over(gpus), 1e-9, 0)
		c.show(ref(3), table.by, s.rate(table.by, busy).over(s.rate(table.by, observed)), 0.002, 1e-6)
	}
	power := func(by string) values { return s.rate(by, energy) }
	const by = "cluster model"
	sm := func(by string) values { return s.rate(by, smActive).over(s.rate(by, profiled)) }
	memory := func(by string) values { return s.sum(by, medium(usedMemory)).over(s.sum(by, medium(totalMemory))) }
	state := func(by string, states ...gpu.TimeState) values { return s.rate(by, s.state(states...)) }
	c.show("gpu-fleet/Models E", by, sm(by), 0.002, 1e-6)
	c.show("gpu-fleet/Models F", by, s.rate(by, tensor).over(s.rate(by, profiled)), 0.002, 1e-6)
	c.show("gpu-fleet/Models G", by, memory(by), 1e-9, 0)
	c.show("gpu-fleet/Models H", by, power(by), 0.002, 0.01)
	c.show("gpu-fleet/Models J", by, state(by, gpu.TimeGap, gpu.TimeIdle), 0.002, 0.001)
	c.show("gpu-fleet/Models K", by, state(by, gpu.TimeUnknown), 0.002, 0.001)
	for title, by := range map[string]string{"Node pools": "pool", "Zones": "zone", "Racks": "rack"} {
		c.show("gpu-fleet/"+title+" E", by, values{}, 0, 0) // the fleet has no week of history
		c.show("gpu-fleet/"+title+" F", by, power(by), 0.002, 0.01)
		c.show("gpu-fleet/"+title+" H", by, state(by, gpu.TimeGap, gpu.TimeIdle), 0.002, 0.001)
		c.show("gpu-fleet/"+title+" I", by, state(by, gpu.TimeUnknown), 0.002, 0.001)
	}
	const node = "cluster node model"
	gpus := s.sum(node, one)
	c.show("gpu-capacity/Nodes by utilization A", node, gpus, 0, 0)
	c.show("gpu-capacity/Nodes by utilization B", node, s.sum(node, allocated).over(gpus), 1e-9, 0)
	c.show("gpu-capacity/Nodes by utilization C", node, state(node, gpu.TimeGap, gpu.TimeIdle, gpu.TimeUnallocated), 0.002, 0.001)
	c.show("gpu-capacity/Nodes by utilization D", node, s.rate(node, busy).over(s.rate(node, observed)), 0.002, 1e-6)
	c.show("gpu-capacity/Nodes by utilization E", node, sm(node), 0.002, 1e-6)
	c.show("gpu-capacity/Nodes by utilization F", node, memory(node), 1e-9, 0)
	c.show("gpu-capacity/Nodes by utilization G", node, power(node), 0.002, 0.01)
	c.show("gpu-capacity/Unallocated GPUs by node B", node, s.sum(node, unallocated), 1e-9, 1e-9)
	c.show("gpu-capacity/Unallocated GPUs by node C", node, s.sum(node, allocated), 1e-9, 0)
	c.show("gpu-capacity/Unallocated GPUs by node D", node, gpus, 0, 0)
	schedulable := func(by string) values { return s.sum(by, s.schedulable()) }
	c.show("gpu-capacity/Unallocated GPUs by node A", node, schedulable(node), 0, 0)
	c.show("gpu-fleet/Models I", "cluster model", schedulable("cluster model"), 0, 0)
	for title, by := range map[string]string{"Node pools": "pool", "Zones": "zone", "Racks": "rack"} {
		c.show("gpu-fleet/"+title+" G", by, schedulable(by), 0, 0)
	}
	c.show("gpu-fleet/Schedulable A", "", schedulable(""), 0, 0)
	c.show("gpu-capacity/Schedulable A", "", schedulable(""), 0, 0)
	block := 0.0
	for _, v := range schedulable("cluster node").of {
		block = max(block, v)
	}
	c.show("gpu-capacity/Most on one node A", "", values{of: map[string]float64{"": block}}, 0, 0)
}

// schedulable is whether a pod could be placed on a GPU now: it is up, wholly unallocated, not in MIG mode and not broken,
// and its node is not cordoned.
func (s *script) schedulable() func(*gpuNow) (float64, bool) {
	return func(g *gpuNow) (float64, bool) {
		share, known := allocated(g)
		if !known {
			return 0, false
		}
		mode := slowOf(g).MIGMode.Or(gpu.ModePair{})
		state, _ := g.now.Health(g.at)
		cordoned := s.kube["kube_node_spec_unschedulable"][g.labels["node"]] == 1
		return oneIf(g.now.State == gpu.DeviceUp && share == 0 && !mode.Current && !cordoned &&
			(state == gpu.Healthy || state == gpu.Degraded || state == gpu.Unknown)), true
	}
}

func slowOf(g *gpuNow) *gpu.Slow {
	if s, ok := g.now.Slow.Get(); ok {
		return s
	}
	return &gpu.Slow{}
}

// onNodes are the columns by GPU of the dashboards of nodes, GPUs and sharing.
func (c comparison) onNodes(s *script) {
	pods := func(g *gpuNow) (float64, bool) {
		found := map[gpu.PodName]bool{}
		for _, x := range g.containers {
			if v, ok := share(x); ok && v > 0 && !x.now.Ended {
				found[x.now.PodName()] = true
			}
		}
		return float64(len(found)), len(found) > 0
	}
	const node = "gpu-node/GPUs of the node "
	utilization := s.rate(perGPU, busy).over(s.rate(perGPU, observed))
	memory := s.sum(perGPU, medium(usedMemory)).over(s.sum(perGPU, medium(totalMemory)))
	c.show(node+"B", perGPU, s.sum(perGPU, allocated), 1e-9, 0)
	c.show(node+"C", perGPU, s.sum(perGPU, pods), 0, 0)
	c.show(node+"D", perGPU, utilization, 0.002, 1e-6)
	c.show(node+"E", perGPU, s.rate(perGPU, smActive).over(s.rate(perGPU, profiled)), 0.002, 1e-6)
	c.show(node+"F", perGPU, memory, 1e-9, 0)
	c.show(node+"H", perGPU, s.sum(perGPU, medium(temperature)), 1e-9, 0)
	lastBusy := func(g *gpuNow) (float64, bool) {
		at, ok := g.now.Activity.LastBusy.Get()
		return float64(at.UnixMilli()), ok
	}
	c.show(node+"K", perGPU, s.sum(perGPU, lastBusy), 1e-9, 0)
	c.show("gpu-node/Available A", "", s.sum("", up), 0, 0)
	c.show("gpu-node/Allocated A", "", s.sum("", allocated), 1e-9, 0)
	for _, d := range []string{"gpu-node", "gpu-device"} {
		c.show(d+"/Utilization A", "", s.rate("", busy).over(s.rate("", observed)), 0.002, 0)
		c.show(d+"/Memory A", "", s.sum("", medium(usedMemory)).over(s.sum("", medium(totalMemory))), 1e-9, 0)
	}
	watts := func(g *gpuNow) (float64, bool) {
		f, ok := g.now.Fast.Get()
		if !ok {
			return 0, false
		}
		return opt(f.Power)
	}
	c.show("gpu-node/Power A", "", s.sum("", watts), 1e-9, 0)
	limit := s.sum("", slow(powerLimit))
	c.show("gpu-device/Power A", "", s.sum("", watts).over(limit), 1e-9, 0)
	c.show(node+"G", perGPU, s.sum(perGPU, watts).over(s.sum(perGPU, slow(powerLimit))), 1e-9, 0)
	for tile, of := range map[string]func(*gpu.GPU) (float64, bool){"SM active": smActive, "Tensor": tensor, "Bandwidth": dram} {
		c.show("gpu-device/"+tile+" A", "", s.rate("", of).over(s.rate("", profiled)), 0.002, 0)
	}
	// Tiles of one GPU, over all of them: the largest.
	highest := func(of func(*gpuNow) (float64, bool)) values {
		return fold(s.gpus, "", func(g *gpuNow, by string) string { return g.key(by) }, most,
			func(g *gpuNow) (float64, bool, bool) { v, ok := of(g); return v, ok, true })
	}
	c.show("gpu-device/Allocated A", "", highest(allocated), 1e-9, 0)
	c.show("gpu-device/Last busy A", "", highest(lastBusy), 1e-9, 0)
	c.show("gpu-device/P-state A", "", highest(medium(func(m *gpu.Medium) (float64, bool) { return opt(m.PState) })), 0, 0)
	c.top("gpu-fleet/Hottest GPUs A", perGPU, s.sum(perGPU, medium(temperature)), 1e-9)
	// Shared GPUs.
	count := s.sum(perGPU, pods)
	tile := func(title string, of func(g *gpuNow) bool) {
		c.show("gpu-sharing/"+title+" A", "", s.sum("", func(g *gpuNow) (float64, bool) { return oneIf(of(g)), true }), 0, 0)
	}
	shared := func(g *gpuNow) bool { return count.of[g.key(perGPU)] > 1 }
	tile("Shared GPUs", shared)
	tile("Exclusive GPUs", func(g *gpuNow) bool { return count.of[g.key(perGPU)] == 1 })
	tile("GPUs in MIG mode", func(g *gpuNow) bool { return slowOf(g).MIGMode.Or(gpu.ModePair{}).Current })
	tile("Overcommitted", func(g *gpuNow) bool { return g.now.AllocationRatio.Or(0) > 1.001 })
	tile("Contended", func(g *gpuNow) bool { return shared(g) && utilization.of[g.key(perGPU)] > 0.9 })
	tile("Nearly full", func(g *gpuNow) bool { return shared(g) && memory.of[g.key(perGPU)] > 0.95 })
	many := func(v values) values { return v.only(func(k string, _ float64) bool { return count.of[k] > 1 }) }
	const sharing = "gpu-sharing/GPUs with more than one pod "
	c.show(sharing+"A", perGPU, many(count), 0, 0)
	c.show(sharing+"B", perGPU, many(s.sum(perGPU, allocated)), 1e-9, 0)
	c.show(sharing+"C", perGPU, many(utilization), 0.002, 1e-6)
	c.show(sharing+"D", perGPU, many(memory), 1e-9, 0)
	limits := s.gauges(perGPU, add, memoryLimit)
	c.show(sharing+"E", perGPU, many(limits.over(s.sum(perGPU, medium(totalMemory)))), 1e-9, 0)
	width := func(g *gpuNow) (float64, bool) { return opt(slowOf(g).PCIe.Width) }
	c.show("gpu-node/GPU topology A", perGPU, s.sum(perGPU, width), 0, 0)
	c.show("gpu-device/Identity A", perGPU, s.sum(perGPU, up), 0, 0)
	modes := fold(s.gpus, "", func(g *gpuNow, _ string) string { return string(slowOf(g).ComputeMode.Or("")) }, add,
		func(g *gpuNow) (float64, bool, bool) { return 1, slowOf(g).ComputeMode.Present(), true })
	c.show("gpu-sharing/Compute modes A", "mode", modes, 0, 0)
	methods := fold(s.gpus, "", func(g *gpuNow, _ string) string { return string(g.now.Activity.Method.Or("")) }, add,
		func(g *gpuNow) (float64, bool, bool) { return 1, g.now.Activity.Method.Present(), true })
	c.show("gpu-exporter/Sampling method A", "method", methods, 0, 0)
}

// healthRanks are the verdicts by their rank on the dashboards.
var healthRanks = map[gpu.HealthState]float64{gpu.Degraded: 1, gpu.Unknown: 2, gpu.NeedsReset: 3, gpu.NeedsReboot: 4,
	gpu.Replace: 5, gpu.Lost: 6}

// ofContainers are the columns of containers, workloads, namespaces and teams.
func (c comparison) ofContainers(s, raw *script) {
	g := func(by string, of func(*containerNow) (float64, bool)) values { return s.gauges(by, add, of) }
	utilization := func(by string) values { return raw.rates(by, busyTime).over(raw.rates(by, observedTime)) }
	const w, shared, device = "gpu-workload/Containers and GPUs ", "gpu-sharing/Containers on shared GPUs ", "gpu-device/Containers "
	c.show(w+"A", perContainer, g(perContainer, share), 1e-9, 0)
	c.show(w+"B", perContainer, raw.rates(perContainer, busyTime).over(raw.measured(perContainer)), 0.002, 1e-6)
	c.show(w+"C", perContainer, raw.rates(perContainer, unusedTime).over(raw.rates(perContainer, allocatedTime)), 0.002, 1e-6)
	c.show(w+"D", perContainer, g(perContainer, containerMemory), 1e-9, 0)
	c.show(w+"E", perContainer, g(perContainer, memoryLimit), 1e-9, 0)
	c.show(w+"F", perContainer, raw.rates(perContainer, joules), 0.002, 0.01)
	c.show(w+"G", perContainer, g(perContainer, containerProcesses), 0, 0)
	c.show(w+"H", perContainer, g(perContainer, since), 1e-9, 0)
	c.show(w+"I", perContainer, g(perContainer, containerLastBusy), 1e-9, 0)
	c.show(device+"A", perContainer, g(perContainer, share), 1e-9, 0)
	c.show(device+"B", perContainer, utilization(perContainer), 0.002, 1e-6)
	c.show(device+"C", perContainer, g(perContainer, containerMemory), 1e-9, 0)
	c.show(device+"D", perContainer, g(perContainer, containerProcesses), 0, 0)
	c.show(device+"E", perContainer, raw.rates(perContainer, joules), 0.002, 0.01)
	c.show(device+"F", perContainer, g(perContainer, containerLastBusy), 1e-9, 0)
	pods := map[string]map[gpu.PodName]bool{}
	for _, x := range s.containers {
		if _, ok := share(x); !ok || x.now.Ended {
			continue
		}
		if k := x.gpu.key(perGPU); pods[k] == nil {
			pods[k] = map[gpu.PodName]bool{}
		}
		pods[x.gpu.key(perGPU)][x.now.PodName()] = true
	}
	onShared := func(v values) values {
		return v.only(func(k string, _ float64) bool { return len(pods[strings.Join(strings.Split(k, "/")[:4], "/")]) > 1 })
	}
	c.show(shared+"A", perContainer, onShared(g(perContainer, share)), 1e-9, 0)
	c.show(shared+"B", perContainer, onShared(utilization(perContainer)), 0.002, 1e-6)
	c.show(shared+"C", perContainer, onShared(g(perContainer, computeLimit)), 1e-9, 0)
	c.show(shared+"D", perContainer, onShared(g(perContainer, containerMemory)), 1e-9, 0)
	c.show(shared+"E", perContainer, onShared(g(perContainer, memoryLimit)), 1e-9, 0)
	more := g(perContainer, containerMemory).over(g(perContainer, memoryLimit))
	for k := range more.of {
		more.of[k]--
	}
	c.show(shared+"F", perContainer, onShared(more.only(positive)), 1e-9, 0)
	// Namespaces and teams, of which each namespace is one.
	allocatedNow, busyNow := g("", share), s.rates("", busyTime)
	c.show("gpu-namespace/Allocated A", "", allocatedNow, 1e-9, 0)
	c.show("gpu-namespace/Busy GPUs A", "", busyNow, 0.002, 1e-6)
	c.show("gpu-workload/Allocated A", "", allocatedNow, 1e-9, 0)
	c.show("gpu-workload/Memory A", "", g("", containerMemory), 1e-9, 0)
	c.show("gpu-workload/Power A", "", raw.rates("", joules), 0.002, 0.01)
	c.show("gpu-workload/Last busy A", "", s.gauges("", most, containerLastBusy), 1e-9, 0)
	c.show("gpu-fleet/Teams A", "team", g("team", share), 1e-9, 0)
	c.show("gpu-fleet/Teams B", "team", values{}, 0, 0) // the fleet has no week of history
	c.show("gpu-fleet/Teams C", "team", s.rates("team", busyTime).over(s.measured("team")), 0.002, 1e-6)
	c.show("gpu-fleet/Teams D", "team", values{}, 0, 0)
	// Workloads.
	c.show("gpu-namespace/Workloads B", perWorkload, g(perWorkload, share), 1e-9, 0)
	found := map[string]map[gpu.PodName]bool{}
	for _, x := range s.containers {
		if _, ok := share(x); ok && !x.now.Ended {
			k := x.key(perWorkload)
			if found[k] == nil {
				found[k] = map[gpu.PodName]bool{}
			}
			found[k][x.now.PodName()] = true
		}
	}
	running, all := values{of: map[string]float64{}}, 0.0
	for k, p := range found {
		running.of[k] = float64(len(p))
		all += running.of[k]
	}
	c.show("gpu-namespace/Workloads A", perWorkload, running, 0, 0)
	c.show("gpu-workload/Pods A", "", values{of: map[string]float64{"": all}}, 0, 0)
	c.show("gpu-device/Pods A", "", values{of: map[string]float64{"": all}}, 0, 0)
	c.show("gpu-namespace/Workloads J", perWorkload, s.gauges(perWorkload, most, containerLastBusy), 1e-9, 0)
	idle := s.rates(perWorkload, idleTime).only(func(_ string, v float64) bool { return v > 0.05 })
	c.show("gpu-namespace/Idle now A", perWorkload, idle, 0.002, 1e-6)
	c.show("gpu-namespace/Idle now B", perWorkload, s.gauges(perWorkload, most, containerLastBusy).only(
		func(k string, _ float64) bool { _, ok := idle.of[k]; return ok || idle.unsure[k] }), 1e-9, 0)
	attribution := fold(s.containers, "", func(x *containerNow, _ string) string { return x.now.Attribution + "/" + x.now.Source },
		add, func(x *containerNow) (float64, bool, bool) { return 1, !x.now.Ended && x.now.Attribution != "", true })
	c.show("gpu-exporter/Allocations by data source A", "method source", attribution, 0, 0)
	byPod := fold(s.containers, "", func(x *containerNow, _ string) string {
		return x.key("namespace pod container") + "/" + x.now.Attribution + "/" + x.now.Source
	}, add, func(x *containerNow) (float64, bool, bool) { return 1, !x.now.Ended && x.now.Attribution != "", true })
	c.show("gpu-workload/Attribution A", "namespace pod container method source", byPod, 0, 0)
}

// ofDevices are the devices of the kubelet, MIG instances, and what kube-state-metrics exports.
func (c comparison) ofDevices(s *script) {
	count := func(by string, of func(resourceNow) (float64, bool)) values {
		return fold(s.resources, by, func(r resourceNow, by string) string { return r.key(by) }, add,
			func(r resourceNow) (float64, bool, bool) { v, ok := of(r); return v, ok, true })
	}
	allocatable := func(r resourceNow) (float64, bool) { return opt(r.Allocatable) }
	taken := func(r resourceNow) (float64, bool) { return float64(r.Allocated), true }
	free := func(r resourceNow) (float64, bool) {
		return float64(r.Allocatable.Or(0) - r.Allocated), r.Allocatable.Present()
	}
	open := func(r resourceNow) (float64, bool) {
		v, ok := free(r)
		return v, ok && s.kube["kube_node_spec_unschedulable"][r.labels["node"]] == 0
	}
	for column, of := range map[string]func(resourceNow) (float64, bool){"A": allocatable, "B": taken, "C": free, "D": open} {
		c.show("gpu-capacity/Devices by resource "+column, "cluster resource", count("cluster resource", of), 0, 0)
	}
	c.show("gpu-node/Devices by resource A", "cluster node resource", count("cluster node resource", allocatable), 0, 0)
	c.show("gpu-node/Devices by resource B", "cluster node resource", count("cluster node resource", taken), 0, 0)
	c.show("gpu-sharing/Devices by resource A", "resource", count("resource", allocatable), 0, 0)
	c.show("gpu-sharing/Devices by resource B", "resource", count("resource", taken), 0, 0)
	c.show("gpu-sharing/Devices by resource C", "resource", count("resource", taken).over(count("resource", allocatable)), 1e-9, 0)
	type slice struct {
		*gpuNow
		gpu.InstanceActivity
		before *gpu.InstanceActivity
	}
	var all []slice
	for _, g := range s.gpus {
		for i, in := range g.now.Instances {
			x := slice{gpuNow: g, InstanceActivity: in}
			if g.before != nil && i < len(g.before.Instances) {
				x.before = &g.before.Instances[i]
			}
			all = append(all, x)
		}
	}
	instances := func(by string, of func(slice) (float64, bool)) values {
		return fold(all, by, func(x slice, by string) string {
			if by == "profile" {
				return x.Profile
			}
			return x.key(perGPU) + "/" + string(x.UUID)
		}, add, func(x slice) (float64, bool, bool) { v, ok := of(x); return v, ok, true })
	}
	const each = perGPU + " mig_uuid"
	is := func(ok bool) (float64, bool) { return 1, ok }
	ratio := func(x slice) (float64, bool) { return opt(x.AllocationRatio) }
	c.show("gpu-sharing/Instances by profile A", "profile", instances("profile", func(x slice) (float64, bool) { return 1, true }), 0, 0)
	c.show("gpu-sharing/Instances by profile B", "profile", instances("profile", func(x slice) (float64, bool) {
		return is(x.AllocationRatio.Or(0) > 0)
	}), 0, 0)
	c.show("gpu-sharing/Instances by profile C", "profile", instances("profile", func(x slice) (float64, bool) {
		return is(x.AllocationRatio.Or(1) == 0)
	}), 0, 0)
	memory := instances(each, func(x slice) (float64, bool) { m, ok := x.Memory.Get(); return float64(m.Used), ok }).over(
		instances(each, func(x slice) (float64, bool) { m, ok := x.Memory.Get(); return float64(m.Total), ok }))
	rate := func(of func(gpu.Activity) gpu.Opt[gpu.Seconds]) values {
		return instances(each, func(x slice) (float64, bool) {
			if x.before == nil || !of(x.Activity).Present() {
				return 0, false
			}
			return float64(of(x.Activity).Or(0) - of(x.before.Activity).Or(0)), true
		})
	}
	busy := rate(func(a gpu.Activity) gpu.Opt[gpu.Seconds] { return a.Busy }).over(
		rate(func(a gpu.Activity) gpu.Opt[gpu.Seconds] { return a.Observed }))
	sm := rate(func(a gpu.Activity) gpu.Opt[gpu.Seconds] { return a.SMActive }).over(
		rate(func(a gpu.Activity) gpu.Opt[gpu.Seconds] { return a.Profiled }))
	for column, want := range map[string]values{"gpu-sharing/MIG instances A": instances(each, ratio),
		"gpu-sharing/MIG instances B": busy, "gpu-sharing/MIG instances C": memory, "gpu-device/Instances A": instances(each, ratio),
		"gpu-device/Instances B": busy, "gpu-device/Instances C": sm, "gpu-device/Instances D": memory,
		"gpu-device/Instances E": instances(each, func(x slice) (float64, bool) { return opt(x.Share) })} {
		c.show(column, each, want, 0.002, 1e-9)
	}
	c.ofKubernetes(s)
}

// ofKubernetes are quotas, requests, versions and features.
func (c comparison) ofKubernetes(s *script) {
	quota := func(kind string) values {
		return s.kubeSum("kube_resourcequota", func(l []string) (string, bool) { // resourcequota, namespace, requests.nvidia.com, gpu, type
			return l[1], l[len(l)-1] == kind
		})
	}
	for column, want := range map[string]values{"gpu-capacity/Quotas A": quota("hard"), "gpu-capacity/Quotas B": quota("used"),
		"gpu-capacity/Quotas C": quota("used").over(quota("hard")), "gpu-namespace/Quota A": quota("hard"),
		"gpu-namespace/Quota B": quota("used")} {
		c.show(column, "namespace", want, 1e-9, 0)
	}
	sum := func(v values) values {
		out := values{of: map[string]float64{"": 0}}
		for _, x := range v.of {
			out.of[""] += x
		}
		return out
	}
	c.show("gpu-namespace/Used of quota A", "", sum(quota("used")).over(sum(quota("hard"))), 1e-9, 0)
	// Labels of pods: namespace, pod, uid, ...
	pending := map[string]bool{}
	for labels, v := range s.kube["kube_pod_status_phase"] {
		if l := strings.Split(labels, "/"); v == 1 && l[3] == "Pending" {
			pending[l[0]+"/"+l[1]] = true
		}
	}
	requests := func(by func(namespace, pod, resource string) string) values {
		return s.kubeSum("kube_pod_container_resource_requests", func(l []string) (string, bool) { // container, node, resource, unit
			return by(l[0], l[1], l[5]), pending[l[0]+"/"+l[1]] && strings.HasPrefix(l[5], "nvidia_com_")
		})
	}
	byPod := requests(func(namespace, pod, resource string) string { return namespace + "/" + pod + "/" + resource })
	const pod = "namespace pod resource"
	c.show("gpu-capacity/Pods pending for devices A", pod, byPod, 0, 0)
	unschedulable, created := values{of: map[string]float64{}}, values{of: map[string]float64{}}
	for k := range byPod.of {
		l := strings.Split(k, "/")
		for labels, v := range s.kube["kube_pod_created"] {
			if strings.HasPrefix(labels, l[0]+"/"+l[1]+"/") {
				created.of[k] = 1000 * v
			}
		}
	}
	for labels := range s.kube["kube_pod_status_unschedulable"] {
		l := strings.Split(labels, "/")
		for k := range byPod.of {
			if strings.HasPrefix(k, l[0]+"/"+l[1]+"/") {
				unschedulable.of[k] = 1
			}
		}
	}
	c.show("gpu-capacity/Pods pending for devices B", pod, unschedulable, 0, 0)
	c.show("gpu-capacity/Pods pending for devices C", pod, created, 1e-9, 0)
	c.show("gpu-capacity/Devices by resource E", "resource", requests(func(_, _, resource string) string { return resource }), 0, 0)
	pods := map[string]bool{}
	for k := range byPod.of {
		pods[k[:strings.LastIndex(k, "/")]] = true
	}
	c.show("gpu-capacity/Pending A", "", values{of: map[string]float64{"": float64(len(pods))}}, 0, 0)
	c.show("gpu-namespace/Pending A", "", sum(byPod), 0, 0)
	nodes := func(key func(nodeNow) string) values {
		return fold(s.nodes, "", func(n nodeNow, _ string) string { return key(n) }, add,
			func(nodeNow) (float64, bool, bool) { return 1, true, true })
	}
	driver := func(n nodeNow) string { return n.view.System.Or(gpu.System{}).DriverVersion }
	c.show("gpu-health/Driver versions A", "driver_version", nodes(driver), 0, 0)
	c.show("gpu-health/Exporter versions A", "version", nodes(func(n nodeNow) string { return n.view.Build.Version }), 0, 0)
	c.show("gpu-exporter/Exporters A", "node", fold(s.nodes, "node", func(n nodeNow, _ string) string { return n.labels["node"] }, add,
		func(nodeNow) (float64, bool, bool) { return 2, true, true }), 0, 0) // all are up
	c.show("gpu-exporter/Scraped A", "", nodes(func(nodeNow) string { return "" }), 0, 0)
	features := values{of: map[string]float64{}}
	down := 0.0
	available := values{of: map[string]float64{}}
	for _, n := range s.nodes {
		for _, f := range n.view.Features {
			features.of[f.Name+"/"+string(f.State)]++
		}
		for _, x := range n.view.Sources {
			down += oneIf(!x.Up)
		}
		available.of[n.labels["node"]] = float64(n.view.Devices[gpu.DeviceUp])
	}
	c.show("gpu-exporter/Features A", "feature state", features, 0, 0)
	c.show("gpu-exporter/Data sources down A", "", values{of: map[string]float64{"": down}}, 0, 0)
	c.show("gpu-node/Software A", "node", available, 0, 0)
	c.show("gpu-exporter/Exporters B", "node", fold(s.gpus, "node", func(g *gpuNow, by string) string { return g.key(by) }, add,
		func(*gpuNow) (float64, bool, bool) { return 1, true, true }), 0, 0)
	failed := s.sum("", func(g *gpuNow) (float64, bool) {
		return oneIf(g.now.State == gpu.DeviceFailed || g.now.State == gpu.DeviceMissing), true
	})
	c.show("gpu-node/Unavailable A", "", failed, 0, 0)
	c.show("gpu-exporter/Allocation known A", "", s.sum("", func(g *gpuNow) (float64, bool) {
		return oneIf(g.now.AllocationRatio.Present()), true
	}).over(s.sum("", one)), 1e-9, 0)
}

// healthOf is the verdict on a GPU: that of the exporter, else degraded where a GPU has fewer links or lanes than its
// neighbors, or its clocks were limited for more than 5 % of the time. Problems have the verdict that each leads to.
func (s *script) healthOf(g *gpuNow) (state gpu.HealthState, problems map[string]gpu.HealthState) {
	state, reasons := g.now.Health(g.at)
	problems = map[string]gpu.HealthState{}
	for _, r := range reasons {
		problems[r.Reason] = r.Verdict
	}
	links, widest := 0, 0
	for _, other := range s.gpus {
		if other.labels["node"] == g.labels["node"] {
			links = max(links, slowOf(other).NVLinks.Or(gpu.NVLinkCount{}).Up)
			widest = max(widest, slowOf(other).PCIe.Width.Or(0))
		}
	}
	if n, ok := slowOf(g).NVLinks.Get(); ok && n.Up < links {
		problems["nvlink_down"] = gpu.Degraded
	}
	if n, ok := slowOf(g).PCIe.Width.Get(); ok && n < widest {
		problems["pcie_narrow"] = gpu.Degraded
	}
	for problem, of := range map[string][]gpu.LimitReason{"power_brake": {gpu.LimitHWPowerBrake},
		"thermal_slowdown": {gpu.LimitThermal, gpu.LimitHWThermal, gpu.LimitSWThermal}} {
		for _, reason := range of {
			if v, ok := s.limited(g, reason); ok && v > 0.05 {
				problems[problem] = gpu.Degraded
			}
		}
	}
	if state == gpu.Healthy && len(problems) > 0 {
		state = gpu.Degraded
	}
	return state, problems
}

// limited is the share of time in which the clocks of a GPU were limited.
func (s *script) limited(g *gpuNow, reason gpu.LimitReason) (float64, bool) {
	if g.young {
		return 0, false
	}
	now, ok := g.now.Activity.Limited[reason]
	before, had := g.before.Activity.Limited[reason]
	return float64(now-before) / s.span.Seconds(), ok && had
}

// ofHealth are verdicts, problems, temperatures, clocks and memory errors.
func (c comparison) ofHealth(rules, raw *script) {
	states, byGPU, problems, reasons := map[gpu.HealthState]float64{}, values{of: map[string]float64{}},
		values{of: map[string]float64{}}, values{of: map[string]float64{}}
	part := map[string]values{"pool": {of: map[string]float64{}}, "zone": {of: map[string]float64{}}, "rack": {of: map[string]float64{}}}
	limited, worst := values{of: map[string]float64{}}, values{of: map[string]float64{}}
	headroom, errs := math.Inf(1), values{of: map[string]float64{}}
	unmeasured, recovery := values{of: map[string]float64{}}, values{of: map[string]float64{}}
	for i, g := range rules.gpus {
		state, found := rules.healthOf(g)
		for by, v := range part {
			v.of[g.key(by)] += oneIf(state != gpu.Healthy)
		}
		if state != gpu.Healthy {
			states[state]++
			byGPU.of[g.key(perGPU)] = healthRanks[state]
		}
		for p, verdict := range found {
			problems.of[g.key(perGPU)+"/"+p+"/"+string(verdict)] = healthRanks[verdict]
		}
		for p, verdict := range found {
			reasons.of[string(verdict)+"/"+p] = 1
		}
		high, measured := 0.0, false
		for _, reason := range gpu.LimitReasons {
			if v, ok := rules.limited(g, reason); ok && v > 0 && reason != gpu.LimitPowerCap {
				limited.of[g.key("cluster node")+"/"+string(reason)] += v
			}
			if v, ok := raw.limited(raw.gpus[i], reason); ok && reason != gpu.LimitPowerCap {
				high, measured = max(high, v), true
			}
		}
		if measured {
			worst.of[g.key(perGPU)] = high
		}
		m, hasMedium := g.now.Medium.Get()
		for _, l := range slowOf(g).TemperatureLimits {
			if l.Limit != gpu.LimitMaxOperating || !hasMedium {
				continue
			}
			temperature := m.Temperature
			if l.Sensor == gpu.SensorMemory {
				temperature = g.now.Fast.Or(&gpu.Fast{}).MemoryTemperature
			}
			if v, ok := temperature.Get(); ok {
				headroom = min(headroom, float64(l.Value-v))
			}
		}
		if hasMedium {
			for _, e := range m.ECC {
				key := string(e.Memory) + "/" + string(e.Severity)
				if v, ok := e.Volatile.Get(); ok {
					errs.of[key] = max(errs.of[key], float64(v))
				}
			}
		}
		for _, u := range g.now.Activity.Unmeasured {
			unmeasured.of[u.Reading+"/"+u.Reason]++
		}
		if a, ok := g.now.Recovery.Get(); ok {
			recovery.of[string(a)] = 1
		}
	}
	c.show("gpu-fleet/Unhealthy GPUs A", perGPU, byGPU, 0, 0)
	c.show("gpu-health/Verdicts on a GPU A", perGPU, byGPU, 0, 0)
	c.show("gpu-health/GPUs with a problem A", perGPU+" problem state", problems, 0, 0)
	c.show("gpu-device/Reasons for the verdict A", "state reason", reasons, 0, 0)
	rank := func(g *gpuNow) (float64, bool) { state, _ := rules.healthOf(g); return healthRanks[state], true }
	c.show("gpu-node/GPUs of the node A", perGPU, rules.sum(perGPU, rank), 0, 0)
	gravest := slices.Max(append(slices.Collect(maps.Values(byGPU.of)), 0))
	c.show("gpu-device/Health A", "", values{of: map[string]float64{"": gravest}}, 0, 0)
	c.show("gpu-fleet/Unhealthy A", "", values{of: map[string]float64{"": float64(len(byGPU.of))}}, 0, 0)
	c.show("gpu-health/Unhealthy A", "", values{of: map[string]float64{"": float64(len(byGPU.of))}}, 0, 0)
	for state, tile := range map[gpu.HealthState]string{gpu.Lost: "Lost", gpu.Replace: "Replace", gpu.NeedsReboot: "Reboot",
		gpu.NeedsReset: "Reset", gpu.Unknown: "Unknown", gpu.Degraded: "Degraded"} {
		c.show("gpu-health/"+tile+" A", "", values{of: map[string]float64{"": states[state]}}, 0, 0)
	}
	for by, title := range map[string]string{"pool": "Node pools", "zone": "Zones", "rack": "Racks"} {
		c.show("gpu-fleet/"+title+" J", by, part[by], 0, 0)
	}
	c.show("gpu-health/Nodes with limited clocks A", "cluster node reason",
		limited.only(func(_ string, v float64) bool { return v > 0.01 }), 0.002, 1e-6)
	c.show("gpu-node/GPUs of the node I", perGPU, worst, 0.002, 1e-6)
	c.show("gpu-node/Temperature margin A", "", values{of: map[string]float64{"": headroom}}, 1e-9, 0)
	c.show("gpu-device/Memory errors A", "memory severity", errs, 0, 0)
	c.show("gpu-exporter/Unmeasured readings A", "reading reason", unmeasured, 0, 0)
	for k := range unmeasured.of {
		unmeasured.of[k] = 1
	}
	c.show("gpu-device/Unmeasured readings A", "reading reason", unmeasured, 0, 0)
	c.show("gpu-device/Recovery A", "action", recovery, 0, 0)
	sources, cordoned := values{of: map[string]float64{}}, 0.0
	for _, n := range rules.nodes {
		for _, x := range n.view.Sources {
			sources.of[x.Name] = max(sources.of[x.Name], oneIf(x.Up))
		}
		cordoned = max(cordoned, rules.kube["kube_node_spec_unschedulable"][n.labels["node"]])
	}
	c.show("gpu-node/Data sources A", "source", sources, 0, 0)
	c.show("gpu-node/Schedulable A", "", values{of: map[string]float64{"": 1 - cordoned}}, 0, 0)
	zero := values{of: map[string]float64{"": 0}}
	for _, tile := range []string{"Down", "Missing", "Unresolved devices", "Error of sums"} { // all nodes respond now
		c.show("gpu-exporter/"+tile+" A", "", zero, 0, 1e-9)
	}
	for _, none := range []string{"gpu-exporter/Containers using unallocated GPUs A", "gpu-exporter/Failed calls in range A",
		"gpu-exporter/Implausible values in range A", "gpu-capacity/Allocated in 14 days A", "gpu-workload/Last termination reason A"} {
		c.show(none, "", values{}, 0, 0) // the fleet has none of it
	}
}

// unscripted are the tiles and columns without an independent value, with the reason.
func unscripted() map[string]string {
	out := map[string]string{}
	list := func(reason string, columns ...string) {
		for _, c := range columns {
			at := strings.LastIndex(c, " ")
			for _, ref := range c[at+1:] {
				out[c[:at]+" "+string(ref)] = reason
			}
		}
	}
	list("TestStories and test/rules simulate alerts; this fleet's are not evaluated", "gpu-fleet/Alerts firing ABC",
		"gpu-device/Alerts firing ABC", "gpu-node/Alerts firing ABC", "gpu-fleet/Nodes by alerts ABCD", "gpu-fleet/Firing GPU alerts AB",
		"gpu-health/Firing GPU alerts AB", "gpu-node/Firing GPU alerts AB", "gpu-device/Firing GPU alerts AB",
		"gpu-workload/Firing GPU alerts AB", "gpu-namespace/Workloads K")
	list("TestEventsAddUp compares events with the counters", "gpu-device/XID events A", "gpu-device/XIDs AB",
		"gpu-workload/XIDs of their GPUs A", "gpu-health/XID events A",
		"gpu-health/XIDs by node A", "gpu-health/Memory errors by node A", "gpu-node/GPUs of the node J")
	list("test/rules has the values of the record by hand", "gpu-sharing/Containers that use more than they requested ABCDEF",
		"gpu-capacity/Underused workloads AB", "gpu-namespace/Workloads HI", "gpu-workload/Busy, no work A")
	list("the fleet has no series of processes and scrapes; TestDashboardsOnPrometheus has them", "gpu-exporter/Exporters CDEFG")
	list("the fleet's histograms of driver calls are not scraped here", "gpu-exporter/Slowest calls AB")
	list("of all workloads there are no others; TestWellUsedIsNoWaste chooses one", "gpu-workload/Others on their GPUs A")
	list("over all GPUs it is no GPU's; gpu-node/Temperature margin has the same readings", "gpu-device/Temperature margin A")
	return out
}

// complete requires that each tile and column of each dashboard is compared, or has a reason not to be.
func (c comparison) complete() {
	c.Helper()
	reasons := unscripted()
	for _, column := range slices.Sorted(maps.Keys(c.cells)) {
		switch reason := reasons[column]; {
		case c.compared[column] && reason != "":
			c.Errorf("%s is compared, and listed as: %s", column, reason)
		case !c.compared[column] && reason == "":
			c.Errorf("%s is not compared with the script: add its value, or list it with a reason", column)
		}
	}
	for column := range reasons {
		if _, ok := c.cells[column]; !ok {
			c.Errorf("no dashboard has the column %s, which is listed without a value", column)
		}
	}
}
