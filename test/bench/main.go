// Command bench measures the exporter from the outside and writes docs/performance.md: scrapes beside the same bytes
// served as a file, memory, processor time, driver calls by poll group, start-up, the size of the binary, and how each grows
// with the node. It runs the real binary on the fake driver, so the driver's own time is not in the figures. With
// -against it builds another revision too, runs both at the same time, and puts their figures side by side.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"time"

	"github.com/gpu-exporter/gpu-exporter/test/programs"
)

func main() {
	c := config{}
	flag.StringVar(&c.root, "root", filepath.Join("..", ".."), "the repository")
	flag.StringVar(&c.out, "out", "", "the Markdown file to write; empty: standard output alone")
	flag.StringVar(&c.against, "against", "", "a revision to measure beside this one")
	flag.DurationVar(&c.watch, "for", time.Minute, "how long each node is watched")
	flag.IntVar(&c.scrapes, "scrapes", 300, "scrapes of each kind; a tenth of them at each point of the curves")
	flag.BoolVar(&c.curves, "curves", true, "measure how the figures grow with the node")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, c); err != nil {
		fmt.Fprintf(os.Stderr, "bench: %v\n", err)
		os.Exit(1)
	}
}

type config struct {
	root, out, against string
	watch              time.Duration
	scrapes            int
	curves             bool
}

// tree is a revision that is measured.
type tree struct {
	title string
	root  string
}

func (t tree) exporter() string { return programs.Exporter.Path(t.root) }

func run(ctx context.Context, c config) error {
	root, err := filepath.Abs(c.root)
	if err != nil {
		return err
	}
	here := tree{"now", root}
	for _, p := range []programs.Program{programs.Exporter, programs.Standin} {
		if err := programs.Build(ctx, root, p); err != nil {
			return err
		}
	}
	trees := []tree{here}
	if c.against != "" {
		before, remove, err := checkout(ctx, root, c.against)
		if err != nil {
			return err
		}
		defer remove()
		trees = []tree{before, here}
	}
	generated, err := os.MkdirTemp("", "gpu-exporter-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(generated)
	s := &stand{root: root, nodes: generated}

	p := page{config: c, trees: trees}
	for _, t := range trees {
		fmt.Fprintf(os.Stderr, "bench: the Go benchmarks, %s\n", t.title)
		b, err := benchmarks(ctx, t)
		if err != nil {
			return err
		}
		p.alone = append(p.alone, b)
	}
	for _, n := range nodes() {
		fmt.Fprintf(os.Stderr, "bench: %s\n", n.title)
		m, err := s.measure(ctx, trees, n, c.watch, 12*time.Second, c.scrapes)
		if err != nil {
			return fmt.Errorf("%s: %w", n.title, err)
		}
		p.nodes = append(p.nodes, measured{n, m})
	}
	busiest := nodes()[len(nodes())-1]
	fmt.Fprintf(os.Stderr, "bench: driver calls by poll group\n")
	if p.pollGroups, err = s.callsByPoll(ctx, here, busiest, c.watch); err != nil {
		return err
	}
	for _, t := range trees {
		start, err := startWithoutDriver(ctx, t)
		if err != nil {
			return err
		}
		p.noDriver = append(p.noDriver, start)
		info, err := os.Stat(t.exporter())
		if err != nil {
			return err
		}
		p.binary = append(p.binary, info.Size())
	}
	if c.curves {
		for _, curve := range curves() {
			var points []measured
			for _, n := range curve.nodes {
				fmt.Fprintf(os.Stderr, "bench: %s\n", n.title)
				m, err := s.measure(ctx, trees[len(trees)-1:], n, c.watch/3, 8*time.Second, c.scrapes/10)
				if err != nil {
					return fmt.Errorf("%s: %w", n.title, err)
				}
				points = append(points, measured{n, m})
			}
			p.curves = append(p.curves, grown{curve, points})
		}
	}
	text := p.text()
	fmt.Print(text)
	if c.out != "" {
		return os.WriteFile(c.out, []byte(text), 0o644)
	}
	return nil
}

// checkout makes another revision's tree and builds its exporter.
func checkout(ctx context.Context, root, revision string) (tree, func(), error) {
	git := func(args ...string) (string, error) {
		cmd := exec.CommandContext(context.WithoutCancel(ctx), "git", args...)
		cmd.Dir = root
		said, err := cmd.CombinedOutput()
		if err != nil {
			return "", fmt.Errorf("git %s: %w\n%s", strings.Join(args, " "), err, said)
		}
		return strings.TrimSpace(string(said)), nil
	}
	short, err := git("rev-parse", "--short", revision+"^{commit}")
	if err != nil {
		return tree{}, nil, err
	}
	dir, err := os.MkdirTemp("", "gpu-exporter-before-")
	if err != nil {
		return tree{}, nil, err
	}
	remove := func() {
		_, _ = git("worktree", "remove", "--force", dir)
		_ = os.RemoveAll(dir)
	}
	if _, err := git("worktree", "add", "--detach", dir, short); err != nil {
		remove()
		return tree{}, nil, err
	}
	t := tree{"before (" + short + ")", dir}
	if err := programs.Build(ctx, t.root, programs.Exporter); err != nil {
		remove()
		return tree{}, nil, err
	}
	return t, remove, nil
}
