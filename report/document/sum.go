package document

import (
	"cmp"
	"slices"
)

// Prices are those of energy.
type Prices interface{ Energy(kWh float64) *float64 }

// Add adds a part to an account: its states, and what these and the hours that are paid for cost if a GPU-hour of it has a price.
func (a *Account) Add(s States, paid, reclaimable, beyond float64, kWh, price *float64) {
	add := func(sum **float64, v float64) {
		if *sum == nil {
			*sum = new(float64)
		}
		**sum += v
	}
	a.States.Plus(s, 1)
	a.Reclaimable += reclaimable
	a.Beyond += beyond
	if kWh != nil {
		add(&a.EnergyKWh, *kWh)
	}
	if price != nil {
		if a.StateCost == nil {
			a.StateCost = &States{}
		}
		a.StateCost.Plus(s, *price)
		add(&a.Cost, *price*paid)
		add(&a.ReclaimableCost, *price*reclaimable)
	}
}

// Close adds what follows from the sums.
func (a *Account) Close(period float64, list Prices) {
	over := func(x, of float64) float64 {
		if of == 0 {
			return 0
		}
		return x / of
	}
	a.GPUs = over(a.Hours, period)
	a.Difference = over(a.Hours-a.States.Sum()-a.UsedByOthers, a.Hours)
	a.Coverage = over(a.Hours-a.States.NotReported-a.States.Unknown, a.Hours)
	if a.EnergyKWh != nil {
		a.EnergyCost = list.Energy(*a.EnergyKWh)
	}
}

// Sum adds up workloads by the namespace, or another key, which of returns as the fields of an account.
func Sum(rows []*Workload, hours float64, list Prices, of func(*Workload) Account) []Account {
	sums := map[[3]string]*Account{}
	for _, r := range rows {
		key := of(r)
		k := [3]string{key.Cluster, key.Namespace, key.Group}
		a := sums[k]
		if a == nil {
			a = &key
			sums[k] = a
		}
		var price *float64
		if r.Cost != nil && r.Allocated > 0 {
			price = new(*r.Cost / r.Allocated)
		}
		own := States{Busy: r.Busy - r.Beyond, Gap: r.Gap, Idle: r.Idle, Unknown: r.Unknown}
		a.Add(own, r.Allocated, r.Reclaimable, r.Beyond, r.EnergyKWh, price)
		a.Hours, a.UsedByOthers = a.Hours+r.Allocated, a.UsedByOthers+r.UsedByOthers
	}
	out := make([]Account, 0, len(sums))
	for _, a := range sums {
		a.Close(hours, list)
		out = append(out, *a)
	}
	slices.SortFunc(out, func(x, y Account) int {
		return cmp.Or(cmp.Compare(x.Cluster, y.Cluster), cmp.Compare(x.Namespace, y.Namespace), cmp.Compare(x.Group, y.Group))
	})
	return out
}

// Share adds to the cost of namespaces and groups the part of the nodes' cost that belongs to none of them, unallocated time above all, in
// proportion to what they cost themselves: of a namespace that of its cluster.
func (d *Document) Share() {
	for _, list := range [][]Account{d.Namespaces, d.Groups} {
		own := map[string]float64{}
		for _, a := range list {
			own[a.Cluster] += *cmp.Or(a.Cost, new(float64))
		}
		for i := range list {
			a, of := &list[i], d.Fleet
			if n := slices.IndexFunc(d.Clusters, func(c Account) bool { return c.Cluster == a.Cluster }); n >= 0 {
				of = d.Clusters[n]
			}
			if a.Cost != nil && of.Cost != nil && own[a.Cluster] > 0 {
				a.SharedCost = new(max(0, *of.Cost-own[a.Cluster]) * *a.Cost / own[a.Cluster])
			}
		}
	}
}

// Check compares sums of the same time from different series: busy if unattributed time is recorded, idle and gap if counters have them.
func (d *Document) Check(rows []*Workload, busy, pauses bool) {
	f := &d.Fleet
	d.Checks = Checks{Difference: f.Difference, ExpectedHours: f.Hours, ReportedHours: f.States.Reported()}
	var sum States
	for _, w := range rows {
		sum.Plus(States{Busy: w.Busy, Idle: w.Idle, Gap: w.Gap}, 1)
	}
	difference := func(s State, containers float64) *float64 {
		if f.States.Of(s) == 0 {
			return nil
		}
		v := (f.States.Of(s) - containers) / f.States.Of(s)
		return &v
	}
	if busy {
		d.Checks.Busy = difference(Busy, sum.Busy+f.Unattributed)
	}
	if pauses {
		d.Checks.Idle, d.Checks.Gap = difference(Idle, sum.Idle), difference(Gap, sum.Gap)
	}
}
