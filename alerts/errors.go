package alerts

import "github.com/gpu-exporter/gpu-exporter/internal/gpu"

func reported() []Alert {
	labels := append([]string{"xid"}, gpuLabels...)
	recent := []Parameter{period(minutes10, "time after an event in which the alert is raised")}
	return []Alert{
		{Name: "GPUXIDFatal", Severity: Critical, Labels: labels, Keep: minutes30, Parameters: recent, Dashboard: gpuDashboard,
			Expr:        happenedXID(`{xid=~"` + xidPattern(gpu.XIDCritical) + `"}`),
			Summary:     "A GPU reported an error from which it does not recover by itself.",
			Description: "XID {{ $labels.xid }} on " + atGPU + ". " + describeXID(gpu.XIDCritical)},
		{Name: "GPUXIDWarning", Severity: Warning, Labels: labels, Keep: minutes15, Parameters: recent, Dashboard: gpuDashboard,
			Expr:        happenedXID(`{xid!~"` + xidPattern(gpu.XIDCritical, gpu.XIDApplication, gpu.XIDInfo) + `"}`),
			Summary:     "A GPU reported an error that may return.",
			Description: "XID {{ $labels.xid }} on " + atGPU + ". " + describeXID(gpu.XIDWarning)},
		{Name: "GPUXIDApplication", Severity: Info, Labels: labels, Keep: minutes10, Parameters: recent, Dashboard: gpuDashboard,
			Expr:        happenedXID(`{xid=~"` + xidPattern(gpu.XIDApplication) + `"}`),
			Summary:     "A program on a GPU failed.",
			Description: "XID {{ $labels.xid }} on " + atGPU + ": most likely a fault of the program that ran, not of the GPU. " + describeXID(gpu.XIDApplication)},
		{Name: "GPUUncorrectedECC", Severity: Critical, Labels: gpuLabels, Keep: minutes30, Parameters: recent, Dashboard: gpuDashboard,
			Expr:    "sum" + byGPU + "(" + grown("gpu_ecc_errors_total", `{severity="uncorrected"}`) + ") > 0",
			Summary: "A GPU's memory had an error that could not be corrected.",
			Description: atGPU + " counted " + value3 + " uncorrected memory errors. What ran there is lost. " +
				"Move its pods away and reset the GPU so that the bad rows are replaced; if it comes again, run NVIDIA's field diagnostic and replace it."},
		{Name: "GPUCorrectedECCRateHigh", Severity: Warning, Labels: gpuLabels, For: hour, Keep: minutes30, Dashboard: gpuDashboard,
			Parameters: []Parameter{period(hour, "time over which errors are counted"), number("errors", 100, 0, 1e9, "corrected errors within the window")},
			Expr:       "sum" + byGPU + `(increase(gpu_ecc_errors_total{severity="corrected"}[$period])) > $errors`,
			Summary:    "A GPU's memory corrects many errors.",
			Description: atGPU + " corrected " + value3 + " memory errors within $period. Nothing is lost yet. " +
				"Watch whether it grows, and plan a reset of the GPU; run NVIDIA's field diagnostic if it stays."},
		{Name: "GPURowRemapFailed", Severity: Critical, Labels: gpuLabels, For: minutes5, Keep: minutes5, Dashboard: gpuDashboard,
			Expr:    "max" + byGPU + "(gpu_row_remap_failed) == 1",
			Summary: "A GPU could not replace a bad memory row.",
			Description: atGPU + " has a bad memory row and no spare one for it. Errors will come again. " +
				"Take the GPU out of service and have it replaced: this is a criterion for return."},
		{Name: "GPURowRemapPending", Severity: Warning, Labels: gpuLabels, For: minutes5, Keep: minutes5, Dashboard: gpuDashboard,
			Expr:    "max" + byGPU + "(gpu_row_remap_pending) == 1",
			Summary: "A GPU waits for a reset to replace a bad memory row.",
			Description: atGPU + " will replace a bad memory row at its next reset. " +
				"Cordon the node, let the pods on the GPU finish, stop all GPU clients of the node and " + resetByUUID + "."},
		{Name: "GPURowRemapBanksExhausted", Severity: Warning, Labels: gpuLabels, For: minutes15, Keep: minutes5, Dashboard: gpuDashboard,
			Expr:    "max" + byGPU + `(gpu_row_remap_banks{availability="none"}) > 0`,
			Summary: "Memory banks of a GPU have no spare rows left.",
			Description: value3 + " memory banks of " + atGPU + " have used all their spare rows. The next bad row there cannot be replaced. " +
				"Plan to replace the GPU."},
		{Name: "GPURetiredPagesPending", Severity: Warning, Labels: gpuLabels, For: minutes5, Keep: minutes5, Dashboard: gpuDashboard,
			Expr:    "max" + byGPU + "(gpu_retired_pages_pending) == 1",
			Summary: "A GPU waits for a reset to retire a bad memory page.",
			Description: atGPU + " will retire a bad memory page when the driver is loaded again. " +
				"Let the pods on the GPU end, then reset it or restart the node."},
		{Name: "GPURetiredPagesMany", Severity: Warning, Labels: gpuLabels, For: minutes5, Keep: minutes5, Dashboard: gpuDashboard,
			Parameters: []Parameter{number("pages", 60, 1, 64, "retired pages from which a GPU should be replaced; there is room for 64")},
			Expr:       "sum" + byGPU + "(gpu_retired_pages_total) >= $pages",
			Summary:    "A GPU has retired nearly as many memory pages as it can.",
			Description: atGPU + " has retired " + value3 + " memory pages, of 64 at most. " +
				"Have the GPU replaced: from 60 pages on it qualifies for return."},
	}
}
