package main

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"
)

// TestDriverCalls counts the driver calls of a minute on each node of the table in docs/concepts.md.
func TestDriverCalls(t *testing.T) {
	rows := regexp.MustCompile("(?m)^\\| `([a-z0-9-]+)` \\| \\d+ \\| \\d+ \\| (\\d+) \\| \\d+ \\| (\\d+) \\| \\d+ \\| (\\d+) \\|$")
	text, err := os.ReadFile("../../docs/concepts.md")
	found := rows.FindAllStringSubmatch(string(text), -1)
	if err != nil || len(found) < 10 {
		t.Fatalf("%d rows, %v", len(found), err)
	}
	// A ring of 100 samples of a sixth of a second allows as few reads as one of 72 of a fifth.
	found = append(found, []string{"", "rtx-2080ti-loaded", "40", "20", "620"})
	for _, row := range found {
		t.Run(row[1], func(t *testing.T) {
			unraced(t, func(t *testing.T) {
				s, pods := load(t, row[1])
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
				if got := fmt.Sprint(counts[0]/minutes, counts[1]/minutes, counts[2]/minutes); got != strings.Join(row[2:], " ") {
					t.Errorf("%s calls per minute, docs/concepts.md has %s", got, strings.Join(row[2:], " "))
				}
			})
		})
	}
}
