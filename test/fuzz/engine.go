package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// result is what came of fuzzing one target.
type result struct {
	executions         int
	interesting, total int    // inputs that reached something new in this run, and all that are known
	finding            string // what the engine said of an input that fails; empty: none
}

// goCommand is the go command, with the settings under which everything here is built.
func goCommand(ctx context.Context, dir string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_CFLAGS=-O2 -g -Wno-deprecated-declarations")
	return cmd
}

// said runs a command and returns its output; its error holds it too.
func said(cmd *exec.Cmd) (string, error) {
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, bytes.TrimSpace(out))
	}
	return string(out), err
}

// build makes one test binary for all targets of a package, with the fuzzing engine's probes in it.
func (p folder) build(ctx context.Context, dir string) (path string, err error) {
	path = filepath.Join(dir, strings.ReplaceAll(p.folder, "/", "-")+".fuzz")
	_, err = said(goCommand(ctx, p.dir, "test", "-c", "-fuzz=Fuzz", "-ldflags=-extldflags=-Wl,-z,lazy", "-o", path, "."))
	return path, err
}

// cache is where the go command itself keeps the inputs of a package that reached something new.
func (p folder) cache(ctx context.Context) (string, error) {
	text, err := said(goCommand(ctx, p.dir, "list", "-f", "{{.ImportPath}}", "."))
	if err != nil {
		return "", err
	}
	base, err := said(goCommand(ctx, p.dir, "env", "GOCACHE"))
	return filepath.Join(strings.TrimSpace(base), "fuzz", strings.TrimSpace(text)), err
}

// fuzz runs one target for a while, from the inputs in the repository and those in a cache.
func (p folder) fuzz(ctx context.Context, binary, cache, name string, each time.Duration) (result, error) {
	cmd := exec.CommandContext(ctx, binary, "-test.run=^$", "-test.fuzz=^"+name+"$", "-test.fuzztime="+each.String(), "-test.fuzzcachedir="+cache, "-test.timeout=0")
	cmd.Dir = p.dir
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		return result{}, ctx.Err()
	}
	r := read(string(out))
	if failed := new(exec.ExitError); errors.As(err, &failed) {
		if !late(string(out)) {
			r.finding = strings.TrimSpace(string(out))
		}
	} else if err != nil {
		return r, err
	}
	if r.executions > 0 || r.finding != "" {
		return r, nil
	}
	// On a loaded machine the engine may not come to begin.
	if each < time.Minute {
		return p.fuzz(ctx, binary, cache, name, 4*each)
	}
	return r, fmt.Errorf("nothing was executed: %s", bytes.TrimSpace(out))
}

// late tells whether a run failed for the one reason that its time was over while a worker was busy: on a loaded
// machine the engine takes that for a failure, without an input that fails.
func late(text string) bool {
	_, after, failed := strings.Cut(text, "\n--- FAIL: ")
	_, why, _ := strings.Cut(after, "\n")
	return failed && strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(why), "FAIL")) == "context deadline exceeded"
}

// progress is a line of the engine: fuzz: elapsed: 3s, execs: 325017 (108336/sec), new interesting: 11 (total: 202)
var progress = regexp.MustCompile(`(?m)^fuzz: elapsed: .*, execs: (\d+) \(\d+/sec\)(?:, new interesting: (\d+) \(total: (\d+)\))?$`)

// known is a line of the engine while it plays the inputs that there are.
var known = regexp.MustCompile(`(?m)^fuzz: elapsed: .*, gathering baseline coverage: (\d+)/(\d+) completed`)

// read takes the figures of a run from the last line of its progress. A run that was too short for all inputs that
// there are has executed some of them.
func read(text string) result {
	var r result
	if all := known.FindAllStringSubmatch(text, -1); len(all) > 0 {
		last := all[len(all)-1]
		r.executions, _ = strconv.Atoi(last[1])
		r.total, _ = strconv.Atoi(last[2])
	}
	if all := progress.FindAllStringSubmatch(text, -1); len(all) > 0 {
		last := all[len(all)-1]
		for i, to := range []*int{&r.executions, &r.interesting, &r.total} {
			*to, _ = strconv.Atoi(last[i+1]) // digits, or nothing
		}
	}
	return r
}
