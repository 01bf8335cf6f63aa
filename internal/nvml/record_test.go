package nvml

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/internal/nvml/journal"
	"github.com/gpu-exporter/gpu-exporter/internal/standin/playback"
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

// record records, and returns the journal.
func (r *harness) record(salt string) (string, journal.Header, recorded) {
	r.Helper()
	text, err := r.recordSession(salt)
	must.OK(r.T, err)
	head, lines, err := playback.Parse(text)
	must.OK(r.T, err)
	return string(text), head, lines
}

type recorded []journal.Line

// last is the code and value of the last call of a function on a GPU with some arguments.
func (list recorded) last(dev int, call string, args ...int64) string {
	for _, line := range slices.Backward(list) {
		if line.GPU != nil && *line.GPU == dev && line.Call == call && slices.Equal(line.Args, args) {
			return strings.TrimSpace(line.Code + " " + string(line.Value))
		}
	}
	return ""
}

// notReads are the calls of the guard table that answer nothing which could be recorded.
var notReads = map[callID]string{
	callInit: "begins the session", callShutdown: "ends it", callCount: "is the number of GPU statements",
	callHandleByIndex: "gives the handle", callGpmSampleFree: "gives a sample back",
	callEventSetCreate: "is for waiting", callEventSetFree: "is for waiting", callDeviceRegisterEvents: "changes what the driver does",
	callEventSetWait: "waits", callSystemEventSetCreate: "is for waiting", callSystemEventSetFree: "is for waiting",
	callSystemRegisterEvents: "is for waiting", callSystemEventSetWait: "waits",
}

// TestRecordAsksEverything: a recording makes every call of the guard table that reads, and asks for every
// field and scope that the poll groups ask for. A new call or row is caught here.
func TestRecordAsksEverything(t *testing.T) {
	r := playText(t, "  GpmQueryDeviceSupport = 1\n  AccountingMode = 1\ngpu 0 board=b\ngpu 1 board=b\n"+
		"process gpu=1 pid=7 busy=30% period=1s\n"+
		"mig gpu=0 layout=\"gi=1 profile=3g.40gb start=0 size=4\"\n")
	_, _, lines := r.record("salt")
	made, fields := map[string]bool{}, map[fieldEntry]bool{}
	for _, line := range lines {
		made[line.Call] = true
		if line.Call == "nvmlDeviceGetFieldValues" && *line.GPU == 1 {
			var batch []journal.Field
			must.OK(t, json.Unmarshal(line.Value, &batch))
			for _, f := range batch {
				fields[fieldEntry{f.ID, f.Scope}] = true
			}
		}
	}
	for id := range guards {
		if notReads[callID(id)] == "" && !made[guards[id].name] {
			t.Errorf("%s was not called", guards[id].name)
		}
	}
	for _, f := range allFields() {
		if !fields[f] {
			t.Errorf("field %+v is not in the journal", f)
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
	text, _, lines := r.record("one salt")
	host, err := os.Hostname()
	must.OK(t, err)
	for _, secret := range []string{gpuUUID, migUUID, "b0b0b0b0", "c0c0c0c0", "1650000000140", "AB-77", "777123", "777124", "777125"} {
		if secret != "" && strings.Contains(strings.ToLower(text), strings.ToLower(secret)) {
			t.Errorf("%q is in the recording:\n%s", secret, text)
		}
	}
	if regexp.MustCompile(`(?i)\b` + regexp.QuoteMeta(host) + `\b`).MatchString(text) {
		t.Errorf("the host's name, %q, is in the recording:\n%s", host, text)
	}
	for _, kept := range []string{`"bus":83`, "NVIDIA Test", "580.105.08"} {
		if !strings.Contains(text, kept) {
			t.Errorf("%q is not in the recording", kept)
		}
	}
	shape := regexp.MustCompile(`^GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)
	uuids, serials := map[string]bool{}, []string{}
	for dev := range 3 {
		uuid := strings.Trim(strings.TrimPrefix(lines.last(dev, "nvmlDeviceGetUUID"), "SUCCESS "), `"`)
		if !shape.MatchString(uuid) {
			t.Errorf("%s has not the shape of a UUID", uuid)
		}
		uuids[uuid] = true
		serials = append(serials, strings.Trim(strings.TrimPrefix(lines.last(dev, "nvmlDeviceGetSerial"), "SUCCESS "), `"`))
	}
	if len(uuids) != 3 || serials[0] != serials[1] || len(serials[0]) != 13 ||
		!regexp.MustCompile(`^[A-Z]{2}-\d\d$`).MatchString(serials[2]) {
		t.Errorf("UUIDs %v, serials %v", uuids, serials)
	}
	pids := []string{}
	for dev := range 3 {
		pids = append(pids, regexp.MustCompile(`"Pid":\d+`).FindAllString(lines.last(dev, "nvmlDeviceGetComputeRunningProcesses"), -1)...)
	}
	if got := strings.Join(pids, " "); got != `"Pid":1001 "Pid":1001 "Pid":1002 "Pid":1003` {
		t.Errorf("processes %s", got)
	}
	uuidForm := regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)
	masks := func(text string) []string {
		return slices.Compact(slices.Sorted(slices.Values(uuidForm.FindAllString(text, -1))))
	}
	again, _, _ := r.record("one salt")
	other, _, _ := r.record("another salt")
	if u := masks(text); !slices.Equal(u, masks(again)) {
		t.Error("the same salt masks another way")
	} else if slices.ContainsFunc(u, func(s string) bool { return strings.Contains(other, s) }) {
		t.Error("another salt masks the same way")
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
	text, head, _ := r.record("salt")
	for _, form := range []string{`"args":\[0\],"code":"GPU_IS_LOST"`, `"gpu":1,.*"code":"RESET_REQUIRED"`} {
		if !regexp.MustCompile(form).MatchString(text) {
			t.Errorf("%s is not in\n%s", form, text)
		}
	}
	if len(head.Bus) != 4 || head.Bus[3].PCI != "0000:77:00.0" {
		t.Errorf("the bus has %+v", head.Bus)
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
  PlatformInfo = chassisSerialNumber=1821 slotNumber=2 trayIndex=3 hostId=4 peerType=5 moduleId=6
  MemoryInfo_v2 = total=80GiB used=0 free=0 reserved=0
  UtilizationRates = gpu=808334905 memory=3
  Samples[gpu] = 808334905
  ComputeRunningProcesses = !NO_PERMISSION
at 0s gpu 0 MemoryInfo_v2 = total=80GiB used=ones free=ones reserved=480MiB
`)
	text, _, lines := r.record("salt")
	for call, want := range map[string]string{"PowerUsage": "NO_PERMISSION", "ComputeRunningProcesses": "NO_PERMISSION",
		"Name": `SUCCESS "A \"gpu\" # of \\ sorts"`, "MarginTemperature": "SUCCESS -7",
		"UtilizationRates": `SUCCESS {"Gpu":808334905,"Memory":3}`} {
		if got := lines.last(0, "nvmlDeviceGet"+call); got != want {
			t.Errorf("%s is %q, want %q", call, got, want)
		}
	}
	for _, part := range []string{`"value":808334905`, `"Used":18446744073709551615`,
		`{"id":82,"code":"SUCCESS","time":0}`, `"type":"longlong","value":"-5"`, `"type":"double","value":"2.5"`,
		`"hostid":4,"moduleid":6,"peertype":5,"slotnumber":2,"trayindex":3`} {
		if !strings.Contains(text, part) {
			t.Errorf("%q is not in\n%s", part, text)
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
