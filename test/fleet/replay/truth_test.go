package replay_test

import (
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/promql"

	"github.com/gpu-exporter/gpu-exporter/alerts"
	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/internal/standin/expose"
	"github.com/gpu-exporter/gpu-exporter/internal/standin/fleet"
	"github.com/gpu-exporter/gpu-exporter/test/dashboard"
	"github.com/gpu-exporter/gpu-exporter/test/fleet/replay"
)

// price is that of a GPU-hour of each model.
const price = 2.5

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
			must.OK(t, err)
			rules := alerts.Default()
			rules.Prices = map[string]float64{}
			for i := range f.Len() {
				rules.Prices[f.Node(i).Model] = price
			}
			s := replay.New(t, rules)
			s.Groups = slices.DeleteFunc(s.Groups,
				func(g *replay.Group) bool { return strings.HasPrefix(g.Name(), "gpu-exporter-alerts") })
			sampler := expose.NewSampler(f, func(name string) bool {
				return !strings.Contains(name, "exporter_call")
			})
			begin := fleet.DefaultEpoch().Add(15 * time.Hour)
			w := dashboard.Window{From: begin.Add(15 * time.Minute), To: begin.Add(75 * time.Minute),
				Step: time.Minute, Scrape: time.Minute}
			minutes := func(from, to time.Time) {
				for at := from; !at.After(to); at = at.Add(time.Minute) {
					must.OK(t, s.Fleet(t.Context(), f, sampler, at))
					s.Eval(t.Context(), at)
				}
			}
			minutes(begin, w.To)
			shown, cells := panels(t, s, w)
			compared := comparison{t, cells, map[string]bool{}}
			compared.tiles(shown, f.Truth(w.From, w.To), c.exact)
			// Sums of half hours end with the last full one.
			compared.rows(shown, f.Truth(w.From, w.To), f.Truth(begin, begin.Add(time.Hour)), c.exact)
			// All rules are evaluated in an even minute.
			even := w.To.Add(time.Minute)
			minutes(even, even)
			w.From, w.To = w.From.Add(time.Minute), even
			_, compared.cells = panels(t, s, w)
			compared.current(newScript(t, f, even, 4*time.Minute), newScript(t, f, even, 3*time.Minute),
				newScript(t, f, even, 29*time.Minute))
			compared.complete()
		})
	}
}

// panels evaluates the instant queries of all panels: the values of tiles, and the cells of tables by panel and query.
func panels(t *testing.T, s *replay.Server, w dashboard.Window) (map[string]float64, map[string]promql.Vector) {
	t.Helper()
	all, err := dashboard.LoadAll(filepath.Join("..", "..", "..", "dashboards"))
	must.OK(t, err)
	tiles, cells := map[string]float64{}, map[string]promql.Vector{}
	for _, d := range all {
		for _, p := range d.Panels {
			for _, target := range p.Targets {
				if !target.Instant {
					continue
				}
				expr, err := d.Fill(target.Expr, dashboard.Values{}, w)
				must.OK(t, err)
				v, err := s.Query(t.Context(), expr, w.To)
				if err != nil {
					t.Fatalf("%s/%s: %v", d.UID, p.Title, err)
				}
				seen := map[string]bool{}
				for _, e := range v {
					if seen[e.Metric.String()] {
						t.Errorf("%s/%s %s: two rows %s", d.UID, p.Title, target.RefID, e.Metric)
					}
					seen[e.Metric.String()] = true
				}
				cells[d.UID+"/"+p.Title+" "+target.RefID] = v
				if len(v) == 1 && len(p.Targets) == 1 {
					tiles[d.UID+"/"+p.Title] = v[0].F
				}
			}
		}
	}
	return tiles, cells
}

// rows holds the rows of tables against the script, and against the tiles that say their sums.
func (c comparison) rows(shown map[string]float64, truth, halfHours *fleet.Truth, exact bool) {
	t, cells := c.T, c.cells
	t.Helper()
	rows := func(column string, keys ...string) map[string]float64 {
		out := map[string]float64{}
		c.compared[column] = true
		for _, e := range cells[column] {
			var key []string
			for _, k := range keys {
				key = append(key, e.Metric.Get(k))
			}
			out[strings.Join(key, "/")] += e.F
		}
		if len(out) == 0 {
			t.Errorf("%s is empty", column)
		}
		return out
	}
	near := func(what string, got, want, share, more float64) {
		t.Helper()
		if math.Abs(got-want) > share*math.Abs(want)+more {
			t.Errorf("%s shows %.3f, want %.3f", what, got, want)
		}
	}
	// Sums of the rows are the tiles.
	for column, tile := range map[string]string{"gpu-fleet/Models A": "gpu-fleet/GPUs", "gpu-fleet/Models I": "gpu-fleet/Schedulable",
		"gpu-capacity/Unallocated GPUs by node A": "gpu-capacity/Schedulable",
		"gpu-capacity/Unallocated GPUs by node C": "gpu-capacity/Allocated",
		"gpu-capacity/Unallocated GPUs by node D": "gpu-capacity/GPUs",
		"gpu-capacity/GPU-hours by state A":       "gpu-capacity/All GPU-hours",
		"gpu-capacity/Nodes by utilization A":     "gpu-fleet/GPUs"} {
		near(column, rows(column)[""], shown[tile], 1e-6, 1e-6)
	}
	if exact {
		for state, hours := range rows("gpu-capacity/GPU-hours by state A", "state") {
			near("gpu-capacity/GPU-hours by state "+state, hours, float64(truth.GPUs[gpu.TimeState(state)])/3600, 0.01, 0.06)
		}
	}
	for state, tile := range map[string]string{"lost": "Lost", "replace": "Replace", "needs_reboot": "Reboot",
		"needs_reset": "Reset", "degraded": "Degraded", "unknown": "Unknown"} {
		if n := rowsOf(cells["gpu-health/GPUs with a problem A"], "state", state); n < shown["gpu-health/"+tile] {
			t.Errorf("gpu-health: %v GPUs are %s, and the table has %v", shown["gpu-health/"+tile], state, n)
		}
	}
	// All verdicts on the GPU that fell off the bus, and of nobody else but the exporter on others.
	for _, e := range cells["gpu-health/Verdicts on a GPU B"] {
		if e.F != 3 || rowsOf(cells["gpu-health/GPUs with a problem A"], "uuid", e.Metric.Get("uuid")) != 1 {
			t.Errorf("gpu-health: the DRA driver's verdict %v on %s", e.F, e.Metric)
		}
	}
	for _, e := range cells["gpu-health/Verdicts on a GPU C"] {
		if e.F != 1 || rowsOf(cells["gpu-health/Verdicts on a GPU B"], "uuid", e.Metric.Get("uuid")) != 1 {
			t.Errorf("gpu-health: the kubelet's verdict %v on %s", e.F, e.Metric)
		}
	}
	if b, c := len(cells["gpu-health/Verdicts on a GPU B"]), len(cells["gpu-health/Verdicts on a GPU C"]); b != c {
		t.Errorf("gpu-health: the DRA driver judges %d GPUs, and the kubelet %d", b, c)
	}
	c.compared["gpu-health/Verdicts on a GPU B"], c.compared["gpu-health/Verdicts on a GPU C"] = true, true
	if n := float64(len(cells["gpu-health/Verdicts on a GPU A"])); n != shown["gpu-health/Unhealthy"] {
		t.Errorf("gpu-health: verdicts on %v GPUs, %v are not healthy", n, shown["gpu-health/Unhealthy"])
	}
	if n := float64(len(cells["gpu-health/Verdicts on a GPU B"])); !exact && n != 1 {
		t.Errorf("gpu-health: %v GPUs are tainted", n)
	}
	// Workloads: unused, allocated and unknown hours of the last half hours; measured ones of GPUs that others do not
	// share, whose counters do not end within the hour.
	want, compared := map[string]fleet.WorkloadTruth{}, 0
	for _, w := range halfHours.Workloads {
		want[w.Namespace+"/"+w.Name] = w
	}
	keys := []string{"namespace", "workload"}
	allocated := rows("gpu-namespace/Workloads C", keys...)
	unused, unknown := rows("gpu-namespace/Workloads D", keys...), rows("gpu-namespace/Workloads E", keys...)
	capacity := rows("gpu-capacity/Workloads with unused GPUs A", keys...)
	for name, w := range want {
		if w.Allocated < 3000 || w.Lost > 0 { // less than most of the hour
			continue
		}
		compared++
		near(name+": allocated GPU-hours", allocated[name], float64(w.Allocated)/3600, 0.05, 0.1)
		if w.Measured && exact {
			near(name+": unused GPU-hours", unused[name], float64(w.Gap+w.Idle)/3600, 0.05, 0.1)
			near(name+": unknown GPU-hours", unknown[name], 0, 0, 0.1)
		}
		if v, ok := capacity[name]; ok {
			near(name+": unused GPU-hours of capacity", v, unused[name], 1e-6, 1e-6)
		}
	}
	if compared < 4 {
		t.Errorf("%d workloads compared", compared)
	}
	c.parts(shown, halfHours, rows, near, exact)
}

// parts holds columns against those that are compared with the script: shares, costs, and the same quantity elsewhere.
func (c comparison) parts(shown map[string]float64, halfHours *fleet.Truth, rows func(string, ...string) map[string]float64,
	near func(string, float64, float64, float64, float64), exact bool) {
	c.Helper()
	hours := rows("gpu-capacity/GPU-hours by state A", "state")
	for state, v := range rows("gpu-capacity/GPU-hours by state B", "state") {
		near("share of "+state, v, hours[state]/shown["gpu-capacity/All GPU-hours"], 1e-6, 1e-9)
	}
	for state, v := range rows("gpu-capacity/GPU-hours by state C", "state") {
		if state != string(gpu.TimeUnavailable) { // a GPU that is not in NVML has no model, and no price
			near("cost of "+state, v, price*hours[state], 1e-6, 1e-9)
		}
	}
	keys := []string{"namespace", "workload"}
	const all, worst = "gpu-namespace/Workloads ", "gpu-capacity/Workloads with unused GPUs "
	for column, other := range map[string]string{worst + "B": all + "C", worst + "C": all + "G", worst + "D": all + "E",
		worst + "E": all + "F", worst + "F": all + "B", worst + "G": "gpu-namespace/Idle now A", worst + "H": all + "J"} {
		same, n := rows(other, keys...), 0
		for k, v := range rows(column, keys...) {
			if want, ok := same[k]; ok {
				near(column+" "+k, v, want, 1e-6, 1e-9)
				n++
			}
		}
		if n == 0 {
			c.Errorf("%s has no row of %s", column, other)
		}
	}
	unused := rows(all+"D", keys...)
	for k, v := range rows(all+"F", keys...) {
		near("cost of "+k, v, price*unused[k], 1e-6, 1e-9)
	}
	busy := rows(all+"G", keys...)
	for _, w := range halfHours.Workloads {
		if w.Measured && exact && w.Allocated > 3000 && w.Lost == 0 {
			near(w.Name+": busy of measured", busy[w.Namespace+"/"+w.Name], float64(w.Busy/w.Allocated), 0.05, 0.03)
		}
	}
	// Teams are the namespaces; ten of them are bars.
	teams, sum := rows("gpu-fleet/Teams E", "team"), 0.0
	for k, v := range rows("gpu-fleet/Unused GPU-hours by namespace A", "namespace") {
		near("unused GPU-hours of "+k, v, teams[k], 1e-6, 1e-9)
	}
	for _, v := range teams {
		sum += v
	}
	near("unused GPU-hours of teams", sum, shown["gpu-namespace/Gap"]+shown["gpu-namespace/Idle"], 1e-6, 1e-6)
}

func rowsOf(v promql.Vector, label, value string) (n float64) {
	seen := map[string]bool{}
	for _, e := range v {
		if key := e.Metric.Get("node") + e.Metric.Get("uuid"); e.Metric.Get(label) == value && !seen[key] {
			seen[key], n = true, n+1
		}
	}
	return n
}

// tiles holds the tiles against the script.
func (c comparison) tiles(shown map[string]float64, truth *fleet.Truth, exact bool) {
	t := c.T
	t.Helper()
	near := func(title string, want, share float64) {
		t.Helper()
		c.compared[title+" A"] = true
		if got, ok := shown[title]; !ok || math.Abs(got-want) > share*math.Abs(want)+0.06 {
			t.Errorf("%s shows %.3f (%v), the script says %.3f", title, got, ok, want)
		}
	}
	var all, allocated, busy, measured gpu.Seconds
	for _, v := range truth.GPUs {
		all += v
	}
	for _, x := range truth.Workloads {
		if x.Measured || !exact {
			allocated += x.Allocated
		}
		if x.Measured {
			busy, measured = busy+x.Busy, measured+x.Allocated-x.Lost
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
			c.compared[d.uid+"/"+word+" A"] = true
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
	near("gpu-namespace/Cost of unused", price*(shown["gpu-namespace/Gap"]+shown["gpu-namespace/Idle"]), 1e-6)
	var gap, idle, joules float64
	for _, x := range truth.Workloads {
		if x.Measured {
			gap, idle, joules = gap+float64(x.Gap), idle+float64(x.Idle), joules+float64(x.Energy)
		}
	}
	for _, tile := range []string{"gpu-namespace/Gap", "gpu-namespace/Idle", "gpu-namespace/Unknown", "gpu-namespace/Busy",
		"gpu-workload/Busy of measured", "gpu-fleet/Energy", "gpu-device/Energy", "gpu-namespace/Energy", "gpu-workload/Energy"} {
		c.compared[tile+" A"] = true
	}
	near("gpu-workload/Busy of measured", shown["gpu-namespace/Busy of measured"], 0.03)
	// What pods used, and all that GPUs used.
	near("gpu-workload/Energy", shown["gpu-namespace/Energy"], 0.05)
	near("gpu-device/Energy", shown["gpu-fleet/Energy"], 0.05)
	if shown["gpu-fleet/Energy"] < shown["gpu-namespace/Energy"] {
		t.Errorf("pods used %v of %v kWh", shown["gpu-namespace/Energy"], shown["gpu-fleet/Energy"])
	}
	if exact {
		near("gpu-namespace/Gap", gap/3600, 0.03)
		near("gpu-namespace/Idle", idle/3600, 0.03)
		near("gpu-namespace/Unknown", 0, 0)
		near("gpu-namespace/Energy", joules/3.6e6, 0.03)
	}
	near("gpu-namespace/All", float64(allocated)/3600, 0.03)
	near("gpu-namespace/Busy of measured", float64(busy/measured), 0.03)
	if exact {
		near("gpu-namespace/Busy", float64(busy)/3600, 0.01)
		near("gpu-fleet/GPUs", 16, 0)
		near("gpu-capacity/GPUs", 16, 0)
		near("gpu-fleet/Measured", 1, 0.001)
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
