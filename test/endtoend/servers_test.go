// Package endtoend_test plays whole installations: the exporter on a fake driver, a kubelet, a simulated
// fleet, a real Prometheus (and a VictoriaMetrics) with the shipped rules, and every query of the boards.
package endtoend_test

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// programs are what the tests run, built once.
type programs struct{ root, exporter, standin, prometheus, vmalert string }

var build = sync.OnceValues(func() (programs, error) {
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		return programs{}, err
	}
	bin := func(name string) string { return filepath.Join(root, "bin", name) }
	p := programs{root, bin("gpu-exporter"), bin("standin"), bin("prometheus"), bin("vmalert")}
	for _, step := range []struct {
		dir  string
		args []string
	}{
		{root, []string{"make", "build"}},
		{root, []string{"go", "build", "-o", p.standin, "./cmd/standin"}},
		{filepath.Join(root, "tools", "prometheus"), []string{"go", "build", "-tags", "remove_all_sd", "-o", p.prometheus, "github.com/prometheus/prometheus/cmd/prometheus"}},
		{filepath.Join(root, "tools", "victoriametrics"), []string{"go", "build", "-o", p.vmalert, "github.com/VictoriaMetrics/VictoriaMetrics/app/vmalert"}},
	} {
		cmd := exec.Command(step.args[0], step.args[1:]...)
		cmd.Dir = step.dir
		if out, err := cmd.CombinedOutput(); err != nil {
			return p, fmt.Errorf("%s: %w\n%s", strings.Join(step.args, " "), err, out)
		}
	}
	return p, nil
})

func built(t *testing.T) programs {
	t.Helper()
	p, err := build()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// output is what a program says, readable while it runs.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// start runs a program until the test ends.
func start(t *testing.T, dir, name string, args ...string) *output {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	out := &output{}
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
			if len(text) > 4000 {
				text = "… " + text[len(text)-4000:]
			}
			t.Logf("%s said:\n%s", filepath.Base(name), text)
		}
	})
	return out
}

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

func address(t *testing.T) string { return fmt.Sprintf("127.0.0.1:%d", freePort(t)) }

// within asks again and again until check is satisfied.
func within(t *testing.T, limit time.Duration, what string, check func() error) {
	t.Helper()
	var err error
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(250 * time.Millisecond) {
		if err = check(); err == nil {
			return
		}
	}
	t.Fatalf("%s: %v", what, err)
}

func answers(url string) func() error {
	return func() error {
		res, err := http.Get(url)
		if err != nil {
			return err
		}
		defer res.Body.Close()
		io.Copy(io.Discard, res.Body)
		if res.StatusCode != http.StatusOK {
			return fmt.Errorf("%s: %s", url, res.Status)
		}
		return nil
	}
}

// node starts the exporter on a scenario and pods.
func (p programs) node(t *testing.T, scenario, pods string) (address_ string) {
	t.Helper()
	at := address(t)
	start(t, p.root, p.standin, "--quiet", "--scenario="+scenario, "--pods="+pods, "--", p.exporter, "--node-name=gpu-node-1", "--web.listen-address="+at)
	within(t, 60*time.Second, "the exporter", answers("http://"+at+"/-/ready"))
	return at
}

// fleet serves the simulated fleet of the demo.
func (p programs) fleet(t *testing.T) (address_ string) {
	t.Helper()
	at := address(t)
	start(t, p.root, p.standin, "fleet", "--preset=demo", "serve", "--listen="+at)
	within(t, 60*time.Second, "the fleet", answers("http://"+at+"/sd"))
	return at
}

// server starts a Prometheus with that configuration and data.
func (p programs) server(t *testing.T, dir, config string) (url string) {
	t.Helper()
	file := filepath.Join(dir, "prometheus.yml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	at := address(t)
	start(t, dir, p.prometheus, "--config.file="+file, "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+at,
		"--web.enable-remote-write-receiver", "--log.level=warn")
	url = "http://" + at
	within(t, 60*time.Second, "Prometheus", answers(url+"/-/ready"))
	return url
}

func scrapeConfig(exporter, fleet string) string {
	text := "scrape_configs:\n"
	if exporter != "" {
		text += "  - job_name: gpu-exporter\n    honor_labels: true\n    static_configs:\n      - targets: ['" + exporter + "']\n"
	}
	if fleet != "" {
		text += "  - job_name: fleet\n    honor_labels: true\n    http_sd_configs:\n      - url: http://" + fleet + "/sd\n"
	}
	return text
}
