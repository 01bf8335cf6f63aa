package reporttest

import "fmt"

// Month is the history of so many nodes with eight GPUs each: what the rules record, and every container on its GPU. It
// never ends.
func Month(nodes int) *Server {
	s := &Server{}
	const model = "NVIDIA H100 80GB HBM3"
	add := func(name string, at func(int64) (float64, bool), pairs ...string) {
		l := map[string]string{}
		for i := 0; i < len(pairs); i += 2 {
			l[pairs[i]] = pairs[i+1]
		}
		s.Series = append(s.Series, Series{Name: name, Labels: l, At: at})
	}
	constant := func(v float64) func(int64) (float64, bool) {
		return func(int64) (float64, bool) { return v, true }
	}
	// Values with as many digits as real ones.
	wave := func(i int) func(int64) (float64, bool) {
		return func(t int64) (float64, bool) { return 0.2 + 0.7*float64((t/300*7+int64(i)*13)%97)/97, true }
	}
	rest := func(i int) func(int64) (float64, bool) {
		w := wave(i)
		return func(t int64) (float64, bool) { v, _ := w(t); return 1 - v, true }
	}
	for n := range nodes {
		node := fmt.Sprintf("h100-%04d", n)
		for use, v := range map[string]float64{"busy": 4.4, "gap": 1.6, "idle": 1, "unallocated": 0.9, "unavailable": 0, "unknown": 0.1} {
			add("node:gpu_time_seconds:rate5m", constant(v), "node", node, "model", model, "state", use)
		}
		add("node:gpu_device_up:count", constant(8), "node", node, "model", model)
		add("node:gpu_power_watts:sum", constant(3600.25), "node", node, "model", model)
		for c := range 8 {
			i := n*8 + c
			uuid, namespace := fmt.Sprintf("GPU-%08d", i), fmt.Sprintf("team-%d", i%20)
			workload := fmt.Sprintf("app-%d", i/60)
			on := []string{"node", node, "uuid", uuid, "namespace", namespace, "pod", fmt.Sprintf("%s-%d", workload, i)}
			add("gpu_info", constant(1), "node", node, "uuid", uuid, "model", model)
			add("gpu_memory_total_bytes", constant(81559<<20), "node", node, "uuid", uuid)
			add("gpu_container_allocated_seconds_total", constant(1), on...)
			add("gpu_container_busy_seconds_total", wave(i), on...)
			add("gpu_container_unused_seconds_total", rest(i), append(on, "state", "idle")...)
			add("gpu_container_allocation_ratio", constant(1), append(on, "resource", "nvidia_com_gpu")...)
			add("gpu_container_memory_used_bytes", constant(30<<30), on...)
			if i%60 < 20 { // once for each workload
				w := []string{"namespace", namespace, "workload_type", "Deployment", "workload", workload, "model", model}
				add("workload:gpu_allocated_seconds:rate5m", constant(3), w...)
				add("workload:gpu_observed_seconds:rate5m", constant(3), w...)
				add("workload:gpu_busy_seconds:rate5m", wave(i), w...)
				add("workload:gpu_busy:ratio_max", wave(i), w...)
				add("workload:gpu_unused_seconds:rate5m", rest(i), append(w, "state", "idle")...)
				add("workload:gpu_unused_seconds:rate5m", rest(i), append(w, "state", "gap")...)
				add("workload:gpu_power_watts:sum", constant(1500.5), w...)
				add("workload:gpu_memory_used_bytes:max", constant(30<<30), w...)
				add("workload:gpu_pods:count", constant(3), w[:6]...)
			}
			add("pod:gpu_workload:info", constant(1), "node", node, "namespace", namespace, "pod", fmt.Sprintf("%s-%d", workload, i), "workload_type", "Deployment", "workload", workload)
		}
	}
	return s
}
