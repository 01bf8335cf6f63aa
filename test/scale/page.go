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
)

// page is docs/performance-fleet.md. The last figures are those of the fleet whose boards were asked.
func page(k kept) string {
	var b strings.Builder
	all := k.All
	f := all[len(all)-1]
	fmt.Fprintf(&b, `# A fleet on one Prometheus

Measured by %s; this page is what it wrote. The stand-in plays the nodes of a fleet and serves their pages and kube-state-metrics',
each page a full exposition of the exporter with pods that come and go; a Prometheus scrapes them every %s and evaluates
every shipped rule as often.

Machine: %s. The stand-in and other programs ran on the same cores at the same time (load
average %s at the start, %s when the boards were asked): *fastest* is nearest to what the work takes, the slower figures hold
the waiting for a core too. Nodes are mixed: H100, B200, A100, L40S and T4, some with MIG, some time-sliced.
`, "`make scale`", plain(k.Interval), k.Machine, f.LoadBefore, cmp.Or(f.LoadAfter, "unknown"))
	b.WriteString(sizes(all))
	b.WriteString(planning(f))
	b.WriteString(ruleTables(f))
	if len(f.Asked) > 0 {
		b.WriteString(boardTables(f))
	}
	if len(f.Asked) == 0 && len(f.AskedDatabase) > 0 {
		b.WriteString("\n## Boards\n\nThe boards were asked of the database alone, see below: the Prometheus did not answer all of them within\nthe time that was left, on cores that many other programs shared.\n")
	}
	if len(f.AskedDatabase) > 0 {
		b.WriteString(beyond(f))
	}
	return b.String()
}

// sizes are the figures of each fleet.
func sizes(all []figures) string {
	var b strings.Builder
	b.WriteString("\n## What it takes\n\n")
	head, line := "| |", "|---|"
	for _, f := range all {
		head += fmt.Sprintf(" %s nodes, %s cards |", thousands(float64(f.Nodes)), thousands(float64(f.Cards)))
		line += "---|"
	}
	b.WriteString(head + "\n" + line + "\n")
	row := func(what string, cell func(f figures) string) {
		b.WriteString("| " + what + " |")
		for _, f := range all {
			b.WriteString(" " + cell(f) + " |")
		}
		b.WriteString("\n")
	}
	row("scraped for", func(f figures) string {
		if f.Ended != "" {
			return plain(f.Scraped) + ", then " + f.Ended
		}
		return plain(f.Scraped)
	})
	row("Prometheus servers", func(f figures) string { return fmt.Sprint(f.Servers) })
	row("targets, of them up", func(f figures) string {
		return fmt.Sprintf("%s, %s", thousands(float64(f.Targets)), thousands(float64(f.Up)))
	})
	row("series of a node's page", func(f figures) string { return thousands(f.SeriesPerTarget) })
	row("series in the head", func(f figures) string { return thousands(f.Series) })
	row("of them records; alerts pending or firing", func(f figures) string { return thousands(f.Records) + "; " + thousands(f.Alerts) })
	row("new series a minute", func(f figures) string { return thousands(f.Created) })
	row("samples a second", func(f figures) string { return thousands(f.Samples) })
	row("resident memory of Prometheus, highest", func(f figures) string { return fmt.Sprintf("%s MiB, %s MiB", thousands(f.Resident), thousands(f.Peak)) })
	row("memory for each series", func(f figures) string { return fmt.Sprintf("%.1f KiB", f.Resident*1024/f.Series) })
	row("processor of Prometheus a minute", func(f figures) string { return fmt.Sprintf("%.1f s (%.2f cores)", f.CPU.Seconds(), f.CPU.Minutes()) })
	row("data on disk, log included", func(f figures) string { return fmt.Sprintf("%.2f GiB", float64(f.Disk)/(1<<30)) })
	row("scrape, p50 / p99", func(f figures) string { return ms(f.Scrape50) + " / " + ms(f.Scrape99) })
	row("rule groups, sum of their fastest / mean evaluations", func(f figures) string {
		var least, mean time.Duration
		for _, g := range f.Groups {
			least, mean = least+g.Least, mean+g.Mean
		}
		return fmt.Sprintf("%.1f s / %.1f s", least.Seconds(), mean.Seconds())
	})
	row("evaluations missed", func(f figures) string { return thousands(f.Missed) })
	row("the stand-in, apart", func(f figures) string {
		return fmt.Sprintf("%.0f MiB, %.1f s of processor a minute", f.Standin.Resident, f.StandinCPU.Seconds())
	})
	if f := all[len(all)-1]; f.DatabaseUse.Resident > 0 {
		row("VictoriaMetrics: samples a second", func(f figures) string { return thousands(f.DatabaseRows) })
		row("VictoriaMetrics: series", func(f figures) string { return thousands(f.DatabaseSeries) })
		row("VictoriaMetrics: resident memory", func(f figures) string { return fmt.Sprintf("%.0f MiB", f.DatabaseUse.Resident) })
		row("VictoriaMetrics: processor a minute", func(f figures) string { return fmt.Sprintf("%.1f s", f.DatabaseCPU.Seconds()) })
	}
	b.WriteString("\nMemory and processor are those of the second half of the time. The head of a Prometheus fills for two to three hours before\nit is first written out, and grows with pods that come and go: leave room.\n")
	return b.String()
}

// planning is the table for other sizes, by proportion to the last figures.
func planning(f figures) string {
	var b strings.Builder
	b.WriteString("\n## Planning\n\nIn proportion to the largest fleet above; only the row marked so was measured, every other is extrapolated.\n\n| cards | series | samples a second | memory of Prometheus | processor | |\n|---|---|---|---|---|---|\n")
	cards := []int{1000, 4000, 8000, 16000, 32000, 64000}
	if !slices.Contains(cards, f.Cards) {
		cards = append(cards, f.Cards)
		slices.Sort(cards)
	}
	for _, c := range cards {
		part := float64(c) / float64(f.Cards)
		mark := "extrapolated"
		if c == f.Cards {
			mark = "measured"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %.1f GiB | %.2f cores | %s |\n", thousands(float64(c)), thousands(f.Series*part), thousands(f.Samples*part), f.Peak*part/1024, f.CPU.Minutes()*part, mark)
	}
	memory := memoryGiB() * 0.6 / (f.Peak / 1024) * float64(f.Cards)
	processor := 0.5 * float64(runtime.NumCPU()) / f.CPU.Minutes() * float64(f.Cards)
	first, second := "memory", "the processor"
	least, other := memory, processor
	if processor < memory {
		first, second, least, other = second, first, other, least
	}
	fmt.Fprintf(&b, "\nWhat bounds it on a machine like this: %s first, at about %s cards, then %s, at about %s (extrapolated; 60 %% of the memory,\nfor the growth of the head, and half of the processor, for queries). ", first, thousands(round2(least)), second, thousands(round2(other)))
	if f.Ended != "" {
		fmt.Fprintf(&b, "This run ended at %s cards: %s.\n", thousands(float64(f.Cards)), f.Ended)
	} else {
		fmt.Fprintf(&b, "This run did not reach either.\n")
	}
	b.WriteString("\nBeyond one server: several Prometheus servers, each with its part of the nodes and the shipped rules, that remote-write only\nwhat the rules make (`write_relabel_configs` that keep `.+:.+` and `ALERTS`) to one database, of which the boards above node level\nare asked.")
	if f.Records > 0 {
		fmt.Fprintf(&b, " Here that is %s series of %s: one in %.0f.", thousands(f.Records), thousands(f.Series), f.Series/f.Records)
	}
	b.WriteString("\n")
	return b.String()
}

func ruleTables(f figures) string {
	var b strings.Builder
	b.WriteString("\n## Rules\n\n| group | rules | fastest | mean | longest |\n|---|---|---|---|---|\n")
	for _, g := range f.Groups {
		fmt.Fprintf(&b, "| %s | %d | %.2f s | %.2f s | %.2f s |\n", g.Name, g.Rules, g.Least.Seconds(), g.Mean.Seconds(), g.Most.Seconds())
	}
	b.WriteString("\nThe ten slowest rules at their last evaluation:\n\n| rule | group | time |\n|---|---|---|\n")
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

// beyond is what the database of several servers would have.
func beyond(f figures) string {
	var b strings.Builder
	fmt.Fprintf(&b, "\n## Beyond one server\n\nThe same fleet's records and alerts in one VictoriaMetrics, to which the Prometheus above sent them as it went: %s samples a second,\n%.0f MiB of memory, %.1f s of processor a minute. The boards above node level, asked there:\n",
		thousands(f.DatabaseRows), f.DatabaseUse.Resident, f.DatabaseCPU.Seconds())
	b.WriteString(askedTable(f.AskedDatabase))
	return b.String()
}

func boardTables(f figures) string {
	var b strings.Builder
	fmt.Fprintf(&b, "\n## Boards\n\nEvery query of every board as it stands when it is opened, those of its variables included, asked one after the\nother, %d times each, while the server scrapes and evaluates.", len(f.Asked[0].Took))
	if f.Past > 0 {
		fmt.Fprintf(&b, " Records have a past as long as the boards look back, up to a week,\none sample a minute (%s samples, made up from what they were at the end); what the boards above node level read is complete.\nRaw series have the past of the run alone.\n", thousands(float64(f.Past)))
	} else {
		fmt.Fprintf(&b, " There is no past behind the run.\n")
	}
	b.WriteString(askedTable(f.Asked))
	if f.AfterQueries > 0 {
		fmt.Fprintf(&b, "\nHighest memory of Prometheus after all of them: %s MiB.\n", thousands(f.AfterQueries))
	}
	return b.String()
}

// askedTable has a line for each board, and names what is slow.
func askedTable(all []asked) string {
	var b strings.Builder
	fmt.Fprintf(&b, "\n| board | queries | with data | p50 | slowest query | fastest | median | longest |\n|---|---|---|---|---|---|---|---|\n")
	var uids []string
	for _, a := range all {
		if !slices.Contains(uids, a.Board) {
			uids = append(uids, a.Board)
		}
	}
	for _, uid := range uids {
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
		slices.SortFunc(of, func(a, b asked) int { return cmp.Compare(a.best(), b.best()) })
		s := of[len(of)-1]
		fmt.Fprintf(&b, "| %s | %d | %d | %s | %s | %s | %s | %s |\n", uid, len(of), data, ms(of[len(of)/2].best()), s.Panel, ms(s.best()), ms(s.median()), ms(s.worst()))
	}
	var slow, failed []asked
	for _, a := range all {
		if a.Err != "" {
			failed = append(failed, a)
		} else if a.best() > time.Second {
			slow = append(slow, a)
		}
	}
	if len(slow) == 0 {
		b.WriteString("\nNo query takes more than a second when it is not kept waiting for a core.\n")
	} else {
		slices.SortFunc(slow, func(a, b asked) int { return cmp.Compare(b.best(), a.best()) })
		b.WriteString("\nQueries above one second:\n\n| board | panel | fastest | median |\n|---|---|---|---|\n")
		for _, a := range slow {
			fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", a.Board, a.Panel, ms(a.best()), ms(a.median()))
		}
	}
	for _, a := range failed {
		fmt.Fprintf(&b, "\n%s, %s failed: %s\n", a.Board, a.Panel, a.Err)
	}
	return b.String()
}

func ms(d time.Duration) string { return fmt.Sprintf("%.0f ms", d.Seconds()*1000) }

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
	return fmt.Sprintf("%s, %d cores, %.0f GiB of memory, %s, %s/%s", processor(), runtime.NumCPU(), memoryGiB(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
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

func memoryGiB() float64 {
	text, err := os.ReadFile("/proc/meminfo")
	if err == nil {
		if m := regexp.MustCompile(`(?m)^MemTotal:\s*(\d+) kB`).FindSubmatch(text); m != nil {
			kib := 0.0
			if _, err := fmt.Sscan(string(m[1]), &kib); err == nil {
				return kib / (1 << 20)
			}
		}
	}
	return 0
}
