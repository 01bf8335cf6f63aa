package cluster_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

const (
	// theirImage stands for dcgm-exporter's: it serves a page of its form at :9400.
	theirImage = "registry.example.com/dcgm-exporter:4.9.0"
	// rootImage is ours for the DaemonSets of others.
	rootImage = docsImage + "-root"
	operator  = "gpu-operator"
	theirs    = "nvidia-dcgm-exporter"
)

// their is a line of dcgm-exporter's page, as gpuMetricsFormat of internal/pkg/rendermetrics/render_metrics.go writes it
// (NVIDIA/dcgm-exporter at 5f9250c211a0).
const their = `DCGM_FI_DEV_GPU_TEMP{gpu="%d",UUID="%s",pci_bus_id="00000000:18:00.0",device="nvidia%[1]d",` +
	`modelName="NVIDIA H100 80GB HBM3",Hostname="%s",DCGM_FI_DRIVER_VERSION="580.105.08"} 40` + "\n"

// theirJobs scrape the DaemonSet as the operator's ServiceMonitor has it, and the chart's monitor with exporter.enabled=false.
const theirJobs = `- job_name: nvidia-dcgm-exporter # honorLabels is not set in the operator's ServiceMonitor
  fallback_scrape_protocol: PrometheusText0.0.4
  file_sd_configs: [{files: [TARGETS]}]
  relabel_configs:
  - {source_labels: [__meta_kubernetes_namespace], target_label: namespace}
  - {source_labels: [__meta_kubernetes_pod_name], target_label: pod}
  - {source_labels: [__meta_kubernetes_pod_container_name], target_label: container}
- job_name: gpu-exporter # as the chart's monitor with exporter.enabled=false
  metrics_path: /metrics/gpu
  honor_labels: true
  file_sd_configs: [{files: [TARGETS]}]
  relabel_configs:
  - {source_labels: [__meta_kubernetes_pod_node_name], target_label: instance}
  - {source_labels: [__meta_kubernetes_pod_node_name], target_label: node}
`

// stands is the DaemonSet of the operator under test.
type stands struct {
	*cluster
	prometheus *prometheus
	most       map[string]float64 // of each expression, at any moment
}

// once are expressions, and the most that they may be at any moment. The DaemonSet leaves each node without a pod for a while.
var once = map[string]float64{"count(max by (UUID) (DCGM_FI_DEV_GPU_TEMP))": 16, "count(gpu_device_up)": 16,
	"max(count by (uuid) (gpu_device_up))": 1, "sum(gpu_allocation_ratio)": 1 + 2.0/4 + 3.0/7}

// swap sets the image, and waits until all pods have it and are ready and the numbers of GPUs in Prometheus are as expected.
func (s *stands) swap(t *testing.T, step, image string, theirNames, ours float64) {
	t.Helper()
	s.kubectl(t, "-n", operator, "set", "image", "daemonset/"+theirs, theirs+"="+image)
	begun := time.Now()
	for ; ; time.Sleep(300 * time.Millisecond) {
		ready := 0
		for _, pod := range s.prometheus.announce(t, s.cluster, operator, "app="+theirs, "9400") {
			if pod.DeletionTimestamp == nil && pod.Spec.Containers[0].Image == image && len(pod.Status.ContainerStatuses) == 1 &&
				pod.Status.ContainerStatuses[0].Ready && pod.Status.ContainerStatuses[0].RestartCount == 0 {
				ready++
			}
		}
		for expr := range once {
			s.most[expr] = max(s.most[expr], s.prometheus.value(t, expr))
		}
		a, b := s.prometheus.value(t, "count(max by (UUID) (DCGM_FI_DEV_GPU_TEMP))"), s.prometheus.value(t, "count(gpu_device_up)")
		if ready == len(s.nodes) && a == theirNames && b == ours {
			t.Logf("%s: after %.0f s", step, time.Since(begun).Seconds())
			return
		}
		if time.Since(begun) > 5*time.Minute {
			t.Fatalf("%s: %d pods ready; %v GPUs by dcgm-exporter's names, want %v; %v by ours, want %v\n%s", step, ready, a, theirNames,
				b, ours, s.kubectl(t, "-n", operator, "describe", "pods"))
		}
	}
}

// fuser lists the processes that have a GPU of a node open.
func (n *node) fuser(t *testing.T) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(filepath.Dir(n.library), "dev", "nvidia*"))
	noErr(t, err)
	if len(files) == 0 {
		t.Fatal("the node has no device files")
	}
	out, err := exec.Command("fuser", files...).Output() // 1: none
	if err != nil && !errors.As(err, new(*exec.ExitError)) {
		t.Fatal(err)
	}
	return strings.Join(strings.Fields(string(out)), " ")
}

// signal sends one to the exporter of the node, as pkill does there.
func (n *node) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	sent := 0
	for pid := range strings.FieldsSeq(must(t, "pgrep", "-x", "gpu-exporter")) {
		cgroup, err := os.ReadFile("/proc/" + pid + "/cgroup")
		if id, _ := strconv.Atoi(pid); err == nil && strings.Contains(string(cgroup), n.cgroup()+"/") {
			noErr(t, syscall.Kill(id, s))
			sent++
		}
	}
	if sent != 1 {
		t.Fatalf("%d exporters on %s", sent, n.name)
	}
}

// TestStandsIn swaps the image of the GPU Operator's DaemonSet, and back, under a running Prometheus.
func TestStandsIn(t *testing.T) {
	c := startCluster(t, "dcgm-exporter.md")
	one := c.nodes[0]
	c.namespace(t, "work", "privileged")
	c.account(t, "work", "default")
	c.namespace(t, operator, "privileged")
	c.account(t, operator, theirs)
	for _, n := range c.nodes {
		dir := filepath.Dir(n.library)
		noErr(t, os.MkdirAll(filepath.Join(dir, "dev"), 0o755))
		for _, name := range []string{"nvidiactl", "nvidia0", "nvidia1", "nvidia2", "nvidia3", "nvidia4", "nvidia5", "nvidia6", "nvidia7"} {
			write(t, filepath.Join(dir, "dev"), name, "")
		}
		page := "# TYPE DCGM_FI_DEV_GPU_TEMP gauge\n"
		for i, uuid := range n.gpus.uuid {
			page += fmt.Sprintf(their, i, uuid, n.name)
		}
		noErr(t, os.MkdirAll(filepath.Join(dir, "theirs"), 0o755))
		write(t, filepath.Join(dir, "theirs"), "metrics", page)
		write(t, filepath.Join(dir, "theirs"), "health", "OK")
		c.kubectl(t, "label", "node", n.name, "nvidia.com/gpu.deploy.dcgm-exporter=true")
	}
	plugins := one.nvidiaPlugins()
	for _, p := range plugins {
		p.start(t)
	}
	t.Cleanup(func() {
		for _, p := range plugins {
			p.stop()
		}
	})
	c.create(t, podText("whole", one.name, "", container{name: "main", limits: "nvidia.com/gpu=1"}),
		podText("replicas", one.name, "", container{name: "a", limits: "nvidia.com/gpu.shared=1"},
			container{name: "b", limits: "nvidia.com/gpu.shared=1"}),
		podText("slice", one.name, "", container{name: "main", limits: "nvidia.com/mig-3g.40gb=1"}))
	c.running(t)

	set, err := os.ReadFile(filepath.Join(repository(), "test", "shipped", "testdata", "stands-in", "gpu-operator.yaml"))
	noErr(t, err)
	c.create(t, strings.Replace(string(set), "ghcr.io/gpu-exporter/gpu-exporter:0.1.0-root", theirImage, 1))
	s := &stands{cluster: c, prometheus: startPrometheus(t, t.TempDir(), theirJobs), most: map[string]float64{}}
	s.swap(t, "dcgm-exporter runs", theirImage, 16, 0)
	c.shell(t, c.documented(t, "helm upgrade --install gpu-exporter"))
	s.swap(t, "swapped", rootImage, 16, 16)

	// What the kubelet lists, with the rights and mounts of the operator's pods.
	var exporter corev1.Pod
	for _, pod := range s.prometheus.announce(t, s.cluster, operator, "app="+theirs, "9400") {
		n := c.nodes[slices.IndexFunc(c.nodes, func(n *node) bool { return n.name == pod.Spec.NodeName })]
		n.url, n.path = "http://"+pod.Status.PodIP+":9400", "/metrics/gpu"
		if n == one {
			exporter = pod
		}
	}
	c.settle(t, "swapped", 30*time.Second)
	uses, _, err := one.listed(t.Context())
	noErr(t, err)
	for u := range uses {
		selector := fmt.Sprintf(`DCGM_FI_DEV_GPU_TEMP{UUID=%q, Hostname="node-1", exported_namespace="work", exported_pod="whole", `+
			`exported_container="main"}`, u.uuid)
		if u.pod == "whole" && s.prometheus.value(t, "count("+selector+")") != 1 {
			got, err := s.prometheus.query(fmt.Sprintf("DCGM_FI_DEV_GPU_TEMP{UUID=%q}", u.uuid))
			t.Errorf("no %s; there is %v, %v", selector, got, err)
		}
	}
	for _, expr := range []string{`ALERTS{alertstate="firing"}`, "gpu_exporter_paused == 1"} {
		if got, err := s.prometheus.query(expr); err != nil || len(got) > 0 {
			t.Errorf("%s: %v, %v", expr, got, err)
		}
	}

	// A tool that waits until nobody has a GPU open, on the node.
	if got := one.fuser(t); got == "" {
		t.Fatal("the exporter has no GPU open: the test shows nothing")
	}
	before, err := one.exported(t.Context())
	noErr(t, err)
	asked := time.Now()
	one.signal(t, syscall.SIGUSR1)
	eventually(t, "no process has a GPU open", func() error {
		if got := one.fuser(t); got != "" {
			return fmt.Errorf("processes %s", got)
		}
		return nil
	})
	t.Logf("the exporter closed the GPUs within %.1f s", time.Since(asked).Seconds())
	eventually(t, "gpu_exporter_paused", func() error {
		if v := s.prometheus.value(t, `gpu_exporter_paused{node="node-1", reason="request"}`); v != 1 {
			return fmt.Errorf("it is %v", v)
		}
		return nil
	})
	time.Sleep(20 * time.Second)
	if got := one.fuser(t); got != "" {
		t.Errorf("processes %s have a GPU open while that is requested", got)
	}
	one.signal(t, syscall.SIGUSR2)
	c.settle(t, "resumed", 30*time.Second)
	after, err := one.exported(t.Context())
	noErr(t, err)
	passed := time.Since(asked).Seconds()
	for _, uuid := range one.gpus.uuid {
		grown := after.values("gpu_time_seconds_total")["// "+uuid] - before.values("gpu_time_seconds_total")["// "+uuid]
		if grown < passed-5 || grown > passed+5 {
			t.Errorf("the states of %s grew by %.1f s in %.1f s", uuid, grown, passed)
		}
	}
	if got := c.kubectl(t, "-n", operator, "get", "pod", exporter.Name, "-o",
		"jsonpath={.status.containerStatuses[0].restartCount}"); got != "0" {
		t.Errorf("the exporter was restarted %s times", got)
	}

	s.swap(t, "swapped back", theirImage, 16, 0)
	for expr, limit := range once {
		if s.most[expr] != limit {
			t.Errorf("%s was %v at one moment, want %v at most", expr, s.most[expr], limit)
		}
	}
}
