package podresources

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
)

func field(to []byte, number protowire.Number, value []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(to, number, protowire.BytesType), value)
}

func repeated(n int, number protowire.Number, value func(i int) []byte) (out []byte) {
	for i := range n {
		out = field(out, number, value(i))
	}
	return out
}

// decodeBytes returns the error of the response, else that of a pod that was refused.
func decodeBytes(l *List, b []byte) error {
	err := l.Decode(mem.BufferSlice{mem.SliceBuffer(b)})
	for _, text := range l.Refused {
		err = cmp.Or(err, errors.New(text))
	}
	return err
}

// A pod that goes beyond a bound, or whose names are none, costs its own containers: those of others are read, whatever
// their order.
func TestOnePodIsRefused(t *testing.T) {
	named := func(name string, content ...byte) []byte {
		return field(nil, fieldPods, append(field(field(nil, fieldPodNamespace, []byte("n")), fieldPodName, []byte(name)), content...))
	}
	container := func(name string) []byte {
		device := field(field(nil, fieldResourceName, []byte("r/a")), fieldDeviceIDs, []byte("1"))
		return field(nil, fieldPodContainers, field(field(nil, fieldContainerName, []byte(name)), fieldContainerDevices, device))
	}
	for _, c := range []struct {
		bad  []byte
		want string
	}{
		{repeated(maxContainersPerPod+1, fieldPodContainers, func(i int) []byte { return field(nil, 1, fmt.Append(nil, i)) }),
			"more than 1024 containers in one pod"},
		{container("\xff"), "a name is not UTF-8"},
		{container(strings.Repeat("x", MaxIDLength+1)), "a name of 513 bytes"},
		{field(nil, fieldPodContainers, field(nil, fieldContainerClaims, repeated(maxClaimDevices+1, 4, func(int) []byte { return nil }))),
			"more than 65536 devices of claims"},
	} {
		good, bad, more := named("good", container("c")...), named("bad", c.bad...), named("bad", container("d")...)
		for _, parts := range [][][]byte{{good, bad}, {bad, good}, {more, bad, good}, {bad, good, more}, {bad, bad, good}} {
			l := NewList(keepSome())
			err := l.Decode(mem.BufferSlice{mem.SliceBuffer(slices.Concat(parts...))})
			if got := strings.Join(render(l), " "); err != nil || got != `{"n" "good" "c"} "r/a" "1"` ||
				len(l.Refused) != 1 || l.Refused[gpu.PodName{Namespace: "n", Pod: "bad"}] != c.want {
				t.Errorf("%v, %s, refused: %v, want %q", err, got, l.Refused, c.want)
			}
		}
	}
	// As many pods as refuse, each at the bound, leave the others their part of the whole response's.
	l := NewList(keepSome())
	var all []byte
	for i := range 100 {
		all = append(all, named(fmt.Sprint("bad", i), repeated(maxContainersPerPod+1, fieldPodContainers, func(i int) []byte {
			return field(nil, fieldContainerName, fmt.Append(nil, i))
		})...)...)
	}
	must.OK(t, l.Decode(mem.BufferSlice{mem.SliceBuffer(append(all, named("good", container("c")...)...))}))
	if got := strings.Join(render(l), " "); got != `{"n" "good" "c"} "r/a" "1"` || len(l.Refused) != 100 {
		t.Errorf("%s, %d refused", got, len(l.Refused))
	}
}

// The bounds of a response: as much as may be is read, one more is refused.
func TestExactBounds(t *testing.T) {
	empty := func(int) []byte { return nil }
	named := func(number protowire.Number, name string) func(i int) []byte {
		return func(i int) []byte { return field(nil, number, fmt.Append(nil, name, i)) }
	}
	device := func(i int) []byte { return field(field(nil, 1, fmt.Append(nil, "r/", i)), 2, []byte("id")) }
	container := func(content []byte) []byte { return field(nil, fieldPods, field(nil, fieldPodContainers, content)) }
	pods := func(containers ...int) (out []byte) {
		for p, n := range containers {
			out = field(out, fieldPods, append(named(fieldPodName, "p")(p), repeated(n, fieldPodContainers, named(fieldContainerName,
				"c"))...))
		}
		return out
	}
	sixteen := slices.Repeat([]int{maxContainersPerPod}, 16)
	for _, tt := range []struct {
		name string
		of   func(n int) []byte
		most int
		want string // of one more
	}{
		{"pods", func(n int) []byte { return repeated(n, fieldPods, empty) }, maxPods, "more than 4096 pods"},
		{"containers of a pod", func(n int) []byte { return pods(n) }, maxContainersPerPod, "more than 1024 containers in one pod"},
		{"containers of a pod that is listed twice", func(n int) []byte {
			return append(pods(1000), field(nil, fieldPods, append(named(fieldPodName, "p")(0),
				repeated(n-1000, fieldPodContainers, named(fieldContainerName, "d"))...))...)
		}, maxContainersPerPod, "more than 1024 containers in pod /p0"},
		{"containers", func(n int) []byte { return pods(append(sixteen, n-maxContainers)...) }, maxContainers,
			"more than 16384 containers"},
		{"resources of a container", func(n int) []byte { return container(repeated(n, fieldContainerDevices, device)) }, maxResources,
			"more than 1024 resources"},
		{"resources of two containers", func(n int) []byte {
			return append(container(repeated(1000, fieldContainerDevices, device)), field(nil, fieldPods, field(nil, fieldPodContainers,
				append(named(fieldContainerName, "d")(1), repeated(n, fieldContainerDevices, device)...)))...)
		}, maxResources, "more than 1024 resources"},
		{"devices of a claim", func(n int) []byte { return container(field(nil, fieldContainerClaims, repeated(n, 4, empty))) },
			maxClaimDevices, "more than 65536 devices of claims"},
		{"a pod's name", func(n int) []byte {
			return field(nil, fieldPods, field(nil, fieldPodName, []byte(strings.Repeat("x", n))))
		},
			MaxIDLength, "a name of 513 bytes"},
		{"a namespace", func(n int) []byte {
			return field(nil, fieldPods, field(nil, fieldPodNamespace, []byte(strings.Repeat("x", n))))
		},
			MaxIDLength, "a name of 513 bytes"},
		{"a container's name", func(n int) []byte { return container(field(nil, fieldContainerName, []byte(strings.Repeat("x", n)))) },
			MaxIDLength, "a name of 513 bytes"},
		{"a resource's name", func(n int) []byte {
			return container(field(nil, fieldContainerDevices, field(nil, 1, []byte(strings.Repeat("x", n)))))
		}, MaxIDLength, "a name of 513 bytes"},
		{"a driver's name", func(n int) []byte { return container(claimOf(strings.Repeat("x", n), "p", "d")) }, MaxIDLength,
			`a device of claim "x" has a name of more than 512 bytes`},
		{"a pool's name", func(n int) []byte { return container(claimOf("d", strings.Repeat("x", n), "d")) }, MaxIDLength,
			`a device of claim "x" has a name of more than 512 bytes`},
		{"a device's name", func(n int) []byte { return container(claimOf("d", "p", strings.Repeat("x", n))) }, MaxIDLength,
			`a device of claim "x" has a name of more than 512 bytes`},
	} {
		if err := decodeBytes(NewList(keepSome()), tt.of(tt.most)); err != nil {
			t.Errorf("%d %s: %v", tt.most, tt.name, err)
		}
		if err := decodeBytes(NewList(keepSome()), tt.of(tt.most+1)); err == nil || err.Error() != tt.want {
			t.Errorf("%d %s: %v, want %q", tt.most+1, tt.name, err, tt.want)
		}
	}
	// IDs, of which so many are not built.
	for more, want := range map[int]string{2: "", 3: "more than 4194304 device IDs"} {
		l := NewList(keepSome())
		l.shared.ids = maxIDs - 2
		err := decodeBytes(l, container(field(nil, fieldContainerDevices, repeated(more, 2, empty))))
		if want == "" && err != nil || want != "" && (err == nil || err.Error() != want) {
			t.Errorf("%d more IDs: %v, want %q", more, err, want)
		}
	}
}

// claimOf is the claim x of one device, as a field of a container.
func claimOf(driver, pool, device string) []byte {
	return field(nil, fieldContainerClaims, encode(&podresources.DynamicResource{ClaimName: "x",
		ClaimResources: []*podresources.ClaimResource{
			{DriverName: driver, PoolName: pool, DeviceName: device}}}).Materialize())
}

// An ID that is too long to be valid is cut, and remains too long.
func TestLongIDs(t *testing.T) {
	for n, want := range map[int]int{1: 1, MaxIDLength: MaxIDLength, MaxIDLength + 1: MaxIDLength + 1, MaxIDLength + 2: MaxIDLength + 1,
		1 << 16: MaxIDLength + 1} {
		for _, keep := range []Keep{KeepID, KeepHash} {
			ids := &IDs{keep: func(string) Keep { return keep }}
			hashed := ""
			ids.add(strings.Repeat("x", n), func(id string) uint64 { hashed = id; return 1 })
			got := ids.Example
			if keep == KeepID {
				got = strings.Join(ids.Whole, "")
			}
			if len(got) != want || keep == KeepHash && hashed != got {
				t.Errorf("%d bytes: kept %d", n, len(got))
			}
		}
	}
}

// What is kept of IDs, merged and without repetitions.
func TestIDsOfAResource(t *testing.T) {
	of := func(keep Keep, ids ...string) *IDs {
		out := &IDs{keep: func(string) Keep { return keep }}
		for _, id := range ids {
			out.add(id, func(id string) uint64 { return uint64(id[0]) })
		}
		return out
	}
	if got := of(KeepNothing, "a"); len(got.Whole)+len(got.Hashes) != 0 || got.Example != "" {
		t.Errorf("nothing: %+v", got)
	}
	whole, hashes := of(KeepID, "b", "a", "b"), of(KeepHash, "y", "x", "y")
	if whole.Example != "" || hashes.Example != "y" || len(hashes.Whole) != 0 || len(whole.Hashes) != 0 {
		t.Errorf("%+v, %+v", whole, hashes)
	}
	whole.Merge(hashes)
	whole.Merge(of(KeepHash, "z"))
	whole.Merge(of(KeepID, "a", "c"))
	if whole.Sort(); !slices.Equal(whole.Whole, []string{"a", "b", "c"}) || !slices.Equal(whole.Hashes, []uint64{'x', 'y', 'z'}) ||
		whole.Example != "y" {
		t.Errorf("%+v", whole)
	}
}

// A resource's filter is chosen once in a response, however many containers have it.
func TestAResourceIsClassifiedOnce(t *testing.T) {
	var asked []string
	l := NewList(Filter{Resource: func(name string) func(string) Keep {
		asked = append(asked, name)
		return func(string) Keep { return KeepID }
	}})
	var pods []*podresources.PodResources
	for i := range 4 {
		pods = append(pods, &podresources.PodResources{Name: fmt.Sprint(i % 2), Containers: []*podresources.ContainerResources{{Name: "c",
			Devices: []*podresources.ContainerDevices{{ResourceName: "r/a", DeviceIds: []string{fmt.Sprint(i)}}, {ResourceName: "r/none"},
				{ResourceName: "r/b", DeviceIds: []string{fmt.Sprint(i)}}}}}})
	}
	must.OK(t, l.Decode(encode(&podresources.ListPodResourcesResponse{PodResources: pods})))
	if !slices.Equal(asked, []string{"r/a", "r/b"}) {
		t.Errorf("asked about %q", asked)
	}
	for pod, want := range map[string][]string{"0": {"0", "2"}, "1": {"1", "3"}} {
		got := l.Containers[gpu.Container{Pod: pod, Name: "c"}]
		if got == nil || len(got.ByResource) != 2 || !slices.Equal(got.ByResource[0].Whole, want) || !slices.Equal(got.ByResource[1].Whole,
			want) {
			t.Errorf("pod %s: %+v", pod, got)
		}
	}
	if l.Pods != 4 || len(l.Order) != 2 {
		t.Errorf("%d pods, %v", l.Pods, l.Order)
	}
}

// Messages that are none, of which the generated code reads the same or less.
func TestBytesThatAreNoMessage(t *testing.T) {
	varint := func(number protowire.Number, kind protowire.Type, bytes ...byte) []byte {
		return append(protowire.AppendTag(nil, number, kind), bytes...)
	}
	for _, tt := range []struct {
		name string
		b    []byte
		want error // nil: it is read; errAny: whatever
	}{
		{"nothing", nil, nil},
		{"an unknown varint", varint(9, protowire.VarintType, 0x80, 0x01), nil},
		{"an unknown fixed64", varint(9, protowire.Fixed64Type, 1, 2, 3, 4, 5, 6, 7, 8), nil},
		{"an unknown fixed32", varint(9, protowire.Fixed32Type, 1, 2, 3, 4), nil},
		{"a fixed64 that is cut off", varint(9, protowire.Fixed64Type, 1, 2, 3, 4, 5, 6, 7), io.ErrUnexpectedEOF},
		{"a fixed32 that is cut off", varint(9, protowire.Fixed32Type, 1, 2, 3), io.ErrUnexpectedEOF},
		{"a varint that is cut off", varint(9, protowire.VarintType, 0x80), io.ErrUnexpectedEOF},
		{"a length that is cut off", varint(1, protowire.BytesType, 0x80), io.ErrUnexpectedEOF},
		{"a length beyond the end", varint(1, protowire.BytesType, 2, 0), io.ErrUnexpectedEOF},
		{"a length beyond any", varint(1, protowire.BytesType, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01),
			io.ErrUnexpectedEOF},
		{"field 0", []byte{0x02, 0x00}, errWire},
		{"a group", []byte{0x0b}, errWire},
		{"the end of a group", []byte{0x0c}, errWire},
		{"a type that does not exist", []byte{0x0e}, errWire},
		// A pod's length ends within its last field: what follows is of the response, not of the pod.
		{"a varint that ends behind its message", []byte{0x0a, 0x02, 0x20, 0x80, 0x01}, io.ErrUnexpectedEOF},
		{"a tag that ends behind its message", []byte{0x0a, 0x01, 0x80, 0x01}, io.ErrUnexpectedEOF},
		{"a field that ends behind its message", []byte{0x0a, 0x02, 0x0a, 0x01, 'x'}, io.ErrUnexpectedEOF},
		{"a varint where a pod should be", varint(1, protowire.VarintType, 0x01), nil},
		{"a field behind a pod", []byte{0x0a, 0x00, 0x10, 0x01}, nil},
	} {
		if err := decodeBytes(NewList(keepSome()), tt.b); !errors.Is(err, tt.want) || (err == nil) != (tt.want == nil) {
			t.Errorf("%s: %v, want %v", tt.name, err, tt.want)
		}
	}
	// A name that is not UTF-8 could be no pod's.
	for name, valid := range map[string]bool{"p": true, "é": true, "\xff": false, "p\xc3": false} {
		if err := decodeBytes(NewList(keepSome()), field(nil, fieldPods, field(nil, fieldPodName, []byte(name)))); (err == nil) != valid ||
			err != nil && err.Error() != "a name is not UTF-8" {
			t.Errorf("%q: %v", name, err)
		}
	}
	// What is decoded by the generated code is refused by it.
	for _, number := range []protowire.Number{fieldContainerDevices, fieldContainerClaims} {
		container := field(field(nil, fieldContainerName, []byte("c")), number, []byte{0x0a, 0x05})
		if err := decodeBytes(NewList(keepSome()), field(nil, fieldPods, field(nil, fieldPodContainers, container))); err == nil {
			t.Errorf("field %d of a container is no message, and is read", number)
		}
	}
	// Of an invalid pod no container is kept.
	l := NewList(keepSome())
	pod := append(field(nil, fieldPodContainers, field(nil, fieldContainerName, []byte("c"))), 0x0b)
	if err := decodeBytes(l, field(nil, fieldPods, pod)); err == nil || len(l.Order) != 0 {
		t.Errorf("%v, %v", l.Order, err)
	}
	if err := NewDevices(keepSome()).Decode(mem.BufferSlice{mem.SliceBuffer([]byte{0x0a, 0x05})}); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("allocatable devices: %v", err)
	}
}

// The order of containers is that of the response, each once.
func TestOrderOfContainers(t *testing.T) {
	container := func(name string) *podresources.ContainerResources {
		return &podresources.ContainerResources{Name: name}
	}
	l := NewList(keepSome())
	must.OK(t, l.Decode(encode(&podresources.ListPodResourcesResponse{PodResources: []*podresources.PodResources{
		{Namespace: "n", Name: "p", Containers: []*podresources.ContainerResources{container("z"), container("a"), container("z")}},
		{Namespace: "n", Name: "p", Containers: []*podresources.ContainerResources{container("m"), container("a")}},
		{Namespace: "m", Name: "p", Containers: []*podresources.ContainerResources{container("a")}}}})))
	if got := fmt.Sprint(l.Order); got != `map[{m p}:[a] {n p}:[z a m]]` || len(l.Containers) != 0 {
		t.Errorf("%s, %d containers with devices", got, len(l.Containers))
	}
}

// The CDI names of a device are those that the devices of its driver before it do not have, as many as are bounded.
func TestCDINamesOfADevice(t *testing.T) {
	cdi := func(names ...string) (out []*podresources.CDIDevice) {
		for _, n := range names {
			out = append(out, &podresources.CDIDevice{Name: n})
		}
		return out
	}
	many := func(n int) (out []string) {
		for i := range n {
			out = append(out, fmt.Sprint("v/c=", i))
		}
		return out
	}
	long := strings.Repeat("x", MaxIDLength)
	for _, tt := range []struct {
		name    string
		devices []*podresources.ClaimResource
		want    []string // CDI by device
	}{
		{"the kubelet repeats those before", []*podresources.ClaimResource{{DriverName: "d", DeviceName: "0", CdiDevices: cdi("a")},
			{DriverName: "d", DeviceName: "1", CdiDevices: cdi("a", "b")}, {DriverName: "d", DeviceName: "2", CdiDevices: cdi("a", "b", "c",
				"d")}},
			[]string{"a", "b", "c,d"}},
		{"not those of another driver", []*podresources.ClaimResource{{DriverName: "d", DeviceName: "0", CdiDevices: cdi("a")},
			{DriverName: "e", DeviceName: "0", CdiDevices: cdi("a")}}, []string{"a", "a"}},
		{"twice in one", []*podresources.ClaimResource{{DriverName: "d", DeviceName: "0", CdiDevices: cdi("a", "a")}}, []string{"a"}},
		{"the longest", []*podresources.ClaimResource{{DriverName: "d", DeviceName: "0", CdiDevices: cdi(long, long+"x", "a")}},
			[]string{long + ",a"}},
		{"as many as are kept", []*podresources.ClaimResource{{DriverName: "d", DeviceName: "0", CdiDevices: cdi(many(maxCDI)...)}},
			[]string{strings.Join(many(maxCDI), ",")}},
		{"more", []*podresources.ClaimResource{{DriverName: "d", DeviceName: "0", CdiDevices: cdi(many(maxCDI + 1)...)}},
			[]string{strings.Join(many(maxCDI), ",")}},
	} {
		l := NewList(keepSome())
		if err := l.Decode(encode(&podresources.ListPodResourcesResponse{PodResources: []*podresources.PodResources{{Namespace: "n",
			Name: "p",
			Containers: []*podresources.ContainerResources{{Name: "c", DynamicResources: []*podresources.DynamicResource{{ClaimName: "x",
				ClaimNamespace: "y", ClaimResources: tt.devices}}}}}}})); err != nil {
			t.Fatal(tt.name, err)
		}
		var got []string
		for _, d := range l.Containers[gpu.Container{Namespace: "n", Pod: "p", Name: "c"}].Claims {
			if got = append(got, d.CDI); d.Claim != [2]string{"y", "x"} {
				t.Errorf("%s: claim %q", tt.name, d.Claim)
			}
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: %.100q, want %.100q", tt.name, got, tt.want)
		}
	}
}

// Devices are sorted by driver, claim and name, each once: with its CDI names, and as a share where it is one anywhere.
func TestDistinctClaimsOfAContainer(t *testing.T) {
	device := func(driver, claim, name, cdi string, part bool) ClaimDevice {
		return ClaimDevice{Driver: driver, Claim: [2]string{"n", claim}, Name: name, CDI: cdi, Part: part}
	}
	sorted := []ClaimDevice{device("a", "x", "0", "", false), device("a", "x", "1", "", false), device("a", "y", "0", "", false),
		device("b", "x", "0", "", false)}
	for i := range 24 {
		c := Container{Claims: slices.Clone(sorted)}
		for j, k := range []int{i % 4, i / 4 % 3, i / 12} {
			c.Claims[j], c.Claims[j+k%(4-j)] = c.Claims[j+k%(4-j)], c.Claims[j]
		}
		if got := c.DistinctClaims(); !slices.Equal(got, sorted) {
			t.Errorf("%+v", got)
		}
	}
	// The name of a device is unique within its pool.
	pools := []ClaimDevice{sorted[0], sorted[0]}
	pools[0].Pool, pools[1].Pool = "n1", "n2"
	if got := (&Container{Claims: slices.Clone(pools)}).DistinctClaims(); !slices.Equal(got, pools) {
		t.Errorf("of two pools: %+v", got)
	}
	for _, tt := range []struct{ first, second, want ClaimDevice }{
		{device("a", "x", "0", "", false), device("a", "x", "0", "cdi", false), device("a", "x", "0", "cdi", false)},
		{device("a", "x", "0", "", true), device("a", "x", "0", "cdi", true), device("a", "x", "0", "cdi", true)},
		{device("a", "x", "0", "cdi", false), device("a", "x", "0", "", true), device("a", "x", "0", "", true)},
	} {
		for _, both := range [][]ClaimDevice{{tt.first, tt.second}, {tt.second, tt.first}} {
			if got := (&Container{Claims: slices.Clone(both)}).DistinctClaims(); !slices.Equal(got, []ClaimDevice{tt.want}) {
				t.Errorf("%+v: %+v", both, got)
			}
		}
	}
}

// countingPool counts the buffers that are returned to it.
type countingPool struct{ returned int }

func (p *countingPool) Get(n int) *[]byte { b := make([]byte, n); return &b }
func (p *countingPool) Put(*[]byte)       { p.returned++ }

// The transport's buffers are returned after decoding, whatever comes of it.
func TestBuffersAreReturned(t *testing.T) {
	whole := repeated(100, fieldPods, func(i int) []byte { return field(nil, fieldPodName, []byte(strings.Repeat("p", 100))) })
	for name, b := range map[string][]byte{"read": whole, "refused": append([]byte{0x0b}, whole...), "cut off": whole[:len(whole)-1]} {
		pool := &countingPool{}
		data := mem.BufferSlice{mem.NewBuffer(&b, pool)}
		err := NewList(keepSome()).Decode(data)
		if data.Free(); pool.returned != 1 || (err == nil) != (name == "read") {
			t.Errorf("%s: %d buffers were returned, %v", name, pool.returned, err)
		}
	}
}
