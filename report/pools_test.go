package report

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/report/document"
	"github.com/gpu-exporter/gpu-exporter/report/metric"
	"github.com/gpu-exporter/gpu-exporter/report/replay"
)

// Where pods may run: nodes are given back only if their pods fit on others of their own pool, zone and kind, and the reason of the
// confidence is a pool that is guessed before it is the missing reserve. The last node has two pods of a GPU each for 22
// days, the two others of eight GPUs five each.
func TestWherePodsMayRun(t *testing.T) {
	names := []string{"gpu-1", "gpu-2", "gpu-3"}
	labels := func(l map[string]string) func(*scene) {
		return func(s *scene) {
			for i, name := range names {
				x := map[string]string{"node": name}
				for k, v := range l {
					x[k] = strings.ReplaceAll(v, "#", fmt.Sprint(i/2))
				}
				s.add(metric.KubeLabels, x, constant(1))
			}
		}
	}
	amount := func(nodes, pods float64) func(*scene) {
		return func(s *scene) {
			labels(map[string]string{"label_node_pool": "a"})(s)
			for _, name := range names {
				s.add(metric.KubeAllocatable, map[string]string{"node": name, "resource": "cpu"}, constant(nodes))
			}
			for i := range 12 {
				s.add(metric.KubeRequests, map[string]string{"namespace": "team", "pod": fmt.Sprint("p-", i), "resource": "cpu"},
					constant(pods))
			}
		}
	}
	for _, tt := range []struct {
		what  string
		nodes []string
		more  func(*scene)
		share float64 // of the pods of the last node
		kind  string
		want  string // confidence; empty is no advice
		text  string
	}{
		{what: "a pool with a label", more: labels(map[string]string{"label_node_pool": "a"}), want: "low", text: "no reserve is left"},
		{what: "a pool by name", want: "low", text: "no label names their node pool"},
		{what: "addresses of two regions", nodes: []string{"ip-10-0-1-17.ec2.internal", "ip-10-0-1-23.ec2.internal",
			"ip-10-7-2-40.eu-west-1.compute.internal"}},
		{what: "addresses of one region", nodes: []string{"ip-10-0-1-17.ec2.internal", "ip-10-0-1-23.ec2.internal",
			"ip-10-7-2-40.ec2.internal"}, want: "low"},
		{what: "two zones without a pool", more: labels(map[string]string{"label_topology_kubernetes_io_zone": "z#"})},
		{what: "two pools", more: labels(map[string]string{"label_node_pool": "p#"})},
		{what: "time-slicing", more: labels(map[string]string{"label_node_pool": "a"}), share: 0.25},
		{what: "a node with CPUs for it", more: amount(100, 10), want: "low", text: "taints, affinity, volumes, NVLink, NUMA"},
		{what: "a node without", more: amount(55, 10)},
	} {
		names = []string{"gpu-1", "gpu-2", "gpu-3"}
		if tt.nodes != nil {
			names = tt.nodes
		}
		var s scene
		end := monday.Add(22 * day)
		for i, name := range names {
			pods := []float64{5, 5, 2}[i]
			s.node(name, h100, 8, states{"busy": pods, "unallocated": 8 - pods}, nil)
		}
		for i := range 12 {
			share := 1.0
			if i >= 10 && tt.share > 0 {
				share = tt.share
			}
			s.job(job{kind: "Job", name: fmt.Sprint("p", i), node: names[i/5], memory: 60 * gib, share: share, to: end,
				busy: hourOf(0, 24, 0.9*share, 0), pods: []string{fmt.Sprint("p-", i)}, gpus: []string{fmt.Sprint("g", i)}})
		}
		if tt.more != nil {
			tt.more(&s)
		}
		got, text := "", ""
		for _, a := range s.must(t, func(o *Options) { o.To = end }).Advice {
			if a.Code == document.AdviseConsolidate {
				got, text = a.Confidence, a.Evidence+a.Replay.Unknown
			}
		}
		if got != tt.want || !strings.Contains(text, tt.text) {
			t.Errorf("%s: %q, %s", tt.what, got, text)
		}
	}
}

// Replicas that were never two on one node, though there was room, stay so.
func TestReplicasOnNodesOfTheirOwn(t *testing.T) {
	for _, tt := range []struct {
		nodes []string // of each replica
		want  bool
	}{{[]string{"n1", "n2", "n3"}, true}, {[]string{"n1", "n1", "n2"}, false}, {[]string{"n1"}, false}} {
		var runs []run
		for i, n := range tt.nodes {
			r := ran(fmt.Sprint("p", i), n, 1, 0, 100)
			r.node = n
			runs = append(runs, r)
		}
		if got := replay.Spread(runs, func(n *run) (*replay.Pod, string) { return &n.Pod, n.node }); got != tt.want {
			t.Errorf("%v: %v", tt.nodes, got)
		}
	}
	a := analysisOf(24*30, time.Hour)
	f := fleetOf(a, h100, map[string][2]float64{"n1": {8, 1}, "n2": {8, 1}, "n3": {8, 1}, "n4": {8, 1}})
	for kept, back := range map[bool]int{true: 0, false: 2} {
		var runs []run
		for i := 1; i <= 4; i++ {
			r := ran(fmt.Sprint("p", i), fmt.Sprint("n", i), 1, 0, 24*30)
			if r.share = 1; kept {
				r.Apart = "team/Deployment/ha/" + h100
			}
			runs = append(runs, r)
		}
		groups := a.byModel(f, []*finding{placedOn(h100, runs...)})
		list := a.consolidate(f, groups, nil)
		if (len(list) > 0) != (back > 0) {
			t.Errorf("kept %v: %+v", kept, list)
		}
		if names := groups[0].Kept(); kept && (len(names) != 1 || names[0] != "team/Deployment/ha") {
			t.Errorf("%v", names)
		}
	}
	if a := groupsOffer(a, f); a != replay.Whole {
		t.Errorf("a node without parts offers %v", a)
	}
}

func groupsOffer(a *analysis, f *fleet) replay.Offer { return a.byModel(f, nil)[0].Nodes[0].Offers }

// Three of six full nodes have GPUs that were idle for 22 days: none can be given back as pods ran. Once they are released, three can go,
// as sure as the releases are.
func TestNodesAfterTheAdvice(t *testing.T) {
	var s scene
	end := monday.Add(22 * day)
	for i := range 6 {
		name, busy := fmt.Sprint("gpu-", i), hourOf(0, 24, 0.9, 0)
		if i >= 3 {
			busy = no
		}
		s.node(name, h100, 8, states{"busy": 8}, nil)
		s.add(metric.KubeLabels, map[string]string{"node": name, "label_node_pool": "a"}, constant(1))
		s.job(job{name: fmt.Sprint("app-", i), node: name, memory: 60 * gib, to: end, busy: busy, pods: names(fmt.Sprint("app-", i), 8)})
	}
	found := 0
	for _, a := range s.must(t, func(o *Options) { o.To = end }).Advice {
		if a.Code != document.AdviseConsolidate {
			continue
		}
		found++
		if a.Reason != "after_advice" || a.Confidence != "low" || a.Saving != document.SavesNodes || a.SavedGPUs < 8 ||
			!strings.HasPrefix(a.Title, "After the advice on workloads: give back ") {
			t.Errorf("%+v", a)
		}
	}
	if found != 1 {
		t.Errorf("%d pieces of advice on nodes", found)
	}
}
