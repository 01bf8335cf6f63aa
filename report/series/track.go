package series

import (
	"iter"
	"math"
	"slices"
)

// Track is a quantity over the steps of the period. It begins with the first value; a step without a value is NaN.
// Its memory depends on how long something existed, and on how many steps share a value.
type Track struct {
	From int
	V    []float32
	// per is the number of steps that a value covers, 0 is one; the first covers skip of them fewer.
	per, skip int
}

var nan = float32(math.NaN())

func (t *Track) Len() int { return t.End() - t.From }

// End is the step after the last one.
func (t *Track) End() int {
	if t.per > 1 {
		return t.From - t.skip + len(t.V)*t.per
	}
	return t.From + len(t.V)
}

// First is the First step, or another number if there is none.
func (t *Track) First(none int) int {
	if len(t.V) == 0 {
		return none
	}
	return t.From
}

// index is the place of step k in V.
func (t *Track) index(k int) int {
	if t.per > 1 {
		return (k - t.From + t.skip) / t.per
	}
	return k - t.From
}

// Cell returns the place of step k.
func (t *Track) Cell(k int) *float32 {
	per := max(1, t.per)
	switch {
	case len(t.V) == 0:
		t.From = k
	case k < t.From:
		more := (t.From - k + per - 1) / per
		t.V = slices.Concat(slices.Repeat([]float32{nan}, more), t.V)
		from := t.From - t.skip - more*per
		t.From = max(0, from)
		t.skip = t.From - from
	}
	for k >= t.End() {
		t.V = append(t.V, nan)
	}
	return &t.V[t.index(k)]
}

// MaxBlock raises the size steps before step to, of a track that has blocks of this size alone.
func (t *Track) MaxBlock(to, size int, v float64) {
	if len(t.V) == 0 {
		t.From = max(0, to-size)
		t.per, t.skip, t.V = size, t.From-(to-size), append(t.V, nan)
	}
	t.Max(to-1, v)
}

// Add adds to step k; the first value is taken as it is.
func (t *Track) Add(k int, v float64) {
	if p := t.Cell(k); *p != *p {
		*p = float32(v)
	} else {
		*p += float32(v)
	}
}

// Max raises step k.
func (t *Track) Max(k int, v float64) {
	if p := t.Cell(k); !(float64(*p) >= v) {
		*p = float32(v)
	}
}

// At returns the value of step k; ok is false if there is none.
func (t *Track) At(k int) (v float64, ok bool) {
	if k < t.From || k >= t.End() {
		return 0, false
	}
	v = float64(t.V[t.index(k)])
	return v, v == v
}

// Or returns the value of step k, Or another if there is none.
func (t *Track) Or(k int, other float64) float64 {
	if v, ok := t.At(k); ok {
		return v
	}
	return other
}

// All yields the steps with a value.
func (t *Track) All() iter.Seq2[int, float64] { return t.Within(t.From, t.End()) }

// Within yields the steps with a value, from a step up to but without another.
func (t *Track) Within(from, to int) iter.Seq2[int, float64] {
	return func(yield func(int, float64) bool) {
		for k := max(from, t.From); k < min(to, t.End()); k++ {
			if v := float64(t.V[t.index(k)]); v == v && !yield(k, v) {
				return
			}
		}
	}
}

// Values are the Values from a step up to but without another.
func (t *Track) Values(from, to int) Sample {
	s := make(Sample, 0, max(0, min(to, t.End())-max(from, t.From)))
	for _, v := range t.Within(from, to) {
		s = append(s, v)
	}
	slices.Sort(s)
	return s
}

// Part is the track from a step up to but without another; it shares the values.
func (t *Track) Part(from, to int) (out Track) {
	from, to = max(from, t.From), min(to, t.End())
	switch {
	case from >= to:
	case t.per > 1:
		for k, v := range t.Within(from, to) {
			out.Add(k, v)
		}
	default:
		return Track{From: from, V: t.V[from-t.From : to-t.From]}
	}
	return out
}

// Last is the Last value; 0 if there is none.
func (t *Track) Last() float64 {
	for k := t.End() - 1; k >= t.From; k-- {
		if v, ok := t.At(k); ok {
			return v
		}
	}
	return 0
}

func (t *Track) Sum() (s float64) {
	for _, v := range t.All() {
		s += v
	}
	return s
}

// Count is the number of steps with a value.
func (t *Track) Count() (n int) {
	for range t.All() {
		n++
	}
	return n
}

// Plus adds another Track.
func (t *Track) Plus(o *Track) {
	for k, v := range o.All() {
		t.Add(k, v)
	}
}

// Sample is a sorted set of values.
type Sample []float64

// Quantile returns the smallest value that at least the fraction q of all does not exceed; 0 of an empty set.
func (s Sample) Quantile(q float64) float64 {
	if len(s) == 0 {
		return 0
	}
	return s[min(len(s)-1, max(0, int(math.Ceil(q*float64(len(s))))-1))]
}

func (s Sample) Sum() (v float64) {
	for _, x := range s {
		v += x
	}
	return v
}

// Top is the largest value.
func (s Sample) Top() float64 { return s.Quantile(1) }

// Spans are the times with values, where fewer steps than gap without one are no break.
func (t *Track) Spans(gap int) (out []Span) {
	for k := range t.All() {
		if n := len(out) - 1; n >= 0 && k-out[n].To < gap {
			out[n].To = k + 1
		} else {
			out = append(out, Span{k, k + 1})
		}
	}
	return out
}

// Opening is the part of a quantity that lasts for at least width steps at a time: what remains of a workload's idle
// GPUs without shorter periods. It is used if single GPUs are unknown, and is at most too much, if GPUs take turns in
// being idle.
func (t *Track) Opening(width int) (out Track) {
	n := t.Len()
	if n < width || width < 1 {
		return out
	}
	low := make([]float64, n-width+1)
	for i := range low {
		low[i] = math.Inf(1)
		for j := range width {
			low[i] = min(low[i], t.Or(t.From+i+j, 0))
		}
	}
	for i := range n {
		m := 0.0
		for j := max(0, i-width+1); j <= min(i, len(low)-1); j++ {
			m = max(m, low[j])
		}
		out.Add(t.From+i, m)
	}
	return out
}

// Without are the values outside a part.
func (t *Track) Without(part Span) Sample {
	out := append(t.Values(t.From, part.From), t.Values(part.To, t.End())...)
	slices.Sort(out)
	return out
}

// Hundredths rounds a fraction up, but for the last digits of a float32.
func Hundredths(v float64) uint8 { return uint8(min(100, max(0, math.Ceil(100*v-1e-5)))) }
