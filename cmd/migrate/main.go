// Command gpu-migrate reports which queries of dashboards, rules and autoscalers that were written for dcgm-exporter or
// nvidia_gpu_exporter work with gpu-exporter --compat, and rewrites them to gpu-exporter's own names.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/prometheus/common/version"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

const usage = `usage: gpu-migrate --version
       gpu-migrate check [--output=text|json] [--rewrite] FILE...

Reads Grafana dashboards, rule files, PrometheusRules, ConfigMaps that contain them, HorizontalPodAutoscalers, KEDA
ScaledObjects and configurations of prometheus-adapter. Reports for each query that uses metrics of dcgm-exporter or
nvidia_gpu_exporter whether it works with gpu-exporter --compat, and for each that uses metrics of gpu-exporter as earlier
builds had them what to use now. "-" reads the standard input, one query per line.

Exit code 0: all are supported; 10: some with a difference; 20: some are not; 1: a file cannot be read; 2: invalid flag.

`

func main() { os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }

func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("gpu-migrate check", flag.ContinueOnError)
	flags.SetOutput(stderr)
	output := flags.String("output", "text", "text or json")
	rewrite := flags.Bool("rewrite", false, "also print each query in gpu-exporter's own names, if it can be rewritten")
	flags.Usage = func() { fmt.Fprint(stderr, usage); flags.PrintDefaults() }
	if len(args) > 0 && args[0] == "--version" {
		fmt.Fprintln(stdout, version.Print("gpu-migrate"))
		return 0
	}
	if len(args) == 0 || args[0] != "check" {
		flags.Usage()
		return 2
	}
	if err := flags.Parse(args[1:]); err != nil {
		return 2
	}
	if flags.NArg() == 0 || *output != "text" && *output != "json" {
		flags.Usage()
		return 2
	}
	checker, err := newChecker(*rewrite)
	if err != nil {
		fmt.Fprintf(stderr, "gpu-migrate: %v\n", err)
		return 1
	}
	var results []result
	var queries []query
	code := 0
	for _, path := range flags.Args() {
		list, err := read(path, stdin)
		if err != nil {
			fmt.Fprintf(stderr, "gpu-migrate: %s\n", gpu.PrintableText(err.Error()))
			code = 1
		}
		for _, q := range list {
			checker.created[q.As] = checker.created[q.As] || q.As != ""
		}
		queries = append(queries, list...)
	}
	if code != 0 && len(queries) == 0 {
		return code
	}
	for _, q := range queries {
		if r, ours := checker.check(q); ours {
			results = append(results, r)
		}
	}
	if *output == "json" {
		enc := json.NewEncoder(stdout)
		enc.SetIndent("", "  ")
		err = enc.Encode(results)
	} else {
		err = write(stdout, results)
	}
	if err != nil {
		fmt.Fprintf(stderr, "gpu-migrate: %v\n", err)
		return 1
	}
	for _, r := range results {
		code = max(code, map[verdict]int{supported: 0, differs: 10, missing: 20}[r.Verdict])
	}
	return code
}

// write prints the queries that are not simply supported, then the settings that they need and the counts.
func write(w io.Writer, results []result) error {
	var b strings.Builder
	counts, settings, differences := map[verdict]int{}, map[string]bool{}, map[string]bool{}
	for _, r := range results {
		counts[r.Verdict]++
		for _, s := range r.Settings {
			settings[s] = true
		}
		if r.Verdict == supported && r.Rewritten == "" {
			continue
		}
		fmt.Fprintf(&b, "%s: %s\n  %s\n", gpu.Printable(r.Where), r.Verdict, r.Query)
		for _, reason := range r.Reasons {
			fmt.Fprintf(&b, "  - %s\n", reason)
		}
		if r.Rewritten != "" {
			fmt.Fprintf(&b, "  = %s\n", r.Rewritten)
		}
		for _, d := range r.Differences {
			differences[d] = true
		}
	}
	for _, d := range slices.Sorted(maps.Keys(differences)) {
		fmt.Fprintf(&b, "Rewritten: %s\n", d)
	}
	if len(settings) > 0 {
		fmt.Fprintf(&b, "Settings: %s\n", strings.Join(slices.Sorted(maps.Keys(settings)), ", "))
	}
	fmt.Fprintf(&b, "%d queries: %d supported, %d supported with a difference, %d not supported\n", len(results),
		counts[supported], counts[differs], counts[missing])
	_, err := io.WriteString(w, gpu.PrintableText(b.String())) // titles and queries are others'
	return err
}
