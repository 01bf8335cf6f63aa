package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/internal/standin/machine"
	"github.com/gpu-exporter/gpu-exporter/rooms"
)

// Exit codes of doctor.
const (
	exitWarnings = 10
	exitErrors   = 20
)

// doctor runs the examination on a node, and returns what it says and its exit code.
func (m *simulated) doctor(flags ...string) (string, int) {
	m.t.Helper()
	return m.command("doctor", flags...)
}

func (m *simulated) command(name string, flags ...string) (string, int) {
	m.t.Helper()
	cmd := exec.Command(machine.Binary(m.t), slices.Concat([]string{name}, m.Flags(), flags)...)
	cmd.Env = append(cmd.Environ(), m.Env...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		m.t.Fatalf("%v\n%s", err, errs.String())
	}
	if errs.Len() > 0 {
		m.t.Logf("on standard error: %s", errs.String())
	}
	return out.String(), cmd.ProcessState.ExitCode()
}

func TestDoctor(t *testing.T) {
	t.Parallel()
	load := "process gpu=0 pid=5000 memory=1GiB busy=50% period=200ms\n"
	pods := strings.TrimSuffix(twoPods, "\n") + " pids=5000\n"
	for name, c := range map[string]struct {
		scenario, pods string
		change         func(*simulated)
		flags          []string
		code           int
		want           []string
	}{
		"healthy": {twoGPUs + load, pods, nil, nil, exitOK,
			[]string{"allocated to  ml/train-0/main (nvidia.com/gpu, source podresources)", "allocated to  none",
				"used by       ml/train-0/main (1 processes, attribution exclusive)", "ok       GPUs: 2 available"}},
		"no driver": {twoGPUs, twoPods, func(m *simulated) { m.Library += ".not-there" }, nil, exitErrors,
			[]string{"error    source nvml", "runtimeClassName: nvidia"}},
		"no socket": {twoGPUs, twoPods, func(m *simulated) { m.Socket += ".not-there" }, nil, exitWarnings,
			[]string{"warning  source podresources", "mounted read-only at the same path", "allocated to  unknown"}},
		"lost GPU": {twoGPUs + "at 0s gpu 1 lose\n", twoPods, nil, nil, exitErrors,
			[]string{"GPU is lost", "ok       GPUs: 1 available"}},
		"no host PID": {twoGPUs, twoPods, func(m *simulated) { m.Trees.Procfs = "/nonexistent" }, nil, exitOK,
			[]string{"info     feature processes", "add: hostPID: true"}},
		"opaque device IDs": {twoGPUs, twoPods + "pod x/liar container c " +
			"aliyun.com/gpu-mem=GPU-bbbbbbbb-0000-4000-8000-000000000000-_-1\n",
			nil, nil, exitWarnings,
			[]string{"resource aliyun.com/gpu-mem", "container x/liar/c: 1 devices of aliyun.com/gpu-mem could not be resolved to GPUs"}},
		"used but not allocated": {twoGPUs + load, "pod a/b container c pids=5000\npod ml/train-0 container main " +
			"nvidia.com/gpu=GPU-bbbbbbbb-0000-4000-8000-000000000000\n", nil, nil, exitOK,
			[]string{"mismatch      a/b/c uses the GPU, which is not allocated to it"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := node(t, c.scenario, c.pods)
			if c.change != nil {
				c.change(m)
			}
			said, code := m.doctor(c.flags...)
			if code != c.code {
				t.Errorf("exit code %d, want %d", code, c.code)
			}
			for _, want := range c.want {
				if !strings.Contains(said, want) {
					t.Errorf("it does not say %q", want)
				}
			}
			if t.Failed() {
				t.Log(said)
			}
		})
	}
}

// The five sentences are those of a healthy node, of one without a driver, and of one with a lost GPU and a container that uses
// what is not allocated to it.
func TestStatus(t *testing.T) {
	t.Parallel()
	load := "process gpu=0 pid=5000 memory=1GiB busy=50% period=200ms\n"
	for name, c := range map[string]struct {
		scenario, pods string
		library        string
		want           []string
	}{
		"healthy": {twoGPUs + load, strings.TrimSuffix(twoPods, "\n") + " pids=5000\n", "",
			[]string{"GPUs       2 GPUs on test-node (NVIDIA H100 80GB HBM3), driver 580.105.08.\n",
				"Allocated  1 of 2 GPUs allocated: GPU 0 to ml/train-0/main.\n", "Used       GPU 0 by ml/train-0/main.\n",
				"Health     2 GPUs healthy.\n", "Missing    Nothing that was requested; off: "}},
		"no driver": {twoGPUs, twoPods, ".not-there", []string{
			"GPUs       2 GPUs on the PCI bus of test-node, none readable: ",
			"; which GPUs ml/train-0/main has could not",
			"Used       Unknown: ", "Health     2 of 2 GPUs not healthy: "}},
		"no GPU": {"scenario 1\ntitle \"none\"\nsymbols R580\n", "", ".not-there",
			[]string{"GPUs       No GPU was found", "Allocated  Unknown: ", "Health     Unknown: "}},
		"lost and misused": {twoGPUs + load + "at 0s gpu 1 lose\n", "pod a/b container c pids=5000\n", "",
			[]string{"; 1 cannot be read.\n", "a/b/c uses the GPU, which is not allocated to it",
				"Health     1 of 2 GPUs not healthy: GPU 1 lost"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := node(t, c.scenario, c.pods)
			m.Library += c.library
			said, code := m.command("status")
			if code != exitOK || strings.Count(said, "\n") != 5 || strings.Contains(said, "\x1b") {
				t.Errorf("exit code %d, not five plain lines", code)
			}
			for _, want := range c.want {
				if !strings.Contains(said, want) {
					t.Errorf("it does not say %q", want)
				}
			}
			t.Log(said)
			var sentences []struct{ About, Severity, Text string }
			asJSON, _ := m.command("status", "--output=json")
			if err := json.Unmarshal([]byte(asJSON), &sentences); err != nil || len(sentences) != 5 || sentences[0].About != "GPUs" {
				t.Errorf("%v: %s", err, asJSON)
			}
		})
	}
}

// Each platform's reader gets lines that can be typed there: no manifests outside Kubernetes.
func TestDoctorNamesWhatCanBeTyped(t *testing.T) {
	c, err := parse([]string{"--slurm.job-mapping-dir=/run/gpu-jobs"}, io.Discard, io.Discard)
	must.OK(t, err)
	e, err := newExporter(c, time.Now, func(error) {}, hooks{})
	must.OK(t, err)
	names := []string{gpu.SourceNVML, gpu.SourcePodResources, gpu.SourceJobs, gpu.SourceKmsg, gpu.SourceVisible, "GPUs",
		"container_visible",
		"slurm_job_numbers", "processes", "container_names", "device_checkpoint", "pod_metadata", "process_names", "NO_PERMISSION"}
	for on, not := range map[rooms.Platform]string{rooms.Kubernetes: "systemctl", rooms.Container: "hostPath",
		rooms.Host: "securityContext"} {
		for _, name := range names {
			if text := e.fixes()[name][on]; text == "" && on == rooms.Kubernetes || strings.Contains(text, not) ||
				on != rooms.Kubernetes && (strings.Contains(text, "hostPID") || strings.Contains(text, "runtimeClassName") ||
					strings.Contains(text, "chart:")) {
				t.Errorf("platform %d, %s: %q", on, name, text)
			}
		}
	}
	t.Parallel()
	m := node(t, twoGPUs, "")
	m.Library += ".not-there"
	said, _ := m.doctor("--no-kubelet", "--slurm.job-mapping-dir=/nonexistent")
	for _, want := range []string{"libnvidia-ml.so.1", "deploy/slurm"} {
		if !strings.Contains(said, want) && !strings.Contains(said, "--gpus all") {
			t.Errorf("it does not say %q\n%s", want, said)
		}
	}
	if strings.Contains(said, "runtimeClassName") || strings.Contains(said, "feature pod_metadata") {
		t.Errorf("it speaks of Kubernetes:\n%s", said)
	}
}

func TestDoctorAsJSON(t *testing.T) {
	t.Parallel()
	m := node(t, twoGPUs, twoPods)
	said, code := m.doctor("--output=json")
	var d findings
	if err := json.Unmarshal([]byte(said), &d); err != nil || code != exitOK {
		t.Fatalf("exit code %d, %v:\n%s", code, err, said)
	}
	if d.Node != "test-node" || d.Driver != "580.105.08" || len(d.GPUs) != 2 || len(d.GPUs[0].AllocatedTo) != 1 ||
		!d.GPUs[1].AllocationKnown || len(d.GPUs[1].AllocatedTo) != 0 {
		t.Errorf("%+v", d)
	}
	if !slices.ContainsFunc(d.Findings, func(f finding) bool { return f.Check == "source podresources" && f.Severity == "ok" }) {
		t.Errorf("no word of the kubelet: %+v", d.Findings)
	}
}

// findings are what doctor writes as JSON.
type findings struct {
	Node, Driver string
	Findings     []finding
	GPUs         []struct {
		GPU, State, Health string
		AllocatedTo        []string `json:"allocated_to"`
		Users, Visible     []string
		AllocationKnown    bool `json:"allocation_known"`
	}
}

type finding struct{ Check, Severity, Finding string }

// doctor runs the command on what was published last, if the program has it.
func (s *stage) doctor(args ...string) (text string, found bool) {
	s.t.Helper()
	i := slices.IndexFunc(commands(), func(c rooms.Command) bool { return c.Name == "doctor" })
	if i < 0 {
		return "", false
	}
	var out bytes.Buffer
	commands()[i].Run(s.t.Context(), func([]string, io.Writer, io.Writer) (*rooms.Program, int, error) {
		p := s.e.program(s.config)
		p.Watch, p.Poll, p.Pause = func(context.Context) {}, func(context.Context) {}, func(context.Context, time.Duration) {}
		p.Step, p.Close = func(time.Time) {}, func() {}
		return p, exitOK, nil
	}, args, &out, os.Stderr)
	return out.String(), true
}

// agreesWithDoctor compares doctor's findings with the exposition of the same poll, both ways: sources, features, and of
// each GPU its state, health, allocations, users and mismatches.
func (s *stage) agreesWithDoctor() {
	s.t.Helper()
	text, found := s.doctor("--output=json")
	if !found {
		return
	}
	var d findings
	must.OK(s.t, json.Unmarshal([]byte(text), &d))
	var doctor, metrics []string
	for _, f := range d.Findings {
		kind, name, _ := strings.Cut(f.Check, " ")
		switch kind {
		case "source", "feature":
			doctor = append(doctor, fmt.Sprint(f.Check, " ", f.Severity == "ok"))
		case "container":
			doctor = append(doctor, name+" "+strings.Join(strings.Fields(f.Finding)[:4], " "))
		}
	}
	for _, g := range d.GPUs {
		doctor = append(doctor, fmt.Sprint(g.GPU, " up ", g.State == string(gpu.DeviceUp)), fmt.Sprint(g.GPU, " is ", g.Health),
			fmt.Sprint(g.GPU, " allocation known ", g.AllocationKnown))
		for _, line := range slices.Concat(g.AllocatedTo, g.Users) {
			if name, count, ok := strings.Cut(line, " ("); !ok {
				s.t.Errorf("%q names nothing", line)
			} else if n, _, ok := strings.Cut(count, " processes, "); ok {
				doctor = append(doctor, g.GPU+" used by "+name+" "+n)
			} else if mib, ok := strings.CutSuffix(count, " MiB)"); ok {
				doctor = append(doctor, g.GPU+" used by the host "+mib)
			} else {
				doctor = append(doctor, g.GPU+" allocated to "+name)
			}
		}
		for _, c := range g.Visible {
			doctor = append(doctor, g.GPU+" visible in "+c)
		}
	}
	add := func(lines ...string) { metrics = append(metrics, lines...) }
	known := map[string]bool{}
	now := s.series()
	for text := range now {
		if strings.HasPrefix(text, "gpu_allocation_ratio{") {
			known[labelValue(text, "uuid")] = true
		}
	}
	for text, v := range now {
		family, _, _ := strings.Cut(text, "{")
		uuid := labelValue(text, "uuid")
		container := strings.TrimPrefix(strings.TrimSuffix(labelValue(text, "namespace")+"/"+labelValue(text, "pod")+"/"+
			labelValue(text, "container"), "/"), "/")
		switch {
		case family == "gpu_exporter_source_up":
			add(fmt.Sprint("source ", labelValue(text, "source"), " ", v == 1))
		case family == "gpu_exporter_feature":
			if name := labelValue(text, "feature"); name != "kernel_log" && name != "ownership" { // covered by their sources
				add(fmt.Sprint("feature ", name, " ", labelValue(text, "state") == "on"))
			}
		case family == "gpu_container_unresolved_devices":
			add(fmt.Sprintf("%s %v devices of %s", container, v, labelValue(text, "resource")))
		case family == "gpu_device_up":
			add(fmt.Sprint(uuid, " up ", v == 1), fmt.Sprint(uuid, " allocation known ", known[uuid]))
		case family == "gpu_health" && v == 1:
			add(uuid + " is " + labelValue(text, "state"))
		case family == "gpu_container_allocation_ratio":
			add(uuid + " allocated to " + container)
		case family == "gpu_container_visible":
			add(uuid + " visible in " + container)
		case family == "gpu_container_processes" && v > 0:
			add(fmt.Sprint(uuid, " used by ", container, " ", v))
		case family == "gpu_unattributed_memory_used_bytes" && labelValue(text, "reason") == string(gpu.UnattributedHost) && v > 0:
			add(fmt.Sprint(uuid, " used by the host ", int(v)>>20))
		}
	}
	for _, list := range []*[]string{&doctor, &metrics} {
		slices.Sort(*list)
		*list = slices.Compact(*list)
	}
	if !slices.Equal(doctor, metrics) {
		s.t.Errorf("at %v doctor (-) and metrics (+) differ:\n%s", s.control.Now(), difference(strings.Join(doctor, "\n"),
			strings.Join(metrics, "\n")))
	}
}

// labelValue returns the value of a label of a series.
func labelValue(text, name string) string {
	_, rest, ok := strings.Cut(text, ","+name+`="`)
	if !ok {
		_, rest, _ = strings.Cut(text, "{"+name+`="`)
	}
	value, _, _ := strings.Cut(rest, `"`)
	return value
}
