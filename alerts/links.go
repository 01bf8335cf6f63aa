package alerts

// lostLinks is evaluated with the alerts about lost GPUs: both are for a person now.
func lostLinks() []Alert {
	return []Alert{
		// A link has two ends, and its GPU several problems: one node is one page.
		{Name: "GPUNVLinkDown", Severity: Critical, Labels: []string{"node"}, For: minutes10,
			Keep: minutes5, Dashboard: nodeDashboard,
			Parameters: []Parameter{period(2*day, "lookback for lost links")},
			Expr: `count by (cluster, node) (
  (max` + byGPU + `(gpu_nvlink_links{state="up"}) < max` + byGPU + `(max_over_time(` + nvlinksRecord + `[$period]))
    or (max` + byGPU + `(gpu_nvlink_links{state="up"}) > 0)
      < on (cluster, node) group_left () max by (cluster, node) (gpu_nvlink_links{state="up"})
    or max` + byGPU + `(gpu_fabric_state{state!="completed"} == 1)
    or max` + byGPU + `(gpu_fabric_fault or gpu_fabric_health{health=~"unhealthy|limited_capacity"}) == 1)
  unless on (` + onGPU + ") " + problemRecord + `{problem=~"` + repairs + `"}
)`,
			Summary: "GPUs have lost an NVLink, or the NVSwitch fabric reports a problem with them.",
			Description: value3 + " GPUs of {{ $labels.node }} have fewer NVLinks than before or than their neighbors, or are not " +
				"registered with the fabric, or it reports a fault of theirs. Multi-GPU applications are slow or fail, and CUDA may " +
				"not start there. Check nvidia-smi nvlink --status and the fabric manager (on multi-node systems " +
				"IMEX too), restart it while the node is drained, then reset the linked GPUs; have the baseboard " +
				"checked if it persists."},
	}
}

func links() []Alert {
	return []Alert{
		{Name: "GPUNVLinkErrors", Severity: Warning, Labels: []string{"node"}, For: minutes15,
			Keep: minutes15, Dashboard: nodeDashboard,
			Parameters: []Parameter{period(minutes15, "period in which errors are counted"),
				number("errors", 10, 0, 1e9, "errors of a GPU in the period")},
			// Symbol errors are corrected by forward error correction.
			Expr: `count by (cluster, node) (sum` + byGPU + `(increase(gpu_nvlink_errors_total{kind!="symbol"}[$period])) > $errors)` +
				"\n  unless on (cluster, node) " + problemRecord + `{problem=~"nvlink_down|fabric_.+"}`,
			Summary: "NVLink errors on GPUs.",
			Description: value3 + " GPUs of {{ $labels.node }} had more than $errors NVLink errors within $period. Transfers are " +
				"retried and slow. Compare both ends with nvidia-smi nvlink --errorcounters; a single faulty pair indicates a " +
				"cable, a switch or the seating."},
		{Name: "GPUPCIeDegraded", Severity: Warning, Labels: append([]string{"problem"}, gpuLabels...),
			For: minutes15, Keep: minutes15,
			Dashboard: gpuDashboard,
			Parameters: []Parameter{
				period(2*day, "lookback for PCIe lanes"),
				number("busy", 0.3, 0.01, 0.99, "utilization from which a low generation counts"),
				number("replays", 8, 0, 1e6, "replays per minute"),
			},
			// Slots with half the lanes are common, especially in clouds: there the GPU never had more, nor have its
			// neighbors.
			Expr: `label_replace(max` + byGPU + `(gpu_pcie_link_width / on (` + onGPU +
				`, gpu) gpu_pcie_link_width_max) < 1
    and (
      max` + byGPU + `(gpu_pcie_link_width) < max` + byGPU + `(max_over_time(` + widthRecord + `[$period]))
      or max` + byGPU +
				`(gpu_pcie_link_width) < on (cluster, node) group_left () max by (cluster, node) (gpu_pcie_link_width)
    ), "problem", "lanes", "", "")
  or label_replace(max` + byGPU + `(gpu_pcie_link_generation / on (` + onGPU +
				`, gpu) gpu_pcie_link_generation_max) < 1
    and max` + byGPU +
				`(rate(gpu_busy_seconds_total[5m]) / (rate(gpu_observed_seconds_total[5m]) > 0)) > $busy, "problem", "generation", "", "")
  or label_replace(sum` + byGPU +
				`(rate(gpu_pcie_replays_total[15m])) * 60 > $replays, "problem", "replays", "", "")`,
			Summary: "The PCIe link of a GPU is degraded.",
			Description: "The PCIe link of " + atGPU + ` {{ if eq $labels.problem "replays" }}replays ` + value3 +
				` packets per minute{{ else }}runs at ` + asPercent + ` of its {{ $labels.problem }}{{ end }}. ` +
				"Reseat GPU and riser, clean the slot, check the BIOS settings; lspci -vv shows LnkSta beside LnkCap."},
	}
}
