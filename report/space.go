package report

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strings"
)

// loadKey names one owner's use of one model.
type loadKey struct{ cluster, namespace, kind, name, model string }

func (a loadKey) compare(b loadKey) int {
	return cmp.Or(strings.Compare(a.cluster, b.cluster), strings.Compare(a.namespace, b.namespace), strings.Compare(a.kind, b.kind),
		strings.Compare(a.name, b.name), strings.Compare(a.model, b.model))
}

func (a loadKey) id() string {
	parts := []string{a.namespace, a.kind, a.name, a.model}
	if a.cluster != "" {
		parts = append([]string{a.cluster}, parts...)
	}
	return strings.Join(parts, "/")
}

// load is what one workload did on one model, while it is read. Tracks are in GPUs, sums in GPU-steps.
type load struct {
	key  loadKey
	from string // where the owner is known from

	held, busy, idle, observed    track
	most, memory                  track // activity of its busiest GPU; largest memory of a container on a GPU
	heldSum, busySum, observedSum float64
	underusedSum, idleSum         float64
	joules                        float64
	energy                        bool
	lastBusy                      float64 // Unix time, 0 when not known
	pods                          map[podKey]bool
	podsAtOnce                    float64
	allocs                        []*alloc
}

// podKey names a pod.
type podKey struct{ cluster, namespace, pod string }

// holdKey names a pod on a GPU.
type holdKey struct{ cluster, namespace, pod, node, uuid string }

func (a holdKey) compare(b holdKey) int {
	return cmp.Or(strings.Compare(a.cluster, b.cluster), strings.Compare(a.namespace, b.namespace), strings.Compare(a.pod, b.pod),
		strings.Compare(a.node, b.node), strings.Compare(a.uuid, b.uuid))
}

// holding is one pod on one GPU. Tracks are in GPUs, but for the memory.
type alloc struct {
	key        holdKey
	model      string
	resource   string
	busy, idle track
	share      track   // part of the GPU that it holds
	memory     track   // bytes, hourly values spread over their steps
	of         *load   // its workload
	typical    float64 // its share most of the time; 0 while not known
}

// space is one namespace while it is read.
type space struct {
	w      Window
	name   string
	loads  map[loadKey]*load
	allocs map[holdKey]*alloc
	owners map[podKey]owner
	// shares says that it is known what part of its GPU each holding holds.
	shares bool
}

func newSpace(w Window, name string) *space {
	return &space{w: w, name: name, loads: map[loadKey]*load{}, allocs: map[holdKey]*alloc{}, owners: map[podKey]owner{}}
}

func (s *space) load(cluster string, o owner, model string) *load {
	k := loadKey{cluster, s.name, o.kind, o.name, model}
	l := s.loads[k]
	if l == nil {
		l = &load{key: k, from: o.from, pods: map[podKey]bool{}}
		s.loads[k] = l
	}
	return l
}

func (s *space) alloc(k holdKey) *alloc {
	h := s.allocs[k]
	if h == nil {
		h = &alloc{key: k}
		s.allocs[k] = h
	}
	return h
}

// ownerOf returns the owner of a pod.
func (s *space) ownerOf(p podKey) owner {
	if o, ok := s.owners[p]; ok {
		return o
	}
	return guessOwner(p.pod)
}

// quantity is something that is read of workloads.
type quantity int

const (
	qHeld quantity = iota
	qBusy
	qObserved
	qUnderused
	qIdle
	qWatts
	qMemory
	qMost
	qLast
	qPods
)

// add takes one value of one series of a workload.
func (l *load) add(q quantity, k int, v, stepSeconds float64) {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return
	}
	switch q {
	case qHeld:
		l.held.add(k, v)
		l.heldSum += v
	case qBusy:
		l.busy.add(k, v)
		l.busySum += v
	case qObserved:
		l.observed.add(k, v)
		l.observedSum += v
	case qUnderused:
		l.underusedSum += v
	case qIdle:
		l.idle.add(k, v)
		l.idleSum += v
	case qWatts:
		l.joules += v * stepSeconds
		l.energy = true
	case qMemory:
		l.memory.max(k, v)
	case qMost:
		l.most.max(k, min(1, v))
	case qLast:
		l.lastBusy = max(l.lastBusy, v)
	case qPods:
		l.podsAtOnce = max(l.podsAtOnce, v)
	}
}

// join gives every holding to its workload. model tells the model of a GPU. A workload of which no rule told is
// made from its holdings.
func (s *space) join(model func(cluster, node, uuid string) string) {
	for _, k := range slices.SortedFunc(maps.Keys(s.allocs), holdKey.compare) {
		h := s.allocs[k]
		h.model = model(k.cluster, k.node, k.uuid)
		p := podKey{k.cluster, k.namespace, k.pod}
		l := s.load(k.cluster, s.ownerOf(p), h.model)
		l.pods[p] = true
		h.of = l
		l.allocs = append(l.allocs, h)
		h.settle()
		if !s.shares {
			h.typical = 1
		}
	}
}

// fill makes up for rules that are missing: what holdings did in a part of the window goes to their workloads.
func (s *space) fill(g span, stepSeconds float64) {
	for _, l := range s.loads {
		for _, h := range l.allocs {
			for k := max(g.from, h.busy.from); k < min(g.to, h.busy.end()); k++ {
				if v, ok := h.busy.at(k); ok {
					l.add(qBusy, k, v, stepSeconds)
				}
				if v, ok := h.activity(k); ok {
					l.add(qMost, k, v, stepSeconds)
				}
			}
			for k := max(g.from, h.idle.from); k < min(g.to, h.idle.end()); k++ {
				if v, ok := h.idle.at(k); ok {
					l.add(qIdle, k, v, stepSeconds)
				}
			}
		}
	}
}

// sorted returns the workloads in order.
func (s *space) sorted() []*load {
	return slices.SortedFunc(maps.Values(s.loads), func(a, b *load) int { return a.key.compare(b.key) })
}

// settle fills the share in where it was read more coarsely than the rest.
func (h *alloc) settle() {
	var shares []float64
	for _, v := range h.share.v {
		if v == v && v > 0 {
			shares = append(shares, float64(v))
		}
	}
	h.typical = newSample(shares).quantile(0.5)
}

// shareAt is the part of the GPU that is held in step k.
func (h *alloc) shareAt(k int) float64 {
	if v, ok := h.share.at(k); ok && v > 0 {
		return v
	}
	return h.typical
}

// longestPause is the longest part of a step that was idle, from 0 to 1; steps of which nothing is known are none.
func (h *alloc) longestPause() float64 {
	longest := 0.0
	for i, v := range h.idle.v {
		if !math.IsNaN(float64(v)) {
			longest = max(longest, min(1, over(float64(v), h.shareAt(h.idle.from+i))))
		}
	}
	return longest
}

// sole says that it holds its GPU alone and whole.
func (h *alloc) sole() bool { return !h.mig() && h.typical > 0.999 }

func (h *alloc) mig() bool { return strings.Contains(h.resource, "mig") }

// activity is how busy its part of the GPU was: of a MIG instance the instance, else the GPU.
func (h *alloc) activity(k int) (float64, bool) {
	v, ok := h.busy.at(k)
	if !ok {
		return 0, false
	}
	if h.mig() {
		if share := h.shareAt(k); share > 0 {
			v /= share
		}
	}
	return min(1, v), true
}

// stretch is an idle time of a holding or of a workload.
type stretch struct {
	from, to int     // steps
	idle     float64 // GPU-steps
	steps    float64 // how long, in steps; the first and the last count by what was idle of them
}

// stretches finds the times in which a holding was idle without a break. A step that was idle but for a
// hundredth is whole: the ends of means are rounded.
func (h *alloc) stretches() []stretch {
	const whole = 0.98
	var out []stretch
	var now stretch
	open := false
	shut := func() {
		if open {
			out = append(out, now)
		}
		open = false
	}
	for i, v := range h.idle.v {
		k := h.idle.from + i
		part := over(float64(v), h.shareAt(k))
		switch {
		case !(part > 0.001):
			shut()
		case part >= whole:
			if !open {
				now, open = stretch{from: k}, true
			}
			now.idle += float64(v)
			now.steps++
			now.to = k + 1
		default: // the begin, the end, or both, of a stretch
			if open {
				now.idle += float64(v)
				now.steps += part
				now.to = k + 1
				shut()
			}
			// The idle time may also belong to the end of the step, where the next stretch begins.
			if next := i + 1; next < len(h.idle.v) && over(float64(h.idle.v[next]), h.shareAt(k+1)) >= whole {
				if n := len(out); n == 0 || out[n-1].to != k+1 {
					now, open = stretch{from: k, to: k + 1, idle: float64(v), steps: part}, true
				}
			}
		}
	}
	shut()
	return out
}

// opening is the part of a quantity that lasts for at least width steps at a time: what remains of a workload's
// idle GPUs when shorter stretches are taken away. It is used where single GPUs are not known, and is at most too
// much, when GPUs take turns in being idle.
func opening(t *track, width int) (out track) {
	n := t.len()
	if n < width || width < 1 {
		return out
	}
	at := func(i int) float32 {
		if v := t.v[i]; v == v {
			return v
		}
		return 0
	}
	low := make([]float32, n-width+1)
	for i := range low {
		m := at(i)
		for j := 1; j < width; j++ {
			m = min(m, at(i+j))
		}
		low[i] = m
	}
	for i := range n {
		m := float32(0)
		for j := max(0, i-width+1); j <= min(i, len(low)-1); j++ {
			m = max(m, low[j])
		}
		out.add(t.from+i, float64(m))
	}
	return out
}
