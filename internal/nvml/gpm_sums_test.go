package nvml

import (
	"slices"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// A driver that refuses the whole query for the sums since reboot, whose IDs are newer than it, costs one poll of GPM.
func TestGPMSums(t *testing.T) {
	for _, refuses := range []bool{false, true} {
		r := playText(t, `
  GpmQueryDeviceSupport = 1
  Gpm[2] = 40*util
  Gpm[20] = 7
  Gpm[255] = 5e9 + 1e9*t
gpu 0 board=b
process gpu=0 pid=11 memory=7GiB busy=100% period=1s
`)
		r.library.options.Intercept = func(_ int, call string, _ []int, value any, run func() int32) int32 {
			m, _ := value.(*[]nvml.GpmMetric)
			if refuses && call == "nvmlGpmMetricsGet" && slices.ContainsFunc(*m, func(m nvml.GpmMetric) bool {
				return m.MetricId == uint32(nvml.GPM_METRIC_PCIE_TX)
			}) {
				return int32(nvml.ERROR_INVALID_ARGUMENT)
			}
			return run()
		}
		c := r.open()[0]
		for poll := range 4 {
			r.at(time.Duration(2*poll) * time.Second)
			f := fast(t, c)
			sum, rate := gpu.Some(5e9+2e9*float64(poll)), gpu.Some(7.*(1<<20))
			if refuses {
				sum = gpu.None[float64]()
			}
			read := poll > 0 && !(refuses && poll == 1)
			if g, ok := f.GPM.Get(); ok != read || ok && (g.PCIeTransmitted != sum || g.PCIeReceived.Present() || g.PCIeTransmit != rate) {
				t.Errorf("refuses %v, poll %d: %+v, %v", refuses, poll, g, ok)
			}
		}
	}
}
