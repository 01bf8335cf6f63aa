package alerts

func lost() []Alert {
	return []Alert{
		{Name: "GPUDeviceDown", Severity: Critical, Labels: gpuLabels, For: minutes5, Keep: minutes5, Dashboard: gpuDashboard,
			Expr:    "max" + byGPU + "(gpu_device_up) == 0",
			Summary: "A GPU can no longer be read.",
			Description: atGPU + " does not answer: it fell off the bus, hangs in a driver call, or wants a reset. " +
				"Cordon the node, read dmesg for NVRM lines, then stop all GPU clients of the node and " + resetByUUID + ", or reboot the node."},
		{Name: "GPUDeviceMissing", Severity: Critical, Labels: []string{"node"}, For: minutes10, Keep: minutes5, Dashboard: nodeDashboard,
			Expr:    `max by (cluster, node) (gpu_node_devices{state="missing"}) > 0`,
			Summary: "The driver does not see a GPU that is on the PCI bus.",
			Description: value3 + " GPUs of {{ $labels.node }} are on the PCI bus and not in NVML. " +
				"The driver failed to start them: read dmesg for NVRM and RmInitAdapter lines, restart the node, and have the GPU looked at if that does not help."},
		{Name: "GPUDisappeared", Severity: Critical, Labels: gpuLabels, For: minutes10, Keep: minutes5, Dashboard: gpuDashboard,
			Parameters: []Parameter{period(6*hour, "time for which a GPU that has gone is remembered")},
			Expr: "group" + byGPU + `(last_over_time(gpu_device_up{uuid!~".*:.*"}[$period:5m]))` + " unless on (" + onGPU + ") gpu_device_up\n" + // before the driver comes a GPU goes by its PCI address
				`  and on (cluster, node) (gpu_exporter_source_up{source="nvml"} == 1)`,
			Summary: "A GPU has vanished without a trace.",
			Description: atGPU + " was there, and now neither the driver nor the PCI bus knows it, while the others of the node are well. " +
				"If nobody took it out or moved it to another driver, restart the node and check power, riser and seating."},
		{Name: "GPUDeviceDetached", Severity: Info, Off: true, Labels: []string{"node"}, For: hour, Keep: minutes5, Dashboard: nodeDashboard,
			Expr:    `max by (cluster, node) (gpu_node_devices{state="detached"}) > 0`,
			Summary: "A GPU is bound to another driver than NVIDIA's.",
			Description: value3 + " GPUs of {{ $labels.node }} are bound to another driver, such as vfio-pci. " +
				"On a host of virtual machines this is meant; elsewhere bind them to nvidia again."},
		{Name: "GPURecoveryActionRequired", Severity: Critical, Labels: append([]string{"action"}, gpuLabels...), For: 2 * minute, Keep: minutes5, Dashboard: gpuDashboard,
			Expr:    `max by (cluster, node, uuid, gpu, action) (gpu_recovery_action{action!="none"}) == 1`,
			Summary: "The driver asks for a GPU to be recovered.",
			Description: "The driver wants {{ $labels.action }} for " + atGPU + ". " +
				`{{ if eq $labels.action "reset" }}Delete its pods, stop all GPU clients of the node and ` + resetByUUID + `.` +
				`{{ else if eq $labels.action "drain_p2p" }}Stop the work that uses NVLink between GPUs, then reset it.` +
				`{{ else if eq $labels.action "drain_and_reset" }}Cordon the node, let its pods end, then reset the GPU; running work may go on until then.` +
				`{{ else if eq $labels.action "recover_imex" }}Restart the IMEX daemon of the node and its domain.` +
				`{{ else if eq $labels.action "bus_reset" }}Drain the node and reset the GPU by its PCI bus.` +
				`{{ else }}Drain the node and restart it.{{ end }}`},
		{Name: "GPUModeChangePending", Severity: Info, Labels: append([]string{"mode"}, gpuLabels...), For: hour, Keep: minutes5, Dashboard: gpuDashboard,
			Expr: `label_replace(max` + byGPU + `(gpu_mig_mode != on (` + onGPU + `, gpu) gpu_mig_mode_pending), "mode", "mig", "", "")
  or label_replace(max` + byGPU + `(gpu_ecc_mode != on (` + onGPU + `, gpu) gpu_ecc_mode_pending), "mode", "ecc", "", "")`,
			Summary: "A change of a GPU's mode waits for a reset.",
			Description: "The {{ $labels.mode }} mode of " + atGPU + " was changed and does not hold yet. " +
				"Delete its pods, stop all GPU clients of the node and " + resetByUUID + "."},
	}
}
