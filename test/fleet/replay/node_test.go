package replay_test

import (
	"fmt"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// xid is an error of the GPU that may be faulty: how often the running exporter counted it, and when it was last.
type xid struct {
	count uint64
	last  time.Time
}

// exposition is what a node exposes and what kube-state-metrics reports of it.
type exposition struct {
	down, exporterDown, driverless, cordoned, notReady, absent bool
	lost                                                       int // GPU that is unavailable; -1: none
	gpus                                                       int
	offered                                                    int
	// recovery is the recommended action for the faulty GPU; empty: a driver before R570.
	recovery string
	xids     map[string]xid
	// unread is how long the faulty GPU has not been polled.
	unread time.Duration
	// begin is when what happens to the node began, by its clock.
	begin time.Time
}

// xid is an error that was counted so often, the last time so long after the beginning.
func (n *exposition) xid(code string, count uint64, last time.Duration) {
	n.xids[code] = xid{count, n.begin.Add(last)}
}

// health puts the verdict on the GPU that may be faulty.
func (n *exposition) health(labels []string, series func(string, float64, ...string)) {
	state, reason := "healthy", ""
	switch {
	case n.lost >= 0:
		state, reason = "lost", "lost"
	case n.recovery == "reset":
		state, reason = "needs_reset", "recovery_reset"
	}
	for _, s := range gpu.HealthStates {
		series("gpu_health", map[bool]float64{true: 1}[string(s) == state], append(labels, "state", string(s))...)
	}
	if reason != "" {
		series("gpu_health_reason_info", 1, append(labels, "state", state, "reason", reason)...)
	}
	if n.recovery != "" {
		series("gpu_recovery_action", 1, append(labels, "action", n.recovery)...)
	}
}

// expose puts the node's series and those of kube-state-metrics.
func (n *exposition) expose(name string, clock time.Time, put func(labels.Labels, float64)) {
	if n.absent {
		return
	}
	series := func(metric string, v float64, more ...string) {
		put(labels.FromStrings(append([]string{"__name__", metric, "node", name}, more...)...), v)
	}
	flag := func(b bool) float64 {
		if b {
			return 1
		}
		return 0
	}
	series("kube_node_spec_unschedulable", flag(n.cordoned))
	series("kube_node_status_condition", flag(!n.notReady), "condition", "Ready", "status", "true")
	series("kube_node_status_capacity", gpus, "resource", "nvidia_com_gpu")
	up := !n.down && !n.exporterDown
	put(labels.FromStrings("__name__", "up", "job", "monitoring/gpu-exporter", "instance", name), flag(up))
	if !up {
		return
	}
	polls := map[string]time.Duration{"fast": 2 * time.Second, "medium": 10 * time.Second, "slow": time.Minute}
	series("gpu_exporter_build_info", 1)
	series("gpu_exporter_source_up", flag(!n.driverless), "source", "nvml")
	series("gpu_node_allocatable_devices", float64(n.offered), "resource", "nvidia_com_gpu")
	series("gpu_node_allocated_devices", 0, "resource", "nvidia_com_gpu")
	for poll, interval := range polls {
		series("gpu_exporter_poll_interval_seconds", interval.Seconds(), "poll", poll)
	}
	for i := range n.gpus {
		id := []string{"uuid", fmt.Sprintf("GPU-%s-%d", name, i), "gpu", fmt.Sprint(i)}
		if n.driverless {
			id = []string{"uuid", fmt.Sprintf("0000:%02d:00.0", i), "gpu", "-1"}
		}
		series("gpu_device_up", flag(!n.driverless && i != n.lost), id...)
		if n.driverless {
			continue
		}
		series("gpu_info", 1, append(id, "model", "H100")...)
		series("gpu_allocation_ratio", 0, id...)
		for poll, interval := range polls {
			read := clock.Truncate(interval)
			if i == faulty {
				read = clock.Add(-n.unread).Truncate(interval)
			}
			series("gpu_last_read_timestamp_seconds", float64(read.Unix()), append(id, "poll", poll)...)
		}
		if i != faulty {
			continue
		}
		n.health(id, series)
		for code, x := range n.xids {
			series("gpu_xid_events_total", float64(x.count), append(id, "xid", code)...)
			series("gpu_xid_last_timestamp_seconds", float64(x.last.Unix()), append(id, "xid", code)...)
		}
	}
}
