package fleet

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// Fleet is many nodes. It is safe for concurrent use. Results depend on the Config and the time alone; the latest
// counters are cached, so that later times are cheap.
type Fleet struct {
	config      Config
	seed        uint64
	epoch       stamp
	epochOffset time.Duration // by which the configured epoch is after DefaultEpoch
	cycle       stamp
	racks       []*racked
	nodes       []*node
	byName      map[string]int
	boards      []board
}

// racked is a rack with its latest plans.
type racked struct {
	rack
	mu    sync.Mutex // guards plans
	plans [2]*plan
}

// node is one node.
type node struct {
	name, cluster string
	index         int
	rack          *racked
	at            int // in its rack
	gpus          []*device

	mu      sync.Mutex // guards the GPUs' cursors
	started stamp      // start of the exporter that the cursors count from
	cycle   int
}

// device is one GPU of a node. Its counters advance by whole hours, so that every time is computed in the same steps,
// whatever the earlier calls were.
type device struct {
	identity gpu.Identity
	id       uint64
	shares   []float64
	spare    float64
	layout   []gpu.Instance
	cursor   *counters
}

// New returns the fleet of a configuration.
func New(c Config) (*Fleet, error) {
	if err := c.check(); err != nil {
		return nil, fmt.Errorf("fleet configuration: %w", err)
	}
	f := &Fleet{config: c, seed: mix(c.Seed), cycle: stamp(c.Cycle.Milliseconds()).floor(hour),
		byName: map[string]int{}, boards: boards()}
	if f.cycle <= 0 {
		f.cycle = 14 * day
	}
	if c.Epoch.IsZero() {
		c.Epoch = DefaultEpoch()
	}
	f.epochOffset = c.Epoch.Sub(DefaultEpoch())
	f.epoch = f.stamp(c.Epoch)
	for i := range f.config.Pools {
		f.add(&f.config.Pools[i])
	}
	return f, nil
}

// stamp and time convert between the caller's clock and the fleet's.
func (f *Fleet) stamp(t time.Time) stamp { return stamp(t.Add(-f.epochOffset).UnixMilli()) }
func (f *Fleet) time(s stamp) time.Time  { return time.UnixMilli(int64(s)).Add(f.epochOffset).UTC() }

// add creates the racks and nodes of a pool.
func (f *Fleet) add(p *Pool) {
	if p.Cluster == "" {
		p.Cluster = "main"
	}
	size := p.Rack
	if size <= 0 {
		size = 4
	}
	b := &f.boards[slices.IndexFunc(f.boards, func(b board) bool { return b.key == p.Model })] // check found it
	for first := 0; first < p.Nodes; first += size {
		r := &racked{rack: rack{fleet: f, pool: p, board: b, index: len(f.racks), first: len(f.nodes), inPool: first,
			nodes: min(size, p.Nodes-first)}}
		// Racks are maintained one after the other, never at once.
		r.phase = f.epoch + stamp(noise(f.seed, 3, uint64(r.index))*float64(f.cycle)).floor(minute)
		f.racks = append(f.racks, r)
		for n := range r.nodes {
			node := &node{name: fmt.Sprintf("%s-%s-%04d", p.Cluster, p.Name, first+n), cluster: p.Cluster,
				index: len(f.nodes), rack: r, at: n}
			for c := range p.GPUs {
				node.gpus = append(node.gpus, newGPU(f, r, node, c))
			}
			f.byName[node.name] = node.index
			f.nodes = append(f.nodes, node)
		}
	}
}

func newGPU(f *Fleet, r *racked, n *node, index int) *device {
	b := r.board
	id := mix(f.seed, 4, uint64(n.index), uint64(index))
	c := &device{id: id, identity: gpu.Identity{UUID: gpu.UUID("GPU-" + uid(id)), Index: index,
		PCI:   gpu.NewPCIAddress(0, uint32(0x18+index*0x11), 0, 0),
		Minor: gpu.Some(index), Model: b.model, Brand: b.brand, Architecture: b.architecture,
		ComputeCapability: b.capability,
		Serial:            fmt.Sprintf("165%010d", id%1e10), BoardPart: b.boardPart, VBIOS: b.vbios,
		NUMANode: gpu.Some(index * 2 / r.pool.GPUs)}}
	slots := r.slotCount()
	for i := range slots {
		c.shares = append(c.shares, 1/float64(slots))
		if len(r.pool.MIG) > 0 {
			prof, _ := b.profile(r.pool.MIG[i])
			c.shares[i] = float64(prof.slices) / float64(b.slices)
		}
	}
	if len(r.pool.MIG) > 0 {
		c.spare = 1
		start := 0
		for i, name := range r.pool.MIG {
			prof, _ := b.profile(name)
			c.spare -= c.shares[i]
			u := gpu.UUID("MIG-" + uid(mix(id, uint64(i), 5)))
			c.layout = append(c.layout, gpu.Instance{UUID: u, GI: i + 1, Profile: name, Slices: prof.slices,
				PlacementStart: gpu.Some(start),
				PlacementSize:  gpu.Some(prof.memorySlices), ProfileID: gpu.Some(prof.id),
				Share:   gpu.Some(gpu.Ratio(c.shares[i])),
				Compute: []gpu.ComputeInstance{{UUID: u, CI: 0, Index: i, SMs: gpu.Some(prof.sms)}}})
			start += prof.memorySlices
		}
		if c.spare < 1e-9 {
			c.spare = 0
		}
	}
	return c
}

// plan returns the plan of a cycle; the latest two are cached.
func (r *racked) plan(cycle int) *plan {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.plans {
		if p != nil && p.cycle == cycle {
			return p
		}
	}
	p := r.make(cycle)
	r.plans[0], r.plans[1] = p, r.plans[0]
	return p
}

// Len returns the number of nodes.
func (f *Fleet) Len() int { return len(f.nodes) }

// Node are the constant properties of a node.
type Node struct {
	Name, Cluster, Pool, Model string
	Zone, Rack                 string // of its labels; empty: it has none
	GPUs                       int
}

// Node returns the node of an index from 0 to Len()-1.
func (f *Fleet) Node(i int) Node {
	n := f.nodes[i]
	zone, rack := n.location()
	return Node{Name: n.name, Cluster: n.cluster, Pool: n.rack.pool.Name, Model: n.rack.board.model, Zone: zone, Rack: rack,
		GPUs: len(n.gpus)}
}

// Find returns the index of a node by its name.
func (f *Fleet) Find(name string) (int, bool) {
	i, ok := f.byName[name]
	return i, ok
}

// Clusters lists the clusters in the order of the pools.
func (f *Fleet) Clusters() []string {
	var out []string
	for _, p := range f.config.Pools {
		if !slices.Contains(out, p.Cluster) {
			out = append(out, p.Cluster)
		}
	}
	return out
}

// started returns the latest start of the exporter.
func (n *nodePlan) started(t stamp) stamp {
	out := n.restarts[0]
	for _, r := range n.restarts {
		if r <= t {
			out = r
		}
	}
	return out
}

// allCounters returns the counters of a node's GPUs at a time; the caller may change them. n.mu must be locked.
func (n *node) allCounters(p *plan, t stamp) []*counters {
	np := &p.nodes[n.at]
	started := np.started(t)
	if n.cycle != p.cycle || n.started != started {
		for _, c := range n.gpus {
			c.cursor = nil
		}
		n.cycle, n.started = p.cycle, started
	}
	out := make([]*counters, len(n.gpus))
	for i, c := range n.gpus {
		pl := n.place(np, i)
		if c.cursor == nil || c.cursor.at > t {
			c.cursor = &counters{at: started, started: started, instances: make([]sums, len(c.layout))}
		}
		pl.advance(c.cursor, max(c.cursor.at, t.floor(hour)), nil)
		out[i] = c.cursor.clone()
		pl.advance(out[i], t, nil)
	}
	return out
}

func (n *node) place(np *nodePlan, dev int) *place {
	c := n.gpus[dev]
	return &place{rack: &n.rack.rack, node: np, dev: &np.gpus[dev], shares: c.shares, spare: c.spare}
}
