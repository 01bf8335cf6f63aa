package replay_test

import (
	"math"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"

	"github.com/gpu-exporter/gpu-exporter/alerts"
	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/internal/standin/expose"
	"github.com/gpu-exporter/gpu-exporter/internal/standin/fleet"
	"github.com/gpu-exporter/gpu-exporter/test/dashboard"
	"github.com/gpu-exporter/gpu-exporter/test/fleet/replay"
)

// setup is a server and what it scrapes of a fleet.
type setup struct {
	fleet   *fleet.Fleet
	config  alerts.Config
	rules   bool
	scraped func(name string) bool
	job     string
}

func anything(string) bool { return true }

// shown are the values of each panel at the end of half an hour.
func (c setup) shown(t *testing.T, all []dashboard.Dashboard) map[string]promql.Vector {
	t.Helper()
	begin := fleet.DefaultEpoch().Add(15 * time.Hour)
	w := dashboard.Window{From: begin, To: begin.Add(32 * time.Minute), Step: time.Minute, Scrape: time.Minute}
	s := replay.New(t, c.config)
	s.Groups = slices.DeleteFunc(s.Groups, func(g *replay.Group) bool { return !c.rules })
	s.Relabel = func(l labels.Labels) labels.Labels {
		if c.job == "" || l.Get("job") != expose.JobExporter {
			return l
		}
		return labels.NewBuilder(l).Set("job", c.job).Labels()
	}
	sampler := expose.NewSampler(c.fleet, c.scraped)
	for at := begin; !at.After(w.To); at = at.Add(time.Minute) {
		must.OK(t, s.Fleet(t.Context(), c.fleet, sampler, at))
		s.Eval(t.Context(), at)
	}
	out := map[string]promql.Vector{}
	for _, d := range all {
		for _, p := range d.Panels {
			for _, target := range p.Targets {
				expr, err := d.Fill(target.Expr, dashboard.Values{}, w)
				must.OK(t, err)
				v, err := s.Query(t.Context(), expr, w.To)
				if err != nil {
					t.Fatalf("%s/%s: %v", d.UID, p.Title, err)
				}
				out[d.UID+"/"+p.Title] = append(out[d.UID+"/"+p.Title], v...)
			}
		}
	}
	return out
}

// Whatever GPUs there are, an empty panel names something that is missing there, and not the rules, which are loaded. What
// is unknown is not shown as 0.
func TestEmptyPanelsOfFleets(t *testing.T) {
	t.Parallel()
	all, err := dashboard.LoadAll(filepath.Join("..", "..", "..", "dashboards"))
	must.OK(t, err)
	pool := func(i int) fleet.Config {
		c := fleet.Demo(1)
		c.Pools, c.Pending = c.Pools[i:i+1], 0
		return c
	}
	unallocated := pool(0)
	unallocated.Pools[0].Fixed, unallocated.Pools[0].Mix = nil, []fleet.Weight{{Class: fleet.Free, Weight: 1}}
	allocations := regexp.MustCompile("^gpu_(container|pod|allocation|node_alloc|kubelet|mig_allocation)_?")
	for name, c := range map[string]struct {
		config  fleet.Config
		scraped func(string) bool
		missing []string           // what the fleet has none of
		values  map[string]float64 // of tiles; NaN: none
	}{
		"demo": {fleet.Demo(1), anything, nil, nil},
		"T4":   {pool(3), anything, []string{"Hopper or newer", "MIG devices"}, nil},
		"MIG only": {pool(1), anything, []string{"measured activity", "Hopper or newer", "activity is not measured"},
			map[string]float64{"gpu-fleet/Measured": 0, "gpu-fleet/Schedulable": 0, "gpu-fleet/Utilization": math.NaN()}},
		"no kubelet": {fleet.Demo(1), func(name string) bool { return !allocations.MatchString(name) },
			[]string{"known allocation", "pods with GPUs"}, map[string]float64{
				"gpu-fleet/Schedulable": math.NaN(), "gpu-capacity/Schedulable": math.NaN(),
				"gpu-capacity/Most on one node": math.NaN(), "gpu-sharing/Shared GPUs": math.NaN()}},
		"no pods": {unallocated, anything, []string{"pods with GPUs", "MIG devices"},
			map[string]float64{"gpu-fleet/Allocated": 0, "gpu-sharing/Shared GPUs": 0}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, err := fleet.New(c.config)
			must.OK(t, err)
			found := setup{f, alerts.Default(), true, c.scraped, ""}.shown(t, all)
			// Neither prices nor node_exporter are there, and alerts, faults and trends need longer.
			missing := append([]string{"No ", "The GPU is healthy", "All supported readings", "prices of models", "node_exporter",
				"MIG devices of Hopper or newer", "not supported or not reported"}, c.missing...)
			for _, d := range all {
				for _, p := range d.Panels {
					key, says := d.UID+"/"+p.Title, p.FieldConfig.Defaults.NoValue
					if len(p.Targets) > 0 && len(found[key]) == 0 &&
						!slices.ContainsFunc(missing, func(words string) bool { return strings.Contains(says, words) }) {
						t.Errorf("%s is empty, and says %q", key, says)
					}
				}
			}
			for tile, want := range c.values {
				v := found[tile]
				if math.IsNaN(want) != (len(v) == 0) || len(v) > 0 && math.Abs(v[0].F-want) > 0.001 {
					t.Errorf("%s shows %v, want %v", tile, v, want)
				}
			}
		})
	}
}

// Where something is missing, the panels that had data with it say what it is, and no panel shows a calm 0 instead.
func TestPanelsSayWhatIsMissing(t *testing.T) {
	f, err := fleet.New(fleet.Demo(1))
	must.OK(t, err)
	all, err := dashboard.LoadAll(filepath.Join("..", "..", "..", "dashboards"))
	must.OK(t, err)
	prices := alerts.Default()
	prices.Prices = map[string]float64{}
	for i := range f.Len() {
		prices.Prices[f.Node(i).Model] = 2.5
	}
	whole := setup{f, prices, true, anything, ""}.shown(t, all)
	for name, c := range map[string]struct {
		setup
		says   []string // one of them in each panel that becomes empty
		panels int      // at least so many do
	}{
		"no prices": {setup{f, alerts.Default(), true, anything, ""}, []string{"prices of models"}, 1},
		"no kube-state-metrics": {setup{f, prices, true, func(name string) bool { return !strings.HasPrefix(name, "kube_") }, ""},
			[]string{"kube-state-metrics"}, 6},
		"no rules":    {setup{f, prices, false, anything, ""}, []string{"needs rules", "rules not loaded", "rules are not loaded"}, 60},
		"another job": {setup{f, prices, true, anything, "gpus"}, nil, 0},
		"no exporter at all": {setup{f, prices, true, func(name string) bool { return strings.HasPrefix(name, "kube_") }, ""},
			[]string{"rules not loaded", "rules are not loaded", "GPUs", "known allocation", "measured activity", "Hopper",
				"not scraped", "no exporter is scraped", "MIG devices", "not supported or not reported"}, 100},
	} {
		t.Run(name, func(t *testing.T) {
			found, empty := c.shown(t, all), 0
			for _, d := range all {
				for _, p := range d.Panels {
					key, says := d.UID+"/"+p.Title, p.FieldConfig.Defaults.NoValue
					before, now := whole[key], found[key]
					switch {
					case len(before) > 0 && len(now) == 0:
						empty++
						if !slices.ContainsFunc(c.says, func(words string) bool { return strings.Contains(says, words) }) {
							t.Errorf("%s is empty, and says %q", key, says)
						}
					case len(before) == 1 && len(now) == 1 && before[0].F != 0 && (now[0].F == 0 || math.IsNaN(now[0].F)):
						t.Errorf("%s shows %v, with everything it shows %v", key, now[0].F, before[0].F)
					}
				}
			}
			if empty < c.panels || c.panels == 0 && empty > 0 {
				t.Errorf("%d panels are empty", empty)
			}
			t.Logf("%d panels are empty", empty)
		})
	}
}

// A price that is none is refused with its model, before it becomes a rule.
func TestPricesAreChecked(t *testing.T) {
	for model, price := range map[string]float64{"": 1, "NVIDIA H100": math.NaN(), "NVIDIA T4": -1, "NVIDIA B200": math.Inf(1)} {
		c := alerts.Default()
		c.Prices = map[string]float64{model: price}
		if _, err := c.RecordingRules(); err == nil || !strings.Contains(err.Error(), "prices."+model) {
			t.Errorf("price %v of %q: %v", price, model, err)
		}
	}
}
