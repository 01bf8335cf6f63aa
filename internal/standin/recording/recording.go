// Package recording turns a journal of gpu-exporter record into a scenario that plays the recorded node: the values
// and return codes as they were, the rates at which counters grew, the MIG layout, the processes, and for how much
// of the time GPUs and processes were busy.
package recording

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/gpu-exporter/gpu-exporter/internal/nvml/journal"
	"github.com/gpu-exporter/gpu-exporter/internal/standin/scenario"
)

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
		r.notes = append(r.notes, fmt.Sprintf("The driver lists %d GPUs; the first %d are included.", len(r.gpus),
			scenario.MaxGPUs))
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
		if d == nil {
			return
		}
		if line.Code != "SUCCESS" && d.gone == "" {
			d.gone, d.when = line.Code, line.Seconds
		}
	case line.GPU != nil:
		d := r.gpu(*line.GPU)
		switch {
		case d == nil:
		case d.gone != "": // a call after the GPU was gone returns that it is
		case line.Code == "GPU_IS_LOST", line.Code == "RESET_REQUIRED":
			d.gone, d.when = line.Code, line.Seconds
		default:
			d.calls[line.Call] = append(d.calls[line.Call], line)
			d.plain(line)
		}
	default:
		if key := keyOf(line.Call); len(scenario.Components(key)) > 0 || line.Code != "SUCCESS" &&
			scenario.HasKey(key) {
			r.draft.System.Set(key, value(key, line))
		}
	}
}

func (r *recording) gpu(index int) *device {
	if index < 0 || index >= maxGPUs {
		return nil // of a call that no driver lists a GPU for
	}
	for len(r.gpus) <= index {
		r.gpus = append(r.gpus, &device{recording: r, index: len(r.gpus), calls: map[string][]journal.Line{}})
	}
	return r.gpus[index]
}

// maxGPUs bounds the indices of a journal: 64 are more than any node has.
const maxGPUs = 64

// special are the calls whose values need more than to be written as they are; see device.write.
var special = []string{"FieldValues", "Samples", "ProcessUtilization", "UUID", "MinorNumber", "MemoryInfo",
	"MemoryInfo_v2",
	"BAR1MemoryInfo", "Temperature", "TemperatureV", "TotalEnergyConsumption", "UtilizationRates", "GpuFabricInfoV",
	"MigMode", "MaxMigDeviceCount", "MigDeviceHandleByIndex", "GpuInstanceId", "ComputeInstanceId", "Attributes",
	"GpuInstanceById",
	"GpuInstanceGetInfo", "GpuInstanceProfileInfo", "ComputeRunningProcesses", "GraphicsRunningProcesses",
	"MPSComputeRunningProcesses", "GpmSampleAlloc", "GpmSampleGet", "GpmMigSampleGet", "GpmMetricsGet",
	"RegisterEvents"}

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
