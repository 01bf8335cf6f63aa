package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/report/document"
	"github.com/gpu-exporter/gpu-exporter/report/metric"
	"github.com/gpu-exporter/gpu-exporter/report/prices"
	"github.com/gpu-exporter/gpu-exporter/report/series"
	"github.com/gpu-exporter/gpu-exporter/report/units"
)

func no(int64) float64 { return 0 }

// between is busy from one time up to another, and less otherwise.
func between(from, to time.Time, busy, otherwise float64) func(int64) float64 {
	return func(at int64) float64 {
		if at > from.Unix() && at <= to.Unix() {
			return busy
		}
		return otherwise
	}
}

// TestAdvice compares the advice for one workload, or the reason for none, with what was computed by hand: 240 hours, of
// which a step of 5 minutes is 1/12.
func TestAdvice(t *testing.T) {
	for _, tt := range []struct {
		name         string
		job          job
		code, reason string // without a code, the reason for no advice
		saved        float64
		title        string
		alternatives string
	}{
		{"never used", job{busy: no}, "release", "never_used", 240, "Release 1 GPU of app", "Nothing smaller"},
		{"loaded", job{busy: no, memory: 40 * gib}, "release", "loaded_idle", 240, "Release 1 GPU of app", "Nothing smaller"},
		{"stopped after four days", job{busy: between(monday, monday.Add(4*day), 0.9, 0), memory: 20 * gib},
			"release", "stopped", 144, "Release 1 GPU of app", "Nothing smaller"},
		{"busy in one step", job{busy: between(monday, monday.Add(5*time.Minute), 0.9, 0), memory: 20 * gib},
			"release", "stopped", 240 - 1./12, "Release 1 GPU of app", "Nothing smaller"},
		{"stopped today", job{busy: between(monday, tenDays.Add(-10*time.Hour), 0.9, 0), memory: 20 * gib}, "", "well_used", 0, "", ""},
		{"stopped for exactly a day", job{busy: between(monday, tenDays.Add(-day), 0.4, 0)},
			"release", "stopped", 24, "Release 1 GPU of app", ""},
		{"stopped for a step less than a day", job{busy: between(monday, tenDays.Add(-day+5*time.Minute), 0.35, 0)},
			"share", "low_activity", 120, "Share the GPU of app: 1/2 of a GPU is enough", "Not 1/3: it needs 44 %"},
		{"young and idle", job{from: tenDays.Add(-20 * time.Hour), busy: no}, "", "observed_too_short", 0, "", ""},
		{"idle and gone", job{to: tenDays.Add(-2 * day), busy: no}, "", "no_longer_allocated", 0, "", ""},
		{"returns every fourth day", job{memory: 20 * gib, busy: func(at int64) float64 {
			if (at-monday.Unix())/86400%4 == 0 {
				return 0.8
			}
			return 0
		}}, "", "peaks_too_high", 0, "", ""},
		// Twice 0.07 is 14 %, and 1g.10gb has a seventh.
		{"small", job{memory: 5 * gib, busy: func(at int64) float64 {
			if time.Unix(at-1, 0).UTC().Hour() == 10 {
				return 0.07
			}
			return 0.02
		}}, "shrink", "low_activity", 240 * 6. / 7, "Move app to the MIG profile 1g.10gb",
			"1g.10gb is the smallest profile. The next larger is 1g.20gb."},
		{"small with more memory", job{memory: 12 * gib, busy: between(monday, tenDays, 0.07, 0)}, "shrink", "low_activity",
			240 * 3. / 4, "Move app to the MIG profile 1g.20gb",
			"Not 1g.10gb: it has 9.8 GiB, and the memory needed is 12.0 GiB. The next larger is 2g.20gb."},
		{"medium", job{memory: 12 * gib, busy: between(monday, tenDays, 0.3, 0)}, "shrink", "low_activity",
			240 * 1. / 2, "Move app to the MIG profile 3g.40gb",
			"Not 2g.20gb: it has 29 % of the GPU's compute, and it needs 38 % with headroom."},
		{"small with much memory", job{memory: 50 * gib, busy: between(monday, tenDays, 0.05, 0)}, "", "memory_too_high", 0, "", ""},
		{"preallocated", job{memory: 0.9 * 81559 * (1 << 20), busy: between(monday, tenDays, 0.1, 0)},
			"share", "preallocated_memory", 180, "Try app at 1/4 of a GPU, with limited memory", "Not more than 4 on one GPU"},
		{"preallocated and busier", job{memory: 0.9 * 81559 * (1 << 20), busy: between(monday, tenDays, 0.25, 0)},
			"share", "preallocated_memory", 120, "Try app at 1/2 of a GPU, with limited memory", "Not 1/3: it needs 50 %"},
		{"bursty", job{memory: 5 * gib, busy: func(at int64) float64 {
			if at%3600 == 0 {
				return 0.95
			}
			return 0.01
		}}, "", "peaks_too_high", 0, "", ""},
		{"peaks once a week", job{memory: 5 * gib, busy: between(monday.Add(4*day), monday.Add(4*day+time.Hour), 0.9, 0.02)},
			"", "peaks_too_high", 0, "", ""},
		{"used well", job{memory: 60 * gib, busy: between(monday, tenDays, 0.85, 0)}, "", "well_used", 0, "", ""},
		{"young and small", job{from: tenDays.Add(-3 * day), memory: 5 * gib, busy: between(monday, tenDays, 0.05, 0)},
			"", "observed_too_short", 0, "", ""},
		{"outgrows it", job{memory: 5 * gib, busy: between(monday.Add(9*day), tenDays, 0.25, 0.05)}, "", "rhythm_unknown", 0, "", ""},
		{"model without MIG", job{model: "NVIDIA L40S", memory: 5 * gib, busy: between(monday, tenDays, 0.26, 0)}, "share",
			"low_activity", 160, "Share the GPU of app: 1/3 of a GPU is enough", "Not 1/4: it needs 32 % with headroom."},
		{"model without MIG, memory", job{model: "NVIDIA L40S", memory: 30 * gib, busy: between(monday, tenDays, 0.1, 0)},
			"share", "low_activity", 120, "Share the GPU of app: 1/2 of a GPU is enough",
			"Not 1/3: its memory of 30.0 GiB does not fit."},
	} {
		for _, pods := range [][]string{{"app-0"}, nil} {
			name := tt.name
			if pods == nil {
				name += ", rules alone"
			}
			t.Run(name, func(t *testing.T) {
				var s scene
				s.node("n1", h100, 1, states{"busy": 1}, nil)
				j := tt.job
				j.pods = pods
				s.job(j)
				if pods == nil {
					j.defaults()
					s.add(metric.RawInfo, map[string]string{"node": "n1", "uuid": "u", "model": j.model}, constant(1))
					s.add(metric.RawTotal, map[string]string{"node": "n1", "uuid": "u"}, constant(81559<<20))
				}
				d := s.must(t, nil)
				if len(d.Workloads) != 1 {
					t.Fatalf("%d workloads", len(d.Workloads))
				}
				w := d.Workloads[0]
				if tt.code == "" {
					if w.Advice != "" || w.NoAdvice != tt.reason || w.NoAdviceReason == "" {
						t.Errorf("%q, %q (%s), want %q", w.Advice, w.NoAdvice, w.NoAdviceReason, tt.reason)
					}
					return
				}
				a := adviceOn(t, d, w.ID)
				if w.Advice != tt.code || a.Code != tt.code || a.Reason != tt.reason || a.Title != tt.title ||
					!strings.HasPrefix(a.Alternatives, tt.alternatives) {
					t.Errorf("%+v", a)
				}
				near(t, "saved", a.SavedHours, tt.saved)
				// Ten days confirm a part of a GPU at most, if twice the demand fits; nothing shows bursts within a MIG device.
				if level := map[bool]string{true: "medium"}[tt.name == "model without MIG, memory"]; a.Confidence != cmp.Or(level, "low") {
					t.Errorf("confidence %s", a.Confidence)
				}
				if tt.code != "release" {
					if !strings.Contains(a.Evidence, "(5-minute means)") {
						t.Error(a.Evidence)
					}
					near(t, "saved GPUs", a.SavedGPUs, tt.saved/240)
				}
			})
		}
	}
}

func adviceOn(t *testing.T, d *document.Document, workload string) document.Advice {
	t.Helper()
	return theAdvice(t, d, "on "+workload, func(a document.Advice) bool { return a.Workload == workload })
}

func ofCode(t *testing.T, d *document.Document, code string) document.Advice {
	t.Helper()
	return theAdvice(t, d, code, func(a document.Advice) bool { return a.Code == code })
}

func theAdvice(t *testing.T, d *document.Document, what string, is func(document.Advice) bool) document.Advice {
	t.Helper()
	i := slices.IndexFunc(d.Advice, is)
	if i < 0 {
		t.Fatalf("no advice %s: %+v", what, d.Advice)
	}
	return d.Advice[i]
}

// The row of a workload that was busy to 90 % for four days and idle for six, with the validation of its release.
func TestWorkloadRow(t *testing.T) {
	var s scene
	s.node("n1", h100, 1, states{"busy": 0.36, "idle": 0.64}, nil)
	j := job{busy: between(monday, monday.Add(4*day), 0.9, 0), memory: 20 * gib, pods: []string{"app-0"}}
	s.job(j)
	labels := map[string]string{"namespace": "team", "workload_type": "Deployment", "workload": "app", "model": h100}
	s.add(metric.RuleWatts, labels, constant(500))
	s.add(metric.RuleLastBusy, labels, constant(float64(monday.Add(4*day).Unix())))
	list, err := prices.Parse([]byte("{gpus: [{model: '*', per_hour: 2}], energy_per_kwh: 0.5}"))
	must.OK(t, err)
	d := s.must(t, func(o *Options) { o.Prices = list })
	w := d.Workloads[0]
	for what, x := range map[string][2]float64{
		"allocated": {w.Allocated, 240}, "busy": {w.Busy, 86.4}, "gap": {w.Gap, 9.6}, "idle": {w.Idle, 144}, "GPUs": {w.GPUs, 1},
		"GPUs now": {w.GPUsNow, 1}, "reclaimable": {w.Reclaimable, 144}, "longest idle": {w.LongestIdle, 144},
		"idle with memory": {*w.IdleWithMemory, 144}, "idle without": {*w.IdleWithoutMemory, 0}, "unused": {w.Unused, 153.6},
		"busy mean": {*w.BusyMean, 0.36}, "p95": {*w.BusyP95, 0.9}, "peak": {*w.BusyPeak, 0.9}, "unknown": {w.Unknown, 0},
		"memory": {*w.MemoryPeak / gib, 20}, "floor": {*w.MemoryFloor / gib, 20}, "coverage": {w.Coverage, 1},
		"energy": {*w.EnergyKWh, 120}, "cost": {*w.Cost, 480}, "unused cost": {*w.UnusedCost, 307.2},
		"node's reclaimable": {d.Nodes[0].Reclaimable, 144}, "fleet's cost": {*d.Fleet.Cost, 480},
		"cost of idle": {d.Fleet.StateCost.Idle, 307.2}, "first point": {w.Plot.Busy[0], 0.9}, "last point": {w.Plot.Busy[95], 0},
		"memory of the first point": {w.Plot.Memory[0] / gib, 20}, "GPUs of the last point": {w.Plot.GPUs[95], 1},
		"namespace's hours": {d.Namespaces[0].Hours, 240}, "namespace's energy cost": {*d.Namespaces[0].EnergyCost, 60},
		"namespace's unused cost": {d.Namespaces[0].StateCost.Unused(), 307.2},
	} {
		near(t, what, x[0], x[1])
	}
	if w.Namespace != "team" || w.Kind != "Deployment" || w.Confidence != "medium" || w.LastBusy == nil ||
		!w.LastBusy.Equal(monday.Add(4*day)) || !w.FirstSeen.Equal(monday) || !w.LastSeen.Equal(tenDays) || w.Pods != 1 {
		t.Errorf("%+v", w)
	}
	a := adviceOn(t, d, w.ID)
	near(t, "saved cost", *a.SavedCost, 288)
	// Idle from the fifth day, its release would have been recommended before each of the folds, and was right.
	v := a.Validation
	if v == nil || v.Exceeded != 0 || v.Size != "no GPU" || v.Folds != 4 || v.TrainHours != 210 || v.TestHours != 120 {
		t.Fatalf("%+v", a.Validation)
	}
	if a.Change != "kubectl -n team scale deployment/app --replicas=0" ||
		a.Evidence != "1 GPU stopped being busy 6.0 days ago and is still allocated (last busy 2026-02-06 00:00 UTC)." {
		t.Errorf("%s\n%s", a.Change, a.Evidence)
	}
}

// A GPU that returns after a long pause is not released within a similar one. Without its pause, the first part of the
// period would have released it.
func TestReturnsAfterPauses(t *testing.T) {
	busy := between(monday.Add(7*day), monday.Add(8*day), 0.9, 0)
	for i, end := range []time.Time{monday.Add(7 * day), tenDays} {
		want := []string{"release", ""}[i]
		var s scene
		s.node("n1", h100, 1, states{"busy": 1}, nil)
		s.job(job{busy: busy, pods: []string{"app-0"}})
		if got := s.must(t, func(o *Options) { o.To = end }).Workloads[0].Advice; got != want {
			t.Errorf("at %s: %q, want %q", end, got, want)
		}
	}
}

// One step of 2,880 with more demand is within the budget; validation on the fold that has it shows it.
func TestValidationOfASize(t *testing.T) {
	var s scene
	s.node("n1", h100, 1, states{"busy": 1}, nil)
	spike := monday.Add(9 * day)
	s.job(job{memory: 5 * gib, busy: between(spike, spike.Add(5*time.Minute), 0.16, 0.05), pods: []string{"app-0"}})
	d := s.must(t, nil)
	a := adviceOn(t, d, d.Workloads[0].ID)
	// Ten days show it once, so that it may come nearly five times in the next ten: the size covers twice of it.
	near(t, "saved", a.SavedHours, 120)
	near(t, "throttled", a.Replay.Throttled*2880, 0)
	if v := a.Validation; v == nil || v.Size != "1g.10gb" || v.Folds != 4 || math.Abs(v.Exceeded*1440-1) > 1e-6 ||
		math.Abs(v.Worst*360-1) > 1e-6 ||
		a.Confidence != "low" {
		t.Errorf("%+v %+v", a.Validation, a)
	}
}

// The one-minute means of a GPU count where they are higher than those of five minutes.
func TestOneMinuteMeans(t *testing.T) {
	for i, minute := range []float64{0.3, 0.5} {
		want := []string{"3g.40gb", ""}[i]
		var s scene
		s.node("n1", h100, 1, states{"busy": 1}, nil)
		s.job(job{memory: 5 * gib, busy: between(monday, tenDays, 0.05, 0), pods: []string{"app-0"}})
		s.add(metric.RawMinute, map[string]string{"node": "n1", "uuid": "GPU-app-0"}, constant(minute))
		d := s.must(t, nil)
		w := d.Workloads[0]
		if want == "" {
			if w.NoAdvice != "peaks_too_high" {
				t.Errorf("%+v", w)
			}
			continue
		}
		if a := adviceOn(t, d, w.ID); !strings.HasSuffix(a.Title, want) ||
			!strings.Contains(a.Evidence, "above 30 % in 0.1 % of it (one-minute means)") {
			t.Errorf("%+v", a)
		}
	}
}

// Of a workload that only the rules have, all GPUs at the end of the period are released.
func TestReleaseByRulesAlone(t *testing.T) {
	var s scene
	s.node("n1", h100, 3, states{"idle": 3}, nil)
	s.rules(job{busy: no}, 3)
	d := s.must(t, nil)
	a := adviceOn(t, d, d.Workloads[0].ID)
	near(t, "saved", a.SavedHours, 720)
	near(t, "saved GPUs", a.SavedGPUs, 3)
	near(t, "longest idle", d.Workloads[0].LongestIdle, 240)
	near(t, "reclaimable", d.Fleet.Reclaimable, 720)
	// An hour of work after four days: idle for 96 and for 143 hours.
	s = scene{}
	s.node("n1", h100, 1, states{"idle": 1}, nil)
	s.rules(job{busy: between(monday.Add(4*day), monday.Add(4*day+time.Hour), 0.9, 0)}, 1)
	w := s.must(t, nil).Workloads[0]
	near(t, "longest idle", w.LongestIdle, 143)
	near(t, "reclaimable", w.Reclaimable, 239)
}

// The weekend does not count as idle time.
func TestWeekend(t *testing.T) {
	var s scene
	s.node("n1", h100, 1, states{"busy": 1}, nil)
	friday := monday.Add(4*day + 20*time.Hour)
	s.job(job{busy: between(monday, friday, 0.9, 0), pods: []string{"app-0"}})
	for i, end := range []time.Time{friday.Add(40 * time.Hour), friday.Add(76 * time.Hour)} {
		want := []string{"", "release"}[i]
		if got := s.must(t, func(o *Options) { o.To = end }).Workloads[0].Advice; got != want {
			t.Errorf("%s: %q, want %q", end, got, want)
		}
	}
}

// Of two pods of a Deployment one is idle.
func TestIdlePods(t *testing.T) {
	var s scene
	s.node("n1", h100, 8, states{"busy": 1, "idle": 1}, nil)
	j := job{busy: between(monday, tenDays, 0.8, 0), memory: 30 * gib, pods: []string{"app-a"}}
	s.job(j)
	j.busy, j.pods, j.gpus = no, []string{"app-b"}, []string{"GPU-idle"}
	s.job(j)
	d := s.must(t, nil)
	a := adviceOn(t, d, d.Workloads[0].ID)
	near(t, "saved", a.SavedHours, 240)
	near(t, "saved GPUs", a.SavedGPUs, 1)
	if a.Reason != "idle_pods" || a.Change != "# 1 pod fewer; idle now: app-b\nkubectl -n team scale deployment/app --replicas=1" ||
		!strings.HasPrefix(a.Evidence, "1 of its pods, with 1 GPU, have not been busy for 10.0 days") {
		t.Errorf("%+v", a)
	}
}

// Where no pod is busy, the idle one is not one of several: the other one, of 20 hours, is too young to be judged.
func TestIdleAmongIdlePods(t *testing.T) {
	var s scene
	s.node("n1", h100, 8, states{"idle": 2}, nil)
	s.job(job{busy: no, pods: []string{"app-a"}})
	s.allocate(job{busy: no, pods: []string{"app-b"}, gpus: []string{"GPU-young"}, from: tenDays.Add(-20 * time.Hour)})
	d := s.must(t, nil)
	if a := adviceOn(t, d, d.Workloads[0].ID); a.Reason != "never_used" || a.SavedGPUs != 1 {
		t.Errorf("%+v", a)
	}
}

// Of three GPUs of a pod one is idle.
func TestIdleGPUsOfAPod(t *testing.T) {
	var s scene
	s.node("n1", h100, 8, states{"busy": 8}, nil)
	j := job{name: "train", busy: between(monday, tenDays, 0.6, 0), memory: 16 * gib, pods: []string{"train-x", "train-x"}}
	s.job(j)
	j.busy, j.pods, j.gpus, j.memory = no, []string{"train-x"}, []string{"GPU-idle"}, 0.4*gib
	s.allocate(j)
	d := s.must(t, nil)
	a := ofCode(t, d, "fewer_gpus")
	near(t, "saved", a.SavedHours, 240)
	near(t, "saved GPUs", a.SavedGPUs, 1)
	if a.Title != "Request 2 instead of 3 GPUs for each pod of train" || !strings.Contains(a.Change, "nvidia.com/gpu: 2") ||
		a.Evidence != "Over 10.0 days of its pods, 1 of 3 GPUs were busy for less than a tenth of the busiest GPU's time in their pod." {
		t.Errorf("%+v", a)
	}
}

// From a MIG device of half a GPU to one of a seventh.
func TestShrinkMIG(t *testing.T) {
	var s scene
	s.node("n1", h100, 1, states{"busy": 0.1, "idle": 0.9}, nil)
	s.job(job{share: 0.5, resource: "nvidia_com_mig_3g_40gb", memory: 5 * gib, pods: []string{"app-0"},
		busy: between(monday, tenDays, 0.05, 0)})
	d := s.must(t, nil)
	w := d.Workloads[0]
	a := adviceOn(t, d, w.ID)
	near(t, "saved", a.SavedHours, 120*5./7)
	if w.Sharing != "mig" || w.Profile != "3g.40gb" || a.Code != "shrink" || !strings.Contains(a.Change, "nvidia.com/mig-1g.10gb: 1") {
		t.Errorf("%+v %+v", w, a)
	}
}

// Two pods share a GPU that is busy to 95 %: one uses 80 % of it, 30 % more than its share, and 5 GiB more memory than
// its half; the other 15 %.
func TestReduceSharing(t *testing.T) {
	var s scene
	s.node("n1", h100, 1, states{"busy": 0.95, "gap": 0.05}, nil)
	for name, busy := range map[string]float64{"large": 0.8, "small": 0.15} {
		j := job{name: name, share: 0.5, memory: 45 * gib, busy: between(monday, tenDays, busy, 0),
			pods: []string{name + "-0"}, gpus: []string{"GPU-shared"}}
		if name == "small" {
			j.others, j.memory = 0.25, 33*gib
		}
		s.job(j)
	}
	d := s.must(t, nil)
	if len(d.Advice) != 2 || len(d.Workloads) != 2 {
		t.Fatalf("%+v", d.Advice)
	}
	for _, w := range d.Workloads {
		a := adviceOn(t, d, w.ID)
		near(t, "allocated", w.Allocated, 120)
		near(t, "beyond", w.Beyond, map[string]float64{"large": 72, "small": 0}[w.Name])
		if beyond := w.MemoryBeyond; (beyond != nil) != (w.Name == "large") || beyond != nil && math.Abs(*beyond-5*gib) > gib {
			t.Errorf("%s: %v bytes of memory beyond the allocation", w.Name, w.MemoryBeyond)
		}
		near(t, "used by others", w.UsedByOthers, map[string]float64{"large": 0, "small": 60}[w.Name])
		near(t, "GPUs", w.GPUs, 0.5)
		if a.Code != "reduce_sharing" || a.SavedHours != 0 || a.Title != "Reduce sharing for "+w.Name || w.Sharing != "shared" ||
			a.Evidence != "Its GPUs were busy to 90 % or more in 100 % of the time, each shared by 2.0 pods on average; "+
				"up to 98 % of their memory was in use." {
			t.Errorf("%+v %+v", a, w)
		}
	}
	near(t, "fleet's beyond", d.Fleet.Beyond, 72)
	near(t, "namespace's time used by others", d.Namespaces[0].UsedByOthers, 60)
	near(t, "namespace's difference", d.Namespaces[0].Difference, 0)
}

// For half of the time a pod uses 30 % more than its half of a GPU; then others use 30 % of the GPU in its share.
func TestBeyondAndOthers(t *testing.T) {
	var s scene
	s.node("n1", h100, 1, states{"busy": 0.75, "gap": 0.25}, nil)
	s.job(job{share: 0.5, memory: gib, busy: between(monday, monday.Add(5*day), 0.8, 0.1), others: 0.3, pods: []string{"app-0"}})
	w := s.must(t, nil).Workloads[0]
	for what, x := range map[string][2]float64{"busy": {w.Busy, 108}, "beyond": {w.Beyond, 36}, "gap": {w.Gap, 12},
		"allocated":      {w.Allocated, 120},
		"used by others": {w.UsedByOthers, 36}, "unknown": {w.Unknown, 0}, "mean": {*w.BusyMean, 0.9}} {
		near(t, what, x[0], x[1])
	}
}

// TestConsolidate: nodes are given back only where the pods of the period run on the rest of them.
func TestConsolidate(t *testing.T) {
	type pod struct {
		node     string
		gpus     int
		from, to time.Duration
	}
	for _, tt := range []struct {
		name   string
		gpus   []float64 // of the nodes gpu-1, gpu-2, ...
		pods   []pod
		silent func(node string) func(int64) bool
		length time.Duration
		saved  float64 // 0: no advice
		title  string
	}{
		{"two of eight on each of four", []float64{8, 8, 8, 8}, []pod{{"gpu-1", 2, 0, 0}, {"gpu-2", 2, 0, 0}, {"gpu-3", 2, 0, 0},
			{"gpu-4", 2, 0, 0}}, nil, 0, 2 * 8 * 240, "Give back 2 nodes of " + h100 + ": gpu-1, gpu-2"},
		{"five of eight on each of three", []float64{8, 8, 8}, []pod{{"gpu-1", 5, 0, 0}, {"gpu-2", 5, 0, 0}, {"gpu-3", 5, 0, 0}},
			nil, 0, 0, ""},
		{"one large node and many small ones", []float64{8, 2, 2, 2, 2}, []pod{{"gpu-1", 8, 0, 0}, {"gpu-2", 2, 0, 0},
			{"gpu-3", 2, 0, 0}, {"gpu-4", 1, 0, 0}}, nil, 0, 2 * 240, "Give back 1 node of " + h100 + ": gpu-5"},
		{"a window of an hour", []float64{8, 8}, []pod{{"gpu-1", 2, 0, 0}}, nil, 65 * time.Minute, 0, ""},
		{"half an hour less than 6.65 days", []float64{8, 8}, []pod{{"gpu-1", 2, 0, 0}}, nil, 159 * time.Hour, 0, ""},
		{"nothing allocated", []float64{8, 8}, nil, nil, 0, 2 * 8 * 240, "Give back 2 nodes of " + h100 + ": gpu-1, gpu-2"},
		// What a silent node had may have been all of it.
		{"silent on the busy day", []float64{8, 8, 8, 8}, []pod{{"gpu-1", 8, 0, 0}, {"gpu-2", 1, 0, 2 * 24 * time.Hour}},
			func(node string) func(int64) bool {
				return func(at int64) bool {
					return node < "gpu-3" || at <= monday.Add(5*day).Unix() || at > monday.Add(6*day).Unix()
				}
			}, 0, 8 * 240, "Give back 1 node of " + h100 + ": gpu-3"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var s scene
			for i, n := range tt.gpus {
				name := fmt.Sprintf("gpu-%d", i+1)
				var exists func(int64) bool
				if tt.silent != nil {
					exists = tt.silent(name)
				}
				s.node(name, h100, n, states{}, exists)
				l := map[string]string{"node": name, "model": h100}
				allocated := func(at int64) (v float64) {
					for _, p := range tt.pods {
						if p.node == name && at > monday.Add(p.from).Unix() && (p.to == 0 || at <= monday.Add(p.to).Unix()) {
							v += float64(p.gpus)
						}
					}
					return v
				}
				for state, of := range map[string]func(float64) float64{"busy": func(v float64) float64 { return v },
					"unallocated": func(v float64) float64 { return n - v }} {
					s.add(metric.RuleGPUs, with(l, "state", state), func(at int64) (float64, bool) {
						return of(allocated(at)), exists == nil || exists(at)
					})
				}
			}
			for i, p := range tt.pods {
				j := job{name: fmt.Sprint("pod", i), node: p.node, busy: between(monday, tenDays, 0.9, 0), from: monday.Add(p.from)}
				if p.to > 0 {
					j.to = monday.Add(p.to)
				}
				for g := range p.gpus {
					j.pods, j.gpus = append(j.pods, fmt.Sprint("pod", i)), append(j.gpus, fmt.Sprint(p.node, g))
				}
				s.job(j)
			}
			d := s.must(t, func(o *Options) {
				if tt.length > 0 {
					o.To = o.From.Add(tt.length)
				}
			})
			if tt.saved == 0 {
				for _, a := range d.Advice {
					if a.Code == document.AdviseConsolidate {
						t.Errorf("%+v", a)
					}
				}
				return
			}
			a := ofCode(t, d, document.AdviseConsolidate)
			near(t, "saved", a.SavedHours, tt.saved)
			near(t, "saved GPUs", a.SavedGPUs, tt.saved/240)
			if a.Title != tt.title || a.Replay.Waiting != 0 || a.Replay.Evicted != 0 {
				t.Errorf("%+v %+v", a, a.Replay)
			}
		})
	}
}

// A job of two GPUs hung for twelve hours: they count as busy, and are said apart. Another one that is as busy did not.
func TestHungJob(t *testing.T) {
	var s scene
	s.node("n1", h100, 8, states{"busy": 4, "unallocated": 4}, nil)
	for _, name := range []string{"stuck", "works"} {
		s.allocate(job{name: name, kind: "PyTorchJob", pods: []string{name + "-0", name + "-1"}, busy: between(monday, tenDays, 1, 0)})
	}
	hangs := map[string]string{"alertname": metric.HungJob, "namespace": "team", "workload_type": "PyTorchJob", "workload": "stuck"}
	s.add(metric.Alerts, with(hangs, "alertstate", "firing"), during(monday.Add(24*time.Hour), monday.Add(36*time.Hour), constant(1)))
	s.add(metric.Alerts, with(hangs, "alertstate", "pending"), constant(1))
	s.add(metric.Alerts, with(hangs, "alertstate", "firing", "alertname", "GPUWorkloadStraggler"), constant(1))
	d := s.must(t, nil)
	for _, w := range d.Workloads {
		if w.Name == "works" && (w.Hung != nil || w.NoAdvice == "hung") ||
			w.Name == "stuck" && (w.Hung == nil || *w.Hung != 24 || w.Busy != 480 || w.NoAdvice != "hung") {
			t.Errorf("%+v", w)
		}
	}
	if !slices.ContainsFunc(d.Notes, func(n document.Note) bool {
		return n.Code == "hung_jobs" && strings.HasPrefix(n.Text, "Jobs hung, ") && strings.HasSuffix(n.Text, "): team/stuck.")
	}) {
		t.Errorf("%+v", d.Notes)
	}
}

// Pods are pending for one MIG profile while devices of another are unallocated.
func TestGeometry(t *testing.T) {
	var s scene
	s.node("n1", h100, 8, states{"busy": 8}, nil)
	for resource, v := range map[string][2]float64{"nvidia_com_mig_1g_10gb": {3, 0}, "nvidia_com_mig_2g_20gb": {2, 0},
		"nvidia_com_mig_3g_40gb": {0, 2}, "nvidia_com_mig_4g_40gb": {0, 0.05}} {
		s.add(metric.RuleFree, map[string]string{"node": "n1", "resource": resource}, constant(v[0]))
		s.add(metric.RulePending, map[string]string{"namespace": "team", "resource": resource}, constant(v[1]))
	}
	// A pod with a whole GPU takes none of the partitioned ones.
	s.allocate(job{pods: []string{"whole-0"}, busy: between(monday, tenDays, 0.9, 0)})
	d := s.must(t, nil)
	a := ofCode(t, d, "mig_geometry")
	near(t, "served", a.SavedHours, 240) // 240 hours of two devices with half of a GPU's slots each
	if len(d.Advice) != 1 || a.Title != "Offer fewer nvidia.com/mig-2g.20gb and more nvidia.com/mig-3g.40gb" || a.Saving != "queue" ||
		!strings.HasPrefix(a.Evidence, "2.0 devices of nvidia.com/mig-3g.40gb were pending on average while others were unallocated") {
		t.Errorf("%+v", d.Advice)
	}
}

// Three devices of an eighth each have no place for one of a half.
func TestGeometryWithoutPlace(t *testing.T) {
	var s scene
	s.node("n1", h100, 8, states{"busy": 8}, nil)
	for i := range 5 {
		s.job(job{name: fmt.Sprint("one", i), pods: []string{fmt.Sprint("one-", i)}, gpus: []string{"GPU-mig"}, share: 1. / 7,
			resource: "nvidia_com_mig_1g_10gb", busy: between(monday, tenDays, 0.1, 0)})
	}
	s.add(metric.RuleFree, map[string]string{"node": "n1", "resource": "nvidia_com_mig_1g_10gb"}, constant(2))
	s.add(metric.RulePending, map[string]string{"namespace": "team", "resource": "nvidia_com_mig_3g_40gb"}, constant(1))
	for _, a := range s.must(t, nil).Advice {
		if a.Code == document.AdviseGeometry {
			t.Errorf("%+v", a)
		}
	}
}

func TestFew(t *testing.T) {
	list := strings.Split("abcdefghi", "")
	if got := units.Few(list[:8], 8); got != "a, b, c, d, e, f, g, h" {
		t.Error(got)
	}
	if got := units.Few(list, 8); got != "a, b, c, d, e, f, g, h and 1 more" {
		t.Error(got)
	}
}

// GPUs that are unavailable have no room for pods, and leave with their node.
func TestBrokenGPUs(t *testing.T) {
	for broken, want := range map[string]string{"gpu-1": "gpu-2", "gpu-2": "", "gpu-3": "gpu-2, gpu-3"} {
		t.Run(broken, func(t *testing.T) {
			var s scene
			pods := []string{"gpu-1"} // the node of each
			if broken == "gpu-2" {
				pods = append(pods, "gpu-2")
			}
			for _, node := range []string{"gpu-1", "gpu-2", "gpu-3", "gpu-4"} {
				in := states{"unallocated": 2}
				if slices.Contains(pods, node) {
					in = states{"busy": 1, "unallocated": 1}
				}
				if node == broken {
					in["unallocated"]--
					in["unavailable"] = 1
				}
				if node < "gpu-3" || broken == "gpu-3" { // one is left in reserve
					s.node(node, h100, 2, in, nil)
				}
			}
			for _, node := range pods {
				s.job(job{name: "on-" + node, node: node, busy: between(monday, tenDays, 0.9, 0), pods: []string{"on-" + node}})
			}
			got := ""
			for _, a := range s.must(t, nil).Advice {
				if a.Code == document.AdviseConsolidate {
					_, got, _ = strings.Cut(a.Title, ": ")
				}
			}
			if got != want {
				t.Errorf("%q is given back, want %q", got, want)
			}
		})
	}
}

// Unallocated MIG devices of another model serve no pod that waits for a profile of the same name.
func TestGeometryOfAnotherModel(t *testing.T) {
	const a100 = "NVIDIA A100-SXM4-80GB"
	var s scene
	s.node("a", a100, 1, states{"busy": 0.1, "gap": 0.9}, nil)
	s.node("h", h100, 1, states{"unallocated": 1}, nil)
	s.job(job{node: "a", model: a100, pods: []string{"app-0"}, share: 1. / 7, resource: "nvidia_com_mig_1g_10gb",
		busy: between(monday, tenDays, 0.1, 0)})
	s.add(metric.RuleFree, map[string]string{"node": "h", "resource": "nvidia_com_mig_2g_20gb"}, constant(3))
	s.add(metric.RulePending, map[string]string{"namespace": "team", "resource": "nvidia_com_mig_3g_40gb"}, constant(1))
	a := ofCode(t, s.must(t, nil), document.AdviseGeometry)
	if near(t, "served", a.SavedHours, 120); a.Model != h100 {
		t.Errorf("%+v", a)
	}
}

// A workload that is busy without an allocation, and one whose allocation ended within the period.
func TestWithoutAllocation(t *testing.T) {
	var s scene
	s.node("n1", h100, 2, states{"busy": 0.5, "unallocated": 1.5}, nil)
	l := map[string]string{"namespace": "team", "workload_type": "Deployment", "workload": "guest", "model": h100}
	s.add(metric.RuleBusy, l, constant(0.25))
	s.add(metric.RuleAllocated, with(l, "workload", "ended"), func(at int64) (float64, bool) {
		return map[bool]float64{true: 1}[at <= monday.Add(4*day).Unix()], true
	})
	s.add(metric.RuleAllocated, with(l, "workload", "nothing"), constant(0))
	s.add(metric.RuleBusy, with(l, "workload", "nothing"), constant(0))
	d := s.must(t, nil)
	if len(d.Workloads) != 2 {
		t.Fatalf("%+v", d.Workloads)
	}
	for _, w := range d.Workloads {
		switch w.Name {
		case "guest":
			near(t, "busy", w.Busy, 60)
			near(t, "beyond", w.Beyond, 60)
			if !w.FirstSeen.Equal(monday) || !w.LastSeen.Equal(tenDays) {
				t.Errorf("%+v", w)
			}
			if w.NoAdvice != "activity_unknown" || !strings.Contains(w.NoAdviceReason, "on GPUs of others") {
				t.Errorf("%+v", w)
			}
		case "ended":
			near(t, "allocated", w.Allocated, 96)
			near(t, "GPUs", w.GPUs, 1)
			if !w.LastSeen.Equal(monday.Add(4*day)) || w.GPUsNow != 0 {
				t.Errorf("%+v", w)
			}
		}
	}
}

// A GPU that is busy in one step: the release of an earlier fold was wrong in the fold in which it ran.
func TestValidationOfARelease(t *testing.T) {
	l := load{allocations: []*allocation{{busy: series.Track{V: slices.Repeat([]float32{0}, 2880)}, typical: 1}}}
	l.allocations[0].busy.V[2000] = 0.5
	o := Defaults()
	an := &analysis{p: series.NewPeriod(monday, tenDays, 5*time.Minute), opt: &o}
	// Folds begin at 1,440, 1,800, 2,160 and 2,520; before the third and the fourth it had been busy a short time ago.
	if v := an.validateRelease(&l); v == nil || v.Folds != 2 || math.Abs(v.Worst-1./360) > 1e-9 || math.Abs(v.Exceeded-1./720) > 1e-9 {
		t.Errorf("%+v", v)
	}
}

// Jobs whose pods start together are placed together, replicas of a service are not.
func TestGangs(t *testing.T) {
	p := series.NewPeriod(monday, tenDays, 5*time.Minute)
	o := Defaults()
	an := &analysis{p: p, opt: &o, facts: newGPUFacts()}
	for kind, want := range map[string]bool{"Job": true, "StatefulSet": true, "Deployment": false} {
		l := &load{key: loadKey{namespace: "team", kind: kind, name: "x"}}
		for i := range 2 {
			l.allocations = append(l.allocations, &allocation{key: allocationKey{pod: fmt.Sprint("x-", i), node: "n"},
				busy: series.Track{V: []float32{1, 1}}, typical: 1})
		}
		runs := an.runs(l)
		if len(runs) != 2 || (runs[0].Gang != "") != want {
			t.Errorf("%s: %+v", kind, runs)
		}
		l.allocations = l.allocations[:1]
		if runs = an.runs(l); runs[0].Gang != "" {
			t.Errorf("one pod of a %s is a gang", kind)
		}
	}
}
