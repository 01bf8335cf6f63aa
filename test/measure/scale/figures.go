package scale

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/gpu-exporter/gpu-exporter/test/measure/page"
)

// Figures are all that was measured.
type Figures struct {
	Date, Machine string
	Cores         int
	MemoryGiB     float64
	// Steps are fleets on one server, by size; Several is the fleet on several.
	Steps   []Step
	Several *Step `json:",omitempty"`
	// Sizes are fleets that differ in the metrics of their exporters, the first the one to compare with.
	Sizes []Step `json:",omitempty"`
}

// save writes the figures and their page.
func (f Figures) save(docs string) error {
	text, err := f.Page()
	if err != nil {
		return err
	}
	return page.Save(docs, "performance-fleet", text, f)
}

// Step are the figures of one fleet.
type Step struct {
	Name        string `json:",omitempty"` // in Sizes
	Nodes, GPUs int
	Date        string        `json:",omitempty"`
	Split       string        `json:",omitempty"`
	Scraped     time.Duration // until the figures were read
	// Aborted is why the step ended early; Problems are what could not be measured.
	Aborted  string   `json:",omitempty"`
	Problems []string `json:",omitempty"`
	// Servers are the figures of each Prometheus by name, Database those of VictoriaMetrics, Simulator those of the
	// fleet.
	Servers             []map[string]float64
	Database, Simulator map[string]float64 `json:",omitempty"`
	Alerts              []Alerts           `json:",omitempty"` // by severity, then by name
	Groups              []Group
	Rules               []Rule // the slowest
	Queries             []Query
	DatabaseQueries     []Query     `json:",omitempty"`
	Compared            *Comparison `json:",omitempty"`
}

// Alerts are those of one name at the end, pending or firing.
type Alerts struct {
	Name, Severity  string
	Firing, Pending float64
}

// addAlerts adds what one server has.
func (s *Step) addAlerts(name, severity, state string, n float64) {
	i := slices.IndexFunc(s.Alerts, func(a Alerts) bool { return a.Name == name })
	if i < 0 {
		i, s.Alerts = len(s.Alerts), append(s.Alerts, Alerts{Name: name, Severity: severity})
	}
	if state == "firing" {
		s.Alerts[i].Firing += n
	} else {
		s.Alerts[i].Pending += n
	}
	slices.SortFunc(s.Alerts, func(a, b Alerts) int {
		return cmp.Or(strings.Compare(a.Severity, b.Severity), strings.Compare(a.Name, b.Name))
	})
}

// Group is a rule group: seconds of its evaluations, and how many were missed because the one before had not ended.
type Group struct {
	Name           string
	Min, Mean, Max float64
	// Interval is the time between two evaluations in seconds.
	Interval float64 `json:",omitempty"`
	Missed   float64
}

// Rule is a rule's last evaluation in seconds.
type Rule struct {
	Group, Name string
	Seconds     float64
	Failed      string `json:",omitempty"`
	// Pending: the rule was not evaluated yet.
	Pending bool `json:",omitempty"`
}

// Query is one query of a dashboard and the seconds that its responses took.
type Query struct {
	Dashboard, Panel string
	Seconds          []float64
	Series           int
	// Timeouts is how many responses exceeded the timeout.
	Timeouts int    `json:",omitempty"`
	Err      string `json:",omitempty"`
}

// Min is the fastest response in seconds; a query that was never answered in time is slower than any other.
func (q Query) Min() float64 {
	switch {
	case len(q.Seconds) > 0:
		return slices.Min(q.Seconds)
	case q.Timeouts > 0:
		return 3600
	}
	return -1
}

// add puts a step in its place.
func (f *Figures) add(s Step) {
	if len(s.Servers) > 1 {
		f.Several = &s
		return
	}
	f.Steps = append(f.Steps, s)
	slices.SortFunc(f.Steps, func(a, b Step) int { return cmp.Compare(a.Nodes, b.Nodes) })
}

// Page renders docs/evidence/performance-fleet.md.
func (f Figures) Page() (string, error) { return page.Render("scale", f) }

// Of is a figure of all servers together.
func (s Step) Of(name string) float64 {
	total := 0.0
	for _, server := range s.Servers {
		if slices.Contains(maxima, name) {
			total = max(total, server[name])
		} else {
			total += server[name]
		}
	}
	return total
}

// Per1000 is a figure for each 1,000 GPUs.
func (s Step) Per1000(name string) float64 { return s.Of(name) * 1000 / float64(s.GPUs) }

// RuleSeconds is what the evaluations of all groups take in a minute at best.
func (s Step) RuleSeconds() float64 { return s.ruleSeconds(func(g Group) float64 { return g.Min }) }

// MeanRuleSeconds is what they take on average: other groups and Prometheus' garbage collection share the cores.
func (s Step) MeanRuleSeconds() float64 {
	return s.ruleSeconds(func(g Group) float64 { return g.Mean })
}

func (s Step) ruleSeconds(of func(Group) float64) (total float64) {
	for _, g := range s.Groups {
		total += of(g) * 60 / cmp.Or(g.Interval, 60)
	}
	return total
}

// CostliestGroup is the group whose evaluation takes longest at best.
func (s Step) CostliestGroup() Group {
	return slices.MaxFunc(append(s.Groups, Group{}), func(a, b Group) int { return cmp.Compare(a.Min, b.Min) })
}

// SlowestGroup is the group with the longest evaluation.
func (s Step) SlowestGroup() Group {
	return slices.MaxFunc(append(s.Groups, Group{}), func(a, b Group) int { return cmp.Compare(a.Max, b.Max) })
}

// Slowest returns the slowest query of each dashboard, in order of the dashboards.
func Slowest(all []Query) []Query {
	var out []Query
	for _, q := range all {
		i := slices.IndexFunc(out, func(o Query) bool { return o.Dashboard == q.Dashboard })
		switch {
		case i < 0:
			out = append(out, q)
		case q.Min() > out[i].Min():
			out[i] = q
		}
	}
	slices.SortFunc(out, func(a, b Query) int { return cmp.Compare(a.Dashboard, b.Dashboard) })
	return out
}

// SlowestQueries are those of the largest fleet on one server.
func (f Figures) SlowestQueries() []Query { return Slowest(f.Largest().Queries) }

// SlowestDatabaseQueries are those of the database.
func (s Step) SlowestDatabaseQueries() []Query { return Slowest(s.DatabaseQueries) }

// Largest is the largest fleet on one server.
func (f Figures) Largest() Step {
	for _, s := range slices.Backward(f.Steps) {
		if s.Aborted == "" {
			return s
		}
	}
	return Step{}
}

// MaxGPUs is how many GPUs this machine would hold, extrapolated from the largest fleet: by memory, of which 60 % are
// used and the rest left for the head to grow, and by the processor, of which half is left for queries.
func (f Figures) MaxGPUs() map[string]float64 {
	s := f.Largest()
	gpus := float64(s.GPUs)
	thousands := func(v float64) float64 { return math.Round(v/1000) * 1000 }
	return map[string]float64{
		"memory":    thousands(0.6 * f.MemoryGiB * 1024 / s.Of("peak") * gpus),
		"processor": thousands(0.5 * float64(f.Cores) / s.Of("cpu") * gpus),
	}
}

// maxima are the figures that are not added up over the servers.
var maxima = []string{"page", "scrape50", "scrape99"}

// Comparison is what the database was compared with: the servers that write to it, the reference where there is one,
// and what the fleet really did.
type Comparison struct {
	// Names are how many names of series the database has, Series their series, Queries the dashboard queries compared.
	Names   int
	Series  float64
	Queries int `json:",omitempty"`
	// Differences are what the database has differently.
	Differences []string `json:",omitempty"`
	Facts       []Fact
}

// Fact is a figure of the whole fleet, in the database and in truth.
type Fact struct {
	Name            string
	Database, Truth float64
}

func (c *Comparison) differs(format string, args ...any) {
	c.Differences = append(c.Differences, fmt.Sprintf(format, args...))
}
