package main

import (
	"strings"
	"testing"
)

// visiblePods are a pod with a GPU of its own, a privileged one that sees both, and one of which only its
// environment tells.
const visiblePods = "allocatable nvidia.com/gpu GPU-aaaaaaaa-0000-4000-8000-000000000000 GPU-bbbbbbbb-0000-4000-8000-000000000000\n" +
	"pod ml/train-0 container main nvidia.com/gpu=GPU-aaaaaaaa-0000-4000-8000-000000000000 pids=5000 nodes=nvidia0,nvidiactl " +
	"env=DATABASE_PASSWORD:hunter2 env=NVIDIA_VISIBLE_DEVICES:all\n" +
	"pod ml/train-0 container setup kind=init pids=5003 nodes=nvidia1\n" +
	"pod ops/agent container main pids=5001 nodes=nvidia0,nvidia1,nvidiactl\n" +
	"pod ops/closed container main pids=5002 env=DATABASE_PASSWORD:hunter2 " +
	"env=NVIDIA_VISIBLE_DEVICES:GPU-bbbbbbbb-0000-4000-8000-000000000000\n"

// The GPUs that containers see, with the real binary: the nodes decide, not what an image says of itself.
func TestGPUsThatContainersSee(t *testing.T) {
	t.Parallel()
	m := node(t, twoGPUs, visiblePods)
	p := m.start("--containers.visible")
	p.until(t, "the allocations, and what three containers see", func(s series) error {
		return all(bothUp(s), s.is(1, "gpu_container_visible", GPUA, `pod="train-0"`),
			s.none("gpu_container_visible", GPUB, `pod="train-0"`, `container="main"`),
			s.is(1, "gpu_container_visible", GPUB, `pod="train-0"`, `container="setup"`),
			s.none("gpu_container_visible", GPUA, `pod="train-0"`, `container="setup"`),
			s.is(1, "gpu_container_visible", GPUA, `pod="agent"`), s.is(1, "gpu_container_visible", GPUB, `pod="agent"`),
			s.none("gpu_container_visible", GPUA, `pod="closed"`), s.is(1, "gpu_container_visible", GPUB, `pod="closed"`),
			s.is(1, "gpu_exporter_source_up", `source="visible"`),
			s.is(1, "gpu_exporter_feature", `feature="container_visible"`, `state="on"`),
			s.none("gpu_container_mismatch"))
	})
	_, page, err := p.get("/")
	if err != nil || !strings.Contains(page, "also visible in <code>ops/agent main</code>") {
		t.Errorf("the page does not show who else sees a GPU: %v", err)
	}
	_, metrics, _ := p.get("/metrics")
	for where, text := range map[string]string{"page": page, "metrics": metrics, "log": p.Said()} {
		if strings.Contains(text, "hunter2") || strings.Contains(text, "DATABASE_PASSWORD") {
			t.Errorf("the %s holds private data", where)
		}
	}
}

// Nobody looks into containers unless asked to.
func TestContainersAreLeftAlone(t *testing.T) {
	t.Parallel()
	m := node(t, twoGPUs, visiblePods)
	m.start().until(t, "off, and no series", func(s series) error {
		return all(bothUp(s), s.none("gpu_container_visible"), s.none("gpu_exporter_source_up", `source="visible"`),
			s.is(1, "gpu_exporter_feature", `feature="container_visible"`, `state="off"`))
	})
}

func TestDoctorOnVisibility(t *testing.T) {
	t.Parallel()
	m := node(t, twoGPUs, visiblePods)
	host := m.Trees.Procfs
	for _, c := range []struct {
		flags  []string
		procfs string
		want   []string
	}{
		{nil, host, []string{"info     feature container_visible: off",
			"add: --containers.visible; hostPID: true; securityContext: {capabilities: {drop: [ALL], add: [SYS_PTRACE]}"}},
		{[]string{"--containers.visible"}, host, []string{"ok       feature container_visible: on", "ok       source visible",
			"visible in    ml/train-0/main\n                ops/agent/main"}},
		{[]string{"--containers.visible"}, "/nonexistent",
			[]string{"info     feature container_visible: missing permission", "add: hostPID: true; securityContext"}},
	} {
		m.Trees.Procfs = c.procfs
		said, _ := m.doctor(c.flags...)
		for _, want := range c.want {
			if !strings.Contains(said, want) {
				t.Errorf("%v: it does not say %q:\n%s", c.flags, want, said)
			}
		}
	}
}
