package podmap

import (
	"cmp"
	"maps"
	"regexp"
	"slices"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/podmap/deviceid"
	"github.com/gpu-exporter/gpu-exporter/podmap/source"
)

// snapshot is the data of one poll: a response, the capacity that determines the size of replicas, and what belongs to
// the response in the checkpoints. It is immutable.
type snapshot struct {
	*response
	capacity capacity
	// capacityErr means that the capacity is that of an earlier response.
	capacityErr bool
	// resources are the names of GPU resources that were ever allocated: they stay exported at 0.
	resources []string
	// entries are the entries of the kubelet's checkpoint that belong to the allocations, and uids the pods' UIDs from
	// there. Both are nil without a checkpoint.
	entries map[allocationKey]*source.Entry
	uids    map[gpu.PodName]string
	// settled are the uids by which processes are named: the list and the checkpoint are read one after the other.
	settled map[gpu.PodName]string
	// opaque are those of the response, and those foreign ones whose container received a GPU, or may have.
	opaque []opaqueIDs
	// receives are the resources of which a container once received a GPU, unknown those of which one has a device that
	// may be one.
	receives map[string]bool
	unknown  map[string]int
	// drivers is true since a known DRA driver of GPUs had a claim.
	drivers bool
	// prepared are the claims that the DRA driver has prepared; nil without its checkpoint.
	prepared *source.PreparedClaims
	// fractions are the records of the GPU fractioning operator; nil without. unsure means that some could not be read.
	fractions *source.Fractions
	unsure    bool
	// slices are the devices that DRA drivers publish; nil without.
	slices *source.Slices
	// schemes are those whose annotations on pods that request nothing of the kubelet count.
	schemes []*deviceid.Scheme
}

// match finds the entries of a checkpoint that belong to the allocations. An entry counts if it is the only one for a
// container name, a resource and a set of IDs; if the pod's entries have one UID; and if no other pod has or had that
// UID.
func (s *snapshot) match(c *source.Checkpoint, dev string, before *snapshot) {
	known, owners := map[string]gpu.PodName{}, map[string]gpu.PodName{} // of UIDs, before and now
	if before != nil {
		for key, entry := range before.entries {
			known[entry.UID] = key.container.PodName()
		}
	}
	s.entries, s.uids = map[allocationKey]*source.Entry{}, map[gpu.PodName]string{}
	rejected := map[gpu.PodName]bool{}
	for _, key := range s.keys {
		found := c.Of(key.entry())
		if len(found) != 1 {
			continue
		}
		entry, pod := found[0], key.container.PodName()
		if owner, ok := known[entry.UID]; ok && owner != pod {
			continue // the file is older than the list
		}
		if owner, ok := owners[entry.UID]; ok && owner != pod {
			rejected[pod], rejected[owner] = true, true
			continue
		}
		owners[entry.UID] = pod
		if uid, ok := s.uids[pod]; ok && uid != entry.UID {
			rejected[pod] = true
			continue
		}
		s.uids[pod] = entry.UID
		s.entries[key] = entry.Followed(dev)
	}
	for key := range s.entries {
		if rejected[key.container.PodName()] {
			delete(s.entries, key)
		}
	}
	for pod := range rejected {
		delete(s.uids, pod)
	}
}

// carry keeps the entries of allocations that are still listed. IDs are reused, so a file that can no longer be read
// only counts for the allocations at the time it was read.
func (s *snapshot) carry(before *snapshot) {
	s.entries, s.uids = map[allocationKey]*source.Entry{}, map[gpu.PodName]string{}
	for _, key := range s.keys {
		if entry := before.entries[key]; entry != nil {
			s.entries[key] = entry
			s.uids[key.container.PodName()] = entry.UID
		}
	}
}

// pairing is the UID that a pod had by the checkpoint, and when that was last confirmed.
type pairing struct {
	uid string
	at  time.Time
}

// settle keeps the UIDs that this snapshot and the one before agree on, unless another pairing of the name or of the UID
// was confirmed at most maxAge before. A kubelet writes the file after it lists a pod (Kubernetes 1.37.2,
// pkg/kubelet/cm/devicemanager/manager.go: allocateContainerResources), so at most one list is older than the file that
// is read after it. Were it several, the UID of a pod that has the same devices would be paired with its predecessor.
func (s *snapshot) settle(before *snapshot, confirmed map[gpu.PodName]pairing, now time.Time, maxAge time.Duration) {
	maps.DeleteFunc(confirmed, func(pod gpu.PodName, p pairing) bool {
		if before != nil && before.uids[pod] == p.uid {
			confirmed[pod] = pairing{p.uid, now} // it held until the kubelet did not respond
			return false
		}
		return now.Sub(p.at) > maxAge
	})
	owners := map[string]gpu.PodName{}
	for pod, p := range confirmed {
		owners[p.uid] = pod
	}
	s.settled = map[gpu.PodName]string{}
	for pod, uid := range s.uids {
		if before == nil || before.uids[pod] != uid || cmp.Or(confirmed[pod].uid, uid) != uid || cmp.Or(owners[uid], pod) != pod {
			continue
		}
		s.settled[pod], confirmed[pod] = uid, pairing{uid, now}
	}
}

// addReceived adds to the opaque IDs the foreign ones whose container received a GPU. Of a resource of which one did, the
// others may be GPUs too, unless the response for their container names none.
func (s *snapshot) addReceived(c *source.Checkpoint, before *snapshot) {
	s.opaque, s.receives = slices.Clip(s.response.opaque), map[string]bool{}
	if before != nil {
		maps.Copy(s.receives, before.receives)
	}
	for _, o := range s.foreign {
		for _, e := range c.Of(o.entry()) {
			if received(e).ReceivesGPU() {
				s.receives[o.resource] = true
			}
		}
	}
	s.unknown = map[string]int{}
	for _, o := range s.foreign {
		switch e := s.entries[o.allocationKey]; {
		case e != nil && !received(e).ReceivesGPU():
		case s.receives[o.resource]:
			s.opaque = append(s.opaque, o)
		case e == nil && deviceid.Unread(o.resource):
			s.unknown[o.resource] += o.devices
		}
	}
	s.drivers = s.response.drivers || before != nil && before.drivers
}

// unoffered are the GPUs that no known plugin, driver or scheduler offers: only those may be devices of another.
func (s *snapshot) unoffered(inv *gpu.Inventory) []gpu.UUID {
	out := []gpu.UUID{}
	opaque := s.capacity.opaque() || slices.ContainsFunc(s.schemes, func(x *deviceid.Scheme) bool { return x.Daemon.Pod != "" })
	if inv == nil || s.drivers || opaque {
		return out
	}
	offered := map[gpu.UUID]bool{}
	offer := func(r deviceid.Ref) {
		targets, _ := deviceid.Locate(inv, r)
		for _, t := range targets {
			offered[t.GPU] = true
		}
	}
	for _, d := range s.capacity.plugged {
		offer(d.ref)
	}
	if s.slices != nil {
		for _, d := range *s.slices {
			if r, ok := publishedRef(d); ok {
				offer(r)
			}
		}
	}
	for i := range s.direct {
		offer(s.direct[i].ref)
	}
	for i := range inv.GPUs {
		if !offered[inv.GPUs[i].UUID] {
			out = append(out, inv.GPUs[i].UUID)
		}
	}
	return out
}

// youngest is when the last allocation of a GPU began; false where that is unknown of all.
func (s *snapshot) youngest() (last time.Time, ok bool) {
	later := func(since gpu.Opt[time.Time]) {
		if at, known := since.Get(); known && (!ok || at.After(last)) {
			last, ok = at, true
		}
	}
	for i := range s.direct {
		later(s.direct[i].since)
	}
	for i := range s.opaque {
		later(s.opaque[i].since)
	}
	return last, ok
}

// claim returns what the DRA driver recorded about a device; nil without.
func (s *snapshot) claim(d *directID) *source.PreparedDevice {
	if s.prepared == nil || !d.isClaim() {
		return nil
	}
	return s.prepared.Device(d.claim, d.resource, d.id)
}

// recordedRef is a GPU that a data source names for a device of a DRA claim.
type recordedRef struct {
	deviceid.Ref
	source string
}

// recorded returns what the driver's checkpoint and its ResourceSlices name for a device, in this order.
func (s *snapshot) recorded(d *directID) (out []recordedRef) {
	if c := s.claim(d); c != nil {
		if r, ok := deviceid.ParseNVML(c.UUID); ok {
			out = append(out, recordedRef{r, gpu.SourceDRA})
		}
	}
	if published := s.slices.Device(d.resource, d.id); published != nil && d.isClaim() {
		if r, ok := publishedRef(published); ok {
			out = append(out, recordedRef{r, gpu.SourceSlices})
		}
	}
	return out
}

func publishedRef(d *source.SliceDevice) (r deviceid.Ref, ok bool) {
	if r, ok = deviceid.ParseNVML(d.UUID); !ok {
		r, ok = deviceid.ParsePCI(d.PCI)
	}
	return r, ok
}

// taints are those of the published devices that are GPUs of the node, or MIG devices of one.
func (s *snapshot) taints(inv *gpu.Inventory) map[gpu.UUID][]gpu.Taint {
	if s.slices == nil {
		return nil
	}
	out := map[gpu.UUID][]gpu.Taint{}
	for _, d := range *s.slices {
		r, ok := publishedRef(d)
		if len(d.Taints) == 0 || !ok {
			continue
		}
		targets, _ := deviceid.Locate(inv, r)
		for _, t := range targets {
			out[t.GPU] = append(out[t.GPU], d.Taints...)
		}
	}
	for uuid, all := range out {
		gpu.Sort(all, func(x, y gpu.Taint) int {
			return cmp.Or(cmp.Compare(x.Key, y.Key), cmp.Compare(x.Value, y.Value), cmp.Compare(x.Effect, y.Effect))
		})
		out[uuid] = slices.Compact(all)
	}
	return out
}

// kubeletHealth is the kubelet's verdict on the GPUs of device plugins. GetAllocatableResources lists the healthy devices
// alone (Kubernetes 1.37.2, pkg/kubelet/cm/devicemanager/manager.go: GetAllocatableDevices). So a GPU is unhealthy if a
// device of it that is allocated is missing there, or all that were listed before. While no device of a resource is
// listed, its plugin may just have stopped: that is no verdict.
func (s *snapshot) kubeletHealth(inv *gpu.Inventory) map[gpu.UUID]bool {
	out := map[gpu.UUID]bool{}
	if s.capacityErr {
		return out
	}
	located := func(r deviceid.Ref) (found []gpu.UUID) {
		targets, _ := deviceid.Locate(inv, r)
		for _, t := range targets {
			// In MIG mode a GPU itself is no device.
			if c, ok := inv.ByUUID(t.GPU); ok && (t.Instance != "" || !c.MIG) {
				found = append(found, t.GPU)
			}
		}
		return found
	}
	for _, d := range s.capacity.plugged {
		if d.listed {
			for _, uuid := range located(d.ref) {
				out[uuid] = true
			}
		}
	}
	for key, d := range s.capacity.plugged {
		if d.listed || s.capacity.devices[key.resource] == 0 {
			continue
		}
		for _, uuid := range located(d.ref) {
			if _, ok := out[uuid]; !ok {
				out[uuid] = false
			}
		}
	}
	for i := range s.direct {
		d := &s.direct[i]
		if d.isClaim() || s.capacity.devices[d.resource] == 0 || s.capacity.plugged[pluggedKey(d.resource, d.id, d.ref)].listed {
			continue
		}
		for _, uuid := range located(d.ref) {
			out[uuid] = false
		}
	}
	return out
}

// metadata returns the metadata of a listed pod; nil where there is none, or only that of another pod of the same name.
func (s *snapshot) metadata(pods *source.Pods, name gpu.PodName) *source.Pod {
	p := pods.Get(name)
	if p != nil && s.uids[name] != "" && p.UID != "" && s.uids[name] != p.UID {
		return nil
	}
	return p
}

// podLabels are the labels of pods that are kept.
type podLabels struct {
	names   []string
	pattern *regexp.Regexp // of further names; nil: none
}

// podRef identifies a pod, with its UID and metadata where no data sources contradict each other.
func (s *snapshot) podRef(pods *source.Pods, name gpu.PodName, labels podLabels) gpu.PodRef {
	ref := gpu.PodRef{Namespace: name.Namespace, Pod: name.Pod, UID: s.uids[name]}
	if pods.Get(name) == nil {
		return ref
	}
	p := s.metadata(pods, name)
	if p == nil {
		ref.UID = ""
		return ref
	}
	ref.UID = cmp.Or(p.UID, ref.UID)
	ref.Meta = &gpu.PodMeta{Labels: map[string]string{}}
	ref.Meta.WorkloadType, ref.Meta.Workload = p.Workload(name.Pod)
	for _, l := range labels.names {
		ref.Meta.Labels[l] = p.Labels[l]
	}
	for l, value := range p.Labels {
		if labels.pattern != nil && labels.pattern.MatchString(l) {
			ref.Meta.Labels[l] = value
		}
	}
	return ref
}

// requests returns the opaque allocations, in their order, with what may identify their GPUs.
func (s *snapshot) requests(inv *gpu.Inventory, pods *source.Pods) []deviceid.Request {
	type family struct {
		pod    gpu.PodName
		scheme *deviceid.Scheme
	}
	siblings := map[family][]deviceid.Sibling{}
	for _, o := range s.opaque {
		if o.scheme != nil {
			key := family{o.container.PodName(), o.scheme}
			siblings[key] = append(siblings[key], deviceid.Sibling{Name: o.container.Name, Devices: o.devices})
		}
	}
	for key, all := range siblings {
		gpu.Sort(all, func(x, y deviceid.Sibling) int {
			return cmp.Compare(slices.Index(s.order[key.pod], x.Name), slices.Index(s.order[key.pod], y.Name))
		})
	}
	out := make([]deviceid.Request, len(s.opaque))
	for i, o := range s.opaque {
		pod := o.container.PodName()
		req := deviceid.Request{Container: o.container, Resource: o.resource, Devices: o.devices,
			Allocatable: float64(s.capacity.devices[o.resource]), Amounts: s.amounts[o.container], Inventory: inv}
		if order := s.order[pod]; len(order) > 0 {
			req.Last = order[len(order)-1] == o.container.Name
		}
		if o.scheme != nil {
			req.Siblings = siblings[family{pod, o.scheme}]
		}
		if entry := s.entries[o.allocationKey]; entry != nil {
			req.Response = received(entry)
		}
		req.Pod = schemePod(s.metadata(pods, pod))
		out[i] = req
	}
	return out
}

func received(e *source.Entry) *deviceid.Response { return (*deviceid.Response)(&e.Response) }

func schemePod(p *source.Pod) *deviceid.Pod {
	if p == nil {
		return nil
	}
	return &deviceid.Pod{Labels: p.Labels, Annotations: p.Annotations}
}

// unresolved lists the forms of IDs of which no data source identifies the GPU.
func (s *snapshot) unresolved(pods *source.Pods) []Unrecognized {
	resources := map[string]bool{}
	for i, req := range s.requests(nil, pods) {
		if _, ok := s.opaque[i].scheme.Resolve(&req); !ok {
			resources[req.Resource] = true
		}
	}
	for i := range s.direct {
		if d := &s.direct[i]; d.unnamed && len(s.recorded(d)) == 0 {
			resources[d.resource] = true
		}
	}
	var out []Unrecognized
	for _, u := range s.unrecognized {
		if resources[u.Resource] {
			out = append(out, u)
		}
	}
	for _, resource := range slices.Sorted(maps.Keys(s.unknown)) {
		out = append(out, Unrecognized{Resource: resource, Shape: s.unread[resource], Devices: s.unknown[resource], Ignored: true,
			Hint: "the kubelet's device checkpoint; or, if each of its devices is one GPU, --kubelet.gpu-resource=" + resource})
	}
	return append(out, s.ignoredSchemes(pods)...)
}

// ignoredSchemes lists the schemes of which pods have annotations that do not count.
func (s *snapshot) ignoredSchemes(pods *source.Pods) (out []Unrecognized) {
	for _, scheme := range deviceid.PodSchemes() {
		if slices.Contains(s.schemes, scheme) {
			continue
		}
		u := Unrecognized{Resource: scheme.Resource, Scheme: scheme.Name, Ignored: true,
			Hint: "--kubernetes.pod-scheme=" + scheme.Name + ", if it is installed: pods named " + scheme.Daemon.Namespace + "/" +
				scheme.Daemon.Pod + "* do not run here"}
		for _, name := range pods.Names() {
			meta := s.metadata(pods, name)
			if meta == nil || len(s.order[name]) == 0 {
				continue
			}
			for _, c := range s.order[name] {
				req := &deviceid.Request{Pod: schemePod(meta), Container: gpu.Container{Namespace: name.Namespace, Pod: name.Pod, Name: c}}
				if _, ok := scheme.Resolve(req); ok {
					u.Devices++
				}
			}
		}
		if u.Devices > 0 {
			out = append(out, u)
		}
	}
	return out
}
