package catalog

import "github.com/gpu-exporter/gpu-exporter/internal/gpu"

func identity() Group {
	return Group{
		Title: "Identity and state",
		Intro: "Which GPUs there are, whether each can be read, and where each of its seconds went. A GPU that cannot be read keeps the families of this chapter, its XIDs and its allocation; all its other values end.",
		Examples: []Example{
			{"Which GPUs are broken?", `gpu_device_up == 0`},
			{"Where did the GPUs of the fleet spend the last hour, in GPUs?", `sum by (state) (increase(gpu_time_seconds_total[1h])) / 3600`},
		},
		Rows: []Family{
			{Name: "gpu_info", Type: Info, Scope: ScopeGPU, Stability: Stable,
				Help:   "What the GPU is; 1.",
				Source: "nvmlDeviceGetName, GetBrand, GetArchitecture, GetCudaComputeCapability, GetPciInfo, GetMinorNumber, GetSerial, GetBoardPartNumber, GetVbiosVersion; numa_node of the PCI device in sysfs",
				Labels: []string{"model", "brand", "architecture", "compute_capability", "pci_bus_id", "minor_number", "serial", "board_part", "vbios_version", "numa_node"},
				Read: devs(func(c *gpu.GPU, emit gpuEmit) {
					emit(1, c.Model, c.Brand, c.Architecture, c.ComputeCapability, string(c.PCI), optLabel(c.Minor),
						c.Serial, c.BoardPart, c.VBIOS, optLabel(c.NUMANode))
				})},
			{Name: "gpu_driver_info", Type: Info, Scope: ScopeNode, Stability: Stable,
				Help:   "Versions of the driver and of what it offers; 1.",
				Source: "nvmlSystemGetDriverVersion, GetCudaDriverVersion, GetNVMLVersion",
				Labels: []string{"driver_version", "cuda_version", "nvml_version"},
				Read: node(func(v *gpu.View, emit gpuEmit) {
					if s, ok := v.System.Get(); ok {
						emit(1, s.DriverVersion, s.CUDAVersion, s.NVMLVersion)
					}
				})},
			{Name: "gpu_device_up", Type: Gauge, Scope: ScopeGPU, Stability: Stable,
				Help: "1 while the GPU can be read; 0 when it is lost, missing, stuck in a call or needs a reset.",
				Read: devs(func(c *gpu.GPU, emit gpuEmit) { emit(b2f(c.State == gpu.DeviceUp)) })},
			{Name: "gpu_last_read_timestamp_seconds", Type: Gauge, Unit: "seconds", Scope: ScopeGPU, Stability: Stable,
				Help:   "When the poll group last read the GPU, Unix time.",
				Labels: []string{"poll"},
				Read: devs(func(c *gpu.GPU, emit gpuEmit) {
					for _, pollGroup := range gpu.DevicePollGroups {
						if t, ok := c.LastRead[pollGroup]; ok {
							emit(unix(t), string(pollGroup))
						}
					}
				})},
			{Name: "gpu_recovery_action", Type: StateSet, Scope: ScopeGPU, Stability: Stable,
				Help: "What the driver wants done with the GPU: 1 for the action that holds.", Source: "NVML field 230", Offered: "R570 and newer drivers",
				Labels: []string{"action"},
				Read: devs(func(c *gpu.GPU, emit gpuEmit) {
					if a, ok := c.Recovery.Get(); ok {
						states(emit, gpu.RecoveryActions, a)
					}
				})},
			{Name: "gpu_node_devices", Type: Gauge, Scope: ScopeNode, Stability: Stable,
				Help:   "GPUs of the node by state. Missing: on the PCI bus and not in NVML. Detached: bound to another driver on purpose.",
				Source: "/sys/bus/pci/devices and NVML",
				Labels: []string{"state"},
				Read: node(func(v *gpu.View, emit gpuEmit) {
					if v.Devices == nil {
						return
					}
					for _, s := range gpu.DeviceStates {
						emit(float64(v.Devices[s]), string(s))
					}
				})},
			{Name: "gpu_time_seconds_total", Type: Counter, Unit: "seconds", Scope: ScopeGPU, Stability: Stable,
				Help:   "Each second of the GPU once: busy first, the rest by held share. Idle: the holder was not busy for 60 s. Unknown: nobody can tell.",
				Labels: []string{"state"},
				Read: devs(func(c *gpu.GPU, emit gpuEmit) {
					if c.GPUSeconds == nil {
						return
					}
					for _, u := range gpu.TimeStates {
						emit(float64(c.GPUSeconds[u]), string(u))
					}
				})},
		},
	}
}

func optLabel(o gpu.Opt[int]) string {
	if v, ok := o.Get(); ok {
		return indexLabel(v)
	}
	return ""
}
