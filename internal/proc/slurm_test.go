package proc

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/internal/must"
)

const sluidA, sluidB = "sEKNKTV3WPV500", "sEKNKTV3WPV501"

func (n *node) slurm(pid int, job, environ string) {
	n.process(pid, fmt.Sprint(1000+pid), "0::/system.slice/slurmstepd.scope/"+job+"/step_0/user/task_0\n")
	n.write(fmt.Sprintf("proc/%d/environ", pid), environ)
}

func slurmFinder(n *node, o Options) *Finder {
	o.Procfs, o.Clock = filepath.Join(n.root, "proc"), func() time.Time { return n.now }
	return n.patient(New(o))
}

func job(name string) gpu.Container { return gpu.Container{Pod: "slurm/" + name} }

func TestSLUIDs(t *testing.T) {
	type process struct {
		pid           int
		job, environ  string
		want, without string // the names with the right and without
	}
	for name, list := range map[string][]process{
		"number in environ":    {{10, sluidA, "A=1\x00SLURM_JOB_ID=4242\x00", "4242", sluidA}},
		"a number in the path": {{10, "job_7", "SLURM_JOB_ID=4242\x00", "7", "7"}},
		"no number":            {{10, sluidA, "SLURM_JOB_GPUS=1\x00", sluidA, sluidA}},
		"number in one of two": {{10, sluidA, "", sluidA, sluidA}, {11, sluidA, "SLURM_JOB_ID=5\x00", "5", sluidA},
			{10, "", "", "5", sluidA}},
		"not a number": {{10, sluidA, "SLURM_JOB_ID=../../x\x00", sluidA, sluidA}},
		"0":            {{10, sluidA, "SLURM_JOB_ID=0\x00", sluidA, sluidA}},
		"too large":    {{10, sluidA, "SLURM_JOB_ID=99999999999\x00", sluidA, sluidA}},
		"leading zero": {{10, sluidA, "SLURM_JOB_ID=042\x00", sluidA, sluidA}},
		"two that disagree": {{10, sluidA, "SLURM_JOB_ID=5\x00", "5", sluidA}, {11, sluidA, "SLURM_JOB_ID=6\x00", sluidA, sluidA},
			{10, "", "", sluidA, sluidA}},
		// Whoever takes another job's number gets neither its name nor its figures.
		"a number of two jobs": {{10, sluidA, "SLURM_JOB_ID=5\x00", "5", sluidA}, {11, sluidB, "SLURM_JOB_ID=5\x00", sluidB, sluidB},
			{10, "", "", sluidA, sluidA}},
	} {
		n := newNode(t)
		with, without := slurmFinder(n, Options{JobNumbers: true}), slurmFinder(n, Options{})
		for _, p := range list {
			if p.job != "" {
				n.slurm(p.pid, p.job, p.environ)
			}
			for f, want := range map[*Finder]string{with: p.want, without: p.without} {
				if c, b := f.Find(p.pid); c != job(want) || b != Owned {
					t.Errorf("%s, process %d: %+v %v, want %s", name, p.pid, c, b, want)
				}
			}
		}
		if with.JobNumbers() != nil {
			t.Errorf("%s: %v", name, with.JobNumbers())
		}
	}
}

// The number of a job that is over is free for the next that claims it.
func TestSLUIDOfAJobThatIsOver(t *testing.T) {
	n := newNode(t)
	f := slurmFinder(n, Options{JobNumbers: true})
	n.slurm(10, sluidA, "SLURM_JOB_ID=5\x00")
	expect(t, f, 10, job("5"), Owned)
	os.RemoveAll(filepath.Join(n.root, "proc/10"))
	n.now = n.now.Add(forgetAfter + time.Second)
	n.slurm(11, sluidB, "SLURM_JOB_ID=5\x00")
	expect(t, f, 11, job("5"), Owned)
	if len(f.jobs.bySLUID) != 1 || len(f.entries) != 1 {
		t.Errorf("%d jobs and %d processes are remembered", len(f.jobs.bySLUID), len(f.entries))
	}
}

func TestClosedEnvironmentKeepsTheSLUID(t *testing.T) {
	n := newNode(t)
	f := slurmFinder(n, Options{JobNumbers: true})
	n.slurm(10, sluidA, "SLURM_JOB_ID=5\x00")
	for path, mode := range map[string]os.FileMode{filepath.Dir(n.root): 0o755, filepath.Join(n.root, "proc/10/environ"): 0} {
		must.OK(t, os.Chmod(path, mode))
	}
	asNobody(t, func() { expect(t, f, 10, job(sluidA), Owned) })
	if err := f.JobNumbers(); err == nil || !strings.Contains(err.Error(), "permission denied") {
		t.Errorf("%v", err)
	}
	// A process of no such job says nothing of environments.
	n.process(11, "556", "0::/system.slice/ollama.service\n")
	expect(t, f, 11, gpu.Container{Pod: "systemd/ollama.service"}, Owned)
	if f.JobNumbers() == nil {
		t.Error("the refusal was forgotten")
	}
}

// With Kubernetes, processes belong to jobs only if that is configured.
func TestSlurmBesidePods(t *testing.T) {
	n := newNode(t)
	n.slurm(10, "job_5", "")
	n.process(11, "1", "0::/system.slice/sshd.service\n")
	n.process(12, "1", "0::/docker/"+cid+"/slurm/uid_0/job_5/step_0\n")
	expect(t, slurmFinder(n, Options{Kubernetes: true}), 10, gpu.Container{}, Host)
	both := slurmFinder(n, Options{Kubernetes: true, Slurm: true})
	expect(t, both, 10, job("5"), Owned)
	expect(t, both, 11, gpu.Container{}, Host)
	expect(t, both, 12, gpu.Container{Pod: "docker/" + cid[:12]}, Owned)
}
