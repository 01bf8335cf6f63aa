package podmap

import (
	"cmp"
	"strings"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/podmap/source"
)

// place identifies an allocation: several IDs of one place are one allocation.
type place struct {
	container     gpu.Container
	resource      string
	dev, instance gpu.UUID
	compute       gpu.UUID
}

// tally adds up the resolutions of one place.
type tally struct {
	gpu.Allocation
	share  float64
	known  bool // every share
	dated  bool // every start
	memory gpu.Bytes
	// guaranteed is a part of memory.
	guaranteed gpu.Bytes
	compute    float64
	// recorded means that all of it is recorded by schemes, which may overcommit the GPU; authored, that annotations of
	// the pod determine some of it.
	recorded, authored bool
}

func (t *tally) add(l located, since gpu.Opt[time.Time]) {
	share, ok := l.share.Get()
	t.share += share
	t.known = t.known && ok
	t.memory += l.memory.Or(0)
	t.guaranteed += l.guaranteed.Or(0)
	t.compute += l.compute.Or(0)
	t.Shared = t.Shared || l.shared
	t.recorded, t.authored = t.recorded && l.recorded, t.authored || l.authored
	// An allocation starts with its oldest ID; one of unknown start leaves it unknown.
	at, ok := since.Get()
	switch first, started := t.Since.Get(); {
	case !ok || !t.dated:
		t.dated, t.Since = false, gpu.None[time.Time]()
	case !started || at.Before(first):
		t.Since = since
	}
}

// allocations resolves everything. It is a pure function of its arguments.
func (s *snapshot) allocations(inv *gpu.Inventory, pods *source.Pods, labels podLabels) gpu.Allocations {
	type owner struct {
		container gpu.Container
		resource  string
	}
	out := gpu.Allocations{Uncertain: s.unsure, Possible: map[gpu.UUID]bool{}, Listed: s.order}
	tallies, lost := map[place]*tally{}, map[owner]int{}
	names, gpus := map[gpu.PodName]bool{}, map[string]bool{}
	for _, res := range s.resolver(inv, pods).resolve() {
		for _, l := range res.found {
			gpus[res.resource] = true
			key := place{res.container, res.resource, l.target.GPU, l.target.Instance, l.target.ComputeInstance}
			if tallies[key] == nil {
				tallies[key] = &tally{known: true, dated: true, recorded: true, Allocation: gpu.Allocation{
					Container: res.container, Resource: cmp.Or(res.requested, res.resource), GPU: l.target.GPU, Instance: l.target.Instance,
					ComputeInstance: l.target.ComputeInstance, Source: res.source, Replica: res.replica, Claim: res.claim}}
			}
			tallies[key].add(l, res.since)
		}
		if res.missing > 0 && !res.ignored {
			lost[owner{res.container, res.resource}] += res.missing
			out.Uncertain = out.Uncertain || !res.elsewhere && res.possible == nil
			for _, u := range res.possible {
				out.Possible[u] = true
			}
		}
	}
	for pod := range s.refused {
		lost[owner{gpu.Container{Namespace: pod.Namespace, Pod: pod.Pod}, ""}]++
		out.Uncertain = true
	}
	if len(s.unknown) > 0 {
		for _, u := range s.unoffered(inv) {
			out.Possible[u] = true
		}
	}
	s.limit(tallies)
	fit(tallies)
	for _, t := range tallies {
		if t.known {
			t.Share = gpu.Some(gpu.Ratio(min(t.share, 1)))
		}
		if t.memory > 0 {
			t.MemoryLimit = gpu.Some(t.memory)
		}
		if t.guaranteed > 0 {
			t.MemoryGuaranteed = gpu.Some(t.guaranteed)
		}
		if t.compute > 0 {
			t.ComputeLimit = gpu.Some(gpu.Ratio(min(t.compute, 1)))
		}
		out.List = append(out.List, t.Allocation)
		names[t.Container.PodName()] = true
	}
	for o, n := range lost {
		out.Unresolved = append(out.Unresolved, gpu.Unresolved{Container: o.container, Resource: o.resource,
			Devices: n})
		names[o.container.PodName()] = true
	}
	for name := range names {
		out.Pods = append(out.Pods, s.podRef(pods, name, labels))
	}
	out.Resources = s.counts(gpus)
	out.Taints = s.taints(inv)
	out.KubeletHealth = s.kubeletHealth(inv)
	out.Sort()
	return out
}

// limit adds the limits of MPS and of NVIDIA's container toolkit that the plugin set for a container to its direct
// allocations, where it has one GPU by them.
func (s *snapshot) limit(tallies map[place]*tally) {
	if len(s.entries) == 0 {
		return
	}
	type owner struct {
		container gpu.Container
		resource  string
	}
	direct := make(map[owner][]*tally, len(tallies))
	for at, t := range tallies {
		if !t.recorded {
			o := owner{at.container, at.resource}
			direct[o] = append(direct[o], t)
		}
	}
	for key, entry := range s.entries {
		found := direct[owner{key.container, key.resource}]
		if len(found) != 1 {
			continue
		}
		memory, compute := received(entry).MPSLimits()
		limit, guaranteed := received(entry).ToolkitLimits()
		if found[0].memory == 0 {
			found[0].memory = cmp.Or(limit.Or(0), memory.Or(0))
		}
		found[0].guaranteed = guaranteed.Or(found[0].guaranteed)
		found[0].compute = compute.Or(found[0].compute)
	}
}

// fit scales down the shares of a GPU that add up to more than it: schemes may overcommit it, and two plugins may offer
// the same one. Those that no scheme recorded come first, those that the pod's author may have written last.
func fit(tallies map[place]*tally) {
	type spot struct {
		dev, instance gpu.UUID
		rank          int
	}
	sums := map[spot]float64{}
	for key, t := range tallies {
		sums[spot{key.dev, key.instance, t.rank()}] += min(t.share, 1)
	}
	for key, t := range tallies {
		left := 1.0
		for rank := range t.rank() {
			left -= sums[spot{key.dev, key.instance, rank}]
		}
		left = max(0, left)
		if sum := sums[spot{key.dev, key.instance, t.rank()}]; sum > left {
			t.share, t.Shared = min(t.share, 1)*left/sum, true
		}
	}
}

func (t *tally) rank() int {
	switch {
	case t.authored:
		return 2
	case t.recorded:
		return 1
	}
	return 0
}

// counts lists the GPU resources. Gpus are those of which an allocation was found: the uncertain ones among them are
// resources of GPUs after all.
func (s *snapshot) counts(gpus map[string]bool) []gpu.ResourceCount {
	names := map[string]bool{}
	for resource := range s.capacity.devices {
		names[resource] = true
	}
	for _, resource := range s.resources {
		names[resource] = true
	}
	for resource := range s.allocated {
		names[resource] = true
	}
	var counts []gpu.ResourceCount
	for resource := range names {
		if s.uncertain[resource] && !gpus[resource] {
			continue
		}
		c := gpu.ResourceCount{Resource: resource, Allocated: s.allocated[resource]}
		// The kubelet has no capacity of a DRA driver, whose name has no slash, nor is it known of a resource whose IDs
		// were taken for network devices'.
		n, ok := s.capacity.devices[resource]
		if s.capacity.known && (ok || strings.Contains(resource, "/") && !s.uncertain[resource]) {
			c.Allocatable = gpu.Some(n)
		}
		counts = append(counts, c)
	}
	return counts
}
