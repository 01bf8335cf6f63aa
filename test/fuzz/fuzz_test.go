package main

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// Every target is found by reading the sources, and none that is not one; each is documented.
func TestTargets(t *testing.T) {
	got, err := targetsOf("a_test.go", []byte(`package a
import "testing"
func FuzzOne(f *testing.F) {}
func FuzzTwo(f *testing.F) { f.Fuzz(func(t *testing.T, s string) {}) }
func Fuzzy(a, b int, c string) {}
func TestFuzz(t *testing.T) {}
type x struct{}
func (x) FuzzNot(f *testing.F) {}
`))
	if err != nil || !slices.Equal(got, []string{"FuzzOne", "FuzzTwo"}) {
		t.Errorf("%v, %v", got, err)
	}
	all, err := find("../..")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../docs/robustness.md")
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, p := range all {
		for _, n := range p.targets {
			names[p.folder+"."+n] = true
			listed := false
			for line := range strings.Lines(string(page)) {
				listed = listed || strings.Contains(line, "`"+p.folder+"`") && strings.Contains(line, "`"+n+"`")
			}
			if !listed {
				t.Errorf("docs/robustness.md does not list %s of %s under Fuzzing", n, p.folder)
			}
		}
	}
	for _, want := range []string{"podmap.FuzzDecode", "internal/scenario.FuzzParse", "test/hwcheck.FuzzExposition", "report.FuzzChange"} {
		if !names[want] {
			t.Errorf("%s was not found", want)
		}
	}
}

func TestProgress(t *testing.T) {
	for text, want := range map[string]result{
		"": {},
		"fuzz: elapsed: 0s, gathering baseline coverage: 0/3 completed\nfuzz: elapsed: 3s, execs: 127 (42/sec), new interesting: 38 (total: 41)\nfuzz: elapsed: 5s, execs: 300 (86/sec), new interesting: 39 (total: 42)\nPASS\n": {executions: 300, interesting: 39, total: 42},
		"fuzz: elapsed: 0s, gathering baseline coverage: 0/674 completed\nfuzz: elapsed: 3s, gathering baseline coverage: 120/674 completed\nPASS\n":                                                                              {executions: 120, total: 674},
		"fuzz: elapsed: 3s, execs: 9 (3/sec)\nPASS\n": {executions: 9},
	} {
		if got := read(text); got != want {
			t.Errorf("%q is read as %+v, not %+v", text, got, want)
		}
	}
}

func TestLate(t *testing.T) {
	const began = "fuzz: elapsed: 8s, execs: 149021 (7630/sec), new interesting: 8 (total: 169)\n"
	for text, want := range map[string]bool{
		began + "--- FAIL: FuzzX (8.04s)\n    context deadline exceeded\nFAIL\n": true,
		began + "PASS\n": false,
		began + "--- FAIL: FuzzX (1.09s)\n    --- FAIL: FuzzX (0.00s)\n        x_test.go:1: context deadline exceeded\n    \n    Failing input written to testdata/fuzz/FuzzX/1\nFAIL\n": false,
	} {
		if got := late(text); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
}
