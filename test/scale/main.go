// Command scale measures a fleet on one Prometheus: the stand-in serves simulated nodes, a Prometheus scrapes them
// with the shipped rules, and every query of the boards is asked with a past behind it. It writes
// docs/performance-fleet.md: series, samples, memory, processor time, rules and queries, and what bounds them.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func main() {
	o := options{Log: os.Stderr}
	flag.StringVar(&o.Root, "root", "..", "the repository")
	out := flag.String("out", "", "the Markdown file to write; empty: standard output alone")
	nodes := flag.String("nodes", "2000", "nodes of the fleet; several sizes, separated by commas, are measured one after the other")
	flag.IntVar(&o.Cards, "cards", 8, "cards of each node")
	flag.IntVar(&o.Servers, "servers", 1, "Prometheus servers that share the nodes; more than one: the boards are asked at the database")
	flag.BoolVar(&o.Database, "database", false, "send the rules' output to a VictoriaMetrics and ask the boards above node level there")
	flag.DurationVar(&o.For, "for", 20*time.Minute, "how long a fleet is scraped before it is measured")
	flag.DurationVar(&o.Interval, "interval", time.Minute, "time between two scrapes, and between two evaluations of a rule")
	flag.DurationVar(&o.Past, "past", 7*24*time.Hour, "the longest past that records are given, as far as boards look back; 0: none")
	flag.IntVar(&o.Ask, "ask", 3, "how often each query is asked")
	flag.Float64Var(&o.MemoryGiB, "memory", 12, "GiB of all Prometheus servers together at which the run ends early")
	keep := flag.String("figures", "", "keep the figures in this file, as JSON")
	from := flag.String("from", "", "measure nothing: write the page from figures that were kept")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o, *nodes, *out, *keep, *from); err != nil {
		fmt.Fprintf(os.Stderr, "scale: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options, nodes, out, keep, from string) error {
	root, err := filepath.Abs(o.Root)
	if err != nil {
		return err
	}
	o.Root = root
	if from != "" {
		text, err := os.ReadFile(from)
		if err != nil {
			return err
		}
		var k kept
		if err := json.Unmarshal(text, &k); err != nil {
			return fmt.Errorf("%s: %w", from, err)
		}
		return write(page(k), out)
	}
	if err := build(ctx, o.Root, o.Database || o.Servers > 1); err != nil {
		return err
	}
	sizes := strings.Split(nodes, ",")
	var all []figures
	for i, size := range sizes {
		o.Nodes, err = strconv.Atoi(strings.TrimSpace(size))
		if err != nil || o.Nodes < 1 {
			return fmt.Errorf("--nodes=%s: give numbers above 0, separated by commas", nodes)
		}
		one := o
		if i < len(sizes)-1 {
			one.Past, one.Boards = 0, false
		} else {
			one.Boards = true
		}
		f, err := measure(ctx, one)
		if err != nil {
			return fmt.Errorf("%d nodes: %w", o.Nodes, err)
		}
		all = append(all, f)
	}
	k := kept{All: all, Interval: o.Interval, Machine: machine()}
	if keep != "" {
		text, err := json.MarshalIndent(k, "", " ")
		if err != nil {
			return err
		}
		if err := os.WriteFile(keep, text, 0o644); err != nil {
			return err
		}
	}
	return write(page(k), out)
}

// kept is what a page is written from.
type kept struct {
	All      []figures
	Interval time.Duration
	Machine  string
}

func write(text, out string) error {
	fmt.Print(text)
	if out != "" {
		return os.WriteFile(out, []byte(text), 0o644)
	}
	return nil
}
