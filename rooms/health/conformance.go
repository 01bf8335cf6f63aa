package health

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/gpu-exporter/gpu-exporter/internal/cmdline"
	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/internal/web"
	"github.com/gpu-exporter/gpu-exporter/rooms"
)

// conformanceCommand is the first argument that selects the evidence for accelerator_metrics of the CNCF's Kubernetes AI
// Conformance.
const conformanceCommand = "conformance"

// conformanceClauses are the clauses of accelerator_metrics (cncf/k8s-ai-conformance at 287b44f,
// docs/AIConformance-1.37.yaml), each with the metrics that meet it.
var conformanceClauses = []struct {
	clause   string
	required bool // must; the others are for hardware that makes them available
	metrics  []string
}{
	{"per-accelerator utilization", true, []string{"gpu_busy_seconds_total", "gpu_observed_seconds_total"}},
	{"memory usage", true, []string{"gpu_memory_used_bytes", "gpu_memory_total_bytes"}},
	{"temperature", false, []string{"gpu_temperature_celsius"}},
	{"power draw", false, []string{"gpu_power_watts"}},
	{"interconnect bandwidth", false, []string{"gpu_nvlink_transmit_bytes_total", "gpu_nvlink_receive_bytes_total",
		"gpu_pcie_transmit_bytes_total", "gpu_pcie_receive_bytes_total"}},
}

// conformanceMain writes the evidence from a running exporter as a Markdown table, and returns the exit code.
func conformanceMain(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	app := cmdline.New(&cmdline.About{Name: "gpu-exporter " + conformanceCommand,
		Text: "Writes the report on accelerator_metrics of the CNCF's " +
			"Kubernetes AI Conformance from the running exporter.", ExitCodes: [][2]string{{"0", "all required clauses are met"},
			{"1", "a clause is not met, or the exporter could not be read"}, {"2", "invalid flag"}}}, stdout, stderr)
	url := app.Flag("url", "Metrics of the running exporter.").Default("http://localhost" + web.DefaultAddress + "/metrics").String()
	if err := app.Parse(args); errors.Is(err, cmdline.ErrPrinted) {
		return rooms.ExitOK
	} else if err != nil {
		fmt.Fprintf(stderr, "gpu-exporter %s: %v\n", conformanceCommand, err)
		return rooms.ExitUsage
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	families, err := fetchMetrics(ctx, *url)
	if err != nil {
		fmt.Fprintf(stderr, "gpu-exporter %s: %v\n", conformanceCommand, err)
		return rooms.ExitBroken
	}
	text, met := conformance(families)
	fmt.Fprintf(stdout, "Source: %s, %s\n\n%s", *url, time.Now().UTC().Format(time.RFC3339), text)
	if !met {
		return rooms.ExitBroken
	}
	return rooms.ExitOK
}

// conformance returns the table, and whether the required clauses are met for each GPU that is up.
func conformance(families map[string]*dto.MetricFamily) (text string, met bool) {
	up := map[string]bool{}
	for _, m := range families["gpu_device_up"].GetMetric() {
		if m.GetGauge().GetValue() == 1 {
			up[labelNamed(m, "uuid")] = true
		}
	}
	met = len(up) > 0
	var b strings.Builder
	fmt.Fprintf(&b, "| clause | level | metric | GPUs of %d | sample |\n|---|---|---|---|---|\n", len(up))
	for _, c := range conformanceClauses {
		level := "where available"
		if c.required {
			level = "required"
		}
		for _, name := range c.metrics {
			have, sample := map[string]bool{}, "–"
			for _, m := range families[name].GetMetric() {
				if uuid := labelNamed(m, "uuid"); up[uuid] {
					have[uuid] = true
					sample = fmt.Sprintf("%g of %s", m.GetCounter().GetValue()+m.GetGauge().GetValue(), gpu.PrintableText(uuid))
				}
			}
			met = met && (!c.required || len(have) == len(up))
			fmt.Fprintf(&b, "| %s | %s | `%s` | %d | %s |\n", c.clause, level, name, len(have), sample)
		}
	}
	return b.String(), met
}
