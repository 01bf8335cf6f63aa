package journal_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/internal/nvml/journal"
	"github.com/gpu-exporter/gpu-exporter/internal/standin/playback"
)

// TestRoundTrip: what is written is read again, with what identifies something masked.
func TestRoundTrip(t *testing.T) {
	now := time.Unix(100, 0)
	w := journal.NewWriter(func() time.Time { return now }, []byte("salt"))
	now = now.Add(1500 * time.Millisecond)
	w.Add(2, "nvmlDeviceGetPowerUsage", nil, "SUCCESS", 345000, 3*time.Millisecond)
	w.Add(-1, "nvmlDeviceGetName", []int64{1}, "NOT_SUPPORTED", "dropped", 0)
	w.Add(0, "nvmlDeviceGetUUID", nil, "SUCCESS", uuid("GPU-5a0e4100-8c1d-4e6b-9d10-0000000000aa"), 0)
	w.Add(0, "nvmlNew", nil, "SUCCESS", "of GPU-5a0e4100-8c1d-4e6b-9d10-0000000000aa", 0)
	w.Add(0, "nvmlDeviceGetUUID", nil, "SUCCESS", uuid("name of a person"), 0)
	text, err := w.Bytes(journal.Header{Program: "p", Symbols: []string{"nvmlInit"}})
	must.OK(t, err)
	again, err := w.Bytes(journal.Header{Program: "p", Symbols: []string{"nvmlInit"}})
	if err != nil || !bytes.Equal(again, text) {
		t.Errorf("the second time it is %s, %v", again, err)
	}
	h, lines, err := playback.Parse(text)
	if err != nil || h.Program != "p" || !strings.Contains(h.Note, "serial numbers of boards") || len(lines) != 5 {
		t.Fatalf("%+v, %d lines, %v", h, len(lines), err)
	}
	if l := lines[0]; l.Call != "nvmlDeviceGetPowerUsage" || l.Seconds != 1.5 ||
		*l.GPU != 2 || string(l.Value) != "345000" || l.Milliseconds != 3 {
		t.Errorf("%+v", l)
	}
	if l := lines[1]; l.GPU != nil || l.Args[0] != 1 || l.Code != "NOT_SUPPORTED" || l.Value != nil {
		t.Errorf("%+v", l)
	}
	// A UUID in a value that nothing declares to be one is masked as the declared one is.
	of := `"of ` + strings.TrimPrefix(string(lines[2].Value), `"`)
	if strings.Contains(string(text), "5a0e4100") || strings.Contains(string(text), "person") || len(of) != 45 ||
		string(lines[3].Value) != of {
		t.Errorf("a UUID is not masked as in %s: %s", of, text)
	}
}

// uuid is a value that identifies a GPU.
type uuid string

func (u uuid) Masked(m *journal.Mask) any { return m.UUID(string(u)) }

// TestBounded: a journal ends with an error before it takes the memory of a small container.
func TestBounded(t *testing.T) {
	w := journal.NewWriter(time.Now, nil)
	for range 12 {
		w.Add(0, "nvmlDeviceGetName", nil, "SUCCESS", strings.Repeat("x", 1<<20), 0)
	}
	if err := w.Err(); err == nil || !strings.Contains(err.Error(), "shorter") {
		t.Errorf("error %v", err)
	}
	if _, err := w.Bytes(journal.Header{}); err == nil {
		t.Error("written nevertheless")
	}
}
