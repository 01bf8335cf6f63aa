package standin

import (
	"context"
	"debug/elf"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
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
	if err != nil {
		t.Fatal(err)
	}
	env, control, err := Play(s, dir)
	if err != nil {
		t.Fatal(err)
	}
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
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func written(t *testing.T, text string) *scenario.Scenario {
	t.Helper()
	s, err := scenario.Parse("test.scenario", "scenario 1\n"+text, nil)
	if err != nil {
		t.Fatal(err)
	}
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

// getters are the calls whose answer is one line of the scenario.
func getters() map[string]func(d nvml.Device) ([]float64, nvml.Return) {
	type numbers = []float64
	m := map[string]func(d nvml.Device) (numbers, nvml.Return){
		"UtilizationRates": func(d nvml.Device) (numbers, nvml.Return) {
			u, r := d.GetUtilizationRates()
			return numbers{float64(u.Gpu), float64(u.Memory)}, r
		},
		"MemoryInfo": func(d nvml.Device) (numbers, nvml.Return) {
			m, r := d.GetMemoryInfo()
			return numbers{float64(m.Total), float64(m.Used), float64(m.Free)}, r
		},
		"MemoryInfo_v2": func(d nvml.Device) (numbers, nvml.Return) {
			m, r := d.GetMemoryInfo_v2()
			return numbers{float64(m.Total), float64(m.Used), float64(m.Free), float64(m.Reserved)}, r
		},
		"BAR1MemoryInfo": func(d nvml.Device) (numbers, nvml.Return) {
			m, r := d.GetBAR1MemoryInfo()
			return numbers{float64(m.Bar1Total), float64(m.Bar1Used), float64(m.Bar1Free)}, r
		},
		"CudaComputeCapability": func(d nvml.Device) (numbers, nvml.Return) {
			a, b, r := d.GetCudaComputeCapability()
			return numbers{float64(a), float64(b)}, r
		},
		"PowerManagementLimitConstraints": func(d nvml.Device) (numbers, nvml.Return) {
			a, b, r := d.GetPowerManagementLimitConstraints()
			return numbers{float64(a), float64(b)}, r
		},
		"EccMode": func(d nvml.Device) (numbers, nvml.Return) {
			a, b, r := d.GetEccMode()
			return numbers{float64(a), float64(b)}, r
		},
		"RemappedRows": func(d nvml.Device) (numbers, nvml.Return) {
			a, b, p, f, r := d.GetRemappedRows()
			bit := map[bool]float64{true: 1}
			return numbers{float64(a), float64(b), bit[p], bit[f]}, r
		},
		"RowRemapperHistogram": func(d nvml.Device) (numbers, nvml.Return) {
			h, r := d.GetRowRemapperHistogram()
			return numbers{float64(h.Max), float64(h.High), float64(h.Partial), float64(h.Low), float64(h.None)}, r
		},
		"DecoderUtilization": func(d nvml.Device) (numbers, nvml.Return) {
			a, b, r := d.GetDecoderUtilization()
			return numbers{float64(a), float64(b)}, r
		},
		"EncoderUtilization": func(d nvml.Device) (numbers, nvml.Return) {
			a, b, r := d.GetEncoderUtilization()
			return numbers{float64(a), float64(b)}, r
		},
		"JpgUtilization": func(d nvml.Device) (numbers, nvml.Return) {
			a, b, r := d.GetJpgUtilization()
			return numbers{float64(a), float64(b)}, r
		},
		"OfaUtilization": func(d nvml.Device) (numbers, nvml.Return) {
			a, b, r := d.GetOfaUtilization()
			return numbers{float64(a), float64(b)}, r
		},
		"GpuFabricInfo": func(d nvml.Device) (numbers, nvml.Return) {
			f, r := d.GetGpuFabricInfoV().V3()
			return numbers{float64(f.State), float64(f.Status), float64(f.CliqueId), float64(f.HealthMask), float64(f.HealthSummary)}, r
		},
		"Temperature[gpu]": func(d nvml.Device) (numbers, nvml.Return) {
			old, _ := d.GetTemperature(nvml.TEMPERATURE_GPU)
			v, r := d.GetTemperatureV().V1()
			if uint32(v.Temperature) != old {
				return numbers{math.NaN()}, r
			}
			return numbers{float64(old)}, r
		},
		"MarginTemperature": func(d nvml.Device) (numbers, nvml.Return) {
			v, r := d.GetMarginTemperature()
			return numbers{float64(v.MarginTemperature)}, r
		},
	}
	one := func(key string, get func(d nvml.Device) (float64, nvml.Return)) {
		m[key] = func(d nvml.Device) (numbers, nvml.Return) {
			v, r := get(d)
			return numbers{v}, r
		}
	}
	one("Brand", number(nvml.Device.GetBrand))
	one("Architecture", number(nvml.Device.GetArchitecture))
	one("NumaNodeId", number(nvml.Device.GetNumaNodeId))
	one("NumGpuCores", number(nvml.Device.GetNumGpuCores))
	one("MemoryBusWidth", number(nvml.Device.GetMemoryBusWidth))
	one("BusType", number(nvml.Device.GetBusType))
	one("PowerUsage", number(nvml.Device.GetPowerUsage))
	one("EnforcedPowerLimit", number(nvml.Device.GetEnforcedPowerLimit))
	one("PowerManagementLimit", number(nvml.Device.GetPowerManagementLimit))
	one("PowerManagementDefaultLimit", number(nvml.Device.GetPowerManagementDefaultLimit))
	one("TotalEnergyConsumption", number(nvml.Device.GetTotalEnergyConsumption))
	one("PerformanceState", number(nvml.Device.GetPerformanceState))
	one("CurrentClocksEventReasons", number(nvml.Device.GetCurrentClocksEventReasons))
	one("CurrentClocksThrottleReasons", number(nvml.Device.GetCurrentClocksThrottleReasons))
	one("FanSpeed", number(nvml.Device.GetFanSpeed))
	one("NumFans", number(nvml.Device.GetNumFans))
	one("RetiredPagesPendingStatus", number(nvml.Device.GetRetiredPagesPendingStatus))
	one("CurrPcieLinkGeneration", number(nvml.Device.GetCurrPcieLinkGeneration))
	one("CurrPcieLinkWidth", number(nvml.Device.GetCurrPcieLinkWidth))
	one("MaxPcieLinkGeneration", number(nvml.Device.GetMaxPcieLinkGeneration))
	one("MaxPcieLinkWidth", number(nvml.Device.GetMaxPcieLinkWidth))
	one("GpuMaxPcieLinkGeneration", number(nvml.Device.GetGpuMaxPcieLinkGeneration))
	one("PcieReplayCounter", number(nvml.Device.GetPcieReplayCounter))
	one("PersistenceMode", number(nvml.Device.GetPersistenceMode))
	one("ComputeMode", number(nvml.Device.GetComputeMode))
	one("DisplayActive", number(nvml.Device.GetDisplayActive))
	one("DisplayMode", number(nvml.Device.GetDisplayMode))
	one("AccountingMode", number(nvml.Device.GetAccountingMode))
	one("VirtualizationMode", number(nvml.Device.GetVirtualizationMode))
	one("DefaultEccMode", number(nvml.Device.GetDefaultEccMode))
	one("SupportedEventTypes", number(nvml.Device.GetSupportedEventTypes))
	for i, clock := range []string{"graphics", "sm", "mem", "video"} {
		one("ClockInfo["+clock+"]", func(d nvml.Device) (float64, nvml.Return) {
			v, r := d.GetClockInfo(nvml.ClockType(i))
			return float64(v), r
		})
		one("MaxClockInfo["+clock+"]", func(d nvml.Device) (float64, nvml.Return) {
			v, r := d.GetMaxClockInfo(nvml.ClockType(i))
			return float64(v), r
		})
	}
	for i, name := range []string{"shutdown", "slowdown", "mem_max", "gpu_max"} {
		one("TemperatureThreshold["+name+"]", func(d nvml.Device) (float64, nvml.Return) {
			v, r := d.GetTemperatureThreshold(nvml.TemperatureThresholds(i))
			return float64(v), r
		})
	}
	for i, severity := range []string{"corrected", "uncorrected"} {
		for j, counter := range []string{"volatile", "aggregate"} {
			one(fmt.Sprintf("TotalEccErrors[%s,%s]", severity, counter), func(d nvml.Device) (float64, nvml.Return) {
				v, r := d.GetTotalEccErrors(nvml.MemoryErrorType(i), nvml.EccCounterType(j))
				return float64(v), r
			})
			one(fmt.Sprintf("MemoryErrorCounter[%s,%s,dram]", severity, counter), func(d nvml.Device) (float64, nvml.Return) {
				v, r := d.GetMemoryErrorCounter(nvml.MemoryErrorType(i), nvml.EccCounterType(j), nvml.MEMORY_LOCATION_DRAM)
				return float64(v), r
			})
		}
	}
	for _, link := range []int{0, 11, 17} {
		one(fmt.Sprintf("NvLinkState[%d]", link), func(d nvml.Device) (float64, nvml.Return) {
			v, r := d.GetNvLinkState(link)
			return float64(v), r
		})
		one(fmt.Sprintf("NvLinkErrorCounter[%d,replay]", link), func(d nvml.Device) (float64, nvml.Return) {
			v, r := d.GetNvLinkErrorCounter(link, nvml.NVLINK_ERROR_DL_REPLAY)
			return float64(v), r
		})
	}
	one("FanSpeed_v2[0]", func(d nvml.Device) (float64, nvml.Return) {
		v, r := d.GetFanSpeed_v2(0)
		return float64(v), r
	})
	one("RetiredPages[double_bit]", func(d nvml.Device) (float64, nvml.Return) {
		pages, r := d.GetRetiredPages(nvml.PAGE_RETIREMENT_CAUSE_DOUBLE_BIT_ECC_ERROR)
		return float64(len(pages)), r
	})
	for _, f := range []struct {
		key   string
		id    uint32
		scope uint32
	}{{"Field[82]", 82, 0}, {"Field[83]", 83, 0}, {"Field[185,gpu]", 185, 0}, {"Field[185,memory]", 185, 2}, {"Field[185,module]", 185, 1},
		{"Field[74]", 74, 0}, {"Field[193]", 193, 0}, {"Field[138,all]", 138, 0xffffffff}, {"Field[197]", 197, 0}, {"Field[230]", 230, 0},
		{"Field[269]", 269, 0}} {
		one(f.key, func(d nvml.Device) (float64, nvml.Return) {
			values := []nvml.FieldValue{{FieldId: f.id, ScopeId: f.scope}}
			if r := d.GetFieldValues(values); r != nvml.SUCCESS {
				return 0, r
			}
			return fieldNumber(values[0]), nvml.Return(values[0].NvmlReturn)
		})
	}
	return m
}

// number adapts a getter of one number.
func number[T ~int | ~int32 | ~uint32 | ~uint64](get func(nvml.Device) (T, nvml.Return)) func(nvml.Device) (float64, nvml.Return) {
	return func(d nvml.Device) (float64, nvml.Return) {
		v, r := get(d)
		return float64(v), r
	}
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

// components are the components of the answers above that have more than one, in the order of the getter.
var components = map[string][]string{
	"UtilizationRates": {"gpu", "memory"}, "MemoryInfo": {"total", "used", "free"},
	"MemoryInfo_v2": {"total", "used", "free", "reserved"}, "BAR1MemoryInfo": {"total", "used", "free"},
	"CudaComputeCapability": {"major", "minor"}, "PowerManagementLimitConstraints": {"min", "max"},
	"EccMode": {"current", "pending"}, "RemappedRows": {"corrected", "uncorrected", "pending", "failure"},
	"RowRemapperHistogram": {"max", "high", "partial", "low", "none"}, "DecoderUtilization": {"utilization", "period"},
	"EncoderUtilization": {"utilization", "period"}, "JpgUtilization": {"utilization", "period"},
	"OfaUtilization": {"utilization", "period"},
	"GpuFabricInfo":  {"state", "status", "clique", "health_mask", "health_summary"},
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
			for _, at := range []time.Duration{0, 1500 * time.Millisecond, 65*time.Second + 123*time.Millisecond, 110 * time.Second, 137 * time.Second} {
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
							names := components[key]
							if names == nil {
								names = []string{"value"}
							}
							for j, n := range names {
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

// samples reads a ring and drops the entries that go-nvml leaves at the end.
func samples(t *testing.T, d nvml.Device, kind nvml.SamplingType, since uint64) ([]nvml.Sample, nvml.Return) {
	t.Helper()
	_, all, r := d.GetSamples(kind, since)
	return slices.DeleteFunc(all, func(s nvml.Sample) bool { return s.TimeStamp == 0 }), r
}

func sampleValue(s nvml.Sample) float64 {
	return float64(uint32(s.SampleValue[0]) | uint32(s.SampleValue[1])<<8 | uint32(s.SampleValue[2])<<16 | uint32(s.SampleValue[3])<<24)
}

// Polled oftener than the ring wraps, the samples are the whole truth.
func TestRingIntegral(t *testing.T) {
	s := written(t, plainBoard+`
gpu 0 board=b
process gpu=0 pid=1 busy=37% period=1300ms dram=50%
process gpu=0 pid=2 busy=60% period=700ms phase=111ms from=20s to=60s dram=25%
`)
	lib, control := playing(t, s)
	d := device(t, lib, 0)
	truth := s.Truth(0)
	for _, tc := range []struct {
		kind nvml.SamplingType
		want func(t0, t1 time.Duration) gpu.Seconds
	}{{nvml.GPU_UTILIZATION_SAMPLES, truth.Busy}, {nvml.MEMORY_UTILIZATION_SAMPLES, truth.MemoryBusy}} {
		control.Set(0)
		if _, r := samples(t, d, tc.kind, 0); r != nvml.ERROR_NOT_FOUND {
			t.Errorf("an empty ring answers %v", r)
		}
		var last uint64
		busy, cells := 0.0, 0
		for control.Now() < 80*time.Second {
			control.Advance(1730 * time.Millisecond)
			got, r := samples(t, d, tc.kind, last)
			if r != nvml.SUCCESS {
				t.Fatalf("at %v: %v", control.Now(), r)
			}
			for _, s := range got {
				if last != 0 && s.TimeStamp != last+100_000 {
					t.Fatalf("a sample at %d follows one at %d", s.TimeStamp, last)
				}
				last = s.TimeStamp
				busy += sampleValue(s) / 100 * 0.1
				cells++
			}
		}
		end := time.Duration(cells) * 100 * time.Millisecond
		if end < 79*time.Second {
			t.Fatalf("only %d samples", cells)
		}
		if want := float64(tc.want(0, end)); math.Abs(busy-want) > 0.0025*end.Seconds() {
			t.Errorf("kind %d: samples add up to %v s, the truth is %v s", tc.kind, busy, want)
		}
		if want := float64(truth.Sampled(0, end)); tc.kind == nvml.GPU_UTILIZATION_SAMPLES && math.Abs(busy-want) > 1e-6 {
			t.Errorf("samples add up to %v s, and should to %v s", busy, want)
		}
	}
	// Left alone, the ring keeps its length.
	control.Advance(time.Hour)
	if got, _ := samples(t, d, nvml.GPU_UTILIZATION_SAMPLES, 0); len(got) != 20 {
		t.Errorf("after an hour the ring has %d entries", len(got))
	}
	got, r := samples(t, d, nvml.TOTAL_POWER_SAMPLES, 0)
	if r != nvml.SUCCESS || len(got) != 20 || sampleValue(got[0]) < 50_000 || sampleValue(got[0]) > 250_000 {
		t.Errorf("power samples: %d, %v", len(got), r)
	}
	if _, r := samples(t, d, nvml.ENC_UTILIZATION_SAMPLES, 0); r != nvml.ERROR_NOT_SUPPORTED {
		t.Errorf("encoder samples: %v", r)
	}
}

func TestRingOptions(t *testing.T) {
	const lines = `
model idle_watts=1 busy_watts=2
gpu 0 board=b
load gpu=0 busy=100% from=2s to=3s
`
	for _, tc := range []struct {
		name, ring string
		check      func(t *testing.T, d nvml.Device, c *scenario.Control)
	}{
		{"a clock since boot", "clock=boot", func(t *testing.T, d nvml.Device, c *scenario.Control) {
			c.Set(time.Second)
			got, r := samples(t, d, nvml.GPU_UTILIZATION_SAMPLES, 0)
			if r != nvml.SUCCESS || len(got) != 10 || got[9].TimeStamp > uint64(time.Hour.Microseconds()*24) {
				t.Errorf("%v, %v", got, r)
			}
		}},
		{"entries that were not filled", "unfilled=zeros", func(t *testing.T, d nvml.Device, c *scenario.Control) {
			c.Set(time.Second)
			_, got, r := d.GetSamples(nvml.GPU_UTILIZATION_SAMPLES, 0)
			if r != nvml.SUCCESS || len(got) != 20 || got[9].TimeStamp == 0 || got[10].TimeStamp != 0 {
				t.Errorf("%v, %v", got, r)
			}
		}},
		{"a sizing call that exaggerates", "sizing=100", func(t *testing.T, d nvml.Device, c *scenario.Control) {
			c.Set(time.Second)
			_, got, r := d.GetSamples(nvml.GPU_UTILIZATION_SAMPLES, 0)
			if r != nvml.SUCCESS || len(got) != 100 {
				t.Errorf("%d, %v", len(got), r)
			}
		}},
		{"a ring that stops when idle", "idle=stop", func(t *testing.T, d nvml.Device, c *scenario.Control) {
			c.Set(1900 * time.Millisecond)
			if got, r := samples(t, d, nvml.GPU_UTILIZATION_SAMPLES, 0); r != nvml.ERROR_NOT_FOUND {
				t.Errorf("idle: %v, %v", got, r)
			}
			c.Set(3500 * time.Millisecond)
			got, r := samples(t, d, nvml.GPU_UTILIZATION_SAMPLES, 0)
			if r != nvml.SUCCESS || len(got) != 11 || sampleValue(got[0]) != 100 || sampleValue(got[10]) != 0 {
				t.Errorf("after work: %v, %v", got, r)
			}
		}},
		{"a value that cannot be", "", func(t *testing.T, d nvml.Device, c *scenario.Control) {
			c.Set(11 * time.Second)
			got, r := samples(t, d, nvml.GPU_UTILIZATION_SAMPLES, 0)
			if r != nvml.SUCCESS || len(got) == 0 || sampleValue(got[0]) != 808334905 {
				t.Errorf("%v, %v", got, r)
			}
			c.Set(12 * time.Second)
			if got, _ := samples(t, d, nvml.GPU_UTILIZATION_SAMPLES, 0); len(got) == 0 || sampleValue(got[0]) != 0 {
				t.Errorf("afterwards: %v", got)
			}
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := written(t, "board b\nring period=100ms entries=20 "+tc.ring+lines+
				"at 10s gpu 0 Samples[gpu] = 808334905\nat 12s gpu 0 Samples[gpu] = default\n")
			lib, control := playing(t, s)
			tc.check(t, device(t, lib, 0), control)
		})
	}
}

// The processes add up to the GPU, and each comes out right if one looks long enough.
func TestProcessUtilization(t *testing.T) {
	s := written(t, plainBoard+`
gpu 0 board=b
gpu 1 board=b
process gpu=0 pid=11 busy=60% period=910ms
process gpu=0 pid=12 busy=30% period=1270ms phase=300ms
process gpu=0 pid=13 busy=20% period=3s phase=1s
process gpu=0 pid=14 memory=1GiB busy=0%
load gpu=1 busy=100% from=5s to=6s
`)
	lib, control := playing(t, s)
	d := device(t, lib, 0)
	if _, r := device(t, lib, 1).GetProcessUtilization(0); r != nvml.ERROR_NOT_FOUND {
		t.Errorf("an idle gpu answers %v", r)
	}
	const minutes = 30
	busy := map[uint32]float64{}
	var last, start uint64
	total := 0.0
	for control.Now() < minutes*time.Minute {
		control.Advance(1900 * time.Millisecond)
		got, r := d.GetProcessUtilization(last)
		if r == nvml.ERROR_NOT_FOUND {
			continue
		}
		if r != nvml.SUCCESS {
			t.Fatal(r)
		}
		newest := last
		for _, p := range got {
			newest = max(newest, p.TimeStamp)
		}
		if start == 0 { // the first read only tells where one stands
			last, start = newest, newest
			continue
		}
		window := float64(newest-last) / 1e6
		for _, p := range got {
			busy[p.Pid] += float64(p.SmUtil) / 100 * window
			total += float64(p.SmUtil) / 100 * window
		}
		last = newest
	}
	truth := s.Truth(0)
	// Each report is rounded to one in a hundred of its window.
	if want := float64(truth.Busy(0, minutes*time.Minute)); math.Abs(total-want) > 0.02*want {
		t.Errorf("all processes: %v s, the gpu was busy for %v s", total, want)
	}
	for pid := uint32(11); pid <= 13; pid++ {
		// The ring sees one process at a time, so this is statistics.
		if want := float64(truth.ProcessBusy(int(pid), 0, minutes*time.Minute)); math.Abs(busy[pid]-want) > 0.08*want+1 {
			t.Errorf("process %d: %v s, the truth is %v s", pid, busy[pid], want)
		}
	}
	if busy[14] != 0 || len(busy) != 3 {
		t.Errorf("seen at work: %v", busy)
	}
}

func TestProcessLists(t *testing.T) {
	s := written(t, plainBoard+`
gpu 0 board=b
process gpu=0 pid=21 memory=1GiB
process gpu=0 pid=22 memory=na from=10s to=20s
process gpu=0 pid=23 memory=2GiB kind=graphics
process gpu=0 pid=24 memory=3GiB kind=mps
process gpu=0 pid=25 memory=1GiB gi=1
load gpu=0 memory=1GiB busy=10%
at 30s gpu 0 ComputeRunningProcesses = !NO_PERMISSION
`)
	lib, control := playing(t, s)
	d := device(t, lib, 0)
	pids := func(list []nvml.ProcessInfo, r nvml.Return) string {
		text := fmt.Sprint(int(r))
		for _, p := range list {
			text += fmt.Sprintf(" %d:%d", p.Pid, p.UsedGpuMemory>>30)
			if p.GpuInstanceId != 0xffffffff || p.ComputeInstanceId != 0xffffffff {
				text += "!"
			}
		}
		return text
	}
	for _, tc := range []struct {
		at   time.Duration
		want string
	}{{0, "0 21:1"}, {10 * time.Second, "0 21:1 22:17179869183"}, {20 * time.Second, "0 21:1"},
		{30 * time.Second, "4"}} {
		control.Set(tc.at)
		if got := pids(d.GetComputeRunningProcesses()); got != tc.want {
			t.Errorf("at %v: %s, want %s", tc.at, got, tc.want)
		}
	}
	if got := pids(d.GetGraphicsRunningProcesses()); got != "0 23:2" {
		t.Errorf("graphics: %s", got)
	}
	if got := pids(d.GetMPSComputeRunningProcesses()); got != "0 24:3" {
		t.Errorf("MPS: %s", got)
	}
	if m, _ := d.GetMemoryInfo_v2(); m.Used != 7<<30 {
		t.Errorf("used memory is %d", m.Used)
	}
}

func TestMIG(t *testing.T) {
	s := named(t, "h100-mig")
	lib, control := playing(t, s)
	control.Set(30 * time.Second)
	d := device(t, lib, 0)
	if cur, pending, r := d.GetMigMode(); cur != 1 || pending != 1 || r != nvml.SUCCESS {
		t.Errorf("MIG mode %d, %d, %v", cur, pending, r)
	}
	n, _ := d.GetMaxMigDeviceCount()
	if n != 7 {
		t.Errorf("at most %d devices", n)
	}
	_, want := s.Truth(0).MIG(30 * time.Second)
	found := map[gpu.UUID]nvml.Device{}
	gaps := 0
	for i := range n {
		m, r := d.GetMigDeviceHandleByIndex(i)
		if r == nvml.ERROR_NOT_FOUND {
			gaps++
			continue
		}
		uuid, r := m.GetUUID()
		if r != nvml.SUCCESS {
			t.Fatal(r)
		}
		found[gpu.UUID(uuid)] = m
	}
	if len(found) != len(want) || gaps != n-len(want) {
		t.Fatalf("%d devices and %d gaps, want %d", len(found), gaps, len(want))
	}
	for _, w := range want {
		m := found[w.UUID]
		gi, _ := m.GetGpuInstanceId()
		ci, _ := m.GetComputeInstanceId()
		is, _ := m.IsMigDeviceHandle()
		parent, _ := m.GetDeviceHandleFromMigDeviceHandle()
		a, r := m.GetAttributes()
		name, _ := m.GetName()
		mem, _ := m.GetMemoryInfo_v2()
		if gi != w.GI || ci != w.CI || !is || parent != d || r != nvml.SUCCESS || int(a.ComputeInstanceSliceCount) != w.Slices ||
			int(a.GpuInstanceSliceCount) != w.GISlices || gpu.Bytes(a.MemorySizeMB)<<20 != w.Memory || gpu.Bytes(mem.Total) != w.Memory {
			t.Errorf("%s is GI %d, CI %d, %v, %+v, memory %+v; want %+v", w.UUID, gi, ci, is, a, mem, w)
		}
		wantName := "NVIDIA H100 80GB HBM3 MIG " + w.Profile
		if w.Slices < w.GISlices {
			wantName = fmt.Sprintf("NVIDIA H100 80GB HBM3 MIG %dc.%s", w.Slices, w.Profile)
		}
		if name != wantName {
			t.Errorf("%s is called %q, want %q", w.UUID, name, wantName)
		}
		if again, r := lib.DeviceGetHandleByUUID(string(w.UUID)); r != nvml.SUCCESS || again != m {
			t.Errorf("%s is not found by its UUID: %v", w.UUID, r)
		}
		inst, r := d.GetGpuInstanceById(w.GI)
		if r != nvml.SUCCESS {
			t.Fatalf("GPU instance %d: %v", w.GI, r)
		}
		info, r := inst.GetInfo()
		if r != nvml.SUCCESS || int(info.Id) != w.GI || int(info.Placement.Start) != w.Start || int(info.Placement.Size) != w.Size {
			t.Errorf("GPU instance %d: %+v, %v", w.GI, info, r)
		}
	}
	// By profile: two instances of 1g.10gb.
	profile, r := d.GetGpuInstanceProfileInfo(nvml.GPU_INSTANCE_PROFILE_1_SLICE)
	if r != nvml.SUCCESS || profile.Id != 19 || profile.SliceCount != 1 || profile.InstanceCount != 7 {
		t.Errorf("profile %+v, %v", profile, r)
	}
	if list, r := d.GetGpuInstances(&profile); r != nvml.SUCCESS || len(list) != 2 {
		t.Errorf("instances of 1g.10gb: %d, %v", len(list), r)
	}
	if v3, r := d.GetGpuInstanceProfileInfoV(nvml.GPU_INSTANCE_PROFILE_3_SLICE).V3(); r != nvml.SUCCESS || v3.Id != 9 || v3.MultiprocessorCount != 60 {
		t.Errorf("profile %+v, %v", v3, r)
	}
	if v2, r := d.GetGpuInstanceProfileInfoV(nvml.GPU_INSTANCE_PROFILE_3_SLICE).V2(); r != nvml.SUCCESS || v2.Id != 9 {
		t.Errorf("profile %+v, %v", v2, r)
	}
	// The GPU's process list is that of all instances, with their ids; a device's is its own.
	all, _ := d.GetComputeRunningProcesses()
	if len(all) != 4 || all[0].GpuInstanceId != 2 || all[1].ComputeInstanceId != 1 {
		t.Errorf("the gpu's processes: %+v", all)
	}
	own, _ := found["MIG-5a0e2002-1d11-5a01-8b00-000000000021"].GetComputeRunningProcesses()
	if len(own) != 1 || own[0].Pid != 7202 {
		t.Errorf("a device's processes: %+v", own)
	}
	if m, _ := found["MIG-5a0e2009-1d11-5a01-8b00-000000000090"].GetMemoryInfo(); m.Used != 3<<30 {
		t.Errorf("a device's used memory: %d", m.Used)
	}
	// No utilization under MIG, on neither handle; on a GPU without MIG there is.
	for _, x := range []nvml.Device{d, own1(found)} {
		if _, r := x.GetUtilizationRates(); r != nvml.ERROR_NOT_SUPPORTED {
			t.Errorf("utilisation under MIG: %v", r)
		}
		if _, _, r := x.GetSamples(nvml.GPU_UTILIZATION_SAMPLES, 0); r != nvml.ERROR_NOT_SUPPORTED {
			t.Errorf("samples under MIG: %v", r)
		}
		if _, r := x.GetProcessUtilization(0); r != nvml.ERROR_NOT_SUPPORTED {
			t.Errorf("process utilisation under MIG: %v", r)
		}
	}
	if _, r := own1(found).GetPowerUsage(); r != nvml.ERROR_NOT_SUPPORTED {
		t.Errorf("power of a MIG device: %v", r)
	}
	whole := device(t, lib, 1)
	if _, r := whole.GetMigDeviceHandleByIndex(0); r != nvml.ERROR_NOT_SUPPORTED {
		t.Errorf("a MIG device without MIG: %v", r)
	}
	if _, r := whole.GetUtilizationRates(); r != nvml.SUCCESS {
		t.Errorf("utilisation without MIG: %v", r)
	}
}

func own1(found map[gpu.UUID]nvml.Device) nvml.Device {
	return found["MIG-5a0e2005-1d11-5a01-8b00-000000000050"]
}

// A new layout ends the old handles; the mode changes only when it is applied.
func TestMIGReconfiguration(t *testing.T) {
	s := written(t, plainBoard+`
gpu 0 board=b
at 10s gpu 0 mig pending on
at 20s gpu 0 mig apply layout="gi=1 profile=3g.40gb start=0 size=4"
at 30s gpu 0 mig apply layout="gi=1 profile=1g.10gb start=0 size=1 ; gi=2 profile=1g.10gb start=1 size=1"
at 40s gpu 0 mig pending off
at 50s gpu 0 mig apply layout=""
`)
	lib, control := playing(t, s)
	d := device(t, lib, 0)
	for _, tc := range []struct {
		at               time.Duration
		current, pending int
		devices          int
	}{{0, 0, 0, 0}, {10, 0, 1, 0}, {20, 1, 1, 1}, {30, 1, 1, 2}, {40, 1, 0, 2}, {50, 0, 0, 0}} {
		control.Set(tc.at * time.Second)
		cur, pending, r := d.GetMigMode()
		devices := 0
		for i := range 7 {
			if _, r := d.GetMigDeviceHandleByIndex(i); r == nvml.SUCCESS {
				devices++
			}
		}
		if r != nvml.SUCCESS || cur != tc.current || pending != tc.pending || devices != tc.devices {
			t.Errorf("at %d s: mode %d, pending %d, %d devices, %v; want %+v", tc.at, cur, pending, devices, r, tc)
		}
	}
	control.Set(20 * time.Second)
	old, _ := d.GetMigDeviceHandleByIndex(0)
	control.Set(30 * time.Second)
	if _, r := old.GetUUID(); r != nvml.ERROR_INVALID_ARGUMENT {
		t.Errorf("a handle of the old layout answers %v", r)
	}
}

// gpm returns metric values between two moments, or the code that they got.
func gpmMetrics(t *testing.T, lib nvml.Interface, take func(s nvml.GpmSample) nvml.Return, control *scenario.Control, t0, t1 time.Duration, ids ...uint32) map[uint32]float64 {
	t.Helper()
	get := nvml.GpmMetricsGetType{NumMetrics: uint32(len(ids))}
	var r nvml.Return
	for i, at := range []time.Duration{t0, t1} {
		s, r := lib.GpmSampleAlloc()
		if r != nvml.SUCCESS {
			t.Fatal(r)
		}
		defer s.Free()
		control.Set(at)
		if r := take(s); r != nvml.SUCCESS {
			t.Fatalf("taking a sample at %v: %v", at, r)
		}
		if i == 0 {
			get.Sample1 = s
		} else {
			get.Sample2 = s
		}
	}
	for i, id := range ids {
		get.Metrics[i].MetricId = id
	}
	if r = lib.GpmMetricsGet(&get); r != nvml.SUCCESS {
		t.Fatalf("metrics: %v", r)
	}
	out := map[uint32]float64{}
	for i, id := range ids {
		out[id] = get.Metrics[i].Value
		if code := nvml.Return(get.Metrics[i].NvmlReturn); code != nvml.SUCCESS {
			out[id] = -float64(code)
		}
	}
	return out
}

func TestGPM(t *testing.T) {
	s := written(t, plainBoard+`
gpu 0 board=b
gpu 1 board=b
gpu 2
process gpu=0 pid=1 busy=30% period=1s
mig gpu=1 layout="gi=1 profile=3g.40gb start=0 size=4 ; gi=4 profile=1g.10gb start=4 size=1"
process gpu=1 pid=2 gi=1 busy=50% period=1s
process gpu=1 pid=3 gi=4 busy=10% period=1s
`)
	lib, control := playing(t, s)
	d, mig, none := device(t, lib, 0), device(t, lib, 1), device(t, lib, 2)
	if support, r := d.GpmQueryDeviceSupport(); r != nvml.SUCCESS || support.IsSupportedDevice != 1 {
		t.Errorf("support: %+v, %v", support, r)
	}
	if _, r := none.GpmQueryDeviceSupport(); r != nvml.ERROR_NOT_SUPPORTED {
		t.Errorf("support where there is none: %v", r)
	}
	got := gpmMetrics(t, lib, d.GpmSampleGet, control, time.Second, 3*time.Second, 2, 10, 11, 248, 249)
	if math.Abs(got[2]-30) > 1e-6 || math.Abs(got[10]-15) > 1e-6 || got[11] != -float64(nvml.ERROR_NOT_SUPPORTED) ||
		math.Abs(got[248]-3e9) > 1 || math.Abs(got[249]-0.9e9) > 1 {
		t.Errorf("metrics %v", got)
	}
	if got := gpmMetrics(t, lib, d.GpmSampleGet, control, 4*time.Second, 4300*time.Millisecond, 2); math.Abs(got[2]-100) > 1e-6 {
		t.Errorf("in a busy window %v", got)
	}
	instance := func(gi int) func(s nvml.GpmSample) nvml.Return {
		return func(s nvml.GpmSample) nvml.Return { return mig.GpmMigSampleGet(gi, s) }
	}
	if got := gpmMetrics(t, lib, instance(1), control, time.Second, 3*time.Second, 2); math.Abs(got[2]-50) > 1e-6 {
		t.Errorf("instance 1: %v", got)
	}
	m, _ := mig.GetMigDeviceHandleByIndex(1)
	if got := gpmMetrics(t, lib, m.GpmSampleGet, control, time.Second, 3*time.Second, 2); math.Abs(got[2]-10) > 1e-6 {
		t.Errorf("instance 4: %v", got)
	}
	if got := gpmMetrics(t, lib, mig.GpmSampleGet, control, time.Second, 3*time.Second, 2); math.Abs(got[2]-(50*3+10.)/7) > 1e-6 {
		t.Errorf("the gpu under MIG: %v", got)
	}
	a, _ := lib.GpmSampleAlloc()
	b, _ := lib.GpmSampleAlloc()
	defer a.Free()
	defer b.Free()
	if r := none.GpmSampleGet(a); r != nvml.ERROR_NOT_SUPPORTED {
		t.Errorf("a sample where there is no GPM: %v", r)
	}
	if r := mig.GpmMigSampleGet(9, a); r != nvml.ERROR_INVALID_ARGUMENT {
		t.Errorf("a sample of an instance that is not there: %v", r)
	}
	d.GpmSampleGet(a)
	if r := lib.GpmMetricsGet(&nvml.GpmMetricsGetType{NumMetrics: 1, Sample1: a, Sample2: b}); r != nvml.ERROR_INVALID_ARGUMENT {
		t.Errorf("metrics of a sample never taken: %v", r)
	}
	d.GpmSampleGet(b)
	if r := lib.GpmMetricsGet(&nvml.GpmMetricsGetType{NumMetrics: 1, Sample1: a, Sample2: b}); r != nvml.ERROR_INVALID_ARGUMENT {
		t.Errorf("metrics of no time at all: %v", r)
	}
}

// Each set has its own queue, and sees what comes after a GPU was registered with it.
func TestEvents(t *testing.T) {
	s := written(t, plainBoard+`
gpu 0 board=b
gpu 1 board=b
at 5s gpu 0 xid 31
at 10s gpu 0 xid 79
at 11s gpu 1 xid 48 gi=3 ci=0
at 12s gpu 1 mig pending on
at 20s gpu 0 lose
at 20s gpu 0 xid 119
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
		for _, want := range []string{"0 8 79", "1 8 48", "1 100 0"} {
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
		if e.EventData != 119 {
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

func TestFaults(t *testing.T) {
	s := named(t, "faults")
	lib, control := playing(t, s)
	d, other := device(t, lib, 0), device(t, lib, 1)
	for _, tc := range []struct {
		at   time.Duration
		want nvml.Return
	}{{1, nvml.SUCCESS}, {402, nvml.ERROR_GPU_IS_LOST}, {459, nvml.ERROR_GPU_IS_LOST}, {460, nvml.SUCCESS},
		{500, nvml.ERROR_RESET_REQUIRED}, {560, nvml.SUCCESS}} {
		control.Set(tc.at * time.Second)
		for name, r := range map[string]nvml.Return{
			"power":       second(d.GetPowerUsage()),
			"UUID":        second(d.GetUUID()),
			"fields":      d.GetFieldValues([]nvml.FieldValue{{FieldId: 83}}),
			"samples":     third(d.GetSamples(nvml.GPU_UTILIZATION_SAMPLES, 0)),
			"processes":   second(d.GetComputeRunningProcesses()),
			"its handle":  second(lib.DeviceGetHandleByIndex(0)),
			"its handle?": second(lib.DeviceGetHandleByUUID(string(s.GPUs[0].UUID))),
		} {
			if r != tc.want {
				t.Errorf("at %d s %s answers %v, want %v", tc.at, name, r, tc.want)
			}
		}
		if _, r := other.GetPowerUsage(); r != nvml.SUCCESS {
			t.Errorf("at %d s the other gpu answers %v", tc.at, r)
		}
	}
	control.Set(200 * time.Second)
	if r := d.GetFieldValues([]nvml.FieldValue{{FieldId: 83}}); r != nvml.ERROR_UNKNOWN {
		t.Errorf("a refused call answers %v", r)
	}
	control.Set(230 * time.Second)
	if r := d.GetFieldValues([]nvml.FieldValue{{FieldId: 83}}); r != nvml.SUCCESS {
		t.Errorf("afterwards it answers %v", r)
	}
}

func second[T any](_ T, r nvml.Return) nvml.Return        { return r }
func third[T, U any](_ T, _ U, r nvml.Return) nvml.Return { return r }

// A call that hangs comes back when the GPU is restored. Meanwhile the other GPU answers, and a second
// call on the GPU is noticed.
func TestHang(t *testing.T) {
	s := named(t, "faults")
	lib, control := playing(t, s)
	d, other := device(t, lib, 0), device(t, lib, 1)
	control.Set(301 * time.Second)
	done := make(chan nvml.Return)
	go func() { done <- second(d.GetUtilizationRates()) }()
	deadline := time.Now().Add(10 * time.Second)
	for control.Hanging() == 0 {
		if time.Now().After(deadline) {
			t.Fatal("the call does not hang")
		}
		time.Sleep(time.Millisecond)
	}
	if _, r := other.GetUtilizationRates(); r != nvml.SUCCESS {
		t.Errorf("the other gpu answers %v", r)
	}
	if control.Overlaps() != 0 {
		t.Errorf("%d overlaps", control.Overlaps())
	}
	if _, r := d.GetPowerUsage(); r != nvml.SUCCESS {
		t.Errorf("another call on the gpu answers %v", r)
	}
	if control.Overlaps() != 1 {
		t.Errorf("%d overlaps, want 1", control.Overlaps())
	}
	select {
	case r := <-done:
		t.Fatalf("the call came back: %v", r)
	default:
	}
	control.Set(330 * time.Second)
	if r := <-done; r != nvml.SUCCESS || control.Hanging() != 0 {
		t.Errorf("the restored gpu answers %v, %d hang", r, control.Hanging())
	}
	if n := control.CallsOn("nvmlDeviceGetUtilizationRates", 0); n != 1 {
		t.Errorf("%d calls were counted", n)
	}
}

// Drivers go and come. Sessions and handles of an earlier one are over.
func TestDriver(t *testing.T) {
	s := written(t, plainBoard+`
system DriverVersion = "1"
gpu 0 board=b
gpu 1 board=b
load gpu=0 busy=100%
at 0s system delay Init 1ms
at 10s driver unload
at 20s driver load
at 30s driver mismatch
at 40s driver load
at 50s gpu 0 remove
at 60s gpu 0 restore
at 70s driver replace
at 70s system DriverVersion = "2"
`)
	lib, control := prepare(t, s)
	begin := func(at time.Duration, want nvml.Return) {
		t.Helper()
		control.Set(at)
		if r := lib.Init(); r != want {
			t.Errorf("at %v nvmlInit answers %v, want %v", at, r, want)
		}
	}
	begin(5*time.Second, nvml.SUCCESS)
	d := device(t, lib, 0)
	if control.Sessions() != 1 {
		t.Errorf("%d sessions", control.Sessions())
	}
	if e, _ := d.GetTotalEnergyConsumption(); e != 5*250_000 {
		t.Errorf("energy %d mJ", e)
	}
	control.Set(15 * time.Second)
	if _, r := d.GetPowerUsage(); r != nvml.ERROR_UNINITIALIZED {
		t.Errorf("without a driver: %v", r)
	}
	if _, r := lib.DeviceGetCount(); r != nvml.ERROR_UNINITIALIZED {
		t.Errorf("without a driver: %v", r)
	}
	lib.Shutdown()
	if control.Sessions() != 0 {
		t.Errorf("%d sessions after shutdown", control.Sessions())
	}
	begin(16*time.Second, nvml.ERROR_DRIVER_NOT_LOADED)
	begin(25*time.Second, nvml.SUCCESS)
	if _, r := d.GetPowerUsage(); r != nvml.ERROR_INVALID_ARGUMENT {
		t.Errorf("a handle of an earlier session answers %v", r)
	}
	d = device(t, lib, 0)
	if e, _ := d.GetTotalEnergyConsumption(); e != 5*250_000 { // since the driver was loaded
		t.Errorf("energy %d mJ", e)
	}
	if got, r := samples(t, d, nvml.GPU_UTILIZATION_SAMPLES, 0); r != nvml.SUCCESS || len(got) != 20 {
		t.Errorf("%d samples, %v", len(got), r)
	}
	lib.Shutdown()
	begin(35*time.Second, nvml.ERROR_LIB_RM_VERSION_MISMATCH)
	begin(55*time.Second, nvml.SUCCESS)
	if n, _ := lib.DeviceGetCount(); n != 1 {
		t.Errorf("%d gpus while one is removed", n)
	}
	if uuid, _ := device(t, lib, 0).GetUUID(); uuid != string(s.GPUs[1].UUID) {
		t.Errorf("the remaining gpu is %s", uuid)
	}
	lib.Shutdown()
	begin(65*time.Second, nvml.SUCCESS)
	if n, _ := lib.DeviceGetCount(); n != 2 {
		t.Errorf("%d gpus", n)
	}
	lib.Shutdown()
	// The library was mapped before the driver was replaced.
	begin(75*time.Second, nvml.ERROR_LIB_RM_VERSION_MISMATCH)
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
	values := []nvml.FieldValue{{FieldId: 1}, {FieldId: 3}, {FieldId: 4}, {FieldId: 193}, {FieldId: 185, ScopeId: 2}, {FieldId: 185, ScopeId: 1},
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

// symbols lists the functions that a library exports.
func symbols(t *testing.T, path string) []string {
	t.Helper()
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	all, err := f.DynamicSymbols()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, s := range all {
		if s.Section != elf.SHN_UNDEF && elf.ST_TYPE(s.Info) == elf.STT_FUNC {
			names = append(names, s.Name)
		}
	}
	slices.Sort(names)
	return names
}

// What an old driver lacks is not in the symbol table, and nothing but NVML is.
func TestSymbolSets(t *testing.T) {
	lacks := map[string][]string{
		"R470": {"nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetNumFans", "nvmlDeviceGetNumGpuCores",
			"nvmlGpmSampleGet", "nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetGpuFabricInfo", "nvmlDeviceGetGpuMaxPcieLinkGeneration"},
		"R535": {"nvmlDeviceGetTemperatureV", "nvmlDeviceGetMarginTemperature", "nvmlDeviceGetGpuFabricInfoV", "nvmlDeviceGetNumaNodeId",
			"nvmlDeviceGetJpgUtilization", "nvmlDeviceGetOfaUtilization"},
		"R580": {}, "R595": {}, "newest": {},
	}
	var previous []string
	for _, set := range scenario.SymbolSets {
		path, err := BuildFakeNVML(context.Background(), set, t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		names := symbols(t, path)
		for _, n := range names {
			if !strings.HasPrefix(n, "nvml") {
				t.Errorf("%s exports %s", set, n)
			}
		}
		for _, n := range previous {
			if !slices.Contains(names, n) {
				t.Errorf("%s lacks %s, which an older driver has", set, n)
			}
		}
		for _, n := range lacks[set] {
			if slices.Contains(names, n) {
				t.Errorf("%s has %s", set, n)
			}
		}
		for _, n := range []string{"nvmlInit_v2", "nvmlDeviceGetCount_v2", "nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetTemperature"} {
			if !slices.Contains(names, n) {
				t.Errorf("%s lacks %s", set, n)
			}
		}
		previous = names
	}
	if _, err := BuildFakeNVML(context.Background(), "R1", t.TempDir()); err == nil {
		t.Error("an unknown set was built")
	}
}

// The checks of struct versions, and the older forms of calls, which go-nvml does not let through.
const rawCalls = `
#define NVML_NO_UNVERSIONED_FUNC_DEFS
#include <nvml.h>
#include <stdio.h>
#include <string.h>
#define SHOW(text, call) printf("%s %d\n", text, (int)(call))
int main(void)
{
    nvmlDevice_t d;
    SHOW("early", nvmlDeviceGetHandleByIndex_v2(0, &d));
    SHOW("init", nvmlInit_v2());
    SHOW("handle", nvmlDeviceGetHandleByIndex_v2(0, &d));
    nvmlMemory_v2_t memory = {.version = nvmlMemory_v2};
    SHOW("memory", nvmlDeviceGetMemoryInfo_v2(d, &memory));
    memory.version = 1;
    SHOW("memory 1", nvmlDeviceGetMemoryInfo_v2(d, &memory));
    nvmlTemperature_t temperature = {.version = 7};
    SHOW("temperature", nvmlDeviceGetTemperatureV(d, &temperature));
    nvmlMarginTemperature_t margin = {.version = 0};
    SHOW("margin", nvmlDeviceGetMarginTemperature(d, &margin));
    nvmlGpuFabricInfoV_t fabric = {.version = 1};
    SHOW("fabric", nvmlDeviceGetGpuFabricInfoV(d, &fabric));
    nvmlGpuInstanceProfileInfo_v2_t profile = {.version = 0};
    SHOW("profile", nvmlDeviceGetGpuInstanceProfileInfoV(d, 0, &profile));
    nvmlGpmSupport_t support = {.version = 9};
    SHOW("gpm", nvmlGpmQueryDeviceSupport(d, &support));
    static nvmlGpmMetricsGet_t metrics = {.version = 9};
    SHOW("metrics", nvmlGpmMetricsGet(&metrics));
    unsigned int n = 1;
    nvmlProcessInfo_v1_t v1[4];
    SHOW("too small", nvmlDeviceGetComputeRunningProcesses(d, &n, v1));
    printf("count %u\n", n);
    SHOW("v1", nvmlDeviceGetComputeRunningProcesses(d, &n, v1));
    printf("pids %u %u, memory %llu\n", v1[0].pid, v1[1].pid, v1[1].usedGpuMemory);
    nvmlProcessInfo_v2_t v2[4];
    n = 4;
    SHOW("v2", nvmlDeviceGetComputeRunningProcesses_v2(d, &n, v2));
    printf("count %u, instance %d\n", n, (int)v2[0].gpuInstanceId);
    n = 0;
    SHOW("sizing", nvmlDeviceGetComputeRunningProcesses_v3(d, &n, NULL));
    char uuid[8];
    SHOW("short", nvmlDeviceGetUUID(d, uuid, sizeof uuid));
    SHOW("null", nvmlDeviceGetUUID(d, NULL, 96));
    nvmlDevice_t stray = {(struct nvmlDevice_st *)uuid};
    SHOW("stray", nvmlDeviceGetUUID(stray, uuid, sizeof uuid));
    nvmlSample_t samples[4];
    nvmlValueType_t type;
    SHOW("samples sizing", nvmlDeviceGetSamples(d, NVML_GPU_UTILIZATION_SAMPLES, 0, &type, &n, NULL));
    printf("count %u\n", n);
    n = 0;
    SHOW("samples none", nvmlDeviceGetSamples(d, NVML_GPU_UTILIZATION_SAMPLES, 0, &type, &n, samples));
    SHOW("shutdown", nvmlShutdown());
    SHOW("again", nvmlShutdown());
    SHOW("late", nvmlDeviceGetCount_v2(&n));
    return 0;
}
`

func TestRawCalls(t *testing.T) {
	s := written(t, plainBoard+`
gpu 0 board=b
process gpu=0 pid=31 memory=1KiB
process gpu=0 pid=32 memory=2KiB
`)
	dir := t.TempDir()
	lib, err := BuildFakeNVML(context.Background(), "newest", dir)
	if err != nil {
		t.Fatal(err)
	}
	env, control, err := Play(s, dir)
	if err != nil {
		t.Fatal(err)
	}
	defer control.Close()
	root, err := RepositoryRoot()
	if err != nil {
		t.Fatal(err)
	}
	include, err := headerDir(context.Background(), root)
	if err != nil {
		t.Fatal(err)
	}
	source, program := filepath.Join(dir, "raw.c"), filepath.Join(dir, "raw")
	if err := os.WriteFile(source, []byte(rawCalls), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("gcc", "-Wno-deprecated-declarations", "-I"+include, "-o", program, source, lib).CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
	cmd := exec.Command(program)
	cmd.Env = append(env, "LD_LIBRARY_PATH="+dir)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	want := `early 1
init 0
handle 0
memory 0
memory 1 25
temperature 25
margin 25
fabric 25
profile 25
gpm 25
metrics 25
too small 7
count 2
v1 0
pids 31 32, memory 2048
v2 0
count 2, instance -1
sizing 7
short 7
null 2
stray 2
samples sizing 0
count 20
samples none 2
shutdown 0
again 1
late 1
`
	if string(out) != want {
		t.Errorf("got\n%s\nwant\n%s", out, want)
	}
}

// An old driver, in a process of its own: go-nvml finds the older versions of the calls.
func TestOldDriver(t *testing.T) {
	if path := os.Getenv("STANDIN_TEST_LIBRARY"); path != "" {
		lib := nvml.New(nvml.WithLibraryPath(path))
		if r := lib.Init(); r != nvml.SUCCESS {
			t.Fatal(r)
		}
		defer lib.Shutdown()
		d := device(t, lib, 0)
		list, r := d.GetComputeRunningProcesses()
		if r != nvml.SUCCESS || len(list) != 1 || list[0].Pid != 2207 {
			t.Errorf("processes %+v, %v", list, r)
		}
		if lib.Extensions().LookupSymbol("nvmlDeviceGetMemoryInfo_v2") == nil {
			t.Error("the old driver knows nvmlDeviceGetMemoryInfo_v2")
		}
		values := []nvml.FieldValue{{FieldId: 185}}
		if r := d.GetFieldValues(values); r != nvml.SUCCESS || values[0].NvmlReturn != uint32(nvml.ERROR_NOT_SUPPORTED) {
			t.Errorf("a newer field: %+v, %v", values, r)
		}
		return
	}
	s := named(t, "little")
	dir := t.TempDir()
	path, err := BuildFakeNVML(context.Background(), s.Symbols, dir)
	if err != nil {
		t.Fatal(err)
	}
	env, control, err := Play(s, dir)
	if err != nil {
		t.Fatal(err)
	}
	defer control.Close()
	cmd := exec.Command(os.Args[0], "-test.run=^TestOldDriver$", "-test.v")
	cmd.Env = append(append(os.Environ(), env...), "STANDIN_TEST_LIBRARY="+path)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	if control.Calls("nvmlDeviceGetComputeRunningProcesses_v2") == 0 || control.Sessions() != 0 {
		t.Errorf("the other process called %v, %d sessions are open", control.AllCalls(), control.Sessions())
	}
}

// Under a clock of its own the scenario goes on by itself.
func TestPlayLive(t *testing.T) {
	s := named(t, "demo")
	dir := t.TempDir()
	path, err := BuildFakeNVML(context.Background(), "newest", dir)
	if err != nil {
		t.Fatal(err)
	}
	env, control, err := PlayLive(s, dir)
	if err != nil {
		t.Fatal(err)
	}
	defer control.Close()
	setenv(t, env)
	lib := nvml.New(nvml.WithLibraryPath(path))
	if r := lib.Init(); r != nvml.SUCCESS {
		t.Fatal(r)
	}
	defer lib.Shutdown()
	d := device(t, lib, 0)
	first, _ := d.GetTotalEnergyConsumption()
	for deadline := time.Now().Add(10 * time.Second); ; {
		if e, r := d.GetTotalEnergyConsumption(); r != nvml.SUCCESS || e > first {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the energy stands still")
		}
	}
	e, _ := d.GetTotalEnergyConsumption()
	want := 1000 * float64(s.Truth(0).Energy(0, control.Now()))
	if math.Abs(float64(e)-want) > 0.05*want+1000 {
		t.Errorf("energy %d mJ, the truth is %v mJ", e, want)
	}
}

// What no scenario is, is reported and answered as a driver that is not there.
func TestNoScenario(t *testing.T) {
	s := written(t, plainBoard+"gpu 0 board=b\n")
	lib, _ := prepare(t, s)
	t.Setenv("FAKENVML_SCENARIO", filepath.Join(t.TempDir(), "none"))
	if r := lib.Init(); r != nvml.ERROR_DRIVER_NOT_LOADED {
		t.Errorf("nvmlInit answers %v", r)
	}
}
