package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/must"
)

// The fault suite: worlds made from a seed, in which everything goes wrong, and statements that hold after every
// step. docs/developer/testing.md says what they are and how the long forms are run.
var (
	faultSeed  = flag.Uint64("seed", 0, "play this seed of the fault suite alone; 0: those of the form that is run")
	faultSeeds = flag.Int("seeds", 0, "play so many seeds of the fault suite that no run had before, an hour each; 0: the short form")
	faultSteps = flag.Int("steps", 0, "end each seed of the fault suite after so many steps of 2 s; 0: an hour's, in the short form less")
)

// shortSeeds are the worlds of the short form, and shortWorld is for how long each goes on. The first begins
// without a driver, and runs under the race detector where the test does; together they have every kind of fault, which the test checks.
var shortSeeds = []uint64{274, 119}

const (
	shortWorld   = 15 * time.Minute
	plantedWorld = 25 * time.Minute
)

// TestFaults plays worlds in which everything goes wrong, in all pairs that chance brings together.
func TestFaults(t *testing.T) {
	seeds, length := shortSeeds, shortWorld
	played, isChild := strings.CutPrefix(os.Getenv(childMarker), "TestFaults/seeds/")
	switch {
	case isChild && *faultSeeds > 0:
		seed, err := strconv.ParseUint(played, 10, 64)
		must.OK(t, err)
		seeds, length = []uint64{seed}, time.Hour
	case *faultSeed > 0:
		seeds, length = []uint64{*faultSeed}, time.Hour
	case *faultSeeds > 0:
		seeds, length = nil, time.Hour
		for range *faultSeeds {
			seeds = append(seeds, random())
		}
	}
	dir := suiteDir(t)
	t.Run("seeds", func(t *testing.T) {
		for _, seed := range seeds {
			t.Run(fmt.Sprint(seed), func(t *testing.T) {
				run := unraced
				if seed == shortSeeds[0] {
					run = isolated
				}
				run(t, func(t *testing.T) {
					w := newWorld(seed, length)
					if *faultSteps > 0 {
						w.length = time.Duration(*faultSteps) * tick
					}
					r := begin(t, w, nil)
					r.run()
					r.finish()
					r.report()
					keepFigures(t, dir, r.figures)
				})
			})
		}
	})
	if os.Getenv(childMarker) != "" {
		return
	}
	sum := figures{}
	for _, f := range readFigures(t, dir) {
		sum.add(f)
	}
	for _, kind := range append(slices.Clone(kinds), unscripted...) {
		if sum.Kinds[kind] == 0 && *faultSeed == 0 && *faultSteps == 0 && !t.Failed() {
			t.Errorf("no world had the fault %q", kind)
		}
	}
	violations := "0"
	if t.Failed() {
		violations = "some, see above"
	}
	t.Logf("%d seeds, %d steps (%v of the scenario), %d faults of %d kinds in %d pairs, %d statements checked and %d scrapes read "+
		"at most %d series, %d goroutines and %d MiB; violations: %s",
		len(seeds), sum.Steps, time.Duration(sum.Steps)*tick, sum.Faults, len(sum.Kinds), sum.Pairs, sum.Checks, sum.Scrapes,
		sum.Series, sum.Goroutines, sum.Heap>>20, violations)
}

// TestFaultsCatchMistakes plants one mistake at a time, and has the suite find it in the world that is named beside it,
// no later than after plantedWorld.
func TestFaultsCatchMistakes(t *testing.T) {
	for _, m := range planted {
		t.Run(strings.ReplaceAll(m.name, " ", "_"), func(t *testing.T) {
			unraced(t, func(t *testing.T) {
				r := begin(t, newWorld(cmp.Or(*faultSeed, m.seed), plantedWorld), m.make)
				r.run(m.caught...)
				if !slices.ContainsFunc(r.violations, func(v violation) bool { return slices.Contains(m.caught, v.invariant) }) {
					t.Errorf("it was not caught within %d steps; what was seen: %v", r.figures.Steps,
						r.violations[:min(5, len(r.violations))])
				}
			})
		})
	}
}

// suiteDir is where the children of a test leave files for it.
func suiteDir(t *testing.T) string {
	t.Helper()
	if os.Getenv(childMarker) != "" {
		return filepath.Join(os.TempDir(), fmt.Sprintf("gpu-exporter-test-%d-%s", os.Getppid(), strings.Split(t.Name(), "/")[0]))
	}
	dir := filepath.Join(os.TempDir(), fmt.Sprintf("gpu-exporter-test-%d-%s", os.Getpid(), t.Name()))
	must.OK(t, os.MkdirAll(dir, 0o755))
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func keepFigures(t *testing.T, dir string, f figures) {
	t.Helper()
	text, err := json.Marshal(f)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, strings.ReplaceAll(t.Name(), "/", "+")+".json"), text, 0o644)
	}
	if err != nil {
		t.Error(err)
	}
}

func readFigures(t *testing.T, dir string) []figures {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	must.OK(t, err)
	var out []figures
	for _, file := range files {
		text, err := os.ReadFile(file)
		must.OK(t, err)
		var f figures
		d := json.NewDecoder(bytes.NewReader(text))
		d.DisallowUnknownFields()
		must.OK(t, d.Decode(&f))
		out = append(out, f)
	}
	return out
}
