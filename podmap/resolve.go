package podmap

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// record is what is believed at one moment: an answer, and the capacity that gives replicas their size.
// It is immutable.
type record struct {
	answer   *answer
	capacity capacity
	// resources are the names of GPUs that were ever seen held: their counts go on at 0.
	resources []string
	// matched are the entries of the kubelet's checkpoint that belong to what is held, and uids the pods' UIDs
	// from there. Both are nil without a checkpoint.
	matched map[holderKey]*allotment
	uids    map[podKey]string
	// settled are the uids that the record before had too.
	settled map[podKey]string
	// prepared are the claims that the DRA driver has prepared; nil without its checkpoint.
	prepared *preparedClaims
}

// target is a GPU or MIG instance that an id names. Part is the id's part of the instance, else of the
// GPU: less than 1 where a MIG device is one of several compute instances.
type target struct {
	dev, instance gpu.UUID
	part          float64
	memory        gpu.Opt[gpu.Bytes] // of the GPU
}

// locate resolves a ref against the GPUs of the node. Where it finds none, elsewhere tells that the id
// certainly names none of these GPUs.
func locate(inv *gpu.Inventory, r ref) (targets []target, elsewhere bool) {
	if inv == nil {
		inv = &gpu.Inventory{}
	}
	switch r.by {
	case byUUID:
		if dev, ok := inv.ByUUID(r.uuid); ok {
			return whole(dev), false
		}
		return nil, allNamed(inv)
	case byMIG:
		return instanceByUUID(inv, r.uuid), false
	case byParts:
		if t := instanceByUUID(inv, r.full); t != nil {
			return t, false
		}
		dev, ok := inv.ByUUID(r.uuid)
		if !ok {
			return nil, allNamed(inv)
		}
		return instance(dev, func(in *gpu.Instance) bool { return in.GI == r.gi }, func(ci gpu.ComputeInstance) bool { return ci.CI == r.ci }), false
	case byMinor:
		dev, ok := inv.ByMinor(r.minor)
		if !ok {
			return nil, allNumbered(inv)
		}
		if r.gi < 0 {
			return whole(dev), false
		}
		return instance(dev, func(in *gpu.Instance) bool { return in.GI == r.gi }, nil), false
	case byProfile:
		dev, ok := inv.ByMinor(r.minor)
		if !ok {
			return nil, allNumbered(inv)
		}
		return instance(dev, r.placed, nil), false
	case byPCI:
		for i := range inv.GPUs {
			if inv.GPUs[i].PCI == r.pci {
				return whole(&inv.GPUs[i]), false
			}
		}
		// A virtual function lies on a GPU that has another address.
		return nil, false
	case byAll:
		for i := range inv.GPUs {
			targets = append(targets, whole(&inv.GPUs[i])...)
		}
		return targets, false
	case bySole:
		if len(inv.GPUs) == 1 {
			return whole(&inv.GPUs[0]), false
		}
		return nil, false
	case byDetached:
		return nil, true
	case byIndex:
		if dev, ok := byNVMLIndex(inv, r.minor); ok {
			return whole(dev), false
		}
		return nil, false
	case byMIGIndex:
		if dev, ok := byNVMLIndex(inv, r.minor); ok {
			return migByIndex(dev, r.ci), false
		}
		return nil, false
	case byNumber:
		dev, ok := byNVMLIndex(inv, r.minor)
		if same, known := inv.ByMinor(r.minor); ok && known && same == dev {
			return whole(dev), false
		}
		return nil, false
	}
	return nil, false
}

// byNVMLIndex returns the GPU that NVML numbers so. An index that two GPUs claim is none's.
func byNVMLIndex(inv *gpu.Inventory, index int) (dev *gpu.InventoryGPU, ok bool) {
	for i := range inv.GPUs {
		if inv.GPUs[i].Index != index {
			continue
		}
		if dev != nil {
			return nil, false
		}
		dev = &inv.GPUs[i]
	}
	return dev, dev != nil
}

// migByIndex returns the MIG device that NVML numbers so on its GPU.
func migByIndex(dev *gpu.InventoryGPU, index int) []target {
	for i := range dev.Instances {
		in := &dev.Instances[i]
		for _, ci := range in.Compute {
			if ci.Index == index {
				return instance(dev, func(other *gpu.Instance) bool { return other == in },
					func(other gpu.ComputeInstance) bool { return other.UUID == ci.UUID })
			}
		}
	}
	return nil
}

// placed reports whether a GPU instance has the profile and the place that the ref names.
func (r ref) placed(in *gpu.Instance) bool {
	is := func(o gpu.Opt[int], want int) bool { v, ok := o.Get(); return ok && v == want }
	return is(in.ProfileID, r.profile) && is(in.PlacementStart, r.start) && (r.size < 0 || is(in.PlacementSize, r.size))
}

func whole(dev *gpu.InventoryGPU) []target {
	return []target{{dev: dev.UUID, part: 1, memory: dev.Memory}}
}

func instanceByUUID(inv *gpu.Inventory, uuid gpu.UUID) []target {
	dev, in, ok := inv.ByInstance(uuid)
	if !ok {
		return nil
	}
	return instance(dev, func(other *gpu.Instance) bool { return other == in },
		func(ci gpu.ComputeInstance) bool { return ci.UUID == uuid })
}

// instance returns the GPU instance that matches, or the part of it that one compute instance is. A nil
// compute names the whole.
func instance(dev *gpu.InventoryGPU, match func(*gpu.Instance) bool, compute func(gpu.ComputeInstance) bool) []target {
	for i := range dev.Instances {
		in := &dev.Instances[i]
		if in.UUID == "" || !match(in) {
			continue
		}
		t := target{dev: dev.UUID, instance: in.UUID, part: 1}
		if compute == nil {
			return []target{t}
		}
		at := slices.IndexFunc(in.Compute, compute)
		switch {
		case at >= 0:
			t.part = computePart(in.Compute, at)
		case len(in.Compute) > 0:
			return nil // the compute instance is gone
		}
		return []target{t}
	}
	return nil
}

// computePart is the part of a GPU instance that one of its compute instances is, by multiprocessors where
// all tell theirs.
func computePart(all []gpu.ComputeInstance, at int) float64 {
	sum, mine := 0, 0
	for i, ci := range all {
		sms, ok := ci.SMs.Get()
		if !ok || sms <= 0 {
			return 1 / float64(len(all))
		}
		sum += sms
		if i == at {
			mine = sms
		}
	}
	return float64(mine) / float64(sum)
}

// allNamed tells that a UUID that is not in the inventory is none of its GPUs': every GPU has its own.
func allNamed(inv *gpu.Inventory) bool {
	return !slices.ContainsFunc(inv.GPUs, func(c gpu.InventoryGPU) bool { return !strings.HasPrefix(string(c.UUID), "GPU-") })
}

// allNumbered tells the same of minor numbers.
func allNumbered(inv *gpu.Inventory) bool {
	return !slices.ContainsFunc(inv.GPUs, func(c gpu.InventoryGPU) bool { return !c.Minor.Present() })
}

// crowd counts who else is on the same id, device or GPU, so that shares add up.
type crowd struct {
	// holders counts the containers that hold one and the same id, or device of one claim.
	holders map[[2]string]int
	// claims are the claims that name one device.
	claims map[[2]string]map[string]bool
	// replicas are the replicas that are held of one GPU or instance.
	replicas map[replicaKey]map[string]bool
}

func countCrowd(units []unit) crowd {
	c := crowd{map[[2]string]int{}, map[[2]string]map[string]bool{}, map[replicaKey]map[string]bool{}}
	for i := range units {
		u := &units[i]
		c.holders[[2]string{u.resource, u.id}]++
		if u.device != "" {
			add(c.claims, [2]string{u.resource, u.device}, u.id)
		}
		if u.ref.replica {
			add(c.replicas, replicaKey{u.resource, u.ref.base}, u.id)
		}
	}
	return c
}

func add[K comparable](sets map[K]map[string]bool, key K, member string) {
	if sets[key] == nil {
		sets[key] = map[string]bool{}
	}
	sets[key][member] = true
}

// share is the part of its target that one container holds with one unit, and whether others may hold the
// same. The part is absent where nothing tells it: replicas that were never listed, a device of which a
// claim got a part, a device of two claims (one of them an administrator's, and which is not told).
func (r *record) share(c crowd, u *unit, t target) (part gpu.Opt[float64], granted gpu.Opt[gpu.Bytes], shared bool) {
	holders := c.holders[[2]string{u.resource, u.id}]
	p := t.part / float64(holders)
	shared = holders > 1 || u.ref.replica
	if c := r.prepared.claim(u); c != nil && u.part && t.instance == "" {
		size, sized := t.memory.Get()
		if b, ok := c.memory[u.device]; ok && sized && size > 0 {
			return gpu.Some(min(float64(b)/float64(size), 1) / float64(holders)), gpu.Some(b / gpu.Bytes(holders)), true
		}
	}
	if u.device != "" && (u.part || len(c.claims[[2]string{u.resource, u.device}]) > 1) {
		return gpu.None[float64](), granted, true
	}
	if !u.ref.replica {
		return gpu.Some(p), granted, shared
	}
	key := replicaKey{u.resource, u.ref.base}
	listed := r.capacity.replicas[key]
	if listed == 0 {
		return gpu.None[float64](), granted, true
	}
	// More may be held than is listed, when the plugin was told to make fewer while pods went on.
	replicas := max(listed, len(c.replicas[key]))
	if u.ref.memory > 0 {
		total, ok := t.memory.Get()
		if !ok || total == 0 {
			return gpu.None[float64](), granted, true
		}
		// The name only looks like a memory scheme's where the slices are more than the GPU.
		if r.slices(u.ref.base) <= total {
			return gpu.Some(p * float64(u.ref.memory) / float64(total)), gpu.Some(u.ref.memory), true
		}
	}
	return gpu.Some(p / float64(replicas)), granted, true
}

// slices sums the memory of all slices of a GPU, over the resources that grant memory.
func (r *record) slices(base string) gpu.Bytes {
	var sum gpu.Bytes
	for key, n := range r.capacity.replicas {
		if key.base == base {
			sum += nosMemory(key.resource) * gpu.Bytes(n)
		}
	}
	return sum
}

// place is what makes a holding: several ids of one place are one holding.
type place struct {
	container     gpu.Container
	resource      string
	dev, instance gpu.UUID
}

// stake collects the units of one place.
type stake struct {
	gpu.Allocation
	part    float64
	known   bool // every unit's part
	dated   bool // every unit's beginning
	granted gpu.Bytes
	compute float64
	// told tells that all of it comes from grants: what a scheme says that may hand out more than there is.
	told bool
}

// resolve names the GPUs. It is a pure function of its arguments.
func (r *record) resolve(inv *gpu.Inventory, pods *podTable) gpu.Allocations {
	h := gpu.Allocations{}
	units := r.alloc()
	crowd := countCrowd(units)
	held := map[place]*stake{}
	type owner struct {
		container gpu.Container
		resource  string
	}
	lost := map[owner]int{}
	devs := map[string]bool{} // uncertain resources that turned out to hold a GPU
	reserved := r.reservations(pods)
	for i := range units {
		u := &units[i]
		targets, elsewhere, source := r.locate(inv, u)
		if len(targets) == 0 {
			if !u.ref.perhapsForeign {
				lost[owner{u.container, u.resource}]++
				h.Uncertain = h.Uncertain || !elsewhere
			}
			continue
		}
		devs[u.resource] = true
		members := reserved[podKey{u.container.Namespace, u.container.Pod}]
		for _, t := range targets {
			if len(members) == 0 {
				r.hold(held, crowd, u, t, source)
			}
			for _, m := range members {
				grantTo(held, m.container, u.resource, SourceAnnotation, m.since, &m.grant, t, m.among)
			}
		}
	}
	lose := func(c gpu.Container, resource string, devices int, elsewhere bool) {
		lost[owner{c, resource}] += devices
		h.Uncertain = h.Uncertain || !elsewhere
	}
	for i, c := range r.claims(pods) {
		b := &r.answer.blind[i]
		told, ok := c.tell(b.row)
		if !ok {
			lose(b.container, b.resource, b.devices, false)
			continue
		}
		if missing, elsewhere := settle(inv, told.grants, func(g *grant, t target) {
			grantTo(held, b.container, b.resource, told.source, b.since, g, t, 1)
		}); missing > 0 {
			lose(b.container, b.resource, max(1, b.devices*missing/len(told.grants)), elsewhere)
		}
	}
	for _, q := range r.quiet(pods) {
		if missing, elsewhere := settle(inv, q.grants, func(g *grant, t target) {
			grantTo(held, q.container, q.resource, SourceAnnotation, q.since, g, t, q.among)
		}); missing > 0 {
			lose(q.container, q.resource, missing, elsewhere)
		}
	}
	r.limit(held)
	fit(held)

	owners := map[gpu.PodRef]bool{}
	for _, s := range held {
		if s.known {
			s.Share = gpu.Some(gpu.Ratio(min(s.part, 1)))
		}
		if s.granted > 0 {
			s.MemoryLimit = gpu.Some(s.granted)
		}
		if s.compute > 0 {
			s.ComputeLimit = gpu.Some(gpu.Ratio(min(s.compute, 1)))
		}
		h.List = append(h.List, s.Allocation)
		owners[r.podRef(pods, s.Container)] = true
	}
	for o, n := range lost {
		h.Unresolved = append(h.Unresolved, gpu.Unresolved{Container: o.container, Resource: o.resource, Devices: n})
		owners[r.podRef(pods, o.container)] = true
	}
	slices.SortFunc(h.List, func(a, b gpu.Allocation) int {
		return cmp.Or(a.Container.Compare(b.Container), cmp.Compare(a.Resource, b.Resource),
			cmp.Compare(a.GPU, b.GPU), cmp.Compare(a.Instance, b.Instance))
	})
	slices.SortFunc(h.Unresolved, func(a, b gpu.Unresolved) int {
		return cmp.Or(a.Container.Compare(b.Container), cmp.Compare(a.Resource, b.Resource))
	})
	h.Pods = slices.SortedFunc(maps.Keys(owners), func(a, b gpu.PodRef) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Pod, b.Pod))
	})
	h.Resources = r.count(devs)
	return h
}

func (r *record) hold(held map[place]*stake, c crowd, u *unit, t target, source string) {
	part, granted, shared := r.share(c, u, t)
	key := place{u.container, u.resource, t.dev, t.instance}
	s := held[key]
	if s == nil {
		s = &stake{known: true, dated: true, Allocation: gpu.Allocation{Container: u.container, Resource: u.resource,
			GPU: t.dev, Instance: t.instance, Source: source}}
		held[key] = s
	}
	if p, ok := part.Get(); ok {
		s.part += p
	} else {
		s.known = false
	}
	s.granted += granted.Or(0)
	s.Shared = s.Shared || shared
	s.told = false
	s.began(u.since)
}

// began dates a holding: it began with its oldest unit, and one of unknown age leaves it unknown.
func (s *stake) began(at gpu.Opt[time.Time]) {
	since, ok := at.Get()
	switch before, known := s.Since.Get(); {
	case !ok || !s.dated:
		s.dated, s.Since = false, gpu.None[time.Time]()
	case !known || since.Before(before):
		s.Since = at
	}
}

// podRef names the pod of a container, with its UID where a source tells and no other contradicts.
func (r *record) podRef(pods *podTable, c gpu.Container) gpu.PodRef {
	key := podKey{c.Namespace, c.Pod}
	ref := gpu.PodRef{Namespace: c.Namespace, Pod: c.Pod, UID: r.uids[key]}
	if p := pods.get(key); p != nil && p.uid != "" {
		switch ref.UID {
		case "", p.uid:
			ref.UID = p.uid
		default:
			ref.UID = ""
		}
	}
	return ref
}

// settle finds the targets of grants and hands each to give. It counts the grants whose GPU is not here;
// elsewhere tells that they lie on no GPU of this node.
func settle(inv *gpu.Inventory, grants []grant, give func(*grant, target)) (missing int, elsewhere bool) {
	elsewhere = true
	for i := range grants {
		grants[i].sharePool(inv)
		targets, away := locate(inv, grants[i].ref)
		if len(targets) == 0 {
			missing++
			elsewhere = elsewhere && away
		}
		for _, t := range targets {
			give(&grants[i], t)
		}
	}
	return missing, elsewhere
}

// nearlyWhole is a share that leaves nothing for another: schemes round the memory of a GPU.
const nearlyWhole = 0.99

// grantTo adds a grant to what a container holds; among is how many containers have it together.
func grantTo(held map[place]*stake, c gpu.Container, resource, source string, since gpu.Opt[time.Time], g *grant, t target, among int) {
	key := place{c, resource, t.dev, t.instance}
	s := held[key]
	if s == nil {
		s = &stake{known: true, dated: true, told: true, Allocation: gpu.Allocation{Container: c, Resource: resource,
			GPU: t.dev, Instance: t.instance, Source: source}}
		held[key] = s
	}
	share, granted := g.share(t)
	if p, ok := share.Get(); ok {
		s.part += p / float64(among)
	} else {
		s.known = false
	}
	s.granted += granted.Or(0) / gpu.Bytes(among)
	s.compute += g.compute.Or(0) / float64(among)
	s.Shared = s.Shared || among > 1 || !g.whole && share.Or(0) < nearlyWhole
	s.began(since)
}

// limit adds to what is held by honest ids the limits that the plugin gave the container, where it has one GPU
// by them.
func (r *record) limit(held map[place]*stake) {
	type owner struct {
		container gpu.Container
		resource  string
	}
	devs := map[owner][]*stake{}
	for key, s := range held {
		if !s.told {
			devs[owner{key.container, key.resource}] = append(devs[owner{key.container, key.resource}], s)
		}
	}
	for h, entry := range r.matched {
		stakes := devs[owner{h.container, h.resource}]
		if len(stakes) != 1 {
			continue
		}
		memory, compute := entry.mpsLimits()
		if stakes[0].granted == 0 {
			stakes[0].granted = memory.Or(0)
		}
		stakes[0].compute = compute.Or(stakes[0].compute)
	}
}

// fit shrinks what schemes granted where it comes to more than the GPU: they may promise the same memory twice,
// and the shares of a GPU are parts of one GPU.
func fit(held map[place]*stake) {
	type spot struct{ dev, instance gpu.UUID }
	sure, promised := map[spot]float64{}, map[spot]float64{}
	for key, s := range held {
		at := spot{key.dev, key.instance}
		if s.told {
			promised[at] += min(s.part, 1)
		} else {
			sure[at] += min(s.part, 1)
		}
	}
	for key, s := range held {
		at := spot{key.dev, key.instance}
		if left := max(0, 1-sure[at]); s.told && promised[at] > left {
			s.part, s.Shared = min(s.part, 1)*left/promised[at], true
		}
	}
}

// count lists the resources of GPUs. GPUs tells which of the uncertain ones hold one after all.
func (r *record) count(devs map[string]bool) []gpu.ResourceCount {
	names := map[string]bool{}
	for resource := range r.capacity.devices {
		names[resource] = true
	}
	for _, resource := range r.resources {
		names[resource] = true
	}
	for resource := range r.answer.allocated {
		names[resource] = true
	}
	var counts []gpu.ResourceCount
	for _, resource := range slices.Sorted(maps.Keys(names)) {
		if r.answer.uncertain[resource] && !devs[resource] {
			continue
		}
		c := gpu.ResourceCount{Resource: resource, Allocated: r.answer.allocated[resource]}
		// The name of a DRA driver has no slash; the kubelet knows no capacity of it. Nor is that of a
		// resource known whose ids were taken for network GPUs'.
		if n, ok := r.capacity.devices[resource]; r.capacity.known && (ok || strings.Contains(resource, "/") && !r.answer.uncertain[resource]) {
			c.Allocatable = gpu.Some(n)
		}
		counts = append(counts, c)
	}
	return counts
}
