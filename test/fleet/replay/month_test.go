package replay_test

import (
	"cmp"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/gpu-exporter/gpu-exporter/alerts"
	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/internal/standin/fleet"
	"github.com/gpu-exporter/gpu-exporter/test/fleet/replay"
)

var (
	monthDays = flag.Int("month.days", 0, "simulate so many days of alerts; 0: one, with every event")
	replicas  = flag.Int("month.replicas", 1, "evaluate the rules on so many servers, whose alerts are one where their labels are")
	monthGPUs = flag.Int("month.gpus", 0, "simulate what happens in a month to so many GPUs; 0: every event once")
)

// incident is something that happens to a node between two times since the beginning, and the alerts that may fire for
// it:
// each at most once at a time, and at least one of them unless it is planned work.
type incident struct {
	name     string
	node     string
	from, to time.Duration
	planned  bool
	may      []string
	// change edits what the node exposes meanwhile.
	change func(n *exposition)
	// perMonth is how often it happens to a fleet of 16,000 GPUs in a month: an assumption.
	perMonth int
}

// month is what happens in a month to a fleet of so many GPUs. What happens on one node does not depend on what happens
// on another, so all of it is put into one simulated day, each on a node of its own, at the hours of the table moved by up
// to half an hour. Faults are simulated one by one; of planned work and healthy nodes a sample is.
func month(gpus int) []incident {
	const sample = 10
	random := rand.New(rand.NewPCG(1, uint64(gpus)))
	var out []incident
	for _, i := range incidents() {
		n := max(1, i.perMonth*gpus/16000)
		if i.planned {
			n = min(n, sample)
		}
		for k := range n {
			c := i
			c.node = fmt.Sprintf("%s%d", i.node, k)
			if c.from > 0 {
				shift := time.Duration(random.IntN(30)) * time.Minute
				c.from, c.to = c.from+shift, c.to+shift
			}
			out = append(out, c)
		}
	}
	return out
}

// exposition is what a node exposes and what kube-state-metrics says of it.
type exposition struct {
	down, driverless, cordoned, notReady, absent bool
	lost                                         int // GPU that is unavailable; -1: none
	gpus                                         int
	offered                                      int
	xid                                          string
	recovery                                     string
	crash                                        bool
}

func incidents() []incident {
	const hour, day = time.Hour, 24 * time.Hour
	return []incident{
		{"a driver that comes after the exporter", "fresh", 0, 20 * time.Minute, true, nil,
			func(n *exposition) { n.driverless = true }, 60},
		{"a rolling upgrade of the driver", "drained", 3 * hour, 4 * hour, true, nil,
			func(n *exposition) { n.cordoned, n.driverless = true, true }, 2000},
		{"a reboot", "rebooted", 5 * hour, 5*hour + 8*time.Minute, true, nil,
			func(n *exposition) { n.down, n.notReady = true, true }, 200},
		{"a preempted node that is gone", "preempted", 6 * hour, 40 * day, true, nil,
			func(n *exposition) { n.absent = true }, 200},
		{"a restart of the kubelet", "restarted", 7 * hour, 7*hour + 3*time.Minute, true, nil,
			func(n *exposition) { n.offered = 0 }, 200},
		{"a GPU that is dead until its repair", "dead", 1 * hour, 20 * hour, false,
			[]string{"GPUUnavailable", "GPUXIDFatal"},
			func(n *exposition) { n.lost, n.xid, n.offered = 3, "79", 7 }, 40},
		{"a GPU that needs a reset", "reset", 9 * hour, 12 * hour, false,
			[]string{"GPURepairRequired", "GPUXIDFatal"},
			func(n *exposition) { n.xid, n.recovery = "95", "reset" }, 60},
		{"a GPU that never came", "short", 0, 40 * day, false, []string{"GPUMissing"},
			func(n *exposition) { n.gpus, n.offered = 7, 7 }, 4},
		{"a driver that fails", "broken", 10 * hour, 13 * hour, false, []string{"GPUDriverDown"},
			func(n *exposition) { n.driverless = true }, 10},
		{"an exporter that crashes again and again", "crashing", 14 * hour, 17 * hour, false,
			[]string{"GPUExporterDown"},
			func(n *exposition) { n.crash = true }, 4},
		{"a device plugin that stopped", "unoffered", 18 * hour, 21 * hour, false, []string{"GPUNotOffered"},
			func(n *exposition) { n.offered = 0 }, 6},
	}
}

// A month of a fleet: one notification for each fault until it is repaired, none for planned work, and nothing missed.
// The
// short form has every event in a day.
func TestMonthOfAlerts(t *testing.T) {
	days := max(1, *monthDays)
	var servers []*replay.Server
	for range *replicas {
		s := replay.New(t, alerts.Default())
		s.Groups = slices.DeleteFunc(s.Groups, func(g *replay.Group) bool {
			return !slices.ContainsFunc([]string{"-models", "-problems", "-allocation", "-self", "alerts-gpus", "alerts-errors",
				"alerts-repairs", "alerts-capacity", "alerts-exporter", "alerts-exporter-state"},
				func(end string) bool { return strings.HasSuffix(g.Name(), end) })
		})
		servers = append(servers, s)
	}
	list := incidents()
	if *monthGPUs > 0 {
		list = month(*monthGPUs)
	}
	var nodes []string
	for _, i := range list {
		nodes = append(nodes, i.node)
	}
	for i := range 5 {
		nodes = append(nodes, fmt.Sprintf("healthy%d", i))
	}
	start := fleet.DefaultEpoch()
	fired := map[string]map[string]int{} // by node and alert: minutes
	pages := map[string]int{}
	before := map[string]bool{}
	const step = 4 * time.Minute
	codes := map[string]string{} // XIDs stay counted after the repair
	for since := time.Duration(0); since < time.Duration(days)*24*time.Hour; since += step {
		if since%(24*time.Hour) >= 11*time.Hour && since%(24*time.Hour) < 11*time.Hour+12*time.Minute {
			continue // Prometheus is restarted, and reads its log
		}
		at, now := start.Add(since), map[string]bool{}
		for _, name := range nodes {
			n := exposition{lost: -1, gpus: 8, offered: 8}
			for _, i := range list {
				if i.node == name && since >= i.from && since < i.to {
					i.change(&n)
				}
			}
			if n.crash && int(since/step)%5 == 0 { // up for one scrape in five
				n.crash = false
			}
			if n.xid != "" {
				codes[name] = n.xid
			}
			for r, s := range servers { // a replica scrapes and evaluates later
				if err := s.Scrape(t.Context(), name, at.Add(time.Duration(r)*time.Minute), func(put func(labels.Labels, float64)) {
					n.expose(name, codes[name], put)
				}); err != nil {
					t.Fatal(err)
				}
			}
		}
		var groups []*replay.Group
		for r, s := range servers {
			for _, g := range s.Groups {
				if at.UnixMilli()%g.Interval().Milliseconds() == 0 {
					g.Eval(t.Context(), at.Add(time.Duration(r)*time.Minute))
				}
			}
			groups = append(groups, s.Groups...)
		}
		for _, g := range groups {
			for _, a := range g.AlertingRules() {
				if a.LastError() != nil {
					t.Fatalf("%s: %v", a.Name(), a.LastError())
				}
				for _, active := range a.ActiveAlerts() {
					if active.State.String() != "firing" {
						continue
					}
					node, key := active.Labels.Get("node"), active.Labels.String()
					if fired[node] == nil {
						fired[node] = map[string]int{}
					}
					if now[key] {
						continue
					}
					fired[node][a.Name()] += int(step / time.Minute)
					now[key] = true
					if !before[key] {
						pages[active.Labels.Get("severity")]++
						pages[node+" "+active.Labels.Get("severity")]++
					}
				}
			}
		}
		before = now
	}
	for _, i := range list {
		for name := range fired[i.node] {
			if !slices.Contains(i.may, name) {
				t.Errorf("%s: %s fires for %d minutes", i.name, name, fired[i.node][name])
			}
		}
		if !i.planned {
			if n := pages[i.node+" critical"] + pages[i.node+" warning"]; n != 1 {
				t.Errorf("%s: %d notifications (%v), want 1", i.name, n, fired[i.node])
			}
			// Until it is repaired, but for the time that the alert waits and the restart of Prometheus.
			lasts := min(i.to, time.Duration(days)*24*time.Hour) - i.from
			if got := time.Duration(fired[i.node][i.may[0]]) * time.Minute; got < lasts-52*time.Minute {
				t.Errorf("%s: %s fires for %v of %v", i.name, i.may[0], got, lasts)
			}
		}
		delete(fired, i.node)
	}
	for node, names := range fired {
		t.Errorf("node %q without a fault: %v", node, names)
	}
	faults := 0
	for _, i := range list {
		if !i.planned {
			faults++
		}
	}
	t.Logf("%d nodes, %d days, %d faults: %d pages, %d warnings, %d notices; if that is a month's, %.1f pages and %.1f warnings a day",
		len(nodes), days, faults, pages["critical"], pages["warning"], pages["info"], float64(pages["critical"])/30,
		float64(pages["warning"])/30)
	if pages["critical"]+pages["warning"] > faults {
		t.Errorf("%d notifications of %d faults", pages["critical"]+pages["warning"], faults)
	}
}

// health puts the verdict on the GPU that may be faulty.
func (n *exposition) health(labels []string, series func(string, float64, ...string)) {
	state, reason := "healthy", ""
	switch {
	case n.lost >= 0:
		state, reason = "lost", "lost"
	case n.recovery != "":
		state, reason = "needs_reset", "recovery_reset"
	}
	for _, s := range gpu.HealthStates {
		series("gpu_health", map[bool]float64{true: 1}[string(s) == state], append(labels, "state", string(s))...)
	}
	if reason != "" {
		series("gpu_health_reason_info", 1, append(labels, "state", state, "reason", reason)...)
	}
	series("gpu_recovery_action", 1, append(labels, "action", cmp.Or(n.recovery, "none"))...)
}

// expose puts the node's series and those of kube-state-metrics.
func (n *exposition) expose(name, code string, put func(labels.Labels, float64)) {
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
	series("kube_node_status_capacity", 8, "resource", "nvidia_com_gpu")
	up := !n.down && !n.crash
	put(labels.FromStrings("__name__", "up", "job", "monitoring/gpu-exporter", "instance", name), flag(up))
	if !up {
		return
	}
	series("gpu_exporter_build_info", 1)
	series("gpu_exporter_source_up", flag(!n.driverless), "source", "nvml")
	series("gpu_node_allocatable_devices", float64(n.offered), "resource", "nvidia_com_gpu")
	series("gpu_node_allocated_devices", 0, "resource", "nvidia_com_gpu")
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
		if i == 3 {
			n.health(id, series)
		}
		for _, xid := range []string{"79", "95"} {
			series("gpu_xid_events_total", flag(i == 3 && code == xid), append(id, "xid", xid)...)
		}
	}
}
