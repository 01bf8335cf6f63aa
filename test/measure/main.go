// Command measure measures the exporter and its surroundings and writes pages of docs/ with their figures as JSON
// beside them:
//
//	measure bench    the exporter on the fake driver: docs/evidence/performance.md
//	measure scale    fleets of simulated nodes on Prometheus: docs/evidence/performance-fleet.md
//	measure hwcheck  what the exporter claims, on this machine's GPUs: docs/evidence/hardware/
//	measure reports  docs/evidence/hardware.md and the exporter's table of claims, from the reports in docs/evidence/hardware/
//	measure pages    the pages again, from their JSON
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/gpu-exporter/gpu-exporter/test/measure/bench"
	"github.com/gpu-exporter/gpu-exporter/test/measure/hwcheck"
	"github.com/gpu-exporter/gpu-exporter/test/measure/page"
	"github.com/gpu-exporter/gpu-exporter/test/measure/scale"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:])
	stop()
	os.Exit(code)
}

func run(ctx context.Context, args []string) int {
	if len(args) == 0 {
		args = []string{""}
	}
	var err error
	switch args[0] {
	case "bench":
		err = bench.Run(ctx, args[1:])
	case "serve":
		err = bench.Serve(args[1:])
	case "scale":
		err = scale.Run(ctx, args[1:])
	case "hwcheck":
		return hwcheck.Run(ctx, args[1:], os.Stdout, os.Stderr)
	case "probe":
		err = hwcheck.RunProbe(args[1:], os.Stdout)
	case "reports":
		err = hwcheck.SaveReports(".")
	case "pages":
		err = writePages(page.Dir)
	default:
		err = fmt.Errorf("usage: measure bench|scale|hwcheck|reports|pages [flags]; measure COMMAND --help lists the flags")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "measure:", err)
		return 1
	}
	return 0
}

// figures can be rendered as a page.
type figures interface{ Page() (string, error) }

// pages returns empty figures by the name of their page.
func pages() map[string]figures {
	return map[string]figures{"performance": &bench.Figures{}, "performance-fleet": &scale.Figures{}}
}

// render renders a page from its figures in dir.
func render(dir, name string, f figures) (string, error) {
	data, err := os.ReadFile(filepath.Join(dir, name+".json"))
	if err != nil {
		return "", err
	}
	if err := json.Unmarshal(data, f); err != nil {
		return "", fmt.Errorf("%s.json: %w", name, err)
	}
	return f.Page()
}

func writePages(dir string) error {
	for name, f := range pages() {
		text, err := render(dir, name, f)
		if err != nil {
			return err
		}
		if err := page.Save(dir, name, text, f); err != nil {
			return err
		}
	}
	return nil
}
