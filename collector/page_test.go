package collector_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"

	"github.com/gpu-exporter/gpu-exporter/internal/catalog"
	"github.com/gpu-exporter/gpu-exporter/internal/catalog/catalogtest"
	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/internal/must"
)

// rowOf is a row that shows what the view's notes say, a series for each.
func rowOf(name string, t catalog.Type) catalog.Family {
	f := catalog.Family{Name: name, Type: t, Help: "X.", Scope: catalog.ScopeNode, Stability: catalog.Stable, Labels: []string{"a", "b"}}
	if t == catalog.Histogram {
		f.ReadHistogram = func(v *gpu.View, emit catalog.EmitHistogram) {
			for i, n := range v.Notes {
				emit(gpu.Histogram{Count: uint64(len(n)+i) * 999_999, Buckets: []gpu.Bucket{{Index: i, Count: uint64(i + 1)}}}, v.Node, n,
					"h")
			}
		}
		return f
	}
	f.Read = func(v *gpu.View, emit catalog.Emit) {
		labels := []string{v.Node, "", ""} // the same memory for each, as readers do
		for i, n := range v.Notes {
			labels[1], labels[2] = n, name
			emit(float64(v.At.Unix())+float64(i), labels...)
		}
	}
	f.Created = func(_ *gpu.View, emit catalog.Emit) { emit(1, "n", "no series", name) }
	return f
}

// formats are the text formats, as the collector and as expfmt write them.
var formats = map[bool]expfmt.Format{false: expfmt.NewFormat(expfmt.TypeTextPlain), true: expfmt.FmtOpenMetrics_1_0_0}

// encode returns the families as expfmt writes them.
func encode(t testing.TB, openMetrics bool, families []*dto.MetricFamily) string {
	t.Helper()
	var b strings.Builder
	e := expfmt.NewEncoder(&b, formats[openMetrics])
	for _, f := range families {
		must.OK(t, e.Encode(f))
	}
	must.OK(t, e.(expfmt.Closer).Close())
	return b.String()
}

// Series that a collector remembers of other views, in whatever order they came and went there, must show in nothing: a
// collector with a past writes each view as expfmt writes the families of a new one.
func TestPastShowsInNothing(t *testing.T) {
	rows := []catalog.Family{rowOf("gpu_a_total", catalog.Counter), rowOf("gpu_b", catalog.Gauge),
		rowOf("gpu_c_seconds", catalog.Histogram)}
	rows[2].Unit = "seconds"
	random := rand.New(rand.NewPCG(1, 2))
	var view *gpu.View
	c := newCollector(t, func() *gpu.View { return view }, rows)
	if families, err := c.Gather(); err != nil || families != nil {
		t.Errorf("of no view %d families, %v", len(families), err)
	}
	for step := range 3000 {
		view = &gpu.View{Node: "n"}
		view.At = view.At.AddDate(1000+step, 0, 0)
		most := 12
		if step%500 == 250 {
			most = 900 // a crowd comes and goes
		}
		for i := range random.IntN(most + 1) {
			n := i
			if random.IntN(4) == 0 {
				n = random.IntN(2 * most)
			}
			view.Notes = append(view.Notes, fmt.Sprintf("note %d", n))
			if random.IntN(20) == 0 {
				view.Notes = append(view.Notes, string([]byte{'x', 0xf0 + byte(random.IntN(8))})) // all of them read x�
			}
		}
		families, want := newCollector(t, func() *gpu.View { return view }, rows).Gather()
		again, err := c.Gather()
		if fmt.Sprint(err) != fmt.Sprint(want) || encode(t, false, again) != encode(t, false, families) {
			t.Fatalf("step %d: the families differ; error %v, want %v", step, err, want)
		}
		for openMetrics := range formats {
			var page strings.Builder
			err := c.WriteText(&page, openMetrics, nil)
			if fmt.Sprint(err) != fmt.Sprint(want) {
				t.Fatalf("step %d: error %v, want %v", step, err, want)
			}
			if want := encode(t, openMetrics, families); page.String() != want {
				t.Fatalf("step %d: got\n%s\nwant\n%s", step, page.String(), want)
			}
		}
	}
}

// The page is as expfmt writes it, whatever the values, with all families in the order of their names.
func FuzzWriteText(f *testing.F) {
	for _, v := range []float64{0, 1, -1, 0.1, 1e6, 999999, 1e21, 1e-7, 12345678, math.Inf(1), math.Inf(-1), math.NaN(),
		math.Copysign(0, -1)} {
		f.Add(v, "a\"b\\c\nd", "first\"\nsecond \\")
	}
	f.Fuzz(func(t *testing.T, value float64, label, help string) {
		read := func(_ *gpu.View, emit catalog.Emit) { emit(value, "n", label); emit(-value, "n", label+"2") }
		row := catalog.Family{Name: "gpu_b", Type: catalog.Gauge, Help: "X.", Scope: catalog.ScopeNode,
			Stability: catalog.Stable,
			Labels:    []string{"a"}, Read: read}
		total := row
		total.Name, total.Type = "gpu_c_total", catalog.Counter
		c := newCollector(t, catalogtest.FullView, []catalog.Family{total, row})
		own, err := c.Gather()
		if err != nil {
			return // both labels read the same
		}
		name := func(name string) *dto.MetricFamily {
			return &dto.MetricFamily{Name: &name, Help: &help,
				Metric: []*dto.Metric{{Gauge: &dto.Gauge{Value: &value}}},
				Type:   dto.MetricType_GAUGE.Enum()}
		}
		before, between, after := name("go_a"), name("gpu_bb"), name("process_a")
		for openMetrics := range formats {
			var page strings.Builder
			err := c.WriteText(&page, openMetrics, []*dto.MetricFamily{before, between, after})
			want := encode(t, openMetrics, []*dto.MetricFamily{before, own[0], between, own[1], after})
			if err != nil || page.String() != want {
				t.Errorf("%v, got\n%s\nwant\n%s", err, page.String(), want)
			}
		}
	})
}

// Scrapes of one view and of the next meet in all orders.
func TestReadersMeet(t *testing.T) {
	rows := []catalog.Family{rowOf("gpu_b", catalog.Gauge)}
	var views [3]*gpu.View
	wants := map[string]bool{}
	for i := range views {
		views[i] = &gpu.View{Node: "n", Notes: []string{"a", "b", fmt.Sprint(i)}}
		f, _ := newCollector(t, func() *gpu.View { return views[i] }, rows).Gather()
		wants[encode(t, false, f)] = true
	}
	var now atomic.Int32
	c := newCollector(t, func() *gpu.View { return views[now.Add(1)%3] }, rows)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 300 {
				var page strings.Builder
				err := c.WriteText(&page, false, nil)
				families, failed := c.Gather()
				if err != nil || failed != nil || !wants[page.String()] || !wants[encode(t, false, families)] {
					t.Errorf("%v, %v, a page of no view:\n%s", err, failed, page.String())
				}
			}
		})
	}
	all.Wait()
}
