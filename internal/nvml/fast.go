package nvml

import (
	"slices"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// fastRows is the fast poll group: the plain values, and the readings that take more than a call.
var fastRows = slices.Concat(fastValues, []row[gpu.Fast]{
	// Profiling metrics between two samples. Directly after the field values, so that it covers the same period as the PCIe
	// counters.
	{reading: "gpm", read: readGPM},
	// The driver's last period.
	{reading: "utilization", sampled: true, read: plain(callUtilizationRates, nvml.Device.GetUtilizationRates,
		func(to *gpu.Fast, u nvml.Utilization) {
			to.Utilization = gpu.Some(gpu.Utilization{GPU: gpu.Ratio(u.Gpu) / 100, Memory: gpu.Ratio(u.Memory) / 100})
		})},
	// The driver's rings, in percent of each sample's period.
	{reading: "busy_samples", sampled: true, read: func(c *GPU, to *gpu.Fast) nvml.Return {
		return readBusyRing(c, to)
	}},
	{reading: "memory_busy_samples", sampled: true, read: func(c *GPU, to *gpu.Fast) nvml.Return {
		return readRing(c, nvml.MEMORY_UTILIZATION_SAMPLES, &c.memory, &to.MemoryBusy)
	}},
	{reading: "process_samples", sampled: true, read: readProcessSamples},
	// Where accounting mode is enabled.
	{reading: "process_accounts", sampled: true, read: readAccounts},
	{reading: "mig_gpm", read: readInstanceGPM},
	{reading: "mig_device_gpm", read: readDeviceGPM},
})

// put sets one key of a map.
func put[K comparable, V any](m *map[K]V, key K, v V) {
	if *m == nil {
		*m = map[K]V{}
	}
	(*m)[key] = v
}
