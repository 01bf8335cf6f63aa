package podmap

import (
	"cmp"
	"maps"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/podmap/deviceid"
	"github.com/gpu-exporter/gpu-exporter/podmap/podresources"
)

// replicaKey identifies what the replicas of one GPU or instance have in common.
type replicaKey struct{ resource, base string }

// capacity is what the kubelet can allocate. It is immutable once in use.
type capacity struct {
	// known is false until the first response to GetAllocatableResources.
	known bool
	// devices counts the distinct IDs per GPU resource. A resource that was listed once remains, at 0.
	devices map[string]int
	// plugged are the GPUs and MIG devices that the kubelet can allocate, or could since this program started.
	plugged map[replicaKey]plugged
}

// plugged is a GPU or MIG device of a device plugin.
type plugged struct {
	ref    deviceid.Ref
	listed bool // by this response
	// replicas counts those that were listed last, and memory is the limit of each: the kubelet drops them as soon as the
	// plugin stops or a GPU is unhealthy, while the pods continue.
	replicas int
	memory   gpu.Bytes
}

// opaque reports whether a plugin offers GPUs that its device IDs do not identify.
func (c *capacity) opaque() bool {
	unnamed := maps.Clone(c.devices)
	for key := range c.plugged {
		delete(unnamed, key.resource)
	}
	maps.DeleteFunc(unnamed, func(_ string, n int) bool { return n == 0 })
	return len(unnamed) > 0
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
	c := capacity{known: true, devices: map[string]int{}, plugged: map[replicaKey]plugged{}}
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
			if p.Class != deviceid.Direct {
				continue
			}
			key := pluggedKey(ids.Resource, id, p.Ref)
			d := c.plugged[key]
			if d.ref, d.listed = p.Ref, true; p.Ref.Replica {
				d.replicas, d.memory = d.replicas+1, p.Ref.Memory
			}
			c.plugged[key] = d
		}
	}
	for key, last := range before.plugged {
		d, listed := c.plugged[key]
		switch {
		case !listed && len(c.plugged) < maxReplicaKeys:
			last.listed = false
			c.plugged[key] = last
		case listed && d.replicas == 0:
			d.replicas, d.memory = last.replicas, last.memory
			c.plugged[key] = d
		}
	}
	return c
}
