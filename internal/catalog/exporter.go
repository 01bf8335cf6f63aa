package catalog

import (
	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

func exporter() Group {
	return Group{
		Title: "The exporter itself",
		Intro: "Health is data of its own, present even when all else fails. The series of containers are bounded: at most gpu_exporter_container_accounts_limit times some fifteen, and as many for each GPU's pod=\"other\", which holds, uses and draws what those do together that came when there was no room (its namespace is empty). Sums over containers and unattributed parts close with it as they do without. Beside these families stand process_* and a few of go_*, looked up in the medium poll group, and promhttp_*.",
		Examples: []Example{
			{"Which source of facts is down, and where?", `gpu_exporter_source_up == 0`},
			{"How long do driver calls take, on average, where native histograms are scraped? (Elsewhere divide _sum by _count.)", `histogram_avg(sum by (call) (rate(gpu_exporter_call_duration_seconds[10m])))`},
		},
		Rows: []Family{
			{Name: "gpu_exporter_build_info", Type: Info, Scope: ScopeExporter, Stability: Stable,
				Help: "Version of this exporter; 1.", Labels: []string{"version", "revision", "goversion"},
				Read: node(func(v *gpu.View, emit gpuEmit) { emit(1, v.Build.Version, v.Build.Revision, v.Build.GoVersion) })},
			{Name: "gpu_exporter_feature", Type: StateSet, Scope: ScopeExporter, Stability: Stable,
				Help: "Whether a feature is on, locked for want of a right, or unsupported here; the landing page says how to unlock it.", Labels: []string{"feature", "state"},
				Read: node(func(v *gpu.View, emit gpuEmit) {
					for _, f := range v.Features {
						for _, s := range gpu.FeatureStates {
							emit(b2f(f.State == s), f.Name, string(s))
						}
					}
				})},
			{Name: "gpu_exporter_paused", Type: Gauge, Scope: ScopeExporter, Stability: Stable,
				Help: "1 while NVML is let go on purpose, so that a change of the GPUs is not blocked.", Labels: []string{"reason"},
				Read: node(func(v *gpu.View, emit gpuEmit) {
					for _, p := range v.Paused {
						emit(b2f(p.Active), p.Reason)
					}
				})},
			{Name: "gpu_exporter_source_up", Type: Gauge, Scope: ScopeExporter, Stability: Stable,
				Help: "1 while the source of facts answers.", Labels: []string{"source"},
				Read: sources(func(s gpu.Source, emit gpuEmit) { emit(b2f(s.Up), s.Name) })},
			{Name: "gpu_exporter_source_last_success_timestamp_seconds", Type: Gauge, Unit: "seconds", Scope: ScopeExporter, Stability: Stable,
				Help: "When the source last answered, Unix time.", Labels: []string{"source"},
				Read: sources(func(s gpu.Source, emit gpuEmit) { moment(emit, s.LastSuccess, s.Name) })},
			{Name: "gpu_exporter_source_errors_total", Type: Counter, Scope: ScopeExporter, Stability: Stable,
				Help: "Failed attempts to ask the source.", Labels: []string{"source"},
				Read: sources(func(s gpu.Source, emit gpuEmit) { emit(float64(s.Errors), s.Name) })},
			{Name: "gpu_exporter_source_duration_seconds", Type: Gauge, Unit: "seconds", Scope: ScopeExporter, Stability: Stable,
				Help: "Time that the last attempt to ask the source took.", Labels: []string{"source"},
				Read: sources(func(s gpu.Source, emit gpuEmit) {
					if d, ok := s.Duration.Get(); ok {
						emit(d.Seconds(), s.Name)
					}
				})},
			{Name: "gpu_exporter_poll_duration_seconds", Type: Gauge, Unit: "seconds", Scope: ScopeExporter, Stability: Stable,
				Help: "Time that the poll group's last round took.", Labels: []string{"poll"},
				Read: node(func(v *gpu.View, emit gpuEmit) {
					for _, l := range v.PollGroups {
						if d, ok := l.Duration.Get(); ok {
							emit(d.Seconds(), string(l.PollGroup))
						}
					}
				})},
			{Name: "gpu_exporter_poll_interval_seconds", Type: Gauge, Unit: "seconds", Scope: ScopeExporter, Stability: Stable,
				Help: "Interval between two rounds of the poll group.", Labels: []string{"poll"},
				Read: node(func(v *gpu.View, emit gpuEmit) {
					for _, l := range v.PollGroups {
						emit(l.Interval.Seconds(), string(l.PollGroup))
					}
				})},
			{Name: "gpu_exporter_call_duration_seconds", Type: Histogram, Unit: "seconds", Scope: ScopeExporter, Stability: Experimental,
				Help: "Duration of driver calls; a native histogram.", Labels: []string{"call"},
				ReadHistogram: func(v *gpu.View, emit EmitHistogram) {
					for _, c := range v.Calls {
						emit(c.Duration, v.Node, c.Call)
					}
				}},
			{Name: "gpu_exporter_call_errors_total", Type: Counter, Scope: ScopeExporter, Stability: Stable,
				Help: "Driver calls that should have worked and did not, by return code. A reading that the hardware does not offer is no error.", Labels: []string{"call", "code"},
				Read: node(func(v *gpu.View, emit gpuEmit) {
					for _, c := range v.Calls {
						for _, e := range c.Errors {
							emit(float64(e.Count), c.Call, e.Code)
						}
					}
				})},
			{Name: "gpu_exporter_container_accounts", Type: Gauge, Scope: ScopeExporter, Stability: Stable,
				Help: "Containers, counted once per GPU, that have series of their own, with those that ended less than five minutes ago.",
				Read: accounts(func(a gpu.Accounts) float64 { return float64(a.Own) })},
			{Name: "gpu_exporter_container_accounts_limit", Type: Gauge, Scope: ScopeExporter, Stability: Stable,
				Help: "Most containers, counted once per GPU, that may have series of their own (--container-limit).",
				Read: accounts(func(a gpu.Accounts) float64 { return float64(a.Limit) })},
			{Name: "gpu_exporter_container_accounts_folded", Type: Gauge, Scope: ScopeExporter, Stability: Stable,
				Help: "Containers, counted once per GPU, that are shown together as pod=\"other\" because of the limit.",
				Read: accounts(func(a gpu.Accounts) float64 { return float64(a.Aggregated) })},
			{Name: "gpu_exporter_container_folds_total", Type: Counter, Scope: ScopeExporter, Stability: Stable,
				Help: "How often a container, counted once per GPU, came to be shown as pod=\"other\".",
				Read: accounts(func(a gpu.Accounts) float64 { return float64(a.Aggregations) })},
			{Name: "gpu_exporter_rejected_values_total", Type: Counter, Scope: ScopeExporter, Stability: Stable,
				Help: "Values that the driver gave and that cannot be true; their series were absent instead.", Labels: []string{"reading"},
				Read: node(func(v *gpu.View, emit gpuEmit) {
					for _, r := range v.Rejected {
						emit(float64(r.Count), r.Reading)
					}
				})},
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
