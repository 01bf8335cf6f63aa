package architecture_test

import (
	"bufio"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gpu-exporter/gpu-exporter/internal/must"
)

// The three parts of the tree, as docs/developer/ARCHITECTURE.md shows them. What is in neither of the first two is the laboratory.
const (
	exporterPart   = "the exporter"
	readersPart    = "what reads its metrics"
	laboratoryPart = "the laboratory"
)

// readers are the packages that read the exporter's metrics, and those that write what is generated for them.
var readers = []string{"dashboards", "alerts", "report", "cmd/report", "cmd/migrate", "tools", "internal/catalog/reference",
	"internal/catalog/compat/guide"}

// readerImports are the packages of the exporter that its readers may import: names, units and tables.
var readerImports = []string{"internal/gpu", "internal/catalog", "internal/catalog/compat", "internal/dropin", "internal/nvml/calls",
	"internal/cmdline"}

// partOf returns the part of a directory.
func partOf(linked map[string]bool, dir string) string {
	switch {
	case linked[dir] || dir == "internal/nvml/calls": // from which some of its code is generated
		return exporterPart
	case slices.ContainsFunc(readers, func(r string) bool {
		return (dir == r || strings.HasPrefix(dir, r+"/")) && !strings.HasSuffix(dir, "test")
	}):
		return readersPart
	}
	return laboratoryPart
}

// Imports between the parts go one way, and the sizes in docs/developer/ARCHITECTURE.md are right to a tenth.
func TestThreeParts(t *testing.T) {
	root, code, _ := allGoFiles(t)
	linked := linkedBy(t, code, "cmd/exporter")
	lines := map[string]int{}
	for dir, files := range code {
		part := partOf(linked, dir)
		lines[part] += linesOf(t, files)
		for _, file := range files {
			for _, imported := range importsOf(t, file) {
				ours, is := strings.CutPrefix(imported, module+"/")
				if to := partOf(linked, ours); is && part == readersPart && (to == laboratoryPart ||
					to == exporterPart && !slices.Contains(readerImports, ours)) {
					t.Errorf("%s imports %s: %s may import names, units and tables of the exporter alone", file, ours, part)
				}
			}
		}
	}
	text, err := os.ReadFile(filepath.Join(root, "docs", "developer", "ARCHITECTURE.md"))
	must.OK(t, err)
	for part, n := range lines {
		t.Logf("%s: %d lines", part, n)
		row := regexp.MustCompile(`(?m)^\| ` + part + ` \| ([0-9,]+) \|`).FindSubmatch(text)
		if row == nil {
			t.Errorf("docs/developer/ARCHITECTURE.md has no row of %s: %d lines", part, n)
			continue
		}
		said, err := strconv.Atoi(strings.ReplaceAll(string(row[1]), ",", ""))
		must.OK(t, err)
		if math.Abs(float64(said-n)) > 0.1*float64(n) {
			t.Errorf("docs/developer/ARCHITECTURE.md: %s has %d lines, not %d", part, n, said)
		}
	}
}

// A reader of docs/developer/ARCHITECTURE.md comes from one call of the driver to one series through few files, each with what the page
// names in it.
func TestReadingPath(t *testing.T) {
	const maxFiles, maxLines = 8, 1500
	root, _, _ := allGoFiles(t)
	f, err := os.Open(filepath.Join(root, "docs", "developer", "ARCHITECTURE.md"))
	must.OK(t, err)
	defer f.Close()
	step := regexp.MustCompile("^[0-9]+\\. `([a-z/_]+\\.go)`: (.*)$")
	quoted := regexp.MustCompile("`([A-Za-z_]+)`")
	files, lines, in := 0, 0, false
	for page := bufio.NewScanner(f); page.Scan(); {
		if strings.HasPrefix(page.Text(), "## ") {
			in = page.Text() == "## From a call to a series"
		}
		m := step.FindStringSubmatch(page.Text())
		if m == nil || !in {
			continue
		}
		text, err := os.ReadFile(filepath.Join(root, m[1]))
		must.OK(t, err)
		files++
		lines += strings.Count(string(text), "\n")
		for _, name := range quoted.FindAllStringSubmatch(m[2], -1) {
			if !regexp.MustCompile(`\b` + name[1] + `\b`).Match(text) {
				t.Errorf("%s has no %s", m[1], name[1])
			}
		}
	}
	t.Logf("%d files, %d lines", files, lines)
	if files < 5 || files > maxFiles || lines > maxLines {
		t.Errorf("%d files with %d lines, at most %d and %d", files, lines, maxFiles, maxLines)
	}
}
