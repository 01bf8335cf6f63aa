package main

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// frozenReadings: the driver of one GPU responds with success and the same values for minutes, as with firmware that hangs,
// while its process runs on. They are not exported, with the reason, until one of them moves. An idle GPU whose power,
// clocks and temperature are constant uses energy, and one at full load too; both are as before. A GPU that does not
// count energy is frozen if its power stays the same while it is busy.
func frozenReadings(t *testing.T) {
	const values = "Field[185,gpu] = 345678|Field[186,gpu] = 345678|Field[185,memory] = 40000|Temperature[gpu] = 61|Field[82] = 62|" +
		"MarginTemperature = 26|UtilizationRates = gpu=50 memory=20|ClockInfo[graphics] = 1980|ClockInfo[sm] = 1980|" +
		"ClockInfo[video] = 1545|PowerUsage = 345678|TotalEnergyConsumption = "
	var text strings.Builder
	text.WriteString(strings.ReplaceAll(oneGPU, "gpu 0 ", "gpu 9 "))
	s := text.String()
	s = s[:strings.Index(s, "gpu 9 ")]
	for i := range 5 {
		s += fmt.Sprintf("gpu %d board=h100 uuid=GPU-%08x-0000-4000-8000-000000000000 pci=0000:%02x:00.0 minor=%d\n", i, 0xa0+i, 0x18+i, i)
		if i != 1 {
			s += fmt.Sprintf("process gpu=%d pid=%d memory=2GiB busy=%d%% period=1s\n", i, 5000+i, map[bool]int{true: 100, false: 50}[i == 2])
		}
	}
	freeze := func(dev int, energy string) {
		for _, v := range strings.Split(values+energy+"|Field[83] = "+energy, "|") {
			s += fmt.Sprintf("at 60s gpu %d %s\n", dev, v)
			if dev == 0 {
				key, _, _ := strings.Cut(v, " ")
				s += fmt.Sprintf("at 300s gpu 0 %s = default\n", key)
			}
		}
	}
	freeze(0, "123456789")
	freeze(3, "!NOT_SUPPORTED")
	freeze(4, "energy") // all is constant but the energy
	st := play(t, parseScenario(t, s), "")
	for _, step := range []struct {
		at     time.Duration
		frozen string // GPUs
	}{{58, ""}, {170, ""}, {200, "03"}, {298, "03"}, {320, "3"}, {420, "3"}} {
		now := st.watched(step.at*time.Second - st.control.Now())
		for i := range 5 {
			dev := fmt.Sprintf(`uuid="GPU-%08x-`, 0xa0+i)
			frozen := strings.Contains(step.frozen, fmt.Sprint(i))
			for _, family := range []string{"gpu_power_watts", "gpu_temperature_celsius", "gpu_clock_hertz"} {
				if shown := len(now.match(family, dev)) > 0; shown == frozen {
					t.Errorf("at %d s: %s of GPU %d is shown: %v", step.at, family, i, shown)
				}
			}
			if n := len(now.match("gpu_unmeasured_info", dev, `reading="sensors"`, `reason="frozen"`)); n > 0 != frozen {
				t.Errorf("at %d s: GPU %d has %d reasons", step.at, i, n)
			}
		}
	}
}
