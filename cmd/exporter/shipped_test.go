package main

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gpu-exporter/gpu-exporter/internal/architecture"
	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/internal/standin"
	"github.com/gpu-exporter/gpu-exporter/internal/standin/machine"
)

// nobody is the user of the image, and here any user without permissions.
const nobody = 65534

// TestShippedToUsers starts what a host without containers starts as an ordinary user starts it: with the arguments and
// the environment of the packages' unit, and of `make run`. Only what these document is set: the address, and the library.
// test/shipped starts every form under the namespaces of its runtime.
func TestShippedToUsers(t *testing.T) {
	t.Parallel()
	root := machine.Root(t)
	packaged, err := architecture.Packaged(root)
	must.OK(t, err)
	unit, err := architecture.Unit(packaged["/usr/lib/systemd/system/gpu-exporter.service"])
	must.OK(t, err)
	args, env, err := architecture.Started(unit, packaged)
	must.OK(t, err)
	variables, err := os.ReadFile(packaged["/etc/default/gpu-exporter"])
	must.OK(t, err)
	documented := func(t *testing.T, name, value string) string {
		t.Helper()
		if !strings.Contains(string(variables), "\n#"+name+"=") {
			t.Fatalf("the packages' environment file does not have %s", name)
		}
		return name + "=" + value
	}
	address := func(t *testing.T) string {
		t.Helper()
		a, err := standin.FreeAddress()
		must.OK(t, err)
		return a
	}
	t.Run("unit", func(t *testing.T) {
		t.Parallel()
		at := address(t)
		n := machine.Parse(t, twoGPUs, twoPods)
		s := &shipped{machine.Options{Command: args, Env: append(slices.Clone(env), documented(t, "GPU_EXPORTER_WEB_LISTEN_ADDRESS", at)),
			Address: at, User: nobody}, n}
		s.serves(t)
	})
	t.Run("unit with a driver", func(t *testing.T) {
		t.Parallel()
		at := address(t)
		n := machine.Parse(t, twoGPUs, twoPods)
		s := &shipped{machine.Options{Command: args, Env: slices.Concat(env, []string{documented(t, "GPU_EXPORTER_WEB_LISTEN_ADDRESS", at),
			documented(t, "GPU_EXPORTER_NVML_LIBRARY", n.Library)}, n.Env), Address: at, User: nobody}, n}
		if page := s.serves(t); parseSeries(page).is(1, "gpu_exporter_source_up", `source="nvml"`) != nil {
			t.Error("the driver is there, and not read")
		}
	})
	t.Run("make run", func(t *testing.T) {
		t.Parallel()
		at := address(t)
		args, err := architecture.Making(root, "run", "LISTEN="+at)
		must.OK(t, err)
		s := &shipped{machine.Options{Command: args, Env: []string{"PATH=" + os.Getenv("PATH")}, Address: at, User: nobody},
			machine.Parse(t, twoGPUs, twoPods)}
		s.serves(t)
	})
}

// shipped is a form that a user starts.
type shipped struct {
	options machine.Options
	node    *machine.Node
}

// publishedAt is the time of what the page of the node shows.
var publishedAt = regexp.MustCompile(`read (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) UTC`)

// serves starts the form and waits until it has published three times: what ends a program at its start does so before.
// It is ready where it has a driver, and every data source that is down is on the page with a reason. It returns the
// metrics.
func (s *shipped) serves(t *testing.T) (metrics string) {
	t.Helper()
	// The user may open neither the directories of a test nor, perhaps, the repository.
	dir, err := os.MkdirTemp("", "shipped-")
	must.OK(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	program, err := os.ReadFile(machine.Binary(t))
	must.OK(t, err)
	command := slices.Clone(s.options.Command)
	command[0] = filepath.Join(dir, "gpu-exporter")
	must.OK(t, errors.Join(os.Chmod(dir, 0o755), os.WriteFile(command[0], program, 0o755), os.Chmod(filepath.Dir(s.node.Dir), 0o755),
		os.Chmod(s.node.Control.Path(), 0o666)))
	s.options.Command = command
	p := &process{s.node.Start(t, s.options)}
	times := map[string]bool{}
	p.until(t, "it publishes", func(series) error {
		_, page, err := p.get("/")
		if m := publishedAt.FindStringSubmatch(page); m != nil {
			times[m[1]] = true
		}
		if err == nil && len(times) < 3 {
			err = fmt.Errorf("%d times", len(times))
		}
		return err
	})
	var scraped series
	if _, metrics, err = p.get("/metrics"); err != nil {
		t.Fatal(err)
	}
	scraped = parseSeries(metrics)
	driver := scraped.is(1, "gpu_exporter_source_up", `source="nvml"`) == nil
	if code, body, err := p.get("/-/ready"); (code == http.StatusOK) != driver {
		t.Errorf("/-/ready responds with %d, %v, with a driver: %v: %s", code, err, driver, body)
	}
	_, page, err := p.get("/")
	must.OK(t, err)
	for text, up := range scraped {
		if name, ok := strings.CutPrefix(text, "gpu_exporter_source_up{"); ok && up == 0 {
			source := regexp.MustCompile(`source="([^"]*)"`).FindStringSubmatch(name)[1]
			_, row, _ := strings.Cut(page, "<div>"+source+"</div>")
			if row, _, _ = strings.Cut(row, "</tr>"); !regexp.MustCompile(`down</span><br>[^<]`).MatchString(row) {
				t.Errorf("%s is down, and the page has no reason: %s", source, row)
			}
		}
	}
	return metrics
}
