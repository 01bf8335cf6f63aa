package compat

// gap is something of the old exporter that is not rendered.
type gap struct {
	what, why string
	instead   []string // families of the catalog that answer the same question
}

// missing lists what has no row. NVML cannot tell the first of them; the others are not read.
func missing() []gap {
	return []gap{
		{"`DCGM_FI_PROF_*` other than `GR_ENGINE_ACTIVE` and PCIe before Hopper, and `DCGM_FI_PROF_*_CYCLES_*_TOTAL` on every GPU", "NVML has profiling figures from Hopper on, and they are read as ratios here; the rest takes DCGM's profiling module and its rights", []string{"gpu_busy_seconds_total", "gpu_memory_busy_seconds_total"}},
		{"`DCGM_EXP_GPU_HEALTH_STATUS`", "the judgement of DCGM's health module, which NVML does not have", []string{"gpu_recovery_action", "gpu_device_up"}},
		{"NVSwitch, link, CPU and CPU core families", "no entities of NVML", nil},
		{"`DCGM_FI_DEV_FABRIC_MANAGER_STATUS`, `DCGM_FI_DEV_FABRIC_MANAGER_ERROR_CODE`", "DCGM asks the fabric manager's service", []string{"gpu_fabric_state"}},
		{"`DCGM_FI_DEV_FABRIC_HEALTH_SUMMARY`, `DCGM_FI_DEV_FABRIC_HEALTH_MASK`", "the mask is taken apart here, its summary is not read", []string{"gpu_fabric_fault"}},
		{"`DCGM_FI_DEV_CLOCKS_EVENT_REASONS`, `DCGM_EXP_CLOCK_EVENTS_COUNT`, `DCGM_EXP_CLOCK_EVENTS_TOTAL`", "a mask of a moment misses what comes and goes between two looks; the driver's counters of limited time are read instead", []string{"gpu_clock_limited_seconds_total"}},
		{"`DCGM_FI_DEV_LOW_UTIL_VIOLATION`", "idle is no limit", []string{"gpu_time_seconds_total"}},
		{"`DCGM_FI_PROF_PCIE_TX_BYTES_TOTAL`, `DCGM_FI_PROF_PCIE_RX_BYTES_TOTAL`", "DCGM counts them by profiling, headers included; NVML's counters stand under their own names", []string{"gpu_pcie_transmit_bytes_total", "gpu_pcie_receive_bytes_total"}},
		{"`DCGM_FI_DEV_NVLINK_BANDWIDTH_L0` and the other single links, `DCGM_EXP_P2P_STATUS`", "links are read as a sum", []string{"gpu_nvlink_transmit_bytes_total", "gpu_nvlink_links"}},
		{"`DCGM_FI_DEV_NVLINK_RECOVERY_SUCCESSFUL_TOTAL`, `DCGM_FI_DEV_NVLINK_RECOVERY_FAILED_TOTAL`", "recoveries are counted together", []string{"gpu_nvlink_errors_total"}},
		{"`DCGM_FI_DEV_VGPU_LICENSE_STATUS` and other vGPU families", "not read", nil},
		{"label `vgpu`", "the replica's number is no property of its holder: several replicas of one GPU are one holding of a larger share", []string{"gpu_container_allocation_ratio"}},
		{"labels `pod_uid`, the pod's own labels, `dra_*`", "facts stand in one series per pod, to be joined: `* on (namespace, pod) group_left (pod_uid) gpu_pod_info`", []string{"gpu_pod_info"}},
		{"label `GPU_CI_ID` (4.8.4)", "readings are those of the GPU instance", []string{"gpu_mig_info"}},
		{"label-typed fields other than the driver's version (`DCGM_FI_NVML_VERSION`, brand, serial, VBIOS, infoROM)", "facts stand in one series per GPU; infoROM versions are not read", []string{"gpu_info", "gpu_driver_info"}},
	}
}
