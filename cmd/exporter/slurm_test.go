package main

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/internal/standin"
)

// slurmLoad has two jobs on GPU 0, one of whose cgroups carries a SLUID, and a service of the host on GPU 1.
const slurmLoad = "process gpu=0 pid=5000 memory=1GiB busy=40% period=1s\nprocess gpu=0 pid=5001 memory=2GiB busy=20% period=1s " +
	"phase=500ms\n" +
	"process gpu=1 pid=5002 memory=1GiB busy=10% period=1s\n"

const slurmProcesses = "process 5000 cgroup=/system.slice/slurmstepd.scope/job_42/step_0/user/task_0\n" +
	"process 5001 cgroup=/system.slice/slurmstepd.scope/sEKNKTV3WPV500/step_0/user/task_0 env=TOKEN:hunter2 env=SLURM_JOB_ID:43\n"

// jobMapping writes which job has which GPU, as a prolog does.
func jobMapping(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		must.OK(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	return dir
}

// Slurm alone, without a kubelet: jobs hold, their processes use, and the sums close while jobs come and go.
func slurmWithoutAKubelet(t *testing.T) {
	s := parseScenario(t, twoGPUs+slurmLoad)
	dir := jobMapping(t, map[string]string{"0": "42\n43\n"})
	st := play(t, s, slurmProcesses, "--no-kubelet", "--slurm.job-mapping-dir="+dir, "--slurm.job-numbers")
	now := st.watched(2 * time.Minute)
	job42, job43 := []string{GPUA, `pod="slurm/42"`, `namespace=""`, `container=""`}, []string{GPUA, `pod="slurm/43"`}
	verify(t, now.is(0.5, "gpu_container_allocation_ratio", append(job42, `resource="gres_gpu"`)...),
		now.is(0.5, "gpu_container_allocation_ratio", job43...),
		now.is(1, "gpu_allocation_ratio", GPUA), now.is(0, "gpu_allocation_ratio", GPUB),
		now.is(2<<30, "gpu_container_memory_used_bytes", job43...),
		now.is(1, "gpu_container_attribution_info", append(job43, `method="process"`, `source="slurm_job_mapping"`)...),
		now.is(1, "gpu_container_mismatch", GPUB, `pod="systemd/host-gpu-job.service"`), now.none("gpu_container_mismatch", GPUA),
		now.is(1, "gpu_node_allocated_devices", `resource="gres_gpu"`),
		now.is(1, "gpu_exporter_source_up", `source="slurm_job_mapping"`),
		now.is(1, "gpu_exporter_feature", `feature="ownership"`, `state="on"`),
		now.is(1, "gpu_exporter_feature", `feature="slurm_job_numbers"`, `state="on"`))
	for pid, labels := range map[int][]string{5000: job42, 5001: job43} {
		got, err := now.one("gpu_container_busy_seconds_total", labels...)
		if want := float64(s.Truth(0).ProcessBusy(pid, 0, st.control.Now())); err != nil || math.Abs(got-want) > 0.1*want+1 {
			t.Errorf("process %d worked %.1f s, and its job got %.1f: %v", pid, want, got, err)
		}
	}
	// The epilog of one job, and a line that is none: the GPU of the other file is not free any more.
	for name, text := range map[string]string{"0": "43\n", "1": "<b>\n"} {
		must.OK(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	now = st.watched(time.Minute)
	verify(t, now.is(1, "gpu_container_allocation_ratio", job43...), now.none("gpu_container_allocation_ratio", job42...),
		now.none("gpu_allocation_ratio", GPUB),
		now.is(0, "gpu_exporter_source_up", `source="slurm_job_mapping"`), now.is(1, "gpu_container_mismatch", job42...))
	if text := st.metrics(); strings.Contains(text, "hunter2") || strings.Contains(text, "<b>") {
		t.Error("private data is in the exposition")
	}
}

// Without the right a job goes by its SLUID, never by a guess. Where Slurm allocates GPUs to jobs that are not known, time that
// is not busy is unknown; containers of Apptainer run in the cgroup of who starts them (docs/install.md).
func slurmWithoutTheRight(t *testing.T) {
	s := parseScenario(t, twoGPUs+slurmLoad)
	st := play(t, s, slurmProcesses+"process 5002 cgroup=/user.slice/user-1000.slice/session-3.scope\n", "--no-kubelet")
	now := st.watched(30 * time.Second)
	for _, state := range []string{"gap", "idle", "unallocated", "unavailable"} {
		verify(t, now.is(0, "gpu_time_seconds_total", GPUB, `state="`+state+`"`))
	}
	verify(t, now.is(1<<30, "gpu_container_memory_used_bytes", `pod="user/1000"`),
		now.is(2<<30, "gpu_container_memory_used_bytes", `pod="slurm/sEKNKTV3WPV500"`),
		now.none("gpu_container_memory_used_bytes", `pod="slurm/43"`),
		now.is(1, "gpu_exporter_feature", `feature="slurm_job_numbers"`, `state="off"`),
		now.none("gpu_allocation_ratio"))
}

// Where nothing allocates GPUs, as on one PC, the host has them: time that is not busy is a gap, and idle after 60 s, whoever
// uses them. Not where cgroups of a kubelet or of Slurm are there (sysfs), nor once a container uses one.
func onePC(t *testing.T) {
	for _, c := range []struct {
		cgroup, process string
		idle            float64
	}{
		{"user.slice", "/system.slice/ollama.service", 60}, {"system.slice", "/user.slice/user-1000.slice", 60},
		{"kubepods.slice", "/system.slice/ollama.service", 0}, {"system.slice/slurmstepd.scope", "/system.slice/ollama.service", 0},
		{"system.slice", "/system.slice/docker-" + strings.Repeat("ab", 32) + ".scope", 0},
	} {
		n, err := standin.ParsePods("pods", strings.NewReader("process 5002 cgroup="+c.process+"\n"))
		must.OK(t, err)
		st := furnish(t, parseScenario(t, twoGPUs+"process gpu=0 pid=5002 memory=1GiB busy=10% period=1s\n"), n)
		must.OK(t, os.MkdirAll(filepath.Join(st.trees.Sysfs, "fs/cgroup", c.cgroup), 0o755))
		st.begin(st.control.Time, nil, hooks{}, "--no-kubelet")
		now := st.watched(2 * time.Minute)
		verify(t, now.none("gpu_allocation_ratio"), now.is(0, "gpu_time_seconds_total", GPUA, `state="idle"`))
		if idle, err := now.one("gpu_time_seconds_total", GPUB, `state="idle"`); err != nil || math.Abs(idle-c.idle) > 5 {
			t.Errorf("%+v: idle for %v s: %v", c, idle, err)
		}
		st.close()
	}
}

// Jobs beside pods: a GPU that a pod holds is the pod's, and the others are the jobs'.
func slurmBesideAKubelet(t *testing.T) {
	s := parseScenario(t, twoGPUs+slurmLoad)
	const b = "GPU-bbbbbbbb-0000-4000-8000-000000000000"
	pods := fmt.Sprintf("allocatable nvidia.com/gpu %s\npod ml/train-0 container main nvidia.com/gpu=%s pids=5002\n", b, b)
	st := play(t, s, pods+slurmProcesses, "--slurm.job-mapping-dir="+jobMapping(t, map[string]string{"0": "42\n", "1": "42\n"}))
	now := st.watched(time.Minute)
	verify(t, now.is(1, "gpu_container_allocation_ratio", GPUA, `pod="slurm/42"`),
		now.none("gpu_container_allocation_ratio", GPUB, `pod="slurm/42"`),
		now.is(1, "gpu_container_allocation_ratio", GPUB, `pod="train-0"`), now.is(1, "gpu_allocation_ratio", GPUA),
		now.is(1, "gpu_allocation_ratio", GPUB),
		now.is(1, "gpu_container_mismatch", GPUA, `pod="slurm/sEKNKTV3WPV500"`, `kind="used_not_allocated"`),
		now.none("gpu_container_mismatch", `pod="train-0"`))
}

func TestDoctorOnSlurm(t *testing.T) {
	t.Parallel()
	m := node(t, twoGPUs+slurmLoad, slurmProcesses)
	for _, c := range []struct {
		dir  string
		code int
		want []string
	}{
		{jobMapping(t, map[string]string{"0": "42\n43\n"}), exitOK,
			[]string{"ok       source slurm_job_mapping", "slurm/42 (gres/gpu, 0.5 of the GPU, source slurm_job_mapping)",
				"resource gres/gpu"}},
		{"/nonexistent/jobs", exitWarnings, []string{"warning  source slurm_job_mapping: /nonexistent/jobs does not exist",
			"add: "}},
	} {
		said, code := m.doctor("--no-kubelet", "--slurm.job-mapping-dir="+c.dir)
		for _, want := range c.want {
			if !strings.Contains(said, want) {
				t.Errorf("it does not say %q:\n%s", want, said)
			}
		}
		if code != c.code {
			t.Errorf("exit code %d, want %d:\n%s", code, c.code, said)
		}
	}
}
