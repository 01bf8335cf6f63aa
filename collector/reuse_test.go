package collector_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	dto "github.com/prometheus/client_model/go"

	"github.com/gpu-exporter/gpu-exporter/internal/catalog"
	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// rowOf is a row that shows what the view's notes say, a series for each.
func rowOf(name string, t catalog.Type) catalog.Family {
	f := catalog.Family{Name: name, Type: t, Help: "X.", Scope: catalog.ScopeNode, Stability: catalog.Stable, Labels: []string{"a", "b"}}
	if t == catalog.Histogram {
		f.ReadHistogram = func(v *gpu.View, emit catalog.EmitHistogram) {
			for i, n := range v.Notes {
				emit(gpu.Histogram{Count: uint64(len(n) + i), Buckets: map[int]uint64{i: uint64(i + 1)}}, v.Node, n, "h")
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
	return f
}

// Memory that served other views, in whatever order series came and went there, must show in nothing: a collector with
// a past renders each view as a new one does, also while earlier views are still being read.
func TestPastShowsInNothing(t *testing.T) {
	rows := []catalog.Family{rowOf("gpu_a_total", catalog.Counter), rowOf("gpu_b", catalog.Gauge),
		rowOf("gpu_c_seconds", catalog.Histogram)}
	rows[2].Unit = "seconds"
	random := rand.New(rand.NewPCG(1, 2))
	var view *gpu.View
	c := newCollector(t, func() *gpu.View { return view }, rows)
	type reader struct {
		families []*dto.MetricFamily
		want     string
		done     func()
	}
	var reading []reader
	end := func(r reader) {
		t.Helper()
		if got := text(t, r.families); got != r.want {
			t.Fatalf("got\n%s\nwant\n%s", got, r.want)
		}
		r.done()
		r.done() // a second end is none
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
		fresh, freshErr := newCollector(t, func() *gpu.View { return view }, rows).Gather()
		want := text(t, fresh)
		families, done, err := c.Transactional().Gather()
		if (err == nil) != (freshErr == nil) || err != nil && err.Error() != freshErr.Error() {
			t.Fatalf("step %d: error %v, want %v", step, err, freshErr)
		}
		reading = append(reading, reader{families, want, done})
		if random.IntN(10) == 0 {
			kept, _ := c.Gather()
			reading = append(reading, reader{kept, want, func() {}})
		}
		for len(reading) > random.IntN(4) {
			i := random.IntN(len(reading))
			end(reading[i])
			reading = append(reading[:i], reading[i+1:]...)
		}
	}
	for _, r := range reading {
		end(r)
	}
}

// Readers of one view and of the next meet in all orders.
func TestReadersMeet(t *testing.T) {
	rows := []catalog.Family{rowOf("gpu_b", catalog.Gauge)}
	views := [3]*gpu.View{}
	wants := [3]string{}
	for i := range views {
		views[i] = &gpu.View{Node: "n", Notes: []string{"a", "b", fmt.Sprint(i)}}
		f, _ := newCollector(t, func() *gpu.View { return views[i] }, rows).Gather()
		wants[i] = text(t, f)
	}
	var mu sync.Mutex
	now := 0
	c := newCollector(t, func() *gpu.View { mu.Lock(); defer mu.Unlock(); now = (now + 1) % 3; return views[now] }, rows)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 300 {
				families, done, err := c.Transactional().Gather()
				if err != nil {
					t.Error(err)
				}
				if got := text(t, families); got != wants[0] && got != wants[1] && got != wants[2] {
					t.Errorf("a page of no view:\n%s", got)
				}
				done()
			}
		})
	}
	all.Wait()
}
