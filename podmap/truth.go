package podmap

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// The names of the places in which a holding is read, besides the socket's own, as gpu.Holding.Source and the
// label source spell them.
const (
	// SourceCheckpoint is the kubelet's device checkpoint.
	SourceCheckpoint = "checkpoint"
	// SourceAnnotation is an annotation or label of the pod.
	SourceAnnotation = "annotation"
	// SourceDRA is the checkpoint of NVIDIA's DRA driver.
	SourceDRA = "dra_checkpoint"
	// SourceAPI is, as the name of a gpu.Source, the API server that annotations are watched at.
	SourceAPI = "api"
)

// grant is what a truth tells of one container: a GPU or MIG instance, and what the scheme records beside.
type grant struct {
	ref ref
	// memory is what is granted, in bytes; or it is units of a GPU that has total of them, where the size of
	// the unit is not recorded.
	memory       gpu.Opt[gpu.Bytes]
	units, total float64
	// pool is how many units all GPUs of the node have together, where the GPU's own number is not recorded.
	pool float64
	// relative tells that the unit may be anything: only the part it is of the total is known.
	relative bool
	// onInstance tells that it lies on a MIG instance that ref does not name.
	onInstance bool
	// part is the granted part of the GPU's memory, where a scheme records that.
	part gpu.Opt[float64]
	// compute is the granted part of the GPU's time, 1 for all.
	compute gpu.Opt[float64]
	// whole is true where the scheme gives the GPU to nobody else.
	whole bool
	// fraction is the part of the GPU by which the scheme itself counts, where it is neither memory nor time.
	fraction gpu.Opt[float64]
}

// share is the held part of the target, absent where the scheme records nothing that tells it: granted memory
// over the memory of the GPU, else the part of the time.
func (g *grant) share(t target) (share gpu.Opt[float64], granted gpu.Opt[gpu.Bytes]) {
	granted = g.memory
	size, sized := t.memory.Get()
	part := g.part
	if g.total > 0 && g.units > 0 && g.units <= g.total {
		part = gpu.Some(g.units / g.total)
		if unit := unitOf(g.total, size); sized && unit > 0 && !g.relative {
			granted = gpu.Some(gpu.Bytes(g.units * float64(unit)))
		}
	}
	if p, ok := part.Get(); ok && !granted.Present() && sized {
		granted = bytesOf(p * float64(size))
	}
	if g.relative && !part.Present() {
		granted = gpu.None[gpu.Bytes]()
	}
	// What lies on an instance is the instance: the amounts are parts of the GPU.
	if t.instance != "" || g.whole {
		return gpu.Some(t.part), granted
	}
	if p, ok := part.Get(); ok {
		return gpu.Some(min(p, 1)), granted
	}
	if f, ok := g.fraction.Get(); ok {
		return gpu.Some(min(f, 1)), granted
	}
	if b, ok := g.memory.Get(); ok {
		if !sized || size == 0 {
			return gpu.None[float64](), granted
		}
		return gpu.Some(min(float64(b)/float64(size), 1)), granted
	}
	if c, ok := g.compute.Get(); ok {
		return gpu.Some(min(c, 1)), granted
	}
	return gpu.None[float64](), granted
}

// sharePool finds what a unit is where only the units of all GPUs together are known.
func (g *grant) sharePool(inv *gpu.Inventory) {
	if g.pool <= 0 || g.total > 0 || g.units <= 0 || inv == nil {
		return
	}
	var sum gpu.Bytes
	for i := range inv.GPUs {
		size, ok := inv.GPUs[i].Memory.Get()
		if !ok {
			return
		}
		sum += size
	}
	switch unit := unitOf(g.pool, sum); {
	case g.relative && sum > 0:
		// Every unit is the same part of all the memory that there is.
		g.memory, g.relative = bytesOf(g.units/g.pool*float64(sum)), false
	case unit > 0:
		g.memory = bytesOf(g.units * float64(unit))
	}
}

// unitOf tells whether a GPU of that size has total GiB or total MiB, 0 where neither fits.
func unitOf(total float64, size gpu.Bytes) gpu.Bytes {
	for _, unit := range []gpu.Bytes{1 << 30, 1 << 20} {
		have := float64(size) / float64(unit)
		// Plugins round down, and know the GPU without what the driver reserves.
		if total > have*0.85-1 && total < have*1.05+1 {
			return unit
		}
	}
	return 0
}

// claim is one container's hold on one resource whose ids do not tell the GPU, with all that may.
type claim struct {
	container gpu.Container
	resource  string
	devices   int
	// listed is how many devices of the resource the kubelet has, 0 where it was not told.
	listed float64
	// beside counts the ids that the container holds of the scheme's other resources.
	beside map[string]int
	// alloc is the kubelet's own entry of it; nil without.
	alloc *allotment
	// pod is the pod's metadata; nil without.
	pod *podMeta
	// crew are the containers of the pod that hold by this scheme, in the order of the kubelet's answer: that
	// of the pod's specification, restartable init containers first. Ordinary init containers never appear.
	crew []crewMember
	// last tells that no container of the pod is listed behind this one.
	last bool
}

type crewMember struct {
	name    string
	devices int
}

// anyCount is the number of devices of a slot that does not tell it.
const anyCount = -1

// rank is the claim's place in its crew, -1 where the container stands there twice or never.
func (c *claim) rank() int {
	at := -1
	for i, m := range c.crew {
		if m.name == c.container.Name {
			if at >= 0 {
				return -1
			}
			at = i
		}
	}
	return at
}

// slot finds which of several slots is this container's. The slots are those that name a GPU, in the order of
// the containers; counts says how many devices each has. Tail tells that the very last slot of the pod is among
// them. Schemes that number containers differ in whether init containers count, and the kubelet lists only
// some of those, so the numbers themselves are not compared: as many slots as holders, with equal counts, are
// matched in order. With more slots than holders an ordinary init container had a GPU too; then only the last
// container is certain, for it is never an init container.
func (c *claim) slot(counts []int, tail bool) (int, bool) {
	rank := c.rank()
	if rank < 0 {
		return 0, false
	}
	if len(counts) == len(c.crew) {
		for i, n := range counts {
			if n != anyCount && n != c.crew[i].devices {
				return 0, false
			}
		}
		return rank, true
	}
	if at := len(counts) - 1; at >= len(c.crew) && tail && c.last && (counts[at] == anyCount || counts[at] == c.devices) {
		return at, true
	}
	return 0, false
}

// annotation returns an annotation of the pod.
func (c *claim) annotation(key string) (string, bool) {
	if c.pod == nil {
		return "", false
	}
	v, ok := c.pod.annotations[key]
	return v, ok && v != ""
}

// env returns a variable that the plugin gave the container.
func (c *claim) env(key string) (string, bool) {
	if c.alloc == nil {
		return "", false
	}
	v, ok := c.alloc.env[key]
	return v, ok && v != ""
}

// amount reads a number that is not negative and finite.
func amount(text string) (float64, bool) {
	v, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	if err != nil || math.IsNaN(v) || v < 0 || v > 1<<62 {
		return 0, false
	}
	return v, true
}

// envAmount reads such a number from the container's environment.
func (c *claim) envAmount(key string) (float64, bool) {
	text, ok := c.env(key)
	if !ok {
		return 0, false
	}
	return amount(text)
}

// mebibytes turns a number of MiB into bytes.
func mebibytes(n float64) gpu.Opt[gpu.Bytes] {
	if n <= 0 || n > 1<<40 {
		return gpu.None[gpu.Bytes]()
	}
	return gpu.Some(gpu.Bytes(n * (1 << 20)))
}

// percent turns a percentage of a GPU's time into a part. Where a scheme writes 0 it grants no part.
func percent(n float64) gpu.Opt[float64] {
	if n <= 0 {
		return gpu.None[float64]()
	}
	return gpu.Some(min(n/100, 1))
}

// grantsOf makes a grant of each ref.
func grantsOf(refs []ref) []grant {
	out := make([]grant, len(refs))
	for i, r := range refs {
		out[i] = grant{ref: r}
	}
	return out
}

// testimony is what is known of one claim: by whom, and what. An empty list of grants that is told says that
// another resource of the same container stands for the GPU.
type testimony struct {
	source string
	grants []grant
}

// tell asks the row of a claim: what the container was really given comes before what a scheduler wrote on
// the pod, for some plugins mix up pods that ask for the same amount.
func (c *claim) tell(row *scheme) (testimony, bool) {
	if row == nil {
		return testimony{}, false
	}
	if row.allocated != nil && c.alloc != nil {
		if g, ok := row.allocated(c); ok {
			return testimony{SourceCheckpoint, g}, true
		}
	}
	if row.annotated != nil && c.pod != nil {
		if g, ok := row.annotated(c); ok {
			return testimony{SourceAnnotation, g}, true
		}
	}
	return testimony{}, false
}

// claims turns what an answer lists of ids that do not tell the GPU into claims, in the order of blind.
func (r *record) claims(pods *podTable) []claim {
	a := r.answer
	crews := map[podKey]map[string][]crewMember{} // by the name of the row
	for _, b := range a.blind {
		if b.row == nil {
			continue
		}
		key := podKey{b.container.Namespace, b.container.Pod}
		if crews[key] == nil {
			crews[key] = map[string][]crewMember{}
		}
		crews[key][b.row.name] = append(crews[key][b.row.name], crewMember{b.container.Name, b.devices})
	}
	for key, byRow := range crews {
		order := a.order[key]
		for _, crew := range byRow {
			slices.SortStableFunc(crew, func(x, y crewMember) int {
				return cmp.Compare(slices.Index(order, x.name), slices.Index(order, y.name))
			})
		}
	}
	mine := map[gpu.Container][]int{} // of each container, in blind
	for i, b := range a.blind {
		mine[b.container] = append(mine[b.container], i)
	}
	out := make([]claim, len(a.blind))
	for i, b := range a.blind {
		key := podKey{b.container.Namespace, b.container.Pod}
		c := claim{container: b.container, resource: b.resource, devices: b.devices, alloc: r.matched[b.holderKey],
			listed: float64(r.capacity.devices[b.resource])}
		if order := a.order[key]; len(order) > 0 {
			c.last = order[len(order)-1] == b.container.Name
		}
		if b.row != nil {
			c.crew = crews[key][b.row.name]
			c.beside = map[string]int{}
			for _, j := range mine[b.container] {
				if other := a.blind[j]; other.row != nil && other.row.name == b.row.name && j != i {
					c.beside[other.resource] = other.devices
				}
			}
		}
		c.pod = r.metadata(pods, key)
		out[i] = c
	}
	return out
}

// metadata returns the metadata of a listed pod, nil where there is none, or where it is that of another pod of
// the same name.
func (r *record) metadata(pods *podTable, key podKey) *podMeta {
	p := pods.get(key)
	if p == nil {
		return nil
	}
	if uid := r.uids[key]; uid != "" && p.uid != "" && uid != p.uid {
		return nil
	}
	return p
}

// match finds the entries of a checkpoint that belong to what is listed. An entry is believed if it is the only
// one for a container name, a resource and a set of ids; if the pod's entries have one UID; and if no other
// pod had that UID before.
func match(a *answer, entries *allotments, before *record) (map[holderKey]*allotment, map[podKey]string) {
	known, owners := map[string]podKey{}, map[string]podKey{} // of UIDs, before and now
	if before != nil {
		for key, alloc := range before.matched {
			known[alloc.uid] = key.pod()
		}
	}
	matched := map[holderKey]*allotment{}
	uids := map[podKey]string{}
	refused := map[podKey]bool{}
	for _, h := range a.held {
		found := entries.entries[allotmentKey{h.container.Name, h.resource, h.ids}]
		if len(found) != 1 {
			continue
		}
		entry, pod := found[0], h.pod()
		if owner, ok := known[entry.uid]; ok && owner != pod {
			continue // the file is older than the list
		}
		if owner, ok := owners[entry.uid]; ok && owner != pod {
			refused[pod], refused[owner] = true, true
			continue
		}
		owners[entry.uid] = pod
		if uid, ok := uids[pod]; ok && uid != entry.uid {
			refused[pod] = true
			continue
		}
		uids[pod] = entry.uid
		matched[h] = entry
	}
	for h := range matched {
		if refused[h.pod()] {
			delete(matched, h)
		}
	}
	for pod := range refused {
		delete(uids, pod)
	}
	return matched, uids
}

// carry keeps of former matches those whose holders are still listed.
func carry(a *answer, before *record) (map[holderKey]*allotment, map[podKey]string) {
	matched, uids := map[holderKey]*allotment{}, map[podKey]string{}
	for _, h := range a.held {
		if entry := before.matched[h]; entry != nil {
			matched[h] = entry
			uids[h.pod()] = entry.uid
		}
	}
	return matched, uids
}
