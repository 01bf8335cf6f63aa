package recording

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/nvml/journal"
	"github.com/gpu-exporter/gpu-exporter/internal/standin/scenario"
)

// The kinds of NVML's rings of samples that are read.
const (
	ringGPU    = 1
	ringMemory = 2
)

// ringLog is what a ring of samples contained over the journal.
type ringLog struct {
	code    string // of the last call; NOT_FOUND and NO_DATA are a ring with nothing new
	sizing  int    // the largest answer
	entries int    // of the first answer
	period  uint64 // microseconds between samples; 0: not seen
	boot    bool   // times count from boot
	gaps    bool   // it stops while the GPU is idle
	filling bool   // it had more entries at the end than at the beginning
	last    uint64 // the newest sample
	// sum and time make the mean since the first reading, in percent and in microseconds.
	sum, time float64
	absurd    *float64 // a value that is no percentage
}

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
	var steps []uint64
	previous, valid := l.last, 0
	for _, s := range samples {
		if s.Time == 0 || s.Time <= previous {
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

// exists reports whether a code is that of a driver that has the buffer at all.
func exists(code string) bool {
	return slices.Contains([]string{"SUCCESS", "NOT_FOUND", "NO_DATA", "INSUFFICIENT_SIZE"}, code)
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

// process is an entry of a process list.
type process struct {
	pid    uint32
	kind   string
	memory uint64
	gi, ci int // -1: the GPU itself
}

var processLists = []struct{ key, kind string }{{"ComputeRunningProcesses", "compute"}, {"GraphicsRunningProcesses", "graphics"},
	{"MPSComputeRunningProcesses", "mps"}}

// processes are those of the GPU's lists, or of its MIG devices' where those were read instead.
func (d *device) processes() []process {
	var list []process
	codes := map[string]journal.Line{}
	read := func(gi, ci int, args ...int64) (found bool) {
		for _, l := range processLists {
			line := d.last(l.key, args...)
			if line.Code == "" {
				continue
			}
			found = true
			codes[l.key] = line
			var infos []struct {
				Pid, GpuInstanceId, ComputeInstanceId uint32
				UsedGpuMemory                         uint64
			}
			decode(line, &infos)
			for _, info := range infos {
				p := process{pid: info.Pid, kind: l.kind, memory: info.UsedGpuMemory, gi: gi, ci: ci}
				if info.GpuInstanceId != math.MaxUint32 {
					p.gi, p.ci = int(info.GpuInstanceId), max(0, int(int32(info.ComputeInstanceId)))
				}
				if !slices.Contains(list, p) {
					list = append(list, p)
				}
			}
		}
		return found
	}
	perDevice := false
	for _, m := range d.mig {
		perDevice = read(m.gi, m.ci, int64(m.index)) || perDevice
	}
	if perDevice {
		d.note("The GPU's own list of processes was closed, or named no instances: its MIG devices were read one by one.")
	} else {
		read(-1, -1)
	}
	for _, l := range processLists {
		d.refuse(l.key, codes[l.key])
	}
	const limit = 200
	if len(list) > limit {
		slices.SortStableFunc(list, func(a, b process) int { return int(min(1, max(-1, int64(b.memory>>20)-int64(a.memory>>20)))) })
		d.note(fmt.Sprintf("%d processes were listed; the %d with most memory are included.", len(list), limit))
		list = list[:limit]
	}
	return list
}

// share is how much of the time somebody was busy: a part of 1.
type share struct {
	pid    uint32
	part   float64
	gi, ci int
}

// writeProcesses writes processes and loads: who is there, their memory, and which part of the time they were busy,
// one after the other within a second, so that together they keep the GPU as busy as it was.
func (d *device) writeProcesses(dram float64) {
	list := d.processes()
	var shares []share
	if len(d.mig) > 0 {
		shares, dram = d.instanceShares(list), 0.4
		d.writeInstanceRest(list)
	} else {
		shares = d.gpuShares(list)
	}
	offset := map[int]float64{}
	busy := func(part float64, gi int) string {
		text := " busy=" + percent(part) + " period=1s"
		if at := offset[gi]; at > 0 && part > 0 {
			text += fmt.Sprintf(" phase=%v", time.Duration(at*1e9+0.5))
		}
		offset[gi] += part
		return text + " dram=" + percent(dram)
	}
	place := func(gi, ci int) string {
		if gi < 0 {
			return ""
		}
		return fmt.Sprintf(" gi=%d ci=%d", gi, ci)
	}
	written := make([]bool, len(shares))
	for _, p := range list {
		if p.pid == 0 || p.pid > 1<<30 {
			continue
		}
		part := 0.0
		for i, s := range shares {
			if !written[i] && s.pid == p.pid && s.gi == p.gi && s.ci == p.ci {
				part, written[i] = s.part, true
			}
		}
		memory := "na"
		if p.memory != math.MaxUint64 {
			memory = scenario.Integer(min(p.memory, 1<<50))
		}
		d.say("process gpu=%d pid=%d kind=%s memory=%s%s%s", d.index, p.pid, p.kind, memory, place(p.gi, p.ci), busy(part, p.gi))
	}
	for i, s := range shares {
		if written[i] || s.part <= 0 {
			continue
		}
		who := ""
		if s.pid != 0 {
			who = fmt.Sprintf(" pid=%d", s.pid)
		}
		d.say("load gpu=%d%s%s%s", d.index, who, place(s.gi, s.ci), busy(s.part, s.gi))
	}
}

func percent(part float64) string {
	return strconv.FormatFloat(math.Round(min(1, max(0, part))*1e5)/1e3, 'f', -1, 64) + "%"
}

// gpuShares divides the busy part of a GPU that is not in MIG mode among the processes with utilization samples. The
// rest is a share without a process.
func (d *device) gpuShares(list []process) []share {
	busy, work := d.busy.mean(), d.work()
	var shares []share
	sum := 0.0
	for pid, percent := range work.work {
		if part := percent / work.reads / 100; part > 0 {
			shares = append(shares, share{pid: pid, part: part, gi: -1, ci: -1})
			sum += part
		}
	}
	slices.SortFunc(shares, func(a, b share) int { return int(int64(a.pid) - int64(b.pid)) })
	if !exists(d.busy.code) {
		busy = min(1, sum)
	}
	users := map[uint32]bool{}
	for _, p := range list {
		users[p.pid] = true
	}
	switch rest := busy - sum; {
	case busy <= 0:
		return nil
	case sum == 0 && len(users) == 1 && !exists(work.code):
		return []share{{pid: list[0].pid, part: busy, gi: -1, ci: -1}}
	case rest > max(0.03, 0.15*busy):
		return append(shares, share{part: rest, gi: -1, ci: -1})
	}
	for i := range shares {
		shares[i].part *= busy / sum
	}
	return shares
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
		v = scenario.Numbers("100*util", "100*memutil").Noted(fmt.Sprintf("it was %d and %d; %s and %s on average over %s",
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
		d.draft.Answers.Set("ProcessUtilization", scenario.Numbers(scenario.Integer(s.SmUtil), scenario.Integer(s.MemUtil),
			scenario.Integer(s.EncUtil), scenario.Integer(s.DecUtil)))
	}
	if busy := d.busy.mean(); busy > 0 {
		return min(1, memory.mean()/busy)
	}
	return 0
}
