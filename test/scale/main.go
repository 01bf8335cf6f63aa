// Command scale measures a fleet on one Prometheus, larger in each step, and beyond it on several: the stand-in serves
// simulated nodes, servers scrape them with the shipped rules, and every query of the boards is asked with a past
// behind it. It writes docs/performance-fleet.md: series, samples, memory, processor time, rules and queries, where
// it ended and why.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/gpu-exporter/gpu-exporter/test/process"
)

// plan is what is measured, in its order.
type plan struct {
	options
	// Steps are the sizes of fleets on one Prometheus, Times how long each is scraped.
	Steps []int
	Times []time.Duration
	// Beyond are the servers of the step beyond (1: none), BeyondNodes its nodes.
	Beyond, BeyondNodes int
}

func main() {
	// The servers end with the thread that starts them, so that none is left behind: it must be one that stays.
	runtime.LockOSThread()
	p := plan{options: options{Log: os.Stderr}}
	flag.StringVar(&p.Root, "root", "..", "the repository")
	out := flag.String("out", "", "the Markdown file to write; empty: standard output alone")
	nodes := flag.String("nodes", "2000", "nodes of the fleet on one Prometheus; several sizes, separated by commas, are measured one after the other; 0: none")
	flag.IntVar(&p.GPUs, "gpus", 8, "GPUs of each node")
	flag.IntVar(&p.Beyond, "servers", 1, "the step beyond: so many Prometheus servers that share the nodes and send what their rules make to one VictoriaMetrics; 1: no such step")
	flag.IntVar(&p.BeyondNodes, "beyond", 0, "nodes of the step beyond; 0: as many as in the last step before")
	flag.StringVar(&p.Split, "split", byCluster, "how several servers share the nodes: cluster, each has clusters of its own; node, each has a part of one cluster's nodes")
	flag.BoolVar(&p.Database, "database", false, "send the rules' output of one Prometheus to a VictoriaMetrics too, and ask the boards above node level there as well")
	flag.BoolVar(&p.Reference, "reference", false, "in the step beyond, hold the database against one more Prometheus that scrapes everything: takes as much memory again")
	length := flag.String("for", "20m", "how long a fleet is scraped before it is measured; several times, separated by commas, are those of the steps, the last that of all that follow")
	flag.DurationVar(&p.Interval, "interval", time.Minute, "time between two scrapes, and between two evaluations of a rule")
	flag.DurationVar(&p.Past, "past", 7*24*time.Hour, "the longest past that records are given, as far as boards look back; 0: none")
	flag.IntVar(&p.Ask, "ask", 3, "how often each query of the boards is asked; 0: never")
	flag.DurationVar(&p.Limit, "limit", 30*time.Second, "the longest time that one query may take; Grafana gives up after 30 s too")
	flag.DurationVar(&p.BoardsFor, "boards-for", 15*time.Minute, "the longest time for all queries of all boards of a step")
	flag.Float64Var(&p.MemoryGiB, "memory", 18, "GiB of all Prometheus servers together at which a step ends early")
	keep := flag.String("figures", "", "keep the figures in this file, as JSON, after each step")
	more := flag.Bool("continue", false, "measure only those steps that the file of --figures does not have")
	from := flag.String("from", "", "measure nothing: write the page from figures that were kept")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := p.read(*nodes, *length)
	if err == nil {
		err = run(ctx, p, *out, *keep, *from, *more)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "scale: %v\n", err)
		os.Exit(1)
	}
}

// read reads the lists and looks whether all flags fit together.
func (p *plan) read(nodes, length string) (err error) {
	if p.Root, err = filepath.Abs(p.Root); err != nil {
		return err
	}
	for s := range strings.SplitSeq(nodes, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(s))
		if err != nil || n < 0 {
			return fmt.Errorf("--nodes=%s: give numbers, separated by commas", nodes)
		}
		if n > 0 {
			p.Steps = append(p.Steps, n)
		}
	}
	for s := range strings.SplitSeq(length, ",") {
		d, err := time.ParseDuration(strings.TrimSpace(s))
		if err != nil || d < 2*p.Interval {
			return fmt.Errorf("--for=%s: give times of two intervals (%v) and more, separated by commas", length, p.Interval)
		}
		p.Times = append(p.Times, d)
	}
	if p.Split != byCluster && p.Split != byNode {
		return fmt.Errorf("--split=%s: %s or %s", p.Split, byCluster, byNode)
	}
	if p.BeyondNodes == 0 && len(p.Steps) > 0 {
		p.BeyondNodes = p.Steps[len(p.Steps)-1]
	}
	if p.Beyond > 1 && p.BeyondNodes == 0 {
		return fmt.Errorf("--servers=%d without --nodes wants --beyond", p.Beyond)
	}
	return nil
}

// time is how long step i is scraped.
func (p *plan) time(i int) time.Duration { return p.Times[min(i, len(p.Times)-1)] }

func run(ctx context.Context, p plan, out, keep, from string, more bool) error {
	var k kept
	if from != "" {
		if err := k.load(from); err != nil {
			return err
		}
		return write(page(k), out)
	}
	if more && keep != "" {
		if err := k.load(keep); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	total, err := process.Total()
	if err != nil {
		return err
	}
	k.Interval, k.Limit, k.Machine, k.Cores, k.MemoryGiB = p.Interval, p.Limit, machine(), runtime.NumCPU(), total/1024
	if err := build(ctx, p.Root, p.Database || p.Beyond > 1); err != nil {
		return err
	}
	ended := p.steps(ctx, &k, keep)
	if p.Beyond > 1 && k.Several == nil && ctx.Err() == nil {
		o := p.options
		o.Nodes, o.Servers, o.For = p.BeyondNodes, p.Beyond, p.time(len(p.Steps))
		f, err := measure(ctx, o)
		if err == nil || f.Series > 0 {
			k.Several = &f
		}
		if err != nil {
			ended = errors.Join(ended, fmt.Errorf("%d servers: %w", p.Beyond, err))
		}
		ended = errors.Join(ended, k.save(keep))
	}
	if len(k.Steps) == 0 && k.Several == nil {
		return errors.Join(ended, ctx.Err(), errors.New("nothing was measured"))
	}
	// What was measured is written down, whatever else failed.
	return errors.Join(write(page(k), out), ended, ctx.Err())
}

// steps measures the fleets on one Prometheus, until one ends early.
func (p *plan) steps(ctx context.Context, k *kept, keep string) error {
	for i, nodes := range p.Steps {
		if k.step(nodes, p.GPUs) {
			continue
		}
		o := p.options
		o.Nodes, o.Servers, o.Split, o.Reference, o.For = nodes, 1, "", false, p.time(i)
		f, err := measure(ctx, o)
		if err == nil || f.Series > 0 {
			k.Steps = append(k.Steps, f)
		}
		if err != nil {
			err = fmt.Errorf("%d nodes: %w", nodes, err)
		}
		if err = errors.Join(err, k.save(keep)); err != nil || f.Ended != "" {
			return err
		}
	}
	return nil
}

func (k *kept) load(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, k); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return nil
}

// save keeps the figures; without a file it does nothing.
func (k *kept) save(file string) error {
	if file == "" {
		return nil
	}
	text, err := json.MarshalIndent(k, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, text, 0o644)
}

func write(text, out string) error {
	fmt.Print(text)
	if out != "" {
		return os.WriteFile(out, []byte(text), 0o644)
	}
	return nil
}
