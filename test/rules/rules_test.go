// Package rules_test tests the recording rules and the alerts with promtool and vmalert-tool, built from tools/:
// what fires, what rests and what ends, and that the tests notice when a rule is not what it should be.
package rules_test

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/template"

	"github.com/gpu-exporter/gpu-exporter/alerts"
	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/test/servers"
)

var given = flag.String("promtool", "", "play the cases with this promtool, such as that of an older Prometheus")

// tool is the program that plays the cases.
func tool(t *testing.T) string {
	t.Helper()
	if *given != "" {
		return *given
	}
	return servers.Build(t, servers.Promtool)
}

// result is what promtool prints after each file.
var result = regexp.MustCompile(`(?m)^  (?:SUCCESS|FAILED:)$`)

// run runs files of unit tests in one start of promtool, and returns what it reports of each; "" is success.
func run(t *testing.T, files []string) []string {
	t.Helper()
	text, err := exec.Command(tool(t), append([]string{"test", "rules"}, files...)...).CombinedOutput()
	results, reports := result.FindAllString(string(text), -1), result.Split(string(text), -1)[1:]
	if len(reports) != len(files) || (err != nil) != slices.Contains(results, "  FAILED:") {
		t.Fatalf("%d reports of %d files, %v:\n%s", len(reports), len(files), err, text)
	}
	for i, r := range results {
		if r == "  SUCCESS" {
			reports[i] = ""
		}
	}
	return reports
}

// passes runs files that must not fail.
func passes(t *testing.T, files []string) {
	t.Helper()
	for i, report := range run(t, files) {
		if report != "" {
			t.Errorf("%s:%s", filepath.Base(files[i]), report)
		}
	}
}

// everything turns all alerts on.
func everything() alerts.Config {
	c := alerts.Default()
	c.Alerts = map[string]alerts.Override{}
	on := true
	for _, a := range alerts.Alerts() {
		c.Alerts[a.Name] = alerts.Override{Enabled: &on}
	}
	return c
}

// bare returns the alerts by name as they stand in the rules file, without annotations: those are tested apart.
func bare(t *testing.T, c alerts.Config) map[string]alerts.Rule {
	t.Helper()
	groups, err := c.AlertRules()
	must.OK(t, err)
	out := map[string]alerts.Rule{}
	for _, g := range groups {
		for _, r := range g.Rules {
			r.Annotations = nil
			out[r.Alert] = r
		}
	}
	return out
}

// write puts rules and their test into a folder and returns the test's path.
func write(t *testing.T, dir, name string, groups []alerts.RuleGroup, step time.Duration, tests string) string {
	t.Helper()
	rules := filepath.Join(dir, name+".rules.yaml")
	test := filepath.Join(dir, name+".test.yaml")
	order := make([]string, len(groups))
	for i, g := range groups {
		order[i] = g.Name
	}
	head := fmt.Sprintf("rule_files: [%q]\nevaluation_interval: %s\ngroup_eval_order: [%s]\ntests:\n", filepath.Base(rules), span(step),
		strings.Join(order, ", "))
	for path, text := range map[string]string{rules: alerts.RulesFile(groups), test: head + tests} {
		must.OK(t, os.WriteFile(path, []byte(text), 0o644))
	}
	return test
}

// needed are the groups with the records that a text reads, and those that they read, except those that are given.
func needed(groups []alerts.RuleGroup, text string, given map[string]bool) []alerts.RuleGroup {
	var out []alerts.RuleGroup
	for _, g := range slices.Backward(groups) {
		keep := alerts.RuleGroup{Name: g.Name}
		for _, r := range slices.Backward(g.Rules) {
			if strings.Contains(text, r.Record) && !given[r.Record] {
				keep.Rules = append([]alerts.Rule{r}, keep.Rules...)
				text += r.Expr
			}
		}
		if len(keep.Rules) > 0 {
			out = append([]alerts.RuleGroup{keep}, out...)
		}
	}
	return out
}

// files writes the cases of an alert and rules of it, behind the records that they read and the cases do not have: a file for
// each step, since promtool has one interval of evaluation per file.
func files(t *testing.T, dir, name string, a alerts.Alert, rules []alerts.Rule, list []testCase, cluster string) (out []string) {
	t.Helper()
	c := everything()
	if cluster != "" {
		c.ClusterLabel, _, _ = strings.Cut(cluster, "=")
	}
	records, err := c.RecordingRules()
	must.OK(t, err)
	tests, given := map[time.Duration]*strings.Builder{}, map[string]bool{}
	for _, s := range list {
		step := cmp.Or(s.step, time.Minute)
		if tests[step] == nil {
			tests[step] = &strings.Builder{}
		}
		s.unitTest(tests[step], a, rules, cluster)
		for _, in := range s.inputs("") {
			metric, _, _ := strings.Cut(in[0], "{")
			given[metric] = true
		}
	}
	groups := append(needed(records, rules[0].Expr, given), alerts.RuleGroup{Name: "g", Rules: rules})
	for step, text := range tests {
		out = append(out, write(t, dir, name+"-"+span(step), groups, step, text.String()))
	}
	return out
}

func TestEveryAlertHasCases(t *testing.T) {
	all := cases(t)
	for _, a := range alerts.Alerts() {
		fires, ends, rests := false, false, false
		for _, s := range all[a.Name] {
			fired := false
			for _, m := range s.moments() {
				if len(m.want) > 0 {
					fired = true
				} else if fired {
					ends = true
				}
				for _, w := range m.want {
					var names []string
					for _, p := range labelPairs(w) {
						names = append(names, p.Name)
					}
					want := slices.Clone(a.Labels)
					slices.Sort(names)
					slices.Sort(want)
					if !slices.Equal(names, want) {
						t.Errorf("%s: %q expects the labels %v, and the table says %v", a.Name, s.name, names, want)
					}
				}
			}
			fires = fires || fired
			rests = rests || !fired
		}
		if !fires || !ends || !rests {
			t.Errorf("%s: fires %v, ends %v, has an innocent case %v", a.Name, fires, ends, rests)
		}
	}
	for name := range all {
		find(t, name)
	}
}

// Each alert passes its cases, with a cluster's label too. Every fault that is planted into its rule is noticed: the faulty rules
// are played beside it, each under its own name.
func TestAlerts(t *testing.T) {
	t.Parallel()
	all := cases(t)
	rules := bare(t, everything())
	other := everything()
	other.ClusterLabel = "k8s_cluster"
	otherRules := bare(t, other)
	for _, a := range alerts.Alerts() {
		t.Run(a.Name, func(t *testing.T) {
			t.Parallel()
			faulty := mutants(t, rules[a.Name])
			if len(faulty) == 0 {
				t.Error("no fault can be planted into it")
			}
			beside := []alerts.Rule{rules[a.Name]}
			for i := range faulty {
				faulty[i].rule.Alert = fmt.Sprintf("%sMutant%d", a.Name, i)
				beside = append(beside, faulty[i].rule)
			}
			dir, list := t.TempDir(), all[a.Name]
			passes(t, files(t, dir, "cluster", a, []alerts.Rule{otherRules[a.Name]}, list, `k8s_cluster="c1"`))
			said := strings.Join(run(t, files(t, dir, "plain", a, beside, list, "")), "")
			failed := func(alert string) bool { return strings.Contains(said, "alertname: "+alert+", ") }
			if failed(a.Name) || strings.Contains(said, ", err: ") {
				t.Errorf("a rule fails, or it is none:\n%s", said)
			}
			for _, m := range faulty {
				if !failed(m.rule.Alert) {
					t.Errorf("no case notices: %s", m.what)
				}
			}
		})
	}
}

// byMetricsQL is vmalert's run of files of unit tests, with its database in a directory.
func byMetricsQL(t *testing.T, dir string, files []string) ([]byte, error) {
	t.Helper()
	cmd := exec.Command(servers.Build(t, servers.VMAlertTool), "unittest", "--disableAlertgroupLabel", "--files="+strings.Join(files, ","))
	cmd.Env = append(os.Environ(), "TMPDIR="+dir)
	return cmd.CombinedOutput()
}

// MetricsQL is no PromQL: it extrapolates less and looks further back. The cases go the same way under it.
func TestAlertsByMetricsQL(t *testing.T) {
	t.Parallel()
	all := cases(t)
	rules := bare(t, everything())
	for _, a := range alerts.Alerts() {
		t.Run(a.Name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if out, err := byMetricsQL(t, dir, files(t, dir, "case", a, []alerts.Rule{rules[a.Name]}, all[a.Name], "")); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// mutant is an alert with one fault in it.
type mutant struct {
	what string
	rule alerts.Rule
}

var flipped = map[parser.ItemType]parser.ItemType{
	parser.GTR: parser.LTE, parser.LTE: parser.GTR, parser.LSS: parser.GTE, parser.GTE: parser.LSS, parser.EQLC: parser.NEQ,
	parser.NEQ: parser.EQLC,
}

// mutants makes one of each fault: a comparison turned round, a condition left out, a wait or a stay forgotten.
func mutants(t *testing.T, r alerts.Rule) []mutant {
	t.Helper()
	var out []mutant
	if r.For > 0 {
		m := r
		m.For = 0
		out = append(out, mutant{"for dropped", m})
	}
	if r.Keep > 0 {
		m := r
		m.Keep = 0
		out = append(out, mutant{"keep_firing_for dropped", m})
	}
	parse := func() parser.Expr {
		e, err := parser.NewParser(parser.Options{}).ParseExpr(r.Expr)
		must.OK(t, err)
		return e
	}
	count := 0
	for n := 0; n == 0 || n < count; n++ {
		root := parse()
		at := 0
		what := ""
		edit := func(b *parser.BinaryExpr) {
			op := b.Op
			if to, is := flipped[op]; is {
				if at == n {
					what = fmt.Sprintf("%s turned into %s in %s", op, to, b)
					b.Op = to
				}
				at++
			}
			// A branch is taken out by making it the other one.
			none := func() parser.Expr {
				e, _ := parser.NewParser(parser.Options{}).ParseExpr("vector(1) < 0")
				return &parser.ParenExpr{Expr: e}
			}
			if op == parser.LAND {
				if at == n {
					what = fmt.Sprintf("condition left out: and %s", b.RHS)
					b.Op, b.RHS = parser.LUNLESS, none()
				}
				at++
			}
			if op == parser.LUNLESS {
				if at == n {
					what = fmt.Sprintf("exception left out: unless %s", b.RHS)
					b.RHS = none()
				}
				at++
			}
			if op == parser.LOR {
				if at == n {
					what = fmt.Sprintf("branch left out: %s", b.LHS)
					b.LHS = none()
				}
				at++
				if at == n {
					what = fmt.Sprintf("branch left out: %s", b.RHS)
					b.RHS = none()
				}
				at++
			}
		}
		parser.Inspect(root, func(node parser.Node, _ []parser.Node) error {
			if b, is := node.(*parser.BinaryExpr); is {
				edit(b)
			}
			return nil
		})
		count = at
		if what != "" {
			m := r
			m.Expr = root.String()
			out = append(out, mutant{what, m})
		}
	}
	return out
}

var placeholder = regexp.MustCompile(`\$[a-z_]+`)

// Nothing is left to be filled in, and every template reads labels that the alert has.
func TestTextsAreComplete(t *testing.T) {
	groups, err := everything().AlertRules()
	must.OK(t, err)
	read := regexp.MustCompile(`\$labels\.([a-zA-Z_]+)`)
	for _, g := range groups {
		for _, r := range g.Rules {
			if left := placeholder.FindString(r.Expr); left != "" {
				t.Errorf("%s: %s is left in the expression", r.Alert, left)
			}
			labels := append(find(t, r.Alert).Labels, "cluster")
			for _, p := range r.Annotations {
				for _, m := range read.FindAllStringSubmatch(p.Value, -1) {
					if !slices.Contains(labels, m[1]) {
						t.Errorf("%s: %s reads the label %s, which the alert does not have", r.Alert, p.Name, m[1])
					}
				}
				for _, left := range placeholder.FindAllString(p.Value, -1) {
					if !slices.Contains([]string{"$labels", "$value", "$i", "$p", "$r"}, left) { // of templates
						t.Errorf("%s: %s is left in %s", r.Alert, left, p.Name)
					}
				}
			}
		}
	}
}

// A GPU that the driver did not initialize has no index: texts about it have no gap where the index would be.
func TestTextsWithoutIndex(t *testing.T) {
	groups, err := everything().AlertRules()
	must.OK(t, err)
	const defs = "{{$labels := .Labels}}{{$value := .Value}}"
	gap, checked := regexp.MustCompile(`GPU  |  of |\( *\)| [,.;:]|: *$|Cluster: `), 0
	for _, g := range groups {
		for _, r := range g.Rules {
			if !slices.Contains(find(t, r.Alert).Labels, "gpu") {
				continue
			}
			labels := map[string]string{}
			for _, name := range find(t, r.Alert).Labels {
				labels[name] = "a-" + name
			}
			labels["gpu"], labels["uuid"] = "", "0000:4b:00.0"
			for _, p := range r.Annotations {
				text, err := template.NewTemplateExpander(t.Context(), defs+p.Value, r.Alert,
					template.AlertTemplateData(labels, nil, "", promql.Sample{F: 0.5}), 0,
					func(context.Context, string, time.Time) (promql.Vector, error) { return nil, nil }, &url.URL{}, nil).Expand()
				if err != nil {
					t.Errorf("%s, %s: %v", r.Alert, p.Name, err)
				}
				checked++
				if p.Name == "description" && (gap.MatchString(text) || !strings.Contains(text, "GPU 0000:4b:00.0 of a-node")) {
					t.Errorf("%s: %s", r.Alert, text)
				}
			}
		}
	}
	if checked < 40 {
		t.Errorf("only %d texts about GPUs were checked", checked)
	}
}

// Every text is filled in, by Prometheus and by vmalert: the tests are told that nothing fires, and say what they got.
func TestTextsAreFilled(t *testing.T) {
	t.Parallel()
	c := everything()
	c.DashboardURL = "https://grafana.example"
	groups, err := c.AlertRules()
	must.OK(t, err)
	rules := map[string]alerts.Rule{}
	for _, g := range groups {
		for _, r := range g.Rules {
			rules[r.Alert] = r
		}
	}
	all := cases(t)
	for _, a := range alerts.Alerts() {
		t.Run(a.Name, func(t *testing.T) {
			t.Parallel()
			s, at := firing(t, all[a.Name])
			s.checks = at + " -"
			dir := t.TempDir()
			paths := files(t, dir, "texts", a, []alerts.Rule{rules[a.Name]}, []testCase{s}, `cluster="c1"`)
			out, _ := byMetricsQL(t, dir, paths)
			for program, said := range map[string]string{"promtool": run(t, paths)[0], "vmalert": string(out)} {
				for _, bad := range []string{"error expanding", "error evaluating", "<no value>", "{{", "%!"} {
					if strings.Contains(said, bad) {
						t.Errorf("%s: a text has %q:\n%s", program, bad, said)
					}
				}
				for _, good := range []string{a.Summary, "https://grafana.example/d/" + a.Dashboard.UID, "#" + strings.ToLower(a.Name)} {
					if !strings.Contains(said, good) {
						t.Errorf("%s: no text has %q:\n%s", program, good, said)
					}
				}
			}
		})
	}
}

// firing returns a case in which the alert fires, and when.
func firing(t *testing.T, list []testCase) (testCase, string) {
	t.Helper()
	for _, s := range list {
		for _, m := range s.moments() {
			if len(m.want) > 0 {
				return s, m.at
			}
		}
	}
	t.Fatal("the alert never fires")
	return testCase{}, ""
}
