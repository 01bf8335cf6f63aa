package catalog

import "github.com/gpu-exporter/gpu-exporter/internal/gpu"

func identity() Group {
	return Group{
		Name:  "identity",
		Title: "Identity and state",
		Rows: []Family{
			{Name: "gpu_info", Scope: ScopeGPU,
				Help: "Properties of the GPU.",
				Source: "nvmlDeviceGetName, GetBrand, GetArchitecture, GetCudaComputeCapability, GetPciInfo, " +
					"GetMinorNumber, GetSerial, GetBoardPartNumber, GetVbiosVersion; numa_node of the PCI device in " +
					"sysfs",
				Labels: []string{"model", "brand", "architecture", "compute_capability", "pci_bus_id", "minor_number",
					"serial", "board_part", "vbios_version", "numa_node"},
				Read: allGPUs(func(c *gpu.GPU, emit gpuEmit) {
					emit(1, c.Model, c.Brand, c.Architecture, c.ComputeCapability, string(c.PCI), optLabel(c.Minor),
						c.Serial, c.BoardPart, c.VBIOS, optLabel(c.NUMANode))
				})},
			{Name: "gpu_firmware_info", Scope: ScopeGPU,
				Help:   "Firmware versions of the GPU.",
				Source: "nvmlDeviceGetInforomImageVersion, GetInforomVersion, GetGspFirmwareVersion",
				Labels: []string{"inforom_image", "inforom_oem", "inforom_ecc", "inforom_power", "gsp_version"},
				Read: allGPUs(func(c *gpu.GPU, emit gpuEmit) {
					if f := c.Firmware; f != (gpu.Firmware{}) {
						emit(1, f.InforomImage, f.InforomOEM, f.InforomECC, f.InforomPower, f.GSP)
					}
				})},
			{Name: "gpu_platform_info", Scope: ScopeGPU,
				Help:   "Place of the GPU in its rack: chassis, slot, tray, host and module.",
				Source: "nvmlDeviceGetPlatformInfo", Offered: "Blackwell and newer in a rack-scale system",
				Labels: []string{"chassis_serial", "slot", "tray", "host", "module", "peer_type"},
				Read: allGPUs(func(c *gpu.GPU, emit gpuEmit) {
					if p := c.Platform; p.Known {
						emit(1, p.ChassisSerial, indexLabel(p.Slot), indexLabel(p.Tray), indexLabel(p.Host),
							indexLabel(p.Module), indexLabel(p.PeerType))
					}
				})},
			{Name: "gpu_driver_info", Scope: ScopeNode,
				Help:   "Versions of the driver, CUDA and NVML.",
				Source: "nvmlSystemGetDriverVersion, GetCudaDriverVersion, GetNVMLVersion",
				Labels: []string{"driver_version", "cuda_version", "nvml_version"},
				Read: node(func(v *gpu.View, emit gpuEmit) {
					if s, ok := v.System.Get(); ok {
						emit(1, s.DriverVersion, s.CUDAVersion, s.NVMLVersion)
					}
				})},
			{Name: "gpu_device_up", Scope: ScopeGPU,
				Help: "Whether the GPU is readable; 0 if it is lost, missing, hung or needs a reset.",
				Read: allGPUs(func(c *gpu.GPU, emit gpuEmit) { emit(b2f(c.State == gpu.DeviceUp)) })},
			{Name: "gpu_health", Type: StateSet, Scope: ScopeGPU,
				Help: "Verdict on the GPU from recovery action, XIDs, memory errors, fabric and links; 1 for the current " +
					"state. needs_reset, needs_reboot, replace and lost require an action.",
				Source: "the rules of docs/troubleshooting.md", Labels: []string{"state"}, States: names(gpu.HealthStates),
				Read: health(func(verdict gpu.HealthState, _ []gpu.HealthRule, emit gpuEmit) {
					emit(1, string(verdict))
				})},
			{Name: "gpu_health_reason_info", Scope: ScopeGPU,
				Help:   "Reasons for the verdict on a GPU that is not healthy, each with the verdict it leads to.",
				Source: "the rules of docs/troubleshooting.md", Offered: "GPUs that are not healthy", Labels: []string{"reason", "state"},
				Read: health(func(_ gpu.HealthState, reasons []gpu.HealthRule, emit gpuEmit) {
					for _, r := range reasons {
						emit(1, r.Reason, string(r.Verdict))
					}
				})},
			{Name: "gpu_taint_info", Scope: ScopeGPU, Stability: Experimental,
				Help: "Taints that the DRA driver has set on the GPU or a MIG device of it. Pods are not placed on a device " +
					"with the effect NoSchedule, and evicted from one with NoExecute.",
				Source: "spec.devices[].taints of the node's ResourceSlices", Offered: "with --kubernetes.resource-slices",
				Labels: []string{"key", "value", "effect"},
				Read: allGPUs(func(c *gpu.GPU, emit gpuEmit) {
					for _, t := range c.Taints {
						emit(1, t.Key, t.Value, t.Effect)
					}
				})},
			{Name: "gpu_kubelet_healthy", Scope: ScopeGPU, Stability: Experimental,
				Help: "Whether the kubelet reports the GPU's devices as healthy. 0: an allocated one, or all of them, are no longer " +
					"allocatable, while other devices of the resource are.",
				Source: "kubelet PodResources, GetAllocatableResources and List", Offered: "GPUs offered by a device plugin",
				Read: allGPUs(func(c *gpu.GPU, emit gpuEmit) { optFlag(emit, c.KubeletHealthy) })},
			{Name: "gpu_last_read_timestamp_seconds", Scope: ScopeGPU,
				Help:   "Unix time of the last successful poll of the GPU, by poll group.",
				Labels: []string{"poll"},
				Read: allGPUs(func(c *gpu.GPU, emit gpuEmit) {
					for _, pollGroup := range gpu.DevicePollGroups {
						if t, ok := c.LastRead[pollGroup]; ok {
							emit(unix(t), string(pollGroup))
						}
					}
				})},
			{Name: "gpu_recovery_action", Type: StateSet, Scope: ScopeGPU,
				Help: "Recovery action recommended by the driver; 1 for the current action.", Source: "NVML field 230",
				Offered: "R570 and newer drivers",
				Labels:  []string{"action"}, States: names(gpu.RecoveryActions),
				Read: allGPUs(func(c *gpu.GPU, emit gpuEmit) {
					if a, ok := c.Recovery.Get(); ok {
						emit(1, string(a))
					}
				})},
			{Name: "gpu_node_devices", Scope: ScopeNode,
				Help: "GPUs of the node by state. missing: on the PCI bus or expected, but not in NVML. detached: " +
					"bound to another driver.",
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
			{Name: "gpu_time_seconds_total", Scope: ScopeGPU,
				Help: "GPU-time by state; each second is counted in exactly one state. Where nothing allocates GPUs, the host has " +
					"them: time that is not busy is gap or idle.",
				Labels: []string{"state"},
				Created: allGPUs(func(c *gpu.GPU, emit gpuEmit) {
					for _, u := range gpu.TimeStates {
						emitCreated(emit, c.Created, string(u))
					}
				}),
				Read: allGPUs(func(c *gpu.GPU, emit gpuEmit) {
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

// health reads the verdict on each GPU.
func health(read func(gpu.HealthState, []gpu.HealthRule, gpuEmit)) func(*gpu.View, Emit) {
	return func(v *gpu.View, emit Emit) {
		allGPUs(func(c *gpu.GPU, emit gpuEmit) {
			verdict, reasons := c.Health(v.At)
			read(verdict, reasons, emit)
		})(v, emit)
	}
}
