package architecture_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"slices"
	"testing"

	"github.com/gpu-exporter/gpu-exporter/internal/must"
)

// The parts of the tree: lines of Go that were written by hand.
const (
	exporterLines = "exporter (with every package that it links)"
	codeLines     = "Go without tests (the exporter included)"
	testLines     = "tests"
)

// sizes limits the parts. Where a part is above its aim, the limit is what it has now and a little more for what is under
// way: a change that takes lines away lowers it.
var sizes = []struct {
	part        string
	limit, goal int
}{
	{exporterLines, 34_430, 28_700},
	{codeLines, 76_865, 65_000},
	{testLines, 87_730, 75_000},
}

// TestSizes prints the parts with -v.
func TestSizes(t *testing.T) {
	_, code, tests := allGoFiles(t)
	linked := linkedBy(t, code, "cmd/exporter")
	lines := map[string]int{}
	for dir, files := range code {
		n := linesOf(t, files)
		if lines[codeLines] += n; linked[dir] {
			lines[exporterLines] += n
		}
	}
	for _, files := range tests {
		lines[testLines] += linesOf(t, files)
	}
	for _, s := range sizes {
		n := lines[s.part]
		t.Logf("%s: %d lines, limit %d, goal %d", s.part, n, s.limit, s.goal)
		if n > s.limit {
			t.Errorf("%s: %d lines: take lines away, %d is the limit and %d the goal", s.part, n, s.limit, s.goal)
		}
		if n == 0 {
			t.Errorf("%s: no line was counted", s.part)
		}
	}
}

func linesOf(t *testing.T, files []string) (n int) {
	t.Helper()
	for _, f := range parsed(t, files) {
		n += f.lines
	}
	return n
}

// maxFiles is the maximum number of hand-written files of a package, apart from tests.
const maxFiles = 25

func TestPackagesHaveFewFiles(t *testing.T) {
	_, code, _ := allGoFiles(t)
	for dir, files := range code {
		if n := len(parsed(t, files)); n > maxFiles {
			t.Errorf("%s has %d files: %d is the maximum", dir, n, maxFiles)
		}
	}
}

// maxFunctionLines is the maximum length of a function that is not on the list below, apart from tests.
const maxFunctionLines = 80

// longFunctions are the longer functions that stay: tables.
var longFunctions = map[string]string{
	"alerts Queries":                      "a table of queries",
	"alerts exporterState":                "a table of rules",
	"dashboards capacityDashboard":        "a table of panels",
	"dashboards exporterDashboard":        "a table of panels",
	"dashboards fleetDashboard":           "a table of panels",
	"dashboards gpuDashboard":             "a table of panels",
	"dashboards healthDashboard":          "a table of panels",
	"dashboards namespaceDashboard":       "a table of panels",
	"dashboards nodeDashboard":            "a table of panels",
	"dashboards sharingDashboard":         "a table of panels",
	"dashboards workloadDashboard":        "a table of panels",
	"internal/catalog activity":           "a table of families",
	"internal/catalog containers":         "a table of families",
	"internal/catalog exporter":           "a table of families",
	"internal/catalog faults":             "a table of families",
	"internal/catalog identity":           "a table of families",
	"internal/catalog links":              "a table of families",
	"internal/catalog ownership":          "a table of families",
	"internal/dropin Options":             "a table of flags",
	"internal/standin/fleet KubeFamilies": "a table of families",
	"test/measure/hwcheck stateClaims":    "a table of claims",
}

// toSplit are the functions that are to become shorter. Those that have become so fail no test, so that a change of one package
// need not touch this file.
var toSplit = []string{
	"internal/account readFast",
	"report Build",
	"report fewer",
	"report release",
	"report replicas",
	"report size",
}

func TestFunctionsAreShort(t *testing.T) {
	_, code, _ := allGoFiles(t)
	long := map[string]bool{}
	for dir, files := range code {
		for _, f := range parsed(t, files) {
			for _, d := range f.Decls {
				fn, ok := d.(*ast.FuncDecl)
				if !ok {
					continue
				}
				n := f.set.Position(fn.End()).Line - f.set.Position(fn.Pos()).Line + 1
				name := dir + " " + fn.Name.Name
				if n <= maxFunctionLines {
					continue
				}
				if long[name] = true; longFunctions[name] == "" && !slices.Contains(toSplit, name) {
					t.Errorf("%s has %d lines: split it, %d is the maximum", name, n, maxFunctionLines)
				}
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(longFunctions)) {
		if !long[name] {
			t.Errorf("%s is short: take it off the list longFunctions", name)
		}
	}
}

// file is a parsed file that was written by hand.
type file struct {
	*ast.File
	set   *token.FileSet
	lines int
}

func parsed(t *testing.T, paths []string) (files []file) {
	t.Helper()
	for _, path := range paths {
		set := token.NewFileSet()
		f, err := parser.ParseFile(set, filepath.Clean(path), nil, parser.ParseComments|parser.SkipObjectResolution)
		must.OK(t, err)
		if !ast.IsGenerated(f) {
			files = append(files, file{f, set, set.File(f.FileStart).LineCount()})
		}
	}
	return files
}
