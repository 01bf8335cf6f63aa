package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/internal/sampler"
	"github.com/gpu-exporter/gpu-exporter/internal/standin"
	"github.com/gpu-exporter/gpu-exporter/internal/standin/scenario"
	"github.com/gpu-exporter/gpu-exporter/internal/testkit"
)

// The tests of this file put the whole program together in one process, with the fake driver and a stepped
// clock: an hour of the scenario takes a second, and every figure is exact.

var update = flag.Bool("update", false, "write the goldens instead of comparing them")

const (
	// childMarker names the test for which a process was started.
	childMarker = "GPU_EXPORTER_TEST_CHILD"
	// libraryMarker has the driver branch and the library that all cases of a process load: its first one stays bound.
	libraryMarker = "GPU_EXPORTER_TEST_LIBRARY"
)

// isolated runs body in a process of its own: a driver library stays mapped, with its scenario, as long as
// the process that loaded it. The test fails as the child does.
func isolated(t *testing.T, body func(t *testing.T)) {
	t.Helper()
	alone(t, func() (string, error) { return os.Args[0], nil }, body)
}

// unraced is isolated without the race detector, under which a case takes three times the processor time. It is for tests of
// many cases that differ in what the driver, the kubelet or a planted mistake returns: the code that they run is run under the
// race detector by TestSoak, TestFaults, TestPodsComeAndGo and a board of TestEveryCallMayFail.
func unraced(t *testing.T, body func(t *testing.T)) {
	t.Helper()
	alone(t, unracedBinary, body)
}

// cases are subtests by the driver branch that they load.
type cases map[string][]struct {
	name string
	body func(t *testing.T)
}

func (c cases) add(branch, name string, body func(t *testing.T)) {
	c[branch] = append(c[branch], struct {
		name string
		body func(t *testing.T)
	}{strings.ReplaceAll(name, " ", "_"), body})
}

// run runs the cases of a branch in one process, one after the other (see unraced). It returns when all have run, in a child
// false.
func (c cases) run(t *testing.T) (parent bool) {
	t.Helper()
	if parent = os.Getenv(childMarker) == ""; parent {
		t.Parallel()
	}
	t.Run("on", func(t *testing.T) {
		for branch, list := range c {
			t.Run(branch, func(t *testing.T) {
				unraced(t, func(t *testing.T) {
					t.Setenv(libraryMarker, branch+" "+buildDriver(t, branch, t.TempDir()))
					for _, one := range list {
						t.Run(one.name, one.body)
					}
				})
			})
		}
	})
	return parent
}

// TestScenarios plays the scenarios that are tests of their own, in one process.
func TestScenarios(t *testing.T) {
	list := cases{}
	for name, body := range map[string]func(*testing.T){
		"SharedContainersNeverReadZero":       sharedContainersNeverReadZero,
		"SoleContainerNeedsOnlyTheSocket":     soleContainerNeedsOnlyTheSocket,
		"KubeletRestartEndsNoAlloc":           kubeletRestartEndsNoAlloc,
		"ProcessThatOutlivesItsPod":           processThatOutlivesItsPod,
		"StoppedProcess":                      stoppedProcess,
		"LifeOfMIGInstances":                  lifeOfMIGInstances,
		"LayoutWithoutNotice":                 layoutWithoutNotice,
		"SlowCallIsWaitedFor":                 slowCallIsWaitedFor,
		"Bandwidth":                           bandwidth,
		"DutyCycleIsExactAtAnyScrapeInterval": dutyCycleIsExactAtAnyScrapeInterval,
		"CountersSinceTheStart":               countersSinceTheStart,
		"ComputeInstances":                    computeInstances,
		"ContainersOfComputeInstances":        containersOfComputeInstances,
		"MPSClientsOfThreePods":               mpsClientsOfThreePods,
		"MPSBeforeVolta":                      mpsBeforeVolta,
		"MPSServerThatIsNone":                 mpsServerThatIsNone,
		"SlurmWithoutAKubelet":                slurmWithoutAKubelet,
		"SlurmWithoutTheRight":                slurmWithoutTheRight,
		"OnePC":                               onePC,
		"SlurmBesideAKubelet":                 slurmBesideAKubelet,
		"UnboundGPU":                          unboundGPU,
		"SuspendedGPU":                        suspendedGPU,
	} {
		branch := "R580"
		if name == "Bandwidth" { // from R595 on GPM has sums
			branch = "R595"
		}
		list.add(branch, name, body)
	}
	list.run(t)
}

// unracedBinary builds this test once more where it runs under the race detector.
var unracedBinary = sync.OnceValues(func() (string, error) {
	info, ok := debug.ReadBuildInfo()
	if !ok || !slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
		return os.Args[0], nil
	}
	path := filepath.Join("..", "..", "bin", "exporter.test")
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return "", err
	}
	// As deploy/build builds the program, whose packages are then in the build cache.
	if out, err := exec.Command("go", "test", "-c", "-vet=off", "-trimpath", "-o", path, ".").CombinedOutput(); err != nil {
		return "", fmt.Errorf("go test -c: %w\n%s", err, out)
	}
	return path, nil
})

func alone(t *testing.T, binary func() (string, error), body func(t *testing.T)) {
	t.Helper()
	if os.Getenv(childMarker) == t.Name() {
		body(t)
		return
	}
	t.Parallel()
	var pattern []string
	for _, part := range strings.Split(t.Name(), "/") {
		pattern = append(pattern, "^"+regexp.QuoteMeta(part)+"$")
	}
	args := []string{"-test.run=" + strings.Join(pattern, "/"), "-test.v"}
	flag.Visit(func(f *flag.Flag) {
		if !strings.HasPrefix(f.Name, "test.") {
			args = append(args, "-"+f.Name+"="+f.Value.String())
		}
	})
	program, err := binary()
	must.OK(t, err)
	cmd := exec.Command(program, args...)
	cmd.Env = append(os.Environ(), childMarker+"="+t.Name(),
		"GOGC=400",                 // less work for the collector
		"GORACE=atexit_sleep_ms=0") // under -race a process sleeps a second before it ends
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	} else if !bytes.Contains(out, []byte("--- PASS: "+t.Name())) {
		t.Errorf("the child ran no such test:\n%s", out)
	} else if testing.Verbose() {
		t.Logf("%s", out) // its summary
	}
}

// stage is the whole program on a fake node under a stepped clock.
type stage struct {
	t       *testing.T
	e       *exporter
	config  *config
	library string
	socket  string
	control *scenario.Control
	s       *scenario.Scenario
	kubelet *standin.Kubelet
	trees   standin.Trees
	dir     string
	printed time.Time
	door    *doorman
	hangs   func(at time.Duration) int // calls that the scenario lets hang then, at most; nil: none
}

// play puts the program on the scenario, and takes the first step. It must run in an isolated process.
func play(t *testing.T, s *scenario.Scenario, pods string, flags ...string) *stage {
	t.Helper()
	n, err := standin.ParsePods("pods", strings.NewReader(pods))
	must.OK(t, err)
	st := furnish(t, s, n)
	st.begin(st.control.Time, func(error) { t.Error("the program requests a re-execution") }, hooks{}, flags...)
	st.step()
	t.Cleanup(st.close)
	return st
}

// close shuts the driver down, so that another scenario can be played in the process.
func (s *stage) close() {
	s.e.sampler.Close()
	if n := s.control.Sessions(); n != 0 {
		s.t.Errorf("%d sessions of the driver are left open", n)
	}
}

// buildDriver returns the library that this process loads: that of its cases, or a new one in dir.
func buildDriver(t *testing.T, branch, dir string) string {
	t.Helper()
	if had, library, ok := strings.Cut(os.Getenv(libraryMarker), " "); ok && had != branch {
		t.Fatalf("this process has the driver %s, and the scenario is of %s", had, branch)
	} else if ok {
		return library
	}
	library, err := standin.BuildFakeNVML(t.Context(), branch, dir)
	must.OK(t, err)
	return library
}

// simulate has the driver of this process play a scenario when it is initialized next.
func simulate(t *testing.T, s *scenario.Scenario, dir string) *scenario.Control {
	t.Helper()
	env, control, err := standin.Simulate(s, dir)
	must.OK(t, err)
	t.Cleanup(func() { control.Close() })
	for _, e := range env {
		name, value, _ := strings.Cut(e, "=")
		os.Setenv(name, value) // with cgo, also what the library's getenv sees
	}
	return control
}

// furnish puts up what is around the program: the driver, the kubelet and its socket, the trees of files.
func furnish(t *testing.T, s *scenario.Scenario, n standin.KubeletNode) *stage {
	t.Helper()
	st := &stage{t: t, s: s, dir: t.TempDir()}
	st.library = buildDriver(t, s.Symbols, st.dir)
	st.control = simulate(t, s, st.dir)
	var err error
	if st.trees, err = standin.WriteTrees(st.dir, s, n); err != nil {
		t.Fatal(err)
	}
	short, err := os.MkdirTemp("", "kubelet-")
	must.OK(t, err)
	t.Cleanup(func() { os.RemoveAll(short) })
	st.socket = filepath.Join(short, "kubelet.sock")
	st.door = &doorman{control: st.control}
	done, attended := make(chan struct{}), make(chan struct{})
	t.Cleanup(func() { close(done); <-attended })
	go func() {
		defer close(attended)
		st.door.attend(done)
	}()
	st.kubelet = standin.NewKubelet()
	st.kubelet.SetNode(n)
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- st.kubelet.Serve(ctx, st.socket) }()
	t.Cleanup(func() { cancel(); <-served })
	must.OK(t, st.kubelet.Ready(t.Context()))
	return st
}

// begin puts the program together on what is there.
func (s *stage) begin(clock func() time.Time, restart func(error), change hooks, flags ...string) {
	s.t.Helper()
	var out bytes.Buffer
	args := []string{"--node-name=node-1", "--nvml.library=" + s.library, "--kubelet.socket=" + s.socket, "--path.sysfs=" + s.trees.Sysfs,
		"--path.pod-logs=" + s.trees.PodLogs, "--path.container-logs=" + s.trees.ContainerLogs}
	if slices.ContainsFunc(parts, func(p part) bool { return nameOf(p) == "kmsg" }) {
		args = append(args, "--path.kmsg=")
	}
	for _, otherwise := range []string{"--path.procfs=" + s.trees.Procfs, "--log.level=warn", "--metrics=all"} {
		name, _, _ := strings.Cut(otherwise, "=")
		if !slices.ContainsFunc(flags, func(f string) bool { return strings.HasPrefix(f, name+"=") }) {
			args = append(args, otherwise)
		}
	}
	change.deadline = time.Hour // longer than a test
	inner := change.sampler
	change.sampler = func(o *sampler.Options) {
		o.Watch, o.Hung = clock, s.door.hung
		if inner != nil {
			inner(o)
		}
	}
	c, err := parse(append(args, flags...), &out, os.Stderr)
	must.OK(s.t, err)
	if s.e, err = newExporter(c, clock, restart, change); err != nil {
		s.t.Fatal(err)
	}
	s.config = c
}

// setPods changes what the kubelet lists, and the processes and logs that follow from it. A process whose
// PID is in reused started anew: it is another one.
func (s *stage) setPods(pods string, reused ...int) {
	s.t.Helper()
	n, err := standin.ParsePods("pods", strings.NewReader(pods))
	must.OK(s.t, err)
	for _, d := range []string{s.trees.Sysfs, s.trees.Procfs, filepath.Dir(s.trees.PodLogs)} {
		must.OK(s.t, os.RemoveAll(d))
	}
	if _, err := standin.WriteTrees(s.dir, s.s, n); err != nil {
		s.t.Fatal(err)
	}
	for _, pid := range reused {
		path := filepath.Join(s.trees.Procfs, strconv.Itoa(pid), "stat")
		stat, err := os.ReadFile(path)
		must.OK(s.t, err)
		stat = bytes.Replace(stat, []byte(fmt.Sprintf(" %d 0 0\n", 1000+pid)), []byte(fmt.Sprintf(" %d 0 0\n", 900000+pid)), 1)
		must.OK(s.t, os.WriteFile(path, stat, 0o644))
	}
	s.kubelet.SetNode(n)
}

// watched lets time go on tick by tick, and after each checks what must always hold: no counter falls, and
// the parts of each GPU add up to it.
func (s *stage) watched(d time.Duration) series {
	s.t.Helper()
	before := s.series()
	for end := s.control.Now() + d; s.control.Now() < end; {
		s.run(fastPoll)
		now := s.series()
		for text, v := range now {
			family, _, _ := strings.Cut(text, "{")
			if was, ok := before[text]; ok && strings.HasSuffix(family, "_total") && v < was-1e-9 {
				s.t.Fatalf("at %v %s fell from %v to %v", s.control.Now(), text, was, v)
			}
		}
		for text, v := range now {
			if strings.HasPrefix(text, "gpu_attribution_error_ratio") && math.Abs(v) > 0.001 {
				s.t.Fatalf("at %v %s is %v", s.control.Now(), text, v)
			}
		}
		before = now
	}
	return before
}

const fastPoll = 2 * time.Second

// run lets the time of the scenario go on, in fast ticks.
func (s *stage) run(d time.Duration) {
	s.t.Helper()
	for end := s.control.Now() + d; s.control.Now() < end; {
		s.control.Advance(fastPoll)
		s.settle()
		s.step()
	}
}

// calls is how many calls the driver had.
func (s *stage) calls() (n uint64) {
	for _, of := range s.control.AllCalls() {
		n += of
	}
	return n
}

// settle waits for the driver's threads that hang no more, so that the poll finds their results. They do not say when they
// are woken.
func (s *stage) settle() {
	most := 0
	if s.hangs != nil {
		most = s.hangs(s.control.Now())
	}
	testkit.Until(func() bool { return s.control.Hanging() <= most })
}

// step is one tick of every loop that is due.
func (s *stage) step() {
	s.t.Helper()
	now := s.control.Time()
	if now.Sub(s.printed) >= 10*time.Second {
		s.printed = now
		s.e.poll(s.t.Context())
	}
	s.e.sampler.Step(now)
}

// metrics is the exposition, without what differs from run to run: times that calls took, the build, the process.
func (s *stage) metrics() string {
	s.t.Helper()
	return varying.ReplaceAllString(s.page(), "")
}

// page is the exposition.
func (s *stage) page() string {
	s.t.Helper()
	var b strings.Builder
	if err := s.e.metrics.WriteText(&b, false, nil); err != nil {
		s.t.Error(err)
	}
	return b.String()
}

var varying = regexp.MustCompile(
	`(?m)^(# HELP |# TYPE )?gpu_exporter_((poll_)?call_duration|poll_duration|source_duration|build_info)(_\w+)?[ {].*\n`)

func (s *stage) series() series { return parseSeries(s.page()) }

// helpGolden is the golden that keeps the HELP lines; docs/metrics.md has the text of every family.
const helpGolden = "little"

// slowCallIsWaitedFor: the time that calls take under a stepped clock is the scenario's. One that takes real time, as all do on
// a busy machine, misses neither a poll nor the deadline of calls.
func slowCallIsWaitedFor(t *testing.T) {
	s := parseScenario(t, oneGPU+"at 10s gpu 0 delay FieldValues 300ms\nat 12s gpu 0 delay FieldValues 0s\n")
	st := play(t, s, "", "--poll.fast=500ms", "--call-deadline=100ms") // a poll waits for 250 ms
	for st.control.Now() < 14*time.Second {
		before := st.series()
		st.run(fastPoll)
		now := st.series()
		verify(t, now.is(1, "gpu_device_up"), now.is(0, "gpu_exporter_source_errors_total", `source="nvml"`))
		if was, is := sum(before.match("gpu_energy_joules_total")), sum(now.match("gpu_energy_joules_total")); !(is > was) {
			t.Errorf("at %v the energy was not read: %v after %v", st.control.Now(), is, was)
		}
	}
}

// golden compares the exposition with testdata/golden/NAME.prom, or writes it. The goldens except helpGolden have no
// HELP lines, so that a corrected HELP text does not change all of them.
func (s *stage) golden(name string) {
	s.t.Helper()
	path := filepath.Join("..", "..", "testdata", "golden", name+".prom")
	got := s.metrics()
	if name != helpGolden {
		got = helpLine.ReplaceAllString(got, "")
	}
	sameFile(s.t, path, got)
}

// sameFile compares a text with a file, or writes it.
func sameFile(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		must.OK(t, os.MkdirAll(filepath.Dir(path), 0o755))
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	must.OK(t, err)
	if string(want) != got {
		t.Errorf("the exporter does not produce %s; make generate writes it\n%s", path, difference(string(want), got))
	}
}

var helpLine = regexp.MustCompile(`(?m)^# HELP .*\n`)

// difference shows the lines that only one of two texts has.
func difference(want, got string) string {
	has := func(text string) map[string]bool {
		m := map[string]bool{}
		for _, l := range strings.Split(text, "\n") {
			m[l] = true
		}
		return m
	}
	w, g := has(want), has(got)
	var b strings.Builder
	for _, l := range strings.Split(want, "\n") {
		if !g[l] {
			b.WriteString("- " + l + "\n")
		}
	}
	for _, l := range strings.Split(got, "\n") {
		if !w[l] {
			b.WriteString("+ " + l + "\n")
		}
	}
	return b.String()
}
