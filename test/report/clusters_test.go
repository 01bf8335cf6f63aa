package report_test

import (
	"cmp"
	"flag"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/report"
	"github.com/gpu-exporter/gpu-exporter/report/document"
	"github.com/gpu-exporter/gpu-exporter/report/reporttest"
)

// What is in this file shares no code with the report: clusters whose script is known are drawn, and what the report recommends with
// medium or high confidence is carried out by a scheduler of its own, which knows kinds, memory, pools and time-slicing.

const (
	clusterHours = 28 * 24
	budget       = 0.001
	giB          = float64(1 << 30)
)

var clusters = flag.Int("clusters", 50, "clusters of TestGeneratedClusters")

// pooled are nodes on which the same pods may run.
type pooled struct {
	name, model string
	nodes, gpus int
	memory      float64 // of a GPU
	label       string  // of its nodes, if there are any
	parts       int     // of each GPU, if all are time-sliced
}

// owned is a workload of the script.
type owned struct {
	kind, name string
	pool       *pooled
	gpus       int     // of each pod
	part       float64 // of a GPU, of each pod; 0 is whole ones
	// apart is true if no two pods may be on one node, bound if each stays on its node.
	apart, bound bool
	memory       func(pod, gpu int) float64
	use          func(hour, pod, gpu int) float64
	pods         []*ranPod
}

// ranPod is a pod of the script, and where it ran.
type ranPod struct {
	of       *owned
	number   int
	from, to int // hours
	gpus     int
	part     float64
	slots    int // of eight of a partitioned GPU
	node     int
	devices  []int
}

func (p *ranPod) name() string { return fmt.Sprintf("%s-%d", p.of.name, p.number) }

// replicated are the kinds whose pods are replicas of each other; ranked those whose pods start together.
var (
	replicated = []string{"Deployment", "ReplicaSet", "Rollout", "KnativeService", "InferenceService"}
	ranked     = []string{"PyTorchJob", "LeaderWorkerSet", "JobSet", "Job", "RayCluster", "VolcanoJob"}
)

// machine is a node while pods are placed.
type machine struct {
	pool    *pooled
	bare    bool // it offers whole GPUs alone
	part    float64
	devices [][]*ranPod
	gone    bool
}

func (m *machine) free() (n int) {
	for _, d := range m.devices {
		if len(d) == 0 {
			n++
		}
	}
	return n
}

// fits returns the GPUs that a pod would get.
func (m *machine) fits(p *ranPod) []int {
	if m.gone || m.pool != p.of.pool || (p.part > 0) == m.bare && p.slots == 0 || p.slots > 0 && !m.bare ||
		p.part > 0 && m.part > 0 && p.part > m.part+1e-9 {
		return nil
	}
	var got []int
	for i, d := range m.devices {
		taken := 0.0
		for _, o := range d {
			if p.of.apart && o.of == p.of {
				return nil
			}
			switch {
			case p.part > 0 && o.part > 0:
				taken += max(m.part, p.part)
			case p.slots > 0 && o.slots > 0:
				taken += float64(o.slots) / 8
			default:
				taken = 1
			}
		}
		need := 1.0
		if p.part > 0 {
			need = max(m.part, p.part)
		} else if p.slots > 0 {
			need = float64(p.slots) / 8
		}
		if taken+need < 1.0001 && len(got) < p.gpus {
			got = append(got, i)
		}
	}
	if len(got) < p.gpus {
		return nil
	}
	return got
}

// placing is an order in which a scheduler prefers nodes.
type placing func(m *machine, p *ranPod, number int) int

// place runs pods hour after hour; each waits until there is room for it, and with the others of its gang. It returns by workload the
// pod-hours that were waited for, and what is wrong on shared GPUs.
func place(machines []*machine, pods []*ranPod, prefer placing, keep bool) (late map[string]float64, crowded string) {
	first := func(is bool) int { return map[bool]int{true: 0, false: 1}[is] }
	slices.SortStableFunc(pods, func(x, y *ranPod) int {
		return cmp.Or(x.from-y.from, first(x.of.bound)-first(y.of.bound), cmp.Compare(y.gpus, x.gpus), cmp.Compare(y.part, x.part),
			first(x.of.apart)-first(y.of.apart), strings.Compare(x.of.name, y.of.name), x.number-y.number)
	})
	late, crowded = map[string]float64{}, ""
	var waiting, running []*ranPod
	for hour, next := 0, 0; hour < clusterHours; hour++ {
		running = slices.DeleteFunc(running, func(p *ranPod) bool {
			if p.to > hour {
				return false
			}
			for _, d := range p.devices {
				of := &machines[p.node].devices[d]
				*of = slices.DeleteFunc(*of, func(o *ranPod) bool { return o == p })
			}
			return true
		})
		for ; next < len(pods) && pods[next].from <= hour; next++ {
			waiting = append(waiting, pods[next])
		}
		var left []*ranPod
		for len(waiting) > 0 {
			n := 1
			for n < len(waiting) && slices.Contains(ranked, waiting[0].of.kind) && waiting[n].of == waiting[0].of {
				n++
			}
			gang := waiting[:n]
			waiting = waiting[n:]
			for i, p := range gang {
				best := -1
				var got []int
				for k, m := range machines {
					if p.of.bound && k != p.node {
						continue
					}
					if of := m.fits(p); of != nil && (best < 0 || prefer(m, p, k) < prefer(machines[best], p, best)) {
						best, got = k, of
					}
				}
				if best < 0 {
					for _, o := range gang[:i] {
						for _, d := range o.devices {
							of := &machines[o.node].devices[d]
							*of = slices.DeleteFunc(*of, func(x *ranPod) bool { return x == o })
						}
					}
					running = running[:len(running)-i]
					left = append(left, gang...)
					break
				}
				p.node, p.devices = best, got
				if m := machines[best]; p.part > 0 && m.part == 0 {
					m.part = p.part // all GPUs of the node have parts of one size
				}
				for _, d := range got {
					machines[best].devices[d] = append(machines[best].devices[d], p)
				}
				running = append(running, p)
			}
		}
		for _, p := range left {
			if p.to > hour {
				late[p.of.name] += float64(p.gpus)
				waiting = append(waiting, p)
			}
		}
		if keep {
			continue
		}
		for k, m := range machines {
			for _, d := range m.devices {
				memory := 0.0
				for _, p := range d {
					if p.part > 0 {
						memory += p.of.memory(p.number, 0)
					}
				}
				if memory > m.pool.memory {
					crowded = fmt.Sprintf("%.0f GiB of %.0f on a GPU of node %d", memory/giB, m.pool.memory/giB, k)
				}
			}
		}
	}
	return late, crowded
}

// preferences are those of schedulers: what none of them can place is refuted.
func preferences(r *rand.Rand) []placing {
	fullest := func(m *machine, _ *ranPod, number int) int { return m.free()*1000 + number }
	list := []placing{fullest, func(m *machine, _ *ranPod, number int) int { return number - m.free()*1000 },
		func(m *machine, _ *ranPod, number int) int { return number },
		func(m *machine, p *ranPod, number int) int { // as it ran
			return fullest(m, p, number) - map[bool]int{true: 1_000_000}[number == p.node]
		}}
	for range 5 {
		weights := make([]int, 256)
		for i := range weights {
			weights[i] = r.IntN(1000)
		}
		list = append(list, func(m *machine, p *ranPod, number int) int { return m.free()*300 + weights[number] })
	}
	return list
}

// cluster is a script.
type cluster struct {
	pools  []*pooled
	owners []*owned
}

// nodes are its nodes, without some.
func (c *cluster) machines(without []string) (out []*machine, names []string) {
	for _, p := range c.pools {
		for i := range p.nodes {
			name := fmt.Sprintf(p.name, i)
			m := &machine{pool: p, bare: p.parts == 0, devices: make([][]*ranPod, p.gpus), gone: slices.Contains(without, name)}
			if p.parts > 0 {
				m.part = 1 / float64(p.parts)
			}
			out, names = append(out, m), append(names, name)
		}
	}
	return out, names
}

// drawCluster draws pools and workloads, and lets them run.
func drawCluster(r *rand.Rand) *cluster {
	c := &cluster{}
	models := []struct {
		name   string
		memory float64
	}{{"NVIDIA H100 80GB HBM3", 80 * giB}, {"NVIDIA L40S", 48 * giB}, {"NVIDIA RTX 6000 Ada Generation", 48 * giB}}
	for i := range 2 + r.IntN(3) {
		m := models[r.IntN(len(models))]
		p := &pooled{name: fmt.Sprintf("pool%c-%%03d", 'a'+i), model: m.name, memory: m.memory, nodes: 3 + r.IntN(5),
			gpus: []int{4, 8}[r.IntN(2)]}
		switch r.IntN(4) {
		case 0: // without a label and a number: two regions look alike but for the domain
			p.name = fmt.Sprintf("ip-10-%d-0-%%d.%s.compute.internal", i, []string{"eu-west-1", "us-east-1", "ap-south-1", "eu-north-1"}[i])
		case 1:
			p.parts = 4
			fallthrough
		default:
			p.label = fmt.Sprint("pool-", i)
		}
		c.pools = append(c.pools, p)
	}
	list := preferences(r)
	machines, _ := c.machines(nil)
	var pods []*ranPod
	for i := range 12 + r.IntN(14) {
		pool := c.pools[r.IntN(len(c.pools))]
		w := &owned{name: fmt.Sprintf("w%02d", i), pool: pool, gpus: 1}
		level, start, width, phase := 0.01+0.12*r.Float64(), r.IntN(24), 4+r.IntN(8), r.IntN(89)
		noise := func(hour int) float64 { return 0.92 + 0.16*float64((hour*53+phase)%89)/89 }
		daily := func(hour int) float64 {
			if (hour+24-start)%24 < width {
				return level * noise(hour)
			}
			return level * noise(hour) / 6
		}
		w.use = func(hour, _, _ int) float64 { return daily(hour) }
		own := (2 + 14*r.Float64()) * giB
		w.memory = func(int, int) float64 { return own }
		count, from, to := 1, 0, clusterHours
		switch shape := r.IntN(12); {
		case pool.parts > 0: // parts alone
			w.kind, w.part, count = "Deployment", 1/float64(pool.parts), 1+r.IntN(3)
			own = min(own, pool.memory/float64(pool.parts)*0.9)
		case shape < 3: // replicas of a service, or shards of data that look like them
			w.kind, count = replicated[r.IntN(len(replicated))], 3+r.IntN(6)
			switch r.IntN(4) {
			case 0:
				w.kind = "StatefulSet"
				fallthrough
			case 1:
				step := (2 + 4*r.Float64()) * giB
				w.memory = func(pod, _ int) float64 { return own + float64(pod)*step }
			case 2:
				w.apart, count = true, min(count, pool.nodes)
			default:
				own = 0.8 * pool.memory
			}
		case shape < 6: // ranks of one job, which wait for each other
			w.kind, w.gpus, count = ranked[r.IntN(len(ranked))], 1+r.IntN(2), 2+r.IntN(3)
			own = 0.7 * pool.memory
		case shape == 6: // layers in the memory of all its GPUs, of which one works at a time
			w.kind, w.gpus, own = "Deployment", []int{2, 4}[r.IntN(2)], 0.8*pool.memory
			w.use = func(hour, _, gpu int) float64 {
				return map[bool]float64{true: 0.5 * noise(hour), false: 0.01}[gpu == 0]
			}
		case shape == 7: // GPUs that it never touches
			w.kind, w.gpus = "StatefulSet", 2+r.IntN(3)
			w.memory = func(_, gpu int) float64 { return map[bool]float64{true: own}[gpu == 0] }
			w.use = func(hour, _, gpu int) float64 { return map[bool]float64{true: 0.6 * noise(hour)}[gpu == 0] }
		case shape == 8:
			w.kind, w.bound, count = "DaemonSet", true, 1+r.IntN(2)
		case shape == 9: // batch jobs that come and go
			w.kind, w.gpus, count = "Job", 1+r.IntN(pool.gpus), 0
			w.use = func(hour, _, _ int) float64 { return min(1, 0.8*noise(hour)) }
		default: // small
			w.kind = []string{"Deployment", "StatefulSet", "Notebook", "Pod"}[r.IntN(4)]
			count = 1 + r.IntN(2)
		}
		for k := range count {
			w.pods = append(w.pods, &ranPod{of: w, number: k, from: from, to: to})
		}
		if count == 0 {
			for at := r.IntN(40); at < clusterHours-10; at += 20 + r.IntN(120) {
				w.pods = append(w.pods, &ranPod{of: w, number: len(w.pods), from: at, to: min(clusterHours, at+6+r.IntN(70))})
			}
		}
		for _, p := range w.pods {
			p.gpus, p.part = w.gpus, w.part
			if p.node = -1; w.bound {
				n := p.number
				p.node = slices.IndexFunc(machines, func(m *machine) bool { n -= map[bool]int{true: 1}[m.pool == pool]; return n < 0 })
			}
		}
		// What does not run at once is not part of the script.
		with := append(slices.Clone(pods), w.pods...)
		machines, _ = c.machines(nil)
		if late, _ := place(machines, with, list[5], true); len(late) == 0 {
			c.owners, pods = append(c.owners, w), with
		}
	}
	machines, _ = c.machines(nil)
	place(machines, pods, list[5], true)
	return c
}

// history is what an exporter would have recorded of it.
func (c *cluster) history() *reporttest.Server {
	s := &reporttest.Server{}
	of := func(values []float64) reporttest.At {
		return func(unix int64) (float64, bool) {
			k := (unix - 1 - begins.Unix()) / 3600
			if k < 0 || int(k) >= len(values) || math.IsNaN(values[k]) {
				return 0, false
			}
			return values[k], true
		}
	}
	states := map[[2]int]map[string][]float64{} // by pool and node
	_, names := c.machines(nil)
	add := func(in map[string][]float64, key string, hour int, v float64) {
		if in[key] == nil {
			in[key] = slices.Repeat([]float64{0}, clusterHours)
		}
		in[key][hour] += v
	}
	machines, _ := c.machines(nil)
	for k, m := range machines {
		states[[2]int{k}] = map[string][]float64{"unallocated": slices.Repeat([]float64{float64(m.pool.gpus)}, clusterHours)}
	}
	for _, w := range c.owners {
		rules := map[string][]float64{}
		labels := []string{"namespace", "team", "workload_type", w.kind, "workload", w.name}
		rule := func(name, key string, more ...string) {
			s.Add(name, of(rules[key]), slices.Concat(labels, []string{"model", w.pool.model}, more)...)
		}
		share := cmp.Or(w.part, 1)
		busiest := slices.Repeat([]float64{math.NaN()}, clusterHours)
		memory := slices.Clone(busiest)
		for _, p := range w.pods {
			s.Add("pod:gpu_workload:info", reporttest.Constant(1), "namespace", "team", "pod", p.name(), "workload_type", w.kind,
				"workload", w.name)
			for g, d := range p.devices {
				series := map[string][]float64{}
				for _, key := range []string{"busy", "idle", "share", "memory"} {
					series[key] = slices.Repeat([]float64{math.NaN()}, clusterHours)
				}
				for h := p.from; h < p.to; h++ {
					busy := w.use(h, p.number, g)
					idle, gap := 0.0, max(0, share-busy)
					if busy == 0 {
						idle, gap = share, 0
					}
					for key, v := range map[string]float64{"busy": min(busy, share), "idle": idle, "gap": gap, "unallocated": -share} {
						add(states[[2]int{p.node}], key, h, v)
					}
					for key, v := range map[string]float64{"busy": busy, "idle": idle, "gap": gap, "allocated": share, "observed": 1} {
						add(rules, key, h, v)
					}
					series["busy"][h], series["idle"][h], series["share"][h] = busy, idle, share
					series["memory"][h] = w.memory(p.number, g)
					if x := busy / share; !(busiest[h] >= x) {
						busiest[h] = x
					}
					if x := series["memory"][h]; !(memory[h] >= x) {
						memory[h] = x
					}
				}
				gpu := []string{"node", names[p.node], "uuid", fmt.Sprintf("GPU-%d-%d", p.node, d)}
				on := slices.Concat(gpu, []string{"namespace", "team", "pod", p.name()})
				s.Add("gpu_container_allocated_seconds_total", of(series["share"]), on...)
				s.Add("gpu_container_busy_seconds_total", of(series["busy"]), on...)
				s.Add("gpu_container_unused_seconds_total", of(series["idle"]), append(slices.Clone(on), "state", "idle")...)
				s.Add("gpu_container_allocation_ratio", of(series["share"]), append(slices.Clone(on), "resource", "nvidia_com_gpu")...)
				s.Add("gpu_container_memory_used_bytes", of(series["memory"]), on...)
			}
		}
		rules["busiest"], rules["memory"] = busiest, memory
		rule("workload:gpu_allocated_seconds:rate5m", "allocated")
		rule("workload:gpu_observed_seconds:rate5m", "observed")
		rule("workload:gpu_busy_seconds:rate5m", "busy")
		rule("workload:gpu_busy:ratio_max", "busiest")
		rule("workload:gpu_memory_used_bytes:max", "memory")
		rule("workload:gpu_unused_seconds:rate5m", "idle", "state", "idle")
		rule("workload:gpu_unused_seconds:rate5m", "gap", "state", "gap")
	}
	for k, m := range machines {
		for d := range m.devices {
			gpu := []string{"node", names[k], "uuid", fmt.Sprintf("GPU-%d-%d", k, d)}
			s.Add("gpu_info", reporttest.Constant(1), append(slices.Clone(gpu), "model", m.pool.model)...)
			s.Add("gpu_memory_total_bytes", reporttest.Constant(m.pool.memory), gpu...)
			s.Add("gpu_utilization_peak_ratio", reporttest.Constant(0.1), gpu...)
		}
		s.Add("node:gpu_device_up:count", reporttest.Constant(float64(m.pool.gpus)), "node", names[k], "model", m.pool.model)
		for state, values := range states[[2]int{k}] {
			s.Add("node:gpu_time_seconds:rate5m", of(values), "node", names[k], "model", m.pool.model, "state", state)
		}
		if m.pool.label != "" {
			s.Add("kube_node_labels", reporttest.Constant(1), "node", names[k], "label_eks_amazonaws_com_nodegroup", m.pool.label)
		}
	}
	return s
}

// carryOut returns the pods as they would have run with advice, or reason it cannot be carried out.
func (c *cluster) carryOut(a *document.Advice) (pods []*ranPod, of *owned, wrong string) {
	for _, w := range c.owners {
		if strings.HasPrefix(a.Workload, "team/"+w.kind+"/"+w.name+"/") {
			of = w
		}
	}
	w := of
	for _, p := range w.pods {
		p := *p
		pods = append(pods, &p)
	}
	need := func(limit float64, each bool) string { // of all GPUs at a time, or of each
		over := 0
		for h := range clusterHours {
			sum, most := 0.0, 0.0
			for _, p := range w.pods {
				for g := range p.devices {
					if h >= p.from && h < p.to {
						sum += w.use(h, p.number, g)
						most = max(most, w.use(h, p.number, g))
					}
				}
			}
			if each && most > limit || !each && sum > limit {
				over++
			}
		}
		if float64(over) > budget*clusterHours {
			return fmt.Sprintf("it needs more than %.2f GPUs in %d of %d hours", limit, over, clusterHours)
		}
		return ""
	}
	total := w.pool.memory
	switch a.Code {
	case document.AdviseRelease:
		for _, p := range pods {
			if last := w.lastBusy(p); last < p.to {
				p.to = last
			}
		}
	case document.AdviseFewer:
		var n int
		if _, err := fmt.Sscanf(a.Title, "Request %d instead", &n); err != nil {
			return nil, w, a.Title
		}
		for _, p := range pods {
			sum, ranks := 0.0, 0
			for g := range w.gpus {
				sum += w.memory(p.number, g)
				ranks += map[bool]int{true: 1}[w.memory(p.number, g) > giB]
			}
			if sum > float64(n)*total || ranks > n && ranks%n != 0 {
				return nil, w, fmt.Sprintf("%.0f GiB of %d ranks do not fit into %d GPUs", sum/giB, ranks, n)
			}
			p.gpus = n
		}
		wrong = need(float64(n*len(pods)), false)
	case document.AdviseReplicas:
		n, low, from, to := 0, 0, 0, 0
		schedule := "Run " + w.name + " with %d replicas by day and %d from %d:00 to %d:00"
		if _, err := fmt.Sscanf(a.Title, schedule, &n, &low, &from, &to); err != nil {
			if _, err = fmt.Sscanf(a.Title, "Run %d replicas of", &n); err != nil {
				return nil, w, a.Title
			}
		}
		if !slices.Contains(replicated, w.kind) {
			return nil, w, "pods of a " + w.kind + " are no replicas"
		}
		if w.memory(0, 0)*1.1 < w.memory(len(w.pods)-1, 0) {
			return nil, w, "its pods have data of their own"
		}
		pods = pods[:min(n, len(pods))]
		wrong = need(float64(n*w.gpus), false)
	case document.AdviseShare, document.AdviseShrink:
		part, slots, memory := 0.0, 0, total
		if at := strings.Index(a.Title, " 1/"); at >= 0 {
			k := 0.0
			fmt.Sscanf(a.Title[at:], " 1/%f of", &k)
			part, memory = 1/k, total/k
			wrong = need(part, true)
		} else {
			name := a.Title[strings.Index(a.Title, "profile ")+8:]
			compute := 0.0
			fmt.Sscanf(name, "%fg.%fgb", &compute, &memory)
			slots, memory = int(math.Ceil(memory/10)), memory*giB
			wrong = need(compute/7, true)
		}
		if w.memory(len(w.pods)-1, 0) > memory {
			wrong = "its memory does not fit"
		}
		var all []*ranPod
		for _, p := range pods {
			for range w.gpus {
				q := *p
				q.gpus, q.part, q.slots = 1, part, slots
				all = append(all, &q)
			}
		}
		pods = all
	default:
		wrong = "unknown advice"
	}
	return pods, w, wrong
}

// lastBusy is the hour after the last one in which a pod was busy.
func (w *owned) lastBusy(p *ranPod) (last int) {
	for h := p.from; h < p.to; h++ {
		for g := range p.devices {
			if w.use(h, p.number, g) > 0.002 {
				last = h + 1
			}
		}
	}
	return max(last, p.from)
}

// possible is true if a scheduler finds places for all pods within the budget, without some nodes: one of several preferences, with some
// nodes of each pool set aside for parts of GPUs.
func (c *cluster) possible(r *rand.Rand, pods []*ranPod, without []string) (reason string) {
	for _, pool := range c.pools {
		elsewhere := func(p *ranPod) bool { return p.of.pool != pool || p.from >= p.to }
		reason += c.fits(r, pool, slices.DeleteFunc(slices.Clone(pods), elsewhere), without)
	}
	return reason
}

// fits does so for one pool.
func (c *cluster) fits(r *rand.Rand, pool *pooled, pods []*ranPod, without []string) (reason string) {
	asked := map[string]float64{}
	_, names := c.machines(nil)
	aside, largest := 0, 0.0
	for _, p := range pods {
		largest = max(largest, p.part)
		asked[p.of.name] += float64(p.gpus * (p.to - p.from))
		if p.part > 0 && pool.parts == 0 {
			aside = pool.nodes
		}
	}
	bound := func(node int, part bool) bool {
		return slices.ContainsFunc(pods, func(p *ranPod) bool { return p.of.bound && p.node == node && (p.part > 0) == part })
	}
	least := math.Inf(1)
	list := preferences(r)
	for i := range len(list) * max(1, aside) { // each with another node that is set aside first
		prefer := list[i%len(list)]
		for n := 0; n <= aside; n++ {
			machines, _ := c.machines(without)
			left := n
			for _, must := range []bool{true, false} { // nodes with parts that are bound to them come first
				for k := range machines {
					k = (k + i/len(list)) % len(machines)
					m := machines[k]
					if m.pool == pool && m.bare && !m.gone && left > 0 && !bound(k, false) && (bound(k, true) || !must) {
						m.bare, m.part = false, largest*float64(i%2) // or that of the first pod
						left--
					}
				}
			}
			copies := make([]*ranPod, 0, len(pods))
			for _, p := range pods {
				q := *p
				if !q.of.bound || !slices.Contains(without, names[q.node]) { // it leaves with its node
					copies = append(copies, &q)
				}
			}
			late, crowded := place(machines, copies, prefer, false)
			sum, text := map[bool]float64{true: 1}[crowded != ""], crowded
			for _, name := range slices.Sorted(maps.Keys(late)) {
				if late[name] > budget*asked[name] {
					sum += late[name]
					text += fmt.Sprintf(" %s waits for %.0f of %.0f GPU-hours, %d nodes set aside;", name, late[name], asked[name], n)
				}
			}
			if text == "" {
				return ""
			}
			if sum < least {
				least, reason = sum, text
			}
		}
	}
	return reason
}

// TestGeneratedClusters carries out all advice of medium and high confidence on fifty clusters.
func TestGeneratedClusters(t *testing.T) {
	t.Parallel()
	counted := map[string]int{}
	for seed := range uint64(*clusters) {
		r := rand.New(rand.NewPCG(seed, 4711))
		c := drawCluster(r)
		o := report.Defaults()
		o.From, o.To, o.Step = begins, begins.Add(clusterHours*time.Hour), time.Hour
		o.Now = o.To
		d, err := report.Build(t.Context(), reporttest.Direct{Server: c.history()}, o)
		must.OK(t, err)
		now := map[*owned][]*ranPod{}
		for _, w := range c.owners {
			now[w] = w.pods
		}
		advised := maps.Clone(now)
		var gone, more []string
		refute := func(a *document.Advice, reason string) {
			t.Errorf("seed %d: %s, confidence %s: %s; %s", seed, a.Title, a.Confidence, reason, a.Evidence)
		}
		all := func(of map[*owned][]*ranPod) (out []*ranPod) {
			for _, w := range c.owners {
				out = append(out, of[w]...)
			}
			return out
		}
		var last *document.Advice
		for i := range d.Advice {
			a := &d.Advice[i]
			if a.Unsure() {
				continue
			}
			counted[a.Code+" "+a.Reason]++
			if a.Code == document.AdviseConsolidate {
				_, nodes, _ := strings.Cut(a.Change, "--ignore-daemonsets ")
				if more = append(more, strings.Fields(nodes)...); a.Reason != "after_advice" {
					gone = append(gone, strings.Fields(nodes)...)
					if reason := c.possible(r, all(now), strings.Fields(nodes)); reason != "" {
						refute(a, reason)
					}
				}
				last = a
				continue
			}
			pods, of, wrong := c.carryOut(a)
			if wrong != "" {
				refute(a, wrong)
				continue
			}
			advised[of] = pods
			if last == nil || last.Code != document.AdviseConsolidate {
				last = a
			}
		}
		if last == nil {
			continue
		}
		for _, without := range [][]string{nil, gone, more} {
			if reason := c.possible(r, all(advised), without); reason != "" {
				t.Errorf("seed %d: all advice carried out, without the nodes %v: %s", seed, without, reason)
				break
			}
		}
	}
	for _, k := range slices.Sorted(maps.Keys(counted)) {
		t.Logf("%-30s %d", k, counted[k])
	}
}
