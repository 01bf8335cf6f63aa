package counters

import (
	"math"
	"testing"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// The limits of a step of energy, at which it still counts, and the first value beyond: 20 kW for the time that passed
// and five seconds.
func TestLimitsOfACounter(t *testing.T) {
	for _, c := range []struct {
		name        string
		kind        Kind
		last, v     float64
		elapsed     float64
		fresh, ok   bool
		step, total float64
	}{
		{"the largest step", Energy, 100, 100 + 7*20e3, 2, false, true, 7 * 20e3, 100 + 7*20e3},
		{"more", Energy, 100, 101 + 7*20e3, 2, false, false, 0, 100},
		{"no step", Energy, 100, 100, 0, false, true, 0, 100},
		{"half is rounding", Energy, 100, 50, 2, false, true, 0, 100},
		{"less than half is a restart", Energy, 100, 49, 2, false, true, 49, 149},
		{"in a new session any lower value is one", Energy, 100, 99, 2, true, true, 99, 199},
		{"in a new session a higher value is none", Energy, 100, 101, 2, true, true, 1, 101},
		{"the largest restart", Energy, 1e6, 7 * 20e3, 2, false, true, 7 * 20e3, 1e6 + 7*20e3},
		{"more than that", Energy, 1e6, 7*20e3 + 1, 2, false, false, 0, 1e6},
		{"a lost link", NVLink, 100, 10, 2, false, true, 0, 100},
		{"links in a new session", NVLink, 100, 10, 2, true, true, 10, 110},
		{"limited time", LimitedTime, 1, 1 + 1.1*7, 2, false, true, 1.1 * 7, 1 + 1.1*7},
	} {
		var n Counter
		n.Add(c.kind, c.last, 0, false)
		if step, ok := n.Add(c.kind, c.v, c.elapsed, c.fresh); math.Abs(step-c.step) > 1e-9 || ok != c.ok ||
			math.Abs(n.Total-c.total) > 1e-9 {
			t.Errorf("%s: step %v, %v, total %v", c.name, step, ok, n.Total)
		}
	}
}

// A lost link is no rounding: the sum of the others counts on from there, also after a doubt.
func TestLostLinkIsFollowed(t *testing.T) {
	for _, c := range []struct {
		name   string
		values []float64
		total  float64
	}{
		{"at once", []float64{1000, 900, 950}, 1050},
		{"one of garbage before", []float64{1000, 1e18, 900, 950}, 1000}, // held back: the second value confirms it
		{"garbage that was taken for true", []float64{1000, 1e18, 1e18, 900, 950}, 1050},
	} {
		var n Counter
		for _, v := range c.values {
			n.Add(NVLink, v, 2, false)
		}
		if n.Total != c.total {
			t.Errorf("%s: %v, want %v", c.name, n.Total, c.total)
		}
	}
}

// An implausible value is believed once a second continues it: it is not lower, and not more than hardware can do above.
func TestDoubtIsConfirmed(t *testing.T) {
	const limit = 7 * 20e3
	for _, c := range []struct {
		name         string
		second       float64
		confirmed    bool
		third, total float64
	}{
		{"the same", 1e9, true, 1e9 + 10, 110}, {"the largest step", 1e9 + limit, true, 1e9 + limit + 10, 110},
		{"more", 1e9 + limit + 1, false, 1e9 + limit + 11, 100}, {"lower", 1e9 - 1, false, 1e9 + 9, 100},
		{"the old value again", 100, true, 110, 110},
	} {
		var n Counter
		n.Add(Energy, 100, 2, false)
		if _, ok := n.Add(Energy, 1e9, 2, false); ok {
			t.Fatal("an implausible step counts")
		}
		if _, ok := n.Add(Energy, c.second, 2, false); ok != c.confirmed {
			t.Errorf("%s: confirmed %v", c.name, ok)
		}
		if n.Add(Energy, c.third, 2, false); n.Total != c.total {
			t.Errorf("%s: total %v, want %v", c.name, n.Total, c.total)
		}
	}
	// What was confirmed by a repetition is no longer in doubt once it moves.
	var n Counter
	for _, v := range []float64{100, 1e9, 1e9, 1e9 + 5, 1e9 + 1} {
		n.Add(Energy, v, 2, false)
	}
	if n.Total != 105 || n.last != 1e9+5 {
		t.Errorf("%+v", n)
	}
}

// The 32-bit counter is published while its steps can be resolved: for less than 30 s without an estimate.
func TestWrappingIsResolved(t *testing.T) {
	some, none := gpu.Some[float64], gpu.None[float64]()
	var w Wrapping
	add := func(v float64, estimate gpu.Opt[float64], elapsed float64, want bool) {
		t.Helper()
		if ok := w.Add(v, Estimates{Step: estimate}, elapsed, false); ok != want {
			t.Errorf("%v is accepted: %v", v, ok)
		}
	}
	is := func(total float64, resolved bool) {
		t.Helper()
		if v, ok := w.Get(); v != total || ok != resolved {
			t.Errorf("%v %v, want %v %v", v, ok, total, resolved)
		}
	}
	is(0, false)
	add(10, some(5), 2, true) // the first value has no meaning
	is(0, false)
	add(20, some(10), 2, true)
	is(10, true)
	add(30, none, 10, true) // unknown: left out
	add(40, none, 19.9, true)
	is(10, true)
	add(50, none, .1, true)
	is(10, false)
	add(60, some(10), 2, true)
	is(20, true)
	w.Miss(29.9, false)
	is(20, true)
	w.Miss(.1, false)
	is(20, false)
	add(70, some(10), 2, true) // without an estimate meanwhile, its step is that of all the time
	is(30, true)
	w.Miss(2, true)
	add(90, some(10), 2, true) // with one, it covers more than its estimate
	is(30, true)
	add(100, some(10), 2, true)
	is(40, true)
	add(90, some(wrap32), 2, true) // an overflow
	is(40+wrap32-10, true)
	add(95, some(-1), 2, false)
	add(wrap32, some(5), 2, true) // one wide value is garbage, two are a wide counter
	is(40+wrap32-10, true)
	add(-1, some(5), 2, false)
	add(math.NaN(), some(5), 2, false)
	before, _ := w.Get()
	add(wrap32+500, some(5), 2, true) // a counter that outgrew 32 bits: all of it since 95
	before += wrap32 + 405
	is(before, true)
	add(wrap32+700, none, 100, true)
	is(before+200, true)
	add(1e18, none, 2, false)
	w.Miss(2, true)
	add(wrap32+800, none, 2, true)
	is(before+300, true)
	// A wide counter that restarts below 32 bits: less than half is a restart.
	add(100, none, 2, true)
	is(before+400, true)
}

// A wide value between two narrow ones is not the first of two.
func TestWideValuesInARow(t *testing.T) {
	var w Wrapping
	for i, v := range []float64{10, wrap32, 20, wrap32, 30} {
		if ok := w.Add(v, Estimates{Step: gpu.Some(10.)}, 2, false); !ok {
			t.Errorf("value %d is rejected", i)
		}
	}
	if v, ok := w.Get(); v != 20 || !ok || w.wide != 0 {
		t.Errorf("%v %v %+v", v, ok, w)
	}
}

// A 64-bit counter is resolved from its second value on, however long its values were unresolved before.
func TestWideCounterAfterAnUnresolvedTime(t *testing.T) {
	var w Wrapping
	for range 20 {
		w.Add(1000, Estimates{}, 2, false) // 40 s without an estimate
	}
	for i := range 3 {
		w.Add(wrap32*2+float64(i)*1e9, Estimates{}, 2, false)
	}
	if total, ok := w.Get(); !ok || total != 1e9 {
		t.Errorf("%v, resolved %v: %+v", total, ok, w)
	}
}
