// Package slurm_test runs deploy/slurm under Slurm itself, a controller and a node of Debian's packages with two simulated GPUs, and
// compares the jobs on the exporter's page with the controller's. It needs root: slurmd starts jobs as their users.
package slurm_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/internal/standin/machine"
	"github.com/gpu-exporter/gpu-exporter/internal/testkit"
	"github.com/gpu-exporter/gpu-exporter/test/servers"
)

// node is a cluster of one node.
type node struct {
	t    *testing.T
	dir  string
	name string
	jobs string // the directory of the prolog
}

// start starts munged, slurmctld and slurmd with the shipped prolog and epilog.
func start(t *testing.T) *node {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("not run: slurmd needs root") // test/run names it
	}
	host, err := os.Hostname()
	must.OK(t, err)
	n := &node{t: t, dir: must.ShortDir(t), name: strings.Split(host, ".")[0]}
	n.jobs = filepath.Join(n.dir, "jobs")
	key := make([]byte, 128)
	_, err = rand.Read(key)
	must.OK(t, err)
	must.OK(t, os.WriteFile(filepath.Join(n.dir, "key"), key, 0o600))
	for _, script := range []string{"prolog", "epilog"} {
		dir := filepath.Join(n.dir, script+".d")
		text := strings.ReplaceAll(must.Read(t, filepath.Join(servers.Root(t), "deploy", "slurm", script+".sh")), "/run/gpu-jobs", n.jobs)
		must.OK(t, os.Mkdir(dir, 0o755))
		must.OK(t, os.WriteFile(filepath.Join(dir, "50-gpu-exporter.sh"), []byte(text), 0o755))
	}
	gres := ""
	for i := range 2 {
		file := filepath.Join(n.dir, fmt.Sprintf("nvidia%d", i))
		must.OK(t, exec.Command("mknod", file, "c", "195", strconv.Itoa(i)).Run())
		gres += "Name=gpu File=" + file + "\n"
	}
	must.OK(t, os.WriteFile(filepath.Join(n.dir, "gres.conf"), []byte(gres+"Name=shard Count=8\n"), 0o644))
	port := func() string { _, port, _ := strings.Cut(servers.Address(t), ":"); return port }
	must.OK(t, os.WriteFile(filepath.Join(n.dir, "slurm.conf"), []byte(strings.NewReplacer("DIR", n.dir, "HOST", n.name, "PORT1", port(),
		"PORT2", port()).Replace(`ClusterName=test
SlurmctldHost=HOST(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=DIR/munge
StateSaveLocation=DIR/state
SlurmdSpoolDir=DIR/spool
SlurmctldPidFile=DIR/slurmctld.pid
SlurmdPidFile=DIR/slurmd.pid
SlurmctldPort=PORT1
SlurmdPort=PORT2
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SchedulerType=sched/backfill
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
GresTypes=gpu,shard
ReturnToService=0
MpiDefault=none
PrologFlags=Alloc
Prolog=DIR/prolog.d/*
Epilog=DIR/epilog.d/*
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
NodeName=HOST NodeAddr=127.0.0.1 CPUs=8 RealMemory=1000 Gres=gpu:2,shard:8 State=UNKNOWN
PartitionName=all Nodes=HOST Default=YES State=UP
`)), 0o644))
	must.OK(t, errors.Join(os.Mkdir(filepath.Join(n.dir, "state"), 0o755), os.Mkdir(filepath.Join(n.dir, "spool"), 0o755)))
	t.Setenv("SLURM_CONF", filepath.Join(n.dir, "slurm.conf"))
	for _, c := range [][]string{{"munged", "--foreground", "--socket=" + n.dir + "/munge", "--key-file=" + n.dir + "/key",
		"--pid-file=" + n.dir + "/munged.pid", "--seed-file=" + n.dir + "/seed", "--log-file=" + n.dir + "/munged.log", "--force"},
		{"slurmctld", "-D"}, {"slurmd", "-D"}} {
		path, err := exec.LookPath(c[0])
		if err != nil {
			t.Fatalf("%v: run tools/install", err)
		}
		servers.Start(t, n.dir, path, c[1:]...)
		if c[0] == "munged" {
			servers.Until(t, "munged", func() error { _, err := os.Stat(n.dir + "/munge"); return err })
		}
	}
	servers.Until(t, "the node is idle", func() error { return n.is("idle") })
	t.Cleanup(func() { _ = exec.Command("scancel", "--user=root").Run() })
	return n
}

// command runs one of Slurm's and returns its output.
func (n *node) command(args ...string) (string, error) {
	out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out)), err
}

// is compares the state of the node.
func (n *node) is(state string) error {
	got, err := n.command("sinfo", "--noheader", "--format=%T")
	if err == nil && got != state {
		reason, _ := n.command("sinfo", "--noheader", "--list-reasons", "--format=%E")
		err = fmt.Errorf("the node is %s: %s", got, reason)
	}
	return err
}

// submit submits a job that runs for seconds and returns its ID.
func (n *node) submit(seconds, code int, flags ...string) string {
	n.t.Helper()
	id, err := n.command(append(append([]string{"sbatch", "--parsable", "--output=/dev/null"}, flags...),
		fmt.Sprintf("--wrap=sleep %d; exit %d", seconds, code))...)
	must.OK(n.t, err)
	return id
}

var (
	jobID      = regexp.MustCompile(`(?m)^JobId=(\d+)`)
	jobIndices = regexp.MustCompile(`GRES=\w+:\d+\(IDX:([\d,-]+)\)`)
)

// holds are the GPUs of the jobs that run, by the controller: "job gpu".
func (n *node) holds() (map[string]bool, error) {
	text, err := n.command("scontrol", "--details", "show", "jobs")
	out := map[string]bool{}
	for _, job := range strings.Split(text, "\n\n") {
		id, indices := jobID.FindStringSubmatch(job), jobIndices.FindStringSubmatch(job)
		if id == nil || indices == nil || !strings.Contains(job, "JobState=RUNNING") {
			continue
		}
		for _, gpu := range strings.Split(strings.ReplaceAll(indices[1], "-", ","), ",") { // there are two GPUs: 0-1 is 0,1
			out[id[1]+" "+gpu] = true
		}
	}
	return out, err
}

// shown are the values of a family on a page: "job gpu".
func shown(t *testing.T, page, family string) map[string]float64 {
	t.Helper()
	out := map[string]float64{}
	families, err := testkit.Families(page)
	must.OK(t, err)
	for _, m := range families[family].GetMetric() {
		l := map[string]string{}
		for _, p := range m.Label {
			l[p.GetName()] = p.GetValue()
		}
		if id, ok := strings.CutPrefix(l["pod"], "slurm/"); ok {
			out[id+" "+l["gpu"]] += m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	return out
}

// TestJobs has whole, shared, failed, requeued and canceled jobs and an array on two GPUs.
func TestJobs(t *testing.T) {
	n := start(t)
	m := machine.Parse(t, machine.TwoGPUs, "")
	must.OK(t, os.Mkdir(n.jobs, 0o755))
	e := m.Start(t, machine.Options{Flags: []string{"--no-kubelet", "--slurm.job-mapping-dir=" + n.jobs}})
	together, lately := map[string]float64{}, map[string]time.Time{}
	pages, last := 0, time.Now()
	// watch compares each page until a condition holds: a job that the controller has, or has not, for longer than the exporter's poll.
	const late = 5 * time.Second
	watch := func(what string, limit time.Duration, done func(holds map[string]bool, page map[string]float64) bool) map[string]float64 {
		t.Helper()
		since := map[string]time.Time{}
		for begun := time.Now(); ; time.Sleep(200 * time.Millisecond) {
			holds, err := n.holds()
			must.OK(t, err)
			text, err := servers.Fetch(e.Base() + "/metrics")
			must.OK(t, err)
			page, now := shown(t, text, "gpu_container_allocation_ratio"), time.Now()
			pages++
			for k := range holds {
				together[k] += now.Sub(last).Seconds()
				lately[k] = now
				if since[k].IsZero() {
					since[k] = now
				}
				if page[k] == 0 && now.Sub(since[k]) > late {
					t.Errorf("%s: the page lacks job and GPU %q, which run for %v", what, k, now.Sub(since[k]))
				}
			}
			for k := range page {
				if !holds[k] && now.Sub(lately[k]) > late {
					t.Errorf("%s: the page has job and GPU %q, which ended", what, k)
				}
			}
			for k := range since {
				if !holds[k] {
					delete(since, k)
				}
			}
			last = now
			if done(holds, page) {
				return shown(t, text, "gpu_container_allocated_seconds_total")
			}
			if now.Sub(begun) > limit || t.Failed() {
				t.Fatalf("%s: not within %v: the controller has %v, the page %v", what, limit, holds, page)
			}
		}
	}
	both := func(want int) func(map[string]bool, map[string]float64) bool {
		return func(holds map[string]bool, page map[string]float64) bool {
			return len(holds) == want && len(page) == want
		}
	}
	n.submit(8, 0, "--gres=gpu:1")
	n.submit(10, 1, "--gres=gpu:1")
	watch("two jobs, one of which fails", time.Minute, both(2))
	n.submit(6, 0, "--gres=gpu:2")
	n.submit(6, 0, "--gres=gpu:1", "--array=0-2")
	watch("a job with both GPUs, then an array", 2*time.Minute, func(holds map[string]bool, page map[string]float64) bool {
		queue, err := n.command("squeue", "--noheader")
		return err == nil && queue == "" && len(page) == 0
	})
	for range 3 {
		n.submit(8, 0, "--gres=shard:2")
	}
	watch("three jobs share the GPUs", time.Minute, func(holds map[string]bool, page map[string]float64) bool {
		total := 0.0
		for _, ratio := range page {
			total += ratio
		}
		return len(holds) == 3 && len(page) == 3 && math.Abs(total-2) < 1e-9
	})
	watch("they end", time.Minute, both(0))
	id := n.submit(100, 0, "--gres=gpu:1", "--requeue")
	watch("a job", time.Minute, both(1))
	_, err := n.command("scontrol", "requeue", id)
	must.OK(t, err)
	watch("it is requeued", time.Minute, both(0))
	_, err = n.command("scancel", id)
	must.OK(t, err)
	id = n.submit(100, 0, "--gres=gpu:1")
	watch("another", time.Minute, both(1))
	_, err = n.command("scancel", id)
	must.OK(t, err)
	counted := watch("it is canceled", time.Minute, both(0))
	for _, k := range slices.Sorted(maps.Keys(together)) {
		if math.Abs(counted[k]-together[k]) > late.Seconds() {
			t.Errorf("job and GPU %q had each other for %.1f s, and the page has %.1f s", k, together[k], counted[k])
		}
	}
	must.OK(t, n.is("idle"))
	t.Logf("%d pages compared, %d times a job had a GPU; jobs and their GPU-seconds %v", pages, len(together), counted)

	// An epilog that fails drains the node: what the test would see.
	planted := filepath.Join(n.dir, "epilog.d", "60-planted.sh")
	must.OK(t, os.WriteFile(planted, []byte("#!/bin/sh\nexit 1\n"), 0o755))
	n.submit(1, 0, "--gres=gpu:1")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	must.OK(t, testkit.Within(ctx, time.Minute, func() error {
		if err := n.is("idle"); err == nil || !strings.Contains(err.Error(), "Epilog error") {
			return fmt.Errorf("an epilog that fails is not seen: %w", err)
		}
		return nil
	}))
}
