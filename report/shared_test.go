package report

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gpu-exporter/gpu-exporter/report/document"
	"github.com/gpu-exporter/gpu-exporter/report/series"
)

// TestSaturated: when the GPUs that a workload shares are too full: to nine tenths, in half of six or more hours in which two
// pods were on them, and of GPUs that are at least half of its own time.
func TestSaturated(t *testing.T) {
	type pod struct{ workload, gpu, busy string }
	for _, tt := range []struct {
		what     string
		pods     []pod
		hours    int // of the period; 0 is 240
		memory   float64
		released bool
		level    string // empty is no advice about a
		evidence string
	}{
		{what: "full for six hours", pods: []pod{{"a", "u", "555555"}, {"b", "u", "555555"}}, level: "medium",
			evidence: "in 100 % of the time, each shared by 2.0 pods on average."},
		{what: "for five hours", pods: []pod{{"a", "u", "55555"}, {"b", "u", "55555"}}},
		{what: "in half of the hours", pods: []pod{{"a", "u", "555333"}, {"b", "u", "555555"}}, level: "medium",
			evidence: "in 50 % of the time, each shared by 2.0 pods on average."},
		{what: "in two of six", pods: []pod{{"a", "u", "553333"}, {"b", "u", "555555"}}},
		{what: "full to eight tenths", pods: []pod{{"a", "u", "444444"}, {"b", "u", "444444"}}},
		{what: "full, but alone", pods: []pod{{"a", "u", "xxxxxx"}}},
		// Hours with one pod do not count.
		{what: "together for four hours", pods: []pod{{"a", "u", "xxxxxx"}, {"b", "u", "4444"}}},
		{what: "on two GPUs of which one is full", pods: []pod{{"a", "u", "555555"}, {"b", "u", "555555"}, {"a", "v", "111111"}, {"b", "v",
			"111111"}},
			level: "medium", evidence: "in 100 % of the time, each shared by 2.0 pods on average."},
		{what: "on two GPUs, mostly on the other", pods: []pod{{"a", "u", "555555"}, {"b", "u", "555555"}, {"a", "v", "1111111"},
			{"b", "v", "1111111"}}},
		// The fullest and the most pods of all of its GPUs.
		{what: "on two full GPUs", pods: []pod{{"a", "u", "555555"}, {"b", "u", "555333"}, {"a", "v", "444444"}, {"b", "v", "333333"},
			{"c", "v", "333333"}}, level: "medium", evidence: "in 100 % of the time, each shared by 3.0 pods on average."},
		{what: "a period of 47 hours", hours: 47, pods: []pod{{"a", "u", "555555"}, {"b", "u", "555555"}}, level: "low",
			evidence: "in 100 % of the time, each shared by 2.0 pods on average."},
		{what: "a period of 48 hours", hours: 48, pods: []pod{{"a", "u", "555555"}, {"b", "u", "555555"}}, level: "medium",
			evidence: "in 100 % of the time, each shared by 2.0 pods on average."},
		{what: "it is to be released", pods: []pod{{"a", "u", "555555"}, {"b", "u", "555555"}}, released: true},
		{what: "memory in use", pods: []pod{{"a", "u", "555555"}, {"b", "u", "555555"}}, memory: 39, level: "medium",
			evidence: "in 100 % of the time, each shared by 2.0 pods on average; up to 98 % of their memory was in use."},
		{what: "less memory in use", pods: []pod{{"a", "u", "555555"}, {"b", "u", "555555"}}, memory: 37, level: "medium",
			evidence: "in 100 % of the time, each shared by 2.0 pods on average."},
		{what: "more memory than there is", pods: []pod{{"a", "u", "555555"}, {"b", "u", "555555"}}, memory: 50, level: "medium",
			evidence: "in 100 % of the time, each shared by 2.0 pods on average; up to 100 % of their memory was in use."},
	} {
		if tt.hours == 0 {
			tt.hours = 240
		}
		a, found := hourSteps(tt.hours), map[string]*finding{}
		for i, p := range tt.pods {
			x := on(fmt.Sprint("p", i), p.gpu, 0, p.busy)
			x.typical, x.memory = 0.5, series.Track{V: []float32{float32(tt.memory * gib)}}
			a.facts.memory[x.key.gpu()] = 80 * gib
			f := entry(found, p.workload)
			f.row.Name, f.row.NoAdvice, f.row.NoAdviceReason = p.workload, "already_shared", "it is"
			f.shared = append(f.shared, x)
		}
		if tt.released {
			found["a"].row.Advice, found["a"].advice = document.AdviseRelease, []document.Advice{{Code: document.AdviseRelease}}
		}
		list := []*finding{{row: document.Workload{Name: "whole"}}}
		for _, name := range sortedKeys(found) {
			list = append(list, found[name])
		}
		a.saturated(list)
		r := found["a"].row
		if tt.level == "" {
			if want := map[bool]string{true: document.AdviseRelease}[tt.released]; r.Advice != want || r.NoAdvice != "already_shared" {
				t.Errorf("%s: %+v", tt.what, found["a"].advice)
			}
			continue
		}
		if r.Advice != document.AdviseLessSharing || r.NoAdvice != "" || r.NoAdviceReason != "" || len(found["a"].advice) != 1 {
			t.Errorf("%s: %+v", tt.what, r)
			continue
		}
		ad := found["a"].advice[0]
		if ad.Title != "Reduce sharing for a" || ad.Evidence != "Its GPUs were busy to 90 % or more "+tt.evidence ||
			ad.Confidence != tt.level ||
			ad.SavedHours != 0 || ad.SavedCost != nil || ad.Reason != "oversubscribed" || ad.ChangeIn != "device plugin or pod template" ||
			ad.Change != "# fewer replicas on these nodes (sharing.timeSlicing.resources[].replicas), or a whole GPU:\n"+
				"resources:\n  limits:\n    nvidia.com/gpu: 1" ||
			ad.Risk != "low: it costs GPUs instead of saving any; without it the containers slow each other down" ||
			ad.Alternatives != "Less sharing is the smaller step: fewer replicas of each GPU come before a GPU of its own." {
			t.Errorf("%s: %+v", tt.what, ad)
		}
	}
}

// What a repair names: the worst problem first, then the most frequent XIDs, four signs at most.
func TestFixWording(t *testing.T) {
	f, o := hourly(240), Defaults()
	a := &analysis{p: f.p, opt: &o}
	for node, hours := range map[string]float64{"b node": 2, "a": 0.5, "c": 0.49} {
		f.node(nodeKey{"x", node, h100}).states.Unavailable = hours
	}
	at := nodeKey{"x", "b node", ""}
	for _, tt := range []struct {
		problems, xids map[string]float64
		evidence       string
	}{
		{nil, nil, "2.0 GPU-hours could not be used."},
		{map[string]float64{"needs_reset": 1.25}, nil, "2.0 GPU-hours could not be used: needs reset for 1.2 GPU-hours."},
		{nil, map[string]float64{"79": 0.2}, "2.0 GPU-hours could not be used: XID 79 1 times."},
		{map[string]float64{"hung": 1, "needs_reset": 2, "lost": 1}, map[string]float64{"48": 2.4, "79": 7},
			"2.0 GPU-hours could not be used: needs reset for 2.0 GPU-hours, hung for 1.0 GPU-hours, " +
				"lost for 1.0 GPU-hours, XID 79 7 times."},
		{nil, map[string]float64{"48": 3, "63": 9}, "2.0 GPU-hours could not be used: XID 63 9 times, XID 48 3 times."},
	} {
		list := a.fix(f, &faults{map[nodeKey]map[string]float64{at: tt.problems}, map[nodeKey]map[string]float64{at: tt.xids}})
		if len(list) != 2 || list[0].Node != "a" || list[0].Evidence != "0.5 GPU-hours could not be used." {
			t.Fatalf("%+v", list)
		}
		ad := list[1]
		if ad.Evidence != tt.evidence || ad.Title != "Repair the GPUs of b node" || ad.Risk != "low: drain the node first" ||
			ad.ChangeIn != "shell" ||
			ad.Change != "kubectl cordon 'b node'   # then look: the driver's recovery action, XIDs and remapped rows are on the "+
				"exporter's page of the node" || ad.Confidence != "high" || ad.Cluster != "x" || ad.Model != h100 {
			t.Errorf("%s\n%s", ad.Evidence, ad.Change)
		}
		near(t, "lost", ad.SavedHours, 2)
	}
}

// TestGeometryConditions: one device of 3g.40gb is pending, and unallocated ones of 1g.10gb are on one GPU.
func TestGeometryConditions(t *testing.T) {
	const one, three = "nvidia.com/mig-1g.10gb", "nvidia.com/mig-3g.40gb"
	constant := func(v float64) *series.Track { return &series.Track{V: slices.Repeat([]float32{float32(v)}, 240)} }
	key := func(cluster, node, resource string) nodeKey { return nodeKey{cluster, node, resource} }
	for _, tt := range []struct {
		what                 string
		pending, unallocated map[nodeKey]*series.Track
		model                string
		served               float64 // GPU-hours
		spare                string
	}{
		{what: "four slots", pending: map[nodeKey]*series.Track{key("", "", three): constant(1)},
			unallocated: map[nodeKey]*series.Track{key("", "n1", one): constant(4)}, served: 120, spare: one},
		{what: "less than a tenth of a device on average", pending: map[nodeKey]*series.Track{key("", "",
			three): {V: slices.Repeat([]float32{1}, 23)}},
			unallocated: map[nodeKey]*series.Track{key("", "n1", one): constant(4)}},
		{what: "a tenth of a device on average", pending: map[nodeKey]*series.Track{key("", "", three): {V: slices.Repeat([]float32{1},
			24)}},
			unallocated: map[nodeKey]*series.Track{key("", "n1", one): constant(4)}, served: 12, spare: one},
		{what: "two at a time have two places on a GPU", pending: map[nodeKey]*series.Track{key("", "", three): constant(2)},
			unallocated: map[nodeKey]*series.Track{key("", "n1", one): constant(4)}, served: 240, spare: one},
		{what: "the third has none", pending: map[nodeKey]*series.Track{key("", "", three): constant(3)},
			unallocated: map[nodeKey]*series.Track{key("", "n1", one): constant(4)}, served: 240, spare: one},
		{what: "in another cluster", pending: map[nodeKey]*series.Track{key("b", "", three): constant(1)},
			unallocated: map[nodeKey]*series.Track{key("", "n1", one): constant(4)}},
		{what: "unallocated in another cluster", pending: map[nodeKey]*series.Track{key("", "", three): constant(1)},
			unallocated: map[nodeKey]*series.Track{key("b", "n1", one): constant(4)}},
		{what: "unallocated on a node of another model", pending: map[nodeKey]*series.Track{key("", "", three): constant(1)},
			unallocated: map[nodeKey]*series.Track{key("", "n2", one): constant(4)}},
		{what: "less than one device unallocated at times", pending: map[nodeKey]*series.Track{key("", "", three): constant(1)},
			unallocated: map[nodeKey]*series.Track{key("", "n1", one): {V: append(slices.Repeat([]float32{4}, 239), 0)}}},
		{what: "of the profile that is pending itself", pending: map[nodeKey]*series.Track{key("", "", three): constant(1)},
			unallocated: map[nodeKey]*series.Track{key("", "n1", three): constant(1)}},
		{what: "whole GPUs are pending", pending: map[nodeKey]*series.Track{key("", "", "nvidia.com/gpu"): constant(1)},
			unallocated: map[nodeKey]*series.Track{key("", "n1", one): constant(4)}},
		{what: "a model without MIG", model: "NVIDIA L40S", pending: map[nodeKey]*series.Track{key("", "", three): constant(1)},
			unallocated: map[nodeKey]*series.Track{key("", "n1", one): constant(4)}},
	} {
		a := hourSteps(240)
		if tt.model == "" {
			tt.model = h100
		}
		f := hourly(240)
		n := f.node(nodeKey{"", "n1", tt.model})
		for k := range 240 {
			f.add(n, document.Unallocated, k, 1)
			n.count.Add(k, 1)
		}
		f.settle(0)
		list := a.geometry(&queue{tt.pending, tt.unallocated}, a.byModel(f, nil))
		if tt.served == 0 {
			if len(list) > 0 {
				t.Errorf("%s: %+v", tt.what, list)
			}
			continue
		}
		if len(list) != 1 {
			t.Errorf("%s: %d pieces of advice", tt.what, len(list))
			continue
		}
		ad := list[0]
		near(t, tt.what, ad.SavedHours, tt.served)
		if ad.Title != "Offer fewer "+tt.spare+" and more "+three || ad.Saving != document.SavesQueue || ad.SavedCost != nil ||
			ad.Confidence != "medium" ||
			ad.Risk != "medium: a GPU must be drained before its geometry changes" || ad.ChangeIn != "mig-parted" ||
			ad.Alternatives != "Each GPU keeps the slots that its pods need; only what is left of them is partitioned anew." ||
			ad.Change != "# in the node's mig-config: fewer of "+tt.spare+", more of "+three+"; then label the node\n"+
				"kubectl label node NODE nvidia.com/mig.config=NAME --overwrite" || ad.Model != h100 ||
			!strings.HasSuffix(ad.Evidence, fmt.Sprintf("they would have run for %.0f GPU-hours.", tt.served)) {
			t.Errorf("%s: %+v", tt.what, ad)
		}
	}
	if list := hourSteps(240).geometry(nil, nil); list != nil {
		t.Errorf("without a queue: %+v", list)
	}
}
