package report

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/report/demand"
	"github.com/gpu-exporter/gpu-exporter/report/document"
	"github.com/gpu-exporter/gpu-exporter/report/series"
)

// serving is a service of pods with GPUs each, whose demand together is a track, for all of a period.
func serving(a *analysis, pods int, gpus float64, busy series.Track) (*load, *document.Workload) {
	l, steps := &load{}, a.p.Steps()
	l.tracks[qBusy], l.tracks[qAllocated] = busy, level(0, steps, float64(pods)*gpus)
	for i := range pods {
		x := allocated(fmt.Sprint("p", i), "n", fmt.Sprint("g", i), level(0, steps, 0.1))
		x.memory = level(0, steps, 30*gib)
		l.allocations = append(l.allocations, x)
	}
	now := float64(pods) * gpus
	return l, &document.Workload{ID: "w", Name: "app", Namespace: "team", Kind: "Deployment", Coverage: 1, Rhythm: "day", GPUsNow: now,
		Allocated: now * a.p.Hours(), BusyMean: new(0.5), BusyPeak: new(1.)}
}

// byHour is a demand in some hours of each day, and another otherwise: steps of an hour.
func byHour(steps, from, to int, busy, otherwise float64) series.Track {
	t := level(0, steps, otherwise)
	for k := range t.V {
		if h := k % 24; h >= from && h < to {
			t.V[k] = float32(busy)
		}
	}
	return t
}

// A service has at least three pods at the end, or up to 15 minutes before it, which are interchangeable and have GPUs of their own.
func TestServices(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(l *load, r *document.Workload)
		pods   int
		gpus   float64
		ok     bool
	}{
		{"a Deployment", func(*load, *document.Workload) {}, 3, 2, true},
		{"a StatefulSet", func(_ *load, r *document.Workload) { r.Kind = "StatefulSet" }, 3, 2, true},
		{"a LeaderWorkerSet", func(_ *load, r *document.Workload) { r.Kind = "LeaderWorkerSet" }, 0, 0, false},
		{"a kind that is not in the table", func(_ *load, r *document.Workload) { r.Kind = "XJob" }, 0, 0, false},
		{"as kube-state-metrics spells it", func(_ *load, r *document.Workload) { r.Kind = "rollout" }, 3, 2, true},
		{"a Job", func(_ *load, r *document.Workload) { r.Kind = "Job" }, 0, 0, false},
		{"a CronJob", func(_ *load, r *document.Workload) { r.Kind = "CronJob" }, 0, 0, false},
		{"a Pod", func(_ *load, r *document.Workload) { r.Kind = "Pod" }, 0, 0, false},
		{"a DaemonSet", func(_ *load, r *document.Workload) { r.Kind = "DaemonSet" }, 0, 0, false},
		{"a pod that ended 15 minutes ago", func(l *load, _ *document.Workload) { l.allocations[0].busy = level(0, 97, 0) }, 3, 2, true},
		{"a pod that ended 20 minutes ago", func(l *load, _ *document.Workload) { l.allocations[0].busy = level(0, 96, 0) }, 2, 3, false},
		{"two GPUs of a pod", func(l *load, _ *document.Workload) { l.allocations[0].key.pod = "p1" }, 2, 3, false},
		{"nothing allocated now", func(_ *load, r *document.Workload) { r.GPUsNow = 0 }, 3, 0, false},
		{"shared GPUs", func(_ *load, r *document.Workload) { r.Sharing = "shared" }, 3, 2, false},
		{"MIG devices", func(_ *load, r *document.Workload) { r.Sharing = "mig" }, 3, 2, true},
		{"pods as the rules count them", func(l *load, _ *document.Workload) { l.allocations, l.sum[qPods] = nil, 2.5 }, 3, 2, true},
		{"two pods as the rules count them", func(l *load, _ *document.Workload) { l.allocations, l.sum[qPods] = nil, 2.4 }, 2, 3, false},
	} {
		a := analysisOf(100, 5*time.Minute)
		l, r := serving(a, 3, 2, level(0, 100, 1))
		tt.change(l, r)
		if s, ok := a.serviceOf(l, r); ok != tt.ok || s.pods != tt.pods || s.gpus != tt.gpus || ok && s.demand.Sum() != 100 {
			t.Errorf("%s: %+v, %v", tt.name, s, ok)
		}
	}
}

func TestValuesOutsideAPart(t *testing.T) {
	x := drawn(10, "3.1524")
	for _, tt := range []struct {
		from, to int
		want     string
	}{{0, 10, "[0.1 0.2 0.3 0.4 0.5]"}, {10, 11, "[0.1 0.2 0.4 0.5]"}, {11, 15, "[0.3 0.4]"}, {12, 20, "[0.3]"},
		{15, 16, "[0.1 0.2 0.3 0.5]"},
		{0, 20, "[]"}} {
		var got []float64
		for _, v := range x.Without(series.Span{From: tt.from, To: tt.to}) {
			got = append(got, math.Round(v*10)/10)
		}
		if text := fmt.Sprint(got); text != tt.want {
			t.Errorf("without %d to %d: %s", tt.from, tt.to, text)
		}
	}
}

// Replicas of a service by hand: ten days of 24 hours.
func TestReplicasOfAService(t *testing.T) {
	spike := level(0, 240, 2)
	spike.V[95] = 4 // in the fourth eighth
	grown := level(0, 240, 2)
	for k := 210; k < 240; k++ {
		grown.V[k] = 5
	}
	for _, tt := range []struct {
		name      string
		pods      int
		gpus      float64
		busy      series.Track
		budget    float64
		title     string // empty: no advice
		text      []string
		saved     float64
		level     string
		throttled float64
		folds     string
	}{
		// 1.6 times 3.2 has to be expected: 1.25 times that are 6.4. Six replicas have headroom for 3.
		{"constant", 10, 1, level(0, 240, 3.2), 0.001, "Run 7 replicas of app instead of 10", []string{
			"10 pods together were busy as 3.2 GPUs on average, and above 3.2 in 0.1 % of the time; without any eighth of the " +
				"period, 7 to 7 replicas.", "6 would have too little headroom in 100 % of the time.", "--replicas=7"}, 3 * 240, "medium", 0,
			"4 folds, 7 replicas, 0 0"},
		{"two GPUs each", 6, 2, level(0, 240, 2), 0.001, "Run 2 replicas of app instead of 6",
			[]string{"Two remain, so that one may fail."},
			8 * 240, "medium", 0, "4 folds, 2 replicas, 0 0"},
		// 1.6 times the demand takes all, 1.25 times 4 are 5; without the eighth with the hour of 4, 1.25 times 2 are 3. Four replicas have
		// headroom for 3.2, which one of 240 hours exceeds.
		{"an hour with twice the demand", 6, 1, spike, 0.001, "Run 5 replicas of app instead of 6", []string{
			"6 pods together were busy as 2.0 GPUs on average, and above 4.0 in 0.1 % of the time; without any eighth of the " +
				"period, 3 to 5 replicas.", "4 would have too little headroom in 0.4 % of the time."}, 240, "low", 0, ""},
		// A budget of 1 % leaves out two hours, so that 1.25 times 2 are covered.
		{"an hour within the budget", 3, 1, spike, 0.01, "", nil, 0, "", 0, ""},
		{"an hour within the budget of four pods", 4, 1, spike, 0.01, "Run 3 replicas of app instead of 4",
			[]string{"above 2.0 in 1.0 % of the time; without any eighth of the period, 3 to 3 replicas.",
				"2 would have too little headroom in 100 % of the time"}, 240, "low", 1. / 240, ""},
		// Before the last fold four were enough: 1.25 times 1.6 times 2.
		{"a demand that grew", 10, 1, grown, 0.001, "Run 7 replicas of app instead of 10", nil, 3 * 240, "low", 0,
			"4 folds, 4 replicas, 0.25 1"},
		{"needs all", 10, 1, level(0, 240, 8), 0.001, "", nil, 0, "", 0, ""},
		{"needs more than all", 10, 1, level(0, 240, 9.9), 0.001, "", nil, 0, "", 0, ""},
		// 1.25 times 9 are more than ten: by day all remain. In the other 14 hours two are enough, which saves eight.
		{"by day: needs all by day", 10, 1, byHour(240, 8, 18, 9, 0.1), 0.001, "Run app with 10 replicas by day and 2 from 18:00 to 08:00",
			[]string{"--replicas=10", "--replicas=2"}, 8 * 140, "low", 0, ""},
		// Six of ten for four hours of 24 are a tenth, which is not worth a schedule; eight are.
		{"by day: a tenth", 10, 1, byHour(240, 0, 4, 1.8, 8.5), 0.001, "", nil, 0, "", 0, ""},
		{"by day: more than a tenth", 10, 1, byHour(240, 0, 4, 0.9, 8.5), 0.001,
			"Run app with 10 replicas by day and 2 from 00:00 to 04:00", nil, 8 * 40,
			"low", 0, ""},
		{"by day: none at night", 10, 1, byHour(240, 8, 18, 9, 0), 0.001,
			"Run app with 10 replicas by day and 0 from 18:00 to 08:00", nil, 10 * 140, "low",
			0, ""},
	} {
		a := analysisOf(240, time.Hour)
		a.opt.Advice.Budget = tt.budget
		l, r := serving(a, tt.pods, tt.gpus, tt.busy)
		if !strings.HasPrefix(tt.name, "by day") {
			r.Rhythm = "week"
		}
		ad, _ := a.replicas(l, r, 240)
		if ad == nil || tt.title == "" {
			if ad != nil || tt.title != "" {
				t.Errorf("%s: %+v", tt.name, ad)
			}
			continue
		}
		all := ad.Evidence + ad.Alternatives + ad.Change
		for _, part := range tt.text {
			if !strings.Contains(all, part) {
				t.Errorf("%s: no %q in %s", tt.name, part, all)
			}
		}
		if v := ad.Validation; tt.folds != "" && fmt.Sprintf("%d folds, %s, %.4g %.4g", v.Folds, v.Size, v.Exceeded, v.Worst) != tt.folds {
			t.Errorf("%s: %+v", tt.name, v)
		}
		if math.Abs(ad.SavedHours-tt.saved) > 1e-6 || ad.Title != tt.title || ad.Confidence != tt.level || l.followed.replicas > tt.pods ||
			math.Abs(ad.Replay.Throttled-tt.throttled) > 1e-9 || math.Abs(ad.Replay.OccupiedHours-(r.Allocated-tt.saved)) > 1e-6 ||
			ad.Replay.Pods != tt.pods || !strings.Contains(tt.title, fmt.Sprint(l.followed.replicas)) ||
			(ad.Reason == "daily_demand") != strings.Contains(tt.title, "by day") || ad.Risk == "" ||
			ad.ChangeIn != "autoscaler or workload" {
			t.Errorf("%s: %+v %+v", tt.name, ad, ad.Replay)
		}
	}
	// Without a rhythm, or where the size is not judged, there is no advice; a demand that repeats by week has no schedule by hour.
	for name, change := range map[string]func(*document.Workload){"no rhythm": func(r *document.Workload) { r.Rhythm = "" },
		"little is known": func(r *document.Workload) { r.Coverage = 0.5 }, "a job": func(r *document.Workload) { r.Kind = "Job" },
		"by week": func(r *document.Workload) { r.Rhythm = "week" }} {
		a := analysisOf(240, time.Hour)
		l, r := serving(a, 10, 1, byHour(240, 8, 18, 9, 0.1))
		change(r)
		if ad, _ := a.replicas(l, r, 240); ad != nil {
			t.Errorf("%s: %+v", name, ad)
		}
	}
}

// More pods than are allocated now cost what they had.
func TestSavedHoursOfReplicas(t *testing.T) {
	a := analysisOf(240, time.Hour)
	l, r := serving(a, 10, 1, level(0, 240, 3.2))
	for k := range 24 {
		l.tracks[qAllocated].V[k], l.tracks[qAllocated].V[24+k] = 5, 20
	}
	// Seven remain: none is saved on the first day, 13 on the second, 3 on the other eight.
	if ad, _ := a.replicas(l, r, 240); ad == nil || math.Abs(ad.SavedHours-24*(13+8*3)) > 1e-6 {
		t.Errorf("%+v", ad)
	}
}

// Hours of the day in which fewer replicas are always enough, against every choice of hours.
func TestQuietHours(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 5))
	saving := 0
	for i := range 300 {
		a := analysisOf(24*(1+r.IntN(3)), time.Hour)
		if i%3 == 0 {
			a.opt.Zone = time.FixedZone("", 5*3600)
		}
		zone := a.opt.zone()
		busy := level(0, a.p.Steps(), 0)
		start, width, high := r.IntN(24), 1+r.IntN(20), 1+9*r.Float64()
		for k := range busy.V {
			if v := r.IntN(4); (k+start)%24 < width {
				busy.V[k] = float32(high * r.Float64())
			} else if v > 0 {
				busy.V[k] = float32(0.002 * float64(v))
			}
		}
		gpus, n, later := []float64{0.5, 1, 2}[r.IntN(3)], 2+r.IntN(10), 1+r.Float64()
		l, _ := serving(a, 10, gpus, busy)
		for k := range l.tracks[qAllocated].V {
			l.tracks[qAllocated].V[k] = float32(r.IntN(12))
		}
		s := service{10, gpus, l.track(qBusy), ""}
		// need is the number of replicas in hours of the day, and saved what they would save.
		choice := func(from, length int) (need int, saved float64) {
			in := func(k int) bool { return (a.p.Begin(k).In(zone).Hour()-from+24)%24 < length }
			top := 0.0
			for k, v := range busy.All() {
				if in(k) {
					top = max(top, v)
				}
			}
			if top > busyAbove {
				need = max(2, int(math.Ceil(2*later*top/gpus-1e-6)))
			}
			for k, v := range l.track(qAllocated).All() {
				if in(k) && need < n {
					had := min(v, float64(n)*gpus)
					saved += had - had*float64(need)/float64(n)
				}
			}
			return need, saved
		}
		best := 0.0
		for from := range 24 {
			for length := 4; length < 24; length++ {
				_, saved := choice(from, length)
				best = max(best, saved)
			}
		}
		low, from, to, saved := demand.Quiet(a.p, a.opt.zone(), s.demand, l.track(qAllocated), s.gpus, n, later)
		if math.Abs(saved-best) > 1e-6 {
			t.Fatalf("saves %v, %v is possible", saved, best)
		}
		if saved == 0 {
			if low != 0 || from != to {
				t.Errorf("%d from %d to %d saves nothing", low, from, to)
			}
			continue
		}
		saving++
		length := (to - from + 24) % 24
		if need, is := choice(from, length); need != low || math.Abs(is-saved) > 1e-6 || length < 4 {
			t.Errorf("%d from %d to %d saves %v, want %d and %v", low, from, to, saved, need, is)
		}
	}
	if saving < 100 {
		t.Errorf("%d of 300 save anything", saving)
	}
}

// Of equal choices the first hour counts, and the shortest time that saves as much: nothing is ever needed, and pods are there from 5 to 9.
func TestFirstOfEqualQuietHours(t *testing.T) {
	a := analysisOf(48, time.Hour)
	for _, tt := range []struct {
		busy, allocated series.Track
		n               int
		want            string
	}{
		{level(0, 48, 0), level(0, 48, 10), 10, "0 from 0 to 23: 460"},
		{level(0, 48, 0), byHour(48, 5, 9, 10, 0), 10, "0 from 0 to 9: 80"},
		{level(0, 48, 0.0019), level(0, 48, 10), 10, "0 from 0 to 23: 460"},
		{level(0, 48, 0.003), level(0, 48, 10), 10, "2 from 0 to 23: 368"},
		{level(0, 48, 2), level(0, 48, 10), 10, "4 from 0 to 23: 276"},
		{level(0, 48, 0.003), level(0, 48, 10), 2, "0 from 0 to 0: 0"},
		{byHour(48, 3, 24, 5, 0), level(0, 48, 10), 10, "0 from 0 to 0: 0"}, // three hours are too short
		{byHour(48, 4, 24, 5, 0), level(0, 48, 10), 10, "0 from 0 to 4: 80"},
		{byHour(48, 2, 22, 5, 0), level(0, 48, 10), 10, "0 from 22 to 2: 80"},
	} {
		l := &load{}
		l.tracks[qBusy], l.tracks[qAllocated] = tt.busy, tt.allocated
		low, from, to, saved := demand.Quiet(a.p, a.opt.zone(), l.track(qBusy), l.track(qAllocated), 1, tt.n, 1)
		if got := fmt.Sprintf("%d from %d to %d: %.4g", low, from, to, saved); got != tt.want {
			t.Errorf("%s, want %s", got, tt.want)
		}
	}
}

// Six pods that are hardly busy: fewer run only if their kind has replicas and their memory is that of replicas.
func TestKindsWithReplicas(t *testing.T) {
	for _, tt := range []struct {
		kind   string
		differ float64 // more memory of each pod than of the one before it
		want   string  // confidence; else the code of no advice or of other advice
		change string
	}{
		{"Deployment", 0, "high", "scale deployment/app --replicas=2"},
		{"Deployment", 1, "high", "scale deployment/app --replicas=2"}, // 50 to 55 GiB
		{"Deployment", 4, "pods_differ", ""},
		{"rollout", 0, "high", "scale rollouts.argoproj.io/app --replicas=2"},
		{"KnativeService", 0, "high", "min-scale: \"2\""},
		{"InferenceService", 0, "high", "minReplicas: 2"},
		{"StatefulSet", 0, "low", "scale statefulset/app --replicas=2"},
		{"StatefulSet", 4, "pods_differ", ""},
		{"LeaderWorkerSet", 0, "memory_too_high", ""}, {"JobSet", 0, "memory_too_high", ""},
		{"PyTorchJob", 0, "memory_too_high", ""}, {"RayCluster", 0, "memory_too_high", ""},
		{"VolcanoJob", 0, "memory_too_high", ""}, {"Workflow", 0, "memory_too_high", ""}, {"Notebook", 0, "memory_too_high", ""},
		{"daemonset", 0, "memory_too_high", ""}, {"XJob", 0, "memory_too_high", ""},
	} {
		var s scene
		s.node("n1", h100, 6, states{"busy": 0.3, "gap": 5.7}, nil)
		end := monday.Add(20 * day)
		for i := range 6 {
			s.allocate(job{kind: tt.kind, memory: (50 + tt.differ*float64(i)) * gib, to: end, busy: hourOf(0, 24, 0.05, 0),
				pods: []string{fmt.Sprint("app-", i)}, gpus: []string{fmt.Sprint("g", i)}})
		}
		s.rules(job{kind: tt.kind, memory: 50 * gib, to: end, busy: hourOf(0, 24, 0.05, 0)}, 6)
		d := s.must(t, func(o *Options) { o.To = end })
		w := d.Workloads[0]
		got, change := w.NoAdvice, ""
		if w.Advice == document.AdviseReplicas {
			a := ofCode(t, d, document.AdviseReplicas)
			got, change = a.Confidence, a.Change
		}
		if got != tt.want || !strings.Contains(change, tt.change) {
			t.Errorf("%s: %s %s\n%s", tt.kind, w.Advice, got, change)
		}
	}
}

// A replica that never ran does not hide that eleven others need two: its release is a sentence of the advice.
func TestReplicasBesideAnIdleOne(t *testing.T) {
	var s scene
	s.node("n1", h100, 12, states{"busy": 0.55, "gap": 10.45, "idle": 1}, nil)
	end := monday.Add(20 * day)
	s.rules(job{memory: 50 * gib, to: end, busy: hourOf(0, 24, 0.05, 0)}, 12)
	s.allocate(job{memory: 50 * gib, to: end, busy: hourOf(0, 24, 0.05, 0), pods: names("app", 11)})
	s.allocate(job{memory: 1, to: end, busy: no, pods: []string{"app-idle"}, gpus: []string{"g"}})
	a := ofCode(t, s.must(t, func(o *Options) { o.To = end }), document.AdviseReplicas)
	if a.Title != "Run 2 replicas of app instead of 12" || a.Confidence != "high" || a.SavedHours != 4800 ||
		!strings.HasSuffix(a.Evidence, " 1 of its pods, with 1 GPU, have not been busy for 20.0 days, while others are.") {
		t.Errorf("%+v", a)
	}
}

// The hours of a schedule are those of the zone, which texts name; the folds test its low number: 2 before the
// eleventh night, which later nights exceed.
func TestScheduleIsTestedByFolds(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	must.OK(t, err)
	a := analysisOf(20*24, time.Hour)
	a.opt.Zone = berlin
	l, r := serving(a, 24, 1, byHour(20*24, 8, 18, 9, 0.5))
	ad, _ := a.replicas(l, r, 20*24)
	if ad == nil || ad.Validation.Worst != 0 || ad.Confidence == "low" ||
		!strings.HasSuffix(ad.Title, " from 19:00 to 09:00 Europe/Berlin") || !strings.Contains(ad.Change, "timeZone: Europe/Berlin") {
		t.Fatalf("%+v", ad)
	}
	grows := byHour(20*24, 8, 18, 9, 0.5)
	for k := range grows.V {
		if h := k % 24; h < 8 || h >= 18 {
			grows.V[k] = map[bool]float32{true: 0.2, false: 2.5}[k < 264]
		}
	}
	l, r = serving(a, 24, 1, grows)
	if ad, _ = a.replicas(l, r, 20*24); ad != nil && (ad.Validation.Worst == 0 || ad.Confidence == "high") {
		t.Errorf("%+v %+v", ad, ad.Validation)
	}
}
