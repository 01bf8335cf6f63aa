package expose_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/internal/standin/expose"
	"github.com/gpu-exporter/gpu-exporter/internal/standin/fleet"
)

// A fleet with another epoch does the same later: every sample is equal, except for timestamps.
func TestEpochMovesTheFleet(t *testing.T) {
	const later = 51*time.Hour + 17*time.Minute + 3*time.Second
	early, late := fleet.Demo(3), fleet.Demo(3)
	late.Epoch = early.Epoch.Add(later)
	samples := func(c fleet.Config, at time.Time) map[string]float64 {
		f, err := fleet.New(c)
		must.OK(t, err)
		s, out := expose.NewSampler(f, nil), map[string]float64{}
		keep := func(one expose.Sample) { out[string(one.AppendSeries(nil))] = one.Value }
		for i := range f.Len() {
			s.Node(i, at, keep)
		}
		s.Kube("main", at, keep)
		return out
	}
	for _, d := range []time.Duration{0, 11*time.Hour + 40*time.Minute, 30 * time.Hour} {
		a, b := samples(early, someDay.Add(d)), samples(late, someDay.Add(d+later))
		if len(a) < 5000 || len(a) != len(b) {
			t.Fatalf("%d and %d samples", len(a), len(b))
		}
		times := 0
		for key, v := range a {
			name, _, _ := strings.Cut(key, "{")
			want := v
			if strings.HasSuffix(name, "_timestamp_seconds") {
				want += later.Seconds()
				times++
			}
			if got, ok := b[key]; !ok || math.Abs(got-want) > 1e-6*math.Abs(want) {
				t.Errorf("%q is %v instead of %v", key, got, want)
			}
		}
		if times == 0 {
			t.Error("no sample is a timestamp")
		}
	}
}
