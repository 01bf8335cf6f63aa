package nvml

import (
	"slices"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// Each value of a structure goes to its own reading: latency is reported in microseconds.
func TestDetails(t *testing.T) {
	r := playText(t, `
gpu 0 board=b
  EncoderStats = sessionCount=2 averageFps=30 averageLatency=4000
  FBCStats = sessionsCount=3 averageFPS=60 averageLatency=500
  C2cModeInfoV = isC2cEnabled=1
gpu 1 board=b
  C2cModeInfoV = isC2cEnabled=0
`)
	devs := r.open()
	s := slow(t, devs[0])
	if want := gpu.Some(gpu.Sessions{Count: 2, FPS: 30, Latency: 0.004}); s.Encoder != want {
		t.Errorf("encoder: %v, want %v", s.Encoder, want)
	}
	if want := gpu.Some(gpu.Sessions{Count: 3, FPS: 60, Latency: 0.0005}); s.Capture != want {
		t.Errorf("capture: %v, want %v", s.Capture, want)
	}
	if other := slow(t, devs[1]); s.C2C != gpu.Some(true) || other.C2C != gpu.Some(false) {
		t.Errorf("C2C: %v and %v", s.C2C, other.C2C)
	}
}

// A batch of links that the driver refuses as a whole is not offered: nothing of it is a value.
func TestLinksRefused(t *testing.T) {
	r := playText(t, "gpu 0 board=b\n  Field[138,0-1] = 5 type=ulonglong\n")
	r.library.options.Links = true
	c := r.open()[0]
	r.library.options.Intercept = func(_ int, call string, _ any, run func() int32) int32 {
		if call == "nvmlDeviceGetFieldValues" {
			return int32(nvml.ERROR_NOT_SUPPORTED)
		}
		return run()
	}
	if m := medium(t, c); len(m.Links) != 0 || !slices.Contains(c.NotOffered(), "link_details") {
		t.Errorf("links %v, not offered: %v", m.Links, c.NotOffered())
	}
}

// The duration of a call is observed, unless it only waits.
func TestDurationOfWaits(t *testing.T) {
	r := playText(t, "gpu 0 board=b\n")
	r.open()
	if _, err := r.session.WaitEvents(time.Millisecond); err != nil {
		t.Fatal(err)
	}
	counts := map[string]uint64{}
	for _, c := range r.library.Calls() {
		counts[c.Call] = c.Duration.Count
	}
	if r.control.Calls("nvmlEventSetWait_v2")+r.control.Calls("nvmlEventSetWait") == 0 || counts["nvmlEventSetWait"] != 0 ||
		counts["nvmlEventSetCreate"] != 1 {
		t.Errorf("observed calls: %v", counts)
	}
}
