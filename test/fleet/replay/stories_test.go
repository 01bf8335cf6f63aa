package replay_test

import (
	"flag"
	"fmt"
	"maps"
	"math"
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
	allCells = flag.Bool("cells", false, "simulate the stories in every cell; without it at 60 s")
	seed     = flag.Uint64("seed", 4089513936903336702, "of the random offsets and times; 0: a new one")
	seeds    = flag.Int("seeds", 40, "so many random faults")
	only     = flag.String("story", "", "simulate the stories whose fault contains this")
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
func cells() []replay.Cell {
	if *allCells {
		return replay.Cells()
	}
	return []replay.Cell{{Scrape: time.Minute}}
}

const (
	hour = time.Hour
	// reboot is how long a node is away.
	reboot = 8 * time.Minute
	// history is what there was before a story begins.
	history = 75 * time.Minute
	// stopped is when Prometheus stops, for so long as restarted: it then reads its log.
	stopped, restarted = 130 * time.Minute, 4 * time.Minute
)

// plot is how a story is simulated: the size of its cluster, which is its own, and what changes so long after its beginning,
// before it if the time is negative. From the repair on the change is not applied, unless it is after.
type plot struct {
	nodes, gpus int
	change      func(w *world, since time.Duration)
	after       func(w *world, since time.Duration)
	// before is how the cluster is at any time.
	before func(w *world)
	// long is a story of hours, fixed one whose alert counts events: it comes and ends with them, not with the fault.
	long, fixed bool
}

// rebooting is a node that is away after the repair began, and that counts its XIDs from 0.
func rebooting(w *world, since time.Duration) {
	if since < reboot {
		w.nodes[0].down, w.nodes[0].notReady = true, true
	}
}

// resetting is a reset of the GPU: the exporter is stopped for it, and finds the XID in the kernel log.
func resetting(codes ...string) func(*world, time.Duration) {
	return func(w *world, since time.Duration) {
		w.nodes[0].exporterDown = since < 3*time.Minute
		for _, code := range codes {
			w.xid(code, 0, 0)
		}
	}
}

func replaced(w *world, _ time.Duration) {
	w.nodes[0].absent = true
	w.drop("serve")
	w.drop("train-0")
}

func lose(w *world, _ time.Duration) {
	w.gpu().lost = true
	w.nodes[0].offered["nvidia_com_gpu"]--
	w.xid("79", 1, 0)
}

// running is a story whose simulation lasts from start on.
type running struct {
	alerts.Story
	plot
	name  string
	cell  replay.Cell // of its targets, if not the server's
	start time.Time
	from  time.Duration
	count map[string]*counter
}

// at is the cluster at a time.
func (r *running) at(at, clock time.Time) *world {
	size := r.plot
	if size.nodes == 0 {
		size.nodes = 1
	}
	if size.gpus == 0 {
		size.gpus = 4
	}
	w := newWorld(r.name, size.nodes, size.gpus)
	since := at.Sub(r.start) - r.from
	w.counters, w.begin, w.now = r.count, clock.Add(-since), clock
	if r.before != nil {
		r.before(w)
	}
	switch {
	case since < 0:
	case r.Lasts == 0 || since < r.Lasts:
		if r.change != nil {
			r.change(w, since)
		}
	case r.after != nil:
		r.after(w, since-r.Lasts)
	}
	return w
}

// targets are those of the story's cluster.
func (r *running) targets() (out []replay.Target) {
	for i := range max(r.nodes, 1) {
		out = append(out, replay.Target{Name: fmt.Sprintf("%s-%d", r.name, i), Cell: r.cell, Expose: func(at, clock time.Time,
			put func(labels.Labels, float64)) {
			r.at(at, clock).exposeNode(i, at, clock, put)
		}})
	}
	return append(out, replay.Target{Name: r.name + " kube-state-metrics", Cell: r.cell, Expose: func(at, clock time.Time,
		put func(labels.Labels, float64)) {
		r.at(at, clock).exposeKube(at, clock, put)
	}})
}

// own are the labels of a notification beside those that all stories share: of another node or GPU than the first, the
// whole label.
func (r *running) own(l labels.Labels) string {
	var out []string
	l.Range(func(x labels.Label) {
		switch {
		case slices.Contains([]string{"alertname", "severity", "cluster", "job", "instance"}, x.Name):
		case x.Name == "node" && (x.Value == r.name+"-1" || x.Value == "any"):
		case x.Name == "uuid" && x.Value == fmt.Sprintf("GPU-%s-1-%d", r.name, faulty):
		case x.Name == "gpu" && x.Value == fmt.Sprint(faulty):
		default:
			out = append(out, x.Name+`="`+x.Value+`"`)
		}
	})
	slices.Sort(out)
	return strings.Join(out, ",")
}

// late is by how much a notification may begin or end later than its story has it: a record and its alert are evaluated at
// times of their own, after a scrape, and without markers of their end series last for five minutes more, and records of them.
func late(cell replay.Cell, unmarked bool) time.Duration {
	if unmarked {
		return 2*cell.Scrape + 25*time.Minute
	}
	return 2*cell.Scrape + 9*time.Minute
}

// judge compares all notifications of the story's cluster with its list.
func (r *running) judge(list []replay.Notification, end time.Time, cell replay.Cell, unmarked bool) (wrong []string) {
	left := slices.Clone(r.Notices)
	begin := r.start.Add(r.from)
	late := late(cell, unmarked)
	for _, n := range list {
		own := r.own(n.Labels)
		i := slices.IndexFunc(left, func(want alerts.Notice) bool { return want.Alert == n.Alert() && sortedOwn(want.Own) == own })
		if i < 0 {
			wrong = append(wrong, fmt.Sprintf("%s{%s} may not notify", n.Alert(), own))
			continue
		}
		want := left[i]
		left = slices.Delete(left, i, i+1)
		// Prometheus restores the wait of an alert that is active at its group's first evaluation: where a record that it reads was
		// older than five minutes by then, it waits anew.
		back, d := r.start.Add(stopped+restarted), n.From.Sub(begin)
		anew := begin.Before(back) && n.From.After(back) && n.From.Sub(back) <= want.After+late
		if d < want.After-2*cell.Scrape-time.Minute || d > want.After+late && !anew {
			wrong = append(wrong, fmt.Sprintf("%s comes after %v instead of %v", n.Alert(), d, want.After))
		}
		to := end
		if !n.To.IsZero() {
			to = n.To
		}
		repair := begin.Add(r.Lasts)
		switch d := to.Sub(repair); {
		case want.Until == alerts.Stays && !n.To.IsZero():
			wrong = append(wrong, fmt.Sprintf("%s ends after %v", n.Alert(), d))
		case want.Until == alerts.Stays:
		case n.To.IsZero() && end.Before(repair.Add(want.Until+late)): // the simulation is too short
		case d < want.Until-2*cell.Scrape-5*time.Minute || d < 0 && r.Lasts > 0 || d > want.Until+late:
			wrong = append(wrong, fmt.Sprintf("%s ends after %v instead of %v", n.Alert(), d, want.Until))
		}
	}
	for _, n := range left {
		wrong = append(wrong, n.Alert+"{"+n.Own+"} is lost")
	}
	return wrong
}

func sortedOwn(own string) string {
	if own == "" {
		return ""
	}
	parts := strings.Split(own, ",")
	slices.Sort(parts)
	return strings.Join(parts, ",")
}

// cast are the stories with their plots, each begun at a random time. Long are those that last for hours.
func cast(t *testing.T, random *rand.Rand, start time.Time, long bool) (out []*running) {
	t.Helper()
	all := plots()
	stories, err := alerts.Stories()
	must.OK(t, err)
	for i, s := range stories {
		p, ok := all[s.Fault]
		if !ok {
			t.Errorf("%q is not simulated", s.Fault)
		}
		delete(all, s.Fault)
		from := history + time.Duration(random.IntN(600))*time.Second
		if p.long == long && strings.Contains(s.Fault, *only) {
			out = append(out, &running{s, p, fmt.Sprintf("s%02d", i), replay.Cell{}, start, from, map[string]*counter{}})
		}
	}
	for fault := range all {
		t.Errorf("%q is simulated, and no story", fault)
	}
	return out
}

// simulate returns the notifications of stories by their name.
func simulate(t *testing.T, s *replay.Server, cell replay.Cell, random *rand.Rand, list []*running, start, end time.Time) (
	byName map[string][]replay.Notification) {
	t.Helper()
	var targets []replay.Target
	for _, r := range list {
		targets = append(targets, r.targets()...)
	}
	w := s.Watch(cell, random, targets)
	stops := start.Add(stopped)
	for _, span := range [][2]time.Time{{start, stops}, {stops.Add(restarted), end}} {
		must.OK(t, w.Run(t.Context(), span[0], span[1]))
	}
	byName = map[string][]replay.Notification{}
	for _, n := range w.Notifications {
		name := n.Labels.Get("cluster")
		if name == "" {
			name, _, _ = strings.Cut(n.Labels.Get("node"), "-")
		}
		byName[name] = append(byName[name], n)
	}
	return byName
}

// Every story has the notifications of its list and no other, whatever the scrape interval, the offsets of scrapes and
// evaluations, the clocks of the nodes and the backend, and through a restart of Prometheus.
func TestStories(t *testing.T) {
	random := generator(t)
	start := fleet.DefaultEpoch()
	for _, cell := range cells() {
		t.Run(cell.String(), func(t *testing.T) {
			list, end := cast(t, random, start, false), start.Add(235*time.Minute)
			byName := simulate(t, replay.New(t, alerts.Default()), cell, random, list, start, end)
			check(t, list, byName, end, cell)
		})
	}
	t.Run("of hours", func(t *testing.T) {
		cell := replay.Cell{Scrape: replay.Intervals()[2+random.IntN(2)]}
		list, end := cast(t, random, start, true), start.Add(9*hour)
		check(t, list, simulate(t, seldom(t), cell, random, list, start, end), end, cell)
	})
}

// seldom is a server that evaluates no group oftener than every four minutes, or hours would take minutes.
func seldom(t *testing.T) *replay.Server {
	t.Helper()
	records, err := alerts.Default().RecordingRules()
	must.OK(t, err)
	alerting, err := alerts.Default().AlertRules()
	must.OK(t, err)
	all := append(records, alerting...)
	for i := range all {
		all[i].Interval = max(all[i].Interval, 4*time.Minute)
	}
	return replay.WithRules(t, all)
}

func check(t *testing.T, list []*running, byName map[string][]replay.Notification, end time.Time, cell replay.Cell) {
	t.Helper()
	for _, r := range list {
		if wrong := r.judge(byName[r.name], end, cell, cell.Unmarked); len(wrong) > 0 {
			t.Errorf("%s: %s: %s", r.Fault, strings.Join(wrong, "; "), replay.Describe(byName[r.name], r.start.Add(r.from)))
		}
		delete(byName, r.name)
	}
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		t.Errorf("%q: %s", name, replay.Describe(byName[name], list[0].start))
	}
}

// Faults of the stories with random repair times, scrape intervals, phases and clocks: each is one notification if it lasts
// longer than the story's alert waits, at most one if it lasts about as long, and none if it is repaired before.
func TestRandomFaults(t *testing.T) {
	random, start := generator(t), fleet.DefaultEpoch()
	all := slices.DeleteFunc(cast(t, random, start, false), func(r *running) bool {
		return r.Lasts == 0 || len(r.Notices) != 1 || r.fixed
	})
	const batch = 50
	for first := 0; first < *seeds; first += batch {
		end := start.Add(history + 5*hour)
		var list []*running
		for i := first; i < min(first+batch, *seeds); i++ {
			r := *all[random.IntN(len(all))]
			r.name, r.from, r.count = fmt.Sprintf("r%03d", i), history+time.Duration(random.IntN(1200))*time.Second, map[string]*counter{}
			r.cell = replay.Cell{Scrape: time.Duration(15+random.IntN(106)) * time.Second,
				Behind: time.Duration(random.IntN(91)-45) * time.Second}
			// From a minute to three hours, short times as often as long ones.
			r.Lasts = time.Duration(math.Exp(random.Float64()*math.Log(180))*60) * time.Second
			list = append(list, &r)
		}
		server := replay.New(t, alerts.Default())
		byName := simulate(t, server, replay.Cell{Scrape: time.Minute, Unmarked: random.IntN(3) == 0}, random, list, start, end)
		for _, r := range list {
			wanted, late, got := r.Notices[0], late(r.cell, server.Unmarked), byName[r.name]
			var wrong []string
			switch {
			case len(got) > 1:
				wrong = []string{fmt.Sprintf("%d notifications", len(got))}
			case len(got) == 0 && r.Lasts > wanted.After+late:
				wrong = []string{"it is lost"}
			case len(got) == 1 && r.Lasts < wanted.After-2*r.cell.Scrape-time.Minute && !server.Unmarked:
				wrong = []string{"it was repaired before"}
			case len(got) == 1:
				wrong = r.judge(got, end, r.cell, server.Unmarked)
			}
			if len(wrong) > 0 {
				t.Errorf("%s: %s, lasts %v, scraped every %v, clock behind %v, unmarked %v: %s: %s",
					r.name, r.Fault, r.Lasts, r.cell.Scrape,
					r.cell.Behind, server.Unmarked, strings.Join(wrong, "; "), replay.Describe(got, start.Add(r.from)))
			}
		}
	}
}

// What is missing around a healthy node raises one alert that names it, and nothing else.
func TestMissingParts(t *testing.T) {
	records, err := alerts.Default().RecordingRules()
	must.OK(t, err)
	alerting, err := alerts.Default().AlertRules()
	must.OK(t, err)
	start := fleet.DefaultEpoch()
	for name, c := range map[string]struct {
		rules []alerts.RuleGroup
		world func(w *world)
		want  string
	}{
		"recording rules":    {alerting, nil, "GPURecordsAbsent"},
		"the default job":    {append(records, alerting...), func(w *world) { w.job = "gpu-metrics" }, "GPUExporterAbsent"},
		"kube-state-metrics": {append(records, alerting...), func(w *world) { w.noKube = true }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := &running{name: "c", plot: plot{before: c.world}, start: start, count: map[string]*counter{}}
			w := replay.WithRules(t, c.rules).Watch(replay.Cell{Scrape: time.Minute}, generator(t), r.targets())
			must.OK(t, w.Run(t.Context(), start, start.Add(40*time.Minute)))
			var got []string
			for _, n := range w.Notifications {
				got = append(got, n.Alert())
			}
			if strings.Join(got, ",") != c.want {
				t.Errorf("fires %v, want %q", got, c.want)
			}
		})
	}
}
