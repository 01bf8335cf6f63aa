package nvml

import (
	"slices"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// fastRows is the fast poll group: the plain values, and the readings that take more than a call.
var fastRows = slices.Concat(fastValues, []row[gpu.Fast]{
	// Directly after the field values, so that it covers the same period as the PCIe counters.
	{reading: "gpm", doc: "Profiling metrics 1-5 and 10-13 between two samples, in percent; 20 and 21 in MiB/s.",
		calls: []callID{callGpmQueryDeviceSupport, callGpmSampleAlloc, callGpmSampleGet, callGpmMetricsGet},
		read:  readGPM},
	{reading: "utilization", sampled: true, doc: "Share of the driver's last period in which a kernel ran, and in which memory was " +
		"accessed, in percent.",
		calls: []callID{callUtilizationRates},
		read: func(c *GPU, to *gpu.Fast) nvml.Return {
			u, ret := get(c, callUtilizationRates, c.handle().GetUtilizationRates)
			if ret == nvml.SUCCESS {
				to.Utilization = gpu.Some(gpu.Utilization{GPU: gpu.Ratio(u.Gpu) / 100,
					Memory: gpu.Ratio(u.Memory) / 100})
			}
			return ret
		}},
	{reading: "busy_samples", sampled: true, doc: "The driver's ring of GPU utilization, in percent of each sample's period.",
		calls: []callID{callSamples},
		read: func(c *GPU, to *gpu.Fast) nvml.Return {
			return readRing(c, nvml.GPU_UTILIZATION_SAMPLES, &c.busy, &to.Busy)
		}},
	{reading: "memory_busy_samples", sampled: true, doc: "The driver's ring of memory utilization, in percent of each sample's " +
		"period.", calls: []callID{callSamples},
		read: func(c *GPU, to *gpu.Fast) nvml.Return {
			return readRing(c, nvml.MEMORY_UTILIZATION_SAMPLES, &c.memory, &to.MemoryBusy)
		}},
	{reading: "process_samples", sampled: true, doc: "Utilization by process since the last read, in percent.",
		calls: []callID{callProcessUtilization},
		read:  readProcessSamples},
	{reading: "process_accounts", sampled: true, doc: "Busy time by process since its start, as sums of utilization " +
		"samples in 1/100 percent, where accounting mode is enabled.",
		calls: []callID{callAccountingPids, callAccountingStatsV2},
		read:  readAccounts},
	{reading: "mig_gpm", doc: "Profiling metrics of each MIG GPU instance, in percent.",
		calls: []callID{callGpmQueryDeviceSupport, callGpmSampleAlloc, callGpmMigSampleGet, callGpmMetricsGet},
		read:  readInstanceGPM},
	{reading: "mig_device_gpm", doc: "Profiling metrics of each MIG device, in percent, where a GPU instance has several.",
		calls: []callID{callGpmQueryDeviceSupport, callGpmSampleAlloc, callGpmSampleGet, callGpmMetricsGet},
		read:  readDeviceGPM},
})

// put sets one key of a map.
func put[K comparable, V any](m *map[K]V, key K, v V) {
	if *m == nil {
		*m = map[K]V{}
	}
	(*m)[key] = v
}
