package catalog

import "github.com/gpu-exporter/gpu-exporter/internal/gpu"

func memory() Group {
	bytes := func(name, help, source, offered string, field func(*gpu.Medium) gpu.Opt[gpu.Bytes]) Family {
		return Family{Name: name, Scope: ScopeGPU, Help: help, Source: source, Offered: offered, Read: medium(field)}
	}
	device := func(part func(gpu.Memory) gpu.Opt[gpu.Bytes]) func(*gpu.Medium) gpu.Opt[gpu.Bytes] {
		return func(m *gpu.Medium) gpu.Opt[gpu.Bytes] {
			if mem, ok := m.Memory.Get(); ok {
				return part(mem)
			}
			return gpu.None[gpu.Bytes]()
		}
	}
	bar1 := func(part func(gpu.BAR1) gpu.Bytes) func(*gpu.Medium) gpu.Opt[gpu.Bytes] {
		return func(m *gpu.Medium) gpu.Opt[gpu.Bytes] {
			if b, ok := m.BAR1.Get(); ok {
				return gpu.Some(part(b))
			}
			return gpu.None[gpu.Bytes]()
		}
	}
	protected := func(part func(gpu.Memory) gpu.Bytes) func(*gpu.View, Emit) {
		return slowGPU(func(s *gpu.Slow, emit gpuEmit) {
			if m, ok := s.ProtectedMemory.Get(); ok {
				emit(float64(part(m)))
			}
		})
	}
	const info = "nvmlDeviceGetMemoryInfo_v2, else nvmlDeviceGetMemoryInfo"
	const own = "GPUs with dedicated memory"
	return Group{
		Name:  "memory",
		Title: "Memory",
		Rows: []Family{
			bytes("gpu_memory_total_bytes", "Total device memory.", info, own,
				device(func(m gpu.Memory) gpu.Opt[gpu.Bytes] { return gpu.Some(m.Total) })),
			bytes("gpu_memory_used_bytes", "Device memory allocated by processes.", info, own,
				device(func(m gpu.Memory) gpu.Opt[gpu.Bytes] { return gpu.Some(m.Used) })),
			bytes("gpu_memory_free_bytes", "Free device memory.", info, own,
				device(func(m gpu.Memory) gpu.Opt[gpu.Bytes] { return gpu.Some(m.Free) })),
			bytes("gpu_memory_reserved_bytes", "Device memory reserved by driver and firmware.",
				"nvmlDeviceGetMemoryInfo_v2", "R510 and newer drivers",
				device(func(m gpu.Memory) gpu.Opt[gpu.Bytes] { return m.Reserved })),
			bytes("gpu_bar1_memory_total_bytes", "Size of the BAR1 aperture.", "nvmlDeviceGetBAR1MemoryInfo", "",
				bar1(func(b gpu.BAR1) gpu.Bytes { return b.Total })),
			bytes("gpu_bar1_memory_used_bytes", "Mapped part of the BAR1 aperture; recent drivers map it entirely, "+
				"which is not a leak.", "nvmlDeviceGetBAR1MemoryInfo", "",
				bar1(func(b gpu.BAR1) gpu.Bytes { return b.Used })),
			{Name: "gpu_protected_memory_total_bytes", Scope: ScopeGPU, Help: "Memory protected by confidential computing.",
				Source: "nvmlDeviceGetConfComputeProtectedMemoryUsage", Readings: []string{"protected_memory"},
				Read: protected(func(m gpu.Memory) gpu.Bytes { return m.Total })},
			{Name: "gpu_protected_memory_used_bytes", Scope: ScopeGPU, Help: "Protected memory in use.",
				Source: "nvmlDeviceGetConfComputeProtectedMemoryUsage", Readings: []string{"protected_memory"},
				Read: protected(func(m gpu.Memory) gpu.Bytes { return m.Used })},
		},
	}
}
