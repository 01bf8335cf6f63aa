package recording

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/gpu-exporter/gpu-exporter/internal/nvml/journal"
	"github.com/gpu-exporter/gpu-exporter/internal/standin/scenario"
)

// The kinds of NVML's rings of samples that are read.
const (
	ringGPU    = 1
	ringMemory = 2
)

// idlePeriod is how often drivers are known to sample, where the ring is empty, in microseconds.
const idlePeriod = 166667

func (d *device) ring(kind int64) *ringLog {
	l := &ringLog{}
	for _, line := range d.calls["nvmlDeviceGetSamples"] {
		if len(line.Args) != 2 || line.Args[0] != kind {
			continue
		}
		if line.Args[1] == 0 && l.last != 0 { // the whole ring once more
			again := ringLog{}
			again.read(line)
			l.filling = again.entries > l.entries
			continue
		}
		l.read(line)
	}
	return l
}

// read takes what is new in the ring.
func (l *ringLog) read(line journal.Line) {
	l.code = line.Code
	var samples []journal.Sample
	if !decode(line, &samples) {
		return
	}
	seeding := l.last == 0
	l.sizing = max(l.sizing, len(samples))
	byTime := func(a, b journal.Sample) int { return cmp.Compare(a.Time, b.Time) }
	filled := slices.DeleteFunc(slices.Clone(samples), func(s journal.Sample) bool { return s.Time == 0 })
	l.slots = l.slots || !slices.IsSortedFunc(filled, byTime)
	slices.SortStableFunc(filled, byTime)
	var steps []uint64
	previous, valid := l.last, 0
	for _, s := range filled {
		if s.Time <= previous {
			continue
		}
		valid++
		v := s.Value
		if v < 0 || v > 100 {
			l.absurd, v = &s.Value, 0
		}
		if step := s.Time - previous; previous > 0 {
			steps = append(steps, step)
			if !seeding {
				if l.period > 0 && step > 2*l.period { // nothing was sampled meanwhile: the GPU was idle
					l.gaps = true
					l.time += float64(step - l.period)
					step = l.period
				}
				l.sum += v * float64(step)
				l.time += float64(step)
			}
		}
		previous = s.Time
	}
	l.last = previous
	l.boot = previous > 0 && previous < 1e15 // microseconds: 2001 in the one reading, 31 years in the other
	if seeding {
		l.entries = valid
	}
	if len(steps) > 0 && l.period == 0 {
		slices.Sort(steps)
		l.period = steps[len(steps)/2]
		l.gaps = l.gaps || steps[len(steps)-1] > 2*l.period
	}
}

// mean is the busy share of the time that the journal covers.
func (l *ringLog) mean() float64 {
	if l.time <= 0 {
		return 0
	}
	return min(1, l.sum/l.time/100)
}

// statement is the ring as a scenario has it.
func (l *ringLog) statement() string {
	period, entries := l.period, l.entries
	if period == 0 {
		period = idlePeriod
	}
	if entries < 2 || l.gaps || l.filling { // it was not full
		entries = l.sizing
	}
	if entries == 0 {
		entries = 72
	}
	period, entries = max(period, 1000), min(entries, 1024)
	text := fmt.Sprintf("ring period=%dus entries=%d", period, entries)
	if l.sizing > 0 && l.sizing != entries {
		text += fmt.Sprintf(" sizing=%d", min(l.sizing, 1024))
	}
	if l.boot {
		text += " clock=boot"
	}
	if l.slots {
		text += " order=slot"
	}
	if l.gaps || l.last == 0 {
		text += " idle=stop"
	}
	return text
}

// workSample is NVML's structure of the same members.
type workSample struct{ Pid, SmUtil, MemUtil, EncUtil, DecUtil uint32 }

// workLog is the utilization of processes over the journal.
type workLog struct {
	code   string
	work   map[uint32]float64 // percent times readings
	reads  float64
	absurd *workSample
}

func (d *device) work() *workLog {
	l := &workLog{work: map[uint32]float64{}}
	for i, line := range d.calls["nvmlDeviceGetProcessUtilization"] {
		l.code = line.Code
		if i > 0 { // the first answer covers all that the driver remembers
			l.reads++
		}
		var samples []workSample
		decode(line, &samples)
		for _, s := range samples {
			switch {
			case s.SmUtil > 100:
				l.absurd = &s
			case i > 0:
				l.work[s.Pid] += float64(s.SmUtil)
			}
		}
	}
	return l
}

// writeActivity writes rings and utilization, and returns the part of its busy time in which the GPU's memory was
// read or written.
func (d *device) writeActivity() (dram float64) {
	d.busy = d.ring(ringGPU)
	memory, work := d.ring(ringMemory), d.work()
	line := d.last("UtilizationRates")
	v := value("UtilizationRates", line)
	var rates struct{ Gpu, Memory uint32 }
	if decode(line, &rates) && exists(d.busy.code) && rates.Gpu <= 100 && rates.Memory <= 100 {
		// As a sum it follows the load.
		v = scenario.Numbers("100*util", "100*memutil").Noted(
			fmt.Sprintf("it was %d and %d; %s and %s on average over %s",
				rates.Gpu, rates.Memory, percent(d.busy.mean()), percent(memory.mean()), seconds(d.seconds)))
	}
	if line.Code != "" {
		d.draft.Answers.Set("UtilizationRates", v)
	}
	switch {
	case exists(d.busy.code):
		d.draft.Lines = append(d.draft.Lines, d.busy.statement())
	case exists(memory.code):
		d.draft.Lines = append(d.draft.Lines, memory.statement())
	case exists(work.code):
		d.draft.Lines = append(d.draft.Lines, (&ringLog{}).statement())
	}
	for kind, l := range map[int64]*ringLog{ringGPU: d.busy, ringMemory: memory} {
		switch {
		case !exists(l.code):
			d.refuse("Samples", journal.Line{Code: l.code}, kind)
		case l.absurd != nil:
			d.draft.Answers.Set("Samples", scenario.Numbers(scenario.Integer(uint64(max(0, *l.absurd)))), kind)
		}
	}
	switch s := work.absurd; {
	case !exists(work.code):
		d.refuse("ProcessUtilization", journal.Line{Code: work.code})
	case s != nil:
		d.draft.Answers.Set("ProcessUtilization",
			scenario.Numbers(scenario.Integer(s.SmUtil), scenario.Integer(s.MemUtil),
				scenario.Integer(s.EncUtil), scenario.Integer(s.DecUtil)))
	}
	if busy := d.busy.mean(); busy > 0 {
		return min(1, memory.mean()/busy)
	}
	return 0
}
