package architecture_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gpu-exporter/gpu-exporter/internal/must"
)

// realTime lists the functions of tests that use real time, and why none of their verdicts depends on it. Anything else in a
// test waits for the event itself, steps the clock of a scenario or runs in a bubble of testing/synctest.
var realTime = map[string]string{
	"cmd/exporter attend":                       "looks again and again which calls hang: the driver's threads give no signal",
	"cmd/exporter grows":                        "a soak of the program in real time; growth is judged per minute",
	"cmd/exporter until":                        "names what a program does not show, after ten minutes",
	"internal/nvml TestEvents":                  "a wait that must not end early: a lower limit",
	"internal/nvml TestStatisticsOfCalls":       "a call that takes at least so long",
	"internal/nvml TestWaitForNoEvents":         "waits that must not end early, and a wait that may begin on either side of Close",
	"internal/sampler TestBusScans":             "runs in a bubble, that of world",
	"internal/sampler TestConcurrentUse":        "for the race detector, for at least 200 ms",
	"internal/sampler TestModuleWithoutLibrary": "runs in a bubble; a time stamp",
	"internal/sampler TestWhatFollows":          "runs in a bubble; a time stamp",
	"internal/sampler WaitEvents":               "a fake driver in a bubble",
	"internal/sampler call":                     "a fake driver in a bubble",
	"internal/sampler step":                     "a step in a bubble",
	"internal/web TestPagesThatAreDropped":      "a time stamp",
	"podmap WaitEvents":                         "a fake driver in a bubble",
	"podmap/podresources TestExplanations":      "the deadline of a call that hangs",
}

// clocks are the functions by which a test waits for time to pass, or judges how much has passed.
var clocks = []string{"time.Sleep", "time.After", "time.AfterFunc", "time.Tick", "time.NewTimer", "time.NewTicker", "time.Since",
	"time.Until",
	"context.WithTimeout", "context.WithTimeoutCause", "context.WithDeadline", "context.WithDeadlineCause",
	"SetDeadline", "SetReadDeadline", "SetWriteDeadline", "time.Now().Add", "time.Now().After", "time.Now().Before", "time.Now().Sub"}

// TestNoTestDependsOnRealTime: what a busy machine takes longer for, or a fast one, changes no verdict. Time in a bubble of
// testing/synctest is none: it passes when nothing runs. That covers the function that is given to synctest.Test and those
// that only such functions of their package call.
func TestNoTestDependsOnRealTime(t *testing.T) {
	root, err := filepath.Abs("../..")
	must.OK(t, err)
	found := map[string][]string{}
	err = filepath.WalkDir(root, func(dir string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil && dir != root {
			return filepath.SkipDir // another module: its tests play real programs in real time
		}
		if name := d.Name(); dir != root && (name == "testdata" || name == "bin" || strings.HasPrefix(name, ".")) {
			return filepath.SkipDir
		}
		files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
		if err != nil || len(files) == 0 {
			return err
		}
		path, err := filepath.Rel(root, dir)
		if err != nil {
			return err
		}
		uses, err := realTimeOf(files)
		for function, where := range uses {
			found[filepath.ToSlash(path)+" "+function] = where
		}
		return err
	})
	must.OK(t, err)
	for function, where := range found {
		if realTime[function] == "" {
			t.Errorf("%s uses real time: %s. Wait for the event itself, step the clock, use testing/synctest, or give a reason in realTime",
				function, strings.Join(where, ", "))
		}
	}
	for function := range realTime {
		if found[function] == nil {
			t.Errorf("%s uses no real time: take it off the list realTime", function)
		}
	}
}

// realTimeOf returns the uses of clocks outside bubbles, by function, of the tests of one package.
func realTimeOf(files []string) (map[string][]string, error) {
	type use struct {
		name, where string
		inBubble    bool
	}
	uses, calls := map[string][]use{}, map[string][]use{} // by function; calls of functions of the package
	set := token.NewFileSet()
	var decls []ast.Decl
	for _, file := range files {
		f, err := parser.ParseFile(set, file, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		decls = append(decls, f.Decls...)
	}
	enters := bubbleFunctions(decls)
	for _, decl := range decls {
		function := "variables"
		if d, ok := decl.(*ast.FuncDecl); ok {
			function = d.Name.Name
		}
		bubbles := []ast.Node{}
		ast.Inspect(decl, func(n ast.Node) bool {
			in := slices.ContainsFunc(bubbles, func(b ast.Node) bool { return n != nil && b.Pos() <= n.Pos() && n.End() <= b.End() })
			switch n := n.(type) {
			case *ast.CallExpr:
				if slices.Contains(enters, text(n.Fun)) {
					bubbles = append(bubbles, n.Args[len(n.Args)-1])
				}
			case *ast.SelectorExpr:
				name := text(n)
				if !slices.Contains(clocks, name) {
					name = n.Sel.Name
				}
				if slices.Contains(clocks, name) {
					uses[function] = append(uses[function], use{name, fmt.Sprintf("%s in line %d", name, set.Position(n.Pos()).Line), in})
				}
			case *ast.Ident:
				calls[n.Name] = append(calls[n.Name], use{name: function, inBubble: in})
			}
			return true
		})
	}
	// bubbled reports whether a function is only called in bubbles.
	var bubbled func(function string, seen []string) bool
	bubbled = func(function string, seen []string) bool {
		if strings.HasPrefix(function, "Test") || slices.Contains(seen, function) {
			return slices.Contains(seen, function)
		}
		called := false
		for _, c := range calls[function] {
			if c.name == function {
				continue // its declaration
			}
			if called = true; !c.inBubble && !bubbled(c.name, append(seen, function)) {
				return false
			}
		}
		return called
	}
	out := map[string][]string{}
	for function, all := range uses {
		for _, u := range all {
			if !u.inBubble && !bubbled(function, nil) {
				out[function] = append(out[function], u.where)
			}
		}
	}
	return out, nil
}

// bubbleFunctions lists the functions that run their last argument, a function, in a bubble.
func bubbleFunctions(decls []ast.Decl) []string {
	enters := []string{"synctest.Test"}
	for range decls { // until no more are found
		for _, decl := range decls {
			d, ok := decl.(*ast.FuncDecl)
			if !ok || slices.Contains(enters, d.Name.Name) || d.Recv != nil || len(d.Type.Params.List) == 0 {
				continue
			}
			if _, takes := d.Type.Params.List[len(d.Type.Params.List)-1].Type.(*ast.FuncType); !takes {
				continue
			}
			ast.Inspect(d, func(n ast.Node) bool {
				if call, ok := n.(*ast.CallExpr); ok && slices.Contains(enters, text(call.Fun)) && !slices.Contains(enters, d.Name.Name) {
					enters = append(enters, d.Name.Name)
				}
				return true
			})
		}
	}
	return enters
}

// text is a selector as it is written; that of a call has its parentheses.
func text(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return text(e.X) + "." + e.Sel.Name
	case *ast.CallExpr:
		return text(e.Fun) + "()"
	}
	return "?"
}
