package nvml

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/dl"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/internal/standin"
	"github.com/gpu-exporter/gpu-exporter/internal/standin/scenario"
)

// record opens the session and records, letting the scenario's time pass.
func (r *rig) record(salt string) (string, *scenario.Scenario) {
	r.Helper()
	if r.session == nil {
		s, err := r.library.Open()
		if err != nil {
			r.Fatal(err)
		}
		r.session = s
	}
	text, err := r.session.Record(r.Context(), RecordOptions{Salt: []byte(salt), Wait: func(_ context.Context, d time.Duration) error {
		r.control.Advance(d)
		return nil
	}})
	if err != nil {
		r.Fatal(err)
	}
	s, err := scenario.Parse("recorded.scenario", string(text), nil)
	if err != nil {
		r.Fatal(err)
	}
	return string(text), s
}

// TestRecordSymbolSets holds the table of symbol sets against the stand-in driver: a set has what it says, and
// what the sets before it have.
func TestRecordSymbolSets(t *testing.T) {
	names := []string{}
	for _, set := range symbolSets {
		names = append(names, set.name)
	}
	if !slices.Equal(names, scenario.SymbolSets) {
		t.Fatalf("the sets are %v, the language's %v", names, scenario.SymbolSets)
	}
	first := map[string]int{}
	for i, set := range symbolSets {
		for _, s := range set.adds {
			first[s] = i
		}
	}
	for i, set := range symbolSets {
		path, err := standin.BuildFakeNVML(t.Context(), set.name, t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		file := dl.New(path, dl.RTLD_LAZY|dl.RTLD_LOCAL)
		if err := file.Open(); err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		for id := range guards {
			for _, s := range guards[id].symbols() {
				has := file.Lookup(s) == nil
				if at, listed := first[s]; listed && has != (i >= at) {
					t.Errorf("%s: %s is there: %v", set.name, s, has)
				} else if !listed && has && i > 0 && !had(t, s) {
					t.Errorf("%s has %s, which the table does not say", set.name, s)
				}
			}
		}
	}
}

// had reports whether the oldest set has a symbol.
func had(t *testing.T, symbol string) bool {
	t.Helper()
	path, err := standin.BuildFakeNVML(t.Context(), symbolSets[0].name, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	file := dl.New(path, dl.RTLD_LAZY|dl.RTLD_LOCAL)
	if err := file.Open(); err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	return file.Lookup(symbol) == nil
}

func TestRecordNearestSet(t *testing.T) {
	has := func(symbols ...string) func(string) bool {
		return func(s string) bool { return slices.Contains(symbols, s) }
	}
	for _, c := range []struct {
		name          string
		exports       func(string) bool
		driver        string
		field, metric int
		want          string
	}{
		{"an old driver", has(), "470.256.02", 91, 0, "R470"},
		{"a driver between the sets", has("nvmlDeviceGetMemoryInfo_v2"), "510.47.03", 91, 0, "R535"},
		{"the branch itself", has("nvmlGpmSampleGet"), "535.183.01", 186, 13, "R535"},
		{"a field that the branch's set lacks", has("nvmlGpmSampleGet"), "535.183.01", 198, 13, "R580"},
		{"between the newer sets", has("nvmlDeviceGetTemperatureV"), "590.48.01", 271, 13, "R580"},
		{"R595", has("nvmlDeviceGetTemperatureV"), "595.91.07", 271, 13, "R595"},
		{"newer than all", has("nvmlDeviceGetTemperatureV"), "610.43.02", 271, 13, "newest"},
		{"a version that is none", has(), "unknown", 0, 0, "R470"},
	} {
		if got := nearestSet(c.exports, c.driver, c.field, c.metric); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

// notReads are the calls of the guard table that answer nothing which could be recorded.
var notReads = map[callID]string{
	callInit: "begins the session", callShutdown: "ends it", callDeviceCount: "is the number of GPU statements",
	callHandleByIndex: "gives the handle", callGPMSampleFree: "gives a sample back",
	callEventSetCreate: "is for waiting", callEventSetFree: "is for waiting", callRegisterEvents: "changes what the driver does", callEventSetWait: "waits",
}

// TestRecordAsksEverything: a recording makes every call of the guard table that reads, and asks for every
// field and scope that the poll groups ask for. A new call or row is caught here.
func TestRecordAsksEverything(t *testing.T) {
	if !inChild(t) {
		return
	}
	r := playText(t, "  GpmQueryDeviceSupport = 1\ngpu 0 board=b\ngpu 1 board=b\nmig gpu=0 layout=\"gi=1 profile=3g.40gb start=0 size=4\"\n")
	s, err := r.library.Open()
	if err != nil {
		t.Fatal(err)
	}
	r.session = s
	before := r.control.AllCalls()
	text, recorded := r.record("salt")
	after := r.control.AllCalls()
	for id := range guards {
		if notReads[callID(id)] != "" {
			continue
		}
		asked := false
		for _, symbol := range guards[id].symbols() {
			asked = asked || after[symbol] > before[symbol]
		}
		if callID(id) == callDriverVersion { // asked by Open, and kept
			asked = strings.Contains(text, "DriverVersion = ")
		}
		if !asked {
			t.Errorf("%s was not asked", guards[id].name)
		}
	}
	lines := regexp.MustCompile(`(?m)^  Field\[`).FindAllString(text, -1)
	if len(lines) == 0 {
		t.Fatal("no fields are recorded")
	}
	for _, batch := range fieldBatches() {
		for _, f := range batch {
			key := fmt.Sprintf("Field[%d,%d]", f.id, f.scope)
			if f.scope == allLinks {
				key = fmt.Sprintf("Field[%d,all]", f.id)
			}
			if _, ok := recorded.Answer(1, key, 0); !ok {
				if _, ok := recorded.Answer(1, fmt.Sprintf("Field[%d]", f.id), 0); !ok || f.scope != 0 {
					t.Errorf("%s is not in the recording", key)
				}
			}
		}
	}
}

// TestRecordMasks: nothing that names a GPU, a board or a process of the node is left, and the same original
// has one replacement within a file and others in other files.
func TestRecordMasks(t *testing.T) {
	if !inChild(t) {
		return
	}
	const gpuUUID = "5a0e4100-8c1d-4e6b-9d10-0000000000aa"
	const migUUID = "1b3e3001-1d11-5a01-8b00-000000000510"
	r := playText(t, `  GpmQueryDeviceSupport = 1
gpu 0 board=b uuid=GPU-`+gpuUUID+` pci=0000:53:00.0 serial=1650000000140
gpu 1 board=b uuid=GPU-b0b0b0b0-8c1d-4e6b-9d10-0000000000bb pci=0000:64:00.0 serial=1650000000140
gpu 2 board=b uuid=GPU-c0c0c0c0-8c1d-4e6b-9d10-0000000000cc pci=0000:74:00.0 serial=AB-77
mig gpu=2 layout="gi=1 profile=3g.40gb start=0 size=4 uuid=MIG-`+migUUID+`"
process gpu=0 pid=777123 memory=1GiB busy=20%
process gpu=1 pid=777123 memory=1GiB busy=20%
process gpu=1 pid=777124 memory=1GiB busy=20% phase=500ms
process gpu=2 pid=777125 gi=1 memory=1GiB busy=20%
`)
	text, s := r.record("one salt")
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{gpuUUID, migUUID, "b0b0b0b0", "c0c0c0c0", "1650000000140", "AB-77", "777123", "777124", "777125"} {
		if secret != "" && strings.Contains(strings.ToLower(text), strings.ToLower(secret)) {
			t.Errorf("%q is in the recording:\n%s", secret, text)
		}
	}
	if regexp.MustCompile(`(?i)\b` + regexp.QuoteMeta(host) + `\b`).MatchString(text) {
		t.Errorf("the host's name, %q, is in the recording:\n%s", host, text)
	}
	for _, kept := range []string{"0000:53:00.0", "NVIDIA Test", "580.105.08"} {
		if !strings.Contains(text, kept) {
			t.Errorf("%q is not in the recording", kept)
		}
	}
	shape := regexp.MustCompile(`^GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)
	uuids := map[string]bool{}
	for _, c := range s.GPUs {
		if !shape.MatchString(string(c.UUID)) {
			t.Errorf("%s has not the shape of a UUID", c.UUID)
		}
		uuids[string(c.UUID)] = true
	}
	serial := func(dev int) string { a, _ := s.Answer(dev, "Serial", 0); return a.Text }
	if len(uuids) != 3 || serial(0) != serial(1) || len(serial(0)) != 13 || !regexp.MustCompile(`^[A-Z]{2}-\d\d$`).MatchString(serial(2)) {
		t.Errorf("UUIDs %v, serials %s, %s, %s", uuids, serial(0), serial(1), serial(2))
	}
	pids := []string{}
	for _, p := range s.Processes() {
		pids = append(pids, fmt.Sprintf("%d:%d", p.GPU, p.PID))
	}
	if got := strings.Join(pids, " "); got != "0:1001 1:1001 1:1002 2:1003" {
		t.Errorf("processes %s", got)
	}
	again, _ := r.record("one salt")
	other, o := r.record("another salt")
	if u := uuidShape.FindAllString(text, -1); !slices.Equal(u, uuidShape.FindAllString(again, -1)) {
		t.Error("the same salt masks another way")
	} else if slices.ContainsFunc(u, func(s string) bool { return strings.Contains(other, s) }) || o.GPUs[0].UUID == s.GPUs[0].UUID {
		t.Error("another salt masks the same way")
	}
}

func TestRecordMaskShapes(t *testing.T) {
	m := newMask([]byte("salt"))
	whole := m.uuid("GPU-5a0e4100-8c1d-4e6b-9d10-0000000000aa")
	if old := m.uuid("MIG-GPU-5A0E4100-8c1d-4e6b-9d10-0000000000aa/7/0"); old != "MIG-"+whole+"/7/0" {
		t.Errorf("the old name of a MIG device is %s, its GPU %s", old, whole)
	}
	for _, odd := range []string{"a name\nwith \"spaces\"", "0000:53:00.0", strings.Repeat("x", 500)} {
		if got := m.uuid(odd); strings.Contains(got, odd) || !uuidShape.MatchString(got) {
			t.Errorf("%q became %q", odd, got)
		}
	}
	if m.uuid("") != "" || m.serial("") != "" {
		t.Error("nothing was masked")
	}
	if one, other := newMask(nil), newMask(nil); one.serial("1650000000140") == other.serial("1650000000140") {
		t.Error("the salt is not random")
	}
}

// TestRecordActivity: what GPUs and processes did is in the recording, as parts of the time.
func TestRecordActivity(t *testing.T) {
	if !inChild(t) {
		return
	}
	r := playText(t, `  TotalEnergyConsumption = 5000 + 250000*t
  Field[83] = 5000 + 250000*t
gpu 0 board=b
gpu 1 board=b
gpu 2 board=b
  ring period=200ms entries=50 clock=boot idle=stop
process gpu=0 pid=10 memory=4GiB busy=30% dram=50%
process gpu=0 pid=11 memory=na busy=20% phase=500ms dram=50%
load gpu=1 busy=40% period=1s
load gpu=2 busy=10% period=2s
`)
	r.at(30 * time.Second)
	text, s := r.record("salt")
	from, to := 100*time.Second, 200*time.Second
	for dev, want := range []float64{0.5, 0.4, 0.1} {
		if got := float64(s.Truth(dev).Busy(from, to)) / 100; got < want-0.01 || got > want+0.01 {
			t.Errorf("GPU %d is busy for %.3f of the time, not %.3f", dev, got, want)
		}
	}
	if got := float64(s.Truth(0).MemoryBusy(from, to)) / 100; got < 0.23 || got > 0.27 {
		t.Errorf("memory is busy for %.3f of the time, not 0.25", got)
	}
	if got := float64(s.Truth(0).ProcessBusy(1001, from, to)) / 100; got < 0.25 || got > 0.35 {
		t.Errorf("the first process works for %.3f of the time, not 0.3", got)
	}
	processes := s.Processes()
	if len(processes) != 2 || processes[0].Memory.Or(0) != 4<<30 || processes[1].Memory.Present() {
		t.Errorf("processes: %+v", processes)
	}
	for _, line := range []string{"ring period=100000us entries=100\n", "ring period=200000us entries=50 clock=boot idle=stop", "Field[83] = 7505000 + 250000*t", "TotalEnergyConsumption = 7505000 + 250000*t"} {
		if !strings.Contains(text, line) {
			t.Errorf("%q is not in the recording:\n%s", line, text)
		}
	}
}

// TestRecordLost: a GPU that is lost, before or meanwhile, is recorded as lost; one that the bus has and the
// driver does not know, as removed.
func TestRecordLost(t *testing.T) {
	if !inChild(t) {
		return
	}
	r := playText(t, `gpu 0 board=b
gpu 1 board=b
gpu 2 board=b
at 0s gpu 0 lose
at 3s gpu 1 reset_required
`)
	devices := filepath.Join(r.library.options.SysfsRoot, "bus", "pci", "devices")
	for _, at := range []string{"0000:18:00.0", "0000:19:00.0", "0000:1a:00.0", "0000:77:00.0"} {
		for name, text := range map[string]string{"vendor": "0x10de\n", "class": "0x030200\n"} {
			if err := os.MkdirAll(filepath.Join(devices, at), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(devices, at, name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	text, s := r.record("salt")
	var states []string
	for dev := range s.GPUs {
		states = append(states, s.Truth(dev).State(time.Minute))
	}
	if got := strings.Join(states, ","); got != "GPU_IS_LOST,RESET_REQUIRED,,GPU_IS_LOST" || !strings.Contains(text, "at 0s gpu 3 remove") {
		t.Errorf("states %q in\n%s", got, text)
	}
	if s.GPUs[3].PCI != "0000:77:00.0" {
		t.Errorf("GPU 3 is %+v", s.GPUs[3])
	}
}

// TestRecordRefusals: return codes, garbage and texts that would break a line are in the recording as such.
func TestRecordRefusals(t *testing.T) {
	if !inChild(t) {
		return
	}
	r := playText(t, `gpu 0 board=b
  Name = "A \"gpu\" # of \\ sorts"
  PowerUsage = !NO_PERMISSION
  Field[82] = !UNTOUCHED
  Field[83] = -5 type=longlong
  Field[94] = 2.5 type=double
  Temperature[gpu] = -3
  MarginTemperature = -7
  MemoryInfo_v2 = total=80GiB used=0 free=0 reserved=0
  UtilizationRates = gpu=808334905 memory=3
  Samples[gpu] = 808334905
  ComputeRunningProcesses = !NO_PERMISSION
at 0s gpu 0 MemoryInfo_v2 = total=80GiB used=ones free=ones reserved=480MiB
`)
	text, s := r.record("salt")
	for key, want := range map[string]string{"PowerUsage": "NO_PERMISSION", "Field[82]": "UNTOUCHED", "ComputeRunningProcesses": "NO_PERMISSION", "FanSpeed": ""} {
		if a, _ := s.Answer(0, key, 0); a.Code != want {
			t.Errorf("%s is %q, want %q", key, a.Code, want)
		}
	}
	for key, want := range map[string]float64{"Field[83]": -5, "Field[94]": 2.5, "Samples[gpu]": 808334905} {
		a, _ := s.Answer(0, key, 0)
		if got := a.Numbers["value"]; got != want && got != want+(1<<64) {
			t.Errorf("%s is %v, want %v", key, got, want)
		}
	}
	if a, _ := s.Answer(0, "Name", 0); a.Text != `A "gpu" # of \ sorts` {
		t.Errorf("the name is %q", a.Text)
	}
	for _, line := range []string{"used=18446744073709551615", "MarginTemperature = -7", "Temperature[gpu] = -3", "type=double", "gpu=808334905 memory=3"} {
		if !strings.Contains(text, line) {
			t.Errorf("%q is not in\n%s", line, text)
		}
	}
}

func TestRecordWithoutGPUs(t *testing.T) {
	if !inChild(t) {
		return
	}
	r := playText(t, "")
	s, err := r.library.Open()
	if err != nil {
		t.Fatal(err)
	}
	r.session = s
	if _, err := s.Record(t.Context(), RecordOptions{}); !errors.Is(err, ErrNoGPU) || !strings.Contains(err.Error(), "no GPU") {
		t.Errorf("error %v", err)
	}
}

// TestRecordWithoutDriver: a driver that goes away meanwhile leaves nothing to write.
func TestRecordWithoutDriver(t *testing.T) {
	if !inChild(t) {
		return
	}
	r := playText(t, "gpu 0 board=b\nat 3s driver unload\n")
	s, err := r.library.Open()
	if err != nil {
		t.Fatal(err)
	}
	r.session = s
	text, err := s.Record(t.Context(), RecordOptions{Wait: func(_ context.Context, d time.Duration) error {
		r.control.Advance(d)
		return nil
	}})
	if !errors.Is(err, gpu.ErrUninitialized) || text != nil {
		t.Errorf("error %v, %d bytes", err, len(text))
	}
}

// TestRecordStops: a recording that is interrupted returns at once, with nothing.
func TestRecordStops(t *testing.T) {
	if !inChild(t) {
		return
	}
	r := playText(t, "gpu 0 board=b\n")
	s, err := r.library.Open()
	if err != nil {
		t.Fatal(err)
	}
	r.session = s
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if text, err := s.Record(ctx, RecordOptions{Duration: time.Hour}); !errors.Is(err, context.Canceled) || text != nil {
		t.Errorf("error %v, %d bytes", err, len(text))
	}
}
