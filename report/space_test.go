package report

import (
	"math"
	"testing"

	"github.com/gpu-exporter/gpu-exporter/report/series"
)

// A step of which nothing is known is no pause, and no reason to know nothing of the others.
func TestLongestPause(t *testing.T) {
	for _, c := range []struct {
		idle []float32
		want float64
	}{
		{nil, 0},
		{[]float32{float32(math.NaN())}, 0},
		{[]float32{float32(math.NaN()), 0.25, float32(math.NaN()), 0.1}, 0.5},
		{[]float32{0.75}, 1},
	} {
		h := allocation{idle: series.Track{V: c.idle}, typical: 0.5}
		if got := h.longestPause(); got != c.want {
			t.Errorf("idle %v of half a GPU: %v, not %v", c.idle, got, c.want)
		}
	}
}
