package report

import (
	"fmt"

	"github.com/gpu-exporter/gpu-exporter/report/mig"
	"github.com/gpu-exporter/gpu-exporter/report/units"
)

const (
	// headroom is added above the activity that is exceeded in a hundredth of the time, peakHeadroom above the highest
	// one-minute mean, and memoryHeadroom above the highest memory.
	headroom       = 1.25
	peakHeadroom   = 1.1
	memoryHeadroom = 1.1
	// wellUsed is the mean activity above which sharing is not recommended.
	wellUsed = 0.5
	// maxReplicas is the maximum number of time-sliced replicas of a GPU that is recommended.
	maxReplicas = 4
)

// demand is what a workload needed of one GPU in a part of the period.
type demand struct {
	p99, peak, minute, memory float64
	need                      float64 // compute with headroom, as a fraction of the allocation
	bytes                     float64 // memory with headroom
	steps                     int
}

// demandOf adds up a part of the period.
func (a *analysis) demandOf(l *load, part span) demand {
	s, m := l.track(qBusiest).values(part.from, part.to), l.track(qMemory).values(part.from, part.to)
	d := demand{steps: len(s), p99: s.quantile(0.99), peak: s.top(), memory: m.top()}
	for _, x := range l.allocations {
		t := a.facts.minute[x.key.gpu()]
		if !x.sole() || t == nil {
			continue
		}
		// The first and the last hour may show what another workload did on the GPU.
		from, to := max(part.from, x.busy.from)/a.p.perHour()+1, min(part.to, x.busy.end())/a.p.perHour()
		for _, v := range t.within(from, to) {
			d.minute = max(d.minute, v)
		}
	}
	d.need = max(headroom*d.p99, peakHeadroom*max(d.peak, d.minute))
	d.bytes = memoryHeadroom * d.memory
	return d
}

// sizing is a smaller size that is sufficient.
type sizing struct {
	profile  mig.Profile
	replicas int     // of a time-sliced GPU; 0 with a profile
	limit    float64 // activity that the size carries, as a fraction of the allocation
	memory   float64 // bytes that it has; 0 if memory indicates no need
	part     float64 // of the allocation
	smaller  string  // why not the next smaller size
}

func (s *sizing) name() string {
	if s.replicas > 0 {
		return fmt.Sprintf("1/%d of a GPU", s.replicas)
	}
	return s.profile.Name
}

// fit chooses the smallest size that covers a demand. several is true if pods have more than one GPU each.
func (a *analysis) fit(r *Workload, d demand, several bool) (*sizing, noAdvice) {
	gpu, offered := a.migGPU(r.Model)
	switch isMIG := r.Sharing == "mig"; {
	case r.Sharing == "shared":
		return nil, noAdvice{"already_shared", "a share of a GPU is already allocated to it"}
	case isMIG && r.Preallocated:
		return nil, noAdvice{"memory_too_high",
			"its memory was allocated at the start and does not indicate whether a smaller MIG device is enough"}
	case isMIG && !offered:
		return nil, noAdvice{"activity_unknown", "the table of MIG profiles has no such model"}
	case isMIG || offered && !several && !r.Preallocated:
		if s, reason := a.fitProfile(r, gpu, d); s != nil || isMIG {
			return s, reason
		}
	}
	return a.fitReplicas(r, d)
}

// fitReplicas chooses the number of time-sliced replicas.
func (a *analysis) fitReplicas(r *Workload, d demand) (*sizing, noAdvice) {
	total := a.facts.byModel[r.Model]
	for k := maxReplicas; k >= 2; k-- {
		s := &sizing{replicas: k, limit: 1 / float64(k), part: 1 / float64(k)}
		if !r.Preallocated {
			s.memory = total * s.part
		}
		if d.need > s.part || s.memory > 0 && d.bytes > 0.95*s.memory {
			continue
		}
		switch {
		case k == maxReplicas:
			s.smaller = fmt.Sprintf("Not more than %d on one GPU before a trial.", maxReplicas)
		case r.Preallocated || d.need > 1/float64(k+1):
			s.smaller = fmt.Sprintf("Not 1/%d: the peaks need %s with headroom.", k+1, units.Ratio(d.need))
		default:
			s.smaller = fmt.Sprintf("Not 1/%d: the memory peak of %s does not fit.", k+1, units.GiB(d.memory))
		}
		return s, noAdvice{}
	}
	if d.need > 0.5 || r.Preallocated {
		return nil, peaksTooHigh(d)
	}
	return nil, noAdvice{"memory_too_high", fmt.Sprintf("its memory peak of %s needs the GPU", units.GiB(d.memory))}
}

func peaksTooHigh(d demand) noAdvice {
	return noAdvice{"peaks_too_high",
		fmt.Sprintf("its peaks need %s of its allocation, with headroom", units.Ratio(min(1, d.need)))}
}

// fitProfile chooses a MIG profile of which a GPU has at least two.
func (a *analysis) fitProfile(r *Workload, gpu *mig.GPU, d demand) (*sizing, noAdvice) {
	has := 1.0 // of the GPU
	current := gpu.Profiles[len(gpu.Profiles)-1]
	if r.Sharing == "mig" {
		p, ok := gpu.Profile(r.Profile)
		if !ok {
			return nil, noAdvice{"activity_unknown", "the profile of its MIG devices is not in the table"}
		}
		current, has = p, gpu.ComputeRatio(p)
	}
	need, smaller := d.need*has, ""
	for i, p := range gpu.Profiles {
		if p.PerGPU < 2 || p.Compute >= current.Compute && p.Memory >= current.Memory {
			continue
		}
		compute := gpu.ComputeRatio(p)
		switch {
		case compute < need:
			smaller = fmt.Sprintf("Not %s: it has %s of the GPU's compute, and the peaks need %s with headroom.",
				p.Name, units.Ratio(compute), units.Ratio(need))
			continue
		case p.Bytes < d.bytes:
			smaller = fmt.Sprintf("Not %s: it has %s, and the memory peak is %s.",
				p.Name, units.GiB(p.Bytes), units.GiB(d.memory))
			continue
		case smaller == "":
			smaller = p.Name + " is the smallest profile."
		}
		if i+1 < len(gpu.Profiles) {
			smaller += " The next larger is " + gpu.Profiles[i+1].Name + "."
		}
		part := float64(current.PerGPU) / float64(p.PerGPU)
		return &sizing{profile: p, limit: compute / has, memory: p.Bytes, part: part, smaller: smaller}, noAdvice{}
	}
	if d.need > 0.5 {
		return nil, peaksTooHigh(d)
	}
	return nil, noAdvice{"memory_too_high", fmt.Sprintf("no smaller profile fits its memory peak of %s",
		units.GiB(d.memory))}
}

// size finds workloads for which less is enough.
func (a *analysis) size(l *load, r *Workload, steps int) (*Advice, noAdvice) {
	g, observed := a.opt.Advice, a.p.duration(steps)
	several := a.several(l)
	switch {
	case !a.lasts(l.track(qAllocated).end(), a.p.Steps()):
		return nil, noAdvice{"no_longer_allocated", "nothing is allocated to it any more"}
	case observed < g.Observed*19/20:
		return nil, noAdvice{"observed_too_short",
			fmt.Sprintf("it was observed for %s; the minimum to judge a size is %s",
				units.Duration(observed), units.Duration(g.Observed))}
	case r.Coverage < g.Coverage:
		return nil, noAdvice{"coverage_too_low",
			fmt.Sprintf("its activity is known for %s of its time; the minimum is %s",
				units.Ratio(r.Coverage), units.Ratio(g.Coverage))}
	case r.BusyMean == nil || r.BusyPeak == nil:
		return nil, noAdvice{"activity_unknown", "its activity is unknown"}
	case *r.BusyMean >= wellUsed:
		return nil, noAdvice{"well_used", fmt.Sprintf("it is busy %s of the time", units.Ratio(*r.BusyMean))}
	case several && r.Sharing == "mig":
		return nil, noAdvice{"several_mig_devices", "several MIG devices are allocated to each of its pods"}
	}
	d := a.demandOf(l, span{0, a.p.Steps()})
	s, reason := a.fit(r, d, several)
	if s == nil {
		return nil, reason
	}
	ad := a.adviceFor(r, adviseShare, "low_activity", r.Allocated*(1-s.part))
	ad.Alternatives = s.smaller
	mean := "5-minute"
	if d.minute > 0 {
		mean = "one-minute"
	}
	usage := fmt.Sprintf("busy %s of the time, above %s in a hundredth of it, maximum %s (%s mean)",
		units.Ratio(*r.BusyMean), units.Ratio(d.p99), units.Ratio(max(d.peak, d.minute)), mean)
	memory := ""
	if d.memory > 0 {
		memory = fmt.Sprintf("; its memory peak is %s", units.GiB(d.memory))
	}
	switch {
	case r.Preallocated:
		ad.Reason = "preallocated_memory"
		memory = fmt.Sprintf("; its %s were allocated at the start and never changed, which does not indicate need",
			units.GiB(*r.MemoryMedian))
		ad.Title = fmt.Sprintf("Try %s at %s, with limited memory", r.Name, s.name())
		ad.Risk = "medium: a trial, because the memory that it needs cannot be measured; watch latency and " +
			"allocation errors"
		ad.Confidence = "low"
	case s.replicas > 0:
		ad.Title = fmt.Sprintf("Share the GPU of %s: %s is enough", r.Name, s.name())
		ad.Risk = "medium: time-slicing isolates neither memory nor faults; simultaneous bursts of two containers " +
			"slow down"
	default:
		ad.Code = adviseShrink
		ad.Title = fmt.Sprintf("Move %s to the MIG profile %s", r.Name, s.profile.Name)
		ad.Risk = "medium: bursts that use the whole GPU take longer on fewer SMs; compare latency before and after"
	}
	ad.Evidence = units.Sentence(usage, memory)
	ad.Validation = a.validateSize(l, r, several)
	if v := ad.Validation; v != nil && v.Exceeded > g.Overload {
		return nil, noAdvice{"failed_validation", fmt.Sprintf("%s, recommended from the first part of the period, "+
			"would have been too small in %s of the rest", v.Size, units.Ratio(v.Exceeded))}
	}
	ad.ChangeIn, ad.Change = sizeChange(r, s)
	return &ad, noAdvice{}
}

// several is true if pods of the workload have more than one GPU at a time.
func (a *analysis) several(l *load) bool {
	gpus := map[string]gpuKey{}
	for _, x := range l.allocations {
		at := x.key.gpu()
		at.cluster = ""
		if other, ok := gpus[x.key.pod]; ok && other != at {
			return true
		}
		gpus[x.key.pod] = at
	}
	return len(l.allocations) == 0 && l.sum[qPods] > 0 && l.track(qAllocated).last() > 1.01*l.sum[qPods]
}

// trainSteps divides the period: advice is made from what is before the step, and validated on the rest.
func (a *analysis) trainSteps() int { return int(float64(a.p.Steps()) * a.opt.Advice.Train) }

// validateSize sizes the workload by the first part of the period, and counts how often the rest needed more.
func (a *analysis) validateSize(l *load, r *Workload, several bool) *Validation {
	cut := a.trainSteps()
	train := a.demandOf(l, span{0, cut})
	s, _ := a.fit(r, train, several)
	if train.steps == 0 || s == nil {
		return nil
	}
	test, exceeded := 0, 0
	for k, v := range l.track(qBusiest).within(cut, a.p.Steps()) {
		test++
		if v > s.limit || s.memory > 0 && l.track(qMemory).or(k, 0) > s.memory {
			exceeded++
		}
	}
	return a.validation(train.steps, test, test, s.name(), exceeded)
}

// validation is nil if nothing was compared.
func (a *analysis) validation(train, test, compared int, size string, exceeded int) *Validation {
	if compared == 0 {
		return nil
	}
	h := a.p.StepHours()
	return &Validation{float64(train) * h, float64(test) * h, size, over(float64(exceeded), float64(compared))}
}
