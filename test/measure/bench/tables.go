package bench

import (
	"fmt"
	"math"
)

// Row is a row of a table of the page: a title and its cells.
type Row []string

// unit formats a figure for the page.
type unit struct {
	scale  float64
	format string
}

var (
	milliseconds = unit{1e-6, "%.2f ms"}
	mebibytes    = unit{1, "%.1f MiB"}
	megabytes    = unit{1e-6, "%.1f MB"}
	kilobytes    = unit{1e-3, "%.0f KB"}
	percent      = unit{1, "%.2f %%"}
	number       = unit{1, "%.0f"}
)

func (u unit) of(v float64) string {
	if math.IsNaN(v) {
		return "–"
	}
	return fmt.Sprintf(u.format, v*u.scale)
}

// Budgets are the rows of what the project aims at on the busiest node, and what was measured of it: of the revision
// before too, where there is one.
func (f Figures) Budgets() (rows []Row) {
	before := Figures{Results: f.Before}
	add := func(title, aim string, u unit, of func(Figures) float64) {
		row := Row{title, aim}
		if f.Against != "" {
			row = append(row, u.of(of(before)))
		}
		rows = append(rows, append(row, u.of(of(f))))
	}
	one := func(name, unit string) func(Figures) float64 {
		return func(f Figures) float64 { return f.Of(name, unit) }
	}
	p99 := func(name, unit string) func(Figures) float64 {
		return func(f Figures) float64 { return f.P99(name, unit) }
	}
	node, http := "Node/"+busiest, "HTTP/"+busiest+"/"
	add("series", "2,800", number, one(node, "series"))
	add("page", "500 KB", kilobytes, one(node, "page-B"))
	add("page, compressed", "", kilobytes, one(node, "gzip-B"))
	for _, s := range []struct{ name, title, first string }{
		{plain.name, "plain", "0.4 ms"}, {prom.name, "as Prometheus requests it", "1.2 ms"}} {
		add("processor, first scrape of a poll, "+s.title, s.first, milliseconds, one(http+s.name+"/first", "cpu-ns/op"))
		add("processor, next scrape, "+s.title, "0.1 ms", milliseconds, one(http+s.name+"/next", "cpu-ns/op"))
		add("duration, first scrape, "+s.title+", p50", "", milliseconds, one(http+s.name+"/first", "ns/op"))
		add("duration, next scrape, "+s.title+", p50", "", milliseconds, one(http+s.name+"/next", "ns/op"))
		add("duration, next scrape, "+s.title+", p99", "2 ms", milliseconds, p99(http+s.name+"/next", "ns/op"))
	}
	add("memory allocated by a first scrape", "", megabytes, one("Scrape/text/first/pods=80", "B/op"))
	add("resident memory", "25 MiB", mebibytes, one(node, "resident-MiB"))
	add("resident memory without file pages", "", mebibytes, one(node, "anonymous-MiB"))
	add("resident memory, 1,000 containers", "40 MiB", mebibytes, one("Node/pods=1000", "resident-MiB"))
	add("processor, share of a core", "0.1 %", percent, one(node, "own-cpu-%"))
	add("the same with the fake driver's work", "", percent, one(node, "cpu-%"))
	add("start to the first scrape", "20 ms", milliseconds, one("Start/"+busiest, "ns/op"))
	add("start without a driver", "20 ms", milliseconds, one("Start/no-driver", "ns/op"))
	add("attribution of a poll", "", milliseconds, one("Advance", "ns/op"))
	add("whole fast poll, without the driver", "", milliseconds, one("Step", "ns/op"))
	add("binary", "20 MB", megabytes, one("Binary", "B"))
	return rows
}

// Peers are the rows of the comparison with other programs, in one run.
func (f Figures) Peers() (rows []Row) {
	for _, p := range []struct{ title, kind, memory string }{
		{"gpu-exporter, first scrape of a poll", "first", "Node/" + busiest},
		{"gpu-exporter, next scrape", "next", "Node/" + busiest},
		{"the same bytes from memory", fileServer, "Peer/" + busiest + "/" + fileServer},
		{"nvidia_gpu_exporter, demo", otherProgram, "Peer/" + busiest + "/" + otherProgram},
	} {
		row := Row{p.title, number.of(f.Of(p.memory, "series"))}
		for _, format := range formats {
			name := "HTTP/" + busiest + "/" + format.name + "/" + p.kind
			row = append(row, milliseconds.of(f.Of(name, "cpu-ns/op")), milliseconds.of(f.Of(name, "ns/op"))+" / "+
				milliseconds.of(f.P99(name, "ns/op")))
		}
		if row[2] != milliseconds.of(math.NaN()) {
			rows = append(rows, append(row, mebibytes.of(f.Of(p.memory, "resident-MiB"))))
		}
	}
	return rows
}
