package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/internal/standin"
	"github.com/gpu-exporter/gpu-exporter/internal/standin/scenario"
	"github.com/gpu-exporter/gpu-exporter/test/measure/hwcheck"
)

// The sizes that the bundle may have.
const (
	maxPacked   = 25e6
	maxUnpacked = 45e6
)

var flags = flag.String("hwcheck", "--only=idle,journal,rings,cost --period=4s", "flags of the check")

// counters are what moves with the loads beside what an idle H100 has: the scenario of the check's own tests.
const counters = "  Field[197] = 0\n  Field[198] = 0\n  Gpm[20] = 0\n  Gpm[21] = 0\n"

// slots are the loads in the order of the stages: the arguments that begin one, when the scenario has it, and what it does
// there. As fast as the machine can is 60 GB/s.
var slots = []struct {
	mode, first string
	from, to    int
	argument    string
	process     string
	field       int
	rate        float64 // by the load's log; the counter has 10 % more
}{
	{"spin", "0.3", 80, 140, "0.3", "pid=4000 memory=1MiB busy=30% period=1s dram=20%", 0, 0},
	{"spin", "0.6", 140, 195, "0.6", "pid=4001 memory=1GiB busy=60% period=1s", 0, 0},
	{"spin", "0.2", 140, 195, "0.2", "pid=4002 memory=1GiB busy=20% period=1s phase=700ms", 0, 0},
	{"memory", "2.147484e+09", 140, 195, "2147483648", "pid=4003 memory=2GiB busy=0%", 0, 0},
	{"h2d", "5e+09", 195, 228, "5e9", "", 198, 5e9},
	{"h2d", "2.6e+10", 228, 258, "26e9", "", 198, 26e9},
	{"h2d", "1e+12", 258, 288, "60e9", "", 198, 60e9},
	{"d2h", "5e+09", 288, 318, "5e9", "", 197, 5e9},
	{"d2h", "2.6e+10", 318, 348, "26e9", "", 197, 26e9},
	{"d2h", "1e+12", 348, 378, "60e9", "", 197, 60e9},
	{"spin", "0.02", 378, 415, "0.02", "pid=4004 memory=1MiB busy=2% period=1s", 0, 0},
}

// script is what the loads are in the scenario.
func script() (out string) {
	for _, s := range slots {
		if s.process != "" {
			out += fmt.Sprintf("process gpu=0 %s from=%ds to=%ds\n", s.process, s.from, s.to)
		} else {
			out += fmt.Sprintf("at %ds gpu 0 Field[%d] = %g*t\nat %ds gpu 0 Gpm[%d] = %g\n", s.from, s.field, 1.1*s.rate, s.from,
				s.field-177, 1.1*s.rate/(1<<20))
			out += fmt.Sprintf("at %ds gpu 0 Field[%d] = 0\nat %ds gpu 0 Gpm[%d] = 0\n", s.to, s.field, s.to, s.field-177)
		}
	}
	// Where one begins as another ends the later line counts.
	lines := strings.SplitAfter(out, "\n")
	for _, s := range slots {
		for _, next := range slots {
			if s.field != 0 && next.field == s.field && next.from == s.to {
				lines = slices.DeleteFunc(lines, func(l string) bool {
					return strings.HasPrefix(l, fmt.Sprintf("at %ds ", s.to)) && strings.HasSuffix(l, "] = 0\n")
				})
			}
		}
	}
	return strings.Join(lines, "")
}

// TestBundle builds the bundle and runs it in a root directory that has glibc, the fake driver, and nothing else.
func TestBundle(t *testing.T) {
	repository, err := filepath.Abs(filepath.Join("..", ".."))
	must.OK(t, err)
	command(t, repository, "deploy/hwcheck/build", runtime.GOARCH)
	name := "gpu-hwcheck-linux-" + runtime.GOARCH
	archive := filepath.Join(repository, "bin", name+".tar.gz")
	root := t.TempDir()
	command(t, root, "tar", "-xzf", archive)
	unpacked, kinds := 0.0, map[string]bool{}
	if err := filepath.WalkDir(filepath.Join(root, name), func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			info, failed := d.Info()
			unpacked, err = unpacked+float64(info.Size()), failed
			kinds[d.Name()] = true
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(archive)
	if err != nil || float64(info.Size()) > maxPacked || unpacked > maxUnpacked {
		t.Errorf("%v bytes packed, %v unpacked, want %v and %v at most; %v", info.Size(), unpacked, maxPacked, maxUnpacked, err)
	}
	for _, file := range []string{"run", "hwcheck", "gpu-exporter", "load", "README.md", "LICENSE"} {
		if !kinds[file] {
			t.Errorf("%s is missing", file)
		}
	}
	env, paths := fill(t, repository, root, name)
	ctx, cancel := context.WithTimeout(t.Context(), 12*time.Minute)
	defer cancel()
	args := append([]string{"--load=/bin/load", "--under=/bin/env " + strings.Join(env, " ")}, strings.Fields(*flags)...)
	cmd := exec.CommandContext(ctx, "/"+name+"/hwcheck", append(args, append([]string{"--", "--path.kmsg="}, paths...)...)...)
	cmd.Path = "/" + name + "/hwcheck"
	cmd.Dir, cmd.Env = "/"+name, []string{"PATH=/bin:/usr/bin"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root}
	begin := time.Now()
	out, err := cmd.CombinedOutput()
	t.Logf("%v, %v", time.Since(begin).Round(time.Second), err)
	reports, _ := filepath.Glob(filepath.Join(root, name, "report", "*"))
	if len(reports) != 4 {
		t.Fatalf("files: %q\n%s", reports, out)
	}
	data, err := os.ReadFile(filepath.Join(root, name, "report", "h100-80gb-hbm3-580.105.08.json"))
	var report hwcheck.Report
	if err := errors.Join(err, json.Unmarshal(data, &report)); err != nil || bytes.Contains(data, []byte("1650000000100")) {
		t.Fatalf("%v\n%s", err, data)
	}
	if len(report.Done) < 4 {
		t.Errorf("stages: %q", report.Done)
	}
	for _, c := range report.Checks {
		// The times of launches are those of this machine, whatever else it does.
		if !slices.Contains([]string{"passed", "not tested"}, c.Outcome) && (c.Stage != "cost" || c.Measured == "") {
			t.Errorf("%+v", c)
		}
	}
}

func command(t *testing.T, dir, name string, args ...string) {
	t.Helper()
	cmd := exec.Command(name, args...)
	if cmd.Dir = dir; strings.Contains(name, "/") {
		cmd.Path = filepath.Join(dir, name)
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
}

// fill adds glibc, the kernel's /proc, the fake driver and nvidia-smi to a root directory. It returns the environment of the
// driver, and the exporter's flags.
func fill(t *testing.T, repository, root, name string) (env, paths []string) {
	t.Helper()
	for _, dir := range []string{"proc", "tmp", "dev", "lib64", "lib", "bin", "usr/bin"} {
		must.OK(t, os.MkdirAll(filepath.Join(root, dir), 0o755))
	}
	if err := syscall.Mount("proc", filepath.Join(root, "proc"), "proc", 0, ""); err != nil {
		t.Fatalf("this test needs root, as the check does: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(filepath.Join(root, "proc"), syscall.MNT_DETACH) })
	must.OK(t, os.WriteFile(filepath.Join(root, "dev", "null"), nil, 0o666))
	// Those that glibc has had since 2.34 are empty where programs of before look for them.
	for _, library := range []string{"libc.so.6", "libpthread.so.0", "libdl.so.2", "libm.so.6"} {
		found, _ := filepath.Glob("/lib/*-linux-gnu/" + library)
		if len(found) == 0 {
			t.Fatalf("no %s on this machine", library)
		}
		copyFile(t, found[0], filepath.Join(root, "lib", library))
	}
	linkers, _ := filepath.Glob("/lib*/ld-linux-*.so.*")
	for _, linker := range linkers {
		copyFile(t, linker, filepath.Join(root, linker))
	}
	// The driver, where its symbols are played from.
	idle := must.Read(t, filepath.Join(repository, "test", "measure", "hwcheck", "testdata", "h100.scenario"))
	s, err := scenario.Parse("bundle.scenario", idle+counters+script(), os.DirFS(filepath.Join(repository, "testdata", "scenarios")))
	must.OK(t, err)
	state := filepath.Join(root, "tmp")
	library, err := standin.BuildFakeNVML(t.Context(), s.Symbols, state)
	must.OK(t, err)
	copyFile(t, library, filepath.Join(root, "lib", "libnvidia-ml.so.1"))
	cc := func(to string, args ...string) {
		command(t, repository, "cc", append(args, "-O2", "-o", filepath.Join(root, to))...)
	}
	cc("lib/libcuda.so.1", "-shared", "-fPIC", "test/measure/hwcheck/testdata/libcuda.c")
	cc("usr/bin/nvidia-smi", "-static", "test/hwcheck/testdata/smi.c")
	cc("bin/load", "-static", "test/hwcheck/testdata/load.c")
	must.OK(t, os.Symlink(name, filepath.Join(root, "bundle")))
	cc("bin/env", "-static", "test/hwcheck/testdata/env.c")
	var answers strings.Builder
	answers.WriteString("count\t1\n")
	for name, value := range recorded(t, filepath.Join(repository, "test/measure/hwcheck/testdata/h100.csv")) {
		fmt.Fprintf(&answers, "%s\t%s\n", name, value)
	}
	listing := func(name, text string) {
		must.OK(t, os.WriteFile(filepath.Join(root, "usr/bin/nvidia-smi."+name), []byte(text), 0o644))
	}
	listing("answers", answers.String())
	listing("busy", strings.NewReplacer("utilization.gpu\t0", "utilization.gpu\t30", "utilization.memory\t0",
		"utilization.memory\t6").Replace(answers.String()))
	for name, file := range map[string]string{"-q": "h100.xml", "nvlink": "nvlink.txt"} {
		data, err := os.ReadFile(filepath.Join(repository, "test/measure/hwcheck/testdata", file))
		must.OK(t, err)
		listing(name, string(data))
	}
	listing("pmon", "# gpu pid type sm\n 0 - - -\n")
	listing("mig", "No MIG-enabled devices found.\n")
	// The load is busy from whole seconds on, and so are the processes of the scenario.
	time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(time.Second)))
	env, control, err := standin.SimulateLive(s, state)
	must.OK(t, err)
	begin, plan := float64(control.Time().UnixMicro())/1e6-control.Now().Seconds(), ""
	for _, s := range slots {
		plan += fmt.Sprintf("%s %s %f %s\n", s.mode, s.first, begin+float64(s.from)+1, s.argument)
	}
	must.OK(t, os.WriteFile(filepath.Join(state, "slots"), []byte(plan), 0o644))
	trees, err := standin.WriteTrees(state, s, hwcheck.PodNode("GPU-5a0e1100-8c1d-4e6b-9d10-000000000000", 4001))
	must.OK(t, err)
	paths = []string{"--path.procfs=" + strings.TrimPrefix(trees.Procfs, root), "--path.sysfs=" + strings.TrimPrefix(trees.Sysfs, root)}
	t.Cleanup(func() { control.Close() })
	for i := range env {
		env[i] = strings.ReplaceAll(env[i], root, "")
	}
	return env, paths
}

// recorded are the answers of nvidia-smi of a capture: a line of names with their units, and one of values.
func recorded(t *testing.T, path string) map[string]string {
	t.Helper()
	data, err := os.ReadFile(path)
	must.OK(t, err)
	lines := slices.DeleteFunc(strings.Split(strings.TrimSpace(string(data)), "\n"),
		func(line string) bool { return strings.HasPrefix(line, "#") })
	out, values := map[string]string{}, strings.Split(lines[1], ", ")
	for i, column := range strings.Split(lines[0], ", ") {
		name, _, _ := strings.Cut(column, " ")
		out[name] = values[i]
	}
	return out
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	data, err := os.ReadFile(from)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(to), 0o755)
	}
	if err == nil {
		err = os.WriteFile(to, data, 0o755)
	}
	must.OK(t, err)
}
