package fleet

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

const (
	fastLane    = 2 * second
	mediumLane  = 10 * second
	slowLane    = minute
	kubeletLane = 10 * second
	driverBytes = 2 * mib // what the driver has in use on a card where nobody is
)

// View returns what the exporter of a node would have published at a moment; nil while it does not answer. The
// caller may keep it and must not change it.
func (f *Fleet) View(i int, at time.Time) *gpu.View {
	n, t := f.nodes[i], f.stamp(at)
	p := n.rack.plan(n.rack.cycleAt(t))
	np := &p.nodes[n.at]
	for _, g := range np.gaps {
		if g.holds(t) {
			return nil
		}
	}
	n.mu.Lock()
	tallies := n.tallies(p, t)
	n.mu.Unlock()
	return n.view(p, np, t, tallies)
}

func (n *node) view(p *plan, np *nodePlan, t stamp, tallies []*tally) *gpu.View {
	began := np.began(t)
	v := &gpu.View{
		At: n.rack.fleet.time(t), Node: n.name, Build: gpu.Build{Version: "1.0.0", Revision: "standin", GoVersion: "go1.26"},
		System: gpu.Some(np.release.system), Devices: map[gpu.CardState]int{}, Ownership: true,
		Lanes: []gpu.LaneHealth{
			{Lane: gpu.LaneFast, Interval: 2 * time.Second, Duration: gpu.Some(n.took(t, 1, 4*time.Millisecond))},
			{Lane: gpu.LaneMedium, Interval: 10 * time.Second, Duration: gpu.Some(n.took(t, 2, 9*time.Millisecond))},
			{Lane: gpu.LaneSlow, Interval: time.Minute, Duration: gpu.Some(n.took(t, 3, 16*time.Millisecond))},
			{Lane: gpu.LaneKubelet, Interval: 10 * time.Second, Duration: gpu.Some(n.took(t, 4, 3*time.Millisecond))},
		},
		Features: features(n.rack.pool.Hidden),
		Paused:   []gpu.Pause{{Reason: "mig_change"}},
		Calls:    n.calls(began, t),
	}
	v.Cards = make([]gpu.Card, len(n.cards))
	pods := map[*pod]bool{}
	allocated, offered := map[string]int{}, map[string]int{}
	for i := range n.cards {
		pl := n.place(np, i)
		n.fill(&v.Cards[i], i, pl, t, tallies[i])
		v.Devices[v.Cards[i].State]++
		n.containers(v, i, pl, t, tallies[i], pods)
		for lane := range pl.shares {
			r := n.rack.resource(lane)
			if v.Cards[i].State == gpu.CardUp {
				offered[r]++
			} else {
				offered[r] += 0
			}
			if pl.current(lane, t) != nil {
				allocated[r]++
			}
		}
	}
	for _, r := range sortedKeys(offered) {
		v.Resources = append(v.Resources, gpu.ResourceCount{Resource: r, Allocatable: gpu.Some(offered[r]), Allocated: allocated[r]})
	}
	for pod := range pods {
		v.Pods = append(v.Pods, gpu.PodRef{Namespace: pod.of.namespace, Pod: pod.name, UID: pod.uid(), Meta: &gpu.PodMeta{WorkloadType: pod.of.kind, Workload: pod.of.name}})
	}
	slices.SortFunc(v.Pods, func(a, b gpu.PodRef) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Pod, b.Pod))
	})
	byContainer := func(a, b gpu.Container, x, y gpu.UUID) int {
		return cmp.Or(a.Compare(b), strings.Compare(string(x), string(y)))
	}
	slices.SortFunc(v.Containers, func(a, b gpu.ContainerCard) int { return byContainer(a.Container, b.Container, a.Card, b.Card) })
	slices.SortFunc(v.Holdings, func(a, b gpu.ContainerHolding) int { return byContainer(a.Container, b.Container, a.Card, b.Card) })

	v.Accounts = gpu.Some(gpu.Accounts{Own: len(v.Containers), Limit: 1000})
	kubelet := gpu.Source{Name: gpu.SourcePodResources, Up: true, LastSuccess: gpu.Some(n.rack.fleet.time(t.floor(kubeletLane))), Duration: v.Lanes[3].Duration}
	for _, w := range np.blind {
		if w.to > began && w.from < t {
			kubelet.Errors += uint64((min(t, w.to) - max(began, w.from)) / kubeletLane)
		}
		if w.holds(t) {
			kubelet.Up, kubelet.LastSuccess, kubelet.Message = false, gpu.Some(n.rack.fleet.time(w.from)), "the kubelet does not answer on its pod-resources socket"
		}
	}
	v.Sources = []gpu.Source{
		{Name: gpu.SourceNVML, Up: true, LastSuccess: gpu.Some(n.rack.fleet.time(t.floor(fastLane))), Duration: v.Lanes[0].Duration},
		{Name: gpu.SourceEvents, Up: true, LastSuccess: gpu.Some(n.rack.fleet.time(t.floor(second)))},
		kubelet,
	}
	return v
}

func sortedKeys(m map[string]int) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

// took makes up how long a lane's round took.
func (n *node) took(t stamp, lane uint64, typical time.Duration) time.Duration {
	return time.Duration(float64(typical) * (0.8 + 0.6*noise(uint64(n.index), lane, uint64(t.floor(minute)))))
}

func features(hidden bool) []gpu.Feature {
	processes := gpu.FeatureOn
	if hidden {
		processes = gpu.FeatureLocked
	}
	return []gpu.Feature{
		{Name: "ownership", State: gpu.FeatureOn}, {Name: "processes", State: processes, Hint: "Set hostPID: true."},
		{Name: "process_names", State: processes}, {Name: "device_checkpoint", State: gpu.FeatureLocked},
		{Name: "pod_metadata", State: gpu.FeatureOn}, {Name: "container_visible", State: gpu.FeatureLocked}, {Name: "kernel_log", State: gpu.FeatureLocked},
	}
}

// calls are a few driver calls with their counts since the exporter's start.
func (n *node) calls(began, t stamp) []gpu.CallStats {
	table := []struct {
		call   string
		every  stamp
		bucket int
	}{
		{"nvmlDeviceGetFieldValues", fastLane, -86}, {"nvmlDeviceGetSamples", fastLane, -92}, {"nvmlDeviceGetProcessUtilization", fastLane, -97},
		{"nvmlDeviceGetComputeRunningProcesses", mediumLane, -90}, {"nvmlDeviceGetMemoryInfo_v2", mediumLane, -103}, {"nvmlDeviceGetTemperature", mediumLane, -110},
		{"nvmlDeviceGetEnforcedPowerLimit", slowLane, -112}, {"nvmlDeviceGetCurrPcieLinkWidth", slowLane, -112},
	}
	out := make([]gpu.CallStats, len(table))
	for i, c := range table {
		count := uint64((t-began)/c.every) * uint64(len(n.cards))
		rare := count / 20
		h := gpu.Histogram{Count: count, Buckets: map[int]uint64{c.bucket: count - rare, c.bucket + 6: rare}}
		h.Sum = float64(count-rare)*bucketTop(c.bucket) + float64(rare)*bucketTop(c.bucket+6)
		out[i] = gpu.CallStats{Call: c.call, Duration: h}
	}
	return out
}

// fill completes one card of a view.
func (n *node) fill(out *gpu.Card, i int, pl *place, t stamp, sum *tally) {
	c := n.cards[i]
	out.Identity = c.identity
	out.CardSeconds = make(map[gpu.Use]gpu.Seconds, uses)
	for u, name := range gpu.Uses {
		out.CardSeconds[name] = countedSeconds(sum.uses[u])
	}
	held := 0.0
	for lane := range pl.shares {
		if pl.current(lane, t) != nil {
			held += pl.shares[lane]
		}
	}
	out.Allocation = gpu.Some(gpu.Ratio(snap(held)))
	out.XIDs = pl.xids(sum.began, t)
	lost := pl.broken(FaultLost, t)
	switch {
	case pl.broken(FaultNoDevice, t) != nil:
		out.Identity = gpu.Identity{UUID: gpu.UUID(c.identity.PCI), Index: -1, PCI: c.identity.PCI}
		out.State, out.Why = gpu.CardMissing, "on the PCI bus, not in NVML"
		return
	case lost != nil:
		out.State, out.Why = gpu.CardFailed, "lost: fell off the bus"
		out.LastRead = map[gpu.Lane]time.Time{gpu.LaneFast: n.rack.fleet.time(lost.from.floor(fastLane)), gpu.LaneMedium: n.rack.fleet.time(lost.from.floor(mediumLane)), gpu.LaneSlow: n.rack.fleet.time(lost.from.floor(slowLane))}
		if pl.node.release.recovery {
			out.Recovery = gpu.Some(gpu.RecoveryReboot)
		}
		for i, in := range c.layout {
			out.Instances = append(out.Instances, gpu.InstanceActivity{Instance: in, Allocation: gpu.Some(heldRatio(pl.current(i, t)))})
		}
		return
	}
	out.State = gpu.CardUp
	out.LastRead = map[gpu.Lane]time.Time{gpu.LaneFast: n.rack.fleet.time(t.floor(fastLane)), gpu.LaneMedium: n.rack.fleet.time(t.floor(mediumLane)), gpu.LaneSlow: n.rack.fleet.time(t.floor(slowLane))}
	if pl.node.release.recovery {
		out.Recovery = gpu.Some(pl.recovery(t))
	}
	now := pl.instant(t)
	recent := &tally{at: max(sum.began, t-minute), began: sum.began, instances: make([]sums, len(c.layout))}
	pl.advance(recent, t, nil)
	mean := now.total
	if recent.card.observed > 0 {
		mean = min(1, recent.card.busy/recent.card.observed)
	}
	out.Fast = gpu.Some(c.fast(pl, t, now, mean))
	medium := c.medium(pl, t, now, mean)
	out.Medium = gpu.Some(medium)
	out.Slow = gpu.Some(c.slowReading(pl, t, now.total > 0))
	out.Activity = activity(pl, sum, t)
	if pl.measured() {
		out.Activity.Mean, out.Activity.Peak = gpu.Some(gpu.Ratio(mean)), gpu.Some(gpu.Ratio(max(mean, recent.peak)))
	}
	for i, in := range c.layout {
		a := gpu.InstanceActivity{Instance: in, Memory: medium.Instances[i].Memory, Allocation: gpu.Some(heldRatio(pl.current(i, t)))}
		if pl.measured() {
			s := &sum.instances[i]
			a.Activity = gpu.Activity{Method: gpu.Some(gpu.MethodGPM), Busy: gpu.Some(countedSeconds(s.busy)), Observed: gpu.Some(countedSeconds(s.observed))}
			profiled(&a.Activity, pl.rack.board, s)
		}
		out.Instances = append(out.Instances, a)
	}
	out.Unattributed = pl.unattributed(sum, t, medium)
	out.Closing = pl.closing(sum)
}

func heldRatio(w *tenancy) gpu.Ratio {
	if w != nil {
		return 1
	}
	return 0
}

// snap undoes what adding thirds does to one.
func snap(x float64) float64 {
	if x > 1-1e-9 {
		return 1
	}
	return x
}

func activity(pl *place, s *tally, t stamp) gpu.Activity {
	b := pl.rack.board
	a := gpu.Activity{Energy: gpu.Some(countedJoules(s.energy)), Limited: map[gpu.LimitReason]gpu.Seconds{
		gpu.LimitPowerCap: countedSeconds(s.capped), gpu.LimitThermal: 0, gpu.LimitSyncBoost: 0, gpu.LimitBoard: 0, gpu.LimitReliability: 0}}
	if b.hopperLimits {
		a.Limited[gpu.LimitSWThermal], a.Limited[gpu.LimitHWThermal], a.Limited[gpu.LimitHWPowerBrake] = countedSeconds(s.heated), countedSeconds(s.hardHeated), countedSeconds(s.braked)
	} else {
		a.Limited[gpu.LimitThermal] = countedSeconds(s.heated)
	}
	since := (t - s.began).seconds()
	if pl.node.release.traffic {
		a.PCIeTransmit, a.PCIeReceive = gpu.Some(since*5e5+s.card.busy*b.pcieRate), gpu.Some(since*6e5+s.card.busy*b.pcieRate*2)
	}
	if b.nvlinks > 0 {
		a.NVLinkTransmit, a.NVLinkReceive = gpu.Some(s.card.heavy*b.nvlinkRate), gpu.Some(s.card.heavy*b.nvlinkRate)
	}
	if !pl.measured() {
		return a
	}
	a.Method = gpu.Some(gpu.MethodRing)
	a.Busy, a.Observed = gpu.Some(countedSeconds(s.card.busy)), gpu.Some(countedSeconds(s.card.observed))
	a.LastBusy = gpu.Some(pl.rack.fleet.time(max(s.card.lastBusy, s.began)))
	if pl.mig() {
		a.Method = gpu.Some(gpu.MethodGPM)
	} else {
		a.MemoryBusy = gpu.Some(countedSeconds(s.card.memoryBusy))
	}
	if b.profiled {
		profiled(&a, b, &s.card)
		a.Pipes = map[gpu.Pipe]gpu.Seconds{gpu.PipeFP16: countedSeconds(s.card.heavy * 0.09), gpu.PipeFP32: countedSeconds(s.card.busy * 0.18),
			gpu.PipeFP64: countedSeconds(s.card.busy * 0.01), gpu.PipeInteger: countedSeconds(s.card.busy * 0.12)}
	}
	return a
}

func profiled(a *gpu.Activity, b *board, s *sums) {
	a.Profiled = gpu.Some(countedSeconds(s.observed))
	a.SMActive, a.SMOccupancy = gpu.Some(countedSeconds(s.busy*b.gpmSM)), gpu.Some(countedSeconds(s.busy*b.gpmOccupancy))
	a.TensorActive, a.DRAMActive = gpu.Some(countedSeconds(s.heavy*b.gpmTensor)), gpu.Some(countedSeconds(s.heavy*b.gpmDRAM))
}

// unattributed closes the sums of a card.
func (p *place) unattributed(s *tally, t stamp, m *gpu.Medium) []gpu.Unattributed {
	visible := !p.rack.pool.Hidden
	var out []gpu.Unattributed
	if visible {
		out = append(out, gpu.Unattributed{Reason: gpu.UnattributedDriver, Memory: gpu.Some(p.loose(t, m))})
	}
	for i, reason := range reasons {
		if !visible && (reason == gpu.UnattributedHost || reason == gpu.UnattributedUnresolved || reason == gpu.UnattributedUnmeasured && p.measured()) {
			continue
		}
		u := gpu.Unattributed{Reason: reason, Energy: gpu.Some(countedJoules(s.bills[i].energy))}
		if p.measured() && reason != gpu.UnattributedIdle {
			u.Busy = gpu.Some(countedSeconds(s.bills[i].busy))
		}
		if !visible && reason == gpu.UnattributedHidden {
			u.Memory = gpu.Some(p.loose(t, m))
		}
		out = append(out, u)
	}
	return out
}

// loose is the memory in use that is no container's.
func (p *place) loose(t stamp, m *gpu.Medium) gpu.Bytes {
	used := m.Memory.Or(gpu.Memory{}).Used
	for lane := range p.shares {
		if b, ok := p.containerMemory(lane, t).Get(); ok {
			used -= b
		}
	}
	return used
}

// closing computes by how much the sums fail.
func (p *place) closing(s *tally) []gpu.ClosingError {
	var out []gpu.ClosingError
	add := func(quantity string, device, given float64) {
		e := 0.0
		if d := max(device-given, given-device); d > 1e-9*max(1, device) {
			e = d / max(device, 1e-9)
		}
		out = append(out, gpu.ClosingError{Quantity: quantity, Ratio: gpu.Ratio(e)})
	}
	if p.measured() {
		add("busy", s.card.busy, s.given.busy)
	}
	add("energy", s.energy, s.given.energy)
	return append(out, gpu.ClosingError{Quantity: "memory"})
}

// laneMemory is the memory of a lane that a container may use.
func (p *place) laneMemory(lane int) gpu.Bytes {
	b := p.rack.board
	if p.mig() {
		prof, _ := b.profile(p.rack.pool.MIG[lane])
		return prof.memory
	}
	return b.memory - b.reserved - driverBytes
}

// use is what the container on a lane has in memory.
func (p *place) use(lane int, t stamp) gpu.Bytes {
	w := p.current(lane, t)
	if w == nil || !w.process {
		return 0
	}
	part := w.memory
	if t < w.worksFrom && w.of.class != Preallocated {
		part *= 0.1
	}
	return gpu.Bytes(part*float64(p.laneMemory(lane))/float64(mib)) * mib
}

// containerMemory is what is told of it: the sole holder of a card has all that is in use on it.
func (p *place) containerMemory(lane int, t stamp) gpu.Opt[gpu.Bytes] {
	switch {
	case p.current(lane, t) == nil || p.blind():
		return gpu.None[gpu.Bytes]()
	case len(p.shares) == 1:
		return gpu.Some(p.use(lane, t) + driverBytes)
	}
	return gpu.Some(p.use(lane, t))
}

// containers adds the containers of one card to a view.
func (n *node) containers(v *gpu.View, i int, pl *place, t stamp, s *tally, pods map[*pod]bool) {
	card := &v.Cards[i]
	lost := card.State != gpu.CardUp
	for k := range s.rows {
		r := &s.rows[k]
		w := r.of
		if w.from > t {
			continue
		}
		gone := w.to <= t
		c := gpu.ContainerCard{Container: gpu.Container{Namespace: w.pod.of.namespace, Pod: w.pod.name, Name: w.pod.container}, Card: card.UUID, Index: card.Index, Gone: gone,
			Held: gpu.Some(countedSeconds(r.held)), Source: gpu.SourcePodResources, Idle: gpu.Some(countedSeconds(r.idle)), Underused: gpu.Some(countedSeconds(r.underused))}
		if w.from >= s.began+kubeletLane {
			c.Since = gpu.Some(n.rack.fleet.time(w.from))
		}
		told := pl.measured() && !pl.blind()
		if !lost {
			c.Attribution = "none"
			switch {
			case !told:
			case pl.mig():
				c.Attribution = "mig"
			case pl.shared():
				c.Attribution = "process"
			default:
				c.Attribution = "exclusive"
			}
			if told {
				c.Busy, c.Observed, c.Energy = gpu.Some(countedSeconds(r.busy)), gpu.Some(countedSeconds(r.observed)), gpu.Some(countedJoules(r.energy))
			}
		}
		if !gone {
			pods[w.pod] = true
			if told {
				c.LastBusy = gpu.Some(n.rack.fleet.time(max(r.lastBusy, w.from, s.began)))
			}
			if !lost {
				c.Memory = pl.containerMemory(r.lane, t)
				if !pl.rack.pool.Hidden {
					c.Processes = gpu.Some(b2i(w.process))
				}
			}
			h := gpu.ContainerHolding{Index: card.Index, Allocation: gpu.Some(gpu.Ratio(pl.shares[r.lane])), Holding: gpu.Holding{Container: c.Container, Resource: w.pod.resource,
				Card: card.UUID, Share: gpu.Some(gpu.Ratio(1)), Shared: pl.shared(), Source: gpu.SourcePodResources, Since: c.Since}}
			if pl.mig() {
				h.Instance = n.cards[i].layout[r.lane].UUID
			} else {
				h.Share = gpu.Some(gpu.Ratio(pl.shares[r.lane]))
			}
			v.Holdings = append(v.Holdings, h)
		}
		v.Containers = append(v.Containers, c)
	}
}
