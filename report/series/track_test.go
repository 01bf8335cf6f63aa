package series

import (
	"math"
	"slices"
	"testing"
	"time"
)

func values(t *Track) (out []float64) {
	for k := t.From; k < t.End(); k++ {
		out = append(out, t.Or(k, -1))
	}
	return out
}

func TestTrack(t *testing.T) {
	var x Track
	if x.Len() != 0 || x.End() != 0 || x.First(7) != 7 || x.Last() != 0 || x.Count() != 0 || x.Sum() != 0 || x.Or(0, 5) != 5 {
		t.Errorf("%+v", x)
	}
	x.Add(5, 1)
	x.Add(7, 2)
	x.Add(7, 0.5)
	x.Max(3, 4)
	x.Max(3, 3)
	x.Max(5, 6)
	if got := values(&x); !slices.Equal(got, []float64{4, -1, 6, -1, 2.5}) || x.From != 3 || x.End() != 8 || x.Len() != 5 ||
		x.First(7) != 3 {
		t.Errorf("%v from %d", got, x.From)
	}
	if x.Sum() != 12.5 || x.Count() != 3 || x.Last() != 2.5 {
		t.Errorf("sum %v, count %d, last %v", x.Sum(), x.Count(), x.Last())
	}
	if _, ok := x.At(8); ok {
		t.Error("a value after the end")
	}
	if _, ok := x.At(2); ok {
		t.Error("a value before the start")
	}
	if got := x.Values(4, 8); !slices.Equal(got, Sample{2.5, 6}) {
		t.Errorf("%v", got)
	}
	part := x.Part(4, 6)
	if got := values(&part); part.From != 4 || !slices.Equal(got, []float64{-1, 6}) {
		t.Errorf("%v from %d", got, part.From)
	}
	if part = x.Part(8, 20); part.Len() != 0 {
		t.Errorf("%+v", part)
	}
	y := Track{From: 7, V: []float32{1, 1}}
	if x.Plus(&y); x.Or(7, 0) != 3.5 || x.Or(8, 0) != 1 {
		t.Errorf("%v", values(&x))
	}
	if got := x.Spans(2); !slices.Equal(got, []Span{{3, 9}}) || Steps(got) != 6 {
		t.Errorf("%v", got)
	}
	if got := x.Spans(1); !slices.Equal(got, []Span{{3, 4}, {5, 6}, {7, 9}}) || Steps(got) != 4 {
		t.Errorf("%v", got)
	}
}

// Blocks of four steps that end with the step 10: the first of the period is cut off.
func TestBlocks(t *testing.T) {
	var x Track
	x.MaxBlock(6, 4, 2)
	x.MaxBlock(6, 4, 1)
	x.MaxBlock(14, 4, 5)
	if got := values(&x); x.From != 2 || x.End() != 14 || !slices.Equal(got, []float64{2, 2, 2, 2, -1, -1, -1, -1, 5, 5, 5, 5}) {
		t.Errorf("%v from %d", got, x.From)
	}
	x.MaxBlock(2, 4, 3)
	if got := values(&x); x.From != 0 || x.Len() != 14 || !slices.Equal(got[:3], []float64{3, 3, 2}) || got[13] != 5 || len(x.V) != 4 {
		t.Errorf("%v from %d, %d values", got, x.From, len(x.V))
	}
	if x.Count() != 10 || x.Sum() != 2*3+4*2+4*5 {
		t.Errorf("%d values, sum %v", x.Count(), x.Sum())
	}
	part := x.Part(1, 4)
	if got := values(&part); part.From != 1 || !slices.Equal(got, []float64{3, 2, 2}) {
		t.Errorf("%v", got)
	}
	var first Track
	if first.MaxBlock(2, 4, 1); first.From != 0 || first.End() != 2 || first.Len() != 2 || first.Sum() != 2 {
		t.Errorf("%+v", first)
	}
}

func TestSample(t *testing.T) {
	s := Sample{1, 2, 3, 4}
	for q, want := range map[float64]float64{0: 1, 0.25: 1, 0.26: 2, 0.5: 2, 0.75: 3, 0.99: 4, 1: 4} {
		if got := s.Quantile(q); got != want {
			t.Errorf("%v: %v, want %v", q, got, want)
		}
	}
	if s.Sum() != 10 || s.Top() != 4 || (Sample{}).Quantile(0.5) != 0 {
		t.Errorf("%v %v", s.Sum(), s.Top())
	}
}

func TestOpening(t *testing.T) {
	x := Track{From: 2, V: []float32{1, 2, 2, 0, 3, 3, 3, 1}}
	for width, want := range map[int][]float64{1: {1, 2, 2, 0, 3, 3, 3, 1}, 2: {1, 2, 2, 0, 3, 3, 3, 1}, 3: {1, 1, 1, 0, 3, 3, 3, 1},
		4: {0, 0, 0, 0, 1, 1, 1, 1}, 9: nil, 0: nil} {
		out := x.Opening(width)
		if got := values(&out); !slices.Equal(got, want) || want != nil && out.From != 2 {
			t.Errorf("%d: %v, want %v", width, got, want)
		}
	}
}

func TestPeriod(t *testing.T) {
	at := time.Date(2026, 2, 1, 0, 2, 0, 0, time.UTC)
	p := NewPeriod(at, at.Add(24*time.Hour), 5*time.Minute)
	if p.From != at.Add(-2*time.Minute) || p.Steps() != 288 || p.Hours() != 24 || p.PerHour() != 12 ||
		math.Abs(p.StepHours()*12-1) > 1e-12 {
		t.Errorf("%+v", p)
	}
	for after, want := range map[time.Duration]int{0: -1, time.Millisecond: 0, 5 * time.Minute: 0, 5*time.Minute + time.Millisecond: 1,
		24 * time.Hour: 287, 24*time.Hour + time.Millisecond: -1, -time.Hour: -1} {
		k, ok := p.Index(p.From.Add(after).UnixMilli())
		if ok != (want >= 0) || ok && k != want {
			t.Errorf("%s: %d %v, want %d", after, k, ok, want)
		}
	}
	if !p.Begin(3).Equal(p.From.Add(15*time.Minute)) || !p.End(3).Equal(p.From.Add(20*time.Minute)) || p.Duration(3) != 15*time.Minute ||
		NewPeriod(at, at.Add(24*time.Hour), 2*time.Hour).PerHour() != 1 {
		t.Errorf("%+v", p)
	}
}
