package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/internal/standin/machine"
	"github.com/gpu-exporter/gpu-exporter/internal/testkit"
)

// The tests of this file run the real binary in real time: it loads the fake driver by its path, asks a
// PodResources socket, and is looked at through HTTP alone.

// simulated is a node for the real binary.
type simulated struct {
	*machine.Node
	t *testing.T
}

// node sets a node up from the texts of a scenario and of its pods. Nothing of it runs but the kubelet.
func node(t *testing.T, text, pods string) *simulated {
	t.Helper()
	return &simulated{machine.Parse(t, text, pods), t}
}

// process is a running exporter.
type process struct{ *machine.Exporter }

// start runs the exporter on the node, with poll groups faster than usual so that tests are short.
func (m *simulated) start(flags ...string) *process {
	m.t.Helper()
	return m.startAt(append([]string{"--poll.fast=200ms", "--poll.medium=400ms", "--poll.slow=1s", "--poll.kubelet=1s",
		"--call-deadline=1s"}, flags...)...)
}

// startAt runs it with the poll groups of the flags.
func (m *simulated) startAt(flags ...string) *process {
	m.t.Helper()
	return &process{m.Start(m.t, machine.Options{Flags: flags})}
}

func (p *process) get(path string) (int, string, error) {
	page, err := testkit.Client{}.Get(context.Background(), p.Base()+path)
	return page.Status, page.Text, err
}

// series are the samples of one scrape, by their text before the value.
type series map[string]float64

func parseSeries(text string) series {
	out := series{}
	for line := range strings.Lines(text) {
		at := strings.LastIndexByte(line, ' ')
		if line[0] == '#' || at < 0 {
			continue
		}
		if v, err := strconv.ParseFloat(strings.TrimSuffix(line[at+1:], "\n"), 64); err == nil {
			out[line[:at]] = v
		}
	}
	return out
}

// select returns the values of a family's series whose labels match all of the given pairs `name="value"`.
func (s series) match(family string, pairs ...string) []float64 {
	var out []float64
next:
	for text, v := range s {
		name, labels, _ := strings.Cut(text, "{")
		if name != family {
			continue
		}
		for _, p := range pairs {
			if !strings.Contains("{,"+labels, "{"+p) && !strings.Contains(","+labels, ","+p) {
				continue next
			}
		}
		out = append(out, v)
	}
	return out
}

// one returns the only value, and an error if there is not exactly one.
func (s series) one(family string, pairs ...string) (float64, error) {
	v := s.match(family, pairs...)
	if len(v) != 1 {
		return 0, fmt.Errorf("%d series of %s%v", len(v), family, pairs)
	}
	return v[0], nil
}

func (s series) is(want float64, family string, pairs ...string) error {
	v, err := s.one(family, pairs...)
	if err == nil && v != want {
		err = fmt.Errorf("%s%v is %v, not %v", family, pairs, v, want)
	}
	return err
}

func (s series) none(family string, pairs ...string) error {
	if v := s.match(family, pairs...); len(v) > 0 {
		return fmt.Errorf("%s%v is there: %v", family, pairs, v)
	}
	return nil
}

func (p *process) scrape() (series, error) {
	code, body, err := p.get("/metrics")
	if err == nil && code != http.StatusOK {
		err = fmt.Errorf("/metrics responds %d: %s", code, body)
	}
	return parseSeries(body), err
}

// patience is how long the program may take to show what it must: so long that load is no reason, and less than the limit of
// `go test`, which would not say what is missing.
const patience = 10 * time.Minute

// until scrapes again and again until check is satisfied, and fails the test with its last complaint.
func (p *process) until(t *testing.T, what string, check func(series) error) series {
	t.Helper()
	var last error
	for start := time.Now(); time.Since(start) < patience; {
		s, err := p.scrape()
		if err == nil {
			if err = check(s); err == nil {
				return s
			}
		}
		last = err
		select {
		case <-p.Done:
			t.Fatalf("%s: the exporter ended: %v\n%s", what, p.Err, p.Said())
		case <-time.After(50 * time.Millisecond):
		}
	}
	t.Fatalf("%s: %v", what, last)
	return nil
}

func all(errs ...error) error { return errors.Join(errs...) }

// verify fails the test with the errors that are not nil.
func verify(t *testing.T, errs ...error) {
	t.Helper()
	if err := all(errs...); err != nil {
		t.Error(err)
	}
}

const twoGPUs, twoPods = machine.TwoGPUs, machine.TwoPods

const GPUA, GPUB = `uuid="` + machine.GPUA + `"`, `uuid="` + machine.GPUB + `"`

func bothUp(s series) error {
	return all(s.is(1, "gpu_device_up", GPUA), s.is(1, "gpu_device_up", GPUB), s.is(1, "gpu_allocation_ratio", GPUA),
		s.is(0, "gpu_allocation_ratio", GPUB))
}

func TestRealBinaryServesANode(t *testing.T) {
	t.Parallel()
	m := node(t, twoGPUs, twoPods)
	p := m.start()
	p.until(t, "two GPUs, one allocated", func(s series) error {
		_, power := s.one("gpu_power_watts", GPUA)
		_, observed := s.one("gpu_observed_seconds_total", GPUA)
		return all(bothUp(s), power, observed, s.is(1, "gpu_container_allocation_ratio", GPUA, `pod="train-0"`, `namespace="ml"`,
			`container="main"`, `resource="nvidia_com_gpu"`))
	})
	for path, want := range map[string]string{"/": "ml/train-0", "/-/healthy": "healthy", "/-/ready": "ready"} {
		if code, body, err := p.get(path); err != nil || code != 200 || !strings.Contains(body, want) {
			t.Errorf("%s: %d, %v, without %q:\n%s", path, code, err, want, body)
		}
	}
	_, page, err := p.get("/metrics")
	if one := "\ngo_sched_gomaxprocs_threads 1\n"; os.Getenv("GOMAXPROCS") == "" && !strings.Contains(page, one) {
		t.Errorf("/metrics: %v, without %q: Go code runs on several processors", err, one)
	}
	formats(t, p)
	stopsAtOnce(t, p)
}

// formats requests the three forms of the exposition, compressed.
func formats(t *testing.T, p *process) {
	t.Helper()
	for accept, want := range map[string]struct {
		contentType string
		contains    []string
	}{
		"": {"text/plain", []string{"# TYPE gpu_energy_joules_total counter", "gpu_power_watts{"}},
		"application/openmetrics-text;version=1.0.0": {"application/openmetrics-text",
			[]string{"# TYPE gpu_energy_joules counter", "# UNIT gpu_energy_joules joules", "\n# EOF\n"}},
		"application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited": {"application/vnd.google.protobuf",
			[]string{"gpu_exporter_poll_call_duration_seconds"}},
	} {
		req, err := http.NewRequest(http.MethodGet, p.Base()+"/metrics", nil)
		must.OK(t, err)
		req.Header.Set("Accept", accept)
		res, err := http.DefaultClient.Do(req) // asks for gzip by itself, and undoes it
		must.OK(t, err)
		body, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err == nil && !res.Uncompressed {
			err = errors.New("it is not compressed")
		}
		if err == nil && !strings.HasPrefix(res.Header.Get("Content-Type"), want.contentType) {
			err = fmt.Errorf("it is %s", res.Header.Get("Content-Type"))
		}
		for _, c := range want.contains {
			if err == nil && !strings.Contains(string(body), c) {
				err = fmt.Errorf("it lacks %q", c)
			}
		}
		if err != nil {
			t.Errorf("Accept %q: %v", accept, err)
		}
	}
}

// stopsAtOnce sends SIGTERM and expects a clean end. That it comes within a second is tested in the time of a bubble, in
// internal/sampler and TestPrompt; a program that does not end is killed, which is no clean end.
func stopsAtOnce(t *testing.T, p *process) {
	t.Helper()
	if p.Stop(); p.Err != nil {
		t.Errorf("it ended with %v", p.Err)
	}
}

func TestHelpAndVersion(t *testing.T) {
	t.Parallel()
	for flag, want := range map[string]string{"--help": "--kubelet.socket", "--version": "gpu-exporter, version"} {
		out, err := exec.Command(machine.Binary(t), flag).CombinedOutput()
		if err != nil || !strings.Contains(string(out), want) {
			t.Errorf("%s: %v\n%s", flag, err, out)
		}
	}
}

func TestLibraryThatIsNotNVML(t *testing.T) {
	t.Parallel()
	m := node(t, twoGPUs, twoPods)
	m.Library = notNVML(t)
	p := m.start()
	// The source is down from the start; why is known after the first attempt.
	p.until(t, "the page names the function", func(s series) error {
		if _, body, _ := p.get("/"); !strings.Contains(body, "nvmlInit_v2") {
			return errors.New("it does not")
		}
		return s.is(0, "gpu_exporter_source_up", `source="nvml"`)
	})
	for path, want := range map[string]struct {
		code int
		text string
	}{"/-/ready": {http.StatusServiceUnavailable, "driver"}, "/-/healthy": {200, ""}} {
		if code, body, _ := p.get(path); code != want.code || !strings.Contains(body, want.text) {
			t.Errorf("%s responds %d without %q:\n%s", path, code, want.text, body)
		}
	}
}

// notNVML compiles a library that is none of ours.
func notNVML(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	source, library := filepath.Join(dir, "other.c"), filepath.Join(dir, "libother.so")
	must.OK(t, os.WriteFile(source, []byte("int other(void) { return 1; }\n"), 0o644))
	if out, err := exec.Command("gcc", "-shared", "-fPIC", "-o", library, source).CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
	return library
}

func TestSocketThatIsAbsentOrNone(t *testing.T) {
	t.Parallel()
	for name, make := range map[string]func(path string) error{
		"absent":       func(string) error { return nil },
		"not a socket": func(path string) error { return os.WriteFile(path, nil, 0o644) },
	} {
		t.Run(name, func(t *testing.T) {
			m := node(t, twoGPUs, twoPods)
			m.Socket = filepath.Join(m.Dir, "other.sock")
			must.OK(t, make(m.Socket))
			p := m.start()
			p.until(t, "GPUs without owners, and none known free", func(s series) error {
				return all(s.is(1, "gpu_device_up", GPUA), s.none("gpu_allocation_ratio"), s.none("gpu_container_allocation_ratio"),
					s.is(0, "gpu_exporter_source_up", `source="podresources"`))
			})
			// The source is down from the start; why is known after the first attempt.
			p.until(t, "the page names the socket", func(series) error {
				if _, body, _ := p.get("/"); !strings.Contains(body, m.Socket) {
					return errors.New("it does not")
				}
				return nil
			})
		})
	}
}

// Two containers share a GPU of 300 W: the GPU's power is there once, and its sum without any selector is 300.
func TestTwoContainersOneGPU(t *testing.T) {
	t.Parallel()
	const id = "GPU-aaaaaaaa-0000-4000-8000-000000000000"
	one := regexp.MustCompile(`(?m)^gpu 1 .*\n`).ReplaceAllString(twoGPUs, "  Field[185,gpu] = 300000\n")
	m := node(t, one, "allocatable nvidia.com/gpu "+id+"::0 "+id+"::1\npod a/p container c nvidia.com/gpu="+id+
		"::0\npod b/q container c nvidia.com/gpu="+id+"::1\n")
	p := m.start()
	s := p.until(t, "two containers", func(s series) error {
		return all(s.is(0.5, "gpu_container_allocation_ratio", `pod="p"`), s.is(0.5, "gpu_container_allocation_ratio", `pod="q"`),
			s.is(300, "gpu_power_watts"), s.is(1, "gpu_allocation_ratio"))
	})
	for text := range s {
		name, labels, _ := strings.Cut(text, "{")
		if strings.HasPrefix(name, "gpu_") && strings.Contains(labels, "uuid=") && !strings.HasPrefix(name, "gpu_container_") &&
			strings.Contains(labels, "pod=") {
			t.Errorf("a device family carries a pod: %s", text)
		}
	}
	if n := len(s.match("gpu_power_watts")); n != 1 {
		t.Errorf("%d series of gpu_power_watts", n)
	}
}

// A scheme that sells memory by the slice gives the share of the GPU's memory, which the driver tells.
func TestMemorySlicesBecomeShares(t *testing.T) {
	t.Parallel()
	const id = "GPU-aaaaaaaa-0000-4000-8000-000000000000"
	m := node(t, twoGPUs, "allocatable nvidia.com/gpu-10gb "+id+"::0 "+id+"::1\npod a/p container c nvidia.com/gpu-10gb="+id+"::0\n")
	p := m.start()
	p.until(t, "ten of eighty gigabytes", func(s series) error {
		share, err := s.one("gpu_container_allocation_ratio", GPUA, `pod="p"`)
		if err == nil && (share < 0.11 || share > 0.14) {
			err = fmt.Errorf("a share of %v", share)
		}
		limited, limitErr := s.one("gpu_container_memory_limit_bytes", GPUA, `pod="p"`)
		if limitErr == nil && (limited < 9e9 || limited > 11e9) {
			limitErr = fmt.Errorf("%v bytes granted", limited)
		}
		return all(err, limitErr)
	})
}
