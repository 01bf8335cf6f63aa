// Package scale measures fleets of simulated nodes on one Prometheus, larger in each step, and on several that
// remote-write what their rules record to one database: series, samples, memory, processor time, rules, and every
// dashboard query with a history behind it.
package scale

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gpu-exporter/gpu-exporter/test/measure/page"
	"github.com/gpu-exporter/gpu-exporter/test/process"
	"github.com/gpu-exporter/gpu-exporter/test/programs"
)

// plan are the steps: fleets on one server, then on several.
type plan struct {
	options
	sizes        []int
	periods      []time.Duration // of the steps; the last is that of all that follow
	several      int             // servers of the last step; 1: no such step
	severalNodes int
	metrics      string // sizes of metrics to compare instead
	before       string // revision to compare them with
}

// Run is the command.
func Run(ctx context.Context, args []string) error {
	runtime.LockOSThread() // children stop with the thread that started them
	p := plan{options: options{log: os.Stderr}}
	f := flag.NewFlagSet("scale", flag.ExitOnError)
	f.StringVar(&p.root, "root", ".", "`directory` of the repository")
	nodes := f.String("nodes", "500,1000,2000", "`sizes` of the fleets on one Prometheus, separated by commas; 0: none")
	f.IntVar(&p.gpus, "gpus", 8, "GPUs of each node")
	f.IntVar(&p.several, "servers", 3, "Prometheus servers of the last step, which write to one VictoriaMetrics; 1: "+
		"no such step")
	f.IntVar(&p.severalNodes, "several-nodes", 0, "nodes of the last step (default the most of --nodes)")
	f.StringVar(&p.split, "split", byCluster, "how several servers share the nodes: cluster or node")
	period := f.String("period", "8m,8m,20m", "how `long` each fleet is scraped, separated by commas")
	f.DurationVar(&p.interval, "interval", time.Minute, "scrape and evaluation interval")
	f.DurationVar(&p.history, "history", 7*24*time.Hour, "longest history of the recorded series; 0: none")
	f.IntVar(&p.repeat, "repeat", 3, "how often each dashboard query runs; 0: never")
	f.DurationVar(&p.timeout, "timeout", 30*time.Second, "timeout of a query; Grafana's default is 30s")
	f.DurationVar(&p.queriesFor, "queries-for", 15*time.Minute, "time for all queries of a step")
	f.Float64Var(&p.memoryGiB, "memory", 18, "`GiB` of all Prometheus servers at which a step is aborted")
	f.StringVar(&p.metrics, "metrics", "", "compare these `sizes` of the exporter's metrics, separated by commas, on the first "+
		"of --nodes, and measure nothing else")
	f.StringVar(&p.before, "before", "", "compare them with the exporter and the rules of this git `revision`")
	if err := f.Parse(args); err != nil {
		return err
	}
	if err := p.parse(*nodes, *period); err != nil {
		return err
	}
	return p.run(ctx)
}

// parse reads the lists and checks that the flags fit together.
func (p *plan) parse(nodes, period string) (err error) {
	if p.root, err = filepath.Abs(p.root); err != nil {
		return err
	}
	for s := range strings.SplitSeq(nodes, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(s))
		if err != nil || n < 0 {
			return fmt.Errorf("--nodes must be numbers separated by commas, got %s", nodes)
		}
		if n > 0 {
			p.sizes = append(p.sizes, n)
		}
	}
	if p.severalNodes == 0 && len(p.sizes) > 0 {
		p.severalNodes = slices.Max(p.sizes)
	}
	for s := range strings.SplitSeq(period, ",") {
		d, err := time.ParseDuration(strings.TrimSpace(s))
		if err != nil || d < 2*p.interval {
			return fmt.Errorf("--period must be durations of at least %v (two intervals), got %s", 2*p.interval, period)
		}
		p.periods = append(p.periods, d)
	}
	if p.split != byCluster && p.split != byNode {
		return fmt.Errorf("--split must be %s or %s, got %s", byCluster, byNode, p.split)
	}
	if p.several > 1 && p.severalNodes == 0 {
		return errors.New("--servers needs --nodes or --several-nodes")
	}
	return nil
}

// run measures all steps and writes the page after each.
func (p *plan) run(ctx context.Context) error {
	docs := filepath.Join(p.root, page.Dir)
	var f Figures
	if p.metrics != "" {
		data, err := os.ReadFile(filepath.Join(docs, "performance-fleet.json"))
		if err == nil {
			err = json.Unmarshal(data, &f)
		}
		if err != nil {
			return err
		}
	}
	total, _, err := process.Memory()
	if err != nil {
		return err
	}
	f.Date, f.Machine, f.MemoryGiB, f.Cores = time.Now().UTC().Format(time.DateOnly), page.Machine(), total/1024,
		runtime.NumCPU()
	if err := build(ctx, p.root, p.several > 1 && p.metrics == ""); err != nil {
		return err
	}
	if p.metrics != "" {
		return p.compareSizes(ctx, &f, docs)
	}
	for i := 0; i <= len(p.sizes) && ctx.Err() == nil; i++ {
		o := p.options
		o.period = p.periods[min(i, len(p.periods)-1)]
		if i < len(p.sizes) {
			o.nodes, o.servers, o.split = p.sizes[i], 1, ""
		} else if o.nodes, o.servers = p.severalNodes, p.several; p.several < 2 {
			break
		}
		s, err := measure(ctx, o)
		if err != nil {
			return fmt.Errorf("%d nodes on %d servers: %w", o.nodes, o.servers, err)
		}
		f.add(s)
		if err := f.save(docs); err != nil {
			return err
		}
		if s.Aborted != "" && i < len(p.sizes) {
			i = len(p.sizes) - 1 // larger fleets would not fit either
		}
	}
	return ctx.Err()
}

// compareSizes measures fleets that differ in nothing but the metrics that their exporters have.
func (p *plan) compareSizes(ctx context.Context, f *Figures, docs string) error {
	o := p.options
	o.nodes, o.servers, o.period, o.history, o.repeat = p.sizes[0], 1, p.periods[0], 0, 0
	f.Sizes = nil
	next := func(name string, o options) error {
		s, err := measure(ctx, o)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		s.Name = name
		f.Sizes = append(f.Sizes, s)
		return f.save(docs)
	}
	if p.before != "" {
		old, err := os.MkdirTemp("", "scale-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(old)
		archive := exec.CommandContext(ctx, "sh", "-c", `git -C "$1" archive "$2" | tar -x -C "$3"`, "sh", p.root, p.before, old)
		if out, err := archive.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w\n%s", p.before, err, out)
		}
		if err := programs.Build(ctx, old, programs.Standin); err != nil {
			return err
		}
		o := o
		o.standin, o.rules = programs.Standin.Path(old), filepath.Join(old, "alerts")
		if err := next(p.before, o); err != nil {
			return err
		}
	}
	for size := range strings.SplitSeq(p.metrics, ",") {
		o := o
		o.serve = []string{"--metrics=" + size}
		if err := next("`--metrics="+size+"`", o); err != nil {
			return err
		}
	}
	return nil
}

// build builds the programs that a step starts.
func build(ctx context.Context, root string, database bool) error {
	all := []programs.Program{programs.Standin, programs.Prometheus}
	if database {
		all = append(all, programs.VictoriaMetrics)
	}
	for _, p := range all {
		if err := programs.Build(ctx, root, p); err != nil {
			return err
		}
	}
	return nil
}
