package alerts

import (
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/must"
)

func TestLevels(t *testing.T) {
	groups, err := Default().RecordingRules()
	must.OK(t, err)
	all := 0
	for _, g := range groups {
		all += len(g.Rules)
	}
	known := map[string]bool{}
	levels := Levels(groups)
	if len(levels) < 3 {
		t.Errorf("%d levels: cluster reads model, which reads node", len(levels))
	}
	for i, level := range levels {
		rules := map[string]time.Duration{}
		var now []Rule
		for _, g := range level {
			for _, r := range g.Rules {
				rules[r.Record], now = g.Interval, append(now, r)
			}
		}
		for _, r := range now {
			for _, g := range groups {
				for _, other := range g.Rules {
					if other.Record == r.Record && rules[r.Record] != g.Interval {
						t.Errorf("level %d: %s is evaluated every %v, and its group every %v", i+1, r.Record, rules[r.Record], g.Interval)
					}
					if other.Record != r.Record && reads(r.Expr, other.Record) && !known[other.Record] {
						t.Errorf("level %d: %s reads %s, which no earlier level has", i+1, r.Record, other.Record)
					}
				}
			}
		}
		for _, r := range now {
			known[r.Record] = true
		}
	}
	if len(known) != all {
		t.Errorf("%d of %d rules have a level", len(known), all)
	}
}

func TestReads(t *testing.T) {
	for _, c := range []struct {
		expr string
		want bool
	}{
		{"sum(a:b:c)", true}, {"a:b:c", true}, {"a:b:cd + 1", false}, {"xa:b:c", false}, {"a:b:cd + a:b:c", true}, {"", false},
	} {
		if got := reads(c.expr, "a:b:c"); got != c.want {
			t.Errorf("reads(%q): %v", c.expr, got)
		}
	}
}
