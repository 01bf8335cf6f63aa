// Package helm_test writes what the chart copies from the rest of the repository, and compares it byte for byte: the
// boards, the rules, the schema of what may be turned on them, and the list of values in the chart's README.
package helm_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/alerts"
	"github.com/gpu-exporter/gpu-exporter/dashboards"
)

var update = flag.Bool("update", false, "write the generated files instead of comparing them")

const chart = "gpu-exporter"

// compare holds a file to what it should be, or writes it.
func compare(t *testing.T, path string, want []byte) {
	t.Helper()
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(want) {
		t.Errorf("%s is not what it is made from: run make generate", path)
	}
}

// onlyThese refuses files of a folder that nobody writes any more, or deletes them.
func onlyThese(t *testing.T, dir string, names []string) {
	t.Helper()
	there, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range there {
		if slices.Contains(names, f.Name()) {
			continue
		}
		path := filepath.Join(dir, f.Name())
		if !*update {
			t.Errorf("%s is made from nothing: run make generate", path)
		} else if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The list of values in the README is that of values.yaml.
func TestReadmeGenerated(t *testing.T) {
	path := filepath.Join(chart, "README.md")
	before, rest, ok := strings.Cut(read(t, path), "<!-- values: written by make generate from values.yaml -->\n")
	_, after, ok2 := strings.Cut(rest, "<!-- end of values -->")
	if !ok || !ok2 {
		t.Fatalf("%s has no place for the values", path)
	}
	var b strings.Builder
	b.WriteString(before + "<!-- values: written by make generate from values.yaml -->\n\n| value | default | meaning |\n|---|---|---|\n")
	for _, v := range values(t) {
		byDefault := ""
		if v.byDefault != "" {
			byDefault = "`" + strings.ReplaceAll(v.byDefault, "|", "\\|") + "`"
		}
		b.WriteString("| `" + v.key + "` | " + byDefault + " | " + strings.ReplaceAll(v.comment, "|", "\\|") + " |\n")
	}
	b.WriteString("\n<!-- end of values -->" + after)
	compare(t, path, []byte(b.String()))
}

// value is one line of values.yaml that can be set.
type value struct {
	key, byDefault, comment string
}

// values reads values.yaml as the chart writes it: keys in blocks, each with its comment above it. A list or a map of
// the user's own is one value, whose lines are not.
func values(t *testing.T) []value {
	t.Helper()
	var (
		out     []value
		parents []string // of the line, by depth
		comment []string
	)
	lines := strings.Split(read(t, filepath.Join(chart, "values.yaml")), "\n")
	for i := 0; i < len(lines); i++ {
		text := strings.TrimSpace(lines[i])
		switch {
		case text == "":
			comment = nil
			continue
		case strings.HasPrefix(text, "#"):
			comment = append(comment, strings.TrimSpace(strings.TrimPrefix(text, "#")))
			continue
		}
		indent := len(lines[i]) - len(strings.TrimLeft(lines[i], " "))
		name, rest, ok := strings.Cut(text, ":")
		if !ok || indent%2 != 0 || indent/2 > len(parents) {
			t.Fatalf("values.yaml:%d: %q is no key at its place", i+1, text)
		}
		parents = append(parents[:indent/2], name)
		key := strings.Join(parents, ".")
		note := strings.Join(comment, " ")
		comment = nil
		if rest = strings.TrimSpace(rest); rest != "" {
			out = append(out, value{key, rest, note})
			continue
		}
		if !ofTheUser(key) {
			if note != "" {
				out = append(out, value{key, "", note})
			}
			continue
		}
		for i+1 < len(lines) && len(lines[i+1]) > indent && strings.TrimSpace(lines[i+1][:indent+1]) == "" {
			i++
			rest += " " + strings.TrimSpace(lines[i])
		}
		out = append(out, value{key, strings.TrimSpace(rest), note})
	}
	for _, v := range out {
		if v.byDefault == "" && v.comment == "" {
			t.Errorf("values.yaml: %s has neither a default nor a meaning", v.key)
		}
	}
	if len(out) < 60 {
		t.Fatalf("values.yaml has %d values", len(out))
	}
	return out
}

// ofTheUser tells the lists and maps whose keys are not the chart's.
func ofTheUser(key string) bool {
	return slices.Contains([]string{"scheduling.gpuNodeLabels", "scheduling.nodeSelector", "scheduling.tolerations", "updateStrategy.rollingUpdate",
		"resources", "report.resources", "dashboards.labels", "dashboards.instanceSelector"}, key)
}

// The chart carries the boards as they are, without the blanks that make them readable: a ConfigMap has little room.
func TestBoardsGenerated(t *testing.T) {
	var names, rules []string
	for _, r := range alerts.Records() {
		rules = append(rules, r.Name)
	}
	boards, err := dashboards.Files(dashboards.Boards(), rules)
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range boards {
		names = append(names, b.Name)
		compare(t, filepath.Join(chart, "files", "dashboards", b.Name), append(b.Compact, '\n'))
	}
	var b strings.Builder
	b.WriteString("# Written by make generate. The boards as ConfigMaps, for those who do without the chart.\n" +
		"apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\nconfigMapGenerator:\n")
	for _, name := range names {
		fmt.Fprintf(&b, "  - name: gpu-exporter-board-%s\n    files: [%s]\n", strings.TrimPrefix(strings.TrimSuffix(name, ".json"), "gpu-"), name)
	}
	b.WriteString("generatorOptions:\n  disableNameSuffixHash: true\n  labels: {grafana_dashboard: \"1\"}\n  annotations: {grafana_folder: GPU}\n")
	compare(t, filepath.Join(chart, "files", "dashboards", "kustomization.yaml"), []byte(b.String()))
	onlyThese(t, filepath.Join(chart, "files", "dashboards"), append(names, "kustomization.yaml"))
}

// rule is an alert as the chart's template reads it: its knobs are still open.
type rule struct {
	Alert         string `json:"alert"`
	Off           bool   `json:"off,omitempty"`
	Severity      string `json:"severity"`
	For           string `json:"for,omitempty"`
	KeepFiringFor string `json:"keepFiringFor,omitempty"`
	Knobs         []knob `json:"knobs,omitempty"`
	Expr          string `json:"expr"`
	Summary       string `json:"summary"`
	Description   string `json:"description"`
	Link          string `json:"link"`
}

// knob is a threshold with its default; Seconds is set for a window.
type knob struct {
	Name    string `json:"name"`
	Value   string `json:"value"`
	Seconds string `json:"seconds,omitempty"`
}

// record is a recording rule.
type record struct {
	Record string `json:"record"`
	Expr   string `json:"expr"`
}

type group[T any] struct {
	Name     string `json:"name"`
	Interval string `json:"interval,omitempty"`
	Rules    []T    `json:"rules"`
}

// The chart finishes the rules itself, because only there the user's knobs are known.
func TestRulesGenerated(t *testing.T) {
	var out struct {
		Job       string          `json:"job"`
		Resource  string          `json:"resource"`
		Recording []group[record] `json:"recording"`
		Alerting  []group[rule]   `json:"alerting"`
	}
	c := alerts.Default()
	out.Job, out.Resource = c.Job, c.Resource
	for _, g := range alerts.Groups() {
		records := group[record]{Name: g.Name, Interval: span(g.Interval)}
		for _, r := range g.Records {
			records.Rules = append(records.Rules, record{r.Name, r.Expr})
		}
		out.Recording = append(out.Recording, records)
	}
	links := links(t, c)
	for _, g := range alerts.AlertGroups() {
		rules := group[rule]{Name: g.Name}
		for _, a := range g.Alerts {
			r := rule{a.Name, a.Off, string(a.Severity), span(a.For), span(a.Keep), nil, a.Expr, a.Summary, a.Description, links[a.Name]}
			for _, k := range a.Knobs {
				if k.Duration > 0 {
					r.Knobs = append(r.Knobs, knob{k.Name, span(k.Duration), fmt.Sprint(int(k.Duration.Seconds()))})
				} else {
					r.Knobs = append(r.Knobs, knob{Name: k.Name, Value: strconv.FormatFloat(k.Number, 'g', -1, 64)})
				}
			}
			rules.Rules = append(rules.Rules, r)
		}
		out.Alerting = append(out.Alerting, rules)
	}
	compare(t, filepath.Join(chart, "files", "rules.json"), encode(t, out))
}

// links are the alerts' links to the boards, from the root of Grafana.
func links(t *testing.T, c alerts.Config) map[string]string {
	t.Helper()
	c.Alerts = map[string]alerts.Override{}
	for _, a := range alerts.Alerts() {
		c.Alerts[a.Name] = alerts.Override{Enabled: new(true)}
	}
	groups, err := c.AlertRules()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, g := range groups {
		for _, r := range g.Rules {
			for _, a := range r.Annotations {
				if a.Name == "dashboard_url" {
					out[r.Alert] = a.Value
				}
			}
		}
	}
	return out
}

// span writes a duration as Prometheus does; empty for none.
func span(d time.Duration) string {
	var b strings.Builder
	for _, u := range []struct {
		unit time.Duration
		name string
	}{{24 * time.Hour, "d"}, {time.Hour, "h"}, {time.Minute, "m"}, {time.Second, "s"}} {
		if n := d / u.unit; n > 0 {
			fmt.Fprintf(&b, "%d%s", n, u.name)
			d -= n * u.unit
		}
	}
	return b.String()
}

func encode(t *testing.T, v any) []byte {
	t.Helper()
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(v); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// The schema knows every alert and every threshold by its name and its bounds; all else in it is written by hand.
func TestSchemaGenerated(t *testing.T) {
	type object = map[string]any
	path := filepath.Join(chart, "values.schema.json")
	var schema object
	if err := json.Unmarshal([]byte(read(t, path)), &schema); err != nil {
		t.Fatal(err)
	}
	closed := func(properties object) object {
		return object{"type": "object", "additionalProperties": false, "properties": properties}
	}
	length := object{"type": "string", "pattern": "^([0-9]+(ms|[smhdw]))+$"}
	known := object{}
	for _, a := range alerts.Alerts() {
		p := object{"enabled": object{"type": "boolean"}, "severity": object{"enum": []any{"critical", "warning", "info"}}, "for": length, "keepFiringFor": length,
			"labels": object{"type": "object", "additionalProperties": object{"type": "string"}}}
		for _, k := range a.Knobs {
			if p[k.Name] != nil {
				t.Fatalf("%s has a threshold %s, which the chart calls something else", a.Name, k.Name)
			}
			if k.Duration > 0 {
				p[k.Name] = object{"type": "string", "pattern": length["pattern"], "description": k.Help}
			} else {
				p[k.Name] = object{"type": "number", "minimum": k.Min, "maximum": k.Max, "description": k.Help}
			}
		}
		known[a.Name] = closed(p)
	}
	schema["properties"].(object)["rules"].(object)["properties"].(object)["alerts"] = closed(known)
	compare(t, path, encode(t, schema))
}
