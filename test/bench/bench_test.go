package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/standin"
	"github.com/gpu-exporter/gpu-exporter/internal/standin/scenario"
)

// Every node of the curves is one that the fake driver and the fake kubelet take, with as many GPUs, instances and
// pods as its title says.
func TestNodesOfTheCurves(t *testing.T) {
	root := filepath.Join("..", "..")
	for _, c := range curves() {
		for _, n := range c.nodes {
			dir := t.TempDir()
			path, pods, err := n.made.write(root, dir)
			if err != nil {
				t.Fatal(err)
			}
			s, err := scenario.Load(path)
			if err != nil {
				t.Errorf("%s: %v", n.title, err)
				continue
			}
			f, err := os.Open(pods)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if _, err := standin.ParsePods(pods, f); err != nil {
				t.Errorf("%s: %v", n.title, err)
			}
			text, err := os.ReadFile(pods)
			if err != nil {
				t.Fatal(err)
			}
			if len(s.GPUs) != n.made.devs {
				t.Errorf("%s has %d GPUs", n.title, len(s.GPUs))
			}
			if got, want := strings.Count(string(text), "\npod ")+btoi(strings.HasPrefix(string(text), "pod ")), n.made.pods+7*n.made.mig; got != want {
				t.Errorf("%s has %d pods, not %d", n.title, got, want)
			}
			if n.made.pods+7*n.made.mig != n.at && !(c.of == "gpus" && n.made.devs == n.at) {
				t.Errorf("%s stands at %d", n.title, n.at)
			}
		}
	}
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

func TestParseBenchmark(t *testing.T) {
	name, b, ok := parseBenchmark("BenchmarkScrape/first/pods=80-2 \t 1104\t   1190213 ns/op\t    322043 bytes/page\t      1967 series\t  929555 B/op\t   14055 allocs/op\n")
	if !ok || name != "Scrape/first/pods=80" || b.ns != 1190213 || b.bytes != 929555 || b.allocations != 14055 || b.more["bytes/page"] != 322043 {
		t.Errorf("%s: %+v, %v", name, b, ok)
	}
	for _, line := range []string{"", "PASS", "ok  \tx\t1.2s", "BenchmarkX-2", "BenchmarkX-2 1 x ns/op", "goos: linux amd64 a b"} {
		if _, _, ok := parseBenchmark(line); ok {
			t.Errorf("%q is a benchmark's line", line)
		}
	}
}

// The page says of each tree what was measured of it, and nothing in place of what was not.
func TestPage(t *testing.T) {
	trees := []tree{{"before (abc)", "x"}, {"now", "y"}}
	figure := func(series int) figures {
		ms := latencies{time.Millisecond, 2 * time.Millisecond}
		return figures{series: series, page: 367000, packed: 24000, first: ms, next: ms, file: ms, promFirst: ms, promNext: ms, promFile: ms,
			resident: 30, anonymous: 10, peak: 31, cpu: 60 * time.Millisecond, calls: map[string]float64{"nvmlDeviceGetSamples": 480}, start: time.Millisecond}
	}
	p := page{config: config{scrapes: 3, watch: time.Minute}, trees: trees,
		alone:    []map[string]benchmark{{}, {"Scrape/first/pods=80": {ns: 1e6, bytes: 5e5, allocations: 77, more: map[string]float64{"bytes/page": 322043}}}},
		nodes:    []measured{{nodes()[2], []figures{figure(2491), figure(2492)}}},
		noDriver: []time.Duration{time.Millisecond, 2 * time.Millisecond}, binary: []int64{19e6, 20e6},
		curves: []grown{{curves()[0], []measured{{curves()[0].nodes[0], []figures{figure(100)}}, {curves()[0].nodes[4], []figures{figure(1600)}}}}},
	}
	text := p.text()
	for _, want := range []string{"| what | budget | before (abc) | now |", "| series | 2,800 | 2491 | 2492 |", "| 3 MB | not measured | 0.50 MB, 77 pieces |", "0.100 %",
		"| binary, stripped | 25 MB | 19.0 MB | 20.0 MB |", "GetSamples 480", "One more costs about 100 series"} {
		if !strings.Contains(text, want) {
			t.Errorf("the page lacks %q:\n%s", want, text)
		}
	}
	if strings.Contains(text, "NaN") || strings.Contains(text, "%!") {
		t.Errorf("the page has a hole:\n%s", text)
	}
}
