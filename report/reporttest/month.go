package reporttest

import (
	"fmt"
	"slices"
)

// Model is the model of Month's GPUs.
const Model = "NVIDIA H100 80GB HBM3"

// MonthFrom is where the jobs of Month begin; everything else never ends.
const MonthFrom = 1769904000 // 2026-02-01

const hour = 3600

// kinds are the workloads of Month, of 60 GPUs each: two thirds are used well, as in a fleet that somebody watches.
var kinds = []struct {
	owner string
	job   int64 // how long a pod runs before the next one gets its GPU; 0 is for ever
	busy  func(t int64, noise float64) float64
}{
	{"Deployment", 0, func(_ int64, noise float64) float64 { return 0.2 + 0.7*noise }},
	{"Job", 48 * hour, func(_ int64, noise float64) float64 { return 0.7 + 0.25*noise }},
	{"StatefulSet", 0, func(_ int64, noise float64) float64 { return 0.5 + 0.4*noise }},
	{"Deployment", 0, func(t int64, noise float64) float64 { // a service with demand by day
		if h := t / hour % 24; h >= 8 && h < 18 {
			return 0.2 + 0.1*noise
		}
		return 0.02 + 0.01*noise
	}},
	{"Job", 0, func(_ int64, noise float64) float64 { return 0.05 + 0.05*noise }}, // could share a GPU
	{"Deployment", 0, func(int64, float64) float64 { return 0 }},
}

// Month is the history of nodes with eight GPUs each: what the rules record, and every container on its GPU.
func Month(nodes int) *Server {
	s := &Server{}
	// Values with as many digits as real ones.
	busy := func(i int) At {
		use := kinds[i/60%len(kinds)].busy
		return func(t int64) (float64, bool) { return use(t-1, float64((t/300*7+int64(i)*13)%97)/97), true }
	}
	rest := func(i int, state string) At {
		return func(t int64) (float64, bool) {
			v, _ := busy(i)(t)
			return 1 - v, (state == "idle") == (v == 0)
		}
	}
	one, memory := Constant(1), Constant(30<<30)
	for n := range nodes {
		node := []string{"node", fmt.Sprintf("h100-%04d", n)}
		onNode := append(slices.Clone(node), "model", Model)
		for state, v := range map[string]float64{"busy": 4.4, "gap": 1.6, "idle": 1, "unallocated": 0.9,
			"unavailable": 0,
			"unknown":     0.1} {
			s.Add("node:gpu_time_seconds:rate5m", Constant(v), append(slices.Clone(onNode), "state", state)...)
		}
		s.Add("node:gpu_device_up:count", Constant(8), onNode...)
		s.Add("node:gpu_power_watts:sum", Constant(3600.25), onNode...)
		for c := range 8 {
			i := n*8 + c
			gpu := append(slices.Clone(node), "uuid", fmt.Sprintf("GPU-%08d", i))
			s.Add("gpu_info", one, append(slices.Clone(gpu), "model", Model)...)
			s.Add("gpu_memory_total_bytes", Constant(81559<<20), gpu...)
			kind, workload := kinds[i/60%len(kinds)], fmt.Sprintf("app-%d", i/60)
			owner := []string{"workload_type", kind.owner, "workload", workload}
			namespace := []string{"namespace", fmt.Sprintf("team-%d", i/60%20)}
			pod := func(name string, from, to int64) {
				first := len(s.Series)
				named := slices.Concat(namespace, []string{"pod", name})
				on := slices.Concat(gpu, named)
				s.Add("gpu_container_allocated_seconds_total", one, on...)
				s.Add("gpu_container_busy_seconds_total", busy(i), on...)
				s.Add("gpu_container_unused_seconds_total", rest(i, "idle"), append(slices.Clone(on), "state", "idle")...)
				s.Add("gpu_container_allocation_ratio", one, append(slices.Clone(on), "resource", "nvidia_com_gpu")...)
				s.Add("gpu_container_memory_used_bytes", memory, on...)
				s.Add("pod:gpu_workload:info", one, slices.Concat(node, named, owner)...)
				for k := first; k < len(s.Series); k++ {
					s.Series[k].From, s.Series[k].To = from, to
				}
			}
			if kind.job == 0 {
				pod(fmt.Sprintf("%s-%d", workload, i), 0, 0)
			}
			for from := int64(MonthFrom); kind.job > 0 && from < MonthFrom+31*24*hour; from += kind.job {
				start := from + int64(i%60/8)*hour // as the one before it ends
				pod(fmt.Sprintf("%s-%d-%d", workload, i, from), start, start+kind.job)
			}
			if i%60 > 0 { // once per workload
				continue
			}
			pods := float64(min(60, nodes*8-i))
			of := func(at At) At { return func(t int64) (float64, bool) { v, ok := at(t); return pods * v, ok } }
			w := slices.Concat(namespace, owner)
			s.Add("workload:gpu_pods:count", Constant(pods), w...)
			w = append(w, "model", Model)
			s.Add("workload:gpu_allocated_seconds:rate5m", Constant(pods), w...)
			s.Add("workload:gpu_observed_seconds:rate5m", Constant(pods), w...)
			s.Add("workload:gpu_busy_seconds:rate5m", of(busy(i)), w...)
			s.Add("workload:gpu_busy:ratio_max", busy(i), w...)
			s.Add("workload:gpu_unused_seconds:rate5m", of(rest(i, "idle")), append(slices.Clone(w), "state", "idle")...)
			s.Add("workload:gpu_unused_seconds:rate5m", of(rest(i, "gap")), append(slices.Clone(w), "state", "gap")...)
			s.Add("workload:gpu_power_watts:sum", Constant(500.5*pods), w...)
			s.Add("workload:gpu_memory_used_bytes:max", memory, w...)
		}
	}
	return s
}
