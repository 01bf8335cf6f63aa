package report_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"net/http/httptest"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/report/document"
	"github.com/gpu-exporter/gpu-exporter/report/reporttest"
	"github.com/gpu-exporter/gpu-exporter/test/process"
)

var monthNodes = flag.Int("month-nodes", 25, "nodes of eight GPUs whose month is read")

// TestMonth: 36,000 points for each GPU take less than 0.06 MiB beside a namespace that is read, for no series is kept longer than
// it is needed. The processor time, without the server's, is logged.
func TestMonth(t *testing.T) {
	t.Parallel()
	nodes := *monthNodes
	server := httptest.NewServer(reporttest.Month(nodes))
	defer server.Close()
	start := time.Now()
	cmd := exec.CommandContext(t.Context(), built(t).report, "--prometheus.url="+server.URL, "--from=30d", "--now=2026-03-03T00:00:00Z",
		"--format=json", "--quiet")
	cmd.Env = append(os.Environ(), "GOGC=") // its own, whatever this test runs with
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	memory, err := process.Run(cmd)
	if err != nil {
		t.Fatal(err, errs.String())
	}
	var d document.Document
	must.OK(t, json.Unmarshal(out.Bytes(), &d))
	if want := float64(nodes) * 8 * 720; d.Fleet.Hours < 0.999*want || d.Fleet.Hours > 1.001*want || len(d.Workloads) != (nodes*8+59)/60 {
		t.Errorf("%.0f GPU-hours, want %.0f; %d workloads", d.Fleet.Hours, want, len(d.Workloads))
	}
	state := cmd.ProcessState
	t.Logf("%d GPUs: %v of processor time in %v, %.0f MiB", nodes*8, (state.UserTime() + state.SystemTime()).Round(time.Millisecond),
		time.Since(start).Round(time.Millisecond), memory)
	if most := 60 + float64(nodes)*8*0.2; memory > most {
		t.Errorf("it took %.0f MiB, more than %.0f", memory, most)
	}
}
