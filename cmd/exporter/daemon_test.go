package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/internal/standin"
	"github.com/gpu-exporter/gpu-exporter/internal/standin/machine"
)

// kmsgDown is satisfied once the kernel log was tried a number of times and cannot be read for a reason.
func (p *process) kmsgDown(tries float64, reason string) func(series) error {
	return func(s series) error {
		if _, page, err := p.get("/"); err != nil || !strings.Contains(page, reason) {
			return fmt.Errorf("the node page lacks %q: %w", reason, err)
		}
		errs, err := s.one("gpu_exporter_source_errors_total", `source="kmsg"`)
		if err == nil && errs < tries {
			err = fmt.Errorf("tried %v times", errs)
		}
		return all(err, s.is(0, "gpu_exporter_source_up", `source="kmsg"`), s.is(1, "gpu_exporter_feature", `feature="kernel_log"`,
			`state="missing_permission"`), bothUp(s))
	}
}

// A kernel log that may not be opened, is not mounted, or cannot be read ends nothing: the rest is served, and it is read
// once it can be.
func TestKernelLogThatCannotBeRead(t *testing.T) {
	t.Parallel()
	m := node(t, twoGPUs, twoPods)
	m.Kmsg = filepath.Join(m.Dir, "kmsg")
	p := m.start()
	p.until(t, "without a kernel log", p.kmsgDown(1, "mount the host&#39;s kernel log there"))
	must.OK(t, os.Mkdir(m.Kmsg, 0o755))
	p.until(t, "with one that cannot be read", p.kmsgDown(2, m.Kmsg+": is a directory"))
	must.OK(t, errors.Join(os.Remove(m.Kmsg), os.WriteFile(m.Kmsg, nil, 0o644)))
	p.until(t, "the kernel log is read", func(s series) error {
		return all(bothUp(s), s.is(1, "gpu_exporter_source_up", `source="kmsg"`),
			s.is(1, "gpu_exporter_feature", `feature="kernel_log"`, `state="on"`))
	})
	if n := strings.Count(p.Said(), "kernel log not readable"); n != 2 {
		t.Errorf("two reasons, logged %d times:\n%s", n, p.Said())
	}
	stopsAtOnce(t, p)
}

// A data source that is absent, or is something else, ends nothing, whichever it is.
func TestNoDataSourceEndsTheExporter(t *testing.T) {
	t.Parallel()
	for name, value := range map[string]string{"absent": "/nonexistent/source", "a directory": t.TempDir(), "a device": "/dev/null"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := node(t, twoGPUs, "")
			m.Library, m.Socket, m.Kmsg = value, value, value
			m.Trees.Sysfs, m.Trees.Procfs, m.Trees.PodLogs, m.Trees.ContainerLogs = value, value, value, value
			p := m.start("--path.cgroup="+value, "--path.dev="+value, "--slurm.job-mapping-dir="+value, "--slurm.job-numbers",
				"--containers.visible", "--kubelet.checkpoint="+value, "--kubelet.dra-checkpoint="+value,
				"--gpu-fractioning.map-dir="+value, "--gpu-fractioning.namespaces="+value, "--kubernetes.pods",
				"--kubernetes.resource-slices", "--kubernetes.api-server=http://127.0.0.1:1", "--kubernetes.token-file="+value,
				"--kubernetes.ca-file="+value, "--docker.socket="+value, "--podman.socket="+value)
			read := map[string]float64{}
			p.until(t, "every data source was tried, and the rest goes on", func(s series) error {
				polls, err := s.one("gpu_exporter_source_errors_total", `source="nvml"`)
				if err == nil && polls < 3 {
					err = fmt.Errorf("the driver was tried %v times", polls)
				}
				for text, up := range s {
					if source, ok := strings.CutPrefix(text, "gpu_exporter_source_up{"); ok {
						read[source] = up
					}
				}
				return all(err, s.is(0, "gpu_exporter_source_up", `source="nvml"`))
			})
			if len(read) < 8 {
				t.Errorf("%d data sources: %v", len(read), read)
			}
			stopsAtOnce(t, p)
		})
	}
}

// A container that was created before the kernel module was loaded has no library, and gets none: the exporter exits once,
// the container is recreated, and what runs in it waits, whatever it got.
func TestContainerFromBeforeTheDriver(t *testing.T) {
	t.Parallel()
	m := node(t, twoGPUs, twoPods)
	library := m.Library
	m.Library += ".not-there"
	without := func(p *process, note string) func(series) error {
		return func(s series) error {
			if _, page, err := p.get("/"); err != nil || !strings.Contains(page, note) {
				return fmt.Errorf("the node page lacks %q: %w", note, err)
			}
			return s.is(0, "gpu_exporter_source_up", `source="nvml"`)
		}
	}
	p := m.start()
	p.until(t, "neither library nor module", without(p, "neither library nor kernel module"))
	must.OK(t, os.MkdirAll(filepath.Join(m.Trees.Sysfs, "module/nvidia"), 0o755))
	<-p.Done // else it goes on without a library
	var exit *exec.ExitError
	if !errors.As(p.Err, &exit) || exit.ExitCode() != exitNoLibrary {
		t.Errorf("it exited with %v, not code %d", p.Err, exitNoLibrary)
	}
	lines := strings.Split(strings.TrimSpace(p.Said()), "\n")
	if last := lines[len(lines)-1]; !strings.HasPrefix(last, "gpu-exporter: the NVIDIA kernel module was loaded after") {
		t.Errorf("the last line is %q", last)
	}

	p = m.start() // another container without the library
	p.until(t, "it stays beyond the time after which the first one exited", func(s series) error {
		tries, err := s.one("gpu_exporter_source_errors_total", `source="nvml"`)
		if err == nil && tries < 3 { // at 0, 1 and 3 s; the limit is 2 s here
			err = fmt.Errorf("tried %v times", tries)
		}
		return all(err, without(p, "no NVML library, but the NVIDIA kernel module is loaded")(s))
	})
	if n := strings.Count(p.Said(), "cannot initialize NVML"); n != 1 {
		t.Errorf("logged %d times:\n%s", n, p.Said())
	}
	if said, code := m.doctor(); code != exitErrors || !strings.Contains(said, "but the NVIDIA kernel module is loaded") {
		t.Errorf("doctor, exit code %d:\n%s", code, said)
	}
	must.OK(t, os.Rename(library, m.Library))
	p.until(t, "the library came", bothUp)
	stopsAtOnce(t, p)
}

// What reads the log may end before the exporter.
func TestLogWithoutReader(t *testing.T) {
	t.Parallel()
	m := node(t, twoGPUs, twoPods)
	m.Kmsg = filepath.Join(m.Dir, "kmsg")
	r, w, err := os.Pipe()
	must.OK(t, err)
	address, err := standin.FreeAddress()
	must.OK(t, err)
	cmd := exec.Command(machine.Binary(t), append(m.Flags(), "--web.listen-address="+address, "--poll.fast=200ms")...)
	cmd.Env = append(os.Environ(), m.Env...)
	cmd.Stdout, cmd.Stderr = w, w
	must.OK(t, errors.Join(cmd.Start(), w.Close(), r.Close()))
	p := &process{&machine.Exporter{Address: address, PID: cmd.Process.Pid, Done: make(chan struct{})}}
	go func() { p.Err = cmd.Wait(); close(p.Done) }()
	t.Cleanup(p.Stop)
	// Each line that it logs now would end it: that the log is tried a third time is after two of them.
	p.until(t, "it logged", p.kmsgDown(3, "mount the host&#39;s kernel log there"))
}
