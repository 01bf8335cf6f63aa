// Package standin simulates a node without GPUs: a driver library that follows a scenario, the kubelet's socket, and
// the files of the host. It serves tests and the demo; no shipped program imports it.
package standin

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/standin/scenario"
)

// libraryName is the file name of NVML.
const libraryName = "libnvidia-ml.so.1"

// symbolValues are the values of the macro SYMBOLS, by driver branch.
var symbolValues = map[string]string{"R470": "470", "R535": "535", "R550": "550", "R580": "580", "R595": "595",
	"R610": "610", "R615": "615", "R620": "620", "newest": "9999"}

// BuildFakeNVML compiles the fake driver with the functions of a driver branch (Symbols of a scenario) to
// outDir/libnvidia-ml.so.1. It needs gcc, and the go command to find NVIDIA's header in the module cache. Libraries
// are cached in the user's cache directory, by their sources. It is safe for concurrent use, also by several
// processes.
func BuildFakeNVML(ctx context.Context, symbols, outDir string) (path string, err error) {
	value, known := symbolValues[symbols]
	if !known {
		return "", fmt.Errorf("build the fake driver: expected a symbol set of %s, found %q",
			strings.Join(scenario.SymbolSets, ", "), symbols)
	}
	root, err := RepositoryRoot()
	if err != nil {
		return "", fmt.Errorf("build the fake driver: %w", err)
	}
	include, err := headerDir(ctx, root)
	if err != nil {
		return "", fmt.Errorf("build the fake driver: %w", err)
	}
	sources, err := filepath.Glob(filepath.Join(root, "testdata", "fakenvml", "*.c"))
	if err != nil || len(sources) == 0 {
		return "", fmt.Errorf("build the fake driver: no C sources in %s/testdata/fakenvml", root)
	}
	slices.Sort(sources)
	args := []string{"-std=gnu11", "-O2", "-g", "-Wall", "-Wextra", "-Wno-deprecated-declarations", "-fPIC", "-shared",
		"-fvisibility=hidden", "-pthread", "-DSYMBOLS=" + value, "-Wl,-soname," + libraryName}
	digest, err := digestOf(append(slices.Clone(args), runtime.GOARCH), append(slices.Clone(sources),
		filepath.Join(root, "testdata", "fakenvml", "fakenvml.h"), filepath.Join(include, "nvml.h")))
	if err != nil {
		return "", fmt.Errorf("build the fake driver: %w", err)
	}
	path = filepath.Join(outDir, libraryName)
	cached := filepath.Join(cacheDir(), digest, libraryName)
	if err := os.MkdirAll(filepath.Dir(cached), 0o755); err != nil {
		cached = path // the cache directory is not writable: build in place, each time
	}
	if _, err := os.Stat(cached); err != nil {
		if err := compile(ctx, slices.Concat(args, []string{"-I" + include}, sources), cached); err != nil {
			return "", fmt.Errorf("build the fake driver: %w", err)
		}
	}
	if cached == path {
		return path, nil
	}
	if err := copyFile(cached, path); err != nil {
		return "", fmt.Errorf("build the fake driver: %w", err)
	}
	return path, nil
}

// RepositoryRoot finds the go.mod of this module, from the working directory upward.
func RepositoryRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		text, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && bytes.Contains(text, []byte("module github.com/gpu-exporter/gpu-exporter\n")) {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("no go.mod of gpu-exporter in the working directory or above it: run this inside " +
				"the repository")
		}
		dir = parent
	}
}

// headerDir is where go-nvml keeps NVIDIA's nvml.h. As long as go.mod is the same, go list runs once: tests build the fake driver
// in hundreds of processes.
func headerDir(ctx context.Context, root string) (string, error) {
	digest, err := digestOf([]string{"nvml.h"}, []string{filepath.Join(root, "go.mod")})
	if err != nil {
		return "", err
	}
	known := filepath.Join(cacheDir(), digest)
	if dir, err := os.ReadFile(known); err == nil {
		if _, err := os.Stat(filepath.Join(string(dir), "nvml.h")); err == nil {
			return string(dir), nil
		}
	}
	cmd := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/NVIDIA/go-nvml")
	cmd.Dir = root
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("finding go-nvml in the module cache: %w: %s", err, bytes.TrimSpace(stderr.Bytes()))
	}
	dir := strings.TrimSpace(string(out))
	if dir == "" {
		return "", errors.New("go-nvml is not in the module cache: run go mod download")
	}
	dir = filepath.Join(dir, "pkg", "nvml")
	if os.MkdirAll(filepath.Dir(known), 0o755) == nil {
		_ = os.WriteFile(known, []byte(dir), 0o644) // where that fails, go list runs again
	}
	return dir, nil
}

func digestOf(words, files []string) (string, error) {
	h := sha256.New()
	for _, w := range words {
		fmt.Fprintf(h, "%q\n", w)
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(h, "%s %d\n", filepath.Base(name), len(text))
		h.Write(text)
	}
	return hex.EncodeToString(h.Sum(nil))[:32], nil
}

func cacheDir() string {
	base, err := os.UserCacheDir()
	if err != nil {
		base = os.TempDir()
	}
	return filepath.Join(base, "gpu-exporter", "fakenvml")
}

// compile runs gcc and moves the result into place atomically.
func compile(ctx context.Context, args []string, path string) error {
	tmp, err := os.MkdirTemp(filepath.Dir(path), "build")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	out := filepath.Join(tmp, libraryName)
	cmd := exec.CommandContext(ctx, "gcc", slices.Concat(args, []string{"-o", out, "-lm"})...)
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("gcc: %w: %s", err, bytes.TrimSpace(text))
	}
	return os.Rename(out, path)
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	tmp, err := os.CreateTemp(filepath.Dir(to), libraryName+".*")
	if err != nil {
		return err
	}
	_, err = io.Copy(tmp, in)
	err = errors.Join(err, tmp.Chmod(0o755), tmp.Close())
	if err == nil {
		err = os.Rename(tmp.Name(), to)
	}
	if err != nil {
		return errors.Join(err, os.Remove(tmp.Name()))
	}
	return nil
}

// Scenario loads testdata/scenarios/NAME.scenario of the repository.
func Scenario(name string) (*scenario.Scenario, error) {
	root, err := RepositoryRoot()
	if err != nil {
		return nil, err
	}
	return scenario.Load(filepath.Join(root, "testdata", "scenarios", name+".scenario"))
}

// Simulate writes what the fake driver reads into dir: the flat scenario, and a control file with a stepped clock at
// 0. env must be added to the environment of the process that loads the library. The caller closes the control.
func Simulate(s *scenario.Scenario, dir string) (env []string, control *scenario.Control, err error) {
	return simulate(s, dir, func(path string) (*scenario.Control, error) {
		// A round time keeps timestamps readable.
		return scenario.NewControl(path, time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	})
}

// SimulateLive is Simulate with a clock that runs by itself.
func SimulateLive(s *scenario.Scenario, dir string) (env []string, control *scenario.Control, err error) {
	return simulate(s, dir, scenario.NewRealControl)
}

func simulate(s *scenario.Scenario, dir string, newControl func(path string) (*scenario.Control, error)) ([]string,
	*scenario.Control, error) {
	flat := filepath.Join(dir, "scenario.flat")
	if err := os.WriteFile(flat, s.Flat(), 0o644); err != nil {
		return nil, nil, fmt.Errorf("simulate scenario %s: %w", s.Name, err)
	}
	control, err := newControl(filepath.Join(dir, "scenario.control"))
	if err != nil {
		return nil, nil, fmt.Errorf("simulate scenario %s: %w", s.Name, err)
	}
	return []string{"FAKENVML_SCENARIO=" + flat, "FAKENVML_CONTROL=" + control.Path()}, control, nil
}
