package catalog_test

import (
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/gpu-exporter/gpu-exporter/internal/catalog"
	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// The dictionary has each state of the contract once, and each word and color once.
func TestQuantities(t *testing.T) {
	for i, s := range gpu.TimeStates {
		if q := catalog.TimeStates()[i]; q.State != s || q.Lower() != string(s) {
			t.Errorf("state %s has the quantity %+v", s, q)
		}
	}
	words, colors := map[string]bool{}, map[string]bool{}
	for _, q := range catalog.Quantities() {
		if words[q.Word] || q.Definition == "" || strings.HasSuffix(q.Definition, ".") {
			t.Errorf("%+v: a word that occurs twice, or a definition that is missing or ends in a full stop", q)
		}
		words[q.Word] = true
	}
	for _, q := range append(catalog.TimeStates(), catalog.NotReported) {
		if q.Color == "" || colors[q.Color] {
			t.Errorf("%s: color %q is missing or used twice", q.Word, q.Color)
		}
		colors[q.Color] = true
		// WCAG 2.2, 1.4.11, on the panels of Grafana's dark theme (palette.gray10 of grafana-data, createColors.ts).
		if c := (lab(t, q.Color, usual)[0] + 16) / 116; (c*c*c+0.05)/(0.0108+0.05) < 3 {
			t.Errorf("%s: %s has less than three times the luminance of a dark panel", q.Word, q.Color)
		}
	}
	for i, q := range catalog.TimeStates()[1:] {
		for name, simulate := range map[string][3][3]float64{
			// Machado, Oliveira, Fernandes: A Physiologically-based Model for Simulation of Color Vision Deficiency, 2009, severity 1.
			"deuteranopia": {{0.367322, 0.860646, -0.227968}, {0.280085, 0.672501, 0.047413}, {-0.011820, 0.042940, 0.968881}},
			"protanopia":   {{0.152286, 1.052583, -0.204868}, {0.114503, 0.786281, 0.099216}, {-0.003882, -0.048116, 1.051998}},
			"usual vision": usual,
		} {
			a, b := lab(t, catalog.TimeStates()[i].Color, simulate), lab(t, q.Color, simulate)
			if d := math.Hypot(math.Hypot(a[0]-b[0], a[1]-b[1]), a[2]-b[2]); d < 20 {
				t.Errorf("%s lies on %s, and with %s their colors differ by deltaE %.0f", q.Word, catalog.TimeStates()[i].Word, name, d)
			}
		}
	}
	if got, want := catalog.Define(catalog.Busy, catalog.Unused),
		"Busy: at least one kernel was running. Unused: gap + idle."; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// usual leaves a color as it is.
var usual = [3][3]float64{{1, 0, 0}, {0, 1, 0}, {0, 0, 1}}

// lab is a color #rrggbb in CIELAB (D65), after a matrix was applied to its linear RGB.
func lab(t *testing.T, color string, matrix [3][3]float64) [3]float64 {
	t.Helper()
	n, err := strconv.ParseUint(strings.TrimPrefix(color, "#"), 16, 24)
	if err != nil {
		t.Fatalf("color %s: %v", color, err)
	}
	times := func(m [3][3]float64, v [3]float64) (out [3]float64) {
		for i, row := range m {
			for j := range row {
				out[i] += row[j] * v[j]
			}
		}
		return out
	}
	var rgb [3]float64
	for i, c := range []uint64{n >> 16, n >> 8 & 255, n & 255} {
		if v := float64(c) / 255; v <= 0.04045 {
			rgb[i] = v / 12.92
		} else {
			rgb[i] = math.Pow((v+0.055)/1.055, 2.4)
		}
	}
	rgb = times(matrix, rgb)
	for i := range rgb {
		rgb[i] = min(1, max(0, rgb[i]))
	}
	xyz := times([3][3]float64{{0.4124 / 0.95047, 0.3576 / 0.95047, 0.1805 / 0.95047}, {0.2126, 0.7152, 0.0722},
		{0.0193 / 1.08883, 0.1192 / 1.08883, 0.9505 / 1.08883}}, rgb)
	for i, v := range xyz {
		if v > 0.008856 {
			xyz[i] = math.Cbrt(v)
		} else {
			xyz[i] = 7.787*v + 16.0/116
		}
	}
	return [3]float64{116*xyz[1] - 16, 500 * (xyz[0] - xyz[1]), 200 * (xyz[1] - xyz[2])}
}
