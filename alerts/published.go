package alerts

import (
	"fmt"
	"strings"
)

// publisher is a project with alert rules for GPUs that others use, as they stand in some of its files.
type publisher struct {
	project, revision string
	files             []string
	rules             []published
}

// published are rules of a publisher: the alerts here that cover them, and what is different or why none does.
type published struct {
	names, alerts []string
	note          string
}

func publishers() []publisher {
	const (
		regulation = "No alert: regulation under load; the share of time is in `gpu:gpu_clock_limited_seconds:rate5m`."
		operator   = "No alert: a state of the operator; keep the rule."
		software   = "Only close to the limit: regulation by the driver is normal."
		ownLimit   = "By the GPU's own limits, not at a fixed temperature."
		memory     = "Only on shared GPUs: a framework may take all memory of its own."
	)
	row := func(names, alerts, note string) published {
		return published{strings.Fields(names), strings.Fields(alerts), note}
	}
	return []publisher{
		{"utkuozdemir/nvidia_gpu_exporter", "e656cd81a180",
			[]string{"charts/nvidia-gpu-exporter/templates/prometheusrule.yaml"}, []published{
				row("NvidiaGpuExporterCollectionFailing", "GPUDriverDown GPUExporterNVMLErrors", ""),
				row("NvidiaGpuExporterCollectionStale", "GPUExporterPollStuck", ""),
				row("NvidiaGpuExporterCollectionSlow", "GPUExporterPollStuck", "Only if a reading is overdue: no scrape waits for a poll."),
				row("NvidiaGpuRecoveryActionNeeded", "GPURepairRequired", ""),
				row("NvidiaGpuXidCritical", "GPUXIDFatal", "Silent while GPURepairRequired or GPUUnavailable fires for the GPU."),
				row("NvidiaGpuXidWarning", "GPUXIDWarning", ""),
				row("NvidiaGpuUncorrectableEccErrors", "GPUUncorrectedECC",
					"For new errors; a count that stays is the reason `uncorrected_ecc` of `gpu_health_reason_info`."),
				row("NvidiaGpuRowRemapFailure", "GPURepairRequired", ""),
				row("NvidiaGpuRowRemapPending NvidiaGpuRetiredPagesPending", "GPURepairPending", ""),
				row("NvidiaGpuThermalSlowdown", "GPUHardwareSlowdown", ""),
				row("NvidiaGpuSoftwareThermalSlowdown", "GPUTemperatureHigh", software),
				row("NvidiaGpuPowerBrake", "GPUHardwareSlowdown", ""),
				row("NvidiaGpuTemperatureHigh", "GPUTemperatureHigh", ownLimit),
				row("NvidiaGpuMissing", "GPUMissing GPUUnavailable", ""),
			}},
		{"NVIDIA/gpu-operator", "a22dbf671f2e", []string{"assets/state-node-status-exporter/0800_prometheus_rule_openshift.yaml",
			"assets/state-operator-metrics/0400_prometheus_rule_openshift.yaml"}, []published{
			row("GPUOperatorNodeDeploymentFailed", "GPUNotOffered", ""),
			row("GPUOperatorNodeDeploymentDriverFailed", "GPUDriverDown", ""),
			row("GPUOperatorNodeDeploymentToolkitFailed", "", operator),
			row("GPUOperatorNodeDeploymentCudaFailed", "", "No alert: the exporter runs no CUDA program; keep the rule."),
			row("GPUOperatorReconciliationFailed GPUOperatorReconciliationFailedNfdLabelsMissing "+
				"GPUOperatorOpenshiftDriverToolkitEnabledNfdTooOld GPUOperatorOpenshiftDriverToolkitEnabledImageStreamMissing "+
				"GPUOperatorOpenshiftDriverToolkitEnabledImageStreamBroken GPUOperatorOpenshiftDriverToolkitEnabledImageTagsMissing "+
				"GPUOperatorDriverAutoUpgradeFailures", "", operator),
		}},
		{"canonical/hardware-observer-operator", "3d870611bf07", []string{"src/prometheus_alert_rules/dcgm.yaml"}, []published{
			row("GPUPowerBrakeThrottle", "GPUHardwareSlowdown", ""),
			row("GPUThermalHWThrottle", "GPUHardwareSlowdown", ""),
			row("GPUThermalSWThrottle", "GPUTemperatureHigh", software),
			row("GPUSlowdownThrottle", "GPUHardwareSlowdown", ""),
			row("GPUSyncBoostThrottle GPUPowerThrottle", "", regulation),
		}},
		{"oracle-quickstart/oci-hpc", "b5285a68fa0a", []string{"playbooks/roles/grafana/files/alert-rules.yaml"}, []published{
			row("xid-error", "GPUXIDFatal GPUXIDWarning", ""),
			row("ecc-error", "GPUUncorrectedECC", ""),
			row("row-remap-error", "GPURepairPending GPURepairRequired", ""),
			row("missing-gpu", "GPUMissing GPUUnavailable", ""),
			row("pcie-link-speed-fault", "GPUPCIeDegraded", ""),
			row("pcie-bus-inaccessible", "GPUUnavailable", "For GPUs; other devices on the bus are not read."),
			row("pcie-aer-correctable-errors pcie-aer-nonfatal-errors pcie-aer-fatal-errors", "GPUPCIeDegraded",
				"Replays only: the kernel's AER counters are not read. `exporter.linkDetails` adds the GPU's own counters."),
			row("throttle-thermal", "GPUHardwareSlowdown GPUTemperatureHigh", ""),
			row("throttle-power throttle-board throttle-sync throttle-reliability", "", regulation),
			row("throttle-util", "", "No alert: an idle GPU lowers its clocks; NVML does not count this time."),
			row("gpu-temp-slowdown gpu-temp-shutdown gpu-mem-temp-slowdown gpu-mem-temp-shutdown", "GPUTemperatureHigh",
				"By the slowdown temperature, for memory the maximum operating one; shutdown is above both."),
			row("idle-gpu-high-temp", "",
				"No alert: below its limits an idle GPU is not in danger."),
		}},
		{"mitchross/k3s-argocd-proxmox", "0ef8377d44e5", []string{"monitoring/prometheus-stack/gpu-alerts.yaml"}, []published{
			row("GPUHighUtilization GPUCriticalUtilization", "", "No alert: full use is the aim; the opposite is GPUAllocatedIdle."),
			row("GPUHighMemoryUsage GPUCriticalMemoryUsage", "GPUSharedMemoryPressure", memory),
			row("GPUHighTemperature GPUCriticalTemperature", "GPUTemperatureHigh", ownLimit),
			row("GPUHighPowerDraw", "", "No alert: the driver enforces the power limit."),
			row("GPUDown", "GPUExporterDown", "For the exporter; GPUUnavailable is for GPUs."),
			row("GPULowClockSpeed", "GPUSlowWithoutReason", "Only while busy: idle GPUs lower their clocks."),
		}},
		{"darsh97/gpu-observability", "e0ba6887f8be", []string{"prometheus/alerts.yml"}, []published{
			row("GPUVRAMSaturationHigh GPUVRAMSustainedPressure", "GPUSharedMemoryPressure", memory),
			row("GPUVRAMAllocationSpike", "", "No alert: allocation at the start of a program is normal."),
		}},
	}
}

// publishedRules is the table of other projects' rules, by what covers them.
func publishedRules() string {
	var projects, order []string
	rules := map[string][]string{}
	for _, p := range publishers() {
		projects = append(projects, fmt.Sprintf("%s@%s (`%s`)", p.project, p.revision, strings.Join(p.files, "`, `")))
		for _, r := range p.rules {
			var here []string
			for _, a := range r.alerts {
				here = append(here, "["+a+"](#"+strings.ToLower(a)+")")
			}
			text := strings.TrimSuffix(strings.Join(here, ", ")+". "+r.note, " ")
			if len(here) == 0 {
				text = r.note
			}
			if rules[text] == nil {
				order = append(order, text)
			}
			rules[text] = append(rules[text], r.names...)
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s.\n\n| rules there | here |\n|---|---|\n", strings.Join(projects, ", "))
	for _, text := range order {
		fmt.Fprintf(&b, "| `%s` | %s |\n", strings.Join(rules[text], "`, `"), text)
	}
	return strings.TrimSpace(b.String())
}
