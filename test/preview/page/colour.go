package page

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

var (
	hexColour   = regexp.MustCompile(`^#(?:[0-9a-fA-F]{3}|[0-9a-fA-F]{6}|[0-9a-fA-F]{8})$`)
	namedColour = regexp.MustCompile(`^(?:(?:super-light|light|semi-dark|dark)-)?(?:red|orange|yellow|green|blue|purple)$`)
)

// css turns a colour of a board into one of CSS. Names become variables, which differ by light and dark mode.
func css(colour string) (string, error) {
	switch {
	case hexColour.MatchString(colour), colour == "transparent":
		return colour, nil
	case namedColour.MatchString(colour):
		return "var(--" + colour + ")", nil
	case colour == "text" || colour == "white" || colour == "black":
		return "var(--ink)", nil
	case colour == "gray" || colour == "grey":
		return "var(--muted)", nil
	}
	return "", fmt.Errorf("unknown colour %q: teach it to test/preview/page/colour.go", colour)
}

// shades are the named colours in dark and in light mode.
var shades = []struct{ name, dark, light string }{
	{"dark-red", "#c4162a", "#ad0317"}, {"semi-dark-red", "#e02f44", "#c4162a"}, {"red", "#f2495c", "#e02f44"}, {"light-red", "#ff7383", "#f2495c"}, {"super-light-red", "#ffa6b0", "#ff7383"},
	{"dark-orange", "#fa6400", "#e55400"}, {"semi-dark-orange", "#ff780a", "#fa6400"}, {"orange", "#ff9830", "#ff780a"}, {"light-orange", "#ffb357", "#ff9830"}, {"super-light-orange", "#ffcb7d", "#ffb357"},
	{"dark-yellow", "#e0b400", "#cc9d00"}, {"semi-dark-yellow", "#f2cc0c", "#e0b400"}, {"yellow", "#fade2a", "#f2cc0c"}, {"light-yellow", "#ffee52", "#fade2a"}, {"super-light-yellow", "#fff899", "#ffee52"},
	{"dark-green", "#37872d", "#19730e"}, {"semi-dark-green", "#56a64b", "#37872d"}, {"green", "#73bf69", "#56a64b"}, {"light-green", "#96d98d", "#73bf69"}, {"super-light-green", "#c8f2c2", "#96d98d"},
	{"dark-blue", "#1f60c4", "#1250b0"}, {"semi-dark-blue", "#3274d9", "#1f60c4"}, {"blue", "#5794f2", "#3274d9"}, {"light-blue", "#8ab8ff", "#5794f2"}, {"super-light-blue", "#c0d8ff", "#8ab8ff"},
	{"dark-purple", "#8f3bb8", "#7c2ea3"}, {"semi-dark-purple", "#a352cc", "#8f3bb8"}, {"purple", "#b877d9", "#a352cc"}, {"light-purple", "#ca95e5", "#b877d9"}, {"super-light-purple", "#deb6f2", "#ca95e5"},
}

func shadeRules(dark bool) string {
	var b strings.Builder
	for _, s := range shades {
		value := s.light
		if dark {
			value = s.dark
		}
		b.WriteString("--" + s.name + ":" + value + ";")
	}
	return b.String()
}

// classic is the order in which graphs without colours of their own take them.
var classic = []string{
	"#73bf69", "#eab839", "#6ed0e0", "#ef843c", "#e24d42", "#3f8fd6", "#ba43a9", "#8a74c4", "#508642", "#cca300",
	"#447ebc", "#c15c17", "#b0453a", "#4c7fb8", "#a0508f", "#7d6aa8", "#9dc78b", "#d8ab5c", "#4fc3d0", "#e99b6a",
}

func classicColour(i int) string { return classic[i%len(classic)] }

// step returns the colour of the threshold that a value has reached. Percent thresholds are of the way from
// lowest to highest.
func (l look) step(value, lowest, highest float64) (string, error) {
	if len(l.Thresholds.Steps) == 0 {
		return css("green")
	}
	if l.Thresholds.Mode == "percentage" && highest > lowest {
		value = (value - lowest) / (highest - lowest) * 100
	}
	colour := l.Thresholds.Steps[0].Color
	for _, s := range l.Thresholds.Steps {
		if s.Value == nil || value >= *s.Value {
			colour = s.Color
		}
	}
	return css(colour)
}

// scheme is a colour scale of heatmaps, from none to most.
func scheme(name string) ([]string, bool) {
	all := map[string][]string{
		"Oranges": {"#fff5eb", "#fdae6b", "#e6550d", "#7f2704"}, "Blues": {"#f7fbff", "#9ecae1", "#3182bd", "#08306b"},
		"Greens": {"#f7fcf5", "#a1d99b", "#31a354", "#00441b"}, "Reds": {"#fff5f0", "#fc9272", "#de2d26", "#67000d"},
		"Purples": {"#fcfbfd", "#bcbddc", "#756bb1", "#3f007d"}, "Turbo": {"#30123b", "#28bceb", "#a4fc3c", "#fb7e21", "#7a0403"},
		"YlOrRd": {"#ffffcc", "#feb24c", "#f03b20", "#800026"}, "Viridis": {"#440154", "#31688e", "#35b779", "#fde725"},
	}
	s, ok := all[name]
	return s, ok
}

// between mixes the colours of a scale; at is 0 to 1.
func between(colours []string, at float64) string {
	at = min(max(at, 0), 1) * float64(len(colours)-1)
	i := min(int(at), len(colours)-2)
	part := at - float64(i)
	var out [3]int
	for c := range out {
		var a, b int
		_, _ = fmt.Sscanf(colours[i][1+2*c:3+2*c], "%02x", &a)
		_, _ = fmt.Sscanf(colours[i+1][1+2*c:3+2*c], "%02x", &b)
		out[c] = int(float64(a) + (float64(b)-float64(a))*part + 0.5)
	}
	return fmt.Sprintf("#%02x%02x%02x", out[0], out[1], out[2])
}

func reversed(colours []string) []string {
	out := slices.Clone(colours)
	slices.Reverse(out)
	return out
}
