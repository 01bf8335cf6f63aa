package gpu

// The units as types: a reading is converted once, where it is read, and from then on the compiler distinguishes watts
// from joules.
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
	// Ratio is a fraction, 0 to 1.
	Ratio float64
	// Seconds is a duration that is summed over long periods and many GPUs.
	Seconds float64
)
