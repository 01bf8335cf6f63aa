package hwcheck

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-exporter/gpu-exporter/internal/nvml/calls"
)

var errNoRing = errors.New("the driver has no ring of GPU utilization here")

// fields32 are the value types of 32 bits.
var fields32 = []nvml.ValueType{nvml.VALUE_TYPE_UNSIGNED_INT, nvml.VALUE_TYPE_SIGNED_INT}

// pairs calls f with both answers of each field and scope.
func (p *probed) pairs(f func(first, second fieldAnswer) bool) (n int, which string) {
	type key struct{ id, scope uint32 }
	first := map[key]fieldAnswer{}
	var names []string
	for _, a := range p.Fields {
		k := key{a.ID, a.Scope}
		if a.Round == 0 {
			first[k] = a
		} else if f(first[k], a) {
			names = append(names, fmt.Sprintf("%d (scope %d)", a.ID, int32(a.Scope)))
		}
	}
	return len(names), strings.Join(names[:min(len(names), 20)], ", ")
}

func (p *probed) changed() (int, string) {
	return p.pairs(func(a, b fieldAnswer) bool { return a.Code != b.Code || a.Type != b.Type })
}

func (p *probed) timeless() (int, string) {
	return p.pairs(func(_, b fieldAnswer) bool { return b.Code == nvml.SUCCESS && b.Time == 0 })
}

func (p *probed) decreased() (int, string) {
	counters := map[uint32]bool{}
	for _, f := range calls.Fields {
		if f.Reading.Kind == calls.Counter {
			counters[f.ID] = true
		}
	}
	return p.pairs(func(a, b fieldAnswer) bool {
		return a.Code == nvml.SUCCESS && b.Code == nvml.SUCCESS && counters[a.ID] && b.Raw < a.Raw &&
			!slices.Contains(fields32, a.Type)
	})
}

// otherTypes are the fields of the table whose type is another than the table has.
func (p *probed) otherTypes() (int, string) {
	return p.pairs(func(_, b fieldAnswer) bool {
		t, ok := calls.TypeOf(b.ID)
		return b.Code == nvml.SUCCESS && ok && uint32(b.Type) != t.Value
	})
}

func ringGap(p *period) (float64, error) {
	ring := p.probe.Ring
	if len(ring) < 2 {
		return 0, errNoRing
	}
	longest := uint64(0)
	for i := 1; i < len(ring); i++ {
		longest = max(longest, ring[i].Time-ring[i-1].Time)
	}
	period := ringPeriod(ring)
	p.remark(fmt.Sprintf("%d samples, one each %.4g s", len(ring), period))
	return float64(longest) / 1e6 / period, nil
}

func ringSpan(p *period) (float64, error) {
	if len(p.probe.Ring) < 2 {
		return 0, errNoRing
	}
	return float64(len(p.probe.Ring)) * ringPeriod(p.probe.Ring), nil
}

// ringMean is the mean of the ring, a share of time.
func ringMean(p *period) (float64, error) {
	if len(p.probe.Ring) < 2 {
		return 0, errNoRing
	}
	sum, values := 0.0, map[uint64]int{}
	for _, s := range p.probe.Ring {
		sum += float64(s.Value)
		values[s.Value]++
	}
	p.remark(fmt.Sprintf("samples by value: %v", values))
	return sum / float64(len(p.probe.Ring)) / 100, nil
}

// busyOf is the busy time of the processes of a read: their means are over the time since the read before.
func (r processRead) busyOf() (busy float64) {
	newest := r.From
	for _, s := range r.Samples {
		newest = max(newest, s.Time)
	}
	for _, s := range r.Samples {
		busy += float64(s.SM) / 100 * float64(newest-r.From) / 1e6
	}
	return busy
}

// holds reports whether the ring holds all samples of a window.
func (p *probed) holds(window float64) bool { return float64(len(p.Ring))*ringPeriod(p.Ring) > window }

// explained is the busy time of processes by that of the ring, over all reads.
func explained(p *period) (float64, error) {
	ring, processes, without := 0.0, 0.0, 0
	for _, r := range p.probe.Reads {
		if !p.probe.holds(r.Window) {
			continue
		}
		ring, processes = ring+r.Ring, processes+r.busyOf()
		if r.Ring > 0 && len(r.Samples) == 0 {
			without++
		}
	}
	if ring == 0 {
		return 0, errNoRing
	}
	p.remark(fmt.Sprintf("reads: %d, busy and without a PID: %d", len(p.probe.Reads), without))
	return processes / ring, nil
}

// windowRatio is the largest ratio of the processes' busy time to the ring's over one window.
func windowRatio(p *period) (float64, error) {
	worst, remarks := math.Inf(-1), []string{}
	for _, w := range windows {
		ring, processes, reads, samples := 0.0, 0.0, 0, 0
		for _, r := range p.probe.Reads {
			if r.Window == w && p.probe.holds(w) {
				ring, processes, reads, samples = ring+r.Ring, processes+r.busyOf(), reads+1, samples+len(r.Samples)
			}
		}
		if ring > 0 {
			worst = max(worst, processes/ring)
			remarks = append(remarks, fmt.Sprintf("%g s: %.3g (%.2g samples per read)", w, processes/ring,
				float64(samples)/float64(reads)))
		}
	}
	if len(remarks) == 0 {
		return 0, errNoRing
	}
	p.remark(strings.Join(remarks, ", "))
	return worst, nil
}

// The rings of recent drivers, on which the time between two reads rests.
const (
	ringDepth  = 72
	ringMillis = 200
)

// worstRing returns the value of a ring that differs most from the expected one, and remarks all.
func worstRing(expected float64, of func(ring []ringSample) float64) func(p *period) (float64, error) {
	return func(p *period) (float64, error) {
		if len(p.probe.Rings["GPU"]) < 2 {
			return 0, errNoRing
		}
		worst, remarks := expected, []string{}
		for _, name := range slices.Sorted(maps.Keys(p.probe.Rings)) {
			v := of(p.probe.Rings[name])
			if remarks = append(remarks, fmt.Sprintf("%s: %.4g", name, v)); math.Abs(v-expected) > math.Abs(worst-expected) {
				worst = v
			}
		}
		p.remark(strings.Join(remarks, ", "))
		return worst, nil
	}
}

// ringClaims are about what the sample rings hold; a driver of another depth or period is read right, but seldom or often.
func ringClaims() []claim {
	return []claim{
		{name: "sample rings: samples", stage: stageRings, against: "samples of each ring", bound: exactly,
			because: "the time between two reads follows from it", expected: is(ringDepth),
			measured: worstRing(ringDepth, func(ring []ringSample) float64 { return float64(len(ring)) })},
		{name: "sample rings: milliseconds", stage: stageRings, against: "median between two samples of each ring",
			bound: exactly, tolerance: 10, because: "the driver's timer", expected: is(ringMillis),
			measured: worstRing(ringMillis, func(ring []ringSample) float64 { return 1e3 * ringPeriod(ring) })},
		{name: "sample ring: a longer buffer", stage: stageRings, against: "samples of a buffer of the ring's size",
			bound: exactly, tolerance: 1, because: "one sample may come between", measured: func(p *period) (float64, error) {
				if len(p.probe.Rings["GPU"]) < 2 {
					return 0, errNoRing
				}
				return float64(len(p.probe.Long)), nil
			}, expected: func(p *period) (float64, error) { return float64(len(p.probe.Rings["GPU"])), nil }},
		{name: "samples of a process: seconds covered", stage: stageLoad, against: "since the read before", bound: exactly,
			tolerance: 0.25, because: "one sample of the ring at each end", expected: is(1), measured: covered},
	}
}

// covered is the time that a process sample covers, by its value and what the ring has, as a multiple of the time since the
// read before.
func covered(p *period) (float64, error) {
	ring, processes := 0.0, 0.0
	for _, r := range p.probe.Reads {
		if r.Window >= 1 && p.probe.holds(r.Window) && len(r.Samples) > 0 {
			ring, processes = ring+r.Ring, processes+r.busyOf()
		}
	}
	if processes == 0 {
		return 0, errNoRing
	}
	return ring / processes, nil
}
