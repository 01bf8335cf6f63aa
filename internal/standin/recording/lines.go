package recording

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

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
			list = append(list, object[strings.ToLower(name)])
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

// keyOf is what a scenario calls an NVML function.
func keyOf(call string) string {
	for _, prefix := range []string{"nvmlDeviceGet", "nvmlSystemGet", "nvml"} {
		if key, ok := strings.CutPrefix(call, prefix); ok {
			return key
		}
	}
	return call
}

// migDevice is a MIG device of the journal.
type migDevice struct {
	index       int
	uuid        string
	gi, ci      int
	profile     string
	start, size int
	slices      int // of the compute instance; 0: unknown
	giSlices    int
	sms         int
	memoryMiB   uint64
	profileID   int // -1: unknown
	used        uint64
}

// profiling are the GPM metrics of a GPU, or of one of its GPU instances.
type profiling struct {
	gi     int // -1: the GPU
	values map[uint32][]float64
	codes  map[uint32]string // the last
}

func seconds(s float64) string { return short(s) + "s" }

// short spells a measured number, to a thousandth.
func short(v float64) string { return strconv.FormatFloat(math.Round(v*1000)/1000, 'f', -1, 64) }

// ringLog is what a ring of samples contained over the journal.
type ringLog struct {
	code    string // of the last call; NOT_FOUND and NO_DATA are a ring with nothing new
	sizing  int    // the largest answer
	entries int    // of the first answer
	period  uint64 // microseconds between samples; 0: not seen
	boot    bool   // times count from boot
	slots   bool   // samples are in the order of the ring's memory
	gaps    bool   // it stops while the GPU is idle
	filling bool   // it had more entries at the end than at the beginning
	last    uint64 // the newest sample
	// sum and time make the mean since the first reading, in percent and in microseconds.
	sum, time float64
	absurd    *float64 // a value that is no percentage
}

// process is an entry of a process list.
type process struct {
	pid    uint32
	kind   string
	memory uint64
	gi, ci int // -1: the GPU itself
}

func percent(part float64) string {
	return strconv.FormatFloat(math.Round(min(1, max(0, part))*1e5)/1e3, 'f', -1, 64) + "%"
}

// exists reports whether a code is that of a driver that has the buffer at all.
func exists(code string) bool {
	return slices.Contains([]string{"SUCCESS", "NOT_FOUND", "NO_DATA", "INSUFFICIENT_SIZE"}, code)
}
