package health

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/gpu-exporter/gpu-exporter/internal/cmdline"
	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/internal/web"
)

// healthCommand is the first argument that selects the check of the GPUs' health, as a custom plugin of
// node-problem-detector: one line, and an exit code.
const healthCommand = "health"

// Exit codes of a custom plugin of node-problem-detector.
const (
	healthOK      = 0
	healthBroken  = 1
	healthUnknown = 2
)

// maxHealthPage bounds the response that is read.
const maxHealthPage = 64 << 20

// healthMain prints the verdict of the running exporter on this node's GPUs, and returns the exit code. It does not call
// the driver: XIDs and counters are known to the running exporter only.
func healthMain(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	app := cmdline.New(&cmdline.About{Name: "gpu-exporter " + healthCommand,
		Text: "Reports the health of this node's GPUs in one line, from the running " +
			"exporter, in the form of custom plugins of node-problem-detector.", ExitCodes: [][2]string{{"0", "no GPU requires an action"},
			{"1", "a GPU needs a reset or a reboot, has to be replaced or is lost"}, {"2", "unknown, or an invalid flag"}}}, stdout, stderr)
	url := app.Flag("url", "Metrics of the running exporter.").Default("http://localhost" + web.DefaultAddress + "/metrics").String()
	timeout := app.Flag("timeout", "Timeout of the request.").Default("3s").Duration()
	if err := app.Parse(args); errors.Is(err, cmdline.ErrPrinted) {
		return healthOK
	} else if err != nil {
		fmt.Fprintf(stderr, "gpu-exporter %s: %v\n", healthCommand, err)
		return healthUnknown
	}
	ctx, cancel := context.WithTimeout(ctx, *timeout)
	defer cancel()
	families, err := fetchMetrics(ctx, *url)
	if err != nil {
		fmt.Fprintf(stdout, "unknown: %s\n", gpu.PrintableText(strings.ReplaceAll(err.Error(), "\n", " ")))
		return healthUnknown
	}
	line, code := healthOf(families)
	fmt.Fprintln(stdout, gpu.PrintableText(line))
	return code
}

func fetchMetrics(ctx context.Context, url string) (map[string]*dto.MetricFamily, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("--url: %w", err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", url, response.Status)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(io.LimitReader(response.Body, maxHealthPage))
	if err == nil && families["gpu_health"] == nil {
		err = errors.New(url + " has no gpu_health: no GPU, or no gpu-exporter")
	}
	return families, err
}

// healthOf returns the line and the exit code of an exposition.
func healthOf(families map[string]*dto.MetricFamily) (line string, code int) {
	reasons := map[string][]string{}
	for _, m := range families["gpu_health_reason_info"].GetMetric() {
		reasons[labelNamed(m, "uuid")] = append(reasons[labelNamed(m, "uuid")], labelNamed(m, "reason"))
	}
	gpus, bad := 0, []string{}
	for _, m := range families["gpu_health"].GetMetric() {
		if m.GetGauge().GetValue() != 1 {
			continue
		}
		gpus++
		verdict, uuid := gpu.HealthState(labelNamed(m, "state")), labelNamed(m, "uuid")
		switch {
		case verdict.Broken():
			code = healthBroken
		case verdict == gpu.Unknown && code == healthOK:
			code = healthUnknown
		case verdict == gpu.Unknown:
		default:
			continue
		}
		bad = append(bad, fmt.Sprintf("GPU %s %s (%s)", cmp.Or(labelNamed(m, "gpu"), uuid), verdict, strings.Join(reasons[uuid], ", ")))
	}
	if len(bad) == 0 {
		return fmt.Sprintf("%d GPUs ok", gpus), code
	}
	return strings.Join(bad, "; "), code
}

// labelNamed returns the value of a label; empty without it.
func labelNamed(m *dto.Metric, name string) string {
	for _, l := range m.GetLabel() {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}
