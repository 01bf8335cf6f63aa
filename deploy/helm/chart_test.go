// Package helm_test writes what the chart copies from the rest of the repository, and compares it byte for byte: the
// boards, the rules, the schema of what may be turned on them, and the list of values in the chart's README.
package helm_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

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
func onlyThese(t *testing.T, folder string, names []string) {
	t.Helper()
	there, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range there {
		if slices.Contains(names, f.Name()) {
			continue
		}
		path := filepath.Join(folder, f.Name())
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
		"resources", "dashboards.labels", "dashboards.instanceSelector"}, key)
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
