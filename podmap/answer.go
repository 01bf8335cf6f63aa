package podmap

import (
	"cmp"
	"slices"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// answer is what one List said, read and merged: the kubelet sends one entry per device, and an id once
// per NUMA node, in no stable order. It does not depend on the GPUs of the node, and is never changed
// once it is believed.
type answer struct {
	pods  int // listed, with GPUs or without
	units []unit
	blind []blind
	// held are the ids of each container and resource of GPUs, for comparison with the kubelet's checkpoint.
	held []holderKey
	// order are the containers of every listed pod.
	order map[podKey][]string
	// allocated counts the distinct ids per resource.
	allocated map[string]int
	// uncertain are the resources of which every id may be a network GPU's.
	uncertain map[string]bool
	strange   []Unrecognised
}

// unit is one honest device id, held by one container.
type unit struct {
	unitKey
	ref ref
	// device is, for DRA, the device of the claim; share tells that the claim got only a part of it.
	device string
	part   bool
	// since is when the unit was first seen; absent for what was there before.
	since gpu.Opt[time.Time]
}

// unitKey names a unit from answer to answer.
type unitKey struct {
	container gpu.Container
	resource  string
	id        string // the device id; for DRA the claim and its device
}

// blind counts the ids of one container and resource that are not believed.
type blind struct {
	holderKey
	devices int
	// row is the scheme that wrote them; nil where none or several did.
	row *scheme
	// since is when they were first seen; absent for what was there before.
	since gpu.Opt[time.Time]
}

// holderKey names what one container holds of one resource, from answer to answer.
type holderKey struct {
	container gpu.Container
	resource  string
	ids       idSet
}

func (k holderKey) pod() podKey { return podKey{k.container.Namespace, k.container.Pod} }

// Unrecognised is one kind of device id that is held and not believed. For people.
type Unrecognised struct {
	Resource string // "nvidia.com/gpu", or the name of a DRA driver
	// Scheme is the plugin that is known to write such ids; empty: nobody knows them.
	Scheme string
	// Shape is the id without its particulars: "GPU-#-#-#-#-#-#".
	Shape string
	// Truth says where the GPU could be learned from, where that is known.
	Truth   string
	Devices int // held now
}

// claimPart separates a claim's namespace, name and device in an id; none of them can contain it.
const claimPart = "\x00"

// holdsNothing tells that no GPU is held as far as the answer goes.
func (a *answer) holdsNothing() bool { return len(a.units) == 0 && len(a.blind) == 0 }

// readAnswer reads a List. It uses the listing up.
func readAnswer(list *listing) *answer {
	a := &answer{pods: list.pods, order: list.order, allocated: map[string]int{}, uncertain: map[string]bool{}}
	r := reader{answer: a, all: map[string]*haul{}, certain: map[string]bool{}, strange: map[Unrecognised]int{}}
	for name, c := range list.containers {
		for _, h := range c.hauls {
			h.tidy()
			r.plugin(name, h)
		}
		r.claims(list.grammar, name, c.devices)
	}
	r.finish()
	return a
}

// reader turns merged containers into units.
type reader struct {
	answer  *answer
	all     map[string]*haul // the ids of each GPU resource, over all containers
	certain map[string]bool  // resources with an id that is a GPU's for certain
	strange map[Unrecognised]int
}

func (r *reader) plugin(name gpu.Container, h *haul) {
	resource := h.lens.resource
	hidden := 0
	counted := false
	var rows []*scheme // of the hidden
	for _, id := range h.ids {
		read := h.lens.read(id)
		switch read.verdict {
		case foreign, quantity:
			continue
		case honest:
			r.answer.units = append(r.answer.units, unit{unitKey: unitKey{name, resource, id}, ref: read.ref})
			r.certain[resource] = r.certain[resource] || !read.ref.perhapsForeign
		default:
			hidden++
			rows = append(rows, read.row)
			r.certain[resource] = true
			r.note(resource, id, read, 1)
		}
		counted = true
	}
	if n := len(h.hashes); n > 0 {
		hidden += n
		r.certain[resource], counted = true, true
		read, _ := h.lens.fixed()
		rows = append(rows, read.row)
		r.note(resource, h.example, read, n)
	}
	if !counted {
		return
	}
	key := holderKey{name, resource, h.set()}
	r.answer.held = append(r.answer.held, key)
	if hidden > 0 {
		b := blind{holderKey: key, devices: hidden, row: rows[0]}
		if len(slices.Compact(rows)) > 1 || hidden < key.ids.count {
			b.row = nil // what the plugin answered speaks of all ids together
		}
		r.answer.blind = append(r.answer.blind, b)
	}
	r.count(resource).merge(h)
}

func (r *reader) count(resource string) *haul {
	if r.all[resource] == nil {
		r.all[resource] = &haul{}
	}
	return r.all[resource]
}

func (r *reader) claims(g grammar, name gpu.Container, devices []device) {
	hidden := map[string]int{}
	for _, d := range distinctDevices(devices) {
		l := g.driverLens(d.driver)
		if !l.devs {
			continue
		}
		read := l.read(d.name)
		if read.verdict == honest {
			r.answer.units = append(r.answer.units, unit{unitKey: unitKey{name, d.driver, d.claim + claimPart + d.name},
				ref: read.ref, device: d.name, part: d.part})
		} else {
			hidden[d.driver]++
			r.note(d.driver, d.name, read, 1)
		}
		r.certain[d.driver] = true
		all := r.count(d.driver)
		all.ids = append(all.ids, d.name)
	}
	for driver, n := range hidden {
		r.answer.blind = append(r.answer.blind, blind{holderKey: holderKey{container: name, resource: driver}, devices: n})
	}
}

// strangest bounds the kinds of unknown ids that are told apart.
const strangest = 100

func (r *reader) note(resource, id string, read reading, devices int) {
	u := Unrecognised{Resource: resource, Scheme: read.scheme, Shape: shapeOf(id), Truth: read.truth}
	if _, ok := r.strange[u]; ok || len(r.strange) < strangest {
		r.strange[u] += devices
	}
}

func (r *reader) finish() {
	a := r.answer
	for resource, h := range r.all {
		h.tidy()
		a.allocated[resource] = len(h.ids) + len(h.hashes)
		a.uncertain[resource] = !r.certain[resource]
	}
	slices.SortFunc(a.units, func(x, y unit) int { return x.compare(y.unitKey) })
	slices.SortFunc(a.held, func(x, y holderKey) int {
		return cmp.Or(x.container.Compare(y.container), cmp.Compare(x.resource, y.resource))
	})
	slices.SortFunc(a.blind, func(x, y blind) int {
		return cmp.Or(x.container.Compare(y.container), cmp.Compare(x.resource, y.resource))
	})
	for u, n := range r.strange {
		u.Devices = n
		a.strange = append(a.strange, u)
	}
	slices.SortFunc(a.strange, func(x, y Unrecognised) int {
		return cmp.Or(cmp.Compare(x.Resource, y.Resource), cmp.Compare(x.Scheme, y.Scheme), cmp.Compare(x.Shape, y.Shape))
	})
}

func (k unitKey) compare(l unitKey) int {
	return cmp.Or(k.container.Compare(l.container), cmp.Compare(k.resource, l.resource), cmp.Compare(k.id, l.id))
}

// distinctDevices returns each device of a claim once. What is told as a part and as a whole is a part, whatever the
// order in which the kubelet tells it: nobody is given more than he may hold.
func distinctDevices(devices []device) []device {
	slices.SortFunc(devices, func(d, e device) int {
		if by := d.compare(e); by != 0 || d.part == e.part {
			return by
		}
		if d.part {
			return -1
		}
		return 1
	})
	return slices.CompactFunc(devices, func(d, e device) bool { return d.compare(e) == 0 })
}

func (d device) compare(e device) int {
	return cmp.Or(cmp.Compare(d.driver, e.driver), cmp.Compare(d.claim, e.claim), cmp.Compare(d.name, e.name))
}
