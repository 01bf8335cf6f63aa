package guide

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpu-exporter/gpu-exporter/internal/catalog"
)

// Change is a use of the exporter's own metrics that has another result than in earlier builds.
type Change struct {
	// Families are those whose use changed.
	Families []string
	// Uses are the functions and comparisons (== 0, != 1, < 1) around a selector that changed; nil: every use.
	Uses []string
	// Then and Now are queries with the same meaning, then and now.
	Then, Now string
	// Switch is the flag with which Then is still right; empty: none.
	Switch string
}

// Changes returns all of them: state sets, which have only present states, XIDs that do not start at 0, and what only a
// switch exports.
func Changes() []Change {
	var states []string
	for _, f := range catalog.All() {
		if f.Type == catalog.StateSet {
			states = append(states, f.Name)
		}
	}
	changes := []Change{
		{Families: states, Uses: []string{"== 0", "!= 1", "< 1"}, Then: `gpu_health{state="lost"} == 0`,
			Now: `gpu_health unless gpu_health{state="lost"}`},
		{Families: states, Uses: []string{"avg_over_time", "avg", "min", "min_over_time"},
			Then: `avg_over_time(gpu_clock_event_active{reason="hw_thermal"}[1h])`,
			Now: `count_over_time(gpu_clock_event_active{reason="hw_thermal"}[1h]) / ignoring (reason) ` +
				`count_over_time(gpu_device_up[1h])`},
		{Families: states, Uses: []string{"changes"}, Then: `changes(gpu_health{state="lost"}[1h]) > 0`,
			Now: `count_over_time(gpu_health{state="lost"}[1h]) > 0`},
		{Families: []string{"gpu_xid_events_total"}, Uses: []string{"increase", "rate", "irate", "delta", "idelta"},
			Then: `increase(gpu_xid_events_total[10m]) > 0`, Now: `time() - gpu_xid_last_timestamp_seconds < 600`},
		{Families: []string{"gpu_exporter_call_duration_seconds"}, Then: `rate(gpu_exporter_call_duration_seconds_sum[5m])`,
			Now: `rate(gpu_exporter_poll_call_duration_seconds_sum[5m])`, Switch: "--collector.calls"},
	}
	for _, g := range catalog.Groups() {
		var all []string
		for _, f := range g.Rows {
			switch {
			case f.Size() == catalog.SizeAll && g.Name != "calls":
				all = append(all, f.Name)
			case f.Values != nil:
				all = append(all, fmt.Sprintf("%s{%s!~%q}", f.Name, f.Labels[len(f.Labels)-1], strings.Join(f.Values, "|")))
			}
		}
		if all != nil {
			changes = append(changes, Change{Families: all, Then: "any", Now: "the same", Switch: "--collector." + g.Name})
		}
	}
	return changes
}

// ChangesTable renders the table of docs/upgrading.md.
func ChangesTable() string {
	var b strings.Builder
	b.WriteString("| metrics | then | now |\n|---|---|---|\n")
	code := func(text string) string {
		if text == "any" || text == "the same" {
			return text
		}
		return "`" + strings.ReplaceAll(text, "|", `\|`) + "`"
	}
	changes := Changes()
	for i, c := range changes {
		names := "the same"
		if i == 0 || !slices.Equal(c.Families, changes[i-1].Families) {
			names = "`" + strings.ReplaceAll(strings.Join(c.Families, "`, `"), "|", `\|`) + "`"
		}
		now := code(c.Now)
		switch {
		case c.Switch != "" && c.Now == "the same":
			now += " with `" + c.Switch + "`"
		case c.Switch != "":
			now += ", or the same with `" + c.Switch + "`"
		}
		fmt.Fprintf(&b, "| %s | %s | %s |\n", names, code(c.Then), now)
	}
	return b.String()
}
