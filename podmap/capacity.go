package podmap

import (
	"cmp"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/podmap/deviceid"
	"github.com/gpu-exporter/gpu-exporter/podmap/podresources"
)

// replicaKey identifies what the replicas of one GPU or instance have in common.
type replicaKey struct{ resource, base string }

// replicas are those of one GPU or instance, and the memory limit of each.
type replicas struct {
	count  int
	memory gpu.Bytes
}

// capacity is what the kubelet can allocate. It is immutable once in use.
type capacity struct {
	// known is false until the first response to GetAllocatableResources.
	known bool
	// devices counts the distinct IDs per GPU resource. A resource that was listed once remains, at 0.
	devices map[string]int
	// replicas are the last that were listed: the kubelet drops them as soon as the plugin stops or a GPU is unhealthy,
	// while the pods continue.
	replicas map[replicaKey]replicas
	// plugged are the GPUs and MIG devices that the kubelet can allocate, or could since this program started.
	plugged map[replicaKey]plugged
}

// plugged is a GPU or MIG device of a device plugin.
type plugged struct {
	ref    deviceid.Ref
	listed bool // by this response
}

func pluggedKey(resource, id string, r deviceid.Ref) replicaKey {
	return replicaKey{resource, cmp.Or(r.Base, id)}
}

// maxReplicaKeys bounds what is remembered of GPUs and instances that are no longer listed: MIG devices get a new name
// at every change.
const maxReplicaKeys = 4096

// capacity parses a response to GetAllocatableResources. What it lacks is carried over: resources at 0, replicas as
// they were.
func (t idTable) capacity(list *podresources.Devices, before capacity) capacity {
	c := capacity{known: true, devices: map[string]int{}, replicas: map[replicaKey]replicas{},
		plugged: map[replicaKey]plugged{}}
	for resource := range before.devices {
		c.devices[resource] = 0
	}
	for _, ids := range list.ByResource {
		ids.Sort()
		if len(ids.Hashes) > 0 {
			c.devices[ids.Resource] = len(ids.Hashes)
		}
		parser := t.Plugin(ids.Resource)
		for _, id := range ids.Whole {
			p := parser.Parse(id)
			if p.Class != deviceid.Direct && p.Class != deviceid.Opaque || p.Ref.MaybeForeign {
				continue
			}
			c.devices[ids.Resource]++
			if p.Class == deviceid.Direct {
				c.plugged[pluggedKey(ids.Resource, id, p.Ref)] = plugged{p.Ref, true}
			}
			if p.Class == deviceid.Direct && p.Ref.Replica {
				key := replicaKey{ids.Resource, p.Ref.Base}
				c.replicas[key] = replicas{c.replicas[key].count + 1, p.Ref.Memory}
			}
		}
	}
	for key, n := range before.replicas {
		if _, listed := c.replicas[key]; !listed && len(c.replicas) < maxReplicaKeys {
			c.replicas[key] = n
		}
	}
	for key, d := range before.plugged {
		if _, listed := c.plugged[key]; !listed && len(c.plugged) < maxReplicaKeys {
			c.plugged[key] = plugged{d.ref, false}
		}
	}
	return c
}
