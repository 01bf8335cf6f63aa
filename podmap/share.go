package podmap

import (
	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/podmap/deviceid"
)

// located is a GPU or instance of a resolution, with the allocated share and the limits.
type located struct {
	target deviceid.Target
	share  gpu.Opt[float64]
	memory gpu.Opt[gpu.Bytes]
	// guaranteed is the requested memory, where that is beside the limit.
	guaranteed gpu.Opt[gpu.Bytes]
	compute    gpu.Opt[float64]
	shared     bool // others may have it too
	// recorded means that share and limits are those of a scheme, which may overcommit the GPU.
	recorded bool
	// authored means that an annotation of the pod determines them.
	authored bool
}

// peers counts the other allocations of the same ID, device or GPU, so that shares add up.
type peers struct {
	// containers counts the containers that one and the same ID, or device of one claim, is allocated to.
	containers map[idKey]int // without container
	// claims are the claims that name one device.
	claims map[[2]string]map[[2]string]bool // by resource and device
	// replicas are the allocated replicas of one GPU or instance.
	replicas map[replicaKey]map[string]bool
}

func countPeers(direct []directID) peers {
	p := peers{map[idKey]int{}, map[[2]string]map[[2]string]bool{}, map[replicaKey]map[string]bool{}}
	for i := range direct {
		d := &direct[i]
		p.containers[d.shared()]++
		if d.isClaim() {
			add(p.claims, [2]string{d.resource, d.id}, d.claim)
		}
		if d.ref.Replica {
			add(p.replicas, replicaKey{d.resource, d.ref.Base}, d.id)
		}
	}
	return p
}

func (k idKey) shared() idKey {
	k.container = gpu.Container{}
	return k
}

func add[K, V comparable](sets map[K]map[V]bool, key K, member V) {
	if sets[key] == nil {
		sets[key] = map[V]bool{}
	}
	sets[key][member] = true
}

// share returns what one container has of a target by one direct ID. The share is absent where nothing determines it:
// replicas that were never listed, a device of which a claim has a part, a device of two claims (one may be an
// administrator's).
func (s *snapshot) share(p peers, d *directID, t deviceid.Target) located {
	containers := float64(p.containers[d.shared()])
	if d.own {
		containers = 1
	}
	l := located{target: t, shared: containers > 1 || d.ref.Replica}
	size := t.Memory.Or(0)
	part := t.Part / containers
	if d.isClaim() {
		if s.claim(d) != nil && (d.part || d.consumes()) && t.Instance == "" {
			l.shared, l.recorded = true, true
			if percentage := d.consumed("cores"); percentage > 0 {
				l.compute = gpu.Some(min(percentage/100, 1) / containers)
				l.share = l.compute
			}
			if published := s.slices.Device(d.resource, d.id); published != nil {
				mine := d.consumed("shares")
				if all, _ := deviceid.ParseQuantity(published.Capacity["shares"]); mine > 0 && mine <= all {
					l.share = gpu.Some(mine / all / containers)
				}
			}
			if b, ok := deviceid.Bytes(d.consumed("memory") / containers).Get(); ok && size > 0 {
				l.share, l.memory = gpu.Some(min(float64(b)/float64(size), 1/containers)), gpu.Some(b)
			}
			return l
		}
		if d.part || len(p.claims[[2]string{d.resource, d.id}]) > 1 {
			l.shared = true
			return l
		}
	}
	if !d.ref.Replica {
		l.share = gpu.Some(part)
		return l
	}
	key := replicaKey{d.resource, d.ref.Base}
	listed := s.capacity.plugged[key].replicas
	switch {
	case listed == 0:
	case d.ref.Memory > 0 && size == 0:
	case d.ref.Memory > 0 && s.sliced(d.ref.Base) <= size:
		l.share = gpu.Some(part * float64(d.ref.Memory) / float64(size))
		l.memory = gpu.Some(d.ref.Memory)
	default:
		// More may be allocated than is listed, if the plugin was reconfigured while pods ran.
		l.share = gpu.Some(part / float64(max(listed, len(p.replicas[key]))))
	}
	return l
}

// sliced sums the memory of all slices of a GPU, over the resources with memory limits. Where that is more than the GPU
// has, the name of a resource only looks like a memory limit.
func (s *snapshot) sliced(base string) gpu.Bytes {
	var sum gpu.Bytes
	for key, d := range s.capacity.plugged {
		if key.base == base {
			sum += d.memory * gpu.Bytes(d.replicas)
		}
	}
	return sum
}
