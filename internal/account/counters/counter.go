// Package counters makes counters of the driver monotonic, over restarts, garbage and overflows.
package counters

import "math"

// Counter makes a counter of the driver monotonic over the life of the exporter: it starts at the first value (energy
// since the driver was loaded), later differences are added. The driver's counter may wrap, restart with the driver, or
// return garbage once; none of these causes a negative step or a jump.
type Counter struct {
	Seen    bool // it has a value
	Total   float64
	last    float64
	suspect float64 // an implausible value, until a second one confirms it
	doubted bool
	// unconfirmed is set if last was implausible and was accepted because it was read twice.
	unconfirmed bool
	session     int // of the driver, at the last value
}

// Kind describes a counter.
type Kind struct {
	// MaxRate is the highest possible rate of any hardware, in units per second.
	MaxRate float64
	// parts is set where the driver adds up parts that can be lost: a lower value is then neither rounding nor a restart.
	parts bool
}

// The kinds of counters.
var (
	Energy      = Kind{MaxRate: 20e3}              // joules
	PCIe        = Kind{MaxRate: 1e12}              // bytes
	NVLink      = Kind{MaxRate: 4e12, parts: true} // bytes
	LimitedTime = Kind{MaxRate: 1.1}               // seconds
)

const (
	wrap32 = 1 << 32
	// leeway is added to the elapsed time for the plausibility of a step: the driver refreshes its counters at
	// its own intervals.
	leeway  = 5.0
	longest = 10 * 365 * 86400 // seconds for which no driver has been loaded: a first value has nothing before it
)

// Renewed reports whether the value that is to be added is the first in a session of the driver.
func (c *Counter) Renewed(session int) (is bool) {
	is, c.session = c.session != session, session
	return is
}

// Add applies a new value, elapsed seconds after the previous one, and returns the step. fresh is set if the driver's
// session is new, so that a lower value is a restart. ok is false if the value is implausible; it is then ignored.
func (c *Counter) Add(kind Kind, v, elapsed float64, fresh bool) (step float64, ok bool) {
	if !(v >= 0) || math.IsInf(v, 1) || !c.Seen && v > kind.MaxRate*longest {
		return 0, false
	}
	if !c.Seen {
		c.Seen, c.last, c.Total = true, v, v
		return 0, true
	}
	maxRate := kind.MaxRate * (elapsed + leeway)
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
	c.Total += step
	return step, true
}

// doubt holds an implausible value back. If the next one continues it, the counter continues from there.
func (c *Counter) doubt(v, elapsed float64, kind Kind) bool {
	if c.doubted && v >= c.suspect && v-c.suspect <= kind.MaxRate*(elapsed+leeway) {
		c.last, c.doubted, c.unconfirmed = v, false, true
		return true
	}
	c.suspect, c.doubted = v, true
	return false
}
