package account

import "math"

// counter makes a counter of the driver monotonic over the life of the exporter: the first value is taken as
// it is (energy since the driver was loaded), later differences are added. The driver's counter may wrap,
// start again with the driver, or show garbage once; none of these becomes a negative step or a jump.
type counter struct {
	seen    bool
	last    float64
	total   float64
	suspect float64 // an impossible value that waits for a second one to agree
	doubted bool
	// shaky says that last was impossible when it came, and is believed for the one reason that it came twice.
	shaky bool
}

// counterKind is what can be said of a counter before it is read.
type counterKind struct {
	// wraps32 is set where the driver may keep 32 bits only.
	wraps32 bool
	// most is the highest rate, in units per second, that any hardware reaches.
	most float64
}

var (
	energyCounter  = counterKind{most: 20e3}                // joules
	pcieCounter    = counterKind{wraps32: true, most: 1e12} // bytes
	nvlinkCounter  = counterKind{most: 2e13}                // bytes
	limitedCounter = counterKind{most: 1.1}                 // seconds
)

const (
	wrap32 = 1 << 32
	half32 = 1 << 31
	// counterLeeway is added to the elapsed time before a step is called impossible: the driver refreshes
	// its counters in its own rhythm.
	counterLeeway = 5.0
)

// add takes a new value, elapsed seconds after the one before, and returns the step. fresh says that the
// driver's session is a new one, so that going back means starting again. ok is false when the value cannot
// be true; it is then left out.
func (c *counter) add(kind counterKind, v, elapsed float64, fresh bool) (step float64, ok bool) {
	if !(v >= 0) || math.IsInf(v, 1) {
		return 0, false
	}
	if !c.seen {
		c.seen, c.last, c.total = true, v, v
		return 0, true
	}
	most := kind.most * (elapsed + counterLeeway)
	step = v - c.last
	if step < 0 {
		switch wrapped := wrap32 - c.last + v; {
		case kind.wraps32 && !fresh && c.last >= half32 && c.last < wrap32 && v < half32 && wrapped <= most:
			step = wrapped
		case c.shaky:
			// It was garbage after all, and what comes back is no new beginning: go on from here.
			c.last, c.shaky, c.doubted = v, false, false
			return 0, true
		case fresh || v < c.last/2:
			step = v // started again
			if step > most {
				// Since when it counts is not known: begin anew from here.
				return 0, c.doubt(v, elapsed, kind)
			}
		case c.doubted:
			// A new session's first value was more than can be, and this is its second: no rounding.
			return 0, c.doubt(v, elapsed, kind)
		default:
			// A small step back is the driver's rounding: wait until it has caught up.
			return 0, true
		}
	}
	if step > most {
		return 0, c.doubt(v, elapsed, kind)
	}
	c.last, c.doubted = v, false
	c.shaky = c.shaky && step == 0
	c.total += step
	return step, true
}

// doubt holds an impossible value back. When the next one continues it, the counter goes on from there.
func (c *counter) doubt(v, elapsed float64, kind counterKind) bool {
	if c.doubted && v >= c.suspect && v-c.suspect <= kind.most*(elapsed+counterLeeway) {
		c.last, c.doubted, c.shaky = v, false, true
		return true
	}
	c.suspect, c.doubted = v, true
	return false
}
