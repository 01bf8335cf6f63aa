package deviceid

import (
	"slices"
	"strconv"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// Resolution is the GPUs of one allocation, and the data source that identified them. Without GPUs, another resource
// of the same container stands for them.
type Resolution struct {
	Source string // gpu.SourceCheckpoint or gpu.SourceAnnotation
	GPUs   []Assignment
	// Authored means that an annotation of the pod determines the limits.
	Authored bool
}

// Assignment is a GPU or MIG instance of a resolution, with the limits that the scheme records.
type Assignment struct {
	Ref Ref
	// Group, where set, names the GPU instead of Ref: it is the one that a placeholder pod reserves for the group.
	Group string
	// Compute is the limit of the GPU's time, 1 for all.
	Compute gpu.Opt[float64]
	// Guaranteed is the requested memory in bytes, where that is beside a limit.
	Guaranteed gpu.Opt[gpu.Bytes]
	// Exclusive is true where the scheme gives the GPU to no other container.
	Exclusive bool

	// memory is the limit in bytes; or it is units of a GPU that has total of them, where the size of the unit is not
	// recorded.
	memory       gpu.Opt[gpu.Bytes]
	units, total float64
	// pool is how many units all GPUs of the node have together, where the GPU's own number is not recorded.
	pool float64
	// relative means that the unit may be anything: only its ratio to the total is known.
	relative bool
	// onInstance means that the assignment is a MIG instance that Ref does not name.
	onInstance bool
	// part is the limit as a fraction of the GPU's memory, where a scheme records that.
	part gpu.Opt[float64]
	// fraction is the fraction of the GPU by which the scheme itself counts, where that is neither memory nor time.
	fraction gpu.Opt[float64]
}

// assign returns an assignment of each reference; nil without.
func assign(refs []Ref) []Assignment {
	var out []Assignment
	for _, r := range refs {
		out = append(out, Assignment{Ref: r})
	}
	return out
}

// complete adds to GPUs the limits that they lack, from another data source that names the same GPUs, and reports whether
// it names them.
func (req *Request) complete(gpus, other []Assignment) bool {
	if len(gpus) != len(other) || len(gpus) == 0 || req.Inventory == nil {
		return false
	}
	var at []*Assignment // of other, for each GPU
	for i := range gpus {
		mine, _ := Locate(req.Inventory, gpus[i].Ref)
		for j := range other {
			if theirs, _ := Locate(req.Inventory, other[j].Ref); len(mine) == 1 && slices.Equal(mine, theirs) {
				at = append(at, &other[j])
			}
		}
		if len(at) != i+1 {
			return false // other GPUs, or one of them twice
		}
	}
	for i := range gpus {
		g, o := &gpus[i], at[i]
		g.Guaranteed = o.Guaranteed
		if !g.Compute.Present() {
			g.Compute = o.Compute
		}
		if !g.memory.Present() && !g.part.Present() && !g.fraction.Present() && (g.units == 0 || g.total == 0) {
			g.memory, g.part, g.fraction = o.memory, o.part, o.fraction
			g.units, g.total, g.pool, g.relative = o.units, o.total, o.pool, o.relative
		}
	}
	return true
}

// wholeGPUs assigns exclusive GPUs, of which there must be as many as were requested.
func (req *Request) wholeGPUs(refs []Ref) []Assignment {
	if len(refs) != req.Devices {
		return nil
	}
	gpus := assign(refs)
	for i := range gpus {
		gpus[i].Exclusive = true
	}
	return gpus
}

// byCores assigns cores, a hundred of which are a GPU: up to a hundred are a fraction of one GPU, more are whole GPUs.
func byCores(refs []Ref, cores int) []Assignment {
	if len(refs) != max(1, cores/100) {
		return nil // of another container
	}
	gpus := assign(refs)
	for i := range gpus {
		gpus[i].Compute = percent(float64(cores) / float64(len(refs)))
		gpus[i].Exclusive = cores >= 100
	}
	return gpus
}

// withMemoryLimits assigns GPUs with the limits in the variables <prefix>0, <prefix>1, … The list has a GPU once, the
// limits are one per virtual device: if their numbers differ, only the sum over one GPU is known.
func (req *Request) withMemoryLimits(refs []Ref, prefix string) []Assignment {
	if len(refs) > req.Devices {
		return nil // of another allocation
	}
	gpus := assign(refs)
	var limits []gpu.Opt[gpu.Bytes]
	var sum gpu.Bytes
	all := true
	for i := range req.Devices {
		text := req.env(prefix + strconv.Itoa(i))
		if text == "" {
			break
		}
		limit := parseLimit(text)
		limits = append(limits, limit)
		sum, all = sum+limit.Or(0), all && limit.Present()
	}
	switch {
	case len(limits) == len(gpus):
		for i := range gpus {
			gpus[i].memory = limits[i]
		}
	case len(gpus) == 1 && len(limits) > 0 && all:
		gpus[0].memory = gpu.Some(sum)
	}
	return gpus
}

// parseAssignment parses the UUID, the MiB of memory and the percentage of cores of a GPU.
func parseAssignment(uuid, memory, cores string) (Assignment, bool) {
	r, ok := ParseNVML(uuid)
	mib, okMemory := amount(memory)
	percentage, okCores := amount(cores)
	return Assignment{Ref: r, memory: mebibytes(mib), Compute: percent(percentage)}, ok && okMemory && okCores
}

// Limits returns the allocated share of the target, absent where the scheme records nothing that determines it, and
// the memory limit. The share is the limited memory over the memory of the GPU, else the fraction of the time.
func (a Assignment) Limits(inv *gpu.Inventory, t Target) (share gpu.Opt[float64], memory gpu.Opt[gpu.Bytes]) {
	a.scale(inv)
	memory = a.memory
	size, sized := t.Memory.Get()
	part := a.part
	if a.total > 0 && a.units > 0 && a.units <= a.total {
		part = gpu.Some(a.units / a.total)
		if unit := unitOf(a.total, size); sized && unit > 0 && !a.relative {
			memory = gpu.Some(gpu.Bytes(a.units * float64(unit)))
		}
	}
	p, known := part.Get()
	if known && !memory.Present() && sized {
		memory = Bytes(p * float64(size))
	}
	if a.relative && !known {
		memory = gpu.None[gpu.Bytes]()
	}
	switch b, limited := a.memory.Get(); {
	case t.Instance != "" || a.Exclusive:
		return gpu.Some(t.Part), memory // an instance as a whole: the amounts are fractions of the GPU
	case known:
		share = part
	case a.fraction.Present():
		share = a.fraction
	case limited && (!sized || size == 0):
		return share, memory
	case limited:
		share = gpu.Some(float64(b) / float64(size))
	default:
		share = a.Compute
	}
	if s, ok := share.Get(); ok {
		share = gpu.Some(min(s, 1))
	}
	return share, memory
}

// scale determines the unit where only the units of all GPUs together are known.
func (a *Assignment) scale(inv *gpu.Inventory) {
	if a.pool <= 0 || a.total > 0 || a.units <= 0 || inv == nil {
		return
	}
	var sum gpu.Bytes
	for i := range inv.GPUs {
		size, ok := inv.GPUs[i].Memory.Get()
		if !ok {
			return
		}
		sum += size
	}
	switch unit := unitOf(a.pool, sum); {
	case a.relative && sum > 0:
		// Every unit is the same fraction of the memory of all GPUs.
		a.memory, a.relative = Bytes(a.units/a.pool*float64(sum)), false
	case unit > 0:
		a.memory = Bytes(a.units * float64(unit))
	}
}

// unitOf returns GiB or MiB, whichever fits total units on a GPU of that size; 0 where neither does.
func unitOf(total float64, size gpu.Bytes) gpu.Bytes {
	for _, unit := range []gpu.Bytes{1 << 30, 1 << 20} {
		have := float64(size) / float64(unit)
		// Plugins round down, and count the GPU's memory without what the driver reserves.
		if total > have*0.85-1 && total < have*1.05+1 {
			return unit
		}
	}
	return 0
}
