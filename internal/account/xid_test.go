package account

import (
	"slices"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

var epoch = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func TestXIDBook(t *testing.T) {
	at := func(source string, seconds ...float64) (events []gpu.XIDEvent) {
		for _, s := range seconds {
			events = append(events, gpu.XIDEvent{XID: 31, Source: source, Time: epoch.Add(time.Duration(s * float64(time.Second)))})
		}
		return events
	}
	const nvml, kmsg = gpu.SourceNVML, gpu.SourceKmsg
	for _, tt := range []struct {
		name   string
		events []gpu.XIDEvent
		want   uint64
	}{
		{"one source", at(nvml, 0), 1},
		{"the same event by both", slices.Concat(at(nvml, 0), at(kmsg, 0.3)), 1},
		{"the log first", slices.Concat(at(kmsg, 0), at(nvml, 0.9)), 1},
		{"reported out of order", slices.Concat(at(nvml, 1), at(kmsg, 0.3)), 1},
		{"a storm is not merged", at(nvml, 0, .1, .2, .3, .4), 5},
		{"a storm by both is not doubled", slices.Concat(at(nvml, 0, .1, .2), at(kmsg, .1, .2, .3)), 3},
		{"the larger of the two counts", slices.Concat(at(nvml, 0, .1, .2), at(kmsg, .05, .06, .07, .08, .09)), 5},
		{"a pair across the edge of any two seconds", slices.Concat(at(nvml, 0), at(kmsg, 0.1), at(nvml, 1.95), at(kmsg, 2.05)), 2},
		{"more than two seconds apart", slices.Concat(at(nvml, 0), at(kmsg, 2.5)), 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := &xidCounts{codes: map[int]*xidCode{}}
			for _, e := range tt.events {
				b.add(e)
			}
			if got := b.codes[31].count; got != tt.want {
				t.Errorf("counted %d, want %d", got, tt.want)
			}
		})
	}
}

func TestXIDsOfTheLedger(t *testing.T) {
	l := New(Options{})
	id := gpu.Identity{UUID: "GPU-a", PCI: "0000:18:00.0"}
	at := func(s int) time.Time { return epoch.Add(time.Duration(s) * time.Second) }

	// Told before the GPU has a name.
	l.Event(gpu.XIDEvent{PCI: id.PCI, XID: 79, Time: at(0), Source: gpu.SourceKmsg})
	l.Event(gpu.XIDEvent{PCI: id.PCI, XID: 79, Time: at(-100), Source: gpu.SourceKmsg, Old: true})
	l.Event(gpu.XIDEvent{PCI: id.PCI, XID: 43, Time: at(-100), Source: gpu.SourceKmsg, Old: true})
	l.Advance(Poll{Now: at(1), GPUs: []Reading{{Identity: id}}, Events: true, KernelLog: true})
	// Told by NVML with the name, and by the log when the GPU is off the bus.
	l.Event(gpu.XIDEvent{GPU: id.UUID, XID: 79, Time: at(1), Source: gpu.SourceNVML})
	l.Event(gpu.XIDEvent{PCI: id.PCI, XID: 79, Time: at(100), Source: gpu.SourceKmsg})
	l.Event(gpu.XIDEvent{GPU: id.UUID, XID: 0, Time: at(100), Source: gpu.SourceNVML})

	var c gpu.GPU
	c.UUID = id.UUID
	l.Fill(&c)
	got := map[int]gpu.XIDCount{}
	for _, x := range c.XIDs {
		got[x.XID] = x
	}
	if len(got) != len(gpu.XIDsFromZero())+1 {
		t.Errorf("%d codes, want those that start at 0, and 43: %v", len(got), c.XIDs)
	}
	if x := got[79]; x.Count != 2 || x.Last != gpu.Some(at(100)) {
		t.Errorf("79: %+v", x)
	}
	if x := got[43]; x.Count != 0 || x.Last != gpu.Some(at(-100)) {
		t.Errorf("43 is from before our start: %+v", x)
	}
	if x := got[48]; x.Count != 0 || x.Last.Present() {
		t.Errorf("48 never happened: %+v", x)
	}
	// A GPU of which nothing was reported, and its address.
	other := gpu.GPU{Identity: gpu.Identity{UUID: "GPU-b", PCI: "0000:19:00.0"}}
	l.Fill(&other)
	l.Event(gpu.XIDEvent{PCI: other.PCI, XID: 31, Time: at(100), Source: gpu.SourceKmsg})
	l.Advance(Poll{Now: at(101), GPUs: []Reading{{Identity: other.Identity}}, Events: true, KernelLog: true})
	if l.Fill(&other); len(other.XIDs) != len(gpu.XIDsFromZero())+1 {
		t.Errorf("%+v", other.XIDs)
	}
}

// TestXIDsStartWhereTheyCanBeReported: a 0 without a data source that reports the code would say that there was no error.
func TestXIDsStartWhereTheyCanBeReported(t *testing.T) {
	zeros := len(gpu.XIDsFromZero())
	for _, tt := range []struct {
		registered, events, kernelLog bool
		want                          int
	}{
		{true, true, false, zeros - 4}, // not 62, 79, 119, 120
		{true, true, true, zeros}, {false, false, true, zeros}, {false, true, false, 0}, {true, false, false, 0},
	} {
		l := New(Options{})
		id := gpu.Identity{UUID: "GPU-a", XIDEvents: tt.registered}
		c := gpu.GPU{Identity: id}
		if l.Fill(&c); len(c.XIDs) != 0 {
			t.Errorf("%+v: %d codes before the first poll", tt, len(c.XIDs))
		}
		l.Advance(Poll{Now: epoch, GPUs: []Reading{{Identity: id}}, Events: tt.events, KernelLog: tt.kernelLog})
		if l.Fill(&c); len(c.XIDs) != tt.want {
			t.Errorf("%+v: %d codes", tt, len(c.XIDs))
		}
		// An event counts whatever was expected, and says whose it was for five minutes.
		l.Event(gpu.XIDEvent{GPU: id.UUID, XID: 79, Time: epoch, Source: gpu.SourceKmsg, GI: gpu.Some(5)})
		l.Event(gpu.XIDEvent{GPU: id.UUID, XID: 79, Time: epoch, Source: gpu.SourceKmsgProbe, Container: gpu.Container{Pod: "p"}})
		for _, minutes := range []int{0, 5} {
			l.Advance(Poll{Now: epoch.Add(time.Duration(minutes) * time.Minute), GPUs: []Reading{{Identity: id}}})
			l.Fill(&c)
			if x := c.XIDs[0]; x.Count != 1 || (x.GI == gpu.Some(5) && x.Container.Pod == "p") != (minutes == 0) {
				t.Errorf("%+v: after %d min: %+v", tt, minutes, x)
			}
		}
	}
}

func TestXIDStormIsBounded(t *testing.T) {
	b := &xidCounts{codes: map[int]*xidCode{}}
	for i := range 3 * maxPending {
		b.add(gpu.XIDEvent{XID: 13, Source: gpu.SourceNVML, Time: epoch.Add(time.Duration(i) * time.Microsecond)})
	}
	if c := b.codes[13]; c.count != 3*maxPending || len(c.pending) > maxPending {
		t.Errorf("counted %d, kept %d", c.count, len(c.pending))
	}
}
