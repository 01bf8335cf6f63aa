// Package dashboard reads the generated dashboards, fills in the variables and macros of their queries as Grafana does, and
// queries a Prometheus-compatible API.
package dashboard

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// Dashboard is what a dashboard queries.
type Dashboard struct {
	UID string
	// From is the start of its default time range: now-6h.
	From      string
	Variables []Variable
	// Panels are those with queries, the ones in collapsed rows included.
	Panels []Panel
}

// Variable is a template variable.
type Variable struct {
	Name, Type string
	// Query is label_values(...) or query_result(...) of a query variable, the default of a text box.
	Query string
	// AllValue is what All stands for; empty: all values.
	AllValue string
	Multi    bool
	All      bool `json:"includeAll"`
}

// Panel is one panel.
type Panel struct {
	Title   string
	Targets []Target
	// MaxDataPoints limits the points of a series; 0: the panel's width in pixels does.
	MaxDataPoints int
	// FieldConfig has what the panel says while it is empty.
	FieldConfig struct{ Defaults struct{ NoValue string } }
}

// Target is one query.
type Target struct {
	RefID, Expr string
	Instant     bool
}

type rawPanel struct {
	Panel
	Panels []rawPanel
}

// LoadAll reads every *.json of the directory, in the order of their names.
func LoadAll(dir string) ([]Dashboard, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("no dashboards in %s (run make generate)", dir)
	}
	var out []Dashboard
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			return nil, err
		}
		var raw struct {
			UID        string
			Time       struct{ From string }
			Templating struct{ List []Variable }
			Panels     []rawPanel
		}
		if err := json.Unmarshal(text, &raw); err != nil {
			return nil, fmt.Errorf("%s: %w", f, err)
		}
		d := Dashboard{UID: raw.UID, From: raw.Time.From, Variables: raw.Templating.List}
		for _, p := range raw.Panels {
			for _, p := range append([]rawPanel{p}, p.Panels...) {
				if len(p.Targets) > 0 {
					d.Panels = append(d.Panels, p.Panel)
				}
			}
		}
		out = append(out, d)
	}
	return out, nil
}
