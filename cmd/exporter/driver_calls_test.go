package main

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/must"
)

// TestDriverCalls counts the driver calls of a minute on each node of docs/evidence/driver-calls.csv.
func TestDriverCalls(t *testing.T) {
	text, err := os.ReadFile("../../docs/evidence/driver-calls.csv")
	must.OK(t, err)
	// A ring of 100 samples of a sixth of a second allows as few reads as one of 72 of a fifth.
	table := map[string]string{"rtx-2080ti-loaded": "40 20 620"}
	for _, line := range strings.Split(strings.TrimSpace(string(text)), "\n")[1:] {
		row := strings.Split(line, ",") // "before" is without the rule of docs/concepts.md
		table[row[0]] = strings.Join([]string{row[3], row[5], row[7]}, " ")
	}
	if len(table) < 10 {
		t.Fatalf("only %d nodes", len(table))
	}
	list := cases{}
	for node, want := range table {
		list.add(branchOf(node), node, func(t *testing.T) {
			s, pods := load(t, node)
			st := play(t, s, pods)
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
				t.Errorf("%s calls per minute, the table has %s", got, want)
			}
		})
	}
	list.run(t)
}
