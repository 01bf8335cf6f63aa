package account

import (
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// What the accounts have beyond the ring is busy time only up to the length of a gap, and only until ten seconds after
// it; what the ring has beyond them is at most two seconds of delay. Where the ring is idle after a gap, what was busy was
// so before that.
func TestAccountsSettleAGap(t *testing.T) {
	type step struct {
		clock    float64
		in       increment
		accounts float64   // their busy time of this reading
		want     increment // busy, observed, lost, wasBusy, sinceBusy
	}
	for name, steps := range map[string][]step{
		"without a sample the gap is not over": {
			{2, increment{lost: 5}, 3, increment{lost: 5}},
			{4, increment{busy: 1, observed: 2, sampled: true}, 1, increment{busy: 1, observed: 2}}},
		"a gap of idle time": {
			{2, increment{observed: 2, lost: 5, sampled: true}, 0, increment{observed: 7}}},
		"a busy gap": {
			{2, increment{observed: 2, lost: 5, sampled: true}, 3, increment{busy: 3, observed: 7, wasBusy: true, sinceBusy: 2}}},
		"more than the gap": {
			{2, increment{busy: 1, observed: 2, lost: 5, sampled: true}, 9, increment{busy: 6, observed: 7, wasBusy: true, sinceBusy: 2}},
			{4, increment{observed: 2, sampled: true}, 9, increment{observed: 2}}},
		"in two parts, the second after ten seconds": {
			{2, increment{observed: 2, lost: 5, sampled: true}, 3, increment{busy: 3, observed: 7, wasBusy: true, sinceBusy: 2}},
			{12, increment{observed: 10, sampled: true}, 9, increment{busy: 2, observed: 10, wasBusy: true, sinceBusy: 10}}},
		"too late": {
			{2, increment{observed: 2, lost: 5, sampled: true}, 3, increment{busy: 3, observed: 7, wasBusy: true, sinceBusy: 2}},
			{12.1, increment{observed: 10, sampled: true}, 9, increment{observed: 10}}},
		"a delay of two seconds": {
			{2, increment{busy: 2, observed: 2, sampled: true}, 0, increment{busy: 2, observed: 2}},
			{4, increment{observed: 2, lost: 5, sampled: true}, 3, increment{busy: 1, observed: 7, wasBusy: true, sinceBusy: 2}}},
		"no more delay than that": {
			{10, increment{busy: 9, observed: 9, sampled: true}, 0, increment{busy: 9, observed: 9}},
			{12, increment{observed: 2, lost: 5, sampled: true}, 3, increment{busy: 1, observed: 7, wasBusy: true, sinceBusy: 2}}},
		"what they have beyond a ring without a gap does not count against later readings": {
			{2, increment{busy: 1, observed: 2, sampled: true}, 9, increment{busy: 1, observed: 2}},
			{4, increment{observed: 2, lost: 5, sampled: true}, 0, increment{observed: 7}}},
	} {
		var a accounts
		for i, s := range steps {
			in := s.in
			a.blend(&in, s.accounts, s.clock)
			s.want.sampled = s.in.sampled
			if in != s.want {
				t.Errorf("%s, step %d: %+v, want %+v", name, i, in, s.want)
			}
		}
	}
}

// The accounts replace the samples of processes: p has three quarters by its account, and a tenth by its samples. They
// do not where they are new, impossible, or are not offered.
func TestAccountsReplaceSamples(t *testing.T) {
	type list = []gpu.ProcessAccount
	account := func(pid int, busy float64) gpu.ProcessAccount {
		return gpu.ProcessAccount{PID: pid, Start: 1, Busy: busy}
	}
	none := gpu.None[[]gpu.ProcessAccount]()
	l := New(Options{})
	at, before := 1000.0, 0.0
	for i, c := range []struct {
		accounts gpu.Opt[[]gpu.ProcessAccount]
		p        float64 // of 2 s, all busy
		rejected int
	}{
		{none, 0, 0}, // the first reading only seeds
		{gpu.Some(list{account(1, 500), account(3, 500)}), .2, 0},
		{gpu.Some(list{account(1, 515), account(3, 505)}), 1.5, 0},
		{gpu.Some(list{account(1, 530), account(3, 510)}), 1.5, 0},
		{gpu.Some(list{account(1, 500), account(3, 512)}), 0, 0},   // one that fell adds nothing
		{gpu.Some(list{account(1, 520), account(3, 532)}), 1, 0},   // 4 s in 2 s: the delay
		{gpu.Some(list{account(1, 541), account(3, 552)}), .2, 1},  // more than that
		{gpu.Some(list{account(1, 556), account(3, 557)}), 1.5, 1}, // what was rejected is not made up for
		{none, .2, 1},
		{gpu.Some(list{account(1, 700), account(3, 700)}), .2, 1}, // since when is unknown
		{gpu.Some(list{account(1, 715), account(3, 705)}), 1.5, 1},
		{gpu.Some(list{}), .2, 1},
	} {
		from := at
		if i == 0 {
			from -= 10
		}
		f := &gpu.Fast{Busy: gpu.Some(regular(from, at+2, .1, 100)), Accounts: c.accounts,
			Processes: gpu.Some([]gpu.ProcessSample{{PID: 1, SM: 10, Time: int64((at + 2) * 1e6)},
				{PID: 3, SM: 90, Time: int64((at + 2) * 1e6)}})}
		at += 2
		l.Advance(Poll{Now: epoch, Elapsed: 2 * time.Second, Users: testUsers,
			Allocations: gpu.Allocations{Known: true, Configured: true,
				List: []gpu.Allocation{allocate("p", "A", .5), allocate("q", "A", .5)}},
			GPUs: []Reading{{Identity: gpu.Identity{UUID: "A"}, Fast: f, Medium: medium(3, 1, 1, 3, 1)}}})
		w := world{Ledger: l, t: t}
		got := float64(w.container("p", "A").Busy.Or(0))
		if d := got - before - c.p; d > 1e-6 || d < -1e-6 {
			t.Errorf("reading %d: p was busy %v s, want %v", i, got-before, c.p)
		}
		before = got
		rejected := 0
		for _, r := range l.Rejected() {
			if r.Reading == "process_accounts" {
				rejected = int(r.Count)
			}
		}
		if rejected != c.rejected {
			t.Errorf("reading %d: %d are rejected, want %d", i, rejected, c.rejected)
		}
	}
}
