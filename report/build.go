package report

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gpu-exporter/gpu-exporter/report/mig"
)

// Build reads a window of history and makes the report of it. A report that misses something is marked partial; an
// error means that there is none.
func Build(ctx context.Context, api API, opt Options) (*Document, error) {
	if err := opt.Validate(); err != nil {
		return nil, err
	}
	w := NewWindow(opt.From, opt.To, opt.Step)
	r := &reader{api: api, w: w, opt: opt, lang: language{opt.Match, opt.ClusterLabel}, log: opt.Log, sources: map[string]*Source{}}
	r.tell("what there is", 0, 1)
	fleet, a, found, err := r.everything(ctx)
	if err != nil {
		return nil, err
	}
	r.tell("faults and queues", 0, 1)
	seen, err := r.faults(ctx)
	if err != nil {
		return nil, err
	}
	use, err := r.waiting(ctx)
	if err != nil {
		return nil, err
	}
	versions, err := r.versions(ctx)
	if err != nil {
		return nil, err
	}
	r.tell("advice", 0, 1)

	doc := &Document{Schema: Schema, Generated: opt.Now.UTC(), ProfileTable: mig.Version, Currency: "",
		Window: Span{w.From, w.To, int(w.Step.Seconds()), w.Total()}}
	if opt.Prices != nil {
		doc.Currency = opt.Prices.Currency
	}
	assign(fleet, found)
	a.saturated(found)
	all := fleet.sorted()
	doc.Fleet = fleet.account(all, opt.Prices)
	doc.Clusters = fleet.grouped(opt.Prices, func(n *nodeGPUs) Account { return Account{Cluster: n.key.cluster} })
	doc.Models = fleet.grouped(opt.Prices, func(n *nodeGPUs) Account { return Account{Model: n.key.model} })
	doc.NodePools = fleet.grouped(opt.Prices, func(n *nodeGPUs) Account { return Account{Cluster: n.key.cluster, NodePool: n.pool} })
	doc.Nodes = fleet.grouped(opt.Prices, func(n *nodeGPUs) Account {
		return Account{Cluster: n.key.cluster, NodePool: n.pool, Node: n.key.node}
	})
	if len(doc.Clusters) == 1 && doc.Clusters[0].Cluster == "" {
		doc.Clusters = nil
	}
	for i, b := range fleet.buckets {
		from := i * fleet.size
		cells := Cells{}
		for c := Cell(0); c < CellCount; c++ {
			*cells.At(c) = b.Of(c) * w.Hours()
		}
		doc.Trend = append(doc.Trend, Bucket{w.Begin(from), float64(min(fleet.size, w.Steps()-from)) * w.Hours(), cells})
	}
	doc.Namespaces = namespaces(found, w, opt.Prices)
	var items []item
	for _, f := range found {
		doc.Workloads = append(doc.Workloads, f.row)
		doc.Advice = append(doc.Advice, f.advice...)
		items = append(items, f.items...)
	}
	slices.SortStableFunc(doc.Workloads, func(x, y Workload) int { return cmp.Or(cmp.Compare(y.Waste, x.Waste), strings.Compare(x.ID, y.ID)) })
	doc.Advice = append(doc.Advice, a.fix(fleet, seen)...)
	fewer, packed := a.consolidate(fleet)
	doc.Advice = append(doc.Advice, fewer...)
	doc.Advice = append(doc.Advice, a.geometry(use)...)
	sortAdvice(doc.Advice)
	doc.WhatIf = append(a.releases(found), a.pack(items, int(w.Total())+1)...)
	doc.WhatIf = append(doc.WhatIf, packed...)
	slices.SortStableFunc(doc.WhatIf, func(x, y Packing) int {
		return cmp.Or(strings.Compare(x.Cluster, y.Cluster), strings.Compare(x.Model, y.Model))
	})
	doc.Checks = check(&doc.Fleet, found, doc.Fleet.Outside, r)
	r.remarks(doc, fleet, versions)
	doc.Notes, doc.Problems = r.notes, r.problems
	for _, s := range api.Warnings() {
		doc.Problems = append(doc.Problems, "the server warns: "+s)
	}
	doc.Partial = len(doc.Problems) > 0
	for _, k := range sortedKeys(r.sources) {
		doc.Sources = append(doc.Sources, *r.sources[k])
	}
	return doc, nil
}

// everything reads nodes and workloads.
func (r *reader) everything(ctx context.Context) (*fleet, *analyst, []*finding, error) {
	a := &analyst{w: r.w, opt: &r.opt, prices: r.opt.Prices}
	if r.opt.DCGM {
		f, facts, spaces, err := r.dcgm(ctx)
		if err != nil {
			return nil, nil, nil, err
		}
		a.facts = facts
		var found []*finding
		for _, s := range spaces {
			found = append(found, a.studyAll(s)...)
		}
		return f, a, found, nil
	}
	if err := r.discover(ctx); err != nil {
		return nil, nil, nil, err
	}
	r.tell("nodes", 0, 1)
	f, err := r.nodes(ctx)
	if err != nil {
		return nil, nil, nil, err
	}
	r.tell("gpus", 0, 1)
	if a.facts, err = r.devs(ctx); err != nil {
		return nil, nil, nil, err
	}
	found, err := r.workloads(ctx, a, f.unruled)
	return f, a, found, err
}

// studyAll makes the findings of one namespace.
func (a *analyst) studyAll(s *space) []*finding {
	var out []*finding
	for _, l := range s.sorted() {
		if l.heldSum > 0 || l.busySum > 0 {
			out = append(out, a.study(l))
		}
	}
	return out
}

func (r *reader) tell(stage string, done, total int) {
	if r.opt.Progress != nil {
		r.opt.Progress(Progress{stage, done, total})
	}
}

// workloads reads namespace after namespace, a few at a time, and keeps the findings alone.
func (r *reader) workloads(ctx context.Context, a *analyst, unruled []span) ([]*finding, error) {
	names, err := r.namespaces(ctx)
	if err != nil {
		return nil, err
	}
	if r.has[ruleHeld] {
		lost := 0
		for _, g := range unruled {
			lost += g.len()
		}
		r.source("workloads", "rules", ruleHeld, float64(r.w.Steps()-lost)*r.w.Hours())
	}
	if r.has[rawHeld] {
		r.source("stretches and single GPUs", "series", rawUnused+", "+rawBusy, r.w.Total())
	} else {
		r.source("stretches and single GPUs", "absent", rawHeld, 0)
		r.note("no_single_gpus", "The container series are not in this server: idle stretches are taken from sums over workloads, and GPUs within a pod are not compared.")
	}
	results := make([][]*finding, len(names))
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var wait sync.WaitGroup
	var mu sync.Mutex
	var failed error
	next, done := 0, 0
	r.tell("namespaces", 0, len(names))
	for range max(1, min(r.opt.Parallel, len(names))) {
		wait.Go(func() {
			for {
				mu.Lock()
				i := next
				next++
				mu.Unlock()
				if i >= len(names) || ctx.Err() != nil {
					return
				}
				s, err := r.namespace(ctx, names[i], unruled, a.facts)
				if err != nil {
					mu.Lock()
					if failed == nil && !errors.Is(err, context.Canceled) || failed == nil && ctx.Err() == nil {
						failed = fmt.Errorf("namespace %s: %w", names[i], err)
					}
					mu.Unlock()
					stop()
					return
				}
				results[i] = a.studyAll(s)
				mu.Lock()
				done++
				r.tell("namespaces", done, len(names))
				mu.Unlock()
			}
		})
	}
	wait.Wait()
	if failed == nil {
		failed = context.Cause(ctx)
	}
	if done < len(names) && failed != nil {
		return nil, failed
	}
	return slices.Concat(results...), nil
}

// assign gives what holdings showed to the accounts of their nodes.
func assign(f *fleet, found []*finding) {
	models := map[nodeKey][]*nodeGPUs{}
	for _, n := range f.sorted() {
		k := nodeKey{n.key.cluster, "", n.key.model}
		models[k] = append(models[k], n)
	}
	give := func(k nodeKey, hours float64, to func(*nodeGPUs) *float64) {
		if n := f.nodes[k]; n != nil {
			*to(n) += hours
			return
		}
		// The node is not known: the nodes of the model share it by their idle time.
		nodes := models[nodeKey{k.cluster, "", k.model}]
		all := 0.0
		for _, n := range nodes {
			all += n.cells.Idle
		}
		for _, n := range nodes {
			*to(n) += hours * over(n.cells.Idle, all)
		}
	}
	for _, x := range found {
		for k, v := range x.reclaimed {
			give(k, v, func(n *nodeGPUs) *float64 { return &n.reclaimable })
		}
		for k, v := range x.beyond {
			give(k, v, func(n *nodeGPUs) *float64 { return &n.beyond })
		}
	}
}

// grouped makes the accounts of parts of the fleet, in order. of says to which part a node belongs.
func (f *fleet) grouped(p *Prices, of func(*nodeGPUs) Account) []Account {
	type part struct{ cluster, model, pool, node string }
	groups := map[part][]*nodeGPUs{}
	for _, n := range f.sorted() {
		a := of(n)
		k := part{a.Cluster, a.Model, a.NodePool, a.Node}
		groups[k] = append(groups[k], n)
	}
	keys := slices.SortedFunc(maps.Keys(groups), func(a, b part) int {
		return cmp.Or(strings.Compare(a.cluster, b.cluster), strings.Compare(a.model, b.model), strings.Compare(a.pool, b.pool), strings.Compare(a.node, b.node))
	})
	out := make([]Account, 0, len(keys))
	for _, k := range keys {
		a := f.account(groups[k], p)
		a.Cluster, a.Model, a.NodePool, a.Node = k.cluster, k.model, k.pool, k.node
		if a.Node != "" && len(groups[k]) == 1 {
			a.Model = groups[k][0].key.model
		}
		out = append(out, a)
	}
	return out
}

// namespaces sums workloads up.
func namespaces(found []*finding, w Window, p *Prices) []Account {
	type key struct{ cluster, namespace string }
	sums := map[key]*Account{}
	cost := map[key]*Cells{}
	for _, f := range found {
		r := &f.row
		k := key{r.Cluster, r.Namespace}
		a := sums[k]
		if a == nil {
			a = &Account{Cluster: r.Cluster, Namespace: r.Namespace}
			sums[k] = a
		}
		own := Cells{Useful: r.Useful - r.Beyond, Gap: r.Gap, Idle: r.Idle, Unobserved: r.Unobserved}
		a.Cells.plus(own)
		a.Hours += r.Held
		a.Beyond += r.Beyond
		a.Lent += r.Lent
		a.Reclaimable += r.Reclaimable
		if r.EnergyKWh != nil {
			v := *r.EnergyKWh
			if a.EnergyKWh != nil {
				v += *a.EnergyKWh
			}
			a.EnergyKWh = &v
		}
		if per, ok := p.dev(r.Model); ok {
			if cost[k] == nil {
				cost[k] = &Cells{}
			}
			for c := Cell(0); c < CellCount; c++ {
				*cost[k].At(c) += own.Of(c) * per
			}
			sum := per * r.Held
			if a.Cost != nil {
				sum += *a.Cost
			}
			a.Cost = &sum
		}
	}
	keys := slices.SortedFunc(maps.Keys(sums), func(a, b key) int {
		return cmp.Or(strings.Compare(a.cluster, b.cluster), strings.Compare(a.namespace, b.namespace))
	})
	out := make([]Account, 0, len(keys))
	for _, k := range keys {
		a := sums[k]
		a.GPUs = over(a.Hours, w.Total())
		a.ClosingError = over(a.Hours-a.Cells.Sum()-a.Lent, a.Hours)
		a.Coverage = over(a.Hours-a.Cells.Unobserved, a.Hours)
		a.CellCost = cost[k]
		if a.EnergyKWh != nil {
			a.EnergyCost = p.energy(*a.EnergyKWh)
		}
		out = append(out, *a)
	}
	return out
}

// releases is the first "what if": every release that is advised is done.
func (a *analyst) releases(found []*finding) []Packing {
	type key struct{ cluster, model string }
	sums := map[key]*Packing{}
	for _, f := range found {
		for _, ad := range f.advice {
			if ad.Code != adviseRelease && ad.Code != adviseFewer {
				continue
			}
			k := key{ad.Cluster, ad.Model}
			p := sums[k]
			if p == nil {
				p = &Packing{Cluster: k.cluster, Model: k.model, Scenario: "release", Text: "Every GPU whose release is advised had been given back when its work ended."}
				sums[k] = p
			}
			p.Items++
			p.GPUsBefore += ad.SavedGPUs
			p.FreedHours += ad.SavedHours
		}
	}
	var out []Packing
	for _, k := range slices.SortedFunc(maps.Keys(sums), func(a, b key) int {
		return cmp.Or(strings.Compare(a.cluster, b.cluster), strings.Compare(a.model, b.model))
	}) {
		p := sums[k]
		p.FreedCost = a.prices.cost(k.model, p.FreedHours)
		out = append(out, *p)
	}
	return out
}

// check holds sums of the same time from different series against each other.
func check(fleet *Account, found []*finding, outside float64, r *reader) Checks {
	c := Checks{ClosingError: fleet.ClosingError, ExpectedHours: fleet.Hours, LedgerHours: fleet.Cells.Ledger()}
	var busy, idle, underused float64
	for _, f := range found {
		busy += f.row.Useful
		idle += f.row.Idle
		underused += f.row.Gap
	}
	diff := func(dev, containers float64) *float64 {
		if dev == 0 {
			return nil
		}
		v := (dev - containers) / dev
		return &v
	}
	if r.has[rawUnattributed] {
		c.Busy = diff(fleet.Cells.Useful, busy+outside)
	}
	if !r.opt.DCGM {
		c.Idle, c.Gap = diff(fleet.Cells.Idle, idle), diff(fleet.Cells.Gap, underused)
	}
	return c
}

// versions lists the exporters' versions.
func (r *reader) versions(ctx context.Context) ([]string, error) {
	if !r.has[rawVersion] {
		return nil, nil
	}
	seen := map[string]bool{}
	const day = 24 * time.Hour
	err := r.coarse(ctx, day, r.lang.by("group", "last_over_time("+r.lang.sel(rawVersion)+"["+r.rangeOf(day)+"])", "version"), promVersion(seen))
	return sortedKeys(seen), err
}

// remarks says what a reader of the document should know.
func (r *reader) remarks(doc *Document, f *fleet, versions []string) {
	if len(versions) > 1 {
		r.note("mixed_versions", "Exporters of %d versions wrote this history: %s.", len(versions), strings.Join(versions, ", "))
	}
	if doc.Fleet.Coverage < 0.9 {
		r.note("low_coverage", "The account speaks of %s of the expected GPU-hours; the rest is not reported or unobserved.", percent(doc.Fleet.Coverage))
	}
	if e := doc.Checks.ClosingError; e > 0.001 || e < -0.001 {
		r.note("closing_error", "The cells miss the expected GPU-hours by %.2f %%: clocks that were changed, or a count of GPUs that its own seconds do not bear out.", 100*e)
	}
	var left, joined []string
	for _, n := range f.sorted() {
		if n.left {
			left = append(left, n.key.node)
		}
		if n.joined {
			joined = append(joined, n.key.node)
		}
	}
	few := func(list []string) string {
		list = slices.Compact(list)
		if len(list) > 8 {
			return fmt.Sprintf("%s and %d more", strings.Join(list[:8], ", "), len(list)-8)
		}
		return strings.Join(list, ", ")
	}
	if len(left) > 0 {
		r.note("nodes_left", "Silent for more than %s until the end, and so taken to have left: %s.", duration(r.opt.Gone), few(left))
	}
	if len(joined) > 0 {
		r.note("nodes_joined", "First heard of within the window, and expected from then on: %s.", few(joined))
	}
	var models, unpriced []string
	for _, m := range doc.Models {
		models = append(models, m.Model)
		if _, ok := r.opt.Prices.dev(m.Model); !ok && m.Model != "" {
			unpriced = append(unpriced, m.Model)
		}
	}
	if r.opt.Prices == nil {
		return
	}
	if len(unpriced) > 0 && len(r.opt.Prices.GPUs) > 0 {
		r.problem("no price for %s: its cost is left out; add it to the price list", strings.Join(unpriced, ", "))
	}
	if odd := r.opt.Prices.unknown(models); len(odd) > 0 {
		r.note("unused_prices", "The price list names models that the fleet does not have: %s.", strings.Join(odd, ", "))
	}
}
