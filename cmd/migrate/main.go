// Command gpu-migrate reports which queries of dashboards, rules and autoscalers that were written for dcgm-exporter or
// nvidia_gpu_exporter work with gpu-exporter --compat, and rewrites them to gpu-exporter's own names.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/gpu-exporter/gpu-exporter/internal/cmdline"
	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

const text = "Reads Grafana dashboards, rule files, PrometheusRules, ConfigMaps that contain them, HorizontalPodAutoscalers, KEDA " +
	"ScaledObjects and configurations of prometheus-adapter. Reports for each query that uses metrics of dcgm-exporter or " +
	"nvidia_gpu_exporter whether it works with gpu-exporter --compat, and for each that uses metrics of gpu-exporter as earlier " +
	"builds had them what to use now."

// about is what the help of the program and of its command has beside the flags.
func about() cmdline.About {
	return cmdline.About{Name: "gpu-migrate", Purpose: "check of queries written for other GPU exporters", Text: text,
		Commands: [][2]string{{"check", "reports what works, and with --rewrite how to write it with gpu-exporter's own names"}},
		ExitCodes: [][2]string{{"0", "all queries are supported"}, {"10", "some are supported with a difference"},
			{"20", "some are not supported"}, {"1", "a file cannot be read"}, {"2", "invalid flag: nothing was read"}}}
}

func main() { os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }

func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	fail := func(err error) int {
		if errors.Is(err, cmdline.ErrPrinted) {
			return 0
		}
		fmt.Fprintf(stderr, "gpu-migrate: %v\n", err)
		return 2
	}
	program := about()
	command := len(args) > 0 && args[0] == "check"
	if command {
		program.Name, program.Commands, args = "gpu-migrate check", nil, args[1:]
	}
	app := cmdline.New(&program, stdout, stderr)
	var output string
	var rewrite bool
	var paths []string
	if command || len(args) > 0 && strings.HasPrefix(args[0], "-") { // help, manual and completion of the program have the flags, too
		app.Flag("output", "Form of the result: text or json.").Default("text").EnumVar(&output, "text", "json")
		app.Flag("rewrite", "Also print each query in gpu-exporter's own names, if it can be rewritten.").BoolVar(&rewrite)
		app.Arg("file", "Files to read, or directories of .json, .yaml and .yml files; - is the standard input, one query per line.").
			Required().StringsVar(&paths)
	}
	err := app.Parse(args)
	if err == nil && !command {
		err = errors.New("a command is required: check; --help describes it")
	}
	if err != nil {
		return fail(err)
	}
	checker, err := newChecker(rewrite)
	if err != nil {
		fmt.Fprintf(stderr, "gpu-migrate: %v\n", err)
		return 1
	}
	var results []result
	var queries []query
	code := 0
	for _, path := range paths {
		if path == "" && slices.Contains(args, "-") {
			path = "-" // kingpin has it as an empty argument
		}
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
	if output == "json" {
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
