package document

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// MeanMonth is the length of a month on average, in hours.
const MeanMonth = 365.25 * 24 / 12

// Operator is the owner of advice about nodes and GPUs.
const Operator = "cluster administrator"

// Finish rounds every figure, so that servers that differ in the last digits give equal documents, ranks workloads and
// advice, and adds what follows from them.
func (d *Document) Finish() {
	round(reflect.ValueOf(d).Elem())
	slices.SortStableFunc(d.Workloads, func(x, y Workload) int {
		return cmp.Or(cmp.Compare(y.Unused, x.Unused), strings.Compare(x.ID, y.ID))
	})
	slices.SortStableFunc(d.Advice, func(x, y Advice) int {
		return cmp.Or(unsureLast(x)-unsureLast(y), cmp.Compare(y.SavedHours, x.SavedHours),
			strings.Compare(x.Code+x.Workload+x.Node+x.Model, y.Code+y.Workload+y.Node+y.Model))
	})
	workloads := map[string]*Workload{}
	for i := range d.Workloads {
		workloads[d.Workloads[i].ID] = &d.Workloads[i]
	}
	sums := map[string]float64{}
	for i := range d.Advice {
		a := &d.Advice[i]
		a.identify()
		a.Owner = Operator
		if w := workloads[a.Workload]; w != nil {
			a.Owner, a.Query = cmp.Or(w.Group, w.Namespace), w.Query
		}
		a.Effort = Effort(a.Code)
		if !a.Unsure() {
			sums[a.Saving] += a.SavedHours
		}
		a.Cumulated = significant(sums[a.Saving])
		a.MonthHours = significant(a.SavedGPUs * d.Period.MonthHours)
		if a.SavedCost != nil && a.SavedHours > 0 {
			cost := significant(*a.SavedCost / a.SavedHours * a.MonthHours)
			a.MonthCost = &cost
		}
	}
}

// Unsure reports whether advice has low confidence: it is a question to the owner, comes last and is in no sum.
func (a *Advice) Unsure() bool { return a.Confidence == "low" }

func unsureLast(a Advice) int {
	if a.Unsure() {
		return 1
	}
	return 0
}

// Saved adds up the advice of one kind, without that of low confidence: of the period, and of a month from now on.
func (d *Document) Saved(kind string) (hours, monthHours, monthCost float64) {
	for _, a := range d.Advice {
		if a.Saving == kind && !a.Unsure() {
			hours += a.SavedHours
			monthHours += a.MonthHours
			if a.MonthCost != nil {
				monthCost += *a.MonthCost
			}
		}
	}
	return hours, monthHours, monthCost
}

// significant rounds to nine significant digits.
func significant(x float64) float64 {
	v, _ := strconv.ParseFloat(strconv.FormatFloat(x, 'g', 9, 64), 64)
	if math.Abs(v) < 1e-9 {
		return 0
	}
	return v
}

// round rounds every number in a value.
func round(v reflect.Value) {
	switch v.Kind() {
	case reflect.Float64:
		if v.CanSet() {
			v.SetFloat(significant(v.Float()))
		}
	case reflect.Pointer:
		if !v.IsNil() {
			round(v.Elem())
		}
	case reflect.Slice:
		for i := range v.Len() {
			round(v.Index(i))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				round(v.Field(i))
			}
		}
	}
}

// Sure depends on how often advice of earlier times held later, and on the number of periods of the demand. The rest are the minimum
// of the time and of the coverage, and the budget.
func (w *Workload) Sure(v *Validation, observed, least time.Duration, coverage, budget float64) string {
	const day = 24 * time.Hour
	switch {
	case v == nil || v.Worst > 10*budget || observed < least*19/20 || w.Coverage < coverage:
		return "low"
	case v.Folds == 4 && v.Worst <= budget && observed >= 14*day && w.Coverage >= 0.99 && (w.Rhythm == "day" || observed >= 28*day):
		return "high"
	}
	return "medium"
}

// Least is the lower of two levels of confidence.
func Least(x, y string) string {
	levels := []string{"low", "medium", "high"}
	return levels[min(slices.Index(levels, x), slices.Index(levels, y))]
}

// identify sets the ID of advice, by which reports recognize it: of what it is about and of what to do, whatever its figures are.
func (a *Advice) identify() {
	h := fnv.New64a()
	later := map[bool]string{true: a.Reason}[a.Reason == "after_advice"]
	_, _ = h.Write([]byte(strings.Join([]string{a.Code, later, a.Cluster, a.Workload, a.Node, a.Model}, "\x00"))) // never fails
	a.ID = fmt.Sprintf("%016x", h.Sum64())
}
