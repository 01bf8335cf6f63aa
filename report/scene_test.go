package report

import (
	"fmt"
	"log/slog"
	"maps"
	"math"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/report/document"
	"github.com/gpu-exporter/gpu-exporter/report/metric"
	"github.com/gpu-exporter/gpu-exporter/report/prom"
	"github.com/gpu-exporter/gpu-exporter/report/reporttest"
)

const (
	h100 = "NVIDIA H100 80GB HBM3"
	gib  = 1 << 30
)

var (
	monday  = time.Date(2026, 2, 2, 0, 0, 0, 0, time.UTC)
	tenDays = monday.Add(240 * time.Hour)
)

// scene is the history of a test.
type scene struct{ reporttest.Server }

func (s *scene) add(name string, labels map[string]string, at reporttest.At) {
	s.Series = append(s.Series, reporttest.Series{Name: name, Labels: labels, At: at})
}

func with(l map[string]string, pairs ...string) map[string]string {
	out := maps.Clone(l)
	for i := 0; i < len(pairs); i += 2 {
		out[pairs[i]] = pairs[i+1]
	}
	return out
}

func constant(v float64) reporttest.At { return reporttest.Constant(v) }

// during limits values to a time after one and up to another.
func during(from, to time.Time, at reporttest.At) reporttest.At {
	return func(t int64) (float64, bool) {
		v, ok := at(t)
		return v, ok && t > from.Unix() && t <= to.Unix()
	}
}

// states are GPUs by state.
type states map[string]float64

// node adds a node with GPUs in constant states.
func (s *scene) node(name, model string, gpus float64, in states, exists func(int64) bool) {
	l := map[string]string{"node": name, "model": model}
	add := func(rule string, l map[string]string, v float64) {
		s.add(rule, l, func(t int64) (float64, bool) { return v, exists == nil || exists(t) })
	}
	for state, v := range in {
		add(metric.RuleGPUs, with(l, "state", state), v)
	}
	add(metric.RuleCount, l, gpus)
}

// job is a workload: by default a Deployment in the namespace team with an H100 for each of its pods, for all of the period.
type job struct {
	name, model, resource string
	kind                  string
	node                  string
	from, to              time.Time
	busy                  func(int64) float64 // of one GPU
	memory                float64
	grows                 func(int64) float64 // memory over time
	share                 float64             // of a GPU, for each pod
	others                float64             // part of the gap in which others of the same GPU are busy
	pods                  []string            // without any, only the rules have it
	gpus                  []string            // of the pods; by default one each
}

func (j *job) defaults() {
	if j.name == "" {
		j.name = "app"
	}
	if j.kind == "" {
		j.kind = "Deployment"
	}
	if j.model == "" {
		j.model = h100
	}
	if j.resource == "" {
		j.resource = "nvidia_com_gpu"
	}
	if j.from.IsZero() {
		j.from = monday
	}
	if j.to.IsZero() {
		j.to = tenDays
	}
	if j.node == "" {
		j.node = "n1"
	}
	if j.share == 0 {
		j.share = 1
	}
	for i := len(j.gpus); i < len(j.pods); i++ {
		j.gpus = append(j.gpus, fmt.Sprintf("GPU-%s-%d", j.name, i))
	}
}

// states are the busy, idle and gap share of a pod at a time.
func (j *job) states() (busy, idle, gap reporttest.At) {
	at := func(v func(float64) float64) reporttest.At {
		return during(j.from, j.to, func(t int64) (float64, bool) { return v(j.busy(t)), true })
	}
	return at(func(b float64) float64 { return b }),
		at(func(b float64) float64 {
			if b == 0 {
				return j.share
			}
			return 0
		}),
		at(func(b float64) float64 {
			if b == 0 {
				return 0
			}
			return max(0, j.share-b-j.others)
		})
}

func times(n float64, at reporttest.At) reporttest.At {
	return func(t int64) (float64, bool) { v, ok := at(t); return n * v, ok }
}

// rules adds what the rules record of a workload of n pods.
func (s *scene) rules(j job, n float64) {
	j.defaults()
	busy, idle, gap := j.states()
	is := func(v float64) reporttest.At { return during(j.from, j.to, constant(v)) }
	l := map[string]string{"namespace": "team", "workload_type": j.kind, "workload": j.name, "model": j.model}
	s.add(metric.RuleAllocated, l, is(n*j.share))
	s.add(metric.RuleObserved, l, is(n))
	s.add(metric.RuleBusy, l, times(n, busy))
	if strings.Contains(j.resource, "mig") {
		s.add(metric.RuleBusiest, l, busy)
	} else {
		s.add(metric.RuleBusiest, l, times(1/j.share, busy)) // of what is allocated, above 1 beyond it
	}
	s.add(metric.RuleUnused, with(l, "state", "idle"), times(n, idle))
	s.add(metric.RuleUnused, with(l, "state", "gap"), times(n, gap))
	s.add(metric.RuleMemory, l, j.used())
}

// used is its memory over time.
func (j *job) used() reporttest.At {
	if j.grows == nil {
		return during(j.from, j.to, constant(j.memory))
	}
	return during(j.from, j.to, func(t int64) (float64, bool) { return j.grows(t), true })
}

// pod adds the series of the pods of a workload.
func (s *scene) allocate(j job) {
	j.defaults()
	busy, idle, _ := j.states()
	is := func(v float64) reporttest.At { return during(j.from, j.to, constant(v)) }
	for i, pod := range j.pods {
		gpu := map[string]string{"node": j.node, "uuid": j.gpus[i]}
		l := with(gpu, "namespace", "team", "pod", pod)
		s.add(metric.RawAllocated, l, is(j.share))
		s.add(metric.RawBusy, l, busy)
		s.add(metric.RawUnused, with(l, "state", "idle"), idle)
		s.add(metric.RawShare, with(l, "resource", j.resource), is(j.share))
		s.add(metric.RawMemory, l, j.used())
		s.add(metric.RuleOwners, map[string]string{"namespace": "team", "pod": pod, "workload_type": j.kind,
			"workload": j.name}, constant(1))
		s.add(metric.RawInfo, with(gpu, "model", j.model), constant(1))
		s.add(metric.RawTotal, gpu, constant(81559<<20))
	}
}

// job adds a workload with its pods.
func (s *scene) job(j job) {
	s.rules(j, max(1, float64(len(j.pods))))
	s.allocate(j)
}

func (s *scene) report(t *testing.T, change func(*Options)) (*document.Document, error) {
	t.Helper()
	o := Defaults()
	o.From, o.To, o.Now = monday, tenDays, tenDays
	if change != nil {
		change(&o)
	}
	if s.Extra == "" {
		return Build(t.Context(), reporttest.Direct{Server: &s.Server}, o)
	}
	server := httptest.NewServer(&s.Server)
	defer server.Close()
	client, err := prom.New(prom.Config{URL: server.URL, Concurrency: 2, Chunk: 48 * time.Hour, RetryDelay: time.Millisecond,
		Timeout: time.Minute}, slog.New(slog.DiscardHandler))
	must.OK(t, err)
	return Build(t.Context(), client, o)
}

func (s *scene) must(t *testing.T, change func(*Options)) *document.Document {
	t.Helper()
	d, err := s.report(t, change)
	must.OK(t, err)
	for _, a := range d.Advice {
		if document.AdviceCodes()[a.Code] == "" || document.ReasonCodes()[a.Reason] == "" || a.Title == "" || a.Evidence == "" ||
			a.Risk == "" ||
			a.Change == "" || a.ChangeIn == "" || a.Confidence == "" {
			t.Errorf("incomplete: %+v", a)
		}
	}
	lawful(t, d)
	return d
}

// lawful fails unless the sums of a report close, and its figures follow from each other.
func lawful(t *testing.T, d *document.Document) {
	t.Helper()
	sum := func(of []document.Account) (a document.Account) {
		for _, x := range of {
			a.States.Plus(x.States, 1)
			a.Hours, a.Reclaimable, a.Beyond = a.Hours+x.Hours, a.Reclaimable+x.Reclaimable, a.Beyond+x.Beyond
			a.Unattributed, a.GPUs, a.UsedByOthers = a.Unattributed+x.Unattributed, a.GPUs+x.GPUs, a.UsedByOthers+x.UsedByOthers
			add(&a.EnergyKWh, x.EnergyKWh)
			add(&a.EnergyCost, x.EnergyCost)
			add(&a.Cost, x.Cost)
		}
		return a
	}
	same := func(what string, x, y document.Account) {
		t.Helper()
		for s := range document.StateCount {
			near(t, what+": "+s.String(), x.States.Of(s), y.States.Of(s))
		}
		near(t, what+": hours", x.Hours, y.Hours)
		near(t, what+": GPUs", x.GPUs, y.GPUs)
		near(t, what+": reclaimable", x.Reclaimable, y.Reclaimable)
		near(t, what+": beyond", x.Beyond, y.Beyond)
		near(t, what+": unattributed", x.Unattributed, y.Unattributed)
		near(t, what+": energy", number(x.EnergyKWh), number(y.EnergyKWh))
		near(t, what+": energy cost", number(x.EnergyCost), number(y.EnergyCost))
		near(t, what+": cost", number(x.Cost), number(y.Cost))
	}
	for what, of := range map[string][]document.Account{"clusters": d.Clusters, "models": d.Models, "pools": d.NodePools,
		"nodes": d.Nodes} {
		if len(of) > 0 {
			same(what, sum(of), d.Fleet)
		}
	}
	if len(d.Clusters) == 1 && d.Clusters[0].Cluster == "" {
		t.Error("a cluster without a name")
	}
	near(t, "fleet's GPUs", d.Fleet.GPUs, d.Fleet.Hours/d.Period.Hours)
	near(t, "fleet's coverage", d.Fleet.Coverage, 1-(d.Fleet.States.NotReported+d.Fleet.States.Unknown)/d.Fleet.Hours)
	near(t, "fleet's difference", d.Fleet.Difference, (d.Fleet.Hours-d.Fleet.States.Sum())/d.Fleet.Hours)
	near(t, "difference", d.Checks.Difference, d.Fleet.Difference)
	near(t, "expected", d.Checks.ExpectedHours, d.Fleet.Hours)
	near(t, "reported", d.Checks.ReportedHours, d.Fleet.States.Reported())
	var trend document.States
	length := 0.0
	for _, b := range d.Trend {
		trend.Plus(b.States, 1)
		near(t, "begin of a part of the trend", b.From.Sub(d.Period.From).Hours(), length)
		length += b.Hours
	}
	if near(t, "trend's length", length, d.Period.Hours); len(d.Trend) < 10 || len(d.Trend) > 125 {
		t.Errorf("%d parts of the trend", len(d.Trend))
	}
	for s := range document.StateCount {
		near(t, "trend: "+s.String(), trend.Of(s), d.Fleet.States.Of(s))
	}
	var all document.Account
	byID := map[string]*document.Workload{}
	for i := range d.Workloads {
		w := &d.Workloads[i]
		byID[w.ID] = w
		own := w.Busy - w.Beyond
		all.States.Plus(document.States{Busy: own, Gap: w.Gap, Idle: w.Idle, Unknown: w.Unknown}, 1)
		all.Hours, all.Reclaimable, all.Beyond = all.Hours+w.Allocated, all.Reclaimable+w.Reclaimable, all.Beyond+w.Beyond
		all.UsedByOthers += w.UsedByOthers
		all.GPUs += w.Allocated / d.Period.Hours
		add(&all.EnergyKWh, w.EnergyKWh)
		add(&all.Cost, w.Cost)
		if left := w.Allocated - own - w.Gap - w.Idle - w.Unknown - w.UsedByOthers; w.Sharing == "shared" || w.Coverage == 1 {
			near(t, w.ID+": rest", math.Round(100*left/max(1, w.Allocated)), 0)
		}
		near(t, w.ID+": unused", w.Unused, w.Gap+w.Idle)
		with, without := number(w.IdleWithMemory), number(w.IdleWithoutMemory)
		if w.IdleWithMemory != nil {
			near(t, w.ID+": idle with and without memory", with+without, w.Idle)
		}
		for _, x := range [][2]float64{{0, w.Coverage}, {w.Coverage, 1}, {w.LongestIdle, d.Period.Hours},
			{number(w.BusyP95), number(w.BusyP99)}, {number(w.BusyP99), number(w.BusyPeak)},
			{number(w.BusyMean), number(w.BusyPeak) + 1e-6},
			{number(w.MemoryFloor), number(w.MemoryMedian)}, {number(w.MemoryMedian), number(w.MemoryPeak)},
			{number(w.MemoryNeed), number(w.MemoryPeak)}} {
			if x[0] > x[1] {
				t.Errorf("%s: %v is more than %v: %+v", w.ID, x[0], x[1], w)
			}
		}
		if (w.GPUsNow > 0) != (d.Period.To.Sub(w.LastSeen) <= allocatedAtEnd && w.Allocated > 0) || w.FirstSeen.After(w.LastSeen) ||
			w.FirstSeen.Before(d.Period.From) || w.LastSeen.After(d.Period.To) {
			t.Errorf("%+v", w)
		}
		if (w.Advice == "") == (w.NoAdvice == "") || (w.NoAdvice == "") != (w.NoAdviceReason == "") ||
			(w.Advice != "") != slices.ContainsFunc(d.Advice,
				func(a document.Advice) bool { return a.Workload == w.ID && a.Code == w.Advice }) {
			t.Errorf("%+v", w)
		}
	}
	for what, of := range map[string][]document.Account{"namespaces": d.Namespaces, "groups": d.Groups} {
		if a := sum(of); len(of) > 0 {
			a.EnergyCost = nil
			same(what, a, all)
			near(t, what+": used by others", a.UsedByOthers, all.UsedByOthers)
		}
	}
	for _, a := range d.Advice {
		w := byID[a.Workload]
		if w == nil {
			continue
		}
		if a.Namespace != w.Namespace || a.Cluster != w.Cluster || a.Model != w.Model || a.Query != w.Query {
			t.Errorf("%+v is of %+v", a, w)
		}
		if a.SavedCost != nil && w.Cost != nil {
			near(t, a.Title+": cost", *a.SavedCost/a.SavedHours, *w.Cost/w.Allocated)
		}
		if a.Code == document.AdviseRelease || a.Code == document.AdviseLessSharing {
			continue
		}
		near(t, a.Title+": GPUs", a.SavedGPUs, a.SavedHours/d.Period.Hours)
		// Placed again, its pods take what they have less what is saved.
		if r := a.Replay; r == nil || r.Evicted > 0 || r.Throttled > 0.001 ||
			math.Abs(r.OccupiedHours-w.Allocated+a.SavedHours) > 0.02*w.Allocated {
			t.Errorf("%s of %.0f saves %.0f: %+v", a.Title, w.Allocated, a.SavedHours, a.Replay)
		}
	}
}

func number(v *float64) float64 {
	if v == nil {
		return 0
	}
	return *v
}

func add(sum **float64, v *float64) {
	if v != nil {
		*sum = new(number(*sum) + *v)
	}
}

// near fails unless a figure is what was computed by hand, but for the rounding of means.
func near(t *testing.T, what string, got, want float64) {
	t.Helper()
	if math.Abs(got-want) > 1e-4*math.Abs(want)+1e-3 {
		t.Errorf("%s is %.4f, want %.4f", what, got, want)
	}
}
