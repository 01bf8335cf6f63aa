package document

import (
	"encoding/json"
	"fmt"
	"slices"
)

// Parse reads a report that was written as JSON.
func Parse(text []byte) (*Document, error) {
	var d Document
	if err := json.Unmarshal(text, &d); err != nil {
		return nil, err
	}
	if d.Schema != Schema || d.Period.Hours <= 0 {
		return nil, fmt.Errorf("the schema is %q, want %q: write it with --format=json of this release", d.Schema, Schema)
	}
	return &d, nil
}

// Compare adds what changed since an earlier report.
func (d *Document) Compare(before *Document) {
	c := &Comparison{Before: before.Period}
	add := func(name string, was, is *Account) {
		x := Change{Name: name}
		x.HoursBefore, x.UnusedBefore, x.CostBefore = perDay(was, before.Period)
		x.Hours, x.Unused, x.Cost = perDay(is, d.Period)
		c.Changes = append(c.Changes, x)
	}
	add("fleet", &before.Fleet, &d.Fleet)
	old, now := before.Namespaces, d.Namespaces
	if len(d.Groups) > 0 && d.GroupLabel == before.GroupLabel {
		old, now = before.Groups, d.Groups
	}
	name := func(a *Account) string { return a.Cluster + "/" + a.Namespace + a.Group }
	earlier := map[string]*Account{}
	for i := range old {
		earlier[name(&old[i])] = &old[i]
	}
	for i := range now {
		a := &now[i]
		add(a.Namespace+a.Group, earlier[name(a)], a)
		delete(earlier, name(a))
	}
	for i := range old {
		if a := &old[i]; earlier[name(a)] != nil {
			add(a.Namespace+a.Group, a, nil)
		}
	}
	missing := func(in, from []Advice) (out []string) {
		for _, a := range in {
			same := func(b Advice) bool {
				return a.Code == b.Code && a.Workload == b.Workload && a.Node == b.Node && a.Model == b.Model
			}
			if !slices.ContainsFunc(from, same) {
				out = append(out, a.Title)
			}
		}
		return out
	}
	c.Followed, c.New = missing(before.Advice, d.Advice), missing(d.Advice, before.Advice)
	d.Comparison = c
}

func perDay(a *Account, p Span) (hours, unused float64, cost *float64) {
	if a == nil {
		return 0, 0, nil
	}
	days := p.Hours / 24
	if a.StateCost != nil {
		v := significant(a.StateCost.Unused() / days)
		cost = &v
	}
	return significant(a.Hours / days), significant(a.States.Unused() / days), cost
}
