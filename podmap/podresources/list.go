package podresources

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// MaxIDLength bounds device IDs and names in bytes. The longest that any scheme writes is under 100 bytes.
const MaxIDLength = 512

// Bounds of one response, far above what a node can have: Kubernetes supports some hundreds of pods per node, and a
// plugin with one ID per MiB lists 2.4 million for eight GPUs of 288 GiB. More pods refuse the response; a pod that goes
// beyond another bound, or has a name that is none, is refused alone, for its author chooses how many containers it has.
const (
	maxPods             = 4096
	maxContainersPerPod = 1024
	maxContainers       = 16384
	maxResources        = 1024
	maxIDs              = 4 << 20
	maxClaimDevices     = 65536
)

// Keep is how much of a device ID is kept.
type Keep int

const (
	KeepNothing Keep = iota
	KeepHash         // all IDs of the resource mean the same: only their number matters
	KeepID
)

// Filter selects what is kept of a response.
type Filter struct {
	// Resource is called once per resource name of a response, and returns what to keep of each of its device IDs.
	Resource func(name string) func(id string) Keep
	// Hash is the hash that is kept of an ID.
	Hash func(id string) uint64
}

// IDs are the device IDs of one resource in one place.
type IDs struct {
	Resource string
	Whole    []string
	Hashes   []uint64
	Example  string // one of those whose hash is kept
	keep     func(id string) Keep
}

func (s *IDs) add(id string, hash func(string) uint64) {
	if len(id) > MaxIDLength {
		id = strings.Clone(id[:MaxIDLength+1]) // still too long to be valid
	}
	switch s.keep(id) {
	case KeepHash:
		if len(s.Hashes) == 0 {
			s.Example = id
		}
		s.Hashes = append(s.Hashes, hash(id))
	case KeepID:
		s.Whole = append(s.Whole, id)
	}
}

// Merge adds the IDs of another place.
func (s *IDs) Merge(other *IDs) {
	s.Whole = append(s.Whole, other.Whole...)
	s.Hashes = append(s.Hashes, other.Hashes...)
	s.Example = cmp.Or(s.Example, other.Example)
}

// Sort sorts, and drops repetitions: the kubelet lists an ID once per NUMA node.
func (s *IDs) Sort() {
	slices.Sort(s.Whole)
	s.Whole = slices.Compact(s.Whole)
	slices.Sort(s.Hashes)
	s.Hashes = slices.Compact(s.Hashes)
}

// Devices are the device IDs of a response, or of one of its containers, by resource. It is also the response of
// GetAllocatableResources.
type Devices struct {
	ByResource []*IDs
	at         map[string]int // of a resource in ByResource; nil while there are few
	shared     *shared
}

// shared is what all Devices of a response have in common.
type shared struct {
	Filter
	keeps      map[string]func(string) Keep // by resource
	ids        int
	containers int
	claims     int
}

// NewDevices returns a Devices to decode into.
func NewDevices(f Filter) *Devices {
	return &Devices{shared: &shared{Filter: f, keeps: map[string]func(string) Keep{}}}
}

// searched is how many resources are searched; a container rarely has more than one.
const searched = 8

func (d *Devices) find(resource string) (int, bool) {
	if d.at != nil {
		i, ok := d.at[resource]
		return i, ok
	}
	i := slices.IndexFunc(d.ByResource, func(ids *IDs) bool { return ids.Resource == resource })
	return i, i >= 0
}

// of returns the IDs of a resource.
func (d *Devices) of(resource string) (*IDs, error) {
	if i, ok := d.find(resource); ok {
		return d.ByResource[i], nil
	}
	keep, ok := d.shared.keeps[resource]
	if !ok {
		if len(d.shared.keeps) >= maxResources {
			return nil, tooMany("resources", maxResources)
		}
		keep = d.shared.Resource(resource)
		d.shared.keeps[resource] = keep
	}
	d.ByResource = append(d.ByResource, &IDs{Resource: resource, keep: keep})
	switch n := len(d.ByResource); {
	case d.at != nil:
		d.at[resource] = n - 1
	case n > searched:
		d.at = map[string]int{}
		for i, ids := range d.ByResource {
			d.at[ids.Resource] = i
		}
	}
	return d.ByResource[len(d.ByResource)-1], nil
}

// refusal is an error of one pod; the rest of the response is used.
type refusal struct{ error }

func tooMany(what string, limit int) error {
	return refusal{fmt.Errorf("more than %d %s", limit, what)}
}

// ClaimDevice is one device of a DRA claim.
type ClaimDevice struct {
	Driver string
	Claim  [2]string // namespace and name of the ResourceClaim
	Pool   string
	Name   string
	Part   bool   // only a share of the device is allocated
	CDI    string // qualified CDI names of the device, separated by commas
}

func (d ClaimDevice) compare(e ClaimDevice) int {
	return cmp.Or(cmp.Compare(d.Driver, e.Driver), slices.Compare(d.Claim[:], e.Claim[:]),
		cmp.Compare(d.Pool, e.Pool), cmp.Compare(d.Name, e.Name))
}

// Container is what is allocated to one container.
type Container struct {
	Devices
	Claims []ClaimDevice
}

// DistinctClaims returns each device once. One that is listed both as a share and as a whole counts as a share,
// regardless of the order: no container gets more than it may have.
func (c *Container) DistinctClaims() []ClaimDevice {
	gpu.Sort(c.Claims, func(d, e ClaimDevice) int {
		switch by := d.compare(e); {
		case by != 0 || d.Part == e.Part:
			return cmp.Or(by, cmp.Compare(e.CDI, d.CDI))
		case d.Part:
			return -1
		}
		return 1
	})
	return slices.CompactFunc(c.Claims, func(d, e ClaimDevice) bool { return d.compare(e) == 0 })
}

// List is the response of List, merged by container.
type List struct {
	Pods       int // with devices or without
	Containers map[gpu.Container]*Container
	// Order lists the containers of every pod in the order of the response, with devices or without.
	Order map[gpu.PodName][]string
	// Refused are the pods whose devices are unknown, and why.
	Refused map[gpu.PodName]string
	shared  *shared
}

// NewList returns a List to decode into.
func NewList(f Filter) *List {
	return &List{Containers: map[gpu.Container]*Container{}, Order: map[gpu.PodName][]string{},
		Refused: map[gpu.PodName]string{}, shared: NewDevices(f).shared}
}

// refuse drops what was read of a pod.
func (l *List) refuse(pod gpu.PodName, err error) {
	for _, name := range l.Order[pod] {
		delete(l.Containers, gpu.Container{Namespace: pod.Namespace, Pod: pod.Pod, Name: name})
	}
	l.Order[pod], l.Refused[pod] = nil, err.Error()
}

// add adds a container of a pod, which may be listed more than once. Order is searched: it is short, and bounded.
func (l *List) add(name gpu.Container, c *Container) error {
	pod := name.PodName()
	if order := l.Order[pod]; !slices.Contains(order, name.Name) {
		if len(order) >= maxContainersPerPod {
			return tooMany("containers in pod "+pod.Namespace+"/"+pod.Pod, maxContainersPerPod)
		}
		l.Order[pod] = append(order, name.Name)
	}
	into := l.Containers[name]
	if into == nil {
		if len(c.ByResource) > 0 || len(c.Claims) > 0 {
			l.Containers[name] = c
		}
		return nil
	}
	for _, ids := range c.ByResource {
		all, err := into.of(ids.Resource)
		if err != nil {
			return err
		}
		all.Merge(ids)
	}
	into.Claims = append(into.Claims, c.Claims...)
	return nil
}
