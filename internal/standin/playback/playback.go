// Package playback answers the calls to the NVIDIA driver from a journal of gpu-exporter record, in place of a library:
// what a driver returned elsewhere is seen by the code that runs here.
package playback

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-exporter/gpu-exporter/internal/nvml/calls"
	"github.com/gpu-exporter/gpu-exporter/internal/nvml/journal"
)

// Driver is a journal that is played.
type Driver struct {
	// Bus are the GPUs on the PCI bus.
	Bus []journal.BusDevice

	clock func() time.Time
	start time.Time
	lines map[string][]journal.Line

	mu      sync.Mutex         // guards devices
	devices map[string]*device // the same for the same arguments
}

// What stands in place of the driver's handles. Of their methods only Free is called.
type (
	device   struct{ nvml.Device }
	instance struct{ nvml.GpuInstance }
	sample   struct{ nvml.GpmSample }
	set      struct{ nvml.EventSet }
)

// Parse reads a journal.
func Parse(text []byte) (journal.Header, []journal.Line, error) {
	var h journal.Header
	var lines []journal.Line
	number := 0
	for raw := range bytes.Lines(text) {
		number++
		var err error
		if number == 1 {
			if err = json.Unmarshal(raw, &h); err == nil && h.Version != journal.Version {
				err = fmt.Errorf("expected a journal of gpu-exporter record, version %d, got version %d", journal.Version, h.Version)
			}
		} else {
			var line journal.Line
			err = json.Unmarshal(raw, &line)
			lines = append(lines, line)
		}
		if err != nil {
			return h, nil, fmt.Errorf("read the journal, line %d: %w", number, err)
		}
	}
	if number == 0 {
		return h, nil, errors.New("read the journal: the file is empty")
	}
	return h, lines, nil
}

// New plays a journal.
func New(text []byte) (*Driver, error) {
	head, lines, err := Parse(text)
	if err != nil {
		return nil, err
	}
	d := &Driver{Bus: head.Bus, lines: map[string][]journal.Line{}, devices: map[string]*device{}}
	for _, line := range lines {
		gpu := -1
		if line.GPU != nil {
			gpu = *line.GPU
		}
		key := keyOf(gpu, line.Call, line.Args)
		d.lines[key] = append(d.lines[key], line)
	}
	return d, nil
}

// Begin lets the journal's time begin now. It must come before the first call.
func (d *Driver) Begin(clock func() time.Time) { d.clock, d.start = clock, clock() }

// Start is when the journal began, by the newest sample of the driver; zero where it has none, or counts from the start of
// the machine.
func (d *Driver) Start() (start time.Time) {
	for _, list := range d.lines {
		for _, line := range list {
			var of []journal.Sample
			if line.Call != "nvmlDeviceGetSamples" || json.Unmarshal(line.Value, &of) != nil {
				continue
			}
			for _, s := range of {
				at := time.UnixMicro(int64(s.Time)).Add(-time.Duration(line.Seconds * float64(time.Second)))
				if s.Time > 1e15 && at.After(start) { // microseconds: 2001
					start = at
				}
			}
		}
	}
	return start
}

// since are the calls whose last argument is a time.
var since = []string{"nvmlDeviceGetSamples", "nvmlDeviceGetProcessUtilization"}

func keyOf[N int | int64](gpu int, call string, args []N) string {
	if slices.Contains(since, call) && len(args) > 0 {
		args = args[:len(args)-1]
	}
	return fmt.Sprint(gpu, call, args)
}

// Call is an nvml.Options.Intercept. A call that the journal lacks is one that the library lacks.
func (d *Driver) Call(gpu int, call string, args []int, value any, _ func() int32) int32 {
	switch v := value.(type) {
	case *[]nvml.FieldValue:
		return d.fields(gpu, *v)
	case *nvml.Device:
		d.mu.Lock()
		defer d.mu.Unlock()
		key := keyOf(gpu, call, args)
		if d.devices[key] == nil {
			d.devices[key] = &device{}
		}
		*v = d.devices[key]
	case *nvml.GpuInstance:
		*v = &instance{}
	case *nvml.GpmSample:
		*v = &sample{}
	case *nvml.EventSet:
		*v = &set{}
	}
	switch call {
	case "nvmlEventSetWait":
		return int32(nvml.ERROR_TIMEOUT)
	case "nvmlShutdown", "nvmlGpmSampleFree", "nvmlEventSetCreate", "nvmlEventSetFree", "nvmlDeviceRegisterEvents":
		return int32(nvml.SUCCESS)
	}
	known := d.until(keyOf(gpu, call, args))
	if len(known) == 0 {
		return int32(nvml.ERROR_FUNCTION_NOT_FOUND)
	}
	last := known[len(known)-1]
	text := last.Value
	switch v := value.(type) {
	case *[]nvml.GpmMetric:
		metrics(known, *v)
		text = nil
	case *[]nvml.ProcessUtilizationSample:
		text = newer(known, args[0], func(s nvml.ProcessUtilizationSample) int { return int(s.TimeStamp) })
	}
	if call == "nvmlDeviceGetSamples" {
		text = samples(newer(known, args[1], func(s journal.Sample) int { return int(s.Time) }))
	}
	if text != nil && last.Code == "SUCCESS" {
		if err := unmarshal(text, value); err != nil {
			panic(fmt.Sprintf("play %s of the journal: %v", call, err))
		}
	}
	return code(last.Code)
}

// until are the lines that were written until now, the first at least.
func (d *Driver) until(key string) []journal.Line {
	passed := d.clock().Sub(d.start).Seconds()
	list := d.lines[key]
	n := 0
	for n < len(list) && (n == 0 || list[n].Seconds <= passed) {
		n++
	}
	return list[:n]
}

func (*sample) Free() nvml.Return { return nvml.SUCCESS }
func (*set) Free() nvml.Return    { return nvml.SUCCESS }

// newer are the samples after a time, of all lines.
func newer[S any](lines []journal.Line, after int, at func(S) int) json.RawMessage {
	var list []S
	for _, line := range lines {
		var of []S
		_ = json.Unmarshal(line.Value, &of)
		for _, s := range of {
			if at(s) > after {
				list, after = append(list, s), at(s)
			}
		}
	}
	text, _ := json.Marshal(list)
	return text
}

// samples are the members of NVML's samples.
func samples(text json.RawMessage) json.RawMessage {
	var of []journal.Sample
	_ = json.Unmarshal(text, &of)
	list := make([]nvml.Sample, len(of))
	for i, s := range of {
		list[i].TimeStamp = s.Time
		binary.NativeEndian.PutUint64(list[i].SampleValue[:], math.Float64bits(s.Value))
	}
	text, _ = json.Marshal([2]any{nvml.VALUE_TYPE_DOUBLE, list})
	return text
}

// fields sets each entry of a batch to its last value. One that was never returned is refused.
func (d *Driver) fields(gpu int, batch []nvml.FieldValue) int32 {
	known := d.until(keyOf(gpu, "nvmlDeviceGetFieldValues", []int(nil)))
	refused := int32(nvml.ERROR_FUNCTION_NOT_FOUND)
	for i := range batch {
		batch[i].NvmlReturn = uint32(nvml.ERROR_NOT_SUPPORTED)
	}
	read := false
	for _, line := range known {
		var of []journal.Field
		if _ = json.Unmarshal(line.Value, &of); line.Code != "SUCCESS" {
			refused = code(line.Code)
			continue
		}
		read = true
		for _, f := range of {
			for i := range batch {
				if b := &batch[i]; b.FieldId == f.ID && b.ScopeId == f.Scope {
					setField(b, f)
				}
			}
		}
	}
	if !read {
		return refused
	}
	return int32(nvml.SUCCESS)
}

func setField(to *nvml.FieldValue, f journal.Field) {
	to.NvmlReturn, to.Timestamp = uint32(code(f.Code)), f.Time
	types := map[string]nvml.ValueType{"double": nvml.VALUE_TYPE_DOUBLE, "uint": nvml.VALUE_TYPE_UNSIGNED_INT,
		"ulonglong": nvml.VALUE_TYPE_UNSIGNED_LONG_LONG, "longlong": nvml.VALUE_TYPE_SIGNED_LONG_LONG,
		"int": nvml.VALUE_TYPE_SIGNED_INT, "ushort": nvml.VALUE_TYPE_UNSIGNED_SHORT}
	to.ValueType = uint32(types[f.Type])
	bits, err := strconv.ParseUint(f.Value, 10, 64)
	if f.Type == "double" {
		v, _ := strconv.ParseFloat(f.Value, 64)
		bits = math.Float64bits(v)
	} else if err != nil {
		v, _ := strconv.ParseInt(f.Value, 10, 64)
		bits = uint64(v)
	}
	binary.NativeEndian.PutUint64(to.Value[:], bits)
}

// metrics sets the metrics that were asked for to their last values.
func metrics(known []journal.Line, batch []nvml.GpmMetric) {
	for i := range batch {
		batch[i].NvmlReturn = uint32(nvml.ERROR_NOT_SUPPORTED)
	}
	for _, line := range known {
		var of []journal.Metric
		_ = json.Unmarshal(line.Value, &of)
		for _, m := range of {
			for i := range batch {
				if b := &batch[i]; b.MetricId == m.ID {
					if b.NvmlReturn, b.Value = uint32(code(m.Code)), math.NaN(); m.Value != nil {
						b.Value = *m.Value
					}
				}
			}
		}
	}
}

// unmarshal sets what the journal spells otherwise than the members of NVML's structure.
func unmarshal(text json.RawMessage, value any) error {
	switch v := value.(type) {
	case *nvml.Device, *nvml.GpuInstance, *nvml.GpmSample, *nvml.EventSet:
		return nil
	case *nvml.Temperature:
		value = &v.Temperature
	case *nvml.MarginTemperature:
		value = &v.MarginTemperature
	case *nvml.GpmSupport:
		value = &v.IsSupportedDevice
	case *nvml.GpuInstanceInfo:
		value = &members{{"profile", &v.ProfileId}, {"start", &v.Placement.Start}, {"size", &v.Placement.Size}}
	case *nvml.PciInfo:
		value = &members{{"domain", &v.Domain}, {"bus", &v.Bus}, {"slot", &v.Device}, {"device", &v.PciDeviceId},
			{"subsystem", &v.PciSubSystemId}}
	case *nvml.BAR1Memory:
		value = &members{{"total", &v.Bar1Total}, {"used", &v.Bar1Used}, {"free", &v.Bar1Free}}
	case *nvml.PlatformInfo:
		var serial uint64
		value = &members{{"chassisserialnumber", &serial}, {"slotnumber", &v.SlotNumber}, {"trayindex", &v.TrayIndex},
			{"hostid", &v.HostId}, {"peertype", &v.PeerType}, {"moduleid", &v.ModuleId}}
		defer func() { copy(v.ChassisSerialNumber[:], strconv.FormatUint(serial, 10)) }()
	case *nvml.GpuFabricInfo_v3:
		value = &members{{"state", &v.State}, {"status", &v.Status}, {"clique", &v.CliqueId}, {"health_mask", &v.HealthMask},
			{"health_summary", &v.HealthSummary}, {"cluster", &v.ClusterUuid[0]}}
	case *nvml.GpuFabricInfo_v2:
		value = &members{{"state", &v.State}, {"status", &v.Status}, {"clique", &v.CliqueId}, {"health_mask", &v.HealthMask},
			{"cluster", &v.ClusterUuid[0]}}
	}
	return json.Unmarshal(text, value)
}

// members are the members of a structure by the names that the journal has for them.
type members []struct {
	name string
	to   any
}

// UnmarshalJSON sets the members.
func (m *members) UnmarshalJSON(text []byte) error {
	var of map[string]json.RawMessage
	if err := json.Unmarshal(text, &of); err != nil {
		return err
	}
	for _, member := range *m {
		if raw, ok := of[member.name]; ok {
			if err := json.Unmarshal(raw, member.to); err != nil {
				return err
			}
		}
	}
	return nil
}

// code is the return code of a name.
func code(name string) int32 {
	n, ok := calls.ReturnCodes[name]
	if !ok && name != "SUCCESS" {
		return int32(nvml.ERROR_UNKNOWN)
	}
	return int32(n)
}
