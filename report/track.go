package report

import (
	"math"
	"slices"
)

// track is a quantity over the steps of the window. It begins with the first value; a step without value is
// NaN. Its memory follows from how long something lived.
type track struct {
	from int
	v    []float32
}

var nan = float32(math.NaN())

func (t *track) len() int { return len(t.v) }

// end is the step after the last one.
func (t *track) end() int { return t.from + len(t.v) }

// grow makes room for step k.
func (t *track) grow(k int) {
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
}

// add adds to step k; the first value is taken as it is.
func (t *track) add(k int, v float64) {
	t.grow(k)
	p := &t.v[k-t.from]
	if *p != *p {
		*p = float32(v)
	} else {
		*p += float32(v)
	}
}

// max raises step k.
func (t *track) max(k int, v float64) {
	t.grow(k)
	p := &t.v[k-t.from]
	if !(float64(*p) >= v) {
		*p = float32(v)
	}
}

// at returns the value of step k; ok is false where there is none.
func (t *track) at(k int) (v float64, ok bool) {
	if k < t.from || k >= t.end() {
		return 0, false
	}
	v = float64(t.v[k-t.from])
	return v, v == v
}

// or returns the value of step k, or another where there is none.
func (t *track) or(k int, other float64) float64 {
	if v, ok := t.at(k); ok {
		return v
	}
	return other
}

// sum adds all values up.
func (t *track) sum() float64 {
	s := 0.0
	for _, v := range t.v {
		if v == v {
			s += float64(v)
		}
	}
	return s
}

// count is the number of steps with a value.
func (t *track) count() int {
	n := 0
	for _, v := range t.v {
		if v == v {
			n++
		}
	}
	return n
}

// sample is a sorted set of values.
type sample []float64

func newSample(v []float64) sample {
	slices.Sort(v)
	return v
}

// quantile returns the smallest value that at least the part q of all does not exceed; 0 of an empty set.
func (s sample) quantile(q float64) float64 {
	if len(s) == 0 {
		return 0
	}
	return s[min(len(s)-1, max(0, int(math.Ceil(q*float64(len(s))))-1))]
}

func (s sample) top() float64 {
	if len(s) == 0 {
		return 0
	}
	return s[len(s)-1]
}
