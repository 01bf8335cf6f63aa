package dashboards

import "github.com/gpu-exporter/gpu-exporter/internal/catalog"

// The colors have one meaning on all dashboards; those of the states are in catalog.TimeStates.
const (
	Green  = "green"
	Amber  = "orange"
	Yellow = "yellow"
	Gray   = "#8e8e8e"
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

// badAbove colors values that should be low.
func badAbove(warn, bad float64) []Step {
	return []Step{base(Green), step(warn, Amber), step(bad, Red)}
}

// badIfAny colors values that should be 0.
func badIfAny() []Step { return []Step{base(Green), step(1e-9, Red)} }

// warnIfAny is badIfAny for less urgent values.
func warnIfAny() []Step { return []Step{base(Green), step(1e-9, Amber)} }

// plainSteps is for neutral values.
func plainSteps() []Step { return []Step{base(Blue)} }

// usedSteps colors utilization: low is bad.
func usedSteps() []Step {
	return []Step{base(Amber), step(0.2, Yellow), step(0.5, Green)}
}

// fullSteps colors fill levels.
func fullSteps() []Step { return badAbove(0.85, 0.95) }

// Mapping names a value.
type Mapping struct{ Value, Text, Color string }

// timeStateColors are the colors of the states of GPU-time.
func timeStateColors() map[string]string {
	colors := map[string]string{}
	for _, q := range catalog.TimeStates() {
		colors[string(q.State)] = q.Color
	}
	return colors
}

// timeStateMappings name and color the states of GPU-time.
func timeStateMappings() []Mapping {
	var out []Mapping
	for _, q := range catalog.TimeStates() {
		out = append(out, Mapping{string(q.State), q.Word, q.Color})
	}
	return out
}

// yesNo names 0 and 1; with their colors.
func yesNo(yes, yesColor, no, noColor string) []Mapping {
	return []Mapping{{"1", yes, yesColor}, {"0", no, noColor}}
}
