package podmap

import (
	"hash/maphash"
	"slices"
	"strings"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// sieve keeps of an answer's ids what the table can make use of.
type sieve struct {
	grammar grammar
	lenses  map[string]*lens
	seed    maphash.Seed // of the hashes in one answer
}

func newSieve(g grammar) sieve {
	if g.seed == (maphash.Seed{}) {
		g.seed = maphash.MakeSeed()
	}
	return sieve{grammar: g, lenses: map[string]*lens{}, seed: g.seed}
}

// lens returns the one lens of a resource.
func (s *sieve) lens(resource string) *lens {
	l, ok := s.lenses[resource]
	if !ok {
		made := s.grammar.lens(resource)
		l = &made
		l.seed = s.seed
		s.lenses[l.resource] = l
	}
	return l
}

// hauls are the ids of several resources.
type hauls []*haul

// of returns the haul of a lens's resource. There are few, so they are searched.
func (h *hauls) of(l *lens) *haul {
	for _, haul := range *h {
		if haul.lens == l {
			return haul
		}
	}
	*h = append(*h, &haul{lens: l})
	return (*h)[len(*h)-1]
}

// haul is the ids of one resource in one place, repetitions among them.
type haul struct {
	lens *lens
	ids  []string
	// hashes stand for ids that all mean the same, so that only their number matters; example is one of them.
	hashes  []uint64
	example string
}

func (h *haul) add(id string) {
	if len(id) > maxIDLength {
		id = strings.Clone(id[:maxIDLength+1]) // it is none, and is not kept whole
	}
	switch read, all := h.lens.fixed(); {
	case all && (read.verdict == foreign || read.verdict == quantity):
	case all:
		if len(h.hashes) == 0 {
			h.example = id
		}
		h.hashes = append(h.hashes, maphash.String(h.lens.seed, id))
	case len(h.lens.rows) == 0 && !mayNameGPU(id):
	default:
		h.ids = append(h.ids, id)
	}
}

// mayNameCard is a quick look, without which every id of every network GPU would be copied.
func mayNameGPU(id string) bool {
	return len(id) > 0 && (id[0] == 'G' || id[0] == 'M' || id[0] == 'n')
}

// set is what the ids are compared by with those of the kubelet's checkpoint. The haul has to be tidy.
func (h *haul) set() idSet {
	hashes := slices.Clone(h.hashes)
	for _, id := range h.ids {
		hashes = append(hashes, hashID(h.lens.seed, id))
	}
	return newIDSet(hashes)
}

// merge adds what another haul of the same resource has.
func (h *haul) merge(other *haul) {
	h.ids = append(h.ids, other.ids...)
	h.hashes = append(h.hashes, other.hashes...)
	if h.example == "" {
		h.example = other.example
	}
}

// tidy sorts and drops repetitions: the kubelet lists an id once per NUMA node.
func (h *haul) tidy() {
	slices.Sort(h.ids)
	h.ids = slices.Compact(h.ids)
	slices.Sort(h.hashes)
	h.hashes = slices.Compact(h.hashes)
}

// listing is a List, merged by container.
type listing struct {
	sieve
	pods       int // with GPUs or without
	containers map[gpu.Container]*container
	// order are the containers of every pod, in the order of the answer, with GPUs or without.
	order map[podKey][]string
}

// podKey names a pod.
type podKey struct{ namespace, name string }

// container is what one container holds.
type container struct {
	hauls   hauls
	devices []device
}

// device is one device of a DRA claim.
type device struct {
	driver, claim, name string
	part                bool // the claim got only a part of it
}

func newListing(g grammar) *listing {
	return &listing{sieve: newSieve(g), containers: map[gpu.Container]*container{}, order: map[podKey][]string{}}
}

func (l *listing) add(name gpu.Container, c *container) {
	pod := podKey{name.Namespace, name.Pod}
	if !slices.Contains(l.order[pod], name.Name) {
		l.order[pod] = append(l.order[pod], name.Name)
	}
	into := l.containers[name]
	if into == nil {
		if len(c.hauls) > 0 || len(c.devices) > 0 {
			l.containers[name] = c
		}
		return
	}
	for _, h := range c.hauls {
		into.hauls.of(h.lens).merge(h)
	}
	into.devices = append(into.devices, c.devices...)
}

// allocatable is a GetAllocatableResources.
type allocatable struct {
	sieve
	hauls hauls
}

func newAllocatable(g grammar) *allocatable { return &allocatable{sieve: newSieve(g)} }
