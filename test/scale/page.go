package main

import (
	"cmp"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/gpu-exporter/gpu-exporter/test/process"
)

// page is docs/performance-fleet.md.
func page(k kept) string {
	var b strings.Builder
	fmt.Fprintf(&b, `# A fleet on one Prometheus, and on several

Measured by %s; this page is what it wrote.

A program plays the nodes of a fleet (the stand-in): each page is a full exposition of the exporter, with pods that come and go
and faults, and there is a page of kube-state-metrics for each cluster. Nodes are mixed: H100, B200, A100, L40S and T4, some with MIG, some
time-sliced. A Prometheus scrapes them every %s and evaluates every shipped rule as often. After some time its use of the machine is
read from /proc, and what it says of itself. Then every query of every board is asked.

Machine: %s. The stand-in and the programs that ask run on the same cores.
`, "`make scale`", plain(k.Interval), k.Machine)
	steps := slices.DeleteFunc(slices.Clone(k.Steps), func(f figures) bool { return f.Series == 0 })
	if len(steps) > 0 {
		b.WriteString("\n## What it takes\n\n")
		b.WriteString(sizes(steps))
		b.WriteString("\nMemory and processor are those of the second half of the time. The head of a Prometheus fills for two to three hours before\nit is first written out, and grows with pods that come and go: leave room.\n")
		b.WriteString(planning(k, steps))
		b.WriteString(ruleTables(steps))
		b.WriteString(boardTables(k, steps))
	}
	if k.Several != nil {
		b.WriteString(beyond(k, *k.Several))
	}
	return b.String()
}

// column is the head of a fleet's column.
func (f *figures) column() string {
	return fmt.Sprintf("%s nodes, %s GPUs", thousands(float64(f.Nodes)), thousands(float64(f.GPUs)))
}

// table has a column for each of the fleets.
type table struct {
	b   strings.Builder
	all []figures
}

func newTable(first string, all []figures) *table {
	t := &table{all: all}
	t.b.WriteString(strings.TrimRight("| "+first, " ") + " |")
	line := "|---|"
	for _, f := range all {
		t.b.WriteString(" " + f.column() + " |")
		line += "---|"
	}
	t.b.WriteString("\n" + line + "\n")
	return t
}

func (t *table) row(what string, cell func(f figures) string) {
	t.b.WriteString("| " + what + " |")
	for _, f := range t.all {
		t.b.WriteString(" " + cell(f) + " |")
	}
	t.b.WriteString("\n")
}

// sizes are the figures of each fleet.
func sizes(all []figures) string {
	t := newTable(" ", all)
	t.row("scraped for", func(f figures) string { return plain(f.Scraped) })
	t.row("targets, of them up at the end", func(f figures) string {
		return fmt.Sprintf("%s, %s", thousands(float64(f.Targets)), thousands(float64(f.Up)))
	})
	t.row("series of a node's page", func(f figures) string { return thousands(f.SeriesPerTarget) })
	t.row("series in the head", func(f figures) string { return thousands(f.Series) })
	t.row("of them records; alerts pending or firing", func(f figures) string { return thousands(f.Records) + "; " + thousands(f.Alerts) })
	t.row("new series a minute", func(f figures) string { return thousands(f.Created) })
	t.row("samples a second", func(f figures) string { return thousands(f.Samples) })
	t.row("resident memory, highest", func(f figures) string { return fmt.Sprintf("%s MiB, %s MiB", thousands(f.Resident), thousands(f.Peak)) })
	t.row("memory for each series", func(f figures) string { return fmt.Sprintf("%.1f KiB", f.Resident*1024/f.Series) })
	t.row("processor", func(f figures) string { return fmt.Sprintf("%.2f cores", f.CPU.Minutes()) })
	t.row("data on disk, log included", func(f figures) string { return fmt.Sprintf("%.2f GiB", float64(f.Disk)/(1<<30)) })
	t.row("scrape, p50 / p99 / longest", func(f figures) string { return ms(f.Scrape50) + " / " + ms(f.Scrape99) + " / " + ms(f.ScrapeMost) })
	t.row("scrapes without an answer; too late", func(f figures) string {
		return fmt.Sprintf("%s of %s; %s", thousands(f.Failed), thousands(f.Scrapes), thousands(f.Late))
	})
	t.row("all rule groups together, fastest / mean", func(f figures) string {
		least, mean := f.evaluations()
		return fmt.Sprintf("%.1f s / %.1f s", least.Seconds(), mean.Seconds())
	})
	t.row("longest evaluation of a group", func(f figures) string {
		g := f.longest()
		return fmt.Sprintf("%.1f s (%s)", g.Most.Seconds(), g.Name)
	})
	t.row("evaluations missed", func(f figures) string { return thousands(f.Missed) })
	if slices.ContainsFunc(all, func(f figures) bool { return len(f.Asked) > 0 }) {
		t.row("slowest query of a board above node level", func(f figures) string { return slowest(f.Asked, true) })
		t.row("slowest query of another board", func(f figures) string { return slowest(f.Asked, false) })
		t.row("highest memory after all queries", func(f figures) string { return thousands(f.AfterQueries) + " MiB" })
	}
	t.row("the stand-in, apart", func(f figures) string {
		return fmt.Sprintf("%.0f MiB, %.2f cores", f.Standin.Resident, f.StandinCPU.Minutes())
	})
	if slices.ContainsFunc(all, func(f figures) bool { return f.DatabaseUse.Resident > 0 }) {
		t.row("VictoriaMetrics, sent the records: samples a second, memory, processor", database)
	}
	t.row("load average before, and when the boards were asked", func(f figures) string {
		return cmp.Or(f.LoadBefore, "?") + ", " + cmp.Or(f.LoadAfter, "not asked")
	})
	troubles(&t.b, all...)
	t.b.WriteString("\nA fleet has nodes that do not answer; too late is what the server gave up after the interval.\n")
	return t.b.String()
}

func database(f figures) string {
	if f.DatabaseUse.Resident == 0 {
		return "none"
	}
	return fmt.Sprintf("%s, %.0f MiB, %.3f cores", thousands(f.DatabaseRows), f.DatabaseUse.Resident, f.DatabaseCPU.Minutes())
}

// troubles names what could not be measured.
func troubles(b *strings.Builder, all ...figures) {
	for _, f := range all {
		for _, p := range f.Problems {
			fmt.Fprintf(b, "\nNot measured at %s nodes: %s\n", thousands(float64(f.Nodes)), p)
		}
	}
}

// slowest is the slowest query of the boards above node level, or of the others.
func slowest(all []asked, records bool) string {
	var out *asked
	for i := range all {
		if a := &all[i]; slices.Contains(aboveNode, a.Board) == records && (out == nil || a.weight() > out.weight()) {
			out = a
		}
	}
	if out == nil || out.weight() < 0 {
		return "not asked"
	}
	return out.spread()[0]
}

// highest is the most memory that the servers had in MiB, while they scraped or while they were asked.
func (f *figures) highest() float64 { return max(f.Peak, f.AfterQueries) }

// planning is what a thousand GPUs take, where it ended, and how many GPUs fit.
func planning(k kept, steps []figures) string {
	var b strings.Builder
	f := steps[len(steps)-1]
	b.WriteString("\n## Planning\n\nFor each 1,000 GPUs, as measured; memory is the highest, while it was scraped or while the boards were asked:\n\n| fleet | series | samples a second | memory | processor | rules, each evaluation |\n|---|---|---|---|---|---|\n")
	for _, s := range steps {
		part := 1000 / float64(s.GPUs)
		least, _ := s.evaluations()
		fmt.Fprintf(&b, "| %s | %s | %s | %s MiB | %.3f cores | %.2f s |\n", s.column(), thousands(s.Series*part), thousands(s.Samples*part), thousands(s.highest()*part), s.CPU.Minutes()*part, least.Seconds()*part)
	}
	b.WriteString("\nRows that are marked were measured. The others are extrapolated from the largest fleet, in proportion.\n\n| GPUs | series | samples a second | memory of Prometheus | processor | |\n|---|---|---|---|---|---|\n")
	devs := []int{1000, 4000, 8000, 16000, 32000, 40000, 64000}
	measured := map[int]figures{}
	for _, s := range steps {
		measured[s.GPUs] = s
		devs = append(devs, s.GPUs)
	}
	slices.Sort(devs)
	for _, c := range slices.Compact(devs) {
		of, mark := f, "extrapolated"
		if s, ok := measured[c]; ok {
			of, mark = s, "**measured**"
		}
		part := float64(c) / float64(of.GPUs)
		fmt.Fprintf(&b, "| %s | %s | %s | %.1f GiB | %.2f cores | %s |\n", thousands(float64(c)), thousands(of.Series*part), thousands(of.Samples*part), of.highest()*part/1024, of.CPU.Minutes()*part, mark)
	}
	b.WriteString("\nKubernetes supports 5,000 nodes in a cluster: 40,000 GPUs of nodes with eight.\n")
	b.WriteString(ending(k, f))
	return b.String()
}

// ending says where it ended and why.
func ending(k kept, f figures) string {
	var b strings.Builder
	b.WriteString("\n## Where it ended\n\n")
	var broke *figures
	for i := range k.Steps {
		if k.Steps[i].Ended != "" {
			broke = &k.Steps[i]
		}
	}
	late := f.Missed > 0 || f.Late > 0
	switch {
	case broke != nil:
		fmt.Fprintf(&b, "At %s: %s.\n", broke.column(), strings.TrimSuffix(broke.Ended, "."))
	case late:
		fmt.Fprintf(&b, "The largest fleet, %s, was held, but not in time: %s evaluations were missed, and %s of %s scrapes came too late. The machine's\ntwo bounds are below.\n",
			f.column(), thousands(f.Missed), thousands(f.Late), thousands(f.Scrapes))
	default:
		fmt.Fprintf(&b, "It did not end: the largest fleet, %s, was held. No evaluation was missed, and no scrape came too late.\n", f.column())
	}
	memory := k.MemoryGiB * 0.6 / (f.highest() / 1024) * float64(f.GPUs)
	processor := 0.5 * float64(k.Cores) / f.CPU.Minutes() * float64(f.GPUs)
	first, second, least, other := "memory", "the processor", memory, processor
	if processor < memory {
		first, second, least, other = second, first, other, least
	}
	fmt.Fprintf(&b, "What bounds a machine like this one: %s first, at about %s GPUs, then %s, at about %s (extrapolated; 60 %% of the memory,\nthe rest for the growth of the head, and half of the processor, the rest for queries).\n", first, thousands(round2(least)), second, thousands(round2(other)))
	return b.String()
}

func ruleTables(steps []figures) string {
	f := steps[len(steps)-1]
	t := newTable("group, rules", steps)
	for _, g := range f.Groups {
		t.row(fmt.Sprintf("%s, %d", g.Name, g.Rules), func(f figures) string {
			i := slices.IndexFunc(f.Groups, func(h groupTime) bool { return h.Name == g.Name })
			if i < 0 {
				return ""
			}
			h := f.Groups[i]
			text := fmt.Sprintf("%.2f / %.2f / %.2f", h.Least.Seconds(), h.Mean.Seconds(), h.Most.Seconds())
			if h.Missed > 0 {
				text += fmt.Sprintf("; %.0f missed", h.Missed)
			}
			return text
		})
	}
	var b strings.Builder
	b.WriteString("\n## Rules\n\nSeconds that an evaluation of the group takes: fastest / mean / longest. The fastest is nearest to what the work takes, the others\nhold the waiting for a core too.\n\n")
	b.WriteString(t.b.String())
	fmt.Fprintf(&b, "\nThe ten slowest rules at their last evaluation, %s:\n\n| rule | group | time |\n|---|---|---|\n", f.column())
	for _, r := range f.Rules[:min(10, len(f.Rules))] {
		fmt.Fprintf(&b, "| %s | %s | %.2f s |\n", r.Name, r.Group, r.Took.Seconds())
	}
	var wait []string
	for _, r := range f.Rules {
		if r.Waits && !slices.Contains(wait, r.Group) {
			wait = append(wait, r.Group)
		}
		if r.Failed != "" {
			fmt.Fprintf(&b, "\n%s of %s failed: %s\n", r.Name, r.Group, r.Failed)
		}
	}
	if len(wait) > 0 {
		fmt.Fprintf(&b, "\nNot evaluated within the run, since their turn comes less often: %s.\n", strings.Join(wait, ", "))
	}
	return b.String()
}

// boardTables are the slowest query of each board at each step, and all of the last step in more detail.
func boardTables(k kept, steps []figures) string {
	f := steps[len(steps)-1]
	if len(f.Asked) == 0 {
		return ""
	}
	var b strings.Builder
	often := 0
	for _, a := range f.Asked {
		often = max(often, len(a.Took))
	}
	times := "once"
	if often > 1 {
		times = fmt.Sprintf("up to %d times, in rounds", often)
	}
	fmt.Fprintf(&b, "\n## Boards\n\nEvery query of every board as it stands when it is opened, those of its variables included, asked one after the other,\n%s, while the server scrapes and evaluates; none longer than %s. A board of workloads is asked twice: as it is opened, with all\nof them, and with the workload that has most pods, as links to it open it.", times, plain(k.Limit))
	if f.Past > 0 {
		fmt.Fprintf(&b, " Records have a past as long as the\nboards look back, up to a week, one sample a minute (%s samples, made up from what they were at the end): what the boards above node\nlevel read is complete. Raw series have the past of the run alone.\n", thousands(float64(f.Past)))
	} else {
		b.WriteString(" There is no past behind the run.\n")
	}
	b.WriteString("\nThe slowest query of each board, its fastest answer:\n\n")
	t := newTable("board", steps)
	for _, uid := range boardsOf(f.Asked) {
		t.row(uid, func(f figures) string {
			of := slices.DeleteFunc(slices.Clone(f.Asked), func(a asked) bool { return a.Board != uid })
			return slowest(of, slices.Contains(aboveNode, uid))
		})
	}
	b.WriteString(t.b.String())
	fmt.Fprintf(&b, "\nAll of them at %s:\n", f.column())
	b.WriteString(askedTable(f.Asked))
	if len(f.AskedDatabase) > 0 {
		b.WriteString("\nThe boards above node level, asked of a VictoriaMetrics that has the records alone:\n")
		b.WriteString(askedTable(f.AskedDatabase))
	}
	return b.String()
}

func boardsOf(all []asked) []string {
	var out []string
	for _, a := range all {
		if !slices.Contains(out, a.Board) {
			out = append(out, a.Board)
		}
	}
	return out
}

// askedTable has a line for each board, and names what is slow.
func askedTable(all []asked) string {
	var b strings.Builder
	fmt.Fprintf(&b, "\n| board | queries | with data | p50 | slowest query | fastest | median | longest |\n|---|---|---|---|---|---|---|---|\n")
	for _, uid := range boardsOf(all) {
		var of []asked
		data := 0
		for _, a := range all {
			if a.Board != uid {
				continue
			}
			of = append(of, a)
			if a.Series > 0 {
				data++
			}
		}
		slices.SortFunc(of, func(a, b asked) int { return cmp.Compare(a.weight(), b.weight()) })
		fmt.Fprintf(&b, "| %s | %d | %d | %s | %s | %s |\n", uid, len(of), data, of[len(of)/2].cells(1), of[len(of)-1].Panel, of[len(of)-1].cells(3))
	}
	slow := slices.DeleteFunc(slices.Clone(all), func(a asked) bool { return a.weight() <= time.Second })
	if len(slow) == 0 {
		b.WriteString("\nNo query takes more than a second.\n")
	} else {
		slices.SortFunc(slow, func(a, b asked) int { return cmp.Compare(b.weight(), a.weight()) })
		b.WriteString("\nQueries above one second:\n\n| board | panel | fastest | median |\n|---|---|---|---|\n")
		for _, a := range slow {
			fmt.Fprintf(&b, "| %s | %s | %s |\n", a.Board, a.Panel, a.cells(2))
		}
	}
	// The same failure of many queries is told once.
	failed := map[string][]string{}
	var order []string
	for _, a := range all {
		if a.Err == "" {
			continue
		}
		if failed[a.Err] == nil {
			order = append(order, a.Err)
		}
		failed[a.Err] = append(failed[a.Err], a.Board+" "+a.Panel)
	}
	for _, e := range order {
		of := failed[e]
		text := strings.Join(of[:min(5, len(of))], ", ")
		if n := len(of) - 5; n > 0 {
			text += fmt.Sprintf(" and %d more", n)
		}
		fmt.Fprintf(&b, "\nNo answer to %s: %s\n", text, strings.TrimSpace(e))
	}
	return b.String()
}

// cells are the first of fastest, median and longest, as cells of a table.
func (a *asked) cells(n int) string {
	spread := a.spread()
	return strings.Join(spread[:n], " | ")
}

// beyond is the step beyond one server.
func beyond(k kept, f figures) string {
	var b strings.Builder
	b.WriteString("\n## Beyond one server\n\n")
	share := "each with clusters of its own, told apart by the label `cluster`"
	if f.Split == byNode {
		share = "each with a part of the nodes of one cluster by a hash of their names, told apart by an external label `shard`"
	}
	fmt.Fprintf(&b, `%d Prometheus servers, %s, each with the shipped rules. They remote-write only what the rules make to one VictoriaMetrics,
of which the boards above node level and gpu-report are asked:

`+"```yaml"+`
remote_write:
  - url: http://victoriametrics:8428/api/v1/write
    write_relabel_configs:
      - {source_labels: [__name__], regex: '%s', action: keep}
`+"```"+`

[sizing.md](sizing.md#several-servers) says how to share out the nodes.

`, f.Servers, share, ruleOutput)
	if f.Series == 0 {
		fmt.Fprintf(&b, "It ended early: %s.\n", strings.TrimSuffix(f.Ended, "."))
		return b.String()
	}
	b.WriteString("| | targets | series | samples a second | memory | processor | longest evaluation of a group |\n|---|---|---|---|---|---|---|\n")
	for _, s := range f.Each {
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s MiB | %.2f cores | %.1f s (%s) |\n", s.Name, thousands(float64(s.Targets)), thousands(s.Series), thousands(s.Samples), thousands(s.Resident), s.CPU.Minutes(), s.Slowest.Seconds(), s.SlowestGroup)
	}
	fmt.Fprintf(&b, "| together | %s | %s | %s | %s MiB | %.2f cores | |\n", thousands(float64(f.Targets)), thousands(f.Series), thousands(f.Samples), thousands(f.Resident), f.CPU.Minutes())
	fmt.Fprintf(&b, "| VictoriaMetrics | | %s | %s | %s MiB | %.3f cores | |\n", thousands(f.DatabaseSeries), thousands(f.DatabaseRows), thousands(f.DatabaseUse.Resident), f.DatabaseCPU.Minutes())
	fmt.Fprintf(&b, "\n%s, scraped for %s", f.column(), plain(f.Scraped))
	if f.Ended != "" {
		fmt.Fprintf(&b, ", then %s", f.Ended)
	}
	fmt.Fprintf(&b, ". Evaluations missed: %s. Scrapes without an answer: %s of %s, too late %s. Samples that could not be sent: %s.\n", thousands(f.Missed), thousands(f.Failed), thousands(f.Scrapes), thousands(f.Late), thousands(sumOf(f.Each, func(s server) float64 { return s.RemoteFailed })))
	if f.Records > 0 {
		fmt.Fprintf(&b, "What is sent is %s series of %s: one in %.0f.\n", thousands(f.Records+f.Alerts), thousands(f.Series), f.Series/(f.Records+f.Alerts))
	}
	troubles(&b, f)
	if f.Held != nil {
		b.WriteString(heldText(*f.Held))
	}
	if len(f.AskedDatabase) > 0 {
		fmt.Fprintf(&b, "\n### Boards\n\nThe boards above node level, asked of VictoriaMetrics as of the one Prometheus above (%s samples of a past):\n", thousands(float64(f.Past)))
		b.WriteString(askedTable(f.AskedDatabase))
		b.WriteString("\nQuotas and the list of waiting pods read kube-state-metrics itself, which is not sent here: see [sizing.md](sizing.md#several-servers).\n")
	}
	return b.String()
}

func sumOf(of []server, value func(server) float64) (total float64) {
	for _, s := range of {
		total += value(s)
	}
	return total
}

// heldText is what the database was held against.
func heldText(h held) string {
	var b strings.Builder
	b.WriteString("\n### Held against the servers, and the truth\n\n")
	if len(h.Foreign) == 0 && h.Names > 0 {
		fmt.Fprintf(&b, "VictoriaMetrics has %d names of series, all of them what rules make. ", h.Names)
	} else if h.Names > 0 {
		fmt.Fprintf(&b, "VictoriaMetrics has %d names of series, of which no rule makes %s. ", h.Names, strings.Join(h.Foreign, ", "))
	}
	if h.Records > 0 {
		fmt.Fprintf(&b, "Number and sum of the series of %d names (%s series) were compared with those of the servers together, at one moment: ", h.Records, thousands(h.Series))
		if len(h.Different) == 0 {
			b.WriteString("all are equal.\n")
		} else {
			fmt.Fprintf(&b, "%d differ.\n\n| record | series | at the servers | sum | at the servers |\n|---|---|---|---|---|\n", len(h.Different))
			for _, d := range h.Different[:min(10, len(h.Different))] {
				fmt.Fprintf(&b, "| %s | %s | %s | %.6g | %.6g |\n", d.Name, thousands(d.Series), thousands(d.Expected), d.Sum, d.ExpectedSum)
			}
		}
	}
	if len(h.Facts) > 0 {
		reference := slices.ContainsFunc(h.Facts, func(f fact) bool { return f.Reference >= 0 })
		b.WriteString("\nThe truth is what the stand-in played in the five minutes before; what an exporter that did not answer would have said is missing from\nthe measured.\n\n| whole fleet | VictoriaMetrics | the servers, added up | truth |")
		line := "\n|---|---|---|---|"
		if reference {
			b.WriteString(" one Prometheus of everything |")
			line += "---|"
		}
		b.WriteString(line + "\n")
		for _, f := range h.Facts {
			fmt.Fprintf(&b, "| %s | %s | %s | %s |", f.What, tenths(f.Database), tenths(f.Servers), tenths(f.True))
			if reference {
				b.WriteString(" " + tenths(f.Reference) + " |")
			}
			b.WriteString("\n")
		}
	}
	if r := h.Report; r != nil {
		fmt.Fprintf(&b, "\ngpu-report over %s to %s (UTC), at VictoriaMetrics in %.1f s and %.0f MiB, beside %s:\n\n| hours of GPUs | VictoriaMetrics | the others |\n|---|---|---|\n", r.From.Format("15:04"), r.To.Format("15:04"), r.Took.Seconds(), r.MiB, r.Against)
		for _, l := range r.Lines {
			fmt.Fprintf(&b, "| %s | %s | %s |\n", l.What, tenths(l.Database), tenths(l.Others))
		}
		fmt.Fprintf(&b, "| workloads, number | %d | %d |\n", r.Workloads[0], r.Workloads[1])
		// The first line is the GPU-hours expected.
		if len(r.Lines) > 0 && off(r.Lines[0].Database, r.Lines[0].Others, 0, 0.01) {
			b.WriteString("\nThe servers started within this hour, and the account goes in steps of five minutes: in the first, of which they saw a part, they tell of\n" +
				"GPUs of which the database does not yet. From the second on they agree.\n")
		}
		if len(r.Absent) > 0 {
			fmt.Fprintf(&b, "\nIt goes without what only raw series tell: %s.\n", strings.Join(r.Absent, ", "))
		}
	}
	if c := h.Boards; c != nil {
		fmt.Fprintf(&b, "\nOf %d queries of the boards above node level %d are answered as one Prometheus of everything answers them, within 5 %%, for two servers do not\nscrape at the same moment.\n", c.Queries, c.Same)
		for _, o := range c.Other {
			fmt.Fprintf(&b, "\n- %s\n", o)
		}
	}
	for _, p := range h.Problems {
		fmt.Fprintf(&b, "\nNot compared: %s\n", p)
	}
	return b.String()
}

func tenths(v float64) string {
	if v < 0 {
		return ""
	}
	whole := thousands(float64(int64(v)))
	return fmt.Sprintf("%s.%d", whole, int64(v*10)%10)
}

func ms(d time.Duration) string {
	if d >= 10*time.Second {
		return fmt.Sprintf("%.1f s", d.Seconds())
	}
	return fmt.Sprintf("%.0f ms", d.Seconds()*1000)
}

// plain spells a duration without the zeros that Go leaves at its end.
func plain(d time.Duration) string {
	s := d.Round(time.Second).String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	return s
}

// round2 keeps two digits: an extrapolation has no more.
func round2(v float64) float64 {
	unit := 1.0
	for v/unit >= 100 {
		unit *= 10
	}
	return float64(int(v/unit+0.5)) * unit
}

func thousands(v float64) string {
	s := fmt.Sprintf("%.0f", v)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

func machine() string {
	memory, err := process.Total()
	if err != nil {
		return "unknown"
	}
	return fmt.Sprintf("%s, %d cores, %.0f GiB of memory, %s, %s/%s", processor(), runtime.NumCPU(), memory/1024, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

func processor() string {
	text, err := os.ReadFile("/proc/cpuinfo")
	if err == nil {
		if m := regexp.MustCompile(`(?m)^model name\s*: (.*)$`).FindSubmatch(text); m != nil {
			return string(m[1])
		}
	}
	return "unknown processor"
}
