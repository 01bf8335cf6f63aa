package report

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gpu-exporter/gpu-exporter/report/document"
)

// TestFewer: which GPUs of a pod count as idle, and when so few are enough. A pod's GPUs are listed by their activity in each
// hour.
func TestFewer(t *testing.T) {
	full := func(n int) string { return hoursOf(n, "9") }
	none := func(n int) string { return hoursOf(n, "0") }
	for _, tt := range []struct {
		what       string
		kind       string
		pods       [][]string
		coverage   float64
		saved      float64 // GPU-hours; 0 is no advice
		title      string
		evidence   string
		confidence string
		throttled  float64
		memory     []float64 // GiB of each GPU of each pod; 0 is unknown, and without any all have a context
		blocked    bool
	}{
		{what: "one of two", pods: [][]string{{full(240), none(240)}}, coverage: 1, saved: 240, title: "1 instead of 2",
			evidence: "10.0 days of its pods, 1 of 2", confidence: "medium"},
		{what: "little known", pods: [][]string{{full(240), none(240)}}, coverage: 0.94, saved: 240, title: "1 instead of 2",
			evidence: "10.0 days of its pods, 1 of 2", confidence: "low"},
		{what: "nearly all known", pods: [][]string{{full(240), none(240)}}, coverage: 0.95, saved: 240, title: "1 instead of 2",
			evidence: "10.0 days of its pods, 1 of 2", confidence: "medium"},
		{what: "a single GPU", pods: [][]string{{full(240)}}},
		{what: "two pods of a GPU each", pods: [][]string{{full(240)}, {none(240)}}},
		{what: "all idle", pods: [][]string{{none(240), none(240)}}},
		{what: "the busiest below a tenth", pods: [][]string{{hoursOf(99, "0") + hoursOf(23, "x") + hoursOf(118, "0"), none(240)}}},
		{what: "the busiest at a tenth", pods: [][]string{{hoursOf(99, "0") + hoursOf(24, "x") + hoursOf(117, "0"), none(240)}},
			coverage: 1,
			saved:    240, title: "1 instead of 2", evidence: "10.0 days of its pods, 1 of 2", confidence: "medium"},
		// A tenth of 160 of 256 hours is 16 hours.
		{what: "a tenth of the busiest is not idle", pods: [][]string{{hoursOf(160, "x") + none(96), none(160) + hoursOf(16, "x") +
			none(80)}}},
		{what: "less than a tenth is", pods: [][]string{{hoursOf(160, "x") + none(96), none(160) + hoursOf(15, "x") + none(81)}},
			coverage: 1,
			saved:    256, title: "1 instead of 2", evidence: "10.7 days of its pods, 1 of 2", confidence: "medium"},
		{what: "95 % of the idle one is known", pods: [][]string{{full(200), hoursOf(10, "-") + none(190)}}, coverage: 1, saved: 200,
			title: "1 instead of 2", evidence: "8.3 days of its pods, 1 of 2", confidence: "medium"},
		{what: "too little of it is known", pods: [][]string{{full(200), none(100) + hoursOf(11, "-") + none(89)}}},
		{what: "a job of a day", kind: "Job", pods: [][]string{{full(24), none(24)}}, coverage: 1, saved: 24, title: "1 instead of 2",
			evidence: "24.0 hours of its pods, 1 of 2", confidence: "medium"},
		{what: "a job of less", kind: "Job", pods: [][]string{{full(23), none(23)}}},
		{what: "a service of less than a week but a twentieth", pods: [][]string{{full(159), none(159)}}},
		{what: "a service of more", pods: [][]string{{full(160), none(160)}}, coverage: 1, saved: 160, title: "1 instead of 2",
			evidence: "6.7 days of its pods, 1 of 2", confidence: "medium"},
		// Their times add up.
		{what: "two pods of half a week", pods: [][]string{{full(80), none(80)}, {full(80), none(80)}}, coverage: 1, saved: 160,
			title: "1 instead of 2", evidence: "6.7 days of its pods, 2 of 4", confidence: "medium"},
		{what: "four of five pods", pods: [][]string{{full(200), none(200)}, {full(200), none(200)}, {full(200), none(200)},
			{full(200), none(200)}, {full(200), full(200)}}, coverage: 1, saved: 800, title: "1 instead of 2",
			evidence: "41.7 days of its pods, 4 of 8", confidence: "medium"},
		{what: "three of four pods", pods: [][]string{{full(200), none(200)}, {full(200), none(200)}, {full(200), none(200)},
			{full(200), full(200)}}},
		// One and two of four: every pod can do without one, which alone is saved.
		{what: "pods that differ", pods: [][]string{{full(200), full(200), full(200), none(200)}, {full(200), full(200), none(200),
			none(200)}},
			coverage: 1, saved: 400, title: "3 instead of 4", evidence: "16.7 days of its pods, 3 of 8", confidence: "medium"},
		// 0.9 and 0.4 do not fit on one GPU, in one hour of 1,000; in two they are too many.
		{what: "an hour of 1,000 that does not fit", pods: [][]string{{full(1000), none(500) + "4" + none(499)}}, coverage: 1, saved: 1000,
			title: "1 instead of 2", evidence: "41.7 days of its pods, 1 of 2", confidence: "medium", throttled: 0.001},
		{what: "two hours of 1,000 that do not fit", pods: [][]string{{full(1000), none(500) + "44" + none(498)}}},
		// A model of 60 to 75 GiB in layers on each of four GPUs of 80: 264 GiB more do not fit on one of them, nor on two.
		{what: "layers", pods: [][]string{{full(200), none(200), none(200), none(200)}}, memory: []float64{75, 60, 65, 70}, blocked: true},
		{what: "layers that fit on one", pods: [][]string{{full(200), none(200), none(200), none(200)}}, memory: []float64{20, 18, 17, 18},
			coverage: 1, saved: 600, title: "1 instead of 4", evidence: "8.3 days of its pods, 3 of 4", confidence: "medium"},
		{what: "layers that fit on two", pods: [][]string{{full(200), none(200), none(200), none(200)}}, memory: []float64{30, 31, 31, 31},
			coverage: 1, saved: 400, title: "2 instead of 4", evidence: "8.3 days of its pods, 3 of 4", confidence: "medium"},
		// Three ranks of four do not divide their layers.
		{what: "one rank of four", pods: [][]string{{full(200), full(200), full(200), none(200)}}, memory: []float64{9, 9, 9, 9},
			blocked: true},
		{what: "full GPUs beside one with a context", pods: [][]string{{full(200), full(200), full(200), none(200)}},
			memory: []float64{79, 79, 79, 1}, coverage: 1, saved: 200, title: "3 instead of 4", evidence: "8.3 days of its pods, 1 of 4",
			confidence: "medium"},
		{what: "memory that is unknown", pods: [][]string{{full(200), none(200)}}, memory: []float64{9, 0}, coverage: 1, saved: 200,
			title: "1 instead of 2", evidence: "8.3 days of its pods, 1 of 2", confidence: "low"},
		{what: "what fits beside the others", pods: [][]string{{hoursOf(1000, "6"), none(500) + "444" + none(497)}}, coverage: 1,
			saved: 1000,
			title: "1 instead of 2", evidence: "41.7 days of its pods, 1 of 2", confidence: "medium"},
	} {
		a, l := hourSteps(1008), &load{}
		for p, gpus := range tt.pods {
			for g, busy := range gpus {
				x := on(fmt.Sprint("p", p), fmt.Sprint("u", p, g), 0, busy)
				if tt.memory == nil {
					x.memory = level(0, 24, gib)
				} else if tt.memory[g] > 0 {
					x.memory = level(0, 24, tt.memory[g]*gib)
				}
				l.allocations = append(l.allocations, x)
			}
		}
		if tt.kind == "" {
			tt.kind = "Deployment"
		}
		ad, blocked := a.fewer(l, &document.Workload{Name: "app", Kind: tt.kind, Allocated: 5000, Coverage: tt.coverage})
		if tt.blocked != (ad == nil && blocked.Code == "memory_too_high") {
			t.Errorf("%s: %+v", tt.what, blocked)
		}
		if tt.saved == 0 {
			if ad != nil {
				t.Errorf("%s: %s, %s", tt.what, ad.Title, ad.Evidence)
			}
			continue
		}
		if ad == nil {
			t.Errorf("%s: no advice", tt.what)
			continue
		}
		near(t, tt.what, ad.SavedHours, tt.saved)
		near(t, tt.what+": occupied", ad.Replay.OccupiedHours, 5000-tt.saved)
		near(t, tt.what+": throttled", 1000*ad.Replay.Throttled, 1000*tt.throttled)
		var few, most int
		fmt.Sscanf(tt.title, "%d instead of %d", &few, &most)
		if ad.Title != "Request "+tt.title+" GPUs for each pod of app" || ad.Confidence != tt.confidence ||
			ad.Replay.Pods != len(tt.pods) ||
			ad.Evidence != "Over "+tt.evidence+" GPUs were busy for less than a tenth of the busiest GPU's time in their pod." ||
			l.followed.fewer != most-few || ad.Change != fmt.Sprintf("resources:\n  limits:\n    nvidia.com/gpu: %d   "+
			"# and as many ranks (torchrun --nproc-per-node=%[1]d)", few) || ad.ChangeIn != "pod template" ||
			!strings.HasPrefix(ad.Risk,
				"medium: the program may count its visible GPUs; check its number of ranks (often one process drives one GPU)") ||
			strings.Contains(ad.Risk, "divide") != strings.HasPrefix(tt.what, "layers") ||
			ad.Alternatives != "The busy GPUs remain: fewer would slow it down." || ad.Reason != "idle_gpus" {
			t.Errorf("%s: %s\n%s\n%+v", tt.what, ad.Title, ad.Evidence, ad)
		}
	}
}

// Parts of a GPU save their part, and what has no share of a GPU is none of the pod's.
func TestFewerParts(t *testing.T) {
	a := hourSteps(240)
	idle, guest := on("p", "b", 0, hoursOf(240, "0")), on("p", "c", 0, hoursOf(240, "0"))
	idle.typical, guest.typical = 0.5, 0
	l := &load{allocations: []*allocation{on("p", "a", 0, hoursOf(240, "9")), idle, guest}}
	ad, _ := a.fewer(l, &document.Workload{Name: "app", Allocated: 480, Coverage: 1})
	if near(t, "saved", ad.SavedHours, 120); ad.Title != "Request 1 instead of 2 GPUs for each pod of app" {
		t.Error(ad.Title)
	}
}
