package account

import (
	"testing"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// The driver's accounts fill a gap in its ring, and nothing else: neither their delay, nor processes that ran before,
// nor one whose PID is used again adds busy time.
func TestAccounts(t *testing.T) {
	type read struct {
		busy, lost float64 // of the ring
		accounts   []gpu.ProcessAccount
		want       float64
	}
	old := func(busy float64) gpu.ProcessAccount { return gpu.ProcessAccount{PID: 7, Start: 1, Busy: busy} }
	fresh := func(pid int, start uint64, busy float64) gpu.ProcessAccount {
		return gpu.ProcessAccount{PID: pid, Start: start, New: true, Busy: busy}
	}
	type list = []gpu.ProcessAccount
	for name, reads := range map[string][]read{
		"no gap": {{accounts: list{old(600)}}, {busy: 2, accounts: list{old(606)}, want: 2},
			{busy: 2, accounts: list{old(624)}, want: 2}, {busy: 1, accounts: list{old(630)}, want: 1}},
		"a gap": {{accounts: list{old(600)}}, {busy: 2, accounts: list{old(612)}, want: 2},
			{busy: 10, lost: 50, accounts: list{old(912)}, want: 50}, {busy: 1, accounts: list{old(918)}, want: 1}},
		"accounts are late": {{accounts: list{old(600)}}, {busy: 2, accounts: list{old(606)}, want: 2},
			{busy: 10, lost: 50, accounts: list{old(906)}, want: 49}, {busy: 1, accounts: list{old(918)}, want: 2}},
		"no more than was lost": {{accounts: list{old(600)}}, {busy: 2, accounts: list{old(612)}, want: 2},
			{busy: 10, lost: 20, accounts: list{old(912)}, want: 30}},
		"a short process and a PID that is used again": {{accounts: list{old(600)}}, {busy: 2, accounts: list{old(612)}, want: 2},
			{busy: 10, lost: 50, accounts: list{fresh(8, 5, 60), fresh(7, 6, 30)}, want: 15}},
		"an old process that was not listed before": {{accounts: list{}}, {busy: 2, accounts: list{}, want: 2},
			{busy: 10, lost: 50, accounts: list{old(6000)}, want: 10}},
	} {
		var a accounts
		for i, r := range reads {
			in := increment{busy: r.busy, observed: 2, lost: r.lost, sampled: true}
			if _, busy, ok := a.read(r.accounts, 1.0/6); ok {
				a.blend(&in, busy, float64(i)*2)
			}
			if i > 0 {
				near(t, name, in.busy, r.want)
				near(t, name+": observed", in.observed, 2+r.lost)
			}
		}
	}
}
