// Package rules_test tests the recording rules and the alerts with promtool and vmalert-tool, built from tools/:
// what fires, what rests and what ends, and that the tests notice when a rule is not what it should be.
package rules_test

import (
	"flag"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/template"

	"github.com/gpu-exporter/gpu-exporter/alerts"
)

var given = flag.String("promtool", "", "play the cases with this promtool, such as that of an older Prometheus")

var promtool = sync.OnceValues(func() (string, error) {
	if *given != "" {
		return *given, nil
	}
	return build("prometheus", "github.com/prometheus/prometheus/cmd/promtool")
})

var vmalertTool = sync.OnceValues(func() (string, error) {
	return build("victoriametrics", "github.com/VictoriaMetrics/VictoriaMetrics/app/vmalert-tool")
})

// build makes a program of one of the modules in tools/.
func build(module, program string) (string, error) {
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		return "", err
	}
	path := filepath.Join(root, "bin", filepath.Base(program))
	cmd := exec.Command("go", "build", "-tags", "remove_all_sd", "-o", path, program)
	cmd.Dir = filepath.Join(root, "tools", module)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building %s: %w\n%s", program, err, out)
	}
	return path, nil
}

func tool(t *testing.T) string {
	t.Helper()
	path, err := promtool()
	if err != nil {
		t.Fatal(err)
	}
	return path
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
	if err != nil {
		t.Fatal(err)
	}
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
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return test
}

// group is an alert in a group of its own, behind the records that it and its records read.
func group(t *testing.T, rule alerts.Rule, c alerts.Config) []alerts.RuleGroup {
	t.Helper()
	records, err := c.RecordingRules()
	if err != nil {
		t.Fatal(err)
	}
	var out []alerts.RuleGroup
	for _, g := range records {
		// Those of other groups are given by the cases.
		if slices.Contains([]string{"gpu-exporter-models", "gpu-exporter-problems"}, g.Name) && strings.Contains(rule.Expr, "gpu:gpu_") {
			out = append(out, g)
		} else if g.Interval > 0 { // and a case is shorter than half an hour
			read := alerts.RuleGroup{Name: g.Name}
			for _, r := range g.Rules {
				if strings.Contains(rule.Expr, r.Record) {
					read.Rules = append(read.Rules, r)
				}
			}
			if len(read.Rules) > 0 {
				out = append(out, read)
			}
		}
	}
	return append(out, alerts.RuleGroup{Name: "g", Rules: []alerts.Rule{rule}})
}

// byStep sorts cases by their step, since promtool has one interval of evaluation per file.
func byStep(list []testCase) map[time.Duration][]testCase {
	out := map[time.Duration][]testCase{}
	for _, s := range list {
		step := s.step
		if step == 0 {
			step = time.Minute
		}
		out[step] = append(out[step], s)
	}
	return out
}

// play runs the cases of an alert against a rule, and returns what promtool says where one fails.
func play(t *testing.T, dir, name string, a alerts.Alert, rule alerts.Rule, list []testCase, cluster string) (failed string) {
	c := everything()
	if cluster != "" {
		c.ClusterLabel, _, _ = strings.Cut(cluster, "=")
	}
	t.Helper()
	for step, cases := range byStep(list) {
		var b strings.Builder
		for _, s := range cases {
			s.unitTest(&b, a, cluster)
		}
		path := write(t, dir, fmt.Sprintf("%s-%s", name, span(step)), group(t, rule, c), step, b.String())
		out, err := exec.Command(tool(t), "test", "rules", path).CombinedOutput()
		if err != nil {
			failed += string(out)
		}
	}
	return failed
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

func TestAlerts(t *testing.T) {
	all := cases(t)
	rules := bare(t, everything())
	other := everything()
	other.ClusterLabel = "k8s_cluster"
	otherRules := bare(t, other)
	tool(t)
	for _, a := range alerts.Alerts() {
		t.Run(a.Name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if out := play(t, dir, "plain", a, rules[a.Name], all[a.Name], ""); out != "" {
				t.Errorf("without a cluster's label:\n%s", out)
			}
			if out := play(t, dir, "cluster", a, rules[a.Name], all[a.Name], `cluster="c1"`); out != "" {
				t.Errorf("with a cluster's label:\n%s", out)
			}
			if out := play(t, dir, "renamed", a, otherRules[a.Name], all[a.Name], `k8s_cluster="c1"`); out != "" {
				t.Errorf("with a cluster's label of another name:\n%s", out)
			}
		})
	}
}

// MetricsQL is no PromQL: it extrapolates less and looks further back. The cases go the same way under it.
func TestAlertsByMetricsQL(t *testing.T) {
	path, err := vmalertTool()
	if err != nil {
		t.Fatal(err)
	}
	all := cases(t)
	rules := bare(t, everything())
	for _, a := range alerts.Alerts() {
		t.Run(a.Name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			for step, cases := range byStep(all[a.Name]) {
				var b strings.Builder
				for _, s := range cases {
					s.unitTest(&b, a, "")
				}
				tests := strings.ReplaceAll(b.String(), "    alertname: ", "    groupname: g\n    alertname: ")
				file := write(t, dir, span(step), group(t, rules[a.Name], everything()), step, tests)
				cmd := exec.Command(path, "unittest", "--files="+file)
				cmd.Env = append(os.Environ(), "TMPDIR="+dir) // its database is there
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Errorf("%v\n%s", err, out)
				}
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
		if err != nil {
			t.Fatal(err)
		}
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

// Every fault that is planted into a rule is noticed by its cases.
func TestCasesNoticeFaults(t *testing.T) {
	all := cases(t)
	rules := bare(t, everything())
	tool(t)
	for _, a := range alerts.Alerts() {
		list := mutants(t, rules[a.Name])
		if len(list) == 0 {
			t.Errorf("%s: nothing in it can be planted a fault", a.Name)
		}
		t.Run(a.Name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			for i, m := range list {
				switch said := play(t, dir, fmt.Sprint("mutant", i), a, m.rule, all[a.Name], ""); {
				case said == "":
					t.Errorf("no case notices: %s", m.what)
				case !strings.Contains(said, "exp:"):
					t.Errorf("the fault is no rule any more: %s\n%s", m.what, said)
				}
			}
		})
	}
}

var placeholder = regexp.MustCompile(`\$[a-z_]+`)

// Nothing is left to be filled in, and every template reads labels that the alert has.
func TestTextsAreComplete(t *testing.T) {
	groups, err := everything().AlertRules()
	if err != nil {
		t.Fatal(err)
	}
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
					if left != "$labels" && left != "$value" {
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
	if err != nil {
		t.Fatal(err)
	}
	const defs = "{{$labels := .Labels}}{{$value := .Value}}"
	gap, checked := regexp.MustCompile(`GPU  |  of |\( *\)| [,.;:]|: *$`), 0
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
					template.AlertTemplateData(labels, nil, "", promql.Sample{F: 0.5}), 0, nil, &url.URL{}, nil).Expand()
				if err != nil {
					t.Errorf("%s, %s: %v", r.Alert, p.Name, err)
				}
				checked++
				if p.Name == "description" && (gap.MatchString(text) || !strings.Contains(text, "GPU of a-node (0000:4b:00.0)")) {
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
	vm, err := vmalertTool()
	if err != nil {
		t.Fatal(err)
	}
	c := everything()
	c.DashboardURL = "https://grafana.example"
	groups, err := c.AlertRules()
	if err != nil {
		t.Fatal(err)
	}
	rules := map[string]alerts.Rule{}
	for _, g := range groups {
		for _, r := range g.Rules {
			rules[r.Alert] = r
		}
	}
	all := cases(t)
	tool(t)
	for _, a := range alerts.Alerts() {
		t.Run(a.Name, func(t *testing.T) {
			t.Parallel()
			s, at := firing(t, all[a.Name])
			s.checks = at + " -"
			var b strings.Builder
			s.unitTest(&b, a, `cluster="c1"`)
			step := max(s.step, time.Minute)
			for name, run := range map[string]func(string) *exec.Cmd{
				"promtool": func(file string) *exec.Cmd { return exec.Command(tool(t), "test", "rules", file) },
				"vmalert":  func(file string) *exec.Cmd { return exec.Command(vm, "unittest", "--files="+file) },
			} {
				tests := b.String()
				if name == "vmalert" {
					tests = strings.ReplaceAll(tests, "    alertname: ", "    groupname: g\n    alertname: ")
				}
				dir := t.TempDir()
				cmd := run(write(t, dir, "texts", group(t, rules[a.Name], everything()), step, tests))
				cmd.Env = append(os.Environ(), "TMPDIR="+dir)
				out, err := cmd.CombinedOutput()
				said := string(out)
				for _, bad := range []string{"error expanding", "error evaluating", "<no value>", "{{", "%!"} {
					if strings.Contains(said, bad) {
						t.Errorf("%s: a text has %q:\n%s", name, bad, said)
					}
				}
				for _, good := range []string{a.Summary, "https://grafana.example/d/" + a.Dashboard.UID, "#" + strings.ToLower(a.Name)} {
					if err == nil || !strings.Contains(said, good) {
						t.Errorf("%s: no text has %q:\n%s", name, good, said)
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
