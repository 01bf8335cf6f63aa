package document

import (
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
)

func pointer(v float64) *float64 { return &v }

// Savings of different kinds are never added up; the money of a month follows from the GPUs that are saved from now on.
func TestFinish(t *testing.T) {
	d := &Document{
		Fleet:     Account{Hours: 1000.00000000001, States: States{Busy: 0.1 + 0.2}},
		Workloads: []Workload{{ID: "b", Namespace: "team", Unused: 1}, {ID: "a", Namespace: "team", Group: "red", Unused: 2, Query: "q"}},
		Advice: []Advice{
			{Code: AdviseShare, Workload: "b", Saving: SavesHours, SavedHours: 10, SavedGPUs: 0.1, SavedCost: pointer(20)},
			{Code: AdviseConsolidate, Saving: SavesNodes, SavedHours: 800, SavedGPUs: 8, SavedCost: pointer(1600)},
			{Code: AdviseRelease, Workload: "a", Saving: SavesHours, SavedHours: 50, SavedGPUs: 2, SavedCost: pointer(100)},
			{Code: AdviseGeometry, Saving: SavesQueue, SavedHours: 5},
		},
	}
	d.Finish()
	var codes []string
	var cumulated, month []float64
	for _, a := range d.Advice {
		codes, cumulated = append(codes, a.Code), append(cumulated, a.Cumulated)
		if a.Effort == "" {
			t.Errorf("%s has no effort", a.Code)
		}
		if a.MonthCost != nil {
			month = append(month, *a.MonthCost)
		}
	}
	if !slices.Equal(codes, []string{AdviseConsolidate, AdviseRelease, AdviseShare, AdviseGeometry}) ||
		!slices.Equal(cumulated, []float64{800, 50, 60, 5}) || !slices.Equal(month, []float64{11688, 2922, 146.1}) {
		t.Errorf("%v %v %v", codes, cumulated, month)
	}
	if a := d.Advice[1]; a.Owner != "red" || a.Query != "q" || a.MonthHours != 1461 {
		t.Errorf("%+v", a)
	}
	if d.Advice[2].Owner != "team" || d.Workloads[0].ID != "a" || d.Fleet.Hours != 1000 || d.Fleet.States.Busy != 0.3 {
		t.Errorf("%+v", d)
	}
	hours, cost, monthly := d.Saved(SavesHours)
	if hours != 60 || cost != 120 || math.Abs(monthly-3068.1) > 1e-9 {
		t.Errorf("%v %v %v", hours, cost, monthly)
	}
}

// Every code has a meaning and an effort.
func TestCodes(t *testing.T) {
	for code, text := range AdviceCodes() {
		if text == "" || Effort(code) == "" {
			t.Errorf("%s has no text or effort", code)
		}
	}
}

func TestCompare(t *testing.T) {
	report := func(days float64, namespaces ...Account) *Document {
		d := &Document{Schema: Schema, Period: Span{To: time.Unix(0, 0).UTC(), Hours: 24 * days}, Namespaces: namespaces}
		for _, a := range namespaces {
			d.Fleet.Hours += a.Hours
			d.Fleet.States.Plus(a.States, 1)
		}
		return d
	}
	priced := func(a Account, gap float64) Account { a.StateCost = &States{Gap: gap}; return a }
	before := report(10, priced(Account{Namespace: "a", Hours: 100, States: States{Idle: 40, Gap: 10}}, 30),
		Account{Namespace: "gone", Hours: 20})
	before.Advice = []Advice{{Code: AdviseRelease, Workload: "x", Title: "Release x"},
		{Code: AdviseRelease, Workload: "y", Title: "Release y"}}
	text, err := json.Marshal(before)
	if err != nil {
		t.Fatal(err)
	}
	if before, err = Parse(text); err != nil {
		t.Fatal(err)
	}
	now := report(5, priced(Account{Namespace: "a", Hours: 100, States: States{Idle: 10}}, 5), Account{Namespace: "new", Hours: 10})
	now.Advice = []Advice{{Code: AdviseRelease, Workload: "y", Title: "Release y"}, {Code: AdviseShare, Workload: "z", Title: "Share z"}}
	now.Compare(before)
	want := []Change{{Name: "fleet", HoursBefore: 12, Hours: 22, UnusedBefore: 5, Unused: 2},
		{Name: "a", HoursBefore: 10, Hours: 20, UnusedBefore: 5, Unused: 2}, {Name: "new", Hours: 2}, {Name: "gone", HoursBefore: 2}}
	c := now.Comparison
	if x := c.Changes[1]; x.CostBefore == nil || *x.CostBefore != 3 || *x.Cost != 1 {
		t.Errorf("%+v", x)
	}
	c.Changes[1].CostBefore, c.Changes[1].Cost = nil, nil
	if !slices.Equal(c.Changes, want) || !slices.Equal(c.Followed, []string{"Release x"}) || !slices.Equal(c.New, []string{"Share z"}) {
		t.Errorf("%+v", c)
	}
	for text, want := range map[string]string{"{": "unexpected end", "{}": "schema is"} {
		if _, err := Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}
