// Package recording turns a journal of gpu-exporter record into a scenario that plays the recorded node: the values
// and return codes as they were, the rates at which counters grew, the MIG layout, the processes, and for how much
// of the time GPUs and processes were busy.
package recording

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/gpu-exporter/gpu-exporter/internal/nvml/calls"
	"github.com/gpu-exporter/gpu-exporter/internal/nvml/journal"
	"github.com/gpu-exporter/gpu-exporter/internal/standin/scenario"
)

// recording is a journal that is being turned into a scenario.
type recording struct {
	header journal.Header
	draft  scenario.Draft
	gpus   []*device
	notes  []string
	// field and metric are the highest that a GPU answered.
	field, metric int
	seconds       float64 // how long the journal is
}

// device is the part of one GPU.
type device struct {
	*recording
	index int
	draft scenario.DraftGPU
	calls map[string][]journal.Line // by call, in the order of time
	gone  string                    // the code of a GPU that was lost or needs a reset
	when  float64

	name string
	busy *ringLog
	mig  []migDevice
	gpm  []*profiling
}

// Scenario turns a journal into the text of a scenario.
func Scenario(text []byte) ([]byte, error) {
	header, lines, err := journal.Parse(text)
	if err != nil {
		return nil, err
	}
	r := &recording{header: header}
	for _, line := range lines {
		r.seconds = max(r.seconds, line.Seconds)
		r.add(line)
	}
	if len(r.gpus) == 0 {
		return nil, errors.New("the journal has no GPU")
	}
	if len(r.gpus) > scenario.MaxGPUs {
		r.notes = append(r.notes, fmt.Sprintf("The driver lists %d GPUs; the first %d are included.", len(r.gpus), scenario.MaxGPUs))
		r.gpus = r.gpus[:scenario.MaxGPUs]
	}
	taken := r.addresses()
	for _, d := range r.gpus {
		d.write()
		r.draft.GPUs = append(r.draft.GPUs, d.draft)
	}
	r.missing(taken)
	r.head()
	return r.draft.Bytes()
}

// add sorts one line in.
func (r *recording) add(line journal.Line) {
	switch {
	case line.Call == "nvmlDeviceGetHandleByIndex" && len(line.Args) == 1:
		d := r.gpu(int(line.Args[0]))
		if line.Code != "SUCCESS" && d.gone == "" {
			d.gone, d.when = line.Code, line.Seconds
		}
	case line.GPU != nil:
		d := r.gpu(*line.GPU)
		switch {
		case d.gone != "": // a call after the GPU was gone returns that it is
		case line.Code == "GPU_IS_LOST", line.Code == "RESET_REQUIRED":
			d.gone, d.when = line.Code, line.Seconds
		default:
			d.calls[line.Call] = append(d.calls[line.Call], line)
			d.plain(line)
		}
	default:
		if key := keyOf(line.Call); len(scenario.Components(key)) > 0 || line.Code != "SUCCESS" && scenario.HasKey(key) {
			r.draft.System.Set(key, value(key, line))
		}
	}
}

func (r *recording) gpu(index int) *device {
	for len(r.gpus) <= index && index >= 0 && index < 64 {
		r.gpus = append(r.gpus, &device{recording: r, index: len(r.gpus), calls: map[string][]journal.Line{}})
	}
	return r.gpus[min(max(index, 0), len(r.gpus)-1)]
}

// keyOf is what a scenario calls an NVML function.
func keyOf(call string) string {
	for _, prefix := range []string{"nvmlDeviceGet", "nvmlSystemGet", "nvml"} {
		if key, ok := strings.CutPrefix(call, prefix); ok {
			return key
		}
	}
	return call
}

// special are the calls whose values need more than to be written as they are; see device.write.
var special = []string{"FieldValues", "Samples", "ProcessUtilization", "UUID", "MinorNumber", "MemoryInfo", "MemoryInfo_v2",
	"BAR1MemoryInfo", "Temperature", "TemperatureV", "TotalEnergyConsumption", "UtilizationRates", "GpuFabricInfoV",
	"MigMode", "MaxMigDeviceCount", "MigDeviceHandleByIndex", "GpuInstanceId", "ComputeInstanceId", "Attributes", "GpuInstanceById",
	"GpuInstanceGetInfo", "GpuInstanceProfileInfo", "ComputeRunningProcesses", "GraphicsRunningProcesses",
	"MPSComputeRunningProcesses", "GpmSampleAlloc", "GpmSampleGet", "GpmMigSampleGet", "GpmMetricsGet", "RegisterEvents"}

// plain writes the answer of a call that has a line of its own in a scenario. A later line replaces an earlier one.
func (d *device) plain(line journal.Line) {
	key := keyOf(line.Call)
	if key == "Name" && len(line.Args) > 0 || slices.Contains(special, key) || !scenario.HasKey(key) {
		return // of a MIG device
	}
	if key == "Name" {
		_ = json.Unmarshal(line.Value, &d.name)
	}
	d.draft.Answers.Set(key, value(key, line), line.Args...)
}

// value is the right side of an answer.
func value(key string, line journal.Line) scenario.Value {
	if line.Code != "SUCCESS" {
		return scenario.Code(line.Code)
	}
	var text string
	if json.Unmarshal(line.Value, &text) == nil {
		return scenario.Text(text)
	}
	return scenario.Numbers(numbers(key, line.Value)...)
}

// numbers are the components of a value in the order of the language: a number, an array, or an object whose
// members are called like them.
func numbers(key string, raw json.RawMessage) []string {
	var list []json.RawMessage
	var object map[string]json.RawMessage
	switch {
	case json.Unmarshal(raw, &list) == nil:
	case json.Unmarshal(raw, &object) == nil:
		for name, v := range object {
			if lower := strings.ToLower(name); lower != name {
				object[lower] = v
			}
		}
		for _, name := range scenario.Components(key) {
			list = append(list, object[name])
		}
	default:
		list = []json.RawMessage{raw}
	}
	var out []string
	for _, v := range list {
		switch text := string(v); text {
		case "true":
			out = append(out, "1")
		case "", "false", "null":
			out = append(out, "0")
		default:
			out = append(out, text)
		}
	}
	return out
}

// last returns the latest line of a call with these arguments; its Code is empty where there is none.
func (d *device) last(call string, args ...int64) journal.Line {
	lines := d.calls["nvmlDeviceGet"+call]
	if lines == nil {
		lines = d.calls["nvml"+call]
	}
	for _, line := range slices.Backward(lines) {
		if slices.Equal(line.Args, args) {
			return line
		}
	}
	return journal.Line{}
}

// decode reads the value of a call that succeeded.
func decode(line journal.Line, to any) bool {
	return line.Code == "SUCCESS" && json.Unmarshal(line.Value, to) == nil
}

// refuse writes the code of a call that failed.
func (d *device) refuse(key string, line journal.Line, index ...int64) {
	if line.Code != "" && line.Code != "SUCCESS" {
		d.draft.Answers.Set(key, scenario.Code(line.Code), index...)
	}
}

// say adds a statement, note a sentence at the top of the file.
func (d *device) say(format string, args ...any) {
	d.draft.Statements = append(d.draft.Statements, fmt.Sprintf(format, args...))
}
func (d *device) note(text string) {
	text = fmt.Sprintf("GPU %d: %s", d.index, text)
	if !slices.Contains(d.notes, text) {
		d.notes = append(d.notes, text)
	}
}

// write writes what needs more than one line of the journal.
func (d *device) write() {
	d.draft.Board = d.name
	var uuid string
	if decode(d.last("UUID"), &uuid); uuid != "" && len(uuid) < 80 {
		d.draft.Options = append(d.draft.Options, "uuid="+uuid)
	}
	d.refuse("UUID", d.last("UUID"))
	var minor int
	if decode(d.last("MinorNumber"), &minor) && minor >= 0 && minor <= 255 {
		d.draft.Options = append(d.draft.Options, fmt.Sprintf("minor=%d", minor))
	}
	d.refuse("MinorNumber", d.last("MinorNumber"))
	switch d.gone {
	case "":
		d.writeFabric()
		d.writeMIG()
		d.writeFields()
		d.writeEnergy()
		d.writeTemperature()
		d.writeProfiling()
		dram := d.writeActivity()
		d.writeMemory()
		d.writeProcesses(dram)
	case "GPU_IS_LOST":
		d.say("at %s gpu %d lose", seconds(d.when), d.index)
	case "RESET_REQUIRED":
		d.say("at %s gpu %d reset_required", seconds(d.when), d.index)
	default:
		d.draft.Answers.Set("Handle", scenario.Code(d.gone))
		d.note("the driver gave no handle of it (" + d.gone + ").")
	}
}

func seconds(s float64) string { return short(s) + "s" }

// writeFabric writes the structure of either version.
func (d *device) writeFabric() {
	line := d.last("GpuFabricInfoV")
	if line.Code == "SUCCESS" {
		d.draft.Answers.Set("GpuFabricInfo", scenario.Numbers(numbers("GpuFabricInfo", line.Value)...))
	}
	d.refuse("GpuFabricInfoV", line)
}

// counts reports whether a field counts work: its line says how fast it grew.
func counts(id uint32) bool {
	return slices.ContainsFunc(calls.Fields, func(f calls.Field) bool { return f.ID == id && f.Reading.Kind == calls.Counter })
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
			if sum, grew := growing(first[a].Value, f.Value, f.at-first[a].at); grew && counts(a.id) {
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

// short spells a measured number, to a thousandth.
func short(v float64) string { return strconv.FormatFloat(math.Round(v*1000)/1000, 'f', -1, 64) }

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
