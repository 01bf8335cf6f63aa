// Command gen writes every generated file of the repository; run it in its root. A test compares the files with what it
// would write.
package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gpu-exporter/gpu-exporter/alerts"
	"github.com/gpu-exporter/gpu-exporter/internal/catalog/compat/guide"
	"github.com/gpu-exporter/gpu-exporter/internal/catalog/reference"
	"github.com/gpu-exporter/gpu-exporter/report/render"
)

func main() {
	if err := write("."); err != nil {
		fmt.Fprintf(os.Stderr, "gen: %v\n", err)
		os.Exit(1)
	}
}

// write writes the files below root, and deletes those that are no longer generated.
func write(root string) error {
	files, err := generate(root)
	if err != nil {
		return err
	}
	stale, err := stale(root, files)
	if err != nil {
		return err
	}
	for _, path := range stale {
		if err := os.Remove(filepath.Join(root, path)); err != nil {
			return err
		}
	}
	for _, path := range slices.Sorted(maps.Keys(files)) {
		if err := os.WriteFile(filepath.Join(root, path), files[path], 0o644); err != nil {
			return err
		}
	}
	return nil
}

// generate returns the generated files by path. It reads what it completes (the chart's README and schema) and what
// it summarizes (goldens, sharing fixtures) below root.
func generate(root string) (map[string][]byte, error) {
	files := map[string][]byte{
		"docs/glossary.md":           []byte(reference.Glossary()),
		"docs/metrics.md":            []byte(reference.Markdown()),
		"docs/metrics-by-source.csv": []byte(reference.SourcesCSV()),
		"docs/nvidia-smi.md":         []byte(reference.QueryFieldsMarkdown()),
	}
	boards, err := boards(root)
	if err != nil {
		return nil, err
	}
	files["docs/metrics-by-gpu.csv"] = []byte(reference.AvailabilityCSV(boards))
	names, err := guide.Markdown()
	if err != nil {
		return nil, err
	}
	files["docs/compatibility-dcgm.md"] = []byte(names)
	if names, err = guide.MarkdownSMI(); err != nil {
		return nil, err
	}
	files["docs/compatibility-nvidia-gpu-exporter.md"] = []byte(names)
	if files["docs/report.schema.json"], err = render.JSONSchema(); err != nil {
		return nil, err
	}
	if files["docs/sharing-schemes.md"], err = sharingSchemes(root); err != nil {
		return nil, err
	}
	rules, err := alerts.Generated()
	if err != nil {
		return nil, err
	}
	for _, f := range rules {
		files[f.Path] = []byte(f.Text)
	}
	if err := driverCalls(files); err != nil {
		return nil, err
	}
	if err := sizes(root, files); err != nil {
		return nil, err
	}
	if err := inhibition(root, files); err != nil {
		return nil, err
	}
	return files, chart(root, files)
}

// inhibition copies the example's inhibition rules to the end of the compose file's Alertmanager configuration, which has no include.
func inhibition(root string, files map[string][]byte) error {
	const path, marker = "deploy/compose/alertmanager.yml", "inhibit_rules:\n"
	own, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		return err
	}
	before, _, ok := strings.Cut(string(own), marker)
	_, rules, ok2 := strings.Cut(string(files["alerts/alertmanager-inhibition.example.yaml"]), marker)
	if !ok || !ok2 {
		return fmt.Errorf("%s or the example in alerts has no %q", path, marker)
	}
	files[path] = []byte(before + marker + rules)
	return nil
}

// owned are the patterns of files that are all generated.
var owned = []string{"dashboards/*.json", resourceDir + "*", chartDir + "/files/dashboards/*"}

// stale are the files that match an owned pattern and are not generated.
func stale(root string, files map[string][]byte) ([]string, error) {
	var out []string
	for _, pattern := range owned {
		paths, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			return nil, err
		}
		for _, path := range paths {
			path, err := filepath.Rel(root, path)
			if err != nil {
				return nil, err
			}
			if files[filepath.ToSlash(path)] == nil {
				out = append(out, path)
			}
		}
	}
	return out, nil
}
