package proc

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/host"
)

const (
	// watchInterval is the time between two lists of the processes: one of a second is in at least two of them.
	watchInterval = 400 * time.Millisecond
	// watchFor is how long processes are listed after one ended before it was looked up.
	watchFor = time.Minute
	// sampledFor is how old the samples may be that the driver returns: the depth of its ring, and some polls.
	sampledFor = 15 * time.Second
	// maxNew bounds the processes that are looked up after one list, maxSeen those that are remembered.
	maxNew, maxSeen = 256, 8192
)

// watcher remembers processes for which samples may come after they ended. Its methods are safe for concurrent use.
type watcher struct {
	procfs  string
	numbers bool
	clock   func() time.Time
	reader  *host.Reader
	wake    chan struct{}
	last    []int // of the last list, sorted; belongs to Watch

	mu     sync.Mutex // guards what follows
	missed time.Time  // when a process was last looked up too late
	seen   map[int]glimpse
}

// glimpse is a process that Watch saw.
type glimpse struct {
	look
	at     time.Time
	reused bool // its PID was another's shortly before
}

func newWatcher(procfs string, numbers bool, clock func() time.Time, deadline time.Duration) *watcher {
	return &watcher{procfs: procfs, numbers: numbers, clock: clock, reader: host.NewReader(deadline),
		wake: make(chan struct{}, 1), seen: map[int]glimpse{}}
}

// miss records that a process ended before it was looked up.
func (w *watcher) miss(now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.missed = now
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

func (w *watcher) of(pid int, now time.Time) (glimpse, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	g, ok := w.seen[pid]
	return g, ok && now.Sub(g.at) <= sampledFor
}

// settle forgets that the PID of a process was another's.
func (w *watcher) settle(pid int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.seen, pid)
}

// Watch looks up new processes at short intervals while some end before their samples return: without it, activity of
// processes shorter than a poll is unresolved. It returns nil when ctx ends. It may run beside the other methods.
func (f *Finder) Watch(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.watch.wake:
		}
		tick := time.NewTicker(watchInterval)
		for f.Glance(ctx) {
			select {
			case <-ctx.Done():
				tick.Stop()
				return
			case <-tick.C:
			}
		}
		tick.Stop()
	}
}

// Glance is one step of Watch, for callers that step time: it lists the processes and looks new ones up. It reports
// whether that is to go on.
func (f *Finder) Glance(ctx context.Context) bool { return f.watch.glance(ctx) }

// glance lists the processes and looks new ones up. It reports whether that is to go on.
func (w *watcher) glance(ctx context.Context) bool {
	now := w.clock()
	w.mu.Lock()
	active := now.Sub(w.missed) <= watchFor
	maps.DeleteFunc(w.seen, func(_ int, g glimpse) bool { return now.Sub(g.at) > sampledFor })
	w.mu.Unlock()
	if !active {
		w.last = nil
		return false
	}
	pids, err := host.Read(ctx, w.reader, w.procfs, func() ([]int, error) { return processes(w.procfs) })
	if err != nil {
		return ctx.Err() == nil
	}
	before, looked := w.last, 0
	w.last = pids
	if before == nil {
		return true // all of them are new
	}
	for _, pid := range pids {
		if _, known := slices.BinarySearch(before, pid); known {
			continue
		}
		if looked++; looked > maxNew {
			break
		}
		l, err := readLook(ctx, w.reader, w.procfs, pid, look{}, w.numbers)
		if err != nil {
			continue
		}
		w.mu.Lock()
		if other, ok := w.seen[pid]; ok || len(w.seen) < maxSeen {
			w.seen[pid] = glimpse{look: l, at: now, reused: ok && (other.reused || other.start != l.start)}
		}
		w.mu.Unlock()
	}
	return true
}
