// Command kubelet serves the PodResources API with the code of Kubernetes: its servers of v1 and v1alpha1, rate limiter,
// feature gates, counters and socket setup. The test that runs this program provides the state that a kubelet's managers
// would have: one line of JSON on standard input per change, each confirmed by a line on standard output. It is built
// against several releases of Kubernetes and imports nothing of the exporter, because their generated messages differ.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"google.golang.org/grpc"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/metrics/legacyregistry"
	criutil "k8s.io/cri-client/pkg/util"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"
	podresourcesv1alpha1 "k8s.io/kubelet/pkg/apis/podresources/v1alpha1"
	apisgrpc "k8s.io/kubernetes/pkg/kubelet/apis/grpc"
	"k8s.io/kubernetes/pkg/kubelet/apis/podresources"
	"k8s.io/kubernetes/pkg/kubelet/cm/devicemanager/checkpoint"
	"k8s.io/kubernetes/pkg/kubelet/metrics"
	"k8s.io/kubernetes/pkg/kubelet/util"
)

func main() {
	dir := flag.String("dir", "", "directory of the socket kubelet.sock")
	gates := flag.String("feature-gates", "", "as of the kubelet: Gate=false,…")
	v1 := flag.Bool("v1", true, "serve v1 beside v1alpha1")
	checkpointFile := flag.String("checkpoint", "", "write the device checkpoint here whenever the state changes")
	flag.Parse()
	if err := run(*dir, *gates, *v1, *checkpointFile); err != nil {
		fmt.Fprintln(os.Stderr, "kubelet:", err)
		os.Exit(1)
	}
}

func run(dir, gates string, v1 bool, checkpointFile string) error {
	if gates != "" {
		if err := utilfeature.DefaultMutableFeatureGate.Set(gates); err != nil {
			return err
		}
	}
	// Counters of Kubernetes count nothing until they are registered.
	legacyregistry.MustRegister(metrics.PodResourcesEndpointRequestsTotalCount, metrics.PodResourcesEndpointRequestsListCount,
		metrics.PodResourcesEndpointRequestsGetAllocatableCount, metrics.PodResourcesEndpointRequestsGetCount)
	n := &node{}
	lines := bufio.NewReader(os.Stdin)
	if err := n.next(lines, checkpointFile); err != nil {
		return fmt.Errorf("the first state: %w", err)
	}

	// As the kubelet's ListenAndServePodResources does, with two differences: that ends the process, this returns;
	// and v1 can be left out, as in kubelets before 1.20.
	ctx := context.Background()
	endpoint, err := util.LocalEndpoint(dir, podresources.Socket)
	if err != nil {
		return err
	}
	providers := podresources.PodResourcesProviders{Pods: n, Devices: n, Cpus: n, Memory: n, DynamicResources: n}
	server := grpc.NewServer(apisgrpc.WithRateLimiter(ctx, "podresources", podresources.DefaultQPS, podresources.DefaultBurstTokens))
	podresourcesv1alpha1.RegisterPodResourcesListerServer(server, podresources.NewV1alpha1PodResourcesServer(providers))
	if v1 {
		podresourcesv1.RegisterPodResourcesListerServer(server, podresources.NewV1PodResourcesServer(ctx, providers))
	}
	l, err := criutil.CreateListener(endpoint)
	if err != nil {
		return err
	}
	ended := make(chan error, 2)
	go func() { ended <- server.Serve(l) }()
	go func() {
		for {
			counts, err := requests()
			if err == nil {
				err = json.NewEncoder(os.Stdout).Encode(counts)
			}
			if err == nil {
				err = n.next(lines, checkpointFile)
			}
			if err != nil {
				ended <- err
				return
			}
		}
	}()
	return <-ended
}

// next reads the next state.
func (n *node) next(lines *bufio.Reader, checkpointFile string) error {
	line, err := lines.ReadBytes('\n')
	if err != nil {
		return err
	}
	var s state
	if err := json.Unmarshal(line, &s); err != nil {
		return err
	}
	if checkpointFile != "" {
		if err := writeCheckpoint(checkpointFile, &s); err != nil {
			return err
		}
	}
	n.set(s)
	return nil
}

// writeCheckpoint writes what the device manager would keep on disk, in its own format.
func writeCheckpoint(path string, s *state) error {
	var entries []checkpoint.PodDevicesEntry
	for _, d := range s.Devices {
		perNUMA := checkpoint.NewDevicesPerNUMA()
		for _, numa := range d.numa() {
			perNUMA[numa] = d.IDs
		}
		entries = append(entries, checkpoint.PodDevicesEntry{PodUID: d.Pod, ContainerName: d.Container, ResourceName: d.Resource,
			DeviceIDs: perNUMA, AllocResp: d.Answer})
	}
	text, err := checkpoint.New(entries, s.Allocatable).MarshalCheckpoint()
	if err != nil {
		return err
	}
	// The checkpoint manager also replaces the file by a new one.
	fresh := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".next")
	if err := os.WriteFile(fresh, text, 0o600); err != nil {
		return err
	}
	return os.Rename(fresh, path)
}

// requests are the kubelet's own counts of the calls that passed the rate limiter: by the end of the counter's
// name, such as "list" and "get_allocatable".
func requests() (map[string]float64, error) {
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		return nil, err
	}
	out := map[string]float64{}
	for _, f := range families {
		kind, ok := strings.CutPrefix(f.GetName(), "kubelet_pod_resources_endpoint_requests_")
		if !ok {
			continue
		}
		for _, m := range f.GetMetric() {
			out[kind] += m.GetCounter().GetValue()
		}
	}
	return out, nil
}
