package recording

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/gpu-exporter/gpu-exporter/internal/nvml/calls"
	"github.com/gpu-exporter/gpu-exporter/internal/nvml/journal"
	"github.com/gpu-exporter/gpu-exporter/internal/standin/scenario"
)

// counts reports whether a field counts work: its line says how fast it grew.
func counts(id uint32) bool {
	return slices.ContainsFunc(calls.Fields, func(f calls.Field) bool {
		return f.ID == id &&
			f.Reading.Kind == calls.Counter
	})
}

// writeFields writes the fields. One that the driver refused together with its whole batch is left out.
func (d *device) writeFields() {
	type asked struct{ id, scope uint32 }
	type read struct {
		journal.Field
		at float64
	}
	first, last := map[asked]read{}, map[asked]read{}
	scoped := map[uint32]bool{}
	var order []asked
	refused := journal.Line{}
	for _, line := range d.calls["nvmlDeviceGetFieldValues"] {
		var batch []journal.Field
		if !decode(line, &batch) {
			refused = line
			continue
		}
		for _, f := range batch {
			a := asked{f.ID, f.Scope}
			if _, met := last[a]; !met {
				order = append(order, a)
			}
			if before, met := first[a]; !met || before.Value == "" {
				first[a] = read{f, line.Seconds}
			}
			last[a] = read{f, line.Seconds}
			scoped[f.ID] = scoped[f.ID] || f.Scope != 0
		}
	}
	switch {
	case refused.Code != "" && len(order) == 0:
		d.refuse("FieldValues", refused)
	case refused.Code != "":
		d.note("some field values were refused together (" + refused.Code + ") and are left out.")
	}
	for _, a := range order {
		f := last[a]
		index := []int64{int64(a.id)}
		if scoped[a.id] {
			index = append(index, int64(a.scope))
		}
		v := scenario.Code(f.Code)
		switch {
		case f.Code != "SUCCESS":
		case f.Time == 0:
			v = scenario.Untouched()
		case f.Value == "":
			v = scenario.Code("NO_DATA").Noted("the value is not a finite number")
		default:
			v = scenario.Numbers(spellable(f.Value, f.Type)).Typed(f.Type)
			sum, grew := growing(first[a].Value, f.Value, f.at-first[a].at)
			if metric, ok := overflows[a.id]; ok {
				sum, grew = d.overflowing(metric, first[a].Value, f.Value, f.at-first[a].at, sum, grew)
			}
			if grew && counts(a.id) {
				v = scenario.Numbers(sum).Typed(f.Type)
			}
		}
		if f.Code == "SUCCESS" {
			d.field = max(d.field, int(a.id))
		}
		d.draft.Answers.Set("Field", v, index...)
	}
}

// spellable spells a double as the language does.
func spellable(number, kind string) string {
	if n, err := strconv.ParseFloat(number, 64); err == nil && kind == "double" {
		text, _ := scenario.Real(n)
		return text
	}
	return number
}

// growing spells a counter that went from one value to another in a time.
func growing(from, to string, over float64) (sum string, grew bool) {
	const exact = 1 << 53 // sums are of floats
	a, err := strconv.ParseUint(from, 10, 64)
	b, err2 := strconv.ParseUint(to, 10, 64)
	if err != nil || err2 != nil || b <= a || b >= exact || over <= 0 {
		return "", false
	}
	return fmt.Sprintf("%d + %s*t", a, short(float64(b-a)/over)), true
}

// overflows are the fields of 32 bits that overflow between two polls, PCIe bytes sent and received, and the GPM metric that
// has their rate in MiB/s.
var overflows = map[uint32]uint32{197: 20, 198: 21}

// overflowing is growing for a counter of 32 bits, where the journal has its mean rate.
func (d *device) overflowing(metric uint32, from, to string, over float64, sum string, grew bool) (string, bool) {
	const wrap = 1 << 32
	a, err := strconv.ParseUint(from, 10, 32)
	b, err2 := strconv.ParseUint(to, 10, 32)
	rate, known := d.meanMetric(metric)
	if err != nil || err2 != nil || !known || over <= 0 {
		return sum, grew
	}
	step := float64((b - a) % wrap)
	step += wrap * max(0, math.Round((rate*(1<<20)*over-step)/wrap))
	return fmt.Sprintf("%d + %s*t", a, short(step/over)), true
}

// meanMetric is the mean of a GPM metric of the whole GPU.
func (d *device) meanMetric(id uint32) (mean float64, known bool) {
	n := 0.0
	for _, line := range d.calls["nvmlGpmMetricsGet"] {
		var metrics []journal.Metric
		if len(line.Args) != 1 || line.Args[0] >= 0 || !decode(line, &metrics) {
			continue
		}
		for _, m := range metrics {
			if m.ID == id && m.Value != nil {
				mean, n = mean+*m.Value, n+1
			}
		}
	}
	return mean / n, n > 0
}

func (d *device) writeEnergy() {
	lines := d.calls["nvmlDeviceGetTotalEnergyConsumption"]
	if len(lines) == 0 {
		return
	}
	first, last := lines[0], lines[len(lines)-1]
	v := value("TotalEnergyConsumption", last)
	if sum, grew := growing(string(first.Value), string(last.Value), last.Seconds-first.Seconds); grew {
		v = scenario.Numbers(sum)
	}
	d.draft.Answers.Set("TotalEnergyConsumption", v)
}

// writeTemperature writes the new call and the old, which a scenario answers from one line.
func (d *device) writeTemperature() {
	const sensor = 0
	newer, older := d.last("TemperatureV"), d.last("Temperature", sensor)
	line := newer
	if newer.Code != "SUCCESS" {
		d.refuse("TemperatureV", newer)
		line = older
	}
	if line.Code != "" {
		d.draft.Answers.Set("Temperature", value("Temperature", line), sensor)
	}
	if newer.Code == "SUCCESS" {
		d.refuse("Temperature", older)
	}
}

// writeMemory writes the memory as lines of the script: on a GPU's own lines used and free would follow the processes.
func (d *device) writeMemory() {
	for _, key := range []string{"MemoryInfo_v2", "MemoryInfo", "BAR1MemoryInfo"} {
		line := d.last(key)
		if line.Code != "SUCCESS" {
			d.refuse(key, line)
			continue
		}
		var parts []string
		values := numbers(key, line.Value)
		for i, name := range scenario.Components(key) {
			parts = append(parts, name+"="+values[i])
		}
		d.say("at 0s gpu %d %s = %s", d.index, key, strings.Join(parts, " "))
	}
}

// writeFabric writes the structure of either version.
func (d *device) writeFabric() {
	line := d.last("GpuFabricInfoV")
	if line.Code == "SUCCESS" {
		d.draft.Answers.Set("GpuFabricInfo", scenario.Numbers(numbers("GpuFabricInfo", line.Value)...))
	}
	d.refuse("GpuFabricInfoV", line)
}
