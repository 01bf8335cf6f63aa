package report

import (
	"fmt"
	"log/slog"
	"maps"
	"math"
	"net/http/httptest"
	"testing"
	"time"

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

// job is a workload: a Deployment in the namespace team with an H100 for each of its pods, for all of the period.
type job struct {
	name, model, resource string
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
	l := map[string]string{"namespace": "team", "workload_type": "Deployment", "workload": j.name, "model": j.model}
	s.add(metric.RuleAllocated, l, is(n*j.share))
	s.add(metric.RuleObserved, l, is(n))
	s.add(metric.RuleBusy, l, times(n, busy))
	s.add(metric.RuleBusiest, l, busy)
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
		s.add(metric.RuleOwners, map[string]string{"namespace": "team", "pod": pod, "workload_type": "Deployment",
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
	if err != nil {
		t.Fatal(err)
	}
	return Build(t.Context(), client, o)
}

func (s *scene) must(t *testing.T, change func(*Options)) *document.Document {
	t.Helper()
	d, err := s.report(t, change)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range d.Advice {
		if document.AdviceCodes()[a.Code] == "" || document.ReasonCodes()[a.Reason] == "" || a.Title == "" || a.Evidence == "" ||
			a.Risk == "" ||
			a.Change == "" || a.ChangeIn == "" || a.Confidence == "" {
			t.Errorf("incomplete: %+v", a)
		}
	}
	recorded.compare(t, d)
	return d
}

// near fails unless a figure is what was computed by hand, but for the rounding of means.
func near(t *testing.T, what string, got, want float64) {
	t.Helper()
	if math.Abs(got-want) > 1e-4*math.Abs(want)+1e-3 {
		t.Errorf("%s is %.4f, want %.4f", what, got, want)
	}
}
