// Command bench measures the exporter from the outside and writes docs/performance.md: scrapes beside the
// same bytes served as a file, resident memory, processor time, driver calls by lane, start-up, and the size
// of the binary. It runs the real binary on the fake driver, so the driver's own time is not in the figures.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"time"
)

func main() {
	root := flag.String("root", filepath.Join("..", ".."), "the repository")
	out := flag.String("out", "", "the Markdown file to write; empty: standard output alone")
	watch := flag.Duration("for", time.Minute, "how long each node is watched")
	scrapes := flag.Int("scrapes", 300, "scrapes of each kind")
	flag.Parse()
	if err := run(context.Background(), *root, *out, *watch, *scrapes); err != nil {
		fmt.Fprintf(os.Stderr, "bench: %v\n", err)
		os.Exit(1)
	}
}

// node is one of the nodes that are measured.
type node struct{ scenario, pods, title string }

var nodes = []node{
	{"8xh100-loaded", "", "8 x H100, no pods"},
	{"demo", "demo", "8 x H100, 8 pods"},
	{"8xh100-shared", "8xh100-shared", "8 x H100, 80 pods share them"},
}

func run(ctx context.Context, root, out string, watch time.Duration, scrapes int) error {
	root, err := filepath.Abs(root)
	if err != nil {
		return err
	}
	for _, args := range [][]string{{"make", "build"}, {"go", "build", "-o", "bin/standin", "./cmd/standin"}} {
		cmd := exec.CommandContext(ctx, args[0], args[1:]...)
		cmd.Dir = root
		if said, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w\n%s", strings.Join(args, " "), err, said)
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "# Performance\n\nMeasured by `make bench` on the fake driver: the time that a real driver takes is not in it. One run on a shared machine;\nread the ratios, and measure again on yours.\n\nMachine: %s, %d cores for Go, %s, %s/%s.\n", processor(), runtime.GOMAXPROCS(0), runtime.Version(), runtime.GOOS, runtime.GOARCH)

	gather, err := benchmarks(ctx, root)
	if err != nil {
		return err
	}
	b.WriteString(gather)

	b.WriteString("\n## The running program\n\nThrough HTTP on the loopback, uncompressed, one connection. *First* is the first scrape of a view, *next* any other; *file* is\nthe same bytes served from memory by the same kind of server. The client's reading is in all three.\n\n")
	b.WriteString("| node | series | page | first p50 / p99 | next p50 / p99 | file p50 / p99 | next / file | resident, after / peak | processor per minute | driver calls per minute | start to first scrape |\n|---|---|---|---|---|---|---|---|---|---|---|\n")
	lanes := ""
	for _, n := range nodes {
		fmt.Fprintf(os.Stderr, "bench: %s\n", n.title)
		m, err := measure(ctx, root, n, watch, scrapes)
		if err != nil {
			return fmt.Errorf("%s: %w", n.title, err)
		}
		fmt.Fprintf(&b, "| %s | %d | %d KB | %s | %s | %s | %.1f | %.0f / %.0f MiB | %.2f s (%.2f %% of a core) | %.0f | %s |\n", n.title, m.series, m.page/1000,
			m.first, m.next, m.file, m.next.p50.Seconds()/m.file.p50.Seconds(), m.resident, m.peak, m.cpu.Seconds(), m.cpu.Seconds()/60*100, m.calls, round(m.start))
		lanes += fmt.Sprintf("| %s | %s |\n", n.title, m.lanes)
	}
	b.WriteString("\nDriver calls per minute that cost most calls (all cards together):\n\n| node | calls |\n|---|---|\n" + lanes)

	busiest := nodes[len(nodes)-1]
	fmt.Fprintf(os.Stderr, "bench: driver calls by lane\n")
	fast, medium, slow, err := callsByLane(ctx, root, busiest, watch)
	if err != nil {
		return err
	}
	fmt.Fprintf(&b, "\nDriver calls per minute by lane, %s, all cards together:\n\n| fast (2 s) | medium (10 s) | slow (60 s) |\n|---|---|---|\n| %.0f | %.0f | %.0f |\n", busiest.title, fast, medium, slow)

	info, err := os.Stat(filepath.Join(root, "bin", "gpu-exporter"))
	if err != nil {
		return err
	}
	fmt.Fprintf(&b, "\n## Beside the budgets\n\n| what | budget | here |\n|---|---|---|\n")
	fmt.Fprintf(&b, "| binary, stripped | 25 MB | %.1f MB |\n", float64(info.Size())/1e6)
	last, err := measureStart(ctx, root)
	if err != nil {
		return err
	}
	fmt.Fprintf(&b, "| start to first scrape, no driver | 150 ms | %s |\n", round(last))
	b.WriteString("| series, 8 cards and 80 pods | 2,800 | the table above |\n| page | 500 KB | the table above |\n| first scrape of a view, p99 / the next | 6 ms / 2 ms | the table above |\n| resident | 40 MiB | the table above |\n| processor | 1 % of a core | the table above |\n")
	fmt.Print(b.String())
	if out != "" {
		return os.WriteFile(out, []byte(b.String()), 0o644)
	}
	return nil
}

func round(d time.Duration) string { return d.Round(100 * time.Microsecond).String() }

func processor() string {
	text, err := os.ReadFile("/proc/cpuinfo")
	if err == nil {
		if m := regexp.MustCompile(`(?m)^model name\s*: (.*)$`).FindSubmatch(text); m != nil {
			return string(m[1])
		}
	}
	return "unknown processor"
}

// benchmarks runs the collector's Go benchmark, which has the allocations.
func benchmarks(ctx context.Context, root string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "test", "./collector", "-run", "^$", "-bench", "Scrape", "-benchmem")
	cmd.Dir = root
	text, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("go test -bench: %w", err)
	}
	line := regexp.MustCompile(`^BenchmarkScrape/(\w+)/pods=(\d+)\S*\s+\d+\s+(\S+) ns/op\s+(\S+) bytes/page\s+(\S+) series\s+(\d+) B/op\s+(\d+) allocs/op`)
	var b strings.Builder
	b.WriteString("\n## Rendering alone\n\nOne uncompressed scrape of a view of 8 cards, without the network.\n\n| scrape | pods | series | time | allocated | allocations |\n|---|---|---|---|---|---|\n")
	rows := 0
	for _, l := range bytes.Split(text, []byte("\n")) {
		m := line.FindSubmatch(l)
		if m == nil || string(m[1]) == "static" {
			continue
		}
		ns, _ := strconv.ParseFloat(string(m[3]), 64)
		allocated, _ := strconv.ParseFloat(string(m[6]), 64)
		fmt.Fprintf(&b, "| %s | %s | %s | %.2f ms | %.2f MB | %s |\n", m[1], m[2], m[5], ns/1e6, allocated/1e6, m[7])
		rows++
	}
	if rows == 0 {
		return "", errors.New("the benchmark of the collector printed no figures")
	}
	return b.String(), nil
}
