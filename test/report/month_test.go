package report_test

import (
	"encoding/json"
	"flag"
	"net/http/httptest"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/report"
	"github.com/gpu-exporter/gpu-exporter/report/reporttest"
)

var monthNodes = flag.Int("month-nodes", 25, "nodes of eight cards whose month is read")

// TestMonth: 54,000 points for each card take less than half a megabyte, for no series is kept longer than it is needed. The
// processor's time, the server's apart, is told.
func TestMonth(t *testing.T) {
	nodes := *monthNodes
	server := httptest.NewServer(reporttest.Month(nodes))
	defer server.Close()
	began := time.Now()
	cmd := exec.CommandContext(t.Context(), built(t).report, "--prometheus.url="+server.URL, "--from=30d", "--now=2026-03-03T00:00:00Z", "--format=json", "--quiet")
	cmd.Env = append(os.Environ(), "GOGC=100") // Go's own, whatever this test runs with
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var d report.Document
	if err := json.Unmarshal(out, &d); err != nil {
		t.Fatal(err)
	}
	if want := float64(nodes) * 8 * 720; d.Fleet.Hours < 0.999*want || d.Fleet.Hours > 1.001*want || len(d.Workloads) < nodes*8/3 {
		t.Errorf("%.0f card-hours, want %.0f; %d workloads", d.Fleet.Hours, want, len(d.Workloads))
	}
	state := cmd.ProcessState
	memory := state.SysUsage().(*syscall.Rusage).Maxrss >> 10
	t.Logf("%d cards: %v of processor time in %v, %d MiB", nodes*8, (state.UserTime() + state.SystemTime()).Round(time.Millisecond), time.Since(began).Round(time.Millisecond), memory)
	if most := 100 + int64(nodes)*8*4/10; memory > most {
		t.Errorf("it took %d MiB, more than %d", memory, most)
	}
}
