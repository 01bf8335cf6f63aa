package replay_test

import (
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/alerts"
	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/internal/standin/expose"
	"github.com/gpu-exporter/gpu-exporter/internal/standin/fleet"
	"github.com/gpu-exporter/gpu-exporter/test/dashboard"
	"github.com/gpu-exporter/gpu-exporter/test/fleet/replay"
)

// The tiles and table cells of the dashboards are what the script of a fleet says, added up without any rule: once on a
// fleet that can be measured throughout, and once with MIG before Hopper, hidden processes, missing scrapes and lost
// GPUs.
func TestDashboardsShowTheScript(t *testing.T) {
	measurable := fleet.Config{Seed: 3, Epoch: fleet.DefaultEpoch(), Pools: []fleet.Pool{
		{Name: "h100", Model: "h100", Nodes: 2, GPUs: 8, Mix: []fleet.Weight{{Class: fleet.Training, Weight: 2},
			{Class: fleet.Inference, Weight: 3}, {Class: fleet.Small, Weight: 2}, {Class: fleet.ShortJobs, Weight: 2},
			{Class: fleet.NeverUsed, Weight: 1}, {Class: fleet.Free, Weight: 2}}}}}
	for name, c := range map[string]struct {
		config fleet.Config
		exact  bool
	}{"measurable": {measurable, true}, "faults": {fleet.Demo(1), false}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, err := fleet.New(c.config)
			if err != nil {
				t.Fatal(err)
			}
			s := replay.New(t, alerts.Default())
			s.Groups = slices.DeleteFunc(s.Groups,
				func(g *replay.Group) bool { return strings.HasPrefix(g.Name(), "gpu-exporter-alerts") })
			sampler := expose.NewSampler(f, func(name string) bool {
				return !strings.Contains(name,
					"exporter_call")
			})
			begin := fleet.DefaultEpoch().Add(15 * time.Hour)
			w := dashboard.Window{From: begin.Add(15 * time.Minute), To: begin.Add(75 * time.Minute),
				Step: time.Minute, Scrape: time.Minute}
			for at := begin; !at.After(w.To); at = at.Add(time.Minute) {
				if err := s.Fleet(t.Context(), f, sampler, at); err != nil {
					t.Fatal(err)
				}
				s.Eval(t.Context(), at)
			}
			shown := tiles(t, s, w)
			truth := f.Truth(w.From, w.To)
			compare(t, shown, truth, c.exact)
		})
	}
}

// tiles evaluates every panel with a single instant query that has a single value.
func tiles(t *testing.T, s *replay.Server, w dashboard.Window) map[string]float64 {
	t.Helper()
	all, err := dashboard.LoadAll(filepath.Join("..", "..", "..", "dashboards"))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, d := range all {
		for _, p := range d.Panels {
			if len(p.Targets) != 1 || !p.Targets[0].Instant {
				continue
			}
			expr, err := d.Fill(p.Targets[0].Expr, dashboard.Values{}, w)
			if err != nil {
				t.Fatal(err)
			}
			v, err := s.Query(t.Context(), expr, w.To)
			if err != nil {
				t.Fatalf("%s/%s: %v", d.UID, p.Title, err)
			}
			if len(v) == 1 {
				out[d.UID+"/"+p.Title] = v[0].F
			}
		}
	}
	return out
}

func compare(t *testing.T, shown map[string]float64, truth *fleet.Truth, exact bool) {
	t.Helper()
	near := func(title string, want, share float64) {
		t.Helper()
		if got, ok := shown[title]; !ok || math.Abs(got-want) > share*math.Abs(want)+0.06 {
			t.Errorf("%s shows %.3f (%v), the script says %.3f", title, got, ok, want)
		}
	}
	var all, allocated, busy, unused gpu.Seconds
	for _, v := range truth.GPUs {
		all += v
	}
	for _, x := range truth.Workloads {
		if x.Measured || !exact {
			allocated += x.Allocated
		}
		if x.Measured {
			busy, unused = busy+x.Busy, unused+x.Gap+x.Idle
		}
	}
	states := map[gpu.TimeState]string{gpu.TimeBusy: "Busy", gpu.TimeGap: "Gap", gpu.TimeIdle: "Idle",
		gpu.TimeUnallocated: "Unallocated", gpu.TimeUnavailable: "Unavailable", gpu.TimeUnknown: "Unknown"}
	for _, d := range []struct{ uid, total string }{{"gpu-fleet", "All"}, {"gpu-capacity", "All GPU-hours"}} {
		sum := 0.0
		for state, word := range states {
			v, ok := shown[d.uid+"/"+word]
			if !ok {
				t.Errorf("%s has no tile %s", d.uid, word)
			}
			sum += v
			if exact {
				near(d.uid+"/"+word, float64(truth.GPUs[state])/3600, 0.01)
			} else if state != gpu.TimeUnknown && v > float64(truth.GPUs[state])/3600*1.01+0.05 {
				t.Errorf("%s/%s shows %.2f, more than the %.2f of the script", d.uid, word, v, truth.GPUs[state]/3600)
			}
		}
		near(d.uid+"/"+d.total, sum, 1e-6)
		// A node that was not scraped is reported by nobody.
		near(d.uid+"/"+d.total, float64(all)/3600, map[bool]float64{true: 0.001, false: 0.03}[exact])
	}
	parts := shown["gpu-namespace/Busy"] + shown["gpu-namespace/Gap"] + shown["gpu-namespace/Idle"] +
		shown["gpu-namespace/Unknown"]
	near("gpu-namespace/All", parts, 0.005)
	near("gpu-namespace/All", float64(allocated)/3600, 0.03)
	near("gpu-namespace/Busy of measured", float64(busy/(busy+unused)), 0.03)
	if exact {
		near("gpu-namespace/Busy", float64(busy)/3600, 0.01)
		near("gpu-fleet/GPUs", 16, 0)
		near("gpu-capacity/GPUs", 16, 0)
		near("gpu-fleet/Observed", 1, 0.001)
		near("gpu-fleet/Unhealthy", 0, 0)
	} else {
		near("gpu-fleet/GPUs", shown["gpu-capacity/GPUs"], 0)
		if shown["gpu-namespace/Unknown"] < 1 || shown["gpu-fleet/Unknown"] < 1 {
			t.Error("MIG before Hopper is not unknown")
		}
		near("gpu-health/Lost", 1, 0)
		near("gpu-health/Unhealthy", shown["gpu-fleet/Unhealthy"], 0)
	}
}
