package podmap

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/gpu-exporter/gpu-exporter/podmap/deviceid"
	client "github.com/gpu-exporter/gpu-exporter/podmap/podresources"
	"github.com/gpu-exporter/gpu-exporter/podmap/source"
)

// fakeKubelet responds with what the test has put in it, in the kubelet's own encoding.
type fakeKubelet struct {
	pods        *podresources.ListPodResourcesResponse
	devices     *podresources.AllocatableResourcesResponse
	err         error
	capacityErr error
	lists       atomic.Int64
	connections int
	answer      func() *podresources.ListPodResourcesResponse // in place of pods, where set
}

func (k *fakeKubelet) List(_ context.Context, to *client.List) error {
	k.lists.Add(1)
	if k.err != nil {
		return k.err
	}
	if k.answer != nil {
		return to.Decode(encode(k.answer()))
	}
	return to.Decode(encode(k.pods))
}

func (k *fakeKubelet) Allocatable(_ context.Context, to *client.Devices) error {
	if k.capacityErr != nil {
		return k.capacityErr
	}
	return to.Decode(encode(k.devices))
}

func (k *fakeKubelet) Explain(err error, timeout time.Duration) string {
	return client.New("/run/k.sock", 0).Explain(err, timeout)
}

func (k *fakeKubelet) Close() error     { return nil }
func (k *fakeKubelet) Connections() int { return k.connections }

// fakeWatch has the pods that the test has put in it.
type fakeWatch struct{ pods *source.Pods }

func (w *fakeWatch) Run(context.Context) {}
func (w *fakeWatch) Pods() *source.Pods  { return w.pods }
func (w *fakeWatch) Attempted() bool     { return true }
func (w *fakeWatch) Source() gpu.Source  { return gpu.Source{Name: gpu.SourceAPI, Up: true} }

// attemptedWatch may still wait for its first response.
type attemptedWatch struct {
	fakeWatch
	attempted bool
}

func (w *attemptedWatch) Attempted() bool { return w.attempted }

// fakeSlices has the devices that the test has put in it.
type fakeSlices struct{ slices *source.Slices }

func (s fakeSlices) Run(context.Context)   {}
func (s fakeSlices) Value() *source.Slices { return s.slices }
func (s fakeSlices) Source() gpu.Source    { return gpu.Source{Name: gpu.SourceSlices, Up: true} }

func encode(m proto.Message) mem.BufferSlice {
	b, err := proto.Marshal(m)
	if err != nil {
		panic(err)
	}
	return mem.BufferSlice{mem.SliceBuffer(b)}
}

// pods builds a List of lines "namespace/pod/container resource=id,id" and
// "… driver:claim=device@share^CDI name".
func pods(lines ...string) *podresources.ListPodResourcesResponse {
	out := &podresources.ListPodResourcesResponse{}
	for _, line := range lines {
		fields := strings.Fields(line)
		names := strings.Split(fields[0], "/")
		c := &podresources.ContainerResources{Name: names[2]}
		for _, f := range fields[1:] {
			key, ids, _ := strings.Cut(f, "=")
			if driver, claim, ok := strings.Cut(key, ":"); ok {
				d := &podresources.DynamicResource{ClaimName: claim, ClaimNamespace: names[0]}
				for _, id := range strings.Split(ids, ",") {
					r := &podresources.ClaimResource{DriverName: driver, PoolName: "node", DeviceName: id}
					if name, cdi, ok := strings.Cut(id, "^"); ok {
						id, r.DeviceName = name, name
						r.CdiDevices = []*podresources.CDIDevice{{Name: cdi}}
					}
					if name, share, ok := strings.Cut(id, "@"); ok {
						r.DeviceName, r.ShareId = name, &share
					}
					d.ClaimResources = append(d.ClaimResources, r)
				}
				c.DynamicResources = append(c.DynamicResources, d)
				continue
			}
			for _, id := range strings.Split(ids, ",") {
				c.Devices = append(c.Devices, &podresources.ContainerDevices{ResourceName: key, DeviceIds: []string{id}})
			}
		}
		out.PodResources = append(out.PodResources, &podresources.PodResources{Namespace: names[0], Name: names[1],
			Containers: []*podresources.ContainerResources{c}})
	}
	return out
}

// ids builds a GetAllocatableResources of words "resource=id,id".
func ids(words ...string) *podresources.AllocatableResourcesResponse {
	out := &podresources.AllocatableResourcesResponse{}
	for _, w := range words {
		resource, list, _ := strings.Cut(w, "=")
		for _, id := range strings.Split(list, ",") {
			out.Devices = append(out.Devices, &podresources.ContainerDevices{ResourceName: resource, DeviceIds: []string{id}})
		}
	}
	return out
}

// replicaIDs lists n replicas of a GPU: "GPU-…::0,GPU-…::1".
func replicaIDs(base string, n int) string {
	var out []string
	for i := range n {
		out = append(out, fmt.Sprintf("%s::%d", base, i))
	}
	return strings.Join(out, ",")
}

// clock is a time that only the test moves.
type clock struct{ now time.Time }

func newClock() *clock                   { return &clock{time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)} }
func (c *clock) time() time.Time         { return c.now }
func (c *clock) advance(d time.Duration) { c.now = c.now.Add(d) }
func (c *clock) source(k kubelet) (m *Map) {
	return newMap(Options{Clock: c.time, Socket: "/run/k.sock"}, k)
}
func poll(t *testing.T, m *Map) gpu.Allocations {
	t.Helper()
	must.OK(t, m.Poll(t.Context()))
	return m.Allocations(node())
}

// lines renders allocations for comparison: "ns/pod/container resource GPU [instance[/compute]] share [shared] [memory limit]".
func lines(h gpu.Allocations) []string {
	short := strings.NewReplacer(GPUA, "A", GPUB, "B", GPUC, "C", GPUD, "D", migD3, "D3", migD7, "D7", migD8, "D8")
	var out []string
	for _, x := range h.List {
		s := fmt.Sprintf("%s/%s/%s %s %s", x.Container.Namespace, x.Container.Pod, x.Container.Name, x.Resource, x.GPU)
		if x.Instance != "" {
			s += " " + string(x.Instance)
		}
		if x.ComputeInstance != "" {
			s += "/" + string(x.ComputeInstance)
		}
		if share, ok := x.Share.Get(); ok {
			s += fmt.Sprintf(" %.4g", float64(share))
		} else {
			s += " ?"
		}
		if x.Shared {
			s += " shared"
		}
		if b, ok := x.MemoryLimit.Get(); ok {
			s += fmt.Sprintf(" %dGiB", b>>30)
		}
		out = append(out, short.Replace(s))
	}
	for _, u := range h.Unresolved {
		out = append(out, fmt.Sprintf("%s/%s/%s %s unresolved %d", u.Container.Namespace, u.Container.Pod, u.Container.Name, u.Resource,
			u.Devices))
	}
	return out
}

func wantLines(t *testing.T, h gpu.Allocations, want ...string) {
	t.Helper()
	if got := lines(h); !slices.Equal(got, want) {
		t.Errorf("allocations:\n\t%s\nwant:\n\t%s", strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
	}
}

func TestShares(t *testing.T) {
	for _, c := range []struct {
		name        string
		pods        []string
		allocatable []string
		want        []string
		untruthful  bool
	}{
		{"whole GPUs", []string{"a/p/c nvidia.com/gpu=" + GPUA + "," + GPUB}, nil,
			[]string{"a/p/c nvidia.com/gpu A 1", "a/p/c nvidia.com/gpu B 1"}, false},
		{"an id per NUMA node is one device", []string{"a/p/c nvidia.com/gpu=" + GPUA + "," + GPUA}, nil,
			[]string{"a/p/c nvidia.com/gpu A 1"}, false},
		{"replicas", []string{"a/p/c nvidia.com/gpu=" + GPUA + "::2", "a/q/c nvidia.com/gpu=" + GPUA + "::0"},
			[]string{"nvidia.com/gpu=" + replicaIDs(GPUA, 4) + "," + replicaIDs(GPUB, 2)},
			[]string{"a/p/c nvidia.com/gpu A 0.25 shared", "a/q/c nvidia.com/gpu A 0.25 shared"}, false},
		{"several replicas of one GPU add up", []string{"a/p/c nvidia.com/gpu=" + GPUA + "::2," + GPUA + "::0," + GPUB + "::1"},
			[]string{"nvidia.com/gpu=" + replicaIDs(GPUA, 4) + "," + replicaIDs(GPUB, 2)},
			[]string{"a/p/c nvidia.com/gpu A 0.5 shared", "a/p/c nvidia.com/gpu B 0.5 shared"}, false},
		{"replicas never listed", []string{"a/p/c nvidia.com/gpu=" + GPUA + "::2"}, nil,
			[]string{"a/p/c nvidia.com/gpu A ? shared"}, false},
		{"more replicas allocated than listed", []string{"a/p/c nvidia.com/gpu=" + GPUA + "::2," + GPUA + "::3",
			"a/q/c nvidia.com/gpu=" + GPUA + "::1"},
			[]string{"nvidia.com/gpu=" + replicaIDs(GPUA, 2)},
			[]string{"a/p/c nvidia.com/gpu A 0.6667 shared", "a/q/c nvidia.com/gpu A 0.3333 shared"}, false},
		{"two resources of one GPU count apart", []string{"a/p/c nvidia.com/gpu=" + GPUA,
			"a/q/c nvidia.com/gpu.shared=" + GPUB + "::0"},
			[]string{"nvidia.com/gpu=" + GPUA, "nvidia.com/gpu.shared=" + replicaIDs(GPUB, 5)},
			[]string{"a/p/c nvidia.com/gpu A 1", "a/q/c nvidia.com/gpu.shared B 0.2 shared"}, false},
		{"MIG", []string{"a/p/c nvidia.com/mig-3g.40gb=" + migD3, "a/q/c nvidia.com/mig-3g.40gb=" + migD7},
			nil, []string{"a/p/c nvidia.com/mig-3g.40gb D D3 1", "a/q/c nvidia.com/mig-3g.40gb D D7/D7 0.6667"}, false},
		{"two compute instances of one GPU instance", []string{"a/q/c nvidia.com/mig-3g.40gb=" + migD7 + "," + migD8},
			nil, []string{"a/q/c nvidia.com/mig-3g.40gb D D7/D7 0.6667", "a/q/c nvidia.com/mig-3g.40gb D D7/D8 0.3333"}, false},
		{"replicas of MIG devices", []string{"a/q/c nvidia.com/mig-3g.40gb.shared=" + migD3 + "::0"},
			[]string{"nvidia.com/mig-3g.40gb.shared=" + replicaIDs(migD3, 3)},
			[]string{"a/q/c nvidia.com/mig-3g.40gb.shared D D3 0.3333 shared"}, false},
		{"GKE time sharing", []string{"a/q/c nvidia.com/gpu=nvidia0/vgpu0"},
			[]string{"nvidia.com/gpu=nvidia0/vgpu0,nvidia0/vgpu1"}, []string{"a/q/c nvidia.com/gpu B 0.5 shared"}, false},
		{"GKE MIG time sharing", []string{"a/q/c nvidia.com/gpu=nvidia2/gi3/vgpu0"},
			[]string{"nvidia.com/gpu=nvidia2/gi3/vgpu0,nvidia2/gi3/vgpu1,nvidia2/gi7/vgpu0"},
			[]string{"a/q/c nvidia.com/gpu D D3 0.5 shared"}, false},
		{"AWS", []string{"a/q/c k8s.amazonaws.com/vgpu=" + GPUA + "-0"},
			[]string{"k8s.amazonaws.com/vgpu=" + GPUA + "-0," + GPUA + "-1"}, []string{"a/q/c k8s.amazonaws.com/vgpu A 0.5 shared"},
			false},
		{"nos limits memory", []string{"a/p/c nvidia.com/gpu-10gb=" + GPUA + "::0," + GPUA + "::1",
			"a/q/c nvidia.com/gpu-20gb=" + GPUA + "::0"},
			[]string{"nvidia.com/gpu-10gb=" + replicaIDs(GPUA, 2), "nvidia.com/gpu-20gb=" + replicaIDs(GPUA, 1)},
			[]string{"a/p/c nvidia.com/gpu-10gb A 0.5 shared 20GiB", "a/q/c nvidia.com/gpu-20gb A 0.5 shared 20GiB"}, false},
		{"a name like nos's for time slices", []string{"a/p/c nvidia.com/gpu-40gb=" + GPUA + "::0"},
			[]string{"nvidia.com/gpu-40gb=" + replicaIDs(GPUA, 4)}, []string{"a/p/c nvidia.com/gpu-40gb A 0.25 shared"}, false},
		{"nos on a GPU of unknown size", []string{"a/p/c nvidia.com/gpu-10gb=" + GPUC + "::0"},
			[]string{"nvidia.com/gpu-10gb=" + replicaIDs(GPUC, 2)}, []string{"a/p/c nvidia.com/gpu-10gb C ? shared"}, false},

		{"a claim", []string{"a/p/c gpu.nvidia.com:x=gpu-0,gpu-3"}, nil,
			[]string{"a/p/c gpu.nvidia.com A 1", "a/p/c gpu.nvidia.com B 1"}, false},
		{"a claim of three containers", []string{"a/p/c gpu.nvidia.com:x=gpu-0", "a/p/d gpu.nvidia.com:x=gpu-0",
			"a/q/c gpu.nvidia.com:x=gpu-0"}, nil,
			[]string{"a/p/c gpu.nvidia.com B 0.3333 shared", "a/p/d gpu.nvidia.com B 0.3333 shared",
				"a/q/c gpu.nvidia.com B 0.3333 shared"}, false},
		{"claims of one name in two namespaces", []string{"a/p/c gpu.nvidia.com:x=gpu-0", "b/p/c gpu.nvidia.com:x=gpu-1"}, nil,
			[]string{"a/p/c gpu.nvidia.com B 1", "b/p/c gpu.nvidia.com C 1"}, false},
		{"a claim on a MIG device", []string{"a/p/c gpu.nvidia.com:x=gpu-2-mig-3g40gb-9-0"}, nil,
			[]string{"a/p/c gpu.nvidia.com D D3 1"}, false},
		{"two claims on one device: unknown shares", []string{"a/p/c gpu.nvidia.com:x=gpu-0", "a/q/c gpu.nvidia.com:y=gpu-0"}, nil,
			[]string{"a/p/c gpu.nvidia.com B ? shared", "a/q/c gpu.nvidia.com B ? shared"}, false},
		{"a claim on a part", []string{"a/p/c gpu.nvidia.com:x=gpu-0@share1"}, nil, []string{"a/p/c gpu.nvidia.com B ? shared"}, false},
		{"no GPUs in the claim", []string{"a/p/c compute-domain.nvidia.com:x=channel-0"}, nil, nil, false},

		{"a opaque scheme", []string{"a/p/c nvidia.com/gpu=" + GPUA + "-1," + GPUA + "-2 nvidia.com/gpumem=x,y,z"}, nil,
			[]string{"a/p/c nvidia.com/gpu unresolved 2"}, true},
		{"direct and opaque together", []string{"a/p/c nvidia.com/gpu=" + GPUA + " nvidia.com/vgpu-number=" + GPUB + "::1"}, nil,
			[]string{"a/p/c nvidia.com/gpu A 1", "a/p/c nvidia.com/vgpu-number unresolved 1"}, true},
		{"a GPU of another node", []string{"a/p/c nvidia.com/gpu=" + missing + "," + GPUA}, nil,
			[]string{"a/p/c nvidia.com/gpu A 1", "a/p/c nvidia.com/gpu unresolved 1"}, false},
		{"a MIG device that is not here yet may be on any", []string{"a/p/c nvidia.com/gpu=MIG-" + mdev}, nil,
			[]string{"a/p/c nvidia.com/gpu unresolved 1"}, true},
		{"a GPU in a virtual machine", []string{"a/p/c gpu.nvidia.com:x=gpu-vfio-0"}, nil,
			[]string{"a/p/c gpu.nvidia.com unresolved 1"}, false},
		{"not GPUs", []string{"a/p/c rdma/hca=1 nvidia.com/hostdev=0000:18:00.0 nvidia.com/nic=0000:99:00.0 cpu/x=0"}, nil, nil, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := poll(t, newClock().source(&fakeKubelet{pods: pods(c.pods...), devices: ids(c.allocatable...)}))
			wantLines(t, h, c.want...)
			if h.Uncertain != c.untruthful {
				t.Errorf("untruthful: %v", h.Uncertain)
			}
			sums := map[gpu.UUID]float64{}
			for _, x := range h.List {
				sums[x.GPU+x.Instance] += float64(x.Share.Or(0))
				if x.Source != gpu.SourcePodResources {
					t.Errorf("source %q", x.Source)
				}
			}
			for at, sum := range sums {
				if sum > 1+1e-9 {
					t.Errorf("%s is allocated %v times", at, sum)
				}
			}
		})
	}
}

// An allocation keeps the number of its first replica, and the device of its claim.
func TestWhatWasAllocated(t *testing.T) {
	h := poll(t, newClock().source(&fakeKubelet{pods: pods("a/p/c nvidia.com/gpu="+GPUA+"::2,"+GPUA+"::1",
		"a/q/c nvidia.com/gpu=nvidia0/vgpu4", "a/r/c nvidia.com/gpu="+GPUC, "a/s/c gpu.nvidia.com:x=gpu-2-mig-3g40gb-9-0")}))
	var got []string
	for _, x := range h.List {
		got = append(got, fmt.Sprintf("%s %q %v", x.Container.Pod, x.Replica, x.Claim))
	}
	want := []string{`p "1" {    }`, `q "4" {    }`, `r "" {    }`, `s "" {a x gpu.nvidia.com node gpu-2-mig-3g40gb-9-0}`}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestResourcesAndPods(t *testing.T) {
	k := &fakeKubelet{pods: pods(
		"a/p/c nvidia.com/gpu="+GPUA+","+GPUA+" rdma/hca=1",
		"b/q/c aliyun.com/gpu-mem="+GPUB+"-_-1,"+GPUB+"-_-2",
		"c/r/c gpu.nvidia.com:x=gpu-0",
		"d/none/c rdma/hca=2",
	), devices: ids("nvidia.com/gpu="+GPUA+","+GPUB+","+GPUA, "aliyun.com/gpu-mem=x,y,z", "rdma/hca=1,2",
		"nvidia.com/mig-1g.10gb="+migD3,
		"nvidia.com/hostdev=0000:18:00.0", "nvidia.com/gpumem=1,2")}
	m := newClock().source(k)
	h := poll(t, m)
	want := []gpu.ResourceCount{
		{Resource: "aliyun.com/gpu-mem", Allocatable: gpu.Some(3), Allocated: 2},
		{Resource: "gpu.nvidia.com", Allocated: 1},
		{Resource: "nvidia.com/gpu", Allocatable: gpu.Some(2), Allocated: 1},
		{Resource: "nvidia.com/mig-1g.10gb", Allocatable: gpu.Some(1), Allocated: 0},
	}
	if !reflect.DeepEqual(h.Resources, want) {
		t.Errorf("resources %+v\nwant %+v", h.Resources, want)
	}
	if want := []gpu.PodRef{{Namespace: "a", Pod: "p"}, {Namespace: "b", Pod: "q"}, {Namespace: "c", Pod: "r"}}; !slices.Equal(h.Pods,
		want) {
		t.Errorf("pods %v", h.Pods)
	}

	// The plugin stops and the pods end: names remain, at 0, and pods without devices are not listed.
	k.pods, k.devices = pods("d/none/c rdma/hca=2"), ids()
	poll(t, m)
	h = poll(t, m)
	want = []gpu.ResourceCount{
		{Resource: "aliyun.com/gpu-mem", Allocatable: gpu.Some(0)},
		{Resource: "gpu.nvidia.com"},
		{Resource: "nvidia.com/gpu", Allocatable: gpu.Some(0)},
		{Resource: "nvidia.com/mig-1g.10gb", Allocatable: gpu.Some(0)},
	}
	if !reflect.DeepEqual(h.Resources, want) {
		t.Errorf("resources %+v\nwant %+v", h.Resources, want)
	}
	if len(h.Pods) != 0 || len(h.List) != 0 || !h.Known {
		t.Errorf("still allocated: %+v", h)
	}
}

func TestAGPUUnderANetworkName(t *testing.T) {
	k := &fakeKubelet{pods: pods("a/p/c nvidia.com/mine=0000:18:00.0", "a/q/c nvidia.com/other=0000:99:00.0")}
	h := poll(t, newClock().source(k))
	wantLines(t, h, "a/p/c nvidia.com/mine A 1")
	if want := []gpu.ResourceCount{{Resource: "nvidia.com/mine", Allocated: 1}}; !reflect.DeepEqual(h.Resources, want) {
		t.Errorf("resources %+v", h.Resources)
	}
}

func TestSharesOutliveThePlugin(t *testing.T) {
	k := &fakeKubelet{pods: pods("a/p/c nvidia.com/gpu=" + GPUA + "::2"), devices: ids("nvidia.com/gpu=" + replicaIDs(GPUA, 4))}
	m := newClock().source(k)
	poll(t, m)
	k.devices = ids()
	wantLines(t, poll(t, m), "a/p/c nvidia.com/gpu A 0.25 shared")
	k.devices = ids("nvidia.com/gpu=" + replicaIDs(GPUA, 2))
	wantLines(t, poll(t, m), "a/p/c nvidia.com/gpu A 0.5 shared")
	k.devices, k.capacityErr = nil, errors.New("no")
	var log bytes.Buffer
	m.options.Logger = slog.New(slog.NewTextHandler(&log, nil))
	h := poll(t, m)
	wantLines(t, h, "a/p/c nvidia.com/gpu A 0.5 shared")
	if s := h.Sources[0]; s.Errors != 1 || !s.Up || s.Message != "" {
		t.Errorf("the second call failing: %+v", s)
	}
	// Each failure is logged once, and again after a success.
	for i, err := range []error{errors.New("no"), errors.New("other"), nil, errors.New("other")} {
		k.devices, k.capacityErr = ids("nvidia.com/gpu="+GPUA), err // no replicas any more
		wantLines(t, poll(t, m), "a/p/c nvidia.com/gpu A 0.5 shared")
		if got, want := strings.Count(log.String(), "cannot list allocatable"), []int{1, 2, 2, 3}[i]; got != want {
			t.Errorf("step %d: logged %d times, want %d", i, got, want)
		}
	}
	k.capacityErr = fmt.Errorf("x: %w", errors.ErrUnsupported)
	if s := poll(t, m).Sources[0]; s.Errors != 4 {
		t.Errorf("not offered is no error: %+v", s)
	}
	// A kubelet that never had the call: the capacity is unknown.
	h = poll(t, newClock().source(k))
	wantLines(t, h, "a/p/c nvidia.com/gpu A ? shared")
	if r := h.Resources; len(r) != 1 || r[0].Allocatable.Present() || r[0].Allocated != 1 {
		t.Errorf("%+v", r)
	}
}

func TestSince(t *testing.T) {
	c := newClock()
	k := &fakeKubelet{pods: pods("a/old/c nvidia.com/gpu=" + GPUA)}
	m := c.source(k)
	since := func(h gpu.Allocations) string {
		var out []string
		for _, x := range h.List {
			s := "?"
			if at, ok := x.Since.Get(); ok {
				s = at.Format("04:05")
			}
			out = append(out, x.Container.Pod+" "+s)
		}
		return strings.Join(out, ", ")
	}
	check := func(want string) {
		t.Helper()
		if got := since(poll(t, m)); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	check("old ?")
	c.advance(10 * time.Second)
	k.pods = pods("a/old/c nvidia.com/gpu="+GPUA, "a/young/c nvidia.com/gpu="+GPUB)
	check("old ?, young 00:10")
	c.advance(10 * time.Second)
	check("old ?, young 00:10")
	// Several IDs of one GPU start with the first of them; an allocation of unknown start remains so.
	k.pods = pods("a/old/c nvidia.com/gpu="+GPUA+","+GPUA+"::1", "a/young/c nvidia.com/gpu="+GPUB+","+GPUB+"::1")
	check("old ?, young 00:10")
	// Terminating pods are listed, with their devices. Failures in between change nothing.
	k.err = errors.New("down")
	c.advance(time.Hour)
	if err := m.Poll(t.Context()); err == nil {
		t.Fatal("no error")
	}
	if h := m.Allocations(node()); h.Known || h.List != nil {
		t.Errorf("an hour old, and known: %+v", h)
	}
	k.err = nil
	check("old ?, young 00:10")
	// What was not listed starts again.
	k.pods = pods("a/young/c nvidia.com/gpu=" + GPUB)
	poll(t, m)
	c.advance(time.Second)
	k.pods = pods("a/old/c nvidia.com/gpu="+GPUA, "a/young/c nvidia.com/gpu="+GPUB)
	check("old 00:21, young 00:10")
}

func TestAnEmptyResponseNeedsASecond(t *testing.T) {
	k := &fakeKubelet{pods: pods("a/p/c nvidia.com/gpu=" + GPUA)}
	m := newClock().source(k)
	start := poll(t, m)
	if !start.Known || len(start.List) != 1 {
		t.Fatalf("%+v", start)
	}
	// The kubelet restarts: nothing, then the pods again.
	k.pods = pods()
	h := poll(t, m)
	wantLines(t, h, "a/p/c nvidia.com/gpu A 1")
	if !h.Known || !h.Sources[0].Up {
		t.Errorf("%+v", h)
	}
	k.pods = pods("a/p/c nvidia.com/gpu=" + GPUA)
	wantLines(t, poll(t, m), "a/p/c nvidia.com/gpu A 1")
	// A doubt does not survive an response, nor a failure.
	k.pods = pods()
	wantLines(t, poll(t, m), "a/p/c nvidia.com/gpu A 1")
	k.err = errors.New("down")
	m.Poll(t.Context())
	k.err = nil
	wantLines(t, poll(t, m), "a/p/c nvidia.com/gpu A 1")
	// The second of its kind is used, and later ones need no confirmation.
	h = poll(t, m)
	wantLines(t, h)
	if !h.Known {
		t.Error("used, and not known")
	}
	wantLines(t, poll(t, m))
	// New pods are used at once.
	k.pods = pods("a/q/c nvidia.com/gpu=" + GPUA)
	wantLines(t, poll(t, m), "a/q/c nvidia.com/gpu A 1")
	// Unresolved IDs are allocations too.
	k.pods = pods("a/q/c nvidia.com/gpu=strange")
	wantLines(t, poll(t, m), "a/q/c nvidia.com/gpu unresolved 1")
	// As long as the kubelet has not restarted, pods without devices are enough; a response on a new connection needs a
	// second one.
	k.connections++
	k.pods = pods("a/other/c")
	wantLines(t, poll(t, m), "a/q/c nvidia.com/gpu unresolved 1")
	wantLines(t, poll(t, m))
	k.pods = pods("a/q/c nvidia.com/gpu=" + GPUA)
	poll(t, m)
	k.pods = pods("a/other/c")
	wantLines(t, poll(t, m))
	// It restarted under the call.
	k.pods = pods("a/q/c nvidia.com/gpu=" + GPUA)
	poll(t, m)
	k.answer = func() *podresources.ListPodResourcesResponse { k.connections++; return pods("a/other/c") }
	wantLines(t, poll(t, m), "a/q/c nvidia.com/gpu A 1")
}

func TestTheFirstResponse(t *testing.T) {
	m := newClock().source(&fakeKubelet{pods: pods()})
	if h := m.Allocations(node()); h.Known || !h.Configured || h.Sources[0].Up || h.Sources[0].Message == "" {
		t.Errorf("before any response: %+v", h)
	}
	// No pods at all, not even the exporter's own: the kubelet is still starting.
	if h := poll(t, m); h.Known || !h.Sources[0].Up {
		t.Errorf("no pods, and known: %+v", h)
	}
	if h := poll(t, m); !h.Known {
		t.Errorf("twice no pods: %+v", h)
	}
	// Pods without GPUs are an response.
	m = newClock().source(&fakeKubelet{pods: pods("a/exporter/c")})
	if h := poll(t, m); !h.Known || len(h.List) != 0 {
		t.Errorf("%+v", h)
	}
}

func TestHealth(t *testing.T) {
	c := newClock()
	k := &fakeKubelet{pods: pods("a/p/c nvidia.com/gpu=" + GPUA)}
	m := c.source(k)
	h := poll(t, m)
	if s := h.Sources[0]; s.Name != "podresources" || !s.Up || s.Message != "" || s.LastSuccess.Or(time.Time{}) != c.now ||
		s.Errors != 0 ||
		!s.Duration.Present() {
		t.Errorf("good: %+v", s)
	}
	if l := h.PollGroups; len(l) != 1 || l[0].PollGroup != gpu.PollKubelet || l[0].Interval != DefaultInterval ||
		!l[0].Duration.Present() {
		t.Errorf("poll groups: %+v", l)
	}
	good := c.now
	k.err = errors.New("broken\nin two lines")
	c.advance(35 * time.Second)
	if err := m.Poll(t.Context()); !errors.Is(err, k.err) {
		t.Errorf("Poll returned %v", err)
	}
	h = m.Allocations(node())
	if s := h.Sources[0]; s.Up || s.Errors != 1 || s.LastSuccess.Or(time.Time{}) != good ||
		s.Message != "/run/k.sock: broken in two lines; using the response from 35s ago" {
		t.Errorf("failing: %+v", s)
	}
	wantLines(t, h, "a/p/c nvidia.com/gpu A 1")
	c.advance(5 * time.Minute)
	h = m.Allocations(node())
	if s := h.Sources[0]; h.Known || !h.Configured || s.Message != "/run/k.sock: broken in two lines; the last response is 5m35s old "+
		"and "+
		"no longer used" {
		t.Errorf("too old: %+v", h)
	}
	k.err = nil
	if h := poll(t, m); !h.Known || !h.Sources[0].Up || h.Sources[0].Errors != 1 {
		t.Errorf("again: %+v", h)
	}
}

func TestOwnEndIsNoFailure(t *testing.T) {
	k := &fakeKubelet{err: context.Canceled}
	m := newClock().source(k)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := m.Poll(ctx); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if s := m.Allocations(nil).Sources[0]; s.Errors != 0 {
		t.Errorf("%+v", s)
	}
}

func TestNoSource(t *testing.T) {
	m := New(Options{})
	ctx, cancel := context.WithCancel(t.Context())
	if err := m.Poll(ctx); err != nil {
		t.Error(err)
	}
	cancel()
	m.Run(ctx)
	if h := m.Allocations(node()); h.Configured || h.Known || len(h.Sources) != 0 || len(h.PollGroups) != 0 {
		t.Errorf("%+v", h)
	}
	if m.Unrecognized() != nil {
		t.Error("ids from nowhere")
	}
}

func TestAllocsAreCached(t *testing.T) {
	k, c := &fakeKubelet{pods: pods("a/p/c nvidia.com/gpu="+GPUA, "a/q/c nvidia.com/gpu="+GPUB)}, newClock()
	m := c.source(k)
	inv := node()
	var last *gpu.Allocation
	for _, step := range []struct {
		name  string
		pods  *podresources.ListPodResourcesResponse
		equal bool
	}{
		{"the first", k.pods, false},
		{"an equal one", pods("a/q/c nvidia.com/gpu="+GPUB, "a/p/c nvidia.com/gpu="+GPUA), true},
		{"another GPU", pods("a/p/c nvidia.com/gpu="+GPUA, "a/q/c nvidia.com/gpu="+GPUC), false},
		{"another pod", pods("a/p/c nvidia.com/gpu="+GPUA, "a/r/c nvidia.com/gpu="+GPUC), false},
		{"a pod without GPUs", pods("a/p/c nvidia.com/gpu="+GPUA, "a/r/c nvidia.com/gpu="+GPUC, "a/s/c"), false},
		{"one GPU", pods("a/p/c nvidia.com/gpu=" + GPUA), false},
	} {
		k.pods = step.pods
		must.OK(t, m.Poll(t.Context()))
		first, second := m.Allocations(inv), m.Allocations(inv)
		if &first.List[0] != &second.List[0] || (&first.List[0] == last) != step.equal {
			t.Errorf("%s: resolved twice for the same response and GPUs, or not again for another", step.name)
		}
		last = &first.List[0]
		// An equal response is as new as another.
		c.advance(4 * time.Minute)
		if h := m.Allocations(inv); !h.Known {
			t.Errorf("%s: not known after four minutes", step.name)
		}
	}
	if h := m.Allocations(nil); len(h.List) != 0 || len(h.Unresolved) != 1 {
		t.Errorf("without GPUs: %+v", h)
	}
	other := &gpu.Inventory{GPUs: inv.GPUs[1:]}
	if h := m.Allocations(other); len(h.List) != 0 || len(h.Unresolved) != 1 || h.Uncertain {
		t.Errorf("with other GPUs: %+v", h)
	}
	if allocs := testing.AllocsPerRun(100, func() { m.Allocations(other) }); allocs > 4 {
		t.Errorf("%v allocations for what is known already", allocs)
	}
}

func TestUnrecognizedIDsAreLoggedOnce(t *testing.T) {
	var log strings.Builder
	k := &fakeKubelet{pods: pods("a/p/c nvidia.com/gpu=what-1,what-2 aliyun.com/gpu-mem="+GPUA+"-_-1 example.com/gpu="+GPUA,
		"b/p/c nvidia.com/gpu=what-3")}
	m := newMap(Options{Logger: slog.New(slog.NewTextHandler(&log, nil))}, k)
	for range 3 {
		poll(t, m)
	}
	if n := strings.Count(log.String(), "\n"); n != 3 {
		t.Errorf("%d lines for three kinds:\n%s", n, log.String())
	}
	got := m.Unrecognized()
	want := []Unrecognized{
		{Resource: "aliyun.com/gpu-mem", Scheme: "aliyun gpushare", Shape: "GPU-#-#-#-#-#-_-#", Hint: got[0].Hint, Devices: 1},
		{Resource: "example.com/gpu", Scheme: "unlisted", Shape: "GPU-#-#-#-#-#", Hint: got[1].Hint, Devices: 1},
		{Resource: "nvidia.com/gpu", Scheme: "unlisted", Shape: "what-#", Hint: got[1].Hint, Devices: 3},
	}
	if !slices.Equal(got, want) {
		t.Errorf("%+v\nwant %+v", got, want)
	}
}

// IDs that the first response of the API server may identify are not logged before it.
func TestUnrecognizedIDsWaitForTheWatch(t *testing.T) {
	var log strings.Builder
	m := newMap(Options{Logger: slog.New(slog.NewTextHandler(&log, nil))}, &fakeKubelet{pods: pods("a/p/c nvidia.com/gpu=" + GPUB + "-1")})
	for _, attempted := range []bool{false, true} {
		m.watch = &attemptedWatch{fakeWatch{}, attempted}
		poll(t, m)
		if logged := strings.Contains(log.String(), "cannot map device IDs"); logged != attempted {
			t.Errorf("the watch has responded: %v, logged: %v", attempted, logged)
		}
	}
}

// What no scheme records comes first; recorded shares are scaled to what is left.
func TestFit(t *testing.T) {
	for _, c := range []struct{ direct, recorded, wantDirect, want float64 }{{.5, .4, .5, .4}, {.5, .8, .5, .5}, {1, .8, 1, 0},
		{0, 2, 0, 1}, {1.5, 0, 1, 0}} {
		direct, recorded := &tally{share: c.direct}, &tally{share: c.recorded, recorded: true}
		fit(map[place]*tally{{dev: GPUA, resource: "a"}: direct, {dev: GPUA, resource: "b"}: recorded,
			{dev: GPUB, resource: "b"}: {share: .9}})
		if min(direct.share, 1) != c.wantDirect || min(recorded.share, 1) != c.want {
			t.Errorf("%+v: %v and %v", c, direct.share, recorded.share)
		}
	}
}

// A percent of the cores is a limit, none is no limit.
func TestCoresOfAClaim(t *testing.T) {
	exclusive := readSharing(t, sharingDir+"/hami-dra.txt").cases[0]
	for cores, want := range map[string]float64{"0": 0, "1": .01, "100": 1, "200": 1} {
		c := *exclusive
		c.dra = strings.ReplaceAll(c.dra, `"cores":"100"`, `"cores":"`+cores+`"`)
		m, _ := c.setUp(t, "dra", newClock())
		must.OK(t, m.Poll(t.Context()))
		h := m.Allocations(sharingNode(false))
		if len(h.List) != 1 || float64(h.List[0].ComputeLimit.Or(0)) != want || h.List[0].ComputeLimit.Present() != (want > 0) {
			t.Errorf("%s: %+v", cores, h.List)
		}
	}
}

// A device of a claim that nothing identifies is listed as unrecognized.
func TestUnrecognizedClaims(t *testing.T) {
	m := newClock().source(&fakeKubelet{pods: pods("a/p/c gpu.example.com:x=dev-0")})
	if h := poll(t, m); len(h.Unresolved) != 1 || !h.Uncertain {
		t.Errorf("%+v", h)
	}
	if got := m.Unrecognized(); len(got) != 1 || got[0].Resource != "gpu.example.com" || got[0].Shape != "dev-#" {
		t.Errorf("%+v", got)
	}
}

// A share that leaves nothing for another container is no sharing.
func TestNearlyWhole(t *testing.T) {
	for share, want := range map[float64]bool{.5: true, .98: true, .99: false, 1: false} {
		l := limited(nil, deviceid.Assignment{Compute: gpu.Some(share)}, deviceid.Target{GPU: GPUA, Part: 1}, 1)
		if l.shared != want || l.share != gpu.Some(share) {
			t.Errorf("%v: %+v", share, l)
		}
	}
}

// The last records of the GPU fractioning operator count while they are fresh.
func TestRecordsThatCannotBeRead(t *testing.T) {
	dir, now := filepath.Join(t.TempDir(), "map"), newClock()
	record := filepath.Join(dir, "id.json")
	text := `{"schemaVersion":1,"pod":"p","namespace":"a","gpuDevices":[{"uuid":"` + GPUA + `"}]}`
	must.OK(t, errors.Join(os.Mkdir(dir, 0o755), os.WriteFile(record, []byte(text), 0o600)))
	m := newMap(Options{Clock: now.time, Fractions: dir, MaxAge: 5 * time.Minute}, &fakeKubelet{pods: pods("a/p/c")})
	for _, c := range []struct {
		name      string
		act       func() error
		uncertain bool
		want      string
	}{
		{"read", func() error { return nil }, false, "p " + GPUA},
		{"no directory any more", func() error { return errors.Join(os.RemoveAll(dir), os.WriteFile(dir, nil, 0o600)) }, false,
			"p " + GPUA},
		{"for longer than its maximum age", func() error { now.advance(5*time.Minute + time.Second); return nil }, true, ""},
	} {
		must.OK(t, c.act())
		h := poll(t, m)
		var got []string
		for _, l := range h.List {
			got = append(got, l.Container.Pod+" "+string(l.GPU))
		}
		if strings.Join(got, ",") != c.want || h.Uncertain != c.uncertain {
			t.Errorf("%s: %q, uncertain %v", c.name, got, h.Uncertain)
		}
	}
}

// A plugin with an ID per MiB of a GPU; the client's tests have larger responses.
func TestAnIDPerMiB(t *testing.T) {
	many := make([]string, 80<<10)
	for i := range many {
		many[i] = fmt.Sprintf("%s-_-%d", GPUA, i)
	}
	k := &fakeKubelet{pods: &podresources.ListPodResourcesResponse{PodResources: []*podresources.PodResources{{Namespace: "a",
		Name: "p",
		Containers: []*podresources.ContainerResources{{Name: "c", Devices: []*podresources.ContainerDevices{
			{ResourceName: "aliyun.com/gpu-mem", DeviceIds: many}}}}}}}}
	m := newClock().source(k)
	wantLines(t, poll(t, m), fmt.Sprintf("a/p/c aliyun.com/gpu-mem unresolved %d", len(many)))
}

func TestDelay(t *testing.T) {
	jitter := 0.5
	k := &fakeKubelet{pods: pods("a/p/c nvidia.com/gpu=" + GPUA), err: errors.New("down")}
	m := newMap(Options{Jitter: func() float64 { return jitter }}, k)
	if d := m.delay(); d != 10*time.Second {
		t.Errorf("before anything: %s", d)
	}
	for _, want := range []time.Duration{2, 4, 8, 16, 32, 60, 60} {
		m.Poll(t.Context())
		if d := m.delay(); d != want*time.Second {
			t.Errorf("delay %s, want %d s", d, want)
		}
	}
	for j, want := range map[float64]time.Duration{0: 30 * time.Second, 0.999999999: 90*time.Second - 60} {
		jitter = j
		if d := m.delay(); d != want {
			t.Errorf("delay %s with jitter %v, want %s", d, j, want)
		}
	}
	k.err = nil
	poll(t, m)
	if d := m.delay(); d != 10*time.Second {
		t.Errorf("healthy: %s", d)
	}
	k.pods = pods()
	poll(t, m)
	if d := m.delay(); d != 2*time.Second {
		t.Errorf("in doubt: %s", d)
	}
}

func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &fakeKubelet{pods: pods("a/p/c nvidia.com/gpu=" + GPUA)}
		m := newMap(Options{}, k)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); m.Run(ctx) }()
		synctest.Wait()
		if n := k.lists.Load(); n != 1 {
			t.Errorf("%d polls at the start", n)
		}
		time.Sleep(95 * time.Second)
		synctest.Wait()
		if n := k.lists.Load(); n != 10 {
			t.Errorf("%d polls in 95 s", n)
		}
		cancel()
		<-done
	})
}

// While the watch of the API server fails, ResourceSlices of the same server are not up, however long ago they were listed.
func TestSlicesFollowTheServer(t *testing.T) {
	m := newClock().source(&fakeKubelet{pods: pods("a/p/c")})
	m.optional = []source.Source{&attemptedWatch{}, fakeSlices{}}
	if got := poll(t, m).Sources[2]; !got.Up {
		t.Errorf("%+v", got)
	}
	m.optional[0] = downWatch{}
	if got := poll(t, m).Sources[2]; got.Up || got.Message != "connection refused" {
		t.Errorf("%+v", got)
	}
}

type downWatch struct{ fakeWatch }

func (downWatch) Source() gpu.Source {
	return gpu.Source{Name: gpu.SourceAPI, Message: "connection refused"}
}

// listingSlices records that it ran.
type listingSlices struct {
	fakeSlices
	ran *bool
}

func (s listingSlices) Run(context.Context) { *s.ran = true }

// A taint is that of its GPU, once, also where it is that of a MIG device, by its UUID or by the PCI address of its GPU; a
// device of another node or without address has none.
func TestTaints(t *testing.T) {
	lost := gpu.Taint{Key: "gpu.nvidia.com/gpu-lost", Value: "true", Effect: "NoExecute"}
	xid := gpu.Taint{Key: "gpu.nvidia.com/xid", Value: "95", Effect: "NoSchedule"}
	inv := node()
	d, _ := inv.ByUUID(GPUD)
	s := snapshot{slices: &source.Slices{{"d", "a"}: {UUID: GPUA, Taints: []gpu.Taint{lost}},
		{"e", "a"}:                    {UUID: GPUA, Taints: []gpu.Taint{lost}},
		{"d", "gpu-2-mig-3g20gb-9-0"}: {UUID: migD3, Taints: []gpu.Taint{xid}},
		{"d", "gpu-2-mig-1g5gb-19-0"}: {PCI: string(d.PCI), Taints: []gpu.Taint{lost}},
		{"d", "other"}:                {UUID: "GPU-99999999-0000-4000-8000-000000000000", Taints: []gpu.Taint{lost}},
		{"d", "b"}:                    {UUID: GPUB},
		{"d", "x"}:                    {Taints: []gpu.Taint{lost}}}}
	got := s.taints(inv)
	if len(got) != 2 || !slices.Equal(got[GPUA], []gpu.Taint{lost}) || !slices.Equal(got[GPUD], []gpu.Taint{lost, xid}) {
		t.Errorf("%+v", got)
	}
}

// Watch, which doctor calls without Run, lists the ResourceSlices, too.
func TestWatchListsSlices(t *testing.T) {
	var ran bool
	(&Map{slices: listingSlices{fakeSlices{}, &ran}}).Watch(t.Context())
	if !ran {
		t.Error("the ResourceSlices are not listed")
	}
}

// However many events there are, the kubelet gets at most two queries in a second, fewer while it fails, and a response
// that must be confirmed is not confirmed at once.
func TestEventsAreCoalesced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &fakeKubelet{pods: pods("a/p/c nvidia.com/gpu=" + GPUA)}
		m := newMap(Options{Jitter: func() float64 { return 0.5 }}, k)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); m.Run(ctx) }()
		storm := func(d time.Duration) int64 {
			before := k.lists.Load()
			for ; d > 0; d -= 10 * time.Millisecond {
				m.changed()
				time.Sleep(10 * time.Millisecond)
			}
			return k.lists.Load() - before
		}
		time.Sleep(3 * time.Second)
		if n := storm(2 * time.Second); n < 3 || n > 5 {
			t.Errorf("%d queries in two seconds of events after a pause", n)
		}
		if n := storm(time.Minute); n < 110 || n > 121 {
			t.Errorf("%d queries in a minute, want two in a second", n)
		}
		synctest.Wait()
		k.err = errors.New("down")
		if n := storm(time.Minute); n > 31 {
			t.Errorf("%d queries in a minute of a kubelet that is down", n)
		}
		synctest.Wait()
		k.err = nil
		storm(2 * time.Minute)
		synctest.Wait()
		k.pods = pods()
		storm(1500 * time.Millisecond)
		wantLines(t, m.Allocations(node()), "a/p/c nvidia.com/gpu A 1")
		storm(2 * time.Second)
		wantLines(t, m.Allocations(node()))
		cancel()
		<-done
	})
}

func TestConcurrentUse(t *testing.T) {
	m := newMap(Options{}, &fakeKubelet{pods: pods("a/p/c nvidia.com/gpu=" + GPUA + " aliyun.com/gpu-mem=x"),
		devices: ids("nvidia.com/gpu=" + GPUA)})
	inventories := []*gpu.Inventory{node(), node(), nil}
	var all sync.WaitGroup
	for i := range 6 {
		all.Go(func() {
			for range 200 {
				if i == 0 {
					m.Poll(t.Context())
				}
				m.Allocations(inventories[i%3])
				m.Unrecognized()
			}
		})
	}
	all.Wait()
}

// The kubelet lists the healthy devices alone. A GPU is unhealthy if what is allocated or was listed is missing, but not if
// its plugin stopped, if it is partitioned now, or if only another resource offers it.
func TestKubeletHealth(t *testing.T) {
	inv := node()
	allocated := pods("a/p/c nvidia.com/gpu="+GPUA, "a/m/c nvidia.com/mig-3g.20gb="+migD3)
	all := []string{"nvidia.com/gpu=" + GPUA + "," + GPUB + "," + GPUC, "nvidia.com/mig-3g.20gb=" + migD3, "nvidia.com/mig-1g.5gb=" + migD7}
	for _, test := range []struct {
		name        string
		first, then []string
		want        map[gpu.UUID]bool
	}{
		{"all are listed", all, all, map[gpu.UUID]bool{GPUA: true, GPUB: true, GPUC: true, GPUD: true}},
		{"nothing was ever listed", nil, nil, map[gpu.UUID]bool{}},
		{"one that is allocated is missing, and was so before this program", []string{"nvidia.com/gpu=" + GPUB},
			[]string{"nvidia.com/gpu=" + GPUB}, map[gpu.UUID]bool{GPUA: false, GPUB: true}},
		{"one that is not allocated is missing since", all, append([]string{"nvidia.com/gpu=" + GPUA + "," + GPUC}, all[1:]...),
			map[gpu.UUID]bool{GPUA: true, GPUB: false, GPUC: true, GPUD: true}},
		{"the plugin stopped", all, all[1:], map[gpu.UUID]bool{GPUD: true}},
		{"every plugin stopped", all, nil, map[gpu.UUID]bool{}},
		{"offered under another name", all, append([]string{"nvidia.com/gpu=" + GPUA + "," + GPUC, "nvidia.com/gpu.shared=" + GPUB + "::0"},
			all[1:]...), map[gpu.UUID]bool{GPUA: true, GPUB: true, GPUC: true, GPUD: true}},
		{"an allocated MIG device is missing, another of its profile is listed", all,
			[]string{all[0], "nvidia.com/mig-3g.20gb=MIG-22222222-2222-4222-8222-222222222222", all[2]},
			map[gpu.UUID]bool{GPUA: true, GPUB: true, GPUC: true, GPUD: false}},
		{"partitioned since", []string{all[0] + "," + GPUD}, all[:1], map[gpu.UUID]bool{GPUA: true, GPUB: true, GPUC: true}},
		{"replicas", []string{"nvidia.com/gpu=" + GPUA + "::0," + GPUA + "::1," + GPUB + "::0"},
			[]string{"nvidia.com/gpu=" + GPUA + "," + GPUB + "::1"}, map[gpu.UUID]bool{GPUA: true, GPUB: true}},
	} {
		t.Run(test.name, func(t *testing.T) {
			k := &fakeKubelet{pods: allocated, devices: ids(test.first...)}
			m := newClock().source(k)
			poll(t, m)
			k.devices = ids(test.then...)
			poll(t, m)
			if got := m.Allocations(inv).KubeletHealth; !maps.Equal(got, test.want) {
				t.Errorf("%v, want %v", got, test.want)
			}
			k.capacityErr = errors.New("broken")
			poll(t, m)
			if got := m.Allocations(inv).KubeletHealth; len(got) != 0 {
				t.Errorf("%v of a response that is out of date", got)
			}
		})
	}
}
