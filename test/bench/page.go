package main

import (
	"fmt"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/gpu-exporter/gpu-exporter/test/process"
)

// page is what is written: everything that was measured.
type page struct {
	config     config
	trees      []tree
	alone      []map[string]benchmark // by tree
	nodes      []measured
	pollGroups [3]float64
	noDriver   []time.Duration // by tree
	binary     []int64         // by tree
	curves     []grown
}

// measured is a node with the figures of each tree on it.
type measured struct {
	node
	by []figures
}

// grown is a curve with the figures at each of its points.
type grown struct {
	curve
	points []measured
}

func (p *page) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, `# Performance

Written by %s on the fake driver: the time that a real driver takes is not in it. Read the ratios, and
measure again on your machine.

Machine: %s, %d cores, load %s at the end; %s, %s/%s.
`, "`make bench`", processor(), runtime.NumCPU(), process.Load(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
	if len(p.trees) > 1 {
		fmt.Fprintf(&b, "\nTwo revisions ran at the same time and were asked in turn: *%s* and *%s*.\n", p.trees[0].title, p.trees[1].title)
	}
	p.budgets(&b)
	p.running(&b)
	p.rendering(&b)
	p.rounds(&b)
	p.calls(&b)
	p.growth(&b)
	return b.String()
}

// table writes a Markdown table.
func table(b *strings.Builder, head []string, rows [][]string) {
	line := func(cells []string) { fmt.Fprintf(b, "| %s |\n", strings.Join(cells, " | ")) }
	b.WriteString("\n")
	line(head)
	b.WriteString(strings.Repeat("|---", len(head)) + "|\n")
	for _, r := range rows {
		line(r)
	}
}

// perTree returns a cell for each tree.
func perTree[T any](all []T, cell func(T) string) []string {
	var out []string
	for _, x := range all {
		out = append(out, cell(x))
	}
	return out
}

func (p *page) titles() []string { return perTree(p.trees, func(t tree) string { return t.title }) }

func milliseconds(d time.Duration) string { return fmt.Sprintf("%.2f ms", d.Seconds()*1000) }

// budgets sets what was measured beside what it may be.
func (p *page) budgets(b *strings.Builder) {
	busiest := p.nodes[len(p.nodes)-1].by
	each := func(cell func(figures) string) []string { return perTree(busiest, cell) }
	alone := func(name string, cell func(benchmark) string) []string {
		return perTree(p.alone, func(m map[string]benchmark) string {
			if x, ok := m[name]; ok {
				return cell(x)
			}
			return "not measured"
		})
	}
	row := func(what, budget string, cells []string) []string { return append([]string{what, budget}, cells...) }
	fmt.Fprintf(b, "\n## Beside the budgets\n\nThe node is %s.\n", p.nodes[len(p.nodes)-1].title)
	table(b, append([]string{"what", "budget"}, p.titles()...), [][]string{
		row("series", "2,800", each(func(f figures) string { return fmt.Sprint(f.series) })),
		row("page, plain / as Prometheus takes it", "500 KB", each(func(f figures) string { return fmt.Sprintf("%d / %d KB", f.page/1000, f.packed/1000) })),
		row("first scrape of a view, plain, p99", "6 ms", each(func(f figures) string { return milliseconds(f.first.p99) })),
		row("the next, p99", "2 ms", each(func(f figures) string { return milliseconds(f.next.p99) })),
		row("first scrape beside a file of the same bytes, p50", "3 times", each(func(f figures) string { return fmt.Sprintf("%.1f times", f.first.p50.Seconds()/f.file.p50.Seconds()) })),
		row("the next beside it, p50", "3 times", each(func(f figures) string { return fmt.Sprintf("%.1f times", f.next.p50.Seconds()/f.file.p50.Seconds()) })),
		row("first scrape as Prometheus asks (OpenMetrics, gzip), p50 / p99", "", each(func(f figures) string { return f.promFirst.String() })),
		row("allocated for the first scrape, plain", "3 MB", alone("Scrape/first/pods=80", func(x benchmark) string {
			return fmt.Sprintf("%.2f MB, %.0f pieces", x.bytes/1e6, x.allocations)
		})),
		row("resident", "40 MiB", each(func(f figures) string { return fmt.Sprintf("%.1f MiB", f.resident) })),
		row("of that not the program's own file", "", each(func(f figures) string { return fmt.Sprintf("%.1f MiB", f.anonymous) })),
		row("most resident ever", "", each(func(f figures) string { return fmt.Sprintf("%.1f MiB", f.peak) })),
		row("processor, a scrape each 15 s included", "1 % of a core", each(func(f figures) string { return fmt.Sprintf("%.3f %%", f.cpu.Seconds()/60*100) })),
		row("driver calls per minute", "", each(func(f figures) string { return fmt.Sprintf("%.0f", f.allCalls()) })),
		row("start to the first scrape that shows the GPUs", "150 ms", each(func(f figures) string { return milliseconds(f.start) })),
		row("start to the first scrape, no driver", "150 ms", perTree(p.noDriver, milliseconds)),
		row("binary, stripped", "25 MB", perTree(p.binary, func(n int64) string { return fmt.Sprintf("%.1f MB", float64(n)/1e6) })),
	})
	b.WriteString(`
*Resident* counts the pages of the program's file and of the C library that lie in memory; the system shares them between processes, drops them
and reads them again as it likes. What the exporter itself needs is the line below. The fake driver lives in the same process and is in that line.
`)
}

func (p *page) running(b *strings.Builder) {
	fmt.Fprintf(b, `
## The running program

Through HTTP on the loopback, one connection, %d pairs of each kind; p50 / p99. *First* is the first scrape of a view, *next* any other; *file* is the
same bytes served from memory by a server that does nothing else. The client's reading is in all three. *Prometheus* asks for
OpenMetrics and gzip, as a Prometheus 3 does. Scrapes were timed at a fast poll group of %s, everything else at the usual poll groups over %s.
`, p.config.scrapes, newView, p.config.watch)
	head := []string{"node", "revision", "series", "page", "first", "next", "file", "first, Prometheus", "next, Prometheus", "file, Prometheus", "resident, anonymous, peak", "processor per minute", "start"}
	if len(p.trees) == 1 {
		head = slices.Delete(head, 1, 2)
	}
	var rows [][]string
	for _, n := range p.nodes {
		for i, f := range n.by {
			row := []string{n.title, p.trees[i].title, fmt.Sprint(f.series), fmt.Sprintf("%d / %d KB", f.page/1000, f.packed/1000), f.first.String(), f.next.String(), f.file.String(),
				f.promFirst.String(), f.promNext.String(), f.promFile.String(), fmt.Sprintf("%.1f, %.1f, %.1f MiB", f.resident, f.anonymous, f.peak),
				fmt.Sprintf("%.0f ms (%.3f %% of a core)", f.cpu.Seconds()*1000, f.cpu.Seconds()/60*100), milliseconds(f.start)}
			if len(p.trees) == 1 {
				row = slices.Delete(row, 1, 2)
			}
			rows = append(rows, row)
		}
	}
	table(b, head, rows)
}

// goBenchmarks writes Go benchmarks, a row for each and a column for each tree.
func (p *page) goBenchmarks(b *strings.Builder, first string, names []string, title func(string, benchmark) string) {
	var rows [][]string
	for _, name := range names {
		now := p.alone[len(p.alone)-1][name]
		row := []string{title(name, now)}
		for _, m := range p.alone {
			x, ok := m[name]
			if !ok {
				row = append(row, "not measured")
				continue
			}
			row = append(row, fmt.Sprintf("%.3f ms, %.0f KB, %.0f pieces", x.ns/1e6, x.bytes/1000, x.allocations))
		}
		rows = append(rows, row)
	}
	table(b, append([]string{first}, p.titles()...), rows)
}

func (p *page) rendering(b *strings.Builder) {
	b.WriteString("\n## Rendering alone\n\nOne scrape of a view of 8 GPUs in plain text, without the network: time, memory allocated, in how many pieces. *Foreign* is the page under another\nexporter's names (`--compat`); *static* writes the same bytes as they are.\n")
	var names []string
	for name := range p.alone[len(p.alone)-1] {
		if strings.HasPrefix(name, "Scrape/") || strings.HasPrefix(name, "Foreign/") {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, func(x, y string) int { return strings.Compare(orderOf(x), orderOf(y)) })
	p.goBenchmarks(b, "scrape", names, func(name string, x benchmark) string {
		kind, pods, _ := strings.Cut(name, "/pods=")
		kind = strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(kind, "Scrape/"), "Foreign/", "foreign, "))
		return fmt.Sprintf("%s, %s pods, %.0f KB", kind, pods, x.more["bytes/page"]/1000)
	})
}

// orderOf sorts benchmarks by family, then by pods as numbers.
func orderOf(name string) string {
	kind, pods, _ := strings.Cut(name, "/pods=")
	return fmt.Sprintf("%s %6s %s", map[bool]string{true: "b", false: "a"}[strings.HasPrefix(kind, "Foreign")], pods, kind)
}

func (p *page) rounds(b *strings.Builder) {
	b.WriteString("\n## A round without the driver\n\nWhat the fast poll group does besides reading, every two seconds, for 8 GPUs, 80 containers and 400 processes.\n")
	p.goBenchmarks(b, "what", []string{"Advance", "Step"}, func(name string, _ benchmark) string {
		return map[string]string{"Advance": "attribution of a round", "Step": "the whole round: poll groups, attribution, view"}[name]
	})
}

// mostCalls is how many of the driver's functions the page names.
const mostCalls = 8

func (p *page) calls(b *strings.Builder) {
	b.WriteString("\n## Driver calls\n\nPer minute, all GPUs together, at the usual poll groups: the functions that are called most.\n")
	var rows [][]string
	for _, n := range p.nodes {
		f := n.by[len(n.by)-1]
		var names []string
		for name := range f.calls {
			names = append(names, name)
		}
		slices.SortFunc(names, func(x, y string) int {
			if f.calls[x] != f.calls[y] {
				return int(f.calls[y] - f.calls[x])
			}
			return strings.Compare(x, y)
		})
		var top []string
		for _, name := range names[:min(mostCalls, len(names))] {
			top = append(top, fmt.Sprintf("%s %.0f", strings.TrimPrefix(name, "nvmlDevice"), f.calls[name]))
		}
		rows = append(rows, []string{n.title, fmt.Sprintf("%.0f", f.allCalls()), strings.Join(top, ", ")})
	}
	table(b, []string{"node", "all", "most"}, rows)
	fmt.Fprintf(b, "\nBy poll group, %s:\n", p.nodes[len(p.nodes)-1].title)
	table(b, []string{"fast (2 s)", "medium (10 s)", "slow (60 s)"}, [][]string{perTree(p.pollGroups[:], func(n float64) string { return fmt.Sprintf("%.0f", n) })})
	b.WriteString("\nWhat each poll group reads is in [ARCHITECTURE.md](ARCHITECTURE.md#poll groups). What a call takes on a real GPU, gpu_exporter_call_duration_seconds tells.\n")
}

func (p *page) growth(b *strings.Builder) {
	if len(p.curves) == 0 {
		return
	}
	b.WriteString("\n## Growth\n\nHow the figures grow with the node, H100 GPUs throughout. Scrapes are p50.\n")
	for _, c := range p.curves {
		fmt.Fprintf(b, "\n### %s\n", c.title)
		var rows [][]string
		for _, n := range c.points {
			f := n.by[0]
			rows = append(rows, []string{fmt.Sprint(n.at), fmt.Sprint(f.series), fmt.Sprintf("%d / %d KB", f.page/1000, f.packed/1000), milliseconds(f.first.p50), milliseconds(f.next.p50), milliseconds(f.file.p50),
				milliseconds(f.promFirst.p50), fmt.Sprintf("%.1f MiB", f.resident), fmt.Sprintf("%.1f MiB", f.anonymous), fmt.Sprintf("%.3f %%", f.cpu.Seconds()/60*100), fmt.Sprintf("%.0f", f.allCalls()), milliseconds(f.start)})
		}
		table(b, []string{c.of, "series", "page", "first", "next", "file", "first, Prometheus", "resident", "anonymous", "processor", "driver calls per minute", "start"}, rows)
		first, last := c.points[0], c.points[len(c.points)-1]
		n := float64(last.at - first.at)
		per := func(value func(figures) float64) float64 { return (value(last.by[0]) - value(first.by[0])) / n }
		fmt.Fprintf(b, "\nOne more costs about %.0f series, %.1f KB of page, %.0f µs of a first scrape, %.0f KiB of memory, %.4f %% of a core and %.0f driver calls per minute.\n",
			per(func(f figures) float64 { return float64(f.series) }), per(func(f figures) float64 { return float64(f.page) / 1000 }),
			per(func(f figures) float64 { return f.first.p50.Seconds() * 1e6 }), per(func(f figures) float64 { return f.anonymous * 1024 }),
			per(func(f figures) float64 { return f.cpu.Seconds() / 60 * 100 }), per(figures.allCalls))
	}
	b.WriteString(`
## What bounds each

- **Series** are bounded by --container-limit for containers (the rest are shown together), and by what a GPU offers for everything else.
- **A scrape** is the encoding of the page: building a view's families costs a fraction of it, since a node's series are the same from view to view. Packing costs about as
  much as encoding. No scrape waits for the driver, the kubelet or a disk; of more at once than there are processors, some wait for the others.
- **Memory** is the program's file first, then the runtime of Go, two renderings of the page's series (the one that is read and the one that is filled), and
  the state of the accounts.
- **Processor time** is the driver calls' way through cgo and the fake driver's own work, most of all in the fast poll group; what a round takes besides is in its own table above.
- **Driver calls** grow with GPUs and instances, never with pods or scrapes.
`)
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
