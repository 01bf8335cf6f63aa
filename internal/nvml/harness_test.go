package nvml

import (
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/internal/standin"
	"github.com/gpu-exporter/gpu-exporter/internal/standin/scenario"
)

// childVariable marks a process that was started for one test. The dynamic linker keeps the first library
// that was bound for the life of a process, so each set of symbols needs a process of its own.
const childVariable = "GPU_EXPORTER_NVML_TEST_CHILD"

// inChild runs the rest of the calling test in a process of its own. It returns true in that process; in
// the first it waits for the other, fails with it, and returns false.
func inChild(t *testing.T) bool {
	t.Helper()
	if os.Getenv(childVariable) != "" {
		return true
	}
	self, err := os.Executable()
	must.OK(t, err)
	var pattern []string
	for _, part := range strings.Split(t.Name(), "/") {
		pattern = append(pattern, "^"+regexp.QuoteMeta(part)+"$")
	}
	cmd := exec.CommandContext(t.Context(), self, "-test.run="+strings.Join(pattern, "/"), "-test.v", "-test.timeout=0")
	cmd.Env = append(os.Environ(), childVariable+"=1",
		"GORACE=atexit_sleep_ms=0") // under -race a process sleeps a second before it ends
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("in its own process: %v\n%s", err, out)
	} else if !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Errorf("in its own process the test did not run:\n%s", out)
	}
	return false
}

// libraries builds each symbol set once.
var libraries struct {
	sync.Mutex
	paths map[string]string
	dir   string
}

func fakeLibrary(t *testing.T, symbols string) string {
	t.Helper()
	libraries.Lock()
	defer libraries.Unlock()
	if path := libraries.paths[symbols]; path != "" {
		return path
	}
	dir, err := os.MkdirTemp(libraries.dir, symbols)
	must.OK(t, err)
	path, err := standin.BuildFakeNVML(t.Context(), symbols, dir)
	must.OK(t, err)
	libraries.paths[symbols] = path
	return path
}

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "nvml-test")
	if err != nil {
		panic(err)
	}
	libraries.dir, libraries.paths = dir, map[string]string{}
	code := m.Run()
	if err := os.RemoveAll(dir); err != nil {
		panic(err)
	}
	os.Exit(code)
}

// harness is a scenario that is being played, and a Library to read it.
type harness struct {
	*testing.T
	scenario *scenario.Scenario
	control  *scenario.Control
	library  *Library
	options  *Options
	calls    func() []gpu.CallStats
	session  *Session
	log      *strings.Builder
}

// common is a GPU that has little; tests add what they are about.
const common = `scenario 1
system DriverVersion = "580.105.08"
system NVMLVersion = "13.580.105.08"
system CudaDriverVersion = 13000
board b
  Name = "NVIDIA Test"
  Brand = 14
  Architecture = 9
  CudaComputeCapability = major=9 minor=0
  UtilizationRates = gpu=100*util memory=100*memutil
  ring period=100ms entries=100
  model idle_watts=100 busy_watts=500 idle_celsius=30 busy_celsius=60
  MemoryInfo_v2 = total=80GiB reserved=512MiB
  SupportedEventTypes = 0x1f9f
  profile 1g.10gb number=0 id=19 slices=1 memory=9984MiB sms=16 count=7
  profile 3g.40gb number=2 id=9 slices=3 memory=40448MiB sms=60 count=2
  profile 7g.80gb number=4 id=0 slices=7 memory=81024MiB sms=132 count=1
`

// playText plays a scenario that begins with common, on the newest symbol set.
func playText(t *testing.T, text string) *harness {
	t.Helper()
	s, err := scenario.Parse("test.scenario", common+text, nil)
	must.OK(t, err)
	return play(t, s, "newest")
}

// play plays a scenario; the clock stands at 0.
func play(t *testing.T, s *scenario.Scenario, symbols string) *harness {
	t.Helper()
	env, control, err := standin.Simulate(s, t.TempDir())
	must.OK(t, err)
	for _, e := range env {
		name, v, _ := strings.Cut(e, "=")
		t.Setenv(name, v)
	}
	log := &strings.Builder{}
	l := New(Options{Path: fakeLibrary(t, symbols), Clock: control.Time, SysfsRoot: t.TempDir(),
		Logger: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	r := &harness{T: t, scenario: s, control: control, library: l, options: &l.options, calls: l.Calls, log: log}
	t.Cleanup(func() {
		if r.session != nil {
			if err := r.session.Close(); err != nil && !errors.Is(err, ErrBusy) {
				t.Errorf("close: %v", err)
			}
		}
		if n := control.Overlaps(); n > 0 {
			t.Errorf("%d calls ran while another was under way on the same GPU", n)
		}
		if err := control.Close(); err != nil {
			t.Errorf("close control: %v", err)
		}
	})
	return r
}

// open opens the session and returns the GPUs.
func (r *harness) open() []*GPU {
	r.Helper()
	s, err := r.library.Open()
	if err != nil {
		r.Fatal(err)
	}
	r.session = s
	return r.scan()
}

func (r *harness) scan() []*GPU {
	r.Helper()
	devs, err := r.session.Scan()
	if err != nil {
		r.Fatal(err)
	}
	return devs
}

// at sets the clock.
func (r *harness) at(at time.Duration) { r.control.Set(at) }

// errors returns the errors counted of a call, by code.
func (r *harness) errors(call string) map[string]uint64 {
	m := map[string]uint64{}
	for _, c := range r.library.Calls() {
		if c.Call == call {
			for _, e := range c.Errors {
				m[e.Code] = e.Count
			}
		}
	}
	return m
}

// scenarios lists the shipped scenarios.
func scenarios(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("../../testdata/scenarios/*.scenario")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	var names []string
	for _, f := range files {
		names = append(names, strings.TrimSuffix(filepath.Base(f), ".scenario"))
	}
	return names
}

// pciDevice makes a GPU in a tree like /sys.
func pciDevice(t *testing.T, root, address, driver string) {
	t.Helper()
	dir := filepath.Join(root, "bus/pci/devices", address)
	err := os.MkdirAll(dir, 0o755)
	for name, text := range map[string]string{"vendor": "0x10de", "class": "0x030200", "numa_node": "1"} {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, name), []byte(text+"\n"), 0o600))
	}
	if err = errors.Join(err, os.Symlink("../../../../bus/pci/drivers/"+driver, filepath.Join(dir, "driver"))); err != nil {
		t.Fatal(err)
	}
}
