package report

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/gpu-exporter/gpu-exporter/report/prom"
)

// saturated finds workloads whose shared GPUs are asked for more than they have.
func (a *analyst) saturated(found []*finding) {
	const full, often, enough = 0.9, 0.5, 6.0 // activity, part of the time, hours
	type dev struct {
		busy, holders track
		memory        track
	}
	devs := map[GPUKey]*dev{}
	for _, f := range found {
		for i := range f.shared {
			s := &f.shared[i]
			c := devs[s.dev]
			if c == nil {
				c = &dev{}
				devs[s.dev] = c
			}
			for j, v := range s.busy.v {
				if v == v {
					c.busy.add(s.busy.from+j, float64(v))
					c.holders.add(s.busy.from+j, 1)
				}
			}
			for j, v := range s.memory.v {
				if v == v {
					c.memory.add(s.memory.from+j, float64(v))
				}
			}
		}
	}
	type state struct{ full, hours, holders, memory float64 }
	states := map[GPUKey]state{}
	for k, c := range devs {
		var s state
		steps, crowded := 0.0, 0.0
		for i := range c.busy.v {
			at := c.busy.from + i
			v, ok := c.busy.at(at)
			n, _ := c.holders.at(at)
			if !ok || n < 2 {
				continue
			}
			crowded++
			s.holders += n
			if v >= full {
				steps++
			}
		}
		for _, v := range c.memory.v {
			if v == v {
				s.memory = max(s.memory, float64(v))
			}
		}
		s.hours, s.full, s.holders = crowded*a.w.Hours(), over(steps, crowded), over(s.holders, crowded)
		if total := a.facts.memory[k]; total > 0 {
			s.memory /= total
		} else {
			s.memory = 0
		}
		states[k] = s
	}
	for _, f := range found {
		var at, all, holders, part, memory float64
		for _, s := range f.shared {
			st := states[s.dev]
			all += s.held
			if st.full >= often && st.hours >= enough {
				at += s.held
				holders = max(holders, st.holders)
				part = max(part, st.full)
				memory = max(memory, st.memory)
			}
		}
		if all == 0 || at < often*all || f.row.Advice == adviseRelease {
			continue
		}
		r := &f.row
		ad := a.adviceFor(r, adviseMore, reasonSaturated)
		ad.Title = fmt.Sprintf("Give %s more room", r.Name)
		ad.Evidence = sentence(fmt.Sprintf("its GPUs were busy to %s or more in %s of the time, each shared by %.1f pods on the mean", percent(full), percent(part), holders))
		if memory > 0.95 {
			ad.Evidence = ad.Evidence[:len(ad.Evidence)-1] + fmt.Sprintf("; their memory was filled to %s.", percent(min(1, memory)))
		}
		ad.Why = "Sharing less is the smaller step: fewer replicas for each GPU come before a GPU of its own."
		ad.Risk = "low: it costs GPUs instead of saving any; without it the tenants slow each other down"
		ad.ChangeIn, ad.Change = "device plugin or pod template", "# fewer replicas on these nodes (sharing.timeSlicing.resources[].replicas), or a whole GPU:\nresources:\n  limits:\n    nvidia.com/gpu: 1"
		if r.Confidence == "low" && a.w.Total() >= 48 {
			ad.Confidence = "medium"
		}
		f.advice = []Advice{ad}
		r.Advice, r.NoAdvice, r.NoReason = adviseMore, "", ""
	}
}

// nodePlace names a node.
type nodePlace struct{ cluster, node string }

// faults are the hours in which GPUs of a node were in a bad state, by the state, and events by code.
type faults struct {
	problems map[nodePlace]map[string]float64
	xids     map[nodePlace]map[string]float64
}

func (r *reader) faults(ctx context.Context) (*faults, error) {
	f := &faults{map[nodePlace]map[string]float64{}, map[nodePlace]map[string]float64{}}
	add := func(m map[nodePlace]map[string]float64, l prom.Labels, name string, v float64) {
		at := nodePlace{l.Get(r.lang.cluster), l.Get("node")}
		if m[at] == nil {
			m[at] = map[string]float64{}
		}
		m[at][name] += v
	}
	if r.has[ruleFaults] {
		err := r.steps(ctx, r.lang.sel(ruleFaults), r.all(), func(l prom.Labels, _ int, v float64) { add(f.problems, l, l.Get("problem"), v*r.w.Hours()) })
		if err != nil {
			return nil, err
		}
	}
	if r.has[ruleXIDs] {
		err := r.steps(ctx, r.lang.sel(ruleXIDs), r.all(), func(l prom.Labels, _ int, v float64) { add(f.xids, l, l.Get("xid"), v) })
		if err != nil {
			return nil, err
		}
	}
	return f, nil
}

// fix advises to repair what cost hours.
func (a *analyst) fix(f *fleet, seen *faults) []Advice {
	const least = 0.5 // GPU-hours
	var out []Advice
	for _, n := range f.sorted() {
		lost := n.cells.Unavailable * a.w.Hours()
		if lost < least {
			continue
		}
		at := nodePlace{n.key.cluster, n.key.node}
		var signs []string
		for _, p := range byValue(seen.problems[at]) {
			signs = append(signs, fmt.Sprintf("%s for %.1f GPU-hours", strings.ReplaceAll(p, "_", " "), seen.problems[at][p]))
		}
		for _, x := range byValue(seen.xids[at]) {
			signs = append(signs, fmt.Sprintf("XID %s %.0f times", x, math.Max(1, seen.xids[at][x])))
		}
		ad := Advice{Code: adviseFix, Reason: "gpu_unavailable", Cluster: n.key.cluster, Node: n.key.node, Model: n.key.model, SavedHours: lost,
			SavedGPUs: over(lost, a.w.Total()), SavedCost: a.prices.cost(n.key.model, lost), Confidence: "high"}
		ad.Title = "Repair the GPUs of " + n.key.node
		ad.Evidence = sentence(fmt.Sprintf("%.1f GPU-hours could not be used", lost))
		if len(signs) > 0 {
			ad.Evidence = ad.Evidence[:len(ad.Evidence)-1] + ": " + strings.Join(signs[:min(4, len(signs))], ", ") + "."
		}
		ad.Risk = "low: drain the node first"
		ad.ChangeIn = "shell"
		ad.Change = fmt.Sprintf("kubectl cordon %s   # then look: the driver's recovery action, XIDs and remapped rows are on the exporter's page of the node", shell(n.key.node))
		out = append(out, ad)
	}
	return out
}

// byValue lists keys, largest value first.
func byValue(m map[string]float64) []string {
	keys := slices.Collect(maps.Keys(m))
	slices.SortFunc(keys, func(x, y string) int {
		switch {
		case m[x] > m[y]:
			return -1
		case m[x] < m[y]:
			return 1
		}
		return strings.Compare(x, y)
	})
	return keys
}

// consolidate advises to run on fewer nodes.
func (a *analyst) consolidate(f *fleet) (out []Advice, packings []Packing) {
	groups := map[nodeKey][]*nodeGPUs{}
	for _, n := range f.sorted() {
		if !n.left {
			k := nodeKey{n.key.cluster, "", n.key.model}
			groups[k] = append(groups[k], n)
		}
	}
	for _, k := range slices.SortedFunc(maps.Keys(groups), nodeKey.compare) {
		nodes := groups[k]
		if k.model == "" || len(nodes) < 2 {
			continue
		}
		perNode, devs := 0.0, 0.0
		for _, n := range nodes {
			c := float64(int(lastOf(&n.count) + 0.5))
			perNode = max(perNode, c)
			devs += c
		}
		peak, sum := 0.0, 0.0
		var unallocated, expected float64
		for step := range a.w.Steps() {
			s := 0.0
			for _, n := range nodes {
				s += n.held.or(step, 0)
			}
			peak, sum = max(peak, s), sum+s
		}
		for _, n := range nodes {
			unallocated += n.cells.Unallocated * a.w.Hours()
			expected += n.expected * a.w.Hours()
		}
		if perNode == 0 {
			continue
		}
		needed := int(math.Ceil(peak/perNode - 0.01))
		spare := len(nodes) - max(needed, 1)
		if spare < 1 || unallocated < 0.1*expected {
			continue
		}
		freed := min(unallocated, float64(spare)*perNode*a.w.Total())
		p := Packing{Cluster: k.cluster, Model: k.model, Scenario: "consolidate", Items: len(nodes), GPUsBefore: devs, GPUsAfter: float64(needed) * perNode,
			FreedHours: freed, FreedCost: a.prices.cost(k.model, freed), Limit: 0,
			Text: fmt.Sprintf("%d nodes of %.0f GPUs held %.1f GPUs at the busiest moment and %.1f on the mean: %s would have held all of it.", len(nodes), perNode, peak, over(sum, float64(a.w.Steps())), nodesText(needed))}
		packings = append(packings, p)
		ad := Advice{Code: adviseConsolidate, Reason: "half_empty_nodes", Cluster: k.cluster, Model: k.model, SavedHours: freed, SavedGPUs: over(freed, a.w.Total()),
			SavedCost: a.prices.cost(k.model, freed), Confidence: "medium"}
		ad.Title = fmt.Sprintf("Run %s on %s instead of %d", k.model, nodesText(needed), len(nodes))
		ad.Evidence = p.Text
		ad.Why = fmt.Sprintf("%s would have been too few at the busiest moment.", nodesText(needed-1))
		if needed == 0 {
			ad.Title = fmt.Sprintf("Do without the %d nodes of %s", len(nodes), k.model)
			ad.Why = "None of them was held at any moment of the window."
		}
		ad.Risk = "medium: it leaves no room for the loss of a node, and jobs that need several whole nodes may wait longer"
		ad.ChangeIn = "scheduler and node pool"
		ad.Change = fmt.Sprintf("# fill nodes one after the other\n# kube-scheduler: NodeResourcesFit with scoringStrategy.type: MostAllocated for nvidia.com/gpu\n# then lower the size of the pool to %d nodes", needed)
		out = append(out, ad)
	}
	return out, packings
}

func nodesText(n int) string {
	if n == 1 {
		return "1 node"
	}
	return fmt.Sprintf("%d nodes", n)
}

// resourceUse is how much of a resource was free, and how much was waited for, as means.
type resourceUse struct{ free, least, waits float64 }

// waiting reads what pods waited for, and what was free at the time.
func (r *reader) waiting(ctx context.Context) (map[string]map[string]*resourceUse, error) {
	out := map[string]map[string]*resourceUse{} // by cluster, resource
	if !r.has[ruleFree] || !r.has[ruleWaits] {
		r.source("pods that wait", "absent", ruleWaits+" (needs kube-state-metrics)", 0)
		return nil, nil
	}
	r.source("pods that wait", "rules", ruleWaits, r.w.Total())
	at := func(l prom.Labels) *resourceUse {
		c, res := l.Get(r.lang.cluster), l.Get("resource")
		if out[c] == nil {
			out[c] = map[string]*resourceUse{}
		}
		if out[c][res] == nil {
			out[c][res] = &resourceUse{least: math.Inf(1)}
		}
		return out[c][res]
	}
	n := float64(r.w.Steps())
	err := r.steps(ctx, r.lang.by("sum", r.lang.sel(ruleFree), "resource"), r.all(), func(l prom.Labels, _ int, v float64) {
		u := at(l)
		u.free += v / n
		u.least = min(u.least, v)
	})
	if err != nil {
		return nil, err
	}
	err = r.steps(ctx, r.lang.by("sum", r.lang.sel(ruleWaits), "resource"), r.all(), func(l prom.Labels, _ int, v float64) { at(l).waits += v / n })
	return out, err
}

// geometry advises to cut GPUs otherwise, when one profile waits while another is free.
func (a *analyst) geometry(use map[string]map[string]*resourceUse) []Advice {
	var out []Advice
	for _, cluster := range sortedKeys(use) {
		res := use[cluster]
		unwanted, most := "", 0.0
		for _, name := range sortedKeys(res) {
			if strings.Contains(name, "mig") && res[name].waits < 0.01 && res[name].least >= 1 && !math.IsInf(res[name].least, 1) && res[name].free > most {
				unwanted, most = name, res[name].free
			}
		}
		if unwanted == "" {
			continue
		}
		for _, name := range sortedKeys(res) {
			u := res[name]
			if u.waits < 0.1 || u.free >= 1 || !strings.HasPrefix(name, "nvidia_com_") {
				continue
			}
			ad := Advice{Code: adviseGeometry, Reason: "unwanted_profiles", Cluster: cluster, SavedHours: 0, Confidence: "medium"}
			ad.Title = fmt.Sprintf("Offer fewer %s and more %s", spelled(unwanted), spelled(name))
			ad.Evidence = sentence(fmt.Sprintf("%.1f devices of %s were waited for on the mean, while of %s at least %.0f were free all the time", u.waits, spelled(name), spelled(unwanted), res[unwanted].least))
			ad.Why = "The least that was free at any moment is what can be cut otherwise."
			ad.Risk = "medium: a GPU must be drained before its geometry changes"
			ad.ChangeIn = "mig-parted"
			ad.Change = fmt.Sprintf("# in the node's mig-config: fewer of %s, more of %s; then label the node\nkubectl label node NODE nvidia.com/mig.config=NAME --overwrite", spelled(unwanted), spelled(name))
			out = append(out, ad)
		}
	}
	return out
}

// spelled turns kube-state-metrics' spelling of a resource into Kubernetes' own as far as that can be told.
func spelled(resource string) string {
	if rest, ok := strings.CutPrefix(resource, "nvidia_com_mig_"); ok {
		return "nvidia.com/mig-" + strings.Replace(rest, "_", ".", 1)
	}
	if rest, ok := strings.CutPrefix(resource, "nvidia_com_"); ok {
		return "nvidia.com/" + strings.ReplaceAll(rest, "_", ".")
	}
	return resource
}
