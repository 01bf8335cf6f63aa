package endtoend_test

import (
	"fmt"
	"math"
	"path/filepath"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/internal/standin/fleet"
	"github.com/gpu-exporter/gpu-exporter/internal/standin/replay"
	"github.com/gpu-exporter/gpu-exporter/test/dashboard"
	"github.com/gpu-exporter/gpu-exporter/test/fleet/blocks"
	"github.com/gpu-exporter/gpu-exporter/test/servers"
)

// emptyInDemo lists what neither the simulated fleet nor the demo's node has data for.
var emptyInDemo = absent{
	"gpu-capacity/Allocated in 14 days":         "a forecast needs a day of history",
	"gpu-capacity/GPU-hours by state/C":         "no prices are set",
	"gpu-capacity/Allocated and busy GPUs/D":    "the history is shorter than a week",
	"gpu-capacity/Allocated and busy GPUs/E":    "the history is shorter than a week",
	"gpu-capacity/Workloads with unused GPUs/E": "no prices are set",
	"gpu-fleet/Node pools/E":                    "the history is shorter than a week",
	"gpu-fleet/Zones/E":                         "the history is shorter than a week",
	"gpu-fleet/Racks/E":                         "the history is shorter than a week",
	"gpu-fleet/Teams/B":                         "the history is shorter than a week",
	"gpu-fleet/Teams/D":                         "the history is shorter than a week",
	"gpu-namespace/Cost of unused":              "no prices are set",
	"gpu-namespace/Workloads/F":                 "no prices are set",

	"gpu-device/Power and limit/D": "only modules such as GB200 report module power",
	"gpu-device/Fans":              "data center GPUs have none",

	"gpu-workload/Others on their GPUs":              "all workloads are chosen: there are no others",
	"gpu-exporter/Failed calls in range":             "no driver call fails",
	"gpu-exporter/Implausible values in range":       "no driver value is implausible",
	"gpu-exporter/Containers using unallocated GPUs": "no container uses a GPU that it is not allocated",

	"gpu-node/Host CPU":       "node_exporter is not scraped",
	"gpu-node/Host memory":    "node_exporter is not scraped",
	"gpu-node/Host network/A": "node_exporter is not scraped",
	"gpu-node/Host network/B": "node_exporter is not scraped",

	"gpu-sharing/Containers that use more than they requested/D": "no GPU of these containers is busy to 90 %",
	"gpu-sharing/Containers that use more than they requested/F": "no GPU of these containers is busy to 90 %",
	"gpu-sharing/Containers on shared GPUs/F":                    "time slicing sets no memory limit",

	"gpu-workload/Restarts":                "no pod crashed",
	"gpu-workload/Last termination reason": "no pod crashed",
}

// TestDashboardsOnPrometheus runs every query of the dashboards on a Prometheus that has hours of a fleet's history,
// rules evaluated over them, and goes on scraping.
func TestDashboardsOnPrometheus(t *testing.T) {
	t.Parallel() // most of it is waiting
	p := built(t)
	dir := t.TempDir()
	config, err := fleet.Preset("demo", 1)
	must.OK(t, err)
	to := time.Now().Truncate(time.Minute)
	config.Epoch = fleet.Workday(to)
	f, err := fleet.New(config)
	must.OK(t, err)
	from := to.Add(-6 * time.Hour)
	wrote, err := blocks.Write(t.Context(), filepath.Join(dir, "data"), f, blocks.Options{From: from, To: to, Step: time.Minute})
	must.OK(t, err)
	if wrote.Samples == 0 {
		t.Fatal("the fleet has no history")
	}
	at := p.fleet(t, config.Epoch)
	node := p.node(t, filepath.Join(p.root, "testdata", "scenarios", "demo.scenario"),
		filepath.Join(p.root, "testdata", "kubelet", "demo.pods"))
	url := p.server(t, dir, "global: {scrape_interval: 15s, evaluation_interval: 15s}\nstorage: {tsdb: {out_of_order_time_window: 12h}}\n"+
		"rule_files: ['"+filepath.Join(p.root, "alerts")+"/*.rules.yaml']\n"+scrapeConfig(node, at))
	must.OK(t, replay.Rules(t.Context(), p.vmalert, url, dir, from, to, nil))
	c := dashboard.Client{URL: url}
	servers.Until(t, "the first scrapes", func() error {
		series, err := c.Instant(t.Context(),
			`count(model:gpu_time_seconds:rate5m) and on () count(ALERTS) and on () `+
				`count(up == 1) > 12 and on () count(rate(gpu_mig_busy_seconds_total[1m]))`, time.Now())
		if err == nil && len(series) == 0 {
			err = fmt.Errorf("no records, alerts and targets yet")
		}
		return err
	})
	sumsClose(t, c, to, time.Minute)
	now := time.Now()
	report(t, "dashboards-prometheus", cover(t, c, dashboard.Window{From: now.Add(-6 * time.Hour), To: now, Step: time.Minute,
		Scrape: time.Minute}, emptyInDemo))
}

// sumsClose checks that, over hours with pods that came and went, Prometheus' increases of the containers' counters
// add up to the GPU's. A pod that starts between two scrapes has a value in its first sample, and increase ignores
// what was before it: that much may be missing for each.
func sumsClose(t *testing.T, c dashboard.Client, to time.Time, scrape time.Duration) {
	t.Helper()
	byGPU := func(query string, at time.Time) map[string]float64 {
		series, err := c.Instant(t.Context(), query, at)
		must.OK(t, err)
		out := map[string]float64{}
		for _, s := range series {
			out[s.Labels["node"]+" "+s.Labels["uuid"]] = s.Points[0].Value
		}
		return out
	}
	scrapes := int(time.Hour / scrape)
	for _, q := range []struct {
		what, parts, rest, whole string
		most                     float64 // maximum of a GPU per second
	}{
		{"busy", "gpu_container_busy_seconds_total", "gpu_unattributed_busy_seconds_total", "gpu_busy_seconds_total", 1},
		{"energy", "gpu_container_energy_joules_total", "gpu_unattributed_energy_joules_total", "gpu_energy_joules_total", 700},
	} {
		sum := func(family string) string { return "sum by (node, uuid) (increase(" + family + "[1h]))" }
		still, moved, worst, worstMoved := 0, 0, 0.0, 0.0
		for back := range 5 {
			at := to.Add(-time.Duration(back) * time.Hour)
			whole, parts, rest := byGPU(sum(q.whole)+" > 60", at), byGPU(sum(q.parts), at), byGPU(sum(q.rest), at)
			came := byGPU(fmt.Sprintf("count by (node, uuid) (count_over_time(%s[1h]) < %d)", q.parts, scrapes), at)
			// Increase extrapolates by up to a scrape towards the edges of the range, but never below zero: for a
			// counter that was near zero at the first scrape it yields less than for the GPU's.
			first := (time.Hour - scrape).Seconds()
			young := byGPU(fmt.Sprintf("count by (node, uuid) (increase(%[1]s[1h]) * %[3]g > %[1]s offset %[4]gs or increase(%[2]s[1h]) "+
				"* %[3]g > %[2]s offset %[4]gs)",
				q.parts, q.rest, scrape.Seconds()/first, first), at)
			for dev, w := range whole {
				off := parts[dev] + rest[dev] - w
				if came[dev] == 0 {
					still, worst = still+1, max(worst, math.Abs(off)/w)
				} else {
					moved, worstMoved = moved+1, max(worstMoved, math.Abs(off)/w)
				}
				slack := 0.001*w + came[dev]*scrape.Seconds()*q.most
				if young[dev] > 0 {
					slack += w * scrape.Hours()
				}
				if math.Abs(off) > slack {
					t.Errorf("%s of %s at %v: containers %v and rest %v differ from %v by %v, with %v that came or went", q.what, dev, at,
						parts[dev], rest[dev], w, off, came[dev])
				}
			}
		}
		if still < 40 || moved < 4 {
			t.Errorf("%s: %d GPUs without and %d with pods that came or went: too few", q.what, still, moved)
		}
		t.Logf("%s, increase over 1 h: %d GPU-hours without churn differ by at most %.4f %%, %d with churn by at most %.2f %%", q.what,
			still, worst*100, moved, worstMoved*100)
	}
}
