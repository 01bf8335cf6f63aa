package compat

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/test/servers"
)

// Dashboards are written by strangers: a file without an end is refused, brackets within each other cost no time that
// grows with their square, and neither titles nor queries reach a terminal as they are or begin a line with a title.
func TestMigrateOfHostileFiles(t *testing.T) {
	migrate := func(file, stdin string) string {
		cmd := exec.CommandContext(t.Context(), servers.Build(t, servers.Migrate), "check", file)
		cmd.Stdin = strings.NewReader(stdin)
		out, _ := cmd.CombinedOutput() // the exit code is the verdict
		return string(out)
	}
	if got := migrate("/dev/zero", ""); got != "gpu-migrate: /dev/zero is larger than 64 MiB\n" {
		t.Errorf("%.300q", got)
	}
	if got := migrate("-", strings.Repeat("(", 400_000)+"DCGM_FI_DEV_GPU_UTIL"); !strings.Contains(got,
		"more than 200 brackets within each other") {
		t.Errorf("%.300q", got[max(0, len(got)-300):])
	}
	file := filepath.Join(t.TempDir(), "dashboard.json")
	text := `{"panels":[{"title":"x\u001b[2J\u0007\nall: supported","targets":[{"expr":"DCGM_FI_UNKNOWN\u001b"}]}]}`
	must.OK(t, os.WriteFile(file, []byte(text), 0o600))
	if got := migrate(file, ""); strings.ContainsAny(got, "\x1b\x07") || strings.Contains(got, "\nall: supported") ||
		!strings.Contains(got, "DCGM_FI_UNKNOWN␛") {
		t.Errorf("%q", got)
	}
	// Of a directory the files of the known kinds are read, also beside one that cannot be.
	for _, name := range []string{"bad.yaml", "notes.txt"} {
		must.OK(t, os.WriteFile(filepath.Join(filepath.Dir(file), name), []byte("{{"), 0o600))
	}
	if got := migrate(filepath.Dir(file), ""); !strings.Contains(got, "DCGM_FI_UNKNOWN␛") || !strings.Contains(got, "bad.yaml: neither") ||
		strings.Contains(got, "notes.txt") {
		t.Errorf("%q", got)
	}
}
