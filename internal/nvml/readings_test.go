package nvml

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/internal/standin"
	"github.com/gpu-exporter/gpu-exporter/internal/standin/scenario"
)

// poll groups is one read of everything.
type pollGroups struct {
	identity gpu.Identity
	fast     gpu.Fast
	medium   gpu.Medium
	slow     gpu.Slow
}

// source is an answer of the scenario from which a reading may come.
type source struct {
	key       string
	component string // "": value; "links": the sum of the field's values over the links (NVLink 5)
	call      callID // which has to be in the library; of a field, callFieldValues
	scale     float64
}

// check is one reading: the first source that the scenario answers and the library offers is what it must be.
type check struct {
	name    string
	sources []source
	got     func(*pollGroups) (float64, bool)
}

func opt[T ~float64 | ~uint64 | ~int](o gpu.Opt[T]) (float64, bool) {
	v, ok := o.Get()
	return float64(v), ok
}

func entry[K comparable, V ~float64 | ~uint64](m map[K]V, k K) (float64, bool) {
	v, ok := m[k]
	return float64(v), ok
}

func truth(o gpu.Opt[bool]) (float64, bool) {
	v, ok := o.Get()
	if v {
		return 1, ok
	}
	return 0, ok
}

func field(id int, scope string, scale float64) source {
	key := fmt.Sprintf("Field[%d]", id)
	if scope != "" {
		key = fmt.Sprintf("Field[%d,%s]", id, scope)
	}
	return source{key: key, call: callFieldValues, scale: scale}
}

// eachLink is a field that is counted for each NVLink.
func eachLink(id int) source {
	return source{key: fmt.Sprintf("Field[%d]", id), component: "links", call: callFieldValues, scale: 1}
}

// checks are all readings that are one number in the scenario.
func checks() []check {
	list := []check{
		{"power", []source{field(185, "gpu", 1e-3), {"PowerUsage", "", callPowerUsage, 1e-3}},
			func(l *pollGroups) (float64, bool) { return opt(l.fast.Power) }},
		{"power_instant", []source{field(186, "gpu", 1e-3)}, func(l *pollGroups) (float64, bool) { return opt(l.fast.PowerInstant) }},
		{"power_module", []source{field(185, "module", 1e-3)}, func(l *pollGroups) (float64, bool) { return opt(l.fast.PowerModule) }},
		{"power_memory", []source{field(185, "memory", 1e-3)}, func(l *pollGroups) (float64, bool) { return opt(l.fast.PowerMemory) }},
		{"energy", []source{field(83, "", 1e-3), {"TotalEnergyConsumption", "", callTotalEnergyConsumption, 1e-3}},
			func(l *pollGroups) (float64, bool) { return opt(l.fast.Energy) }},
		{"memory_temperature", []source{field(82, "", 1)}, func(l *pollGroups) (float64, bool) { return opt(l.fast.MemoryTemperature) }},
		{"pcie_transmit", []source{field(197, "", 1)}, func(l *pollGroups) (float64, bool) { return opt(l.fast.PCIeTransmit) }},
		{"pcie_receive", []source{field(198, "", 1)}, func(l *pollGroups) (float64, bool) { return opt(l.fast.PCIeReceive) }},
		{"nvlink_transmit", []source{field(138, "all", 1024), eachLink(202)},
			func(l *pollGroups) (float64, bool) { return opt(l.fast.NVLinkTransmit) }},
		{"nvlink_receive", []source{field(139, "all", 1024), eachLink(204)},
			func(l *pollGroups) (float64, bool) { return opt(l.fast.NVLinkReceive) }},
		{"utilization", []source{{"UtilizationRates", "gpu", callUtilizationRates, 0.01}}, func(l *pollGroups) (float64, bool) {
			u, ok := l.fast.Utilization.Get()
			return float64(u.GPU), ok
		}},
		{"memory utilization", []source{{"UtilizationRates", "memory", callUtilizationRates, 0.01}}, func(l *pollGroups) (float64, bool) {
			u, ok := l.fast.Utilization.Get()
			return float64(u.Memory), ok
		}},
		{"memory total", []source{{"MemoryInfo_v2", "total", callMemoryInfoV2, 1}, {"MemoryInfo", "total", callMemoryInfo, 1}},
			func(l *pollGroups) (float64, bool) {
				m, ok := l.medium.Memory.Get()
				return float64(m.Total), ok
			}},
		{"memory used", []source{{"MemoryInfo_v2", "used", callMemoryInfoV2, 1}, {"MemoryInfo", "used", callMemoryInfo, 1}},
			func(l *pollGroups) (float64, bool) {
				m, ok := l.medium.Memory.Get()
				return float64(m.Used), ok
			}},
		{"memory free", []source{{"MemoryInfo_v2", "free", callMemoryInfoV2, 1}, {"MemoryInfo", "free", callMemoryInfo, 1}},
			func(l *pollGroups) (float64, bool) {
				m, ok := l.medium.Memory.Get()
				return float64(m.Free), ok
			}},
		{"memory reserved", []source{{"MemoryInfo_v2", "reserved", callMemoryInfoV2, 1}}, func(l *pollGroups) (float64, bool) {
			m, _ := l.medium.Memory.Get()
			return opt(m.Reserved)
		}},
		{"BAR1 total", []source{{"BAR1MemoryInfo", "total", callBAR1MemoryInfo, 1}}, func(l *pollGroups) (float64, bool) {
			m, ok := l.medium.BAR1.Get()
			return float64(m.Total), ok
		}},
		{"BAR1 used", []source{{"BAR1MemoryInfo", "used", callBAR1MemoryInfo, 1}}, func(l *pollGroups) (float64, bool) {
			m, ok := l.medium.BAR1.Get()
			return float64(m.Used), ok
		}},
		{"temperature", []source{{"Temperature[gpu]", "", callTemperatureV, 1}, {"Temperature[gpu]", "", callTemperature, 1}},
			func(l *pollGroups) (float64, bool) { return opt(l.medium.Temperature) }},
		{"fan 0", []source{{"FanSpeed_v2[0]", "", callFanSpeedV2, 0.01}}, func(l *pollGroups) (float64, bool) {
			if len(l.medium.Fans) == 0 {
				return 0, false
			}
			return opt(l.medium.Fans[0])
		}},
		{"performance_state", []source{{"PerformanceState", "", callPerformanceState, 1}},
			func(l *pollGroups) (float64, bool) { return opt(l.medium.PState) }},
		{"remapped corrected", []source{field(142, "", 1), {"RemappedRows", "corrected", callRemappedRows, 1}},
			func(l *pollGroups) (float64, bool) { return entry(l.medium.RemappedRows, gpu.CauseCorrected) }},
		{"remapped uncorrected", []source{field(143, "", 1), {"RemappedRows", "uncorrected", callRemappedRows, 1}},
			func(l *pollGroups) (float64, bool) { return entry(l.medium.RemappedRows, gpu.CauseUncorrected) }},
		{"remap pending", []source{field(144, "", 1), {"RemappedRows", "pending", callRemappedRows, 1}},
			func(l *pollGroups) (float64, bool) { return truth(l.medium.RemapPending) }},
		{"remap failed", []source{field(145, "", 1), {"RemappedRows", "failure", callRemappedRows, 1}},
			func(l *pollGroups) (float64, bool) { return truth(l.medium.RemapFailed) }},
		{"retired single", []source{field(29, "", 1)}, func(l *pollGroups) (float64,
			bool) {
			return entry(l.medium.RetiredPages, gpu.CauseSingleBit)
		}},
		{"retired double", []source{field(30, "", 1)}, func(l *pollGroups) (float64,
			bool) {
			return entry(l.medium.RetiredPages, gpu.CauseDoubleBit)
		}},
		{"retire pending", []source{field(31, "", 1)}, func(l *pollGroups) (float64, bool) { return truth(l.medium.RetirePending) }},
		{"pcie_replays", []source{field(94, "", 1), {"PcieReplayCounter", "", callPcieReplayCounter, 1}},
			func(l *pollGroups) (float64, bool) { return opt(l.medium.PCIeReplays) }},
		{"nvlink flit", []source{field(38, "", 1)}, func(l *pollGroups) (float64,
			bool) {
			return entry(l.medium.NVLinkErrors, gpu.NVLinkCRCFlit)
		}},
		{"nvlink data", []source{field(45, "", 1)}, func(l *pollGroups) (float64,
			bool) {
			return entry(l.medium.NVLinkErrors, gpu.NVLinkCRCData)
		}},
		{"nvlink replay", []source{field(52, "", 1)}, func(l *pollGroups) (float64,
			bool) {
			return entry(l.medium.NVLinkErrors, gpu.NVLinkReplay)
		}},
		{"nvlink recovery", []source{field(59, "", 1), eachLink(215)},
			func(l *pollGroups) (float64, bool) { return entry(l.medium.NVLinkErrors, gpu.NVLinkRecovery) }},
		{"recovery_action", []source{field(230, "", 1)}, func(l *pollGroups) (float64, bool) {
			a, ok := l.medium.Recovery.Get()
			return float64(slices.Index(gpu.RecoveryActions, a)), ok
		}},
		{"power_limit", []source{{"EnforcedPowerLimit", "", callEnforcedPowerLimit, 1e-3}},
			func(l *pollGroups) (float64, bool) { return opt(l.slow.PowerLimit) }},
		{"power_limit_requested", []source{{"PowerManagementLimit", "", callPowerManagementLimit, 1e-3}},
			func(l *pollGroups) (float64, bool) { return opt(l.slow.PowerLimitRequested) }},
		{"power_limit_default", []source{{"PowerManagementDefaultLimit", "", callPowerManagementDefaultLimit, 1e-3}},
			func(l *pollGroups) (float64, bool) { return opt(l.slow.PowerLimitDefault) }},
		{"power_limit_min", []source{{"PowerManagementLimitConstraints", "min", callPowerManagementLimitConstraints, 1e-3}},
			func(l *pollGroups) (float64, bool) { return opt(l.slow.PowerLimitMin) }},
		{"power_limit_max", []source{{"PowerManagementLimitConstraints", "max", callPowerManagementLimitConstraints, 1e-3}},
			func(l *pollGroups) (float64, bool) { return opt(l.slow.PowerLimitMax) }},
		{"memory limit", []source{{"TemperatureThreshold[mem_max]", "", callTemperatureThreshold, 1}}, func(l *pollGroups) (float64, bool) {
			return threshold(l, gpu.SensorMemory, gpu.LimitMaxOperating)
		}},
		{"persistence_mode", []source{{"PersistenceMode", "", callPersistenceMode, 1}},
			func(l *pollGroups) (float64, bool) { return truth(l.slow.PersistenceMode) }},
		{"accounting_mode", []source{{"AccountingMode", "", callAccountingMode, 1}},
			func(l *pollGroups) (float64, bool) { return truth(l.slow.AccountingMode) }},
		{"display_active", []source{{"DisplayActive", "", callDisplayActive, 1}},
			func(l *pollGroups) (float64, bool) { return truth(l.slow.DisplayActive) }},
		{"compute_mode", []source{{"ComputeMode", "", callComputeMode, 1}}, func(l *pollGroups) (float64, bool) {
			m, ok := l.slow.ComputeMode.Get()
			return float64(slices.Index(gpu.ComputeModes, m)), ok
		}},
		{"ecc_mode", []source{{"EccMode", "current", callEccMode, 1}}, func(l *pollGroups) (float64, bool) {
			m, ok := l.slow.ECCMode.Get()
			return truth2(m.Current), ok
		}},
		{"ecc_mode pending", []source{{"EccMode", "pending", callEccMode, 1}}, func(l *pollGroups) (float64, bool) {
			m, ok := l.slow.ECCMode.Get()
			return truth2(m.Pending), ok
		}},
		{"pcie generation", []source{{"CurrPcieLinkGeneration", "", callCurrPcieLinkGeneration, 1}},
			func(l *pollGroups) (float64, bool) { return opt(l.slow.PCIe.Generation) }},
		{"pcie width", []source{{"CurrPcieLinkWidth", "", callCurrPcieLinkWidth, 1}},
			func(l *pollGroups) (float64, bool) { return opt(l.slow.PCIe.Width) }},
		{"pcie generation max", []source{{"MaxPcieLinkGeneration", "", callMaxPcieLinkGeneration, 1}},
			func(l *pollGroups) (float64, bool) { return opt(l.slow.PCIe.MaxGeneration) }},
		{"pcie width max", []source{{"MaxPcieLinkWidth", "", callMaxPcieLinkWidth, 1}},
			func(l *pollGroups) (float64, bool) { return opt(l.slow.PCIe.MaxWidth) }},
	}
	for reason, id := range map[gpu.LimitReason]int{gpu.LimitPowerCap: 74, gpu.LimitThermal: 75, gpu.LimitSyncBoost: 76, gpu.LimitBoard: 77,
		gpu.LimitReliability: 79, gpu.LimitSWThermal: 269, gpu.LimitHWThermal: 270, gpu.LimitHWPowerBrake: 271} {
		list = append(list, check{"limited " + string(reason), []source{field(id, "", 1e-9)},
			func(l *pollGroups) (float64, bool) { return entry(l.fast.Limited, reason) }})
	}
	for i, c := range []string{"graphics", "sm", "mem", "video"} {
		clock := gpu.Clocks[i]
		list = append(list,
			check{"clock " + c, []source{{"ClockInfo[" + c + "]", "", callClockInfo, 1e6}},
				func(l *pollGroups) (float64, bool) { return entry(l.medium.Clocks, clock) }},
			check{"max clock " + c, []source{{"MaxClockInfo[" + c + "]", "", callMaxClockInfo, 1e6}},
				func(l *pollGroups) (float64, bool) { return entry(l.slow.MaxClocks, clock) }})
	}
	for _, b := range gpu.BankAvailabilities {
		list = append(list, check{"banks " + string(b), []source{{"RowRemapperHistogram", string(b), callRowRemapperHistogram, 1}},
			func(l *pollGroups) (float64, bool) { return entry(l.slow.RemapBanks, b) }})
	}
	for engine, e := range map[gpu.Engine]source{
		gpu.EngineEncoder: {"EncoderUtilization", "utilization", callEncoderUtilization, 0.01},
		gpu.EngineDecoder: {"DecoderUtilization", "utilization", callDecoderUtilization, 0.01},
		gpu.EngineJPEG:    {"JpgUtilization", "utilization", callJpgUtilization, 0.01},
		gpu.EngineOFA:     {"OfaUtilization", "utilization", callOfaUtilization, 0.01},
	} {
		list = append(list, check{"engine " + string(engine), []source{e},
			func(l *pollGroups) (float64, bool) { return entry(l.fast.Engines, engine) }})
	}
	for _, severity := range []gpu.ECCSeverity{gpu.ECCCorrected, gpu.ECCUncorrected} {
		for at, place := range map[gpu.ECCMemory]string{gpu.ECCDRAM: "dram", gpu.ECCSRAM: "sram"} {
			for counter, pick := range map[string]func(gpu.ECCCount) gpu.Opt[uint64]{
				"volatile":  func(e gpu.ECCCount) gpu.Opt[uint64] { return e.Volatile },
				"aggregate": func(e gpu.ECCCount) gpu.Opt[uint64] { return e.Lifetime },
			} {
				list = append(list, check{fmt.Sprintf("ecc %s %s %s", severity, counter, place),
					[]source{{fmt.Sprintf("MemoryErrorCounter[%s,%s,%s]", severity, counter, place), "", callMemoryErrorCounter, 1}},
					func(l *pollGroups) (float64, bool) {
						for _, e := range l.medium.ECC {
							if e.Severity == severity && e.Memory == at {
								return opt(pick(e))
							}
						}
						return 0, false
					}})
			}
		}
	}
	return list
}

func truth2(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func threshold(l *pollGroups, sensor gpu.Sensor, limit gpu.TemperatureLimit) (float64, bool) {
	for _, t := range l.slow.TemperatureLimits {
		if t.Sensor == sensor && t.Limit == limit {
			return float64(t.Value), true
		}
	}
	return 0, false
}

// fieldLimits is where the ids of fields end in a driver branch.
var fieldLimits = map[string]int{"R470": 161, "R535": 197, "R580": 274, "R595": 303, "newest": 308}

// want returns what a check must find, in the unit of the reading, and how far rounding may lead away.
func (c check) want(s *scenario.Scenario, dev int, at time.Duration, have offers, mig bool) (value, slack float64, present bool) {
	for _, src := range c.sources {
		if !have.have[src.call] {
			continue
		}
		var id int
		if n, _ := fmt.Sscanf(src.key, "Field[%d", &id); n == 1 && id >= fieldLimits[s.Symbols] {
			continue
		}
		if src.component == "links" {
			links := 0
			for link := range 36 {
				if a, ok := s.Answer(dev, fmt.Sprintf("Field[%d,%d]", id, link), at); ok && a.Code == "" {
					value += a.Numbers["value"]
					links++
				}
			}
			if links > 0 {
				return value, float64(links), true
			}
			continue
		}
		a, ok := s.Answer(dev, src.key, at)
		if !ok && strings.Contains(src.key, ",") {
			a, ok = s.Answer(dev, strings.Split(src.key, ",")[0]+"]", at)
		}
		if !ok || a.Code != "" {
			continue
		}
		if mig && underMIG(src.key) {
			continue
		}
		name := src.component
		if name == "" {
			name = "value"
		}
		return a.Numbers[name] * src.scale, 1.01 * src.scale, true
	}
	return 0, 0, false
}

// underMIG are the answers that the driver withholds while a GPU is divided.
func underMIG(key string) bool {
	for _, prefix := range []string{"UtilizationRates", "EncoderUtilization", "DecoderUtilization", "JpgUtilization", "OfaUtilization",
		"RemappedRows", "RowRemapperHistogram"} {
		if strings.HasPrefix(key, prefix) {
			return true
		}
	}
	return false
}

func readAll(t *testing.T, c *GPU) *pollGroups {
	t.Helper()
	l := &pollGroups{identity: c.Identity()}
	var errFast, errMedium, errSlow error
	l.slow, errSlow = c.Slow()
	l.fast, errFast = c.Fast()
	l.medium, errMedium = c.Medium()
	for _, err := range []error{errFast, errMedium, errSlow} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return l
}

// TestReadingsEqualTheScenario plays every shipped scenario, each against its own symbol set, and holds
// every reading of every GPU against the scenario's answer; what the scenario or the set lacks is absent.
func TestReadingsEqualTheScenario(t *testing.T) {
	for _, name := range scenarios(t) {
		t.Run(name, func(t *testing.T) {
			if !inChild(t) {
				return
			}
			s, err := standin.Scenario(name)
			if err != nil {
				t.Fatal(err)
			}
			r := play(t, s, s.Symbols)
			r.at(20 * time.Second)
			devs := r.open()
			if len(devs) != len(s.GPUs) {
				t.Fatalf("%d GPUs, want %d", len(devs), len(s.GPUs))
			}
			for i, c := range devs {
				for range 3 { // the second and third must not lose what the first found
					checkGPU(r, i, readAll(t, c))
				}
			}
			checkCalls(r)
		})
	}
}

func checkGPU(r *harness, dev int, l *pollGroups) {
	r.Helper()
	now := r.control.Now()
	mig, devices := r.scenario.Truth(dev).MIG(now)
	seen := 0
	for _, check := range checks() {
		want, slack, present := check.want(r.scenario, dev, now, r.session.offers, mig)
		got, ok := check.got(l)
		if ok != present || ok && math.Abs(got-want) > slack {
			r.Errorf("GPU %d, %s: got %v (%v), want %v (%v)", dev, check.name, got, ok, want, present)
		}
		if ok {
			seen++
		}
	}
	if seen < 10 {
		r.Errorf("GPU %d: only %d readings", dev, seen)
	}
	checkIdentity(r, dev, l.identity)
	checkProcesses(r, dev, l)
	if mode, ok := l.slow.MIGMode.Get(); ok && mode.Current != mig {
		r.Errorf("GPU %d: MIG mode %v, want %v", dev, mode, mig)
	}
	checkInstances(r, dev, l, devices)
}

func checkIdentity(r *harness, dev int, id gpu.Identity) {
	r.Helper()
	s := r.scenario
	text := func(key string) string {
		a, _ := s.Answer(dev, key, r.control.Now())
		return a.Text
	}
	capability, _ := s.Answer(dev, "CudaComputeCapability", 0)
	brand, _ := s.Answer(dev, "Brand", 0)
	arch, _ := s.Answer(dev, "Architecture", 0)
	want := gpu.Identity{UUID: s.GPUs[dev].UUID, Index: dev, PCI: s.GPUs[dev].PCI, Minor: gpu.Some(s.GPUs[dev].Minor),
		Model: text("Name"), Serial: text("Serial"), BoardPart: text("BoardPartNumber"), VBIOS: text("VbiosVersion"),
		ComputeCapability: fmt.Sprintf("%v.%v", capability.Numbers["major"], capability.Numbers["minor"]),
		Brand: map[float64]string{1: "Quadro", 2: "Tesla", 5: "GeForce", 10: "NVIDIA RTX Virtual Workstation", 13: "NVIDIA RTX",
			14: "NVIDIA", 15: "GeForce RTX"}[brand.Numbers["value"]],
		Architecture: map[float64]string{4: "Pascal", 6: "Turing", 7: "Ampere", 8: "Ada Lovelace", 9: "Hopper",
			10: "Blackwell"}[arch.Numbers["value"]]}
	if id != want {
		r.Errorf("GPU %d: identity\n got %+v\nwant %+v", dev, id, want)
	}
}

func checkProcesses(r *harness, dev int, l *pollGroups) {
	r.Helper()
	got, ok := l.medium.Processes.Get()
	if !ok {
		r.Errorf("GPU %d: no process list", dev)
		return
	}
	var want []gpu.Process
	for _, p := range r.scenario.Truth(dev).Processes(r.control.Now()) {
		w := gpu.Process{PID: p.PID, Kinds: []gpu.ProcessKind{p.Kind}, Memory: p.Memory, GI: p.GI, CI: p.CI}
		want = append(want, w)
	}
	slices.SortFunc(want, func(a, b gpu.Process) int { return a.PID - b.PID })
	if fmt.Sprint(got) != fmt.Sprint(want) {
		r.Errorf("GPU %d: processes\n got %v\nwant %v", dev, got, want)
	}
}

func checkInstances(r *harness, dev int, l *pollGroups, devices []scenario.MIGDevice) {
	r.Helper()
	found := map[gpu.UUID]string{}
	for _, in := range l.slow.Instances {
		for _, c := range in.Compute {
			found[c.UUID] = fmt.Sprint(in.GI, c.CI, c.Index, in.Profile, in.Slices, in.PlacementStart, in.PlacementSize,
				in.UUID == in.Compute[0].UUID)
		}
		if share, ok := in.Share.Get(); !ok || math.Abs(float64(share)-float64(in.Slices)/7) > 1e-9 {
			r.Errorf("GPU %d: instance %d has share %v of %d slices", dev, in.GI, in.Share, in.Slices)
		}
	}
	want := map[gpu.UUID]string{}
	memory := map[gpu.UUID]gpu.Bytes{}
	for i, d := range devices {
		want[d.UUID] = fmt.Sprint(d.GI, d.CI, d.Index, d.Profile, d.GISlices, gpu.Some(d.Start), gpu.Some(d.Size), true)
		if i == 0 || devices[i-1].GI != d.GI {
			memory[d.UUID] = d.Memory
		}
	}
	if !maps.Equal(found, want) {
		r.Errorf("GPU %d: MIG devices\n got %v\nwant %v", dev, found, want)
	}
	if len(l.medium.Instances) != len(memory) {
		r.Errorf("GPU %d: memory of %d instances, want %d", dev, len(l.medium.Instances), len(memory))
	}
	for _, in := range l.medium.Instances {
		if m, ok := in.Memory.Get(); !ok || m.Total != memory[in.UUID] {
			r.Errorf("GPU %d: memory of instance %s: %v, want %v", dev, in.UUID, m.Total, memory[in.UUID])
		}
	}
}

// checkCalls: what is not offered is no error, and everything was timed.
func checkCalls(r *harness) {
	r.Helper()
	for _, c := range r.library.Calls() {
		if len(c.Errors) > 0 {
			r.Errorf("%s: errors %v", c.Call, c.Errors)
		}
		if c.Duration.Count == 0 {
			r.Errorf("%s: not timed", c.Call)
		}
	}
}

func TestReadings(t *testing.T) {
	list := Readings()
	pollGroups := map[gpu.PollGroup]int{}
	for _, r := range list {
		if r.Name == "" || r.Doc == "" || len(r.Symbols) == 0 || !strings.HasSuffix(r.Doc, ".") {
			t.Errorf("incomplete: %+v", r)
		}
		pollGroups[r.PollGroup]++
	}
	for _, pollGroup := range gpu.DevicePollGroups {
		if pollGroups[pollGroup] < 10 {
			t.Errorf("poll group %s has %d readings", pollGroup, pollGroups[pollGroup])
		}
	}
}
