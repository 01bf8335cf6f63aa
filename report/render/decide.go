package render

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gpu-exporter/gpu-exporter/internal/catalog"
	"github.com/gpu-exporter/gpu-exporter/report/document"
	"github.com/gpu-exporter/gpu-exporter/report/units"
)

// decided is how many decisions a reader is shown at first.
const decided = 5

// decision is what one owner can decide at once: all advice of one code and kind of saving, either sure or questions.
type decision struct {
	Owner, Action, Confidence, Saves string
	Nodes                            int
	Unsure                           bool
	saving                           string
	hours, cost                      float64 // of a month
	names                            []string
}

// sure is its confidence, and that a low one makes it a question.
func (x *decision) sure() string {
	return x.Confidence + map[bool]string{true: ": a question"}[x.Unsure]
}

// plural are the actions of several pieces of advice.
func plural(code string) string {
	return map[string]string{
		document.AdviseRelease:     "Release GPUs of",
		document.AdviseFewer:       "Request fewer GPUs for",
		document.AdviseLessSharing: "Share GPUs among fewer containers of",
		document.AdviseShrink:      "Use smaller MIG profiles for",
		document.AdviseShare:       "Share the GPUs of",
		document.AdviseConsolidate: "Give back nodes of",
		document.AdviseReplicas:    "Run fewer replicas of",
		document.AdviseGeometry:    "Change the MIG profiles of",
		document.AdviseFix:         "Repair GPUs of",
	}[code]
}

// decisions are those that save most: sure ones first, then questions, which are in no sum.
func decisions(d *document.Document) []decision {
	found, names := map[string]*decision{}, map[string]string{}
	for i := range d.Workloads {
		names[d.Workloads[i].ID] = d.Workloads[i].Name
	}
	var all []*decision
	for i := range d.Advice {
		a := &d.Advice[i]
		if a.MonthHours <= 0 {
			continue
		}
		key := strings.Join([]string{a.Owner, a.Code, a.Saving, strconv.FormatBool(a.Unsure())}, "\x00")
		if a.Saving == document.SavesNodes {
			key += a.Reason + a.Cluster + a.Model
		}
		x := found[key]
		if x == nil {
			x = &decision{Owner: a.Owner, Action: a.Title, Confidence: a.Confidence, Unsure: a.Unsure(), saving: a.Saving}
			found[key], all = x, append(all, x)
		}
		x.Confidence = document.Least(x.Confidence, a.Confidence)
		x.Nodes += a.Nodes
		x.hours += a.MonthHours
		x.cost += zero(a.MonthCost)
		if x.names = append(x.names, cmp.Or(names[a.Workload], about(a))); len(x.names) > 1 {
			x.Action = plural(a.Code) + " " + units.Few(x.names, 3)
		}
		if a.Saving == document.SavesNodes {
			x.Action = fmt.Sprintf("Give back %s of %s", units.Count(float64(a.Nodes), "node"), a.Model)
		}
		if a.Reason == "after_advice" {
			x.Action += ", once the advice on workloads is carried out"
		}
	}
	slices.SortStableFunc(all, func(x, y *decision) int {
		return cmp.Or(questions(x.Unsure)-questions(y.Unsure), cmp.Compare(y.cost, x.cost), cmp.Compare(y.hours, x.hours))
	})
	// Questions have two of the lines, and those that sure ones leave.
	ask := len(all)
	if first := slices.IndexFunc(all, func(x *decision) bool { return x.Unsure }); first >= 0 {
		ask = first
	}
	sure := min(ask, max(decided-2, decided-(len(all)-ask)))
	all = slices.Concat(all[:sure], all[ask:min(len(all), ask+decided-sure)])
	out := make([]decision, len(all))
	for i, x := range all {
		x.Saves = monthly(d, x.hours, x.cost) + " " + kindOf(x.saving)
		out[i] = *x
	}
	return out
}

// zero is a figure, or 0 if it is absent.
func zero(x *float64) float64 {
	if x == nil {
		return 0
	}
	return *x
}

func questions(unsure bool) int { return map[bool]int{true: 1}[unsure] }

// monthly is what a month saves: in money, or without prices in GPU-hours.
func monthly(d *document.Document, hours, cost float64) string {
	if cost > 0 {
		return in(d)(cost)
	}
	return units.Hours(hours) + " GPU-hours"
}

// kindOf is a kind of saving, in words.
func kindOf(saving string) string {
	return map[string]string{document.SavesHours: "freed for others", document.SavesNodes: "off the invoice",
		document.SavesQueue: "for waiting pods"}[saving]
}

// sums are what all advice saves in a month by kind, without questions, and how many of these there are.
func sums(d *document.Document) string {
	text, n := "", 0
	for _, kind := range []string{document.SavesNodes, document.SavesHours, document.SavesQueue} {
		if _, hours, cost := d.Saved(kind); hours > 0 {
			text += monthly(d, hours, cost) + " " + kindOf(kind) + "; "
		}
	}
	for i := range d.Advice {
		n += questions(d.Advice[i].Unsure())
	}
	return fmt.Sprintf("All advice in a month: %s%s in no sum.", cmp.Or(text, "nothing is sure; "), units.Count(float64(n), "question"))
}

// actionable are the hours that somebody could act on, and what they cost: idle for long, unallocated or unavailable.
func actionable(a *document.Account) (hours, cost float64) {
	hours = a.Reclaimable + a.States.Unallocated + a.States.Unavailable
	if a.StateCost != nil {
		cost = zero(a.ReclaimableCost) + a.StateCost.Unallocated + a.StateCost.Unavailable
	}
	return hours, cost
}

// pauses are the hours of gaps and of idle periods below 30 minutes: pauses within work.
func pauses(a *document.Account) (hours, cost float64) {
	hours = a.States.Unused() - a.Reclaimable
	if a.StateCost != nil {
		cost = a.StateCost.Unused() - zero(a.ReclaimableCost)
	}
	return max(0, hours), max(0, cost)
}

func about(a advice) string {
	for _, s := range []string{a.Workload, a.Node, a.Model, a.Cluster} {
		if s != "" {
			return s
		}
	}
	return "fleet"
}

type tile struct{ Value, Label string }

// tiles are the figures below the decisions: what somebody could act on, apart from pauses within work.
func tiles(d *document.Document) []tile {
	f := &d.Fleet
	figure := func(of func(*document.Account) (hours, cost float64), what, which string) tile {
		hours, cost := of(f)
		if f.Cost == nil {
			return tile{units.Hours(hours) + " GPU-hours", what + ": " + which}
		}
		return tile{in(d)(cost), "of " + in(d)(*f.Cost) + " " + what + ": " + units.Hours(hours) + " GPU-hours " + which}
	}
	out := []tile{{units.Share(f.States.Busy, f.Hours), "of " + units.Hours(f.Hours) + " GPU-hours busy"},
		figure(actionable, "to act on", "idle for 30 minutes and longer, unallocated or unavailable"),
		figure(pauses, "in pauses within work", "without a kernel for less than 30 minutes")}
	if f.EnergyKWh != nil {
		unit := "kWh"
		if f.EnergyCost != nil {
			unit += ", " + in(d)(*f.EnergyCost)
		}
		out = append(out, tile{units.Hours(*f.EnergyKWh), unit})
	}
	return append(out, tile{units.Ratio(f.Coverage), strings.ToLower(catalog.Coverage.Word) + " of the GPU-hours"})
}
