package main

import (
	"fmt"
	"testing"
	"time"
)

// TestDriverCalls counts the driver calls of a minute on some nodes: of samples, of the samples of processes, and all.
func TestDriverCalls(t *testing.T) {
	for node, want := range map[string]string{
		"8xh100-loaded": "160 80 3519",
		"8xh100-shared": "160 80 3567",
		"8xb200-loaded": "160 80 3440",
		"gb200-loaded":  "80 40 1778",
		"h200-loaded":   "20 10 462",
		"h100-mig":      "20 10 1173",
		"a100":          "60 30 707",
		"l40s-loaded":   "20 10 383",
		"t4":            "30 15 422",
		"gb10-loaded":   "30 15 326",
		"little":        "0 0 153",
		// A ring of 100 samples of a sixth of a second allows as few reads as one of 72 of a fifth.
		"rtx-2080ti-loaded": "40 20 620",
	} {
		t.Run(node, func(t *testing.T) {
			unraced(t, func(t *testing.T) {
				s, pods := load(t, node)
				st := play(t, s, pods)
				st.step()
				st.run(62 * time.Second)
				before := st.control.AllCalls()
				const minutes = 10
				st.run(minutes * time.Minute)
				var counts [3]uint64
				for f, n := range st.control.AllCalls() {
					n -= before[f]
					counts[2] += n
					switch f {
					case "nvmlDeviceGetSamples":
						counts[0] = n
					case "nvmlDeviceGetProcessUtilization":
						counts[1] = n
					}
				}
				if got := fmt.Sprint(counts[0]/minutes, counts[1]/minutes, counts[2]/minutes); got != want {
					t.Errorf("%s calls per minute, want %s", got, want)
				}
			})
		})
	}
}
