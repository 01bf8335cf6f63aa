package scale

import (
	"strings"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/test/dashboard"
)

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
