package hwcheck

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/hardware"
	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/test/measure/page"
)

// killed is what a crash at a point is simulated by.
type killed struct{}

// TestKilled ends a run at a random one of its points, by a signal or by a crash in the middle of whatever it does: each
// time the report can be read and names what is missing, and --resume ends with the report of an undisturbed run.
func TestKilled(t *testing.T) {
	points, last := 0, -1 // reached, and the one at which it ends
	crash, cancel := false, func() {}
	point := func() {
		if points++; points-1 != last {
			return
		}
		if cancel(); crash {
			panic(killed{})
		}
	}
	newRun := func(dir string, resume bool) *run {
		r := &run{config: config{out: filepath.Join(dir, "report.md"), load: loadNone, period: time.Second, resume: resume},
			Report: Report{Model: "A", Driver: "1"}, log: io.Discard}
		r.write = func(path string, data []byte) error {
			point()
			if err := os.WriteFile(path+".part", data[:len(data)/2], 0o644); err != nil {
				return err
			}
			point()
			err := page.Write(path, data)
			point()
			return err
		}
		for i := range 8 {
			name := fmt.Sprintf("stage %d", i)
			r.stages = append(r.stages, stage{name: name, run: func(r *run, ctx context.Context, _ *exporter, p *period) error {
				for n := range 3 {
					point()
					r.add(Check{Name: fmt.Sprintf("%s, check %d", name, n)}.judge(n != 1, "%d", n))
					r.fact(name, "%d", n)
				}
				p.probe = &probed{BAR1: uint64(i)}
				return nil
			}})
		}
		return r
	}
	play := func(r *run) {
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		cancel = stop
		defer func() {
			if v := recover(); v != nil && v != any(killed{}) {
				panic(v)
			}
		}()
		r.examine(ctx)
		if err := r.save(); err != nil {
			t.Error(err)
		}
	}
	read := func(dir string) (out Report) {
		text, err := os.ReadFile(filepath.Join(dir, "report.md"))
		data, err2 := os.ReadFile(filepath.Join(dir, "report.json"))
		if err != nil || err2 != nil || json.Unmarshal(data, &out) != nil || !strings.HasPrefix(string(text), "# A, driver 1") {
			t.Fatalf("no report that can be read: %v, %v\n%s\n%s", err, err2, text, data)
		}
		return out
	}
	whole := t.TempDir()
	play(newRun(whole, false))
	want, all := read(whole), points
	if len(want.Checks) != 24 || len(want.Done) != 8 {
		t.Fatalf("%+v", want)
	}
	for seed := range uint64(50) {
		dir := t.TempDir()
		random := rand.New(rand.NewPCG(seed, 1))
		r := newRun(dir, false)
		last = -1
		if err := r.save(); err != nil { // as Run does before the first stage
			t.Fatal(err)
		}
		points, last, crash = 0, random.IntN(all), seed%2 == 0
		play(r)
		got := read(dir)
		for _, s := range r.stages {
			missing := slices.ContainsFunc(got.Checks, func(c Check) bool { return c.Name == "stage: "+s.name && c.Outcome == incomplete })
			if missing == slices.Contains(got.Done, s.name) {
				t.Errorf("seed %d: %s: done and missing: %v", seed, s.name, missing)
			}
		}
		last = -1
		r = newRun(dir, true)
		if err := r.restore(); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		play(r)
		if got := read(dir); !reflect.DeepEqual(got.Checks, want.Checks) || !reflect.DeepEqual(got.Done, want.Done) ||
			!reflect.DeepEqual(got.Facts, want.Facts) {
			t.Errorf("seed %d, ended at point %d of %d: %+v, want %+v", seed, last, all, got, want)
		}
	}
}

// A report is resumed on the GPU and driver that it is of.
func TestResumeElsewhere(t *testing.T) {
	dir := t.TempDir()
	r := &run{config: config{out: filepath.Join(dir, "report.md")}, Report: Report{Model: "A", Driver: "1"}, write: page.Write}
	must.OK(t, r.save())
	r.Driver = "2"
	if err := r.restore(); err == nil || !strings.Contains(err.Error(), "is of A with driver 1") {
		t.Error(err)
	}
}

// TestTimeIsUp: stages that no longer fit are left for --resume, and shorter ones are run.
func TestTimeIsUp(t *testing.T) {
	r := &run{config: config{out: filepath.Join(t.TempDir(), "report.md"), load: loadNone, period: time.Hour},
		Report: Report{Model: "A", Driver: "1"}, write: page.Write, log: io.Discard}
	for i, periods := range []float64{0, 2, 0} {
		r.stages = append(r.stages, stage{name: fmt.Sprint(i), periods: periods,
			run: func(*run, context.Context, *exporter, *period) error { return nil }})
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	r.examine(ctx)
	out := r.whole()
	if !slices.Equal(r.Done, []string{"0", "2"}) || out.Result() != "0 findings, 1 incomplete" {
		t.Errorf("%v, %s", r.Done, out.Result())
	}
}

// TestIsolation: what is not testable under an isolation is never a finding.
func TestIsolation(t *testing.T) {
	write := func(dir, path, text string) {
		path = filepath.Join(dir, path)
		must.OK(t, os.MkdirAll(filepath.Dir(path), 0o755))
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	const pod, exit = "container busy 60 %", "XID 31"
	for name, row := range map[string]struct {
		set    func(dir string, c *config)
		hinder []string // claims
	}{
		"none": {func(string, *config) {}, nil},
		"container without hostPID": {func(dir string, _ *config) {
			write(dir, "proc/self/ns/other", "")
			_ = os.Symlink("pid:[4026532001]", filepath.Join(dir, "proc/self/ns/pid"))
		}, []string{pod}},
		"host PID namespace": {func(dir string, _ *config) {
			write(dir, "proc/self/ns/other", "")
			_ = os.Symlink(initialPID, filepath.Join(dir, "proc/self/ns/pid"))
		}, nil},
		"cgroup v1":           {func(dir string, _ *config) { write(dir, "sys/fs/cgroup/memory/tasks", "") }, []string{pod}},
		"cgroup v2":           {func(dir string, _ *config) { write(dir, "sys/fs/cgroup/cgroup.controllers", "cpu") }, nil},
		"cgroups not to make": {func(_ string, c *config) { c.cgroups = "/proc/self" }, []string{pod}},
		"gVisor": {func(dir string, _ *config) {
			write(dir, "proc/version", "Linux version 4.4.0 #1 SMP Sun Jan 10 15:06:54 PST 2016\n")
		}, []string{pod, exit}},
		"Firecracker": {func(dir string, _ *config) { write(dir, "proc/cpuinfo", "flags\t\t: fpu vme hypervisor lahf_lm\n") },
			[]string{"launch of an empty kernel, p99.9"}},
		"vGPU": {func(_ string, c *config) { c.vgpu = true }, []string{exit, "energy against integrated power",
			"PCIe bytes exported, copies to the GPU at 5 GB/s"}},
	} {
		dir := t.TempDir()
		c := config{host: dir, cgroups: filepath.Join(dir, "cgroup")}
		row.set(dir, &c)
		r := &run{config: c, isolated: isolations(c), log: io.Discard}
		for _, claim := range claims() {
			if slices.Contains([]string{pod, exit, "launch of an empty kernel, p99.9", "energy against integrated power",
				"PCIe bytes exported, copies to the GPU at 5 GB/s"}, claim.name) &&
				(r.hinders(claim.stage, claim.name) != "") != slices.Contains(row.hinder, claim.name) {
				t.Errorf("%s: %s: %q", name, claim.name, r.hinders(claim.stage, claim.name))
			}
		}
		for _, s := range stages() {
			if r.hinders(s.name, "") == "" {
				continue
			}
			// A stage that would fail is not run, and each of its claims is not tested.
			s.run = func(*run, context.Context, *exporter, *period) error {
				t.Errorf("%s: %s runs", name, s.name)
				return nil
			}
			r.examineStage(t.Context(), s, nil)
		}
		for _, c := range r.Checks {
			if c.Outcome != skipped || !strings.HasPrefix(c.Detail, "not testable here: ") {
				t.Errorf("%s: %+v", name, c)
			}
		}
	}
}

// The cost is settled where the interval of confidence is on one side.
func TestCost(t *testing.T) {
	c := costClaim("a", "p50", "microseconds", 1, 0)
	for _, row := range []struct {
		on   []float64
		want string
	}{
		{[]float64{10, 10.1, 10.2, 9.9, 10}, passed}, {[]float64{13, 13.1, 12.9, 13, 13}, finding},
		{[]float64{8, 9, 12, 13, 11}, incomplete}, {[]float64{10}, skipped},
	} {
		p := &period{noted: map[string]float64{}, absent: map[string]string{}}
		p.difference("p50", []float64{10, 10, 10, 10, 10}, row.on)
		if got := c.check(p); got.Outcome != row.want {
			t.Errorf("%v: %+v", row.on, got)
		}
	}
}

// Every claim has a number, and none has two.
func TestClaimsAreNumbered(t *testing.T) {
	numbers := map[int]string{}
	for _, c := range claims() {
		n := hardware.Number(c.name)
		if n == 0 || numbers[n] != "" {
			t.Errorf("claim %q has number %d: add it at the end of internal/hardware/claims.txt", c.name, n)
		}
		numbers[n] = c.name
	}
}
