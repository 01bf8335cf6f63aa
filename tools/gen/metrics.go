package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gpu-exporter/gpu-exporter/internal/catalog/reference"
)

// boardGoldens are the GPU models of docs/evidence/metrics-by-gpu.csv and the goldens of nodes that have them.
var boardGoldens = []struct {
	name    string
	goldens []string
}{
	{"B200", []string{"8xb200-idle", "8xb200-loaded"}},
	{"GB200", []string{"gb200-idle", "gb200-loaded"}},
	{"GB10", []string{"gb10-idle", "gb10-loaded"}},
	{"H200", []string{"h200-idle", "h200-loaded"}},
	{"H200 MIG", []string{"h200-mig-loaded"}},
	{"H100", []string{"8xh100-idle", "8xh100-loaded", "8xh100-shared"}},
	{"H100 MIG", []string{"h100-mig"}},
	{"L40S", []string{"l40s-idle", "l40s-loaded"}},
	{"RTX 4090", []string{"rtx-4090-idle", "rtx-4090-loaded"}},
	{"A100", []string{"a100"}},
	{"A100 MIG", []string{"a100-mig", "a100-40gb-mig-loaded"}},
	{"A10G", []string{"a10g-idle", "a10g-loaded"}},
	{"RTX 3060 laptop", []string{"laptop-3060-idle", "laptop-3060-loaded"}},
	{"vGPU guest", []string{"vgpu-guest-idle", "vgpu-guest-loaded"}},
	{"RTX 2080 Ti", []string{"rtx-2080ti-idle", "rtx-2080ti-loaded"}},
	{"T4", []string{"t4"}},
	{"P100", []string{"p100-idle", "p100-loaded"}},
}

// inventedGoldens are goldens of nodes that no real board stands for.
var inventedGoldens = []string{"demo", "faults", "little"}

// boards reads the families of each board from its goldens. Every golden must be of a board or invented.
func boards(root string) ([]reference.Model, error) {
	dir := filepath.Join(root, "testdata", "golden")
	known := slices.Clone(inventedGoldens)
	var out []reference.Model
	for _, b := range boardGoldens {
		families := map[string]bool{}
		for _, golden := range b.goldens {
			text, err := os.ReadFile(filepath.Join(dir, golden+".prom"))
			if err != nil {
				return nil, err
			}
			for line := range strings.Lines(string(text)) {
				if name, ok := strings.CutPrefix(line, "# TYPE "); ok {
					name, _, _ = strings.Cut(name, " ")
					families[name] = true
				}
			}
		}
		known = append(known, b.goldens...)
		out = append(out, reference.Model{Name: b.name, Families: families})
	}
	paths, err := filepath.Glob(filepath.Join(dir, "*.prom"))
	if err != nil {
		return nil, err
	}
	for _, path := range paths {
		if name := strings.TrimSuffix(filepath.Base(path), ".prom"); !slices.Contains(known, name) {
			return nil, fmt.Errorf("%s is in no row of boardGoldens", path)
		}
	}
	return out, nil
}
