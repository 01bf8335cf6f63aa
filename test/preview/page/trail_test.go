package page

import "testing"

func TestTrail(t *testing.T) {
	for _, c := range []struct {
		name   string
		points [][2]float64
		want   string
	}{
		{"a line", [][2]float64{{0, 0}, {10, 5}, {20, 0}}, "M0 0l10 5l10 -5"},
		{"a level stretch is one step", [][2]float64{{0, 7}, {10, 7}, {20, 7.05}, {30, 7}, {40, 9}}, "M0 7h30l10 2"},
		{"there and back is not one stretch", [][2]float64{{0, 7}, {10, 7}, {5, 7}}, "M0 7h10l-5 0"},
		{"rounding does not add up", [][2]float64{{0, 0}, {0.1, 1}, {0.2, 2}, {0.3, 3}, {0.4, 4}}, "M0 0l0 1l0.25 1l0 1l0.25 1"},
		{"the end is written", [][2]float64{{0, 1}, {10, 1}}, "M0 1h10"},
	} {
		var got trail
		for _, p := range c.points {
			got.to(p[0], p[1])
		}
		if got.String() != c.want {
			t.Errorf("%s: %s, want %s", c.name, got.String(), c.want)
		}
	}
}
