package report

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/report/document"
	"github.com/gpu-exporter/gpu-exporter/report/metric"
)

// hourOf is busy in some hours of each day, and less otherwise.
func hourOf(from, to int, busy, otherwise float64) func(int64) float64 {
	return func(at int64) float64 {
		if h := time.Unix(at-1, 0).UTC().Hour(); h >= from && h < to {
			return busy
		}
		return otherwise
	}
}

// TestRefuted has histories in which a simpler rule gives advice that a replay, a later week or a finer measurement
// refutes.
func TestRefuted(t *testing.T) {
	one := []string{"app-0"}
	night := func(at int64) float64 { // 75 minutes of each night
		if at%86400 > 0 && at%86400 <= 75*60 {
			return 1
		}
		return 0
	}
	grows := func(at int64) float64 { return gib * (10 + 35*float64(at-monday.Unix())/(240*3600)) }
	for _, tt := range []struct {
		name   string
		jobs   []job
		more   func(*scene)
		change func(*Options)
		advice string // of the first workload; empty: none
		reason string // of advice, or of none
		want   string // part of title, evidence, risk or text
		level  string // confidence
		saved  float64
	}{
		{name: "a GPU that is full every night is no idle one", jobs: []job{
			{pods: one, busy: between(monday, tenDays, 0.6, 0), memory: 60 * gib},
			{pods: one, gpus: []string{"GPU-second"}, busy: night, memory: 60 * gib}}},
		{name: "an idle GPU of six days is too young to judge", jobs: []job{
			{pods: one, from: tenDays.Add(-156 * time.Hour), busy: between(monday, tenDays, 0.9, 0)},
			{pods: one, from: tenDays.Add(-156 * time.Hour), gpus: []string{"GPU-second"}, busy: hourOf(0, 24, 0.01, 0)}}},
		{name: "several MIG devices of a pod", jobs: []job{{pods: []string{"app-0", "app-0"}, memory: 5 * gib, share: 0.5,
			resource: "nvidia_com_mig_3g_40gb", busy: hourOf(0, 24, 0.05, 0)}}, reason: "several_mig_devices"},
		{name: "one replica less has no headroom", jobs: []job{{pods: names("app", 10), memory: 70 * gib, busy: hourOf(4, 24, 0.32, 0.1)}},
			// Twice 3.2 are 6.4 of 7; six have it in four of 24 hours.
			advice: document.AdviseReplicas, reason: "low_demand", want: "6 would have too little headroom in 83 % of the time.",
			level: "medium", saved: 3 * 240},
		{name: "a service needs a third of its replicas", jobs: []job{{pods: names("app", 48), memory: 25 * gib,
			busy: hourOf(12, 18, 0.25, 0.02)}}, advice: document.AdviseReplicas, reason: "daily_demand",
			// Twice 48 x 0.25 = 24 by day, 3.2 times 48 x 0.02 = 3.1 in the other 18 hours: 4.
			want: "24 replicas by day and 4 from 18:00 to 12:00", level: "medium", saved: 48*240 - 24*60 - 4*180},
		// 1.25 times what has to be expected, 1.6 times 4.8, are 10 of 10; 1.25 times what was are 6.
		{name: "a service that may grow into its replicas", jobs: []job{{pods: names("app", 10), memory: 70 * gib,
			busy: hourOf(0, 24, 0.48, 0)}}, advice: document.AdviseReplicas, reason: "low_demand",
			want:  "Run 6 replicas of app instead of 10",
			level: "low", saved: 4 * 240},
		{name: "a service that needs all replicas every other hour", jobs: []job{{pods: names("app", 10), memory: 70 * gib,
			busy: func(at int64) float64 { return 0.01 + 0.79*float64((at-1)/3600%2) }}}, reason: "peaks_too_high"},
		{name: "a constant service", jobs: []job{{pods: names("app", 10), memory: 70 * gib, busy: hourOf(0, 24, 0.32, 0)}},
			advice: document.AdviseReplicas, reason: "low_demand", want: "Run 7 replicas of app instead of 10", level: "medium",
			saved: 3 * 240},
		{name: "quiet hours that save less than a tenth do not make a schedule", jobs: []job{{pods: names("app", 10), memory: 70 * gib,
			busy: hourOf(4, 24, 0.32, 0.1)}}, advice: document.AdviseReplicas, reason: "low_demand",
			// Twice 3.2 GPUs are 7 replicas, 3.2 times 1.0 in four hours are 4, which saves 120 of 1,680 hours.
			want: "above 3.2 in 0.1 % of the time; without any eighth of the period, 7 to 7 replicas", level: "medium", saved: 3 * 240},
		{name: "three days show a rhythm of days", jobs: []job{{pods: one, memory: 5 * gib, from: tenDays.Add(-3 * day),
			busy: hourOf(9, 17, 0.07, 0.01)}},
			change: func(o *Options) { o.Advice.Observed = 3 * day }, advice: document.AdviseShrink, reason: "low_activity",
			want:  "1g.10gb",
			level: "low", saved: 72 * 6. / 7},
		{name: "two days do not", jobs: []job{{pods: one, memory: 5 * gib, from: tenDays.Add(-2 * day), busy: hourOf(9, 17, 0.1, 0.01)}},
			change: func(o *Options) { o.Advice.Observed = 2 * day }, reason: "rhythm_unknown"},
		{name: "a busy minute in eight days is within the budget", jobs: []job{{pods: one, memory: 5 * gib,
			busy: between(monday.Add(3*day), monday.Add(3*day+5*time.Minute), 0.6, 0.05)}},
			advice: document.AdviseShrink, reason: "low_activity", want: "1g.10gb", level: "low", saved: 240 * 6. / 7},
		{name: "memory that only grows is a cache", jobs: []job{{pods: one, busy: hourOf(0, 24, 0.1, 0), grows: grows}},
			advice: document.AdviseShrink, reason: "cached_memory", want: "assumed to need the 10.3 GiB with which it started",
			level: "low", saved: 160},
		{name: "bursts of seconds at full load", jobs: []job{{pods: one, node: "n3", memory: 5 * gib, busy: hourOf(0, 24, 0.083, 0)}},
			more: func(s *scene) {
				s.add(metric.RawPeak, map[string]string{"node": "n3", "uuid": "GPU-app-0"}, constant(1))
				s.node("n3", h100, 1, states{"busy": 1}, nil)
			}, advice: document.AdviseShare, reason: "low_activity", want: "1/4 of a GPU is enough", level: "medium", saved: 180},
		{name: "bursts that use a twelfth of the SMs", jobs: []job{{pods: one, memory: 5 * gib, busy: hourOf(0, 24, 0.07, 0)}},
			more: func(s *scene) {
				gpu := map[string]string{"node": "n1", "uuid": "GPU-app-0"}
				s.add(metric.RawPeak, gpu, constant(1))
				s.add(metric.RawSM, gpu, constant(0.08))
			}, advice: document.AdviseShrink, reason: "low_activity", want: "1g.10gb", level: "medium", saved: 240 * 6. / 7},
		{name: "idle since it ran before the period", jobs: []job{{pods: one, busy: no}}, more: func(s *scene) {
			l := map[string]string{"node": "n1", "uuid": "GPU-app-0", "namespace": "team", "pod": "app-0"}
			s.add(metric.RawSince, l, constant(float64(monday.Add(-60*day).Unix())))
			s.add(metric.RawLastBusy, l, constant(float64(monday.Add(-2*day).Unix())))
		}, advice: document.AdviseRelease, reason: "never_used", want: "allocated for 12.0 days: no kernel ran, and no process had " +
			"memory (last busy, or first observed, 2026-01-31 00:00 UTC)", level: "low", saved: 240},
		{name: "a second of kernels in each of 1,000", jobs: []job{{pods: one, busy: hourOf(0, 24, 0.001, 0)}},
			advice: document.AdviseRelease, reason: "never_used", want: "kernels ran for 864 s in all", level: "low", saved: 240},
		{name: "never busy since it was allocated", jobs: []job{{pods: one, busy: no}}, more: func(s *scene) {
			l := map[string]string{"node": "n1", "uuid": "GPU-app-0", "namespace": "team", "pod": "app-0"}
			s.add(metric.RawSince, l, constant(float64(monday.Add(-60*day).Unix())))
			s.add(metric.RawLastBusy, l, constant(float64(monday.Add(-60*day).Unix()+120)))
		}, advice: document.AdviseRelease, reason: "never_used", want: "allocated for 70.0 days: no kernel ran", level: "low", saved: 240},
		{name: "idle for less than a week since it ran", jobs: []job{{pods: one, busy: between(monday, monday.Add(4*day), 0.9, 0)}},
			advice: document.AdviseRelease, reason: "stopped", want: "a job that runs every week looks the same", level: "low",
			saved: 144},
		{name: "never used since it was allocated", jobs: []job{{pods: one, busy: no}}, advice: document.AdviseRelease,
			reason: "never_used",
			want:   "one that is not yet launched, looks the same after 10.0 days", level: "low", saved: 240},
		{name: "a weekly job within ten days", jobs: []job{{pods: one, memory: gib,
			busy: between(monday.Add(2*day), monday.Add(2*day+10*time.Hour), 0.35, 0.01)}}, reason: "rhythm_unknown",
			want: "longer period"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var s scene
			s.node("n1", h100, 8, states{"busy": 8}, nil)
			for i, j := range tt.jobs {
				if i == 0 {
					s.job(j)
				} else {
					s.allocate(j)
				}
			}
			if tt.more != nil {
				tt.more(&s)
			}
			d := s.must(t, tt.change)
			w := d.Workloads[0]
			if tt.advice == "" {
				if w.Advice != "" || tt.reason != "" && w.NoAdvice != tt.reason || !strings.Contains(w.NoAdviceReason, tt.want) {
					t.Errorf("%q %q: %s %+v", w.Advice, w.NoAdvice, w.NoAdviceReason, d.Advice)
				}
				return
			}
			if w.Advice != tt.advice {
				t.Fatalf("%q %q %s", w.Advice, w.NoAdvice, w.NoAdviceReason)
			}
			a := adviceOn(t, d, w.ID)
			near(t, "saved", a.SavedHours, tt.saved)
			if text := a.Title + a.Evidence + a.Risk + a.Alternatives; a.Reason != tt.reason || !strings.Contains(text, tt.want) ||
				a.Confidence != tt.level {
				t.Errorf("%+v", a)
			}
		})
	}
}

func names(app string, n int) (out []string) {
	for i := range n {
		out = append(out, fmt.Sprint(app, "-", i))
	}
	return out
}
