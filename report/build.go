package report

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/gpu-exporter/gpu-exporter/report/document"
	"github.com/gpu-exporter/gpu-exporter/report/metric"
	"github.com/gpu-exporter/gpu-exporter/report/mig"
	"github.com/gpu-exporter/gpu-exporter/report/prices"
	"github.com/gpu-exporter/gpu-exporter/report/prom"
	"github.com/gpu-exporter/gpu-exporter/report/replay"
	"github.com/gpu-exporter/gpu-exporter/report/series"
	"github.com/gpu-exporter/gpu-exporter/report/units"
)

// Build reads a period of history and reports on it. A report that misses something is marked partial; an error means
// that there is none.
func Build(ctx context.Context, api API, opt Options) (*document.Document, error) {
	if err := opt.Validate(); err != nil {
		return nil, err
	}
	if opt.Progress == nil {
		opt.Progress = func(string, int, int) {}
	}
	p := series.NewPeriod(opt.From, opt.To, opt.Step)
	r := &reader{api: api, p: p, opt: opt, q: prom.QL{Match: opt.Match, Cluster: opt.ClusterLabel}, sources: map[string]*document.Source{}}
	a := &analysis{p: p, opt: &opt}
	r.opt.Progress("available metrics", 0, 1)
	fleet, found, err := r.usage(ctx, a)
	if err != nil {
		return nil, err
	}
	r.opt.Progress("faults and queues", 0, 1)
	seen, err := r.faults(ctx)
	if err != nil {
		return nil, err
	}
	use, err := r.pending(ctx)
	if err != nil {
		return nil, err
	}
	versions, err := r.versions(ctx)
	if err != nil {
		return nil, err
	}
	r.opt.Progress("advice", 0, 1)
	doc := &document.Document{Schema: document.Schema, Generated: opt.Now.UTC(), ProfileTable: mig.Version,
		Period: document.Span{From: p.From, To: p.To, StepSeconds: int(p.Step.Seconds()), Hours: p.Hours(), Zone: opt.zone().String(),
			MonthHours: cmp.Or(opt.Month.Hours(), document.MeanMonth)}}
	if opt.Prices != nil {
		doc.Currency = opt.Prices.Currency
	}
	fleet.assign(found)
	a.saturated(found)
	fleet.fill(doc, opt.Prices)
	if err := r.groups(ctx, found); err != nil {
		return nil, err
	}
	rows := make([]*document.Workload, len(found))
	for i, f := range found {
		rows[i] = &f.row
	}
	doc.Namespaces = document.Sum(rows, p.Hours(), opt.Prices, func(w *document.Workload) document.Account {
		return document.Account{Cluster: w.Cluster, Namespace: w.Namespace}
	})
	if doc.GroupLabel = opt.GroupLabel; opt.GroupLabel != "" {
		doc.Groups = document.Sum(rows, p.Hours(), opt.Prices, func(w *document.Workload) document.Account {
			return document.Account{Group: w.Group}
		})
	}
	if opt.ShareCost {
		doc.Share()
	}
	groups := a.byModel(fleet, found)
	a.refute(fleet, groups, found)
	if err := r.hung(ctx, found); err != nil {
		return nil, err
	}
	pods := map[string][]string{}
	for _, f := range found {
		pods[f.row.ID] = f.pods
		doc.Workloads = append(doc.Workloads, f.row)
		doc.Advice = append(doc.Advice, f.advice...)
	}
	doc.Advice = slices.Concat(doc.Advice, a.fix(fleet, seen), a.consolidate(fleet, groups, found), a.geometry(use, groups))
	doc.Check(rows, r.has[metric.RawUnattributed], !opt.DCGM)
	r.addNotes(doc, fleet, versions)
	doc.Notes, doc.PartialReasons = r.notes, r.partial
	for _, s := range api.Warnings() {
		doc.PartialReasons = append(doc.PartialReasons, "warning of the server: "+s)
	}
	doc.Partial = len(doc.PartialReasons) > 0
	for _, k := range sortedKeys(r.sources) {
		doc.Sources = append(doc.Sources, *r.sources[k])
	}
	if !opt.DCGM { // no single query attributes the samples of a gauge
		pools := map[[2]string][]string{}
		for _, n := range fleet.sorted() {
			k := [2]string{n.key.cluster, n.pool}
			pools[k] = append(pools[k], n.key.node)
		}
		var raw []document.Span
		for _, g := range fleet.withoutRules {
			raw = append(raw, document.Span{From: p.Begin(g.From), To: p.End(g.To - 1)})
		}
		metric.Queries(doc, r.q, r.has, raw, pools, pods)
	}
	doc.Finish()
	return doc, nil
}

// fill adds the accounts of the nodes and the trend to the document.
func (f *fleet) fill(doc *document.Document, list *prices.List) {
	doc.Fleet = f.account(f.sorted(), list)
	doc.Clusters = f.grouped(list, func(n *nodeGPUs) part { return part{cluster: n.key.cluster} })
	doc.Models = f.grouped(list, func(n *nodeGPUs) part { return part{model: n.key.model} })
	doc.NodePools = f.grouped(list, func(n *nodeGPUs) part { return part{cluster: n.key.cluster, pool: n.pool} })
	doc.Nodes = f.grouped(list, func(n *nodeGPUs) part { return part{n.key.cluster, "", n.pool, n.key.node} })
	if len(doc.Clusters) == 1 && doc.Clusters[0].Cluster == "" {
		doc.Clusters = nil
	}
	h := f.p.StepHours()
	for i, b := range f.buckets {
		from := i * f.size
		bucket := document.Bucket{From: f.p.Begin(from), Hours: float64(min(f.size, f.p.Steps()-from)) * h}
		bucket.States.Plus(b, h)
		doc.Trend = append(doc.Trend, bucket)
	}
}

// usage reads nodes and workloads.
func (r *reader) usage(ctx context.Context, a *analysis) (*fleet, []*finding, error) {
	if r.opt.DCGM {
		f, facts, spaces, err := r.dcgm(ctx)
		a.facts, a.prices = facts, r.prices
		var found []*finding
		for _, s := range spaces {
			found = append(found, a.namespace(s)...)
		}
		return f, found, err
	}
	if err := r.discoverExporter(ctx); err != nil {
		return nil, nil, err
	}
	if err := r.duplicates(ctx); err != nil {
		return nil, nil, err
	}
	r.opt.Progress("nodes", 0, 1)
	f, err := r.nodes(ctx)
	if err != nil {
		return nil, nil, err
	}
	a.prices, a.requests, a.unknown = r.prices, f.requests, replay.Unknown(r.has[metric.KubeRequests] && r.has[metric.KubeAllocatable],
		slices.ContainsFunc(f.sorted(), func(n *nodeGPUs) bool { return n.guessed }))
	r.opt.Progress("GPUs", 0, 1)
	if a.facts, err = r.gpus(ctx); err != nil {
		return nil, nil, err
	}
	found, err := r.workloads(ctx, a, f.withoutRules)
	return f, found, err
}

// workloads reads namespace after namespace, a few at a time, and keeps the findings alone.
func (r *reader) workloads(ctx context.Context, a *analysis, withoutRules []series.Span) ([]*finding, error) {
	names, err := r.namespaces(ctx)
	if err != nil {
		return nil, err
	}
	if r.has[metric.RuleAllocated] {
		r.source("workloads", "rules", metric.RuleAllocated, float64(r.p.Steps()-series.Steps(withoutRules))*r.p.StepHours())
	}
	const single = "idle periods and single GPUs"
	if r.has[metric.RawAllocated] {
		r.source(single, "series", metric.RawUnused+", "+metric.RawBusy, r.p.Hours())
	} else {
		r.source(single, "absent", metric.RawAllocated, 0)
		r.note("no_single_gpus", "The container series are not in this server: idle periods are derived from sums "+"over "+
			"workloads, and GPUs within a pod are not compared.")
	}
	results := make([][]*finding, len(names))
	done := 0
	r.opt.Progress("namespaces", 0, len(names))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(max(1, r.opt.Parallel))
	for i, name := range names {
		g.Go(func() error {
			s, err := r.namespace(ctx, name, withoutRules, a.facts)
			if err != nil {
				return fmt.Errorf("namespace %s: %w", name, err)
			}
			results[i] = a.namespace(s)
			r.mu.Lock()
			defer r.mu.Unlock()
			done++
			r.opt.Progress("namespaces", done, len(names))
			return nil
		})
	}
	err = g.Wait()
	return slices.Concat(results...), err
}

// versions lists the exporters' versions.
func (r *reader) versions(ctx context.Context) ([]string, error) {
	if !r.has[metric.RawVersion] {
		return nil, nil
	}
	seen := map[string]bool{}
	err := r.coarse(ctx, day, "group", "last", r.q.Select(metric.RawVersion), []string{"version"},
		func(l prom.Labels, _ series.Span, _ float64) {
			seen[l.Get("version")] = true
		})
	delete(seen, "")
	return sortedKeys(seen), err
}

// addNotes notes what a reader of the document should know.
func (r *reader) addNotes(doc *document.Document, f *fleet, versions []string) {
	if len(versions) > 1 {
		r.note("mixed_versions", "The history is of %d exporter versions: %s.", len(versions), strings.Join(versions, ", "))
	}
	if doc.Fleet.Coverage < 0.9 {
		r.note("low_coverage", "Coverage is %s of the expected GPU-hours; the rest is not reported or unknown.",
			units.Ratio(doc.Fleet.Coverage))
	}
	if d := doc.Checks.Difference; d > 0.001 || d < -0.001 {
		r.partial = slices.Insert(r.partial, 0, fmt.Sprintf("the account is wrong: the states differ from the expected "+
			"GPU-hours by %.2f %%, the limit is 0.1 %%; do not use its figures", 100*d))
	}
	if first := slices.Index(f.covered, true); r.p.Duration(first) >= day {
		r.note("short_history", "The history begins at %s %s, %s after the start of the period: Prometheus keeps 15 days by "+
			"default. Raise --storage.tsdb.retention.time, or send the recording rules to long-term storage.",
			units.Minute(r.p.Begin(first).In(r.opt.zone())), r.opt.zone(), units.Duration(r.p.Duration(first)))
	}
	var removed, joined []string
	for _, n := range f.sorted() {
		if n.removed {
			removed = append(removed, n.key.node)
		}
		if n.joined {
			joined = append(joined, n.key.node)
		}
	}
	if len(removed) > 0 {
		r.note("nodes_removed", "Without samples for more than %s until the end, and so counted as removed: %s.",
			units.Duration(r.opt.RemovedAfter), units.Few(slices.Compact(removed), 8))
	}
	if len(joined) > 0 {
		r.note("nodes_joined", "First seen within the period, and expected from then on: %s.", units.Few(slices.Compact(joined), 8))
	}
	list := r.opt.Prices
	if list == nil {
		return
	}
	unpriced, parts := map[string]bool{}, []prices.Part(nil)
	for _, n := range f.sorted() {
		if parts = append(parts, n.part); n.price == nil && n.key.model != "" {
			unpriced[n.key.model] = true
		}
	}
	if len(unpriced) > 0 && len(list.GPUs) > 0 {
		r.missing("no price for %s: its cost is left out; add it to the price list", strings.Join(sortedKeys(unpriced), ", "))
	}
	if odd := list.Unmatched(parts); len(odd) > 0 {
		r.note("unused_prices", "The price list has models that the fleet does not have: %s.", strings.Join(odd, ", "))
	}
}
