package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// largest is the size of an input, in bytes, above which it is not kept: a corpus is read by people, too.
const largest = 4096

// input is one of the cache, and what of the package it runs that nothing in the repository does.
type input struct {
	name string
	text []byte
	more map[string]bool
}

// keep puts those inputs of the cache under testdata/fuzz that together run all statements of the package which neither
// the target's own seeds nor what is kept already runs: the one that adds most first. It returns how many it added.
func (p folder) keep(ctx context.Context, dir, name string) (int, error) {
	cache, err := p.cache(ctx)
	if err != nil {
		return 0, err
	}
	entries, err := os.ReadDir(filepath.Join(cache, name))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, err
	}
	binary := filepath.Join(dir, strings.ReplaceAll(p.folder, "/", "-")+".cover")
	if _, err := os.Stat(binary); err != nil {
		if _, err := said(goCommand(ctx, p.dir, "test", "-c", "-cover", "-ldflags=-extldflags=-Wl,-z,lazy", "-o", binary, ".")); err != nil {
			return 0, err
		}
	}
	known, err := p.covered(ctx, dir, binary, "^"+name+"$")
	if err != nil {
		return 0, err
	}
	corpus := filepath.Join(p.dir, "testdata", "fuzz", name)
	var inputs []input
	for _, e := range entries {
		in := input{name: e.Name()}
		if in.text, err = os.ReadFile(filepath.Join(cache, name, e.Name())); err != nil {
			return 0, err
		}
		path := filepath.Join(corpus, e.Name())
		if _, err := os.Stat(path); err == nil || len(in.text) > largest {
			continue
		}
		// It is played where `go test` will find it, and goes again.
		if err := write(path, in.text); err != nil {
			return 0, err
		}
		in.more, err = p.covered(ctx, dir, binary, "^"+name+"$/^"+e.Name()+"$")
		if err := errors.Join(err, os.Remove(path)); err != nil {
			return 0, err
		}
		inputs = append(inputs, in)
	}
	kept := 0
	for {
		for _, in := range inputs {
			maps.DeleteFunc(in.more, func(block string, _ bool) bool { return known[block] })
		}
		inputs = slices.DeleteFunc(inputs, func(in input) bool { return len(in.more) == 0 })
		if len(inputs) == 0 {
			_ = os.Remove(corpus) // where nothing lies in it
			return kept, nil
		}
		best := slices.MinFunc(inputs, func(a, b input) int {
			return cmp.Or(cmp.Compare(len(b.more), len(a.more)), cmp.Compare(len(a.text), len(b.text)), strings.Compare(a.name, b.name))
		})
		if err := write(filepath.Join(corpus, best.name), best.text); err != nil {
			return kept, err
		}
		kept++
		maps.Copy(known, best.more)
	}
}

func write(path string, text []byte) error {
	return errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, text, 0o644))
}

// covered returns the blocks of statements that the tests of a pattern run.
func (p folder) covered(ctx context.Context, dir, binary, pattern string) (map[string]bool, error) {
	profile := filepath.Join(dir, "profile")
	cmd := exec.CommandContext(ctx, binary, "-test.run="+pattern, "-test.coverprofile="+profile)
	cmd.Dir = p.dir
	if _, err := said(cmd); err != nil {
		return nil, err
	}
	text, err := os.ReadFile(profile)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", pattern, err)
	}
	out := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		block, count, _ := strings.Cut(strings.TrimSpace(line), " ")
		if _, hits, ok := strings.Cut(count, " "); ok && hits != "0" {
			out[block] = true
		}
	}
	return out, nil
}
