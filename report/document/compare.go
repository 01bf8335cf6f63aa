package document

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
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
		x.HoursBefore, x.UnusedBefore, x.CostBefore, x.UnusedCostBefore = perDay(was, before.Period)
		x.Hours, x.Unused, x.Cost, x.UnusedCost = perDay(is, d.Period)
		c.Changes = append(c.Changes, x)
	}
	add("fleet", &before.Fleet, &d.Fleet)
	old, now := before.Namespaces, d.Namespaces
	if len(d.Groups) > 0 && d.GroupLabel == before.GroupLabel {
		old, now = before.Groups, d.Groups
	}
	several := len(d.Clusters) > 1 || len(before.Clusters) > 1
	key := func(a *Account) string { return a.Cluster + "/" + a.Namespace + a.Group }
	name := func(a *Account) string {
		if several && a.Cluster != "" {
			return a.Cluster + " / " + a.Namespace
		}
		return a.Namespace + a.Group
	}
	earlier := map[string]*Account{}
	for i := range old {
		earlier[key(&old[i])] = &old[i]
	}
	for i := range now {
		a := &now[i]
		add(name(a), earlier[key(a)], a)
		delete(earlier, key(a))
	}
	for i := range old {
		if a := &old[i]; earlier[key(a)] != nil {
			add(name(a), a, nil)
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
	for _, text := range d.incomparable(before) {
		d.Notes = append(d.Notes, Note{"comparison", "The earlier report is of other " + text + ": what changed includes that."})
	}
}

// incomparable are the settings that differ from those of an earlier report.
func (d *Document) incomparable(before *Document) (out []string) {
	if d.GroupLabel != before.GroupLabel {
		out = append(out, fmt.Sprintf("groups (%q, now %q)", before.GroupLabel, d.GroupLabel))
	}
	if d.Currency != before.Currency {
		out = append(out, fmt.Sprintf("prices (in %q, now %q)", before.Currency, d.Currency))
	}
	for i := range d.Models {
		is := &d.Models[i]
		for k := range before.Models {
			was := &before.Models[k]
			if is.Model == was.Model && is.Cost != nil && was.Cost != nil && is.Hours > 0 && was.Hours > 0 &&
				math.Abs(*is.Cost/is.Hours-*was.Cost/was.Hours) > 0.001*math.Abs(*was.Cost/was.Hours) {
				out = append(out, "prices ("+is.Model+")")
			}
		}
	}
	return out
}

// owners are the groups, or without them the namespaces.
func (d *Document) owners() []Account {
	if len(d.Groups) > 0 {
		return d.Groups
	}
	return d.Namespaces
}

// Aim sets the share of time that should be busy.
func (d *Document) Aim(busy float64) {
	g := &Goal{Busy: busy}
	if d.Fleet.Hours > 0 {
		g.Reached = significant(d.Fleet.States.Busy / d.Fleet.Hours)
	}
	for _, b := range d.Trend {
		if b.States.Busy >= busy*b.States.Sum() {
			g.Met++
		}
	}
	d.Goal = g
}

// Project adds what a month costs at the rate of the period, beside budgets by name. It returns the names of budgets that
// nothing in the report has.
func (d *Document) Project(budgets map[string]float64) (unknown []string) {
	left := maps.Clone(budgets)
	add := func(name string, a *Account, saved float64) {
		if a.Cost == nil || d.Period.Hours <= 0 {
			return
		}
		month := d.Period.MonthHours / d.Period.Hours
		x := Projection{Name: name, Cost: significant(*a.Cost * month), Saved: significant(saved)}
		if a.StateCost != nil {
			x.UnusedCost = significant(a.StateCost.Unused() * month)
		}
		if v, ok := budgets[name]; ok {
			x.Budget = &v
			delete(left, name)
		}
		d.Projections = append(d.Projections, x)
	}
	_, _, nodes := d.Saved(SavesNodes)
	add("fleet", &d.Fleet, nodes)
	for i, a := range d.owners() {
		name, saved := a.Namespace+a.Group, 0.0
		for _, x := range d.Advice {
			if x.Owner == name && x.Cluster == cmp.Or(a.Cluster, x.Cluster) && x.Saving == SavesHours && !x.Unsure() && x.MonthCost != nil {
				saved += *x.MonthCost
			}
		}
		add(name, &d.owners()[i], saved)
	}
	return slices.Sorted(maps.Keys(left))
}

func perDay(a *Account, p Span) (hours, unused float64, cost, unusedCost *float64) {
	if a == nil {
		return 0, 0, nil, nil
	}
	days := p.Hours / 24
	daily := func(v float64) *float64 { v = significant(v / days); return &v }
	if a.Cost != nil {
		cost = daily(*a.Cost)
	}
	if a.StateCost != nil {
		unusedCost = daily(a.StateCost.Unused())
	}
	return significant(a.Hours / days), significant(a.States.Unused() / days), cost, unusedCost
}
