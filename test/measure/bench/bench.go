// Package bench measures the exporter from the outside, on the fake driver: scrapes beside the same bytes served from
// memory, memory, processor time, driver calls, start-up, the size of the binary, and how each grows with the node.
// Every measurement
// is a line in the format of `go test -bench`, which benchstat compares between two revisions.
package bench

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/perf/benchfmt"

	"github.com/gpu-exporter/gpu-exporter/test/measure/page"
	"github.com/gpu-exporter/gpu-exporter/test/programs"
)

// Figures are the results of one run: for each benchmark and unit the median and the 99th percentile.
type Figures struct {
	Date, Revision, Machine string
	// Against is the revision that was measured in the same run, and Before its results; empty without one.
	Against string                     `json:",omitempty"`
	Before  map[string]map[string]Stat `json:",omitempty"`
	Results map[string]map[string]Stat
}

// Stat summarizes the samples of one unit.
type Stat struct{ P50, P99 float64 }

// Of returns the median of a benchmark, NaN if it was not measured.
func (f Figures) Of(name, unit string) float64 {
	s, ok := f.Results[name][unit]
	if !ok {
		return math.NaN()
	}
	return s.P50
}

// P99 returns the 99th percentile of a benchmark, NaN if it was not measured.
func (f Figures) P99(name, unit string) float64 {
	s, ok := f.Results[name][unit]
	if !ok {
		return math.NaN()
	}
	return s.P99
}

// Curve is a row of nodes that grow in one thing.
type Curve struct {
	Figures
	Title, of string
}

// Curve returns a curve for the page.
func (f Figures) Curve(of, title string) Curve { return Curve{f, title, of} }

// Of returns what one more adds: the difference between the last and the first node by their distance. NODE in the name
// stands for the node.
func (c Curve) Of(name, unit string) float64 {
	nodes := curves()[c.of]
	first, last := nodes[0], nodes[len(nodes)-1]
	at := func(n node) float64 { return c.Figures.Of(strings.ReplaceAll(name, "NODE", n.name), unit) }
	return (at(last) - at(first)) / float64(last.at-first.at)
}

// Page renders docs/evidence/performance.md.
func (f Figures) Page() (string, error) { return page.Render("bench", f) }

// Run is the command.
func Run(ctx context.Context, args []string) error {
	var c config
	f := flag.NewFlagSet("bench", flag.ExitOnError)
	f.StringVar(&c.root, "root", ".", "`directory` of the repository")
	f.StringVar(&c.against, "against", "", "`revision` to measure too and to compare with")
	f.StringVar(&c.beside, "beside", "", "`program` of nvidia_gpu_exporter, to measure its demo too")
	f.DurationVar(&c.period, "period", time.Minute, "how long each node is observed")
	f.IntVar(&c.scrapes, "scrapes", 300, "scrapes of each kind; a tenth for each node of the growth curves")
	f.BoolVar(&c.curves, "curves", true, "measure how the figures grow with the node; without, docs/ is left unchanged")
	if err := f.Parse(args); err != nil {
		return err
	}
	var err error
	if c.root, err = filepath.Abs(c.root); err != nil {
		return err
	}
	trees := []*tree{{root: c.root, revision: "now"}}
	if c.against != "" {
		before, remove, err := checkout(ctx, c.root, c.against)
		if err != nil {
			return err
		}
		defer remove()
		trees = []*tree{before, trees[0]}
	}
	err = c.measure(ctx, trees)
	for _, t := range trees { // what was measured before an error, too
		err = errors.Join(err, os.WriteFile(t.file(c.root), t.results.Bytes(), 0o644))
	}
	if err != nil {
		return err
	}
	if c.against != "" {
		cmd := exec.CommandContext(ctx, "go", "tool", "benchstat", trees[0].file(c.root), trees[1].file(c.root))
		cmd.Dir = filepath.Join(c.root, "test")
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		if err := cmd.Run(); err != nil {
			return err
		}
	}
	if !c.curves {
		return nil // the page needs them; the lines are in bin/
	}
	last := trees[len(trees)-1]
	figures := Figures{
		Date:     time.Now().UTC().Format(time.DateOnly),
		Revision: git(ctx, c.root, "describe", "--always", "--dirty"),
		Machine:  page.Machine(),
	}
	if figures.Results, err = Parse(&last.results); err != nil {
		return err
	}
	if c.against != "" {
		figures.Against = trees[0].revision
		if figures.Before, err = Parse(&trees[0].results); err != nil {
			return err
		}
	}
	text, err := figures.Page()
	if err != nil {
		return err
	}
	return page.Save(filepath.Join(c.root, page.Dir), "performance", text, figures)
}

// measure measures all trees, at the same time where they run for long.
func (c config) measure(ctx context.Context, trees []*tree) error {
	runtime.LockOSThread() // children stop with the thread that started them
	if err := programs.Build(ctx, c.root, programs.Standin); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "gpu-exporter-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	l := lab{ctx: ctx, config: c, dir: dir}
	for _, t := range trees {
		if err := t.build(ctx); err != nil {
			return err
		}
		progress("Go benchmarks of %s", t.revision)
		if err := goBenchmarks(ctx, t); err != nil {
			return err
		}
		info, err := os.Stat(programs.Exporter.Path(t.root))
		if err != nil {
			return err
		}
		t.add("Binary", info.Size(), "B")
		if err := l.startWithoutDriver(t); err != nil {
			return err
		}
	}
	for _, n := range nodes() {
		if err := l.node(trees, n, c.period, c.scrapes); err != nil {
			return fmt.Errorf("node %s: %w", n.name, err)
		}
	}
	if err := l.callsByPollGroup(trees[len(trees)-1], nodes()[len(nodes())-1]); err != nil || !c.curves {
		return err
	}
	all := curves()
	for _, of := range slices.Sorted(maps.Keys(all)) {
		for _, n := range all[of] {
			if err := l.node(trees, n, c.period/3, c.scrapes/10); err != nil {
				return fmt.Errorf("node %s: %w", n.name, err)
			}
		}
	}
	return nil
}

// goBenchmarks runs the Go benchmarks that the page shows.
func goBenchmarks(ctx context.Context, t *tree) error {
	for pkg, pattern := range map[string]string{"./internal/web": "^BenchmarkScrape$",
		"./internal/account": "^BenchmarkAdvance$",
		"./internal/sampler": "^BenchmarkStep$"} {
		cmd := exec.CommandContext(ctx, "go", "test", pkg, "-run", "^$", "-bench", pattern, "-benchmem", "-count=5",
			"-benchtime=0.3s", "-cpu=1")
		cmd.Dir = t.root
		out, err := cmd.CombinedOutput()
		if err != nil {
			return fmt.Errorf("go test %s: %w\n%s", pkg, err, out)
		}
		t.results.Write(out)
	}
	return nil
}

// Parse summarizes benchmark lines by name and unit.
func Parse(r io.Reader) (map[string]map[string]Stat, error) {
	samples := map[string]map[string][]float64{}
	for b := benchfmt.NewReader(r, ""); b.Scan(); {
		result, ok := b.Result().(*benchfmt.Result)
		if !ok {
			continue
		}
		name := result.Name.String()
		if samples[name] == nil {
			samples[name] = map[string][]float64{}
		}
		for _, v := range result.Values {
			value, unit := v.Value, v.Unit
			if v.OrigUnit != "" { // benchfmt tidies ns/op into sec/op
				value, unit = v.OrigValue, v.OrigUnit
			}
			samples[name][unit] = append(samples[name][unit], value)
		}
	}
	if len(samples) == 0 {
		return nil, fmt.Errorf("no benchmark lines")
	}
	out := map[string]map[string]Stat{}
	for name, units := range samples {
		out[name] = map[string]Stat{}
		for unit, values := range units {
			slices.Sort(values)
			out[name][unit] = Stat{values[len(values)/2], values[min(len(values)-1, len(values)*99/100)]}
		}
	}
	return out, nil
}

func git(ctx context.Context, dir string, args ...string) string {
	cmd := exec.CommandContext(context.WithoutCancel(ctx), "git", args...)
	cmd.Dir = dir
	out, _ := cmd.Output()
	return strings.TrimSpace(string(out))
}

// checkout makes a worktree of another revision.
func checkout(ctx context.Context, root, revision string) (*tree, func(), error) {
	short := git(ctx, root, "rev-parse", "--short", revision+"^{commit}")
	if short == "" {
		return nil, nil, fmt.Errorf("revision %s not found", revision)
	}
	dir, err := os.MkdirTemp("", "gpu-exporter-before-")
	if err != nil {
		return nil, nil, err
	}
	remove := func() {
		git(ctx, root, "worktree", "remove", "--force", dir)
		_ = os.RemoveAll(dir)
	}
	git(ctx, root, "worktree", "add", "--detach", dir, short)
	if git(ctx, dir, "rev-parse", "--short", "HEAD") != short {
		remove()
		return nil, nil, fmt.Errorf("git worktree add %s failed", short)
	}
	return &tree{root: dir, revision: short}, remove, nil
}
