package account

import "math"

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
	// wraps32 is set where the driver may keep 32 bits only.
	wraps32 bool
	// maxRate is the highest possible rate of any hardware, in units per second.
	maxRate float64
}

var (
	energyCounter  = counterKind{maxRate: 20e3}                // joules
	pcieCounter    = counterKind{wraps32: true, maxRate: 1e12} // bytes
	nvlinkCounter  = counterKind{maxRate: 2e13}                // bytes
	limitedCounter = counterKind{maxRate: 1.1}                 // seconds
)

const (
	wrap32 = 1 << 32
	half32 = 1 << 31
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
		switch wrapped := wrap32 - c.last + v; {
		case kind.wraps32 && !fresh && c.last >= half32 && c.last < wrap32 && v < half32 && wrapped <= maxRate:
			step = wrapped
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
