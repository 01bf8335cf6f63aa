package podmap

import (
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/podmap/deviceid"
	"github.com/gpu-exporter/gpu-exporter/podmap/source"
)

// resolution is the GPUs of one allocation, and the data source that identified them.
type resolution struct {
	container gpu.Container
	resource  string // of a claim, its driver
	requested string // the extended resource that the claim serves, where known
	source    string
	since     gpu.Opt[time.Time]
	replica   string
	claim     gpu.ClaimDevice
	found     []located
	// missing counts the device IDs whose GPU is unknown; elsewhere means that it is certainly none of this node's.
	missing   int
	elsewhere bool
	// possible are the GPUs that it may be; nil: any.
	possible []gpu.UUID
	// ignored marks an ID that may be a network device's, and is no GPU's.
	ignored bool
	origin  origin
	devices int // device IDs that the kubelet lists, where they do not identify the GPU
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
	served := s.servedContainers()
	for i := range s.direct {
		d := s.direct[i]
		if c := s.claim(&d); c != nil {
			d.results = c.Results
			if of, ok := served[podClaim{d.container.PodName(), d.claim}]; ok {
				d.results, d.own = nil, true
				for _, result := range c.Results {
					if of[result.Request] == d.container.Name {
						d.results = append(d.results, result)
					}
				}
			}
			// A claim with administrator access observes the device, which is not allocated to it.
			if c.Admin || len(c.Results) > 0 && len(d.results) == 0 {
				continue
			}
		}
		r.direct = append(r.direct, d)
	}
	r.peers = countPeers(r.direct)
	return r
}

// resolve returns the GPUs of every allocation.
func (r *resolver) resolve() []resolution {
	out, members := r.resolvePods()
	fractional := map[gpu.UUID]bool{}
	for i := range out {
		for _, l := range out[i].found {
			fractional[l.target.GPU] = fractional[l.target.GPU] || out[i].source == gpu.SourceFractions
		}
	}
	for i := range r.direct {
		d := &r.direct[i]
		found := r.resolveDirect(d)
		if deviceid.Placeholder(d.container) && len(found.found) == 1 && fractional[found.found[0].target.GPU] {
			continue // it reserves the GPU for the containers that are recorded
		}
		if all := members[d.container.PodName()]; len(all) > 0 && found.missing == 0 {
			for _, m := range all {
				out = append(out, m.of(r.inv, &found))
			}
			continue
		}
		out = append(out, found)
	}
	requests := r.requests(r.inv, r.pods)
	for i := range requests {
		out = append(out, r.resolveOpaque(&r.opaque[i], &requests[i]))
	}
	contest(out)
	return out
}

// origin is what determines the GPUs of a resolution: whoever creates a pod writes its annotations.
type origin int

const (
	fromNode   origin = iota // the kubelet, or what an agent recorded on the node
	fromChoice               // an annotation, of a device that the kubelet lists
	fromClaim                // an annotation alone
)

// contest takes from resolutions by annotations the GPUs that are another container's by what the kubelet lists: those
// that it has as a whole, and from annotations alone also those that it shares.
func contest(all []resolution) {
	taken := map[gpu.UUID][]located{}
	for _, by := range []origin{fromNode, fromChoice, fromClaim} {
		for i := range all {
			res, before := &all[i], len(all[i].found)
			if res.origin != by || by == fromNode {
				continue
			}
			res.found = slices.DeleteFunc(res.found, func(l located) bool {
				return slices.ContainsFunc(taken[l.target.GPU], func(other located) bool {
					a, b := l.target.Instance, other.target.Instance
					return (a == b || a == "" || b == "") && (by == fromClaim || !other.shared)
				})
			})
			if lost := before - len(res.found); lost > 0 {
				res.elsewhere = by == fromClaim && (res.missing == 0 || res.elsewhere)
				res.missing += max(lost, res.devices*lost/before)
			}
		}
		for i := range all {
			if res := &all[i]; res.origin == by && !deviceid.Placeholder(res.container) {
				for _, l := range res.found {
					taken[l.target.GPU] = append(taken[l.target.GPU], l)
				}
			}
		}
	}
}

// resolveDirect locates a direct ID. What a DRA driver recorded takes precedence over the name of the device, which at
// most has its number.
func (r *resolver) resolveDirect(d *directID) resolution {
	out := resolution{container: d.container, resource: d.resource, since: d.since, source: gpu.SourcePodResources}
	if d.isClaim() {
		out.claim = gpu.ClaimDevice{Namespace: d.claim[0], Name: d.claim[1], Driver: d.resource, Pool: d.pool, Device: d.id}
		out.requested = r.requested(d)
	} else if d.ref.Replica {
		out.replica = d.id[strings.LastIndexFunc(d.id, func(r rune) bool { return !unicode.IsDigit(r) })+1:]
	}
	targets, elsewhere := deviceid.Locate(r.inv, d.ref)
	for _, recorded := range r.recorded(d) {
		better, away := deviceid.Locate(r.inv, recorded.Ref)
		if len(better) == 0 {
			elsewhere = away && (elsewhere || d.unnamed)
			continue
		}
		if !slices.Equal(targets, better) {
			targets, out.source = better, recorded.source
		}
		break
	}
	if len(targets) == 0 {
		out.missing, out.elsewhere, out.ignored = 1, elsewhere, d.ref.MaybeForeign
		out.possible, _ = deviceid.Possible(r.inv, d.ref)
		if d.ref.Mediated() {
			out.possible = r.unoffered(r.inv)
		}
	}
	for _, t := range targets {
		out.found = append(out.found, r.share(r.peers, d, t))
	}
	return out
}

// resolveOpaque resolves by the scheme of the IDs, which reads the GPUs from the plugin's response or the pod's annotations.
func (r *resolver) resolveOpaque(o *opaqueIDs, req *deviceid.Request) resolution {
	out := resolution{container: o.container, resource: o.resource, since: o.since, devices: o.devices}
	recorded, ok := o.scheme.Resolve(req)
	if !ok {
		out.missing = o.devices
		return out
	}
	if recorded.Source == gpu.SourceAnnotation {
		out.origin = fromChoice
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
			l := limited(inv, a, t, among)
			l.authored = recorded.Authored
			out.found = append(out.found, l)
		}
	}
}

// nearlyWhole is a share that leaves nothing for another container: schemes round the memory of a GPU.
const nearlyWhole = 0.99

// limited is a target with the share and limits of an assignment.
func limited(inv *gpu.Inventory, a deviceid.Assignment, t deviceid.Target, among int) located {
	share, memory := a.Limits(inv, t)
	l := located{target: t, share: share, memory: memory, compute: a.Compute, guaranteed: a.Guaranteed, recorded: true,
		shared: among > 1 || !a.Exclusive && share.Or(0) < nearlyWhole}
	if among > 1 {
		l.share, l.compute = divided(share, among), divided(a.Compute, among)
		l.memory, l.guaranteed = divided(memory, among), divided(a.Guaranteed, among)
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
		l = limited(inv, m.share, l.target, m.among)
		l.authored = true
		out.found = append(out.found, l)
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
	listed, has := map[gpu.PodName]bool{}, map[gpu.Container]bool{} // with devices
	note := func(c gpu.Container) { listed[c.PodName()], has[c] = true, true }
	for i := range r.direct {
		note(r.direct[i].container)
	}
	for i := range r.opaque {
		note(r.opaque[i].container)
	}
	records := r.fractionalContainers()
	for _, name := range r.pods.Names() {
		meta := r.metadata(r.pods, name)
		if meta == nil || len(r.order[name]) == 0 {
			continue
		}
		pod := schemePod(meta)
		for _, s := range r.schemes {
			if g, ok := s.Reserves(name, pod); ok {
				places[group{s, g}] = append(places[group{s, g}], name)
				continue
			}
			containers := s.Containers(pod, r.order[name])
			among := len(containers)
			if s.PerContainer {
				among = 1
			}
			for _, c := range containers {
				container := gpu.Container{Namespace: name.Namespace, Pod: name.Pod, Name: c}
				req := &deviceid.Request{Pod: pod, Container: container, Inventory: r.inv}
				if s == deviceid.NvFractions() {
					req.Recorded = records[container]
					delete(records, container)
				}
				recorded, ok := s.Resolve(req)
				switch {
				case !ok || listed[name] && !s.PerContainer: // it has what the kubelet lists
				case s.Resource == "":
					delete(records, container) // it has the GPU that is reserved for its group
					for _, a := range recorded.GPUs {
						g := group{s, a.Group}
						joined[g] = append(joined[g], member{container, a, among, meta.Since})
					}
				case !has[container]:
					res := resolution{container: container, resource: s.Resource, since: meta.Since}
					if recorded.Source == gpu.SourceAnnotation {
						res.origin = fromClaim
					}
					res.assign(r.inv, recorded, among)
					out = append(out, res)
				}
			}
		}
	}
	for container, gpus := range records { // of pods without metadata
		if has[container] {
			continue // its limits are those of what the kubelet lists
		}
		res := resolution{container: container, resource: deviceid.NvFractions().Resource}
		res.assign(r.inv, deviceid.Resolution{Source: gpu.SourceFractions, GPUs: gpus}, 1)
		out = append(out, res)
	}
	members = map[gpu.PodName][]member{}
	for g, pods := range places {
		if len(pods) == 1 { // otherwise the group's GPU is ambiguous
			members[pods[0]] = joined[g]
		}
	}
	return out, members
}

// fractionalContainers are the GPUs of containers by the records of the GPU fractioning operator. A record has the ID of
// its container; where the name of that is unknown, it is the only one of its pod, or the GPU is unresolved.
func (r *resolver) fractionalContainers() map[gpu.Container][]deviceid.Assignment {
	out := map[gpu.Container][]deviceid.Assignment{}
	if r.fractions == nil {
		return out
	}
	for i := range r.fractions.List {
		f := &r.fractions.List[i]
		order := r.order[f.PodName]
		uid := r.uids[f.PodName]
		if meta := r.pods.Get(f.PodName); meta != nil {
			uid = meta.UID
		}
		if len(order) == 0 || uid != "" && f.UID != "" && uid != f.UID {
			continue // of a pod that has ended
		}
		c := gpu.Container{Namespace: f.Namespace, Pod: f.Pod}
		switch {
		case slices.Contains(order, f.Container):
			c.Name = f.Container
		case len(order) == 1:
			c.Name = order[0]
		}
		gpus := []deviceid.Assignment{{}}
		if c.Name != "" {
			gpus = deviceid.Fraction(f.UUIDs, f.Minors, float64(f.MiB), f.Percent)
		}
		if before := out[c]; before != nil {
			gpus = deviceid.Merge(before, gpus)
		}
		out[c] = gpus
	}
	return out
}
