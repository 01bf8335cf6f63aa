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
	// resources are the names of cards that were ever seen held: their counts go on at 0.
	resources []string
}

// target is a card or MIG instance that an id names. Part is the id's part of the instance, else of the
// card: less than 1 where a MIG device is one of several compute instances.
type target struct {
	card, instance gpu.UUID
	part           float64
	memory         gpu.Opt[gpu.Bytes] // of the card
}

// locate resolves a ref against the cards of the node. Where it finds none, elsewhere tells that the id
// certainly names none of these cards.
func locate(inv *gpu.Inventory, r ref) (targets []target, elsewhere bool) {
	if inv == nil {
		inv = &gpu.Inventory{}
	}
	switch r.by {
	case byUUID:
		if card, ok := inv.ByUUID(r.uuid); ok {
			return whole(card), false
		}
		return nil, allNamed(inv)
	case byMIG:
		return instanceByUUID(inv, r.uuid), false
	case byParts:
		if t := instanceByUUID(inv, r.full); t != nil {
			return t, false
		}
		card, ok := inv.ByUUID(r.uuid)
		if !ok {
			return nil, allNamed(inv)
		}
		return instance(card, func(in *gpu.Instance) bool { return in.GI == r.gi }, func(ci gpu.ComputeInstance) bool { return ci.CI == r.ci }), false
	case byMinor:
		card, ok := inv.ByMinor(r.minor)
		if !ok {
			return nil, allNumbered(inv)
		}
		if r.gi < 0 {
			return whole(card), false
		}
		return instance(card, func(in *gpu.Instance) bool { return in.GI == r.gi }, nil), false
	case byProfile:
		card, ok := inv.ByMinor(r.minor)
		if !ok {
			return nil, allNumbered(inv)
		}
		return instance(card, r.placed, nil), false
	case byPCI:
		for i := range inv.Cards {
			if inv.Cards[i].PCI == r.pci {
				return whole(&inv.Cards[i]), false
			}
		}
		// A virtual function lies on a card that has another address.
		return nil, false
	case byAll:
		for i := range inv.Cards {
			targets = append(targets, whole(&inv.Cards[i])...)
		}
		return targets, false
	case bySole:
		if len(inv.Cards) == 1 {
			return whole(&inv.Cards[0]), false
		}
		return nil, false
	case byDetached:
		return nil, true
	}
	return nil, false
}

// placed reports whether a GPU instance has the profile and the place that the ref names.
func (r ref) placed(in *gpu.Instance) bool {
	is := func(o gpu.Opt[int], want int) bool { v, ok := o.Get(); return ok && v == want }
	return is(in.ProfileID, r.profile) && is(in.PlacementStart, r.start) && (r.size < 0 || is(in.PlacementSize, r.size))
}

func whole(card *gpu.InventoryCard) []target {
	return []target{{card: card.UUID, part: 1, memory: card.Memory}}
}

func instanceByUUID(inv *gpu.Inventory, uuid gpu.UUID) []target {
	card, in, ok := inv.ByInstance(uuid)
	if !ok {
		return nil
	}
	return instance(card, func(other *gpu.Instance) bool { return other == in },
		func(ci gpu.ComputeInstance) bool { return ci.UUID == uuid })
}

// instance returns the GPU instance that matches, or the part of it that one compute instance is. A nil
// compute names the whole.
func instance(card *gpu.InventoryCard, match func(*gpu.Instance) bool, compute func(gpu.ComputeInstance) bool) []target {
	for i := range card.Instances {
		in := &card.Instances[i]
		if in.UUID == "" || !match(in) {
			continue
		}
		t := target{card: card.UUID, instance: in.UUID, part: 1}
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

// allNamed tells that a UUID that is not in the inventory is none of its cards': every card has its own.
func allNamed(inv *gpu.Inventory) bool {
	return !slices.ContainsFunc(inv.Cards, func(c gpu.InventoryCard) bool { return !strings.HasPrefix(string(c.UUID), "GPU-") })
}

// allNumbered tells the same of minor numbers.
func allNumbered(inv *gpu.Inventory) bool {
	return !slices.ContainsFunc(inv.Cards, func(c gpu.InventoryCard) bool { return !c.Minor.Present() })
}

// crowd counts who else is on the same id, device or card, so that shares add up.
type crowd struct {
	// holders counts the containers that hold one and the same id, or device of one claim.
	holders map[[2]string]int
	// claims are the claims that name one device.
	claims map[[2]string]map[string]bool
	// replicas are the replicas that are held of one card or instance.
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
		// The name only looks like a memory scheme's where the slices are more than the card.
		if r.slices(u.ref.base) <= total {
			return gpu.Some(p * float64(u.ref.memory) / float64(total)), gpu.Some(u.ref.memory), true
		}
	}
	return gpu.Some(p / float64(replicas)), granted, true
}

// slices sums the memory of all slices of a card, over the resources that grant memory.
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
	container      gpu.Container
	resource       string
	card, instance gpu.UUID
}

// stake collects the units of one place.
type stake struct {
	gpu.Holding
	part    float64
	known   bool // every unit's part
	dated   bool // every unit's beginning
	granted gpu.Bytes
}

// resolve names the cards. It is a pure function of its arguments.
func (r *record) resolve(inv *gpu.Inventory) gpu.Holdings {
	h := gpu.Holdings{}
	crowd := countCrowd(r.answer.units)
	held := map[place]*stake{}
	type owner struct {
		container gpu.Container
		resource  string
	}
	lost := map[owner]int{}
	cards := map[string]bool{} // uncertain resources that turned out to hold a card
	for i := range r.answer.units {
		u := &r.answer.units[i]
		targets, elsewhere := locate(inv, u.ref)
		if len(targets) == 0 {
			if !u.ref.perhapsForeign {
				lost[owner{u.container, u.resource}]++
				h.Untruthful = h.Untruthful || !elsewhere
			}
			continue
		}
		cards[u.resource] = true
		for _, t := range targets {
			r.hold(held, crowd, u, t)
		}
	}
	for _, b := range r.answer.blind {
		lost[owner{b.container, b.resource}] += b.devices
		h.Untruthful = true
	}

	pods := map[gpu.PodRef]bool{}
	for _, s := range held {
		if s.known {
			s.Share = gpu.Some(gpu.Ratio(min(s.part, 1)))
		}
		if s.granted > 0 {
			s.GrantedMemory = gpu.Some(s.granted)
		}
		h.List = append(h.List, s.Holding)
		pods[gpu.PodRef{Namespace: s.Container.Namespace, Pod: s.Container.Pod}] = true
	}
	for o, n := range lost {
		h.Unresolved = append(h.Unresolved, gpu.Unresolved{Container: o.container, Resource: o.resource, Devices: n})
		pods[gpu.PodRef{Namespace: o.container.Namespace, Pod: o.container.Pod}] = true
	}
	slices.SortFunc(h.List, func(a, b gpu.Holding) int {
		return cmp.Or(a.Container.Compare(b.Container), cmp.Compare(a.Resource, b.Resource),
			cmp.Compare(a.Card, b.Card), cmp.Compare(a.Instance, b.Instance))
	})
	slices.SortFunc(h.Unresolved, func(a, b gpu.Unresolved) int {
		return cmp.Or(a.Container.Compare(b.Container), cmp.Compare(a.Resource, b.Resource))
	})
	h.Pods = slices.SortedFunc(maps.Keys(pods), func(a, b gpu.PodRef) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Pod, b.Pod))
	})
	h.Resources = r.count(cards)
	return h
}

func (r *record) hold(held map[place]*stake, c crowd, u *unit, t target) {
	part, granted, shared := r.share(c, u, t)
	key := place{u.container, u.resource, t.card, t.instance}
	s := held[key]
	if s == nil {
		s = &stake{known: true, dated: true, Holding: gpu.Holding{Container: u.container, Resource: u.resource,
			Card: t.card, Instance: t.instance, Source: gpu.SourcePodResources}}
		held[key] = s
	}
	if p, ok := part.Get(); ok {
		s.part += p
	} else {
		s.known = false
	}
	s.granted += granted.Or(0)
	s.Shared = s.Shared || shared
	// The holding began with its oldest unit, and one of unknown age leaves it unknown.
	since, ok := u.since.Get()
	switch before, known := s.Since.Get(); {
	case !ok || !s.dated:
		s.dated, s.Since = false, gpu.None[time.Time]()
	case !known || since.Before(before):
		s.Since = u.since
	}
}

// count lists the resources of cards. Cards tells which of the uncertain ones hold one after all.
func (r *record) count(cards map[string]bool) []gpu.ResourceCount {
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
		if r.answer.uncertain[resource] && !cards[resource] {
			continue
		}
		c := gpu.ResourceCount{Resource: resource, Allocated: r.answer.allocated[resource]}
		// The name of a DRA driver has no slash; the kubelet knows no capacity of it. Nor is that of a
		// resource known whose ids were taken for network cards'.
		if n, ok := r.capacity.devices[resource]; r.capacity.known && (ok || strings.Contains(resource, "/") && !r.answer.uncertain[resource]) {
			c.Allocatable = gpu.Some(n)
		}
		counts = append(counts, c)
	}
	return counts
}
