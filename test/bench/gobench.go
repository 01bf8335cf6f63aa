package main

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
)

// benchmark is what one Go benchmark printed.
type benchmark struct {
	ns, bytes, allocations float64
	more                   map[string]float64 // what it reports besides, by unit
}

// the Go benchmarks that the page shows, by package.
var shown = []struct{ pkg, pattern string }{
	{"./collector", "^Benchmark(Scrape|Foreign)$"},
	{"./internal/account", "^BenchmarkAdvance$"},
	{"./internal/sampler", "^BenchmarkStep$"},
}

// benchmarks runs the Go benchmarks of a tree and returns them by name, without Benchmark and the number of processors.
func benchmarks(ctx context.Context, t tree) (map[string]benchmark, error) {
	out := map[string]benchmark{}
	for _, b := range shown {
		cmd := exec.CommandContext(ctx, "go", "test", b.pkg, "-run", "^$", "-bench", b.pattern, "-benchmem")
		cmd.Dir = t.root
		said, err := cmd.CombinedOutput()
		if err != nil {
			return nil, fmt.Errorf("go test %s: %w\n%s", b.pkg, err, said)
		}
		for l := range bytes.Lines(said) {
			if name, figures, ok := parseBenchmark(string(l)); ok {
				out[name] = figures
			}
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("the Go benchmarks of %s printed no figures", t.title)
	}
	return out, nil
}

var processors = regexp.MustCompile(`-\d+$`)

// parseBenchmark reads a line as go test -bench prints it.
func parseBenchmark(line string) (name string, b benchmark, ok bool) {
	f := strings.Fields(line)
	if len(f) < 4 || !strings.HasPrefix(f[0], "Benchmark") {
		return "", b, false
	}
	b.more = map[string]float64{}
	for i := 2; i+1 < len(f); i += 2 {
		v, err := strconv.ParseFloat(f[i], 64)
		if err != nil {
			return "", b, false
		}
		switch f[i+1] {
		case "ns/op":
			b.ns = v
		case "B/op":
			b.bytes = v
		case "allocs/op":
			b.allocations = v
		default:
			b.more[f[i+1]] = v
		}
	}
	return processors.ReplaceAllString(strings.TrimPrefix(f[0], "Benchmark"), ""), b, b.ns > 0
}
