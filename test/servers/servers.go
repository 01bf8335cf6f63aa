// Package servers builds the programs of the repository and the real servers of tools/, and runs them until
// a test ends.
package servers

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/standin"
)

// Program is one that a test runs.
type Program string

// The programs, by the names that they have in bin/.
const (
	Exporter   Program = "gpu-exporter"
	Report     Program = "gpu-report"
	Standin    Program = "standin"
	Prometheus Program = "prometheus"
	Promtool   Program = "promtool"
	VMAlert    Program = "vmalert"
)

// command builds the program into out, from the repository's root.
func (p Program) command(out string) (dir string, args []string) {
	switch p {
	case Exporter:
		return "", []string{"make", "build"}
	case Report:
		return "", []string{"go", "build", "-trimpath", "-o", out, "./cmd/report"}
	case Standin:
		return "", []string{"go", "build", "-o", out, "./cmd/standin"}
	case Prometheus, Promtool:
		// Without the clouds' service discoveries these build in minutes; static targets, files and HTTP are enough here.
		return "tools/prometheus", []string{"go", "build", "-tags", "remove_all_sd", "-o", out, "github.com/prometheus/prometheus/cmd/" + string(p)}
	default:
		return "tools/victoriametrics", []string{"go", "build", "-o", out, "github.com/VictoriaMetrics/VictoriaMetrics/app/" + string(p)}
	}
}

// built remembers what this test binary has built already, by program.
type built struct {
	mu   sync.Mutex
	done map[Program]error
}

var once = built{done: map[Program]error{}}

// Root returns the folder of the repository.
func Root(t testing.TB) string {
	t.Helper()
	root, err := standin.RepositoryRoot()
	if err != nil {
		t.Fatal(err)
	}
	return root
}

// Build builds the program, once for all tests of a package, and returns where it is. Go's cache makes the
// second time quick.
func Build(t testing.TB, p Program) (path string) {
	t.Helper()
	root := Root(t)
	path = filepath.Join(root, "bin", string(p))
	once.mu.Lock()
	defer once.mu.Unlock()
	err, known := once.done[p]
	if !known {
		dir, args := p.command(path)
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Dir = filepath.Join(root, dir)
		var out []byte
		if out, err = cmd.CombinedOutput(); err != nil {
			err = fmt.Errorf("%s: %w\n%s", strings.Join(args, " "), err, out)
		}
		once.done[p] = err
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// Output is what a program says, readable while it runs.
type Output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write keeps what is said.
func (o *Output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

// String returns what was said so far.
func (o *Output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// Start runs a program until the test ends; a test that fails shows the end of what it said.
func Start(t testing.TB, dir, path string, args ...string) *Output {
	t.Helper()
	cmd := exec.Command(path, args...)
	cmd.Dir = dir
	out := &Output{}
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Signal(syscall.SIGTERM)
		cmd.Wait()
		if t.Failed() {
			text := out.String()
			t.Logf("%s said:\n%s", filepath.Base(path), text[max(0, len(text)-4000):])
		}
	})
	return out
}

// Address returns an address of this machine on which nobody listens.
func Address(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// Within asks again and again until check is satisfied.
func Within(t testing.TB, limit time.Duration, what string, check func() error) {
	t.Helper()
	var err error
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(250 * time.Millisecond) {
		if err = check(); err == nil {
			return
		}
	}
	t.Fatalf("%s: %v", what, err)
}

// Fetch returns a page; any status but 200 is an error.
func Fetch(url string) (string, error) {
	res, err := http.Get(url)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", url, res.Status, body)
	}
	return string(body), err
}

// Answers is a check for Within: the page is there.
func Answers(url string) func() error {
	return func() error {
		_, err := Fetch(url)
		return err
	}
}
