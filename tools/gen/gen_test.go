package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpu-exporter/gpu-exporter/dashboards"
	"github.com/gpu-exporter/gpu-exporter/internal/must"
)

// Every generated file in the repository is what gen would write, and none is left of what it no longer writes.
func TestGeneratedFilesAreCurrent(t *testing.T) {
	root := filepath.Join("..", "..")
	files, err := generate(root)
	must.OK(t, err)
	files[cliPath], err = cli(root)
	must.OK(t, err)
	for path, want := range files {
		got, err := os.ReadFile(filepath.Join(root, path))
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is not what is generated (%v): run make generate and review the diff", path, err)
		}
	}
	left, err := stale(root, files)
	if err != nil || len(left) > 0 {
		t.Errorf("%v are no longer generated (%v): run make generate", left, err)
	}
}

// Nothing that is generated depends on the order of a map or on the time.
func TestGenerateIsRepeatable(t *testing.T) {
	root := filepath.Join("..", "..")
	first, err := generate(root)
	must.OK(t, err)
	for range 2 {
		again, err := generate(root)
		must.OK(t, err)
		for path := range first {
			if !bytes.Equal(first[path], again[path]) {
				t.Errorf("%s differs from run to run", path)
			}
		}
	}
}

// Each dashboard has its section and picture in the documentation, which is not generated; panels are described in the
// dashboards themselves.
func TestDashboardsAreDocumented(t *testing.T) {
	page := must.Read(t, filepath.Join("..", "..", "docs", "dashboards.md"))
	for _, b := range dashboards.All() {
		if !strings.Contains(page, "\n## "+b.Title+"\n") || !strings.Contains(page, "-"+b.UID+".png)") {
			t.Errorf("docs/dashboards.md has no section or picture of %s (%s)", b.Title, b.UID)
		}
	}
}
