package report

import (
	"fmt"
	"time"

	"github.com/gpu-exporter/gpu-exporter/report/mig"
)

const (
	// headroom is kept above the activity that is exceeded in a hundredth of the time, peakRoom above the highest mean of a
	// minute, and memoryRoom above the highest memory.
	headroom   = 1.25
	peakRoom   = 1.1
	memoryRoom = 1.1
	// wellUsed is the mean activity above which nobody is asked to share.
	wellUsed = 0.5
	// mostReplicas is into how many parts a GPU is time-sliced at most by advice.
	mostReplicas = 4
)

// migGPU finds the MIG table of a model.
func (a *analyst) migGPU(model string) (*mig.GPU, bool) {
	return mig.For(model, a.facts.byName[model])
}

// demand is what a workload asked of one GPU until a step.
type demand struct {
	p99, peak, minute, memory float64
	need                      float64 // compute with room, of what it holds
	bytes                     float64 // memory with room
	steps                     int
}

// demandOf sums up the part of the window from a step up to another.
func (a *analyst) demandOf(l *load, from, until int) demand {
	var d demand
	v := make([]float64, 0, l.most.len())
	for k := max(from, l.most.from); k < min(until, l.most.end()); k++ {
		if x, ok := l.most.at(k); ok {
			v = append(v, x)
		}
	}
	d.steps = len(v)
	s := newSample(v)
	d.p99, d.peak = s.quantile(0.99), s.top()
	for k := max(from, l.memory.from); k < min(until, l.memory.end()); k++ {
		if x, ok := l.memory.at(k); ok {
			d.memory = max(d.memory, x)
		}
	}
	size := max(1, int(time.Hour/a.w.Step))
	for _, h := range l.allocs {
		if !h.sole() {
			continue
		}
		t := a.facts.minute[GPUKey{h.key.cluster, h.key.node, h.key.uuid}]
		if t == nil {
			continue
		}
		// The first and the last hour may show what another did on the GPU.
		lo, hi := max(from, h.busy.from)/size+1, min(until, h.busy.end())/size-1
		for k := lo; k <= hi; k++ {
			d.minute = max(d.minute, t.or(k, 0))
		}
	}
	d.need = max(headroom*d.p99, peakRoom*max(d.peak, d.minute))
	d.bytes = memoryRoom * d.memory
	return d
}

// sizing is a smaller size that would do.
type sizing struct {
	profile  mig.Profile
	dev      *mig.GPU
	replicas int
	limit    float64 // activity, of what is held now, that the size carries
	memory   float64 // bytes that it has; 0 when memory is no evidence
	part     float64 // of what is held now
	why      string  // not the next smaller
	next     string  // the next larger
}

func (s *sizing) name() string {
	if s.replicas > 0 {
		return fmt.Sprintf("1/%d of a GPU", s.replicas)
	}
	return s.profile.Name
}

// fit chooses the smallest size that covers a demand. several says that pods hold more than one GPU each.
func (a *analyst) fit(r *Workload, d demand, several bool) (*sizing, silence) {
	if r.Sharing == "shared" {
		return nil, silence{silentShared, "it holds a part of a GPU already"}
	}
	total := a.facts.byName[r.Model]
	dev, offered := a.migGPU(r.Model)
	limitText := fmt.Sprintf("its peaks ask for %s of what it holds, with room", percent(min(1, d.need)))
	if r.Preallocated {
		if r.Sharing == "mig" {
			return nil, silence{silentMemory, "its memory was taken at the start, so that it does not tell whether a smaller instance would do"}
		}
		for k := mostReplicas; k >= 2; k-- {
			if d.need <= 1/float64(k) {
				s := &sizing{replicas: k, limit: 1 / float64(k), part: 1 / float64(k)}
				s.why = fmt.Sprintf("1/%d: the peaks ask for %s with room.", k+1, percent(d.need))
				if k == mostReplicas {
					s.why = fmt.Sprintf("More than %d on one GPU are not advised before a trial.", mostReplicas)
				}
				return s, silence{}
			}
		}
		return nil, silence{silentPeaks, limitText}
	}
	if offered && !several {
		if s, why := a.fitProfile(r, dev, d); s != nil || r.Sharing == "mig" {
			return s, why
		}
	}
	if r.Sharing == "mig" {
		return nil, silence{silentUnknown, "the table of MIG profiles has no such model"}
	}
	for k := mostReplicas; k >= 2; k-- {
		part := 1 / float64(k)
		if d.need > part || total > 0 && d.bytes > 0.95*total*part {
			continue
		}
		s := &sizing{replicas: k, limit: part, memory: total * part, part: part}
		switch {
		case k == mostReplicas:
			s.why = fmt.Sprintf("More than %d on one GPU are not advised before a trial.", mostReplicas)
		case d.need > 1/float64(k+1):
			s.why = fmt.Sprintf("1/%d: the peaks ask for %s with room.", k+1, percent(d.need))
		default:
			s.why = fmt.Sprintf("1/%d: the memory peak of %s does not fit.", k+1, bytesText(d.memory))
		}
		return s, silence{}
	}
	if d.need > 0.5 {
		return nil, silence{silentPeaks, limitText}
	}
	return nil, silence{silentMemory, fmt.Sprintf("its memory peak of %s needs the GPU", bytesText(d.memory))}
}

// fitProfile chooses a MIG profile of which a GPU holds at least two.
func (a *analyst) fitProfile(r *Workload, dev *mig.GPU, d demand) (*sizing, silence) {
	has := 1.0 // of the GPU
	held := dev.Profiles[len(dev.Profiles)-1]
	if r.Sharing == "mig" {
		p, ok := dev.Profile(r.Profile)
		if !ok {
			return nil, silence{silentUnknown, "the profile of its instances is not in the table"}
		}
		held, has = p, dev.ComputeRatio(p)
	}
	need := d.need * has
	why := ""
	for i, p := range dev.Profiles {
		if p.Most < 2 || p.Compute >= held.Compute && p.Memory >= held.Memory {
			continue
		}
		compute := dev.ComputeRatio(p)
		switch {
		case compute < need:
			why = fmt.Sprintf("%s: it has %s of the GPU's compute, and the peaks ask for %s with room.", p.Name, percent(compute), percent(need))
		case p.Bytes < d.bytes:
			why = fmt.Sprintf("%s: it has %s, and the memory peak is %s.", p.Name, bytesText(p.Bytes), bytesText(d.memory))
		default:
			s := &sizing{profile: p, dev: dev, limit: compute / has, memory: p.Bytes, part: float64(held.Most) / float64(p.Most), why: why}
			if why == "" {
				s.why = p.Name + " is the smallest there is."
			}
			if i+1 < len(dev.Profiles) {
				s.next = dev.Profiles[i+1].Name
			}
			return s, silence{}
		}
	}
	if d.need > 0.5 {
		return nil, silence{silentPeaks, fmt.Sprintf("its peaks ask for %s of what it holds, with room", percent(min(1, d.need)))}
	}
	return nil, silence{silentMemory, fmt.Sprintf("no smaller profile has room for its memory peak of %s", bytesText(d.memory))}
}

// size finds workloads that would do with less than they hold.
func (a *analyst) size(l *load, r *Workload, steps int) ([]Advice, silence) {
	g := a.opt.Advice
	observed := time.Duration(steps) * a.w.Step
	switch {
	case !a.stillHeld(l.held.end()):
		return nil, silence{silentGone, "it holds nothing any more"}
	case observed < g.Observed*19/20:
		return nil, silence{silentShort, fmt.Sprintf("it was observed for %s; a size is judged after %s", duration(observed), duration(g.Observed))}
	case r.Coverage < g.Coverage:
		return nil, silence{silentCoverage, fmt.Sprintf("the work of %s of its time is known; %s are asked for", percent(r.Coverage), percent(g.Coverage))}
	case r.Activity == nil || r.Peak == nil:
		return nil, silence{silentUnknown, "its activity is not known"}
	case *r.Activity >= wellUsed:
		return nil, silence{silentWell, fmt.Sprintf("it is busy %s of the time", percent(*r.Activity))}
	}
	several := a.several(l)
	if several && r.Sharing == "mig" {
		return nil, silence{silentGPUs, "its pods hold several instances each"}
	}
	d := a.demandOf(l, 0, a.w.Steps())
	s, why := a.fit(r, d, several)
	if s == nil {
		return nil, why
	}
	saved := r.Held * (1 - s.part)
	code, reason := adviseShare, reasonSmall
	if s.replicas == 0 {
		code = adviseShrink
	}
	if r.Preallocated {
		reason = reasonPreallocated
	}
	ad := a.adviceFor(r, code, reason)
	ad.SavedHours, ad.SavedGPUs = saved, over(saved, a.w.Total())
	ad.SavedCost = a.prices.cost(r.Model, saved)
	ad.Why = "Not " + s.why
	if s.next != "" {
		ad.Why += " The next larger is " + s.next + "."
	}
	ad.Evidence = sentence(fmt.Sprintf("busy %s of the time, in a hundredth of it more than %s, at the most %s (mean of 5 minutes)", percent(*r.Activity), percent(d.p99), percent(d.peak)))
	if d.minute > 0 {
		ad.Evidence = sentence(fmt.Sprintf("busy %s of the time, in a hundredth of it more than %s, at the most %s (mean of a minute)", percent(*r.Activity), percent(d.p99), percent(max(d.peak, d.minute))))
	}
	switch {
	case r.Preallocated:
		ad.Evidence = ad.Evidence[:len(ad.Evidence)-1] + fmt.Sprintf("; its %s were taken at the start and never changed, which is no evidence of need.", bytesText(*r.MemoryPlateau))
		ad.Title = fmt.Sprintf("Try %s at %s, with its memory capped", r.Name, s.name())
		ad.Risk = "medium: a trial, because how much memory it needs cannot be seen from outside; watch latency and errors of allocation"
		ad.Confidence = "low"
	case s.replicas > 0:
		ad.Evidence = ad.Evidence[:len(ad.Evidence)-1] + memoryText(d) + "."
		ad.Title = fmt.Sprintf("Let %s share its GPU: %s is enough", r.Name, s.name())
		ad.Risk = "medium: time-slicing isolates neither memory nor faults; bursts of two tenants at once are slowed down"
	default:
		ad.Evidence = ad.Evidence[:len(ad.Evidence)-1] + memoryText(d) + "."
		ad.Title = fmt.Sprintf("Move %s to the MIG profile %s", r.Name, s.profile.Name)
		ad.Risk = "medium: work that fills the whole GPU for moments takes longer on fewer SMs; compare latency before and after"
	}
	ad.HeldOut = a.replaySize(l, r, several)
	if ad.HeldOut != nil && ad.HeldOut.Exceeded > g.Overload {
		return nil, silence{silentReplay, fmt.Sprintf("%s, advised from the first part of the window, would have been too small in %s of the rest", ad.HeldOut.Size, percent(ad.HeldOut.Exceeded))}
	}
	ad.ChangeIn, ad.Change = sizeChange(r, s)
	return []Advice{ad}, silence{}
}

func memoryText(d demand) string {
	if d.memory == 0 {
		return ""
	}
	return fmt.Sprintf("; its memory peaks at %s", bytesText(d.memory))
}

// several says whether pods of the workload hold more than one GPU at once.
func (a *analyst) several(l *load) bool {
	devs := map[string]map[string]bool{}
	for _, h := range l.allocs {
		if devs[h.key.pod] == nil {
			devs[h.key.pod] = map[string]bool{}
		}
		devs[h.key.pod][h.key.node+"/"+h.key.uuid] = true
	}
	for _, pod := range sortedKeys(devs) {
		if len(devs[pod]) > 1 {
			return true
		}
	}
	return len(l.allocs) == 0 && l.podsAtOnce > 0 && lastOf(&l.held) > 1.01*l.podsAtOnce
}

// trained is the step that divides the window: advice is taken from what lies before, and tested on the rest.
func (a *analyst) trained() int { return int(float64(a.w.Steps()) * a.opt.Advice.Train) }

// replaySize sizes the workload by the first part of the window alone, and counts how often the rest asked for more.
func (a *analyst) replaySize(l *load, r *Workload, several bool) *HeldOut {
	cut := a.trained()
	first := a.demandOf(l, 0, cut)
	if first.steps == 0 {
		return nil
	}
	s, _ := a.fit(r, first, several)
	if s == nil {
		return nil
	}
	steps, exceeded := 0, 0
	for k := max(cut, l.most.from); k < l.most.end(); k++ {
		v, ok := l.most.at(k)
		if !ok {
			continue
		}
		steps++
		m, _ := l.memory.at(k)
		if v > s.limit || s.memory > 0 && m > s.memory {
			exceeded++
		}
	}
	if steps == 0 {
		return nil
	}
	return &HeldOut{TrainedHours: float64(first.steps) * a.w.Hours(), TestedHours: float64(steps) * a.w.Hours(), Size: s.name(), Exceeded: over(float64(exceeded), float64(steps))}
}

// replayRelease asks whether the release would have been advised at the end of the first part of the window, and how often the
// GPUs worked in the rest.
func (a *analyst) replayRelease(l *load) *HeldOut {
	cut := a.trained()
	var out *HeldOut
	steps, worked, before := 0, 0, 0
	for _, c := range a.cases(l, cut) {
		if ok, _ := a.released(&c); !ok {
			continue
		}
		before = max(before, c.until-c.from)
		for k := cut; k < c.h.busy.end(); k++ {
			if v, ok := c.h.activity(k); ok {
				steps++
				if v >= quietBelow {
					worked++
				}
			}
		}
	}
	if steps > 0 {
		out = &HeldOut{TrainedHours: float64(before) * a.w.Hours(), TestedHours: float64(a.w.Steps()-cut) * a.w.Hours(), Size: "no GPU", Exceeded: over(float64(worked), float64(steps))}
	}
	return out
}
