// Command fuzz runs every fuzz target of the repository for a while, one after the other, and tells of each in one
// line: what it executed, how many inputs reached something new, what it found. `make fuzz` runs it.
//
// Inputs that reached something new stay in Go's cache, from which the next run begins. With -keep those of them that
// reach code which no input in the repository reaches are put under testdata/fuzz, where every `go test` plays them.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"
)

func main() {
	each := flag.Duration("for", 10*time.Second, "how long each target is fuzzed")
	only := flag.String("run", "", "fuzz the targets alone whose `FOLDER.NAME` this regular expression matches")
	keep := flag.Bool("keep", false, "put the inputs that reach new code under testdata/fuzz")
	fresh := flag.Bool("fresh", false, "begin from the inputs in the repository alone, and forget what is found that fails nothing")
	root := flag.String("root", "..", "the repository's `folder`")
	flag.Parse()
	if *keep && *fresh {
		fmt.Fprintln(os.Stderr, "fuzz: -keep and -fresh contradict each other")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, plan{*root, *only, *each, *keep, *fresh}); err != nil {
		fmt.Fprintf(os.Stderr, "fuzz: %v\n", err)
		os.Exit(1)
	}
}

// plan is what is to be done.
type plan struct {
	root, only  string
	each        time.Duration
	keep, fresh bool
}

// run fuzzes the targets of all packages. What one finds does not keep the others from being fuzzed.
func run(ctx context.Context, o plan) error {
	pattern, err := regexp.Compile(o.only)
	if err != nil {
		return fmt.Errorf("-run: %w", err)
	}
	packages, err := find(o.root)
	if err != nil {
		return fmt.Errorf("looking for fuzz targets below %s: %w", o.root, err)
	}
	dir, err := os.MkdirTemp("", "fuzz-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	began := time.Now()
	var all result
	var targets int
	var failed []string
	for _, p := range packages {
		p.targets = matching(p, pattern)
		if len(p.targets) == 0 {
			continue
		}
		binary, err := p.build(ctx, dir)
		if err != nil {
			return err
		}
		cache := filepath.Join(dir, "cache")
		if !o.fresh {
			if cache, err = p.cache(ctx); err != nil {
				return err
			}
		}
		for _, name := range p.targets {
			r, err := p.fuzz(ctx, binary, cache, name, o.each)
			if err != nil {
				return fmt.Errorf("%s.%s: %w", p.folder, name, err)
			}
			kept := ""
			if o.keep && r.finding == "" {
				n, err := p.keep(ctx, dir, name)
				if err != nil {
					return fmt.Errorf("%s.%s: keeping inputs: %w", p.folder, name, err)
				}
				kept = fmt.Sprintf(", %d kept", n)
			}
			targets++
			all.executions += r.executions
			all.interesting += r.interesting
			findings := 0
			if r.finding != "" {
				findings = 1
				failed = append(failed, p.folder+"."+name)
			}
			fmt.Printf("%-44s %11d executions %5d new interesting (%d known) %d findings%s\n", p.folder+"."+name, r.executions, r.interesting, r.total, findings, kept)
			if r.finding != "" {
				fmt.Println(r.finding)
			}
		}
	}
	if targets == 0 {
		return errors.New("no target has such a name")
	}
	fmt.Printf("%d targets, %d executions, %d new interesting, %d findings, in %v\n", targets, all.executions, all.interesting, len(failed), time.Since(began).Round(time.Second))
	if len(failed) > 0 {
		return fmt.Errorf("found something: %s; the input lies under testdata/fuzz there: commit it with the fix", strings.Join(failed, ", "))
	}
	return nil
}

func matching(p folder, pattern *regexp.Regexp) []string {
	var out []string
	for _, name := range p.targets {
		if pattern.MatchString(p.folder + "." + name) {
			out = append(out, name)
		}
	}
	return out
}
