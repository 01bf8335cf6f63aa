package main

import (
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

// A page says what was measured, whatever is missing, and is the same from figures that were kept.
func TestPage(t *testing.T) {
	second := []time.Duration{time.Second}
	step := func(nodes int) figures {
		return figures{Nodes: nodes, GPUs: 8 * nodes, Servers: 1, Scraped: time.Minute, Targets: nodes, Up: nodes, Scrapes: 100, Series: 1000 * float64(nodes), Records: 10, Alerts: 2,
			Samples: 5, Resident: 100, Peak: 200, CPU: 3 * time.Second, Groups: []groupTime{{Name: "g", Least: 1, Mean: 2, Most: 3, Rules: 1}}, Rules: []ruleTime{{Group: "g", Name: "r", Took: time.Second}},
			Asked: []asked{{Board: "gpu-fleet", Panel: "Cards", Took: second}, {Board: "gpu-node", Panel: "Power", Over: 30 * time.Second, Overs: 2}, {Board: "gpu-node", Panel: "Clock", Err: "422: too many samples"}}}
	}
	several := step(3000)
	several.Servers, several.Each, several.AskedDatabase = 3, []server{{Name: "prometheus-1", Targets: 1000}}, several.Asked
	several.Held = &held{Names: 3, Foreign: []string{"up"}, Records: 2, Different: []difference{{"a:b:c", 1, 2, 3, 4}}, Facts: []fact{{"nodes", 2990, 2990, 3000, -1}},
		Report: &reports{Lines: []reportLine{{"useful", 5, 5}}}, Problems: []string{"names: no answer"}}
	broken := figures{Nodes: 4000, GPUs: 32000, Servers: 1, Ended: "prometheus ended: out of memory"}
	troubled := step(2000)
	troubled.Missed, troubled.Problems = 4, []string{"the past of records: no space"}
	base := kept{Interval: time.Minute, Machine: "a machine", Cores: 2, MemoryGiB: 24, Limit: 30 * time.Second}
	for name, c := range map[string]struct {
		steps      []figures
		several    *figures
		has, lacks []string
	}{
		"steps": {steps: []figures{step(500), step(1000)}, has: []string{"| 500 nodes, 4,000 GPUs | 1,000 nodes, 8,000 GPUs |", "> 30s", "No answer to gpu-node Clock: 422: too many samples", "| 8,000 | 1,000,000 | 5 | 0.2 GiB | 0.05 cores | **measured** |",
			"| gpu-node | > 30s | > 30s |", "No evaluation was missed", "extrapolated"}, lacks: []string{"Beyond one server"}},
		"trouble":      {steps: []figures{troubled}, has: []string{"4 evaluations were missed", "Not measured at 2,000 nodes: the past of records: no space"}},
		"broke":        {steps: []figures{step(500), broken}, has: []string{"At 4,000 nodes, 32,000 GPUs: prometheus ended: out of memory."}, lacks: []string{"| 4,000 nodes"}},
		"several":      {steps: []figures{step(500)}, several: &several, has: []string{"3 Prometheus servers", "no rule makes up", "| a:b:c | 1 | 2 | 3 | 4 |", "| nodes | 2,990.0 | 2,990.0 | 3,000.0 |", "Not compared: names: no answer", "| useful | 5.0 | 5.0 |"}},
		"only several": {several: &several, has: []string{"Beyond one server"}, lacks: []string{"What it takes"}},
		"all broke":    {steps: []figures{broken}, several: &broken, has: []string{"It ended early: prometheus ended: out of memory."}},
	} {
		k := base
		k.Steps, k.Several = c.steps, c.several
		got := page(k)
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
		file := filepath.Join(t.TempDir(), "figures.json")
		if err := k.save(file); err != nil {
			t.Fatal(err)
		}
		var again kept
		if err := again.load(file); err != nil || page(again) != got || len(again.Steps) != len(k.Steps) {
			t.Errorf("%s: the page of kept figures is another one, %v", name, err)
		}
	}
	k := kept{Steps: []figures{step(500), broken}}
	if !k.step(500, 8) || k.step(500, 4) || k.step(4000, 8) {
		t.Error("what was measured is not known again")
	}
}

func TestReadPlan(t *testing.T) {
	p := plan{options: options{Interval: time.Minute, Split: byCluster, GPUs: 8}, Beyond: 3}
	if err := p.read("500, 1000,2000", "8m,20m"); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(p.Steps, []int{500, 1000, 2000}) || p.time(0) != 8*time.Minute || p.time(2) != 20*time.Minute || p.time(3) != 20*time.Minute || p.BeyondNodes != 2000 {
		t.Errorf("%+v", p)
	}
	for _, bad := range []struct{ nodes, length, split string }{{"x", "8m", byCluster}, {"-1", "8m", byCluster}, {"5", "1m", byCluster}, {"5", "x", byCluster}, {"5", "8m", "rack"}, {"0", "8m", byCluster}} {
		p := plan{options: options{Interval: time.Minute, Split: bad.split}, Beyond: 3}
		if err := p.read(bad.nodes, bad.length); err == nil {
			t.Errorf("%+v is accepted", bad)
		}
	}
}

// Several servers have each node once, and send what rules make.
func TestConfig(t *testing.T) {
	program := &program{url: "http://here"}
	in := &installation{options: options{Servers: 3, Split: byCluster, Interval: time.Minute, Root: "/r"}, fleet: program, database: program, tags: []map[string]string{{}, {}, {}}}
	for _, c := range []struct {
		split string
		share int
		has   []string
		lacks []string
	}{
		{byCluster, 1, []string{"{source_labels: [cluster], regex: c2, action: keep}", "regex: '.+:.+|ALERTS', action: keep"}, []string{"external_labels", "action: drop"}},
		{byNode, 0, []string{"modulus: 3", "regex: '0;.*|.*;kube-state-metrics'", "external_labels: {shard: '1'}"}, []string{"action: drop"}},
		{byNode, 2, []string{"regex: '2;.*|.*;kube-state-metrics'", "external_labels: {shard: '3'}", "{source_labels: [__name__], regex: '(namespace|cluster):gpu_requests.*', action: drop}"}, nil},
		{byNode, everything, []string{"/sd"}, []string{"remote_write", "action: keep", "external_labels"}},
	} {
		in.Split = c.split
		in.tags = []map[string]string{{}, {}, {}}
		if c.split == byNode {
			in.tags = []map[string]string{{"shard": "1"}, {"shard": "2"}, {"shard": "3"}}
		}
		got := in.config(c.share, "self")
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

// Answers of two servers are alike within what their different moments explain.
func TestCompare(t *testing.T) {
	for _, c := range []struct {
		a, b map[string]float64
		says string
	}{
		{map[string]float64{"x": 100}, map[string]float64{"x": 103}, ""},
		{map[string]float64{"x": 100}, map[string]float64{"x": 200}, "1 off"},
		{map[string]float64{}, map[string]float64{"x": 1}, "1 are missing"},
		{map[string]float64{"x": 1, "y": 1}, map[string]float64{"x": 1}, "1 too many"},
		{map[string]float64{"x": 1000, "y": 0.01}, map[string]float64{"x": 1000, "y": 0}, ""},
	} {
		if got := compare(c.a, c.b, 0.05); (got == "") != (c.says == "") || !strings.Contains(got, c.says) {
			t.Errorf("%v and %v: %q, expected %q", c.a, c.b, got, c.says)
		}
	}
}
