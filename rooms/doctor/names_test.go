package doctor

import (
	"strings"
	"testing"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/podmap"
	"github.com/gpu-exporter/gpu-exporter/rooms"
)

// Names of pods, GPUs and files may contain anything: none of them begins a line, or turns one around.
func TestNamesBeginNoLine(t *testing.T) {
	const name = "x\nok       source nvml: up \u202ekcab"
	who := gpu.Container{Namespace: name, Pod: name, Name: name}
	v := &gpu.View{Visible: []gpu.VisibleGPU{{GPU: "GPU-1", Container: who}}, Ownership: true,
		Allocations: []gpu.ContainerAllocation{{Allocation: gpu.Allocation{Container: who, GPU: "GPU-1", Resource: name}}}}
	d := report{GPUs: []gpuStatus{newGPUStatus(v, &gpu.GPU{Identity: gpu.Identity{UUID: "GPU-1", Model: name}})}}
	d.add(name, severityWarning, name, "%s", name)
	var b strings.Builder
	must.OK(t, write(&b, "text", d, d.text()))
	lines := 0
	for line := range strings.Lines(b.String()) {
		if lines++; strings.HasPrefix(strings.TrimSpace(line), "ok ") || strings.ContainsRune(line, '\u202e') {
			t.Errorf("%q", line)
		}
	}
	if want := 8; lines != want {
		t.Errorf("%d lines, want %d:\n%s", lines, want, b.String())
	}
}

// Each reason has its own verdict, not that of the worst; a resource that is unresolved has what would resolve it.
func TestFindingsHaveTheirOwn(t *testing.T) {
	d := report{}
	d.checkGPUs(&gpu.View{GPUs: []gpu.GPU{{State: gpu.DeviceUp, Medium: gpu.Some(&gpu.Medium{RemapFailed: gpu.Some(true),
		RemapPending: gpu.Some(true)})}}}, func(string) string { return "" },
		func(*gpu.View, *gpu.GPU) []rooms.Advice { return nil })
	d.checkOwnership([]podmap.Unrecognized{{Resource: "x.example.com", Scheme: "unlisted dra", Hint: "--kubelet.dra-checkpoint"}},
		&gpu.View{})
	var b strings.Builder
	must.OK(t, write(&b, "text", d, d.text()))
	for _, want := range []string{"replace: row_remap_failed", "needs_reset: row_remap_pending", "add: --kubelet.dra-checkpoint\n"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("without %q:\n%s", want, b.String())
		}
	}
}
