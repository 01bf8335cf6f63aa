package report

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/report/document"
	"github.com/gpu-exporter/gpu-exporter/report/series"
)

// hourSteps analyses so many hours from a Monday on, in steps of an hour, of GPUs with 80 GiB.
func hourSteps(hours int) *analysis {
	o := Defaults()
	a := &analysis{p: series.NewPeriod(monday, monday.Add(time.Duration(hours)*time.Hour), time.Hour), opt: &o, facts: newGPUFacts()}
	a.facts.byModel[h100] = 80 * gib
	return a
}

// digits are the values of a track in tenths, from a step on: x is 1, and - is a step without a value.
func digits(from int, values string) series.Track {
	t := series.Track{From: from}
	for _, c := range values {
		v := float32(math.NaN())
		switch {
		case c == 'x':
			v = 1
		case c != '-':
			v = float32(c-'0') / 10
		}
		t.V = append(t.V, v)
	}
	return t
}

// hours repeats a value.
func hoursOf(n int, value string) string { return strings.Repeat(value, n) }

// on is an allocation of a whole GPU to a pod, with its activity by the hour.
func on(pod, gpu string, from int, busy string) *allocation {
	return &allocation{key: allocationKey{namespace: "team", pod: pod, node: "n1", uuid: gpu}, model: h100, typical: 1,
		busy: digits(from, busy)}
}

// What a release looks at: since when a GPU is not busy, how much of that is known, and the longest pause that ended.
func TestCaseOf(t *testing.T) {
	mig := on("a", "u", 0, "0400")
	mig.resource, mig.typical = "nvidia_com_mig_3g_40gb", 0.5
	threshold := on("a", "u", 0, "000")
	threshold.busy.V = []float32{0.0019, 0.002, 0.0019}
	for _, tt := range []struct {
		x                              *allocation
		until                          int
		from, end, active, steps, rest int // until, the step after the last busy one, busy steps, known idle ones at the end
		pause                          int
		sum                            float64
	}{
		{x: on("a", "u", 0, "00000"), until: 99, end: 5, rest: 5},
		{x: on("a", "u", 0, "0090000"), until: 99, end: 7, active: 3, steps: 1, rest: 4, pause: 2, sum: 0.9},
		{x: on("a", "u", 0, "9009000"), until: 99, end: 7, active: 4, steps: 2, rest: 3, pause: 2, sum: 1.8},
		{x: on("a", "u", 0, "9000900900"), until: 99, end: 10, active: 8, steps: 3, rest: 2, pause: 3, sum: 2.7},
		{x: on("a", "u", 0, "90-000"), until: 99, end: 6, active: 1, steps: 1, rest: 4, sum: 0.9},
		{x: on("a", "u", 0, "90009"), until: 3, end: 3, active: 1, steps: 1, rest: 2, sum: 0.9},
		{x: on("a", "u", 5, "0900"), until: 99, from: 5, end: 9, active: 7, steps: 1, rest: 2, pause: 1, sum: 0.9},
		{x: on("a", "u", 5, "0900"), until: 6, from: 5, end: 6, active: 5, rest: 1},
		{x: mig, until: 99, end: 4, active: 2, steps: 1, rest: 2, pause: 1, sum: 0.8}, // of the device, not of the GPU
		{x: threshold, until: 99, end: 3, active: 2, steps: 1, rest: 1, pause: 1, sum: 0.0058},
	} {
		c, ok := caseOf(tt.x, tt.until)
		got := []int{c.from, c.until, c.active, c.busySteps, c.known, c.pause}
		if want := []int{tt.from, tt.end, tt.active, tt.steps, tt.rest, tt.pause}; !ok || !slices.Equal(got, want) ||
			math.Abs(c.busySum-tt.sum) > 1e-6 || c.idleSteps() != tt.end-tt.active || c.length() != float64(tt.end-tt.from) {
			t.Errorf("%v until %d: %v %v, want %v %v", tt.x.busy.V, tt.until, got, c.busySum, want, tt.sum)
		}
	}
	for until, x := range map[int]*allocation{9: on("a", "u", 0, ""), 5: on("a", "u", 5, "00"), 4: on("a", "u", 5, "00")} {
		if c, ok := caseOf(x, until); ok {
			t.Errorf("nothing until %d: %+v", until, c)
		}
	}
}

// What is allocated at a step: its values end at most a quarter of an hour before it, and its share is known.
func TestCases(t *testing.T) {
	a := hourSteps(24)
	a.p = series.NewPeriod(monday, monday.Add(2*time.Hour), 5*time.Minute)
	unknown := on("d", "u", 0, hoursOf(24, "0"))
	unknown.typical = 0
	l := &load{key: loadKey{cluster: "c", namespace: "team", model: h100}, allocations: []*allocation{on("a", "u", 0, hoursOf(20, "0")),
		on("b", "u", 0, hoursOf(21, "0")), on("c", "u", 0, hoursOf(24, "0")), unknown}}
	pods := func(until int) (names string) {
		for _, c := range a.cases(l, until) {
			names += c.key.pod
		}
		return names
	}
	for until, want := range map[int]string{24: "bc", 23: "abc", 25: "c", 12: "abc", 0: ""} {
		if got := pods(until); got != want {
			t.Errorf("at step %d: %q, want %q", until, got, want)
		}
	}
	if !a.lasts(21, 24) || a.lasts(20, 24) || !a.lasts(30, 24) {
		t.Error("three steps of five minutes are a quarter of an hour")
	}
	// Without allocations the workload is judged by its busiest GPU.
	rules := &load{key: loadKey{cluster: "c", namespace: "team", model: h100}}
	rules.tracks[qBusiest] = digits(0, hoursOf(23, "0")+"9")
	if list := a.cases(rules, 24); len(list) != 1 || list[0].busySteps != 1 || list[0].typical != 1 || list[0].model != h100 ||
		list[0].key != (allocationKey{cluster: "c", namespace: "team"}) {
		t.Errorf("%+v", list)
	}
}

// A GPU is released after 24 hours without activity, of which 95 % are known and 24 hours are on working days, and after
// three times its longest pause. The period begins on a Monday; hour 96 is the first of Friday, 120 that of Saturday.
func TestReleasable(t *testing.T) {
	a := hourSteps(14 * 24)
	for _, tt := range []struct {
		what                          string
		active, until, unknown, pause int
		busy                          int
		want                          bool
	}{
		{"a day", 0, 24, 0, 0, 0, true},
		{"an hour less", 0, 23, 0, 0, 0, false},
		{"5 of 100 hours are unknown", 0, 100, 5, 0, 0, true},
		{"6 of 100 hours are unknown", 0, 100, 6, 0, 0, false},
		{"Friday and the weekend", 96, 168, 0, 0, 0, true},
		{"from 1:00 on Friday, over the weekend", 97, 168, 0, 0, 0, false},
		{"and an hour of Monday", 97, 169, 0, 0, 0, true},
		{"three times a pause of ten hours", 50, 80, 0, 10, 1, true},
		{"an hour less than that", 51, 80, 0, 10, 1, false},
		{"it was not busy, so that there was no pause", 51, 80, 0, 10, 0, true},
	} {
		c := gpuCase{active: tt.active, until: tt.until, known: tt.until - tt.active - tt.unknown, pause: tt.pause, busySteps: tt.busy}
		if got := a.releasable(&c); got != tt.want {
			t.Errorf("%s: %v", tt.what, got)
		}
	}
}

// ten days of a workload with whole GPUs, of which the row knows what the allocations have.
func releaseOf(hours int, change func(*document.Workload, *analysis), list ...*allocation) (*document.Advice, *load) {
	a, pods := hourSteps(hours), map[string]bool{}
	r := &document.Workload{ID: "team/Deployment/app/" + h100, Namespace: "team", Kind: "Deployment", Name: "app", Model: h100}
	l := &load{key: loadKey{namespace: "team", kind: "Deployment", name: "app", model: h100}, allocations: list}
	for _, x := range list {
		pods[x.key.pod] = true
	}
	if r.Pods = len(pods); change != nil {
		change(r, a)
	}
	ad, _ := a.release(l, r)
	return ad, l
}

// TestReleaseSaves: GPU-hours are the idle end of each GPU, by its share; a pod with another GPU in use keeps all of them.
func TestReleaseSaves(t *testing.T) {
	half := on("b", "u3", 0, hoursOf(240, "0"))
	half.typical = 0.5
	for _, tt := range []struct {
		what        string
		list        []*allocation
		hours, gpus float64
		ends        map[string]int
	}{
		{"one that stopped after 100 of 240 hours", []*allocation{on("a", "u", 0, hoursOf(100, "9")+hoursOf(140, "0"))}, 140, 1,
			map[string]int{"a": 100}},
		{"and half a GPU", []*allocation{on("a", "u", 0, hoursOf(100, "9")+hoursOf(140, "0")), half}, 260, 1.5,
			map[string]int{"a": 100, "b": 0}},
		{"allocated for 40 hours", []*allocation{on("a", "u", 200, hoursOf(40, "0"))}, 40, 1, map[string]int{"a": 200}},
		{"two GPUs of a pod, one of them in use", []*allocation{on("a", "u", 0, hoursOf(240, "0")), on("a", "u2", 0, hoursOf(240, "9"))},
			0, 0, nil},
		{"that pod, and another", []*allocation{on("a", "u", 0, hoursOf(240, "0")), on("a", "u2", 0, hoursOf(240, "9")),
			on("b", "u3", 0, hoursOf(240, "0"))}, 240, 1, map[string]int{"b": 0}},
		{"nothing", nil, 0, 0, nil},
	} {
		ad, l := releaseOf(240, nil, tt.list...)
		if tt.gpus == 0 {
			if ad != nil {
				t.Errorf("%s: %+v", tt.what, ad)
			}
			continue
		}
		near(t, tt.what+": hours", ad.SavedHours, tt.hours)
		near(t, tt.what+": GPUs", ad.SavedGPUs, tt.gpus)
		if fmt.Sprint(l.followed.ends) != fmt.Sprint(tt.ends) {
			t.Errorf("%s: the pods end at %v", tt.what, l.followed.ends)
		}
	}
	// By the rules alone, the GPUs at the end are released.
	a, l := hourSteps(240), &load{key: loadKey{namespace: "team", model: h100}}
	l.tracks[qBusiest] = digits(0, hoursOf(240, "0"))
	ad, _ := a.release(l, &document.Workload{Name: "app", GPUsNow: 3})
	near(t, "hours by the rules", ad.SavedHours, 720)
	near(t, "GPUs by the rules", ad.SavedGPUs, 3)
}

// TestReleaseWording states each sentence of a release once.
func TestReleaseWording(t *testing.T) {
	idle := func(pod, gpu string) *allocation { return on(pod, gpu, 0, hoursOf(240, "0")) }
	stopped := func(at int) *allocation { return on("a", "u", 0, hoursOf(at, "9")+hoursOf(240-at, "0")) }
	loaded, seldom, partly, less := idle("a", "u"), idle("a", "u"), idle("a", "u"), idle("a", "u")
	loaded.memory = digits(0, "1")
	loaded.memory.V[0] = 64 << 20 // a context alone takes more
	less.memory = digits(0, "1")
	less.memory.V[0] = 64<<20 - 1<<10
	seldom.busy.V = slices.Repeat([]float32{0.0015}, 240)
	partly.typical = 0.25
	const asked, monthly = "; ask the owner first",
		"medium: a job that runs every month, or one that is not yet launched, looks the same after "
	for _, tt := range []struct {
		list                          []*allocation
		row                           func(*document.Workload, *analysis)
		title, reason, evidence, risk string
		change                        string
	}{
		{list: []*allocation{idle("a", "u"), idle("b", "v")}, title: "Release 2 GPUs of app", reason: "never_used",
			evidence: "2 GPUs allocated for 10.0 days: no kernel ran, and no process had memory.", risk: monthly + "10.0 days" + asked,
			change: "kubectl -n team scale deployment/app --replicas=0"},
		{list: []*allocation{less}, title: "Release 1 GPU of app", reason: "never_used",
			evidence: "1 GPU allocated for 10.0 days: no kernel ran, and no process had memory.", risk: monthly + "10.0 days" + asked},
		{list: []*allocation{partly}, title: "Release 0.25 GPUs of app", reason: "never_used",
			evidence: "0.25 GPUs allocated for 10.0 days: no kernel ran, and no process had memory.", risk: monthly + "10.0 days" + asked},
		{list: []*allocation{loaded}, title: "Release 1 GPU of app", reason: "loaded_idle",
			evidence: "1 GPU allocated for 10.0 days with 0.1 GiB of memory in use: a process is loaded, and no kernel ran.",
			risk:     monthly + "10.0 days" + asked},
		{list: []*allocation{idle("a", "u")}, row: func(r *document.Workload, _ *analysis) { r.MemoryPeak = new(2.5 * gib) },
			title: "Release 1 GPU of app", reason: "loaded_idle",
			evidence: "1 GPU allocated for 10.0 days with 2.5 GiB of memory in use: a process is loaded, and no kernel ran.",
			risk:     monthly + "10.0 days" + asked},
		// 240 hours with 0.15 % of 3600 s.
		{list: []*allocation{seldom}, title: "Release 1 GPU of app", reason: "never_used",
			evidence: "1 GPU allocated for 10.0 days: kernels ran for 1296 s in all, and no process had memory.",
			risk:     monthly + "10.0 days" + asked},
		{list: []*allocation{stopped(100)}, row: func(r *document.Workload,
			_ *analysis) {
			r.LastBusy = new(monday.Add(100 * time.Hour))
		},
			title: "Release 1 GPU of app", reason: "stopped",
			evidence: "1 GPU stopped being busy 5.8 days ago and is still allocated (last busy 2026-02-06 04:00 UTC).",
			risk:     "medium: a job that runs every week looks the same after 5.8 days" + asked},
		// The shortest counts: 240 - 48 hours are eight days.
		{list: []*allocation{stopped(47), on("b", "v", 0, hoursOf(48, "9")+hoursOf(192, "0"))}, title: "Release 2 GPUs of app",
			reason: "stopped", evidence: "2 GPUs stopped being busy 8.0 days ago and are still allocated.", risk: monthly + "8.0 days" +
				asked},
		{list: []*allocation{stopped(48), on("b", "v", 0, hoursOf(49, "9")+hoursOf(191, "0"))}, title: "Release 2 GPUs of app",
			reason: "stopped", evidence: "2 GPUs stopped being busy 8.0 days ago and are still allocated.",
			risk: "medium: a job that runs every week looks the same after 8.0 days" + asked},
		{list: []*allocation{idle("b", "u"), idle("c", "w"), on("a", "v", 0, hoursOf(240, "9"))}, title: "Release 2 GPUs of app",
			reason: "idle_pods", evidence: "2 of its pods, with 2 GPUs, have not been busy for 10.0 days, while others are.",
			risk:   monthly + "10.0 days" + asked,
			change: "# 2 pods fewer; idle now: b, c\nkubectl -n team scale deployment/app --replicas=1"},
		// The other pod is not busy either: it is too young.
		{list: []*allocation{idle("b", "u"), on("a", "v", 230, hoursOf(10, "0"))}, title: "Release 1 GPU of app", reason: "never_used",
			evidence: "1 GPU allocated for 10.0 days: no kernel ran, and no process had memory.", risk: monthly + "10.0 days" + asked,
			change: "# 1 pod fewer; idle now: b\nkubectl -n team scale deployment/app --replicas=1"},
	} {
		ad, _ := releaseOf(240, tt.row, tt.list...)
		if ad == nil {
			t.Errorf("%s: no advice", tt.evidence)
			continue
		}
		if ad.Title != tt.title || ad.Reason != tt.reason || ad.Evidence != tt.evidence || ad.Risk != tt.risk || ad.Confidence != "low" ||
			tt.change != "" && ad.Change != tt.change || ad.ChangeIn != "shell" || ad.Code != document.AdviseRelease ||
			ad.Alternatives != "Nothing smaller than a release: an idle GPU needs no share of one. "+
				"Rare requests can be served by scaling from zero." {
			t.Errorf("%s\n%s\n%s\n%s\n%s %s", ad.Title, ad.Reason, ad.Evidence, ad.Risk, ad.Change, ad.Confidence)
		}
	}
}

// TestReleaseSince: what the exporter recorded before the period counts. A release is sure after 60 days if the GPU was busy
// once, after 180 if it never was.
func TestReleaseSince(t *testing.T) {
	end := monday.Add(240 * time.Hour)
	before := func(days float64) float64 { return float64(end.Unix()) - days*86400 }
	for _, tt := range []struct {
		what            string
		since, lastBusy float64
		busy            string
		gpus            int
		evidence, level string
	}{
		{"busy 60 days ago", before(200), before(60), "0", 1,
			"1 GPU allocated for 60.0 days: no kernel ran, and no process had memory (last busy, or first observed, 2025-12-14 00:00 UTC).",
			"high"},
		{"busy a minute later", before(200), before(60) + 60, "0", 1,
			"1 GPU allocated for 60.0 days: no kernel ran, and no process had memory (last busy, or first observed, 2025-12-14 00:01 UTC).",
			"low"},
		{"busy two minutes after it was allocated", before(70), before(70) + 120, "0", 1,
			"1 GPU allocated for 70.0 days: no kernel ran, and no process had memory.", "low"},
		{"busy three minutes after it was allocated", before(70), before(70) + 180, "0", 1,
			"1 GPU allocated for 70.0 days: no kernel ran, and no process had memory (last busy, or first observed, 2025-12-04 00:03 UTC).",
			"high"},
		{"never busy for 180 days", before(180), before(180), "0", 1,
			"1 GPU allocated for 180.0 days: no kernel ran, and no process had memory.", "high"},
		{"never busy for a minute less", before(180) + 60, before(180) + 60, "0", 1,
			"1 GPU allocated for 180.0 days: no kernel ran, and no process had memory.", "low"},
		// Of two GPUs nothing shows that both are as old.
		{"two that were never busy", before(180), before(180), "0", 2,
			"2 GPUs allocated for 10.0 days: no kernel ran, and no process had memory.", "low"},
		{"busy at the begin of the period", before(200), float64(monday.Unix()), "0", 1,
			"1 GPU allocated for 10.0 days: no kernel ran, and no process had memory.", "low"},
		{"unknown", 0, before(90), "0", 1, "1 GPU allocated for 10.0 days: no kernel ran, and no process had memory.", "low"},
		// What it did within the period is later than what was recorded before.
		{"busy within the period", before(200), before(60), "9", 1,
			"1 GPU stopped being busy 10.0 days ago and is still allocated.", "low"},
	} {
		var list []*allocation
		for i := range tt.gpus {
			x := on(fmt.Sprint("p", i), fmt.Sprint("u", i), 0, tt.busy+hoursOf(239, "0"))
			x.since, x.lastBusy = tt.since, tt.lastBusy
			list = append(list, x)
		}
		ad, _ := releaseOf(240, nil, list...)
		if ad == nil || ad.Evidence != tt.evidence || ad.Confidence != tt.level || (tt.level == "high") != strings.HasPrefix(ad.Risk,
			"low: ask") {
			t.Errorf("%s: %+v", tt.what, ad)
		}
	}
	// Of several the latest counts.
	old, late := on("a", "u", 0, hoursOf(240, "0")), on("b", "v", 0, hoursOf(240, "0"))
	old.since, old.lastBusy, late.since, late.lastBusy = before(300), before(90), before(300), before(61)
	for _, list := range [][]*allocation{{old, late}, {late, old}} {
		if ad, _ := releaseOf(240, nil, list...); !strings.HasPrefix(ad.Evidence, "2 GPUs allocated for 61.0 days:") {
			t.Error(ad.Evidence)
		}
	}
}

// A release before a fold is compared with what its GPUs did in the fold, as long as they were allocated. The folds of 384
// hours begin at 192, 240, 288 and 336.
func TestValidateRelease(t *testing.T) {
	a := hourSteps(384)
	mig := on("a", "u", 0, hoursOf(200, "0")+"4"+hoursOf(183, "0"))
	mig.resource, mig.typical = "nvidia_com_mig_3g_40gb", 0.5
	tiny := on("a", "u", 0, hoursOf(384, "0"))
	tiny.busy.V[200], tiny.busy.V[201] = 0.002, 0.0019
	for _, tt := range []struct {
		what  string
		x     *allocation
		folds int
		worst float64
	}{
		{"idle", on("a", "u", 0, hoursOf(384, "0")), 4, 0},
		// Idle until 200: at 240 its pause of 200 hours does not let it go, and no later fold reaches three times of it.
		{"busy in an hour of the first fold", on("a", "u", 0, hoursOf(200, "0")+"9"+hoursOf(183, "0")), 1, 1. / 48},
		{"busy in the middle, and its end within the fold", on("a", "u", 0, hoursOf(214, "0")+"99"), 1, 2. / 24},
		{"busy until the first fold", on("a", "u", 0, hoursOf(192, "9")+hoursOf(192, "0")), 3, 0},
		{"a MIG device", mig, 1, 1. / 48},
		{"from a second of 500 on", tiny, 1, 1. / 48},
		{"ended before", on("a", "u", 0, hoursOf(190, "0")), 0, 0},
	} {
		v := a.validateRelease(&load{allocations: []*allocation{tt.x}})
		if tt.folds == 0 {
			if v != nil {
				t.Errorf("%s: %+v", tt.what, v)
			}
			continue
		}
		if v == nil || v.Folds != tt.folds || math.Abs(v.Worst-tt.worst) > 1e-9 || v.Size != "no GPU" {
			t.Errorf("%s: %+v", tt.what, v)
		}
	}
}

// What is busy above 80 % of its measured time is told of its idle part, and nothing is counted against it: neither idle pods nor
// idle GPUs of a pod. Since the idle part is idle counts, so that a workload that has mostly stopped is one.
func TestNoAdviceOnWellUsed(t *testing.T) {
	gang := func(busy, idle string) (list []*allocation) {
		for i := range 7 {
			list = append(list, on(fmt.Sprint("p", i), fmt.Sprint("u", i), 0, busy))
		}
		return append(list, on("q", "v", 0, idle))
	}
	onePod := gang(hoursOf(240, "x"), hoursOf(240, "0"))
	for _, x := range onePod {
		x.key.pod, x.memory = "p", level(0, 10, gib)
	}
	mostly := append(gang(hoursOf(200, "x")+hoursOf(40, "0"), hoursOf(240, "x"))[:7], on("q", "v", 0, hoursOf(240, "x")))
	const used = "it is busy in 88 % of its measured time"
	for _, tt := range []struct {
		what         string
		list         []*allocation
		mean         float64
		code, reason string
	}{
		{"one idle pod of eight", gang(hoursOf(240, "x"), hoursOf(240, "0")), 0.875, "", used +
			". 1 of its pods, with 1 GPU, have not been busy for 10.0 days, while others are."},
		{"one idle GPU of eight", onePod, 0.875, "", used},
		{"half of the time less", gang(hoursOf(240, "5"), hoursOf(240, "0")), 0.44, "release", ""},
		{"one of eight pods did not stop", mostly, 0.85, "release", ""},
		{"all have stopped", mostly[:7], 0.83, "release", ""},
	} {
		a, l := hourSteps(240), &load{key: loadKey{namespace: "team", kind: "Job", name: "app", model: h100}, allocations: tt.list}
		a.facts.byModel[h100] = 80 * gib
		l.sum[qObserved] = 1920
		r := &document.Workload{Name: "app", Kind: "Job", Namespace: "team", Allocated: 1920, BusyMean: &tt.mean, Coverage: 1}
		a.advise(l, r, 240)
		if r.Advice != tt.code || tt.code == "" && (r.NoAdvice != "well_used" || r.NoAdviceReason != tt.reason) {
			t.Errorf("%s: %q %q %q", tt.what, r.Advice, r.NoAdvice, r.NoAdviceReason)
		}
	}
}

// The first rule that applies counts: a release, fewer GPUs, then what saves more of the rest. What saves less than 0.02 GPUs
// and less than 0.02 GPUs for the period is no advice.
func TestAdviseOrder(t *testing.T) {
	for _, tt := range []struct {
		what         string
		share        float64
		busy         string
		sum          float64 // of the allocation, in GPU-hours
		observed     float64
		code, reason string
		text         string
	}{
		{"idle", 1, hoursOf(1440, "0"), 1440, 1440, "release", "", ""},
		// 24 hours are less than 0.02 of 1440, and one GPU is more than 0.02.
		{"idle for a day", 1, hoursOf(1416, "9") + hoursOf(24, "0"), 1440, 1440, "release", "", ""},
		{"a fiftieth", 0.02, hoursOf(1440, "0"), 1440, 1440, "release", "", ""},
		{"less than that", 0.0199, hoursOf(1440, "0"), 1440, 1440, "", "saves_too_little",
			`the advice "release" would save only 28.7 GPU-hours`},
		{"without an allocation", 1, hoursOf(1440, "9"), 0, 1440, "", "activity_unknown",
			"no GPU is allocated to it: it is busy on GPUs of others"},
		{"unobserved", 1, hoursOf(1440, "0"), 1440, 0, "", "activity_unknown",
			"the activity of its GPUs cannot be measured: MIG before Hopper, or sharing without visible processes"},
		{"busy", 1, hoursOf(1440, "9"), 1440, 1440, "", "no_longer_allocated", "nothing is allocated to it any more"},
	} {
		a, x := hourSteps(1440), on("a", "u", 0, tt.busy)
		x.typical = tt.share
		l := &load{key: loadKey{namespace: "team", kind: "Deployment", name: "app", model: h100}, allocations: []*allocation{x}}
		l.sum[qObserved] = tt.observed
		r := &document.Workload{Name: "app", Kind: "Deployment", Namespace: "team", Allocated: tt.sum}
		list := a.advise(l, r, 1440)
		if (len(list) > 0) != (tt.code != "") || r.Advice != tt.code || r.NoAdvice != tt.reason || r.NoAdviceReason != tt.text ||
			len(list) > 0 && list[0].Code != tt.code {
			t.Errorf("%s: %q %q %q %+v", tt.what, r.Advice, r.NoAdvice, r.NoAdviceReason, list)
		}
	}
}
