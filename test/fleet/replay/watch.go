package replay

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/rules"
)

// Cell is a way in which a server may observe nodes: what an alert reports must not depend on it.
type Cell struct {
	// Scrape is the scrape interval.
	Scrape time.Duration
	// Behind is how far the clocks of the nodes are behind the server's.
	Behind time.Duration
	// Unmarked is a backend without staleness markers: a series ends five minutes after its last sample.
	Unmarked bool
}

func (c Cell) String() string {
	text := fmt.Sprintf("%ds", int(c.Scrape.Seconds()))
	if c.Behind > 0 {
		text += fmt.Sprintf(",behind=%ds", int(c.Behind.Seconds()))
	}
	if c.Unmarked {
		text += ",unmarked"
	}
	return text
}

// Intervals are the scrape intervals of the cells.
func Intervals() []time.Duration {
	return []time.Duration{15 * time.Second, 30 * time.Second, time.Minute, 2 * time.Minute}
}

// Cells is each interval as it is, with clocks that are behind, and without staleness markers.
func Cells() (all []Cell) {
	for _, interval := range Intervals() {
		all = append(all, Cell{Scrape: interval}, Cell{Scrape: interval, Behind: 45 * time.Second},
			Cell{Scrape: interval, Unmarked: true})
	}
	return all
}

// Target is what is scraped in one request; one that puts nothing does not exist. Clock is the node's.
type Target struct {
	Name string
	// Cell is the target's own; without an interval it is the server's.
	Cell   Cell
	Expose func(at, clock time.Time, put func(labels.Labels, float64))
}

// Notification is an alert, from when it begins to fire until it is resolved; To is zero while it fires.
type Notification struct {
	Labels   labels.Labels
	From, To time.Time
}

// Alert is the name of the alert.
func (n Notification) Alert() string { return n.Labels.Get(labels.AlertName) }

// Watcher is a server that observes targets as a cell has it. Every target is scraped and every group evaluated at an
// offset of its own, as Prometheus does.
type Watcher struct {
	// Notifications are in the order of their beginning.
	Notifications []Notification

	server  *Server
	targets []Target
	offsets []int // of the targets, then of the groups, in seconds
	firing  map[string]map[uint64]int
}

// Watch returns the watcher of targets with random offsets.
func (s *Server) Watch(cell Cell, random *rand.Rand, targets []Target) *Watcher {
	s.Unmarked = cell.Unmarked
	w := &Watcher{server: s, firing: map[string]map[uint64]int{}}
	w.targets = slices.Clone(targets)
	for i := range targets {
		if w.targets[i].Cell.Scrape == 0 {
			w.targets[i].Cell = cell
		}
		w.offsets = append(w.offsets, random.IntN(int(w.targets[i].Cell.Scrape.Seconds())))
	}
	for _, g := range s.Groups {
		w.offsets = append(w.offsets, random.IntN(int(g.Interval().Seconds())))
		w.firing[g.Name()] = map[uint64]int{}
	}
	return w
}

// Run continues until the end, which is not part of it.
func (w *Watcher) Run(ctx context.Context, begin, end time.Time) error {
	due := func(at time.Time, every time.Duration, offset int) bool {
		return at.Unix()%int64(every.Seconds()) == int64(offset)
	}
	for at := begin; at.Before(end); at = at.Add(time.Second) {
		for i, t := range w.targets {
			if !due(at, t.Cell.Scrape, w.offsets[i]) {
				continue
			}
			err := w.server.Scrape(ctx, t.Name, at, func(put func(labels.Labels, float64)) {
				t.Expose(at, at.Add(-t.Cell.Behind), put)
			})
			if err != nil {
				return err
			}
		}
		for i, g := range w.server.Groups {
			if !due(at, g.Interval(), w.offsets[len(w.targets)+i]) {
				continue
			}
			g.Eval(ctx, at)
			if err := w.note(g, at); err != nil {
				return err
			}
		}
	}
	return nil
}

// note compares what fires with what fired at the last evaluation of the group.
func (w *Watcher) note(g *Group, at time.Time) error {
	now, before := map[uint64]int{}, w.firing[g.Name()]
	for _, r := range g.Rules() {
		if r.LastError() != nil {
			return fmt.Errorf("%s: %w", r.Name(), r.LastError())
		}
		alert, is := r.(*rules.AlertingRule)
		if !is {
			continue
		}
		for _, a := range alert.ActiveAlerts() {
			if a.State != rules.StateFiring {
				continue
			}
			id := a.Labels.Hash()
			if at, fired := before[id]; fired {
				now[id] = at
				continue
			}
			now[id] = len(w.Notifications)
			w.Notifications = append(w.Notifications, Notification{Labels: a.Labels, From: at})
		}
	}
	for id, i := range before {
		if _, fires := now[id]; !fires {
			w.Notifications[i].To = at
		}
	}
	w.firing[g.Name()] = now
	return nil
}

// Describe lists notifications with their times since begin.
func Describe(list []Notification, begin time.Time) string {
	var lines []string
	for _, n := range list {
		end := "now"
		if !n.To.IsZero() {
			end = n.To.Sub(begin).String()
		}
		lines = append(lines, fmt.Sprintf("%s %s: %s to %s", n.Labels.Get("severity"), n.Alert(), n.From.Sub(begin), end))
	}
	slices.Sort(lines)
	return strings.Join(lines, "; ")
}
