package standin

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	mathrand "math/rand/v2"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	encodingproto "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
	podresourcesalpha "k8s.io/kubelet/pkg/apis/podresources/v1alpha1"
)

// KubeletPod is a pod as the kubelet lists it.
type KubeletPod struct {
	Namespace, Name string
	Containers      []KubeletContainer
}

// KubeletContainer is one container and its devices. The kubelet does not list processes; they are for the files of
// the node.
type KubeletContainer struct {
	Name    string
	Devices []KubeletDevices
	Claims  []KubeletClaim
	PIDs    []int
	// Unlisted is set for init and ephemeral containers, which the kubelet does not list.
	Unlisted bool
	ProcessDetails
}

// ProcessDetails are the contents of /proc for a process.
type ProcessDetails struct {
	Command string   // empty: the container's name, or "host"
	Nodes   []string // device nodes below its /dev: "nvidia0", "nvidia-caps/nvidia-cap12"
	Env     []string // NAME=VALUE
}

// HostProcess is a process outside pods.
type HostProcess struct {
	PID    int
	Cgroup string // "/system.slice/slurmstepd.scope/job_42/step_0"
	ProcessDetails
}

// KubeletDevices are IDs of one resource of a device plugin. A device on several NUMA nodes is listed once per node.
type KubeletDevices struct {
	Resource string
	IDs      []string
	NUMA     []int64
}

// KubeletClaim is one device of a DRA claim. An empty Namespace is the pod's. ShareID is empty unless the claim has a
// share of the device.
type KubeletClaim struct {
	Namespace, Name, Driver, Pool, Device, ShareID string
}

// KubeletNode is all that a kubelet lists. ParsePods reads its text format.
type KubeletNode struct {
	Pods        []KubeletPod
	Allocatable map[string][]string // ids by resource
	// Processes run outside pods; they are for the files of the node.
	Processes []HostProcess
}

// KubeletFault is a fault of the kubelet; the zero value is none.
type KubeletFault struct {
	// EmptyLists is how many Lists still return no pod, as after a restart.
	EmptyLists int
	// Exhausted rejects every call as the kubelet does at its rate limit.
	Exhausted bool
	// Delay precedes each response. Hang never responds.
	Delay time.Duration
	Hang  bool
	// Padding enlarges each List by about so many bytes, with pods without GPUs.
	Padding int
	// Pods adds so many pods without GPUs, with so many Containers each.
	Pods, Containers int
	// NoV1 serves v1alpha1 alone, as before Kubernetes 1.20; NoAllocatable is the kubelet before 1.21.
	NoV1, NoAllocatable bool
	// Garbage responds with bytes that are no message.
	Garbage bool
	// ListError and AllocatableError, where set, are returned.
	ListError, AllocatableError error
}

// Kubelet serves the PodResources API of a kubelet on a unix socket: v1 and v1alpha1, one entry per device, in no
// stable order. It is safe for concurrent use.
type Kubelet struct {
	mu    sync.Mutex // guards what follows
	node  KubeletNode
	fault KubeletFault
	calls map[string]int
	// wanted numbers the sockets: a restart wants the next. down wants none. served is the one that is listened on, 0
	// for none. Changes of the three close changed.
	wanted, served int
	down           bool
	serving        bool
	changed        chan struct{}
}

// NewKubelet returns a kubelet without pods. It starts nothing.
func NewKubelet() *Kubelet {
	return &Kubelet{calls: map[string]int{}, wanted: 1, changed: make(chan struct{})}
}

// SetPods replaces the pods. The caller must not change them afterwards.
func (k *Kubelet) SetPods(pods []KubeletPod) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.node.Pods = pods
}

// SetNode replaces all that is listed.
func (k *Kubelet) SetNode(n KubeletNode) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.node = n
}

// SetFault replaces the fault for later calls.
func (k *Kubelet) SetFault(f KubeletFault) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.fault = f
}

// Calls counts the calls of each method that reached the server: "v1.List", "v1.GetAllocatableResources",
// "v1alpha1.List".
func (k *Kubelet) Calls(method string) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.calls[method]
}

// Serve listens on the socket until ctx ends, and removes it then. A socket that a dead process left behind is
// replaced.
func (k *Kubelet) Serve(ctx context.Context, socket string) error {
	k.mu.Lock()
	if k.serving {
		k.mu.Unlock()
		return errors.New("this kubelet is served already")
	}
	k.serving = true
	k.mu.Unlock()
	defer k.change(func() { k.serving = false })
	for ctx.Err() == nil {
		k.mu.Lock()
		down, wanted, changed := k.down, k.wanted, k.changed
		k.mu.Unlock()
		if !down {
			if err := k.serveOne(ctx, socket, wanted); err != nil {
				return err
			}
			continue
		}
		select {
		case <-ctx.Done():
		case <-changed:
		}
	}
	return nil
}

// serveOne listens until ctx ends or another socket is wanted, or none.
func (k *Kubelet) serveOne(ctx context.Context, socket string, number int) error {
	if info, err := os.Lstat(socket); err == nil && info.Mode().Type() == fs.ModeSocket {
		if err := os.Remove(socket); err != nil {
			return fmt.Errorf("replace the old socket: %w", err)
		}
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return fmt.Errorf("serve the kubelet on %s: %w", socket, err)
	}
	server := grpc.NewServer(grpc.UnaryInterceptor(k.intercept),
		grpc.ForceServerCodecV2(faultyCodec{encoding.GetCodecV2(encodingproto.Name), k}))
	podresources.RegisterPodResourcesListerServer(server, kubeletV1{k: k})
	podresourcesalpha.RegisterPodResourcesListerServer(server, kubeletAlpha{k: k})
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	k.change(func() { k.served = number })
	defer k.change(func() { k.served = 0 })
	for {
		k.mu.Lock()
		stays, changed := !k.down && k.wanted == number, k.changed
		k.mu.Unlock()
		if !stays || ctx.Err() != nil {
			server.Stop()
			if err := <-ended; err != nil && !errors.Is(err, grpc.ErrServerStopped) {
				return fmt.Errorf("serve the kubelet on %s: %w", socket, err)
			}
			return nil
		}
		select {
		case <-ctx.Done():
		case <-changed:
		case err := <-ended:
			return fmt.Errorf("serve the kubelet on %s: %w", socket, err)
		}
	}
}

// change changes the state of the socket and wakes those who wait for it.
func (k *Kubelet) change(f func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	f()
	close(k.changed)
	k.changed = make(chan struct{})
}

// await waits until a condition on the state of the socket is true.
func (k *Kubelet) await(ctx context.Context, holds func() bool) error {
	for {
		k.mu.Lock()
		done, changed := holds(), k.changed
		k.mu.Unlock()
		if done {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Ready waits until the socket is listened on.
func (k *Kubelet) Ready(ctx context.Context) error {
	return k.await(ctx, func() bool { return k.served == k.wanted })
}

// Restart closes all connections and serves a new socket at the same path, which lists no pods for the first
// emptyLists calls, as a kubelet does. It returns when the new socket is ready.
func (k *Kubelet) Restart(ctx context.Context, emptyLists int) error {
	k.change(func() {
		k.fault.EmptyLists = emptyLists
		k.down = false
		k.wanted++
	})
	return k.Ready(ctx)
}

// Stop closes all connections and removes the socket; Restart brings it back.
func (k *Kubelet) Stop(ctx context.Context) error {
	k.change(func() { k.down = true })
	return k.await(ctx, func() bool { return k.served == 0 })
}

// intercept counts each call and applies the faults that are common to all.
func (k *Kubelet) intercept(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	// "/v1.PodResourcesLister/List"
	service, method, _ := strings.Cut(strings.TrimPrefix(info.FullMethod, "/"), "/")
	version, _, _ := strings.Cut(service, ".")
	k.mu.Lock()
	k.calls[version+"."+method]++
	f := k.fault
	k.mu.Unlock()
	switch {
	case f.Exhausted:
		return nil, status.Error(codes.ResourceExhausted, "rejected by rate limit")
	case f.NoV1 && version == "v1":
		return nil, status.Error(codes.Unimplemented, "unknown service v1.PodResourcesLister")
	case f.Hang:
		<-ctx.Done()
		return nil, status.FromContextError(ctx.Err()).Err()
	case f.Delay > 0:
		select {
		case <-time.After(f.Delay):
		case <-ctx.Done():
			return nil, status.FromContextError(ctx.Err()).Err()
		}
	}
	return handler(ctx, req)
}

// list returns the pods of the next List, and the fault of that.
func (k *Kubelet) list() ([]KubeletPod, KubeletFault, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.fault.ListError != nil {
		return nil, KubeletFault{}, k.fault.ListError
	}
	if k.fault.EmptyLists > 0 {
		k.fault.EmptyLists--
		return nil, KubeletFault{}, nil
	}
	pods := slices.Clone(k.node.Pods)
	for i := range pods {
		pods[i].Containers = slices.DeleteFunc(slices.Clone(pods[i].Containers), func(c KubeletContainer) bool { return c.Unlisted })
	}
	return pods, k.fault, nil
}

// kubeletV1 is the v1 service.
type kubeletV1 struct {
	podresources.UnimplementedPodResourcesListerServer
	k *Kubelet
}

// List implements the service.
func (s kubeletV1) List(context.Context, *podresources.ListPodResourcesRequest) (*podresources.ListPodResourcesResponse, error) {
	pods, fault, err := s.k.list()
	if err != nil {
		return nil, err
	}
	out := &podresources.ListPodResourcesResponse{}
	for _, pod := range pods {
		p := &podresources.PodResources{Namespace: pod.Namespace, Name: pod.Name}
		for _, container := range pod.Containers {
			c := &podresources.ContainerResources{Name: container.Name}
			for _, d := range container.Devices {
				c.Devices = append(c.Devices, entries(d)...)
			}
			shuffle(c.Devices)
			c.DynamicResources = claims(pod.Namespace, container.Claims)
			p.Containers = append(p.Containers, c)
		}
		out.PodResources = append(out.PodResources, p)
	}
	shuffle(out.PodResources)
	for i := range fault.Pods {
		p := &podresources.PodResources{Namespace: "flood", Name: fmt.Sprint("pod-", i)}
		for j := range fault.Containers {
			p.Containers = append(p.Containers, &podresources.ContainerResources{Name: fmt.Sprint("c-", j)})
		}
		out.PodResources = append(out.PodResources, p)
	}
	for i, padding := 0, fault.Padding; padding > 0; i++ {
		ids := make([]string, 100)
		for j := range ids {
			ids[j] = strings.Repeat("x", 1000)
			padding -= len(ids[j])
		}
		out.PodResources = append(out.PodResources,
			&podresources.PodResources{Namespace: "padding", Name: fmt.Sprint("pod-", i),
				Containers: []*podresources.ContainerResources{{Name: "main", Devices: []*podresources.ContainerDevices{
					{ResourceName: "example.com/padding", DeviceIds: ids}}}}})
	}
	return out, nil
}

// GetAllocatableResources implements the service.
func (s kubeletV1) GetAllocatableResources(context.Context,
	*podresources.AllocatableResourcesRequest) (*podresources.AllocatableResourcesResponse, error) {
	s.k.mu.Lock()
	defer s.k.mu.Unlock()
	switch f := s.k.fault; {
	case f.NoAllocatable:
		return nil, status.Error(codes.Unimplemented, "method GetAllocatableResources not implemented")
	case f.AllocatableError != nil:
		return nil, f.AllocatableError
	}
	out := &podresources.AllocatableResourcesResponse{}
	for resource, ids := range s.k.node.Allocatable {
		out.Devices = append(out.Devices, entries(KubeletDevices{Resource: resource, IDs: ids})...)
	}
	shuffle(out.Devices)
	return out, nil
}

// entries lists each id on its own, and once per NUMA node.
func entries(d KubeletDevices) []*podresources.ContainerDevices {
	var out []*podresources.ContainerDevices
	for _, id := range d.IDs {
		e := &podresources.ContainerDevices{ResourceName: d.Resource, DeviceIds: []string{id}}
		if len(d.NUMA) == 0 {
			out = append(out, e)
		}
		for _, node := range d.NUMA {
			out = append(out, &podresources.ContainerDevices{ResourceName: d.Resource, DeviceIds: []string{id},
				Topology: &podresources.TopologyInfo{Nodes: []*podresources.NUMANode{{ID: node}}}})
		}
	}
	return out
}

// claims groups devices by claim. The list of CDI names grows along a claim, as the kubelet's does.
func claims(namespace string, devices []KubeletClaim) []*podresources.DynamicResource {
	var out []*podresources.DynamicResource
	for _, d := range devices {
		if d.Namespace == "" {
			d.Namespace = namespace
		}
		i := slices.IndexFunc(out, func(r *podresources.DynamicResource) bool {
			return r.ClaimName == d.Name && r.ClaimNamespace == d.Namespace
		})
		if i < 0 {
			i = len(out)
			out = append(out, &podresources.DynamicResource{ClaimName: d.Name, ClaimNamespace: d.Namespace})
		}
		r := &podresources.ClaimResource{DriverName: d.Driver, PoolName: d.Pool, DeviceName: d.Device}
		if before := out[i].ClaimResources; len(before) > 0 {
			r.CdiDevices = slices.Clone(before[len(before)-1].CdiDevices)
		}
		r.CdiDevices = append(r.CdiDevices, &podresources.CDIDevice{Name: "k8s." + d.Driver + "/claim=" + d.Name + "-" +
			d.Device})
		if d.ShareID != "" {
			r.ShareId = &d.ShareID
		}
		out[i].ClaimResources = append(out[i].ClaimResources, r)
	}
	return out
}

func shuffle[T any](s []T) { mathrand.Shuffle(len(s), func(i, j int) { s[i], s[j] = s[j], s[i] }) }

// kubeletAlpha is the v1alpha1 service: devices without topology, no claims.
type kubeletAlpha struct {
	podresourcesalpha.UnimplementedPodResourcesListerServer
	k *Kubelet
}

// List implements the service.
func (s kubeletAlpha) List(context.Context, *podresourcesalpha.ListPodResourcesRequest) (
	*podresourcesalpha.ListPodResourcesResponse, error) {
	pods, _, err := s.k.list()
	if err != nil {
		return nil, err
	}
	out := &podresourcesalpha.ListPodResourcesResponse{}
	for _, pod := range pods {
		p := &podresourcesalpha.PodResources{Namespace: pod.Namespace, Name: pod.Name}
		for _, container := range pod.Containers {
			c := &podresourcesalpha.ContainerResources{Name: container.Name}
			for _, d := range container.Devices {
				c.Devices = append(c.Devices, &podresourcesalpha.ContainerDevices{ResourceName: d.Resource, DeviceIds: d.IDs})
			}
			p.Containers = append(p.Containers, c)
		}
		out.PodResources = append(out.PodResources, p)
	}
	return out, nil
}

// faultyCodec is the codec of protobuf messages, which writes garbage on demand.
type faultyCodec struct {
	encoding.CodecV2
	k *Kubelet
}

// Marshal implements encoding.CodecV2.
func (c faultyCodec) Marshal(v any) (mem.BufferSlice, error) {
	c.k.mu.Lock()
	garbage := c.k.fault.Garbage
	c.k.mu.Unlock()
	if !garbage {
		return c.CodecV2.Marshal(v)
	}
	noise := make([]byte, 4096)
	rand.Read(noise)
	noise[0] = 0x0c // a group's end without its beginning: never a message
	return mem.BufferSlice{mem.SliceBuffer(noise)}, nil
}
