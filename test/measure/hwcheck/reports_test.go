package hwcheck

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/test/measure/page"
)

// The table of the exporter and the page are those of the reports in docs/evidence/hardware.
func TestReportsAreWritten(t *testing.T) {
	root := filepath.Join("..", "..", "..")
	table, section, err := Reports(filepath.Join(root, page.Dir, "hardware"))
	must.OK(t, err)
	text := readFile(t, filepath.Join(root, page.Dir, "hardware.md"))
	if readFile(t, filepath.Join(root, "internal", "hardware", "reports.txt")) != table ||
		!strings.Contains(text, reportsBegin+section+reportsEnd) {
		t.Error("docs/evidence/hardware has other reports: run `bin/measure reports`")
	}
}

// A report that contradicts a claim opens it by its number.
func TestReports(t *testing.T) {
	root := t.TempDir()
	for _, dir := range []string{page.Dir + "/hardware", "internal/hardware"} {
		must.OK(t, os.MkdirAll(filepath.Join(root, dir), 0o755))
	}
	r := Report{Model: "A", Driver: "1", Date: "2026-11-24", Checks: []Check{
		{Number: 1, Name: "time observed, idle", Outcome: passed}, {Number: 1, Name: "time observed, loaded", Outcome: finding,
			Expected: "1 ±0.1", Measured: "0.8"}, {Number: 2, Name: "b", Outcome: passed}, {Number: 3, Name: "c", Outcome: skipped},
		{Name: "start", Outcome: finding}}}
	must.OK(t, page.Save(filepath.Join(root, page.Dir, "hardware"), "a-1", "", &r))
	old := []byte("# A\n" + reportsBegin + "old\n" + reportsEnd + "end\n")
	must.OK(t, os.WriteFile(filepath.Join(root, page.Dir, "hardware.md"), old, 0o644))
	if err := SaveReports(root); err != nil {
		t.Fatal(err)
	}
	if got := readFile(t, root, "internal/hardware/reports.txt"); got != "A|1|1|contradicted\nA|1|2|confirmed\n" {
		t.Errorf("%q", got)
	}
	got := readFile(t, root, page.Dir, "hardware.md")
	for _, want := range []string{"# A\n", "| [A](hardware/a-1.md) | 1 | 2026-11-24 | 1 | 1 |\n",
		"## Contradicted claims\n", "| 1 | time observed, loaded | A, 1 | 1 ±0.1 | 0.8 |\n", "end\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing in\n%s", want, got)
		}
	}
}
