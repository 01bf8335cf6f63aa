package report

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/gpu-exporter/gpu-exporter/report/document"
	"github.com/gpu-exporter/gpu-exporter/report/kube"
	"github.com/gpu-exporter/gpu-exporter/report/metric"
	"github.com/gpu-exporter/gpu-exporter/report/prom"
	"github.com/gpu-exporter/gpu-exporter/report/replay"
	"github.com/gpu-exporter/gpu-exporter/report/series"
	"github.com/gpu-exporter/gpu-exporter/report/units"
)

// saturated finds workloads whose shared GPUs are needed by more than they have.
func (a *analysis) saturated(found []*finding) {
	const full, often, enough = 0.9, 0.5, 6.0 // activity, fraction of the time, hours
	type sharing struct{ busy, pods, memory series.Track }
	gpus := map[gpuKey]*sharing{}
	for _, f := range found {
		for _, s := range f.shared {
			g := entry(gpus, s.key.gpu())
			for k, v := range s.busy.All() {
				g.busy.Add(k, v)
				g.pods.Add(k, 1)
			}
			g.memory.Plus(&s.memory)
		}
	}
	// worst is, over the GPUs of a workload: the fraction of the time in which they were full, pods and memory in use.
	type worst struct{ full, pods, memory float64 }
	for _, f := range found {
		var affected, all float64
		var w worst
		for _, s := range f.shared {
			hours, fullSteps, steps, pods, memory := float64(s.busy.Count())*s.typical, 0.0, 0.0, 0.0, 0.0
			all += hours
			g := gpus[s.key.gpu()]
			for k, v := range g.busy.All() {
				if n := g.pods.Or(k, 0); n >= 2 {
					steps++
					pods += n
					if v >= full {
						fullSteps++
					}
				}
			}
			if over(fullSteps, steps) < often || steps*a.p.StepHours() < enough {
				continue
			}
			affected += hours
			for _, v := range g.memory.All() {
				memory = max(memory, over(v, a.facts.memory[s.key.gpu()]))
			}
			w = worst{max(w.full, fullSteps/steps), max(w.pods, pods/steps), max(w.memory, memory)}
		}
		if all == 0 || affected < often*all || f.row.Advice == document.AdviseRelease {
			continue
		}
		r := &f.row
		ad := a.adviceFor(r, document.AdviseLessSharing, "oversubscribed", 0)
		ad.SavedCost = nil
		ad.Title = "Reduce sharing for " + r.Name
		memory := ""
		if w.memory > 0.95 {
			memory = fmt.Sprintf("; up to %s of their memory was in use", units.Ratio(min(1, w.memory)))
		}
		ad.Evidence = units.Sentence(fmt.Sprintf(
			"its GPUs were busy to %s or more in %s of the time, each shared by %.1f pods on average",
			units.Ratio(full), units.Ratio(w.full), w.pods), memory)
		ad.Alternatives = "Less sharing is the smaller step: fewer replicas of each GPU come before a GPU of its own."
		ad.Risk = "low: it costs GPUs instead of saving any; without it the containers slow each other down"
		ad.ChangeIn, ad.Change = "device plugin or pod template", "# fewer replicas on these nodes "+
			"(sharing.timeSlicing.resources[].replicas), or a whole GPU:\nresources:\n  limits:\n    nvidia.com/gpu: 1"
		if ad.Confidence = "low"; a.p.Hours() >= 48 {
			ad.Confidence = "medium"
		}
		f.advice = []document.Advice{ad}
		r.Advice, r.NoAdvice, r.NoAdviceReason = ad.Code, "", ""
	}
}

// faults are the GPU-hours in a bad state by node and state, and events by node and code.
type faults struct {
	problems, xids map[nodeKey]map[string]float64
}

func (r *reader) faults(ctx context.Context) (*faults, error) {
	f := &faults{map[nodeKey]map[string]float64{}, map[nodeKey]map[string]float64{}}
	for _, x := range []struct {
		metric, label string
		into          map[nodeKey]map[string]float64
		factor        float64
	}{{metric.RuleFaults, "problem", f.problems, r.p.StepHours()}, {metric.RuleXIDs, "xid", f.xids, 1}} {
		if !r.has[x.metric] {
			continue
		}
		err := r.steps(ctx, r.q.Once(r.q.Select(x.metric)), r.all(), func(l prom.Labels) func(int, float64) {
			at, name := r.place(l), l.Get(x.label)
			if x.into[at] == nil {
				x.into[at] = map[string]float64{}
			}
			return func(_ int, v float64) { x.into[at][name] += v * x.factor }
		})
		if err != nil {
			return nil, err
		}
	}
	return f, nil
}

// hung finds workloads that were busy and did no work: while the alert about them fires, all GPUs of a workload hang. Its first
// minutes are missing, in which it waits.
func (r *reader) hung(ctx context.Context, found []*finding) error {
	hours, list := map[loadKey]float64{}, map[string]float64{}
	err := r.steps(ctx, r.q.By("max", r.q.Select(metric.Alerts, "alertname="+prom.Quote(metric.HungJob), `alertstate="firing"`),
		"namespace", "workload_type", "workload"), r.all(), func(l prom.Labels) func(int, float64) {
		k := loadKey{l.Get(r.q.Cluster), l.Get("namespace"), l.Get("workload_type"), l.Get("workload"), ""}
		return func(int, float64) { hours[k] += r.p.StepHours() }
	})
	for _, f := range found {
		w := &f.row
		if h := min(w.Busy, hours[loadKey{w.Cluster, w.Namespace, w.Kind, w.Name, ""}]*w.GPUs); h > 0 {
			w.Hung = &h
			list[w.Namespace+"/"+w.Name] += h
			if len(f.advice) == 0 {
				w.NoAdvice, w.NoAdviceReason = "hung", fmt.Sprintf("it hung for %.1f GPU-hours: restart it where it does again", h)
			}
		}
	}
	if len(list) > 0 {
		r.note("hung_jobs", "Jobs hung, which counts as busy (alert %s: all of their GPUs ran a kernel and did no work. Before Hopper it "+
			"is judged by power alone): %s.", metric.HungJob, units.Few(byValue(list), 8))
	}
	return err
}

// fix recommends to repair what cost hours.
func (a *analysis) fix(f *fleet, seen *faults) []document.Advice {
	const minimum = 0.5 // GPU-hours
	var out []document.Advice
	for _, n := range f.sorted() {
		lost := n.states.Unavailable * a.p.StepHours()
		if lost < minimum {
			continue
		}
		at := nodeKey{n.key.cluster, n.key.node, ""}
		var signs []string
		for _, p := range byValue(seen.problems[at]) {
			signs = append(signs, fmt.Sprintf("%s for %.1f GPU-hours", strings.ReplaceAll(p, "_", " "), seen.problems[at][p]))
		}
		for _, x := range byValue(seen.xids[at]) {
			signs = append(signs, fmt.Sprintf("XID %s %.0f times", x, math.Max(1, seen.xids[at][x])))
		}
		if len(signs) > 0 {
			signs[0] = ": " + signs[0]
		}
		ad := a.advice(n.key, document.AdviseFix, "gpu_unavailable", lost, "high")
		ad.Title = "Repair the GPUs of " + n.key.node
		ad.Evidence = units.Sentence(fmt.Sprintf("%.1f GPU-hours could not be used", lost), strings.Join(signs[:min(4, len(signs))], ", "))
		ad.Risk = "low: drain the node first"
		ad.ChangeIn = "shell"
		ad.Change = fmt.Sprintf("kubectl cordon %s   # then look: the driver's recovery action, XIDs and remapped "+"rows "+
			"are on the exporter's page of the node", kube.Shell(n.key.node))
		out = append(out, ad)
	}
	return out
}

// byValue lists keys, largest value first.
func byValue(m map[string]float64) []string {
	return slices.SortedFunc(maps.Keys(m), func(x, y string) int {
		return cmp.Or(cmp.Compare(m[y], m[x]), strings.Compare(x, y))
	})
}

// queue is what pods waited for by cluster and resource, and what was unallocated at the time by node and resource.
type queue struct {
	pending     map[nodeKey]*series.Track // the model is the resource
	unallocated map[nodeKey]*series.Track
}

// pending reads the queue.
func (r *reader) pending(ctx context.Context) (*queue, error) {
	if !r.has[metric.RuleFree] || !r.has[metric.RulePending] {
		r.source("pending pods", "absent", metric.RulePending+" (needs kube-state-metrics)", 0)
		return nil, nil
	}
	r.source("pending pods", "rules", metric.RulePending, r.p.Hours())
	q := &queue{map[nodeKey]*series.Track{}, map[nodeKey]*series.Track{}}
	for rule, into := range map[string]map[nodeKey]*series.Track{metric.RuleFree: q.unallocated, metric.RulePending: q.pending} {
		query := r.q.By("sum", r.q.Once(r.q.Select(rule)), "node", "resource")
		err := r.steps(ctx, query, r.all(), func(l prom.Labels) func(int, float64) {
			return entry(into, nodeKey{l.Get(r.q.Cluster), l.Get("node"), kube.ResourceName(l.Get("resource"))}).Add
		})
		if err != nil {
			return nil, err
		}
	}
	return q, nil
}

// geometry recommends other MIG profiles where pods are pending for one, and would have run if GPUs were partitioned as
// needed: they are placed beside the pods of the period on the partitioned GPUs of a model.
func (a *analysis) geometry(q *queue, groups []*fleetNodes) (out []document.Advice) {
	if q == nil {
		return nil
	}
	for _, k := range sorted(q.pending) {
		wanted, mean := q.pending[k], over(q.pending[k].Sum(), float64(a.p.Steps()))
		for _, g := range groups {
			gpu, ok := a.migGPU(g.key.model)
			if !ok || mean < 0.1 || g.key.cluster != k.cluster {
				continue
			}
			profile, ok := gpu.FromResource(k.model)
			if !ok {
				continue
			}
			// The partitioned GPUs of a node are at least as many as its MIG devices fill.
			slots := map[string]float64{}
			var pods []replay.Pod
			for _, p := range g.pods {
				if p.Size > 0 {
					pods = append(pods, p)
				}
			}
			spare := ""
			for _, n := range sorted(q.unallocated) {
				_, has := g.Used[n.node]
				if p, ok := gpu.FromResource(n.model); ok && n.cluster == k.cluster && has {
					free := q.unallocated[n].Values(0, a.p.Steps())
					slots[n.node] += free.Quantile(0) * float64(shapeOf(gpu, p).Size)
					if free.Quantile(0) >= 1 && n.model != k.model {
						spare = n.model
					}
				}
			}
			for node, used := range g.partitioned {
				slots[node] += used
			}
			var nodes []replay.Node
			for _, n := range g.Nodes {
				if gpus := int(math.Ceil(slots[n.ID]/replay.Slots - 1e-9)); gpus > 0 {
					nodes = append(nodes, replay.Node{ID: n.ID, Class: n.Class, GPUs: min(gpus, n.GPUs), To: n.To})
				}
			}
			if spare == "" || len(nodes) == 0 {
				continue
			}
			queued := slices.Clone(pods)
			for i := range int(math.Ceil(wanted.Values(0, a.p.Steps()).Top())) {
				one := replay.Pod{ID: fmt.Sprint("~", i), Class: nodes[0].Class, Queued: true}
				for _, p := range replay.Levels(a.p.Steps(), one, func(s int) float64 { return min(1, wanted.Or(s, 0)-float64(i)) }) {
					p.GPUs, p.Shape = 0, shapeOf(gpu, profile)
					queued = append(queued, p)
				}
			}
			r := replay.Run(nodes, queued)
			served := r.Served * a.p.StepHours()
			if served < 1 || r.Waiting > 0 || r.Unplaced > 0 {
				continue
			}
			ad := a.advice(nodeKey{k.cluster, "", g.key.model}, document.AdviseGeometry, "unallocated_profiles", served, "medium")
			ad.Saving, ad.SavedCost = document.SavesQueue, nil
			ad.Title = fmt.Sprintf("Offer fewer %s and more %s", spare, k.model)
			ad.Evidence = units.Sentence(fmt.Sprintf("%.1f devices of %s were pending on average while others were unallocated; "+
				"placed beside the pods of the period on the partitioned GPUs, they would have run for %s GPU-hours",
				mean, k.model, units.Hours(served)))
			ad.Alternatives = "Each GPU keeps the slots that its pods need; only what is left of them is partitioned anew."
			ad.Risk = "medium: a GPU must be drained before its geometry changes"
			ad.Replay, ad.ChangeIn = a.replayed(r), "mig-parted"
			ad.Change = fmt.Sprintf("# in the node's mig-config: fewer of %s, more of %s; then label the node\n"+
				"kubectl label node NODE nvidia.com/mig.config=NAME --overwrite", spare, k.model)
			out = append(out, ad)
			break
		}
	}
	return out
}
