package alerts

// graver selects the GPUs whose state is a page or a ticket of its own: lesser alerts of the same GPU stay silent.
const graver = "\n  unless on (" + onGPU + ") " + problemRecord +
	`{problem=~"unreadable|recovery_action|row_remap_failed|nvlink_down|fabric_fault"}`

// gpusOf is the number of GPUs of a node, and gpusBefore its maximum in the period.
const (
	gpusOf     = "sum by (cluster, node) (node:gpu_device_up:count)"
	gpusBefore = "max_over_time(" + gpusOf + "[$period:6h])"
	gpusByNode = "sum by (cluster, node, model) (node:gpu_device_up:count)"
	gpusOfPeer = "max by (cluster, model) (" + gpusByNode + ")"
)

func lost() []Alert {
	return []Alert{
		{Name: "GPUUnavailable", Severity: Critical, Labels: gpuLabels, For: minutes5, Keep: minutes5,
			Dashboard: gpuDashboard,
			Expr: "max" + byGPU + "(gpu_device_up) == 0\n" +
				`  unless on (cluster, node) (max by (cluster, node) (gpu_exporter_source_up{source="nvml"}) == 0)`,
			Summary: "A GPU is unavailable.",
			Description: atGPU + " does not respond, or the driver did not initialize it: it fell off the bus, is hung in " +
				"a driver call, or needs a reset. " +
				"Cordon the node, read dmesg for NVRM lines, then stop all GPU clients of the node and " + resetByUUID +
				", or reboot the node."},
		{Name: "GPUMissing", Severity: Warning, Labels: []string{"node"}, For: minutes30, Keep: minutes5,
			Dashboard: nodeDashboard,
			Parameters: []Parameter{period(30*day, "lookback for the number of GPUs that the node had"),
				number("peers", 0.8, 0.5, 1, "fraction of the nodes with the model that have more GPUs, of at least five")},
			// The PCI bus is searched while NVML responds.
			Expr: "(" + gpusOf + " < " + gpusBefore + "\n  or max by (cluster, node) (" + gpusByNode +
				" < on (cluster, model) group_left () " + gpusOfPeer + "\n    and on (cluster, model) count by (cluster, model) (" +
				gpusByNode + " == on (cluster, model) group_left () " + gpusOfPeer + ") / (count by (cluster, model) (" +
				gpusByNode + ") > 4) >= $peers))\n" +
				`  and on (cluster, node) (max by (cluster, node) (gpu_exporter_source_up{source="nvml"}) == 1)` +
				"\n" + `  unless on (cluster, node) (max by (cluster, node) (gpu_node_devices{state="detached"}) > 0)`,
			Summary: "A node has fewer GPUs than before, or than its peers.",
			Description: "{{ $labels.node }} has only " + value3 + " GPUs, in NVML and on the PCI bus together. " +
				"If none was removed, reboot the node and check power, riser and seating."},
		{Name: "GPURecoveryActionRequired", Severity: Critical, Labels: append([]string{"action"}, gpuLabels...),
			For: 2 * minute, Keep: minutes5, Dashboard: gpuDashboard,
			Expr: "max" + byGPUAnd("action") + `(gpu_recovery_action{action!="none"}) == 1` +
				"\n  unless on (" + onGPU + ") (gpu_device_up == 0)",
			Summary: "The driver recommends a recovery action for a GPU.",
			Description: "The driver recommends action {{ $labels.action }} for " + atGPU + ". " +
				`{{ if eq $labels.action "reset" }}Delete its pods, stop all GPU clients of the node and ` +
				resetByUUID + `.` +
				`{{ else if eq $labels.action "drain_p2p" }}Stop the applications that use NVLink between GPUs, then reset it.` +
				`{{ else if eq $labels.action "drain_and_reset" }}Cordon the node, let its pods finish, then reset the GPU.` +
				`{{ else if eq $labels.action "recover_imex" }}Restart the IMEX daemon of the node and its domain.` +
				`{{ else if eq $labels.action "bus_reset" }}Drain the node and reset the GPU by its PCI bus.` +
				`{{ else }}Drain the node and restart it.{{ end }}`},
	}
}
