package report

import (
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
		ruleGPUs: {"node", "model", "state"}, ruleCount: {"node", "model"}, rulePower: {"node", "model"}, ruleFaults: {"node", "problem"},
		ruleXIDs: {"node", "xid"},
		ruleFree: {"node", "resource"}, rulePending: {"namespace", "resource"},
		ruleAllocated: workloadLabels, ruleBusy: workloadLabels, ruleObserved: workloadLabels,
		ruleUnused: append([]string{"state"}, workloadLabels...), ruleWatts: workloadLabels,
		ruleMemory: workloadLabels, ruleBusiest: workloadLabels, ruleLastBusy: workloadLabels,
		rulePods:   {"namespace", "workload_type", "workload"},
		ruleOwners: {"namespace", "pod", "workload_type", "workload"},
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
	families := map[string]bool{}
	for _, f := range catalog.All() {
		families[f.Name] = true
	}
	for _, name := range []string{rawGPUs, rawUp, rawEnergy, rawPower, rawInfo, rawTotal, rawUnattributed, rawVersion, rawMinute,
		rawAllocated, rawBusy, rawObserved, rawUnused, rawJoules,
		rawMemory, rawShare, rawLastBusy, rawPods} {
		if !families[name] {
			t.Errorf("no family is called %s", name)
		}
	}
}

var workloadLabels = []string{"namespace", "workload_type", "workload", "model"}
