package report_test

import (
	"io"
	"slices"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/internal/standin/expose"
	"github.com/gpu-exporter/gpu-exporter/internal/standin/fleet"
	"github.com/gpu-exporter/gpu-exporter/internal/standin/replay"
	"github.com/gpu-exporter/gpu-exporter/report/document"
	"github.com/gpu-exporter/gpu-exporter/test/servers"
)

// victoria runs a VictoriaMetrics with the past of a fleet in it.
func victoria(t *testing.T, p programs, f *fleet.Fleet, from, to time.Time) (url string) {
	t.Helper()
	address := servers.Address(t)
	servers.Start(t, p.root, servers.Build(t, servers.VictoriaMetrics), "-storageDataPath="+t.TempDir(), "-httpListenAddr="+address,
		"-retentionPeriod=100y", "-loggerLevel=ERROR")
	url = "http://" + address
	servers.Until(t, "VictoriaMetrics", servers.Answers(url+"/health"))
	h := expose.History{From: from.Truncate(30 * time.Second), To: to, Step: 30 * time.Second, Want: wanted}
	must.OK(t, replay.Import(t.Context(), url, func(w io.Writer) error { return h.Write(t.Context(), f, w) }))
	// What was imported is searchable once it is flushed, by itself within some seconds.
	servers.Until(t, "flush of VictoriaMetrics", servers.Answers(url+"/internal/force_flush"))
	return url
}

// agree compares the accounts of the same history in two servers.
func agree(t *testing.T, a, b *document.Document) {
	t.Helper()
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
