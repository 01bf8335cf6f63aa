package account

import (
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// Reports of two sources are one event up to two seconds apart, in either order; a source never reports one twice.
func TestReportsOfOneEvent(t *testing.T) {
	for _, c := range []struct {
		first, second time.Duration
		source        string
		count         uint64
	}{
		{0, sameEvent, gpu.SourceKmsg, 1}, {0, sameEvent + 1, gpu.SourceKmsg, 2}, {sameEvent, 0, gpu.SourceKmsg, 1},
		{sameEvent + 1, 0, gpu.SourceKmsg, 2}, {0, 0, gpu.SourceNVML, 2},
	} {
		b := &xidCounts{codes: map[int]*xidCode{}}
		b.add(gpu.XIDEvent{XID: 79, Source: gpu.SourceNVML, Time: epoch.Add(c.first)})
		b.add(gpu.XIDEvent{XID: 79, Source: c.source, Time: epoch.Add(c.second)})
		if x := b.publish(epoch, false, false); len(x) != 1 || x[0].Count != c.count ||
			x[0].Last != gpu.Some(epoch.Add(max(c.first, c.second))) {
			t.Errorf("%v and %v of %s: %+v", c.first, c.second, c.source, x)
		}
	}
	// Those that no report can match any more are forgotten: four seconds after.
	b := &xidCounts{codes: map[int]*xidCode{}}
	for _, at := range []time.Duration{0, 2 * sameEvent, 4*sameEvent + 1} {
		b.add(gpu.XIDEvent{XID: 79, Source: gpu.SourceNVML, Time: epoch.Add(at)})
	}
	if n := len(b.codes[79].pending); n != 1 {
		t.Errorf("%d are remembered", n)
	}
}

// A GPU that was known by its address keeps what was counted under it: counts add up, the latest event has the
// container, and a report under one name is that of an event under the other.
func TestCountsUnderTwoNames(t *testing.T) {
	const pci = "0000:18:00.0"
	at := func(s int) time.Time { return epoch.Add(time.Duration(s) * time.Second) }
	for _, c := range []struct {
		name               string
		byAddress, byUUID  int // when, in seconds
		container, current gpu.Container
	}{
		{"the address later", 20, 10, pod("p"), pod("p")}, {"the UUID later", 10, 20, pod("p"), pod("q")},
	} {
		l := New(Options{})
		l.Event(gpu.XIDEvent{GPU: "GPU-a", XID: 79, Time: at(c.byUUID), Source: gpu.SourceNVML, Container: pod("q"), GI: gpu.Some(2)})
		l.Event(gpu.XIDEvent{PCI: pci, XID: 79, Time: at(c.byAddress), Source: gpu.SourceNVML, Container: c.container, GI: gpu.Some(1)})
		l.Event(gpu.XIDEvent{PCI: pci, XID: 31, Time: at(1), Source: gpu.SourceKmsg})
		l.Event(gpu.XIDEvent{XID: 31, Time: at(1), Source: gpu.SourceKmsg}) // of no GPU
		g := gpu.GPU{Identity: gpu.Identity{UUID: "GPU-a"}}
		if l.Fill(&g); len(g.XIDs) != 1 {
			t.Fatalf("%s: %+v before the GPU has its address", c.name, g.XIDs)
		}
		l.Advance(Poll{Now: at(30), GPUs: []Reading{{Identity: gpu.Identity{UUID: "GPU-a", PCI: pci}}}})
		l.Event(gpu.XIDEvent{GPU: "GPU-a", XID: 79, Time: at(c.byAddress), Source: gpu.SourceKmsg})
		if l.Fill(&g); len(g.XIDs) != 2 || g.XIDs[0].XID != 31 || g.XIDs[0].Count != 1 {
			t.Fatalf("%s: %+v", c.name, g.XIDs)
		}
		if x := g.XIDs[1]; x.XID != 79 || x.Count != 2 || x.Last != gpu.Some(at(20)) || x.Container != c.current {
			t.Errorf("%s: %+v", c.name, x)
		}
		if len(l.xids) != 1 {
			t.Errorf("%s: the address is remembered: %v", c.name, l.xids)
		}
		// Later reports that have the address alone, or the address as the UUID, are the GPU's.
		l.Event(gpu.XIDEvent{PCI: pci, XID: 31, Time: at(50), Source: gpu.SourceKmsg})
		l.Event(gpu.XIDEvent{GPU: pci, PCI: pci, XID: 31, Time: at(60), Source: gpu.SourceKmsg})
		l.Event(gpu.XIDEvent{GPU: "GPU-b", PCI: pci, XID: 31, Time: at(70), Source: gpu.SourceKmsg}) // the one that was there before
		if l.Fill(&g); g.XIDs[0].Count != 3 {
			t.Errorf("%s: %+v", c.name, g.XIDs)
		}
	}
}
