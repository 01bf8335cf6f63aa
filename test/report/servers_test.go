package report_test

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/standin/fleet"
	"github.com/gpu-exporter/gpu-exporter/report/document"
	"github.com/gpu-exporter/gpu-exporter/test/servers"
)

// victoria runs a VictoriaMetrics with the past of the demo's fleet in it.
func victoria(t *testing.T, p programs, seed uint64, from, to time.Time) (url string) {
	t.Helper()
	standin, address := servers.Build(t, servers.Standin), servers.Address(t)
	servers.Start(t, p.root, servers.Build(t, servers.VictoriaMetrics), "-storageDataPath="+t.TempDir(), "-httpListenAddr="+address,
		"-retentionPeriod=100y", "-loggerLevel=ERROR")
	servers.Within(t, time.Minute, "VictoriaMetrics", servers.Answers("http://"+address+"/health"))
	args := []string{"fleet", "--preset=demo", fmt.Sprintf("--seed=%d", seed), "history", "--from=" + from.Format(time.RFC3339),
		"--to=" + to.Format(time.RFC3339), "--step=30s"}
	for _, family := range families {
		args = append(args, "--family="+family)
	}
	history := exec.Command(standin, args...)
	history.Stderr = os.Stderr
	text, err := history.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := history.Start(); err != nil {
		t.Fatal(err)
	}
	res, err := http.Post("http://"+address+"/api/v1/import/prometheus", "text/plain", text)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if err := history.Wait(); err != nil || res.StatusCode >= 300 {
		t.Fatalf("import: %v, %s", err, res.Status)
	}
	if res, err = http.Get("http://" + address + "/internal/force_flush"); err == nil {
		res.Body.Close()
	}
	return "http://" + address
}

// The same history gives the same account whichever server keeps it.
func TestServersAgree(t *testing.T) {
	p := built(t)
	const seed = 6
	from := begins
	to := from.Add(12 * hour)
	config, err := fleet.Preset("demo", seed)
	if err != nil {
		t.Fatal(err)
	}
	f, err := fleet.New(config)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write(t, dir, f, from.Add(-10*time.Minute), to, 30*time.Second)
	url, _ := p.serve(t, dir)
	args := []string{"--from=" + from.Format(time.RFC3339), "--to=" + to.Format(time.RFC3339), "--now=" + to.Format(time.RFC3339)}
	a := p.run(t, url, args...)
	b := p.run(t, victoria(t, p, seed, from.Add(-10*time.Minute), to), args...)
	for c := document.State(0); c < document.StateCount; c++ {
		x, y := a.Fleet.States.Of(c), b.Fleet.States.Of(c)
		t.Logf("%-12s Prometheus %8.2f, VictoriaMetrics %8.2f GPU-hours", c, x, y)
		switch c {
		case document.Unknown:
			// The counters went on in a gap between scrapes: MetricsQL's rate looks back to the sample before it, PromQL's does not.
			x, y = x+a.Fleet.States.NotReported, y+b.Fleet.States.NotReported
		case document.NotReported:
			continue
		}
		if !near(x, y, 0.01, 0.002*a.Fleet.Hours) {
			t.Errorf("%s is %.2f GPU-hours from Prometheus, %.2f from VictoriaMetrics", c, x, y)
		}
	}
	if a.Checks.Difference > 0.001 || b.Checks.Difference > 0.001 || a.Checks.Difference < -0.001 || b.Checks.Difference < -0.001 {
		t.Errorf("differences %v and %v", a.Checks.Difference, b.Checks.Difference)
	}
	names := func(d *document.Document) (out []string) {
		for _, w := range d.Workloads {
			if w.Allocated > 0.5 {
				out = append(out, w.ID)
			}
		}
		slices.Sort(out)
		return out
	}
	if x, y := names(a), names(b); !slices.Equal(x, y) {
		t.Errorf("%d and %d workloads", len(x), len(y))
	}
}
