package podmap

// replicaKey names what the replicas of one GPU or instance have in common.
type replicaKey struct{ resource, base string }

// capacity is what the kubelet can hand out. It is never changed once it is in use.
type capacity struct {
	// known is false until GetAllocatableResources has answered once.
	known bool
	// devices counts the distinct ids per GPU resource. A resource that was listed once stays, at 0.
	devices map[string]int
	// replicas are, per GPU or instance, the last that were listed: the kubelet forgets them as soon as
	// the plugin stops or a GPU is unhealthy, while the pods go on.
	replicas map[replicaKey]int
}

// mostReplicaKeys bounds what is remembered of GPUs and instances that are no longer listed: MIG devices
// get a new name at every change.
const mostReplicaKeys = 4096

// readCapacity reads the answer of GetAllocatableResources. What it lacks is taken from before: resources
// at 0, replicas as they were.
func readCapacity(list *allocatable, before capacity) capacity {
	c := capacity{known: true, devices: map[string]int{}, replicas: map[replicaKey]int{}}
	for resource := range before.devices {
		c.devices[resource] = 0
	}
	for _, h := range list.hauls {
		h.tidy()
		resource := h.lens.resource
		if len(h.hashes) > 0 {
			c.devices[resource] = len(h.hashes)
		}
		for _, id := range h.ids {
			read := h.lens.read(id)
			if read.verdict == foreign || read.verdict == quantity || read.ref.perhapsForeign {
				continue
			}
			c.devices[resource]++
			if read.verdict == honest && read.ref.replica {
				c.replicas[replicaKey{resource, read.ref.base}]++
			}
		}
	}
	for key, n := range before.replicas {
		if _, listed := c.replicas[key]; !listed && len(c.replicas) < mostReplicaKeys {
			c.replicas[key] = n
		}
	}
	return c
}
