package account

import (
	"math"
	"slices"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// usersOn returns the first user of a part, without the driver's own processes and MPS servers, and how many there are:
// 0, 1, or 2 for several.
func (l *Ledger) usersOn(c *device, p *part, users Users) (first User, n int) {
	list := c.list()
	for i := range list {
		if !c.on(p, &list[i]) {
			continue
		}
		who := l.who(c, users, list[i].PID)
		switch {
		case who.Reason == gpu.UnattributedDriver || who.Reason == gpu.UnattributedMPS:
		case n == 0:
			first, n = who, 1
		case who != first:
			return first, 2
		}
	}
	return first, n
}

// otherUser reports whether a process of another container or of the host was active.
func (l *Ledger) otherUser(c *device, own gpu.Container, users Users) bool {
	return slices.ContainsFunc(c.weights, func(w processWeight) bool {
		who := l.who(c, users, w.pid)
		return who.Reason == gpu.UnattributedHost || who.Reason == "" && who.Container != own
	})
}

// split divides the busy time of a part, and its observed time, in proportion to the samples of its users.
func (l *Ledger) split(c *device, p *part, busy, observed, ago float64, users Users) {
	first, n := l.usersOn(c, p, users)
	_, untrusted := c.mpsServers(p)
	switch {
	case !(busy > 0):
	case !c.mig && len(c.weights) > 0:
		visible := c.explained.take(busy)
		l.splitByWeight(c, visible, ago, users)
		l.attributeBusy(c, credit{target{reason: gpu.UnattributedHidden}, busy - visible}, ago)
	case untrusted:
		// It may be an MPS server or pretend to be one: its activity must not be attributed to another container.
		l.attributeBusy(c, credit{target{reason: gpu.UnattributedMPS}, busy}, ago)
		return
	case n == 0 || !c.mig && c.explained.some:
		// No visible process can have caused it.
		l.attributeBusy(c, credit{target{reason: gpu.UnattributedHidden}, busy}, ago)
	case n == 1:
		l.attributeUser(c, first, busy, ago)
	default:
		l.attributeBusy(c, credit{target{reason: gpu.UnattributedUnmeasured}, busy}, ago)
		return // nothing was measured per user, so there is no observed time
	}
	for _, h := range p.rows {
		if h.row.measured() {
			h.row.observed += observed
		}
	}
	for _, r := range l.alive[c.id.UUID] {
		if r.uses && !r.isAllocated && (!c.mig || n == 1 && first == User{Container: r.key.container}) {
			r.observed += observed
		}
	}
}

// splitByWeight divides busy time in proportion to the samples.
func (l *Ledger) splitByWeight(c *device, busy, ago float64, users Users) {
	total := 0.0
	c.weighed = c.weighed[:0]
	for _, w := range c.weights {
		total += w.weight
		who := l.who(c, users, w.pid)
		if who.Reason == gpu.UnattributedDriver {
			who.Reason = gpu.UnattributedMPS // where the server has samples, they are those of its clients
		}
		at := slices.IndexFunc(c.weighed, func(x weighed) bool { return x.who == who })
		if at < 0 {
			at, c.weighed = len(c.weighed), append(c.weighed, weighed{who: who})
		}
		c.weighed[at].weight += w.weight
	}
	left := busy
	for i, w := range c.weighed {
		share := min(left, busy*w.weight/total)
		if i == len(c.weighed)-1 {
			share = left // the remainder of rounding
		}
		left -= share
		l.attributeUser(c, w.who, share, ago)
	}
}

// attributeUser adds busy time that process samples show for a user.
func (l *Ledger) attributeUser(c *device, who User, busy, ago float64) {
	t := l.target(c, who)
	l.attributeBusy(c, credit{t, busy}, ago)
	if t.row == nil || !(busy > 0) {
		return
	}
	t.row.usedAt = l.clock
	if l.clock > t.row.releasedAt+lingering {
		l.activate(t.row)
	}
}

// lingering is how long, in seconds, a container counts as a user after its last samples without being in a process
// list: the lists are read that often.
const lingering = 12.0

// markUser records that a container uses a GPU.
func (l *Ledger) markUser(r *row) {
	l.activate(r)
	if r.isAllocated || !r.uses && !r.used {
		r.usedFrom = l.clock
	}
	r.uses = true
}

const (
	// hiddenHold is how long, in seconds, a GPU that is allocated to one container counts as shared with hidden work after
	// the last of it: its memory and attribution method do not change with every pause.
	hiddenHold = 60.0
	// explainedDepth is how long, in microseconds, samples of the ring are kept: longer than the driver keeps them.
	explainedDepth = 15_000_000
	// lateCells is how many samples of the ring may be missing in those of the processes, or beyond the ring in them: the
	// two are not read at the same time.
	lateCells = 2
	// hiddenProof is how many standard deviations, and how many samples of the ring, may be without a process by chance.
	hiddenProof = 5
	// doubtProof is the same where unlistedMemory is in use that no listed process has: more than contexts and a display.
	doubtProof, unlistedMemory = 3, 1 << 30
)

// take returns how much of the busy time of a poll the samples explain.
func (x *explained) take(busy float64) float64 {
	if !x.some {
		return busy
	}
	busy = min(busy, x.owed)
	x.owed -= busy
	return busy
}

// add compares a reading. The driver rounds the mean of each process to a percent, so a difference up to one percent for
// each, and half a percent for the ring, proves nothing.
//
// Which period the means are over is not documented. All of the time since the newest sample is taken, the longest that
// is possible. The ring is in the order of time.
func (x *explained) add(samples []gpu.ProcessSample, ring []gpu.Sample, limit float64) {
	known := len(x.cells)
	for _, s := range ring {
		if n := len(x.cells); s.Value >= 0 && s.Value <= 100 && s.Time > x.until && (n == 0 || s.Time > x.cells[n-1].Time) {
			x.cells = append(x.cells, s)
		}
	}
	x.proven = false
	if len(x.cells) > known {
		x.compare(samples, known, limit)
	}
	for _, s := range samples {
		x.until = max(x.until, s.Time)
	}
	for len(x.cells) > 0 && x.cells[0].Time <= x.until {
		x.cells = x.cells[1:]
	}
}

// compare compares the samples of the processes with those of the ring since the newest sample before; known is how many
// of the latter a reading before had.
//
// What is left was done by processes that are not listed, or the driver recorded no process with a sample of the ring:
// it has the one that was active when the sample was taken, if there was one (NV2080_CTRL_PERF_GPUMON_ENGINE_UTIL_SAMPLE
// in ctrl2080perf.h of open-gpu-kernel-modules 595.45.04). In a period that was busy for a fraction v that has the
// probability v. Where one container has the whole GPU, hidden work is proven by what is missing beyond that.
func (x *explained) compare(samples []gpu.ProcessSample, known int, limit float64) {
	newest := x.cells[len(x.cells)-1].Time
	for newest-x.cells[0].Time > explainedDepth {
		x.cells, known = x.cells[1:], known-1
	}
	sum := 0.0
	for _, s := range samples {
		sum += s.SM / 100
	}
	// A process of less than a percent may have no sample.
	rounding := (float64(max(1, len(samples))) + 0.5) / 100
	busy, expected, variance, last, active := 0.0, 0.0, 0.0, max(x.until, newest-explainedDepth), 0
	span, fresh, likely, added, skipped := float64(newest-last)*microsecond, 0.0, 0.0, 0.0, 0.0
	for i, s := range x.cells {
		width := float64(s.Time-last) * microsecond
		if last = s.Time; width > limit {
			skipped += width - limit/2
			width = limit / 2 // the ring was stopped
		}
		v := s.Value / 100
		busy += v * width
		if v > 0 {
			active++
		}
		if i >= known {
			expected += (v*v - rounding) * width
			variance += v * (1 - v) * v * width * v * width
			fresh, likely, added = fresh+v*width, likely+v*v*width, added+width
		}
	}
	if x.until != 0 && skipped == 0 { // otherwise samples of the processes may be of periods that were not read
		x.doubt.add(fresh, likely, rounding*added, variance, sum*span, limit/2)
	}
	switch {
	case x.until == 0: // the first samples are over an unknown period
	case len(samples) == 0 && active <= lateCells:
	case busy-sum*span > rounding*span:
		x.some, x.owed = true, min(busy, x.owed+sum*span)
		x.missing.add(expected-sum*(span+lateCells*limit/2), variance)
		x.proven = x.missing.exceeds(hiddenProof, limit/2)
	default:
		*x = explained{cells: x.cells, until: x.until, doubt: x.doubt}
	}
}

// doubt compares, over many readings, the time that the samples have with what they should have: with the least if the
// driver leaves out processes by chance, and with all busy time if it does not. It never proves hidden work by itself: only
// where memory is in use that no listed process has. Nor does such memory alone, which may be managed memory
// (cudaMallocManaged): that is in no process's figure (github.com/Syllo/nvtop/issues/213).
type doubt struct {
	less, more excess  // of the samples, compared with the least
	lacking    float64 // seconds that they have less than all, since they had all
	complete   bool    // the samples once had more than they would have if processes were left out
}

// excess is a sum of seconds, since it would have been below 0, and its variance by chance.
type excess struct{ sum, variance float64 }

func (e *excess) add(by, variance float64) {
	if e.sum, e.variance = e.sum+by, e.variance+variance; e.sum <= 0 {
		*e = excess{}
	}
}

func (e excess) exceeds(proof, period float64) bool {
	return e.sum > proof*(math.Sqrt(e.variance)+period)
}

// add adds a reading: its busy time, the least that the samples should have of it, and what they have, but for rounding.
func (d *doubt) add(busy, least, rounding, variance, have, period float64) {
	late := lateCells * period
	if have > busy+rounding+late {
		return // the samples are of other periods
	}
	variance += late * late // what the load does meanwhile is in one of the two alone
	d.less.add(least-have-rounding, variance)
	d.more.add(have-least-rounding, variance)
	d.complete = d.complete || d.more.exceeds(hiddenProof, period)
	d.lacking = max(0, d.lacking+busy-have-rounding)
}

// proves reports whether there is hidden work if memory is in use that no process has.
func (d *doubt) proves(period float64) bool {
	return d.less.exceeds(doubtProof, period) || d.complete && d.lacking > doubtProof*period
}

// unlisted is the memory in use that no listed process has; 0 if that is not known of all of it. Where the driver does not
// report what it reserves, that is in it.
func (c *device) unlisted() gpu.Bytes {
	if c.medium == nil || c.mig || !c.visible || !c.medium.Memory.Or(gpu.Memory{}).Reserved.Present() {
		return 0
	}
	left := c.medium.Memory.Or(gpu.Memory{}).Used
	for _, p := range c.list() {
		used, ok := p.Memory.Get()
		if !ok || used >= left {
			return 0
		}
		left -= used
	}
	return left
}
