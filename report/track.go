package report

import (
	"iter"
	"math"
	"slices"
)

// track is a quantity over the steps of the period. It begins with the first value; a step without a value is NaN.
// Its memory depends on how long something existed.
type track struct {
	from int
	v    []float32
}

var nan = float32(math.NaN())

func (t *track) len() int { return len(t.v) }

// end is the step after the last one.
func (t *track) end() int { return t.from + len(t.v) }

// first is the first step, or another number if there is none.
func (t *track) first(none int) int {
	if len(t.v) == 0 {
		return none
	}
	return t.from
}

// cell returns the place of step k.
func (t *track) cell(k int) *float32 {
	switch {
	case len(t.v) == 0:
		t.from = k
	case k < t.from:
		t.v = slices.Concat(slices.Repeat([]float32{nan}, t.from-k), t.v)
		t.from = k
	}
	for k >= t.end() {
		t.v = append(t.v, nan)
	}
	return &t.v[k-t.from]
}

// add adds to step k; the first value is taken as it is.
func (t *track) add(k int, v float64) {
	if p := t.cell(k); *p != *p {
		*p = float32(v)
	} else {
		*p += float32(v)
	}
}

// max raises step k.
func (t *track) max(k int, v float64) {
	if p := t.cell(k); !(float64(*p) >= v) {
		*p = float32(v)
	}
}

// at returns the value of step k; ok is false if there is none.
func (t *track) at(k int) (v float64, ok bool) {
	if k < t.from || k >= t.end() {
		return 0, false
	}
	v = float64(t.v[k-t.from])
	return v, v == v
}

// or returns the value of step k, or another if there is none.
func (t *track) or(k int, other float64) float64 {
	if v, ok := t.at(k); ok {
		return v
	}
	return other
}

// all yields the steps with a value.
func (t *track) all() iter.Seq2[int, float64] { return t.within(t.from, t.end()) }

// within yields the steps with a value, from a step up to but without another.
func (t *track) within(from, to int) iter.Seq2[int, float64] {
	return func(yield func(int, float64) bool) {
		for k := max(from, t.from); k < min(to, t.end()); k++ {
			if v := float64(t.v[k-t.from]); v == v && !yield(k, v) {
				return
			}
		}
	}
}

// values are the values from a step up to but without another.
func (t *track) values(from, to int) sample {
	s := make(sample, 0, max(0, min(to, t.end())-max(from, t.from)))
	for _, v := range t.within(from, to) {
		s = append(s, v)
	}
	slices.Sort(s)
	return s
}

// last is the last value; 0 if there is none.
func (t *track) last() float64 {
	for k := t.end() - 1; k >= t.from; k-- {
		if v, ok := t.at(k); ok {
			return v
		}
	}
	return 0
}

func (t *track) sum() (s float64) {
	for _, v := range t.all() {
		s += v
	}
	return s
}

// count is the number of steps with a value.
func (t *track) count() (n int) {
	for range t.all() {
		n++
	}
	return n
}

// plus adds another track.
func (t *track) plus(o *track) {
	for k, v := range o.all() {
		t.add(k, v)
	}
}

// sample is a sorted set of values.
type sample []float64

// quantile returns the smallest value that at least the fraction q of all does not exceed; 0 of an empty set.
func (s sample) quantile(q float64) float64 {
	if len(s) == 0 {
		return 0
	}
	return s[min(len(s)-1, max(0, int(math.Ceil(q*float64(len(s))))-1))]
}

func (s sample) sum() (v float64) {
	for _, x := range s {
		v += x
	}
	return v
}

// top is the largest value.
func (s sample) top() float64 { return s.quantile(1) }

// spans are the times with values, where fewer steps than gap without one are no break.
func (t *track) spans(gap int) (out []span) {
	for k := range t.all() {
		if n := len(out) - 1; n >= 0 && k-out[n].to < gap {
			out[n].to = k + 1
		} else {
			out = append(out, span{k, k + 1})
		}
	}
	return out
}
