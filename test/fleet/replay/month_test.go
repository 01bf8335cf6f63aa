package replay_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/gpu-exporter/gpu-exporter/alerts"
	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/internal/standin/fleet"
	"github.com/gpu-exporter/gpu-exporter/test/fleet/replay"
)

var (
	allCells  = flag.Bool("cells", false, "simulate the alerts in every cell; without it in four of them")
	seed      = flag.Uint64("seed", 0, "of the random cells, offsets and times; 0: a new one")
	replicas  = flag.Int("month.replicas", 1, "evaluate the rules on so many servers, whose alerts are one where their labels are")
	monthGPUs = flag.Int("month.gpus", 0, "simulate what happens in a month to so many GPUs; 0: every event once")
)

// generator returns the random numbers of a test, and logs its seed.
func generator(t *testing.T) *rand.Rand {
	t.Helper()
	s := *seed
	if s == 0 {
		s = rand.Uint64()
	}
	t.Logf("-seed=%d repeats it", s)
	return rand.New(rand.NewPCG(s, 1))
}

// cells are those of a run.
func cells(random *rand.Rand) []replay.Cell {
	if *allCells {
		return replay.Cells()
	}
	return replay.SomeCells(random)
}

// incident is something that happens to a node, and the alerts that may fire for it.
type incident struct {
	name string
	// lasts is the time until it is repaired; 0: it is not.
	lasts time.Duration
	// may are the alerts of which one notifies, once; none: nothing may.
	may []string
	// perhaps is that none is right as well.
	perhaps bool
	// change edits what the node exposes so long after the beginning, also after the repair.
	change func(n *exposition, since time.Duration)
	// perMonth is how often it happens to a fleet of 16,000 GPUs in a month: an assumption.
	perMonth int
	// always is an incident that was there before anything was scraped.
	always bool
}

const (
	hour = time.Hour
	// long is how long what does not pass by itself lasts.
	long = 75 * time.Minute
	// A node has so many GPUs, of which one may be faulty.
	gpus, faulty = 4, 2
	// reboot is how long a node is away.
	reboot = 8 * time.Minute
	// quiet is how long an alert may fire after the repair, beside what the backend takes to end a series.
	quiet = 27 * time.Minute
)

// until is a state that ends with the repair.
func until(lasts time.Duration, change func(n *exposition)) func(*exposition, time.Duration) {
	return func(n *exposition, since time.Duration) {
		if lasts == 0 || since < lasts {
			change(n)
		}
	}
}

// rebooted is a state that a reboot of the node ends.
func rebooted(after time.Duration, change func(n *exposition, since time.Duration)) func(*exposition, time.Duration) {
	return func(n *exposition, since time.Duration) {
		switch {
		case since < after:
			change(n, since)
		case since < after+reboot:
			n.down, n.notReady = true, true
		}
	}
}

// reset is a state that a reset of the GPU ends: the exporter is stopped for it, and finds the XID in the kernel log.
func reset(after time.Duration, change func(n *exposition, since time.Duration)) func(*exposition, time.Duration) {
	return func(n *exposition, since time.Duration) {
		change(n, min(since, after))
		if since >= after {
			n.lost, n.recovery = -1, "none"
			n.exporterDown = since < after+3*time.Minute
			for xid, x := range n.xids {
				x.count = 0
				n.xids[xid] = x
			}
		}
	}
}

func incidents() []incident {
	lost := func(n *exposition, _ time.Duration) { n.lost, n.offered = faulty, gpus-1; n.xid("79", 1, 0) }
	out := []incident{
		{name: "a driver that comes after the exporter", always: true, lasts: 20 * time.Minute, perMonth: 60,
			change: until(20*time.Minute, func(n *exposition) { n.driverless = true })},
		{name: "a rolling upgrade of the driver", lasts: hour, perMonth: 2000,
			change: until(hour, func(n *exposition) { n.cordoned, n.driverless = true, true })},
		{name: "a reboot", lasts: reboot, perMonth: 200, change: rebooted(0, nil)},
		{name: "a preempted node that is gone", perMonth: 200, change: until(0, func(n *exposition) { n.absent = true })},
		{name: "a restart of the kubelet", lasts: 3 * time.Minute, perMonth: 200,
			change: until(3*time.Minute, func(n *exposition) { n.offered = 0 })},
		{name: "a GPU that never came", always: true, may: []string{"GPUMissing"}, perMonth: 4,
			change: until(0, func(n *exposition) { n.gpus, n.offered = gpus-1, gpus-1 })},
		{name: "a driver that fails", lasts: long, may: []string{"GPUDriverDown"}, perMonth: 10,
			change: until(long, func(n *exposition) { n.driverless = true })},
		{name: "an exporter that crashes again and again", lasts: long, may: []string{"GPUExporterDown"}, perMonth: 4,
			change: func(n *exposition, since time.Duration) { // up for one minute in five
				n.exporterDown = since < long && since%(5*time.Minute) >= time.Minute
			}},
		{name: "a device plugin that stopped", lasts: long, may: []string{"GPUNotOffered"}, perMonth: 6,
			change: until(long, func(n *exposition) { n.offered = 0 })},
		{name: "a GPU that is polled no more", lasts: hour, may: []string{"GPUExporterPollStuck"},
			change: func(n *exposition, since time.Duration) {
				if since < hour {
					n.unread = since
				}
			}},
		{name: "a GPU that is lost for three minutes", lasts: 3 * time.Minute,
			change: until(3*time.Minute, func(n *exposition) { n.lost = faulty })},
		// A backend without markers has the lost GPU for five minutes more.
		{name: "a node that is replaced four minutes after XID 79", may: []string{"GPUUnavailable"}, perhaps: true,
			lasts: 5 * time.Minute, change: func(n *exposition, since time.Duration) {
				lost(n, since)
				n.down, n.absent = since > 4*time.Minute, since > 5*time.Minute
			}},
	}
	for _, m := range []time.Duration{10 * time.Minute, 20 * time.Minute, 30 * time.Minute} {
		name := func(format string) string { return fmt.Sprintf(format, m) }
		out = append(out, incident{name: name("XID 79, and a reboot after %v"), lasts: m, may: []string{"GPUUnavailable"},
			change: rebooted(m, lost), perMonth: 10},
			incident{name: name("XID 79, and the node is replaced after %v"), lasts: m, may: []string{"GPUUnavailable"},
				change: func(n *exposition, since time.Duration) {
					lost(n, since)
					n.down, n.absent = since > m, since > m+2*time.Minute
				}},
			incident{name: name("XID 119 before R570, and a reboot after %v"), lasts: m, may: []string{"GPUXIDFatal"},
				change: rebooted(m, func(n *exposition, _ time.Duration) { n.recovery = ""; n.xid("119", 1, 0) })},
			incident{name: name("XID 95 before R570, and a reset after %v"), lasts: m, may: []string{"GPUXIDFatal"},
				change: func(n *exposition, since time.Duration) {
					reset(m, func(n *exposition, _ time.Duration) { n.xid("95", 1, 0) })(n, since)
					n.recovery = ""
				}},
			incident{name: name("XID 95, a recommendation, and a reset after %v"), lasts: m, may: []string{"GPURepairRequired"},
				change:   reset(m, func(n *exposition, _ time.Duration) { n.recovery = "reset"; n.xid("95", 1, 0) }),
				perMonth: 15})
	}
	for _, m := range []time.Duration{2 * time.Minute, 4 * time.Minute, 8 * time.Minute, 16 * time.Minute, 24 * time.Minute} {
		flap := func(n *exposition, since time.Duration) { // lost for half of the period
			falls := since / m
			if since%m < m/2 {
				n.lost, n.offered = faulty, gpus-1
			}
			n.xid("79", uint64(falls)+1, falls*m)
		}
		out = append(out, incident{name: fmt.Sprintf("a GPU that comes and goes every %v", m), lasts: long,
			// Where it is lost between two scrapes, only its XIDs are seen.
			may: []string{"GPUUnavailable", "GPUXIDFatal"}, change: rebooted(long, flap)})
	}
	return out
}

// A node of the simulation, with what happens to it.
type happening struct {
	incident
	node string
	from time.Duration
}

// month is what happens in a month to a fleet of so many GPUs; 0: everything once. What happens on one node does not depend
// on what happens on another, so all of it begins within an hour, each on a node of its own. Faults are simulated one by
// one; of planned work a sample is.
func month(gpus int, random *rand.Rand) []happening {
	const sample = 10
	var out []happening
	for i, c := range incidents() {
		n := 1
		if gpus > 0 {
			if n = c.perMonth * gpus / 16000; c.perMonth > 0 {
				n = max(1, n)
			}
		}
		if len(c.may) == 0 {
			n = min(n, sample)
		}
		for k := range n {
			h := happening{c, fmt.Sprintf("n%d-%d", i, k), 0}
			if !c.always { // what is compared with the hour before has one
				h.from = 70*time.Minute + time.Duration(random.IntN(int(10*time.Minute/time.Second)))*time.Second
			}
			out = append(out, h)
		}
	}
	for i := range 5 {
		out = append(out, happening{incident: incident{name: "nothing", change: func(*exposition, time.Duration) {}},
			node: fmt.Sprintf("healthy%d", i)})
	}
	return out
}

// target is the node, with what happens to it after the start of the simulation.
func (h happening) target(start time.Time) replay.Target {
	return replay.Target{Name: h.node, Expose: func(at, clock time.Time, put func(labels.Labels, float64)) {
		n := exposition{lost: -1, gpus: gpus, offered: gpus, recovery: "none", xids: map[string]xid{}}
		if since := at.Sub(start) - h.from; since >= 0 {
			n.begin = clock.Add(-since)
			h.change(&n, since)
		}
		n.expose(h.node, clock, put)
	}}
}

// judge compares all notifications of a node with what happened to it.
func (h happening) judge(list []replay.Notification, start, end time.Time, cell replay.Cell) (wrong []string) {
	begin := start.Add(h.from)
	for _, n := range list {
		if !slices.Contains(h.may, n.Alert()) {
			wrong = append(wrong, n.Alert()+" may not fire")
		}
	}
	if len(h.may) == 0 || len(wrong) > 0 || h.perhaps && len(list) == 0 {
		return wrong
	}
	if len(list) != 1 {
		return append(wrong, fmt.Sprintf("%d notifications, want 1", len(list)))
	}
	n, repaired := list[0], end
	if h.lasts > 0 {
		repaired = begin.Add(h.lasts)
	}
	if late := 40 * time.Minute; n.From.After(begin.Add(late)) {
		wrong = append(wrong, fmt.Sprintf("it is later than %v", late))
	}
	tolerance := quiet + 2*cell.Scrape
	if cell.Unmarked { // of the series, and of the record that reads it
		tolerance += 10 * time.Minute
	}
	switch {
	case !n.To.IsZero() && n.To.Before(repaired):
		wrong = append(wrong, "it ends before the repair")
	case end.After(repaired.Add(tolerance)) && (n.To.IsZero() || n.To.After(repaired.Add(tolerance))):
		wrong = append(wrong, fmt.Sprintf("it fires for more than %v after the repair", tolerance))
	}
	return wrong
}

// Every fault is one notification until it is repaired, whatever the scrape interval, the offsets of scrapes and evaluations,
// the clocks of the nodes and the backend; planned work is none. All notifications of all rules count.
func TestMonthOfAlerts(t *testing.T) {
	random := generator(t)
	for _, cell := range cells(random) {
		t.Run(cell.String(), func(t *testing.T) {
			list := month(*monthGPUs, random)
			var targets []replay.Target
			start := fleet.DefaultEpoch()
			for _, h := range list {
				targets = append(targets, h.target(start))
			}
			end := start.Add(200 * time.Minute)
			var all []replay.Notification
			for range *replicas {
				w := replay.New(t, alerts.Default()).Watch(cell, random, targets)
				restart := start.Add(2*hour + 10*time.Minute) // of Prometheus, which reads its log
				for _, span := range [][2]time.Time{{start, restart}, {restart.Add(4 * time.Minute), end}} {
					must.OK(t, w.Run(t.Context(), span[0], span[1]))
				}
				all = merge(all, w.Notifications)
			}
			byNode, count := map[string][]replay.Notification{}, map[string]int{}
			for _, n := range all {
				byNode[n.Labels.Get("node")] = append(byNode[n.Labels.Get("node")], n)
				count[n.Labels.Get("severity")]++
			}
			faults := 0
			for _, h := range list {
				if len(h.may) > 0 {
					faults++
				}
				notified := byNode[h.node]
				if wrong := h.judge(notified, start, end, cell); len(wrong) > 0 {
					t.Errorf("%s: %s: %s", h.name, strings.Join(wrong, "; "), replay.Describe(notified, start.Add(h.from)))
				}
				delete(byNode, h.node)
			}
			for node, notified := range byNode {
				t.Errorf("node %q: %s", node, replay.Describe(notified, start))
			}
			t.Logf("%d nodes, %d faults: %d pages, %d warnings, %d notices; if that is a month's, %.1f pages and %.1f warnings a day",
				len(list), faults, count["critical"], count["warning"], count["info"], float64(count["critical"])/30,
				float64(count["warning"])/30)
		})
	}
}

// merge adds the notifications of a further server, which are one with those of the same labels that overlap.
func merge(all, more []replay.Notification) []replay.Notification {
	last := func(n replay.Notification) time.Time {
		if n.To.IsZero() {
			return time.Unix(1<<40, 0)
		}
		return n.To
	}
	for _, n := range more {
		i := slices.IndexFunc(all, func(o replay.Notification) bool {
			return labels.Equal(o.Labels, n.Labels) && !n.From.After(last(o)) && !o.From.After(last(n))
		})
		if i < 0 {
			all = append(all, n)
			continue
		}
		if o := &all[i]; n.From.Before(o.From) {
			o.From = n.From
		}
		if last(n).After(last(all[i])) {
			all[i].To = n.To
		}
	}
	return all
}
