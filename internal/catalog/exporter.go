package catalog

import (
	"cmp"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// NeverRead returns PromQL for the kernel logs, of the exporters that the matchers select, that an exporter has never read:
// a missing permission, which the feature kernel_log reports, and no failure. Every other data source that is down is one.
func NeverRead(matchers string) string {
	if matchers != "" {
		matchers = ", " + matchers
	}
	return `(gpu_exporter_source_up{source="kmsg"` + matchers + `} unless on (cluster, node, source) ` +
		`gpu_exporter_source_last_success_timestamp_seconds{source="kmsg"` + matchers + `})`
}

func exporter() Group {
	return Group{
		Name:  "exporter",
		Title: "Exporter",
		Rows: []Family{
			{Name: "gpu_exporter_build_info", Scope: ScopeExporter,
				Help: "Version of the exporter.", Labels: []string{"version", "revision", "goversion"},
				Read: node(func(v *gpu.View, emit gpuEmit) {
					emit(1, v.Build.Version, v.Build.Revision, v.Build.GoVersion)
				})},
			{Name: "gpu_exporter_feature", Type: StateSet, Scope: ScopeExporter,
				Help:   "State of an optional feature: on, off (not requested), missing_permission. The node page shows how to enable it.",
				Labels: []string{"feature", "state"},
				Read: node(func(v *gpu.View, emit gpuEmit) {
					for _, f := range v.Features {
						emit(1, f.Name, string(f.State))
					}
				})},
			{Name: "gpu_exporter_paused", Scope: ScopeExporter,
				Help: "Whether NVML is shut down, by reason: for a MIG change, on request (SIGUSR1), while a GPU is " +
					"unbound from the driver or bound to it, or to let idle GPUs suspend (where they may).",
				Labels: []string{"reason"},
				Read: node(func(v *gpu.View, emit gpuEmit) {
					for _, p := range v.Paused {
						emit(b2f(p.Active), p.Reason)
					}
				})},
			{Name: "gpu_exporter_source_up", Scope: ScopeExporter,
				Help: "Whether the last query of the data source succeeded.", Labels: []string{"source"},
				Read: sources(func(s gpu.Source, emit gpuEmit) { emit(b2f(s.Up), s.Name) })},
			{Name: "gpu_exporter_source_last_success_timestamp_seconds", Scope: ScopeExporter,
				Help: "Unix time of the last successful query of the data source.", Labels: []string{"source"},
				Read: sources(func(s gpu.Source, emit gpuEmit) { timestamp(emit, s.LastSuccess, s.Name) })},
			{Name: "gpu_exporter_source_errors_total", Scope: ScopeExporter,
				Help: "Failed queries of the data source.", Labels: []string{"source"},
				Read: sources(func(s gpu.Source, emit gpuEmit) { emit(float64(s.Errors), s.Name) })},
			{Name: "gpu_exporter_source_duration_seconds", Scope: ScopeExporter,
				Help: "Duration of the last query of the data source.", Labels: []string{"source"},
				Read: sources(func(s gpu.Source, emit gpuEmit) {
					if d, ok := s.Duration.Get(); ok {
						emit(d.Seconds(), s.Name)
					}
				})},
			{Name: "gpu_exporter_poll_duration_seconds", Scope: ScopeExporter,
				Help: "Duration of the last poll of the poll group.", Labels: []string{"poll"},
				Read: node(func(v *gpu.View, emit gpuEmit) {
					for _, l := range v.PollGroups {
						if d, ok := l.Duration.Get(); ok {
							emit(d.Seconds(), string(l.PollGroup))
						}
					}
				})},
			{Name: "gpu_exporter_poll_interval_seconds", Scope: ScopeExporter,
				Help: "Interval between two polls of the poll group.", Labels: []string{"poll"},
				Read: node(func(v *gpu.View, emit gpuEmit) {
					for _, l := range v.PollGroups {
						emit(l.Interval.Seconds(), string(l.PollGroup))
					}
				})},
			{Name: "gpu_exporter_poll_call_duration_seconds", Type: Histogram, Scope: ScopeExporter, Stability: Experimental,
				Help:   "Duration of driver calls, as a native histogram, by poll group. session: calls of the start and of events.",
				Labels: []string{"poll"},
				ReadHistogram: func(v *gpu.View, emit EmitHistogram) {
					sums := map[gpu.PollGroup]*gpu.Histogram{}
					for _, c := range v.Calls {
						if sums[c.PollGroup] == nil {
							sums[c.PollGroup] = &gpu.Histogram{}
						}
						sums[c.PollGroup].Add(c.Duration)
					}
					for _, group := range append([]gpu.PollGroup{""}, gpu.DevicePollGroups...) {
						if h := sums[group]; h != nil {
							emit(*h, v.Node, cmp.Or(string(group), "session"))
						}
					}
				}},
			{Name: "gpu_exporter_call_errors_total", Scope: ScopeExporter,
				Help:   "Failed driver calls by return code, without those that the GPU does not support.",
				Labels: []string{"call", "code"},
				Read: node(func(v *gpu.View, emit gpuEmit) {
					for _, c := range v.Calls {
						for _, e := range c.Errors {
							emit(float64(e.Count), c.Call, e.Code)
						}
					}
				})},
			{Name: "gpu_exporter_container_accounts", Scope: ScopeExporter,
				Help: "Containers with series of their own, including those that stopped less than five minutes ago.",
				Read: accounts(func(a gpu.Accounts) float64 { return float64(a.Own) })},
			{Name: "gpu_exporter_container_accounts_limit", Scope: ScopeExporter,
				Help: "Maximum number of containers with series of their own (--container-limit).",
				Read: accounts(func(a gpu.Accounts) float64 { return float64(a.Limit) })},
			{Name: "gpu_exporter_container_accounts_aggregated", Scope: ScopeExporter,
				Help: "Containers currently aggregated into pod=\"other\".",
				Read: accounts(func(a gpu.Accounts) float64 { return float64(a.Aggregated) })},
			{Name: "gpu_exporter_container_aggregations_total", Scope: ScopeExporter,
				Help: "Containers aggregated into pod=\"other\" since the exporter started.",
				Read: accounts(func(a gpu.Accounts) float64 { return float64(a.Aggregations) })},
			{Name: "gpu_exporter_panics_total", Scope: ScopeExporter,
				Help: "Panics while reading the driver, each a bug to report. The GPU counts as failed until its next successful poll.",
				Read: node(func(v *gpu.View, emit gpuEmit) { opt(emit, v.Panics) })},
			{Name: "gpu_exporter_rejected_values_total", Scope: ScopeExporter,
				Help: "Implausible driver values that were dropped, by reading.", Labels: []string{"reading"},
				Read: node(func(v *gpu.View, emit gpuEmit) {
					for _, r := range v.Rejected {
						emit(float64(r.Count), r.Reading)
					}
				})},
		},
	}
}

// driverCalls are some hundred series of a node; only --collector.calls, or a size of all, exports them.
func driverCalls() Group {
	return Group{
		Name:  "calls",
		Title: "Driver calls",
		Rows: []Family{
			{Name: "gpu_exporter_call_duration_seconds", Type: Histogram, Scope: ScopeExporter, Stability: Experimental,
				Help: "Duration of driver calls, as a native histogram.", Labels: []string{"call"},
				ReadHistogram: func(v *gpu.View, emit EmitHistogram) {
					for _, c := range v.Calls {
						emit(c.Duration, v.Node, c.Call)
					}
				}},
		},
	}
}

func accounts(value func(gpu.Accounts) float64) func(*gpu.View, Emit) {
	return node(func(v *gpu.View, emit gpuEmit) {
		if a, ok := v.Accounts.Get(); ok {
			emit(value(a))
		}
	})
}

func sources(read func(gpu.Source, gpuEmit)) func(*gpu.View, Emit) {
	return node(func(v *gpu.View, emit gpuEmit) {
		for _, s := range v.Sources {
			read(s, emit)
		}
	})
}
