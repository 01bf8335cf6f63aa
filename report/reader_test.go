package report

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/report/document"
	"github.com/gpu-exporter/gpu-exporter/report/kube"
	"github.com/gpu-exporter/gpu-exporter/report/metric"
	"github.com/gpu-exporter/gpu-exporter/report/prom"
	"github.com/gpu-exporter/gpu-exporter/report/series"
)

// answers is a server that has an answer to every query, and keeps what it was asked.
type answers struct {
	API
	asked []prom.Range
	list  []prom.Series
}

func (x *answers) Range(_ context.Context, q prom.Range, each func(*prom.Series) error) error {
	x.asked = append(x.asked, q)
	for i := range x.list {
		if err := each(&x.list[i]); err != nil {
			return err
		}
	}
	return nil
}

func labelsOf(pairs ...string) (l prom.Labels) {
	for i := 0; i < len(pairs); i += 2 {
		l = append(l, prom.Label{Name: pairs[i], Value: pairs[i+1]})
	}
	return l
}

// at is a series with a value at hours after Monday.
func at(l prom.Labels, values map[float64]float64) prom.Series {
	s := prom.Series{Labels: l}
	for _, h := range slices.Sorted(maps.Keys(values)) {
		s.At, s.Value = append(s.At, monday.Add(time.Duration(h*float64(time.Hour))).UnixMilli()), append(s.Value, values[h])
	}
	return s
}

func readerOf(hours int, step time.Duration, list ...prom.Series) (*reader, *answers) {
	x := &answers{list: list}
	p := series.NewPeriod(monday, monday.Add(time.Duration(hours)*time.Hour), step)
	return &reader{api: x, p: p, opt: Defaults(), q: prom.QL{Cluster: "cluster"}, has: map[string]bool{},
		sources: map[string]*document.Source{}}, x
}

// What changes rarely is read once in an hour or a day, at times that end with the period; each value covers the steps before
// it. A period that is shorter is one value.
func TestCoarse(t *testing.T) {
	for _, tt := range []struct {
		hours, every int
		first        float64 // hour of the first value
		window       string
		at           float64
		from, to     int
	}{
		{240, 24, 24, "[86400s]", 48, 24, 48},
		{36, 24, 12, "[86400s]", 12, 0, 12}, // before the period there is nothing
		{36, 24, 12, "[86400s]", 36, 12, 36},
		{240, 1, 1, "[3600s]", 7, 6, 7},
		{5, 24, 5, "[18000s]", 5, 0, 5},
	} {
		r, x := readerOf(tt.hours, time.Hour, at(labelsOf("node", "n"), map[float64]float64{tt.at: 3, float64(tt.hours) + 1: 9, -1: 9}))
		var got []series.Span
		err := r.coarse(t.Context(), time.Duration(tt.every)*time.Hour, "max", "last", "m", []string{"node"}, func(l prom.Labels,
			s series.Span, v float64) {
			if got = append(got, s); v != 3 || l.Get("node") != "n" {
				t.Errorf("%v of %v", v, l)
			}
		})
		q := x.asked[0]
		if err != nil || len(got) != 1 || got[0] != (series.Span{From: tt.from, To: tt.to}) ||
			!q.From.Equal(monday.Add(time.Duration(tt.first*float64(time.Hour)))) || !q.To.Equal(r.p.To) ||
			q.Step != time.Duration(min(tt.every, tt.hours))*time.Hour ||
			q.Query != "max by (cluster, node) (last_over_time(m"+tt.window+"))" {
			t.Errorf("%d h, every %d: %+v %+v", tt.hours, tt.every, got, q)
		}
	}
	// A sum takes each series once; SMs are those that were active while a kernel ran.
	r, x := readerOf(24, time.Hour)
	for _, op := range []string{"sum", ""} {
		_ = r.coarse(t.Context(), time.Hour, op, "max", "m", nil, nil)
	}
	_ = r.coarse(t.Context(), 24*time.Hour, "max", "sm", "m", metric.PerGPU, nil)
	if x.asked[0].Query != "sum by (cluster) ("+r.q.Once("max_over_time(m[3600s])")+")" || x.asked[1].Query != "max_over_time(m[3600s])" ||
		x.asked[2].Query != "max by (cluster, node, uuid) ((rate(gpu_sm_active_seconds_total[86400s]) / "+
			"rate(gpu_profiled_seconds_total[86400s])) / (rate(gpu_busy_seconds_total[86400s]) / "+
			"rate(gpu_observed_seconds_total[86400s]) > 0))" {
		t.Errorf("%+v", x.asked)
	}
}

// A step is read at its end; a series that nobody takes and values outside the period are left out, and a part without steps
// is no query.
func TestSteps(t *testing.T) {
	r, x := readerOf(24, time.Hour, at(labelsOf("a", "1"), map[float64]float64{0: 7, 1: 1, 5: 5, 24: 24, 25: 7}), at(labelsOf("a", "2"),
		map[float64]float64{3: 3}))
	got := map[int]float64{}
	take := func(l prom.Labels) func(int, float64) {
		if l.Get("a") == "2" {
			return nil
		}
		return func(k int, v float64) { got[k] = v }
	}
	if err := r.steps(t.Context(), "q", series.Span{From: 2, To: 20}, take); err != nil || !maps.Equal(got, map[int]float64{0: 1, 4: 5,
		23: 24}) {
		t.Errorf("%v", got)
	}
	if q := x.asked[0]; !q.From.Equal(monday.Add(3*time.Hour)) || !q.To.Equal(monday.Add(20*time.Hour)) || q.Step != time.Hour ||
		q.Query != "q" {
		t.Errorf("%+v", q)
	}
	if _ = r.steps(t.Context(), "q", series.Span{From: 2, To: 2}, take); len(x.asked) != 1 {
		t.Error("a query without steps")
	}
}

// The scrape interval is that of nine tenths of the nodes, by their largest number of samples in an hour: rules need a scrape
// every 140 seconds.
func TestInterval(t *testing.T) {
	node := func(i int, samples ...float64) prom.Series {
		s := prom.Series{Labels: labelsOf("node", fmt.Sprint(i))}
		for k, v := range samples {
			s.At, s.Value = append(s.At, int64(k)), append(s.Value, v)
		}
		return s
	}
	many := func(slow, of int) (out []prom.Series) {
		for i := range of {
			n := node(i, 60, 59)
			if i < slow {
				n = node(i, 3, 12)
			}
			out = append(out, n)
		}
		return out
	}
	for _, tt := range []struct {
		what   string
		list   []prom.Series
		window time.Duration
		note   string
	}{
		{"every minute", many(0, 10), 0, ""},
		{"one of ten nodes is new", many(1, 10), 0, ""},
		{"two of ten are slow", many(2, 10), 13 * time.Minute, "every 5 minutes: rates are taken over 13 minutes"},
		{"every 144 s", []prom.Series{node(0, 25)}, 6 * time.Minute, "every 2 minutes: rates are taken over 6 minutes"},
		{"every 138 s", []prom.Series{node(0, 26)}, 0, ""},
		{"once in an hour", []prom.Series{node(0, 1)}, 150 * time.Minute, "every 60 minutes: rates are taken over 2.5 hours"},
		{"no sample", []prom.Series{node(0, 0)}, 150 * time.Minute, "every 60 minutes"},
		{"nothing", nil, 0, ""},
	} {
		r, x := readerOf(240, 5*time.Minute, tt.list...)
		r.has = map[string]bool{metric.RuleGPUs: true, metric.RuleOwners: true, metric.RawGPUs: true}
		if err := r.interval(t.Context()); err != nil {
			t.Error(err)
		}
		text := ""
		for _, n := range r.notes {
			text += n.Text
		}
		if r.q.Window != tt.window || (text == "") != (tt.note == "") || !strings.Contains(text, tt.note) ||
			r.has[metric.RuleGPUs] != (tt.note == "") ||
			!r.has[metric.RuleOwners] || !r.has[metric.RawGPUs] {
			t.Errorf("%s: %s, %q %v", tt.what, r.q.Window, text, r.has)
		}
		if q := x.asked[0]; !q.From.Equal(monday.Add(6*time.Hour)) || !q.To.Equal(r.p.To) || q.Step != 6*time.Hour ||
			q.Query != "max by (cluster, node) (count_over_time(gpu_device_up[1h]))" {
			t.Errorf("%+v", q)
		}
	}
	r, x := readerOf(2, 5*time.Minute)
	if _ = r.interval(t.Context()); x.asked[0].Step != 2*time.Hour || !x.asked[0].From.Equal(r.p.To) {
		t.Errorf("%+v", x.asked)
	}
}

// Without the raw series the rules stay; with them all rules but the owners go.
func TestWithoutRules(t *testing.T) {
	r := &reader{has: map[string]bool{metric.RuleGPUs: true, metric.RuleAllocated: true, metric.RuleOwners: true, metric.KubeOwners: true}}
	if r.withoutRules(); len(r.has) != 4 {
		t.Errorf("%v", r.has)
	}
	r.has[metric.RawGPUs] = true
	if r.withoutRules(); len(r.has) != 3 || !r.has[metric.RuleOwners] || !r.has[metric.RawGPUs] || !r.has[metric.KubeOwners] {
		t.Errorf("%v", r.has)
	}
}

// Each GPU once is no duplicate; two of one GPU are.
func TestDuplicatesFrom(t *testing.T) {
	for most, want := range map[float64]bool{1: false, 2: true, 3: true} {
		r, x := readerOf(240, 5*time.Minute, at(nil, map[float64]float64{1: 1, 2: most, 3: 1}))
		r.has = map[string]bool{metric.RawUp: true, metric.RawGPUs: true, metric.RuleGPUs: true}
		if err := r.duplicates(t.Context()); err != nil {
			t.Error(err)
		}
		found := slices.ContainsFunc(r.notes, func(n document.Note) bool {
			return n.Code == "duplicates" && strings.Contains(n.Text, fmt.Sprintf("up to %.0f times", most))
		})
		if found != want {
			t.Errorf("%v: %+v", most, r.notes)
		}
		if q := x.asked[0]; q.Query != "max(count by (cluster, node, uuid) (gpu_device_up))" || !q.From.Equal(monday.Add(time.Hour)) ||
			q.Step != time.Hour ||
			!q.To.Equal(r.p.To) {
			t.Errorf("%+v", q)
		}
	}
	r, x := readerOf(240, 5*time.Minute)
	if _ = r.duplicates(t.Context()); len(x.asked) != 0 {
		t.Error("a query for a metric that is not there")
	}
}

// GPUs that Kubernetes has: on nodes without an exporter they are expected while they are listed; fewer than an exporter
// reports are noted, unless the node offers MIG devices.
func TestKubernetesCapacity(t *testing.T) {
	of := func(node, resource string, values map[float64]float64) prom.Series {
		return at(labelsOf("node", node, "resource", resource), values)
	}
	r, x := readerOf(4, time.Hour, of("silent", "nvidia_com_gpu", map[float64]float64{2: 8, 3: 6}), of("same", "nvidia_com_gpu",
		map[float64]float64{1: 4}),
		of("fewer", "nvidia_com_gpu", map[float64]float64{1: 3}), of("more", "nvidia_com_gpu", map[float64]float64{1: 5}),
		of("mig", "nvidia_com_gpu", map[float64]float64{1: 3}), of("mig", "nvidia_com_mig_1g_10gb", map[float64]float64{1: 7, 2: 0}),
		of("none", "nvidia_com_mig_1g_10gb", map[float64]float64{1: 0}), of("none", "nvidia_com_gpu", map[float64]float64{1: 2}),
		of("cpu", "nvidia_com_gpu", map[float64]float64{1: 0}))
	r.has[metric.KubeCapacity] = true
	f := newFleet(r.p)
	for _, name := range []string{"same", "fewer", "more", "mig", "none"} {
		n := f.node(nodeKey{"", name, "x"})
		n.size = 3
		f.node(nodeKey{"", name, "y"}).size = 1
	}
	must.OK(t, r.kubernetes(t.Context(), f))
	n := f.nodes[nodeKey{"", "silent", ""}]
	if n == nil || n.count.Len() != 2 || n.count.Or(1, 0) != 8 || n.count.Or(2, 0) != 6 || len(f.nodes) != 11 {
		t.Errorf("%d nodes, %+v", len(f.nodes), n)
	}
	if len(r.notes) != 2 || r.notes[0].Code != "nodes_without_exporter" || !strings.HasSuffix(r.notes[0].Text,
		"counted as not reported: silent.") ||
		r.notes[1].Code != "gpus_not_offered" || !strings.HasSuffix(r.notes[1].Text, "than there are: fewer (3 of 4), none (2 of 4).") {
		t.Errorf("%+v", r.notes)
	}
	if q := x.asked[0].Query; q != `max by (cluster, node, resource) (last_over_time(`+
		`kube_node_status_capacity{resource=~"nvidia_com_.+"}[3600s]))` {
		t.Error(q)
	}
}

// The pool of a node is its label, the first that is usual or the one that is named, or else the begin of its name.
func TestPools(t *testing.T) {
	list := []prom.Series{at(labelsOf("node", "gpu-1", "label_pool", "late", "label_eks_amazonaws_com_nodegroup", "first", "label_x_y",
		"named"),
		map[float64]float64{1: 1}), at(labelsOf("node", "gpu-2"), map[float64]float64{1: 1})}
	for _, tt := range []struct {
		option string
		kube   bool
		list   []prom.Series
		pools  string
		note   string
	}{
		{"", true, list, "first gpu", ""},
		{"x/y", true, list, "named gpu", ""},
		{"other", true, list, "gpu gpu", "no node has the label other in kube_node_labels"},
		{"", false, nil, "gpu gpu", "node_pools_by_name"},
		{"x", false, nil, "gpu gpu", "no node has the label x in kube_node_labels"},
	} {
		r, _ := readerOf(24, time.Hour, tt.list...)
		r.opt.PoolLabel, r.has[metric.KubeLabels] = tt.option, tt.kube
		f := newFleet(r.p)
		f.node(nodeKey{"", "gpu-1", ""})
		f.node(nodeKey{"", "gpu-2", h100})
		must.OK(t, r.pools(t.Context(), f))
		pools, text := "", strings.Join(r.partial, "")
		for _, n := range f.sorted() {
			pools += " " + n.pool
		}
		for _, n := range r.notes {
			text += n.Code
		}
		if strings.TrimSpace(pools) != tt.pools || (text == "") != (tt.note == "") || !strings.Contains(text, tt.note) {
			t.Errorf("%q: %s, %q", tt.option, pools, text)
		}
	}
}

// Owners: what was recorded counts more than what a name suggests, and the last source more than an earlier one.
func TestOwners(t *testing.T) {
	of := func(kind, name string) prom.Series {
		return at(labelsOf("pod", "train-x7k2p", "workload_type", kind, "workload", name), map[float64]float64{1: 1})
	}
	for _, tt := range []struct {
		list []prom.Series
		want kube.Owner
	}{
		{nil, kube.Owner{}},
		{[]prom.Series{of("Job", "train")}, kube.Owner{Kind: "Job", Name: "train", From: kube.Recorded}},
		{[]prom.Series{of("Job", "train"), of("pod", "train-x7k2p")}, kube.Owner{Kind: "Job", Name: "train", From: kube.Recorded}},
		{[]prom.Series{of("pod", "train-x7k2p"), of("CronJob", "nightly")}, kube.Owner{Kind: "CronJob", Name: "nightly",
			From: kube.Recorded}},
		{[]prom.Series{of("Job", "train"), of("CronJob", "nightly")}, kube.Owner{Kind: "CronJob", Name: "nightly", From: kube.Recorded}},
		{[]prom.Series{of("pod", "train-x7k2p")}, kube.Owner{Kind: "Job", Name: "train", From: kube.Guessed}},
	} {
		r, x := readerOf(24, time.Hour, tt.list...)
		r.has[metric.RuleOwners] = true
		s := newSpace(r.p, "team")
		if err := r.owners(t.Context(), s); err != nil || s.owners[podKey{"", "team", "train-x7k2p"}] != tt.want {
			t.Errorf("%+v, want %+v", s.owners, tt.want)
		}
		if q := x.asked[0].Query; len(x.asked) != 1 || q != `group by (cluster, namespace, pod, workload_type, workload) (last_over_time(`+
			`pod:gpu_workload:info{namespace="team", workload!=""}[86400s]))` {
			t.Error(q)
		}
	}
}

// What is known of a GPU for each day: at most all of it, and no division by nothing. Memory of a model is the largest of its
// GPUs; one of an unknown model is of none.
func TestFacts(t *testing.T) {
	gpu := func(uuid string, pairs ...string) prom.Labels {
		return append(labelsOf("node", "n", "uuid", uuid), labelsOf(pairs...)...)
	}
	r, x := readerOf(72, time.Hour, at(gpu("a"), map[float64]float64{24: 0.5, 48: 1.5, 72: math.NaN()}), at(gpu("a"),
		map[float64]float64{24: 0.4, 48: -1}))
	r.has[metric.RawMinute] = true
	facts, err := r.gpus(t.Context())
	k := gpuKey{"", "n", "a"}
	if d := facts.daily[k]; err != nil || d == nil || d[dayMinute].Or(0, 9) != 0.5 || d[dayMinute].Or(1, 9) != 1 || d[dayMinute].Or(2,
		9) != 9 ||
		d[dayPeak].Len() != 0 {
		t.Errorf("%+v", facts.daily[k])
	}
	if q := x.asked[0].Query; q != "max by (cluster, node, uuid) (quantile_over_time(0.999, gpu_utilization_ratio[86400s]))" {
		t.Error(q)
	}
	r, _ = readerOf(24, time.Hour, at(gpu("a", "model", "m"), map[float64]float64{24: 80}), at(gpu("b", "model", "m"),
		map[float64]float64{24: 90}),
		at(gpu("c", "model", ""), map[float64]float64{24: 95}), at(gpu("d", "model", "o"), map[float64]float64{24: 7}))
	r.has[metric.RawInfo], r.has[metric.RawTotal] = true, true
	if facts, err = r.gpus(t.Context()); err != nil || !maps.Equal(facts.byModel, map[string]float64{"m": 90, "o": 7}) ||
		len(facts.memory) != 4 ||
		len(facts.model) != 3 || facts.model[k] != "m" {
		t.Errorf("%+v", facts)
	}
}

// What a container has on a GPU: its share is at most all of it, and of several times the latest counts.
func TestAllocationsRead(t *testing.T) {
	l := labelsOf("node", "n", "uuid", "a", "pod", "p", "resource", "nvidia_com_gpu")
	r, _ := readerOf(4, 30*time.Minute, at(l, map[float64]float64{1: 0.25, 2: 3}), at(labelsOf("node", "n", "uuid", "a", "pod", "p"),
		map[float64]float64{3: 0.5}))
	s := newSpace(r.p, "team")
	must.OK(t, r.allocations(t.Context(), s))
	a := s.allocations[allocationKey{"", "team", "p", "n", "a"}]
	if len(s.allocations) != 1 || a.resource != "nvidia_com_gpu" || a.since != 3 || a.lastBusy != 3 {
		t.Fatalf("%+v", a)
	}
	for step, want := range map[int][2]float64{0: {0.25, 0.25}, 1: {0.25, 0.25}, 2: {1, 3}, 3: {1, 3}, 4: {0.5, 0.5}, 5: {0.5, 0.5}, 6: {9,
		9}} {
		if share, memory := a.share.Or(step, 9), a.memory.Or(step, 9); share != want[0] || memory != want[1] {
			t.Errorf("step %d: %v of the GPU, %v bytes", step, share, memory)
		}
	}
	near(t, "busy", a.busy.Sum(), 3.75)
	near(t, "idle", a.idle.Sum(), 3.75)
}

// What was allocated in a part without rules fills in what its workload did there, and nothing else.
func TestFill(t *testing.T) {
	s := newSpace(series.NewPeriod(monday, tenDays, time.Hour), "team")
	s.shares = true
	for _, uuid := range []string{"u", "v"} {
		a := s.allocation(allocationKey{"", "team", "x", "n1", uuid})
		a.busy, a.idle, a.share = digits(0, "2345"), digits(0, "5432"), digits(0, "xxxx")
	}
	s.join(newGPUFacts())
	s.fill(series.Span{From: 1, To: 3}, false)
	if len(s.loads) != 1 {
		t.Fatalf("%d workloads", len(s.loads))
	}
	for _, l := range s.loads {
		near(t, "busy", l.sum[qBusy], 2*0.7)
		near(t, "idle", l.sum[qIdle], 2*0.7)
		near(t, "busiest", l.sum[qBusiest], 2*0.7)
		near(t, "busiest GPU at the second hour", l.track(qBusiest).Or(2, 0), 0.4)
		if l.track(qBusy).From != 1 || l.track(qBusy).End() != 3 || len(l.allocations) != 2 || len(l.pods) != 1 {
			t.Errorf("%+v", l.track(qBusy))
		}
	}
}

// The share of an allocation is the median of what is above nothing; where it was not read that fills in.
func TestShares(t *testing.T) {
	for values, want := range map[string]float64{"": 0, "000": 0, "0005": 0.5, "25x": 0.5, "2255": 0.2, "00559": 0.5, "-5-": 0.5} {
		a := allocation{share: digits(0, values)}
		if a.settle(); math.Abs(a.typical-want) > 1e-6 {
			t.Errorf("%q: %v", values, a.typical)
		}
	}
	a := allocation{share: digits(0, "50-"), typical: 0.25}
	for step, want := range []float64{0.5, 0.25, 0.25, 0.25} {
		if got := a.shareAt(step); got != want {
			t.Errorf("step %d: %v", step, got)
		}
	}
	for _, tt := range []struct {
		resource          string
		share             float64
		sole, shared, mig bool
	}{{"nvidia_com_gpu", 1, true, false, false}, {"nvidia_com_gpu", 0.999, false, false, false}, {"nvidia_com_gpu", 0.998, false, true,
		false},
		{"nvidia_com_gpu", 0, false, false, false}, {"nvidia_com_mig_7g_80gb", 1, false, false, true}, {"nvidia_com_mig_1g_10gb", 0.1,
			false,
			false, true},
		{"nvidia_com_gpu", 0.5, false, true, false}} {
		a := allocation{resource: tt.resource, typical: tt.share}
		if a.sole() != tt.sole || a.shared() != tt.shared || a.mig() != tt.mig {
			t.Errorf("%+v: %v %v %v", tt, a.sole(), a.shared(), a.mig())
		}
	}
	// When it was last busy: two minutes after it was first observed are not a time of activity.
	for _, tt := range []struct {
		since, last, before float64
		want                bool
	}{{1000, 1121, 2000, true}, {1000, 1120, 2000, false}, {0, 1500, 2000, false}, {1000, 2000, 2000, false}, {1000, 1999, 2000, true}} {
		a := allocation{since: tt.since, lastBusy: tt.last}
		if at, ok := a.busyBefore(tt.before); ok != tt.want || at != tt.last {
			t.Errorf("%+v: %v %v", tt, at, ok)
		}
	}
}
