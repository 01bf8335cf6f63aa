package replay_test

import (
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"

	"github.com/gpu-exporter/gpu-exporter/alerts"
	"github.com/gpu-exporter/gpu-exporter/internal/standin/expose"
	"github.com/gpu-exporter/gpu-exporter/internal/standin/fleet"
	"github.com/gpu-exporter/gpu-exporter/test/dashboard"
	"github.com/gpu-exporter/gpu-exporter/test/fleet/replay"
)

// Where something is missing, the panels that had data with it say what it is, and no panel shows a calm 0 instead.
func TestPanelsSayWhatIsMissing(t *testing.T) {
	f, err := fleet.New(fleet.Demo(1))
	if err != nil {
		t.Fatal(err)
	}
	begin := fleet.DefaultEpoch().Add(15 * time.Hour)
	w := dashboard.Window{From: begin, To: begin.Add(32 * time.Minute), Step: time.Minute, Scrape: time.Minute}
	all, err := dashboard.LoadAll(filepath.Join("..", "..", "..", "dashboards"))
	if err != nil {
		t.Fatal(err)
	}
	prices := alerts.Default()
	prices.Prices = map[string]float64{}
	for i := range f.Len() {
		prices.Prices[f.Node(i).Model] = 2.5
	}
	type setup struct {
		config  alerts.Config
		rules   bool
		scraped func(name string) bool
		job     string
	}
	anything := func(string) bool { return true }
	shown := func(t *testing.T, c setup) map[string]promql.Vector {
		s := replay.New(t, c.config)
		s.Groups = slices.DeleteFunc(s.Groups, func(g *replay.Group) bool { return !c.rules })
		s.Relabel = func(l labels.Labels) labels.Labels {
			if c.job == "" || l.Get("job") != expose.JobExporter {
				return l
			}
			return labels.NewBuilder(l).Set("job", c.job).Labels()
		}
		sampler := expose.NewSampler(f, c.scraped)
		for at := begin; !at.After(w.To); at = at.Add(time.Minute) {
			if err := s.Fleet(t.Context(), f, sampler, at); err != nil {
				t.Fatal(err)
			}
			s.Eval(t.Context(), at)
		}
		out := map[string]promql.Vector{}
		for _, d := range all {
			for _, p := range d.Panels {
				for _, target := range p.Targets {
					expr, err := d.Fill(target.Expr, dashboard.Values{}, w)
					if err != nil {
						t.Fatal(err)
					}
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
	whole := shown(t, setup{config: prices, rules: true, scraped: anything})
	for name, c := range map[string]struct {
		setup
		says   []string // one of them in each panel that becomes empty
		panels int      // at least so many do
	}{
		"no prices": {setup{alerts.Default(), true, anything, ""}, []string{"no prices configured"}, 1},
		"no kube-state-metrics": {setup{prices, true, func(name string) bool { return !strings.HasPrefix(name, "kube_") }, ""},
			[]string{"kube-state-metrics"}, 6},
		"no rules":    {setup{prices, false, anything, ""}, []string{"rules not loaded", "rules are not loaded", "and rules"}, 60},
		"another job": {setup{prices, true, anything, "gpus"}, nil, 0},
		"no exporter at all": {setup{prices, true, func(name string) bool { return strings.HasPrefix(name, "kube_") }, ""},
			[]string{"rules not loaded", "rules are not loaded", "and rules", "not scraped", "no exporter is scraped",
				"not supported or not reported"}, 100},
	} {
		t.Run(name, func(t *testing.T) {
			found, empty := shown(t, c.setup), 0
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
