package doctor

import (
	"strings"
	"testing"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/podmap"
	"github.com/gpu-exporter/gpu-exporter/rooms"
)

// Names of pods, GPUs and files may contain anything: none of them begins a line, or turns one around.
func TestNamesBeginNoLine(t *testing.T) {
	const name = "x\nok       source nvml: up \u202ekcab"
	d := report{Node: name, Version: name, Driver: name, Findings: []finding{{name, severityWarning, name, name}},
		GPUs: []gpuStatus{{GPU: name, Model: name, State: name, AllocatedTo: []string{name, name}, Users: []string{name},
			Visible: []string{name}, Mismatch: []string{name}}}}
	var b strings.Builder
	if err := d.write(&b); err != nil {
		t.Fatal(err)
	}
	lines := 0
	for line := range strings.Lines(b.String()) {
		if lines++; strings.HasPrefix(strings.TrimSpace(line), "ok ") || strings.ContainsRune(line, '\u202e') {
			t.Errorf("%q", line)
		}
	}
	if want := 11; lines != want {
		t.Errorf("%d lines, want %d:\n%s", lines, want, b.String())
	}
}

// Lists stay lists: one name on each line, below each other.
func TestNamesBelowEachOther(t *testing.T) {
	var b strings.Builder
	if err := (report{GPUs: []gpuStatus{{AllocatedTo: []string{"a", "b"}}}}).write(&b); err != nil {
		t.Fatal(err)
	}
	if want := "  allocated to  a\n                b\n"; !strings.Contains(b.String(), want) {
		t.Errorf("%q, want %q", b.String(), want)
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
	if err := d.write(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{": replace: row_remap_failed (", ": needs_reset: row_remap_pending (", "add: --kubelet.dra-checkpoint\n"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("without %q:\n%s", want, b.String())
		}
	}
}
