package security_test

import (
	"archive/zip"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/internal/standin/machine"
)

// `make vuln` works without network, on a copy of the database as Go publishes it (vulndb.zip) or its directory, and
// fails for a module that is linked in and vulnerable.
func TestVulnerabilitiesOffline(t *testing.T) {
	t.Parallel()
	const entry = `{"schema_version":"1.3.1","id":"GO-2099-0001","modified":"2026-01-01T00:00:00Z",` +
		`"published":"2026-01-01T00:00:00Z","summary":"Planted","details":"Planted.",` +
		`"affected":[{"package":{"name":"google.golang.org/grpc","ecosystem":"Go"},` +
		`"ranges":[{"type":"SEMVER","events":[{"introduced":"0"}]}],"ecosystem_specific":` +
		`{"imports":[{"path":"google.golang.org/grpc"}]}}],` +
		`"database_specific":{"url":"https://pkg.go.dev/vuln/GO-2099-0001"}}`
	harmless := map[string]string{"index/db.json": `{"modified":"2026-01-01T00:00:00Z"}`, "index/modules.json": "[]",
		"index/vulns.json": "[]"}
	planted := map[string]string{"index/db.json": harmless["index/db.json"], "index/vulns.json": "[]",
		"index/modules.json":   `[{"path":"google.golang.org/grpc","vulns":[{"id":"GO-2099-0001","modified":"2026-01-01T00:00:00Z"}]}]`,
		"ID/GO-2099-0001.json": entry}
	database := filepath.Join(t.TempDir(), "vulndb.zip")
	for _, tt := range []struct {
		name  string
		files map[string]string
		code  int
		want  string
	}{
		{"harmless", harmless, 0, "No vulnerabilities found"},
		{"planted", planted, 1, "GO-2099-0001"},
		{"no database", map[string]string{"README": "x"}, 2, "not a copy of"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			file, err := os.Create(database)
			must.OK(t, err)
			z := zip.NewWriter(file)
			for name, text := range tt.files {
				if w, err := z.Create(name); err != nil {
					t.Fatal(err)
				} else if _, err := w.Write([]byte(text)); err != nil {
					t.Fatal(err)
				}
			}
			must.OK(t, errors.Join(z.Close(), file.Close()))
			cmd := exec.Command(filepath.Join(machine.Root(t), "tools", "vuln"), machine.Binary(t))
			// A proxy that does not exist: nothing is fetched.
			cmd.Env = append(os.Environ(), "VULNDB="+database, "HTTPS_PROXY=http://127.0.0.1:1", "HTTP_PROXY=http://127.0.0.1:1")
			out, err := cmd.CombinedOutput()
			if err != nil && !errors.As(err, new(*exec.ExitError)) {
				t.Fatal(err)
			}
			if cmd.ProcessState.ExitCode() != tt.code || !strings.Contains(string(out), tt.want) {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}
