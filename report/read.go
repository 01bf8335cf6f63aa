package report

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gpu-exporter/gpu-exporter/report/document"
	"github.com/gpu-exporter/gpu-exporter/report/kube"
	"github.com/gpu-exporter/gpu-exporter/report/metric"
	"github.com/gpu-exporter/gpu-exporter/report/prices"
	"github.com/gpu-exporter/gpu-exporter/report/prom"
	"github.com/gpu-exporter/gpu-exporter/report/series"
	"github.com/gpu-exporter/gpu-exporter/report/units"
)

// API is a server's history; *prom.Client is one.
type API interface {
	Range(ctx context.Context, r prom.Range, each func(*prom.Series) error) error
	Instant(ctx context.Context, query string, at time.Time, each func(*prom.Series) error) error
	Values(ctx context.Context, label, match string, from, to time.Time) ([]string, error)
	Warnings() []string
}

// reader reads one period.
type reader struct {
	api API
	p   series.Period
	opt Options
	q   prom.QL

	has    map[string]bool      // names of metrics in the period
	prices map[nodeKey]*float64 // of GPU-hours, by node

	mu      sync.Mutex
	sources map[string]*document.Source
	notes   []document.Note
	partial []string
}

func (r *reader) note(code, format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.notes = append(r.notes, document.Note{Code: code, Text: fmt.Sprintf(format, args...)})
}

// missing marks the report as partial.
func (r *reader) missing(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if text := fmt.Sprintf(format, args...); !slices.Contains(r.partial, text) {
		r.partial = append(r.partial, text)
	}
}

func (r *reader) source(data, from, series string, hours float64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	k := data + "\x00" + from
	if s := r.sources[k]; s != nil {
		s.Hours = max(s.Hours, hours)
		return
	}
	r.sources[k] = &document.Source{Data: data, From: from, Series: series, Hours: hours}
}

// steps queries one value for each step of a part of the period. of returns what takes the values of a series.
func (r *reader) steps(ctx context.Context, query string, s series.Span, of func(l prom.Labels) func(k int, v float64)) error {
	if s.Len() <= 0 {
		return nil
	}
	q := prom.Range{Query: query, From: r.p.End(s.From), To: r.p.End(s.To - 1), Step: r.p.Step}
	return r.api.Range(ctx, q, func(series *prom.Series) error {
		take := of(series.Labels)
		for i, at := range series.At {
			if k, ok := r.p.Index(at); ok && take != nil {
				take(k, series.Value[i])
			}
		}
		return nil
	})
}

// all is the whole period as a part.
func (r *reader) all() series.Span { return series.Span{From: 0, To: r.p.Steps()} }

// coarse queries one value for each hour or day that ends with the period, for what changes rarely: what over_time
// makes of a selector, aggregated by labels. Each value is passed on with the steps that it covers.
func (r *reader) coarse(ctx context.Context, every time.Duration, op, overTime, selector string, labels []string,
	each func(l prom.Labels, s series.Span, v float64)) error {
	every = min(every, r.p.To.Sub(r.p.From))
	window := fmt.Sprintf("[%ds]", int(every.Seconds()))
	query := overTime + "_over_time(" + selector + window + ")"
	if overTime == "sm" {
		rate := func(name string) string { return "rate(" + r.q.Select(name) + window + ")" }
		query = fmt.Sprintf("(%s / %s) / (%s / %s > 0)", rate(metric.RawSM), rate(metric.RawProfiled), rate(metric.RawGPUBusy),
			rate(metric.RawGPUObserved))
	}
	if op == "sum" {
		query = r.q.Once(query)
	}
	if op != "" {
		query = r.q.By(op, query, labels...)
	}
	n := int(math.Ceil(float64(r.p.To.Sub(r.p.From)) / float64(every)))
	q := prom.Range{Query: query, From: r.p.To.Add(-time.Duration(n-1) * every), To: r.p.To, Step: every}
	size := int(every / r.p.Step)
	return r.api.Range(ctx, q, func(s *prom.Series) error {
		for i, at := range s.At {
			if k, ok := r.p.Index(at); ok {
				each(s.Labels, series.Span{From: max(0, k+1-size), To: k + 1}, s.Value[i])
			}
		}
		return nil
	})
}

// every queries a value every so often, from one such time after the begin of the period on.
func (r *reader) every(ctx context.Context, every time.Duration, query string, each func(*prom.Series) error) error {
	every = min(every, r.p.To.Sub(r.p.From))
	return r.api.Range(ctx, prom.Range{Query: query, From: r.p.From.Add(every), To: r.p.To, Step: every}, each)
}

// place is the node of a series.
func (r *reader) place(l prom.Labels) nodeKey { return nodeKey{l.Get(r.q.Cluster), l.Get("node"), ""} }

// gpuKey is the GPU of a series.
func (r *reader) gpuKey(l prom.Labels) gpuKey {
	return gpuKey{l.Get(r.q.Cluster), l.Get("node"), l.Get("uuid")}
}

// discover finds out which metrics match.
func (r *reader) discover(ctx context.Context, names string) ([]string, error) {
	found, err := r.api.Values(ctx, "__name__", r.q.Select("", `__name__=~"`+names+`"`), r.p.From, r.p.To)
	r.has = map[string]bool{}
	for _, n := range found {
		r.has[n] = true
	}
	return found, err
}

// discoverExporter finds out which metrics of gpu-exporter there are.
func (r *reader) discoverExporter(ctx context.Context) error {
	names, err := r.discover(ctx, "(node|workload|namespace|pod):gpu_.+|gpu_.+|DCGM_FI_.+|nvidia_gpu_.+|nvidia_smi_.+|"+
		metric.KubeLabels+"|"+metric.KubeOwners+"|"+metric.KubePods+"|"+metric.KubeSpaces+"|"+metric.KubeCapacity+"|"+
		metric.KubeAllocatable+"|"+metric.KubeRequests)
	if err != nil || r.has[metric.RuleGPUs] || r.has[metric.RawGPUs] {
		return err
	}
	where := "the period has"
	if r.opt.Match != "" {
		where = "with --match " + r.opt.Match + ", the period has"
	}
	begins := func(p string) bool {
		return slices.ContainsFunc(names, func(n string) bool { return strings.HasPrefix(n, p) })
	}
	switch {
	case begins("DCGM_FI_"):
		return r.noData("%s no series of gpu-exporter, but some of dcgm-exporter (%s): read those with --metrics=dcgm", where)
	case begins("nvidia_gpu_") || begins("nvidia_smi_"):
		return r.noData("%s series of another exporter only (%s), which do not add up to GPU-hours: "+
			"install gpu-exporter and let it run for a day", where)
	case begins("gpu_"):
		return r.noData("%s gpu_* series, but not "+metric.RawGPUs+
			" (%s): they are of another exporter, or of a gpu-exporter before 1.0: upgrade it", where)
	}
	return r.noData("%s no series of gpu-exporter (%s): check that this server scrapes it, that --from is within its "+
		"retention, and that no tenant header or --match is missing", where)
}

// duplicates finds GPUs that are scraped more than once. Rules that sum up such series count them twice, so that the
// series are read instead, each once.
func (r *reader) duplicates(ctx context.Context) error {
	if !r.has[metric.RawUp] {
		return nil
	}
	most := 1.0
	query := "max(" + r.q.By("count", r.q.Select(metric.RawUp), metric.PerGPU...) + ")"
	err := r.every(ctx, time.Hour, query, func(series *prom.Series) error {
		most = max(most, slices.Max(series.Value))
		return nil
	})
	if err != nil {
		return err
	}
	if err := r.interval(ctx); err != nil || most < 2 {
		return err
	}
	r.note("duplicates", "The series of the same GPUs are in this server up to %.0f times (replicas of Prometheus, or two "+
		"scrape jobs): each was counted once, from the series instead of the recording rules.", most)
	r.withoutRules()
	return nil
}

// withoutRules leaves out the recording rules, where the series are there.
func (r *reader) withoutRules() {
	for name := range r.has {
		if strings.Contains(name, ":gpu_") && name != metric.RuleOwners && r.has[metric.RawGPUs] {
			delete(r.has, name)
		}
	}
}

// interval finds out how often nodes are scraped. Rates over five minutes, as of the rules, need two samples in every
// five minutes; with fewer the series are read, over a longer time.
func (r *reader) interval(ctx context.Context) error {
	samples := map[nodeKey]float64{}
	query := r.q.By("max", "count_over_time("+r.q.Select(metric.RawUp)+"[1h])", "node")
	err := r.every(ctx, 6*time.Hour, query, func(series *prom.Series) error {
		k := r.place(series.Labels)
		samples[k] = max(samples[k], slices.Max(series.Value))
		return nil
	})
	var all series.Sample
	for _, n := range samples {
		all = append(all, 3600/max(n, 1))
	}
	slices.Sort(all)
	// A node that was there for minutes alone has few samples.
	seconds := all.Quantile(0.9)
	if err != nil || seconds <= 140 {
		return err
	}
	r.q.Window = time.Duration(math.Ceil(2.5*seconds/60)) * time.Minute
	r.note("scrape_interval", "Nodes are scraped every %s: rates are taken over %s, from the series, because the recording "+
		"rules need a scrape every two minutes.", units.Duration(time.Duration(seconds)*time.Second), units.Duration(r.q.Window))
	r.withoutRules()
	return nil
}

// noData makes the error of a period without data. The last verb of the format is the period.
func (r *reader) noData(format string, args ...any) error {
	period := r.p.From.Format(time.RFC3339) + " to " + r.p.To.Format(time.RFC3339)
	return &NoData{fmt.Sprintf(format, append(args, period)...)}
}

// NoData is the error if there is nothing to report on; its text has the cause and what to do.
type NoData struct{ text string }

func (e *NoData) Error() string { return e.text }

// nodes reads the account of all nodes: from the rules, and where those have nothing from the raw series.
func (r *reader) nodes(ctx context.Context) (*fleet, error) {
	f, states := newFleet(r.p), document.StatesByLabel()
	take := func(name string, l prom.Labels) func(int, float64) {
		key := r.place(l)
		key.model = l.Get("model")
		state, known := states[l.Get("state")]
		if name == metric.RuleGPUs && !known {
			r.missing("%s has the unknown state %q: use the gpu-report of the exporter's release", metric.RawGPUs, l.Get("state"))
			return nil
		}
		var n *nodeGPUs
		return func(k int, v float64) {
			if math.IsNaN(v) || math.IsInf(v, 0) {
				return
			}
			if n == nil {
				n = f.node(key)
			}
			switch name {
			case metric.RuleGPUs:
				f.add(n, state, k, v)
			case metric.RuleCount:
				n.count.Add(k, v)
			case metric.RulePower:
				n.joules += v * r.p.Step.Seconds()
				n.energy = true
			}
		}
	}
	if r.has[metric.RuleGPUs] {
		query := r.q.Once(r.q.AnyOf([]string{metric.RuleGPUs, metric.RuleCount, metric.RulePower}))
		err := r.steps(ctx, query, r.all(), func(l prom.Labels) func(int, float64) { return take(l.Name(), l) })
		if err != nil {
			return nil, err
		}
	}
	f.withoutRules = f.gaps()
	uncovered := series.Steps(f.withoutRules)
	r.source("GPUs", "rules", metric.RuleGPUs, float64(r.p.Steps()-uncovered)*r.p.StepHours())
	if r.has[metric.RawGPUs] {
		for _, g := range f.withoutRules {
			if err := r.rawNodes(ctx, g, take); err != nil {
				return nil, err
			}
		}
		if fromSeries := uncovered - series.Steps(f.gaps()); fromSeries > 0 {
			r.source("GPUs", "series", metric.RawGPUs, float64(fromSeries)*r.p.StepHours())
		}
	}
	if len(f.nodes) == 0 {
		return nil, r.noData("the server has the metric %s without values in the period (%s): change --from and --to", metric.RuleGPUs)
	}
	if err := r.before(ctx, f); err != nil {
		return nil, err
	}
	if err := r.unattributed(ctx, f); err != nil {
		return nil, err
	}
	if err := r.pools(ctx, f); err != nil {
		return nil, err
	}
	if err := r.kubernetes(ctx, f); err != nil {
		return nil, err
	}
	if err := r.requests(ctx, f); err != nil {
		return nil, err
	}
	f.settle(r.opt.RemovedAfter)
	return f, nil
}

// kubernetes compares with the GPUs that Kubernetes knows: nodes without an exporter are expected and not reported.
func (r *reader) kubernetes(ctx context.Context, f *fleet) error {
	if !r.has[metric.KubeCapacity] {
		return nil
	}
	reported := map[nodeKey]float64{}
	for k, n := range f.nodes {
		reported[nodeKey{k.cluster, k.node, ""}] += float64(n.gpus())
	}
	offered, other := map[nodeKey]float64{}, map[nodeKey]bool{}
	selector := r.q.Select(metric.KubeCapacity, `resource=~"nvidia_com_.+"`)
	err := r.coarse(ctx, time.Hour, "max", "last", selector, []string{"node", "resource"}, func(l prom.Labels, s series.Span, v float64) {
		k := r.place(l)
		if l.Get("resource") != "nvidia_com_gpu" {
			other[k] = other[k] || v > 0
			return
		}
		offered[k] = v
		if reported[k] == 0 && v > 0 {
			n := f.node(k)
			for step := s.From; step < s.To; step++ {
				n.count.Max(step, v)
			}
		}
	})
	var silent, short []string
	for _, k := range sorted(offered) {
		switch has := reported[k]; {
		case has == 0 && offered[k] > 0:
			silent = append(silent, k.node)
		case offered[k] < has && !other[k]:
			short = append(short, fmt.Sprintf("%s (%.0f of %.0f)", k.node, offered[k], has))
		}
	}
	if len(silent) > 0 {
		r.note("nodes_without_exporter", "Kubernetes has GPUs on nodes that no exporter reports, counted as not reported: %s.",
			units.Few(silent, 8))
	}
	if len(short) > 0 {
		r.note("gpus_not_offered", "The kubelet offers fewer GPUs than there are: %s.", units.Few(short, 8))
	}
	return err
}

// rawNodes reads a part of the period from the raw series.
func (r *reader) rawNodes(ctx context.Context, g series.Span, take func(string, prom.Labels) func(int, float64)) error {
	q := r.q
	up := q.By("group", q.Now(metric.RawUp), metric.PerGPU...)
	power := q.Rate(metric.RawEnergy) + " or on (" + q.Cluster + ", node, uuid) " + q.Now(metric.RawPower)
	for _, x := range []struct{ as, query string }{
		{metric.RuleGPUs, q.By("sum", q.Once(metric.WithModel(q, q.Rate(metric.RawGPUs), "")), "node", "model", "state")},
		{metric.RuleCount, q.By("count", metric.WithModel(q, up, ""), "node", "model")},
		{metric.RulePower, q.By("sum", q.Once(metric.WithModel(q, power, "")), "node", "model")},
	} {
		if err := r.steps(ctx, x.query, g, func(l prom.Labels) func(int, float64) { return take(x.as, l) }); err != nil {
			return err
		}
	}
	return nil
}

// before marks the nodes that existed in the day before the period: their missing samples at its start count.
func (r *reader) before(ctx context.Context, f *fleet) error {
	name := metric.RuleCount
	if !r.has[metric.RuleCount] {
		name = metric.RawUp
	}
	if !r.has[name] {
		return nil
	}
	existed := map[nodeKey]bool{}
	query := r.q.By("group", "last_over_time("+r.q.Select(name)+"[1d])", "node")
	err := r.api.Instant(ctx, query, r.p.From, func(s *prom.Series) error {
		existed[r.place(s.Labels)] = true
		return nil
	})
	for k, n := range f.nodes {
		n.before = existed[nodeKey{k.cluster, k.node, ""}]
	}
	return err
}

// unattributed reads the busy time of no container.
func (r *reader) unattributed(ctx context.Context, f *fleet) error {
	if !r.has[metric.RawUnattributed] {
		r.source("unattributed busy time", "absent", metric.RawUnattributed, 0)
		return nil
	}
	first := map[nodeKey]*nodeGPUs{}
	for _, n := range slices.Backward(f.sorted()) {
		first[nodeKey{n.key.cluster, n.key.node, ""}] = n
	}
	r.source("unattributed busy time", "series", metric.RawUnattributed, r.p.Hours())
	query := r.q.By("sum", r.q.Once(r.q.Rate(metric.RawUnattributed)), "node")
	return r.steps(ctx, query, r.all(), func(l prom.Labels) func(int, float64) {
		n := first[r.place(l)]
		if n == nil {
			return nil
		}
		return func(_ int, v float64) { n.unattributed += v * r.p.StepHours() }
	})
}

// pools finds the node pools, from labels of the nodes if there are any, otherwise from their names.
func (r *reader) pools(ctx context.Context, f *fleet) error {
	r.prices = map[nodeKey]*float64{}
	of, zones, priced := map[nodeKey]string{}, map[nodeKey]string{}, map[nodeKey]map[string]string{}
	if r.has[metric.KubeLabels] {
		labels, regional := kube.NodeLabels("pool"), kube.NodeLabels("zone")
		if r.opt.PoolLabel != "" {
			labels = []string{kube.LabelMetric(r.opt.PoolLabel)}
		}
		err := r.coarse(ctx, day, "", "last", r.q.Select(metric.KubeLabels), nil, func(l prom.Labels, _ series.Span, _ float64) {
			values := map[string]string{}
			for _, name := range r.opt.Prices.Labels() {
				values[name] = l.Get(kube.LabelMetric(name))
			}
			priced[r.place(l)] = values
			for _, x := range []struct {
				labels []string
				into   map[nodeKey]string
			}{{labels, of}, {regional, zones}} {
				if i := slices.IndexFunc(x.labels, func(name string) bool { return l.Get(name) != "" }); i >= 0 {
					x.into[r.place(l)] = l.Get(x.labels[i])
				}
			}
		})
		if err != nil {
			return err
		}
	}
	for _, n := range f.nodes {
		at := nodeKey{n.key.cluster, n.key.node, ""}
		if n.pool = of[at]; n.pool == "" {
			_, domain, _ := strings.Cut(n.key.node, ".")
			n.pool, n.zone, n.guessed = kube.PoolOf(n.key.node), cmp.Or(zones[at], domain), true
		}
		n.part = prices.Part{Model: n.key.model, NodePool: n.pool, Cluster: n.key.cluster, Labels: priced[at]}
		n.price = r.opt.Prices.Mean(n.part, r.p.From, r.p.To)
		r.prices[n.key] = n.price
	}
	switch {
	case len(of) > 0:
	case r.opt.PoolLabel != "":
		r.missing("no node has the label %s in %s: node pools are guessed from the nodes' names "+
			"(kube-state-metrics exports the labels in --metric-labels-allowlist)", r.opt.PoolLabel, metric.KubeLabels)
	default:
		r.note("node_pools_by_name", "Node pools are guessed from the nodes' names: %s has no pool label. "+
			"Name one with --node-pool-label.", metric.KubeLabels)
	}
	return nil
}

// requests reads the CPUs and the memory of the nodes that other pods leave for those with GPUs, and what these request.
func (r *reader) requests(ctx context.Context, f *fleet) error {
	const data = "CPU and memory of nodes"
	if f.requests = map[podKey]kube.Requested{}; !r.has[metric.KubeAllocatable] || !r.has[metric.KubeRequests] {
		r.source(data, "absent", metric.KubeAllocatable+", "+metric.KubeRequests, 0)
		return nil
	}
	r.source(data, "series", metric.KubeAllocatable+", "+metric.KubeRequests, r.p.Hours())
	const amounts, gpus = `resource=~"cpu|memory"`, `resource=~"nvidia_com_.+"`
	sides := map[nodeKey][2]kube.Requested{}
	on := " on (" + r.q.Cluster + ", namespace, pod) "
	for i, query := range []string{
		r.q.By("max", r.q.Select(metric.KubeAllocatable, amounts), "node", "resource"),
		r.q.By("sum", r.q.Once(r.q.Select(metric.KubeRequests, amounts)+" unless"+on+r.q.Select(metric.KubeRequests, gpus)),
			"node", "resource"),
	} {
		err := r.every(ctx, 6*time.Hour, query, func(s *prom.Series) error {
			side := sides[r.place(s.Labels)]
			if v := side[i].Of(s.Labels.Get("resource")); v != nil {
				*v = slices.Max(s.Value)
			}
			sides[r.place(s.Labels)] = side
			return nil
		})
		if err != nil {
			return err
		}
	}
	for _, n := range f.nodes {
		side := sides[nodeKey{n.key.cluster, n.key.node, ""}]
		n.Cores, n.Bytes = max(0, side[0].Cores-side[1].Cores), max(0, side[0].Bytes-side[1].Bytes)
	}
	last := func(matcher string) string {
		return "last_over_time(" + r.q.Select(metric.KubeRequests, matcher) + "[1d])"
	}
	query := r.q.By("sum", r.q.Once(last(amounts)+" and"+on+last(gpus)), "namespace", "pod", "resource")
	return r.every(ctx, day, query, func(s *prom.Series) error {
		k := podKey{s.Labels.Get(r.q.Cluster), s.Labels.Get("namespace"), s.Labels.Get("pod")}
		x := f.requests[k]
		if v := x.Of(s.Labels.Get("resource")); v != nil {
			*v = slices.Max(s.Value)
		}
		f.requests[k] = x
		return nil
	})
}

// gpus reads model and memory of every GPU.
func (r *reader) gpus(ctx context.Context) (*gpuFacts, error) {
	facts := newGPUFacts()
	daily := func(q dayQuantity) func(gpuKey, prom.Labels, series.Span, float64) {
		return func(k gpuKey, _ prom.Labels, s series.Span, v float64) {
			if v >= 0 { // no NaN of a division
				entry(facts.daily, k)[q].Max((s.To-1)/(24*r.p.PerHour()), min(1, v))
			}
		}
	}
	for _, x := range []struct {
		metric       string
		every        time.Duration
		op, overTime string
		labels       []string
		each         func(gpuKey, prom.Labels, series.Span, float64)
	}{
		{metric.RawInfo, day, "group", "last", []string{"node", "uuid", "model"},
			func(k gpuKey, l prom.Labels, _ series.Span, _ float64) {
				if m := l.Get("model"); m != "" {
					facts.model[k] = m
				}
			}},
		{metric.RawTotal, day, "max", "last", metric.PerGPU, func(k gpuKey, _ prom.Labels, _ series.Span, v float64) {
			facts.memory[k] = v
		}},
		{metric.RawMinute, day, "max", "quantile", metric.PerGPU, daily(dayMinute)},
		{metric.RawPeak, day, "max", "quantile", metric.PerGPU, daily(dayPeak)},
		{metric.RawSM, day, "max", "sm", metric.PerGPU, daily(daySM)},
	} {
		if !r.has[x.metric] {
			continue
		}
		selector := r.q.Select(x.metric)
		if x.overTime == "quantile" {
			selector = fmt.Sprintf("%g, %s", 1-r.opt.Advice.Budget, selector)
		}
		err := r.coarse(ctx, x.every, x.op, x.overTime, selector, x.labels,
			func(l prom.Labels, s series.Span, v float64) { x.each(r.gpuKey(l), l, s, v) })
		if err != nil {
			return nil, err
		}
	}
	for k, v := range facts.memory {
		if m := facts.model[k]; m != "" {
			facts.byModel[m] = max(facts.byModel[m], v)
		}
	}
	return facts, nil
}

// namespaces lists those that had or used GPUs.
func (r *reader) namespaces(ctx context.Context) ([]string, error) {
	match := r.q.AnyOf([]string{metric.RuleAllocated, metric.RuleBusy, metric.RawAllocated, metric.RawBusy, metric.RawShare})
	names, err := r.api.Values(ctx, "namespace", match, r.p.From, r.p.To)
	slices.Sort(names)
	return names, err
}

// namespace reads one namespace. withoutRules are the parts of the period that no rule covers.
func (r *reader) namespace(ctx context.Context, name string, withoutRules []series.Span, facts *gpuFacts) (*space, error) {
	s := newSpace(r.p, name)
	s.shares = r.has[metric.RawShare]
	if err := r.owners(ctx, s); err != nil {
		return nil, err
	}
	if r.has[metric.RuleAllocated] {
		if err := r.ruleLoads(ctx, s); err != nil {
			return nil, err
		}
	} else {
		withoutRules = []series.Span{r.all()}
	}
	if !r.has[metric.RawAllocated] {
		s.join(facts)
		return s, nil
	}
	if err := r.allocations(ctx, s); err != nil {
		return nil, err
	}
	s.join(facts)
	for _, g := range withoutRules {
		if err := r.rawLoads(ctx, s, g, facts); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// ruleLoads reads the workloads from the rules.
func (r *reader) ruleLoads(ctx context.Context, s *space) error {
	table := map[string]quantity{metric.RuleAllocated: qAllocated, metric.RuleBusy: qBusy, metric.RuleObserved: qObserved,
		metric.RuleWatts:  qWatts,
		metric.RuleMemory: qMemory, metric.RuleBusiest: qBusiest, metric.RuleLastBusy: qLastBusy, metric.RulePods: qPods,
		metric.RuleUnused: qGap}
	query := r.q.Once(r.q.AnyOf(sortedKeys(table), metric.InNamespace(s.name)))
	return r.steps(ctx, query, r.all(), func(l prom.Labels) func(int, float64) {
		q := table[l.Name()]
		if q == qGap && l.Get("state") == "idle" {
			q = qIdle
		}
		o := kube.RecordedOwner(l.Get("workload_type"), l.Get("workload"), "")
		return s.load(l.Get(r.q.Cluster), o, l.Get("model")).taker(q)
	})
}

// rawLoads reads the workloads in a part of the period that no rule covers from the raw series.
func (r *reader) rawLoads(ctx context.Context, s *space, g series.Span, facts *gpuFacts) error {
	in := metric.InNamespace(s.name)
	for _, x := range []struct {
		q        quantity
		op, expr string
	}{
		{qAllocated, "sum", r.q.Rate(metric.RawAllocated, in)},
		{qObserved, "sum", r.q.Rate(metric.RawObserved, in)},
		{qGap, "sum", r.q.Rate(metric.RawUnused, in, `state="gap"`)},
		{qWatts, "sum", r.q.Rate(metric.RawJoules, in)},
		{qMemory, "max", r.q.Now(metric.RawMemory, in)},
		{qLastBusy, "max", r.q.Now(metric.RawLastBusy, in)},
	} {
		err := r.steps(ctx, r.q.By(x.op, r.q.Once(x.expr), metric.PerAllocation...), g, func(l prom.Labels) func(int, float64) {
			at := r.gpuKey(l)
			return s.load(at.cluster, s.ownerOf(podKey{at.cluster, s.name, l.Get("pod")}), facts.model[at]).taker(x.q)
		})
		if err != nil {
			return err
		}
	}
	s.fill(g, false)
	r.source("workloads", "series", metric.RawAllocated, float64(g.Len())*r.p.StepHours())
	return nil
}

// owners reads the owners of the pods of a namespace.
func (r *reader) owners(ctx context.Context, s *space) error {
	labels := []string{"namespace", "pod", "workload_type", "workload"}
	for _, name := range []string{metric.KubeOwners, metric.RawPods, metric.RuleOwners} { // the best last
		if !r.has[name] {
			continue
		}
		selector := r.q.Select(name, metric.InNamespace(s.name), `workload!=""`)
		err := r.coarse(ctx, day, "group", "last", selector, labels, func(l prom.Labels, _ series.Span, _ float64) {
			p := podKey{l.Get(r.q.Cluster), s.name, l.Get("pod")}
			o := kube.RecordedOwner(l.Get("workload_type"), l.Get("workload"), p.pod)
			if old, ok := s.owners[p]; !ok || old.From != kube.Recorded || o.From == kube.Recorded {
				s.owners[p] = o
			}
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// nobody is the group of what has no label.
const nobody = "(none)"

// groups reads the label by which workloads are added up: of the pods, or else of the namespace.
func (r *reader) groups(ctx context.Context, found []*finding) error {
	if r.opt.GroupLabel == "" {
		return nil
	}
	label, of := kube.LabelMetric(r.opt.GroupLabel), map[podKey]string{}
	for _, name := range []string{metric.KubeSpaces, metric.KubePods, metric.RawPods} {
		if !r.has[name] {
			continue
		}
		labels := []string{"namespace", label}
		if name != metric.KubeSpaces { // there pod is that of kube-state-metrics, where the scrape adds it
			labels = append(labels, "pod")
		}
		err := r.coarse(ctx, day, "group", "last", r.q.Select(name, label+`!=""`), labels,
			func(l prom.Labels, _ series.Span, _ float64) {
				of[podKey{l.Get(r.q.Cluster), l.Get("namespace"), l.Get("pod")}] = l.Get(label)
			})
		if err != nil {
			return err
		}
	}
	if len(of) == 0 {
		r.missing("no pod and no namespace has the label %s: kube-state-metrics exports labels in --metric-labels-allowlist, "+
			"as namespaces=[%[1]s],pods=[%[1]s]", r.opt.GroupLabel)
	}
	for _, f := range found {
		w := &f.row
		w.Group = cmp.Or(of[podKey{w.Cluster, w.Namespace, ""}], nobody)
		for _, p := range f.pods {
			if v := of[podKey{w.Cluster, w.Namespace, p}]; v != "" {
				w.Group = v
				break
			}
		}
	}
	return nil
}

// allocations reads every pod on every GPU: idle periods, GPUs that differ within a pod, and demands to pack cannot be
// derived from sums.
func (r *reader) allocations(ctx context.Context, s *space) error {
	in := metric.InNamespace(s.name)
	of := func(l prom.Labels) *allocation {
		at := r.gpuKey(l)
		return s.allocation(allocationKey{at.cluster, s.name, l.Get("pod"), at.node, at.uuid})
	}
	for _, x := range []struct {
		rate  string
		track func(*allocation) *series.Track
	}{
		{r.q.Rate(metric.RawBusy, in), func(a *allocation) *series.Track { return &a.busy }},
		{r.q.Rate(metric.RawUnused, in, `state="idle"`), func(a *allocation) *series.Track { return &a.idle }},
	} {
		err := r.steps(ctx, r.q.By("sum", r.q.Once(x.rate), metric.PerAllocation...), r.all(),
			func(l prom.Labels) func(int, float64) { return x.track(of(l)).Add })
		if err != nil {
			return err
		}
	}
	err := r.coarse(ctx, time.Hour, "sum", "max", r.q.Select(metric.RawShare, in),
		append(slices.Clone(metric.PerAllocation), "resource"),
		func(l prom.Labels, g series.Span, v float64) {
			a := of(l)
			if res := l.Get("resource"); res != "" {
				a.resource = res
			}
			a.share.MaxBlock(g.To, r.p.PerHour(), min(1, v))
		})
	if err != nil {
		return err
	}
	for name, into := range map[string]func(*allocation) *float64{
		metric.RawSince:    func(a *allocation) *float64 { return &a.since },
		metric.RawLastBusy: func(a *allocation) *float64 { return &a.lastBusy },
	} {
		err := r.coarse(ctx, day, "max", "max", r.q.Select(name, in), metric.PerAllocation,
			func(l prom.Labels, _ series.Span, v float64) { p := into(of(l)); *p = max(*p, v) })
		if err != nil {
			return err
		}
	}
	return r.coarse(ctx, time.Hour, "sum", "max", r.q.Select(metric.RawMemory, in), metric.PerAllocation,
		func(l prom.Labels, g series.Span, v float64) { of(l).memory.MaxBlock(g.To, r.p.PerHour(), v) })
}
