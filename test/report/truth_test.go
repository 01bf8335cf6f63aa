package report_test

import (
	"cmp"
	"flag"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/internal/standin/fleet"
	"github.com/gpu-exporter/gpu-exporter/report/document"
	"github.com/gpu-exporter/gpu-exporter/report/prom"
)

var seeds = flag.String("seeds", "", "seeds of fleets to compare the report with, separated by commas; empty: those of every day")

const (
	hour = time.Hour
	day  = 24 * hour
)

// drawn is a fleet with every class of workload, in sizes that the seed draws. trouble breaks GPUs and
// interrupts the history; blind adds GPUs whose activity cannot be measured.
func drawn(seed uint64, trouble, blind bool) fleet.Config {
	r := rand.New(rand.NewPCG(seed, 20260115))
	c := fleet.Config{Seed: seed, Epoch: fleet.DefaultEpoch(), Cycle: 60 * day, Pending: 4}
	faults := map[fleet.FaultKind]float64{}
	if trouble {
		// Over a cycle of 60 days, so that a period of ten has a sixth of them.
		faults = map[fleet.FaultKind]float64{fleet.FaultGap: 0.6, fleet.FaultRestart: 0.8, fleet.FaultLost: 0.3, fleet.FaultCritical: 0.2,
			fleet.FaultKubelet: 0.3, fleet.FaultXID: 0.5}
	}
	n := func(low, high int) int { return low + r.IntN(high-low+1) }
	place := func(class fleet.Class, devs, pods int) fleet.Place {
		return fleet.Place{Class: class, GPUs: devs, Pods: pods}
	}
	mixed := func() []fleet.Place {
		var out []fleet.Place
		for _, class := range []fleet.Class{fleet.NeverUsed, fleet.Loaded, fleet.Stopped, fleet.Preallocated, fleet.Small, fleet.Inference,
			fleet.Weekly, fleet.ShortJobs} {
			for range n(1, 2) {
				out = append(out, place(class, 1, n(1, 2)))
			}
		}
		out = append(out, place(fleet.Imbalanced, 4, 1), place(fleet.Training, n(2, 4), 1), place(fleet.Imbalanced, n(3, 4), 1),
			place(fleet.NeverUsed, 2, 1))
		r.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
		return out
	}
	whole := []fleet.Weight{{Class: fleet.Training, Weight: 2}, {Class: fleet.Inference, Weight: 2}, {Class: fleet.Small, Weight: 2},
		{Class: fleet.Preallocated, Weight: 1}, {Class: fleet.Free, Weight: 3}}
	shared := []fleet.Weight{{Class: fleet.Inference, Weight: 3}, {Class: fleet.Small, Weight: 3}, {Class: fleet.Loaded, Weight: 1},
		{Class: fleet.NeverUsed, Weight: 1}, {Class: fleet.Free, Weight: 2}}
	c.Pools = []fleet.Pool{
		{Name: "h100", Model: "h100", Nodes: 4, GPUs: 8, Rack: 4, Fixed: mixed(), Mix: whole},
		{Name: "l40s", Model: "l40s", Nodes: 2, GPUs: 2, Rack: 2, Replicas: 4,
			Fixed: []fleet.Place{place(fleet.Oversubscribed, 1, 4), place(fleet.NeverUsed, 1, 1), place(fleet.Loaded, 1, 1)}, Mix: shared},
	}
	switch r.IntN(3) {
	case 0:
		c.Pools = append(c.Pools, fleet.Pool{Name: "a100", Model: "a100-40gb", Nodes: 2, GPUs: 4, Rack: 2, Mix: whole})
	case 1:
		c.Pools = append(c.Pools, fleet.Pool{Name: "b200", Model: "b200", Nodes: 1, GPUs: 8, Mix: whole})
	default:
		c.Pools = append(c.Pools, fleet.Pool{Name: "h200", Model: "h200", Nodes: 1, GPUs: 8, Mix: whole})
	}
	c.Pools = append(c.Pools, fleet.Pool{Name: "h100-mig", Model: "h100", Nodes: 1, GPUs: 2, MIG: []string{"3g.40gb", "2g.20gb", "1g.10gb"},
		Mix: shared})
	if blind {
		c.Pools = append(c.Pools, fleet.Pool{Name: "a100-mig", Model: "a100-40gb", Nodes: 1, GPUs: 2,
			MIG: []string{"3g.20gb", "2g.10gb", "1g.5gb"}, Mix: shared},
			fleet.Pool{Name: "t4", Model: "t4", Nodes: 1, GPUs: 2, Replicas: 2, Hidden: true, Mix: shared})
	}
	for i := range c.Pools {
		c.Pools[i].Trouble = faults
	}
	return c
}

// begins is a Monday within the first cycle, after everything has started.
var begins = time.Date(2026, 1, 12, 0, 0, 0, 0, time.UTC)

// TestTruth compares account and advice with the script of the fleet.
func TestTruth(t *testing.T) {
	t.Parallel()
	p := built(t)
	type scene struct {
		seed           uint64
		trouble, blind bool
		rules          bool
		length, step   time.Duration
	}
	scenes := []scene{{4711, false, false, true, 8 * day, time.Minute}, {815, true, true, false, 6 * day, time.Minute}}
	if *seeds != "" {
		scenes = nil
		for s := range strings.SplitSeq(*seeds, ",") {
			var n uint64
			if _, err := fmt.Sscan(s, &n); err != nil {
				t.Fatal(err)
			}
			scenes = append(scenes, scene{n, false, false, n%2 == 0, 8 * day, 30 * time.Second},
				scene{n, true, true, false, 10 * day, 30 * time.Second})
		}
	}
	var score marks
	for _, s := range scenes {
		name := fmt.Sprintf("seed %d trouble %v rules %v", s.seed, s.trouble, s.rules)
		t.Run(name, func(t *testing.T) {
			f, err := fleet.New(drawn(s.seed, s.trouble, s.blind))
			must.OK(t, err)
			from, to := begins, begins.Add(s.length)
			dir := t.TempDir()
			write(t, dir, f, from.Add(-10*time.Minute), to.Add(time.Minute), s.step)
			if s.rules {
				p.record(t, dir, from, to)
			}
			url, _ := p.serve(t, dir)
			d := p.run(t, url, "--from="+from.Format(time.RFC3339), "--to="+to.Format(time.RFC3339), "--now="+to.Format(time.RFC3339))
			truth := f.Truth(from, to)
			account(t, d, truth, !s.trouble && !s.blind)
			if s.rules {
				asRecorded(t, url, d, to)
			}
			workloads(t, d, truth, !s.trouble)
			score.add(t, d, truth, f)
		})
	}
	score.print(t)
}

func near(a, b, relative, absolute float64) bool {
	return math.Abs(a-b) <= max(relative*math.Abs(b), absolute)
}

// account compares the fleet's states.
func account(t *testing.T, d *document.Document, truth *fleet.Truth, clear bool) {
	t.Helper()
	if e := math.Abs(d.Checks.Difference); e > 0.001 {
		t.Errorf("the states differ by %.4f %%", 100*e)
	}
	t.Logf("difference %.5f %%, coverage %.2f %%", 100*d.Checks.Difference, 100*d.Fleet.Coverage)
	for name, e := range map[string]*float64{"busy": d.Checks.Busy, "idle": d.Checks.Idle, "gap": d.Checks.Gap} {
		if e != nil && math.Abs(*e) > 0.01 {
			t.Errorf("GPUs and containers differ by %.2f %% in %s", 100**e, name)
		}
	}
	total := 0.0
	for _, u := range gpu.TimeStates {
		total += float64(truth.GPUs[u]) / 3600
	}
	if !near(d.Fleet.Hours, total, 0.001, 0.1) {
		t.Errorf("%.1f GPU-hours are expected, there were %.1f", d.Fleet.Hours, total)
	}
	cells := map[gpu.TimeState]float64{gpu.TimeBusy: d.Fleet.States.Busy, gpu.TimeGap: d.Fleet.States.Gap,
		gpu.TimeIdle:        d.Fleet.States.Idle,
		gpu.TimeUnallocated: d.Fleet.States.Unallocated, gpu.TimeUnavailable: d.Fleet.States.Unavailable,
		gpu.TimeUnknown: d.Fleet.States.Unknown + d.Fleet.States.NotReported}
	for _, u := range gpu.TimeStates {
		want := float64(truth.GPUs[u]) / 3600
		t.Logf("%-12s %10.1f GPU-hours, script %10.1f", u, cells[u], want)
		switch {
		case clear && !near(cells[u], want, 0.01, 0.0005*total):
			t.Errorf("%s is %.1f GPU-hours, the script has %.1f", u, cells[u], want)
		case !clear && u == gpu.TimeGap:
			// Containers that cannot be separated are idle for no longer than the whole GPU was: the rest is gap.
			if both := want + float64(truth.GPUs[gpu.TimeIdle])/3600; cells[u]+cells[gpu.TimeIdle] > 1.01*both+0.0005*total {
				t.Errorf("gap and idle are %.1f GPU-hours, more than the %.1f of the script", cells[u]+cells[gpu.TimeIdle], both)
			}
		case !clear && u != gpu.TimeUnknown && cells[u] > 1.01*want+0.0005*total:
			// Missing samples may be missing from a state, and must never be in a wrong one.
			t.Errorf("%s is %.1f GPU-hours, more than the %.1f of the script", u, cells[u], want)
		}
	}
	parts := 0.0
	for _, b := range d.Trend {
		parts += b.States.Sum()
	}
	if !near(parts, d.Fleet.States.Sum(), 1e-6, 0.01) {
		t.Errorf("the trend adds up to %.1f, the fleet to %.1f", parts, d.Fleet.States.Sum())
	}
	for name, list := range map[string][]document.Account{"models": d.Models, "node pools": d.NodePools, "nodes": d.Nodes,
		"clusters": d.Clusters} {
		var sum document.States
		for _, a := range list {
			for c := document.State(0); c < document.StateCount; c++ {
				*sum.At(c) += a.States.Of(c)
			}
		}
		for c := document.State(0); c < document.StateCount; c++ {
			if len(list) > 0 && !near(sum.Of(c), d.Fleet.States.Of(c), 1e-6, 1e-3) {
				t.Errorf("%s: %s adds up to %.3f, the fleet has %.3f", name, c, sum.Of(c), d.Fleet.States.Of(c))
			}
		}
	}
}

// asRecorded compares the states with the sum of the recording rule over the same period, as the capacity dashboard does.
func asRecorded(t *testing.T, url string, d *document.Document, to time.Time) {
	t.Helper()
	client, err := prom.New(prom.Config{URL: url, Concurrency: 1, Timeout: time.Minute}, slog.New(slog.DiscardHandler))
	must.OK(t, err)
	query := fmt.Sprintf("sum by (state) (sum_over_time(node:gpu_time_seconds:rate5m[%dm:5m])) * 300 / 3600", int(d.Period.Hours*60))
	cells := map[string]float64{"busy": d.Fleet.States.Busy, "gap": d.Fleet.States.Gap, "idle": d.Fleet.States.Idle,
		"unallocated": d.Fleet.States.Unallocated,
		"unavailable": d.Fleet.States.Unavailable, "unknown": d.Fleet.States.Unknown}
	err = client.Instant(t.Context(), query, to, func(s *prom.Series) error {
		state := s.Labels.Get("state")
		if !near(cells[state], s.Value[0], 1e-5, 0.01) {
			t.Errorf("%s is %.3f GPU-hours, and the rule adds up to %.3f", state, cells[state], s.Value[0])
		}
		delete(cells, state)
		return nil
	})
	if err != nil || len(cells) > 0 {
		t.Errorf("the rule lacks %v: %v", cells, err)
	}
}

func key(cluster, namespace, kind, name string) string {
	return cluster + "/" + namespace + "/" + kind + "/" + name
}

// rows are the report's workloads by name; one with several models has several.
func rows(d *document.Document) map[string][]*document.Workload {
	out := map[string][]*document.Workload{}
	for i := range d.Workloads {
		w := &d.Workloads[i]
		k := key(w.Cluster, w.Namespace, w.Kind, w.Name)
		out[k] = append(out[k], w)
	}
	return out
}

// workloads compares the rows of those with measurable activity.
func workloads(t *testing.T, d *document.Document, truth *fleet.Truth, steady bool) {
	t.Helper()
	found := rows(d)
	checked := 0
	for i := range truth.Workloads {
		w := &truth.Workloads[i]
		k := key(w.Cluster, w.Namespace, w.Kind, w.Name)
		if !w.Measured || w.Allocated < 2*3600 {
			continue
		}
		if len(found[k]) != 1 {
			t.Errorf("%s had GPUs for %.1f h and has %d rows", k, w.Allocated/3600, len(found[k]))
			continue
		}
		r := found[k][0]
		if !steady {
			continue
		}
		checked++
		for _, c := range []struct {
			what      string
			got, want float64
		}{{"allocated", r.Allocated, float64(w.Allocated) / 3600}, {"busy", r.Busy, float64(w.Busy) / 3600},
			{"idle", r.Idle, float64(w.Idle) / 3600}, {"gap", r.Gap, float64(w.Gap) / 3600},
			{"energy", *orZero(r.EnergyKWh), float64(w.Energy) / 3.6e6}} {
			// The first and the last five minutes of every pod are known by halves. A rate over ten scrapes half a minute apart
			// does not see what lies between it and the next: what repeats every hour is always cut at the same place.
			edge := 0.1 * float64(len(w.Pods)*w.Devices)
			if !near(c.got, c.want, 0.02, edge+0.05*float64(w.Allocated)/3600) {
				t.Errorf("%s (%s): %s is %.2f, the script has %.2f", k, w.Class, c.what, c.got, c.want)
			}
		}
		if r.MemoryPeak != nil && !near(*r.MemoryPeak, float64(w.MemoryPeak), 0.02, 64<<20) {
			t.Errorf("%s: the memory peak is %.2f GiB, the script has %.2f", k, *r.MemoryPeak/(1<<30), float64(w.MemoryPeak)/(1<<30))
		}
		if sum := r.Busy - r.Beyond + r.Gap + r.Idle + r.Unknown + r.UsedByOthers; !near(sum, r.Allocated, 0.005, 0.05) {
			t.Errorf("%s: its parts add up to %.2f of %.2f", k, sum, r.Allocated)
		}
	}
	t.Logf("%d workloads compared", checked)
}

func orZero(v *float64) *float64 {
	if v == nil {
		return new(float64)
	}
	return v
}

// mark counts what was found of one class.
type mark struct{ right, wrong, missed int }

type marks struct{ of map[fleet.Class]*mark }

func (m *marks) at(c fleet.Class) *mark {
	if m.of == nil {
		m.of = map[fleet.Class]*mark{}
	}
	if m.of[c] == nil {
		m.of[c] = &mark{}
	}
	return m.of[c]
}

// rightFor is the advice for a class.
func rightFor(c fleet.Class) (codes, reasons []string) {
	switch c {
	case fleet.NeverUsed:
		return []string{"release"}, []string{"never_used"}
	case fleet.Loaded:
		return []string{"release"}, []string{"loaded_idle"}
	case fleet.Stopped:
		// Within the period it may not have been busy at all.
		return []string{"release"}, []string{"stopped", "loaded_idle", "idle_pods"}
	case fleet.Preallocated:
		return []string{"share"}, []string{"preallocated_memory"}
	case fleet.Small:
		return []string{"share", "shrink"}, []string{"low_activity"}
	case fleet.Imbalanced:
		return []string{"fewer_gpus"}, []string{"idle_gpus"}
	case fleet.Oversubscribed:
		return []string{"reduce_sharing"}, []string{"oversubscribed"}
	}
	return nil, nil
}

// due is true if a workload should be found: what the guards withhold is not.
func due(w *fleet.WorkloadTruth, r *document.Workload, to time.Time) bool {
	lifetime := w.Last.Sub(w.First)
	if r == nil || r.Coverage < 0.95 {
		return r == nil && w.Allocated > 2*3600
	}
	switch w.Class {
	case fleet.NeverUsed, fleet.Loaded:
		return w.Measured && !w.Last.Before(to) && lifetime > 3*day+hour
	case fleet.Stopped:
		last, ok := w.LastBusy.Get()
		return w.Measured && !w.Last.Before(to) && lifetime > 3*day+hour &&
			(!ok || to.Sub(last) > 3*day+hour && float64(to.Sub(last)) > 1.6*float64(last.Sub(w.First))/10)
	case fleet.Preallocated, fleet.Small:
		// Those with a share of a GPU already get no smaller one.
		return w.Measured && !w.Last.Before(to) && lifetime > 7*day+hour && strings.HasSuffix(w.Resource, "gpu") && r != nil &&
			r.Sharing == "whole" && w.Busy > 0
	case fleet.Imbalanced:
		// What the GPUs that do nothing hold has to fit beside the others, at most half of them: in a tenth less than half.
		return lifetime > 26*hour && w.Devices > 1 && w.Busy > 0 && float64(w.MemoryPeak) < 0.45*float64(w.DeviceMemory)
	case fleet.Oversubscribed:
		return lifetime > 26*hour && w.Measured
	}
	return false
}

// needed is true if a workload needed its allocation.
func needed(w *fleet.WorkloadTruth, to time.Time) bool {
	switch w.Class {
	case fleet.Training, fleet.Inference, fleet.Weekly, fleet.ShortJobs, fleet.Oversubscribed:
		return w.Busy > 0
	}
	return false
}

// add compares the advice with the truth.
func (m *marks) add(t *testing.T, d *document.Document, truth *fleet.Truth, f *fleet.Fleet) {
	t.Helper()
	found := rows(d)
	advice := map[string]*document.Advice{}
	for i := range d.Advice {
		if a := &d.Advice[i]; a.Workload != "" {
			advice[a.Workload] = a
		}
	}
	for i := range truth.Workloads {
		w := &truth.Workloads[i]
		k := key(w.Cluster, w.Namespace, w.Kind, w.Name)
		var a *document.Advice
		var r *document.Workload
		for _, row := range found[k] {
			if r == nil || row.Allocated > r.Allocated {
				r = row
			}
			if advice[row.ID] != nil {
				a = advice[row.ID]
			}
		}
		codes, reasons := rightFor(w.Class)
		right := a != nil && slices.Contains(codes, a.Code) && slices.Contains(reasons, a.Reason)
		switch {
		case right:
			m.at(w.Class).right++
		case due(w, r, truth.To) && r != nil && r.NoAdvice == "refuted_by_replay" && noRoom(d, truth, f, w, 0) == "" &&
			noRoom(d, truth, f, w, 4) != "":
			// The scheduler of the generated clusters finds room for all pods as they ran, and none with the smallest share of it.
			t.Logf("%s: %s; %s", k, r.NoAdviceReason, noRoom(d, truth, f, w, 4))
		case due(w, r, truth.To):
			m.at(w.Class).missed++
			reason := "no row"
			if r != nil {
				reason = fmt.Sprintf("%s %s: %s", r.Advice, r.NoAdvice, r.NoAdviceReason)
			}
			t.Logf("missed %s: %s (allocated %.1f h of %d devices, busy %.2f h, %s to %s): %s", w.Class, k, w.Allocated/3600, w.Devices,
				w.Busy/3600, w.First.Format("02T15"), w.Last.Format("02T15"), reason)
		}
		if a != nil && !right {
			// Advice for another class counts against that class.
			for _, c := range fleet.Classes {
				codes, reasons := rightFor(c)
				if slices.Contains(codes, a.Code) && slices.Contains(reasons, a.Reason) && !plausible(w, a, truth.To) {
					m.at(c).wrong++
					t.Logf("%s %s is advised as %s: %s %s", w.Class, k, c, a.Title, a.Evidence)
					break
				}
			}
		}
		if a != nil && needed(w, truth.To) && (a.Code == "release" || a.Code == "shrink") && !plausible(w, a, truth.To) {
			t.Errorf("%s %s needed its GPU, and the advice is to %s: %s", w.Class, k, a.Code, a.Evidence)
		}
	}
}

// noRoom says what would wait if a workload had parts of GPUs, of so many each, besides all that the report advises: replicas that never
// were on one node stay apart. Times are in units of half an hour.
func noRoom(d *document.Document, truth *fleet.Truth, f *fleet.Fleet, share *fleet.WorkloadTruth, parts int) string {
	const unit = 30 * time.Minute
	pool := &pooled{name: "n%d"}
	number := map[int]int{} // of the pool's nodes
	for i := range f.Len() {
		if n := f.Node(i); n.Pool == share.Pool && n.Cluster == share.Cluster {
			number[i] = pool.nodes
			pool.nodes, pool.gpus = pool.nodes+1, n.GPUs
		}
	}
	c := &cluster{pools: []*pooled{pool}}
	var pods []*ranPod
	for i := range truth.Workloads {
		w := &truth.Workloads[i]
		if w.Pool != share.Pool || w.Cluster != share.Cluster {
			continue
		}
		of := &owned{kind: w.Kind, name: w.Name, pool: pool, apart: true, bound: w.Kind == "DaemonSet",
			memory: func(int, int) float64 { return 0 }}
		part, slots, fewer, end := 0.0, 0, 0, truth.To
		for _, a := range d.Advice {
			if !strings.HasPrefix(a.Workload, key(w.Cluster, w.Namespace, w.Kind, w.Name)+"/") {
				continue
			}
			switch at := strings.LastIndex(a.Title, " 1/"); a.Code {
			case document.AdviseShare:
				_, _ = fmt.Sscanf(a.Title[at:], " 1/%f", &part)
				part = 1 / part
			case document.AdviseShrink:
				compute, memory := 0.0, 0.0
				_, _ = fmt.Sscanf(a.Title[strings.Index(a.Title, "profile ")+8:], "%fg.%fgb", &compute, &memory)
				slots = int(math.Ceil(8 * memory * giB / float64(w.DeviceMemory)))
			case document.AdviseFewer:
				_, _ = fmt.Sscanf(a.Title, "Request %d", &fewer)
			case document.AdviseRelease:
				if end = truth.From; a.Reason == "idle_pods" {
					end = truth.To
				} else if last, ok := w.LastBusy.Get(); ok {
					end = last
				}
			}
		}
		if w == share && parts > 0 {
			part = 1 / float64(parts)
		}
		started := map[string]*ranPod{}
		together := false
		for _, r := range w.Runs {
			k := r.Pod + r.From.String()
			p := started[k]
			if p == nil {
				p = &ranPod{of: of, number: len(started), node: number[r.Node], part: part, slots: slots,
					from: int((r.From.Sub(truth.From) + unit - 1) / unit),
					to:   min(int(r.To.Sub(truth.From)/unit), int(end.Sub(truth.From)/unit))}
				for _, o := range started {
					together = together || o.from < p.to && p.from < o.to
					of.apart = of.apart && (o.node != p.node || o.from >= p.to || p.from >= o.to)
				}
				started[k] = p
				pods = append(pods, p)
			}
			if p.gpus < cmp.Or(fewer, math.MaxInt) {
				p.gpus++
			}
		}
		of.apart = of.apart && together && !slices.Contains(ranked, w.Kind)
	}
	return c.possible(rand.New(rand.NewPCG(1, 2)), pods, nil)
}

// plausible is true if advice is right although the class is another: what was not busy for days may be released,
// whatever it once was.
func plausible(w *fleet.WorkloadTruth, a *document.Advice, to time.Time) bool {
	last, ok := w.LastBusy.Get()
	switch a.Code {
	case "release":
		return !ok || to.Sub(last) > 24*hour
	}
	return false
}

// print logs how much was found, and how much of it is right.
func (m *marks) print(t *testing.T) {
	t.Helper()
	for _, c := range fleet.Classes {
		k := m.of[c]
		if k == nil {
			continue
		}
		precision, recall := float64(k.right)/float64(max(1, k.right+k.wrong)), float64(k.right)/float64(max(1, k.right+k.missed))
		t.Logf("%-15s found %3d, missed %2d, wrong %2d: precision %.3f, recall %.3f", c, k.right, k.missed, k.wrong, precision, recall)
		if k.right+k.missed > 0 && recall < 0.95 || k.right+k.wrong > 0 && precision < 0.95 {
			t.Errorf("%s: precision %.3f, recall %.3f", c, precision, recall)
		}
	}
}
