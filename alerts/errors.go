package alerts

import "github.com/gpu-exporter/gpu-exporter/internal/gpu"

// reported are errors that the driver reports. What they lead to is known some scrapes and evaluations later, and is an alert of its
// own: those of errors wait for it.
func reported() []Alert {
	labels := append([]string{"xid"}, gpuLabels...)
	recent := []Parameter{period(minutes30, "time after an event")}
	return []Alert{
		// A driver of R570 or newer recommends an action, which is an alert of its own and ends with the repair; without
		// one the error stays for a day, or until the exporter is restarted with the GPU or the node.
		{Name: "GPUXIDFatal", Severity: Critical, Labels: labels, For: minutes5, Keep: minutes15,
			Parameters: append([]Parameter{{Name: "repair", Duration: day,
				Help: "the same without recommended actions (before R570)"}}, recent...),
			Dashboard: gpuDashboard,
			// What was a page in the period is not a second one after its repair.
			Expr: "(" + recentXID(`{xid=~"`+xidPattern(gpu.XIDCritical)+`"}`) + "\n  or group by (" + onXID + ") (" +
				`time() - gpu_xid_last_timestamp_seconds{xid=~"` + xidPattern(gpu.XIDCritical) +
				`"} < $repair_seconds and on (` + onXID + ") " + xidRecord + ") unless on (" + onGPU +
				`) gpu_recovery_action)` + "\n  unless on (" + onGPU + ") last_over_time(" + graverProblems + "[$period])",
			Summary:     "A GPU reported a fatal error.",
			Description: "XID {{ $labels.xid }} on " + atGPU + ". " + describeXID(gpu.XIDCritical)},
		{Name: "GPUXIDWarning", Severity: Warning, Labels: labels, For: minutes5, Keep: minutes15, Parameters: recent,
			Dashboard: gpuDashboard,
			Expr: recentXID(`{xid!~"`+xidPattern(gpu.XIDCritical, gpu.XIDApplication, gpu.XIDInfo)+`"}`) +
				graver,
			Summary:     "A GPU reported an error that may recur.",
			Description: "XID {{ $labels.xid }} on " + atGPU + ". " + describeXID(gpu.XIDWarning)},
		{Name: "GPUXIDApplication", Severity: Info, Labels: labels, For: minutes5, Keep: minutes10, Parameters: recent,
			Dashboard: gpuDashboard,
			Expr:      recentXID(`{xid=~"`+xidPattern(gpu.XIDApplication)+`"}`) + graver,
			Summary:   "An application failed on a GPU.",
			Description: "XID {{ $labels.xid }} on " + atGPU + ": most likely an application fault, not a GPU fault. " +
				describeXID(gpu.XIDApplication)},
		{Name: "GPUUncorrectedECC", Severity: Warning, Labels: gpuLabels, For: minutes5, Keep: minutes30, Parameters: recent,
			Dashboard: gpuDashboard,
			// The driver reports most of them as XID 48, 94, 95 or 140 as well, of which there is an alert.
			Expr: "max" + byGPU + "(" + uncorrected + " > min_over_time(" + uncorrected + "[$period])\n  or " + uncorrected +
				" unless last_over_time(" + uncorrected + "[1h] offset $period) and on (" + onGPU +
				") (gpu_device_up offset $period == 1))" + graver + "\n  unless on (" + onGPU +
				`) time() - gpu_xid_last_timestamp_seconds{xid=~"48|94|95|140"} < $period_seconds`,
			Summary: "Uncorrected memory errors on a GPU.",
			Description: atGPU + " has counted " + value3 + " uncorrected memory errors since the driver was loaded, some of " +
				"them just now. Applications on it have failed. Move its pods away and reset the GPU so that the " +
				"rows are remapped; if it recurs, run NVIDIA's field diagnostic and replace it."},
	}
}

// memory are alerts about memory that fails slowly, or without correction.
func memory() []Alert {
	return []Alert{
		{Name: "GPURepairPending", Severity: Warning, Labels: gpuLabels, For: minutes5, Keep: minutes5,
			Dashboard: gpuDashboard,
			Expr: "max" + byGPU + `(gpu_health_reason_info{reason=~".+_pending"})` + "\n  unless on (" + onGPU + ") " + problemRecord +
				`{problem=~"` + paged + `"}`,
			Summary: "A GPU needs a reset to repair itself.",
			Description: atGPU + " will remap a faulty memory row, retire a page, or repair a memory channel or a TPC at its " +
				"next reset. Cordon the node, let the pods on the GPU finish, stop the node's GPU monitoring and " + resetByUUID +
				"."},
		{Name: "GPUMemorySparesLow", Severity: Warning, Labels: gpuLabels, For: minutes15, Keep: minutes5,
			Dashboard: gpuDashboard,
			Parameters: []Parameter{number("pages", 60, 1, 64,
				"retired pages from which a GPU should be replaced; the maximum is 64")},
			Expr: "max" + byGPU + `(gpu_row_remap_banks{availability="none"}) > 0` + "\n  or sum" + byGPU +
				"(gpu_retired_pages_total) >= $pages",
			Summary: "The memory of a GPU has hardly any spare rows or pages left.",
			Description: atGPU + " has memory banks without spare rows, or has retired at least $pages of at most 64 pages " +
				"(" + value3 + "). The next faulty row cannot be repaired. " +
				"Plan to replace the GPU: 60 pages are an RMA criterion."},
	}
}
