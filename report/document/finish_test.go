package document

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/must"
)

func pointer(v float64) *float64 { return &v }

// Savings of different kinds are never added up; the money of a month follows from the GPUs that are saved from now on.
func TestFinish(t *testing.T) {
	d := &Document{
		Period:    Span{MonthHours: MeanMonth},
		Fleet:     Account{Hours: 1000.00000000001, States: States{Busy: 0.1 + 0.2}},
		Workloads: []Workload{{ID: "b", Namespace: "team", Unused: 1}, {ID: "a", Namespace: "team", Group: "red", Unused: 2, Query: "q"}},
		Advice: []Advice{
			{Code: AdviseShare, Workload: "b", Saving: SavesHours, SavedHours: 10, SavedGPUs: 0.1, SavedCost: pointer(20)},
			{Code: AdviseConsolidate, Saving: SavesNodes, SavedHours: 800, SavedGPUs: 8, SavedCost: pointer(1600)},
			{Code: AdviseRelease, Workload: "a", Saving: SavesHours, SavedHours: 50, SavedGPUs: 2, SavedCost: pointer(100)},
			{Code: AdviseFewer, Saving: SavesHours, SavedHours: 700, SavedCost: pointer(1400), Confidence: "low"}, // in no sum, last
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
	if !slices.Equal(codes, []string{AdviseConsolidate, AdviseRelease, AdviseShare, AdviseGeometry, AdviseFewer}) ||
		!slices.Equal(cumulated, []float64{800, 50, 60, 5, 60}) || !slices.Equal(month, []float64{11688, 2922, 146.1, 0}) {
		t.Errorf("%v %v %v", codes, cumulated, month)
	}
	if a := d.Advice[1]; a.Owner != "red" || a.Query != "q" || a.MonthHours != 1461 {
		t.Errorf("%+v", a)
	}
	if d.Advice[2].Owner != "team" || d.Workloads[0].ID != "a" || d.Fleet.Hours != 1000 || d.Fleet.States.Busy != 0.3 {
		t.Errorf("%+v", d)
	}
	hours, monthly, cost := d.Saved(SavesHours)
	if hours != 60 || math.Abs(monthly-1534.05) > 1e-9 || math.Abs(cost-3068.1) > 1e-9 {
		t.Errorf("%v %v %v", hours, monthly, cost)
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
	priced := func(a Account, gap float64) Account {
		a.StateCost, a.Cost = &States{Gap: gap}, pointer(2*gap)
		return a
	}
	before := report(10, priced(Account{Namespace: "a", Hours: 100, States: States{Idle: 40, Gap: 10}}, 30),
		Account{Namespace: "gone", Hours: 20})
	before.Models = []Account{{Model: "M", Hours: 100, Cost: pointer(200)}, {Model: "N", Hours: 100, Cost: pointer(200)}}
	before.Advice = []Advice{{Code: AdviseRelease, Workload: "x", Title: "Release x"},
		{Code: AdviseRelease, Workload: "y", Title: "Release y"}}
	text, err := json.Marshal(before)
	must.OK(t, err)
	if before, err = Parse(text); err != nil {
		t.Fatal(err)
	}
	now := report(5, priced(Account{Namespace: "a", Hours: 100, States: States{Idle: 10}}, 5), Account{Namespace: "new", Hours: 10})
	now.Advice = []Advice{{Code: AdviseRelease, Workload: "y", Title: "Release y"}, {Code: AdviseShare, Workload: "z", Title: "Share z"}}
	now.Models = []Account{{Model: "M", Hours: 50, Cost: pointer(100.05)}, {Model: "N", Hours: 50, Cost: pointer(150)}}
	now.Compare(before)
	want := []Change{{Name: "fleet", HoursBefore: 12, Hours: 22, UnusedBefore: 5, Unused: 2},
		{Name: "a", HoursBefore: 10, Hours: 20, UnusedBefore: 5, Unused: 2}, {Name: "new", Hours: 2}, {Name: "gone", HoursBefore: 2}}
	c := now.Comparison
	x := &c.Changes[1]
	if x.CostBefore == nil || *x.CostBefore != 6 || *x.Cost != 2 || *x.UnusedCostBefore != 3 || *x.UnusedCost != 1 {
		t.Errorf("%+v", x)
	}
	x.CostBefore, x.Cost, x.UnusedCostBefore, x.UnusedCost = nil, nil, nil, nil
	if len(now.Notes) != 1 || !strings.Contains(now.Notes[0].Text, "prices (N)") {
		t.Errorf("%+v", now.Notes)
	}
	now.GroupLabel, now.Currency = "team", "EUR"
	if got := now.incomparable(before); len(got) != 3 || !strings.Contains(got[0], `"team"`) || !strings.Contains(got[1], `"EUR"`) {
		t.Errorf("%v", got)
	}
	if !slices.Equal(c.Changes, want) || !slices.Equal(c.Followed, []string{"Release x"}) || !slices.Equal(c.New, []string{"Share z"}) {
		t.Errorf("%+v", c)
	}
	for text, want := range map[string]string{"{": "unexpected end", "{}": "schema is"} {
		if _, err := Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// Ten days of two teams: a month of 730.5 hours is 3.04375 times as much. What is unsure, of another kind or of another owner is in
// no sum.
func TestPlans(t *testing.T) {
	teams := func(cluster string) []Account {
		return []Account{
			{Cluster: cluster, Namespace: "a", Cost: pointer(100), StateCost: &States{Busy: 60, Gap: 10, Idle: 30}},
			{Cluster: cluster, Namespace: "b", Cost: pointer(200), StateCost: &States{Busy: 200}},
			{Cluster: cluster, Namespace: "unpriced"},
		}
	}
	saves := func(owner, saving, confidence string, month *float64) Advice {
		return Advice{Owner: owner, Cluster: "x", Saving: saving, Confidence: confidence, MonthCost: month}
	}
	d := &Document{Period: Span{Hours: 240, MonthHours: MeanMonth}, Namespaces: teams("x"),
		Fleet: Account{Hours: 100, States: States{Busy: 54}, Cost: pointer(400), StateCost: &States{Gap: 10, Idle: 30, Unallocated: 100}},
		Trend: []Bucket{{States: States{Busy: 7, Idle: 3}}, {States: States{Busy: 6.9, Idle: 3.1}},
			{States: States{Busy: 8, NotReported: 2}}},
		Advice: []Advice{saves("a", SavesHours, "high", pointer(50)), saves("a", SavesHours, "medium", pointer(7)),
			saves("a", SavesHours, "low", pointer(1000)), saves("a", SavesHours, "high", nil),
			saves("b", SavesHours, "high", pointer(20)),
			saves("", SavesNodes, "medium", pointer(300)), saves("a", SavesQueue, "high", pointer(900))}}
	unknown := d.Project(map[string]float64{"fleet": 1000, "b": 500, "typo": 1, "older": 2})
	if !slices.Equal(unknown, []string{"older", "typo"}) {
		t.Errorf("unknown budgets: %v", unknown)
	}
	want := []Projection{{Name: "fleet", Cost: 1217.5, UnusedCost: 121.75, Saved: 300, Budget: pointer(1000)},
		{Name: "a", Cost: 304.375, UnusedCost: 121.75, Saved: 57}, {Name: "b", Cost: 608.75, Saved: 20, Budget: pointer(500)}}
	for i, x := range d.Projections {
		if w := want[i]; x.Name != w.Name || x.Cost != w.Cost || x.UnusedCost != w.UnusedCost || x.Saved != w.Saved ||
			(x.Budget == nil) != (w.Budget == nil) || x.Budget != nil && *x.Budget != *w.Budget {
			t.Errorf("%+v, want %+v", x, w)
		}
	}
	if len(d.Projections) != len(want) {
		t.Errorf("%d projections", len(d.Projections))
	}
	if d.Aim(0.7); d.Goal.Busy != 0.7 || d.Goal.Reached != 0.54 || d.Goal.Met != 2 {
		t.Errorf("%+v", d.Goal)
	}
	// The same namespace of another cluster, and groups, which have none.
	for i := range d.Namespaces {
		d.Namespaces[i].Cluster = "y"
	}
	if d.Projections = nil; len(d.Project(nil)) != 0 || d.Projections[1].Saved != 0 {
		t.Errorf("%+v", d.Projections)
	}
	d.Groups = []Account{{Group: "b", Cost: pointer(1)}}
	if d.Projections = nil; len(d.Project(nil)) != 0 || len(d.Projections) != 2 || d.Projections[1].Saved != 20 {
		t.Errorf("%+v", d.Projections)
	}
	empty := &Document{}
	if noPeriod := (&Document{Fleet: Account{Cost: pointer(1)}}); len(noPeriod.Project(nil)) != 0 || noPeriod.Projections != nil {
		t.Errorf("%+v", noPeriod)
	}
	if empty.Aim(0.5); empty.Goal.Reached != 0 || len(empty.Project(nil)) != 0 || empty.Projections != nil {
		t.Errorf("%+v", empty)
	}
}

// Advice of low confidence is the last; figures are rounded to nine digits wherever they are.
func TestRounding(t *testing.T) {
	d := Document{Fleet: Account{Cost: pointer(1000.00000000001), EnergyKWh: pointer(1e-12)}, Advice: []Advice{
		{Code: "b", SavedHours: 9, Confidence: "low"}, {Code: "a", SavedHours: 1, Confidence: "medium"}, {Code: "c", Confidence: "low"}},
		Trend: []Bucket{{Hours: 0.1 + 0.2}}, Workloads: []Workload{{Plot: &Plot{Busy: []float64{0.1 + 0.2}}}}}
	d.Finish()
	if *d.Fleet.Cost != 1000 || *d.Fleet.EnergyKWh != 0 || d.Trend[0].Hours != 0.3 || d.Workloads[0].Plot.Busy[0] != 0.3 {
		t.Errorf("%+v", d)
	}
	if d.Advice[0].Code != "a" || d.Advice[1].Code != "b" || d.Advice[2].Code != "c" {
		t.Errorf("%+v", d.Advice)
	}
	for x, want := range map[float64]float64{2e-9: 2e-9, 1.2e-9: 1.2e-9, 0.9e-9: 0, -0.9e-9: 0, -2e-9: -2e-9, 123456789.4: 123456789,
		0.1234567891: 0.123456789} {
		if got := significant(x); got != want {
			t.Errorf("%v is rounded to %v", x, got)
		}
	}
}

// With groups by the same label a comparison is of groups, otherwise of namespaces; reports of other prices of the same model or of
// other groups say so.
func TestCompareGroups(t *testing.T) {
	of := func(label string, price float64) *Document {
		d := &Document{Period: Span{Hours: 24}, GroupLabel: label, Namespaces: []Account{{Namespace: "n", Hours: 10}},
			Models: []Account{{Model: "M", Hours: 10, Cost: pointer(10 * price)}, {Model: "N", Hours: 10, Cost: pointer(70)}}}
		if label != "" {
			d.Groups = []Account{{Group: "red", Hours: 10}}
		}
		return d
	}
	for _, tt := range []struct {
		before, now *Document
		names       string
		notes       int
	}{
		{of("team", 2), of("team", 2), "fleet red", 0}, {of("", 2), of("", 2), "fleet n", 0}, {of("team", 2), of("app", 2), "fleet n", 1},
		{of("", 2), of("team", 2), "fleet n", 1}, {of("", 2), of("", 2.001), "fleet n", 0}, {of("", 2), of("", 2.1), "fleet n", 1},
	} {
		tt.now.Compare(tt.before)
		var names []string
		for _, c := range tt.now.Comparison.Changes {
			names = append(names, c.Name)
		}
		if strings.Join(names, " ") != tt.names || len(tt.now.Notes) != tt.notes {
			t.Errorf("%v %+v", names, tt.now.Notes)
		}
	}
	if _, err := Parse([]byte(`{"schema": "` + Schema + `", "period": {"hours": 0}}`)); err == nil {
		t.Error("a report of no time was read")
	}
}

func TestStates(t *testing.T) {
	s := States{Busy: 1, Gap: 2, Idle: 4, Unallocated: 8, Unavailable: 16, Unknown: 32, NotReported: 64}
	if s.Sum() != 127 || s.Reported() != 63 || s.Unused() != 6 {
		t.Errorf("%v %v %v", s.Sum(), s.Reported(), s.Unused())
	}
	for i := range StateCount {
		if s.Of(i) != float64(int(1)<<i) || i < NotReported && StatesByLabel()[i.String()] != i {
			t.Errorf("%s is %v", i, s.Of(i))
		}
	}
	if len(StatesByLabel()) != int(NotReported) || NotReported.String() != "not_reported" || Idle.String() != "idle" {
		t.Errorf("%v", StatesByLabel())
	}
	twice := s
	if twice.Plus(s, 2); twice.Sum() != 3*127 || twice.Gap != 6 {
		t.Errorf("%+v", twice)
	}
}

// Namespaces of equal names in two clusters are two rows with the clusters' names.
func TestCompareClusters(t *testing.T) {
	d := &Document{Period: Span{Hours: 24}, Clusters: []Account{{Cluster: "x"}, {Cluster: "y"}},
		Namespaces: []Account{{Cluster: "x", Namespace: "a", Hours: 1}, {Cluster: "y", Namespace: "a", Hours: 2}}}
	d.Compare(&Document{Period: d.Period, Namespaces: []Account{{Cluster: "y", Namespace: "a", Hours: 4}, {Cluster: "z", Namespace: "a"}}})
	var got []string
	for _, c := range d.Comparison.Changes {
		got = append(got, fmt.Sprint(c.Name, " ", c.HoursBefore, " ", c.Hours))
	}
	if want := []string{"fleet 0 0", "x / a 0 1", "y / a 4 2", "z / a 0 0"}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}
