package deploy_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/gpu-exporter/gpu-exporter/internal/must"
)

// attack is YAML and template syntax that would add a field wherever a value lands unquoted.
const attack = "x\"'\n                hostNetwork: true # {{ fail \"template\" }} [&a *b] %s"

// A string value becomes a string and nothing else: with the attack in every string that the schema leaves free, the
// objects have the same structure.
func TestValuesAreQuoted(t *testing.T) {
	t.Parallel()
	values := map[string]any{}
	for _, path := range []string{filepath.Join(chart(t), "values.yaml"), cases(t)["everything"]} {
		var more map[string]any
		must.OK(t, yaml.Unmarshal([]byte(must.Read(t, path)), &more))
		merge(values, more)
	}
	merge(values, map[string]any{"image": map[string]any{"digest": "", "tag": "1.0.0"}, "rules": map[string]any{"namespace": "a"},
		"monitoring": map[string]any{"namespace": "b"}, "dashboards": map[string]any{"namespace": "c"},
		"report": map[string]any{"timeZone": "Etc/UTC"}, "serviceAccount": map[string]any{"name": "d"}})
	rendered := func(values map[string]any) (string, error) {
		text, err := yaml.Marshal(values)
		must.OK(t, err)
		path := filepath.Join(t.TempDir(), "values.yaml")
		must.OK(t, os.WriteFile(path, text, 0o600))
		return helm(t, "template", append([]string{"gpu-exporter", chart(t), "-n", "monitoring", "-f", path}, operator...)...)
	}
	want, err := rendered(values)
	if err != nil {
		t.Fatal(want)
	}
	kept := map[string]bool{}
	var paths []string
	var replace func(path string, v any) any
	replace = func(path string, v any) any {
		switch v := v.(type) {
		case map[string]any:
			out := map[string]any{}
			for k, e := range v {
				out[k] = replace(path+"/"+k, e)
			}
			return out
		case []any:
			out := make([]any, len(v))
			for i, e := range v {
				out[i] = replace(fmt.Sprintf("%s/%d", path, i), e)
			}
			return out
		case string:
			if v != "" && !kept[path] {
				paths = append(paths, path)
				return v + attack
			}
		}
		return v
	}
	refused := regexp.MustCompile(`at '([^']+)'|: ([a-z][A-Za-z]*(?:\.[A-Za-z]+)+)[ =]`) // by the schema, by a template
	var got string
	for range 20 {
		paths = nil
		var err error
		if got, err = rendered(replace("", values).(map[string]any)); err == nil {
			break
		}
		found := refused.FindAllStringSubmatch(got, -1)
		if found == nil {
			t.Fatal(got)
		}
		for _, m := range found {
			kept[m[1]] = true
			kept["/"+strings.ReplaceAll(m[2], ".", "/")] = true
		}
	}
	if len(paths) < 40 {
		t.Errorf("only %d strings could be attacked: %v", len(paths), paths)
	}
	before, after := structure(t, want), structure(t, got)
	for i := range before {
		if i >= len(after) || before[i] != after[i] {
			t.Fatalf("the structure differs at %s, want %s", after[min(i, len(after)-1)], before[i])
		}
	}
	t.Logf("%d strings attacked, %d refused by the schema", len(paths), len(kept))
}

// merge adds the values of more, as Helm merges values files.
func merge(values, more map[string]any) {
	for k, v := range more {
		if into, ok := values[k].(map[string]any); ok {
			if from, ok := v.(map[string]any); ok {
				merge(into, from)
				continue
			}
		}
		values[k] = v
	}
}

// structure lists the paths of all fields of all objects, without the values.
func structure(t *testing.T, rendered string) (out []string) {
	t.Helper()
	var walk func(path string, v any)
	walk = func(path string, v any) {
		path = strings.ReplaceAll(path, attack, "") // a value that is a key, such as the annotation of Grafana's folder
		switch v := v.(type) {
		case map[string]any:
			for k, e := range v {
				walk(path+"/"+k, e)
			}
		case []any:
			for i, e := range v {
				walk(fmt.Sprintf("%s/%d", path, i), e)
			}
		default:
			out = append(out, fmt.Sprintf("%s %T", path, v))
		}
	}
	for i, doc := range strings.Split("\n"+rendered, "\n---\n") {
		var o any
		if err := yaml.Unmarshal([]byte(doc), &o); err != nil {
			t.Fatalf("%v in\n%s", err, doc)
		}
		walk(fmt.Sprint(i), o)
	}
	slices.Sort(out)
	return out
}
