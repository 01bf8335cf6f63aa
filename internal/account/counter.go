package account

import (
	"math"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// counter makes a counter of the driver monotonic over the life of the exporter: it starts at the first value (energy
// since the driver was loaded), later differences are added. The driver's counter may wrap, restart with the driver, or
// return garbage once; none of these causes a negative step or a jump.
type counter struct {
	seen    bool
	last    float64
	total   float64
	suspect float64 // an implausible value, until a second one confirms it
	doubted bool
	// unconfirmed is set if last was implausible and was accepted because it was read twice.
	unconfirmed bool
}

// counterKind describes a counter.
type counterKind struct {
	// maxRate is the highest possible rate of any hardware, in units per second.
	maxRate float64
	// parts is set where the driver adds up parts that can be lost: a lower value is then neither rounding nor a restart.
	parts bool
}

var (
	energyCounter  = counterKind{maxRate: 20e3}              // joules
	pcieCounter    = counterKind{maxRate: 1e12}              // bytes
	nvlinkCounter  = counterKind{maxRate: 4e12, parts: true} // bytes
	limitedCounter = counterKind{maxRate: 1.1}               // seconds
)

const (
	wrap32 = 1 << 32
	// counterLeeway is added to the elapsed time for the plausibility of a step: the driver refreshes its counters at
	// its own intervals.
	counterLeeway = 5.0
)

// add applies a new value, elapsed seconds after the previous one, and returns the step. fresh is set if the driver's
// session is new, so that a lower value is a restart. ok is false if the value is implausible; it is then ignored.
func (c *counter) add(kind counterKind, v, elapsed float64, fresh bool) (step float64, ok bool) {
	if !(v >= 0) || math.IsInf(v, 1) {
		return 0, false
	}
	if !c.seen {
		c.seen, c.last, c.total = true, v, v
		return 0, true
	}
	maxRate := kind.maxRate * (elapsed + counterLeeway)
	step = v - c.last
	if step < 0 {
		switch {
		case kind.parts && !fresh && !c.doubted && !c.unconfirmed:
			// A link was lost with its count: continue from here.
			c.last = v
			return 0, true
		case c.unconfirmed:
			// The accepted value was garbage and this is no restart: continue from here.
			c.last, c.unconfirmed, c.doubted = v, false, false
			return 0, true
		case fresh || v < c.last/2:
			step = v // restarted
			if step > maxRate {
				// The start of its period is unknown: restart from here.
				return 0, c.doubt(v, elapsed, kind)
			}
		case c.doubted:
			// The first value of a new session was implausible and this is its second: not rounding.
			return 0, c.doubt(v, elapsed, kind)
		default:
			// A small step back is the driver's rounding: wait until it has caught up.
			return 0, true
		}
	}
	if step > maxRate {
		return 0, c.doubt(v, elapsed, kind)
	}
	c.last, c.doubted = v, false
	c.unconfirmed = c.unconfirmed && step == 0
	c.total += step
	return step, true
}

// doubt holds an implausible value back. If the next one continues it, the counter continues from there.
func (c *counter) doubt(v, elapsed float64, kind counterKind) bool {
	if c.doubted && v >= c.suspect && v-c.suspect <= kind.maxRate*(elapsed+counterLeeway) {
		c.last, c.doubted, c.unconfirmed = v, false, true
		return true
	}
	c.suspect, c.doubted = v, true
	return false
}

// wrapping is a counter of which the driver keeps the lowest 32 bits. An estimate of each step gives how often it
// overflowed: the sum is exact as long as the estimate is within 2 GiB. It starts at 0, since the first value has no
// meaning, and ends where the steps can no longer be resolved.
type wrapping struct {
	counter
	resolved   bool
	unresolved float64 // seconds since the last resolved step
	wide       int     // consecutive values above 32 bits: from the second one on, it is no 32-bit counter
}

// add applies a value, elapsed seconds after the previous one, and the estimate of what was added since. ok is false if
// the value is implausible.
func (w *wrapping) add(v float64, estimate gpu.Opt[float64], elapsed float64, fresh bool) (ok bool) {
	if v >= wrap32 {
		w.wide++
	}
	e, estimated := estimate.Get()
	switch {
	case w.wide >= 2:
		if !w.resolved {
			w.counter, w.resolved = counter{seen: true, last: v}, true
		}
		w.unresolved = 0
		_, ok = w.counter.add(pcieCounter, v, elapsed, fresh)
		return ok
	case !(v >= 0 && v < wrap32):
		return v >= wrap32 && w.wide == 1
	}
	w.wide = 0
	step := math.Mod(v-w.last+wrap32, wrap32)
	known := w.seen && !fresh
	w.seen, w.last = true, v
	switch {
	case !known:
		return true
	case !estimated:
		w.unresolved += elapsed
		return true
	case !(e >= 0 && e <= pcieCounter.maxRate*(elapsed+counterLeeway)):
		return false
	}
	w.total += max(0, step+wrap32*math.Round((e-step)/wrap32))
	w.resolved, w.unresolved = true, 0
	return true
}

// miss is called when there is no value. If its period was estimated, the next step would cover more than its estimate.
func (w *wrapping) miss(elapsed float64, estimated bool) {
	w.seen = w.seen && (w.wide >= 2 || !estimated)
	w.unresolved += elapsed
}

// get returns the counter while its steps can be resolved.
func (w *wrapping) get() (float64, bool) { return w.total, w.resolved && w.unresolved < ringTimeout }
