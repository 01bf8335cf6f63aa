// Package servers builds the programs of the repository and the real servers of tools/, and runs them until
// a test ends.
package servers

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/alerts"
	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/internal/standin"
	"github.com/gpu-exporter/gpu-exporter/internal/testkit"
	"github.com/gpu-exporter/gpu-exporter/test/programs"
)

// Program is one that a test runs.
type Program = programs.Program

// The programs, by the names that they have in bin/.
const (
	Exporter   = programs.Exporter
	Migrate    = programs.Migrate
	Report     = programs.Report
	Standin    = programs.Standin
	Prometheus = programs.Prometheus
	Promtool   = programs.Promtool
	VMAlert    = programs.VMAlert
	Helm       = programs.Helm
	Kustomize  = programs.Kustomize

	VictoriaMetrics = programs.VictoriaMetrics
	VMAlertTool     = programs.VMAlertTool
	Alertmanager    = programs.Alertmanager
)

// built has the result of each program that this test binary has built.
type built struct {
	mu   sync.Mutex
	done map[Program]error
}

var once = built{done: map[Program]error{}}

// Root returns the root directory of the repository.
func Root(t testing.TB) string {
	t.Helper()
	root, err := standin.RepositoryRoot()
	must.OK(t, err)
	return root
}

// Build builds the program, once for all tests of a package, and returns its path.
func Build(t testing.TB, p Program) (path string) {
	t.Helper()
	root := Root(t)
	once.mu.Lock()
	defer once.mu.Unlock()
	err, known := once.done[p]
	if !known {
		err = programs.Build(t.Context(), root, p)
		once.done[p] = err
	}
	must.OK(t, err)
	return p.Path(root)
}

// Start runs a program until the test ends.
func Start(t testing.TB, dir, path string, args ...string) *testkit.Child {
	t.Helper()
	cmd := exec.Command(path, args...)
	cmd.Dir = dir
	return Run(t, cmd)
}

// Run runs a command until the test ends, also by the limit of `go test`; a test that fails shows the end of its output.
func Run(t testing.TB, cmd *exec.Cmd) *testkit.Child {
	t.Helper()
	child, err := testkit.Start(cmd)
	must.OK(t, err)
	t.Cleanup(func() {
		_ = child.Stop() // a test may have ended the program itself; its exit status is that test's matter
		if t.Failed() {
			t.Logf("output of %s:\n%s", filepath.Base(cmd.Path), child.End())
		}
	})
	return child
}

// Address returns a free address of this machine.
func Address(t testing.TB) string {
	t.Helper()
	address, err := standin.FreeAddress()
	must.OK(t, err)
	return address
}

// Rules writes the shipped rules, with every duration scaled, into a directory and returns the pattern of their files.
func Rules(t testing.TB, dir string, scale float64) string {
	t.Helper()
	config := alerts.Default()
	config.Scale = scale
	files, err := alerts.Render(config)
	must.OK(t, err)
	for _, f := range files {
		if strings.HasSuffix(f.Path, ".rules.yaml") {
			must.OK(t, os.WriteFile(filepath.Join(dir, filepath.Base(f.Path)), []byte(f.Text), 0o600))
		}
	}
	return filepath.Join(dir, "*.rules.yaml")
}

// patience is how long something that must come may take: so long that load is no reason, and less than the limit of
// `go test`, which would not say what is missing.
const patience = 5 * time.Minute

// Until repeats check until it succeeds.
func Until(t testing.TB, what string, check func() error) {
	t.Helper()
	if err := testkit.Within(t.Context(), patience, check); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// Fetch returns the body of a page; any status but 200 is an error.
func Fetch(url string) (string, error) { return testkit.Client{}.Fetch(context.Background(), url) }

// Answers is a check for Until: the page responds with status 200.
func Answers(url string) func() error {
	return func() error {
		_, err := Fetch(url)
		return err
	}
}
