package replay_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"

	"github.com/gpu-exporter/gpu-exporter/alerts"
	"github.com/gpu-exporter/gpu-exporter/internal/catalog"
	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/internal/standin/fleet"
	"github.com/gpu-exporter/gpu-exporter/test/dashboard"
	"github.com/gpu-exporter/gpu-exporter/test/fleet/replay"
)

// part is what a workload has of one GPU, and does on it. All but of are fractions of the GPU.
type part struct {
	workload string
	of       string  // the GPU; containers of one share it
	share    float64 // allocated; 0: unknown
	mig      float64 // size of the MIG device; 0: none
	busy     float64
	observed float64 // part of the time whose activity is observed; 0: all
	// want is the Busy of measured; below 0: none.
	want float64
}

func parts() []part {
	const slice = 1. / 7
	all := []part{
		{"whole-full", "w1", 1, 0, 0.95, 0, 0.95}, {"whole-low", "w2", 1, 0, 0.1, 0, 0.1},
		{"half-full", "h1", 0.5, 0, 0.45, 0, 0.9}, {"half-full", "h1", 0.5, 0, 0.45, 0, 0.9},
		{"half-low", "h2", 0.5, 0, 0.05, 0, 0.1}, {"half-low", "h2", 0.5, 0, 0.05, 0, 0.1},
		// Beside a neighbor that uses the rest of the GPU there is no unused time, and yet it uses two fifths of its share.
		{"quarter-low", "q2", 0.25, 0, 0.05, 0, 0.2}, {"beyond-full", "q2", 0.25, 0, 0.5, 0, 2},
		{"quarter-gaps-full", "q3", 0.25, 0, 0.1225, 0.5, 0.98},
		{"mig-full", "m1", 3 * slice, 3 * slice, 0.95 * 3 * slice, 0, 0.95}, {"mig-low", "m1", slice, slice, 0.05 * slice, 0, 0.05},
		// Two replicas of one MIG device.
		{"mig-half-full", "m2", slice, 2 * slice, 0.98 * slice, 0, 0.98}, {"mig-half-full", "m2", slice, 2 * slice, 0.98 * slice, 0, 0.98},
		{"unknown", "u1", 0, 0, 0.1, 0, -1},
	}
	for range 4 {
		all = append(all, part{"quarter-full", "q1", 0.25, 0, 0.245, 0, 0.98})
	}
	for i := range 8 { // one pod
		p := part{"pod-full", fmt.Sprint("p", i), 1, 0, 0.95, 0, 0.83125}
		if i == 7 {
			p.busy = 0
		}
		all = append(all, p)
	}
	return all
}

// Nothing above 80 % busy of what is allocated to it is in a list of waste, whatever part of a GPU that is; what is below
// is in them. Busy of measured is the same on all dashboards.
func TestWellUsedIsNoWaste(t *testing.T) {
	t.Parallel()
	all, want := parts(), map[string]float64{}
	s := replay.New(t, alerts.Default())
	begin := fleet.DefaultEpoch()
	w := dashboard.Window{From: begin.Add(time.Hour), To: begin.Add(150 * time.Minute), Step: time.Minute, Scrape: time.Minute}
	busyOf := map[string]float64{}
	for _, p := range all {
		want[p.workload] = p.want
		busyOf[p.of] += p.busy
	}
	for at := begin; !at.After(w.To); at = at.Add(time.Minute) {
		elapsed := at.Sub(begin).Seconds()
		err := s.Scrape(t.Context(), "n1", at, func(put func(labels.Labels, float64)) {
			pods := map[string]int{}
			seen := map[string]bool{}
			for _, p := range all {
				pod := p.workload
				if p.workload != "pod-full" {
					pods[p.workload]++
					pod = fmt.Sprint(p.workload, "-", pods[p.workload])
				}
				device := []string{"node", "n1", "uuid", "GPU-" + p.of, "gpu", p.of}
				series := func(name string, v float64, more ...string) {
					l := slices.Concat([]string{"__name__", name}, device, more)
					put(labels.FromStrings(l...), v)
				}
				if !seen[p.of] {
					seen[p.of] = true
					series("gpu_info", 1, "model", "NVIDIA X")
					series("gpu_device_up", 1)
				}
				if !seen[pod] {
					seen[pod] = true
					put(labels.FromStrings("__name__", "gpu_pod_info", "node", "n1", "namespace", "team", "pod", pod, "workload_type",
						"Deployment", "workload", p.workload), 1)
				}
				container := []string{"namespace", "team", "pod", pod, "container", "c"}
				of, observed := 1.0, 1.0
				if p.mig > 0 {
					of = p.mig
				}
				if p.observed > 0 {
					observed = p.observed
				}
				series("gpu_container_busy_seconds_total", p.busy*elapsed, container...)
				series("gpu_container_observed_seconds_total", observed*of*elapsed, container...)
				if p.share == 0 {
					continue
				}
				mig := ""
				if p.mig > 0 {
					mig = fmt.Sprint("MIG-", p.of, p.mig)
				}
				series("gpu_container_allocation_ratio", p.share, append(slices.Clone(container), "resource", "r", "mig_uuid", mig)...)
				series("gpu_container_allocated_seconds_total", p.share*elapsed, container...)
				rest := observed - busyOf[p.of]
				if p.mig > 0 {
					rest = 1 - p.busy/p.share
				}
				state := "gap"
				if p.busy == 0 {
					state = "idle"
				}
				series("gpu_container_unused_seconds_total", p.share*rest*elapsed, append(slices.Clone(container), "state", state)...)
			}
		})
		must.OK(t, err)
		s.Eval(t.Context(), at)
	}

	dashboards, err := dashboard.LoadAll("../../../dashboards")
	must.OK(t, err)
	query := func(board, panel string, values dashboard.Values, use func(refID string, v promql.Vector)) {
		t.Helper()
		found := false
		for _, d := range dashboards {
			for _, p := range d.Panels {
				if d.UID != board || p.Title != panel {
					continue
				}
				found = true
				for _, target := range p.Targets {
					expr, err := d.Fill(target.Expr, values, w)
					must.OK(t, err)
					v, err := s.Query(t.Context(), expr, w.To)
					if err != nil {
						t.Fatalf("%s/%s: %v", board, panel, err)
					}
					use(target.RefID, v)
				}
			}
		}
		if !found {
			t.Fatalf("there is no panel %s/%s", board, panel)
		}
	}
	accused := func(list string, found map[string]bool) {
		t.Helper()
		if len(found) == 0 {
			t.Errorf("%s is empty", list)
		}
		for name, busy := range want {
			if found[name] && busy > catalog.WellUsed {
				t.Errorf("%s has %s, which is busy for %g of what it has", list, name, busy)
			}
			low := strings.HasSuffix(name, "-low")
			if low && !found[name] && list != "gpu-namespace/Idle now" && list != "GPUAllocatedIdle" {
				t.Errorf("%s lacks %s, which is busy for %g of what it has", list, name, busy)
			}
		}
	}
	name := func(m labels.Labels) string {
		if workload := m.Get("workload"); workload != "" {
			return workload
		}
		name, _, _ := strings.Cut(m.Get("pod"), "-1")
		return name
	}
	for _, list := range [][2]string{{"gpu-capacity", "Workloads with unused GPUs"}, {"gpu-capacity", "Underused workloads"},
		{"gpu-fleet", "Pods with unused GPUs"}} {
		found := map[string]bool{}
		query(list[0], list[1], nil, func(_ string, v promql.Vector) {
			for _, e := range v {
				found[name(e.Metric)] = true
			}
		})
		accused(list[0]+"/"+list[1], found)
	}
	query("gpu-namespace", "Idle now", nil, func(_ string, v promql.Vector) {
		if len(v) > 0 {
			t.Errorf("gpu-namespace/Idle now has %v", v)
		}
	})
	if v, err := s.Query(t.Context(), `ALERTS{alertname=~"GPUAllocatedIdle|GPUNamespaceIdle"}`, w.To); err != nil || len(v) > 0 {
		t.Errorf("alerts about waste: %v, %v", v, err)
	}

	neighbors := map[string]map[string]bool{}
	for _, p := range all {
		for _, other := range all {
			if p.share > 0 && p.of == other.of && p.workload != other.workload {
				if neighbors[p.workload] == nil {
					neighbors[p.workload] = map[string]bool{}
				}
				neighbors[p.workload][other.workload] = true
			}
		}
	}
	compare := func(what, workload string, v float64) {
		t.Helper()
		if math.Abs(v-want[workload]) > 0.005 {
			t.Errorf("%s of %s is %.4f, want %.4f", what, workload, v, want[workload])
		}
	}
	for record, v := range map[string]string{
		"of the record": "sum by (workload) (workload:gpu_busy_seconds:rate5m) / (sum by (workload) " +
			"(workload:gpu_measured_seconds:rate5m) > 0)",
		"of half an hour": "sum by (workload) (last_over_time(workload:gpu_busy_seconds:increase30m[1h])) / (sum by (workload) " +
			"(last_over_time(workload:gpu_measured_seconds:increase30m[1h])) > 0)",
		"of the container": `workload:gpu_busy:ratio_max{workload!="pod-full"}`,
	} {
		got, err := s.Query(t.Context(), v, w.To)
		if err != nil || len(got) < len(want)-2 {
			t.Errorf("%s: %v, %v", v, got, err)
		}
		for _, e := range got {
			compare(catalog.BusyOfMeasured.Word+" "+record, e.Metric.Get("workload"), e.F)
		}
	}
	for workload, busy := range want {
		query("gpu-workload", catalog.BusyOfMeasured.Word, dashboard.Values{"namespace": {"team"}, "workload": {workload}},
			func(_ string, v promql.Vector) {
				switch {
				case (len(v) == 1) != (busy >= 0): // of an unknown share nothing is shown
					t.Errorf("the tile of %s: %v", workload, v)
				case len(v) == 1:
					compare("the tile", workload, v[0].F)
				}
			})
		query("gpu-workload", "Others on their GPUs", dashboard.Values{"namespace": {"team"}, "workload": {workload}},
			func(_ string, v promql.Vector) {
				for _, e := range v {
					if !neighbors[workload][name(e.Metric)] {
						t.Errorf("%s is no neighbor of %s", e.Metric, workload)
					}
				}
				if len(v) != len(neighbors[workload]) {
					t.Errorf("neighbors of %s: %v, want %v", workload, v, neighbors[workload])
				}
			})
	}
}
