package alerts

import "github.com/gpu-exporter/gpu-exporter/internal/gpu"

func reported() []Alert {
	labels := append([]string{"xid"}, gpuLabels...)
	recent := []Parameter{period(minutes10, "how long the alert fires after an event")}
	return []Alert{
		{Name: "GPUXIDFatal", Severity: Critical, Labels: labels, Keep: minutes30, Parameters: recent,
			Dashboard:   gpuDashboard,
			Expr:        recentXID(`{xid=~"` + xidPattern(gpu.XIDCritical) + `"}`),
			Summary:     "A GPU reported a fatal error.",
			Description: "XID {{ $labels.xid }} on " + atGPU + ". " + describeXID(gpu.XIDCritical)},
		{Name: "GPUXIDWarning", Severity: Warning, Labels: labels, Keep: minutes15, Parameters: recent,
			Dashboard:   gpuDashboard,
			Expr:        recentXID(`{xid!~"` + xidPattern(gpu.XIDCritical, gpu.XIDApplication, gpu.XIDInfo) + `"}`),
			Summary:     "A GPU reported an error that may recur.",
			Description: "XID {{ $labels.xid }} on " + atGPU + ". " + describeXID(gpu.XIDWarning)},
		{Name: "GPUXIDApplication", Severity: Info, Labels: labels, Keep: minutes10, Parameters: recent,
			Dashboard: gpuDashboard,
			Expr:      recentXID(`{xid=~"` + xidPattern(gpu.XIDApplication) + `"}`),
			Summary:   "An application failed on a GPU.",
			Description: "XID {{ $labels.xid }} on " + atGPU + ": most likely an application fault, not a GPU fault. " +
				describeXID(gpu.XIDApplication)},
		{Name: "GPUUncorrectedECC", Severity: Critical, Labels: gpuLabels, Keep: minutes30, Parameters: recent,
			Dashboard: gpuDashboard,
			Expr:      "sum" + byGPU + "(" + increased("gpu_ecc_errors_total", `{severity="uncorrected"}`) + ") > 0",
			Summary:   "Uncorrected memory error on a GPU.",
			Description: atGPU + " counted " + value3 + " uncorrected memory errors. Applications on it have failed. " +
				"Move its pods away and reset the GPU so that the rows are remapped; if it recurs, run NVIDIA's " +
				"field diagnostic and replace it."},
		{Name: "GPUCorrectedECCRateHigh", Severity: Warning, Labels: gpuLabels, For: hour, Keep: minutes30,
			Dashboard: gpuDashboard,
			Parameters: []Parameter{period(hour, "period in which errors are counted"),
				number("errors", 100, 0, 1e9, "corrected errors in the period")},
			Expr:    "sum" + byGPU + `(increase(gpu_ecc_errors_total{severity="corrected"}[$period])) > $errors`,
			Summary: "High rate of corrected memory errors on a GPU.",
			Description: atGPU + " corrected " + value3 + " memory errors within $period. No data is lost yet. " +
				"Monitor the rate and plan a reset of the GPU; run NVIDIA's field diagnostic if it persists."},
		{Name: "GPURowRemapFailed", Severity: Critical, Labels: gpuLabels, For: minutes5, Keep: minutes5,
			Dashboard: gpuDashboard,
			Expr:      "max" + byGPU + "(gpu_row_remap_failed) == 1",
			Summary:   "Row remapping failed on a GPU.",
			Description: atGPU + " has a faulty memory row and no spare row to replace it. Errors will recur. " +
				"Take the GPU out of service and have it replaced: this is an RMA criterion."},
		{Name: "GPURowRemapPending", Severity: Warning, Labels: gpuLabels, For: minutes5, Keep: minutes5,
			Dashboard: gpuDashboard,
			Expr:      "max" + byGPU + "(gpu_row_remap_pending) == 1",
			Summary:   "A GPU needs a reset to remap a memory row.",
			Description: atGPU + " will remap a faulty memory row at its next reset. " +
				"Cordon the node, let the pods on the GPU finish, stop all GPU clients of the node and " + resetByUUID +
				"."},
		{Name: "GPURowRemapBanksExhausted", Severity: Warning, Labels: gpuLabels, For: minutes15, Keep: minutes5,
			Dashboard: gpuDashboard,
			Expr:      "max" + byGPU + `(gpu_row_remap_banks{availability="none"}) > 0`,
			Summary:   "Memory banks of a GPU have no spare rows left.",
			Description: value3 + " memory banks of " + atGPU +
				" have no spare rows left. The next faulty row there cannot be remapped. " +
				"Plan to replace the GPU."},
		{Name: "GPURetiredPagesPending", Severity: Warning, Labels: gpuLabels, For: minutes5, Keep: minutes5,
			Dashboard: gpuDashboard,
			Expr:      "max" + byGPU + "(gpu_retired_pages_pending) == 1",
			Summary:   "A GPU needs a reset to retire a memory page.",
			Description: atGPU + " will retire a faulty memory page when the driver is reloaded. " +
				"Let the pods on the GPU finish, then reset it or restart the node."},
		{Name: "GPURetiredPagesMany", Severity: Warning, Labels: gpuLabels, For: minutes5, Keep: minutes5,
			Dashboard: gpuDashboard,
			Parameters: []Parameter{number("pages", 60, 1, 64,
				"retired pages from which a GPU should be replaced; the maximum is 64")},
			Expr:    "sum" + byGPU + "(gpu_retired_pages_total) >= $pages",
			Summary: "A GPU is close to the maximum number of retired memory pages.",
			Description: atGPU + " has retired " + value3 + " of at most 64 memory pages. " +
				"Have the GPU replaced: 60 pages are an RMA criterion."},
	}
}
