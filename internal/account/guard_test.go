package account

import (
	"path/filepath"
	"regexp"
	"strconv"
	"testing"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/internal/must"
)

// Totals in MiB as boards report them; a memory that is not the GPU's is dropped with a reason. One indirect contradiction,
// that of BAR1 or of the name, is a doubt.
func TestMemoryGuard(t *testing.T) {
	for _, c := range []struct {
		model   string
		bar1    int
		wrapper string
		limit   int
		totals  []int // polls; the last one counts
		reason  string
	}{
		{"NVIDIA H100 80GB HBM3", 131072, "", 0, []int{81559}, ""},
		{"NVIDIA H100 80GB HBM3", 131072, "", 0, []int{40960}, "total_too_small"},
		{"NVIDIA H100 80GB HBM3", 0, "", 0, []int{40960}, "doubt"},
		{"NVIDIA H100 80GB HBM3", 0, "", 0, []int{81559, 81559, 40960}, "total_too_small"},
		{"NVIDIA H100 80GB HBM3", 0, "/x/libvgpu.so", 0, []int{40960}, "wrapped_library"},
		{"NVIDIA A100-SXM4-40GB", 65536, "", 0, []int{40960}, ""},
		{"NVIDIA A100-SXM4-40GB", 65536, "", 0, []int{20480}, "total_too_small"},
		{"Tesla P100-PCIE-16GB", 16384, "", 0, []int{16276}, ""},
		{"Tesla V100-SXM2-32GB", 32768, "", 0, []int{32510}, ""},
		{"NVIDIA GeForce GTX 1060 3GB", 256, "", 0, []int{3019}, ""},
		{"NVIDIA GH200 480GB", 131072, "", 0, []int{97871}, ""},
		{"NVIDIA GB200", 262144, "", 0, []int{189471}, ""},
		{"NVIDIA B300", 524288, "", 0, []int{275040}, ""},
		{"NVIDIA L40S", 65536, "", 0, []int{46068}, ""},
		{"NVIDIA L40S", 65536, "", 0, []int{32768}, "doubt"},
		{"NVIDIA L40S", 65536, "", 0, []int{46068, 46068, 32768}, "total_too_small"},
		{"NVIDIA L40S", 65536, "/x/libvgpu.so", 0, []int{32768}, "wrapped_library"},
		// Boards with a BAR1 of at least twice the memory.
		{"NVIDIA H100 80GB HBM3", 262144, "", 0, []int{81559}, "doubt"},
		{"NVIDIA A100-SXM-64GB", 131072, "", 0, []int{65536}, "doubt"},
		{"NVIDIA L40S", 262144, "", 0, []int{46068}, "doubt"},
		{"NVIDIA RTX A4000", 262144, "", 0, []int{16376}, "doubt"},
		{"NVIDIA B200", 524288, "", 0, []int{183359}, "doubt"},
		{"NVIDIA B300", 786432, "", 0, []int{275040}, "doubt"},
		{"NVIDIA GeForce RTX 4090", 256, "", 0, []int{24564}, ""},
		{"NVIDIA RTXA6000-24Q", 65536, "", 0, []int{24576}, ""},
		{"Tesla T4", 256, "", 0, []int{15360, 15360, 8192}, "total_too_small"},
		{"Tesla T4", 256, "", 0, []int{16384, 16384, 15360}, ""},       // ECC was enabled
		{"Tesla T4", 256, "", 0, []int{15360, 1 << 40, 15360}, ""},     // one wrong reading
		{"Tesla T4", 256, "", 0, []int{15360, 15360, 8192, 15360}, ""}, // the limit was lifted
		{"Tesla T4", 256, "", 8192, []int{8192}, "own_limit"},          // from the first poll on
		{"Tesla T4", 256, "/x/libnvidia-ml.so.1", 0, []int{15360}, "wrapped_library"},
	} {
		var g MemoryGuard
		var m gpu.Medium
		news := 0
		for _, total := range c.totals {
			m = gpu.Medium{Memory: gpu.Some(gpu.Memory{Total: gpu.Bytes(total) << 20}),
				BAR1: gpu.Some(gpu.BAR1{Total: gpu.Bytes(c.bar1) << 20})}
			if c.limit > 0 {
				m.OwnLimit = gpu.Some(gpu.Bytes(c.limit) << 20)
			}
			if _, found := g.Check(&gpu.Identity{Model: c.model}, c.wrapper, &m); found {
				news++
			}
		}
		reason, dropped := "", len(m.Unmeasured) > 0
		for _, u := range m.Unmeasured {
			reason += u.Reason
		}
		if m.MemoryDoubt != "" {
			reason += "doubt"
		}
		if reason != c.reason || m.Memory.Present() == dropped || dropped && news != 1 {
			t.Errorf("%s, BAR1 %d, totals %d: %q, memory %v, %d announcements, want %q", c.model, c.bar1, c.totals, reason, m.Memory,
				news, c.reason)
		}
	}
}

// The memory of every recorded board is exported whatever the size of its BAR1.
func TestBAR1AloneDropsNoMemory(t *testing.T) {
	files, err := filepath.Glob("../../testdata/scenarios/boards/*.scenario")
	if err != nil || len(files) < 15 {
		t.Fatalf("%d boards, %v", len(files), err)
	}
	total := regexp.MustCompile(`(?m)^ *MemoryInfo(?:_v2)? = total=(\d+)MiB`)
	name := regexp.MustCompile(`(?m)^ *Name = "(.+)"`)
	checked := 0
	for _, file := range files {
		text := must.Read(t, file)
		size, model := total.FindStringSubmatch(text), name.FindStringSubmatch(text)
		if size == nil {
			continue // it uses the memory of the host
		}
		if model == nil {
			t.Fatalf("%s has no name", file)
		}
		checked++
		mib, _ := strconv.ParseUint(size[1], 10, 64)
		for bar1 := gpu.Bytes(256 << 20); bar1 <= 1<<43; bar1 *= 2 {
			var g MemoryGuard
			m := gpu.Medium{Memory: gpu.Some(gpu.Memory{Total: gpu.Bytes(mib << 20)}), BAR1: gpu.Some(gpu.BAR1{Total: bar1})}
			if u, _ := g.Check(&gpu.Identity{Model: model[1]}, "", &m); u.Reason != "" || !m.Memory.Present() {
				t.Errorf("%s with a BAR1 of %d MiB: %s", model[1], bar1>>20, u.Detail)
			}
		}
	}
	if checked < 12 {
		t.Errorf("%d boards have a memory", checked)
	}
}
