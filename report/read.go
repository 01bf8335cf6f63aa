package report

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gpu-exporter/gpu-exporter/report/prom"
)

// API is a server's history; *prom.Client is one.
type API interface {
	Range(ctx context.Context, r prom.Range, each func(*prom.Series) error) error
	Instant(ctx context.Context, query string, at time.Time, each func(*prom.Series) error) error
	Values(ctx context.Context, label, match string, from, to time.Time) ([]string, error)
	Warnings() []string
}

// reader reads one window.
type reader struct {
	api  API
	w    Window
	opt  Options
	lang language
	log  *slog.Logger

	has map[string]bool // names of metrics that the window has

	mu       sync.Mutex
	sources  map[string]*Source
	notes    []Note
	problems []string
}

func (r *reader) note(code, format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.notes = append(r.notes, Note{code, fmt.Sprintf(format, args...)})
}

func (r *reader) problem(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.problems = append(r.problems, fmt.Sprintf(format, args...))
}

func (r *reader) source(what, from, names string, hours float64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	k := what + "\x00" + from
	if s := r.sources[k]; s != nil {
		s.Hours = max(s.Hours, hours)
		return
	}
	r.sources[k] = &Source{what, from, names, hours}
}

// steps asks for one value for each step of a part of the window.
func (r *reader) steps(ctx context.Context, query string, s span, each func(l prom.Labels, k int, v float64)) error {
	if s.len() <= 0 {
		return nil
	}
	q := prom.Range{Query: query, From: r.w.End(s.from), To: r.w.End(s.to - 1), Step: r.w.Step}
	return r.api.Range(ctx, q, func(series *prom.Series) error {
		for i, at := range series.At {
			if k, ok := r.w.Index(at); ok {
				each(series.Labels, k, series.Value[i])
			}
		}
		return nil
	})
}

// all is the whole window as a part.
func (r *reader) all() span { return span{0, r.w.Steps()} }

// coarse asks for one value for each hour, or each day, that ends with the window: for what changes seldom. Each
// value is handed on with the steps of which it speaks.
func (r *reader) coarse(ctx context.Context, every time.Duration, query string, each func(l prom.Labels, s span, v float64)) error {
	every = min(every, r.w.To.Sub(r.w.From))
	n := int(math.Ceil(float64(r.w.To.Sub(r.w.From)) / float64(every)))
	from := r.w.To.Add(-time.Duration(n-1) * every)
	q := prom.Range{Query: query, From: from, To: r.w.To, Step: every}
	size := int(every / r.w.Step)
	return r.api.Range(ctx, q, func(series *prom.Series) error {
		for i, at := range series.At {
			if k, ok := r.w.Index(at); ok {
				each(series.Labels, span{max(0, k+1-size), k + 1}, series.Value[i])
			}
		}
		return nil
	})
}

// rangeOf is the length of a range selector for coarse.
func (r *reader) rangeOf(every time.Duration) string {
	return fmt.Sprintf("%ds", int(min(every, r.w.To.Sub(r.w.From)).Seconds()))
}

// discover learns which metrics there are.
func (r *reader) discover(ctx context.Context) error {
	match := `{__name__=~"(node|workload|namespace|pod):gpu_.+|gpu_.+|DCGM_FI_.+|nvidia_gpu_.+|nvidia_smi_.+|kube_node_labels|namespace_workload_pod:kube_pod_owner:relabel"` + r.and() + `}`
	names, err := r.api.Values(ctx, "__name__", match, r.w.From, r.w.To)
	if err != nil {
		return err
	}
	r.has = map[string]bool{}
	for _, n := range names {
		r.has[n] = true
	}
	if r.has[ruleGPUs] || r.has[rawGPUs] {
		return nil
	}
	where := "the window has"
	if r.opt.Match != "" {
		where = "under --match " + r.opt.Match + ", the window has"
	}
	span := fmt.Sprintf("%s to %s", r.w.From.Format(time.RFC3339), r.w.To.Format(time.RFC3339))
	switch begins := func(p string) bool {
		return slices.ContainsFunc(names, func(n string) bool { return strings.HasPrefix(n, p) })
	}; {
	case begins("DCGM_FI_"):
		return &NoData{fmt.Sprintf("%s no series of gpu-exporter, but some of dcgm-exporter (%s): read those with --metrics=dcgm", where, span)}
	case begins("nvidia_gpu_") || begins("nvidia_smi_"):
		return &NoData{fmt.Sprintf("%s series of another exporter only (%s), from which no account can be made: install gpu-exporter and let it run for a day", where, span)}
	case begins("gpu_"):
		return &NoData{fmt.Sprintf("%s gpu_* series, but not %s (%s): they are of another exporter, or of a gpu-exporter before 1.0: upgrade it", where, rawGPUs, span)}
	}
	return &NoData{fmt.Sprintf("%s no series of gpu-exporter (%s): check that this server scrapes it, that --from reaches back no further than its retention, and that a tenant or --match is not missing", where, span)}
}

func (r *reader) and() string {
	if r.opt.Match == "" {
		return ""
	}
	return ", " + r.opt.Match
}

// NoData says that there is nothing to report on; its text says why and what to do.
type NoData struct{ text string }

func (e *NoData) Error() string { return e.text }

// nodes reads the account of all nodes: from the rules, and where those have nothing from the series themselves.
func (r *reader) nodes(ctx context.Context) (*fleet, error) {
	f := newFleet(r.w)
	key := func(l prom.Labels) nodeKey { return nodeKey{l.Get(r.lang.cluster), l.Get("node"), l.Get("model")} }
	step := r.w.Step.Seconds()
	take := func(metric string, l prom.Labels, k int, v float64) {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return
		}
		switch metric {
		case ruleGPUs:
			if c, ok := cellOf(l.Get("state")); ok {
				f.add(f.node(key(l)), c, k, v)
			} else {
				r.unknownUse(l.Get("state"))
			}
		case ruleCount:
			f.node(key(l)).count.add(k, v)
		case rulePower:
			n := f.node(key(l))
			n.joules += v * step
			n.energy = true
		}
	}
	if r.has[ruleGPUs] {
		err := r.steps(ctx, r.lang.any([]string{ruleGPUs, ruleCount, rulePower}), r.all(), func(l prom.Labels, k int, v float64) { take(l.Name(), l, k, v) })
		if err != nil {
			return nil, err
		}
	}
	gaps := f.gaps(2)
	f.unruled = gaps
	lost := 0
	for _, g := range gaps {
		lost += g.len()
	}
	r.source("gpus", "rules", ruleGPUs, float64(r.w.Steps()-lost)*r.w.Hours())
	if r.has[rawGPUs] {
		for _, g := range gaps {
			if err := r.rawNodes(ctx, g, take); err != nil {
				return nil, err
			}
		}
		still := 0
		for _, g := range f.gaps(2) {
			still += g.len()
		}
		if lost > still {
			r.source("gpus", "series", rawGPUs, float64(lost-still)*r.w.Hours())
		}
	}
	if len(f.nodes) == 0 {
		return nil, &NoData{fmt.Sprintf("the server knows %s, but has no values from %s to %s: move --from and --to", ruleGPUs, r.w.From.Format(time.RFC3339), r.w.To.Format(time.RFC3339))}
	}
	if err := r.before(ctx, f); err != nil {
		return nil, err
	}
	if err := r.outside(ctx, f); err != nil {
		return nil, err
	}
	if err := r.pools(ctx, f); err != nil {
		return nil, err
	}
	f.settle(r.opt.Gone)
	return f, nil
}

func (r *reader) unknownUse(use string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	text := fmt.Sprintf("the ledger has the use %q, which this report does not know: use a gpu-report of the exporter's release", use)
	if !slices.Contains(r.problems, text) {
		r.problems = append(r.problems, text)
	}
}

// rawNodes reads a part of the window from the series themselves.
func (r *reader) rawNodes(ctx context.Context, g span, take func(string, prom.Labels, int, float64)) error {
	l := r.lang
	on := l.cluster + ", node, uuid"
	for _, q := range []struct{ as, query string }{
		{ruleGPUs, l.by("sum", l.withModel(l.rate(rawGPUs)), "node", "model", "state")},
		{ruleCount, l.by("count", l.withModel("group by ("+on+") ("+l.sel(rawUp)+")"), "node", "model")},
		{rulePower, l.by("sum", l.withModel(l.rate(rawEnergy)+" or on ("+on+") "+l.sel(rawPower)), "node", "model")},
	} {
		if err := r.steps(ctx, q.query, g, func(labels prom.Labels, k int, v float64) { take(q.as, labels, k, v) }); err != nil {
			return err
		}
	}
	return nil
}

// before asks which nodes were there in the day before the window: their silence at its begin is missing time.
func (r *reader) before(ctx context.Context, f *fleet) error {
	metric, query := ruleCount, "group by ("+r.lang.cluster+", node) (last_over_time("+r.lang.sel(ruleCount)+"[1d]))"
	if !r.has[ruleCount] {
		metric, query = rawUp, "group by ("+r.lang.cluster+", node) (last_over_time("+r.lang.sel(rawUp)+"[1d]))"
	}
	if !r.has[metric] {
		return nil
	}
	return r.api.Instant(ctx, query, r.w.From, func(s *prom.Series) error {
		for _, n := range f.nodes {
			if n.key.cluster == s.Labels.Get(r.lang.cluster) && n.key.node == s.Labels.Get("node") {
				n.before = true
			}
		}
		return nil
	})
}

// outside reads the work that is no container's.
func (r *reader) outside(ctx context.Context, f *fleet) error {
	if !r.has[rawUnattributed] {
		r.source("work outside pods", "absent", rawUnattributed, 0)
		return nil
	}
	nodes := map[nodeKey][]*nodeGPUs{}
	for _, n := range f.sorted() {
		at := nodeKey{n.key.cluster, n.key.node, ""}
		nodes[at] = append(nodes[at], n)
	}
	query := r.lang.by("sum", r.lang.rate(rawUnattributed), "node")
	r.source("work outside pods", "series", rawUnattributed, r.w.Total())
	return r.steps(ctx, query, r.all(), func(l prom.Labels, k int, v float64) {
		if at := nodes[nodeKey{l.Get(r.lang.cluster), l.Get("node"), ""}]; len(at) > 0 {
			at[0].outside += v * r.w.Hours()
		}
	})
}

// poolLabels are labels of nodes that say to which pool a node belongs, as kube-state-metrics spells them.
var poolLabels = []string{"label_cloud_google_com_gke_nodepool", "label_eks_amazonaws_com_nodegroup", "label_alpha_eksctl_io_nodegroup_name",
	"label_kubernetes_azure_com_agentpool", "label_agentpool", "label_karpenter_sh_nodepool", "label_oci_oraclecloud_com_node_pool",
	"label_doks_digitalocean_com_node_pool", "label_node_pool", "label_nodepool", "label_pool"}

// pools finds the node pools, from labels of the nodes if there are any, else from their names.
func (r *reader) pools(ctx context.Context, f *fleet) error {
	type at struct{ cluster, node string }
	of := map[at]string{}
	if r.has[kubeLabels] {
		labels := poolLabels
		if r.opt.PoolLabel != "" {
			labels = []string{"label_" + plainLabel(r.opt.PoolLabel)}
		}
		err := r.coarse(ctx, 24*time.Hour, "last_over_time("+r.lang.sel(kubeLabels)+"["+r.rangeOf(24*time.Hour)+"])", func(l prom.Labels, _ span, _ float64) {
			for _, name := range labels {
				if v := l.Get(name); v != "" {
					of[at{l.Get(r.lang.cluster), l.Get("node")}] = v
					return
				}
			}
		})
		if err != nil {
			return err
		}
	}
	for _, n := range f.nodes {
		if n.pool = of[at{n.key.cluster, n.key.node}]; n.pool == "" {
			n.pool = poolOf(n.key.node)
		}
	}
	if len(of) == 0 {
		if r.opt.PoolLabel != "" {
			r.problem("no node has the label %s in %s: the node pools are guessed from the nodes' names (kube-state-metrics shows labels that --metric-labels-allowlist names)", r.opt.PoolLabel, kubeLabels)
		} else {
			r.note("node_pools_by_name", "Node pools are read from the nodes' names: no label of a pool is in %s. Name one with --node-pool-label.", kubeLabels)
		}
	}
	return nil
}

// plainLabel spells a label as kube-state-metrics does.
func plainLabel(s string) string {
	return strings.Map(func(c rune) rune {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' {
			return c
		}
		return '_'
	}, s)
}

// counted is the last part of a node's name when it tells nodes of one pool apart: a number, or what a cloud drew.
var counted = regexp.MustCompile(`(?:[-_][0-9a-f]{8,10})?[-_](?:[0-9]+|[bcdf-hj-np-tv-z2456789]{4,5}|[0-9a-f]{8,})$`)

// poolOf is the name of a node without what counts it: h100-a-007 and h100-a-008 are one pool. An address has no
// pool.
func poolOf(node string) string {
	host, _, _ := strings.Cut(node, ".")
	if strings.HasPrefix(host, "ip-") || strings.Trim(host, "0123456789-") == "" {
		return ""
	}
	if i := counted.FindStringIndex(host); i != nil && i[0] > 0 {
		return host[:i[0]]
	}
	if trimmed := strings.TrimRight(host, "0123456789"); trimmed != "" {
		return trimmed
	}
	return host
}

// gpuFacts are what is known of each GPU.
type GPUFacts struct {
	model  map[GPUKey]string
	memory map[GPUKey]float64
	byName map[string]float64 // memory by model
	minute map[GPUKey]*track  // highest mean of a minute in each hour
	peak   map[GPUKey]*track  // highest of the driver's samples in each hour
}

type GPUKey struct{ cluster, node, uuid string }

func (f *GPUFacts) modelOf(cluster, node, uuid string) string {
	return f.model[GPUKey{cluster, node, uuid}]
}

// GPUs reads model and memory of every GPU.
func (r *reader) devs(ctx context.Context) (*GPUFacts, error) {
	facts := &GPUFacts{map[GPUKey]string{}, map[GPUKey]float64{}, map[string]float64{}, map[GPUKey]*track{}, map[GPUKey]*track{}}
	on := r.lang.cluster + ", node, uuid"
	key := func(l prom.Labels) GPUKey { return GPUKey{l.Get(r.lang.cluster), l.Get("node"), l.Get("uuid")} }
	const day = 24 * time.Hour
	if r.has[rawInfo] {
		err := r.coarse(ctx, day, "group by ("+on+", model) (last_over_time("+r.lang.sel(rawInfo)+"["+r.rangeOf(day)+"]))", func(l prom.Labels, _ span, _ float64) {
			if m := l.Get("model"); m != "" {
				facts.model[key(l)] = m
			}
		})
		if err != nil {
			return nil, err
		}
	}
	if r.has[rawTotal] {
		err := r.coarse(ctx, day, "max by ("+on+") (last_over_time("+r.lang.sel(rawTotal)+"["+r.rangeOf(day)+"]))", func(l prom.Labels, _ span, v float64) { facts.memory[key(l)] = v })
		if err != nil {
			return nil, err
		}
	}
	for _, p := range []struct {
		metric string
		into   map[GPUKey]*track
	}{{rawMinute, facts.minute}, {rawPeak, facts.peak}} {
		if !r.has[p.metric] {
			continue
		}
		size := int(time.Hour / r.w.Step)
		query := "max by (" + on + ") (max_over_time(" + r.lang.sel(p.metric) + "[" + r.rangeOf(time.Hour) + "]))"
		err := r.coarse(ctx, time.Hour, query, func(l prom.Labels, s span, v float64) {
			t := p.into[key(l)]
			if t == nil {
				t = &track{}
				p.into[key(l)] = t
			}
			t.max((s.to-1)/size, min(1, v))
		})
		if err != nil {
			return nil, err
		}
	}
	for k, v := range facts.memory {
		if m := facts.model[k]; m != "" {
			facts.byName[m] = max(facts.byName[m], v)
		}
	}
	return facts, nil
}

// namespaces lists those that held or used GPUs.
func (r *reader) namespaces(ctx context.Context) ([]string, error) {
	match := r.lang.any([]string{ruleHeld, ruleBusy, rawHeld, rawBusy, rawAllocation})
	names, err := r.api.Values(ctx, "namespace", match, r.w.From, r.w.To)
	slices.Sort(names)
	return names, err
}

// namespace reads one namespace. unruled are the parts of the window of which no rule tells.
func (r *reader) namespace(ctx context.Context, name string, unruled []span, facts *GPUFacts) (*space, error) {
	s := newSpace(r.w, name)
	s.shares = r.has[rawAllocation]
	if err := r.owners(ctx, s); err != nil {
		return nil, err
	}
	step := r.w.Step.Seconds()
	if !r.has[ruleHeld] {
		unruled = []span{r.all()}
	} else {
		table := map[string]quantity{ruleHeld: qHeld, ruleBusy: qBusy, ruleObserved: qObserved, ruleWatts: qWatts, ruleMemory: qMemory, ruleMost: qMost, ruleLast: qLast, rulePods: qPods}
		names := []string{ruleUnused}
		for n := range table {
			names = append(names, n)
		}
		slices.Sort(names)
		err := r.steps(ctx, r.lang.any(names, in(name)), r.all(), func(l prom.Labels, k int, v float64) {
			o := recordedOwner(l.Get("workload_type"), l.Get("workload"), "")
			q, ok := table[l.Name()]
			switch {
			case ok:
			case l.Get("state") == "idle":
				q = qIdle
			default:
				q = qUnderused
			}
			s.load(l.Get(r.lang.cluster), o, l.Get("model")).add(q, k, v, step)
		})
		if err != nil {
			return nil, err
		}
	}
	if r.has[rawHeld] {
		if err := r.allocs(ctx, s); err != nil {
			return nil, err
		}
	}
	s.join(facts.modelOf)
	if r.has[rawHeld] {
		for _, g := range unruled {
			if err := r.rawLoads(ctx, s, g, facts); err != nil {
				return nil, err
			}
		}
	}
	return s, nil
}

// rawLoads reads a part of the window in which no rule told of workloads from the series themselves.
func (r *reader) rawLoads(ctx context.Context, s *space, g span, facts *GPUFacts) error {
	l, step := r.lang, r.w.Step.Seconds()
	for _, q := range []struct {
		what  quantity
		query string
	}{
		{qHeld, l.by("sum", l.rate(rawHeld, in(s.name)), onAlloc...)},
		{qObserved, l.by("sum", l.rate(rawObserved, in(s.name)), onAlloc...)},
		{qUnderused, l.by("sum", l.rate(rawUnused, in(s.name), `state="gap"`), onAlloc...)},
		{qWatts, l.by("sum", l.rate(rawJoules, in(s.name)), onAlloc...)},
		{qMemory, l.by("max", l.sel(rawMemory, in(s.name)), onAlloc...)},
		{qLast, l.by("max", l.sel(rawLast, in(s.name)), onAlloc...)},
	} {
		err := r.steps(ctx, q.query, g, func(labels prom.Labels, k int, v float64) {
			cluster, pod := labels.Get(l.cluster), labels.Get("pod")
			model := facts.modelOf(cluster, labels.Get("node"), labels.Get("uuid"))
			s.load(cluster, s.ownerOf(podKey{cluster, s.name, pod}), model).add(q.what, k, v, step)
		})
		if err != nil {
			return err
		}
	}
	s.fill(g, step)
	r.source("workloads", "series", rawHeld, float64(g.len())*r.w.Hours())
	return nil
}

// owners learns what the pods of a namespace are of.
func (r *reader) owners(ctx context.Context, s *space) error {
	const day = 24 * time.Hour
	labels := r.lang.cluster + ", namespace, pod, workload_type, workload"
	for _, metric := range []string{kubeOwners, rawPods, ruleOwners} { // the best last
		if !r.has[metric] {
			continue
		}
		query := "group by (" + labels + ") (last_over_time(" + r.lang.sel(metric, in(s.name), `workload!=""`) + "[" + r.rangeOf(day) + "]))"
		err := r.coarse(ctx, day, query, func(l prom.Labels, _ span, _ float64) {
			p := podKey{l.Get(r.lang.cluster), s.name, l.Get("pod")}
			o := recordedOwner(l.Get("workload_type"), l.Get("workload"), p.pod)
			if old, ok := s.owners[p]; ok && old.from == ownerRecorded && o.from != ownerRecorded {
				return
			}
			s.owners[p] = o
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// holdings reads what every pod did on every GPU: stretches, GPUs that differ within a pod, and demands that are to be packed
// cannot be read from sums.
func (r *reader) allocs(ctx context.Context, s *space) error {
	l := r.lang
	key := func(labels prom.Labels) holdKey {
		return holdKey{labels.Get(l.cluster), s.name, labels.Get("pod"), labels.Get("node"), labels.Get("uuid")}
	}
	for _, q := range []struct {
		query string
		track func(*alloc) *track
	}{
		{l.by("sum", l.rate(rawBusy, in(s.name)), onAlloc...), func(h *alloc) *track { return &h.busy }},
		{l.by("sum", l.rate(rawUnused, in(s.name), `state="idle"`), onAlloc...), func(h *alloc) *track { return &h.idle }},
	} {
		err := r.steps(ctx, q.query, r.all(), func(labels prom.Labels, k int, v float64) { q.track(s.alloc(key(labels))).add(k, v) })
		if err != nil {
			return err
		}
	}
	spread := func(t *track, g span, v float64) {
		for k := g.from; k < g.to; k++ {
			t.max(k, v)
		}
	}
	hour := "[" + r.rangeOf(time.Hour) + "]"
	err := r.coarse(ctx, time.Hour, l.by("sum", "max_over_time("+l.sel(rawAllocation, in(s.name))+hour+")", append(slices.Clone(onAlloc), "resource")...), func(labels prom.Labels, g span, v float64) {
		h := s.alloc(key(labels))
		if res := labels.Get("resource"); res != "" {
			h.resource = res
		}
		spread(&h.share, g, min(1, v))
	})
	if err != nil {
		return err
	}
	return r.coarse(ctx, time.Hour, l.by("sum", "max_over_time("+l.sel(rawMemory, in(s.name))+hour+")", onAlloc...), func(labels prom.Labels, g span, v float64) {
		spread(&s.alloc(key(labels)).memory, g, v)
	})
}
