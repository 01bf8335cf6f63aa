package account

import (
	"testing"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// Totals in MiB as the boards of testdata/scenarios report them; a memory that is not the GPU's is dropped with a reason.
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
		{"NVIDIA H100 80GB HBM3", 0, "", 0, []int{40960}, "total_too_small"},
		{"NVIDIA A100-SXM4-40GB", 65536, "", 0, []int{40960}, ""},
		{"NVIDIA A100-SXM4-40GB", 65536, "", 0, []int{20480}, "total_too_small"},
		{"Tesla P100-PCIE-16GB", 16384, "", 0, []int{16276}, ""},
		{"Tesla V100-SXM2-32GB", 32768, "", 0, []int{32510}, ""},
		{"NVIDIA GeForce GTX 1060 3GB", 256, "", 0, []int{3019}, ""},
		{"NVIDIA GH200 480GB", 131072, "", 0, []int{97871}, ""},
		{"NVIDIA GB200", 262144, "", 0, []int{189471}, ""},
		{"NVIDIA B300", 524288, "", 0, []int{275040}, ""},
		{"NVIDIA L40S", 65536, "", 0, []int{46068}, ""},
		{"NVIDIA L40S", 65536, "", 0, []int{32768}, "total_too_small"},
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
		reason := ""
		for _, u := range m.Unmeasured {
			reason += u.Reason
		}
		if reason != c.reason || m.Memory.Present() == (reason != "") || reason != "" && news != 1 {
			t.Errorf("%s, totals %d: %q, memory %v, %d announcements, want %q", c.model, c.totals, reason, m.Memory, news, c.reason)
		}
	}
}
