package prometheus_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/internal/standin/machine"
	"github.com/gpu-exporter/gpu-exporter/test/dashboard"
	"github.com/gpu-exporter/gpu-exporter/test/servers"
)

// theirs is a page of dcgm-exporter with two GPUs: the fixed labels, then those of the collector file, then the pod's, as
// gpuMetricsFormat of internal/pkg/rendermetrics/render_metrics.go writes them (NVIDIA/dcgm-exporter at 5f9250c211a0).
const theirs = `# HELP DCGM_FI_DEV_GPU_TEMP GPU temperature (in C).
# TYPE DCGM_FI_DEV_GPU_TEMP gauge
DCGM_FI_DEV_GPU_TEMP{gpu="0",UUID="%[1]s",pci_bus_id="00000000:18:00.0",device="nvidia0",modelName="NVIDIA H100 80GB HBM3",` +
	`Hostname="%[3]s",DCGM_FI_DRIVER_VERSION="580.105.08",container="main",namespace="ml",pod="train-0"} 40
DCGM_FI_DEV_GPU_TEMP{gpu="1",UUID="%[2]s",pci_bus_id="00000000:2A:00.0",device="nvidia1",modelName="NVIDIA H100 80GB HBM3",` +
	`Hostname="%[3]s",DCGM_FI_DRIVER_VERSION="580.105.08"} 40
`

// pod is a pod of the DaemonSet, as Prometheus finds it.
type pod struct{ address, node string }

// An image that is swapped under a running Prometheus, node by node, into dcgm-exporter's DaemonSet and back: at every moment the
// metrics of this exporter, and of dcgm-exporter's by GPU, have each GPU once, and before and after the swap everything has. Prometheus
// keeps the series of a target that is gone for two intervals, in case that it returns (endOfRunStaleness of its scrape.go): within
// them a plain sum of dcgm-exporter's names has the GPUs of one node twice, as with any new pod of that DaemonSet; the chart's monitor
// names instances after nodes.
func TestSwap(t *testing.T) {
	t.Parallel()
	const nodes, gpus = 3, 2
	dir := t.TempDir()
	collectors := filepath.Join(servers.Root(t), "internal", "catalog", "compat", "testdata", "collectors", "dcp-metrics-included.csv")
	machines, starts, pods := make([]*machine.Node, nodes), make([]func() pod, nodes), make([]pod, nodes)
	for i := range nodes {
		text := func(s string) string {
			return strings.NewReplacer("aaaaaaaa", fmt.Sprintf("aaaaaaa%d", i), "bbbbbbbb", fmt.Sprintf("bbbbbbb%d", i)).Replace(s)
		}
		m := machine.Parse(t, text(machine.TwoGPUs), text(machine.TwoPods))
		m.Name = fmt.Sprintf("node-%d", i)
		machines[i] = m
		page := fmt.Sprintf(theirs, text(machine.GPUA), text(machine.GPUB), m.Name)
		starts[i] = func() pod {
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/metrics" {
					http.NotFound(w, r) // dcgm-exporter has no other page of metrics
					return
				}
				w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
				fmt.Fprint(w, page)
			}))
			t.Cleanup(s.Close)
			return pod{strings.TrimPrefix(s.URL, "http://"), m.Name}
		}
		pods[i] = starts[i]()
	}
	targets := filepath.Join(dir, "targets.json")
	announce := func() {
		t.Helper()
		var list []any
		for _, p := range pods {
			list = append(list, map[string]any{"targets": []string{p.address},
				"labels": map[string]string{"__meta_kubernetes_pod_node_name": p.node}})
		}
		text, err := json.Marshal(list)
		must.OK(t, err)
		must.OK(t, os.WriteFile(targets+".new", text, 0o600))
		must.OK(t, os.Rename(targets+".new", targets))
	}
	announce()
	config := filepath.Join(dir, "prometheus.yml")
	must.OK(t, os.WriteFile(config, []byte(`global: {scrape_interval: 1s, scrape_timeout: 1s}
scrape_configs:
- job_name: nvidia-dcgm-exporter # as the operator's ServiceMonitor: honorLabels is false there
  file_sd_configs: [{files: [`+targets+`]}]
- job_name: gpu-exporter # as the chart's monitor with exporter.enabled=false
  metrics_path: /metrics/gpu
  honor_labels: true
  file_sd_configs: [{files: [`+targets+`]}]
  relabel_configs:
  - {source_labels: [__meta_kubernetes_pod_node_name], target_label: instance}
  - {source_labels: [__meta_kubernetes_pod_node_name], target_label: node}
`), 0o600))
	address := servers.Address(t)
	servers.Start(t, dir, servers.Build(t, servers.Prometheus), "--config.file="+config, "--storage.tsdb.path="+filepath.Join(dir, "data"),
		"--web.listen-address="+address)
	client := dashboard.Client{URL: "http://" + address}
	most := map[string]float64{} // of each query, over all moments
	value := func(query string) float64 {
		t.Helper()
		got, err := client.Instant(t.Context(), query, time.Now())
		must.OK(t, err)
		if len(got) == 0 {
			return 0
		}
		return got[0].Points[0].Value
	}
	const plain = "count(DCGM_FI_DEV_GPU_TEMP)"
	once := map[string]float64{"count(max by (UUID) (DCGM_FI_DEV_GPU_TEMP))": nodes * gpus, "count(gpu_device_up)": nodes * gpus,
		"max(count by (uuid) (gpu_device_up))": 1, "sum(gpu_allocation_ratio)": nodes}
	settled := func(what string, theirs, ours float64) {
		t.Helper()
		servers.Until(t, what, func() error {
			for q := range once {
				most[q] = max(most[q], value(q))
			}
			most[plain] = max(most[plain], value(plain))
			if a, b := value(plain), value("count(gpu_device_up)"); a != theirs || b != ours {
				return fmt.Errorf("%v GPUs by dcgm-exporter's names, want %v; %v by this exporter's, want %v", a, theirs, b, ours)
			}
			return nil
		})
	}
	servers.Until(t, "Prometheus", servers.Answers("http://"+address+"/-/ready"))
	settled("before", nodes*gpus, 0)
	running := make([]*machine.Exporter, nodes)
	for i, m := range machines {
		at := servers.Address(t)
		running[i] = m.Start(t, machine.Options{Address: at, Command: []string{machine.Binary(t)}, Env: append(m.Env,
			"DCGM_EXPORTER_LISTEN="+at, "DCGM_EXPORTER_KUBERNETES=true", "DCGM_EXPORTER_COLLECTORS="+collectors, "NODE_NAME="+m.Name,
			"DCGM_POD_RESOURCES_KUBELET_SOCKET="+m.Socket, "GPU_EXPORTER_NVML_LIBRARY="+m.Library,
			"GPU_EXPORTER_PATH_SYSFS="+m.Trees.Sysfs, "GPU_EXPORTER_PATH_PROCFS="+m.Trees.Procfs, "GPU_EXPORTER_PATH_KMSG=")})
		// The worst case: no scrape between the end of the old pod and the discovery of the new one.
		pods[i].address = at
		announce()
		settled(m.Name+" swapped", nodes*gpus, float64((i+1)*gpus))
	}
	for i, m := range machines {
		pods[i] = starts[i]()
		announce()
		settled(m.Name+" swapped back", nodes*gpus, float64((nodes-1-i)*gpus))
		running[i].Stop()
	}
	for q, limit := range once {
		if most[q] != limit {
			t.Errorf("%s was %v at one moment, want %v at most", q, most[q], limit)
		}
	}
	if most[plain] > (nodes+1)*gpus {
		t.Errorf("%s was %v: more than one node counted twice", plain, most[plain])
	}
}
