package podresources

import (
	"fmt"
	"hash/maphash"
	"maps"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
	podresourcesalpha "k8s.io/kubelet/pkg/apis/podresources/v1alpha1"
)

var keptResources = []string{"r/a", "r/b"}

// keepSome keeps the IDs of two resources, and nothing of others.
func keepSome() Filter {
	return Filter{
		Hash: func(id string) uint64 { return maphash.String(seed, id) },
		Resource: func(name string) func(string) Keep {
			return func(string) Keep {
				if slices.Contains(keptResources, name) {
					return KeepID
				}
				return KeepNothing
			}
		},
	}
}

var seed = maphash.MakeSeed()

func encode(m proto.Message) mem.BufferSlice {
	b, err := proto.Marshal(m)
	if err != nil {
		panic(err)
	}
	return mem.BufferSlice{mem.SliceBuffer(b)}
}

// render renders a List: one line per container, its IDs and its claims.
func render(l *List) []string {
	var out []string
	for name, c := range l.Containers {
		for _, ids := range c.ByResource {
			ids.Sort()
			for _, id := range ids.Whole {
				out = append(out, fmt.Sprintf("%q %q %q", name, ids.Resource, id))
			}
		}
		for _, d := range c.DistinctClaims() {
			out = append(out, fmt.Sprintf("%q %+v", name, d))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// renderProto is the same from the generated code's decoding.
func renderProto(list *podresources.ListPodResourcesResponse) []string {
	var out []string
	claims := map[gpu.Container]*Container{} // their own test is TestCDINamesOfADevice
	for _, p := range list.GetPodResources() {
		for _, c := range p.GetContainers() {
			name := gpu.Container{Namespace: p.GetNamespace(), Pod: p.GetName(), Name: c.GetName()}
			for _, d := range c.GetDevices() {
				if !slices.Contains(keptResources, d.GetResourceName()) {
					continue
				}
				for _, id := range d.GetDeviceIds() {
					out = append(out, fmt.Sprintf("%q %q %q", name, d.GetResourceName(), id))
				}
			}
			for _, d := range c.GetDynamicResources() {
				if claims[name] == nil {
					claims[name] = &Container{}
				}
				before := map[string]bool{}
				for _, r := range d.GetClaimResources() {
					device := ClaimDevice{Driver: r.GetDriverName(), Claim: [2]string{d.GetClaimNamespace(), d.GetClaimName()},
						Pool: r.GetPoolName(), Name: r.GetDeviceName(), Part: r.ShareId != nil}
					var own []string
					for _, cdi := range r.GetCdiDevices() {
						if key := r.GetDriverName() + "\n" + cdi.GetName(); !before[key] && len(own) < maxCDI &&
							len(cdi.GetName()) <= MaxIDLength {
							before[key] = true
							own = append(own, cdi.GetName())
						}
					}
					device.CDI = strings.Join(own, ",")
					claims[name].Claims = append(claims[name].Claims, device)
				}
			}
		}
	}
	for name, c := range claims {
		for _, d := range c.DistinctClaims() {
			out = append(out, fmt.Sprintf("%q %+v", name, d))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func wireSample() *podresources.ListPodResourcesResponse {
	share := "s"
	return &podresources.ListPodResourcesResponse{PodResources: []*podresources.PodResources{
		{Name: "p", Namespace: "n", CpuIds: []int64{1, 2, 300}, Memory: []*podresources.ContainerMemory{{MemoryType: "x", Size: 1 << 40}},
			Containers: []*podresources.ContainerResources{
				{Name: "c", CpuIds: []int64{7}, Memory: []*podresources.ContainerMemory{{MemoryType: "m"}},
					Devices: []*podresources.ContainerDevices{
						{ResourceName: "r/a", DeviceIds: []string{"1", "2"},
							Topology: &podresources.TopologyInfo{Nodes: []*podresources.NUMANode{{ID: 1}}}},
						{ResourceName: "r/b", DeviceIds: []string{"3"}}, {ResourceName: "r/c", DeviceIds: []string{"4"}}},
					DynamicResources: []*podresources.DynamicResource{{ClaimName: "x", ClaimNamespace: "y",
						ClaimResources: []*podresources.ClaimResource{
							{CdiDevices: []*podresources.CDIDevice{{Name: "v/c=d"}}, DriverName: "d", PoolName: "p", DeviceName: "gpu-0",
								ShareId: &share},
							{DriverName: "d", DeviceName: "gpu-1"}}}}},
				{Name: "d"}, {}}},
		{Name: "q"}, {},
	}}
}

func TestDecodeReadsWhatTheGeneratedCodeReads(t *testing.T) {
	l := NewList(keepSome())
	must.OK(t, l.Decode(encode(wireSample())))
	if got, want := render(l), renderProto(wireSample()); !slices.Equal(got, want) {
		t.Errorf("%q\nwant %q", got, want)
	}
	if l.Pods != 3 {
		t.Errorf("%d pods", l.Pods)
	}
	// Of resources that are no GPUs, nothing is kept.
	for _, c := range l.Containers {
		for _, h := range c.ByResource {
			if h.Resource == "r/c" && len(h.Whole)+len(h.Hashes) > 0 {
				t.Errorf("kept %+v", h)
			}
		}
	}
}

// The response comes in buffers of the transport.
func TestDecodeAcrossBuffers(t *testing.T) {
	whole := encode(wireSample()).Materialize()
	for size := 1; size < len(whole); size++ {
		var data mem.BufferSlice
		for piece := range slices.Chunk(whole, size) {
			data = append(data, mem.SliceBuffer(piece))
		}
		l := NewList(keepSome())
		if err := l.Decode(data); err != nil {
			t.Fatalf("pieces of %d: %v", size, err)
		}
		if got, want := render(l), renderProto(wireSample()); !slices.Equal(got, want) {
			t.Fatalf("pieces of %d: %q\nwant %q", size, got, want)
		}
	}
}

func TestDecodeRefusesHalfAMessage(t *testing.T) {
	whole := encode(wireSample()).Materialize()
	for n := 1; n < len(whole); n++ {
		var list podresources.ListPodResourcesResponse
		theirs := proto.Unmarshal(whole[:n], &list)
		ours := NewList(keepSome()).Decode(mem.BufferSlice{mem.SliceBuffer(whole[:n])})
		if (theirs == nil) != (ours == nil) {
			t.Fatalf("%d bytes: %v, and the generated code: %v", n, ours, theirs)
		}
	}
}

func TestDecodeNamesAfterWhatTheyName(t *testing.T) {
	const resourceName, deviceIDs = 1, 2 // of ContainerDevices
	devices := field(field(field(nil, deviceIDs, []byte("7")), resourceName, []byte("r/a")), deviceIDs, []byte("8"))
	container := field(field(nil, fieldContainerDevices, devices), fieldContainerName, []byte("c"))
	pod := field(field(field(nil, fieldPodContainers, container), fieldPodNamespace, []byte("n")), fieldPodName, []byte("p"))
	l := NewList(keepSome())
	must.OK(t, decodeBytes(l, field(nil, fieldPods, pod)))
	if got, want := strings.Join(render(l), " "), `{"n" "p" "c"} "r/a" "7" {"n" "p" "c"} "r/a" "8"`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// What no node can have is refused without keeping what came before, and what a large node has is read, both in linear
// time. TestExactBounds has every bound.
func TestResponsesBeyondTheBounds(t *testing.T) {
	empty := func(int) []byte { return nil }
	of := func(content []byte) []byte { return field(nil, fieldPods, field(nil, fieldPodContainers, content)) }
	devices := append(field(nil, 1, []byte("r/none")), repeated(1e5, 2, func(i int) []byte { return fmt.Append(nil, i) })...)
	devicesOf := func(n int) []byte { return of(repeated(n, fieldContainerDevices, func(int) []byte { return devices })) }
	for _, tt := range []struct {
		name     string
		response []byte
		want     string // empty: it is read
	}{
		{"a million containers", field(nil, fieldPods, repeated(1e6, fieldPodContainers, empty)), "containers in one pod"},
		{"200,000 pods", repeated(2e5, fieldPods, empty), "pods"},
		{"five million IDs", devicesOf(50), "device IDs"},
		{"a claim of a hundred thousand devices", of(field(nil, fieldContainerClaims, repeated(1e5, 4, empty))), "devices of claims"},
		{"one ID per MiB of eight GPUs", devicesOf(24), ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			err := decodeBytes(NewList(keepSome()), tt.response)
			runtime.ReadMemStats(&after)
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("%v, want %q", err, tt.want)
			}
			// IDs are decoded in the message that lists them, so some memory per byte is needed.
			if spent, most := after.TotalAlloc-before.TotalAlloc, uint64(32<<20+20*len(tt.response)); spent > most {
				t.Errorf("%d bytes were allocated for a response of %d", spent, len(tt.response))
			}
		})
	}
}

// The numbers that the decoder assumes of the outer messages are those that are published, and v1alpha1's entries are
// written as v1's.
func TestFieldNumbers(t *testing.T) {
	for _, c := range []struct {
		message proto.Message
		fields  map[string]int
	}{
		{&podresourcesalpha.ContainerDevices{}, map[string]int{"resource_name": 1, "device_ids": 2}},
		{&podresources.ContainerDevices{}, map[string]int{"resource_name": 1, "device_ids": 2}},
		{&podresources.ListPodResourcesResponse{}, map[string]int{"pod_resources": fieldPods}},
		{&podresources.PodResources{}, map[string]int{"name": fieldPodName, "namespace": fieldPodNamespace,
			"containers": fieldPodContainers}},
		{&podresources.ContainerResources{}, map[string]int{"name": fieldContainerName, "devices": fieldContainerDevices,
			"dynamic_resources": fieldContainerClaims}},
		{&podresources.AllocatableResourcesResponse{}, map[string]int{"devices": fieldAllocatable}},
		{&podresourcesalpha.ListPodResourcesResponse{}, map[string]int{"pod_resources": fieldPods}},
		{&podresourcesalpha.PodResources{}, map[string]int{"name": fieldPodName, "namespace": fieldPodNamespace,
			"containers": fieldPodContainers}},
		{&podresourcesalpha.ContainerResources{}, map[string]int{"name": fieldContainerName, "devices": fieldContainerDevices}},
	} {
		d := c.message.ProtoReflect().Descriptor()
		for _, name := range slices.Sorted(maps.Keys(c.fields)) {
			f := d.Fields().ByTextName(name)
			if f == nil || int(f.Number()) != c.fields[name] {
				t.Errorf("%s.%s is %v, not %d", d.FullName(), name, f, c.fields[name])
			}
		}
	}
}

// FuzzDecode compares the decoder with the generated one: what both decode is equal, and what ours decodes is a
// message. Ours refuses what theirs forgives: groups, and names too long to be any.
func FuzzDecode(f *testing.F) {
	f.Add(encode(wireSample()).Materialize())
	f.Add([]byte{0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f})
	f.Fuzz(func(t *testing.T, data []byte) {
		l := NewList(keepSome())
		if err := l.Decode(mem.BufferSlice{mem.SliceBuffer(data)}); err != nil {
			return
		}
		a := NewDevices(keepSome())
		_ = a.Decode(mem.BufferSlice{mem.SliceBuffer(data)})
		var list podresources.ListPodResourcesResponse
		if err := proto.Unmarshal(data, &list); err != nil {
			return // of a field of a wrong kind, or an id that is not UTF-8: we skip the one and disbelieve the other
		}
		if tooLong(&list) {
			return
		}
		if got, want := render(l), renderProto(&list); !slices.Equal(got, want) {
			t.Fatalf("%q\nwant %q\nof %v", got, want, &list)
		}
	})
}

// tooLong reports whether an ID is longer than those that are kept whole.
func tooLong(list *podresources.ListPodResourcesResponse) bool {
	for _, p := range list.GetPodResources() {
		for _, c := range p.GetContainers() {
			for _, d := range c.GetDevices() {
				if slices.ContainsFunc(d.GetDeviceIds(), func(id string) bool { return len(id) > MaxIDLength }) {
					return true
				}
			}
		}
	}
	return false
}

// More resources than are searched one by one, each listed twice; a container without devices has no entry.
func TestManyResources(t *testing.T) {
	c := &podresources.ContainerResources{Name: "c"}
	for i := range 4 * searched {
		c.Devices = append(c.Devices, &podresources.ContainerDevices{ResourceName: fmt.Sprint("r/", i%(2*searched)),
			DeviceIds: []string{fmt.Sprint("id", i)}})
	}
	l := NewList(Filter{Resource: func(string) func(string) Keep { return func(string) Keep { return KeepID } }})
	must.OK(t, l.Decode(encode(&podresources.ListPodResourcesResponse{PodResources: []*podresources.PodResources{{Namespace: "n",
		Name: "p", Containers: []*podresources.ContainerResources{c, {Name: "none"}}}}})))
	got := l.Containers[gpu.Container{Namespace: "n", Pod: "p", Name: "c"}]
	if len(l.Containers) != 1 || len(got.ByResource) != 2*searched {
		t.Fatalf("%d containers, %d resources", len(l.Containers), len(got.ByResource))
	}
	for i, ids := range got.ByResource {
		if n := len(ids.Whole); ids.Resource != fmt.Sprint("r/", i) || n != 2 {
			t.Errorf("%s has %d IDs", ids.Resource, n)
		}
	}
}
