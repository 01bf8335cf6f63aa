package scale

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/test/dashboard"
)

// A page shows what was measured, whatever is missing.
func TestPage(t *testing.T) {
	step := func(nodes, servers int) Step {
		s := Step{Nodes: nodes, GPUs: 8 * nodes, Scraped: time.Minute, Groups: []Group{{"g", 1, 2, 3, 60, 0}},
			Queries: []Query{{Dashboard: "gpu-node", Panel: "Power", Timeouts: 2},
				{Dashboard: "gpu-fleet", Panel: "GPUs", Seconds: []float64{1}},
				{Dashboard: "gpu-node", Panel: "Clock", Err: "422: too many samples"}}}
		for range servers {
			s.Servers = append(s.Servers, map[string]float64{"series": 1000 * float64(nodes), "peak": 200, "cpu": 0.05, "samples": 5,
				"targets": 9})
		}
		s.addAlerts("GPUUnavailable", "critical", "firing", 1100)
		s.addAlerts("GPUAllocatedIdle", "info", "pending", 9)
		s.addAlerts("GPUUnavailable", "critical", "firing", 122)
		return s
	}
	several := step(3000, 3)
	several.Database = map[string]float64{"series": 7}
	several.Compared = &Comparison{Names: 3, Differences: []string{"up is recorded by no rule"}, Facts: []Fact{{"nodes", 2990, 3000}}}
	troubled := step(2000, 1)
	troubled.Problems = []string{"history: no space"}
	aborted := Step{Nodes: 4000, GPUs: 32000, Aborted: "prometheus exited: out of memory", Servers: []map[string]float64{{}}}
	for name, c := range map[string]struct {
		steps      []Step
		several    *Step
		has, lacks []string
	}{
		"steps": {[]Step{step(500, 1), step(1000, 1)}, nil, []string{"| 4,000 |", "| 8,000 |",
			"| GPUUnavailable | critical | 1,222 | 0 |\n| GPUAllocatedIdle | info | 0 | 9 |", "extrapolated", "timeout",
			"| `--metrics=core` | 400,000 | 0.80 |"},
			[]string{"Several servers"}},
		"trouble": {[]Step{troubled}, nil, []string{"2,000 nodes: history: no space"}, nil},
		"aborted": {[]Step{step(500, 1), aborted}, nil, []string{"4,000 nodes: prometheus exited: out of memory"}, nil},
		"several": {[]Step{step(500, 1)}, &several, []string{"Several servers", "- up is recorded by no rule", "| nodes | 2,990 | 3,000 |"},
			nil},
	} {
		f := Figures{Machine: "a machine", Cores: 2, MemoryGiB: 24}
		for _, s := range c.steps {
			f.add(s)
		}
		f.Several = c.several
		if name == "steps" {
			f.Sizes = []Step{step(500, 1), step(400, 1)}
			f.Sizes[0].Name, f.Sizes[1].Name = "a1c68b7", "`--metrics=core`"
		}
		got, err := f.Page()
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for _, want := range c.has {
			if !strings.Contains(got, want) {
				t.Errorf("%s: the page lacks %q:\n%s", name, want, got)
			}
		}
		for _, no := range append(c.lacks, "NaN", "Inf", "%!") {
			if strings.Contains(got, no) {
				t.Errorf("%s: the page has %q:\n%s", name, no, got)
			}
		}
	}
	var f Figures
	f.add(aborted)
	f.add(step(500, 1))
	of := func(nodes, gpus int) options { return options{nodes: nodes, gpus: gpus, servers: 1} }
	if !f.has(of(500, 8)) || f.has(of(500, 4)) || f.has(of(4000, 8)) {
		t.Error("measured steps are not recognized")
	}
}

func TestParsePlan(t *testing.T) {
	p := plan{options: options{interval: time.Minute, split: byCluster, gpus: 8}, several: 3}
	must.OK(t, p.parse("500, 1000,2000", "8m,20m"))
	if !reflect.DeepEqual(p.sizes, []int{500, 1000, 2000}) || len(p.periods) != 2 || p.periods[1] != 20*time.Minute ||
		p.severalNodes != 2000 {
		t.Errorf("%+v", p)
	}
	fewer := plan{options: options{interval: time.Minute, split: byCluster, gpus: 8}, several: 3, severalNodes: 1500}
	if err := fewer.parse("2000", "8m"); err != nil || fewer.severalNodes != 1500 {
		t.Errorf("%+v, %v", fewer, err)
	}
	for _, bad := range []struct{ nodes, period, split string }{{"x", "8m", byCluster}, {"-1", "8m", byCluster}, {"5", "1m", byCluster},
		{"5", "x", byCluster}, {"5", "8m", "rack"}, {"0", "8m", byCluster}} {
		p := plan{options: options{interval: time.Minute, split: bad.split}, several: 3}
		if err := p.parse(bad.nodes, bad.period); err == nil {
			t.Errorf("%+v is accepted", bad)
		}
	}
}

// Several servers have each node once, and send what rules make.
func TestConfig(t *testing.T) {
	here := &server{Client: dashboard.Client{URL: "http://here"}}
	l := &lab{options: options{servers: 3, interval: time.Minute, root: "/r"}, fleet: here, database: here}
	for _, c := range []struct {
		split string
		share int
		has   []string
		lacks []string
	}{
		{byCluster, 1, []string{"{source_labels: [cluster], regex: c2, action: keep}", "regex: '.+:.+|ALERTS', action: keep"},
			[]string{"external_labels", "action: drop"}},
		{byNode, 0, []string{"modulus: 3", "regex: '0;.*|.*;kube-state-metrics'", "external_labels: {shard: '1'}"},
			[]string{"action: drop"}},
		{byNode, 2, []string{"regex: '2;.*|.*;kube-state-metrics'", "external_labels: {shard: '3'}",
			"{source_labels: [__name__], regex: 'namespace:gpu_requests.*', action: drop}"}, nil},
		{byNode, everything, []string{"/sd"}, []string{"remote_write", "action: keep", "external_labels"}},
	} {
		l.split = c.split
		got := l.config(c.share, "self")
		for _, want := range c.has {
			if !strings.Contains(got, want) {
				t.Errorf("share %d by %s lacks %q:\n%s", c.share, c.split, want, got)
			}
		}
		for _, no := range c.lacks {
			if strings.Contains(got, no) {
				t.Errorf("share %d by %s has %q:\n%s", c.share, c.split, no, got)
			}
		}
	}
}

// Results of two servers are alike within what their different scrape times explain.
func TestCompare(t *testing.T) {
	for _, c := range []struct {
		a, b map[string]float64
		says string
	}{
		{map[string]float64{"x": 100}, map[string]float64{"x": 103}, ""},
		{map[string]float64{"x": 100}, map[string]float64{"x": 200}, "1 off"},
		{map[string]float64{}, map[string]float64{"x": 1}, "1 are missing"},
		{map[string]float64{"x": 1, "y": 1}, map[string]float64{"x": 1}, "1 extra"},
		{map[string]float64{"x": 1000, "y": 0.01}, map[string]float64{"x": 1000, "y": 0}, ""},
	} {
		if got := compare(c.a, c.b, 0.05); (got == "") != (c.says == "") || !strings.Contains(got, c.says) {
			t.Errorf("%v and %v: %q, expected %q", c.a, c.b, got, c.says)
		}
	}
}
