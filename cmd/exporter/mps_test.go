package main

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/standin/scenario"
)

// mpsNode is one GPU that three pods share by MPS: their processes are 5000 to 5002, the server's 6000 lies in a
// daemon's pod that holds nothing.
func mpsNode(t *testing.T, board, processes string) (*scenario.Scenario, string) {
	t.Helper()
	s := parseScenario(t, strings.ReplaceAll(strings.Replace(oneGPU, "h100-sxm", board, 1), "board=h100", "board="+board[:4])+processes)
	var pods strings.Builder
	pods.WriteString("allocatable nvidia.com/gpu")
	for i := range 4 {
		fmt.Fprintf(&pods, " %s::%d", sharedGPU, i)
	}
	for i := range 3 {
		fmt.Fprintf(&pods, "\npod team/client-%d container c nvidia.com/gpu=%s::%d pids=%d", i, sharedGPU, i, 5000+i)
	}
	pods.WriteString("\npod gpu-operator/mps-control-daemon container mps pids=6000 comm=nvidia-cuda-mps\n")
	return s, pods.String()
}

// Since Volta each client has its own, and the server is unattributed use of the GPU.
func mpsClientsOfThreePods(t *testing.T) {
	s, pods := mpsNode(t, "h100-sxm", "process gpu=0 pid=5000 kind=mps memory=1GiB busy=30% period=700ms\nprocess gpu=0 pid=5001 "+
		"kind=mps memory=2GiB busy=20% period=900ms phase=300ms\n"+
		"process gpu=0 pid=5002 kind=mps memory=3GiB busy=10% period=1100ms phase=500ms\nprocess gpu=0 pid=6000 memory=30MiB\n")
	st := play(t, s, pods)
	now := st.watched(3 * time.Minute)
	for i, memory := range []float64{1 << 30, 2 << 30, 3 << 30} {
		pod := fmt.Sprintf(`pod="client-%d"`, i)
		got, err := now.one("gpu_container_busy_seconds_total", pod)
		if want := float64(s.Truth(0).ProcessBusy(5000+i, 0, st.control.Now())); err != nil || math.Abs(got-want) > 0.1*want+1 {
			t.Errorf("client %d worked %.1f s and got %.1f: %v", i, want, got, err)
		}
		verify(t, now.is(memory, "gpu_container_memory_used_bytes", pod), now.is(1, "gpu_container_processes", pod))
	}
	verify(t, now.none("gpu_container_processes", `pod="mps-control-daemon"`), now.none("gpu_container_mismatch"),
		now.is(0, "gpu_unattributed_busy_seconds_total", `reason="mps"`))
	if v, err := now.one("gpu_unattributed_memory_used_bytes", `reason="driver"`); err != nil || v < 30<<20 || v > 1<<30 {
		t.Errorf("the server's memory is not the driver's: %v, %v", v, err)
	}
}

// Before Volta the server stands for all clients: nobody gets anything, and nobody gets a 0.
func mpsBeforeVolta(t *testing.T) {
	s, pods := mpsNode(t, "p100-pcie", "process gpu=0 pid=6000 memory=6GiB busy=40% period=1s\n")
	st := play(t, s, pods)
	now := st.watched(2 * time.Minute)
	for i := range 3 {
		pod := fmt.Sprintf(`pod="client-%d"`, i)
		verify(t, now.none("gpu_container_busy_seconds_total", pod), now.none("gpu_container_memory_used_bytes", pod),
			now.none("gpu_container_processes", pod),
			now.is(0.25, "gpu_container_allocation_ratio", pod),
			now.is(1, "gpu_container_attribution_info", pod, `method="none"`))
	}
	verify(t, now.is(6<<30, "gpu_unattributed_memory_used_bytes", `reason="mps"`),
		now.none("gpu_container_processes", `pod="mps-control-daemon"`), now.none("gpu_container_mismatch"))
	got, err := now.one("gpu_unattributed_busy_seconds_total", `reason="mps"`)
	if want := float64(s.Truth(0).Busy(0, st.control.Now())); err != nil || math.Abs(got-want) > 0.1*want {
		t.Errorf("the GPU worked %.1f s, and MPS has %.1f: %v", want, got, err)
	}
}

// A pod without a GPU calls its process a server. It hides what it does, and no other pod gets it.
func mpsServerThatIsNone(t *testing.T) {
	s, pods := mpsNode(t, "h100-sxm", "process gpu=0 pid=5000 kind=mps memory=1GiB busy=30% period=700ms\n"+
		"process gpu=0 pid=6000 memory=20GiB busy=50% period=900ms phase=100ms\n")
	lines := strings.SplitAfter(pods, "\n")
	pods = strings.ReplaceAll(lines[0]+lines[1]+lines[4], "mps-control-daemon", "evil")
	pods = strings.Replace(pods, "nvidia.com/gpu="+sharedGPU+"::0",
		"nvidia.com/gpu="+sharedGPU+"::0,"+sharedGPU+"::1,"+sharedGPU+"::2,"+sharedGPU+"::3", 1)
	st := play(t, s, pods)
	now := st.watched(3 * time.Minute)
	truth := float64(s.Truth(0).ProcessBusy(5000, 0, st.control.Now()))
	got, err := now.one("gpu_container_busy_seconds_total", `pod="client-0"`)
	if err != nil || got > 1.1*truth+1 {
		t.Errorf("the container worked %.1f s and got %.1f: %v", truth, got, err)
	}
	verify(t, now.is(1, "gpu_container_allocation_ratio", `pod="client-0"`),
		now.is(1<<30, "gpu_container_memory_used_bytes", `pod="client-0"`),
		now.none("gpu_container_memory_used_bytes", `pod="evil"`))
	if v, err := now.one("gpu_unattributed_memory_used_bytes", `reason="driver"`); err != nil || v < 20<<30 {
		t.Errorf("the pretender's memory: %v, %v", v, err)
	}
}
