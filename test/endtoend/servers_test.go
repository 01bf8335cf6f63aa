// Package endtoend_test runs whole installations: the exporter on a fake driver, a kubelet, a simulated fleet, a real
// Prometheus (and a VictoriaMetrics) with the shipped rules, and every query of the dashboards.
package endtoend_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/test/servers"
)

// programs are those that the tests run.
type programs struct{ root, exporter, standin, prometheus, vmalert string }

func built(t *testing.T) programs {
	t.Helper()
	return programs{servers.Root(t), servers.Build(t, servers.Exporter), servers.Build(t, servers.Standin),
		servers.Build(t, servers.Prometheus), servers.Build(t, servers.VMAlert)}
}

// node starts the exporter on a scenario and pods.
func (p programs) node(t *testing.T, scenario, pods string) (address_ string) {
	t.Helper()
	at := servers.Address(t)
	servers.Start(t, p.root, p.standin, "--quiet", "--scenario="+scenario, "--pods="+pods, "--", p.exporter, "--node-name=gpu-node-1",
		"--web.listen-address="+at)
	servers.Until(t, "the exporter", servers.Answers("http://"+at+"/-/ready"))
	return at
}

// fleet serves the simulated fleet of the demo.
func (p programs) fleet(t *testing.T, epoch time.Time) (address_ string) {
	t.Helper()
	at := servers.Address(t)
	servers.Start(t, p.root, p.standin, "fleet", "--preset=demo", "--epoch="+epoch.Format(time.RFC3339), "--listen="+at)
	servers.Until(t, "the fleet", servers.Answers("http://"+at+"/sd"))
	return at
}

// server starts a Prometheus with a configuration and data.
func (p programs) server(t *testing.T, dir, config string) (url string) {
	t.Helper()
	file := filepath.Join(dir, "prometheus.yml")
	must.OK(t, os.WriteFile(file, []byte(config), 0o600))
	at := servers.Address(t)
	servers.Start(t, dir, p.prometheus, "--config.file="+file, "--storage.tsdb.path="+filepath.Join(dir, "data"),
		"--web.listen-address="+at,
		"--web.enable-remote-write-receiver", "--log.level=warn")
	url = "http://" + at
	servers.Until(t, "Prometheus", servers.Answers(url+"/-/ready"))
	return url
}

func scrapeConfig(exporter, fleet string) string {
	text := "scrape_configs:\n"
	if exporter != "" {
		text += "  - job_name: gpu-exporter\n    honor_labels: true\n    static_configs:\n      - targets: ['" + exporter + "']\n"
	}
	if fleet != "" {
		text += "  - job_name: fleet\n    honor_labels: true\n    http_sd_configs:\n      - url: http://" + fleet + "/sd\n"
	}
	return text
}
