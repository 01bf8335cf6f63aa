package cluster_test

import (
	"context"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"
	deviceplugin "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// inventory are the GPUs of a node.
type inventory struct {
	uuid map[int]string    // by index
	mig  map[string]string // profile by UUID
}

// plugin is a device plugin, as vendors write them: a server of its own that registers with the kubelet, and registers again when the
// kubelet has restarted.
type plugin struct {
	deviceplugin.UnimplementedDevicePluginServer
	n        *node
	resource string
	devices  []*deviceplugin.Device
	// environment is what a container with these devices receives.
	environment func(ids []string) map[string]string
	server      *grpc.Server
	stopped     chan struct{}
	changed     chan []*deviceplugin.Device // what the kubelet lists from now on
}

// device is a healthy device, on a NUMA node.
func device(id string, numa int64) *deviceplugin.Device {
	return &deviceplugin.Device{ID: id, Health: deviceplugin.Healthy,
		Topology: &deviceplugin.TopologyInfo{Nodes: []*deviceplugin.NUMANode{{ID: numa}}}}
}

func (p *plugin) GetDevicePluginOptions(context.Context, *deviceplugin.Empty) (*deviceplugin.DevicePluginOptions, error) {
	return &deviceplugin.DevicePluginOptions{}, nil
}

func (p *plugin) ListAndWatch(_ *deviceplugin.Empty, stream grpc.ServerStreamingServer[deviceplugin.ListAndWatchResponse]) error {
	for devices := p.devices; ; {
		if err := stream.Send(&deviceplugin.ListAndWatchResponse{Devices: devices}); err != nil {
			return err
		}
		select {
		case <-stream.Context().Done():
			return nil
		case <-p.stopped:
			return nil
		case devices = <-p.changed:
		}
	}
}

// withHealth are the devices, one of them with another health.
func (p *plugin) withHealth(id, health string) []*deviceplugin.Device {
	out := slices.Clone(p.devices)
	at := slices.IndexFunc(out, func(d *deviceplugin.Device) bool { return d.ID == id })
	out[at] = &deviceplugin.Device{ID: id, Health: health, Topology: out[at].Topology}
	return out
}

func (p *plugin) Allocate(_ context.Context, r *deviceplugin.AllocateRequest) (*deviceplugin.AllocateResponse, error) {
	out := &deviceplugin.AllocateResponse{}
	for _, c := range r.ContainerRequests {
		answer := &deviceplugin.ContainerAllocateResponse{Envs: p.environment(c.DevicesIds)}
		for i, uuid := range p.n.gpus.uuid {
			if path := fmt.Sprintf("/dev/nvidia%d", i); strings.Contains(answer.Envs["NVIDIA_VISIBLE_DEVICES"], uuid) {
				answer.Devices = append(answer.Devices, &deviceplugin.DeviceSpec{ContainerPath: path, HostPath: p.n.dir + path,
					Permissions: "rw"})
			}
		}
		out.ContainerResponses = append(out.ContainerResponses, answer)
	}
	return out, nil
}

// visible is the environment of NVIDIA's plugin: the UUIDs of the devices, without the suffix of a replica.
func visible(ids []string) map[string]string {
	var uuids []string
	for _, id := range ids {
		uuid, _, _ := strings.Cut(id, "::")
		uuids = append(uuids, uuid)
	}
	slices.Sort(uuids)
	return map[string]string{"NVIDIA_VISIBLE_DEVICES": strings.Join(slices.Compact(uuids), ",")}
}

// start serves and registers. The kubelet may have just restarted.
func (p *plugin) start(t *testing.T) {
	t.Helper()
	name := strings.NewReplacer("/", "-", ".", "-").Replace(p.resource) + ".sock"
	path := p.n.root("var/lib/kubelet/device-plugins/" + name)
	p.server, p.stopped, p.changed = grpc.NewServer(), make(chan struct{}), make(chan []*deviceplugin.Device)
	deviceplugin.RegisterDevicePluginServer(p.server, p)
	_ = os.Remove(path)
	eventually(t, p.resource+" registers with the kubelet of "+p.n.name, func() error {
		if _, err := os.Stat(path); err != nil { // a kubelet that starts removes every socket
			l, err := net.Listen("unix", path)
			if err != nil {
				return err
			}
			go func() { _ = p.server.Serve(l) }()
		}
		conn, err := grpc.NewClient("unix:"+p.n.root("var/lib/kubelet/device-plugins/kubelet.sock"),
			grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			return err
		}
		defer conn.Close()
		_, err = deviceplugin.NewRegistrationClient(conn).Register(t.Context(),
			&deviceplugin.RegisterRequest{Version: deviceplugin.Version, Endpoint: name, ResourceName: p.resource})
		return err
	})
}

// stop ends the plugin, as a kill would: the kubelet's stream breaks.
func (p *plugin) stop() {
	close(p.stopped)
	p.server.Stop()
}

// nvidiaPlugins are those of a node with NVIDIA's device plugin: GPUs 0 to 3 whole, on two NUMA nodes, GPU 4 as four replicas, and the MIG
// devices of GPU 5 by profile.
func (n *node) nvidiaPlugins() []*plugin {
	whole := &plugin{n: n, resource: "nvidia.com/gpu", environment: visible}
	for i := range 4 {
		whole.devices = append(whole.devices, device(n.gpus.uuid[i], int64(i/2)))
	}
	shared := &plugin{n: n, resource: "nvidia.com/gpu.shared", environment: visible}
	for i := range 4 {
		shared.devices = append(shared.devices, device(fmt.Sprintf("%s::%d", n.gpus.uuid[4], i), 1))
	}
	out := []*plugin{whole, shared}
	for _, profile := range []string{"1g.10gb", "2g.20gb", "3g.40gb"} {
		mig := &plugin{n: n, resource: "nvidia.com/mig-" + profile, environment: visible}
		for _, uuid := range slices.Sorted(maps.Keys(n.gpus.mig)) {
			if n.gpus.mig[uuid] == profile {
				mig.devices = append(mig.devices, device(uuid, 1))
			}
		}
		out = append(out, mig)
	}
	return out
}

// hamiPlugin is shaped like HAMi's: ten devices for each of GPUs 0 to 3, whose IDs have the UUID of any of them; the GPU that the
// container receives is that of its annotation.
func (n *node) hamiPlugin(chosen func() string) *plugin {
	p := &plugin{n: n, resource: "nvidia.com/gpu", environment: func([]string) map[string]string {
		return map[string]string{"NVIDIA_VISIBLE_DEVICES": chosen(), "CUDA_DEVICE_MEMORY_LIMIT_0": "20480m", "CUDA_DEVICE_SM_LIMIT": "30"}
	}}
	for i := range 4 {
		for k := range 10 {
			p.devices = append(p.devices, device(fmt.Sprintf("%s-%d", n.gpus.uuid[i], k), int64(i/2)))
		}
	}
	return p
}

// draDriver is that of a driver of claims which the exporter has no row for.
const draDriver = "gpu.example.com"

// claims is a driver of resource claims, of the kind of dra-example-driver: its devices have names of their own and say in attributes
// which GPU they are.
type claims struct{ n *node }

func (d claims) PrepareResourceClaims(_ context.Context, list []*resourceapi.ResourceClaim) (map[types.UID]kubeletplugin.PrepareResult,
	error) {
	out := map[types.UID]kubeletplugin.PrepareResult{}
	for _, c := range list {
		var result kubeletplugin.PrepareResult
		for _, r := range c.Status.Allocation.Devices.Results {
			if r.Driver == draDriver {
				result.Devices = append(result.Devices, kubeletplugin.Device{Requests: []string{r.Request}, PoolName: r.Pool,
					DeviceName: r.Device})
			}
		}
		out[c.UID] = result
	}
	return out, nil
}

func (d claims) UnprepareResourceClaims(_ context.Context, list []kubeletplugin.NamespacedObject) (map[types.UID]error, error) {
	out := map[types.UID]error{}
	for _, c := range list {
		out[c.UID] = nil
	}
	return out, nil
}

func (d claims) HandleError(context.Context, error, string) {}

func (d claims) WatchHealthStatus(context.Context, chan<- kubeletplugin.DeviceHealthReport) error {
	return kubeletplugin.ErrHealthNotSupported
}

// startClaims starts the driver of claims for GPUs 6 and 7.
func (n *node) startClaims(t *testing.T) {
	t.Helper()
	data, registrar := n.root("var/lib/kubelet/plugins/"+draDriver), n.root("var/lib/kubelet/plugins_registry")
	for _, dir := range []string{data, registrar} {
		noErr(t, os.MkdirAll(dir, 0o755))
	}
	// The kubelet has other names for the directories than this process.
	here := func(_ context.Context, path string) (net.Listener, error) {
		return net.Listen("unix", n.root(path))
	}
	ctx, stop := context.WithCancel(context.Background())
	helper, err := kubeletplugin.Start(ctx, claims{n}, kubeletplugin.DriverName(draDriver), kubeletplugin.NodeName(n.name),
		kubeletplugin.KubeClient(n.p.client), kubeletplugin.PluginDataDirectoryPath("/var/lib/kubelet/plugins/"+draDriver),
		kubeletplugin.RegistrarListener(here), kubeletplugin.PluginListener(here))
	if err != nil {
		stop()
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(); helper.Stop() })
	var devices []resourceapi.Device
	for _, i := range []int{6, 7} {
		uuid := n.gpus.uuid[i]
		devices = append(devices, resourceapi.Device{Name: fmt.Sprintf("accelerator-%c", 'a'+i),
			Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{"uuid": {StringValue: &uuid}}})
	}
	if err := helper.PublishResources(ctx, resourceslice.DriverResources{Pools: map[string]resourceslice.Pool{
		n.name: {Slices: []resourceslice.Slice{{Devices: devices}}}}}); err != nil {
		t.Fatal(err)
	}
}
