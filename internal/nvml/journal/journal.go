// Package journal is the file that gpu-exporter record writes: every call that was made to the NVIDIA driver, with
// its arguments, return code, value and duration, one JSON object per line. What identifies a GPU, a board or a
// process is replaced as it is written (see Mask). The first line is the Header.
package journal

import (
	"bytes"
	"encoding/json"
	"fmt"
	"sync"
	"time"
)

// Version is the version of the format.
const Version = 1

// maxBytes is the maximum size of a journal, which is kept in memory: the exporter's container has little.
const maxBytes = 8 << 20

// Header is the first line.
type Header struct {
	Version int    `json:"gpu_exporter_journal"`
	Program string `json:"program,omitempty"`
	Date    string `json:"date,omitempty"`
	Note    string `json:"note"`
	// Symbols are the functions of the exporter's call table that the driver's library exports.
	Symbols []string `json:"symbols"`
	// Bus are the NVIDIA GPUs on the PCI bus, whether or not the driver lists them.
	Bus []BusDevice `json:"pci_bus"`
}

// BusDevice is a GPU on the PCI bus.
type BusDevice struct {
	PCI  string `json:"pci"`
	NUMA *int   `json:"numa_node,omitempty"`
}

// Line is one driver call.
type Line struct {
	// Seconds is when the call was made, since the journal began.
	Seconds float64 `json:"t"`
	// GPU is the index of the GPU that was called; nil for a call that concerns none.
	GPU *int `json:"gpu,omitempty"`
	// Call is the NVML function, Args its arguments; of a call on a MIG device, the index of that device.
	Call string  `json:"call"`
	Args []int64 `json:"args,omitempty"`
	// Code is NVML's name of the return code, without NVML_ERROR_.
	Code string `json:"code"`
	// Value is what was returned: a number, a text, an object, or an array of several.
	Value json.RawMessage `json:"value,omitempty"`
	// Milliseconds is how long the call took.
	Milliseconds float64 `json:"ms"`
}

// Masked is a value that identifies something. It returns what is written instead.
type Masked interface{ Masked(*Mask) any }

// Writer collects a journal. It is safe for concurrent use; the zero value is not usable.
type Writer struct {
	clock func() time.Time
	mask  *Mask

	mu    sync.Mutex // guards what follows
	start time.Time
	lines bytes.Buffer
	err   error
}

// NewWriter returns an empty journal. clock returns when calls are made; salt makes the masked names: nil for a
// random one that is kept nowhere.
func NewWriter(clock func() time.Time, salt []byte) *Writer {
	return &Writer{clock: clock, mask: NewMask(salt), start: clock()}
}

// Add writes one call. gpu is negative for a call that concerns none; value may be nil.
func (w *Writer) Add(gpu int, call string, args []int64, code string, value any, took time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if m, ok := value.(Masked); ok {
		value = m.Masked(w.mask)
	}
	line := Line{Seconds: w.clock().Sub(w.start).Seconds(), Call: call, Args: args, Code: code,
		Milliseconds: float64(took.Microseconds()) / 1000}
	if gpu >= 0 {
		line.GPU = &gpu
	}
	var err error
	if value != nil && code == "SUCCESS" {
		line.Value, err = json.Marshal(value)
	}
	if err == nil && w.lines.Len() > maxBytes {
		err = fmt.Errorf("more than %d MiB (record for a shorter time)", maxBytes>>20)
	}
	if err == nil {
		err = w.encode(&w.lines, line)
	}
	if err != nil && w.err == nil {
		w.err = fmt.Errorf("write %s to the journal: %w", call, err)
	}
}

// Err returns the first error of Add.
func (w *Writer) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// encode writes one line, with every UUID that is still in it masked.
func (w *Writer) encode(to *bytes.Buffer, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	to.Write(w.mask.rest(text))
	return to.WriteByte('\n')
}

// Bytes returns the journal under a header.
func (w *Writer) Bytes(h Header) ([]byte, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return nil, w.err
	}
	h.Version = Version
	h.Note = "What the NVIDIA driver of one node answered. Masked: UUIDs of GPUs and MIG devices, serial numbers of " +
		"boards and process IDs are replaced by others of the same form; the key was random and is not kept. " +
		"Unchanged: product names, part numbers, versions and PCI addresses. Not included: the name of the host, " +
		"names of processes, users and pods."
	var out bytes.Buffer
	if err := w.encode(&out, h); err != nil {
		return nil, err
	}
	out.Write(w.lines.Bytes())
	return out.Bytes(), nil
}

// Field is one entry of nvmlDeviceGetFieldValues. A Time of 0 is an entry that the driver left untouched.
type Field struct {
	ID    uint32 `json:"id"`
	Scope uint32 `json:"scope,omitempty"`
	Code  string `json:"code"`
	Time  int64  `json:"time"`
	// Type is double, uint, ulonglong, longlong, int or ushort. Value is empty for what is no finite number.
	Type  string `json:"type,omitempty"`
	Value string `json:"value,omitempty"`
}

// Sample is one entry of a ring of samples, by the driver's clock in microseconds.
type Sample struct {
	Time  uint64  `json:"time"`
	Value float64 `json:"value"`
}

// Metric is one metric of nvmlGpmMetricsGet; Value is nil for what is no finite number.
type Metric struct {
	ID    uint32   `json:"id"`
	Code  string   `json:"code"`
	Value *float64 `json:"value,omitempty"`
}
