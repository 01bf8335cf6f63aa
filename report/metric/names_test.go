package metric

import (
	"slices"
	"strings"
	"testing"

	"github.com/gpu-exporter/gpu-exporter/alerts"
	"github.com/gpu-exporter/gpu-exporter/internal/catalog"
)

// What the report reads exists: a rule or a family that is renamed breaks this test, and not a planner's report.
func TestNamesExist(t *testing.T) {
	records := map[string][]string{}
	for _, r := range alerts.Records() {
		records[r.Name] = r.Labels
	}
	for name, labels := range map[string][]string{
		RuleGPUs: {"node", "model", "state"}, RuleCount: {"node", "model"}, RulePower: {"node", "model"}, RuleFaults: {"node", "problem"},
		RuleXIDs: {"node", "xid"},
		RuleFree: {"node", "resource"}, RulePending: {"namespace", "resource"},
		RuleAllocated: workloadLabels, RuleBusy: workloadLabels, RuleObserved: workloadLabels,
		RuleUnused: append([]string{"state"}, workloadLabels...), RuleWatts: workloadLabels,
		RuleMemory: workloadLabels, RuleBusiest: workloadLabels, RuleLastBusy: workloadLabels,
		RulePods:   {"namespace", "workload_type", "workload"},
		RuleOwners: {"namespace", "pod", "workload_type", "workload"},
	} {
		has, ok := records[name]
		if !ok {
			t.Errorf("no rule is called %s", name)
			continue
		}
		for _, l := range labels {
			if !strings.Contains(" "+strings.Join(has, " ")+" ", " "+l+" ") {
				t.Errorf("%s has no label %s", name, l)
			}
		}
	}
	all := alerts.Alerts()
	if i := slices.IndexFunc(all, func(a alerts.Alert) bool { return a.Name == HungJob }); i < 0 || !slices.Equal(all[i].Labels,
		workloadLabels[:3]) {
		t.Errorf("no alert about workloads is called %s", HungJob)
	}
	families := map[string]bool{}
	for _, f := range catalog.All() {
		families[f.Name] = true
	}
	for _, name := range []string{RawGPUs, RawUp, RawEnergy, RawPower, RawInfo, RawTotal, RawUnattributed, RawVersion, RawMinute,
		RawAllocated, RawBusy, RawObserved, RawUnused, RawJoules,
		RawMemory, RawShare, RawLastBusy, RawPods, RawSince, RawPeak, RawSM, RawProfiled, RawGPUBusy, RawGPUObserved} {
		if !families[name] {
			t.Errorf("no family is called %s", name)
		}
	}
}

var workloadLabels = []string{"namespace", "workload_type", "workload", "model"}
