package main

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"
)

// The PCIe counters of the driver have 32 bits and overflow up to 28 times between two polls; GPM resolves that. Without
// GPM, or with one that is 3 % off, there is no series, and a reason; GPM's own sums decide where they exist. The sum over
// NVLinks survives the loss of a link.
func bandwidth(t *testing.T) {
	text := "scenario 1\ntitle \"bandwidth\"\ninclude boards/h100-sxm.scenario\ninclude boards/a100-sxm4-80gb.scenario\n" +
		"include boards/gb10.scenario\nsymbols R595\nsystem DriverVersion = \"595.45.04\"\n"
	rates := []float64{1e9, 5e9, 26e9, 60e9}
	for i, rate := range rates {
		text += fmt.Sprintf("gpu %d board=h100 uuid=GPU-%d pci=0000:%d0:00.0\n  Field[197] = %g*t\n  Gpm[20] = %g\n"+
			"  Field[198] = %g*busy\n  Gpm[21] = %g*util\nload gpu=%d busy=37%% period=1700ms\n",
			i, i, i+1, rate, rate/(1<<20), rate, rate/(1<<20), i)
	}
	text += "gpu 4 board=a100 uuid=GPU-4 pci=0000:50:00.0\n  Field[197] = 26e9*t\ngpu 5 board=gb10 uuid=GPU-5 pci=0000:60:00.0\n"
	for _, i := range []int{6, 7} {
		text += fmt.Sprintf("gpu %d board=h100 uuid=GPU-%d pci=0000:%d0:00.0\n  Field[197] = 60e9*t\n  Gpm[20] = %g\n", i, i, i+1,
			1.03*60e9/(1<<20))
	}
	text += "  Gpm[255] = 60e9*t\n"
	text += "load gpu=5 busy=50% period=1s\n" +
		"at 60s gpu 4 CurrentClocksEventReasons = 0xc0\nat 80s gpu 4 CurrentClocksEventReasons = 0\n" +
		"at 62s gpu 0 Field[138,all] = 1e6*t - 4e6\nat 62s gpu 1 Field[138,all] = !UNKNOWN\nat 70s gpu 1 Field[138,all] = 1e6*t\n"
	text = strings.ReplaceAll(text, "  Field[197]", "  Field[138,all] = 1e6*t\n  Field[197]")
	s := parseScenario(t, text)
	st := play(t, s, "")
	first := st.watched(6 * time.Second)
	begun := st.control.Now()
	now := st.watched(2 * time.Minute)
	grown := func(family string, labels ...string) float64 {
		was, err := first.one(family, labels...)
		is, err2 := now.one(family, labels...)
		verify(t, err, err2)
		return is - was
	}
	rates = append(rates, 0, 0, 0, 60e9)
	for i, rate := range rates {
		if rate == 0 {
			continue
		}
		device := fmt.Sprintf(`uuid="GPU-%d"`, i)
		seconds := (st.control.Now() - begun).Seconds()
		for family, want := range map[string]float64{"gpu_pcie_transmit_bytes_total": rate * seconds,
			"gpu_pcie_receive_bytes_total":    rate * float64(s.Truth(i).Busy(begun, st.control.Now())),
			"gpu_nvlink_transmit_bytes_total": 1e6 * 1024 * seconds} {
			if i == 7 && strings.Contains(family, "receive") {
				continue
			}
			tolerance := 0.005
			if i == 0 && strings.Contains(family, "nvlink") {
				tolerance = 0.02 // the poll in which the link was lost
			}
			if got := grown(family, device); math.Abs(got-want) > tolerance*want {
				t.Errorf("%s of %s: %g in %v s, want %g", family, device, got, seconds, want)
			}
		}
	}
	// A driver without counters of all reasons: the mask is sampled.
	for reason, want := range map[string]float64{"hw_thermal": 20, "hw_power_brake": 20, "sw_thermal": 0} {
		if got := grown("gpu_clock_limited_seconds_total", `uuid="GPU-4"`, `reason="`+reason+`"`); math.Abs(got-want) > 2 {
			t.Errorf("limited by %s for %v s, want %v", reason, got, want)
		}
	}
	verify(t, now.none("gpu_pcie_transmit_bytes_total", `uuid="GPU-4"`), now.none("gpu_memory_busy_seconds_total", `uuid="GPU-5"`),
		now.is(1, "gpu_unmeasured_info", `uuid="GPU-4"`, `reading="pcie_bytes"`, `reason="counter_overflow"`),
		now.is(1, "gpu_unmeasured_info", `uuid="GPU-5"`, `reading="memory_busy"`, `reason="always_zero"`),
		now.none("gpu_pcie_transmit_bytes_total", `uuid="GPU-6"`),
		now.is(1, "gpu_unmeasured_info", `uuid="GPU-6"`, `reading="pcie_bytes"`, `reason="gpm_mismatch"`),
		now.none("gpu_unmeasured_info", `uuid="GPU-0"`))
}

// The links of a GPU add up to its total, and have the series that docs/sizing.md says; without the flag they have none.
func TestLinkDetails(t *testing.T) {
	list := cases{}
	for name, flags := range map[string][]string{"off": nil, "on": {"--link-details"}} {
		list.add(branchOf("gb200-loaded"), name, func(t *testing.T) {
			s, pods := load(t, "gb200-loaded")
			st := play(t, s, pods, flags...)
			first := st.watched(60 * time.Second)
			now := st.watched(60 * time.Second)
			count, want := 0, 4*154
			for _, family := range []string{"gpu_nvlink_link_up", "gpu_nvlink_link_transmit_bytes_total",
				"gpu_nvlink_link_receive_bytes_total", "gpu_nvlink_link_errors_total", "gpu_c2c_link_up",
				"gpu_c2c_link_errors_total", "gpu_pcie_errors_total"} {
				count += len(now.match(family))
			}
			if flags == nil {
				want = 0
			}
			if count != want {
				t.Errorf("%d series, want %d", count, want)
			}
			if flags == nil {
				return
			}
			links := sum(now.match("gpu_nvlink_link_transmit_bytes_total")) - sum(first.match("gpu_nvlink_link_transmit_bytes_total"))
			total := sum(now.match("gpu_nvlink_transmit_bytes_total")) - sum(first.match("gpu_nvlink_transmit_bytes_total"))
			if !(total > 0) || math.Abs(links/total-1) > 0.2 { // the total is read every 2 s, the links every 10 s
				t.Errorf("links sent %g bytes, the GPUs %g", links, total)
			}
			if err := now.is(0, "gpu_pcie_errors_total", `uuid="`+string(s.GPUs[0].UUID)+`"`, `kind="fatal"`); err != nil {
				t.Error(err)
			}
		})
	}
	list.run(t)
}
