package endtoend_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/test/dashboard"
	"github.com/gpu-exporter/gpu-exporter/test/servers"
)

// TestDemo starts what `make demo` starts, on other ports: exporter, fleet, VictoriaMetrics with hours of
// history, vmalert with the rules. The dashboards' queries are run there too, and their pages loaded.
func TestDemo(t *testing.T) {
	t.Parallel() // most of it is waiting
	p := built(t)
	node, database, rules, fleet := servers.Address(t), servers.Address(t), servers.Address(t), servers.Address(t)
	out := servers.Start(t, p.root, p.standin, "--scenario="+filepath.Join("testdata", "scenarios", "demo.scenario"),
		"--pods="+filepath.Join("testdata", "kubelet", "demo.pods"),
		"--database="+database, "--rules="+rules, "--fleet="+fleet, "--", p.exporter, "--node-name=gpu-node-1",
		"--web.listen-address="+node)
	servers.Until(t, "the exporter is first", servers.Answers("http://"+node+"/-/ready"))
	servers.Until(t, "database and rules", func() error {
		if said := out.String(); !strings.Contains(said, "/vmui/") || strings.Contains(said, "without database") {
			return fmt.Errorf("output: %s", said)
		}
		return nil
	})
	for _, page := range []string{"http://" + database + "/vmui/", "http://" + rules + "/vmalert/groups",
		"http://" + database + "/vmalert/groups"} {
		if err := servers.Answers(page)(); err != nil {
			t.Errorf("a page that the demo names: %v", err)
		}
	}
	c := dashboard.Client{URL: "http://" + database}
	servers.Until(t, "the first scrapes", func() error {
		series, err := c.Instant(t.Context(),
			`count(up == 1) > 12 and on () count(rate(gpu_mig_busy_seconds_total[1m] offset 40s)) `+
				`and on () count(rate(process_cpu_seconds_total[1m] offset 40s))`, time.Now())
		if err == nil && len(series) == 0 {
			err = fmt.Errorf("not all of them yet")
		}
		return err
	})
	now := time.Now()
	window := dashboard.Window{From: now.Add(-6 * time.Hour), To: now, Step: 15 * time.Second, Scrape: time.Minute}
	report(t, "dashboards-victoriametrics", cover(t, c, window, emptyInDemo))
	checkPages(t, c, window, emptyInDemo)
}

// TestTakenPort: the error for a port in use names what to set, and the exporter keeps running.
func TestTakenPort(t *testing.T) {
	t.Parallel() // most of it is waiting
	p := built(t)
	node, fleet := servers.Address(t), p.fleet(t, time.Now())
	out := servers.Start(t, p.root, p.standin, "--scenario="+filepath.Join("testdata", "scenarios", "demo.scenario"),
		"--pods="+filepath.Join("testdata", "kubelet", "demo.pods"),
		"--database="+servers.Address(t), "--rules="+servers.Address(t), "--fleet="+fleet, "--", p.exporter, "--web.listen-address="+node)
	servers.Until(t, "the taken port", func() error {
		if said := out.String(); !strings.Contains(said, fleet) || !strings.Contains(said, "FLEET_LISTEN=") ||
			!strings.Contains(said, "the exporter goes on") {
			return fmt.Errorf("output: %s", said)
		}
		return servers.Answers("http://" + node + "/-/ready")()
	})
}
