package nvml

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// Values of single links are read where that is enabled, in one call, each by the first field that is offered for it.
func TestLinkDetails(t *testing.T) {
	r := playText(t, `
gpu 0 board=b
  NvLinkState[0] = 1
  NvLinkState[1] = 0
  NvLinkState[2-35] = !INVALID_ARGUMENT
  Field[138,0-1] = 5 type=ulonglong
  Field[202,1] = 7000 type=ulonglong
  Field[139,0] = 1
  Field[163,0] = 3
  Field[32] = 9
  Field[102] = 11
  Field[215,1] = !UNKNOWN
  Field[171,0] = 1
  Field[171,1] = 0
  Field[231,0] = 4
  Field[180] = 2
at 10s gpu 0 Field[138,0] = !NOT_SUPPORTED
at 10s gpu 0 Field[215,1] = 6
at 20s gpu 0 Field[138,0] = 8 type=ulonglong
gpu 1 board=b
`)
	spell := func(links []gpu.Link) string {
		var out []string
		for _, l := range links {
			out = append(out, fmt.Sprintf("%s %d %s %d", l.Kind, l.Index, l.Value, l.N))
		}
		slices.Sort(out)
		return strings.Join(out, ", ")
	}
	devs := r.open()
	if m, s := medium(t, devs[0]), slow(t, devs[0]); len(m.Links)+len(s.Links) != 0 {
		t.Errorf("links that are not enabled: %v %v", m.Links, s.Links)
	}
	r.library.options.Links = true
	const other = "c2c 0 crc 4, c2c 0 up 1, c2c 1 up 0, nvlink 0 crc_flit 3, nvlink 0 receive 1024, %snvlink 1 transmit 7000, " +
		"nvlink 6 crc_data 11, pcie 0 fatal 2"
	for _, step := range []struct {
		at   time.Duration
		want string
	}{
		{0, fmt.Sprintf(other, "nvlink 0 transmit 5120, ")},
		{10 * time.Second, fmt.Sprintf(other, "nvlink 1 recovery 6, ")},
		{20 * time.Second, fmt.Sprintf(other, "nvlink 1 recovery 6, ")}, // it is tried again after ten minutes only
	} {
		r.at(step.at)
		calls := r.control.CallsOn("nvmlDeviceGetFieldValues", 0)
		medium(t, devs[0])
		if n := r.control.CallsOn("nvmlDeviceGetFieldValues", 0) - calls; n > 2 {
			t.Errorf("%d calls", n)
		}
		if got := spell(medium(t, devs[0]).Links); got != step.want {
			t.Errorf("at %v: %s\nwant %s", step.at, got, step.want)
		}
	}
	if got := spell(slow(t, devs[0]).Links); got != "nvlink 0 up 1, nvlink 1 up 0" {
		t.Error(got)
	}
	r.at(20*time.Second + retryDropped)
	slow(t, devs[0])
	if got := spell(medium(t, devs[0]).Links); !strings.Contains(got, "nvlink 0 transmit 8192") {
		t.Errorf("tried again: %s", got)
	}
	medium(t, devs[1])
	if links := medium(t, devs[1]).Links; len(links) > 0 || !slices.Contains(devs[1].NotOffered(), "link_details") {
		t.Errorf("a GPU without: %v, %v", links, devs[1].NotOffered())
	}
}

// A batch of links that the driver refuses as a whole is not offered: nothing of it is a value.
func TestLinksRefused(t *testing.T) {
	r := playText(t, "gpu 0 board=b\n  Field[138,0-1] = 5 type=ulonglong\n")
	r.library.options.Links = true
	c := r.open()[0]
	r.library.options.Intercept = func(_ int, call string, _ []int, _ any, run func() int32) int32 {
		if call == "nvmlDeviceGetFieldValues" {
			return int32(nvml.ERROR_NOT_SUPPORTED)
		}
		return run()
	}
	if m := medium(t, c); len(m.Links) != 0 || !slices.Contains(c.NotOffered(), "link_details") {
		t.Errorf("links %v, not offered: %v", m.Links, c.NotOffered())
	}
}
