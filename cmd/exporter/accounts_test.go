package main

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/standin/scenario"
)

// The chart with features.containerMemory has no host namespace, no capability and no token. Under R610 and newer with
// accounting mode, the busy time of a container that a GPU is allocated to includes processes of a second that began and
// ended while nothing was polled; under R615 and newer the memory of containers that share a GPU adds up to the GPU's. An
// older driver, or one without the mode, counts the gap as not observed.
func TestWithoutHostNamespaces(t *testing.T) {
	for _, c := range []struct {
		symbols      string
		mode         int
		busy, memory bool
	}{{"R550", 1, false, false}, {"R610", 1, true, false}, {"R615", 1, true, true}, {"R620", 1, true, true}, {"R620", 0, false, true}} {
		t.Run(fmt.Sprintf("%s-%d", c.symbols, c.mode), func(t *testing.T) {
			isolated(t, func(t *testing.T) {
				text := strings.Replace(twoGPUs, "symbols R580", "symbols "+c.symbols, 1) +
					fmt.Sprintf("at 0s gpu 1 AccountingMode = %d\nat 0s system DriverVersion = \"%s.100\"\n", c.mode, c.symbols[1:])
				// From 100 s to 160 s nothing is polled.
				worked, inGap := 0.0, 0.0
				for i := range 40 {
					from, length := 60+3.1*float64(i), 1+0.05*float64(i)
					text += fmt.Sprintf("process gpu=1 pid=%d memory=1GiB busy=100%% period=1s from=%dms to=%dms\n", 300+i,
						int(from*1000), int((from+length)*1000))
					worked += length
					inGap += max(0, min(from+length, 160)-max(from, 100))
				}
				s, err := scenario.Parse("c.scenario", text, os.DirFS(filepath.Join("..", "..", "testdata", "scenarios")))
				if err != nil {
					t.Fatal(err)
				}
				b := GPUB[len(`uuid="`) : len(GPUB)-1]
				st := play(t, s, fmt.Sprintf("allocatable nvidia.com/gpu %s\npod ml/alone container main nvidia.com/gpu=%[1]s\n", b),
					"--path.procfs=/nonexistent", "--path.cgroup="+t.TempDir())
				st.step()
				st.watched(50 * time.Second)
				busy := func(s series) float64 {
					t.Helper()
					v, err := s.one("gpu_container_busy_seconds_total", GPUB, `pod="alone"`)
					if err != nil {
						t.Error(err)
					}
					return v
				}
				st.watched(48 * time.Second)
				st.control.Advance(60 * time.Second)
				st.step()
				after := st.watched(60 * time.Second)
				total, err := after.one("gpu_busy_seconds_total", GPUB)
				if err != nil || total != busy(after) {
					t.Errorf("the GPU was busy for %g s, the container for %g s (%v)", total, busy(after), err)
				}
				if got := busy(after); c.busy && math.Abs(got-worked) > 0.01*worked {
					t.Errorf("busy for %.2f s, want %.2f s, of which %.2f s in the gap", got, worked, inGap)
				} else if !c.busy && got > worked-inGap/2 {
					t.Errorf("busy for %.2f s of %.2f s, although %.2f s were not polled", got, worked, inGap)
				} else {
					t.Logf("%s: busy for %.2f s of %.2f s", c.symbols, got, worked)
				}
				var page strings.Builder
				if err := newReport(st.config, st.e, st.e.sampler.Latest()).write(&page); err != nil {
					t.Error(err)
				}
				said := page.String()
				if (c.symbols == "R550") != strings.Contains(said, "but driver 550") ||
					(c.mode == 0) != strings.Contains(said, "nvidia-smi -am 1 -i "+b) {
					t.Errorf("doctor:\n%s", said)
				}
				observed, err := after.one("gpu_observed_seconds_total", GPUB)
				if err != nil || (observed > 210) != c.busy {
					t.Errorf("%g s observed (%v)", observed, err)
				}
			})
		})
	}
}
