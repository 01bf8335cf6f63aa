package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpu-exporter/gpu-exporter/internal/must"
)

// A limit on the exporter's own cgroup, or one above it, and a library in front of NVML change what NVML reports about
// memory. It is never published as the GPU's, and doctor names the cause. GPU 1 is not limited.
func TestMemoryIsTheGPUs(t *testing.T) {
	t.Parallel()
	const half = "\nat 0s gpu 0 MemoryInfo_v2 = total=40GiB used=1GiB reserved=0\n"
	newest := strings.Replace(twoGPUs, "symbols R580", "symbols newest", 1)
	for name, c := range map[string]struct {
		scenario, reason, said string
		wrap                   bool
	}{
		"own limit": {newest + half + "at 0s gpu 0 MemoryLimits_v1 = softLimit=0 hardLimit=40GiB currentUsed=0\n",
			"own_limit", "has a limit of 40960 MiB", false},
		"limit above": {newest + half, "total_too_small", "a total of 40960 MiB, but NVIDIA H100 80GB HBM3 has about", false},
		"wrapper":     {twoGPUs, "wrapped_library", "libnvidia-ml.so.1", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := node(t, c.scenario, twoPods)
			if c.wrap {
				// The driver's own library is loaded beside the one that takes its name.
				text, err := os.ReadFile(m.Library)
				must.OK(t, err)
				real := filepath.Join(t.TempDir(), "libnvidia-ml.so.615.71.09")
				must.OK(t, os.WriteFile(real, text, 0o755))
				m.Env = append(m.Env, "LD_PRELOAD="+real)
			}
			p := m.start()
			p.until(t, "no memory of GPU 0", func(s series) error {
				errs := []error{s.is(1, "gpu_device_up", GPUA), s.none("gpu_memory_total_bytes", GPUA),
					s.none("gpu_memory_used_bytes", GPUA), s.none("gpu_memory_free_bytes", GPUA),
					s.is(1, "gpu_unmeasured_info", GPUA, `reading="memory"`, `reason="`+c.reason+`"`)}
				if !c.wrap {
					errs = append(errs, s.is(81559<<20, "gpu_memory_total_bytes", GPUB), s.none("gpu_unmeasured_info", GPUB))
				}
				return all(errs...)
			})
			if said, code := m.doctor(); code != exitWarnings || !strings.Contains(said, "memory is not exported") ||
				!strings.Contains(said, c.said) || !strings.Contains(said, "add: no ") {
				t.Errorf("doctor, exit code %d:\n%s", code, said)
			}
		})
	}
}

// A BAR1 of more than twice the memory is a property of some boards: the memory is exported, and doctor has a note.
func TestLargeBAR1DropsNoMemory(t *testing.T) {
	t.Parallel()
	m := node(t, twoGPUs+"at 0s gpu 0 BAR1MemoryInfo = total=256GiB used=1MiB\n", twoPods)
	p := m.start()
	p.until(t, "all memory of GPU 0", func(s series) error {
		errs := []error{s.is(81559<<20, "gpu_memory_total_bytes", GPUA), s.none("gpu_unmeasured_info", GPUA)}
		for _, part := range []string{"used", "free", "reserved"} {
			_, err := s.one("gpu_memory_"+part+"_bytes", GPUA)
			errs = append(errs, err)
		}
		return all(errs...)
	})
	said, _ := m.doctor()
	if !strings.Contains(said, "memory is exported: a total of 81559 MiB, but BAR1") || strings.Contains(said, "memory is not exported") {
		t.Errorf("doctor:\n%s", said)
	}
}
