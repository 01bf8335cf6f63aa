package endtoend_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/test/dashboard"
	"github.com/gpu-exporter/gpu-exporter/test/servers"
)

// trouble is a node with an idle GPU, an oversubscribed one, and an XID that comes later.
const trouble = `scenario 1
title "trouble on three GPUs"
include 8xh100-idle.scenario

# GPUs 0 to 3: a training job, busy all the time.
process gpu=0 pid=10100 memory=60GiB busy=90% period=2s dram=48%
process gpu=1 pid=10101 memory=60GiB busy=90% period=2s dram=48%
process gpu=2 pid=10102 memory=60GiB busy=90% period=2s dram=48%
process gpu=3 pid=10103 memory=60GiB busy=90% period=2s dram=48%
# GPU 4: three time-sliced containers need more than there is, of time and of memory.
process gpu=4 pid=10400 memory=30GiB busy=70% period=1s
process gpu=4 pid=10401 memory=26GiB busy=60% period=1s phase=300ms
process gpu=4 pid=10402 memory=22GiB busy=50% period=1s phase=600ms
# GPU 6: allocated and never busy. GPUs 5 and 7 are unallocated.
process gpu=6 pid=10600 memory=520MiB busy=0%

at 60s gpu 1 xid 95           # an uncontained memory error
`

const troubledPods = `
allocatable nvidia.com/gpu GPU-5a0e1100-8c1d-4e6b-9d10-000000000000 GPU-5a0e1101-8c1d-4e6b-9d10-000000000001 ` +
	`GPU-5a0e1102-8c1d-4e6b-9d10-000000000002 GPU-5a0e1103-8c1d-4e6b-9d10-000000000003 GPU-5a0e1105-8c1d-4e6b-9d10-000000000005 ` +
	`GPU-5a0e1106-8c1d-4e6b-9d10-000000000006 GPU-5a0e1107-8c1d-4e6b-9d10-000000000007
allocatable nvidia.com/gpu.shared GPU-5a0e1104-8c1d-4e6b-9d10-000000000004::0 GPU-5a0e1104-8c1d-4e6b-9d10-000000000004::1 ` +
	`GPU-5a0e1104-8c1d-4e6b-9d10-000000000004::2
pod ml-training/llama-pretrain-0 container trainer nvidia.com/gpu=GPU-5a0e1100-8c1d-4e6b-9d10-000000000000,` +
	`GPU-5a0e1101-8c1d-4e6b-9d10-000000000001,GPU-5a0e1102-8c1d-4e6b-9d10-000000000002,GPU-5a0e1103-8c1d-4e6b-9d10-000000000003 ` +
	`pids=10100,10101,10102,10103
pod notebooks/jupyter-amira container notebook nvidia.com/gpu.shared=GPU-5a0e1104-8c1d-4e6b-9d10-000000000004::0 pids=10400
pod notebooks/jupyter-bo container notebook nvidia.com/gpu.shared=GPU-5a0e1104-8c1d-4e6b-9d10-000000000004::1 pids=10401
pod notebooks/jupyter-chidi container notebook nvidia.com/gpu.shared=GPU-5a0e1104-8c1d-4e6b-9d10-000000000004::2 pids=10402
pod research/abandoned-experiment container experiment nvidia.com/gpu=GPU-5a0e1106-8c1d-4e6b-9d10-000000000006 pids=10600
`

// quicker divides every duration of the rules: half an hour takes 30 seconds.
const quicker = 60

// TestAlerts has an idle GPU (an alert after six hours alone), an oversubscribed GPU and an XID on a node, and checks with a real
// Prometheus and the
// shipped rules that exactly the alerts for them fire.
func TestAlerts(t *testing.T) {
	t.Parallel() // most of it is waiting
	p := built(t)
	dir := t.TempDir()
	scenario, pods := filepath.Join(dir, "trouble.scenario"), filepath.Join(dir, "trouble.pods")
	// A scenario includes files beside it.
	must.OK(t, os.CopyFS(dir, os.DirFS(filepath.Join(p.root, "testdata", "scenarios"))))
	for file, text := range map[string]string{scenario: trouble, pods: troubledPods} {
		must.OK(t, os.WriteFile(file, []byte(text), 0o600))
	}
	rules := servers.Rules(t, dir, 1.0/quicker)
	node := p.node(t, scenario, pods)
	url := p.server(t, dir, "global: {scrape_interval: 1s, evaluation_interval: 1s}\nrule_files: ['"+rules+"']\n"+scrapeConfig(node, ""))
	c := dashboard.Client{URL: url}

	// Alerts are identified by pod and GPU.
	const ofAlert = `alertname, namespace, pod, gpu, xid`
	want := map[string]bool{
		"GPUSharedMemoryPressure gpu=4": true,
		"GPUXIDFatal gpu=1 xid=95":      true,
		// One of three that share it has most of its memory.
		"GPUContainerUsesMoreThanRequested pod=notebooks/jupyter-amira gpu=4": true,
	}
	fired := map[string]bool{}
	look := func() error {
		series, err := c.Instant(t.Context(), `count by (`+ofAlert+`) (count_over_time(ALERTS{alertstate="firing"}[1h]))`, time.Now())
		if err != nil {
			return err
		}
		for _, s := range series {
			name := s.Labels["alertname"]
			if s.Labels["pod"] != "" {
				name += " pod=" + s.Labels["namespace"] + "/" + s.Labels["pod"]
			}
			for _, l := range []string{"gpu", "xid"} {
				if s.Labels[l] != "" {
					name += " " + l + "=" + s.Labels[l]
				}
			}
			fired[name] = true
		}
		for name := range want {
			if !fired[name] {
				return fmt.Errorf("not fired: %s; fired: %v", name, slices.Sorted(maps.Keys(fired)))
			}
		}
		return nil
	}
	servers.Until(t, "the alerts", look)
	// For some time more, nothing else may fire.
	for end := time.Now().Add(15 * time.Second); time.Now().Before(end); time.Sleep(time.Second) {
		must.OK(t, look())
	}
	for _, name := range slices.Sorted(maps.Keys(fired)) {
		if !want[name] {
			t.Errorf("fired without a cause: %s", name)
		}
	}
	var table strings.Builder
	for _, name := range slices.Sorted(maps.Keys(fired)) {
		fmt.Fprintf(&table, "%-60s expected: %v\n", name, want[name])
	}
	report(t, "alerts", table.String())
}
