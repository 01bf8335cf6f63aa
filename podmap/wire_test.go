package podmap

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
	podresourcesalpha "k8s.io/kubelet/pkg/apis/podresources/v1alpha1"
)

// The table's own listing keeps no ids of other resources; these tests want to see what was read.
var keepAll = grammar{honest: []string{"r/a", "r/b"}}

// told renders a listing: one line per container, its ids and its claims.
func told(l *listing) []string {
	var out []string
	for name, c := range l.containers {
		for _, h := range c.hauls {
			h.tidy()
			for _, id := range h.ids {
				out = append(out, fmt.Sprintf("%q %q %q", name, h.lens.resource, id))
			}
		}
		for _, d := range distinctDevices(c.devices) {
			out = append(out, fmt.Sprintf("%q %+v", name, d))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// toldByProto is the same from the generated code's decoding.
func toldByProto(list *podresources.ListPodResourcesResponse) []string {
	var out []string
	type claimed struct {
		container gpu.Container
		device    device
	}
	parts := map[claimed]bool{} // what is told as a part and as a whole is a part
	for _, p := range list.GetPodResources() {
		for _, c := range p.GetContainers() {
			name := gpu.Container{Namespace: p.GetNamespace(), Pod: p.GetName(), Name: c.GetName()}
			for _, d := range c.GetDevices() {
				if !slices.Contains(keepAll.honest, d.GetResourceName()) {
					continue
				}
				for _, id := range d.GetDeviceIds() {
					out = append(out, fmt.Sprintf("%q %q %q", name, d.GetResourceName(), id))
				}
			}
			for _, d := range c.GetDynamicResources() {
				for _, r := range d.GetClaimResources() {
					at := claimed{name, device{driver: r.GetDriverName(), claim: d.GetClaimNamespace() + claimPart + d.GetClaimName(), name: r.GetDeviceName()}}
					parts[at] = parts[at] || r.ShareId != nil
				}
			}
		}
	}
	for at, part := range parts {
		at.device.part = part
		out = append(out, fmt.Sprintf("%q %+v", at.container, at.device))
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
						{ResourceName: "r/a", DeviceIds: []string{"1", "2"}, Topology: &podresources.TopologyInfo{Nodes: []*podresources.NUMANode{{ID: 1}}}},
						{ResourceName: "r/b", DeviceIds: []string{"3"}}, {ResourceName: "r/c", DeviceIds: []string{"4"}}},
					DynamicResources: []*podresources.DynamicResource{{ClaimName: "x", ClaimNamespace: "y", ClaimResources: []*podresources.ClaimResource{
						{CdiDevices: []*podresources.CDIDevice{{Name: "v/c=d"}}, DriverName: "d", PoolName: "p", DeviceName: "gpu-0", ShareId: &share},
						{DriverName: "d", DeviceName: "gpu-1"}}}}},
				{Name: "d"}, {}}},
		{Name: "q"}, {},
	}}
}

func TestDecodeReadsWhatTheGeneratedCodeReads(t *testing.T) {
	l := newListing(keepAll)
	if err := l.decode(encode(wireSample())); err != nil {
		t.Fatal(err)
	}
	if got, want := told(l), toldByProto(wireSample()); !slices.Equal(got, want) {
		t.Errorf("%q\nwant %q", got, want)
	}
	if l.pods != 3 {
		t.Errorf("%d pods", l.pods)
	}
	// Of resources that are no GPUs, nothing is kept.
	for _, c := range l.containers {
		for _, h := range c.hauls {
			if h.lens.resource == "r/c" && len(h.ids)+len(h.hashes) > 0 {
				t.Errorf("kept %+v", h)
			}
		}
	}
}

// The answer comes in pieces of the transport's making.
func TestDecodeAcrossBuffers(t *testing.T) {
	whole := encode(wireSample()).Materialize()
	for size := 1; size < len(whole); size++ {
		var data mem.BufferSlice
		for piece := range slices.Chunk(whole, size) {
			data = append(data, mem.SliceBuffer(piece))
		}
		l := newListing(keepAll)
		if err := l.decode(data); err != nil {
			t.Fatalf("pieces of %d: %v", size, err)
		}
		if got, want := told(l), toldByProto(wireSample()); !slices.Equal(got, want) {
			t.Fatalf("pieces of %d: %q\nwant %q", size, got, want)
		}
	}
}

func TestDecodeRefusesHalfAMessage(t *testing.T) {
	whole := encode(wireSample()).Materialize()
	for n := 1; n < len(whole); n++ {
		var list podresources.ListPodResourcesResponse
		theirs := proto.Unmarshal(whole[:n], &list)
		ours := newListing(keepAll).decode(mem.BufferSlice{mem.SliceBuffer(whole[:n])})
		if (theirs == nil) != (ours == nil) {
			t.Fatalf("%d bytes: %v, and the generated code: %v", n, ours, theirs)
		}
	}
}

func TestDecodeNamesAfterWhatTheyName(t *testing.T) {
	text := func(number protowire.Number, s string) []byte {
		return protowire.AppendString(protowire.AppendTag(nil, number, protowire.BytesType), s)
	}
	const resourceName, deviceIDs = 1, 2 // of ContainerDevices
	devices := slices.Concat(text(deviceIDs, "7"), text(resourceName, "r/a"), text(deviceIDs, "8"))
	container := slices.Concat(text(fieldContainerDevices, string(devices)), text(fieldContainerName, "c"))
	pod := slices.Concat(text(fieldPodContainers, string(container)), text(fieldPodNamespace, "n"), text(fieldPodName, "p"))
	l := newListing(keepAll)
	if err := l.decode(mem.BufferSlice{mem.SliceBuffer(text(fieldPods, string(pod)))}); err != nil {
		t.Fatal(err)
	}
	if got, want := strings.Join(told(l), " "), `{"n" "p" "c"} "r/a" "7" {"n" "p" "c"} "r/a" "8"`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestDecodeRefusesNamesThatAreNone(t *testing.T) {
	for _, list := range []*podresources.ListPodResourcesResponse{
		pods("a/p/" + strings.Repeat("x", maxIDLength+1)),
		pods("a/p/c " + strings.Repeat("x", maxIDLength+1) + "=1"),
	} {
		if err := newListing(grammar{}).decode(encode(list)); err == nil {
			t.Error("no error")
		}
	}
	raw := protowire.AppendString(protowire.AppendTag(nil, fieldPodName, protowire.BytesType), "\xff")
	raw = protowire.AppendBytes(protowire.AppendTag(nil, fieldPods, protowire.BytesType), raw)
	if err := newListing(grammar{}).decode(mem.BufferSlice{mem.SliceBuffer(raw)}); err == nil {
		t.Error("a name that is not UTF-8")
	}
	if err := newListing(grammar{}).decode(mem.BufferSlice{mem.SliceBuffer([]byte{0x0b})}); !errors.Is(err, errWire) {
		t.Errorf("a group: %v", err)
	}
}

// The numbers that the decoder assumes of the outer messages are those that are published, and v1alpha1's
// entries are written as v1's.
func TestFieldNumbers(t *testing.T) {
	for _, c := range []struct {
		message proto.Message
		fields  map[string]int
	}{
		{&podresourcesalpha.ContainerDevices{}, map[string]int{"resource_name": 1, "device_ids": 2}},
		{&podresources.ContainerDevices{}, map[string]int{"resource_name": 1, "device_ids": 2}},
		{&podresources.ListPodResourcesResponse{}, map[string]int{"pod_resources": fieldPods}},
		{&podresources.PodResources{}, map[string]int{"name": fieldPodName, "namespace": fieldPodNamespace, "containers": fieldPodContainers}},
		{&podresources.ContainerResources{}, map[string]int{"name": fieldContainerName, "devices": fieldContainerDevices, "dynamic_resources": fieldContainerClaims}},
		{&podresources.AllocatableResourcesResponse{}, map[string]int{"devices": fieldAllocatable}},
		{&podresourcesalpha.ListPodResourcesResponse{}, map[string]int{"pod_resources": fieldPods}},
		{&podresourcesalpha.PodResources{}, map[string]int{"name": fieldPodName, "namespace": fieldPodNamespace, "containers": fieldPodContainers}},
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

// FuzzDecode holds the decoder against the generated one: what both read, they read alike, and what ours
// reads is a message. Ours refuses what theirs forgives: groups, and names too long to be any.
func FuzzDecode(f *testing.F) {
	f.Add(encode(wireSample()).Materialize())
	f.Add(encode(pods("a/p/c r/a=1,2 d:x=y", "a/p/c r/b=3")).Materialize())
	f.Add([]byte{0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f})
	f.Fuzz(func(t *testing.T, data []byte) {
		l := newListing(keepAll)
		if err := l.decode(mem.BufferSlice{mem.SliceBuffer(data)}); err != nil {
			return
		}
		a := newAllocatable(keepAll)
		_ = a.decode(mem.BufferSlice{mem.SliceBuffer(data)})
		var list podresources.ListPodResourcesResponse
		if err := proto.Unmarshal(data, &list); err != nil {
			return // of a field of a wrong kind, or an id that is not UTF-8: we skip the one and disbelieve the other
		}
		if twice(&list) {
			return
		}
		if got, want := told(l), toldByProto(&list); !slices.Equal(got, want) {
			t.Fatalf("%q\nwant %q\nof %v", got, want, &list)
		}
	})
}

// twice tells whether ids are longer than any that is read in full.
func twice(list *podresources.ListPodResourcesResponse) bool {
	for _, p := range list.GetPodResources() {
		for _, c := range p.GetContainers() {
			for _, d := range c.GetDevices() {
				if slices.ContainsFunc(d.GetDeviceIds(), func(id string) bool { return len(id) > maxIDLength }) {
					return true
				}
			}
		}
	}
	return false
}

// A device that a claim tells twice, as a part and as a whole, is a part in whichever order.
func TestDistinctDevices(t *testing.T) {
	whole, part := device{driver: "d", claim: "c", name: "gpu-0"}, device{driver: "d", claim: "c", name: "gpu-0", part: true}
	for _, list := range [][]device{{whole, part}, {part, whole}, {whole, part, whole, part}} {
		if got := distinctDevices(slices.Clone(list)); !slices.Equal(got, []device{part}) {
			t.Errorf("%+v come to %+v", list, got)
		}
	}
}
