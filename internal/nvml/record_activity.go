package nvml

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-exporter/gpu-exporter/internal/standin/scenario"
)

// ringLog is what a driver's ring of samples showed while it was watched.
type ringLog struct {
	code    nvml.Return // of the last call; NOT_FOUND and NO_DATA are a ring with nothing new
	sizing  int         // what the driver says that it may hold
	entries int         // what it held
	period  uint64      // microseconds between samples; 0: not seen
	boot    bool        // times count from boot
	gaps    bool        // it stops while the GPU is idle
	filling bool        // it held more at the end than at the beginning
	last    uint64      // the newest sample
	// sum and time make the mean since the first reading, in percent and in microseconds.
	sum, time float64
	absurd    *float64 // a value that is no percentage
}

// idlePeriod is how often drivers are known to sample, where the ring is empty and does not tell.
const idlePeriod = 166667

// read takes what is new in the ring.
func (l *ringLog) read(r *GPURecorder, kind nvml.SamplingType) {
	var of nvml.ValueType
	var samples []nvml.Sample
	seeding := l.last == 0
	l.code = r.see(r.dev.call(callSamples, func() (ret nvml.Return) {
		of, samples, ret = r.dev.handle().GetSamples(kind, l.last)
		return ret
	}))
	if l.code != nvml.SUCCESS {
		return
	}
	l.sizing = max(l.sizing, len(samples))
	var steps []uint64
	held := 0
	previous := l.last
	for _, s := range samples {
		v, ok := value{kind: of, raw: s.SampleValue}.number()
		if !ok || s.TimeStamp == 0 || s.TimeStamp <= previous {
			continue
		}
		held++
		if v < 0 || v > 100 {
			odd := v
			l.absurd, v = &odd, 0
		}
		step := s.TimeStamp - previous
		if previous > 0 {
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
		previous = s.TimeStamp
	}
	l.last = previous
	l.boot = previous > 0 && previous < 1e15 // microseconds: 2001 in the one reading, 31 years in the other
	if seeding {
		l.entries = held
	}
	if len(steps) > 0 && l.period == 0 {
		slices.Sort(steps)
		l.period = steps[len(steps)/2]
		l.gaps = l.gaps || steps[len(steps)-1] > 2*l.period
	}
}

// measure reads the whole ring once more, to see whether it was full.
func (l *ringLog) measure(r *GPURecorder, kind nvml.SamplingType) {
	if l.last == 0 {
		return
	}
	again := ringLog{}
	again.read(r, kind)
	l.filling = again.entries > l.entries
}

// exists reports whether the driver keeps the ring at all.
func (l *ringLog) exists() bool {
	return l.code == nvml.SUCCESS || l.code == nvml.ERROR_NOT_FOUND || l.code == nvml.ERROR_NO_DATA
}

// mean is the busy part of the time in which the ring was watched.
func (l *ringLog) mean() float64 {
	if l.time <= 0 {
		return 0
	}
	return min(1, l.sum/l.time/100)
}

// statement is the ring as a scenario has it.
func (l *ringLog) statement() string {
	if !l.exists() {
		return ""
	}
	period, entries := l.period, l.entries
	if period == 0 {
		period = idlePeriod
	}
	if entries < 2 || l.gaps || l.filling { // it was not full, so its size is what the driver says it may hold
		entries = l.sizing
	}
	if entries == 0 {
		entries = 72
	}
	period = max(period, 1000)
	entries = min(entries, 1024)
	text := fmt.Sprintf("ring period=%dus entries=%d", period, entries)
	if l.sizing > 0 && l.sizing != entries {
		text += fmt.Sprintf(" sizing=%d", min(l.sizing, 1024))
	}
	if l.boot {
		text += " clock=boot"
	}
	if l.gaps || l.last == 0 { // nothing at all was sampled
		text += " idle=stop"
	}
	return text
}

// workLog is what the driver said of processes while they were watched.
type workLog struct {
	code   nvml.Return
	last   uint64
	seeded bool
	work   map[uint32]float64 // percent times readings
	reads  float64
	absurd *nvml.ProcessUtilizationSample
}

func (l *workLog) read(r *GPURecorder) {
	var samples []nvml.ProcessUtilizationSample
	l.code = r.see(r.dev.call(callProcessUtilization, func() (ret nvml.Return) {
		defer func() {
			if recover() != nil { // go-nvml, where the list grew between its two calls
				samples, ret = nil, nvml.ERROR_NOT_FOUND
			}
		}()
		samples, ret = r.dev.handle().GetProcessUtilization(l.last)
		return ret
	}))
	if l.code != nvml.SUCCESS {
		samples = nil
	}
	if l.seeded {
		l.reads++
	}
	for _, s := range samples {
		if s.SmUtil > 100 {
			l.absurd = &s
			continue
		}
		l.last = max(l.last, s.TimeStamp)
		if l.seeded { // the first answer is about all that the driver remembers
			if l.work == nil {
				l.work = map[uint32]float64{}
			}
			l.work[s.Pid] += float64(s.SmUtil)
		}
	}
	l.seeded = true
}

// exists reports whether the driver tells of processes at all.
func (l *workLog) exists() bool {
	return l.code == nvml.SUCCESS || l.code == nvml.ERROR_NOT_FOUND || l.code == nvml.ERROR_NO_DATA || l.code == nvml.ERROR_INSUFFICIENT_SIZE
}

// held is a process as a list showed it.
type held struct {
	pid    uint32
	kind   string
	memory uint64
	gi, ci int // -1: the GPU itself
}

// readHeld reads the lists of processes. Under MIG the GPU's may be closed to us, or place nobody: then each
// MIG device is asked.
func (r *GPURecorder) readHeld() []held {
	list, placed, codes := r.listHeld(r.dev.handle(), -1, -1)
	closed := slices.Contains(codes[:], nvml.ERROR_NO_PERMISSION)
	if len(r.mig) > 0 && (closed || !placed) {
		r.note("The GPU's own list of processes was closed, or named no instances: its MIG devices were asked one by one.")
		list = nil
		for _, d := range r.mig {
			more, _, deviceCodes := r.listHeld(d.handle, d.gi, d.ci)
			codes = deviceCodes
			for _, p := range more {
				if !slices.Contains(list, p) {
					list = append(list, p)
				}
			}
		}
	}
	for i, key := range []string{"ComputeRunningProcesses", "GraphicsRunningProcesses", "MPSComputeRunningProcesses"} {
		if codes[i] != nvml.SUCCESS {
			r.set(key, scenario.Value{}, codes[i])
		}
	}
	const most = 200
	if len(list) > most {
		slices.SortStableFunc(list, func(a, b held) int { return int(min(1, max(-1, int64(b.memory>>20)-int64(a.memory>>20)))) })
		r.note(fmt.Sprintf("%d processes were listed; the %d that hold most memory are here.", len(list), most))
		list = list[:most]
	}
	return list
}

func (r *GPURecorder) listHeld(handle nvml.Device, gi, ci int) (list []held, placed bool, codes [3]nvml.Return) {
	placed = true
	for i, l := range processLists {
		infos, ret := get(r.dev, l.id, func() ([]nvml.ProcessInfo, nvml.Return) { return l.method(handle) })
		codes[i] = r.see(ret)
		if ret != nvml.SUCCESS {
			continue
		}
		for _, info := range infos {
			p := held{pid: info.Pid, kind: string(l.kind), memory: info.UsedGpuMemory, gi: gi, ci: ci}
			if info.GpuInstanceId != unknownInstance {
				p.gi, p.ci = int(info.GpuInstanceId), max(0, int(int32(info.ComputeInstanceId)))
			}
			placed = placed && p.gi >= 0
			list = append(list, p)
		}
	}
	return list, placed, codes
}

// share is how much of the time somebody worked: a part of 1.
type share struct {
	pid    uint32
	part   float64
	gi, ci int
}

// demands writes processes and loads: who is there, what they hold, and which part of the time they worked,
// one after the other within a second, so that together they keep the GPU as busy as it was.
func (r *GPURecorder) demands(list []held, shares []share, dram float64) {
	index := r.index
	offset := map[int]float64{}
	worked := func(part float64, gi int) string {
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
		if p.pid == 0 || p.pid > 1<<30 {
			continue
		}
		r.say(fmt.Sprintf("process gpu=%d pid=%d kind=%s memory=%s%s%s", index, r.mask.pid(p.pid), p.kind, memory, place(p.gi, p.ci), worked(part, p.gi)))
	}
	for i, s := range shares {
		if written[i] || s.part <= 0 {
			continue
		}
		who := ""
		if s.pid != 0 {
			who = fmt.Sprintf(" pid=%d", r.mask.pid(s.pid))
		}
		r.say(fmt.Sprintf("load gpu=%d%s%s%s", index, who, place(s.gi, s.ci), worked(s.part, s.gi)))
	}
}

func percent(part float64) string {
	return strconv.FormatFloat(math.Round(min(1, max(0, part))*1e5)/1e3, 'f', -1, 64) + "%"
}

// gpuShares divides the busy part of a GPU that is not in MIG mode among those who were seen to work. What
// nobody was seen to do is left as a share without a process.
func (r *GPURecorder) GPUShares(list []held) []share {
	busy := r.busy.mean()
	var shares []share
	sum := 0.0
	if r.work.reads > 0 {
		for pid, work := range r.work.work {
			if part := work / r.work.reads / 100; part > 0 {
				shares = append(shares, share{pid: pid, part: part, gi: -1, ci: -1})
				sum += part
			}
		}
	}
	slices.SortFunc(shares, func(a, b share) int { return int(int64(a.pid) - int64(b.pid)) })
	if !r.busy.exists() {
		busy = min(1, sum)
	}
	users := map[uint32]bool{}
	for _, p := range list {
		users[p.pid] = true
	}
	switch rest := busy - sum; {
	case busy <= 0:
		return nil
	case sum == 0 && len(users) == 1 && !r.work.exists():
		return []share{{pid: list[0].pid, part: busy, gi: -1, ci: -1}}
	case rest > max(0.03, 0.15*busy):
		return append(shares, share{part: rest, gi: -1, ci: -1})
	}
	for i := range shares {
		shares[i].part *= busy / sum
	}
	return shares
}

// gpmLog is the profiling of a GPU, or of one of its GPU instances.
type gpmLog struct {
	gi      int // -1: the GPU
	samples [2]nvml.GpmSample
	code    nvml.Return // of the last sample
	ready   bool
	values  map[uint32]float64
	codes   map[uint32]nvml.Return
}

// beginGPM takes the first sample of the GPU and of each GPU instance.
func (r *GPURecorder) beginGPM() {
	support, ret := get(r.dev, callGPMSupport, r.dev.handle().GpmQueryDeviceSupport)
	r.set("GpmQueryDeviceSupport", scenario.Numbers(scenario.Integer(support.IsSupportedDevice)), ret)
	if ret != nvml.SUCCESS || support.IsSupportedDevice == 0 {
		return
	}
	r.gpm = []*gpmLog{{gi: -1}}
	for _, d := range r.mig {
		if !slices.ContainsFunc(r.gpm, func(l *gpmLog) bool { return l.gi == d.gi }) {
			r.gpm = append(r.gpm, &gpmLog{gi: d.gi})
		}
	}
	for _, l := range r.gpm {
		l.ready = true
		for i := range l.samples {
			s, ret := r.dev.allocateSample()
			if r.see(ret) != nvml.SUCCESS {
				l.ready = false
				r.system("GpmSampleAlloc", scenario.Value{}, ret)
				break
			}
			l.samples[i] = s
		}
		l.ready = l.ready && r.sample(l, 0)
	}
}

// sample takes one of a pair.
func (r *GPURecorder) sample(l *gpmLog, i int) bool {
	if l.gi < 0 {
		l.code = r.dev.call(callGPMSampleGet, func() nvml.Return { return l.samples[i].Get(r.dev.handle()) })
	} else {
		l.code = r.dev.call(callGPMMIGSampleGet, func() nvml.Return { return l.samples[i].MigGet(r.dev.handle(), l.gi) })
	}
	return r.see(l.code) == nvml.SUCCESS
}

// recordSampling writes why samples could not be taken. Of instances there is one line for all, so it is
// written only where none gave any.
func (r *GPURecorder) recordSampling() {
	refused, given := nvml.SUCCESS, false
	for _, l := range r.gpm {
		switch {
		case l.gi < 0 && l.code != nvml.SUCCESS:
			r.set("GpmSampleGet", scenario.Value{}, l.code)
		case l.gi >= 0 && l.code != nvml.SUCCESS:
			refused = l.code
		case l.gi >= 0:
			given = true
		}
	}
	switch {
	case refused == nvml.SUCCESS:
	case given:
		r.note("some of its instances could not be profiled (" + codeName(refused) + "), which a scenario cannot say of one alone.")
	default:
		r.set("GpmMigSampleGet", scenario.Value{}, refused)
	}
}

// endGPM takes the second samples, asks for the metrics between the pairs, and writes them down.
func (r *GPURecorder) endGPM() {
	for _, l := range r.gpm {
		if !l.ready || !r.sample(l, 1) {
			continue
		}
		request := &nvml.GpmMetricsGetType{Sample1: l.samples[0], Sample2: l.samples[1]}
		for _, m := range gpmMetrics {
			request.Metrics[request.NumMetrics] = nvml.GpmMetric{MetricId: uint32(m.id)}
			request.NumMetrics++
		}
		ret := r.dev.call(callGPMMetricsGet, func() nvml.Return { return r.dev.driver().GpmMetricsGet(request) })
		if r.see(ret) != nvml.SUCCESS {
			r.system("GpmMetricsGet", scenario.Value{}, ret)
			continue
		}
		l.values, l.codes = map[uint32]float64{}, map[uint32]nvml.Return{}
		for i := range request.NumMetrics {
			m := request.Metrics[i]
			l.codes[m.MetricId] = nvml.Return(m.NvmlReturn)
			l.values[m.MetricId] = m.Value
		}
	}
	r.recordSampling()
	r.recordMetrics()
}

// recordMetrics writes the metrics. A GPU has one line for each, whoever is asked: where instances differ,
// the line is the metric's share of the time in which graphics or compute was active, over all of them.
func (r *GPURecorder) recordMetrics() {
	const active = uint32(nvml.GPM_METRIC_GRAPHICS_UTIL)
	for _, m := range gpmMetrics {
		id := uint32(m.id)
		code := nvml.ERROR_NO_DATA
		var values, actives []float64
		for _, l := range r.gpm {
			ret, asked := l.codes[id]
			switch {
			case !asked:
			case ret == nvml.SUCCESS && (math.IsNaN(l.values[id]) || math.IsInf(l.values[id], 0)):
			case ret == nvml.SUCCESS:
				values, actives = append(values, l.values[id]), append(actives, l.values[active])
			default:
				code = ret
			}
		}
		if len(values) == 0 {
			if len(r.gpm) > 0 && r.gpm[0].codes != nil {
				r.set("Gpm", scenario.Value{}, code, int64(id))
			}
			continue
		}
		r.metric = max(r.metric, int(id))
		total, activeTotal := 0.0, 0.0
		for i := range values {
			total += values[i]
			activeTotal += actives[i]
		}
		text, _ := scenario.Real(values[0])
		if slices.Max(values) != slices.Min(values) && activeTotal > 0 {
			ratio, _ := scenario.Real(math.Round(1e5*total/activeTotal) / 1e3)
			text = ratio + "*util"
		}
		r.set("Gpm", scenario.Numbers(text), nvml.SUCCESS, int64(id))
	}
}

// instanceShares are the busy parts of the GPU instances, of which only profiling tells, divided evenly among
// their processes.
func (r *GPURecorder) instanceShares(list []held) []share {
	var shares []share
	told := false
	for _, l := range r.gpm {
		if l.gi < 0 || l.codes == nil || l.codes[uint32(nvml.GPM_METRIC_GRAPHICS_UTIL)] != nvml.SUCCESS {
			continue
		}
		told = true
		part := min(1, max(0, l.values[uint32(nvml.GPM_METRIC_GRAPHICS_UTIL)]/100))
		var users []held
		for _, p := range list {
			if p.gi == l.gi {
				users = append(users, p)
			}
		}
		if part == 0 {
			continue
		}
		if len(users) == 0 {
			shares = append(shares, share{part: part, gi: l.gi, ci: r.firstCI(l.gi)})
		}
		for _, p := range users {
			shares = append(shares, share{pid: p.pid, part: part / float64(len(users)), gi: p.gi, ci: p.ci})
		}
	}
	if !told && len(list) > 0 {
		r.note("How busy its MIG instances were, this GPU does not tell: its processes are written down as idle.")
	}
	return shares
}

func (r *GPURecorder) firstCI(gi int) int {
	for _, d := range r.mig {
		if d.gi == gi {
			return d.ci
		}
	}
	return 0
}

// watch is one look at what is going on.
func (r *GPURecorder) watch() {
	if r.lost() {
		return
	}
	r.busy.read(r, nvml.GPU_UTILIZATION_SAMPLES)
	r.memory.read(r, nvml.MEMORY_UTILIZATION_SAMPLES)
	r.work.read(r)
}

// recordActivity writes rings and utilization down.
func (r *GPURecorder) recordActivity(over time.Duration) {
	rates, ret := get(r.dev, callUtilizationRates, r.dev.handle().GetUtilizationRates)
	raw := scenario.Numbers(scenario.Integer(rates.Gpu), scenario.Integer(rates.Memory))
	if r.see(ret) == nvml.SUCCESS && r.busy.exists() && rates.Gpu <= 100 && rates.Memory <= 100 {
		// As a sum it goes with the load; what the driver said at that moment stands beside it.
		raw = scenario.Numbers("100*util", "100*memutil").Noted(fmt.Sprintf("it said %d and %d; %s and %s on average over %v",
			rates.Gpu, rates.Memory, percent(r.busy.mean()), percent(r.memory.mean()), over))
	}
	r.set("UtilizationRates", raw, ret)
	r.busy.measure(r, nvml.GPU_UTILIZATION_SAMPLES)
	r.memory.measure(r, nvml.MEMORY_UTILIZATION_SAMPLES)
	ring := r.busy.statement()
	if ring == "" {
		ring = r.memory.statement()
	}
	if ring == "" && r.work.exists() {
		ring = (&ringLog{}).statement()
	}
	if ring != "" {
		r.draft.Lines = append(r.draft.Lines, ring)
	}
	for _, l := range []struct {
		log   *ringLog
		index int64
	}{{&r.busy, int64(nvml.GPU_UTILIZATION_SAMPLES)}, {&r.memory, int64(nvml.MEMORY_UTILIZATION_SAMPLES)}} {
		switch {
		case !l.log.exists():
			r.set("Samples", scenario.Value{}, l.log.code, l.index)
		case l.log.absurd != nil:
			r.set("Samples", scenario.Numbers(scenario.Integer(uint64(max(0, *l.log.absurd)))), nvml.SUCCESS, l.index)
		}
	}
	switch s := r.work.absurd; {
	case !r.work.exists():
		r.set("ProcessUtilization", scenario.Value{}, r.work.code)
	case s != nil:
		r.set("ProcessUtilization", scenario.Numbers(scenario.Integer(s.SmUtil), scenario.Integer(s.MemUtil), scenario.Integer(s.EncUtil),
			scenario.Integer(s.DecUtil)), nvml.SUCCESS)
	}
}

// dram is the part of its busy time in which the GPU's memory was read or written.
func (r *GPURecorder) dram() float64 {
	busy := r.busy.mean()
	if busy <= 0 {
		return 0
	}
	return min(1, r.memory.mean()/busy)
}
