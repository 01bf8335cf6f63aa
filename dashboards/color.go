package dashboards

// The colors have one meaning on every board: busy green, idle amber, free grey, bad red.
const (
	Green  = "green"
	Amber  = "orange"
	Yellow = "yellow"
	Grey   = "#8e8e8e"
	Red    = "red"
	Blue   = "blue"
	Purple = "purple"
	Teal   = "#37a2a2"
)

// Step is a threshold: from this value on, the color. The first step of a list has no value of its own.
type Step struct {
	From  float64
	Color string
}

// base is the first step: the color of everything below the second.
func base(color string) Step { return Step{Color: color} }

func step(from float64, color string) Step { return Step{From: from, Color: color} }

// badAbove colors what should stay low.
func badAbove(warn, bad float64) []Step {
	return []Step{base(Green), step(warn, Amber), step(bad, Red)}
}

// badIfAny colors what should be 0.
func badIfAny() []Step { return []Step{base(Green), step(1e-9, Red)} }

// warnIfAny is badIfAny for what can wait until tomorrow.
func warnIfAny() []Step { return []Step{base(Green), step(1e-9, Amber)} }

// plainSteps is for numbers that are neither good nor bad.
func plainSteps() []Step { return []Step{base(Blue)} }

// usedSteps colors utilization of what somebody paid for: little use is the problem.
func usedSteps() []Step {
	return []Step{base(Amber), step(0.2, Yellow), step(0.5, Green)}
}

// fullSteps colors what hurts when it is full.
func fullSteps() []Step { return badAbove(0.85, 0.95) }

// Mapping names a value.
type Mapping struct{ Value, Text, Color string }

// uses are the words for gpu_time_seconds_total's label use, and their colors.
func timeStateColors() map[string]string {
	return map[string]string{
		"busy": Green, "gap": Yellow, "idle": Amber, "unallocated": Grey, "unavailable": Red, "unknown": Purple,
	}
}

// yesNo names 0 and 1; bad says which of them is worth a color.
func yesNo(yes, yesColor, no, noColor string) []Mapping {
	return []Mapping{{"1", yes, yesColor}, {"0", no, noColor}}
}
