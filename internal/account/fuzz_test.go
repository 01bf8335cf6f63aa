package account

import (
	"math"
	"reflect"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/internal/testkit"
)

// FuzzFilter: what passes is what hardware may show, what does not is counted, and nothing is sieved out twice.
func FuzzFilter(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte("\x02\x10\x02\x20\x02\x30\x02\x40\x02\x50\x02\x60\x02\x70\x02\x80\x02\x90"))
	f.Add([]byte("\x00\x00\x00\x00\x00\x00\x00\xf8\x7f\x00\x00\x00\x00\x00\x00\x00\xf0\x7f\x01\xff\xff\xff\xff\xff\xff\xff\xff\x02\x01"))
	f.Fuzz(func(t *testing.T, data []byte) {
		in := testkit.Tape(data)
		ratio := func() gpu.Opt[gpu.Ratio] { return gpu.Some(gpu.Ratio(in.Float())) }
		watts := func() gpu.Opt[gpu.Watts] { return gpu.Some(gpu.Watts(in.Float())) }
		memory := func() gpu.Opt[gpu.Memory] {
			return gpu.Some(gpu.Memory{Total: gpu.Bytes(in.Word()), Used: gpu.Bytes(in.Word()), Free: gpu.Bytes(in.Word()),
				Reserved: gpu.Some(gpu.Bytes(in.Word()))})
		}
		gpm := func() gpu.Opt[gpu.GPM] {
			return gpu.Some(gpu.GPM{Window: time.Duration(in.Word()), SMActive: ratio(), TensorActive: ratio(), DRAMActive: ratio()})
		}
		integer := func() gpu.Opt[int] { return gpu.Some(int(in.Word())) }
		fast := gpu.Fast{Power: watts(), PowerInstant: watts(), Energy: gpu.Some(gpu.Joules(in.Float())),
			MemoryTemperature: gpu.Some(gpu.Celsius(in.Float())),
			Limited: map[gpu.LimitReason]gpu.Seconds{gpu.LimitReason("a"): gpu.Seconds(in.Float()),
				gpu.LimitReason("b"): gpu.Seconds(in.Float())},
			Utilization: gpu.Some(gpu.Utilization{GPU: gpu.Ratio(in.Float()), Memory: gpu.Ratio(in.Float())}),
			Processes: gpu.Some([]gpu.ProcessSample{{PID: int(int32(in.Word())), SM: in.Float(), Memory: in.Float()},
				{PID: 7, SM: in.Float()}}),
			GPM: gpm(), Instances: []gpu.InstanceFast{{UUID: "MIG-1", GPM: gpm()}}}
		medium := gpu.Medium{Memory: memory(), BAR1: gpu.Some(gpu.BAR1{Total: gpu.Bytes(in.Word()), Used: gpu.Bytes(in.Word())}),
			Temperature: gpu.Some(gpu.Celsius(in.Float())),
			Fans:        []gpu.Opt[gpu.Ratio]{ratio(), ratio()}, Clocks: map[gpu.Clock]gpu.Hertz{gpu.Clock("sm"): gpu.Hertz(in.Float())},
			PState:    integer(),
			Processes: gpu.Some([]gpu.Process{{PID: int(int32(in.Word())), Memory: gpu.Some(gpu.Bytes(in.Word()))}}),
			Instances: []gpu.InstanceMedium{{UUID: "MIG-1", Memory: memory()}}}
		slow := gpu.Slow{PowerLimit: watts(), PowerLimitMax: watts(),
			TemperatureLimits: []gpu.TemperatureThreshold{{Value: gpu.Celsius(in.Float())}},
			MaxClocks:         map[gpu.Clock]gpu.Hertz{gpu.Clock("sm"): gpu.Hertz(in.Float())},
			PCIe:              gpu.PCIeLink{Generation: integer(), Width: integer(), MaxGeneration: integer(), MaxWidth: integer()},
			Instances:         []gpu.Instance{{UUID: "MIG-1", Share: ratio()}}}

		var s, again Filter
		s.Fast(&fast)
		s.Medium(&medium)
		s.Slow(&slow)
		before := [3]any{fast, medium, slow}
		again.Fast(&fast)
		again.Medium(&medium)
		again.Slow(&slow)
		if n := again.Counts(); len(n) > 0 || !reflect.DeepEqual(before, [3]any{fast, medium, slow}) {
			t.Errorf("the second time it takes out %v", n)
		}
		check := func(what string, v, low, high float64) {
			if !(v >= low && v <= high) {
				t.Errorf("%s: %v passed", what, v)
			}
		}
		for _, w := range []gpu.Opt[gpu.Watts]{fast.Power, fast.PowerInstant, slow.PowerLimit, slow.PowerLimitMax} {
			check("power", float64(w.Or(0)), 0, 1e4)
		}
		check("energy", float64(fast.Energy.Or(0)), 0, math.MaxFloat64)
		for _, c := range []gpu.Opt[gpu.Celsius]{fast.MemoryTemperature, medium.Temperature} {
			check("temperature", float64(c.Or(0)), -50, 200)
		}
		for _, l := range slow.TemperatureLimits {
			check("limit", float64(l.Value), -50, 200)
		}
		u := fast.Utilization.Or(gpu.Utilization{})
		check("utilization", float64(u.GPU), 0, 1)
		check("utilization", float64(u.Memory), 0, 1)
		for _, p := range fast.Processes.Or(nil) {
			check("process", p.SM, 0, 100)
			check("process", float64(p.PID), 1, math.MaxInt32)
		}
		for _, g := range []gpu.Opt[gpu.GPM]{fast.GPM, fast.Instances[0].GPM} {
			if g, ok := g.Get(); ok {
				check("window", float64(g.Window), 1, math.MaxInt64)
				check("activity", float64(g.SMActive.Or(0)), 0, 1)
				check("activity", float64(g.DRAMActive.Or(0)), 0, 1)
			}
		}
		for _, m := range []gpu.Opt[gpu.Memory]{medium.Memory, medium.Instances[0].Memory} {
			if m, ok := m.Get(); ok && (m.Total == 0 || m.Used > m.Total || m.Free > m.Total) {
				t.Errorf("memory: %+v passed", m)
			}
		}
		for _, f := range medium.Fans {
			check("fan", float64(f.Or(0)), 0, 2)
		}
		check("state", float64(medium.PState.Or(0)), 0, 15)
		check("share", float64(slow.Instances[0].Share.Or(0)), 0, 1)
		check("lanes", float64(slow.PCIe.Width.Or(1)), 1, 64)
	})
}

// FuzzXIDBook: of what two sources tell, each event counts once: at least as many as the one that heard most, at most as
// many as both together.
func FuzzXIDBook(f *testing.F) {
	f.Add([]byte{0, 10, 1, 0, 1, 11})
	f.Add([]byte{0, 10, 0, 10, 0, 10, 1, 30, 1, 30, 1, 1, 2, 200})
	f.Fuzz(func(t *testing.T, data []byte) {
		in := testkit.Tape(data)
		b := &xidCounts{codes: map[int]*xidCode{}}
		sources := []string{gpu.SourceEvents, gpu.SourceKmsg}
		reported := map[int][2]uint64{}
		now := epoch
		for range 300 {
			if len(in) == 0 {
				break
			}
			kind := in.Byte()
			at := now.Add(time.Duration(int8(in.Byte())) * 50 * time.Millisecond)
			if at.After(now) {
				now = at
			}
			source, xid := int(kind&1), []int{79, 31, 1000, -1}[kind>>1&3]
			old := kind>>3&7 == 7
			b.add(gpu.XIDEvent{XID: xid, Time: at, Source: sources[source], Old: old})
			if !old && xid > 0 {
				n := reported[xid]
				n[source]++
				reported[xid] = n
			}
		}
		for _, x := range b.publish(epoch, true, true) {
			n := reported[x.XID]
			if x.Count < max(n[0], n[1]) || x.Count > n[0]+n[1] {
				t.Errorf("XID %d counts %d; the sources told %v", x.XID, x.Count, n)
			}
		}
	})
}
