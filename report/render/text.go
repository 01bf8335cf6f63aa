package render

import (
	"encoding/csv"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/gpu-exporter/gpu-exporter/report"
)

// clean takes away what a terminal would obey: control characters and those that turn the direction of text.
func clean(s string) string {
	return strings.Map(func(c rune) rune {
		if unicode.IsControl(c) || unicode.Is(unicode.Cf, c) || c == '\u2028' || c == '\u2029' {
			return -1
		}
		return c
	}, s)
}

func hours(h float64) string {
	switch a := math.Abs(h); {
	case a >= 1000:
		return group(strconv.FormatFloat(h, 'f', 0, 64))
	case a >= 10:
		return strconv.FormatFloat(h, 'f', 0, 64)
	case a < 0.005:
		return "0"
	}
	return strconv.FormatFloat(h, 'f', 1, 64)
}

// group puts a thin separation between thousands.
func group(s string) string {
	neg := strings.HasPrefix(s, "-")
	s = strings.TrimPrefix(s, "-")
	var parts []string
	for len(s) > 3 {
		parts = append([]string{s[len(s)-3:]}, parts...)
		s = s[:len(s)-3]
	}
	s = strings.Join(append([]string{s}, parts...), ",")
	if neg {
		s = "-" + s
	}
	return s
}

func part(a, of float64) string {
	if of == 0 {
		return "–"
	}
	x := a / of
	switch {
	case x == 0:
		return "0 %"
	case math.Abs(x) < 0.0005:
		return "<0.1 %"
	case math.Abs(x) < 0.0995:
		return strconv.FormatFloat(100*x, 'f', 1, 64) + " %"
	}
	return strconv.FormatFloat(100*x, 'f', 0, 64) + " %"
}

func ratio(x *float64) string {
	if x == nil {
		return "–"
	}
	return part(*x, 1)
}

func money(x *float64, currency string) string {
	if x == nil {
		return "–"
	}
	digits := 0
	if math.Abs(*x) < 100 {
		digits = 2
	}
	s := strconv.FormatFloat(*x, 'f', digits, 64)
	if digits == 0 {
		s = group(s)
	}
	return s + " " + clean(currency)
}

func gibibytes(x *float64) string {
	if x == nil {
		return "–"
	}
	return strconv.FormatFloat(*x/(1<<30), 'f', 1, 64) + " GiB"
}

func devs(x float64) string {
	switch {
	case x == math.Trunc(x) || math.Abs(x) >= 100:
		return group(strconv.FormatFloat(x, 'f', 0, 64))
	case math.Abs(x) >= 10:
		return strconv.FormatFloat(x, 'f', 1, 64)
	}
	return strings.TrimSuffix(strings.TrimSuffix(strconv.FormatFloat(x, 'f', 2, 64), "0"), ".0")
}

func moment(t time.Time) string { return t.UTC().Format("2006-01-02 15:04") }

func span(h float64) string {
	switch {
	case h >= 48:
		return fmt.Sprintf("%.1f d", h/24)
	case h >= 1:
		return fmt.Sprintf("%.1f h", h)
	case h == 0:
		return "0"
	}
	return fmt.Sprintf("%.0f min", h*60)
}

// cut is the first rows of a list, and how many are left.
func cut[T any](list []T, top int) ([]T, int) {
	if top <= 0 || len(list) <= top {
		return list, 0
	}
	return list[:top], len(list) - top
}

// costs says whether any cost is known.
func costs(d *report.Document) bool { return d.Fleet.Cost != nil }

func cells() []report.Cell {
	out := make([]report.Cell, report.CellCount)
	for i := range out {
		out[i] = report.Cell(i)
	}
	return out
}

// who is the name of the workload of an advice, or of the part of the fleet that it speaks of.
func who(a *report.Advice) string {
	for _, s := range []string{a.Workload, a.Node, a.Model, a.Cluster} {
		if s != "" {
			return s
		}
	}
	return "fleet"
}

func writeTable(w io.Writer, d *report.Document, o Options) error {
	tab := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	say := func(format string, args ...any) { fmt.Fprintf(tab, format, args...) }
	if d.Partial {
		say("PARTIAL REPORT: something is missing.\n")
		for _, p := range d.Problems {
			say("  ! %s\n", clean(p))
		}
		say("\n")
	}
	say("GPU capacity, %s to %s UTC (%s): %s GPUs, %s GPU-hours\n", moment(d.Window.From), moment(d.Window.To), span(d.Window.Hours), devs(d.Fleet.GPUs), hours(d.Fleet.Hours))
	say("closing error %s, coverage %s\n\n", closing(d.Checks.ClosingError), part(d.Fleet.Coverage, 1))
	say("\tcard-hours\tof all\tcost\t\n")
	for _, c := range cells() {
		v := d.Fleet.Cells.Of(c)
		cost := "–"
		if d.Fleet.CellCost != nil {
			x := d.Fleet.CellCost.Of(c)
			cost = money(&x, d.Currency)
		}
		say("%s\t%s\t%s\t%s\t%s\n", c.Title(), hours(v), part(v, d.Fleet.Hours), cost, bar(v/max(d.Fleet.Hours, 1e-9), 30))
	}
	say("\nof idle, in stretches of 30 minutes and more: %s; of useful, beyond what was held: %s, outside pods: %s\n", hours(d.Fleet.Reclaimable), hours(d.Fleet.Beyond), hours(d.Fleet.Outside))
	for _, l := range levels(d, o) {
		say("\n%s\tcards\thours\tuseful\tunderused\tidle\tunallocated\tunavailable\tunobserved\tnot reported\treclaimable\n", strings.ToUpper(l.title))
		rows, more := cut(l.accounts, o.Top)
		for i := range rows {
			a := &rows[i]
			say("%s\t%s\t%s", clean(l.name(a)), devs(a.GPUs), hours(a.Hours))
			for _, c := range cells() {
				say("\t%s", part(a.Cells.Of(c), a.Hours))
			}
			say("\t%s\n", hours(a.Reclaimable))
		}
		if more > 0 {
			say("… and %d more (--top=0)\n", more)
		}
	}
	if o.shows("workload") && len(d.Workloads) > 0 {
		say("\nWORKLOADS, largest waste first\tmodel\tcards\theld\tactivity\tp95\tpeak\tmem peak\tidle\tlongest\twaste\tadvice\n")
		rows, more := cut(d.Workloads, o.Top)
		for i := range rows {
			r := &rows[i]
			advice := r.Advice
			if advice == "" {
				advice = "(" + r.NoAdvice + ")"
			}
			say("%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", clean(r.Namespace+"/"+r.Name), clean(r.Model), devs(r.GPUs), hours(r.Held), ratio(r.Activity), ratio(r.P95), ratio(r.Peak),
				gibibytes(r.MemoryPeak), hours(r.Idle), span(r.LongestIdle), hours(r.Waste), advice)
		}
		if more > 0 {
			say("… and %d more (--top=0)\n", more)
		}
	}
	say("\nADVICE, largest saving first\n")
	if len(d.Advice) == 0 {
		say("none\n")
	}
	rows, more := cut(d.Advice, o.Top)
	for i := range rows {
		a := &rows[i]
		say("%2d. [%s/%s] %s: saves %s GPU-hours%s, confidence %s\n    %s\n    %s\n", i+1, a.Code, a.Reason, clean(a.Title), hours(a.SavedHours), saved(a, d), a.Confidence, clean(who(a)), clean(a.Evidence))
	}
	if more > 0 {
		say("… and %d more (--top=0)\n", more)
	}
	for _, n := range d.Notes {
		say("\nnote: %s", clean(n.Text))
	}
	say("\n")
	return tab.Flush()
}

func saved(a *report.Advice, d *report.Document) string {
	if a.SavedCost == nil {
		return ""
	}
	return " (" + money(a.SavedCost, d.Currency) + ")"
}

func bar(x float64, width int) string {
	n := int(x*float64(width) + 0.5)
	return strings.Repeat("█", max(0, min(width, n)))
}

// escape makes a text safe in a cell of a Markdown table: nothing of it is markup.
func escape(s string) string {
	var b strings.Builder
	for _, c := range clean(s) {
		if strings.ContainsRune("\\`*_{}[]<>()#+-!|~&@:", c) {
			if c == '<' || c == '>' || c == '&' || c == '|' || c == '@' || c == ':' {
				fmt.Fprintf(&b, "&#%d;", c)
				continue
			}
			if c == '-' || c == '+' || c == '(' || c == ')' || c == '!' || c == '#' {
				b.WriteRune(c) // inside a cell these mean nothing
				continue
			}
			b.WriteByte('\\')
		}
		b.WriteRune(c)
	}
	return b.String()
}

// fence makes a code block of a text that may have fences itself.
func fence(text string) string {
	f := "```"
	for strings.Contains(text, f) {
		f += "`"
	}
	return f + "\n" + strings.TrimRight(text, "\n") + "\n" + f + "\n"
}

func writeMarkdown(w io.Writer, d *report.Document, o Options) error {
	var err error
	say := func(format string, args ...any) {
		if err == nil {
			_, err = fmt.Fprintf(w, format, args...)
		}
	}
	say("# GPU capacity report\n\n")
	if d.Partial {
		say("> **Partial report: something is missing.**\n")
		for _, p := range d.Problems {
			say("> - %s\n", escape(p))
		}
		say("\n")
	}
	say("%s to %s UTC (%s), %s GPUs, %s GPU-hours expected. Closing error %.3f %%, coverage %s.\n\n", moment(d.Window.From), moment(d.Window.To), span(d.Window.Hours), devs(d.Fleet.GPUs), hours(d.Fleet.Hours), 100*d.Checks.ClosingError, part(d.Fleet.Coverage, 1))
	priced := costs(d)
	head := func(cols ...string) {
		say("| %s |\n|%s\n", strings.Join(cols, " | "), strings.Repeat(" --- |", len(cols)))
	}
	if priced {
		head("where the hours went", "GPU-hours", "of all", "cost")
	} else {
		head("where the hours went", "GPU-hours", "of all")
	}
	for _, c := range cells() {
		v := d.Fleet.Cells.Of(c)
		say("| %s | %s | %s |", c.Title(), hours(v), part(v, d.Fleet.Hours))
		if priced {
			x := d.Fleet.CellCost.Of(c)
			say(" %s |", escape(money(&x, d.Currency)))
		}
		say("\n")
	}
	say("\nOf the idle hours %s came in stretches of 30 minutes and more. Of the useful ones %s were work beyond what its holders hold, and %s work outside pods.\n", hours(d.Fleet.Reclaimable), hours(d.Fleet.Beyond), hours(d.Fleet.Outside))
	say("\n## Advice\n\n")
	if len(d.Advice) == 0 {
		say("None.\n")
	} else {
		cols := []string{"what to do", "why", "saves GPU-hours", "confidence"}
		if priced {
			cols = append(cols, "saves")
		}
		head(cols...)
		rows, more := cut(d.Advice, o.Top)
		for i := range rows {
			a := &rows[i]
			say("| %s<br>%s | `%s/%s`: %s | %s | %s |", escape(a.Title), escape(who(a)), a.Code, a.Reason, escape(a.Evidence), hours(a.SavedHours), a.Confidence)
			if priced {
				say(" %s |", escape(money(a.SavedCost, d.Currency)))
			}
			say("\n")
		}
		if more > 0 {
			say("\n… and %d more.\n", more)
		}
		say("\n<details><summary>The changes to make</summary>\n\n")
		for i := range rows {
			a := &rows[i]
			say("**%s** (%s)\n\n%s\n", escape(a.Title), escape(a.ChangeIn), fence(a.Change))
		}
		say("</details>\n")
	}
	for _, l := range levels(d, o) {
		say("\n## %s\n\n", l.title)
		head("", "gpus", "hours", "useful", "gap", "idle", "unallocated", "unavailable", "unobserved", "not reported", "reclaimable")
		rows, more := cut(l.accounts, o.Top)
		for i := range rows {
			a := &rows[i]
			say("| %s | %s | %s |", escape(l.name(a)), devs(a.GPUs), hours(a.Hours))
			for _, c := range cells() {
				say(" %s |", part(a.Cells.Of(c), a.Hours))
			}
			say(" %s |\n", hours(a.Reclaimable))
		}
		if more > 0 {
			say("\n… and %d more.\n", more)
		}
	}
	if o.shows("workload") && len(d.Workloads) > 0 {
		say("\n## Workloads, largest waste first\n\n")
		head("workload", "model", "gpus", "held h", "activity", "p95", "peak", "memory peak", "idle h", "longest idle", "waste h", "advice")
		rows, more := cut(d.Workloads, o.Top)
		for i := range rows {
			r := &rows[i]
			advice := "`" + r.Advice + "`"
			if r.Advice == "" {
				advice = escape(r.NoReason)
			}
			say("| %s | %s | %s | %s | %s | %s | %s | %s | %s | %s | %s | %s |\n", escape(r.Namespace+"/"+r.Name), escape(r.Model), devs(r.GPUs), hours(r.Held), ratio(r.Activity), ratio(r.P95), ratio(r.Peak),
				gibibytes(r.MemoryPeak), hours(r.Idle), span(r.LongestIdle), hours(r.Waste), advice)
		}
		if more > 0 {
			say("\n… and %d more.\n", more)
		}
	}
	if len(d.WhatIf) > 0 {
		say("\n## What if\n\n")
		head("model", "scenario", "moved", "GPUs before", "GPUs after", "GPU-hours freed", "overload")
		for _, p := range d.WhatIf {
			say("| %s | %s: %s | %d | %s | %s | %s | %s |\n", escape(p.Model), p.Scenario, escape(p.Text), p.Items, devs(p.GPUsBefore), devs(p.GPUsAfter), hours(p.FreedHours), part(p.Overload, 1))
		}
	}
	say("\n## Where it was read\n\n")
	for _, s := range d.Sources {
		say("- %s: %s (`%s`), %s\n", escape(s.What), s.From, s.Names, span(s.Hours))
	}
	for _, n := range d.Notes {
		say("- %s\n", escape(n.Text))
	}
	return err
}

// formula keeps a spreadsheet from taking a name for a formula.
func formula(s string) string {
	s = clean(s)
	if s != "" && strings.ContainsRune("=+-@", rune(s[0])) {
		return "'" + s
	}
	return s
}

// writeCSV writes one row for each account and workload, told apart by the first column.
func writeCSV(w io.Writer, d *report.Document) error {
	out := csv.NewWriter(w)
	header := []string{"level", "cluster", "node_pool", "node", "namespace", "kind", "workload", "model", "gpus", "hours"}
	for _, c := range cells() {
		header = append(header, c.String())
	}
	header = append(header, "lent", "beyond_held", "reclaimable_idle", "coverage", "energy_kwh", "cost", "activity_mean", "activity_p95", "activity_peak",
		"memory_peak_bytes", "memory_floor_bytes", "longest_idle", "last_busy", "advice", "reason", "saved_hours", "confidence", "partial")
	if err := out.Write(header); err != nil {
		return err
	}
	num := func(x float64) string { return strconv.FormatFloat(x, 'g', 10, 64) }
	opt := func(x *float64) string {
		if x == nil {
			return ""
		}
		return num(*x)
	}
	partial := strconv.FormatBool(d.Partial)
	account := func(level string, a *report.Account) error {
		row := []string{level, formula(a.Cluster), formula(a.NodePool), formula(a.Node), formula(a.Namespace), "", "", formula(a.Model), num(a.GPUs), num(a.Hours)}
		for _, c := range cells() {
			row = append(row, num(a.Cells.Of(c)))
		}
		row = append(row, num(a.Lent), num(a.Beyond), num(a.Reclaimable), num(a.Coverage), opt(a.EnergyKWh), opt(a.Cost), "", "", "", "", "", "", "", "", "", "", "", partial)
		return out.Write(row)
	}
	if err := account("fleet", &d.Fleet); err != nil {
		return err
	}
	for _, l := range levels(d, Options{}) {
		for i := range l.accounts {
			if err := account(l.key, &l.accounts[i]); err != nil {
				return err
			}
		}
	}
	by := map[string]*report.Advice{}
	for i := range d.Advice {
		if a := &d.Advice[i]; a.Workload != "" && by[a.Workload] == nil {
			by[a.Workload] = a
		}
	}
	for i := range d.Workloads {
		r := &d.Workloads[i]
		last, reason, saves := "", "", ""
		if r.LastBusy != nil {
			last = r.LastBusy.Format(time.RFC3339)
		}
		if a := by[r.ID]; a != nil {
			reason, saves = a.Reason, num(a.SavedHours)
		}
		row := []string{"workload", formula(r.Cluster), "", "", formula(r.Namespace), formula(r.Kind), formula(r.Name), formula(r.Model), num(r.GPUs), num(r.Held),
			num(r.Useful - r.Beyond), num(r.Gap), num(r.Idle), "", "", num(r.Unobserved), "", num(r.Lent), num(r.Beyond), num(r.Reclaimable), num(r.Coverage), opt(r.EnergyKWh), opt(r.Cost),
			opt(r.Activity), opt(r.P95), opt(r.Peak), opt(r.MemoryPeak), opt(r.MemoryFloor), num(r.LongestIdle), last, r.Advice, reason, saves, r.Confidence, partial}
		if err := out.Write(row); err != nil {
			return err
		}
	}
	out.Flush()
	return out.Error()
}

// closing writes the closing error as a percentage; what rounds to nothing has no sign.
func closing(x float64) string {
	text := fmt.Sprintf("%.3f %%", 100*x)
	if text == "-0.000 %" {
		return "0.000 %"
	}
	return text
}
