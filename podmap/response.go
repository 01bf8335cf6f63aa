package podmap

import (
	"cmp"
	"hash/maphash"
	"slices"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/podmap/deviceid"
	"github.com/gpu-exporter/gpu-exporter/podmap/podresources"
	"github.com/gpu-exporter/gpu-exporter/podmap/source"
)

// response is what one List response contains, parsed and merged: the kubelet sends one entry per device, and an ID
// once per NUMA node, in no stable order. It does not depend on the GPUs of the node, and is immutable once in use.
type response struct {
	pods       int // with GPUs or without
	connection int // to the kubelet, on which it came, or the one before
	direct     []directID
	opaque     []opaqueIDs
	// foreign are the IDs of resources that are taken for other devices unless their container received a GPU.
	foreign []opaqueIDs
	// amounts counts the distinct IDs of each container and resource that a scheme knows, those that are no devices too.
	amounts map[gpu.Container]map[string]int
	// plugged are the resources by device plugins of the containers that have claims too, those of other devices included.
	plugged map[gpu.Container][]string
	// keys are the device IDs of each container and resource, for comparison with the kubelet's checkpoint.
	keys []allocationKey
	// order lists the containers of every pod.
	order map[gpu.PodName][]string
	// allocated counts the distinct IDs per resource.
	allocated map[string]int
	// uncertain are the resources of which every ID may be a network device's.
	uncertain    map[string]bool
	unrecognized []Unrecognized
	// unread are the forms of the IDs of foreign resources.
	unread map[string]string
	// refused are the pods whose devices are unknown, and why.
	refused map[gpu.PodName]string
	// drivers is true where a known DRA driver of GPUs has a claim.
	drivers bool
}

// directID is one device ID that contains the GPU's UUID or index, allocated to one container.
type directID struct {
	idKey
	ref  deviceid.Ref
	pool string // of the device of a DRA claim
	// unnamed means that a device of a DRA claim has no name that identifies the GPU.
	unnamed bool
	// part is true where only a share of the device of a DRA claim is allocated.
	part bool
	// results are what the scheduler allocated of the device to the container, where a DRA driver recorded that.
	results []source.DeviceResult
	own     bool // none of them is another container's
	// since is when it was first listed; absent for what was in the first response.
	since gpu.Opt[time.Time]
}

// idKey identifies a directID across responses.
type idKey struct {
	container gpu.Container
	resource  string    // for DRA, the driver
	claim     [2]string // for DRA, namespace and name
	id        string    // for DRA, the device
}

func (k idKey) isClaim() bool { return k.claim != [2]string{} }

// opaqueIDs are the device IDs of one container and resource that do not identify the GPU.
type opaqueIDs struct {
	allocationKey
	devices int
	// scheme is the one that wrote them; nil where none or several did.
	scheme *deviceid.Scheme
	since  gpu.Opt[time.Time] // as in directID
}

// allocationKey identifies what one container has of one resource across responses.
type allocationKey struct {
	container gpu.Container
	resource  string
	ids       source.IDSet
}

func (k allocationKey) entry() source.EntryKey {
	return source.EntryKey{Container: k.container.Name, Resource: k.resource, IDs: k.ids}
}

func compareKeys(x, y allocationKey) int {
	return cmp.Or(x.container.Compare(y.container), cmp.Compare(x.resource, y.resource))
}

// Unrecognized is one form of allocated device IDs that could not be mapped to GPUs.
type Unrecognized struct {
	Resource string // "nvidia.com/gpu", or the name of a DRA driver
	// Scheme is the plugin that is known to write such IDs; empty: unknown.
	Scheme string
	// Shape is the ID with its numbers replaced: "GPU-#-#-#-#-#-#".
	Shape string
	// Hint describes which data source has the GPU, where that is known.
	Hint    string
	Devices int
	// Ignored means that it is no GPU for all that is known, and that nothing counts as unresolved.
	Ignored bool
}

// noAllocations reports whether no device is allocated according to the response.
func (r *response) noAllocations() bool {
	return len(r.direct)+len(r.opaque)+len(r.foreign)+len(r.refused) == 0
}

// idTable is the table of schemes with the seed by which IDs are hashed.
type idTable struct {
	deviceid.Table
	seed maphash.Seed
}

// filter keeps the IDs that name GPUs, and of other IDs of GPU resources a hash; so also of other resources and of
// amounts where others is true.
func (t idTable) filter(others bool) podresources.Filter {
	rest := podresources.KeepNothing
	if others {
		rest = podresources.KeepHash
	}
	return podresources.Filter{
		Hash: func(id string) uint64 { return source.Hash(t.seed, id) },
		Resource: func(name string) func(string) podresources.Keep {
			p := t.Plugin(name)
			all, fixed := p.Fixed()
			return func(id string) podresources.Keep {
				switch {
				case fixed && all.Class == deviceid.Quantity, p.Ignores(id):
					return rest
				case fixed:
					return podresources.KeepHash
				}
				return podresources.KeepID
			}
		},
	}
}

// parse parses a List response, which it uses up.
func (t idTable) parse(list *podresources.List) *response {
	r := reader{table: t, all: map[string]*podresources.IDs{}, certain: map[string]bool{},
		forms: map[Unrecognized]int{},
		response: &response{pods: list.Pods, order: list.Order, refused: list.Refused, allocated: map[string]int{},
			amounts: map[gpu.Container]map[string]int{}, plugged: map[gpu.Container][]string{}, uncertain: map[string]bool{},
			unread: map[string]string{}}}
	for name, c := range list.Containers {
		for _, ids := range c.ByResource {
			r.plugin(name, ids)
			if len(c.Claims) > 0 {
				r.plugged[name] = append(r.plugged[name], ids.Resource)
			}
		}
		r.claims(name, c.DistinctClaims())
	}
	return r.finish()
}

// reader turns merged containers into allocations.
type reader struct {
	*response
	table   idTable
	all     map[string]*podresources.IDs // of each GPU resource, over all containers
	certain map[string]bool              // resources with an ID that is certainly a GPU's
	forms   map[Unrecognized]int
}

func (r *reader) plugin(name gpu.Container, ids *podresources.IDs) {
	ids.Sort()
	resource, parser := ids.Resource, r.table.Plugin(ids.Resource)
	counts := map[deviceid.Class]int{}
	var schemes []*deviceid.Scheme // of the IDs that are not direct
	hashes := slices.Clone(ids.Hashes)
	count := func(p deviceid.Parsed, id string, n int) {
		counts[p.Class] += n
		if p.Class == deviceid.Opaque || p.Class == deviceid.Foreign {
			schemes = append(schemes, p.Scheme)
		}
		if p.Class == deviceid.Opaque {
			r.note(resource, id, p.Scheme, n)
		}
	}
	for _, id := range ids.Whole {
		hashes = append(hashes, source.Hash(r.table.seed, id))
		p := parser.Parse(id)
		if count(p, id, 1); p.Class == deviceid.Direct {
			r.direct = append(r.direct, directID{idKey: idKey{container: name, resource: resource, id: id}, ref: p.Ref})
			r.certain[resource] = r.certain[resource] || !p.Ref.MaybeForeign
		}
	}
	if n := len(ids.Hashes); n > 0 {
		p, _ := parser.Fixed()
		count(p, ids.Example, n)
	}
	listed := len(hashes) - counts[deviceid.NotGPU]
	if listed == 0 {
		return
	}
	if r.amounts[name] == nil {
		r.amounts[name] = map[string]int{}
	}
	r.amounts[name][resource] = listed
	if counts[deviceid.Quantity] > 0 {
		return
	}
	key := allocationKey{name, resource, source.NewIDSet(hashes)}
	r.keys = append(r.keys, key)
	if devices := listed - counts[deviceid.Direct]; devices > 0 {
		o := opaqueIDs{allocationKey: key, devices: devices, scheme: schemes[0]}
		if len(slices.Compact(schemes)) > 1 || devices < key.ids.Len() {
			o.scheme = nil // the plugin's response is about all IDs together
		}
		if counts[deviceid.Direct]+counts[deviceid.Opaque] == 0 {
			r.foreign = append(r.foreign, o)
			if len(r.unread) < maxForms {
				r.unread[resource] = max(r.unread[resource], deviceid.Shape(ids.Example))
			}
			return
		}
		r.opaque = append(r.opaque, o)
	}
	r.of(resource).Merge(ids)
}

func (r *reader) of(resource string) *podresources.IDs {
	if r.all[resource] == nil {
		r.all[resource] = &podresources.IDs{}
	}
	return r.all[resource]
}

func (r *reader) claims(name gpu.Container, devices []podresources.ClaimDevice) {
	for _, d := range devices {
		p := r.table.Claim(d.Driver, d.Name, d.CDI)
		if p.Class == deviceid.NotGPU {
			continue
		}
		unnamed := p.Class != deviceid.Direct
		r.drivers = r.drivers || !unnamed && !p.Ref.Guessed
		if unnamed {
			r.note(d.Driver, d.Name, p.Scheme, 1)
		}
		r.direct = append(r.direct, directID{idKey: idKey{name, d.Driver, d.Claim, d.Name}, ref: p.Ref, pool: d.Pool,
			part: d.Part, unnamed: unnamed})
		r.certain[d.Driver] = true
		all := r.of(d.Driver)
		all.Whole = append(all.Whole, d.Name)
	}
}

// maxForms bounds the forms of unknown IDs that are distinguished.
const maxForms = 100

// note counts IDs that are not direct; those of a GPU resource are certainly a GPU's.
func (r *reader) note(resource, id string, s *deviceid.Scheme, devices int) {
	r.certain[resource] = true
	u := Unrecognized{Resource: resource, Shape: deviceid.Shape(id)}
	if s != nil {
		u.Scheme, u.Hint = s.Name, s.Hint
	}
	if _, ok := r.forms[u]; ok || len(r.forms) < maxForms {
		r.forms[u] += devices
	}
}

func (r *reader) finish() *response {
	for resource, ids := range r.all {
		ids.Sort()
		r.allocated[resource] = len(ids.Whole) + len(ids.Hashes)
		r.uncertain[resource] = !r.certain[resource]
	}
	gpu.Sort(r.direct, func(x, y directID) int {
		return cmp.Or(x.container.Compare(y.container), cmp.Compare(x.resource, y.resource),
			slices.Compare(x.claim[:], y.claim[:]), cmp.Compare(x.id, y.id))
	})
	gpu.Sort(r.keys, compareKeys)
	for _, all := range [][]opaqueIDs{r.opaque, r.foreign} {
		gpu.Sort(all, func(x, y opaqueIDs) int { return compareKeys(x.allocationKey, y.allocationKey) })
	}
	for u, n := range r.forms {
		u.Devices = n
		r.unrecognized = append(r.unrecognized, u)
	}
	gpu.Sort(r.unrecognized, func(x, y Unrecognized) int {
		return cmp.Or(cmp.Compare(x.Resource, y.Resource), cmp.Compare(x.Scheme, y.Scheme), cmp.Compare(x.Shape, y.Shape))
	})
	return r.response
}

// setSince carries over the start of each allocation from the response before; new ones start now. What the first
// response has started at an unknown time.
func (r *response) setSince(before *response, now gpu.Opt[time.Time]) {
	if before == nil {
		return
	}
	since := map[any]gpu.Opt[time.Time]{}
	for _, d := range before.direct {
		since[d.idKey] = d.since
	}
	for _, o := range slices.Concat(before.opaque, before.foreign) {
		since[o.allocationKey] = o.since
	}
	start := func(key any) gpu.Opt[time.Time] {
		if at, ok := since[key]; ok {
			return at
		}
		return now
	}
	for i := range r.direct {
		r.direct[i].since = start(r.direct[i].idKey)
	}
	for _, all := range [][]opaqueIDs{r.opaque, r.foreign} {
		for i := range all {
			all[i].since = start(all[i].allocationKey)
		}
	}
}
