package main

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// outcome is what a check came to.
type outcome string

// The outcomes. What the hardware does not offer is skipped and no fault; incomplete is what should have been
// checked and was not.
const (
	good       outcome = "good"
	found      outcome = "FINDING"
	incomplete outcome = "INCOMPLETE"
	skipped    outcome = "skipped"
)

// check is one line of the summary.
type check struct {
	name    string
	outcome outcome
	detail  string
}

func (c check) with(o outcome, text string, args ...any) check {
	c.outcome, c.detail = o, strings.Join(strings.Fields(fmt.Sprintf(text, args...)), " ") // an error may be of several lines
	return c
}

func (c check) judge(ok bool, text string, args ...any) check {
	if ok {
		return c.with(good, text, args...)
	}
	return c.with(found, text, args...)
}

func (c check) skipped(text string, args ...any) check { return c.with(skipped, text, args...) }

func (c check) incomplete(text string, args ...any) check { return c.with(incomplete, text, args...) }

// report is all that one run found out.
type report struct {
	model, driver string
	began         time.Time
	facts         [][2]string
	checks        []check
	devs          []dev
	checked       dev // the GPU of the full table and of the load
	fields        map[string][]row
	idle, loaded  map[string]histogram
	idleBusy      float64 // part of the time for which the GPU was busy before the load
}

func (r *report) add(checks ...check) { r.checks = append(r.checks, checks...) }

func (r *report) count(o outcome) int {
	n := 0
	for _, c := range r.checks {
		if c.outcome == o {
			n++
		}
	}
	return n
}

// result is the last line: one sentence.
func (r *report) result() string {
	f, i := r.count(found), r.count(incomplete)
	if f == 0 && i == 0 {
		return "result: all good"
	}
	return fmt.Sprintf("result: %s, %d incomplete", plural(f, "finding"), i)
}

func plural(n int, word string) string {
	if n == 1 {
		return "1 " + word
	}
	return fmt.Sprintf("%d %ss", n, word)
}

func list(of []string) string {
	if len(of) == 0 {
		return "none"
	}
	return strings.Join(of, ", ")
}

// private fields name one machine; a report may be published, and shows whether they agree but not what they are.
func private(field string) bool {
	switch field {
	case "uuid", "gpu_uuid", "serial", "gpu_serial":
		return true
	}
	return false
}

func (r row) shown() (theirs, ours string) {
	if private(r.field) && classify(r.theirs) == answeredValue {
		if r.ours == "" {
			return "(not shown)", ""
		}
		return "(not shown)", "(not shown)"
	}
	return r.theirs, r.ours
}

// markdown renders the report as a page.
func (r *report) markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s, driver %s\n\nWritten by `make hwcheck`: gpu-exporter on this hardware, held against nvidia-smi.\n\n", r.model, r.driver)
	fmt.Fprintf(&b, "| | |\n|---|---|\n| date | %s |\n", r.began.UTC().Format("2006-01-02"))
	for _, f := range r.facts {
		fmt.Fprintf(&b, "| %s | %s |\n", f[0], cell(f[1]))
	}
	fmt.Fprintf(&b, "\n## Checks\n\n%s.\n\n| check | outcome | detail |\n|---|---|---|\n", upperFirst(r.result()))
	for _, c := range r.checks {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", cell(c.name), c.outcome, cell(c.detail))
	}
	b.WriteString("\n## Fields\n\nValues are in nvidia-smi's units. What moves is given as the range between two scrapes around the question. " +
		"Serial numbers and UUIDs are compared and not shown.\n")
	for _, c := range r.devs {
		rows := r.fields[c["uuid"]]
		fmt.Fprintf(&b, "\n### GPU %s\n\n%s\n", c["index"], tally(rows))
		if c["uuid"] != r.checked["uuid"] {
			rows = findings(rows) // the full table of one GPU is enough
		}
		if len(rows) == 0 {
			continue
		}
		b.WriteString("\n| field | nvidia-smi | gpu-exporter | verdict | remark |\n|---|---|---|---|---|\n")
		for _, row := range rows {
			theirs, ours := row.shown()
			fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", row.field, cell(theirs), cell(ours), row.verdict, cell(row.remark))
		}
	}
	b.WriteString("\n## Driver calls\n\n" + r.latencies())
	return b.String()
}

// tally counts the verdicts of a GPU in a sentence.
func tally(rows []row) string {
	counts := map[verdict]int{}
	for _, r := range rows {
		counts[r.verdict]++
	}
	var parts []string
	for _, v := range []verdict{agrees, absentInBoth, notCompared, differs, absentHere, onlyHere} {
		if counts[v] > 0 {
			parts = append(parts, fmt.Sprintf("%s: %d", v, counts[v]))
		}
	}
	return fmt.Sprintf("%d fields. %s.", len(rows), upperFirst(strings.Join(parts, ", ")))
}

// latencies renders the table of driver calls, idle and under load.
func (r *report) latencies() string {
	if r.idle == nil && r.loaded == nil {
		return "Not measured.\n"
	}
	var b strings.Builder
	b.WriteString("Microseconds as the exporter measures them, while nvidia-smi asks too. Calls that fell into neither window are left out.\n\n" +
		"| call | idle: n | mean | p50 | p99 | loaded: n | mean | p50 | p99 |\n|---|---|---|---|---|---|---|---|---|\n")
	calls := map[string]bool{}
	for _, side := range []map[string]histogram{r.idle, r.loaded} {
		for call, h := range side {
			calls[call] = calls[call] || h.count > 0
		}
	}
	for _, call := range slices.Sorted(maps.Keys(calls)) {
		if !calls[call] {
			continue
		}
		fmt.Fprintf(&b, "| %s |", call)
		for _, side := range []map[string]histogram{r.idle, r.loaded} {
			h := side[call]
			fmt.Fprintf(&b, " %d | %s | %s | %s |", h.count, microseconds(h.mean()), microseconds(h.quantile(0.5)), microseconds(h.quantile(0.99)))
		}
		b.WriteString("\n")
	}
	return b.String()
}

func microseconds(s float64) string {
	if math.IsNaN(s) {
		return ""
	}
	return fmt.Sprintf("%.1f", s*1e6)
}

// text renders what is printed: the table of the checked GPU, what differs on the others, and the checks.
func (r *report) text() string {
	lines := [][]string{{"field", "nvidia-smi", "ours", "verdict"}}
	for _, c := range r.devs {
		rows := r.fields[c["uuid"]]
		if c["uuid"] != r.checked["uuid"] {
			rows = findings(rows)
		}
		for _, row := range rows {
			theirs, ours := row.shown()
			verdict := string(row.verdict)
			if row.remark != "" {
				verdict += ": " + row.remark
			}
			name := row.field
			if len(r.devs) > 1 {
				name = c["index"] + " " + name
			}
			lines = append(lines, []string{name, theirs, ours, verdict})
		}
	}
	checks := [][]string{{"check", "outcome", "detail"}}
	for _, c := range r.checks {
		checks = append(checks, []string{c.name, string(c.outcome), c.detail})
	}
	return columns(lines) + "\n" + columns(checks)
}

// columns aligns the cells of all lines; the last column is not padded.
func columns(lines [][]string) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 2, 8, 2, ' ', 0)
	for _, l := range lines {
		fmt.Fprintln(w, strings.Join(l, "\t"))
	}
	_ = w.Flush() // into a builder, which takes everything
	return b.String()
}

// cell keeps a text inside its table cell.
func cell(s string) string {
	return strings.ReplaceAll(strings.ReplaceAll(s, "|", `\|`), "\n", " ")
}

func upperFirst(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}

// fileName is the name of the report: model and driver, in letters that any file system takes.
func (r *report) fileName() string {
	clean := func(s string) string {
		return strings.Trim(strings.Map(func(c rune) rune {
			switch {
			case c >= 'a' && c <= 'z', c >= '0' && c <= '9', c == '.':
				return c
			}
			return '-'
		}, strings.ToLower(s)), "-")
	}
	return clean(strings.TrimPrefix(r.model, "NVIDIA ")) + "-" + clean(r.driver) + ".md"
}
