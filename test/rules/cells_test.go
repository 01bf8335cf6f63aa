package rules_test

import (
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/gpu-exporter/gpu-exporter/alerts"
	"github.com/gpu-exporter/gpu-exporter/test/fleet/replay"
)

var (
	allCells = flag.Bool("cells", false, "simulate the cases in every cell; without it in three of them")
	seed     = flag.Uint64("seed", 0, "of the random cell and of the offsets of scrapes and evaluations; 0: a new one")
)

// long is a case that runs in one cell, and with fewer evaluations.
const long = 6 * time.Hour

// inputSeries is a series of a case as its target exposes it.
type inputSeries struct {
	labels labels.Labels
	values []parser.SequenceValue
}

// at is its value at a time since the beginning: a counter grows evenly between two values, a timestamp is the node's. What
// lasts until the end of the case stays.
func (e inputSeries) at(since, step time.Duration, last bool, behind time.Duration) (v float64, ok bool) {
	i := int(since / step)
	if last {
		i = min(i, len(e.values)-1)
	}
	if i >= len(e.values) || e.values[i].Omitted || value.IsStaleNaN(e.values[i].Value) {
		return 0, false
	}
	v = e.values[i].Value
	switch name := e.labels.Get(model.MetricNameLabel); {
	case strings.HasSuffix(name, "_timestamp_seconds"):
		v -= behind.Seconds()
	case strings.HasSuffix(name, "_total") && i+1 < len(e.values) && !e.values[i+1].Omitted && e.values[i+1].Value > v:
		more := (e.values[i+1].Value - v) * float64(since%step) / float64(step)
		if v+more-math.Floor(v+more) > 0 && e.values[i+1].Value == math.Floor(e.values[i+1].Value) {
			more = math.Floor(more)
		}
		v += more
	}
	return v, true
}

// targetOf is where a series is scraped: the exporter of a node, or kube-state-metrics; the server has records and targets.
func targetOf(l labels.Labels) string {
	switch name := l.Get(model.MetricNameLabel); {
	case strings.HasPrefix(name, "gpu_"):
		return "exporter of " + l.Get("node")
	case strings.HasPrefix(name, "kube_"):
		return "kube-state-metrics"
	}
	return "server"
}

// targets of a case, and the time of its last check.
func (s testCase) targets(t *testing.T, behind time.Duration) (out []replay.Target, end time.Duration) {
	t.Helper()
	step := s.step
	if step == 0 {
		step = time.Minute
	}
	for _, m := range s.moments() {
		at, err := time.ParseDuration(m.at)
		if err != nil {
			t.Fatal(err)
		}
		end = max(end, at)
	}
	byTarget := map[string][]inputSeries{}
	for _, in := range s.inputs("") {
		l, values, err := parser.NewParser(parser.Options{}).ParseSeriesDesc(in[0] + " " + in[1])
		if err != nil {
			t.Fatal(err)
		}
		name := targetOf(l)
		byTarget[name] = append(byTarget[name], inputSeries{l, values})
	}
	names := make([]string, 0, len(byTarget))
	for name := range byTarget {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		out = append(out, replay.Target{Name: name, Expose: func(at, _ time.Time, put func(labels.Labels, float64)) {
			for _, e := range byTarget[name] {
				last := time.Duration(len(e.values))*step >= end
				if v, ok := e.at(at.Sub(time.Unix(0, 0)), step, last, behind); ok {
					put(e.labels, v)
				}
			}
		}})
	}
	return out, end
}

// What a case expects must not depend on how a server observes it: no more notifications than its moments have, and at each moment,
// or as much later as scrapes and evaluations are, what it expects.
func TestAlertsInCells(t *testing.T) {
	s := *seed
	if s == 0 {
		s = rand.Uint64()
	}
	t.Logf("-seed=%d repeats it", s)
	cells := replay.Cells()
	if !*allCells {
		random := rand.New(rand.NewPCG(s, 0))
		cells = []replay.Cell{{Scrape: 15 * time.Second, Behind: 45 * time.Second}, {Scrape: 2 * time.Minute, Unmarked: true},
			cells[random.IntN(len(cells))]}
	}
	all, rules := cases(t), bare(t, everything())
	for _, a := range alerts.Alerts() {
		t.Run(a.Name, func(t *testing.T) {
			t.Parallel()
			for i, c := range all[a.Name] {
				of := cells
				if _, end := c.targets(t, 0); end > long && !*allCells {
					of = cells[2:] // the drawn one
				}
				for _, cell := range of {
					t.Run(c.name+", "+cell.String(), func(t *testing.T) { // which closes the server
						random := rand.New(rand.NewPCG(s, uint64(i)))
						for _, wrong := range c.inCell(t, rules[a.Name], cell, random) {
							t.Error(wrong)
						}
					})
				}
			}
		})
	}
}

// inCell runs the case and returns what differs from its expectation.
func (s testCase) inCell(t *testing.T, rule alerts.Rule, cell replay.Cell, random *rand.Rand) (wrong []string) {
	t.Helper()
	records, err := everything().RecordingRules()
	if err != nil {
		t.Fatal(err)
	}
	given := map[string]bool{}
	for _, in := range s.inputs("") {
		metric, _, _ := strings.Cut(in[0], "{")
		given[metric] = true
	}
	groups := append(needed(records, rule.Expr, given), alerts.RuleGroup{Name: "g", Rules: []alerts.Rule{rule}})
	targets, end := s.targets(t, cell.Behind)
	for i := range groups {
		if end > long { // or it takes minutes
			groups[i].Interval = max(groups[i].Interval, 4*time.Minute)
		}
	}
	late := 2*cell.Scrape + time.Minute
	if cell.Unmarked {
		late += 5 * time.Minute
	}
	for _, g := range groups {
		late += max(g.Interval, time.Minute)
	}
	begin := time.Unix(0, 0)
	w := replay.WithRules(t, groups).Watch(cell, random, targets)
	if err := w.Run(t.Context(), begin, begin.Add(end+late)); err != nil {
		t.Fatal(err)
	}
	// by labels: when it should fire, as the first moment, and how often it begins
	expected := map[string]int{}
	var before []string
	for _, m := range s.moments() {
		var now []string
		for _, l := range m.want {
			now = append(now, sorted(l))
		}
		for _, l := range now {
			if !slices.Contains(before, l) {
				expected[l]++
			}
		}
		before = now
		at, _ := time.ParseDuration(m.at)
		if !slices.ContainsFunc(times(at, at+late), func(since time.Duration) bool {
			return equal(firingAt(w.Notifications, begin.Add(since)), now)
		}) {
			wrong = append(wrong, fmt.Sprintf("at %s and up to %v later, it is not %q", m.at, late, now))
		}
	}
	got := map[string]int{}
	for _, n := range w.Notifications {
		got[ofNotification(n)]++
	}
	for l, n := range got {
		if n != expected[l] {
			wrong = append(wrong, fmt.Sprintf("%d notifications instead of %d: %s", n, expected[l], l))
		}
	}
	if len(wrong) > 0 {
		wrong = append(wrong, replay.Describe(w.Notifications, begin))
	}
	return wrong
}

func times(from, to time.Duration) (out []time.Duration) {
	for at := from; at <= to; at += 5 * time.Second {
		out = append(out, at)
	}
	return out
}

func firingAt(list []replay.Notification, at time.Time) (out []string) {
	for _, n := range list {
		if !n.From.After(at) && (n.To.IsZero() || n.To.After(at)) {
			out = append(out, ofNotification(n))
		}
	}
	return out
}

func equal(a, b []string) bool {
	a, b = slices.Clone(a), slices.Clone(b)
	slices.Sort(a)
	slices.Sort(b)
	return slices.Equal(a, b)
}

// ofNotification are the labels of a notification but those of the rule.
func ofNotification(n replay.Notification) string {
	return labels.NewBuilder(n.Labels).Del(labels.AlertName, "severity").Labels().String()
}

func sorted(pairs string) string {
	var list []string
	for _, p := range labelPairs(pairs) {
		list = append(list, p.Name, p.Value)
	}
	return labels.FromStrings(list...).String()
}
