package rules_test

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/alerts"
)

// A case is a short history of some series, and the alerts that fire at some moments of it.
type testCase struct {
	name string
	// step is the time between two samples and two evaluations; 0 is a minute.
	step time.Duration
	// series has one series per line: its name and labels, then its values as promtool writes them.
	series string
	// checks has moments and the labels of the alert that fires then, or -: "9m -; 10m $A; 26m -".
	// More than one alert is joined by &.
	checks string
}

// short stands for labels that many cases use.
var short = strings.NewReplacer(
	"$A", `node="n1",uuid="GPU-A",gpu="0"`,
	"$B", `node="n1",uuid="GPU-B",gpu="1"`,
	"$C", `node="n2",uuid="GPU-C",gpu="C"`,
	"$D", `node="n2",uuid="GPU-D",gpu="D"`,
	"$P", `namespace="team",pod="p-0"`,
	"$Q", `namespace="team",pod="q-0"`,
	"$W", `namespace="team",workload_type="Job",workload="w"`,
	"$WHOLE", `container="c",resource="nvidia_com_gpu",mig_uuid=""`,
)

// expand writes the labels out. The longest names go first: $WHOLE begins like $W.
func expand(text string) string {
	return short.Replace(strings.ReplaceAll(text, "$WHOLE", `container="c",resource="nvidia_com_gpu",mig_uuid=""`))
}

// pulse is the case of a state that comes and goes, with the moments that the alert's own durations give:
// it does not fire before its time, fires then, outlives the state by what it keeps, and ends.
func pulse(t *testing.T, alert, name string, step time.Duration, series, low, high, labels string, fixed ...string) testCase {
	t.Helper()
	a := find(t, alert)
	if step == 0 {
		step = time.Minute
	}
	on := int(a.For/step) + 10
	after := int(a.Keep/step) + 20
	var checks []string
	at := func(d time.Duration, want string) { checks = append(checks, span(d)+" "+want) }
	begin, end := 5*step, time.Duration(5+on)*step
	at(4*step, "-")
	if a.For > 0 {
		at(begin+a.For-step, "-")
	}
	at(begin+a.For, labels)
	at(end-step, labels)
	if a.Keep > 0 {
		at(end+a.Keep-step, labels)
	}
	at(end+a.Keep+2*step, "-")
	before := low + "x4" // five samples, or five gaps
	if low == "_" {
		before = "_x5"
	}
	lines := []string{fmt.Sprintf("%s %s %sx%d %sx%d", series, before, high, on-1, low, after)}
	for _, f := range fixed {
		lines = append(lines, fmt.Sprintf("%sx%d", f, 5+on+after))
	}
	return testCase{name: name, step: step, series: strings.Join(lines, "\n"), checks: strings.Join(checks, "; ")}
}

func span(d time.Duration) string { return strconv.Itoa(int(d/time.Second)) + "s" }

func find(t *testing.T, name string) alerts.Alert {
	t.Helper()
	for _, a := range alerts.Alerts() {
		if a.Name == name {
			return a
		}
	}
	t.Fatalf("there is no alert %s", name)
	return alerts.Alert{}
}

// moment is a parsed check.
type moment struct {
	at   string
	want []string // labels of each alert that fires
}

func (s testCase) moments() []moment {
	var out []moment
	for _, c := range strings.Split(s.checks, ";") {
		at, want, _ := strings.Cut(strings.TrimSpace(c), " ")
		m := moment{at: at}
		if want = strings.TrimSpace(want); want != "-" {
			for _, w := range strings.Split(want, "&") {
				w = expand(strings.TrimSpace(w))
				m.want = append(m.want, w)
			}
		}
		out = append(out, m)
	}
	return out
}

// inputs returns the series of the case and their values, with the cluster's label where there is one: a series of another
// cluster has it as cluster, and gets the name that it is given here.
func (s testCase) inputs(cluster string) (out [][2]string) {
	for _, line := range strings.Split(strings.TrimSpace(expand(s.series)), "\n") {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		at := strings.Index(line, " ")
		if brace := strings.Index(line, "} "); brace >= 0 {
			at = brace + 1
		}
		series, values := line[:at], strings.TrimSpace(line[at:])
		switch name, _, _ := strings.Cut(cluster, "="); {
		case cluster == "":
		case strings.Contains(series, `cluster="`):
			series = strings.Replace(series, `cluster="`, name+`="`, 1)
		default:
			series = withLabel(series, cluster)
		}
		out = append(out, [2]string{series, values})
	}
	return out
}

func withLabel(series, label string) string {
	name, rest, has := strings.Cut(series, "{")
	if !has || rest == "}" {
		return name + "{" + label + "}"
	}
	return name + "{" + label + "," + rest
}

// labels reads a="b",c="d" into a list. Values hold no commas here.
func labelPairs(text string) (out []alerts.Pair) {
	if text == "" || text == "one" || text == "each" { // an alert without labels, or of each cluster
		return nil
	}
	for _, p := range strings.Split(text, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(p), "=")
		out = append(out, alerts.Pair{Name: name, Value: strings.Trim(value, `"`)})
	}
	return out
}

// unitTest writes the case as a test of promtool, for rules of an alert by their names.
func (s testCase) unitTest(b *strings.Builder, a alerts.Alert, rules []alerts.Rule, cluster string) {
	fmt.Fprintf(b, "- name: %q\n  interval: %s\n  input_series:\n", a.Name+": "+s.name, span(cmp.Or(s.step, time.Minute)))
	for _, in := range s.inputs(cluster) {
		fmt.Fprintf(b, "  - series: '%s'\n    values: '%s'\n", in[0], in[1])
	}
	b.WriteString("  alert_rule_test:\n")
	for _, m := range s.moments() {
		expected := " []\n"
		if len(m.want) > 0 {
			expected = "\n"
		}
		for _, w := range m.want {
			expected += "    - exp_labels:\n        severity: " + string(a.Severity) + "\n"
			list := labelPairs(w)
			if w != "one" || a.Name != "GPUExporterAbsent" {
				list = append(labelPairs(cluster), list...)
			}
			for _, p := range list {
				expected += fmt.Sprintf("        %s: %q\n", p.Name, p.Value)
			}
		}
		for _, r := range rules {
			fmt.Fprintf(b, "  - eval_time: %s\n    alertname: %s\n    exp_alerts:%s", m.at, r.Alert, expected)
		}
	}
}
