package prom

import (
	"fmt"
	"strings"
	"time"
)

// Label is a name with its value.
type Label struct{ Name, Value string }

// Labels are the labels of one series in the order in which the server sent them.
type Labels []Label

// Get returns the value of a label, "" when the series does not have it.
func (l Labels) Get(name string) string {
	for i := range l {
		if l[i].Name == name {
			return l[i].Value
		}
	}
	return ""
}

// Name returns the name of the metric, "" when an operation took it away.
func (l Labels) Name() string { return l.Get("__name__") }

// quoting escapes what PromQL's string literals do not take as it is.
var quoting = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)

// Quote returns a string as a PromQL literal.
func Quote(s string) string { return `"` + quoting.Replace(s) + `"` }

// QL writes queries with the same extra matchers in every selector.
type QL struct {
	Match   string // such as cluster="prod", or empty
	Cluster string // the label that names the cluster
	// Window is the time over which rates are taken; 0 is five minutes, which needs a scrape every two.
	Window time.Duration
}

// Select is a selector of one metric.
func (q QL) Select(metric string, matchers ...string) string {
	if q.Match != "" {
		matchers = append(matchers, q.Match)
	}
	if len(matchers) == 0 {
		return metric
	}
	return metric + "{" + strings.Join(matchers, ", ") + "}"
}

// AnyOf is one selector of several metrics by name.
func (q QL) AnyOf(metrics []string, matchers ...string) string {
	return q.Select("", append([]string{`__name__=~"` + strings.Join(metrics, "|") + `"`}, matchers...)...)
}

// By aggregates by the cluster and other labels.
func (q QL) By(op string, expr string, labels ...string) string {
	return fmt.Sprintf("%s by (%s) (%s)", op, strings.Join(append([]string{q.Cluster}, labels...), ", "), expr)
}

// identity are the labels that tell series of one metric apart, whoever scraped or recorded them.
const identity = "__name__, node, uuid, gi, mig_uuid, model, namespace, pod, container, resource, state, reason, problem, " +
	"xid, workload_type, workload"

// Once merges what several servers, replicas or jobs have of one thing.
func (q QL) Once(expr string) string {
	return "max by (" + q.Cluster + ", " + identity + ") (" + expr + ")"
}

// Over is the time range of rates, as PromQL spells it.
func (q QL) Over() string {
	if q.Window > 0 {
		return fmt.Sprintf("[%ds]", int(q.Window.Seconds()))
	}
	return "[5m]"
}

// Rate is the rate of a counter.
func (q QL) Rate(metric string, matchers ...string) string {
	return "rate(" + q.Select(metric, matchers...) + q.Over() + ")"
}

// Now is the last value of a gauge, also where it is scraped less often than the server looks back.
func (q QL) Now(metric string, matchers ...string) string {
	if q.Window > 0 {
		return "last_over_time(" + q.Select(metric, matchers...) + q.Over() + ")"
	}
	return q.Select(metric, matchers...)
}
