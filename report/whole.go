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
	"github.com/gpu-exporter/gpu-exporter/report/prom"
	"github.com/gpu-exporter/gpu-exporter/report/units"
)

// saturated finds workloads whose shared GPUs are needed by more than they have.
func (a *analysis) saturated(found []*finding) {
	const full, often, enough = 0.9, 0.5, 6.0 // activity, fraction of the time, hours
	type sharing struct{ busy, pods, memory track }
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
		f.advice = []Advice{ad}
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
	}{{ruleFaults, "problem", f.problems, r.p.StepHours()}, {ruleXIDs, "xid", f.xids, 1}} {
		if !r.has[x.metric] {
			continue
		}
		err := r.steps(ctx, r.q.Once(r.q.Select(x.metric)), r.all(), func(l prom.Labels, _ int, v float64) {
			at := r.place(l)
			if x.into[at] == nil {
				x.into[at] = map[string]float64{}
			}
			x.into[at][l.Get(x.label)] += v * x.factor
		})
		if err != nil {
			return nil, err
		}
	}
	return f, nil
}

// fix recommends to repair what cost hours.
func (a *analysis) fix(f *fleet, seen *faults) []Advice {
	const minimum = 0.5 // GPU-hours
	var out []Advice
	for _, n := range f.sorted() {
		lost := n.states.Unavailable * a.p.StepHours()
		if lost < minimum {
			continue
		}
		at := nodeKey{n.key.cluster, n.key.node, ""}
		var signs []string
		for _, p := range byValue(seen.problems[at]) {
			signs = append(signs, fmt.Sprintf("%s for %.1f GPU-hours", strings.ReplaceAll(p, "_", " "),
				seen.problems[at][p]))
		}
		for _, x := range byValue(seen.xids[at]) {
			signs = append(signs, fmt.Sprintf("XID %s %.0f times", x, math.Max(1, seen.xids[at][x])))
		}
		if len(signs) > 0 {
			signs[0] = ": " + signs[0]
		}
		ad := a.advice(n.key, document.AdviseFix, "gpu_unavailable", lost, "high")
		ad.Title = "Repair the GPUs of " + n.key.node
		ad.Evidence = units.Sentence(fmt.Sprintf("%.1f GPU-hours could not be used", lost),
			strings.Join(signs[:min(4, len(signs))], ", "))
		ad.Risk = "low: drain the node first"
		ad.ChangeIn = "shell"
		ad.Change = fmt.Sprintf("kubectl cordon %s   # then look: the driver's recovery action, XIDs and remapped "+
			"rows "+
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

// resourceKey names a resource of a cluster.
type resourceKey struct{ cluster, resource string }

func (k resourceKey) parts() []string { return []string{k.cluster, k.resource} }

// resourceUse is how much of a resource was unallocated, as mean and minimum, and how much was pending, as a mean.
type resourceUse struct {
	unallocated, minimum, pending float64
	seen                          bool
}

// pending reads what pods waited for, and what was unallocated at the time.
func (r *reader) pending(ctx context.Context) (map[resourceKey]*resourceUse, error) {
	if !r.has[ruleFree] || !r.has[rulePending] {
		r.source("pending pods", "absent", rulePending+" (needs kube-state-metrics)", 0)
		return nil, nil
	}
	r.source("pending pods", "rules", rulePending, r.p.Hours())
	out, n := map[resourceKey]*resourceUse{}, float64(r.p.Steps())
	read := func(rule string, take func(u *resourceUse, v float64)) error {
		query := r.q.By("sum", r.q.Once(r.q.Select(rule)), "resource")
		return r.steps(ctx, query, r.all(), func(l prom.Labels, _ int, v float64) {
			take(entry(out, resourceKey{l.Get(r.q.Cluster), l.Get("resource")}), v)
		})
	}
	err := read(ruleFree, func(u *resourceUse, v float64) {
		if !u.seen || v < u.minimum {
			u.minimum, u.seen = v, true
		}
		u.unallocated += v / n
	})
	if err != nil {
		return nil, err
	}
	return out, read(rulePending, func(u *resourceUse, v float64) { u.pending += v / n })
}

// geometry recommends other MIG profiles if one is pending while another is unallocated.
func (a *analysis) geometry(use map[resourceKey]*resourceUse) []Advice {
	spare := map[string]resourceKey{} // by cluster: the most unallocated profile that nothing waits for
	for _, k := range sorted(use) {
		u, most := use[k], 0.0
		if other, ok := spare[k.cluster]; ok {
			most = use[other].unallocated
		}
		if strings.Contains(k.resource, "mig") && u.pending < 0.01 && u.minimum >= 1 && u.unallocated > most {
			spare[k.cluster] = k
		}
	}
	var out []Advice
	for _, k := range sorted(use) {
		u, other := use[k], spare[k.cluster]
		if other.resource == "" || u.pending < 0.1 || u.unallocated >= 1 ||
			!strings.HasPrefix(k.resource, "nvidia_com_") {
			continue
		}
		from, to := kube.ResourceName(other.resource), kube.ResourceName(k.resource)
		ad := a.advice(nodeKey{cluster: k.cluster}, document.AdviseGeometry, "unallocated_profiles", 0, "medium")
		ad.SavedCost = nil
		ad.Title = fmt.Sprintf("Offer fewer %s and more %s", from, to)
		ad.Evidence = units.Sentence(fmt.Sprintf(
			"%.1f devices of %s were pending on average, while at least %.0f of %s were "+
				"unallocated all the time", u.pending, to, use[other].minimum, from))
		ad.Alternatives = "The minimum that was unallocated at any time is what can be partitioned differently."
		ad.Risk = "medium: a GPU must be drained before its geometry changes"
		ad.ChangeIn = "mig-parted"
		ad.Change = fmt.Sprintf("# in the node's mig-config: fewer of %s, more of %s; then label the node\n"+
			"kubectl label node NODE nvidia.com/mig.config=NAME --overwrite", from, to)
		out = append(out, ad)
	}
	return out
}
