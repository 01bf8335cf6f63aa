package fleet

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

const (
	fastPoll    = 2 * second
	mediumPoll  = 10 * second
	slowPoll    = minute
	kubeletPoll = 10 * second
	driverBytes = 2 * mib // used by the driver on an unallocated GPU
)

// View returns what the exporter of a node would have published at a time; nil while it does not respond. It must not
// be changed.
func (f *Fleet) View(i int, at time.Time) *gpu.View {
	n, t := f.nodes[i], f.stamp(at)
	p := n.rack.plan(n.rack.cycleAt(t))
	np := &p.nodes[n.at]
	for _, g := range np.gaps {
		if g.contains(t) {
			return nil
		}
	}
	n.mu.Lock()
	counters := n.allCounters(p, t)
	n.mu.Unlock()
	return n.view(p, np, t, counters)
}

func (n *node) view(p *plan, np *nodePlan, t stamp, all []*counters) *gpu.View {
	started := np.started(t)
	v := &gpu.View{
		At: n.rack.fleet.time(t), Node: n.name, Build: gpu.Build{Version: "1.0.0", Revision: "standin",
			GoVersion: "go1.26"},
		System: gpu.Some(np.release.system), Devices: map[gpu.DeviceState]int{}, Ownership: true,
		PollGroups: []gpu.PollHealth{
			{PollGroup: gpu.PollFast, Interval: 2 * time.Second, Duration: gpu.Some(n.pollDuration(t, 1, 4*time.Millisecond))},
			{PollGroup: gpu.PollMedium, Interval: 10 * time.Second, Duration: gpu.Some(n.pollDuration(t, 2, 9*time.Millisecond))},
			{PollGroup: gpu.PollSlow, Interval: time.Minute, Duration: gpu.Some(n.pollDuration(t, 3, 16*time.Millisecond))},
			{PollGroup: gpu.PollKubelet, Interval: 10 * time.Second, Duration: gpu.Some(n.pollDuration(t, 4, 3*time.Millisecond))},
		},
		Features: features(n.rack.pool.Hidden),
		Paused:   []gpu.Pause{{Reason: "mig_change"}},
		Calls:    n.calls(started, t),
	}
	v.GPUs = make([]gpu.GPU, len(n.gpus))
	pods := map[*pod]bool{}
	allocated, offered := map[string]int{}, map[string]int{}
	for i := range n.gpus {
		pl := n.place(np, i)
		n.fill(&v.GPUs[i], i, pl, t, all[i])
		v.Devices[v.GPUs[i].State]++
		n.containers(v, i, pl, t, all[i], pods)
		for slot := range pl.shares {
			r := n.rack.resource(slot)
			if v.GPUs[i].State == gpu.DeviceUp {
				offered[r]++
			} else {
				offered[r] += 0
			}
			if pl.current(slot, t) != nil {
				allocated[r]++
			}
		}
	}
	for _, r := range slices.Sorted(maps.Keys(offered)) {
		v.Resources = append(v.Resources, gpu.ResourceCount{Resource: r, Allocatable: gpu.Some(offered[r]),
			Allocated: allocated[r]})
	}
	for pod := range pods {
		v.Pods = append(v.Pods, gpu.PodRef{Namespace: pod.of.namespace, Pod: pod.name, UID: pod.uid(),
			Meta: &gpu.PodMeta{WorkloadType: pod.of.kind, Workload: pod.of.name}})
	}
	slices.SortFunc(v.Pods, func(a, b gpu.PodRef) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Pod, b.Pod))
	})
	byContainer := func(a, b gpu.Container, x, y gpu.UUID) int {
		return cmp.Or(a.Compare(b), strings.Compare(string(x), string(y)))
	}
	slices.SortFunc(v.Containers, func(a, b gpu.ContainerGPU) int {
		return byContainer(a.Container, b.Container, a.GPU, b.GPU)
	})
	slices.SortFunc(v.Allocations, func(a, b gpu.ContainerAllocation) int {
		return byContainer(a.Container, b.Container, a.GPU, b.GPU)
	})

	v.Accounts = gpu.Some(gpu.Accounts{Own: len(v.Containers), Limit: 1000})
	v.Sources = n.sources(np, t, v.PollGroups)
	return v
}

func (n *node) sources(np *nodePlan, t stamp, groups []gpu.PollHealth) []gpu.Source {
	started := np.started(t)
	kubelet := gpu.Source{Name: gpu.SourcePodResources, Up: true,
		LastSuccess: gpu.Some(n.rack.fleet.time(t.floor(kubeletPoll))), Duration: groups[3].Duration}
	for _, w := range np.kubeletDown {
		if w.to > started && w.from < t {
			kubelet.Errors += uint64((min(t, w.to) - max(started, w.from)) / kubeletPoll)
		}
		if w.contains(t) {
			kubelet.Up, kubelet.LastSuccess, kubelet.Message = false, gpu.Some(n.rack.fleet.time(w.from)),
				"the kubelet does not respond on its pod-resources socket"
		}
	}
	return []gpu.Source{
		{Name: gpu.SourceNVML, Up: true, LastSuccess: gpu.Some(n.rack.fleet.time(t.floor(fastPoll))),
			Duration: groups[0].Duration},
		{Name: gpu.SourceEvents, Up: true, LastSuccess: gpu.Some(n.rack.fleet.time(t.floor(second)))},
		kubelet,
	}
}

// pollDuration draws a poll group's duration.
func (n *node) pollDuration(t stamp, slot uint64, typical time.Duration) time.Duration {
	return time.Duration(float64(typical) * (0.8 + 0.6*noise(uint64(n.index), slot, uint64(t.floor(minute)))))
}

func features(hidden bool) []gpu.Feature {
	processes := gpu.FeatureOn
	if hidden {
		processes = gpu.FeatureMissingPermission
	}
	return []gpu.Feature{
		{Name: "ownership", State: gpu.FeatureOn}, {Name: "processes", State: processes, Hint: "Set hostPID: true."},
		{Name: "process_names", State: processes}, {Name: "device_checkpoint", State: gpu.FeatureOff},
		{Name: "pod_metadata", State: gpu.FeatureOn}, {Name: "container_visible", State: gpu.FeatureOff},
		{Name: "kernel_log", State: gpu.FeatureOff},
	}
}

// calls are a few driver calls with their counts since the exporter's start.
func (n *node) calls(started, t stamp) []gpu.CallStats {
	table := []struct {
		call   string
		every  stamp
		bucket int
	}{
		{"nvmlDeviceGetFieldValues", fastPoll, -86}, {"nvmlDeviceGetSamples", fastPoll, -92},
		{"nvmlDeviceGetProcessUtilization", fastPoll, -97},
		{"nvmlDeviceGetComputeRunningProcesses", mediumPoll, -90}, {"nvmlDeviceGetMemoryInfo_v2", mediumPoll, -103},
		{"nvmlDeviceGetTemperature", mediumPoll, -110},
		{"nvmlDeviceGetEnforcedPowerLimit", slowPoll, -112}, {"nvmlDeviceGetCurrPcieLinkWidth", slowPoll, -112},
	}
	out := make([]gpu.CallStats, len(table))
	for i, c := range table {
		count := uint64((t-started)/c.every) * uint64(len(n.gpus))
		rare := count / 20
		h := gpu.Histogram{Count: count, Buckets: []gpu.Bucket{{Index: c.bucket, Count: count - rare},
			{Index: c.bucket + 6, Count: rare}}}
		h.Sum = float64(count-rare)*bucketTop(c.bucket) + float64(rare)*bucketTop(c.bucket+6)
		out[i] = gpu.CallStats{Call: c.call, Duration: h}
	}
	return out
}

// fill fills in one GPU of a view.
func (n *node) fill(out *gpu.GPU, i int, pl *place, t stamp, sum *counters) {
	c := n.gpus[i]
	out.Identity = c.identity
	out.GPUSeconds = make(map[gpu.TimeState]gpu.Seconds, states)
	for u, name := range gpu.TimeStates {
		out.GPUSeconds[name] = countedSeconds(sum.states[u])
	}
	allocated := 0.0
	for slot := range pl.shares {
		if pl.current(slot, t) != nil {
			allocated += pl.shares[slot]
		}
	}
	out.AllocationRatio = gpu.Some(gpu.Ratio(roundShare(allocated)))
	out.XIDs = pl.xids(sum.started, t)
	lost := pl.faultOf(FaultLost, t)
	switch {
	case pl.faultOf(FaultNoDevice, t) != nil:
		out.Identity = gpu.Identity{UUID: gpu.UUID(c.identity.PCI), Index: -1, PCI: c.identity.PCI}
		out.State, out.Message = gpu.DeviceMissing, "on the PCI bus, not in NVML"
		return
	case lost != nil:
		out.State, out.Message = gpu.DeviceFailed, "lost: fell off the bus"
		out.KubeletHealthy = gpu.Some(false)
		out.Taints = []gpu.Taint{{Key: "gpu.nvidia.com/gpu-lost", Value: "true", Effect: "NoExecute"}}
		out.LastRead = map[gpu.PollGroup]time.Time{gpu.PollFast: n.rack.fleet.time(lost.from.floor(fastPoll)),
			gpu.PollMedium: n.rack.fleet.time(lost.from.floor(mediumPoll)),
			gpu.PollSlow:   n.rack.fleet.time(lost.from.floor(slowPoll))}
		if pl.node.release.recovery {
			out.Recovery = gpu.Some(gpu.RecoveryReboot)
		}
		for i, in := range c.layout {
			out.Instances = append(out.Instances,
				gpu.InstanceActivity{Instance: in, AllocationRatio: gpu.Some(allocationRatio(pl.current(i, t)))})
		}
		return
	}
	out.State = gpu.DeviceUp
	out.LastRead = map[gpu.PollGroup]time.Time{gpu.PollFast: n.rack.fleet.time(t.floor(fastPoll)),
		gpu.PollMedium: n.rack.fleet.time(t.floor(mediumPoll)), gpu.PollSlow: n.rack.fleet.time(t.floor(slowPoll))}
	if pl.node.release.recovery {
		out.Recovery = gpu.Some(pl.recovery(t))
	}
	now := pl.loadAt(t)
	recent := &counters{at: max(sum.started, t-minute), started: sum.started, instances: make([]sums, len(c.layout))}
	pl.advance(recent, t, nil)
	mean := now.total
	if recent.dev.observed > 0 {
		mean = min(1, recent.dev.busy/recent.dev.observed)
	}
	out.Fast = gpu.Some(c.fast(pl, t, now, mean))
	medium := c.medium(pl, t, now, mean)
	out.Medium = gpu.Some(medium)
	out.Slow = gpu.Some(c.slowReading(pl, t, now.total > 0))
	out.LinksExpected = pl.rack.board.nvlinks
	out.Activity = activity(pl, sum, t)
	if pl.measured() {
		out.Activity.Mean, out.Activity.Peak = gpu.Some(gpu.Ratio(mean)), gpu.Some(gpu.Ratio(max(mean, recent.peak)))
	}
	for i, in := range c.layout {
		a := gpu.InstanceActivity{Instance: in, Memory: medium.Instances[i].Memory,
			AllocationRatio: gpu.Some(allocationRatio(pl.current(i, t)))}
		if pl.measured() {
			s := &sum.instances[i]
			a.Activity = gpu.Activity{Method: gpu.Some(gpu.MethodGPM), Busy: gpu.Some(countedSeconds(s.busy)),
				Observed: gpu.Some(countedSeconds(s.observed))}
			profiled(&a.Activity, pl.rack.board, s)
		}
		out.Instances = append(out.Instances, a)
	}
	out.Unattributed = pl.unattributed(sum, t, medium)
	for _, quantity := range []string{"busy", "energy", "memory"} { // a test holds that they add up
		if quantity != "busy" || pl.measured() {
			out.AttributionErrors = append(out.AttributionErrors, gpu.AttributionError{Quantity: quantity})
		}
	}
}

func allocationRatio(w *allocation) gpu.Ratio {
	if w != nil {
		return 1
	}
	return 0
}

// roundShare corrects the sum of three thirds to 1.
func roundShare(x float64) float64 {
	if x > 1-1e-9 {
		return 1
	}
	return x
}

func activity(pl *place, s *counters, t stamp) gpu.Activity {
	b := pl.rack.board
	a := gpu.Activity{Energy: gpu.Some(countedJoules(s.energy)), Limited: map[gpu.LimitReason]gpu.Seconds{
		gpu.LimitPowerCap: countedSeconds(s.powerCap), gpu.LimitThermal: 0, gpu.LimitSyncBoost: 0, gpu.LimitBoard: 0,
		gpu.LimitReliability: 0}}
	if b.hopperLimits {
		a.Limited[gpu.LimitSWThermal], a.Limited[gpu.LimitHWThermal],
			a.Limited[gpu.LimitHWPowerBrake] = countedSeconds(s.swThermal), countedSeconds(s.hwThermal),
			countedSeconds(s.powerBrake)
	} else {
		a.Limited[gpu.LimitThermal] = countedSeconds(s.swThermal)
	}
	since := (t - s.started).seconds()
	if b.profiled {
		a.PCIeTransmit, a.PCIeReceive = gpu.Some(since*5e5+s.dev.busy*b.pcieRate), gpu.Some(since*6e5+s.dev.busy*b.pcieRate*2)
	} else {
		a.Unmeasured = []gpu.Unmeasured{{Reading: "pcie_bytes", Reason: "counter_overflow"}}
	}
	if b.nvlinks > 0 {
		a.NVLinkTransmit, a.NVLinkReceive = gpu.Some(s.dev.heavy*b.nvlinkRate), gpu.Some(s.dev.heavy*b.nvlinkRate)
	}
	if !pl.measured() {
		return a
	}
	a.Method = gpu.Some(gpu.MethodRing)
	a.Busy, a.Observed = gpu.Some(countedSeconds(s.dev.busy)), gpu.Some(countedSeconds(s.dev.observed))
	a.LastBusy = gpu.Some(pl.rack.fleet.time(max(s.dev.lastBusy, s.started)))
	if pl.mig() {
		a.Method = gpu.Some(gpu.MethodGPM)
	} else {
		a.MemoryBusy = gpu.Some(countedSeconds(s.dev.memoryBusy))
	}
	if b.profiled {
		profiled(&a, b, &s.dev)
		a.Pipes = map[gpu.Pipe]gpu.Seconds{gpu.PipeFP16: countedSeconds(s.dev.heavy * 0.09),
			gpu.PipeFP32: countedSeconds(s.dev.busy * 0.18),
			gpu.PipeFP64: countedSeconds(s.dev.busy * 0.01), gpu.PipeInteger: countedSeconds(s.dev.busy * 0.12)}
	}
	return a
}

func profiled(a *gpu.Activity, b *board, s *sums) {
	a.Profiled = gpu.Some(countedSeconds(s.observed))
	a.SMActive, a.SMOccupancy = gpu.Some(countedSeconds(s.busy*b.gpmSM)), gpu.Some(countedSeconds(s.busy*b.gpmOccupancy))
	a.TensorActive, a.DRAMActive = gpu.Some(countedSeconds(s.heavy*b.gpmTensor)), gpu.Some(countedSeconds(s.heavy*b.gpmDRAM))
}

// unattributed is what no container accounts for.
func (p *place) unattributed(s *counters, t stamp, m *gpu.Medium) []gpu.Unattributed {
	visible := !p.rack.pool.Hidden
	var out []gpu.Unattributed
	if visible {
		out = append(out, gpu.Unattributed{Reason: gpu.UnattributedDriver, Memory: gpu.Some(p.unattributedMemory(t, m))})
	}
	for i, reason := range reasons {
		if !visible && (reason == gpu.UnattributedHost || reason == gpu.UnattributedUnresolved ||
			reason == gpu.UnattributedUnmeasured && p.measured()) {
			continue
		}
		u := gpu.Unattributed{Reason: reason, Energy: gpu.Some(countedJoules(s.charges[i].energy))}
		if p.measured() && reason != gpu.UnattributedIdle {
			u.Busy = gpu.Some(countedSeconds(s.charges[i].busy))
		}
		if !visible && reason == gpu.UnattributedHidden {
			u.Memory = gpu.Some(p.unattributedMemory(t, m))
		}
		out = append(out, u)
	}
	return out
}

// unattributedMemory is the used memory of no container.
func (p *place) unattributedMemory(t stamp, m *gpu.Medium) gpu.Bytes {
	used := m.Memory.Or(gpu.Memory{}).Used
	for slot := range p.shares {
		if b, ok := p.containerMemory(slot, t).Get(); ok {
			used -= b
		}
	}
	return used
}

// slotMemory is the memory of a slot that a container may use.
func (p *place) slotMemory(slot int) gpu.Bytes {
	b := p.rack.board
	if p.mig() {
		prof, _ := b.profile(p.rack.pool.MIG[slot])
		return prof.memory
	}
	return b.memory - b.reserved - driverBytes
}

// usedMemory is the memory that the container of a slot uses.
func (p *place) usedMemory(slot int, t stamp) gpu.Bytes {
	w := p.current(slot, t)
	if w == nil || !w.process {
		return 0
	}
	part := w.memory
	if t < w.busyFrom && w.of.class != Preallocated {
		part *= 0.1
	}
	return gpu.Bytes(part*float64(p.slotMemory(slot))/float64(mib)) * mib
}

// containerMemory is the memory attributed to it: a container that does not share its GPU has all that is used on it.
func (p *place) containerMemory(slot int, t stamp) gpu.Opt[gpu.Bytes] {
	switch {
	case p.current(slot, t) == nil || p.hidden():
		return gpu.None[gpu.Bytes]()
	case len(p.shares) == 1:
		return gpu.Some(p.usedMemory(slot, t) + driverBytes)
	}
	return gpu.Some(p.usedMemory(slot, t))
}

// containers adds the containers of one GPU to a view.
func (n *node) containers(v *gpu.View, i int, pl *place, t stamp, s *counters, pods map[*pod]bool) {
	dev := &v.GPUs[i]
	lost := dev.State != gpu.DeviceUp
	for k := range s.rows {
		r := &s.rows[k]
		w := r.of
		if w.from > t {
			continue
		}
		ended := w.to <= t
		c := gpu.ContainerGPU{Container: gpu.Container{Namespace: w.pod.of.namespace, Pod: w.pod.name,
			Name: w.pod.container}, GPU: dev.UUID, Index: dev.Index, Ended: ended,
			Allocated: gpu.Some(countedSeconds(r.allocated)), Source: gpu.SourcePodResources,
			Idle: gpu.Some(countedSeconds(r.idle)), Gap: gpu.Some(countedSeconds(r.gap))}
		if w.from >= s.started+kubeletPoll {
			c.Since = gpu.Some(n.rack.fleet.time(w.from))
		}
		attributable := pl.measured() && !pl.hidden()
		if !lost {
			c.Attribution = "none"
			switch {
			case !attributable:
			case pl.mig():
				c.Attribution = "mig"
			case pl.shared():
				c.Attribution = "process"
			default:
				c.Attribution = "exclusive"
			}
			if attributable {
				c.Busy, c.Observed, c.Energy = gpu.Some(countedSeconds(r.busy)), gpu.Some(countedSeconds(r.observed)),
					gpu.Some(countedJoules(r.energy))
			}
		}
		if !ended {
			pods[w.pod] = true
			if attributable {
				c.LastBusy = gpu.Some(n.rack.fleet.time(max(r.lastBusy, w.from, s.started)))
			}
			if !lost {
				c.Memory = pl.containerMemory(r.slot, t)
				if !pl.rack.pool.Hidden {
					c.Processes = gpu.Some(b2i(w.process))
				}
			}
			h := gpu.ContainerAllocation{Index: dev.Index, AllocationRatio: gpu.Some(gpu.Ratio(pl.shares[r.slot])),
				Allocation: gpu.Allocation{Container: c.Container, Resource: w.pod.resource,
					GPU: dev.UUID, Share: gpu.Some(gpu.Ratio(1)), Shared: pl.shared(), Source: gpu.SourcePodResources,
					Since: c.Since}}
			if pl.mig() {
				h.Instance = n.gpus[i].layout[r.slot].UUID
			} else {
				h.Share = gpu.Some(gpu.Ratio(pl.shares[r.slot]))
			}
			if n.at >= n.rack.nodes-n.rack.pool.Limited {
				memory := gpu.Bytes(float64(n.rack.board.memory) * pl.shares[r.slot])
				h.MemoryLimit, h.MemoryGuaranteed, h.ComputeLimit = gpu.Some(memory), gpu.Some(memory), h.Share
			}
			v.Allocations = append(v.Allocations, h)
		}
		v.Containers = append(v.Containers, c)
	}
}
