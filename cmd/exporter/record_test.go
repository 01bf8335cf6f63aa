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
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/internal/nvml"
	"github.com/gpu-exporter/gpu-exporter/internal/nvml/journal"
	"github.com/gpu-exporter/gpu-exporter/internal/standin"
	"github.com/gpu-exporter/gpu-exporter/internal/standin/machine"
	"github.com/gpu-exporter/gpu-exporter/internal/standin/playback"
	"github.com/gpu-exporter/gpu-exporter/internal/standin/scenario"
	"github.com/gpu-exporter/gpu-exporter/internal/testkit"
)

// salt is that of the journals.
var salt = []byte("salt")

// recording makes a journal of the node that a stage plays, letting its time pass.
func (s *stage) recording() []byte {
	s.t.Helper()
	library := nvml.New(nvml.Options{Path: s.library, SysfsRoot: s.trees.Sysfs, Clock: s.control.Time,
		Journal: journal.NewWriter(s.control.Time, salt)})
	session, err := library.Open()
	must.OK(s.t, err)
	text, err := session.Record(s.t.Context(), nvml.RecordOptions{Wait: func(_ context.Context, d time.Duration) error {
		s.control.Advance(d)
		return nil
	}})
	must.OK(s.t, errors.Join(err, session.Close()))
	return text
}

func keep(t *testing.T, dir, name, text string) {
	t.Helper()
	must.OK(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
}

func kept(t *testing.T, dir, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, name))
	must.OK(t, err)
	return string(text)
}

// moments is how many expositions of the original are kept. They lie apart by times that are no multiple of
// a period of the scenarios, so that what moves is seen to move.
const moments = 8

// recordAt plays a scenario up to a moment, and returns a journal, and expositions from before and after it with what is
// masked as in the journal.
func recordAt(t *testing.T, original *scenario.Scenario, at time.Duration) (text []byte, was []exposition) {
	t.Helper()
	st := play(t, original, "")
	defer st.close()
	st.run(at)
	masked := masks(original, at)
	for i := range moments {
		if i == moments-1 {
			text = st.recording()
		}
		st.control.Advance(1700 * time.Millisecond)
		st.step()
		was = append(was, takeApart(masked.Replace(st.metrics())))
	}
	return text, was
}

// masks replaces what is masked in a journal.
func masks(s *scenario.Scenario, at time.Duration) *strings.Replacer {
	m := journal.NewMask(salt)
	var pairs []string
	for i, c := range s.GPUs {
		pairs = append(pairs, string(c.UUID), m.UUID(string(c.UUID)))
		_, devices := s.Truth(i).MIG(at)
		for _, d := range devices {
			pairs = append(pairs, string(d.UUID), m.UUID(string(d.UUID)))
		}
		if a, ok := s.Answer(i, "Serial", at); ok && a.Text != "" {
			pairs = append(pairs, a.Text, m.Serial(a.Text))
		}
		if a, _ := s.Answer(i, "PlatformInfo", at); a.Numbers["chassisSerialNumber"] > 0 {
			serial := fmt.Sprintf("%.0f", a.Numbers["chassisSerialNumber"])
			pairs = append(pairs, serial, m.Serial(serial))
		}
		if a, _ := s.Answer(i, "GpuFabricInfo", at); a.Numbers["cluster"] > 0 {
			cluster := [16]byte{byte(a.Numbers["cluster"])}
			pairs = append(pairs, fmt.Sprintf(`"%02x000000-0000`, cluster[0]),
				fmt.Sprintf(`"%02x000000-0000`, m.Byte(string(cluster[:]))))
		}
	}
	return strings.NewReplacer(pairs...)
}

// playJournal puts the program on a journal, on a node with a driver library of a branch. What it exposes has the PIDs of the
// journal, none of which runs on the node.
func playJournal(t *testing.T, branch string, text []byte) *stage {
	t.Helper()
	driver, err := playback.New(text)
	must.OK(t, err)
	node := "scenario 1\nsymbols " + branch + "\nsystem DriverVersion = \"0\"\nboard b\n"
	for i, c := range driver.Bus {
		node += fmt.Sprintf("gpu %d board=b pci=%s\n", i, c.PCI)
	}
	s, err := scenario.Parse("journal", node, nil)
	must.OK(t, err)
	st := furnish(t, s, standin.KubeletNode{})
	// nvmlShutdown is not intercepted, and ends a process that has not loaded the library.
	session, err := nvml.New(nvml.Options{Path: st.library, SysfsRoot: st.trees.Sysfs, Clock: st.control.Time}).Open()
	must.OK(t, err)
	must.OK(t, session.Close())
	clock := st.control.Time
	if start := driver.Start(); !start.IsZero() {
		ahead := start.Sub(clock())
		clock = func() time.Time { return st.control.Time().Add(ahead) }
	}
	driver.Begin(clock)
	st.begin(clock, func(error) { t.Error("the program requests a re-execution") }, hooks{driver: driver.Call})
	st.step()
	t.Cleanup(st.close)
	return st
}

// TestJournals plays the journals of GPUs that the hardware check saved, and the one that JOURNAL names: each GPU of the bus is
// up. With -v it prints the metrics.
func TestJournals(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("..", "..", "docs", "evidence", "hardware", "*.journal"))
	must.OK(t, err)
	if named := os.Getenv("JOURNAL"); named != "" {
		files = append(files, named)
	}
	list := cases{}
	for _, file := range files {
		list.add("newest", filepath.Base(file), func(t *testing.T) {
			text, err := os.ReadFile(file)
			must.OK(t, err)
			st := playJournal(t, "newest", text)
			st.run(9 * time.Second)
			if up := strings.Count(st.metrics(), "\ngpu_device_up{"); up != len(st.s.GPUs) {
				t.Errorf("%d GPUs of %d", up, len(st.s.GPUs))
			}
			t.Logf("%s", st.metrics())
		})
	}
	list.run(t)
}

// exposition is a scrape taken apart: values by series, and the types of families.
type exposition struct {
	values series
	types  map[string]string
}

func takeApart(text string) exposition {
	e := exposition{parseSeries(text), map[string]string{}}
	for line := range strings.Lines(text) {
		if words := strings.Fields(line); strings.HasPrefix(line, "# TYPE ") && len(words) == 4 {
			e.types[words[2]] = words[3]
		}
	}
	return e
}

func familyOf(series string) string {
	name, _, _ := strings.Cut(series, "{")
	return name
}

// TestRecordRoundTrip plays each shipped scenario, records it, plays the journal, and compares: the same
// families, and the same value of every gauge that stood still in the original.
func TestRecordRoundTrip(t *testing.T) {
	const garbage = "faults, while a driver talks nonsense" // what it says is recorded as it was said
	list := cases{}
	for _, name := range append(scenarioNames(t), garbage) {
		at, past := 40*time.Second, map[string]string{}
		if name == garbage {
			name, at = "faults", 104*time.Second
			past["gpu_utilization_ratio"] = "is the mean of the last minute, most of it before the nonsense"
		}
		list.add(branchOf(name), name, func(t *testing.T) {
			original, _ := load(t, name)
			text, was := recordAt(t, original, at)
			st := playJournal(t, original.Symbols, text)
			st.run(9 * time.Second) // later the counters stand still
			// The journal has other PIDs than the node.
			played := takeApart(strings.ReplaceAll(st.metrics(), `reason="unresolved"`, `reason="host"`))
			compareFamilies(t, was, played)
			compareConstants(t, was, played, past)
			if t.Failed() {
				t.Logf("the journal:\n%s", text)
			}
		})
	}
	list.run(t)
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
		if !ever[family] && history[family] == "" {
			t.Errorf("%s appeared", family)
		}
	}
}

// history are gauges of what was before the journal or between its lines, and so are not those of it.
var history = map[string]string{
	"gpu_utilization_peak_ratio":      "the highest of the last minutes",
	"gpu_last_busy_timestamp_seconds": "a moment of the original's past",
	"gpu_unmeasured_info":             "rates of GPM over each second differ from those over two",
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
	written, err := syscall.InotifyInit1(syscall.IN_NONBLOCK)
	must.OK(t, err)
	defer syscall.Close(written)
	_, err = syscall.InotifyAddWatch(written, dir, syscall.IN_CLOSE_WRITE)
	must.OK(t, err)
	if out, said, code := run("--output", file); code != exitOK || out != "" || !strings.Contains(said, file) {
		t.Fatalf("code %d, stdout %q, stderr %q", code, out, said)
	}
	events := make([]byte, 4096) // the file is written under another name: a kill leaves no part of it
	if n, err := syscall.Read(written, events); err != nil || strings.Contains(string(events[:n]), "node.jsonl\x00") {
		t.Errorf("%v, written: %q", err, events[:max(n, 0)])
	}
	text := kept(t, dir, "node.jsonl")
	_, lines, err := playback.Parse([]byte(text))
	must.OK(t, err)
	if n := len(lines); n < 500 || len(text) > 1<<20 || !strings.Contains(text, `"gpu":1,"call":"nvmlDeviceGetUUID"`) {
		t.Errorf("%d calls in %d bytes", n, len(text))
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
	_, _, err = playback.Parse([]byte(out))
	must.OK(t, err)
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("%v, %v are left in the directory", entries, err)
	}

	if out, said, code := run("--output=-", "--nvml.library="+filepath.Join(dir, "no.so")); code != exitBroken || out != "" ||
		!strings.Contains(said, "no.so") || strings.Count(said, "\n") != 1 {
		t.Errorf("without a library: code %d, stdout %q, stderr %q", code, out, said)
	}
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	must.OK(t, err)
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
			must.OK(t, cmd.Start())
			testkit.Until(func() bool { // it is where it is to be
				return script == "" && m.Control.Calls("nvmlDeviceGetSamples") > 2 || m.Control.Hanging() > 0
			})
			must.OK(t, cmd.Process.Signal(syscall.SIGINT))
			_ = cmd.Wait()
			// Otherwise it would end after minutes, or never.
			if cmd.ProcessState.ExitCode() != exitBroken || !strings.Contains(out.String(), "interrupted") {
				t.Errorf("code %d: %s", cmd.ProcessState.ExitCode(), out.String())
			}
			if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
				t.Errorf("%v, %v are left", entries, err)
			}
		})
	}
}
