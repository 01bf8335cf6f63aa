package standin

import (
	"context"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/internal/nvml/calls"
	"github.com/gpu-exporter/gpu-exporter/internal/standin/scenario"
)

// The stand-in driver is tested as it is used: through go-nvml, which loads it with dlopen. One process can
// bind one library, so tests that want another set of symbols look at the file or start a process.

// playing builds the library and plays a scenario, with an open session.
func playing(t *testing.T, s *scenario.Scenario) (nvml.Interface, *scenario.Control) {
	t.Helper()
	lib, control := prepare(t, s)
	if r := lib.Init(); r != nvml.SUCCESS {
		t.Fatalf("nvmlInit: %v", r)
	}
	t.Cleanup(func() { lib.Shutdown() })
	return lib, control
}

func prepare(t *testing.T, s *scenario.Scenario) (nvml.Interface, *scenario.Control) {
	t.Helper()
	dir := t.TempDir()
	path, err := BuildFakeNVML(context.Background(), "newest", dir)
	must.OK(t, err)
	env, control, err := Simulate(s, dir)
	must.OK(t, err)
	t.Cleanup(func() { control.Close() })
	setenv(t, env)
	return nvml.New(nvml.WithLibraryPath(path)), control
}

func setenv(t *testing.T, env []string) {
	for _, e := range env {
		name, value, _ := strings.Cut(e, "=")
		t.Setenv(name, value)
	}
}

func named(t *testing.T, name string) *scenario.Scenario {
	t.Helper()
	s, err := Scenario(name)
	must.OK(t, err)
	return s
}

func written(t *testing.T, text string) *scenario.Scenario {
	t.Helper()
	s, err := scenario.Parse("test.scenario", "scenario 1\n"+text, nil)
	must.OK(t, err)
	return s
}

func device(t *testing.T, lib nvml.Interface, index int) nvml.Device {
	t.Helper()
	d, r := lib.DeviceGetHandleByIndex(index)
	if r != nvml.SUCCESS {
		t.Fatalf("handle of gpu %d: %v", index, r)
	}
	return d
}

const plainBoard = `
board b
  Name = "A gpu"
  ring period=100ms entries=20
  model idle_watts=50 busy_watts=250 idle_celsius=30 busy_celsius=70
  MemoryInfo_v2 = total=10GiB reserved=100MiB
  GpmQueryDeviceSupport = 1
  Gpm[2] = 100*util
  Gpm[10] = 50*util
  Gpm[248] = 1e9*t
  Gpm[249] = 1e9*busy
  SupportedEventTypes = 0x108
  profile 1g.10gb number=0 id=19 slices=1 memory=10240MiB sms=16 count=7 copies=1
  profile 3g.40gb number=2 id=9 slices=3 memory=40960MiB sms=60 count=2 copies=3
  profile 7g.80gb number=4 id=0 slices=7 memory=81920MiB sms=132 count=1
`

// getters are the calls whose answer is one line of the scenario, by its key: all that the table of calls has, called by
// their names.
func getters() map[string]func(d nvml.Device) ([]float64, nvml.Return) {
	m := map[string]func(d nvml.Device) ([]float64, nvml.Return){}
	for i := range calls.Calls {
		c := &calls.Calls[i]
		if len(c.Values) == 0 || c.Text || c.System || c.Computed ||
			slices.Contains([]string{"PciInfo", "RetiredPages", "GpuFabricInfo"}, c.Suffix()) {
			continue
		}
		for _, arguments := range combinations(c.Args) {
			key := c.ScenarioKey()
			if len(arguments) > 0 {
				words := make([]string, len(arguments))
				for j, n := range arguments {
					words[j] = strconv.Itoa(n)
				}
				key += "[" + strings.Join(words, ",") + "]"
			}
			m[key] = func(d nvml.Device) ([]float64, nvml.Return) { return callByName(d, c, arguments) }
		}
	}
	m["GpuFabricInfo"] = func(d nvml.Device) ([]float64, nvml.Return) {
		f, r := d.GetGpuFabricInfoV().V3()
		return []float64{float64(f.State), float64(f.Status), float64(f.CliqueId), float64(f.HealthMask), float64(f.HealthSummary),
			float64(f.ClusterUuid[0])}, r
	}
	older := m["Temperature[0]"]
	m["Temperature[0]"] = func(d nvml.Device) ([]float64, nvml.Return) {
		old, _ := older(d)
		v, r := d.GetTemperatureV().V1()
		if float64(uint32(v.Temperature)) != old[0] {
			return []float64{math.NaN()}, r
		}
		return old, r
	}
	m["RetiredPages[1]"] = func(d nvml.Device) ([]float64, nvml.Return) {
		pages, r := d.GetRetiredPages(nvml.PAGE_RETIREMENT_CAUSE_DOUBLE_BIT_ECC_ERROR)
		return []float64{float64(len(pages))}, r
	}
	for key, f := range map[string][2]uint32{"Field[82]": {82}, "Field[83]": {83}, "Field[185,gpu]": {185}, "Field[185,memory]": {185, 2},
		"Field[185,module]": {185, 1}, "Field[74]": {74}, "Field[193]": {193}, "Field[138,all]": {138, 0xffffffff}, "Field[197]": {197},
		"Field[230]": {230}, "Field[269]": {269}} {
		m[key] = func(d nvml.Device) ([]float64, nvml.Return) {
			values := []nvml.FieldValue{{FieldId: f[0], ScopeId: f[1]}}
			if r := d.GetFieldValues(values); r != nvml.SUCCESS {
				return nil, r
			}
			return []float64{fieldNumber(values[0])}, nvml.Return(values[0].NvmlReturn)
		}
	}
	return m
}

// combinations are the arguments with which a call is made: all that have names, and of numbers a few.
func combinations(args []calls.Arg) [][]int {
	all := [][]int{nil}
	for _, a := range args {
		values := []int{0, 11, 17}
		if a.Names != nil {
			values = nil
			for n := range a.Names {
				values = append(values, n)
			}
		}
		var next [][]int
		for _, head := range all {
			for _, v := range values {
				next = append(next, append(slices.Clone(head), v))
			}
		}
		all = next
	}
	return all
}

// callByName calls go-nvml's method of a row. A structure becomes the numbers of its members, in the row's order.
func callByName(d nvml.Device, c *calls.Call, arguments []int) ([]float64, nvml.Return) {
	_, name, _ := strings.Cut(c.GoMethods()[0], ".")
	method := reflect.ValueOf(d).MethodByName(name)
	var in []reflect.Value
	for i, n := range arguments {
		in = append(in, reflect.ValueOf(n).Convert(method.Type().In(i)))
	}
	for i := len(in); i < method.Type().NumIn(); i++ {
		in = append(in, reflect.Zero(method.Type().In(i))) // a cgroup, which the fake driver ignores
	}
	out := method.Call(in)
	if versions := out[0].MethodByName("V1"); versions.IsValid() {
		out = versions.Call(nil)
	}
	code := out[len(out)-1].Interface().(nvml.Return)
	if out = out[:len(out)-1]; len(out) == 1 && out[0].Kind() == reflect.Struct {
		structure := out[0]
		out = nil
		for _, value := range c.Values {
			out = append(out, structure.FieldByNameFunc(func(member string) bool {
				return strings.EqualFold(member, value) || strings.EqualFold(member, "Bar1"+value) ||
					value == "value" && (member == "MarginTemperature" || member == "IsSupportedDevice")
			}))
		}
	}
	numbers := make([]float64, len(out))
	for i, v := range out {
		switch {
		case v.Kind() == reflect.Bool && v.Bool():
			numbers[i] = 1
		case v.CanInt():
			numbers[i] = float64(v.Int())
		case v.CanUint():
			numbers[i] = float64(v.Uint())
		}
	}
	return numbers, code
}

func fieldNumber(v nvml.FieldValue) float64 {
	bits := uint64(0)
	for i, b := range v.Value {
		bits |= uint64(b) << (8 * i)
	}
	switch nvml.ValueType(v.ValueType) {
	case nvml.VALUE_TYPE_DOUBLE:
		return math.Float64frombits(bits)
	case nvml.VALUE_TYPE_SIGNED_INT:
		return float64(int32(bits))
	case nvml.VALUE_TYPE_SIGNED_LONG_LONG:
		return float64(int64(bits))
	case nvml.VALUE_TYPE_UNSIGNED_INT:
		return float64(uint32(bits))
	}
	return float64(bits)
}

// componentsOf are the names of the numbers of a key's answer.
func componentsOf(key string) []string {
	call, _, _ := strings.Cut(key, "[")
	return scenario.Components(call)
}

// Each getter answers what the scenario says, on every board, at rest and at work, and where the scenario
// is silent, that it is not supported.
func TestAnswers(t *testing.T) {
	noneUnderMIG := []string{"UtilizationRates", "EncoderUtilization", "DecoderUtilization", "JpgUtilization", "OfaUtilization",
		"RemappedRows", "RowRemapperHistogram"}
	for _, name := range []string{"8xh100-idle", "8xh100-loaded", "h100-mig", "a100", "a100-mig", "t4", "little", "demo", "faults"} {
		t.Run(name, func(t *testing.T) {
			s := named(t, name)
			lib, control := playing(t, s)
			get := getters()
			for _, at := range []time.Duration{0, 1500 * time.Millisecond, 65*time.Second + 123*time.Millisecond, 110 * time.Second,
				137 * time.Second} {
				control.Set(at)
				for i := range s.GPUs {
					d := device(t, lib, i)
					mig, devices := s.Truth(i).MIG(at)
					for key, f := range get {
						got, r := f(d)
						want, known := s.Answer(i, key, at)
						if (mig || len(devices) > 0) && slices.Contains(noneUnderMIG, key) {
							known = false
						}
						switch {
						case !known:
							if r != nvml.ERROR_NOT_SUPPORTED {
								t.Errorf("%v, gpu %d: %s answers %v, %v; want not supported", at, i, key, got, r)
							}
						case want.Code != "":
							if "ERROR_"+want.Code != codeOf(r) {
								t.Errorf("%v, gpu %d: %s answers %v; want %s", at, i, key, r, want.Code)
							}
						case r != nvml.SUCCESS:
							t.Errorf("%v, gpu %d: %s answers %v; want %v", at, i, key, r, want.Numbers)
						default:
							for j, n := range componentsOf(key) {
								if w := want.Numbers[n]; !(math.Abs(got[j]-w) <= 0.5+1e-9*math.Abs(w)) {
									t.Errorf("%v, gpu %d: %s: %s is %v, want %v", at, i, key, n, got[j], w)
								}
							}
						}
					}
				}
			}
			if n := control.Overlaps(); n != 0 {
				t.Errorf("%d calls overlapped", n)
			}
		})
	}
}

func codeOf(r nvml.Return) string {
	names := map[nvml.Return]string{nvml.ERROR_NOT_SUPPORTED: "ERROR_NOT_SUPPORTED", nvml.ERROR_DEPRECATED: "ERROR_DEPRECATED",
		nvml.ERROR_NO_PERMISSION: "ERROR_NO_PERMISSION", nvml.ERROR_UNKNOWN: "ERROR_UNKNOWN"}
	return names[r]
}

func TestIdentity(t *testing.T) {
	s := named(t, "8xh100-idle")
	lib, _ := playing(t, s)
	if v, r := lib.SystemGetDriverVersion(); r != nvml.SUCCESS || v != "580.105.08" {
		t.Errorf("driver version %q, %v", v, r)
	}
	if v, r := lib.SystemGetNVMLVersion(); r != nvml.SUCCESS || v != "13.580.105.08" {
		t.Errorf("NVML version %q, %v", v, r)
	}
	if v, r := lib.SystemGetCudaDriverVersion_v2(); r != nvml.SUCCESS || v != 13000 {
		t.Errorf("CUDA version %d, %v", v, r)
	}
	if n, r := lib.DeviceGetCount(); r != nvml.SUCCESS || n != 8 {
		t.Errorf("%d gpus, %v", n, r)
	}
	for i, c := range s.GPUs {
		d := device(t, lib, i)
		uuid, _ := d.GetUUID()
		minor, _ := d.GetMinorNumber()
		index, _ := d.GetIndex()
		pci, _ := d.GetPciInfo()
		serial, _ := d.GetSerial()
		name, _ := d.GetName()
		part, _ := d.GetBoardPartNumber()
		vbios, _ := d.GetVbiosVersion()
		if uuid != string(c.UUID) || minor != c.Minor || index != i || serial != fmt.Sprintf("1650000000%d", 100+i) ||
			name != "NVIDIA H100 80GB HBM3" || part != "692-2G520-0200-000" || vbios != "96.00.99.00.01" {
			t.Errorf("gpu %d is %s, minor %d, index %d, serial %s, %s, %s, %s", i, uuid, minor, index, serial, name, part, vbios)
		}
		if got := gpu.NewPCIAddress(pci.Domain, pci.Bus, pci.Device, 0); got != c.PCI || pci.PciDeviceId != 0x233010de {
			t.Errorf("gpu %d is at %s, %x", i, got, pci.PciDeviceId)
		}
		if found, r := lib.DeviceGetHandleByUUID(uuid); r != nvml.SUCCESS || found != d {
			t.Errorf("gpu %d is not found by its UUID: %v", i, r)
		}
		if found, r := lib.DeviceGetHandleByPciBusId(string(c.PCI)); r != nvml.SUCCESS || found != d {
			t.Errorf("gpu %d is not found by its PCI address: %v", i, r)
		}
	}
	if _, r := lib.DeviceGetHandleByIndex(8); r != nvml.ERROR_INVALID_ARGUMENT {
		t.Errorf("gpu 8 is %v", r)
	}
	if _, r := lib.DeviceGetHandleByUUID("GPU-none"); r != nvml.ERROR_NOT_FOUND {
		t.Errorf("an unknown UUID is %v", r)
	}
	if _, r := lib.DeviceGetHandleByPciBusId("0000:ff:00.0"); r != nvml.ERROR_NOT_FOUND {
		t.Errorf("an unknown PCI address is %v", r)
	}
}

// Each set has its own queue, and sees what comes after a GPU was registered with it.
func TestEvents(t *testing.T) {
	s := written(t, plainBoard+`
gpu 0 board=b
gpu 1 board=b
at 5s gpu 0 xid 31
at 10s gpu 0 xid 79
at 10s gpu 0 xid 64
at 11s gpu 1 xid 48 gi=3 ci=0
at 12s gpu 1 mig pending on
at 20s gpu 0 lose
at 20s gpu 0 xid 119
at 20s gpu 0 xid 48
`)
	lib, control := playing(t, s)
	control.Set(6 * time.Second)
	register := func() nvml.EventSet {
		set, r := lib.EventSetCreate()
		if r != nvml.SUCCESS {
			t.Fatal(r)
		}
		for i := range 2 {
			d := device(t, lib, i)
			types, _ := d.GetSupportedEventTypes()
			if r := d.RegisterEvents(types&(nvml.EventTypeXidCriticalError|nvml.EventMigConfigChange), set); r != nvml.SUCCESS {
				t.Fatalf("registering gpu %d: %v", i, r)
			}
		}
		return set
	}
	first := register()
	second := register()
	if r := device(t, lib, 0).RegisterEvents(nvml.EventTypeClock, first); r != nvml.ERROR_NOT_SUPPORTED {
		t.Errorf("registering an event that is not supported: %v", r)
	}
	if _, r := first.Wait(0); r != nvml.ERROR_TIMEOUT {
		t.Errorf("an event before its time: %v", r)
	}
	control.Set(15 * time.Second)
	for _, set := range []nvml.EventSet{first, second} {
		for _, want := range []string{"0 8 64", "1 8 48", "1 100 0"} {
			e, r := set.Wait(1000)
			if r != nvml.SUCCESS {
				t.Fatalf("waiting for %s: %v", want, r)
			}
			index, _ := e.Device.GetIndex()
			if got := fmt.Sprintf("%d %x %d", index, e.EventType, e.EventData); got != want {
				t.Errorf("event %s, want %s", got, want)
			}
			if e.EventData == 48 && (e.GpuInstanceId != 3 || e.ComputeInstanceId != 0) {
				t.Errorf("instance %d, %d", e.GpuInstanceId, e.ComputeInstanceId)
			}
		}
		if _, r := set.Wait(0); r != nvml.ERROR_TIMEOUT {
			t.Errorf("one event too many: %v", r)
		}
	}
	// A waiting call is woken by the clock.
	done := make(chan nvml.Return)
	go func() {
		e, r := first.Wait(60_000)
		if e.EventData != 48 {
			t.Errorf("event %+v", e)
		}
		done <- r
	}()
	control.Set(20 * time.Second)
	if r := <-done; r != nvml.SUCCESS {
		t.Errorf("the event at 20 s: %v", r)
	}
	if _, r := first.Wait(60_000); r != nvml.ERROR_GPU_IS_LOST {
		t.Errorf("waiting on a lost gpu: %v", r)
	}
	if r := first.Free(); r != nvml.SUCCESS {
		t.Error(r)
	}
	if _, r := first.Wait(0); r != nvml.ERROR_INVALID_ARGUMENT {
		t.Errorf("waiting on a freed set: %v", r)
	}
}

func TestFieldValues(t *testing.T) {
	s := written(t, plainBoard+`
gpu 0 board=b
  Field[1] = 1
  Field[3] = !UNTOUCHED
  Field[4] = !NO_PERMISSION
  Field[193] = -8
  Field[185,memory] = 1234
  FieldLatency = 17
`)
	lib, control := playing(t, s)
	control.Set(2 * time.Second)
	values := []nvml.FieldValue{{FieldId: 1}, {FieldId: 3}, {FieldId: 4}, {FieldId: 193}, {FieldId: 185, ScopeId: 2},
		{FieldId: 185, ScopeId: 1},
		{FieldId: 83}, {FieldId: 300}, {FieldId: 40000}}
	if r := device(t, lib, 0).GetFieldValues(values); r != nvml.SUCCESS {
		t.Fatal(r)
	}
	ns := uint32(nvml.ERROR_NOT_SUPPORTED)
	for i, want := range []struct {
		code  uint32
		kind  nvml.ValueType
		value float64
	}{{0, nvml.VALUE_TYPE_UNSIGNED_INT, 1}, {0, 0, 0}, {uint32(nvml.ERROR_NO_PERMISSION), 0, 0}, {0, nvml.VALUE_TYPE_SIGNED_INT, -8},
		{0, nvml.VALUE_TYPE_UNSIGNED_INT, 1234}, {ns, 0, 0}, {0, nvml.VALUE_TYPE_UNSIGNED_LONG_LONG, 100_000}, {ns, 0, 0}, {ns, 0, 0}} {
		v := values[i]
		if v.NvmlReturn != want.code || (want.code == 0 && (nvml.ValueType(v.ValueType) != want.kind || fieldNumber(v) != want.value)) {
			t.Errorf("field %d, scope %d: %+v, want %+v", v.FieldId, v.ScopeId, v, want)
		}
		wantTime, wantLatency := control.Time().UnixMicro(), int64(17)
		if i == 1 {
			wantTime, wantLatency = 0, 0
		}
		if v.Timestamp != wantTime || v.LatencyUsec != wantLatency {
			t.Errorf("field %d was read at %d in %d us", v.FieldId, v.Timestamp, v.LatencyUsec)
		}
	}
}

// The driver counts the processor time of its functions, also where another process reads it, and not that of its caller.
func TestProcessorTime(t *testing.T) {
	lib, control := playing(t, named(t, "8xh100-shared"))
	d := device(t, lib, 0)
	reader, err := scenario.OpenControl(control.Path())
	must.OK(t, err)
	defer reader.Close()
	before := reader.Processor()
	for reader.Processor()-before < 5*time.Millisecond {
		if _, r := d.GetUtilizationRates(); r != nvml.SUCCESS {
			t.Fatal(r)
		}
	}
	after := reader.Processor()
	for range 10_000_000 { // some ms of the caller's own
	}
	if more := reader.Processor() - after; more != 0 {
		t.Errorf("%v were counted without a call", more)
	}
	if _, err := scenario.OpenControl("/dev/null"); err == nil {
		t.Error("a file that is none was opened as a control file")
	}
}
