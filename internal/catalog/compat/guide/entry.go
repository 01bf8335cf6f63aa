package guide

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"

	"github.com/gpu-exporter/gpu-exporter/internal/catalog"
	"github.com/gpu-exporter/gpu-exporter/internal/catalog/compat"
)

// Entry describes a family of a page, for programs that check and rewrite queries.
type Entry struct {
	Name, Differs string // Differs is empty if the family is equal
	// Labels are those of its series, without those of pods.
	Labels []string
	// Query is the value by GPU in the names of the catalog, in base units; empty without one. Container is that of a
	// container. The value of the family is theirs times Factor.
	Query, Container string
	Factor           float64
	Gauge            bool
	// Rewrite says which queries Query may replace the family in; ByHand is what to use in the others.
	Rewrite compat.Rewrite
	ByHand  string
}

// Entries lists the families of a release. The error is that of compat.New.
func Entries(release compat.Release) ([]Entry, error) {
	p, err := compat.New(compat.Options{Release: release, DeviceLabels: compat.DeviceLabels()})
	if err != nil {
		return nil, err
	}
	rows, write := p.Rows(), queries()
	var out []Entry
	for i, f := range p.Families() {
		e := Entry{Name: f.Name, Labels: f.Labels, Factor: 1, Gauge: f.Type != catalog.Counter}
		if i < len(rows) {
			r := rows[i]
			u := r.UnitIn(release)
			e.Differs, e.Query, e.Factor = r.Differs, write(r.GPU), max(1, u.Times)/max(1, u.By)
			e.Rewrite, e.ByHand = r.Rewrite, cmp.Or(r.ByHand, "`"+e.Query+"`")
			if r.Container != nil {
				e.Container = write(r.Container)
			}
		}
		out = append(out, e)
	}
	return out, nil
}

// Missing returns why another exporter's family or label is not rendered, and what serves the same purpose.
func Missing(name string) (reason string, instead []string, ok bool) {
	if strings.HasPrefix(name, "nvidia_smi_compute_app") {
		return "per process, opt-in there (--collect.compute-apps)",
			[]string{"gpu_container_memory_used_bytes", "gpu_processes"}, true
	}
	for _, m := range missing() {
		for _, quoted := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(m.what, -1) {
			before, after, _ := strings.Cut(quoted[1], "*")
			if strings.HasPrefix(name, before) && strings.HasSuffix(name, strings.TrimSuffix(after, "*")) &&
				(name == quoted[1] || strings.Contains(quoted[1], "*")) {
				return m.reason, m.instead, true
			}
		}
	}
	labels, err := Labels()
	for _, l := range labels {
		if err == nil && l.Is == "absent" && l.Name == name {
			return l.Here, nil, true
		}
	}
	return "", nil, false
}

// queries returns a function that writes a figure as a query over the families of the catalog.
func queries() func(*compat.Figure) string {
	families := map[string]catalog.Family{}
	for _, f := range catalog.All() {
		families[f.Name] = f
	}
	return func(f *compat.Figure) string { return promQL(f, families) }
}

func promQL(f *compat.Figure, families map[string]catalog.Family) string {
	terms := func(list []compat.Term, together bool) string {
		var out []string
		for _, t := range list {
			q := selector(t)
			switch f.Operator {
			case compat.Last5m:
				q = "increase(" + q + "[5m])"
			case compat.Rate:
				q = "rate(" + q + "[2m])" // two samples at Prometheus' default interval of a minute
			}
			if own := families[t.Name].Labels; together && own != nil { // a divisor has other labels or none
				q = "sum without (" + strings.Join(own, ", ") + ") (" + q + ")"
			}
			out = append(out, q)
		}
		if len(out) > 1 && f.Over != nil {
			return "(" + strings.Join(out, " + ") + ")"
		}
		return strings.Join(out, " + ")
	}
	with := len(f.Of[0].With) > 0
	several := f.By == "" && f.Operator != compat.State && f.Operator != compat.State1 &&
		len(families[f.Of[0].Name].Labels) > len(f.Of[0].With)/2
	of := terms(f.Of, several || with && f.Over != nil || with && f.Less != nil)
	switch {
	case f.Operator == compat.Latest:
		return f.Of[1].Name + " and " + f.Of[0].Name + " > 0"
	case f.Operator == compat.Count:
		return "count by (node) (" + of + ")"
	case f.Operator == compat.State, f.Operator == compat.State1:
		return of + " == 1"
	case f.Less != nil:
		return of + " - " + terms(f.Less, with)
	case f.Over != nil:
		return of + " / " + terms(f.Over, several || with)
	}
	return of
}

// selector is the term as a selector.
func selector(t compat.Term) string {
	var list []string
	for i := 0; i < len(t.With); i += 2 {
		list = append(list, fmt.Sprintf("%s=%q", t.With[i], t.With[i+1]))
	}
	if list == nil {
		return t.Name
	}
	return t.Name + "{" + strings.Join(list, ", ") + "}"
}
