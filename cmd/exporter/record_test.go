package main

import (
	"bytes"
	"context"
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
	"syscall"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/nvml"
	"github.com/gpu-exporter/gpu-exporter/internal/nvml/journal"
	"github.com/gpu-exporter/gpu-exporter/internal/standin/machine"
	"github.com/gpu-exporter/gpu-exporter/internal/standin/recording"
	"github.com/gpu-exporter/gpu-exporter/internal/standin/scenario"
)

// stepEnv and stepDirEnv tell a child process which step of a test it is to take, and where it finds and
// leaves its files. The driver library stays mapped as long as a process lives, so a scenario and its
// recording are played in two.
const (
	stepEnv    = "GPU_EXPORTER_TEST_STEP"
	stepDirEnv = "GPU_EXPORTER_TEST_STEP_DIR"
)

// takeSteps runs the steps of the calling test, each in a process of its own (see unraced) and one after the other, with a
// folder that they share. In a child it takes its step and returns false.
func takeSteps(t *testing.T, names []string, steps map[string]func(t *testing.T, dir string)) (dir string, parent bool) {
	t.Helper()
	if step := os.Getenv(stepEnv); step != "" {
		steps[step](t, os.Getenv(stepDirEnv))
		return "", false
	}
	t.Parallel()
	dir = t.TempDir()
	var pattern []string
	for _, part := range strings.Split(t.Name(), "/") {
		pattern = append(pattern, "^"+regexp.QuoteMeta(part)+"$")
	}
	program, err := unracedBinary()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		cmd := exec.CommandContext(t.Context(), program, "-test.run="+strings.Join(pattern, "/"), "-test.v")
		cmd.Env = append(os.Environ(), stepEnv+"="+name, stepDirEnv+"="+dir)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("step %s: %v\n%s", name, err, out)
		}
		if !bytes.Contains(out, []byte("--- PASS: "+t.Name())) {
			t.Fatalf("step %s: the child ran no such test:\n%s", name, out)
		}
	}
	return dir, true
}

// mappedLibrary is the driver library that this process has mapped: the recorder has to load the same.
func mappedLibrary(t *testing.T) string {
	t.Helper()
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	path := regexp.MustCompile(`/\S*libnvidia-ml\.so\.1`).Find(maps)
	if path == nil {
		t.Fatal("no driver library is mapped")
	}
	return string(path)
}

// recording makes a recording of the node that a stage plays, letting its time pass.
func (s *stage) recording() []byte {
	s.t.Helper()
	library := nvml.New(nvml.Options{Path: mappedLibrary(s.t), SysfsRoot: s.sysfs(), Clock: s.control.Time,
		Journal: journal.NewWriter(s.control.Time, nil)})
	session, err := library.Open()
	if err != nil {
		s.t.Fatal(err)
	}
	text, err := session.Record(s.t.Context(), nvml.RecordOptions{Wait: func(_ context.Context, d time.Duration) error {
		s.control.Advance(d)
		return nil
	}})
	if err := errors.Join(err, session.Close()); err != nil {
		s.t.Fatal(err)
	}
	played, err := recording.Scenario(text)
	if err != nil {
		s.t.Fatal(err)
	}
	return played
}

// sysfs is an empty tree: the bus of the machine that runs the test is not the scenario's.
func (s *stage) sysfs() string {
	root := s.t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "bus", "pci", "devices"), 0o755); err != nil {
		s.t.Fatal(err)
	}
	return root
}

func keep(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func kept(t *testing.T, dir, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

const recordedName = "recorded.scenario"

// moments is how many expositions of the original are kept. They lie apart by times that are no multiple of
// a period of the scenarios, so that what moves is seen to move.
const moments = 8

// recordAt plays a scenario up to a moment, and keeps a recording and expositions from before and after it.
func recordAt(t *testing.T, name, dir string, at time.Duration) {
	t.Helper()
	s, _ := load(t, name)
	st := play(t, s, "")
	st.step()
	st.run(at)
	for i := range moments {
		if i == moments-1 {
			keep(t, dir, recordedName, string(st.recording()))
		}
		st.control.Advance(1700 * time.Millisecond)
		st.step()
		keep(t, dir, fmt.Sprint("moment-", i), st.metrics())
	}
}

// playRecorded plays a recording and keeps its exposition.
func playRecorded(t *testing.T, dir string) {
	t.Helper()
	s, err := scenario.Load(filepath.Join(dir, recordedName))
	if err != nil {
		t.Fatal(err)
	}
	st := play(t, s, "")
	st.step()
	st.run(64 * time.Second)
	keep(t, dir, "played", st.metrics())
}

// aliases gives everything that is masked in a recording a name by its place: the same in both files.
func aliases(s *scenario.Scenario, at time.Duration) *strings.Replacer {
	var pairs []string
	serials := map[string]string{}
	for i, c := range s.GPUs {
		pairs = append(pairs, string(c.UUID), fmt.Sprintf("card-%d", i))
		_, devices := s.Truth(i).MIG(at)
		for _, d := range devices {
			pairs = append(pairs, string(d.UUID), fmt.Sprintf("mig-%d-%d-%d", i, d.GI, d.CI))
		}
		if a, ok := s.Answer(i, "Serial", at); ok && a.Text != "" {
			if serials[a.Text] == "" {
				serials[a.Text] = fmt.Sprintf("serial-%d", len(serials))
			}
			pairs = append(pairs, a.Text, serials[a.Text])
		}
		if a, _ := s.Answer(i, "PlatformInfo", at); a.Numbers["chassisSerialNumber"] > 0 {
			pairs = append(pairs, fmt.Sprintf("%.0f", a.Numbers["chassisSerialNumber"]), "chassis")
		}
		if a, _ := s.Answer(i, "GpuFabricInfo", at); a.Numbers["cluster"] > 0 {
			pairs = append(pairs, fmt.Sprintf(`"%02x000000-0000`, int(a.Numbers["cluster"])), `"cluster-0000`)
		}
	}
	return strings.NewReplacer(pairs...)
}

// exposition is a scrape taken apart: values by series, and the types of families.
type exposition struct {
	values map[string]float64
	types  map[string]string
}

func takeApart(t *testing.T, text string) exposition {
	t.Helper()
	e := exposition{map[string]float64{}, map[string]string{}}
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if strings.HasPrefix(line, "# TYPE ") && len(words) == 4 {
			e.types[words[2]] = words[3]
		}
		if at := strings.LastIndexByte(line, ' '); !strings.HasPrefix(line, "#") && at > 0 {
			v, err := strconv.ParseFloat(strings.TrimSpace(line[at:]), 64)
			if err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			e.values[line[:at]] = v
		}
	}
	return e
}

func familyOf(series string) string {
	name, _, _ := strings.Cut(series, "{")
	return name
}

// TestRecordRoundTrip plays each shipped scenario, records it, plays the recording, and compares: the same
// families, and the same value of every gauge that stood still in the original.
func TestRecordRoundTrip(t *testing.T) {
	for _, name := range scenarioNames(t) {
		t.Run(name, func(t *testing.T) {
			roundTrip(t, name, 40*time.Second, nil)
		})
	}
}

// The same while a driver talks nonsense: what it says is recorded as it was said.
func TestRecordRoundTripOfGarbage(t *testing.T) {
	roundTrip(t, "faults", 104*time.Second, map[string]string{"gpu_utilization_ratio": "is the mean of the last minute, most of it " +
		"before the nonsense"})
}

// roundTrip does it for one scenario, from a moment on. past are families that tell of what was before.
func roundTrip(t *testing.T, name string, at time.Duration, past map[string]string) {
	t.Helper()
	dir, parent := takeSteps(t, []string{"record", "play"}, map[string]func(*testing.T, string){
		"record": func(t *testing.T, dir string) { recordAt(t, name, dir, at) },
		"play":   playRecorded,
	})
	if !parent {
		return
	}
	original, _ := load(t, name)
	recorded, err := scenario.Load(filepath.Join(dir, recordedName))
	if err != nil {
		t.Fatal(err)
	}
	alias := aliases(original, at)
	var was []exposition
	for i := range moments {
		was = append(was, takeApart(t, alias.Replace(kept(t, dir, fmt.Sprint("moment-", i)))))
	}
	played := takeApart(t, aliases(recorded, 0).Replace(kept(t, dir, "played")))
	compareFamilies(t, was, played)
	compareConstants(t, was, played, past)
	if t.Failed() {
		t.Logf("the recording:\n%s", kept(t, dir, recordedName))
	}
}

// compareFamilies: no family vanishes, and none appears.
func compareFamilies(t *testing.T, was []exposition, played exposition) {
	t.Helper()
	ever := map[string]bool{}
	for _, e := range was {
		for family := range e.types {
			ever[family] = true
		}
	}
	for _, family := range slices.Sorted(maps.Keys(was[moments-1].types)) {
		if played.types[family] == "" {
			t.Errorf("%s vanished", family)
		}
	}
	for _, family := range slices.Sorted(maps.Keys(played.types)) {
		if !ever[family] {
			t.Errorf("%s appeared", family)
		}
	}
}

// history are gauges that tell of what was before the recording, and so are not those of it.
var history = map[string]string{
	"gpu_utilization_peak_ratio":      "the highest of the last minutes",
	"gpu_last_busy_timestamp_seconds": "a moment of the original's past",
}

// trembles are gauges that the driver rounds to whole degrees, and by how much they may differ at two moments
// although nothing happened: a limit is derived from two of them, and keeps to what it was.
var trembles = map[string]float64{"gpu_temperature_celsius": 1, "gpu_temperature_limit_celsius": 2, "gpu_temperature_margin_celsius": 1}

// compareConstants: every series of a gauge that stood still in the original is there, and stands there. None
// appears that was never there.
func compareConstants(t *testing.T, was []exposition, played exposition, past map[string]string) {
	t.Helper()
	compared := func(e exposition, series string) bool {
		family := familyOf(series)
		return e.types[family] == "gauge" && history[family] == "" && past[family] == ""
	}
	last := was[moments-1]
	ever := map[string]bool{}
	for _, e := range was {
		for series := range e.values {
			ever[series] = true
		}
	}
	steady := 0
	for _, series := range slices.Sorted(maps.Keys(last.values)) {
		want := last.values[series]
		stood := compared(last, series)
		for _, e := range was {
			once, ok := e.values[series]
			stood = stood && ok && once == want
		}
		if !stood {
			continue
		}
		steady++
		got, ok := played.values[series]
		switch {
		case !ok:
			t.Errorf("%s vanished", series)
		case math.Abs(got-want) > max(trembles[familyOf(series)], 1e-9*math.Abs(want)):
			t.Errorf("%s is %v, and was %v", series, got, want)
		}
	}
	if steady < 20 {
		t.Errorf("only %d series stood still", steady)
	}
	for _, series := range slices.Sorted(maps.Keys(played.values)) {
		if !ever[series] && compared(played, series) {
			t.Errorf("%s appeared", series)
		}
	}
}

// TestRecordCommand runs the real binary: a recording to a file and one to standard output, which read and are
// masked; a file that is there is left alone; what went wrong is one line.
func TestRecordCommand(t *testing.T) {
	t.Parallel()
	m := node(t, twoGPUs+"process gpu=0 pid=3947113 memory=1GiB busy=30% period=1s\n", twoPods)
	run := func(args ...string) (stdout, stderr string, code int) {
		t.Helper()
		all := append([]string{"record"}, args...)
		for _, given := range []string{"--nvml.library=" + m.Library, "--path.sysfs=" + m.Trees.Sysfs, "--duration=2s"} {
			name, _, _ := strings.Cut(given, "=")
			if !slices.ContainsFunc(args, func(a string) bool { return strings.HasPrefix(a, name+"=") }) {
				all = append(all, given)
			}
		}
		cmd := exec.CommandContext(t.Context(), machine.Binary(t), all...)
		cmd.Env = append(os.Environ(), m.Env...)
		var out, errs bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &errs
		if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
			t.Fatal(err)
		}
		return out.String(), errs.String(), cmd.ProcessState.ExitCode()
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "node.jsonl")
	if out, said, code := run("--output", file); code != exitOK || out != "" || !strings.Contains(said, file) {
		t.Fatalf("code %d, stdout %q, stderr %q", code, out, said)
	}
	text := kept(t, dir, "node.jsonl")
	s := playable(t, text)
	if len(s.GPUs) != 2 || len(s.Processes()) != 1 || len(text) > 1<<20 {
		t.Errorf("%d GPUs and %d processes in %d bytes", len(s.GPUs), len(s.Processes()), len(text))
	}
	// The process id is one of seven digits, which no duration or counter of the recording is likely to have in it.
	for _, secret := range []string{"aaaaaaaa-0000-4000", "bbbbbbbb-0000-4000", "3947113"} {
		if !strings.Contains(twoGPUs+"3947113", secret) {
			t.Fatalf("%s was never there", secret)
		}
		if strings.Contains(text, secret) {
			t.Errorf("%s is in the recording", secret)
		}
	}
	head, _, _ := strings.Cut(text, "\n")
	for _, word := range []string{"Masked:", "UUID", "serial", "process IDs", "PCI addresses", "name of the host"} {
		if !strings.Contains(head, word) {
			t.Errorf("its first line does not mention %q:\n%s", word, head)
		}
	}
	out, said, code := run("--output=-")
	if code != exitOK {
		t.Fatalf("to standard output: code %d, stderr %q", code, said)
	}
	playable(t, out)
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("%v, %v are left in the directory", entries, err)
	}

	for name, c := range map[string]struct {
		args []string
		code int
		want string
	}{
		"no output":      {nil, exitUsage, "--output"},
		"empty output":   {[]string{"--output="}, exitUsage, "--output"},
		"file there":     {[]string{"--output", file}, exitUsage, file},
		"no folder":      {[]string{"--output", filepath.Join(dir, "none", "file")}, exitBroken, "none"},
		"unknown flag":   {[]string{"--output=-", "--loud"}, exitUsage, "loud"},
		"argument":       {[]string{"--output=-", "surprise"}, exitUsage, "surprise"},
		"short duration": {[]string{"--output=-", "--duration=1ms"}, exitUsage, "--duration"},
		"bad duration":   {[]string{"--output=-", "--duration=long"}, exitUsage, "long"},
		"no library":     {[]string{"--output=-", "--nvml.library=" + filepath.Join(dir, "no.so")}, exitBroken, "no.so"},
	} {
		out, said, code := run(c.args...)
		lines := strings.Split(strings.TrimSpace(said), "\n")
		if last := lines[len(lines)-1]; code != c.code || out != "" || !strings.Contains(last, c.want) ||
			(len(lines) > 1 && name != "no folder") {
			t.Errorf("%s: code %d, stdout %q, stderr %q", name, code, out, said)
		}
	}
	if kept(t, dir, "node.jsonl") != text {
		t.Error("the file that was there was written to")
	}
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	cmd := exec.CommandContext(t.Context(), machine.Binary(t), "record", "--output=-", "--duration=2s", "--nvml.library="+m.Library,
		"--path.sysfs="+m.Trees.Sysfs)
	var errs bytes.Buffer
	cmd.Env, cmd.Stdout, cmd.Stderr = append(os.Environ(), m.Env...), full, &errs
	if err := cmd.Run(); cmd.ProcessState.ExitCode() != exitBroken || !strings.Contains(errs.String(), "no space left on device") ||
		strings.Count(errs.String(), "\n") != 2 {
		t.Errorf("to a full device: %v, stderr %q", err, errs.String())
	}
}

// playable turns a journal into a scenario.
func playable(t *testing.T, journal string) *scenario.Scenario {
	t.Helper()
	text, err := recording.Scenario([]byte(journal))
	if err != nil {
		t.Fatal(err)
	}
	s, err := scenario.Parse("recorded", string(text), nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestRecordFile: the file is whole or not there, and never in place of another.
func TestRecordFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "a")
	if err := writeRecording(file, []byte("one"), nil); err != nil {
		t.Fatal(err)
	}
	if err := writeRecording(file, []byte("two"), nil); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("over another file: %v", err)
	}
	if err := os.Symlink(filepath.Join(dir, "nowhere"), filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	if err := writeRecording(filepath.Join(dir, "link"), []byte("two"), nil); err == nil {
		t.Error("over a link")
	}
	if err := writeRecording(filepath.Join(dir, "none", "b"), []byte("two"), nil); err == nil {
		t.Error("into no directory")
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 2 || kept(t, dir, "a") != "one" {
		t.Errorf("%v, %v are left, and the file says %q", entries, err, kept(t, dir, "a"))
	}
}

// TestRecordCommandInterrupted: Ctrl-C ends it at once, also while a call hangs, and leaves no file.
func TestRecordCommandInterrupted(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]string{"watching": "", "hanging": "at 0s gpu 1 hang UtilizationRates\n"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := node(t, twoGPUs+script, "")
			dir := t.TempDir()
			cmd := exec.Command(machine.Binary(t), "record", "--nvml.library="+m.Library, "--path.sysfs="+m.Trees.Sysfs,
				"--output="+filepath.Join(dir, "x"), "--duration=2s")
			if script == "" {
				cmd.Args = append(cmd.Args[:len(cmd.Args)-1], "--duration=5m")
			}
			cmd.Env = append(os.Environ(), m.Env...)
			var out bytes.Buffer
			cmd.Stdout, cmd.Stderr = &out, &out
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) { // until it is where it is to be
				if script == "" && m.Control.Calls("nvmlDeviceGetSamples") > 2 || m.Control.Hanging() > 0 {
					break
				}
				if time.Now().After(deadline) {
					t.Fatal("it does not get there")
				}
			}
			start := time.Now()
			if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait()
			if took := time.Since(start); cmd.ProcessState.ExitCode() != exitBroken || took > 5*time.Second ||
				!strings.Contains(out.String(), "interrupted") {
				t.Errorf("code %d after %v: %s", cmd.ProcessState.ExitCode(), took, out.String())
			}
			if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
				t.Errorf("%v, %v are left", entries, err)
			}
		})
	}
}
