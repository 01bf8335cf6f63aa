package alerts

func links() []Alert {
	return []Alert{
		{Name: "GPUNVLinkDown", Severity: Critical, Labels: gpuLabels, For: minutes5, Keep: minutes5,
			Dashboard:  gpuDashboard,
			Parameters: []Parameter{period(6*hour, "lookback for lost links")},
			Expr: `max` + byGPU + `(gpu_nvlink_links{state="up"}) < max` + byGPU +
				`(max_over_time(gpu_nvlink_links{state="up"}[$period:5m]))
  or (max` + byGPU + `(gpu_nvlink_links{state="up"}) > 0)
    < on (cluster, node) group_left () max by (cluster, node) (gpu_nvlink_links{state="up"})`,
			Summary: "A GPU has lost an NVLink.",
			Description: atGPU + " has only " + value3 +
				" NVLinks up, fewer than before or than its neighbors. Multi-GPU applications are slow or fail. " +
				"Check nvidia-smi nvlink --status and the fabric manager, then reset the node's GPUs; have the " +
				"baseboard checked if it persists."},
		{Name: "GPUNVLinkErrors", Severity: Warning, Labels: append([]string{"kind"}, gpuLabels...), For: minutes15,
			Keep: minutes15, Dashboard: gpuDashboard,
			Parameters: []Parameter{period(minutes15, "period in which errors are counted"),
				number("errors", 10, 0, 1e9, "errors of one kind in the period")},
			// Symbol errors are corrected by forward error correction.
			Expr:    `sum by (cluster, node, uuid, gpu, kind) (increase(gpu_nvlink_errors_total{kind!="symbol"}[$period])) > $errors`,
			Summary: "NVLink errors on a GPU.",
			Description: "The NVLinks of " + atGPU + " had " + value3 +
				" {{ $labels.kind }} errors within $period. Transfers are retried and slow. " +
				"Compare both ends with nvidia-smi nvlink --errorcounters; a single faulty pair indicates a cable, a " +
				"switch or the seating."},
		{Name: "GPUFabricUnhealthy", Severity: Critical, Labels: append([]string{"problem"}, gpuLabels...),
			For: minutes10, Keep: minutes5, Dashboard: gpuDashboard,
			Expr: `max by (cluster, node, uuid, gpu, problem) (
  label_replace(gpu_fabric_state{state!="completed"} == 1, "problem", "$1", "state", "(.+)")
  or label_replace(gpu_fabric_fault == 1, "problem", "$1", "fault", "(.+)")
)`,
			Summary: "The NVSwitch fabric reports a problem with a GPU.",
			Description: "The fabric reports {{ $labels.problem }} for " + atGPU +
				". CUDA may fail to start there, or run without NVLink. " +
				"Check the fabric manager (systemctl status nvidia-fabricmanager; on multi-node systems IMEX too) " +
				"and restart it while the node is drained."},
		{Name: "GPUPCIeDegraded", Severity: Warning, Labels: gpuLabels, For: minutes15, Keep: minutes15,
			Dashboard: gpuDashboard,
			Parameters: []Parameter{
				period(6*hour, "lookback for the number of PCIe lanes"),
				number("busy", 0.3, 0.01, 0.99, "utilization from which a low generation is not power saving"),
			},
			// Slots with half the lanes are common, especially in clouds: there the GPU never had more, nor have its
			// neighbors.
			Expr: `max` + byGPU + `(gpu_pcie_link_width / on (` + onGPU + `, gpu) gpu_pcie_link_width_max) < 1
    and (
      max` + byGPU + `(gpu_pcie_link_width) < max` + byGPU + `(max_over_time(gpu_pcie_link_width[$period:5m]))
      or max` + byGPU +
				`(gpu_pcie_link_width) < on (cluster, node) group_left () max by (cluster, node) (gpu_pcie_link_width)
    )
  or max` + byGPU + `(gpu_pcie_link_generation / on (` + onGPU + `, gpu) gpu_pcie_link_generation_max) < 1
    and max` + byGPU + `(rate(gpu_busy_seconds_total[5m]) / (rate(gpu_observed_seconds_total[5m]) > 0)) > $busy`,
			Summary: "The PCIe link of a GPU is degraded.",
			Description: "The PCIe link of " + atGPU + " runs at " + asPercent +
				" of its PCIe lanes or of its generation while busy. " +
				"Reseat the GPU, clean the slot, check riser and BIOS settings; lspci -vv shows LnkSta beside LnkCap."},
		{Name: "GPUPCIeReplaysHigh", Severity: Warning, Labels: gpuLabels, For: minutes30, Keep: minutes15,
			Dashboard:  gpuDashboard,
			Parameters: []Parameter{number("replays", 8, 0, 1e6, "replays per minute")},
			Expr:       "sum" + byGPU + "(rate(gpu_pcie_replays_total[15m])) * 60 > $replays",
			Summary:    "High rate of PCIe replays on a GPU.",
			Description: atGPU + " replays " + value3 + " PCIe packets per minute: the link is faulty. " +
				"Reseat GPU and riser; if it persists, try another slot to find which of the two is faulty."},
	}
}
