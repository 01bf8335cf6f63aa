package nvml

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// TestGPMOfMIGDevices: where a GPU instance has several compute instances, each is sampled by the handle of its MIG device,
// beside the sample of the GPU instance; where it has one, there is no second sample. Compute instances are created and
// destroyed between two samples, and the driver refuses.
func TestGPMOfMIGDevices(t *testing.T) {
	const (
		first  = "gi=1 ci=0 profile=3g.40gb slices=1 start=0 size=4 uuid=MIG-a"
		second = "gi=1 ci=1 slices=2 uuid=MIG-b index=3"
		third  = "gi=1 ci=2 slices=2 uuid=MIG-d index=3"
		other  = "gi=7 profile=1g.10gb start=4 size=1 uuid=MIG-c index=4"
	)
	layout := func(list ...string) string { return "layout=\"" + strings.Join(list, " ; ") + "\"\n" }
	r := playText(t, "gpu 0 board=b\n  GpmQueryDeviceSupport = 1\n  Gpm[1] = 100*util\n"+
		"mig gpu=0 "+layout(first, second, other)+
		"at 20s gpu 0 mig apply "+layout(first, third, other)+
		"at 40s gpu 0 mig apply "+layout(first, other)+
		"at 60s gpu 0 mig apply "+layout(first, second, other)+
		"at 80s gpu 0 GpmSampleGet = !NOT_SUPPORTED"+`
process gpu=0 pid=11 gi=1 ci=0 memory=7GiB busy=25% period=1s
process gpu=0 pid=12 gi=1 ci=1 memory=7GiB busy=50% period=1s phase=250ms
process gpu=0 pid=13 gi=1 ci=2 memory=7GiB busy=60% period=1s
process gpu=0 pid=14 gi=7 memory=1GiB busy=100% period=1s
`)
	c := r.open()[0]
	read := func() string {
		var out []string
		text := func(o gpu.Opt[gpu.GPM]) string {
			g, ok := o.Get()
			if !ok {
				return "–"
			}
			return fmt.Sprintf("%v in %v", g.GraphicsActive.Or(-1), g.Window)
		}
		for _, in := range fast(t, c).Instances {
			line := string(in.UUID) + " " + text(in.GPM)
			for _, ci := range in.Compute {
				line += fmt.Sprintf(" (%s %s)", ci.UUID, text(ci.GPM))
			}
			out = append(out, line)
		}
		return strings.Join(out, ", ")
	}
	for _, step := range []struct {
		name    string
		at      time.Duration
		slow    bool // the layout is read before
		want    string
		samples int // of MIG devices and of the whole GPU, in this poll
	}{
		{"the first of a pair", 10, true, "MIG-a – (MIG-a –) (MIG-b –), MIG-c –", 3},
		{"two compute instances", 12, false, "MIG-a 0.75 in 2s (MIG-a 0.25 in 2s) (MIG-b 0.5 in 2s), MIG-c 1 in 2s", 3},
		{"recreated, the old handles are invalid", 20, false, "MIG-a –, MIG-c –", 3},
		{"the second is another", 22, true, "MIG-a 0.75 in 2s (MIG-a –) (MIG-d –), MIG-c 1 in 2s", 3},
		{"with samples of its own", 24, false, "MIG-a 0.75 in 2s (MIG-a 0.25 in 2s) (MIG-d 0.6 in 2s), MIG-c 1 in 2s", 3},
		{"one compute instance", 40, true, "MIG-a –, MIG-c –", 1},
		{"has no second sample", 42, false, "MIG-a 0.75 in 2s, MIG-c 1 in 2s", 1},
		{"two again", 60, true, "MIG-a – (MIG-a –) (MIG-b –), MIG-c –", 3},
		{"each with its own", 62, false, "MIG-a 0.75 in 2s (MIG-a 0.25 in 2s) (MIG-b 0.5 in 2s), MIG-c 1 in 2s", 3},
		{"before the driver refuses", 78, false, "MIG-a – (MIG-a –) (MIG-b –), MIG-c –", 3},
		{"the driver refuses: the instance alone", 80, false, "MIG-a 0.75 in 2s, MIG-c 1 in 2s", 3},
		{"and is not called again", 82, false, "MIG-a 0.75 in 2s, MIG-c 1 in 2s", 0},
	} {
		r.at(step.at * time.Second)
		if step.slow {
			slow(t, c)
		}
		before := r.control.Calls("nvmlGpmSampleGet")
		if got := read(); got != step.want {
			t.Errorf("%s: %s\nwant %s", step.name, got, step.want)
		}
		if n := int(r.control.Calls("nvmlGpmSampleGet") - before); n != step.samples {
			t.Errorf("%s: %d samples, want %d", step.name, n, step.samples)
		}
	}
	if !slices.Contains(c.NotOffered(), "mig_device_gpm") {
		t.Errorf("not offered: %v", c.NotOffered())
	}
	// Two samples for each subject that there is at once: the GPU, two GPU instances and two MIG devices.
	if n := r.control.Calls("nvmlGpmSampleAlloc"); n > 10 {
		t.Errorf("%d samples allocated", n)
	}
}

// TestStaleLayout: what contradicts the layout is reported once for each GPU instance and layout: a sample or the memory of an
// instance that no longer exists, and a process of one that the layout lacks.
func TestStaleLayout(t *testing.T) {
	layout := func(list ...string) string { return "mig apply layout=\"" + strings.Join(list, " ; ") + "\"\n" }
	const one, two, three = "gi=1 profile=3g.40gb start=0 size=4", "gi=2 profile=1g.10gb start=4 size=1",
		"gi=3 profile=1g.10gb start=5 size=1"
	r := playText(t, "gpu 0 board=b\n  GpmQueryDeviceSupport = 1\n  Gpm[1] = 100*util\n"+
		"mig gpu=0 layout=\""+one+" ; "+two+"\"\n"+
		"at 10s gpu 0 "+layout(one)+"at 30s gpu 0 "+layout()+"at 50s gpu 0 "+layout(one, three)+
		"process gpu=0 pid=12 gi=1 memory=1GiB busy=25% period=1s to=29s\n"+ // of an instance that exists: no reason
		"process gpu=0 pid=11 gi=3 memory=1GiB busy=25% period=1s from=50s\n")
	c := r.open()[0]
	for _, step := range []struct {
		at           time.Duration
		slow         bool
		fast, medium bool
	}{
		{1, true, false, false}, {10, false, true, true}, {12, false, false, false}, // the old handle of the other is refused, too
		{14, true, false, false}, {30, false, true, false}, {34, true, false, false},
		{52, false, false, true}, {54, false, false, false}, {56, true, false, false},
	} {
		r.at(step.at * time.Second)
		if step.slow {
			slow(t, c)
		}
		if f, m := fast(t, c).LayoutStale, medium(t, c).LayoutStale; f != step.fast || m != step.medium {
			t.Errorf("at %d s: fast %v, medium %v", step.at, f, m)
		}
	}
}
