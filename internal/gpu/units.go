package gpu

// The units of this project, as types: a reading is converted once, where it is read, and from then on
// the compiler keeps watts apart from joules.
type (
	// Watts is power.
	Watts float64
	// Joules is energy.
	Joules float64
	// Bytes is an amount of memory or of traffic.
	Bytes uint64
	// Hertz is a clock frequency.
	Hertz float64
	// Celsius is a temperature.
	Celsius float64
	// Ratio is a part of a whole, 0 to 1.
	Ratio float64
	// Seconds is a duration that is summed over long times and many GPUs.
	Seconds float64
)
