package podmap

import (
	"slices"
	"strings"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/podmap/deviceid"
	"github.com/gpu-exporter/gpu-exporter/podmap/source"
)

// resolution is the GPUs of one allocation, and the data source that identified them.
type resolution struct {
	container gpu.Container
	resource  string
	source    string
	since     gpu.Opt[time.Time]
	found     []located
	// missing counts the device IDs whose GPU is unknown; elsewhere means that it is certainly none of this node's.
	missing   int
	elsewhere bool
	// ignored marks an ID that may be a network device's, and is no GPU's.
	ignored bool
}

// resolver resolves the allocations of a snapshot against an inventory and the metadata of pods.
type resolver struct {
	*snapshot
	inv    *gpu.Inventory
	pods   *source.Pods
	direct []directID
	peers  peers
}

func (s *snapshot) resolver(inv *gpu.Inventory, pods *source.Pods) *resolver {
	r := &resolver{snapshot: s, inv: inv, pods: pods}
	for i := range s.direct {
		// A claim with administrator access observes the device, which is not allocated to it.
		if c := s.claim(&s.direct[i]); c == nil || !c.Admin[s.direct[i].id] {
			r.direct = append(r.direct, s.direct[i])
		}
	}
	r.peers = countPeers(r.direct)
	return r
}

// resolve returns the GPUs of every allocation.
func (r *resolver) resolve() []resolution {
	out, members := r.resolvePods()
	for i := range r.direct {
		d := &r.direct[i]
		found := r.resolveDirect(d)
		if all := members[d.container.PodName()]; len(all) > 0 && found.missing == 0 {
			for _, m := range all {
				out = append(out, m.of(r.inv, &found))
			}
			continue
		}
		out = append(out, found)
	}
	requests := r.requests(r.pods)
	for i := range requests {
		out = append(out, r.resolveOpaque(&r.opaque[i], &requests[i]))
	}
	return out
}

// resolveDirect locates a direct ID. What the DRA driver recorded takes precedence over the name of the device, which
// only has its number.
func (r *resolver) resolveDirect(d *directID) resolution {
	out := resolution{container: d.container, resource: d.resource, since: d.since, source: gpu.SourcePodResources}
	targets, elsewhere := deviceid.Locate(r.inv, d.ref)
	if c := r.claim(d); c != nil {
		if recorded, ok := deviceid.ParseNVML(c.UUIDs[d.id]); ok {
			better, away := deviceid.Locate(r.inv, recorded)
			switch {
			case len(better) == 0:
				elsewhere = elsewhere && away
			case !slices.Equal(targets, better):
				targets, out.source = better, gpu.SourceDRA
			}
		}
	}
	if len(targets) == 0 {
		out.missing, out.elsewhere, out.ignored = 1, elsewhere, d.ref.MaybeForeign
	}
	for _, t := range targets {
		out.found = append(out.found, r.share(r.peers, d, t))
	}
	return out
}

// resolveOpaque resolves by the scheme of the IDs, which reads the GPUs from the plugin's response or the pod's annotations.
func (r *resolver) resolveOpaque(o *opaqueIDs, req *deviceid.Request) resolution {
	out := resolution{container: o.container, resource: o.resource, since: o.since}
	recorded, ok := o.scheme.Resolve(req)
	if !ok {
		out.missing = o.devices
		return out
	}
	out.assign(r.inv, recorded, 1)
	if out.missing > 0 {
		out.missing = max(1, o.devices*out.missing/len(recorded.GPUs))
	}
	return out
}

// assign adds the GPUs that a scheme recorded; among is the number of containers that have them together.
func (out *resolution) assign(inv *gpu.Inventory, recorded deviceid.Resolution, among int) {
	out.source, out.elsewhere = recorded.Source, true
	for _, a := range recorded.GPUs {
		targets, elsewhere := deviceid.Locate(inv, a.Ref)
		if len(targets) == 0 {
			out.missing++
			out.elsewhere = out.elsewhere && elsewhere
		}
		for _, t := range targets {
			out.found = append(out.found, limited(inv, a, t, among))
		}
	}
}

// nearlyWhole is a share that leaves nothing for another container: schemes round the memory of a GPU.
const nearlyWhole = 0.99

// limited is a target with the share and limits of an assignment.
func limited(inv *gpu.Inventory, a deviceid.Assignment, t deviceid.Target, among int) located {
	share, memory := a.Limits(inv, t)
	l := located{target: t, share: share, memory: memory, compute: a.Compute, recorded: true,
		shared: among > 1 || !a.Exclusive && share.Or(0) < nearlyWhole}
	if among > 1 {
		l.share, l.compute = divided(share, among), divided(a.Compute, among)
		l.memory = divided(memory, among)
	}
	return l
}

func divided[T ~float64 | ~uint64](o gpu.Opt[T], by int) gpu.Opt[T] {
	if v, ok := o.Get(); ok {
		return gpu.Some(v / T(by))
	}
	return o
}

// member is a container that uses the GPUs which a placeholder pod reserves.
type member struct {
	container gpu.Container
	share     deviceid.Assignment
	among     int
	since     gpu.Opt[time.Time]
}

// of returns what the member has of the placeholder's GPUs.
func (m *member) of(inv *gpu.Inventory, reserved *resolution) resolution {
	out := resolution{container: m.container, resource: reserved.resource, source: gpu.SourceAnnotation, since: m.since}
	for _, l := range reserved.found {
		out.found = append(out.found, limited(inv, m.share, l.target, m.among))
	}
	return out
}

// resolvePods returns the GPUs of pods that request nothing of the kubelet, and the members for which placeholder pods
// reserve theirs. A placeholder without listed members is not among them: its GPU is allocated to itself.
func (r *resolver) resolvePods() (out []resolution, members map[gpu.PodName][]member) {
	type group struct {
		scheme *deviceid.Scheme
		name   string
	}
	places, joined := map[group][]gpu.PodName{}, map[group][]member{}
	listed := map[gpu.PodName]bool{} // with devices
	for _, key := range r.keys {
		listed[key.container.PodName()] = true
	}
	for _, name := range r.pods.Names() {
		meta := r.metadata(r.pods, name)
		if meta == nil || len(r.order[name]) == 0 {
			continue
		}
		pod := schemePod(meta)
		for _, s := range deviceid.PodSchemes() {
			if g, ok := s.Reserves(name, pod); ok {
				places[group{s, g}] = append(places[group{s, g}], name)
				continue
			}
			recorded, ok := s.Resolve(&deviceid.Request{Pod: pod})
			if !ok {
				continue
			}
			containers := s.Containers(pod, r.order[name])
			for _, c := range containers {
				container := gpu.Container{Namespace: name.Namespace, Pod: name.Pod, Name: c}
				if s.Resource == "" {
					for _, a := range recorded.GPUs {
						g := group{s, a.Group}
						joined[g] = append(joined[g], member{container, a, len(containers), meta.Since})
					}
				} else if !listed[name] {
					res := resolution{container: container, resource: s.Resource, since: meta.Since}
					res.assign(r.inv, recorded, len(containers))
					out = append(out, res)
				}
			}
		}
	}
	members = map[gpu.PodName][]member{}
	for g, pods := range places {
		if len(pods) == 1 { // otherwise the group's GPU is ambiguous
			members[pods[0]] = joined[g]
		}
	}
	return out, members
}

// place identifies an allocation: several IDs of one place are one allocation.
type place struct {
	container     gpu.Container
	resource      string
	dev, instance gpu.UUID
}

// tally adds up the resolutions of one place.
type tally struct {
	gpu.Allocation
	share   float64
	known   bool // every share
	dated   bool // every start
	memory  gpu.Bytes
	compute float64
	// recorded means that all of it is recorded by schemes, which may overcommit the GPU.
	recorded bool
}

func (t *tally) add(l located, since gpu.Opt[time.Time]) {
	share, ok := l.share.Get()
	t.share += share
	t.known = t.known && ok
	t.memory += l.memory.Or(0)
	t.compute += l.compute.Or(0)
	t.Shared = t.Shared || l.shared
	t.recorded = t.recorded && l.recorded
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
func (s *snapshot) allocations(inv *gpu.Inventory, pods *source.Pods, labels []string) gpu.Allocations {
	type owner struct {
		container gpu.Container
		resource  string
	}
	var out gpu.Allocations
	tallies, lost := map[place]*tally{}, map[owner]int{}
	names, gpus := map[gpu.PodName]bool{}, map[string]bool{}
	for _, res := range s.resolver(inv, pods).resolve() {
		for _, l := range res.found {
			gpus[res.resource] = true
			key := place{res.container, res.resource, l.target.GPU, l.target.Instance}
			if tallies[key] == nil {
				tallies[key] = &tally{known: true, dated: true, recorded: true, Allocation: gpu.Allocation{
					Container: res.container, Resource: res.resource, GPU: l.target.GPU, Instance: l.target.Instance,
					Source: res.source}}
			}
			tallies[key].add(l, res.since)
		}
		if res.missing > 0 && !res.ignored {
			lost[owner{res.container, res.resource}] += res.missing
			out.Uncertain = out.Uncertain || !res.elsewhere
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
	out.Sort()
	return out
}

// limit adds the limits of MPS that the plugin set for a container to its direct allocations, where it has one GPU by
// them.
func (s *snapshot) limit(tallies map[place]*tally) {
	for key, entry := range s.entries {
		var found []*tally
		for at, t := range tallies {
			if !t.recorded && at.container == key.container && at.resource == key.resource {
				found = append(found, t)
			}
		}
		if len(found) != 1 {
			continue
		}
		memory, compute := (*deviceid.Response)(&entry.Response).MPSLimits()
		if found[0].memory == 0 {
			found[0].memory = memory.Or(0)
		}
		found[0].compute = compute.Or(found[0].compute)
	}
}

// fit scales down recorded shares that add up to more than the GPU: schemes may overcommit it, but the shares of a GPU
// are fractions of one GPU.
func fit(tallies map[place]*tally) {
	type spot struct{ dev, instance gpu.UUID }
	certain, recorded := map[spot]float64{}, map[spot]float64{}
	for key, t := range tallies {
		at := spot{key.dev, key.instance}
		if t.recorded {
			recorded[at] += min(t.share, 1)
		} else {
			certain[at] += min(t.share, 1)
		}
	}
	for key, t := range tallies {
		at := spot{key.dev, key.instance}
		if left := max(0, 1-certain[at]); t.recorded && recorded[at] > left {
			t.share, t.Shared = min(t.share, 1)*left/recorded[at], true
		}
	}
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
