package nvml

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/internal/nvml/calls"
	"github.com/gpu-exporter/gpu-exporter/internal/standin"
	"github.com/gpu-exporter/gpu-exporter/internal/testkit"
)

func fast(t *testing.T, c *GPU) gpu.Fast {
	t.Helper()
	f, err := c.Fast(true)
	must.OK(t, err)
	return f
}

func medium(t *testing.T, c *GPU) gpu.Medium {
	t.Helper()
	m, err := c.Medium()
	must.OK(t, err)
	return m
}

func slow(t *testing.T, c *GPU) gpu.Slow {
	t.Helper()
	s, err := c.Slow()
	must.OK(t, err)
	return s
}

// TestLearning: each way of saying "not offered" is learned at once and silent; a right that is missing is
// learned, counted and hinted at once; a failure is counted and asked for again.
func TestLearning(t *testing.T) {
	r := playText(t, `
gpu 0 board=b
  PersistenceMode = !NOT_SUPPORTED
  AccountingMode = !FUNCTION_NOT_FOUND
  DisplayActive = !DEPRECATED
  EccMode = !ARGUMENT_VERSION_MISMATCH
  CurrPcieLinkWidth = !INVALID_ARGUMENT
  ComputeMode = !NO_PERMISSION
  EnforcedPowerLimit = !UNKNOWN
  PowerManagementLimit = 1000
gpu 1 board=b
  ComputeMode = !NO_PERMISSION
at 10s gpu 0 EnforcedPowerLimit = 300000
at 10s gpu 0 PowerManagementLimit = !UNKNOWN
at 20s gpu 0 PowerManagementLimit = !INVALID_ARGUMENT
`)
	devs := r.open()
	c := devs[0]
	for range 3 {
		s := slow(t, c)
		if s.PowerLimit.Present() || s.PowerLimitRequested != gpu.Some[gpu.Watts](1) || s.ComputeMode.Present() {
			t.Errorf("limits: %v, %v, compute mode %v", s.PowerLimit, s.PowerLimitRequested, s.ComputeMode)
		}
	}
	for function, want := range map[string]uint64{"nvmlDeviceGetPersistenceMode": 1, "nvmlDeviceGetAccountingMode": 1,
		"nvmlDeviceGetDisplayActive": 1,
		"nvmlDeviceGetEccMode":       1, "nvmlDeviceGetCurrPcieLinkWidth": 1, "nvmlDeviceGetComputeMode": 1,
		"nvmlDeviceGetEnforcedPowerLimit":   3,
		"nvmlDeviceGetPowerManagementLimit": 3} {
		if got := r.control.CallsOn(function, 0); got != want {
			t.Errorf("%s was called %d times, want %d", function, got, want)
		}
	}
	for call, want := range map[string]string{"nvmlDeviceGetPersistenceMode": "map[]", "nvmlDeviceGetAccountingMode": "map[]",
		"nvmlDeviceGetDisplayActive": "map[]",
		"nvmlDeviceGetEccMode":       "map[]", "nvmlDeviceGetCurrPcieLinkWidth": "map[]",
		"nvmlDeviceGetComputeMode":        "map[NO_PERMISSION:1]",
		"nvmlDeviceGetEnforcedPowerLimit": "map[UNKNOWN:3]"} {
		if got := fmt.Sprint(r.errors(call)); got != want {
			t.Errorf("%s: errors %s, want %s", call, got, want)
		}
	}
	for _, name := range []string{"persistence_mode", "accounting_mode", "display_active", "ecc_mode", "pcie_link_width",
		"compute_mode",
		"fabric", "serial"} {
		if !slices.Contains(c.NotOffered(), name) {
			t.Errorf("%s is not among those not offered: %v", name, c.NotOffered())
		}
	}
	for _, name := range []string{"power_limit", "power_limit_requested", "utilization", "memory", "mig_mode"} {
		if slices.Contains(c.NotOffered(), name) {
			t.Errorf("%s is among those not offered", name)
		}
	}
	if got := c.Denied(); !slices.Equal(got, []string{"compute_mode"}) {
		t.Errorf("locked: %v", got)
	}
	slow(t, devs[1])
	if n := strings.Count(r.log.String(), "reading=compute_mode"); n != 1 {
		t.Errorf("hinted %d times:\n%s", n, r.log)
	}
	if n := strings.Count(r.log.String(), "reading=power_limit "); n != 1 {
		t.Errorf("a failure that stays the same was logged %d times:\n%s", n, r.log)
	}

	r.at(10 * time.Second)
	if s := slow(t, c); s.PowerLimit != gpu.Some[gpu.Watts](300) || s.PowerLimitRequested.Present() {
		t.Errorf("later: %v, %v", s.PowerLimit, s.PowerLimitRequested)
	}
	r.at(20 * time.Second)
	slow(t, c)
	if slices.Contains(c.NotOffered(), "power_limit_requested") ||
		r.errors("nvmlDeviceGetPowerManagementLimit")["INVALID_ARGUMENT"] != 1 {
		t.Errorf("an argument that was good once: %v, %v", c.NotOffered(), r.errors("nvmlDeviceGetPowerManagementLimit"))
	}
	// A new session asks again.
	must.OK(t, r.session.Close())
	slow(t, r.open()[0])
	if got := r.control.CallsOn("nvmlDeviceGetPersistenceMode", 0); got != 2 {
		t.Errorf("asked %d times after the session, want 2", got)
	}
}

// TestLost: a lost GPU ends with an error, is left alone, hides nobody, keeps its identity, and comes
// back as a new GPU.
func TestLost(t *testing.T) {
	r := playText(t, `
gpu 0 board=b
gpu 1 board=b
at 10s gpu 0 lose
at 20s gpu 0 restore
at 30s gpu 0 reset_required
at 40s gpu 0 restore
`)
	devs := r.open()
	lost := devs[0]
	id := lost.Identity()
	r.at(10 * time.Second)
	for range 3 {
		if f, err := lost.Fast(true); !errors.Is(err, gpu.ErrLost) || f.Utilization.Present() ||
			!strings.Contains(err.Error(), string(id.UUID)) {
			t.Fatalf("lost: %v, %v", f, err)
		}
	}
	total := func() (n uint64) {
		for f := range r.control.AllCalls() {
			n += r.control.CallsOn(f, 0)
		}
		return n
	}
	before := total()
	if _, err := lost.Slow(); !errors.Is(err, gpu.ErrLost) {
		t.Errorf("another poll group: %v", err)
	}
	if n := total(); n != before {
		t.Errorf("%d calls on a lost GPU", n-before)
	}
	fast(t, devs[1])
	again := r.scan()
	if len(again) != 2 || again[0].Identity() != id || !errors.Is(again[0].Err(), gpu.ErrLost) || again[1] != devs[1] {
		t.Fatalf("scan: %v", again)
	}
	r.at(20 * time.Second)
	again = r.scan()
	if again[0] == lost || again[0].Err() != nil || again[0].Identity() != id {
		t.Fatalf("restored: %v, %v", again[0].Err(), again[0].Identity())
	}
	fast(t, again[0])
	if _, err := lost.Fast(true); !errors.Is(err, gpu.ErrLost) {
		t.Errorf("the old GPU: %v", err)
	}
	r.at(30 * time.Second)
	if _, err := again[0].Medium(); !errors.Is(err, gpu.ErrResetRequired) {
		t.Errorf("reset required: %v", err)
	}
	r.at(40 * time.Second)
	fast(t, r.scan()[0])
}

// TestLostAtStart: a GPU that is lost before it was ever seen gets its address from the bus.
func TestLostAtStart(t *testing.T) {
	r := playText(t, `
gpu 0 board=b pci=0000:18:00.0
gpu 1 board=b pci=0000:2a:00.0
gpu 2 board=b pci=0000:3a:00.0
at 0s gpu 1 lose
at 20s gpu 1 restore
`)
	for _, pci := range []string{"0000:18:00.0", "0000:2a:00.0", "0000:3a:00.0"} {
		pciDevice(t, r.library.options.SysfsRoot, pci, "nvidia")
	}
	pciDevice(t, r.library.options.SysfsRoot, "0000:4a:00.0", "vfio-pci")
	devs := r.open()
	if len(devs) != 3 || devs[0].Err() != nil || devs[2].Err() != nil || !errors.Is(devs[1].Err(), gpu.ErrLost) {
		t.Fatalf("GPUs: %v", devs)
	}
	if id := devs[1].Identity(); id.PCI != "0000:2a:00.0" || id.UUID != "0000:2a:00.0" || id.Index != 1 {
		t.Errorf("identity: %+v", id)
	}
	if devs[0].Identity().NUMANode != gpu.Some(1) {
		t.Errorf("NUMA node: %v", devs[0].Identity().NUMANode)
	}
	if _, err := devs[1].Medium(); !errors.Is(err, gpu.ErrLost) {
		t.Errorf("poll group: %v", err)
	}
	if devs[1].NotOffered() != nil {
		t.Errorf("not offered: %v", devs[1].NotOffered())
	}
	r.at(20 * time.Second)
	back := r.scan()[1]
	if back.Err() != nil || back.Identity().UUID != r.scenario.GPUs[1].UUID {
		t.Errorf("restored: %v, %+v", back.Err(), back.Identity())
	}
	// Without the bus the index alone is left; and what was known before is known again.
	fast(t, back)
	if got := unnamed(r, 1); got.PCI != "0000:2a:00.0" || got.UUID != r.scenario.GPUs[1].UUID {
		t.Errorf("recalled: %+v", got)
	}
	if got := unnamed(r, 5); got.UUID != "index-5" || got.PCI != "" || got.Index != 5 {
		t.Errorf("never seen: %+v", got)
	}
}

// unnamed asks who a GPU without a handle would be taken for.
func unnamed(r *harness, index int) gpu.Identity {
	devs := []*GPU{unreadable(gpu.Identity{Index: index}, gpu.ErrLost)}
	r.session.identify(devs, []int{0})
	return devs[0].Identity()
}

// TestNobodyAnswers: a GPU whose every call fails, as when the device cgroup took it away, is an error.
func TestNobodyAnswers(t *testing.T) {
	text := "gpu 0 board=b\n"
	for i := range calls.Calls {
		if c := &calls.Calls[i]; !c.Unused && !c.System && c.ScenarioKey() != "" {
			text += fmt.Sprintf("at 10s gpu 0 %s = !OPERATING_SYSTEM\n", c.ScenarioKey())
		}
	}
	r := playText(t, text)
	c := r.open()[0]
	fast(t, c)
	r.at(10 * time.Second)
	if _, err := c.Fast(true); err == nil || !strings.Contains(err.Error(), "OPERATING_SYSTEM") {
		t.Errorf("fast: %v", err)
	}
	if c.Err() != nil {
		t.Errorf("the GPU may come back by itself: %v", c.Err())
	}
}

// TestRing: every sample once, whatever the pace, and none is made up.
func TestRing(t *testing.T) {
	for _, options := range []string{"", " unfilled=zeros", " clock=boot", " order=slot"} {
		t.Run(strings.TrimSpace(options), func(t *testing.T) {
			r := playText(t, "gpu 0 board=b\n  ring period=100ms entries=100"+options+
				"\nload gpu=0 busy=30% period=1s dram=50%\n")
			c := r.open()[0]
			fast(t, c)
			var got float64
			seen := map[int64]bool{}
			for _, step := range []time.Duration{1500, 70, 30, 4000, 9000, 10} {
				r.control.Advance(step * time.Millisecond)
				f := fast(t, c)
				ring, ok := f.Busy.Get()
				if !ok {
					t.Fatal("no ring")
				}
				for _, s := range ring {
					if s.Time == 0 {
						t.Error("an unfilled entry")
					}
					if seen[s.Time] {
						t.Errorf("sample %d twice", s.Time)
					}
					seen[s.Time] = true
					got += s.Value / 100 * 0.1
				}
				if _, ok := f.MemoryBusy.Get(); !ok {
					t.Error("no ring of memory")
				}
			}
			end := r.control.Now().Truncate(100 * time.Millisecond)
			want := float64(r.scenario.Truth(0).Busy(0, end))
			if math.Abs(got-want) > 1e-9 || len(seen) != int(end/(100*time.Millisecond)) {
				t.Errorf("busy %v of %d samples, want %v", got, len(seen), want)
			}
			// Nothing new is an empty ring, not an absent one.
			if ring, ok := fast(t, c).Busy.Get(); !ok || len(ring) != 0 {
				t.Errorf("nothing new: %v, %v", ring, ok)
			}
		})
	}
}

func TestGarbageDoesNotMoveTheCursor(t *testing.T) {
	var c cursor
	c.pass(100, 50)
	c.pass(900, 808334905)
	c.pass(800, -1)
	c.pass(90, 10)
	if c != 100 {
		t.Errorf("cursor %d", c)
	}
}

// TestDroppedRowsAreTriedAgain: what was not offered at the start may be ten minutes later, as with a fabric manager that
// starts late. Alternatives are not read beside each other meanwhile.
func TestDroppedRowsAreTriedAgain(t *testing.T) {
	r := playText(t, `
gpu 0 board=b
  ComputeMode = !NOT_SUPPORTED
  Field[82] = !NOT_SUPPORTED
  PersistenceMode = !NO_PERMISSION
  GpmQueryDeviceSupport = 1
  Gpm[1] = 10
  Gpm[2] = !NOT_SUPPORTED
  Field[271] = !NOT_SUPPORTED
  CurrentClocksEventReasons = 4
process gpu=0 pid=7 memory=1GiB
at 0s gpu 0 ComputeRunningProcesses = !NOT_SUPPORTED
at 30s gpu 0 ComputeMode = 2
at 30s gpu 0 Field[82] = 60
at 30s gpu 0 Field[271] = 0
at 30s gpu 0 Gpm[2] = 20
at 30s gpu 0 ComputeRunningProcesses = default
`)
	c := r.open()[0]
	for at := time.Duration(0); at <= 21*time.Minute; at += time.Minute {
		r.at(at)
		s := slow(t, c)
		fast(t, c)
		r.at(at + 2*time.Second)
		f, m := fast(t, c), medium(t, c)
		if g, ok := f.GPM.Get(); !ok || g.SMActive.Present() != (at >= 10*time.Minute) {
			t.Errorf("at %v: profiling %v", at, f.GPM)
		}
		if n := len(m.Processes.Or(nil)); (n == 1) != (at >= 10*time.Minute) || m.ClockEvents != gpu.Some(4) {
			t.Errorf("at %v: %d processes, clock events %v", at, n, m.ClockEvents)
		}
		late := at >= 10*time.Minute
		if f.MemoryTemperature.Present() != late || s.ComputeMode.Present() != late ||
			slices.Contains(c.NotOffered(), "compute_mode") == late {
			t.Errorf("at %v: memory temperature %v, compute mode %v", at, f.MemoryTemperature, s.ComputeMode)
		}
	}
	if n := r.control.CallsOn("nvmlDeviceGetComputeMode", 0); n != 1+12 {
		t.Errorf("%d calls", n)
	}
	if n := r.control.CallsOn("nvmlDeviceGetPersistenceMode", 0); n != 1 {
		t.Errorf("what was denied was called %d times", n)
	}
}

// TestProcessSamples: the first answer is about the past and dropped; then each sample is passed on once.
func TestProcessSamples(t *testing.T) {
	r := playText(t, `
gpu 0 board=b
gpu 1 board=b
process gpu=0 pid=10 memory=1GiB busy=100%
process gpu=0 pid=20 memory=1GiB busy=100%
process gpu=1 pid=30 memory=1GiB busy=100% from=10s to=12s
at 30s gpu 0 ProcessUtilization = !INSUFFICIENT_SIZE
`)
	r.at(5 * time.Second)
	devs := r.open()
	if p := fast(t, devs[0]).Processes; p.Present() {
		t.Errorf("first: %v", p)
	}
	if p, ok := fast(t, devs[1]).Processes.Get(); !ok || len(p) != 0 {
		t.Errorf("idle: %v, %v", p, ok)
	}
	var sum float64
	for range 5 {
		r.control.Advance(2 * time.Second)
		list, ok := fast(t, devs[0]).Processes.Get()
		if !ok || len(list) != 2 {
			t.Fatalf("processes: %v, %v", list, ok)
		}
		for _, p := range list {
			sum += p.SM
		}
	}
	if sum < 490 || sum > 510 {
		t.Errorf("five windows of two processes that fill the GPU add up to %v %%", sum)
	}
	// One that worked after an idle start counts from its first answer.
	if list, ok := fast(t, devs[1]).Processes.Get(); !ok || len(list) != 1 || list[0].PID != 30 {
		t.Errorf("after idling: %v, %v", list, ok)
	}
	r.at(30 * time.Second)
	for range 2 {
		if list, ok := fast(t, devs[0]).Processes.Get(); !ok || len(list) != 0 {
			t.Errorf("go-nvml passes the code of an empty size query on: %v, %v", list, ok)
		}
	}
}

func TestFields(t *testing.T) {
	r := playText(t, `
gpu 0 board=b
  Field[202,0] = 1000
  Field[202,1] = 2000
  Field[202,3] = 4000
  Field[204,0] = 10
  Field[204,1] = 20
  Field[83] = !UNTOUCHED
  TotalEnergyConsumption = 5000
  Field[82] = !UNKNOWN
  Field[197] = !NO_PERMISSION
  Field[74] = 1500000000 type=double
at 10s gpu 0 Field[202,0] = 1500
at 10s gpu 0 Field[202,1] = !UNKNOWN
at 10s gpu 0 Field[202,3] = !NOT_SUPPORTED
at 10s gpu 0 Field[82] = 41 type=int
`)
	c := r.open()[0]
	f := fast(t, c)
	if f.NVLinkTransmit != gpu.Some[gpu.Bytes](7000) || f.NVLinkReceive != gpu.Some[gpu.Bytes](30) {
		t.Errorf("NVLink: %v, %v", f.NVLinkTransmit, f.NVLinkReceive)
	}
	if f.Limited[gpu.LimitPowerCap] != 1.5 {
		t.Errorf("a double: %v", f.Limited)
	}
	if f.Energy.Present() {
		t.Errorf("energy out of an untouched entry: %v", f.Energy)
	}
	for range 2 {
		f = fast(t, c)
	}
	// After three blanks the field is given up, and the call asked in the same read.
	if f.Energy != gpu.Some[gpu.Joules](5) {
		t.Errorf("energy: %v", f.Energy)
	}
	if e := r.errors("nvmlDeviceGetFieldValues"); e["UNKNOWN"] != 3 || e["NO_PERMISSION"] != 1 || len(e) != 2 {
		t.Errorf("errors: %v", e)
	}
	if !slices.Contains(c.Denied(), "pcie_transmit") || slices.Contains(c.NotOffered(), "nvlink_transmit") ||
		!slices.Contains(c.NotOffered(), "pcie_receive") {
		t.Errorf("locked %v, not offered %v", c.Denied(), c.NotOffered())
	}
	r.at(10 * time.Second)
	f = fast(t, c)
	for range 2 {
		if f.NVLinkTransmit != gpu.Some[gpu.Bytes](7500) {
			t.Errorf("lost links count with their last value, and the others go on: %v", f.NVLinkTransmit)
		}
		f = fast(t, c)
	}
	if f.MemoryTemperature != gpu.Some[gpu.Celsius](41) {
		t.Errorf("memory temperature: %v", f.MemoryTemperature)
	}
}

// TestTemperatureOfAllOnes: what the driver says where it has no value is far beyond what the sieve lets pass, and not
// -1 °C; a GPU in the cold is believed.
func TestTemperatureOfAllOnes(t *testing.T) {
	r := playText(t, `
gpu 0 board=b
  Temperature[gpu] = 4294967295
gpu 1 board=b
  Temperature[gpu] = -2
`)
	devs := r.open()
	if got := medium(t, devs[0]).Temperature.Or(0); got != math.MaxUint32 {
		t.Errorf("all ones are read as %v °C", got)
	}
	if got := medium(t, devs[1]).Temperature; got != gpu.Some[gpu.Celsius](-2) {
		t.Errorf("two degrees of frost are read as %v", got)
	}
}

func TestTemperatureLimits(t *testing.T) {
	r := playText(t, `
gpu 0 board=b
  Temperature[gpu] = 42
  MarginTemperature = 45
  Field[193] = -8 type=int
  Field[194] = -2 type=int
  Field[196] = 0 type=int
gpu 1 board=b
  Temperature[gpu] = 42
  TemperatureThreshold[shutdown] = 96
  TemperatureThreshold[slowdown] = 93
  TemperatureThreshold[mem_max] = 95
  TemperatureThreshold[gpu_max] = 85
gpu 2 board=b
  Temperature[gpu] = 42
  MarginTemperature = 45
  TemperatureThreshold[shutdown] = 4294967288
  TemperatureThreshold[slowdown] = 2
  Field[193] = -8 type=int
gpu 3 board=b
  Temperature[gpu] = 10
  MarginTemperature = 3
  Field[194] = -2 type=int
`)
	devs := r.open()
	get := func(c *GPU) string {
		out := ""
		for _, l := range slow(t, c).TemperatureLimits {
			out += fmt.Sprintf("%s %s %v, ", l.Sensor, l.Limit, l.Value)
		}
		return strings.TrimSuffix(out, ", ")
	}
	for dev, want := range []string{
		"gpu slowdown 89, gpu shutdown 95, gpu max_operating 87",
		"gpu slowdown 93, gpu shutdown 96, gpu max_operating 85, memory max_operating 95",
		"gpu shutdown 95", // the old call's answers cannot be degrees; slowdown has no field
		"",                // nothing that could be
	} {
		for range 2 {
			if got := get(devs[dev]); got != want {
				t.Errorf("GPU %d: got %q, want %q", dev, got, want)
			}
		}
	}
	if n := r.control.CallsOn("nvmlDeviceGetMarginTemperature", 0); n != 2 {
		t.Errorf("%d margins in 2 reads", n)
	}
}

func TestECC(t *testing.T) {
	r := playText(t, `
gpu 0 board=b
  MemoryErrorCounter[corrected,volatile,dram] = 1
  MemoryErrorCounter[corrected,aggregate,dram] = 11
  MemoryErrorCounter[corrected,volatile,sram] = 2
  MemoryErrorCounter[corrected,volatile,l2_cache] = 2
  TotalEccErrors[0-1,0-1] = 99
gpu 1 board=b
  MemoryErrorCounter[uncorrected,volatile,dram] = 3
  MemoryErrorCounter[uncorrected,volatile,l1_cache] = 4
  MemoryErrorCounter[uncorrected,volatile,cbu] = 5
gpu 2 board=b
  TotalEccErrors[corrected,aggregate] = 7
gpu 3 board=b
`)
	devs := r.open()
	for dev, want := range []string{
		// Counted by place: neither the parts of a place nor the total again, but the totals of what has no place.
		"corrected dram 1/11, corrected sram 2/–, uncorrected all 99/99",
		"uncorrected dram 3/–, uncorrected l1 4/–, uncorrected cbu 5/–",
		"corrected all –/7",
		"",
	} {
		for range 2 {
			out := ""
			for _, e := range medium(t, devs[dev]).ECC {
				out += fmt.Sprintf("%s %s %v/%v, ", e.Severity, e.Memory, e.Volatile, e.Lifetime)
			}
			if got := strings.TrimSuffix(out, ", "); got != want {
				t.Errorf("GPU %d: got %q, want %q", dev, got, want)
			}
		}
	}
}

func TestFabricAndLinks(t *testing.T) {
	r := playText(t, `
gpu 0 board=b
  NvLinkState[0-3] = 1
  NvLinkState[5] = 0
  GpuFabricInfo = state=3 status=0 clique=1 health_mask=0x1109 health_summary=3 cluster=0x5c
gpu 1 board=b
  GpuFabricInfo = state=0
gpu 2 board=b
  GpuFabricInfo = state=3 status=999 clique=1
gpu 3 board=b
  GpuFabricInfo = state=2 status=999 health_mask=0x2000
`)
	devs := r.open()
	for range 2 {
		s := slow(t, devs[0])
		if s.NVLinks != gpu.Some(gpu.NVLinkCount{Up: 4, Down: 1}) {
			t.Errorf("links: %v", s.NVLinks)
		}
		f, ok := s.Fabric.Get()
		if !ok || f.State != gpu.FabricCompleted || fmt.Sprint(f.Faults) != "map[degraded_bandwidth:true "+
			"incorrect_configuration:false "+
			"route_recovery:false]" || f.Cluster != "5c000000-0000-0000-0000-000000000000" || f.Clique != 1 ||
			f.Health != "limited_capacity" || f.Partitioned != gpu.Some(true) {
			t.Errorf("fabric: %v, %v", f, ok)
		}
		// The status says something only of a registration that completed.
		if f := slow(t, devs[2]).Fabric.Or(gpu.Fabric{}); f.State != gpu.FabricFailed || f.Status != "UNKNOWN" ||
			f.Cluster != "" {
			t.Errorf("a registration that completed with an error: %v", f)
		}
		if f := slow(t, devs[3]).Fabric.Or(gpu.Fabric{}); f.State != gpu.FabricInProgress || f.Status != "" ||
			f.Partitioned != gpu.Some(false) {
			t.Errorf("a registration in progress: %v", f)
		}
		if s := slow(t, devs[1]); s.NVLinks.Present() || s.Fabric.Present() {
			t.Errorf("without: %v, %v", s.NVLinks, s.Fabric)
		}
	}
	if n := r.control.CallsOn("nvmlDeviceGetNvLinkState", 0); n != 36+5 {
		t.Errorf("%d calls for links, want 36 to find 5 and 5 to ask them again", n)
	}
	if n := r.control.CallsOn("nvmlDeviceGetNvLinkState", 1); n != 1 {
		t.Errorf("%d calls for the links of a GPU without", n)
	}
	if e := r.errors("nvmlDeviceGetNvLinkState"); len(e) != 0 {
		t.Errorf("errors: %v", e)
	}
}

func TestGPM(t *testing.T) {
	r := playText(t, `
gpu 0 board=b
  GpmQueryDeviceSupport = 1
  Gpm[1] = 100*util
  Gpm[2] = 90*util
  Gpm[5] = 40*util
  Gpm[10] = !UNKNOWN
gpu 1 board=b
  GpmQueryDeviceSupport = 0
gpu 2 board=b
load gpu=0 busy=50% period=1s
`)
	devs := r.open()
	c := devs[0]
	if g := fast(t, c).GPM; g.Present() {
		t.Errorf("out of one sample: %v", g)
	}
	r.control.Advance(50 * time.Millisecond)
	if g := fast(t, c).GPM; g.Present() {
		t.Errorf("after 50 ms: %v", g)
	}
	if n := r.control.CallsOn("nvmlGpmSampleGet", 0); n != 1 {
		t.Errorf("%d samples, want 1: one after 50 ms is refused", n)
	}
	r.control.Advance(1950 * time.Millisecond)
	for range 3 {
		g, ok := fast(t, c).GPM.Get()
		if !ok || g.Window != 2*time.Second || g.GraphicsActive != gpu.Some[gpu.Ratio](0.5) ||
			g.SMActive != gpu.Some[gpu.Ratio](0.45) ||
			g.TensorActive != gpu.Some[gpu.Ratio](0.2) || g.DRAMActive.Present() || g.FP64Active.Present() {
			t.Errorf("got %+v, %v", g, ok)
		}
		r.control.Advance(2 * time.Second)
	}
	if e := r.errors("nvmlGpmMetricsGet"); e["UNKNOWN"] != 3 {
		t.Errorf("errors: %v", e)
	}
	// After a pause a pair starts anew.
	r.control.Advance(3 * time.Minute)
	if g := fast(t, c).GPM; g.Present() {
		t.Errorf("over a pause: %v", g)
	}
	r.control.Advance(2 * time.Second)
	if g := fast(t, c).GPM; !g.Present() {
		t.Error("nothing after the pause")
	}
	for _, c := range devs[1:] {
		for range 2 {
			if fast(t, c).GPM.Present() {
				t.Error("GPM where there is none")
			}
		}
		if !slices.Contains(c.NotOffered(), "gpm") {
			t.Errorf("not offered: %v", c.NotOffered())
		}
	}
	if n := r.control.CallsOn("nvmlGpmQueryDeviceSupport", 1); n != 1 {
		t.Errorf("asked %d times", n)
	}
	allocated := r.control.Calls("nvmlGpmSampleAlloc")
	must.OK(t, r.session.Close())
	if freed := r.control.Calls("nvmlGpmSampleFree"); allocated != 2 || freed != allocated {
		t.Errorf("%d samples allocated, %d freed", allocated, freed)
	}
}

// TestMIG: a GPU is divided, divided otherwise and made whole; what it offers is learned anew each time.
func TestMIG(t *testing.T) {
	r := playText(t, `
gpu 0 board=b
  GpmQueryDeviceSupport = 1
  Gpm[1] = 100*util
at 10s gpu 0 mig pending on
at 12s gpu 0 mig apply layout="gi=1 profile=3g.40gb start=0 size=4 ; gi=5 profile=1g.10gb start=4 size=1"
at 30s gpu 0 mig apply layout="gi=1 profile=3g.40gb start=0 size=4 ; gi=7 profile=1g.10gb start=5 size=1"
at 50s gpu 0 mig pending off
at 52s gpu 0 mig apply layout=""
process gpu=0 pid=11 gi=1 memory=7GiB busy=50% period=1s from=12s
process gpu=0 pid=77 gi=7 memory=1GiB busy=100% from=30s
`)
	c := r.open()[0]
	s := slow(t, c)
	if s.MIGMode != gpu.Some(gpu.ModePair{}) || len(s.Instances) != 0 || !fast(t, c).Utilization.Present() {
		t.Errorf("whole: %+v", s)
	}
	r.at(10 * time.Second)
	if s := slow(t, c); s.MIGMode != gpu.Some(gpu.ModePair{Pending: true}) {
		t.Errorf("pending: %v", s.MIGMode)
	}
	r.at(12 * time.Second)
	s = slow(t, c)
	if len(s.Instances) != 2 || s.Instances[0].Profile != "3g.40gb" || s.Instances[0].Share != gpu.Some(gpu.Ratio(3)/7) ||
		s.Instances[1].GI != 5 {
		t.Fatalf("divided: %+v", s.Instances)
	}
	first, small := s.Instances[0].UUID, s.Instances[1].UUID
	f := fast(t, c)
	if f.Utilization.Present() || f.Busy.Present() || len(f.Instances) != 2 {
		t.Errorf("divided: %+v", f)
	}
	if !slices.Contains(c.NotOffered(), "utilization") {
		t.Errorf("not offered: %v", c.NotOffered())
	}
	r.control.Advance(2 * time.Second)
	f = fast(t, c)
	for _, in := range f.Instances {
		g, ok := in.GPM.Get()
		want := map[gpu.UUID]gpu.Ratio{first: 0.5, small: 0}[in.UUID]
		if !ok || g.GraphicsActive != gpu.Some(want) {
			t.Errorf("instance %s: %v, want %v", in.UUID, g, want)
		}
	}
	r.at(30 * time.Second)
	m := medium(t, c) // before the slow poll group knows: the handles of the old layout are dead
	if _, ok := m.Memory.Get(); !ok {
		t.Error("the GPU's own memory went with the layout")
	}
	s = slow(t, c)
	if len(s.Instances) != 2 || s.Instances[1].GI != 7 {
		t.Fatalf("divided otherwise: %+v", s.Instances)
	}
	allocated := r.control.Calls("nvmlGpmSampleAlloc")
	fast(t, c)
	r.control.Advance(2 * time.Second)
	f = fast(t, c)
	for _, in := range f.Instances {
		g, _ := in.GPM.Get()
		want := map[gpu.UUID]gpu.Ratio{first: 0.5, s.Instances[1].UUID: 1}[in.UUID]
		if g.GraphicsActive != gpu.Some(want) || g.Window != 2*time.Second {
			t.Errorf("instance %s: %v, want %v", in.UUID, g, want)
		}
	}
	if n := r.control.Calls("nvmlGpmSampleAlloc"); n != allocated {
		t.Errorf("%d samples more for as many instances", n-allocated)
	}
	m = medium(t, c)
	if list, ok := m.Processes.Get(); !ok || len(list) != 2 || list[1].PID != 77 || list[1].GI != gpu.Some(7) ||
		list[1].CI != gpu.Some(0) {
		t.Errorf("processes: %v, %v", list, ok)
	}
	if len(m.Instances) != 2 {
		t.Errorf("memory of instances: %v", m.Instances)
	}
	r.at(52 * time.Second)
	s = slow(t, c)
	if len(s.Instances) != 0 {
		t.Errorf("whole again: %+v", s.Instances)
	}
	if f := fast(t, c); !f.Utilization.Present() && s.MIGMode == gpu.Some(gpu.ModePair{}) {
		t.Error("no utilization of a GPU that is whole again")
	}
}

// TestLifeOfInstances: what is read of the instances of a GPU while they are removed, recreated and resized, and around a
// call that hangs. A pair of profiling samples is of one instance and of two successive polls.
func TestLifeOfInstances(t *testing.T) {
	r := playText(t, `
gpu 0 board=b
  GpmQueryDeviceSupport = 1
  Gpm[1] = 100*util
mig gpu=0 layout="gi=1 profile=3g.40gb start=0 size=4 uuid=MIG-a ; gi=7 profile=1g.10gb start=4 size=1 uuid=MIG-b"
at 14s gpu 0 mig apply layout="gi=1 profile=3g.40gb start=0 size=4 uuid=MIG-a"
at 40s gpu 0 mig apply layout="gi=1 profile=3g.40gb start=0 size=4 uuid=MIG-a ; gi=7 profile=1g.10gb start=4 size=1 uuid=MIG-c"
at 60s gpu 0 mig apply layout="gi=1 profile=3g.40gb start=0 size=4 uuid=MIG-a ; gi=8 profile=1g.10gb start=5 size=1 uuid=MIG-c"
at 80s gpu 0 mig apply layout="gi=1 ci=0 profile=3g.40gb slices=1 start=0 size=4 uuid=MIG-a ; gi=1 ci=1 slices=2 uuid=MIG-a1 index=5"
at 100s gpu 0 hang GpmMigSampleGet
at 110s gpu 0 restore
at 140s gpu 0 mig apply layout="gi=0 profile=7g.80gb start=0 size=8 uuid=MIG-a"
process gpu=0 pid=11 gi=1 memory=7GiB busy=50% period=1s
process gpu=0 pid=77 gi=7 memory=1GiB busy=100% period=1s
`)
	c := r.open()[0]
	instances := func(s gpu.Slow) string {
		var out []string
		for _, in := range s.Instances {
			share := in.Share.Or(-1)
			out = append(out, fmt.Sprintf("%s gi=%d %s %.0f/7 ci=%d", in.UUID, in.GI, in.Profile, float64(share)*7, len(in.Compute)))
		}
		return strings.Join(out, ", ")
	}
	profiled := func(f gpu.Fast) string {
		var out []string
		for _, in := range f.Instances {
			text := "–"
			if g, ok := in.GPM.Get(); ok {
				text = fmt.Sprintf("%v in %v", g.GraphicsActive, g.Window)
			}
			out = append(out, fmt.Sprintf("%s %s", in.UUID, text))
		}
		return strings.Join(out, ", ")
	}
	const second = time.Second
	for _, step := range []struct {
		name          string
		at            time.Duration
		layout        string
		first, second string // the fast poll group right after the slow one, and two seconds later
	}{
		{"two instances", 10 * second, "MIG-a gi=1 3g.40gb 3/7 ci=1, MIG-b gi=7 1g.10gb 1/7 ci=1", "MIG-a –, MIG-b –",
			"MIG-a 0.5 in 2s, MIG-b 1 in 2s"},
		{"the last is removed, one stays", 14 * second, "MIG-a gi=1 3g.40gb 3/7 ci=1", "MIG-a –", "MIG-a 0.5 in 2s"},
		{"one of the same size", 40 * second, "MIG-a gi=1 3g.40gb 3/7 ci=1, MIG-c gi=7 1g.10gb 1/7 ci=1", "MIG-a –, MIG-c –",
			"MIG-a 0.5 in 2s, MIG-c 1 in 2s"},
		{"the same name elsewhere", 60 * second, "MIG-a gi=1 3g.40gb 3/7 ci=1, MIG-c gi=8 1g.10gb 1/7 ci=1", "MIG-a –, MIG-c –",
			"MIG-a 0.5 in 2s, MIG-c 0 in 2s"},
		{"another compute instance", 80 * second, "MIG-a gi=1 3g.40gb 3/7 ci=2", "MIG-a –", "MIG-a 0.5 in 2s"},
		{"after a hang", 112 * second, "MIG-a gi=1 3g.40gb 3/7 ci=2", "MIG-a –", "MIG-a 0.5 in 2s"},
		{"the whole GPU in one", 140 * second, "MIG-a gi=0 7g.80gb 7/7 ci=1", "MIG-a –", "MIG-a 0 in 2s"},
	} {
		if step.name == "after a hang" {
			r.at(100 * second)
			done := make(chan error)
			go func() {
				_, err := c.Fast(true)
				done <- err
			}()
			testkit.Until(func() bool { return r.control.Hanging() > 0 })
			r.at(step.at)
			if err := <-done; err != nil {
				t.Errorf("the poll group that hung: %v", err)
			}
		}
		r.at(step.at)
		layout := instances(slow(t, c))
		first := profiled(fast(t, c))
		r.control.Advance(2 * second)
		if again := profiled(fast(t, c)); layout != step.layout || first != step.first || again != step.second {
			t.Errorf("%s: %s; %s; %s\nwant %s; %s; %s", step.name, layout, first, again, step.layout, step.first, step.second)
		}
	}
	// One pair of samples for the GPU and one for each of the three subjects that there are at most: an instance with its two
	// compute instances.
	if n := r.control.Calls("nvmlGpmSampleAlloc"); n > 8 {
		t.Errorf("%d samples allocated", n)
	}
}

// TestMIGWalkFails: a layout that cannot be read is as it was, and nothing is unlearned.
func TestMIGWalkFails(t *testing.T) {
	r := playText(t, `
gpu 0 board=b
mig gpu=0 layout="gi=1 profile=3g.40gb start=0 size=4 ; gi=5 profile=1g.10gb start=4 size=1"
at 10s gpu 0 MigDeviceHandleByIndex = !UNKNOWN
at 20s gpu 0 MigDeviceHandleByIndex = default
at 20s gpu 0 Attributes = !UNKNOWN
at 20s gpu 0 ComputeRunningProcesses = !NO_PERMISSION
`)
	c := r.open()[0]
	for at := range 3 {
		r.at(time.Duration(10*at) * time.Second)
		s := slow(t, c)
		if len(s.Instances) != 2 || s.Instances[0].Profile != "3g.40gb" || s.Instances[0].Slices != 3 {
			t.Errorf("at %v: %+v", r.control.Now(), s.Instances)
		}
		medium(t, c)
	}
	if strings.Contains(r.log.String(), "layout changed") {
		t.Errorf("log:\n%s", r.log)
	}
	// Closed to us as a GPU and by instance: locked.
	if got := c.Denied(); !slices.Equal(got, []string{"processes"}) {
		t.Errorf("locked: %v", got)
	}
}

// TestProcessList: the lists are merged, and are all or nothing.
func TestProcessList(t *testing.T) {
	r := playText(t, `
gpu 0 board=b
process gpu=0 pid=7 kind=compute memory=1GiB
process gpu=0 pid=7 kind=graphics memory=1GiB
process gpu=0 pid=9 kind=mps memory=na
at 10s gpu 0 GraphicsRunningProcesses = !UNKNOWN
at 20s gpu 0 GraphicsRunningProcesses = !NOT_SUPPORTED
`)
	c := r.open()[0]
	got, ok := medium(t, c).Processes.Get()
	if !ok || fmt.Sprint(got) != "[{7 [compute graphics] 1073741824 – –} {9 [mps] – – –}]" {
		t.Errorf("got %v, %v", got, ok)
	}
	r.at(10 * time.Second)
	if list := medium(t, c).Processes; list.Present() {
		t.Errorf("a list that lacks a kind: %v", list)
	}
	r.at(20 * time.Second)
	if got, ok := medium(t, c).Processes.Get(); !ok || fmt.Sprint(got) != "[{7 [compute] 1073741824 – –} {9 [mps] – – –}]" {
		t.Errorf("without graphics: %v, %v", got, ok)
	}
	before := r.control.Calls("nvmlDeviceGetGraphicsRunningProcesses_v3")
	medium(t, c)
	if n := r.control.Calls("nvmlDeviceGetGraphicsRunningProcesses_v3"); n != before {
		t.Error("a kind that is not offered was queried again")
	}
}

// TestSteadyCost: what a tick costs the workloads, in driver calls, once a GPU is known.
func TestSteadyCost(t *testing.T) {
	s, err := standin.Scenario("8xh100-loaded")
	must.OK(t, err)
	r := play(t, s, "newest")
	c := r.open()[0]
	for range 4 {
		fast(t, c)
		medium(t, c)
		slow(t, c)
		r.control.Advance(2 * time.Second)
	}
	calls := func(read func()) (n uint64) {
		before := r.control.AllCalls()
		read()
		for f, after := range r.control.AllCalls() {
			n += after - before[f]
		}
		return n
	}
	for name, c := range map[string]struct {
		read func()
		most uint64
	}{
		// The rings and the process samples take two calls each: one for the size.
		"fast":   {func() { fast(t, c) }, 14},
		"medium": {func() { medium(t, c) }, 23},
		"slow":   {func() { slow(t, c) }, 53},
	} {
		if n := calls(c.read); n > c.most {
			t.Errorf("the %s poll group takes %d driver calls, more than %d", name, n, c.most)
		}
	}
}

// TestConcurrentUse has everything run at once that may. The rig fails if two calls ever meet on a GPU.
func TestConcurrentUse(t *testing.T) {
	s, err := standin.Scenario("8xh100-loaded")
	must.OK(t, err)
	r := play(t, s, "newest")
	devs := r.open()
	var workers, others sync.WaitGroup
	stop := make(chan struct{})
	loop := func(f func() error) {
		others.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if err := f(); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	loop(func() error { _, err := r.session.Scan(); return err })
	loop(func() error { _, err := r.session.WaitEvents(time.Millisecond); return err })
	loop(func() error { r.library.Calls(); return devs[3].Err() })
	loop(func() error { _, _ = devs[0].NotOffered(), devs[1].Denied(); return nil })
	for _, c := range devs {
		workers.Go(func() {
			for range 10 {
				_, err1 := c.Slow()
				_, err2 := c.Fast(true)
				_, err3 := c.Medium()
				if err := errors.Join(err1, err2, err3); err != nil {
					t.Error(err)
				}
				r.control.Advance(200 * time.Millisecond)
			}
		})
	}
	workers.Wait()
	close(stop)
	others.Wait()
}
