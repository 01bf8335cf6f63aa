package nvml

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/internal/nvml/bus"
	"github.com/gpu-exporter/gpu-exporter/internal/nvml/journal"
	"github.com/gpu-exporter/gpu-exporter/internal/standin/playback"
	"github.com/gpu-exporter/gpu-exporter/internal/testkit"
)

// ledger is a device with accounts of processes.
type ledger struct {
	nvml.Device
	pids  []int
	stats map[uint32]nvml.AccountingStats_v2
	code  map[uint32]nvml.Return
	read  []uint32
}

func (l *ledger) GetAccountingPids() ([]int, nvml.Return) { return l.pids, l.code[0] }

func (l *ledger) GetAccountingStats_v2(pid uint32) (nvml.AccountingStats_v2, nvml.Return) {
	l.read = append(l.read, pid)
	return l.stats[pid], l.code[pid]
}

// Accounts are read of the processes that run, once of each that has ended, and again of one that has samples, whose PID is used
// again. The first read has no new process. One that was overwritten costs nothing; another failure costs the reading.
func TestAccounts(t *testing.T) {
	l := &ledger{pids: []int{1, 2}, code: map[uint32]nvml.Return{}, stats: map[uint32]nvml.AccountingStats_v2{
		1: {IsRunning: 1, StartTime: 10, SumGpuUtil: 20_000, SumFbUtil: 5_000}, 2: {StartTime: 20, SumGpuUtil: 10_000},
		3: {IsRunning: 1, StartTime: 30}}}
	c, wanted := stubGPU(l), true
	c.dev.session = &Session{library: New(Options{Accounts: func() bool { return wanted }}), offers: c.dev.session.offers}
	for i, step := range []struct {
		change func()
		active []gpu.ProcessSample
		want   string
	}{
		{func() {}, nil, "SUCCESS [1 2] [{1 10 false 2 0.5} {2 20 false 1 0}]"},
		{func() { l.pids = []int{1, 2, 3} }, nil, "SUCCESS [1 3] [{1 10 false 2 0.5} {3 30 true 0 0}]"},
		{func() {}, []gpu.ProcessSample{{PID: 9}, {PID: 2}}, "SUCCESS [1 2 3] [{1 10 false 2 0.5} {2 20 false 1 0} {3 30 false 0 0}]"},
		{func() { l.code[3] = nvml.ERROR_NOT_FOUND }, nil, "SUCCESS [1 3] [{1 10 false 2 0.5}]"},
		{func() { l.code[3] = nvml.ERROR_UNKNOWN }, nil, "UNKNOWN [1 3] –"},
		{func() { l.code[3] = nvml.SUCCESS; l.code[0] = nvml.ERROR_NOT_SUPPORTED }, nil, "NOT_SUPPORTED [] –"},
		{func() { l.code[0] = nvml.SUCCESS; wanted = false }, nil, "CODE_-1 [] –"},
		{func() { wanted = true }, nil, "SUCCESS [1 2 3] [{1 10 false 2 0.5} {2 20 false 1 0} {3 30 false 0 0}]"},
	} {
		step.change()
		l.read = nil
		to := gpu.Fast{Processes: gpu.Some(step.active)}
		if got := fmt.Sprint(codeName(readAccounts(c, &to)), " ", l.read, " ", to.Accounts); got != step.want {
			t.Errorf("read %d: %s, want %s", i, got, step.want)
		}
	}
}

// The statistics list the calls that were made, each with its codes in alphabetical order, and how long the driver took.
func TestStatisticsOfCalls(t *testing.T) {
	r := playText(t, "gpu 0 board=b\n")
	if list := r.calls(); len(list) != 0 {
		t.Errorf("before a call: %v", list)
	}
	codes := []nvml.Return{nvml.ERROR_UNKNOWN, nvml.ERROR_IRQ_ISSUE, nvml.ERROR_MEMORY, nvml.ERROR_CORRUPTED_INFOROM}
	var code nvml.Return
	r.options.Intercept = func(_ int, call string, _ []int, _ any, run func() int32) int32 {
		if call == "nvmlDeviceGetEnforcedPowerLimit" {
			time.Sleep(2 * time.Millisecond)
			return int32(code)
		}
		return run()
	}
	c := r.open()[0]
	for _, code = range codes {
		slow(t, c)
	}
	list := r.calls()
	if slices.ContainsFunc(list, func(s gpu.CallStats) bool { return s.Call == "nvmlDeviceGetUtilizationRates" }) {
		t.Error("a call that was not made")
	}
	at := slices.IndexFunc(list, func(s gpu.CallStats) bool { return s.Call == "nvmlDeviceGetEnforcedPowerLimit" })
	if got := fmt.Sprint(list[at].Errors); got != "[{CORRUPTED_INFOROM 1} {IRQ_ISSUE 1} {MEMORY 1} {UNKNOWN 1}]" {
		t.Error(got)
	}
	if d := list[at].Duration; d.Count != 4 || d.Sum < 0.008 {
		t.Errorf("duration %+v", d)
	}
	// One that only waits is listed for its errors.
	r.refuseCalls(nvml.ERROR_UNKNOWN, "nvmlEventSetWait")
	_, err := r.session.WaitEvents(soon)
	if err == nil || fmt.Sprint(r.errors("nvmlEventSetWait")) != "map[UNKNOWN:1]" {
		t.Errorf("%v, %v", err, r.errors("nvmlEventSetWait"))
	}
}

// An event is returned at once, with the MIG instance that it has; one of a GPU that is not known has none.
func TestEventsInTime(t *testing.T) {
	r := playText(t, `
gpu 0 board=b
gpu 1 board=b
gpu 2 board=b
  SupportedEventTypes = !UNKNOWN
at 10s gpu 1 xid 43 gi=0
at 10s gpu 1 xid 31
at 20s gpu 1 lose
at 30s gpu 1 restore
at 40s gpu 1 xid 13
at 40s gpu 0 xid 48 gi=3
`)
	devs := r.open()
	if events, err := r.session.WaitEvents(soon); len(events) > 0 || err != nil {
		t.Errorf("%v, %v", events, err)
	}
	wait := func(want string) {
		t.Helper()
		events, err := r.session.WaitEvents(time.Hour)
		var got []string
		for _, e := range events {
			got = append(got, fmt.Sprintf("%s %d %v", e.GPU[len(e.GPU)-1:], e.XID, e.GI))
		}
		if strings.Join(got, ", ") != want || err != nil {
			t.Errorf("%v, %v, want %s", got, err, want)
		}
	}
	r.at(10 * time.Second)
	wait("1 43 0, 1 31 –")
	r.at(20 * time.Second)
	if _, err := devs[1].Medium(); !errors.Is(err, gpu.ErrLost) {
		t.Fatal(err)
	}
	if events, err := r.session.WaitEvents(soon); len(events) > 0 || err != nil {
		t.Errorf("lost: %v, %v", events, err)
	}
	r.at(30 * time.Second)
	r.scan() // it is found again, and registered again
	if _, err := r.session.WaitEvents(soon); err != nil {
		t.Error(err)
	}
	r.at(40 * time.Second)
	events, err := r.session.WaitEvents(2 * time.Second)
	if err != nil || len(events) != 2 {
		t.Errorf("after it was restored: %v, %v", events, err)
	}
	// Once for the identity, once to register: what failed is not tried at each scan.
	if n := r.control.CallsOn("nvmlDeviceGetSupportedEventTypes", 2); n != 2 {
		t.Errorf("the events of a GPU that refuses were queried %d times", n)
	}
	if err := r.session.Close(); err != nil {
		t.Error(err)
	}
	if made, freed := r.control.Calls("nvmlEventSetCreate"), r.control.Calls("nvmlEventSetFree"); made != freed {
		t.Errorf("%d sets made, %d freed", made, freed)
	}
	c := stubGPU(&stub{})
	for _, known := range []map[nvml.Device]*device{{}, {c.dev.handle: {}}} {
		c.dev.session.byHandle = known
		e, ok := c.dev.session.event(nvml.EventData{Device: c.dev.handle, EventType: nvml.EventTypeXidCriticalError, EventData: 79,
			GpuInstanceId: math.MaxUint32})
		if !ok || e.XID != 79 || e.GPU != "" || e.GI.Present() {
			t.Errorf("%+v, %v", e, ok)
		}
	}
}

// Where there is no GPU, or none has events that could be waited for, a wait takes its time without the driver, which would return at
// once. It ends with the session, and takes no time after it.
func TestWaitForNoEvents(t *testing.T) {
	r := playText(t, "gpu 0 board=b\n  SupportedEventTypes = 0x4\n")
	var err error
	if r.session, err = r.library.Open(); err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		const timeout = 30 * time.Millisecond
		start := time.Now()
		if events, err := r.session.WaitEvents(timeout); len(events) > 0 || err != nil || time.Since(start) < timeout {
			t.Errorf("%v, %v after %v", events, err, time.Since(start))
		}
		if sets, devs := r.control.Calls("nvmlEventSetCreate"), r.scan(); sets != uint64(i) || devs[0].Identity().XIDEvents {
			t.Errorf("%d event sets, %+v", sets, devs[0].Identity())
		}
	}
	if n := r.control.Calls("nvmlEventSetWait") + r.control.Calls("nvmlEventSetWait_v2"); n != 0 {
		t.Errorf("%d calls", n)
	}
	if _, err := r.session.WaitEvents(soon); err != nil { // the scan has found a GPU: the next one waits
		t.Error(err)
	}
	done := make(chan error)
	for range 2 { // one begins before Close, the other after it
		go func() {
			_, err := r.session.WaitEvents(time.Hour)
			done <- err
		}()
		time.Sleep(20 * time.Millisecond)
		must.OK(t, r.session.Close())
		if err := <-done; !errors.Is(err, gpu.ErrUninitialized) {
			t.Errorf("%v", err)
		}
	}
}

// A GPU that hangs while it is to be registered for events is registered later.
func TestEventsAfterAHang(t *testing.T) {
	r := playText(t, `
gpu 0 board=b
gpu 1 board=b
at 10s gpu 0 hang UtilizationRates
at 20s gpu 0 restore
at 30s gpu 0 xid 13
`)
	devs := r.open()
	r.at(10 * time.Second)
	done := make(chan error)
	go func() { _, err := devs[0].Fast(true); done <- err }()
	testkit.Until(func() bool { return r.control.Hanging() > 0 })
	if events, err := r.session.WaitEvents(soon); len(events) > 0 || err != nil {
		t.Errorf("%v, %v", events, err)
	}
	r.at(20 * time.Second)
	if err := <-done; err != nil {
		t.Error(err)
	}
	if _, err := r.session.WaitEvents(soon); err != nil {
		t.Error(err)
	}
	r.at(30 * time.Second)
	if events, err := r.session.WaitEvents(2 * time.Second); len(events) != 1 || err != nil {
		t.Errorf("%v, %v", events, err)
	}
}

// One stray error of the calls that name a GPU is tried again; what a session cannot read of a GPU is known from one before.
func TestIdentityAfterAnError(t *testing.T) {
	r := playText(t, "system CudaDriverVersion = 12080\ngpu 0 board=b pci=0000:18:00.0 uuid=GPU-a\n"+
		"gpu 1 board=b pci=0000:2a:00.0 uuid=GPU-b\n")
	var once sync.Map // the calls that were refused, of each GPU
	always := ""
	r.options.Intercept = func(index int, call string, _ []int, _ any, run func() int32) int32 {
		_, refused := once.LoadOrStore(fmt.Sprint(index, call), true)
		if call == always || !refused && (call == "nvmlDeviceGetUUID" || call == "nvmlDeviceGetPciInfo") {
			return int32(nvml.ERROR_UNKNOWN)
		}
		return run()
	}
	check := func(what string) {
		t.Helper()
		for i, c := range r.scan() {
			id, want := c.Identity(), r.scenario.GPUs[i]
			if id.UUID != want.UUID || id.PCI != want.PCI || id.Index != i || c.Err() != nil {
				t.Errorf("%s: %+v, %v", what, id, c.Err())
			}
		}
	}
	r.open()
	check("a stray error")
	if v := r.session.System().CUDAVersion; v != "12.8" {
		t.Errorf("CUDA %s", v)
	}
	must.OK(t, r.session.Close())
	always = "nvmlDeviceGetUUID"
	r.open()
	check("no UUID in this session")
}

// A GPU keeps the index under which it was first seen, also where the driver numbers it otherwise in a later session, and its
// identity when it is lost there: the index of that session was another GPU's.
func TestIndexOfAnEarlierSession(t *testing.T) {
	r := playText(t, "system CudaDriverVersion = 0\ngpu 0 board=b\ngpu 1 board=b\nat 10s gpu 0 remove\n")
	r.open()
	if v := r.session.System().CUDAVersion; v != "" {
		t.Errorf("CUDA %q of no version", v)
	}
	must.OK(t, r.session.Close())
	r.at(10 * time.Second)
	devs := r.open()
	id := devs[0].Identity()
	if len(devs) != 1 || id.Index != 1 || id.UUID != r.scenario.GPUs[1].UUID {
		t.Errorf("%+v", id)
	}
	r.refuseCalls(nvml.ERROR_GPU_IS_LOST, "nvmlDeviceGetPciInfo", "nvmlDeviceGetFieldValues")
	_, err := devs[0].Fast(true)
	if lost := r.scan()[0]; !errors.Is(err, gpu.ErrLost) || lost.Identity() != id {
		t.Errorf("%v; lost: %+v", err, lost.Identity())
	}
	if log := r.log.String(); strings.Count(log, `msg="NVML initialized"`) != 2 || strings.Contains(log, "driver lacks functions") {
		t.Errorf("log:\n%s", log)
	}
}

// A readable GPU whose address the driver does not report has the one of the bus that is left; with more than one left, or with
// one that another driver has, it has none.
func TestAddressFromTheBus(t *testing.T) {
	for name, tt := range map[string]struct {
		bus  map[string]string
		want string
	}{
		"one left": {map[string]string{"0000:18:00.0": "nvidia", "0000:2a:00.0": "nvidia"}, "0000:2a:00.0 1"},
		"two left": {map[string]string{"0000:18:00.0": "nvidia", "0000:2a:00.0": "nvidia", "0000:3a:00.0": "nvidia"}, " –"},
		"detached": {map[string]string{"0000:18:00.0": "nvidia", "0000:2a:00.0": "vfio-pci"}, " –"},
		"detached beside": {map[string]string{"0000:18:00.0": "nvidia", "0000:1a:00.0": "vfio-pci", "0000:2a:00.0": "nvidia"},
			"0000:2a:00.0 1"},
	} {
		t.Run(name, func(t *testing.T) {
			r := playText(t, "gpu 0 board=b pci=0000:18:00.0\ngpu 1 board=b pci=0000:2a:00.0\n")
			for pci, driver := range tt.bus {
				pciDevice(t, r.options.SysfsRoot, pci, driver)
			}
			r.options.Intercept = func(index int, call string, _ []int, _ any, run func() int32) int32 {
				if index == 1 && call == "nvmlDeviceGetPciInfo" {
					return int32(nvml.ERROR_UNKNOWN)
				}
				return run()
			}
			c := r.open()[1]
			if id := c.Identity(); fmt.Sprint(id.PCI, " ", id.NUMANode) != tt.want || id.UUID != r.scenario.GPUs[1].UUID || c.Err() != nil {
				t.Errorf("%+v, want %s", id, tt.want)
			}
			if again := r.scan()[1]; again != c {
				t.Error("it was found again as another GPU")
			}
		})
	}
}

// A panic while the identity is read is that GPU's error, and counted.
func TestPanicInIdentity(t *testing.T) {
	r := playText(t, "gpu 0 board=b\ngpu 1 board=b\n")
	r.options.Intercept = func(index int, call string, _ []int, _ any, run func() int32) int32 {
		if index == 1 && call == "nvmlDeviceGetBrand" {
			panic("a mistake")
		}
		return run()
	}
	if devs := r.open(); devs[0].Err() != nil || devs[1].Err() == nil || r.errors("nvmlDeviceGetUUID")["PANIC"] != 1 {
		t.Errorf("%v, %v, %v", devs[0].Err(), devs[1].Err(), r.errors("nvmlDeviceGetUUID"))
	}
}

// A library named as the driver's in front of one with a version is a wrapper.
func TestWrapperIsReported(t *testing.T) {
	if !inChild(t) {
		return
	}
	r := playText(t, "gpu 0 board=b\n")
	library := must.Read(t, r.options.Path)
	for _, name := range []string{"libnvidia-ml.so.580.105.08", DefaultPath} {
		path := filepath.Join(t.TempDir(), name)
		must.OK(t, os.WriteFile(path, []byte(library), 0o600))
		r.options.Path = path
		r.open()
		if got, want := r.session.System().Wrapper, map[string]string{DefaultPath: path}[name]; got != want {
			t.Errorf("%s: wrapper %q, want %q", name, got, want)
		}
		must.OK(t, r.session.Close())
	}
}

// The limit of this process's cgroup is one that was set; without an account there is none, and MIG has none.
func TestOwnLimit(t *testing.T) {
	for _, tt := range []struct {
		limits nvml.MemoryLimits_v1
		code   nvml.Return
		want   string
	}{
		{nvml.MemoryLimits_v1{HardLimit: 9, SoftLimit: 3}, nvml.SUCCESS, "SUCCESS 9"},
		{nvml.MemoryLimits_v1{HardLimit: nvml.DEVICE_MEMORY_LIMIT_MAX}, nvml.SUCCESS, "SUCCESS –"},
		{nvml.MemoryLimits_v1{HardLimit: 9}, nvml.ERROR_NOT_FOUND, "SUCCESS –"},
		{nvml.MemoryLimits_v1{HardLimit: 9}, nvml.ERROR_NOT_SUPPORTED, "NOT_SUPPORTED –"},
		{nvml.MemoryLimits_v1{HardLimit: 9}, nvml.ERROR_UNKNOWN, "UNKNOWN –"},
	} {
		a := &accountant{limits: func(string) (nvml.MemoryLimits_v1, nvml.Return) { return tt.limits, tt.code }}
		c := stubGPU(a)
		c.dev.session.cgroup = "/own"
		var to gpu.Medium
		if got := fmt.Sprint(codeName(readOwnLimit(c, &to)), " ", to.OwnLimit); got != tt.want || !slices.Equal(a.calls, []string{"/own"}) {
			t.Errorf("%s of %v, want %s", got, a.calls, tt.want)
		}
		c.mig.on, a.calls = true, nil
		if ret := readOwnLimit(c, &to); ret != nothingToRead || len(a.calls) > 0 {
			t.Errorf("under MIG: %s, %v", codeName(ret), a.calls)
		}
	}
	if own := bus.OwnCgroup(); !strings.HasPrefix(own, "/sys/fs/cgroup") {
		t.Errorf("cgroup %q", own)
	}
}

// Each fan is in its place; one that fails is absent there. Their number is bounded.
func TestFans(t *testing.T) {
	r := playText(t, `
gpu 0 board=b
  NumFans = 3
  FanSpeed_v2[0] = 30
  FanSpeed_v2[1] = !UNKNOWN
  FanSpeed_v2[2] = 110
gpu 1 board=b
  NumFans = 0
  FanSpeed_v2[0] = 30
gpu 2 board=b
  NumFans = 1
  FanSpeed_v2[0] = 0
gpu 3 board=b
  NumFans = 2
  FanSpeed_v2[0-1] = !UNKNOWN
gpu 4 board=b
  NumFans = 100000
  FanSpeed_v2[0] = 40
  FanSpeed_v2[1-15] = 0
gpu 5 board=b
  FanSpeed_v2[0] = 50
`)
	for i, c := range r.open() {
		fans := medium(t, c).Fans
		if i == 4 {
			if len(fans) != maxFans || fans[0] != gpu.Some(gpu.Ratio(0.4)) {
				t.Errorf("%d fans, %v", len(fans), fans[0])
			}
			continue
		}
		want := []string{"[0.3 – 1.1]", "[0.3]", "[0]", "[]", "", "[0.5]"}[i]
		if got := fmt.Sprint(fans); got != want {
			t.Errorf("GPU %d: %s, want %s", i, got, want)
		}
	}
	if e := r.errors("nvmlDeviceGetFanSpeed_v2"); e["UNKNOWN"] != 3 {
		t.Errorf("errors %v", e)
	}
}

// A structure whose values are all nothing is no reading; each of its values goes to its own. Latency is reported in microseconds.
func TestStructures(t *testing.T) {
	r := playText(t, `
gpu 0 board=b
  ConfComputeProtectedMemoryUsage = total=0 used=0 free=0
  DramEncryptionMode = current=1 pending=0
  EccMode = current=0 pending=1
  MarginTemperature = 45
  PlatformInfo = chassisSerialNumber=1821 slotNumber=2 trayIndex=3 hostId=4 peerType=5 moduleId=6
  RowRemapperHistogram = max=1 high=2 partial=3 low=4 none=5
  BAR1MemoryInfo = total=300 used=20 free=280
  EncoderStats = sessionCount=2 averageFps=30 averageLatency=4000
  FBCStats = sessionsCount=3 averageFPS=60 averageLatency=500
  C2cModeInfoV = isC2cEnabled=1
gpu 1 board=b
  C2cModeInfoV = isC2cEnabled=0
  DramEncryptionMode = current=0 pending=1
  EccMode = current=1 pending=0
  RepairStatus = bChannelRepairPending=0 bTpcRepairPending=1
`)
	devs := r.open()
	a, b := slow(t, devs[0]), slow(t, devs[1])
	m := medium(t, devs[0])
	if got := fmt.Sprint(a.ProtectedMemory, a.DRAMEncryption, a.ECCMode, b.DRAMEncryption, b.ECCMode, b.ChannelRepair, b.TPCRepair,
		m.Margin, m.BAR1); got != "– {true false} {false true} {false true} {true false} false true 45 {300 20}" {
		t.Error(got)
	}
	if got := fmt.Sprint(a.Encoder, a.Capture, a.C2C, b.C2C); got != "{2 30 0.004} {3 60 0.0005} true false" {
		t.Error(got)
	}
	if got := fmt.Sprint(a.RemapBanks); got != "map[high:2 low:4 max:1 none:5 partial:3]" {
		t.Error(got)
	}
	if got := devs[0].Identity().Platform; got != (gpu.Platform{Known: true, ChassisSerial: "1821", Slot: 2, Tray: 3, Host: 4, PeerType: 5,
		Module: 6}) {
		t.Errorf("%+v", got)
	}
}

// A link that fails leaves no count, since the others are not all; a later read has all of them. The fabric's states and summaries
// are those of NVML's enumerations.
func TestLinksAndStatesOfTheFabric(t *testing.T) {
	text := "gpu 0 board=b\n  NvLinkState[0-2] = 1\n"
	for n, info := range [][2]int{{1, 0}, {2, 0}, {4, 0}, {3, 1}, {3, 4}, {3, 0}, {3, 2}} {
		text += fmt.Sprintf("gpu %d board=b\n  GpuFabricInfo = state=%d status=0 clique=1 health_mask=0 health_summary=%d\n", n+1, info[0],
			info[1])
	}
	r := playText(t, text+"at 10s gpu 0 NvLinkState[1] = !UNKNOWN\nat 20s gpu 0 NvLinkState[1] = 0\n")
	devs := r.open()
	for n, want := range []string{"not_started ", "in_progress ", "–", "completed healthy", "completed ", "completed ",
		"completed unhealthy"} {
		f, ok := slow(t, devs[n+1]).Fabric.Get()
		got := fmt.Sprint(f.State, " ", f.Health)
		if !ok {
			got = "–"
		}
		if got != want {
			t.Errorf("GPU %d: %q, want %q", n+1, got, want)
		}
	}
	for at, want := range []string{"{3 0}", "–", "{2 1}"} {
		r.at(time.Duration(at) * 10 * time.Second)
		if got := fmt.Sprint(slow(t, devs[0]).NVLinks); got != want {
			t.Errorf("at %d0 s: %s, want %s", at, got, want)
		}
	}
	if e := r.errors("nvmlDeviceGetNvLinkState"); e["UNKNOWN"] != 1 {
		t.Errorf("errors %v", e)
	}
}

// The end of the margin stays while rounding moves it by up to two degrees.
func TestMarginThatMoves(t *testing.T) {
	r := playText(t, `
gpu 0 board=b
  Temperature[gpu] = 42
  MarginTemperature = 45
  Field[196] = 0 type=int
at 10s gpu 0 MarginTemperature = 43
at 20s gpu 0 MarginTemperature = 47
at 30s gpu 0 MarginTemperature = 48
at 40s gpu 0 MarginTemperature = 45
`)
	c := r.open()[0]
	for at, want := range []string{"87", "87", "87", "90", "87"} {
		r.at(time.Duration(at) * 10 * time.Second)
		if got := fmt.Sprint(slow(t, c).TemperatureLimits); got != "[{gpu max_operating "+want+"}]" {
			t.Errorf("at %d0 s: %s, want %s", at, got, want)
		}
	}
}

// The MIG mode and layout of a GPU that stops reporting them: an error changes nothing, "not supported" ends MIG.
func TestMIGModeRefused(t *testing.T) {
	r := playText(t, `
gpu 0 board=b
  NvLinkState[0] = 1
mig gpu=0 layout="gi=5 profile=1g.10gb start=4 size=1 uuid=MIG-b index=0 ; `+
		`gi=1 ci=1 profile=3g.40gb slices=1 start=0 size=4 uuid=MIG-a1 index=2 ; gi=1 ci=0 slices=2 uuid=MIG-a0 index=4"
at 10s gpu 0 MigMode = !UNKNOWN
at 20s gpu 0 MigMode = !NOT_SUPPORTED
`)
	c := r.open()[0]
	for at, want := range []string{"MIG-a0 gi=1 [0 1] 3/7; MIG-b gi=5 [0] 1/7; ", "MIG-a0 gi=1 [0 1] 3/7; MIG-b gi=5 [0] 1/7; ", ""} {
		r.at(time.Duration(at) * 10 * time.Second)
		links := r.control.Calls("nvmlDeviceGetNvLinkState")
		s := slow(t, c)
		got := ""
		for _, in := range s.Instances {
			var cis []int
			for _, ci := range in.Compute {
				cis = append(cis, ci.CI)
			}
			got += fmt.Sprintf("%s gi=%d %v %.0f/7; ", in.UUID, in.GI, cis, 7*in.Share.Or(-1))
		}
		if got != want || s.MIGMode.Present() != (at == 0) {
			t.Errorf("at %d0 s: %s, %v, want %s", at, got, s.MIGMode, want)
		}
		// A layout that changed makes the links be found again.
		if n := r.control.Calls("nvmlDeviceGetNvLinkState") - links; (n == nvml.NVLINK_MAX_LINKS) != (at != 1) {
			t.Errorf("at %d0 s: %d calls for links", at, n)
		}
	}
}

// Garbage in the layout leaves it as it was: two devices of one name, or in one place, or in none. A share is that of slices that
// are known, and as many as the GPU has at most.
func TestLayoutOfGarbage(t *testing.T) {
	r := playText(t, `
gpu 0 board=b
mig gpu=0 layout="gi=1 profile=3g.40gb start=0 size=4 uuid=MIG-a ; gi=5 profile=1g.10gb start=4 size=1 uuid=MIG-b"
`)
	c := r.open()[0]
	var change func(call string, value any)
	r.options.Intercept = func(_ int, call string, _ []int, value any, run func() int32) int32 {
		ret := run()
		if change != nil {
			change(call, value)
		}
		return ret
	}
	slices := func(n uint32) func(any) {
		return func(v any) { v.(*nvml.DeviceAttributes).GpuInstanceSliceCount = n }
	}
	for name, tt := range map[string]struct {
		call   string
		change func(value any)
		want   string
	}{
		"nothing":       {"", nil, "MIG-a 1 0.429, MIG-b 5 0.143, "},
		"one name":      {"nvmlDeviceGetUUID", func(v any) { *v.(*string) = "MIG-a" }, "MIG-a 1 0.429, MIG-b 5 0.143, "},
		"one place":     {"nvmlDeviceGetGpuInstanceId", func(v any) { *v.(*int) = 3 }, "MIG-a 1 0.429, MIG-b 5 0.143, "},
		"no place":      {"nvmlDeviceGetGpuInstanceId", func(v any) { *v.(*int) = -1 }, "MIG-a 1 0.429, MIG-b 5 0.143, "},
		"no slices":     {"nvmlDeviceGetAttributes", slices(0), "MIG-a 1 –, MIG-b 5 –, "},
		"seven slices":  {"nvmlDeviceGetAttributes", slices(7), "MIG-a 1 1, MIG-b 5 1, "},
		"eight slices":  {"nvmlDeviceGetAttributes", slices(8), "MIG-a 1 –, MIG-b 5 –, "},
		"every fantasy": {"nvmlDeviceGetMaxMigDeviceCount", func(v any) { *v.(*int) = 1 << 30 }, "MIG-a 1 0.429, MIG-b 5 0.143, "},
	} {
		slow(t, c)
		change = func(call string, value any) {
			if call == tt.call {
				tt.change(value)
			}
		}
		before := r.control.Calls("nvmlDeviceGetMigDeviceHandleByIndex")
		got := ""
		for _, in := range slow(t, c).Instances {
			share := "–"
			if s, ok := in.Share.Get(); ok {
				share = fmt.Sprintf("%.3g", s)
			}
			got += fmt.Sprintf("%s %d %s, ", in.UUID, in.GI, share)
		}
		if got != tt.want {
			t.Errorf("%s: %s, want %s", name, got, tt.want)
		}
		if n := r.control.Calls("nvmlDeviceGetMigDeviceHandleByIndex") - before; n > maxMIGDevices {
			t.Errorf("%s: %d calls", name, n)
		}
		change = nil
	}
}

// A recording is as long as asked for; who waits for the first readings hears once; its header has the program, the date and the
// GPUs of the bus that the driver has.
func TestRecordHeader(t *testing.T) {
	r := playText(t, "gpu 0 board=b pci=0000:18:00.0\n")
	pciDevice(t, r.options.SysfsRoot, "0000:18:00.0", "nvidia")
	pciDevice(t, r.options.SysfsRoot, "0000:2a:00.0", "vfio-pci")
	r.options.Journal = journal.NewWriter(r.control.Time, []byte("salt"))
	r.open()
	r.at(3 * time.Second)
	var steps []string
	text, err := r.session.Record(t.Context(), RecordOptions{Duration: 2500 * time.Millisecond, Program: "test 1", Date: "2026-01-02",
		Observing: func() { steps = append(steps, "observing") },
		Wait: func(_ context.Context, d time.Duration) error {
			steps = append(steps, d.String())
			r.control.Advance(d)
			return nil
		}})
	if err != nil || strings.Join(steps, " ") != "observing 1s 1s 500ms" {
		t.Errorf("%v, %v", steps, err)
	}
	h, lines, err := playback.Parse(text)
	if err != nil || h.Program != "test 1" || h.Date != "2026-01-02" || len(h.Symbols) < 80 || len(h.Bus) != 1 ||
		h.Bus[0].PCI != "0000:18:00.0" || h.Bus[0].NUMA == nil || *h.Bus[0].NUMA != 1 {
		t.Errorf("%+v, %v", h, err)
	}
	fast := 0
	for _, line := range lines {
		if line.Call == "nvmlDeviceGetUtilizationRates" {
			fast++
		}
	}
	if fast != 4 { // everything at both ends, and the fast poll group after each step but the last
		t.Errorf("utilization was read %d times", fast)
	}
	if err := wait(t.Context(), time.Nanosecond); err != nil {
		t.Error(err)
	}
}

// What is no number has no value in the journal: JSON has none for it.
func TestJournalOfNoNumber(t *testing.T) {
	m := []nvml.GpmMetric{{Value: math.NaN()}, {Value: 5}, {Value: math.Inf(1)}}
	list := journaled(callGpmMetricsGet, &m).([]journal.Metric)
	if len(list) != 3 || list[0].Value != nil || *list[1].Value != 5 || list[2].Value != nil {
		t.Errorf("%+v", list)
	}
	fields := journaled(callFieldValues, &[]nvml.FieldValue{{FieldId: 1, Timestamp: 5, ValueType: uint32(nvml.VALUE_TYPE_UNSIGNED_INT),
		Value: [8]byte{7}}, {FieldId: 2, ValueType: uint32(nvml.VALUE_TYPE_UNSIGNED_INT), Value: [8]byte{7}},
		{FieldId: 3, Timestamp: 5, NvmlReturn: uint32(nvml.ERROR_UNKNOWN), Value: [8]byte{7}}}).([]journal.Field)
	if fields[0].Value != "7" || fields[1].Value != "" || fields[2].Value != "" || fields[2].Code != "UNKNOWN" {
		t.Errorf("%+v", fields)
	}
}

// TestHandlesOfAFailedWalk: a layout that could not be read as a whole keeps the instances before with their own handles; those
// of the new MIG devices would give one instance the processes of another.
func TestHandlesOfAFailedWalk(t *testing.T) {
	r := playText(t, `
gpu 0 board=b
mig gpu=0 layout="gi=1 profile=3g.40gb start=0 size=4 uuid=MIG-a"
at 20s gpu 0 mig apply layout="gi=7 profile=1g.10gb start=4 size=1 uuid=MIG-b ; gi=8 profile=1g.10gb start=5 size=1 uuid=MIG-c"
`)
	c := r.open()[0]
	slow(t, c)
	handle := c.mig.handles[0]
	r.at(30 * time.Second)
	devices, refuse := 0, true
	r.library.options.Intercept = func(_ int, call string, _ []int, _ any, run func() int32) int32 {
		if call == "nvmlDeviceGetGpuInstanceId" {
			if devices++; refuse && devices == 2 {
				return int32(nvml.ERROR_UNKNOWN)
			}
		}
		return run()
	}
	if got := slow(t, c).Instances; len(got) != 1 || got[0].UUID != "MIG-a" || handle == nil || c.mig.handles[0] != handle {
		t.Errorf("after a failed walk: %+v, handles %v, before %v", got, c.mig.handles, handle)
	}
	refuse = false
	if got := slow(t, c).Instances; len(got) != 2 || got[0].UUID != "MIG-b" || len(c.mig.handles) != 2 || c.mig.handles[0] == handle {
		t.Errorf("after the walk: %+v, handles %v, before %v", got, c.mig.handles, handle)
	}
}

// A limit that is derived from its margin is absent while the fields are refused, and there again afterwards: it was dropped for
// ten minutes.
func TestDerivedLimitsReturn(t *testing.T) {
	r := playText(t, `
  Temperature[gpu] = 42
  MarginTemperature = 45
  Field[194] = -2
gpu 0 board=b
at 0s gpu 0 FieldValues = !UNKNOWN
at 1s gpu 0 FieldValues = default
at 10s gpu 0 FieldValues = !UNKNOWN
at 20s gpu 0 FieldValues = default
`)
	c := r.open()[0]
	for _, step := range []struct {
		at   time.Duration
		want int
	}{{0, 0}, {1, 1}, {10, 0}, {20, 1}} {
		r.at(step.at * time.Second)
		if got := slow(t, c).TemperatureLimits; len(got) != step.want {
			t.Errorf("at %d s: %v", step.at, got)
		}
	}
}
