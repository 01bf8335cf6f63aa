package alerts

func lost() []Alert {
	return []Alert{
		{Name: "GPUDeviceDown", Severity: Critical, Labels: gpuLabels, For: minutes5, Keep: minutes5,
			Dashboard: gpuDashboard,
			Expr:      "max" + byGPU + "(gpu_device_up) == 0",
			Summary:   "A GPU is unavailable.",
			Description: atGPU + " does not respond: it fell off the bus, is hung in a driver call, or needs a " +
				"reset. " +
				"Cordon the node, read dmesg for NVRM lines, then stop all GPU clients of the node and " + resetByUUID +
				", or reboot the node."},
		{Name: "GPUDeviceMissing", Severity: Critical, Labels: []string{"node"}, For: minutes10, Keep: minutes5,
			Dashboard: nodeDashboard,
			Expr:      `max by (cluster, node) (gpu_node_devices{state="missing"}) > 0`,
			Summary:   "A GPU on the PCI bus is missing in NVML.",
			Description: value3 + " GPUs of {{ $labels.node }} are on the PCI bus but not in NVML. " +
				"The driver failed to initialize them: look for NVRM and RmInitAdapter lines in dmesg, restart the " +
				"node, and have the GPU checked if that does not help."},
		{Name: "GPUDisappeared", Severity: Critical, Labels: gpuLabels, For: minutes10, Keep: minutes5,
			Dashboard:  gpuDashboard,
			Parameters: []Parameter{period(6*hour, "lookback for GPUs")},
			Expr: "group" + byGPU + `(last_over_time(gpu_device_up{uuid!~".*:.*"}[$period:5m]))` + " unless on (" +
				onGPU + ") gpu_device_up\n" + // before the driver is loaded, the PCI address is the uuid
				`  and on (cluster, node) (gpu_exporter_source_up{source="nvml"} == 1)`,
			Summary: "A GPU disappeared from NVML and the PCI bus.",
			Description: atGPU + " is neither in NVML nor on the PCI bus any more, while the other GPUs of the node " +
				"are. " +
				"If it was not removed or bound to another driver, restart the node and check power, riser and " +
				"seating."},
		{Name: "GPUDeviceDetached", Severity: Info, Off: true, Labels: []string{"node"}, For: hour, Keep: minutes5,
			Dashboard: nodeDashboard,
			Expr:      `max by (cluster, node) (gpu_node_devices{state="detached"}) > 0`,
			Summary:   "A GPU is bound to a driver other than NVIDIA's.",
			Description: value3 + " GPUs of {{ $labels.node }} are bound to another driver, such as vfio-pci. " +
				"On a virtual machine host this is intended; otherwise bind them to nvidia again."},
		{Name: "GPURecoveryActionRequired", Severity: Critical, Labels: append([]string{"action"}, gpuLabels...),
			For: 2 * minute, Keep: minutes5, Dashboard: gpuDashboard,
			Expr:    `max by (cluster, node, uuid, gpu, action) (gpu_recovery_action{action!="none"}) == 1`,
			Summary: "The driver recommends a recovery action for a GPU.",
			Description: "The driver recommends action {{ $labels.action }} for " + atGPU + ". " +
				`{{ if eq $labels.action "reset" }}Delete its pods, stop all GPU clients of the node and ` +
				resetByUUID + `.` +
				`{{ else if eq $labels.action "drain_p2p" }}Stop the applications that use NVLink between GPUs, then reset it.` +
				`{{ else if eq $labels.action "drain_and_reset" }}Cordon the node, let its pods finish, then reset the GPU.` +
				`{{ else if eq $labels.action "recover_imex" }}Restart the IMEX daemon of the node and its domain.` +
				`{{ else if eq $labels.action "bus_reset" }}Drain the node and reset the GPU by its PCI bus.` +
				`{{ else }}Drain the node and restart it.{{ end }}`},
		{Name: "GPUModeChangePending", Severity: Info, Labels: append([]string{"mode"}, gpuLabels...), For: hour,
			Keep: minutes5, Dashboard: gpuDashboard,
			Expr: `label_replace(max` + byGPU + `(gpu_mig_mode != on (` + onGPU +
				`, gpu) gpu_mig_mode_pending), "mode", "mig", "", "")
  or label_replace(max` + byGPU + `(gpu_ecc_mode != on (` + onGPU +
				`, gpu) gpu_ecc_mode_pending), "mode", "ecc", "", "")`,
			Summary: "A mode change of a GPU is pending until a reset.",
			Description: "The {{ $labels.mode }} mode of " + atGPU + " was changed but is not in effect yet. " +
				"Delete its pods, stop all GPU clients of the node and " + resetByUUID + "."},
	}
}
