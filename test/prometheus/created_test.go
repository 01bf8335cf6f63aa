package prometheus_test

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/internal/standin"
	"github.com/gpu-exporter/gpu-exporter/internal/standin/machine"
	"github.com/gpu-exporter/gpu-exporter/test/dashboard"
	"github.com/gpu-exporter/gpu-exporter/test/servers"
)

// Prometheus 3 reads the start timestamps of counters from the protobuf format, with a feature flag: the first increment
// of a new container's counter, and of the counters that begin when the exporter starts, is then in increase(). Without the
// flag it is missing.
func TestFirstIncrements(t *testing.T) {
	t.Parallel()
	m := machine.Parse(t, machine.TwoGPUs+"load gpu=0-1 busy=50% period=200ms\n", machine.TwoPods)
	e := m.Start(t, machine.Options{Flags: []string{"--poll.fast=200ms", "--poll.medium=400ms", "--poll.slow=1s", "--poll.kubelet=1s"}})
	dir := t.TempDir()
	clients := map[string]dashboard.Client{}
	for name, flags := range map[string][]string{"without": nil, "with": {"--enable-feature=created-timestamp-zero-ingestion"}} {
		server := servers.Address(t)
		path := filepath.Join(dir, name+".yml")
		config := fmt.Sprintf("scrape_configs:\n- job_name: gpu-exporter\n  scrape_interval: 2s\n  scrape_timeout: 2s\n"+
			"  honor_labels: true\n  static_configs:\n  - targets: ['%s']\n", e.Address)
		must.OK(t, os.WriteFile(path, []byte(config), 0o644))
		servers.Start(t, dir, servers.Build(t, servers.Prometheus), append(flags, "--config.file="+path,
			"--storage.tsdb.path="+filepath.Join(dir, name), "--web.listen-address="+server)...)
		clients[name] = dashboard.Client{URL: "http://" + server}
	}
	value := func(name, query string, at time.Time) (float64, error) {
		got, err := clients[name].Instant(t.Context(), query, at)
		if err != nil || len(got) != 1 {
			return 0, fmt.Errorf("%d series of %s: %w", len(got), query, err)
		}
		return got[0].Points[0].Value, nil
	}
	for i, pod := range []string{"train-0", "new"} { // the second one begins between two scrapes
		if i == 1 {
			n, err := standin.ParsePods("pods", strings.NewReader(machine.TwoPods+
				"pod ml/new container main nvidia.com/gpu="+machine.GPUB+"\n"))
			must.OK(t, err)
			m.Kubelet.SetNode(n)
		}
		all := []string{fmt.Sprintf(`gpu_container_allocated_seconds_total{pod=%q}`, pod)}
		if i == 0 {
			all = append(all, `gpu_observed_seconds_total{gpu="0"}`, `gpu_time_seconds_total{gpu="0",state="busy"}`)
		}
		for _, series := range all {
			for name := range clients {
				if name == "without" && i == 1 {
					continue // it depends on the time from the start to the first scrape how much is missing
				}
				servers.Until(t, name+" has four samples of "+series, func() error {
					now := time.Now()
					n, err := value(name, "count_over_time("+series+"[10m])", now)
					if err == nil && n < 4 {
						err = fmt.Errorf("%v samples", n)
					}
					return err
				})
				// At the time of the last sample nothing is extrapolated.
				last, err := value(name, "timestamp("+series+")", time.Now())
				must.OK(t, err)
				at := time.UnixMilli(int64(math.Round(last * 1000)))
				counter, err := value(name, series, at)
				grown, err2 := value(name, "increase("+series+"[10m])", at)
				if err != nil || err2 != nil {
					t.Fatal(err, err2)
				}
				t.Logf("%s, %s: the counter is %.3f, increase() is %.3f", name, series, counter, grown)
				if whole := math.Abs(grown-counter) < 0.001*counter; whole != (name == "with") {
					t.Errorf("%s, %s: the counter is %v, increase() is %v", name, series, counter, grown)
				}
			}
		}
	}
}
