package nvml

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/internal/nvml/journal"
	"github.com/gpu-exporter/gpu-exporter/internal/standin/recording"
	"github.com/gpu-exporter/gpu-exporter/internal/standin/scenario"
)

// recordSession opens a session with a journal and records, letting the scenario's time pass.
func (r *harness) recordSession(salt string) ([]byte, error) {
	r.Helper()
	if r.session != nil {
		if err := r.session.Close(); err != nil {
			r.Fatal(err)
		}
	}
	r.library.options.Journal = journal.NewWriter(r.control.Time, []byte(salt))
	s, err := r.library.Open()
	if err != nil {
		r.Fatal(err)
	}
	r.session = s
	return s.Record(r.Context(), RecordOptions{Wait: func(_ context.Context, d time.Duration) error {
		r.control.Advance(d)
		return nil
	}})
}

// record records, and returns the scenario that the journal becomes.
func (r *harness) record(salt string) (string, *scenario.Scenario) {
	r.Helper()
	lines, err := r.recordSession(salt)
	if err != nil {
		r.Fatal(err)
	}
	r.journal = string(lines)
	text, err := recording.Scenario(lines)
	if err != nil {
		r.Fatal(err)
	}
	s, err := scenario.Parse("recorded.scenario", string(text), nil)
	if err != nil {
		r.Fatal(err)
	}
	return string(text), s
}

// notReads are the calls of the guard table that answer nothing which could be recorded.
var notReads = map[callID]string{
	callInit: "begins the session", callShutdown: "ends it", callCount: "is the number of GPU statements",
	callHandleByIndex: "gives the handle", callGpmSampleFree: "gives a sample back",
	callEventSetCreate: "is for waiting", callEventSetFree: "is for waiting", callDeviceRegisterEvents: "changes what the driver does",
	callEventSetWait: "waits",
}

// TestRecordAsksEverything: a recording makes every call of the guard table that reads, and asks for every
// field and scope that the poll groups ask for. A new call or row is caught here.
func TestRecordAsksEverything(t *testing.T) {
	r := playText(t, "  GpmQueryDeviceSupport = 1\n  AccountingMode = 1\ngpu 0 board=b\ngpu 1 board=b\n"+
		"process gpu=1 pid=7 busy=30% period=1s\n"+
		"mig gpu=0 layout=\"gi=1 profile=3g.40gb start=0 size=4\"\n")
	_, recorded := r.record("salt")
	_, lines, err := journal.Parse([]byte(r.journal))
	must.OK(t, err)
	made := map[string]bool{}
	for _, line := range lines {
		made[line.Call] = true
	}
	for id := range guards {
		if notReads[callID(id)] != "" {
			continue
		}
		if !made[guards[id].name] {
			t.Errorf("%s was not called", guards[id].name)
		}
	}
	for _, f := range allFields() {
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

type fieldEntry struct{ id, scope uint32 }

// allFields are the entries of the batches of all poll groups.
func allFields() []fieldEntry {
	return slices.Concat(entriesOf(identityRows), entriesOf(fastRows), entriesOf(mediumRows), entriesOf(slowRows))
}

func entriesOf[T any](rows []row[T]) (list []fieldEntry) {
	for i := range rows {
		for link := range rows[i].width() {
			switch r := &rows[i]; {
			case r.read != nil:
			case r.scope == everyLink:
				list = append(list, fieldEntry{r.field, uint32(link)})
			default:
				list = append(list, fieldEntry{r.field, r.scope})
			}
		}
	}
	return list
}

// TestRecordMasks: nothing that names a GPU, a board or a process of the node is left, and the same original
// has one replacement within a file and others in other files.
func TestRecordMasks(t *testing.T) {
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
	must.OK(t, err)
	text += r.journal
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
	uuidForm := regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)
	masks := func(text string) []string {
		return slices.Compact(slices.Sorted(slices.Values(uuidForm.FindAllString(text, -1))))
	}
	again, _ := r.record("one salt")
	other, o := r.record("another salt")
	if u := masks(text); !slices.Equal(u, masks(again)) {
		t.Error("the same salt masks another way")
	} else if slices.ContainsFunc(u, func(s string) bool { return strings.Contains(other, s) }) || o.GPUs[0].UUID == s.GPUs[0].UUID {
		t.Error("another salt masks the same way")
	}
}

// TestRecordActivity: what GPUs and processes did is in the recording, as parts of the time.
func TestRecordActivity(t *testing.T) {
	r := playText(t, `  TotalEnergyConsumption = 5000 + 250000*t
  Field[83] = 5000 + 250000*t
gpu 0 board=b
gpu 1 board=b
  ring period=100ms entries=100 order=slot
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
	for _, line := range []string{"ring period=100000us entries=100\n", "ring period=100000us entries=100 order=slot\n",
		"ring period=200000us entries=50 clock=boot idle=stop",
		"Field[83] = 7505000 + 250000*t", "TotalEnergyConsumption = 7505000 + 250000*t"} {
		if !strings.Contains(text, line) {
			t.Errorf("%q is not in the recording:\n%s", line, text)
		}
	}
}

// TestRecordLost: a GPU that is lost, before or meanwhile, is recorded as lost; one that the bus has and the
// driver does not know, as removed.
func TestRecordLost(t *testing.T) {
	r := playText(t, `gpu 0 board=b
gpu 1 board=b
gpu 2 board=b
at 0s gpu 0 lose
at 3s gpu 1 reset_required
`)
	for _, pci := range []string{"0000:18:00.0", "0000:19:00.0", "0000:1a:00.0", "0000:77:00.0"} {
		pciDevice(t, r.options.SysfsRoot, pci, "nvidia")
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
	for key, want := range map[string]string{"PowerUsage": "NO_PERMISSION", "Field[82]": "UNTOUCHED",
		"ComputeRunningProcesses": "NO_PERMISSION", "FanSpeed": ""} {
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
	for _, line := range []string{"used=18446744073709551615", "MarginTemperature = -7", "Temperature[gpu] = -3", "type=double",
		"gpu=808334905 memory=3"} {
		if !strings.Contains(text, line) {
			t.Errorf("%q is not in\n%s", line, text)
		}
	}
}

// TestRecordFails: without GPUs, and with a driver that goes away meanwhile, a recording leaves nothing to write.
func TestRecordFails(t *testing.T) {
	for text, want := range map[string]error{"": ErrNoGPU, "gpu 0 board=b\nat 3s driver unload\n": gpu.ErrUninitialized} {
		t.Run(want.Error(), func(t *testing.T) {
			text, err := playText(t, text).recordSession("salt")
			if !errors.Is(err, want) || !strings.Contains(err.Error(), want.Error()) || text != nil {
				t.Errorf("error %v, want %v, %d bytes", err, want, len(text))
			}
		})
	}
}

// TestRecordStops: a recording that is interrupted returns at once, with nothing.
func TestRecordStops(t *testing.T) {
	r := playText(t, "gpu 0 board=b\n")
	r.open()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if text, err := r.session.Record(ctx, RecordOptions{Duration: time.Hour}); !errors.Is(err, context.Canceled) || text != nil {
		t.Errorf("error %v, %d bytes", err, len(text))
	}
}
