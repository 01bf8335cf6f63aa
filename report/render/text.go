package render

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/gpu-exporter/gpu-exporter/report/document"
	"github.com/gpu-exporter/gpu-exporter/report/units"
)

// outline writes the sections that text and Markdown have in common.
type outline struct {
	io.Writer
	d      *document.Document
	o      Options
	cell   func(string) string // makes a text safe in a cell
	begin  func(title string, head []string)
	row    func(cells []string)
	more   string // what follows a list that is cut off
	states func(state int) string
}

func (w *outline) printf(format string, args ...any) { fmt.Fprintf(w, format, args...) }

// list writes the first rows of a list, with what more each of them has.
func (w *outline) list(t table, more func(row int) string) {
	shown := func(row []cell) (out []string) {
		for _, c := range row {
			if c.Title != "" && !c.page {
				out = append(out, w.cell(c.Text))
			}
		}
		return out
	}
	var head []string
	for _, c := range t.Head {
		if c.Title != "" && !c.page {
			head = append(head, c.Title)
		}
	}
	w.begin(t.Title, head)
	for i, row := range t.Rows {
		if w.o.Top > 0 && i == w.o.Top && t.Title != "" {
			w.printf(w.more, len(t.Rows)-i)
			break
		}
		cells := shown(row)
		if more != nil {
			cells = append(cells, more(i))
		}
		w.row(cells)
	}
}

// summary writes the period and the states.
func (w *outline) summary() {
	d := w.d
	w.printf("%s to %s %s (%s): %s GPUs, %s expected GPU-hours. ", units.Minute(d.Period.In(d.Period.From)),
		units.Minute(d.Period.In(d.Period.To)), cmp.Or(d.Period.Zone, "UTC"),
		units.Span(d.Period.Hours), units.GPUs(d.Fleet.GPUs), units.Hours(d.Fleet.Hours))
	w.printf("Coverage %s; the states differ from the expected GPU-hours by %s.\n",
		units.Ratio(d.Fleet.Coverage), units.Difference(d.Checks.Difference))
	w.list(stateTable(d), w.states)
	w.printf("\nOf idle, %s GPU-hours are reclaimable: in periods of 30 minutes and longer. Of busy, %s are beyond the "+
		"allocation of the containers, and %s are unattributed.\n", units.Hours(d.Fleet.Reclaimable),
		units.Hours(d.Fleet.Beyond),
		units.Hours(d.Fleet.Unattributed))
	if d.Goal != nil {
		w.printf("%s\n", goal(d))
	}
	if rows := decisions(d); len(rows) > 0 {
		w.list(tableOf(d, "decision", "Decisions", decisionColumns(), rows), nil)
		w.printf("\n%s\n", sums(d))
	}
}

// goal says how much of the goal was reached.
func goal(d *document.Document) string {
	return fmt.Sprintf("Goal: %s busy. Reached: %s; %d of %d parts of the trend meet it.", units.Ratio(d.Goal.Busy),
		units.Ratio(d.Goal.Reached), d.Goal.Met, len(d.Trend))
}

// parts writes the levels and the workloads, what a month costs, and what changed since an earlier report.
func (w *outline) parts() {
	for _, t := range lists(w.d, w.o) {
		if t.inText() && t.Key != "advice" {
			w.list(t, nil)
		}
	}
	if c := w.d.Comparison; c != nil {
		w.printf("\n")
		for _, t := range c.Followed {
			w.printf("- no longer: %s\n", w.cell(t))
		}
		for _, t := range c.New {
			w.printf("- new: %s\n", w.cell(t))
		}
	}
}

func writeTable(out io.Writer, d *document.Document, o Options) error {
	tab := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	w := &outline{Writer: tab, d: d, o: o, cell: units.Clean, more: "… and %d more (--top=0)\n"}
	w.row = func(cells []string) { w.printf("%s\n", strings.Join(cells, "\t")) }
	w.begin = func(title string, head []string) {
		if title != "" {
			head[0] = strings.ToUpper(title)
		}
		w.printf("\n")
		w.row(head)
	}
	w.states = func(s int) string {
		n := int(d.Fleet.States.Of(document.State(s))/max(d.Fleet.Hours, 1e-9)*30 + 0.5)
		return strings.Repeat("█", max(0, min(30, n)))
	}
	if d.Partial {
		w.printf("PARTIAL REPORT: something is missing.\n")
		for _, p := range d.PartialReasons {
			w.printf("  ! %s\n", units.Clean(p))
		}
		w.printf("\n")
	}
	w.summary()
	w.parts()
	w.printf("\nADVICE, questions last\n")
	for i := range d.Advice {
		a := &d.Advice[i]
		if o.Top > 0 && i >= o.Top {
			w.printf(w.more, len(d.Advice)-o.Top)
			break
		}
		w.printf("%2d. [%s/%s] %s: saves %s, confidence %s\n    %s\n    %s\n    %s\n", i+1, a.Code, a.Reason,
			units.Clean(a.Title), saves(d, a), a.Confidence, units.Clean(about(a)), units.Clean(a.Evidence),
			units.Clean(a.Effort))
		if text := replayed(a.Replay); text != "" {
			w.printf("    %s\n", text)
		}
	}
	if len(d.Advice) == 0 {
		w.printf("none\n")
	}
	for _, n := range d.Notes {
		w.printf("\nnote: %s", units.Clean(n.Text))
	}
	w.printf("\n")
	return tab.Flush()
}

// escapes are the characters that Markdown interprets within a cell.
var escapes = strings.NewReplacer("<", "&#60;", ">", "&#62;", "&", "&#38;", "|", "&#124;", "@", "&#64;", ":", "&#58;",
	`\`, `\\`, "`", "\\`", "*", `\*`, "_", `\_`, "{", `\{`, "}", `\}`, "[", `\[`, "]", `\]`, "~", `\~`)

// escape makes a text safe in a cell of a Markdown table: nothing of it is markup.
func escape(s string) string { return escapes.Replace(units.Clean(s)) }

// fence makes a code block of a text that may have fences itself.
func fence(text string) string {
	f := "```"
	for strings.Contains(text, f) {
		f += "`"
	}
	return f + "\n" + strings.TrimRight(text, "\n") + "\n" + f + "\n"
}

// sticky keeps the first error of a writer.
type sticky struct {
	io.Writer
	err error
}

func (s *sticky) Write(b []byte) (int, error) {
	if s.err == nil {
		_, s.err = s.Writer.Write(b)
	}
	return len(b), nil
}

func writeMarkdown(out io.Writer, d *document.Document, o Options) error {
	errs := &sticky{Writer: out}
	w := &outline{Writer: errs, d: d, o: o, cell: escape, more: "\n… and %d more.\n"}
	w.row = func(cells []string) { w.printf("| %s |\n", strings.Join(cells, " | ")) }
	w.begin = func(title string, head []string) {
		if title != "" {
			w.printf("\n## %s\n", title)
		}
		w.printf("\n")
		w.row(head)
		w.printf("|%s\n", strings.Repeat(" --- |", len(head)))
	}
	w.printf("# GPU capacity report\n\n")
	if d.Partial {
		w.printf("> **Partial report: something is missing.**\n")
		for _, p := range d.PartialReasons {
			w.printf("> - %s\n", escape(p))
		}
		w.printf("\n")
	}
	w.summary()
	if len(d.Advice) == 0 {
		w.printf("\n## Advice\n\nNone.\n")
	} else {
		w.list(tableOf(d, "advice", "Advice", adviceColumns(), d.Advice), nil)
		w.printf("\n<details><summary>Changes</summary>\n\n")
		for i, a := range d.Advice {
			if o.Top > 0 && i >= o.Top {
				break
			}
			w.printf("**%s** (%s)\n\n%s\n", escape(a.Title), escape(a.ChangeIn), fence(a.Change))
		}
		w.printf("</details>\n")
	}
	w.parts()
	w.printf("\n## Sources\n\n")
	for _, s := range d.Sources {
		w.printf("- %s: %s (`%s`), %s\n", escape(s.Data), s.From, s.Series, units.Span(s.Hours))
	}
	for _, n := range d.Notes {
		w.printf("- %s\n", escape(n.Text))
	}
	return errs.err
}

// saves is what advice saves, in the kind and the money of it.
func saves(d *document.Document, a *document.Advice) string {
	text := units.Hours(a.SavedHours) + " GPU-hours"
	switch a.Saving {
	case document.SavesNodes:
		text += " of whole nodes"
	case document.SavesQueue:
		text += " of waiting"
	}
	if a.MonthCost != nil {
		text += " (" + in(d)(*a.MonthCost) + " per month)"
	}
	if a.Unsure() {
		text += "; to check with the owner, in no sum"
	}
	return text
}

// writeShort writes a text of few lines for a chat or a mail.
func writeShort(out io.Writer, d *document.Document, o Options) error {
	errs := &sticky{Writer: out}
	printf := func(format string, args ...any) { fmt.Fprintf(errs, format+"\n", args...) }
	f := &d.Fleet
	for _, p := range d.PartialReasons {
		printf("! %s", units.Clean(p))
	}
	printf("GPU report, %s to %s %s: %s GPUs", units.Minute(d.Period.In(d.Period.From)), units.Minute(d.Period.In(d.Period.To)),
		cmp.Or(d.Period.Zone, "UTC"), units.GPUs(f.GPUs))
	for _, x := range tiles(d)[:3] {
		printf("%s %s", x.Value, x.Label)
	}
	for i, x := range decisions(d) {
		if o.Top == 0 || i < o.Top {
			printf("%d. %s (%s): %s per month, confidence %s", i+1, units.Clean(x.Action), units.Clean(x.Owner), x.Saves, x.sure())
		}
	}
	printf("%s", sums(d))
	if c := d.Comparison; c != nil && len(c.Changes) > 0 {
		x, cost := c.Changes[0], ""
		if x.UnusedCost != nil && x.UnusedCostBefore != nil {
			cost = fmt.Sprintf(" (%s, before %s)", in(d)(*x.UnusedCost), in(d)(*x.UnusedCostBefore))
		}
		printf("Unused per day: %s GPU-hours, before %s%s; %d recommendations done, %d new", units.Hours(x.Unused),
			units.Hours(x.UnusedBefore), cost, len(c.Followed), len(c.New))
	}
	if d.Goal != nil {
		printf("%s", goal(d))
	}
	for i, p := range d.Projections {
		if over := p.Budget != nil && p.Cost > *p.Budget; i == 0 || over {
			budget := ""
			if p.Budget != nil {
				budget = ", budget: " + ofBudget(d, &p)
			}
			printf("%s, a month at this rate: %s%s", units.Clean(p.Name), in(d)(p.Cost), budget)
		}
	}
	return errs.err
}
