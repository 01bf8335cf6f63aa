package nvml

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/internal/nvml/calls"
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

// number is a value of any kind; a state is its place in the list of the unit.
func number(v reflect.Value, u calls.Unit) float64 {
	switch v.Kind() {
	case reflect.Bool:
		return flag(v.Bool())
	case reflect.String:
		for list, states := range map[string]any{"ComputeModes": gpu.ComputeModes, "RecoveryActions": gpu.RecoveryActions} {
			if u.Go == calls.OneOf(list).Go {
				return float64(slices.Index(strings.Fields(strings.Trim(fmt.Sprint(states), "[]")), v.String()))
			}
		}
		return math.NaN()
	}
	return v.Convert(reflect.TypeFor[float64]()).Float()
}

func flag(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// causes are the keys of rows that are written as Go constants.
var causes = map[string]gpu.RemapCause{"gpu.CauseCorrected": gpu.CauseCorrected, "gpu.CauseUncorrected": gpu.CauseUncorrected,
	"gpu.CauseSingleBit": gpu.CauseSingleBit, "gpu.CauseDoubleBit": gpu.CauseDoubleBit}

// stored returns what a reading of the table was stored as: a member, or a member and a key of it.
func stored(r calls.Reading, to string) func(*pollGroups) (float64, bool) {
	return func(l *pollGroups) (float64, bool) {
		path, key, keyed := strings.Cut(strings.TrimSuffix(to, "]"), "[")
		at := reflect.ValueOf(map[calls.Group]any{calls.Fast: l.fast, calls.Medium: l.medium, calls.Slow: l.slow}[r.Group])
		for member := range strings.SplitSeq(path, ".") {
			at = at.FieldByName(member)
		}
		if !keyed {
			got := at.MethodByName("Get").Call(nil)
			return number(got[0], r.Unit), got[1].Bool()
		}
		key = cmp.Or(string(causes[key]), strings.Trim(key, `"`))
		if v := at.MapIndex(reflect.ValueOf(key).Convert(at.Type().Key())); v.IsValid() {
			return number(v, r.Unit), true
		}
		return 0, false
	}
}

// scopes are the scopes of fields as scenarios spell them.
var scopes = map[string]string{"nvml.POWER_SCOPE_GPU": ",gpu", "nvml.POWER_SCOPE_MODULE": ",module", "nvml.POWER_SCOPE_MEMORY": ",memory",
	"nvml.POWER_SCOPE_GPU_BASE": ",gpu_base",
	"allLinks":                  ",all"}

// checks are all readings that are one number in the scenario: those of the table of calls, and those read by hand.
func checks() []check {
	scales := map[string]float64{calls.Milliwatts.Go: 1e-3, calls.Millijoules.Go: 1e-3, calls.KiB.Go: 1024, calls.Nanoseconds.Go: 1e-9,
		calls.Megahertz.Go: 1e6, calls.Percent.Go: 0.01}
	ids := map[string]callID{}
	for id := range guards {
		ids[guards[id].name] = callID(id)
	}
	var list []check
	ranks := map[string][]int{}
	add := func(r calls.Reading, to string, src source) {
		src.scale = cmp.Or(scales[r.Unit.Go], 1)
		i := slices.IndexFunc(list, func(c check) bool { return c.name == to })
		if i < 0 {
			i, list = len(list), append(list, check{to, nil, stored(r, to)})
		}
		at, _ := slices.BinarySearch(ranks[to], r.Rank+1)
		ranks[to] = slices.Insert(ranks[to], at, r.Rank)
		list[i].sources = slices.Insert(list[i].sources, at, src)
	}
	for _, f := range calls.Fields {
		for _, to := range f.Reading.To {
			src := source{key: fmt.Sprintf("Field[%d%s]", f.ID, scopes[f.Scope]), call: callFieldValues}
			if f.Scope == "everyLink" {
				src.component = "links"
			}
			add(f.Reading, to, src)
		}
	}
	for i := range calls.Calls {
		c := &calls.Calls[i]
		for _, r := range c.Readings {
			for j, to := range r.To {
				if r.Group == calls.Once || r.ByHand || r.Instead != "" {
					continue
				}
				src := source{key: c.ScenarioKey(), call: ids[c.Function]}
				if r.Arg != "" {
					src.key += "[" + strings.ToLower(strings.TrimPrefix(r.Arg, "CLOCK_")) + "]"
				}
				if len(c.Values) > 1 {
					src.component = c.Values[j]
				}
				add(r, to, src)
			}
		}
	}
	for to, component := range map[string]string{"RemappedRows[gpu.CauseCorrected]": "corrected", "RemapFailed": "failure",
		"RemappedRows[gpu.CauseUncorrected]": "uncorrected", "RemapPending": "pending"} {
		i := slices.IndexFunc(list, func(c check) bool { return c.name == to })
		list[i].sources = append(list[i].sources, source{"RemappedRows", component, callRemappedRows, 1})
	}
	return append(list, byHand()...)
}

func byHand() []check {
	memory := func(of func(gpu.Memory) gpu.Opt[gpu.Bytes]) func(*pollGroups) (float64, bool) {
		return func(l *pollGroups) (float64, bool) {
			m, ok := l.medium.Memory.Get()
			v, present := opt(of(m))
			return v, ok && present
		}
	}
	either := func(component string) []source {
		return []source{{"MemoryInfo_v2", component, callMemoryInfoV2, 1}, {"MemoryInfo", component, callMemoryInfo, 1}}
	}
	list := []check{
		{"utilization", []source{{"UtilizationRates", "gpu", callUtilizationRates, 0.01}}, func(l *pollGroups) (float64, bool) {
			u, ok := l.fast.Utilization.Get()
			return float64(u.GPU), ok
		}},
		{"memory utilization", []source{{"UtilizationRates", "memory", callUtilizationRates, 0.01}}, func(l *pollGroups) (float64, bool) {
			u, ok := l.fast.Utilization.Get()
			return float64(u.Memory), ok
		}},
		{"memory total", either("total"), memory(func(m gpu.Memory) gpu.Opt[gpu.Bytes] { return gpu.Some(m.Total) })},
		{"memory used", either("used"), memory(func(m gpu.Memory) gpu.Opt[gpu.Bytes] { return gpu.Some(m.Used) })},
		{"memory free", either("free"), memory(func(m gpu.Memory) gpu.Opt[gpu.Bytes] { return gpu.Some(m.Free) })},
		{"memory reserved", either("reserved")[:1], memory(func(m gpu.Memory) gpu.Opt[gpu.Bytes] { return m.Reserved })},
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
			return opt(append(slices.Clone(l.medium.Fans), gpu.None[gpu.Ratio]())[0])
		}},
		{"memory limit", []source{{"TemperatureThreshold[mem_max]", "", callTemperatureThreshold, 1}}, func(l *pollGroups) (float64, bool) {
			return threshold(l, gpu.SensorMemory, gpu.LimitMaxOperating)
		}},
		{"ECC mode", []source{{"EccMode", "current", callEccMode, 1}}, func(l *pollGroups) (float64, bool) {
			m, ok := l.slow.ECCMode.Get()
			return flag(m.Current), ok
		}},
		{"ECC mode pending", []source{{"EccMode", "pending", callEccMode, 1}}, func(l *pollGroups) (float64, bool) {
			m, ok := l.slow.ECCMode.Get()
			return flag(m.Pending), ok
		}},
	}
	for _, b := range gpu.BankAvailabilities {
		list = append(list, check{"banks " + string(b), []source{{"RowRemapperHistogram", string(b), callRowRemapperHistogram, 1}},
			func(l *pollGroups) (float64, bool) { v, ok := l.slow.RemapBanks[b]; return float64(v), ok }})
	}
	for _, severity := range []gpu.ECCSeverity{gpu.ECCCorrected, gpu.ECCUncorrected} {
		for at, place := range map[gpu.ECCMemory]string{gpu.ECCDRAM: "dram", gpu.ECCSRAM: "sram"} {
			for counter, pick := range map[string]func(gpu.ECCCount) gpu.Opt[uint64]{
				"volatile":  func(e gpu.ECCCount) gpu.Opt[uint64] { return e.Volatile },
				"aggregate": func(e gpu.ECCCount) gpu.Opt[uint64] { return e.Lifetime },
			} {
				key := fmt.Sprintf("MemoryErrorCounter[%s,%s,%s]", severity, counter, place)
				list = append(list, check{key, []source{{key, "", callMemoryErrorCounter, 1}}, func(l *pollGroups) (float64, bool) {
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
	l.fast, errFast = c.Fast(true)
	l.medium, errMedium = c.Medium()
	for _, err := range []error{errFast, errMedium, errSlow} {
		must.OK(t, err)
	}
	return l
}

// TestReadingsEqualTheScenario plays every shipped scenario, each against its own symbol set, and holds
// every reading of every GPU against the scenario's answer; what the scenario or the set lacks is absent.
func TestReadingsEqualTheScenario(t *testing.T) {
	bySymbols := map[string][]*scenario.Scenario{}
	for _, name := range scenarios(t) {
		s, err := standin.Scenario(name)
		must.OK(t, err)
		bySymbols[s.Symbols] = append(bySymbols[s.Symbols], s)
	}
	for symbols, list := range bySymbols {
		t.Run(symbols, func(t *testing.T) {
			if !inChild(t) {
				return
			}
			for _, s := range list {
				t.Run(s.Name, func(t *testing.T) { checkScenario(t, s) })
			}
		})
	}
}

func checkScenario(t *testing.T, s *scenario.Scenario) {
	t.Helper()
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
	if logged := strings.Contains(r.log.String(), "driver lacks functions"); logged != (s.Symbols != "newest") {
		t.Errorf("a driver with the symbols of %s is logged as lacking some: %v", s.Symbols, logged)
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
	events, _ := s.Answer(dev, "SupportedEventTypes", 0)
	want := gpu.Identity{UUID: s.GPUs[dev].UUID, Index: dev, PCI: s.GPUs[dev].PCI, Minor: gpu.Some(s.GPUs[dev].Minor),
		Model: text("Name"), Serial: text("Serial"), BoardPart: text("BoardPartNumber"), VBIOS: text("VbiosVersion"),
		ComputeCapability: fmt.Sprintf("%v.%v", capability.Numbers["major"], capability.Numbers["minor"]),
		Brand: map[float64]string{1: "Quadro", 2: "Tesla", 5: "GeForce", 10: "NVIDIA RTX Virtual Workstation", 13: "NVIDIA RTX",
			14: "NVIDIA", 15: "GeForce RTX"}[brand.Numbers["value"]],
		Architecture: map[float64]string{4: "Pascal", 6: "Turing", 7: "Ampere", 8: "Ada Lovelace", 9: "Hopper",
			10: "Blackwell"}[arch.Numbers["value"]],
		XIDEvents: int(events.Numbers["value"])&8 != 0,
		Firmware: gpu.Firmware{InforomImage: text("InforomImageVersion"), InforomOEM: text("InforomVersion[oem]"),
			InforomECC: text("InforomVersion[ecc]"), InforomPower: text("InforomVersion[power]"), GSP: text("GspFirmwareVersion")}}
	if p, ok := s.Answer(dev, "PlatformInfo", 0); ok {
		n := func(name string) int { return int(p.Numbers[name]) }
		want.Platform = gpu.Platform{Known: true, ChassisSerial: strconv.Itoa(n("chassisSerialNumber")), Slot: n("slotNumber"),
			Tray: n("trayIndex"), Host: n("hostId"), PeerType: n("peerType"), Module: n("moduleId")}
	}
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
