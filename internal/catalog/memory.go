package catalog

import "github.com/gpu-exporter/gpu-exporter/internal/gpu"

func memory() Group {
	bytes := func(name, help, source, offered string, field func(*gpu.Medium) gpu.Opt[gpu.Bytes]) Family {
		return Family{Name: name, Type: Gauge, Unit: "bytes", Scope: ScopeGPU, Stability: Stable,
			Help: help, Source: source, Offered: offered, Read: medium(field)}
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
	const info = "nvmlDeviceGetMemoryInfo_v2, else nvmlDeviceGetMemoryInfo"
	const own = "every GPU with memory of its own"
	return Group{
		Title: "Memory",
		Intro: "Total = reserved + used + free. Where a driver does not tell what it reserves (before R510), reserved is absent and counted as used.",
		Examples: []Example{
			{"Which GPUs are nearly full?", `gpu_memory_used_bytes / gpu_memory_total_bytes > 0.95`},
		},
		Rows: []Family{
			bytes("gpu_memory_total_bytes", "Device memory of the GPU.", info, own, device(func(m gpu.Memory) gpu.Opt[gpu.Bytes] { return gpu.Some(m.Total) })),
			bytes("gpu_memory_used_bytes", "Device memory allocated by processes.", info, own, device(func(m gpu.Memory) gpu.Opt[gpu.Bytes] { return gpu.Some(m.Used) })),
			bytes("gpu_memory_free_bytes", "Device memory that nobody allocated.", info, own, device(func(m gpu.Memory) gpu.Opt[gpu.Bytes] { return gpu.Some(m.Free) })),
			bytes("gpu_memory_reserved_bytes", "Device memory kept by driver and firmware.", "nvmlDeviceGetMemoryInfo_v2", "R510 and newer drivers", device(func(m gpu.Memory) gpu.Opt[gpu.Bytes] { return m.Reserved })),
			bytes("gpu_bar1_memory_total_bytes", "Size of the window through which the host maps device memory.", "nvmlDeviceGetBAR1MemoryInfo", "", bar1(func(b gpu.BAR1) gpu.Bytes { return b.Total })),
			bytes("gpu_bar1_memory_used_bytes", "Part of the window that is mapped; recent drivers map all of it, which is no leak.", "nvmlDeviceGetBAR1MemoryInfo", "", bar1(func(b gpu.BAR1) gpu.Bytes { return b.Used })),
		},
	}
}
