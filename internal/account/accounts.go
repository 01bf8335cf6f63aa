package account

import "github.com/gpu-exporter/gpu-exporter/internal/gpu"

const (
	// maxAhead is how much busy time, in seconds, the driver's accounts of processes may lag behind its ring: the driver
	// adds the samples of the ring once a second.
	maxAhead = 2.0
	// gapSettles is how long, in seconds, after a gap the accounts may still add busy time of it.
	gapSettles = 10.0
)

// accounts are the driver's accounts of the processes of one GPU. Their sums are over the same samples as the ring, and
// have those too that the ring lost between two reads.
type accounts struct {
	known map[accountKey]float64 // busy time counted so far, in samples
	// lag is the busy time that the ring had before the accounts, in seconds.
	lag float64
	// lost is the time of a gap in the ring whose busy time is not known yet, until it is settled.
	lost, settles float64
}

type accountKey struct {
	pid   int
	start uint64
}

// read returns the busy time of each process since the reading before, in seconds, and the sum; ok is false where
// nothing can be compared. A sample covers one period of the ring.
func (a *accounts) read(list []gpu.ProcessAccount, period float64) (by []processWeight, busy float64, ok bool) {
	known := make(map[accountKey]float64, len(list))
	for _, p := range list {
		key := accountKey{p.PID, p.Start}
		before, counted := a.known[key]
		known[key] = p.Busy
		if (counted || p.New) && p.Busy > before {
			by = append(by, processWeight{p.PID, (p.Busy - before) * period})
			busy += (p.Busy - before) * period
		}
	}
	ok = a.known != nil
	a.known = known
	return by, busy, ok
}

// blend completes an increment of the ring. In normal operation the ring alone is the GPU's busy time, and what the
// accounts have beyond it is rounding. Where the ring lost samples, the difference is the busy time of the gap: it is
// added, and the gap is observed.
func (a *accounts) blend(in *increment, busy, clock float64) {
	a.lag += in.busy - busy
	recent := in.observed
	if in.lost > 0 && in.sampled {
		a.lost, a.settles = in.lost, clock+gapSettles
		in.observed, in.lost = in.observed+in.lost, 0
	}
	if clock > a.settles {
		a.lost = 0
	}
	if a.lag < 0 {
		found := min(-a.lag, a.lost)
		in.addEarlier(found, recent)
		a.lost -= found
	}
	a.lag = min(max(a.lag, 0), maxAhead)
}

// readAccounts applies the accounts of a fast reading to the ring's increment, and returns the busy time by process;
// nil where they are not offered or their sum is impossible.
func (l *Ledger) readAccounts(c *device, f *gpu.Fast, in *increment, since float64) []processWeight {
	list, offered := f.Accounts.Get()
	periods := c.act.rings[0].periods
	if !offered || c.act.method != gpu.MethodRing || len(periods) < 3 {
		if !offered {
			c.accounts = accounts{}
		}
		return nil
	}
	by, busy, ok := c.accounts.read(list, c.act.rings[0].median(periods))
	switch {
	case !ok:
		return nil
	case busy > since+maxAhead:
		l.filter.Reject("process_accounts") // more than one process in a sample
		return nil
	}
	c.accounts.blend(in, busy, l.clock)
	return by
}
