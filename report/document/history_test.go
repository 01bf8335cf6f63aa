package document

import (
	"fmt"
	"testing"
	"time"
)

// What became of advice of earlier reports: it was done, it is still given, later demand refuted it, or it was withdrawn.
func TestRemember(t *testing.T) {
	at := func(n int) time.Time { return time.Date(2026, 1, n, 0, 0, 0, 0, time.UTC) }
	report := func(until int, unused float64, gpus map[string]float64, advice ...string) *Document {
		d := &Document{Period: Span{To: at(until), Hours: 24}, Fleet: Account{Hours: 100, States: States{Idle: unused}}}
		for id, n := range gpus {
			d.Workloads = append(d.Workloads, Workload{ID: id, GPUsNow: n})
		}
		d.Nodes = []Account{{Node: "n1", Model: "m", GPUs: 8}, {Node: "n2", Model: "m", GPUs: gpus["n2"]}}
		for _, id := range advice {
			a := Advice{Code: AdviseShare, Workload: id, Title: fmt.Sprint("Share ", id, " of ", until), SavedGPUs: 1}
			switch id {
			case "m":
				a = Advice{Code: AdviseConsolidate, Model: "m", Title: "Give back n2", SavedGPUs: 8}
			case "g", "h":
				a.Code, a.Title = AdviseRelease, "Release "+id
			}
			d.Advice = append(d.Advice, a)
		}
		return d
	}
	d := report(30, 20, map[string]float64{"a": 4, "b": 1, "c": 2}, "c", "e")
	d.Workloads = append(d.Workloads, Workload{ID: "f", GPUsNow: 1, NoAdvice: "peaks_too_high"},
		Workload{ID: "g", GPUsNow: 1, LastBusy: new(at(25))}, Workload{ID: "h", GPUsNow: 1, LastBusy: new(at(15))})
	d.Remember([]*Document{report(20, 30, map[string]float64{"a": 4, "b": 2, "c": 2, "d": 1, "f": 1, "g": 1, "h": 1, "n2": 8},
		"a", "b", "c", "d", "m", "f", "g", "h"),
		report(10, 40, map[string]float64{"a": 4, "b": 2, "c": 2, "d": 1, "n2": 8}, "c", "d")})
	got := ""
	for _, x := range d.Outcomes {
		got += fmt.Sprintf("%s: %s, since %d, %d; ", x.Title, x.Outcome, x.First.Day(), x.Reports)
	}
	// d is gone, b has fewer GPUs, n2 was given back; f needs its GPUs, and g was busy since; a and h still have all of their own.
	if want := "Share d of 20: done, since 10, 2; Give back n2: done, since 20, 1; Share b of 20: done, since 20, 1; " +
		"Share c of 30: ignored, since 10, 3; Release g: refuted, since 20, 1; Share f of 20: refuted, since 20, 1; " +
		"Release h: withdrawn, since 20, 1; Share a of 20: withdrawn, since 20, 1; "; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if len(d.Past) != 3 || d.Past[0].Unused != 40 || d.Past[2].Unused != 20 || d.Past[1].Advice != 8 {
		t.Errorf("%+v", d.Past)
	}
}
