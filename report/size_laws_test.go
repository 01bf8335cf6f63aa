package report

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/report/demand"
	"github.com/gpu-exporter/gpu-exporter/report/document"
	"github.com/gpu-exporter/gpu-exporter/report/mig"
	"github.com/gpu-exporter/gpu-exporter/report/series"
	"github.com/gpu-exporter/gpu-exporter/report/sizing"
)

// working is a workload with one whole GPU of a model, with an activity and memory over all of a period.
func working(a *analysis, model string, busy series.Track, memory float64) (*load, *document.Workload) {
	l, steps := &load{key: loadKey{model: model}}, a.p.Steps()
	l.tracks[qBusiest], l.tracks[qMemory], l.tracks[qAllocated] = busy, level(0, steps, memory), level(0, steps, 1)
	x := allocated("p", "n", "g", busy)
	x.model = model
	l.allocations = []*allocation{x}
	return l, &document.Workload{ID: "w", Name: "app", Namespace: "team", Kind: "Deployment", Model: model, Sharing: "whole", Coverage: 1,
		Rhythm: "day", GPUsNow: 1, Pods: 1, Allocated: a.p.Hours(), BusyMean: new(0.1), BusyPeak: new(0.3), MemoryPeak: &memory,
		MemoryMedian: &memory, MemoryKind: demand.Needed}
}

// daily sets what is known of the workload's GPU for each day.
func daily(a *analysis, x *allocation, q dayQuantity, picture string) {
	day := entry(a.facts.daily, x.key.gpu())
	day[q] = drawn(0, picture)
}

// Sizes by hand: ten days of 24 hours; 1.6 times a constant demand has to be expected, and 1.25 times that is covered. An L40S has 48 GiB.
func TestSizeOfAWorkload(t *testing.T) {
	grown := level(0, 240, 0.1)
	for k := 210; k < 240; k++ {
		grown.V[k] = 0.3
	}
	const noBursts = "; bursts shorter than a minute are not recorded"
	for _, tt := range []struct {
		name   string
		model  string
		busy   series.Track
		memory float64 // GiB
		change func(a *analysis, l *load, r *document.Workload)
		code   string // of advice; or of the reason for none
		text   []string
		not    string
		saved  float64
		level  string
		folds  string
	}{
		{"a tenth", l40s, level(0, 240, 0.1), 10, nil, "share", []string{"Share the GPU of app: 1/4 of a GPU is enough",
			"Busy 10 % of the time, above 10 % in 0.1 % of it (5-minute means), 30 % at the most; its memory peak is 10.0 GiB.",
			"Not more than 4 on one GPU before a trial.", "low_activity", "time-slicing isolates neither memory nor faults",
			"replicas: 4"}, noBursts, 180, "medium", "4 folds, 1/4 of a GPU, 0 0"},
		{"without memory", l40s, level(0, 240, 0.1), 0, nil, "share", []string{"30 % at the most."}, "memory peak", 180, "medium", ""},
		{"memory unknown", l40s, level(0, 240, 0.1), 0,
			func(_ *analysis, _ *load, r *document.Workload) { r.MemoryPeak = nil }, "memory_unknown",
			[]string{"its memory is unknown"}, "", 0, "", ""},
		{"a seventh", h100, level(0, 240, 0.07), 5, nil, "shrink", []string{"Move app to the MIG profile 1g.10gb",
			"1g.10gb is the smallest profile. The next larger is 1g.20gb.", "bursts that use the whole GPU take longer on fewer SMs" +
				"; compare latency before and after" + noBursts, "nvidia.com/mig-1g.10gb: 1"}, "", 240 * 6. / 7, "low",
			"4 folds, 1g.10gb, 0 0"},
		{"a seventh, with bursts", h100, level(0, 240, 0.07), 5, func(a *analysis, l *load, _ *document.Workload) {
			daily(a, l.allocations[0], dayPeak, "0000000000")
		}, "shrink", []string{"Move app to the MIG profile 1g.10gb"}, noBursts, 240 * 6. / 7, "medium", ""},
		{"of a MIG device", h100, level(0, 240, 0.07), 5, func(_ *analysis, l *load, r *document.Workload) {
			r.Sharing, r.Profile, l.allocations[0].resource = "mig", "3g.40gb", "nvidia_com_mig_3g_40gb"
		}, "shrink", []string{"Move app to the MIG profile 1g.10gb"}, noBursts, 240 * 5. / 7, "medium", ""},
		{"several MIG devices", h100, level(0, 240, 0.07), 5, func(_ *analysis, l *load, r *document.Workload) {
			r.Sharing, r.Profile = "mig", "3g.40gb"
			l.allocations = append(l.allocations, allocated("p", "n", "h", level(0, 240, 0)))
		}, "several_mig_devices", []string{"several MIG devices are allocated to each of its pods"}, "", 0, "", ""},
		{"several GPUs have no profile", h100, level(0, 240, 0.07), 5, func(_ *analysis, l *load, _ *document.Workload) {
			l.allocations = append(l.allocations, allocated("p", "n", "h", level(0, 240, 0)))
		}, "share", []string{"1/4 of a GPU is enough"}, "", 180, "medium", ""},
		{"preallocated", l40s, level(0, 240, 0.1), 40, func(_ *analysis, _ *load, r *document.Workload) {
			r.Preallocated, r.MemoryKind = true, demand.Preallocated
		}, "share", []string{"Try app at 1/4 of a GPU, with limited memory", "preallocated_memory",
			"30 % at the most; its 40.0 GiB were allocated " +
				"at the start and never changed, which does not indicate need.",
			"medium: a trial, because the memory that it needs cannot be measured; " +
				"watch latency and allocation errors"}, "", 180, "low", ""},
		// It has 30 GiB and started with 10: a quarter has 12.
		{"a cache", l40s, level(0, 240, 0.1), 30, func(_ *analysis, _ *load, r *document.Workload) {
			r.MemoryKind, r.MemoryNeed = demand.Cache, new(10.*gib)
		}, "share", []string{"Try app at 1/4 of a GPU, with limited memory", "cached_memory",
			"30 % at the most; assumed to need the 10.0 GiB with " +
				"which it started: the growth to 30.0 GiB never fell, as that of a cache."}, "", 180, "low", ""},
		{"a cache on a MIG device", h100, level(0, 240, 0.07), 30, func(_ *analysis, _ *load, r *document.Workload) {
			r.MemoryKind, r.MemoryNeed = demand.Cache, new(5.*gib)
		}, "shrink", []string{"Try app at 1g.10gb, with limited memory"}, "", 240 * 6. / 7, "low", ""},
		// 1.25 times 0.38 are less than a half, 1.25 times 1.6 times that are not.
		{"what was, not what will be", l40s, level(0, 240, 0.38), 10, nil, "share", []string{"1/2 of a GPU is enough"}, "", 120, "low", ""},
		{"too much", l40s, level(0, 240, 0.45), 10, nil, "peaks_too_high",
			[]string{"it needs 56 % of its allocation, with headroom"}, "", 0,
			"", ""},
		{"busy half of the time", l40s, level(0, 240, 0.1), 10,
			func(_ *analysis, _ *load, r *document.Workload) { r.BusyMean = new(0.5) },
			"well_used", []string{"it is busy for 50 % of what is allocated to it"}, "", 0, "", ""},
		{"busy a little less", l40s, level(0, 240, 0.1), 10,
			func(_ *analysis, _ *load, r *document.Workload) { r.BusyMean = new(0.499) },
			"share", []string{"Busy 50 % of the time"}, "", 180, "medium", ""},
		{"without a rhythm", l40s, level(0, 240, 0.1), 10,
			func(_ *analysis, _ *load, r *document.Workload) { r.Rhythm = "" }, "rhythm_unknown",
			[]string{"its demand repeats neither by day nor by week within 10.0 days: a longer period may show its peaks"}, "", 0, "", ""},
		{"too large, without a rhythm", l40s, level(0, 240, 0.45), 10, func(_ *analysis, _ *load, r *document.Workload) { r.Rhythm = "" },
			"peaks_too_high", nil, "", 0, "", ""},
		{"little is known", l40s, level(0, 240, 0.1), 10,
			func(_ *analysis, _ *load, r *document.Workload) { r.Coverage = 0.5 }, "coverage_too_low",
			nil, "", 0, "", ""},
		// 1.25 times 0.2 minutes are a quarter, 1.6 times that a half.
		{"higher minutes", l40s, level(0, 240, 0.1), 10, func(a *analysis, l *load, _ *document.Workload) {
			daily(a, l.allocations[0], dayMinute, "1121111111")
		}, "share", []string{"1/2 of a GPU", "above 20 % in 0.1 % of it (one-minute means), 30 % at the most"}, "", 120, "medium", ""},
		{"lower minutes", l40s, level(0, 240, 0.2), 10, func(a *analysis, l *load, _ *document.Workload) {
			daily(a, l.allocations[0], dayMinute, "1111111111")
		}, "share", []string{"above 20 % in 0.1 % of it (5-minute means)"}, "", 120, "medium", ""},
		// Before the last fold a quarter was enough, which 0.3 exceeds in all of it.
		{"a demand that grew", l40s, grown, 10, nil, "share", []string{"1/2 of a GPU is enough"}, "", 120, "low",
			"4 folds, 1/4 of a GPU, 0.25 1"},
		// Nothing is known of the time before the hour 150: two of four folds have a time before them.
		{"a young workload", l40s, level(150, 240, 0.1), 10, func(a *analysis, _ *load, _ *document.Workload) {
			a.opt.Advice.Observed = 24 * time.Hour
		}, "share", []string{"1/4 of a GPU is enough"}, "", 180, "medium", "2 folds, 1/4 of a GPU, 0 0"},
	} {
		a := analysisOf(240, time.Hour)
		l, r := working(a, tt.model, tt.busy, tt.memory*gib)
		if tt.change != nil {
			tt.change(a, l, r)
		}
		ad, reason := a.size(l, r, 240)
		if ad == nil {
			if tt.saved > 0 || reason.Code != tt.code || len(tt.text) > 0 && reason.Text != tt.text[0] || l.followed.size != nil {
				t.Errorf("%s: %+v", tt.name, reason)
			}
			continue
		}
		all := strings.Join([]string{ad.Title, ad.Reason, ad.Evidence, ad.Alternatives, ad.Risk, ad.Change}, "\n")
		for _, part := range tt.text {
			if !strings.Contains(all, part) {
				t.Errorf("%s: no %q in\n%s", tt.name, part, all)
			}
		}
		if tt.not != "" && strings.Contains(all, tt.not) {
			t.Errorf("%s: %q in\n%s", tt.name, tt.not, all)
		}
		if v := ad.Validation; tt.folds != "" && (v == nil ||
			fmt.Sprintf("%d folds, %s, %.4g %.4g", v.Folds, v.Size, v.Exceeded, v.Worst) != tt.folds) {
			t.Errorf("%s: %+v", tt.name, v)
		}
		if ad.Code != tt.code || math.Abs(ad.SavedHours-tt.saved) > 1e-6 || ad.Confidence != tt.level || l.followed.size == nil ||
			ad.ChangeIn == "" ||
			math.Abs(ad.Replay.OccupiedHours-(240-tt.saved)) > 1e-6 || ad.Replay.Pods != 1 || ad.Replay.Throttled != 0 ||
			reason.Code != "" {
			t.Errorf("%s: %+v %+v", tt.name, ad, ad.Replay)
		}
	}
}

// A size is throttled in the hours that its activity is above it, within the budget: 2 of 240 hours are less than 1 %.
func TestThrottledOnASize(t *testing.T) {
	a := analysisOf(240, time.Hour)
	a.opt.Advice.Budget = 0.01
	busy := level(0, 240, 0.1)
	busy.V[7], busy.V[100] = 0.9, 0.9
	l, r := working(a, l40s, busy, 5*gib)
	ad, reason := a.size(l, r, 240)
	if ad == nil || math.Abs(ad.Replay.Throttled-2./240) > 1e-12 || !strings.Contains(ad.Evidence, "above 10 % in 1.0 % of it") {
		t.Errorf("%+v %+v", ad, reason)
	}
}

// What a workload needed in a part of the period: of the days, those that it had its GPU for in full. Steps are hours.
func TestDemandOfAPart(t *testing.T) {
	busy := level(30, 130, 0.1) // days 2 to 4 in full
	busy.V[70] = 0.5            // step 100, in day 4
	for _, tt := range []struct {
		name     string
		from, to int
		change   func(a *analysis, l *load, r *document.Workload)
		want     string // steps, high, minute, burst, GiB
	}{
		{"all of it", 0, 240, nil, "100 0.5 0.4 0 8"},
		{"until a full day", 0, 96, nil, "66 0.1 0.3 0 8"},
		{"until an hour before", 0, 95, nil, "65 0.1 0.2 0 8"},
		{"from a full day", 72, 240, nil, "58 0.5 0.4 0 8"},
		{"from an hour later", 73, 240, nil, "57 0.5 0.4 0 8"},
		{"from the last full day", 97, 240, nil, "33 0.5 0 0 4"},
		{"nothing", 200, 240, nil, "0 0 0 0 4"},
		{"from the start of a day", 0, 240,
			func(_ *analysis, l *load, _ *document.Workload) { l.allocations[0].busy.From = 24 }, "100 0.5 0.9 0 8"},
		{"bursts", 0, 240, func(a *analysis, l *load, _ *document.Workload) { daily(a, l.allocations[0], dayPeak, "999#8999") },
			"100 0.5 0.4 1 8 known"},
		{"bursts of a part of the SMs", 0, 240, func(a *analysis, l *load, _ *document.Workload) {
			daily(a, l.allocations[0], dayPeak, "999#8999")
			daily(a, l.allocations[0], daySM, "99223999")
		}, "100 0.5 0.4 0.3 8 known"},
		{"more than all SMs", 0, 240, func(a *analysis, l *load, _ *document.Workload) {
			daily(a, l.allocations[0], dayPeak, "55555555")
			daily(a, l.allocations[0], daySM, "##:::###") // 1.0
		}, "100 0.5 0.4 0.5 8 known"},
		// Each GPU has its own SMs: nothing is known of those of the second one.
		{"two GPUs", 0, 240, func(a *analysis, l *load, _ *document.Workload) {
			daily(a, l.allocations[0], dayPeak, "########")
			daily(a, l.allocations[0], daySM, "11111111")
			l.allocations = append(l.allocations, allocated("q", "n", "h", busy))
			daily(a, l.allocations[1], dayPeak, "77777777")
		}, "100 0.5 0.4 0.7 8 known"},
		{"the higher of two", 0, 240, func(a *analysis, l *load, _ *document.Workload) {
			l.allocations = append(l.allocations, allocated("q", "n", "h", busy))
			daily(a, l.allocations[1], dayMinute, "99699999")
		}, "100 0.5 0.9 0 8"},
		{"a shared GPU has no days", 0, 240,
			func(_ *analysis, l *load, _ *document.Workload) { l.allocations[0].typical = 0.5 }, "100 0.5 0 0 8"},
		{"a MIG device", 0, 240, func(_ *analysis, _ *load, r *document.Workload) { r.Sharing = "mig" }, "100 0.5 0.4 0 8 known"},
		{"a cache", 0, 240, func(_ *analysis, _ *load, r *document.Workload) {
			r.MemoryKind, r.MemoryNeed = demand.Cache, new(3.*gib)
		},
			"100 0.5 0.4 0 3"},
		{"a cache that needs more", 0, 240, func(_ *analysis, _ *load, r *document.Workload) {
			r.MemoryKind, r.MemoryNeed = demand.Cache, new(30.*gib)
		}, "100 0.5 0.4 0 8"},
		{"a need that is no cache", 0, 240, func(_ *analysis, _ *load, r *document.Workload) { r.MemoryNeed = new(3. * gib) },
			"100 0.5 0.4 0 8"},
		{"preallocated", 0, 240, func(_ *analysis, _ *load, r *document.Workload) { r.Preallocated = true }, "100 0.5 0.4 0 8 no need"},
	} {
		a := analysisOf(240, time.Hour)
		l, r := working(a, l40s, busy, 4*gib)
		l.tracks[qMemory].V[90] = 8 * gib
		daily(a, l.allocations[0], dayMinute, "99234999") // in the days 2, 3 and 4: 0.2, 0.3, 0.4
		if tt.change != nil {
			tt.change(a, l, r)
		}
		d, later := a.demandOf(l, r, series.Span{From: tt.from, To: tt.to})
		got := fmt.Sprintf("%d %.3g %.3g %.3g %.3g", d.Steps, d.High, d.Minute, d.Burst, d.Memory/gib)
		if d.Bursts {
			got += " known"
		}
		if d.Preallocated {
			got += " no need"
		}
		if got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
		if later.Memory != d.Memory || later.Steps != d.Steps || later.Bursts != d.Bursts || later.Preallocated != d.Preallocated {
			t.Errorf("%s: later %+v", tt.name, later)
		}
	}
	// 1.6 times a constant demand has to be expected, of bursts at most all SMs.
	for peak, burst := range map[string]float64{"5555555555": 0.8, "9999999999": 1} {
		a := analysisOf(240, time.Hour)
		l, r := working(a, l40s, level(0, 240, 0.25), 4*gib)
		daily(a, l.allocations[0], dayMinute, "3333333333")
		daily(a, l.allocations[0], dayPeak, peak)
		_, later := a.demandOf(l, r, series.Span{From: 0, To: 240})
		near(t, "high", later.High, 0.4)
		near(t, "minute", later.Minute, 0.48)
		near(t, "burst", later.Burst, burst)
	}
}

// A size is sure if it covers what has to be expected, and not if it covers what was; otherwise there is the reason.
func TestSureSizes(t *testing.T) {
	now := sizing.Current{Sharing: "whole", Total: 48 * gib}
	of := func(high float64) sizing.Demand { return sizing.Demand{High: high, Memory: gib} }
	for _, tt := range []struct {
		was, later float64
		size       string
		sure       bool
		reason     string
	}{{0.1, 0.2, "1/4 of a GPU", true, ""}, {0.1, 0.4, "1/2 of a GPU", true, ""}, {0.1, 0.5, "1/4 of a GPU", false, ""},
		{0.5, 0.6, "", false, "peaks_too_high"}} {
		s, sure, reason := fit(&now, of(tt.was), of(tt.later))
		if (s != nil) != (tt.size != "") || s != nil && s.Name() != tt.size || sure != tt.sure || reason.Code != tt.reason {
			t.Errorf("%+v: %+v %v %+v", tt, s, sure, reason)
		}
	}
}

// Whether a size is judged, and if not, why: 19 of 20 hours are enough.
func TestJudged(t *testing.T) {
	for _, tt := range []struct {
		name       string
		steps      int
		change     func(l *load, r *document.Workload)
		code, text string
	}{
		{"19 hours", 228, nil, "", ""},
		{"five minutes less", 227, nil, "observed_too_short", "it was observed for 18.9 hours; the minimum to judge a size is 20.0 hours"},
		{"covered enough", 480, func(_ *load, r *document.Workload) { r.Coverage = 0.95 }, "", ""},
		{"covered less", 480, func(_ *load, r *document.Workload) { r.Coverage = 0.949 }, "coverage_too_low",
			"its activity is known for 95 % of its time; the minimum is 95 %"},
		{"activity unknown", 480, func(_ *load, r *document.Workload) { r.BusyPeak = nil }, "activity_unknown", "its activity is unknown"},
		{"ended 15 minutes ago", 480, func(l *load, _ *document.Workload) { l.tracks[qAllocated] = level(0, 477, 1) }, "", ""},
		{"ended 20 minutes ago", 480, func(l *load, _ *document.Workload) { l.tracks[qAllocated] = level(0, 476, 1) },
			"no_longer_allocated",
			"nothing is allocated to it any more"},
		{"ended, and little was known", 1, func(l *load, r *document.Workload) { l.tracks[qAllocated], r.Coverage = level(0, 9, 1), 0 },
			"no_longer_allocated", "nothing is allocated to it any more"},
	} {
		a := analysisOf(480, 5*time.Minute)
		a.opt.Advice.Observed = 20 * time.Hour
		l, r := working(a, l40s, level(0, 480, 0.1), gib)
		if tt.change != nil {
			tt.change(l, r)
		}
		if reason, ok := a.judged(l, r, tt.steps); ok != (tt.code == "") || reason != (sizing.Reason{Code: tt.code, Text: tt.text}) {
			t.Errorf("%s: %v %+v", tt.name, ok, reason)
		}
	}
}

// The steps in which a size was not enough: activity above its limit, or memory above its own, unless that is a cache.
func TestExceeded(t *testing.T) {
	a := analysisOf(240, time.Hour)
	for _, tt := range []struct {
		name     string
		size     sizing.Size
		kind     string
		from, to int
		want     int
	}{
		// A half in three steps, more in two; 10 GiB but for 20 in two steps, of which one has more than a half.
		{"activity", sizing.Size{Limit: 0.5}, demand.Needed, 0, 240, 2},
		{"of a part", sizing.Size{Limit: 0.5}, demand.Needed, 14, 240, 1},
		{"before a part", sizing.Size{Limit: 0.5}, demand.Needed, 0, 13, 0},
		{"either", sizing.Size{Limit: 0.5, Memory: 19 * gib}, demand.Needed, 0, 240, 3},
		{"memory that is just enough", sizing.Size{Limit: 0.5, Memory: 20 * gib}, demand.Needed, 0, 240, 2},
		{"a cache", sizing.Size{Limit: 0.5, Memory: 19 * gib}, demand.Cache, 0, 240, 2},
		{"memory alone", sizing.Size{Limit: 1, Memory: 5 * gib}, demand.Needed, 0, 240, 6},
		{"none", sizing.Size{Limit: 1, Memory: 20 * gib}, demand.Needed, 0, 240, 0},
	} {
		l, r := working(a, l40s, drawn(10, "5556.8"), 10*gib)
		l.tracks[qBusiest].V[4] = 0.2 // step 14
		for k := range l.tracks[qMemory].V {
			l.tracks[qMemory].V[k] = map[bool]float32{true: 20 * gib, false: 10 * gib}[k == 13 || k == 14]
		}
		if r.MemoryKind = tt.kind; a.exceeded(l, r, &tt.size, series.Span{From: tt.from, To: tt.to}) != tt.want {
			t.Errorf("%s: %d, want %d", tt.name, a.exceeded(l, r, &tt.size, series.Span{From: tt.from, To: tt.to}), tt.want)
		}
	}
}

// Pods with several GPUs at a time: one that moves has both in the step in which it does.
func TestSeveralGPUsAtATime(t *testing.T) {
	at := func(pod, gpu string, from, to int) *allocation { return allocated(pod, "n", gpu, level(from, to, 0.1)) }
	for _, tt := range []struct {
		name string
		of   []*allocation
		pods float64 // by the rules
		gpus float64
		want bool
	}{
		{"one", []*allocation{at("p", "a", 0, 9)}, 1, 5, false},
		{"two of a pod", []*allocation{at("p", "a", 0, 9), at("p", "b", 0, 9)}, 0, 0, true},
		{"two of two pods", []*allocation{at("p", "a", 0, 9), at("q", "b", 0, 9)}, 0, 0, false},
		{"for two steps", []*allocation{at("p", "a", 0, 9), at("p", "b", 7, 12)}, 0, 0, true},
		{"for a step", []*allocation{at("p", "a", 0, 9), at("p", "b", 8, 12)}, 0, 0, false},
		{"one after the other", []*allocation{at("p", "a", 5, 9), at("p", "b", 0, 5)}, 0, 0, false},
		{"the first and the third", []*allocation{at("p", "a", 0, 9), at("q", "b", 0, 9), at("p", "c", 3, 9)}, 0, 0, true},
		{"by the rules", nil, 2, 4, true},
		{"by the rules, one pod", nil, 1, 2, true},
		{"by the rules, one each", nil, 2, 2.02, false},
		{"by the rules, of unknown pods", nil, 0, 4, false},
	} {
		l := &load{allocations: tt.of}
		l.sum[qPods] = tt.pods
		l.tracks[qAllocated] = level(0, 240, tt.gpus)
		if got := analysisOf(240, time.Hour).several(l); got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
}

// The table of MIG profiles is that of the model and its memory.
func TestSizeTakesTheTableOfItsModel(t *testing.T) {
	a := analysisOf(240, time.Hour)
	gpu, ok := mig.For(a30, a.facts.byModel[a30])
	if !ok {
		t.Fatal("no table")
	}
	l, r := working(a, a30, level(0, 240, 0.1), gib)
	if ad, reason := a.size(l, r, 240); ad == nil || !strings.HasSuffix(ad.Title, gpu.Profiles[0].Name) || ad.SavedHours != 180 {
		t.Errorf("%+v %+v", ad, reason)
	}
}
