package report

import (
	"fmt"
	"testing"

	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/report/document"
	"github.com/gpu-exporter/gpu-exporter/report/metric"
	"github.com/gpu-exporter/gpu-exporter/report/prices"
)

// TestOracle has a fleet with every kind of advice, and every figure of it computed by hand. The period has 240 hours, a GPU
// costs 2 per hour; a month of 730.5 hours.
func TestOracle(t *testing.T) {
	const a100, l40s, a10, mig = "NVIDIA A100-SXM4-40GB", "NVIDIA L40S", "NVIDIA A10", "NVIDIA A100-SXM4-80GB"
	var s scene
	all := func(busy float64) func(int64) float64 { return hourOf(0, 24, busy, 0) }
	on := func(node, model, name string, memory float64, busy func(int64) float64, pods ...string) job {
		return job{name: name, model: model, node: node, memory: memory, busy: busy, pods: pods}
	}
	// Node n1, 8 H100: two idle since Friday, one that 2g.20gb covers, two of whose one GPU is idle, three unallocated.
	s.node("n1", h100, 8, states{"busy": 3.1, "idle": 1.9, "unallocated": 3}, nil)
	s.job(on("n1", h100, "stopped", 20*gib, between(monday, monday.Add(4*day), 0.9, 0), "stopped-0", "stopped-1"))
	s.job(on("n1", h100, "small", 8*gib, all(0.12), "small-0"))
	ranks := on("n1", h100, "ranks", 16*gib, all(0.9), "ranks-0")
	s.rules(on("n1", h100, "ranks", 16*gib, all(0.45)), 2)
	s.allocate(ranks)
	ranks.busy, ranks.gpus = no, []string{"GPU-idle"}
	s.allocate(ranks)
	// Node n2, 3 L40S that are used well; node s-9 of another pool, one of which a third is enough.
	s.node("n2", l40s, 3, states{"busy": 2.69, "gap": 0.31}, nil)
	s.node("s-9", l40s, 1, states{"busy": 0.16, "gap": 0.84}, nil)
	s.job(on("s-9", l40s, "part", 10*gib, all(0.16), "part-0"))
	s.job(on("n2", l40s, "well", 60*gib, all(0.9), "well-0", "well-1", "well-2"))
	// Nodes a-3 to a-5 of a pool, 4 A100 each: a service of ten replicas that is busy as 1.8 GPUs.
	for i := 3; i <= 5; i++ {
		s.node(fmt.Sprint("a-", i), a100, 4, states{"busy": 0.6, "gap": 2.4, "unallocated": 1}, nil)
	}
	s.rules(on("a-3", a100, "service", 35*gib, all(0.2)), 9)
	for i := range 9 {
		j := on(fmt.Sprint("a-", 3+i/3), a100, "service", 35*gib, all(0.2), fmt.Sprint("service-", i))
		j.gpus = []string{fmt.Sprint("GPU-service-", i)}
		s.allocate(j)
	}
	// Node n6, a GPU with seven devices and a pod on one: one of 3g.40gb waits for four of the ten days. A quarter of a GPU
	// was unavailable on n7. Two pods on a GPU of n8 are busy as 0.95 of it.
	s.node("n6", mig, 1, states{"busy": 0.13, "gap": 1./7 - 0.13, "unallocated": 6. / 7}, nil)
	device := on("n6", mig, "device", 5*gib, all(0.13), "device-0")
	device.share, device.resource = 1./7, "nvidia_com_mig_1g_10gb"
	s.job(device)
	s.add(metric.RuleFree, map[string]string{"node": "n6", "resource": "nvidia_com_mig_1g_10gb"}, constant(6))
	s.add(metric.RulePending, map[string]string{"namespace": "team", "resource": "nvidia_com_mig_3g_40gb"},
		during(monday, monday.Add(4*day), constant(1)))
	s.node("n8", a10, 1, states{"busy": 0.95, "gap": 0.05}, nil)
	for name, busy := range map[string]float64{"large": 0.8, "little": 0.15} {
		j := on("n8", a10, name, 5*gib, all(busy), name+"-0")
		j.share, j.gpus = 0.5, []string{"GPU-shared"}
		s.job(j)
	}
	s.node("n7", l40s, 1, states{"unallocated": 0.75, "unavailable": 0.25}, nil)

	list, err := prices.Parse([]byte("{currency: EUR, gpus: [{model: '*', per_hour: 2}]}"))
	must.OK(t, err)
	d := s.must(t, func(o *Options) { o.Prices = list })
	type row struct{ hours, gpus, cumulated, month float64 }
	wants := map[string]struct {
		code, saving, confidence string
		row
		pods   int // of the replay
		placed float64
	}{
		// Twice 9 x 0.2 is 3.6: four of nine for 240 hours.
		"Run 4 replicas of service instead of 9":            {"fewer_replicas", "freed", "medium", row{1200, 5, 1200, 3652.5}, 4, 960},
		"Request 1 instead of 2 GPUs for each pod of ranks": {"fewer_gpus", "freed", "medium", row{240, 1, 1440, 730.5}, 1, 240},
		// Twice 0.16 is below a third.
		"Share the GPU of part: 1/3 of a GPU is enough": {"share", "freed", "medium", row{160, 2. / 3, 1600, 487}, 1, 80},
		"After the advice on workloads: give back 1 node of NVIDIA A100-SXM4-40GB: a-5": {
			"consolidate", "nodes", "low", row{960, 4, 0, 2922},
			4, 960},
		"Repair the GPUs of n7":     {"fix_fault", "freed", "high", row{60, 0.25, 1660, 182.625}, 0, 0},
		"Reduce sharing for large":  {"reduce_sharing", "freed", "medium", row{0, 0, 1660, 0}, 0, 0},
		"Reduce sharing for little": {"reduce_sharing", "freed", "medium", row{0, 0, 1660, 0}, 0, 0},
		// Two GPUs for six days, and a third of a GPU remains of one: questions, which no sum has.
		"Release 2 GPUs of stopped": {"release", "freed", "low", row{288, 2, 1660, 1461}, 2, 192},
		// Twice 0.12 is below two sevenths.
		"Move small to the MIG profile 2g.20gb": {"shrink", "freed", "low", row{160, 2. / 3, 1660, 487}, 1, 80},
		"Give back 1 node of NVIDIA L40S: n7":   {"consolidate", "nodes", "low", row{240, 1, 0, 730.5}, 4, 960},
		// Four of eight slots for 96 hours.
		"Offer fewer nvidia.com/mig-1g.10gb and more nvidia.com/mig-3g.40gb": {"mig_geometry", "queue", "medium",
			row{48, 0.2, 48, 146.1}, 1, 240},
	}
	for _, a := range d.Advice {
		want, ok := wants[a.Title]
		if !ok || a.Code != want.code || a.Saving != want.saving || a.Confidence != want.confidence {
			t.Errorf("%s %s %s %q: %+v", a.Code, a.Saving, a.Confidence, a.Title, a.Replay)
			continue
		}
		delete(wants, a.Title)
		near(t, a.Title+": hours", a.SavedHours, want.hours)
		near(t, a.Title+": GPUs", a.SavedGPUs, want.gpus)
		near(t, a.Title+": cumulated", a.Cumulated, want.cumulated)
		near(t, a.Title+": month", a.MonthHours, want.month)
		if a.MonthCost != nil && want.hours > 0 {
			near(t, a.Title+": cost", *a.SavedCost, 2*want.hours)
			near(t, a.Title+": cost of a month", *a.MonthCost, 2*want.month)
		}
		if r := a.Replay; (r != nil) != (want.pods > 0) || r != nil && (r.Pods != want.pods || r.Waiting != 0 || r.Evicted != 0 ||
			r.Throttled != 0) {
			t.Errorf("%s: %+v", a.Title, r)
		} else if r != nil {
			near(t, a.Title+": placed", r.OccupiedHours, want.placed)
		}
	}
	for title := range wants {
		t.Errorf("missing: %s", title)
	}
	for kind, want := range map[string]float64{document.SavesHours: 1660, document.SavesNodes: 0, document.SavesQueue: 48} {
		hours, _, _ := d.Saved(kind)
		near(t, "saved "+kind, hours, want)
	}
	// Two GPUs for six days, and the idle one of ranks for ten.
	near(t, "reclaimable", d.Fleet.Reclaimable, 288+240)
	near(t, "hours", d.Fleet.Hours, 27*240)
}
