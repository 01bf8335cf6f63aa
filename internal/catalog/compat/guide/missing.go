package guide

// omission is something of dcgm-exporter that is not rendered.
type omission struct {
	what, reason string
	instead      []string // families of the catalog that serve the same purpose
}

func missing() []omission {
	return []omission{
		{"`DCGM_FI_PROF_*` other than `GR_ENGINE_ACTIVE` before Hopper, and `DCGM_FI_PROF_*_CYCLES_*_TOTAL`",
			"NVML has profiling values from Hopper on, as ratios, and PCIe counters of 32 bits that need them; the " +
				"others need DCGM's profiling module and its permissions",
			[]string{"gpu_busy_seconds_total", "gpu_memory_busy_seconds_total"}},
		{"NVSwitch, link, CPU and CPU core families", "not in NVML", nil},
		{"`DCGM_FI_DEV_FABRIC_MANAGER_STATUS`, `DCGM_FI_DEV_FABRIC_MANAGER_ERROR_CODE`",
			"read from the fabric manager service",
			[]string{"gpu_fabric_state"}},
		{"`DCGM_FI_DEV_FABRIC_HEALTH_SUMMARY`, `DCGM_FI_DEV_FABRIC_HEALTH_MASK`",
			"the mask is exported by fault, the summary is not read",
			[]string{"gpu_fabric_fault"}},
		{"`DCGM_EXP_CLOCK_EVENTS_TOTAL`", "a mask read at intervals cannot be counted; the driver's counters of limited " +
			"time are exported instead", []string{"gpu_clock_limited_seconds_total"}},
		{"`DCGM_FI_DEV_LOW_UTIL_VIOLATION`", "idle is not a limit", []string{"gpu_time_seconds_total"}},
		{"`DCGM_FI_PROF_PCIE_TX_BYTES_TOTAL`, `DCGM_FI_PROF_PCIE_RX_BYTES_TOTAL`",
			"DCGM counts them by profiling, with headers; NVML's counters have their own names",
			[]string{"gpu_pcie_transmit_bytes_total", "gpu_pcie_receive_bytes_total"}},
		{"`DCGM_FI_DEV_NVLINK_BANDWIDTH_L0` and other single links, `DCGM_EXP_P2P_STATUS`",
			"links are exported as a sum",
			[]string{"gpu_nvlink_transmit_bytes_total", "gpu_nvlink_links"}},
		{"`DCGM_FI_DEV_NVLINK_RECOVERY_SUCCESSFUL_TOTAL`, `DCGM_FI_DEV_NVLINK_RECOVERY_FAILED_TOTAL`",
			"recoveries are counted together", []string{"gpu_nvlink_errors_total"}},
		{"`DCGM_FI_DEV_VGPU_LICENSE_STATUS` and other vGPU families", "not read", nil},
		{"the name of a Docker container as container (4.8.3)", "`pod` has it, as `docker/NAME`, or `docker/ID`", nil},
	}
}
