package alerts

// graver selects the GPUs whose state is a page or a ticket of its own: lesser alerts of the same GPU stay silent.
const (
	graver         = "\n  unless on (" + onGPU + ") " + graverProblems
	graverProblems = problemRecord + `{problem=~"` + paged + `|.+_pending|nvlink_down|fabric_.+"}`
)

// paged are the problems for which GPUUnavailable and GPURepairRequired fire. XIDs have an alert of their own, since they
// remain after the repair; what waits for a reset, or for a replacement without haste, is no page.
const (
	unavailable = "lost|missing|reset_required|driver_hung|not_readable"
	repairs     = "recovery_.+|row_remap_failed|sram_threshold|memory_unrepairable"
	paged       = unavailable + "|" + repairs
)

// gpusOf is the number of GPUs of a node, and gpusBefore its maximum in the period.
const (
	gpusOf     = "sum by (cluster, node) (node:gpu_device_up:count)"
	gpusBefore = "max_over_time(" + gpusRecord + "[$period])"
	gpusByNode = "sum by (cluster, node, model) (node:gpu_device_up:count)"
	gpusOfPeer = "max by (cluster, model) (" + gpusByNode + ")"
)

func lost() []Alert {
	return []Alert{
		{Name: "GPUUnavailable", Severity: Critical, Labels: gpuLabels, For: minutes5, Keep: minutes15,
			Dashboard: gpuDashboard,
			Parameters: []Parameter{number("losses", 2, 1, 100, "times within two hours that a GPU becomes unavailable, above which it "+
				"counts as unavailable until it has been available for 30 minutes")},
			// One that comes and goes is never unavailable for long enough. Each loss is a reset, of 1 to 0; changes() in MetricsQL
			// counts the first value of a series too.
			Expr: "max" + byGPU + "(gpu_device_up) == 0\n" +
				`  unless on (cluster, node) (max by (cluster, node) (gpu_exporter_source_up{source="nvml"}) == 0)` +
				"\n  or max" + byGPU + "(resets(gpu_device_up[2h]) > $losses and min_over_time(gpu_device_up[30m]) == 0)\n" +
				`    unless on (cluster, node) (max by (cluster, node) (min_over_time(gpu_exporter_source_up{source="nvml"}[30m])) == 0)`,
			Summary: "A GPU is unavailable.",
			Description: atGPU + " does not respond, or the driver did not initialize it: it fell off the bus, is hung in " +
				"a driver call, or needs a reset; or it comes and goes. " +
				"Cordon the node, read dmesg for NVRM lines, then stop the node's GPU monitoring and " + resetByUUID +
				", or reboot the node."},
		{Name: "GPURepairRequired", Severity: Critical, Labels: append([]string{"state"}, gpuLabels...),
			For: 2 * minute, Keep: minutes5, Dashboard: gpuDashboard,
			Expr: "max" + byGPUAnd("state") + `(gpu_health{state=~"degraded|needs_reset|needs_reboot|replace"} == 1)` +
				"\n  and on (" + onGPU + `) gpu_health_reason_info{reason=~"` + repairs + `"}` +
				"\n  unless on (" + onGPU + ") (gpu_device_up == 0)",
			Summary: "A GPU has to be reset or replaced, or its node rebooted.",
			Description: "The verdict on " + atGPU + " is {{ $labels.state }}" +
				`{{ with query (printf "gpu_health_reason_info{node=%q,uuid=%q}" $labels.node $labels.uuid) }}: ` +
				`{{ range $i, $r := . }}{{ if $i }}, {{ end }}{{ label "reason" $r }}{{ end }}{{ end }}. ` +
				`{{ if eq $labels.state "needs_reset" }}Cordon the node, agree with the owners of the GPU's pods, stop the ` +
				"node's GPU monitoring and " + resetByUUID + `.` +
				`{{ else if eq $labels.state "needs_reboot" }}Drain the node and restart it.` +
				`{{ else if eq $labels.state "replace" }}Errors will recur: keep the node cordoned and have the GPU replaced. ` +
				`This is an RMA criterion.` +
				`{{ else }}Stop the applications that use NVLink between GPUs, then reset it, or restart the IMEX daemon of the ` +
				`node and its domain: gpu_recovery_action has which.{{ end }}`},
	}
}

// patient are alerts about GPUs for which nobody is called: work that is planned.
func patient() []Alert {
	return []Alert{
		{Name: "GPUMissing", Severity: Warning, Needs: kubeOptional, Labels: []string{"node"}, For: minutes30, Keep: minutes5,
			Dashboard: nodeDashboard,
			Parameters: []Parameter{period(7*day, "lookback for GPUs of the node: so long a node with fewer on purpose counts"),
				number("peers", 0.8, 0.5, 1, "fraction of the nodes with the model, of at least five, that have more")},
			// The PCI bus is searched while NVML responds. A node with half of its peers' GPUs or fewer is a smaller one.
			Expr: "(" + gpusOf + " < " + gpusBefore + "\n  or max by (cluster, node) (" + gpusByNode +
				" < on (cluster, model) group_left () " + gpusOfPeer + "\n    and on (cluster, model) count by (cluster, model) (" +
				gpusByNode + " == on (cluster, model) group_left () " + gpusOfPeer + ") / (count by (cluster, model) (" +
				gpusByNode + ") > 4) >= $peers\n    and " + gpusByNode + " > on (cluster, model) group_left () 0.5 * " + gpusOfPeer +
				"))\n" +
				`  and on (cluster, node) (max by (cluster, node) (gpu_exporter_source_up{source="nvml"}) == 1)` +
				"\n" + `  unless on (cluster, node) (max by (cluster, node) (gpu_node_devices{state="detached"}) > 0)` + closedNodes,
			Summary: "A node has fewer GPUs than before, or than its peers.",
			Description: "{{ $labels.node }} has only " + value3 + `{{ with query (printf "max(max_over_time(` + gpusRecord +
				`{node=%q}[$period])) > sum(node:gpu_device_up:count{node=%q}) or max(node:gpu_device_up:count and on (model) ` +
				`node:gpu_device_up:count{node=%q})" $labels.node $labels.node $labels.node) }} of {{ . | first | value }}{{ end }}` +
				" GPUs, in NVML and on the PCI bus together. " +
				"If none was removed, reboot the node and check power, riser and seating."},
		// Where the exporter alone finds a fault, that is an alert of its own.
		{Name: "GPUVerdictsDisagree", Severity: Warning, Labels: append([]string{"only"}, gpuLabels...),
			For: minutes30, Keep: minutes5, Dashboard: gpuDashboard,
			Expr: `label_replace(group` + byGPU + "(" + tainted + ") unless on (" + onGPU + ") " + healthRecord +
				`, "only", "driver", "", "")` +
				"\n  or label_replace(group" + byGPU + unhealthy + " unless on (" + onGPU + ") (" + healthRecord + " or on (" + onGPU +
				") " + tainted + `), "only", "kubelet", "", "")`,
			Summary: "The kubelet or the DRA driver avoids a GPU that is healthy.",
			Description: `{{ if eq $labels.only "driver" }}The DRA driver has tainted ` + atGPU +
				", so that no pod is placed on it, and the exporter " +
				"finds it healthy: gpu_taint_info has the reason. If the fault has passed, remove the taint." +
				`{{ else }}The device plugin has reported ` + atGPU +
				" as unhealthy, so that the kubelet places no pod on it, and the exporter finds it healthy. " +
				"If the fault has passed, restart the device plugin.{{ end }}"},
	}
}
