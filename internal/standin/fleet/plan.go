package fleet

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sort"
	"strings"
)

// maintenance is the end of a cycle, when a rack has no pods.
const maintenance = 20 * minute

// plan is what happens on one rack in one cycle. It is immutable.
type plan struct {
	cycle    int
	from, to stamp
	pods     []*pod // those that are placed, and after them those that wait
	nodes    []nodePlan
}

// nodePlan is what happens on one node.
type nodePlan struct {
	release     release
	gpus        []gpuPlan
	restarts    []stamp // of the exporter, in order; the first begins the cycle
	gaps        []window
	kubeletDown []window // the kubelet does not respond
	pods        []*pod
}

// gpuPlan is what happens on one GPU: for every slot its allocations in order. A slot is the GPU, or one of its
// time-sliced replicas, or one of its MIG devices.
type gpuPlan struct {
	slots  [][]*allocation
	faults []fault
}

type window struct{ from, to stamp }

func (w window) contains(t stamp) bool { return w.from <= t && t < w.to }

// fault is something wrong with one GPU.
type fault struct {
	kind FaultKind
	window
	every stamp // interval of its events
}

// workload is an object that a user created.
type workload struct {
	class           Class
	namespace, kind string
	name            string
	id              uint64
	rack            *rack
	pattern         *pattern
	memory          float64
	intensity       float64
}

// pod is one run of a workload on one node.
type pod struct {
	of               *workload
	name             string
	id               uint64
	node             int // in the rack; -1: it waits
	created, started stamp
	ended            stamp
	count            int
	resource         string
	container        string
	completes        bool // finishes by itself, and its object stays for a while
}

func (p *pod) uid() string { return uid(p.id) }

// allocation is one container on one slot.
type allocation struct {
	*pod
	window
	busyFrom, busyUntil stamp
	scale               float64 // of the pattern's level
	memory              float64 // share of the slot's memory
	process             bool
}

// level is its busy share; it is constant between changes.
func (w *allocation) level(t stamp) float64 {
	if t < w.busyFrom || t >= w.busyUntil || w.scale == 0 {
		return 0
	}
	return w.of.pattern.level(t) * w.scale
}

// rack is a few nodes that are maintained together.
type rack struct {
	fleet  *Fleet
	pool   *Pool
	board  *board
	index  int // in the fleet
	first  int // the first of its nodes in the fleet
	inPool int // the first of its nodes in its pool
	nodes  int
	phase  stamp
}

// slotCount is the number of slots of each GPU.
func (r *rack) slotCount() int {
	switch {
	case len(r.pool.MIG) > 0:
		return len(r.pool.MIG)
	case r.pool.Replicas > 1:
		return r.pool.Replicas
	}
	return 1
}

// resource is the resource name of a slot.
func (r *rack) resource(slot int) string {
	if len(r.pool.MIG) > 0 {
		return "nvidia.com/mig-" + strings.ReplaceAll(r.pool.MIG[slot], "+", ".")
	}
	return "nvidia.com/gpu"
}

// cycleAt returns the number of the cycle at a time.
func (r *rack) cycleAt(t stamp) int {
	return int((t - r.phase).floor(r.fleet.cycle) / r.fleet.cycle)
}

// make plans one cycle.
func (r *rack) make(cycle int) *plan {
	f := r.fleet
	p := &plan{cycle: cycle, from: r.phase + stamp(cycle)*f.cycle}
	p.to = p.from + f.cycle
	random := newRandom(f.seed, 1, uint64(r.index), uint64(cycle))
	behind := random.Float64() < r.pool.Skewed
	p.nodes = make([]nodePlan, r.nodes)
	for n := range p.nodes {
		np := &p.nodes[n]
		np.release = releases()[min(r.pool.Driver+b2i(behind), len(releases())-1)]
		np.gpus = make([]gpuPlan, r.pool.GPUs)
		for c := range np.gpus {
			np.gpus[c].slots = make([][]*allocation, r.slotCount())
		}
		np.restarts = []stamp{p.from}
	}
	l := layout{rack: r, plan: p, random: random, end: p.to - maintenance}
	l.fill()
	l.addPending()
	r.addFaults(p, random)
	p.removeMissing()
	slices.SortStableFunc(p.pods, func(a, b *pod) int { return int(a.created - b.created) })
	for _, pod := range p.pods {
		if pod.node >= 0 {
			p.nodes[pod.node].pods = append(p.nodes[pod.node].pods, pod)
		}
	}
	return p
}

// layout fills the slots of a rack with workloads, one after the other.
type layout struct {
	rack   *rack
	plan   *plan
	random *rand.Rand
	end    stamp
	next   int // the next slot: node, GPU and slot in one number
	count  int
}

// location is a slot of a rack.
type location struct{ node, dev, slot int }

func (l *layout) location(i int) location {
	slots, gpus := l.rack.slotCount(), l.rack.pool.GPUs
	return location{i / (slots * gpus), i / slots % gpus, i % slots}
}

func (l *layout) left() int { return l.rack.nodes*l.rack.pool.GPUs*l.rack.slotCount() - l.next }

// take returns the next slots for a pod, all on one node; it skips the rest of a node that does not suffice.
func (l *layout) take(count int) []location {
	perNode := l.rack.pool.GPUs * l.rack.slotCount()
	count = min(count, perNode)
	if room := perNode - l.next%perNode; room < count {
		l.next += room
	}
	if l.left() < count {
		return nil
	}
	out := make([]location, count)
	for i := range out {
		out[i] = l.location(l.next + i)
	}
	l.next += count
	return out
}

func (l *layout) fill() {
	if l.rack.inPool == 0 {
		for _, place := range l.rack.pool.Fixed {
			l.place(place.Class, place.GPUs, max(1, place.Pods))
		}
	}
	whole := l.rack.slotCount() == 1
	for l.left() > 0 {
		class := draw(l.random, l.rack.pool.Mix)
		b, ok := behaviorOf(class)
		if !ok {
			l.next += 1 + l.random.IntN(2)
			continue
		}
		gpus, pods := 1, 1
		if whole {
			gpus = min(b.gpus[l.random.IntN(len(b.gpus))], l.rack.pool.GPUs)
			if b.gang && gpus == l.rack.pool.GPUs {
				pods = 1 + l.random.IntN(max(1, l.left()/gpus))
			}
			// Fill a node before the next: partly used nodes are rarer than full ones.
			if room := l.rack.pool.GPUs - l.next%l.rack.pool.GPUs; gpus > room && l.random.Float64() < 0.8 {
				gpus = room
			}
		} else if class == Oversubscribed {
			pods = l.rack.slotCount()
			if l.next%pods != 0 {
				l.next++
				continue
			}
		}
		l.place(class, gpus, pods)
	}
}

func draw(random *rand.Rand, mix []Weight) Class {
	total := 0.0
	for _, w := range mix {
		total += w.Weight
	}
	at := random.Float64() * total
	for _, w := range mix {
		if at -= w.Weight; at < 0 {
			return w.Class
		}
	}
	return Free
}

// place allocates slots to the pods of one workload for the whole cycle, run after run.
func (l *layout) place(class Class, gpus, pods int) {
	var where [][]location
	for range pods {
		if s := l.take(gpus); s != nil {
			where = append(where, s)
		}
	}
	b, ok := behaviorOf(class)
	if !ok || len(where) == 0 {
		return
	}
	var w *workload
	at := l.plan.from + span[stamp]{2 * minute, 20 * minute}.draw(l.random)
	if b.life.high < day { // jobs are running already
		at = l.plan.from + 2*minute
	}
	for life := 0; at < l.end-2*minute; life++ {
		if w == nil || b.renew {
			w = l.workload(&b)
		}
		end := min(l.end, at+b.life.draw(l.random))
		for i, locations := range where {
			l.run(&b, w, locations, i, life, at, end)
		}
		at = end + b.pause.draw(l.random)
	}
}

// workload draws a workload.
func (l *layout) workload(b *behavior) *workload {
	l.count++
	id := mix(l.rack.fleet.seed, 2, uint64(l.rack.index), uint64(l.plan.cycle), uint64(l.count))
	level := 0.0
	if b.level.high > 0 {
		level = b.level.draw(l.random)
	}
	w := &workload{class: b.class, namespace: b.namespaces[l.random.IntN(len(b.namespaces))], kind: b.kind, id: id,
		rack:   l.rack,
		memory: b.memory.draw(l.random), intensity: b.intensity.draw(l.random)}
	w.name = fmt.Sprintf("%s-%s", b.names[l.random.IntN(len(b.names))], suffix(id, 5))
	if b.shape != nil {
		w.pattern = b.shape(l.random, level)
	}
	return w
}

// run creates one pod of a workload and its allocations.
func (l *layout) run(b *behavior, w *workload, locations []location, index, life int, from, to stamp) {
	slots := l.rack.slotCount()
	id := mix(w.id, uint64(index), uint64(life))
	p := &pod{of: w, id: id, node: locations[0].node,
		created: from - span[stamp]{2 * second, 40 * second}.draw(l.random), started: from, ended: to,
		count: len(locations), resource: l.rack.resource(locations[0].slot), container: b.container,
		completes: b.kind == "Job" || b.kind == "PyTorchJob"}
	switch b.kind {
	case "Deployment":
		p.name = fmt.Sprintf("%s-%s-%s", w.name, suffix(w.id>>8, 9), suffix(id, 5))
	case "StatefulSet":
		p.name = fmt.Sprintf("%s-%d", w.name, index)
	case "PyTorchJob":
		role := "worker"
		if index == 0 {
			role = "master"
		}
		p.name = fmt.Sprintf("%s-%s-%d", w.name, role, max(0, index-1))
	default:
		p.name = fmt.Sprintf("%s-%s", w.name, suffix(id, 5))
	}
	l.plan.pods = append(l.plan.pods, p)
	loaded := min(to, from+b.load.draw(l.random))
	until := to
	if b.works.high > 0 {
		until = min(to, loaded+stamp(float64(b.life.low)*b.works.draw(l.random)))
	}
	for rank, s := range locations {
		t := &allocation{pod: p, window: window{from, to}, busyFrom: loaded, busyUntil: until, scale: 1,
			memory: w.memory, process: b.processes}
		switch {
		case w.class == Imbalanced && index > 0:
			t.scale = 0.05 // a rank that only waits for the others
		case w.class == Imbalanced && rank > 0 && rank >= (len(locations)+1)/2:
			t.scale = 0
			if rank%2 == 0 {
				t.scale = 0.05
			}
		case w.class == Imbalanced && rank > 0:
			t.scale = 0.6 + 0.4*l.random.Float64()
		case len(locations) > 1:
			t.scale = 1 - 0.02*l.random.Float64()
		}
		if slots > 1 && len(l.rack.pool.MIG) == 0 {
			// Replicas share one GPU: together they cannot be busier than it.
			t.scale /= float64(slots)
			t.memory /= float64(slots)
		}
		if w.pattern == nil || w.class == Loaded || w.class == NeverUsed {
			t.scale = 0
		}
		dev := &l.plan.nodes[s.node].gpus[s.dev]
		dev.slots[s.slot] = append(dev.slots[s.slot], t)
	}
}

// addPending adds the pods that cannot be scheduled.
func (l *layout) addPending() {
	b, _ := behaviorOf(Pending)
	want := l.rack.fleet.config.Pending / 100 * float64(l.rack.nodes*l.rack.pool.GPUs)
	for want > 0 {
		gpus := min(b.gpus[l.random.IntN(len(b.gpus))], l.rack.pool.GPUs)
		if l.rack.slotCount() > 1 {
			gpus = 1
		}
		if want < float64(gpus) && l.random.Float64() > want/float64(gpus) {
			break
		}
		want -= float64(gpus)
		at := l.plan.from
		for life := 0; at < l.plan.to; life++ {
			w := l.workload(&b)
			end := min(l.plan.to, at+b.life.draw(l.random))
			l.plan.pods = append(l.plan.pods, &pod{of: w, id: mix(w.id, 7), name: w.name + "-worker-0", node: -1,
				created: at, started: end, ended: end,
				count: gpus, resource: l.rack.resource(0), container: b.container})
			at = end + b.pause.draw(l.random)
		}
	}
}

// addFaults draws the faults of a cycle.
func (r *rack) addFaults(p *plan, random *rand.Rand) {
	add := func(kind FaultKind, node, dev int, w window) {
		np := &p.nodes[node]
		switch kind {
		case FaultGap:
			np.gaps = append(np.gaps, w)
		case FaultKubelet:
			np.kubeletDown = append(np.kubeletDown, w)
		case FaultRestart:
			np.restarts = append(np.restarts, w.from)
		case FaultOldDriver:
			i := slices.IndexFunc(releases(), func(r release) bool { return r == np.release })
			np.release = releases()[min(i+1, len(releases())-1)]
		default:
			np.gpus[dev].faults = append(np.gpus[dev].faults,
				fault{kind: kind, window: w, every: span[stamp]{20 * minute, 90 * minute}.draw(random)})
		}
	}
	// No exporter responds while a rack restarts.
	for n := range p.nodes {
		p.nodes[n].gaps = append(p.nodes[n].gaps, window{p.to - 6*minute, p.to - 20*second})
	}
	for _, f := range r.pool.Faults {
		if n := f.Node - r.inPool; n >= 0 && n < r.nodes {
			switch f.Kind {
			case FaultGap, FaultKubelet: // some minutes out of every few hours
				for at := p.from + hour; at < p.to-hour; at += 3 * hour {
					add(f.Kind, n, f.GPU, window{at, at + 7*minute})
				}
			case FaultRestart:
				for at := p.from + day; at < p.to-hour; at += day {
					add(f.Kind, n, f.GPU, window{from: at})
				}
			default:
				add(f.Kind, n, f.GPU, window{p.from + 5*minute, p.to})
			}
		}
	}
	for _, kind := range FaultKinds {
		rate := r.pool.Trouble[kind]
		for n := range p.nodes {
			for c := range p.nodes[n].gpus {
				if random.Float64() >= rate {
					continue
				}
				at := p.from + stamp(random.Float64()*float64(p.to-p.from))
				length := span[stamp]{hour, 3 * day}.draw(random)
				switch kind {
				case FaultGap:
					length = span[stamp]{2 * minute, 40 * minute}.draw(random)
				case FaultKubelet:
					length = span[stamp]{2 * minute, 20 * minute}.draw(random)
				case FaultECC, FaultRemap, FaultRemapFail, FaultPCIe, FaultNVLink:
					length = p.to - at
				}
				add(kind, n, c, window{at, min(p.to, at+length)})
			}
		}
	}
	for n := range p.nodes {
		slices.Sort(p.nodes[n].restarts)
		sort.Slice(p.nodes[n].gaps, func(i, j int) bool { return p.nodes[n].gaps[i].from < p.nodes[n].gaps[j].from })
	}
}

// removeMissing removes missing GPUs from the pods they were planned for.
func (p *plan) removeMissing() {
	for n := range p.nodes {
		for c := range p.nodes[n].gpus {
			dev := &p.nodes[n].gpus[c]
			i := slices.IndexFunc(dev.faults, func(f fault) bool { return f.kind == FaultNoDevice })
			if i < 0 {
				continue
			}
			dev.faults[i].window = window{p.from, p.to}
			for slot, list := range dev.slots {
				for _, t := range list {
					t.pod.count--
				}
				dev.slots[slot] = nil
			}
		}
	}
	p.pods = slices.DeleteFunc(p.pods, func(pod *pod) bool { return pod.count == 0 })
}
