package nvml

import (
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/account"
	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// TestGPMAboveOne: the sample of a GPU instance is a sum over its compute instances, and DCGM, which neither scales nor limits
// it, showed 1.294 (NVIDIA/DCGM, issue 152). The reader returns what the driver reports; the account uses 1 for a sum of up to
// eight compute instances, and rejects and counts what is none.
func TestGPMAboveOne(t *testing.T) {
	r := playText(t, `
  GpmQueryDeviceSupport = 1
  Gpm[1] = 180*util
  Gpm[2] = 129.4*util
  Gpm[3] = 850*util
  Gpm[5] = 40*util
gpu 0 board=b
mig gpu=0 layout="gi=1 ci=0 profile=3g.40gb slices=1 start=0 size=4 ; gi=1 ci=1 slices=2 index=1"
process gpu=0 pid=11 gi=1 ci=0 memory=7GiB busy=100% period=1s
process gpu=0 pid=12 gi=1 ci=1 memory=7GiB busy=100% period=1s
`)
	c := r.open()[0]
	slow(t, c)
	fast(t, c)
	r.control.Advance(2 * time.Second)
	f := fast(t, c)
	if len(f.Instances) != 1 {
		t.Fatalf("instances %+v", f.Instances)
	}
	type ratio = gpu.Opt[gpu.Ratio]
	read := func() [4]ratio {
		g := f.Instances[0].GPM.Or(gpu.GPM{})
		return [4]ratio{g.GraphicsActive, g.SMActive, g.SMOccupancy, g.TensorActive}
	}
	some := gpu.Some[gpu.Ratio]
	if got, want := read(), [4]ratio{some(1.8), some(1.294), some(8.5), some(0.4)}; got != want {
		t.Errorf("read %v, want %v", got, want)
	}
	var filter account.Filter
	filter.Fast(&f)
	if got, want := read(), [4]ratio{some(1), some(1), {}, some(0.4)}; got != want {
		t.Errorf("accounted %v, want %v", got, want)
	}
	// Of the whole GPU the instance is three slices of seven: 3.64 is no ratio either. Of a compute instance alone, which is
	// no sum, nothing above 1 is: three metrics of each of the two.
	for _, ci := range f.Instances[0].Compute {
		if g := ci.GPM.Or(gpu.GPM{}); g.SMActive.Present() || g.TensorActive != some(0.4) {
			t.Errorf("accounted of %s: %+v", ci.UUID, g)
		}
	}
	if n := filter.Counts(); len(n) != 1 || n[0] != (gpu.RejectedCount{Reading: "gpm", Count: 2 + 2*3}) {
		t.Errorf("rejected %v", n)
	}
}
