package dashboards_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"
	"github.com/grafana/grafana-foundation-sdk/go/dashboardv2"
	"github.com/grafana/grafana-foundation-sdk/go/resource"

	"github.com/gpu-exporter/gpu-exporter/internal/must"
)

// well returns what a strict reader of the SDK found: an empty list of errors is none.
func well(err error) error {
	var list cog.BuildErrors
	if errors.As(err, &list) && len(list) == 0 {
		return nil
	}
	return err
}

// The SDK's strict readers accept the resources, and refuse what is not of schema v2.
func TestResourcesAreReadBackStrictly(t *testing.T) {
	plugins.RegisterDefaultPlugins()
	read := func(text string) error {
		var m resource.Manifest
		if err := well(m.UnmarshalJSONStrict([]byte(text))); err != nil {
			return err
		}
		var parts struct{ Spec json.RawMessage }
		var spec dashboardv2.Dashboard
		if err := json.Unmarshal([]byte(text), &parts); err != nil {
			return err
		}
		if err := well(spec.UnmarshalJSONStrict(parts.Spec)); err != nil {
			return err
		}
		return errors.Join(well(m.Validate()), well(spec.Validate()))
	}
	for i, f := range files(t) {
		text := string(f.Resource)
		if err := read(text); err != nil {
			t.Errorf("%s: %v", f.Name, err)
		}
		for _, field := range []string{"metadata", "elements", "vizConfig", "queryOptions", "reduceOptions", "refId", "collapse",
			"includeAll"} {
			if i > 0 {
				break // the reader is the same
			}
			if broken := strings.Replace(text, `"`+field+`"`, `"`+field+`ed"`, 1); broken == text || read(broken) == nil {
				t.Errorf("%s: a misspelled %s passed", f.Name, field)
			}
		}
		for _, q := range find(decode(t, f.Resource), "query") {
			spec, _ := json.Marshal(at(q, "spec"))
			if at(q, "spec", "expr") == nil {
				continue // of a variable or an annotation
			}
			if _, err := cog.StrictUnmarshalDataquery(spec, "prometheus"); well(err) != nil {
				t.Errorf("%s: %s: %v", f.Name, spec, err)
			}
		}
	}
}

func decode(t *testing.T, text []byte) (out any) {
	t.Helper()
	must.OK(t, json.Unmarshal(text, &out))
	return out
}

// at returns a member of a JSON value, or nil.
func at(v any, path ...string) any {
	for _, name := range path {
		m, _ := v.(map[string]any)
		v = m[name]
	}
	return v
}

// find returns the members with a name that are objects, at any depth.
func find(v any, name string) (out []any) {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			out = append(out, find(e, name)...)
		}
	case map[string]any:
		for k, e := range v {
			if _, ok := e.(map[string]any); ok && k == name {
				out = append(out, e)
			}
			out = append(out, find(e, name)...)
		}
	}
	return out
}

func list(v any) []any {
	l, _ := v.([]any)
	return l
}

// without copies an object and leaves members out.
func without(v any, names ...string) map[string]any {
	out := map[string]any{}
	m, _ := v.(map[string]any)
	for k, e := range m {
		out[k] = e
	}
	for _, n := range names {
		delete(out, n)
	}
	return out
}

// Both schemas have the same rows, panels, queries, options, variables, annotations and links.
func TestResourcesEqualTheClassicDashboards(t *testing.T) {
	hide := map[any]any{0.0: "dontHide", 2.0: "hideVariable"}
	refresh := map[any]any{1.0: "onDashboardLoad", 2.0: "onTimeRangeChanged"}
	for _, f := range files(t) {
		classic, manifest := decode(t, f.Pretty), decode(t, f.Resource)
		spec := at(manifest, "spec")
		same := func(what string, want, got any) {
			t.Helper()
			if !reflect.DeepEqual(want, got) {
				t.Errorf("%s: %s: classic %v\nv2 %v", f.Name, what, want, got)
			}
		}
		same("uid", at(classic, "uid"), at(manifest, "metadata", "name"))
		for _, name := range []string{"title", "description", "tags"} {
			same(name, at(classic, name), at(spec, name))
		}
		same("from", at(classic, "time", "from"), at(spec, "timeSettings", "from"))
		same("refresh", at(classic, "refresh"), at(spec, "timeSettings", "autoRefresh"))
		same("links", len(list(at(classic, "links"))), len(list(at(spec, "links"))))
		for i, l := range list(at(classic, "links")) {
			for name, v := range l.(map[string]any) {
				if v != nil {
					same("link "+name, v, at(list(at(spec, "links"))[i], name))
				}
			}
		}

		panels := 0
		var row any
		rows, items := list(at(spec, "layout", "spec", "rows")), []any(nil)
		top := 0.0
		next := func(title any, collapsed bool, y float64) {
			if len(items) > 0 || len(rows) == 0 {
				t.Fatalf("%s: row %v: %d panels too many, %d rows left", f.Name, title, len(items), len(rows))
			}
			row, rows, top = rows[0], rows[1:], y
			items = list(at(row, "spec", "layout", "spec", "items"))
			same("row", []any{title, collapsed, title == ""}, []any{at(row, "spec", "title"), at(row, "spec", "collapse"),
				at(row, "spec", "hideHeader") == true})
		}
		compare := func(p any) {
			panels++
			name := fmt.Sprintf("panel-%v", at(p, "id"))
			q := at(spec, "elements", name, "spec")
			same("place of "+name, map[string]any{"x": at(p, "gridPos", "x"), "y": at(p, "gridPos", "y").(float64) - top,
				"width": at(p, "gridPos", "w"), "height": at(p, "gridPos", "h"), "element": map[string]any{"kind": "ElementReference",
					"name": name}}, at(items[0], "spec"))
			items = items[1:]
			for _, m := range []string{"id", "title", "description"} {
				same(name+" "+m, at(p, m), at(q, m))
			}
			same(name+" type", at(p, "type"), at(q, "vizConfig", "group"))
			same(name+" version", at(p, "pluginVersion"), at(q, "vizConfig", "version"))
			same(name+" options", at(p, "options"), at(q, "vizConfig", "spec", "options"))
			if at(p, "fieldConfig") != nil {
				same(name+" fields", at(p, "fieldConfig"), at(q, "vizConfig", "spec", "fieldConfig"))
			}
			same(name+" interval", at(p, "interval"), at(q, "data", "spec", "queryOptions", "interval"))
			queries, transformations := list(at(q, "data", "spec", "queries")), list(at(q, "data", "spec", "transformations"))
			same(name+" queries", len(list(at(p, "targets"))), len(queries))
			for i, target := range list(at(p, "targets")) {
				same(name+" query", without(target, "refId", "datasource"), at(queries[i], "spec", "query", "spec"))
				same(name+" refId", at(target, "refId"), at(queries[i], "spec", "refId"))
				same(name+" data source", at(target, "datasource", "uid"), at(queries[i], "spec", "query", "datasource", "name"))
			}
			same(name+" transformations", len(list(at(p, "transformations"))), len(transformations))
			for i, tr := range list(at(p, "transformations")) {
				same(name+" transformation", []any{at(tr, "id"), at(tr, "options")},
					[]any{at(transformations[i], "group"), at(transformations[i], "spec", "options")})
			}
		}
		for i, p := range list(at(classic, "panels")) {
			if at(p, "type") == "row" {
				next(at(p, "title"), at(p, "collapsed").(bool), at(p, "gridPos", "y").(float64)+1)
				for _, inner := range list(at(p, "panels")) {
					compare(inner)
				}
				continue
			}
			if i == 0 {
				next("", false, 0)
			}
			compare(p)
		}
		elements, _ := at(spec, "elements").(map[string]any)
		same("panels", panels, len(elements))
		same("rows and panels left", 0, len(rows)+len(items))

		variables, annotations := list(at(spec, "variables")), list(at(spec, "annotations"))
		same("variables", len(list(at(classic, "templating", "list"))), len(variables))
		for i, v := range list(at(classic, "templating", "list")) {
			got := at(variables[i], "spec")
			name := at(v, "name").(string)
			for _, m := range []string{"name", "label", "description"} {
				same(name+" "+m, at(v, m), at(got, m))
			}
			same(name+" hide", hide[at(v, "hide")], at(got, "hide"))
			switch at(v, "type") {
			case "textbox":
				same(name, []any{"TextVariable", at(v, "query")}, []any{at(variables[i], "kind"), at(got, "query")})
			case "datasource":
				same(name, []any{"DatasourceVariable", at(v, "query")}, []any{at(variables[i], "kind"), at(got, "pluginId")})
			default:
				same(name, []any{"QueryVariable", at(v, "query")},
					[]any{at(variables[i], "kind"), at(got, "query", "spec", "__legacyStringValue")})
				for _, m := range []string{"multi", "includeAll", "allValue", "definition", "skipUrlSync"} {
					same(name+" "+m, at(v, m), at(got, m))
				}
				same(name+" refresh", refresh[at(v, "refresh")], at(got, "refresh"))
				same(name+" sort", []any{5.0, "alphabeticalCaseInsensitiveAsc"}, []any{at(v, "sort"), at(got, "sort")})
				if at(v, "regex") != nil {
					same(name+" regex", at(v, "regex"), at(got, "regex"))
				}
			}
			if at(v, "current") != nil && at(v, "type") != "datasource" {
				same(name+" current", []any{at(v, "current", "text"), at(v, "current", "value")},
					[]any{at(got, "current", "text"), at(got, "current", "value")})
			}
		}
		same("annotations", len(list(at(classic, "annotations", "list"))), len(annotations))
		for i, a := range list(at(classic, "annotations", "list")) {
			got := at(annotations[i], "spec")
			same("annotation", []any{at(a, "name"), at(a, "enable"), at(a, "iconColor")},
				[]any{at(got, "name"), at(got, "enable"), at(got, "iconColor")})
			same("annotation", without(a, "name", "enable", "iconColor", "datasource"), at(got, "legacyOptions"))
		}
	}
}
