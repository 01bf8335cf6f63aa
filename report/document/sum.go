package document

import (
	"cmp"
	"slices"
)

// Prices are those of GPU-hours and energy.
type Prices interface {
	PerHour(model string) (float64, bool)
	Energy(kWh float64) *float64
}

// Sum adds up workloads by the namespace, or another key, which of returns as the fields of an account.
func Sum(rows []*Workload, hours float64, list Prices, of func(*Workload) Account) []Account {
	sums := map[[3]string]*Account{}
	add := func(sum **float64, v *float64) {
		if v != nil && *sum == nil {
			*sum = new(float64)
		}
		if v != nil {
			**sum += *v
		}
	}
	part := func(x, of float64) float64 {
		if of == 0 {
			return 0
		}
		return x / of
	}
	for _, r := range rows {
		key := of(r)
		k := [3]string{key.Cluster, key.Namespace, key.Group}
		a := sums[k]
		if a == nil {
			a = &key
			sums[k] = a
		}
		own := States{Busy: r.Busy - r.Beyond, Gap: r.Gap, Idle: r.Idle, Unknown: r.Unknown}
		a.States.Plus(own, 1)
		a.Hours += r.Allocated
		a.Beyond += r.Beyond
		a.UsedByOthers += r.UsedByOthers
		a.Reclaimable += r.Reclaimable
		add(&a.EnergyKWh, r.EnergyKWh)
		add(&a.Cost, r.Cost)
		if per, ok := list.PerHour(r.Model); ok {
			if a.StateCost == nil {
				a.StateCost = &States{}
			}
			a.StateCost.Plus(own, per)
			cost := per * r.Reclaimable
			add(&a.ReclaimableCost, &cost)
		}
	}
	out := make([]Account, 0, len(sums))
	for _, a := range sums {
		a.GPUs = part(a.Hours, hours)
		a.Difference = part(a.Hours-a.States.Sum()-a.UsedByOthers, a.Hours)
		a.Coverage = part(a.Hours-a.States.Unknown, a.Hours)
		if a.EnergyKWh != nil {
			a.EnergyCost = list.Energy(*a.EnergyKWh)
		}
		out = append(out, *a)
	}
	slices.SortFunc(out, func(x, y Account) int {
		return cmp.Or(cmp.Compare(x.Cluster, y.Cluster), cmp.Compare(x.Namespace, y.Namespace), cmp.Compare(x.Group, y.Group))
	})
	return out
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
