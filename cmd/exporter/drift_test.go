package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/internal/standin/scenario"
)

// The tests of this file compare what one board is known for under different drivers: a reading that appears or
// vanishes is named.

var (
	boardName   = regexp.MustCompile(`(?m)^board (\S+)`)
	profileLine = regexp.MustCompile(`(?m)^  profile (\S+) `)
)

// driftBoard is a board that is put under each driver branch.
type driftBoard struct {
	name string // as drift.txt calls it
	dev  string // its GPU, with %d for the number
}

// driftBoards are all boards of testdata, and those that can be divided once more, divided.
func driftBoards(t *testing.T) (boards []driftBoard, includes string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", "..", "testdata", "scenarios", "boards", "*.scenario"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no boards: %v", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		must.OK(t, err)
		board := boardName.FindSubmatch(text)
		if board == nil {
			t.Fatalf("%s has no board", file)
		}
		name := strings.TrimSuffix(filepath.Base(file), ".scenario")
		includes += "include boards/" + filepath.Base(file) + "\n"
		dev := "gpu %[1]d board=" + string(board[1]) + "\n"
		boards = append(boards, driftBoard{name, dev + "process gpu=%[1]d pid=100%[1]d memory=64MiB busy=50%%\n"})
		if profile := profileLine.FindSubmatch(text); profile != nil {
			boards = append(boards, driftBoard{name + ", divided",
				dev + "mig gpu=%[1]d layout=\"gi=1 profile=" + string(profile[1]) +
					" start=0 size=1\"\nprocess gpu=%[1]d pid=100%[1]d gi=1 memory=64MiB busy=50%%\n"})
		}
	}
	return boards, includes
}

// identityLabels are labels that say which GPU, instance or product a series is of, not which reading it is.
var identityLabels = []string{"uuid", "gpu", "node", "mig_uuid", "gi", "ci", "profile", "placement", "sm_count"}

var labelPair = regexp.MustCompile(`(\w+)="((?:[^"\\]|\\.)*)"`)

// readingsOf lists, by GPU, what an exposition tells of it: families, and within them what their labels
// distinguish.
func readingsOf(exposition string) map[string]map[string]bool {
	byGPU := map[string]map[string]bool{}
	for series := range parseSeries(exposition) {
		family, labels, _ := strings.Cut(series, "{")
		dev := ""
		var kept []string
		for _, pair := range labelPair.FindAllStringSubmatch(labels, -1) {
			if pair[1] == "gpu" {
				dev = pair[2]
			}
			if !slices.Contains(identityLabels, pair[1]) && pair[1] != "le" && pair[1] != "quantile" &&
				!strings.HasSuffix(family, "_info") {
				kept = append(kept, pair[0])
			}
		}
		if dev == "" {
			continue // of the node
		}
		if len(kept) > 0 {
			family += "{" + strings.Join(kept, ",") + "}"
		}
		if byGPU[dev] == nil {
			byGPU[dev] = map[string]bool{}
		}
		byGPU[dev][family] = true
	}
	return byGPU
}

// drift says which readings appeared and which vanished from one set to another, a line each. A family all of
// whose readings came or went together is one line.
func drift(was, is map[string]bool) []string {
	of := func(set map[string]bool) map[string]bool {
		families := map[string]bool{}
		for reading := range set {
			families[familyOf(reading)] = true
		}
		return families
	}
	wasFamilies, isFamilies := of(was), of(is)
	all := maps.Clone(was)
	maps.Copy(all, is)
	var lines []string
	for _, reading := range slices.Sorted(maps.Keys(all)) {
		family := familyOf(reading)
		switch {
		case !wasFamilies[family]:
			lines = append(lines, "+ "+family)
		case !isFamilies[family]:
			lines = append(lines, "- "+family)
		case !was[reading]:
			lines = append(lines, "+ "+reading)
		case !is[reading]:
			lines = append(lines, "- "+reading)
		}
	}
	return slices.Compact(lines)
}

// TestDrift puts each board under every driver branch and writes down which readings appear and vanish from
// branch to branch.
func TestDrift(t *testing.T) {
	boards, includes := driftBoards(t)
	list, names, dir := cases{}, []string{}, suiteDir(t)
	for group := range slices.Chunk(boards, scenario.MaxGPUs) {
		at := len(names) / len(scenario.WidelySpaced)
		for _, set := range scenario.WidelySpaced {
			text := "scenario 1\nsymbols " + set + "\nsystem DriverVersion = \"1.2.3\"\n" + includes
			for i, b := range group {
				text += fmt.Sprintf(b.dev, i)
			}
			name := fmt.Sprintf("%s-%d", set, at)
			names = append(names, name)
			list.add(set, name, func(t *testing.T) {
				st := play(t, parseScenario(t, text), "")
				st.run(64 * time.Second)
				keep(t, dir, name, st.metrics())
			})
		}
	}
	if !list.run(t) {
		return
	}
	var out strings.Builder
	out.WriteString("# Readings that appear (+) and vanish (-) on a board from one driver branch to the next: the board stays the\n" +
		"# same, only what the library exports and knows changes. Written by the tests; a line that comes or goes\n# here comes or goes " +
		"for users who change their driver.\n")
	readings := map[string]map[string]map[string]bool{} // of each GPU, by step
	for _, name := range names {
		readings[name] = readingsOf(kept(t, dir, name))
	}
	for i, b := range boards {
		fmt.Fprintf(&out, "\n%s\n", b.name)
		var before map[string]bool
		for n, set := range scenario.WidelySpaced {
			now := readings[fmt.Sprintf("%s-%d", set, i/scenario.MaxGPUs)][fmt.Sprint(i%scenario.MaxGPUs)]
			if len(now) == 0 {
				t.Errorf("%s under %s reports nothing", b.name, set)
			}
			if n > 0 {
				fmt.Fprintf(&out, "  %s to %s\n", scenario.WidelySpaced[n-1], set)
				lines := drift(before, now)
				if len(lines) == 0 {
					lines = []string{"nothing"}
				}
				for _, line := range lines {
					fmt.Fprintf(&out, "    %s\n", line)
				}
			}
			before = now
		}
	}
	sameFile(t, filepath.Join("..", "..", "testdata", "golden", "drift.txt"), out.String())
}
