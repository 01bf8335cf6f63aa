package reporttest

import (
	"fmt"
	"slices"
)

// Model is the model of Month's GPUs.
const Model = "NVIDIA H100 80GB HBM3"

// Month is the history of nodes with eight GPUs each: what the rules record, and every container on its GPU. It never
// ends.
func Month(nodes int) *Server {
	s := &Server{}
	// Values with as many digits as real ones.
	wave := func(i int) At {
		return func(t int64) (float64, bool) { return 0.2 + 0.7*float64((t/300*7+int64(i)*13)%97)/97, true }
	}
	rest := func(i int) At {
		return func(t int64) (float64, bool) { v, _ := wave(i)(t); return 1 - v, true }
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
			workload := fmt.Sprintf("app-%d", i/60)
			pod := []string{"namespace", fmt.Sprintf("team-%d", i%20), "pod", fmt.Sprintf("%s-%d", workload, i)}
			owner := []string{"workload_type", "Deployment", "workload", workload}
			on := slices.Concat(gpu, pod)
			s.Add("gpu_info", one, append(slices.Clone(gpu), "model", Model)...)
			s.Add("gpu_memory_total_bytes", Constant(81559<<20), gpu...)
			s.Add("gpu_container_allocated_seconds_total", one, on...)
			s.Add("gpu_container_busy_seconds_total", wave(i), on...)
			s.Add("gpu_container_unused_seconds_total", rest(i), append(slices.Clone(on), "state", "idle")...)
			s.Add("gpu_container_allocation_ratio", one, append(slices.Clone(on), "resource", "nvidia_com_gpu")...)
			s.Add("gpu_container_memory_used_bytes", memory, on...)
			s.Add("pod:gpu_workload:info", one, slices.Concat(node, pod, owner)...)
			if i%60 >= 20 { // once per workload
				continue
			}
			w := slices.Concat(pod[:2], owner)
			s.Add("workload:gpu_pods:count", Constant(3), w...)
			w = append(w, "model", Model)
			s.Add("workload:gpu_allocated_seconds:rate5m", Constant(3), w...)
			s.Add("workload:gpu_observed_seconds:rate5m", Constant(3), w...)
			s.Add("workload:gpu_busy_seconds:rate5m", wave(i), w...)
			s.Add("workload:gpu_busy:ratio_max", wave(i), w...)
			s.Add("workload:gpu_unused_seconds:rate5m", rest(i), append(slices.Clone(w), "state", "idle")...)
			s.Add("workload:gpu_unused_seconds:rate5m", rest(i), append(slices.Clone(w), "state", "gap")...)
			s.Add("workload:gpu_power_watts:sum", Constant(1500.5), w...)
			s.Add("workload:gpu_memory_used_bytes:max", memory, w...)
		}
	}
	return s
}
