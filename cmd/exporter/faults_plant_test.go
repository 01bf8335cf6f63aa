package main

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/account"
	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/internal/sampler"
)

// plant is what a planted mistake changes between two packages.
type plant struct {
	open   func(error) error
	events func([]gpu.XIDEvent) []gpu.XIDEvent
	fast   func(gpu.Identity, gpu.Fast, error) (gpu.Fast, error)
	medium func(gpu.Identity, gpu.Medium, error) (gpu.Medium, error)
	allocs func(gpu.Allocations) gpu.Allocations
	user   func(int, account.User) account.User
	view   func(*gpu.View) *gpu.View // nil: the collector has the sampler's own
	devs   []sampler.GPU             // of the last scan
}

// newPlant changes nothing, except what the mistake sets; a nil mistake sets nothing.
func newPlant(mistake func(*plant)) *plant {
	p := &plant{
		open:   func(err error) error { return err },
		events: func(e []gpu.XIDEvent) []gpu.XIDEvent { return e },
		fast:   func(_ gpu.Identity, f gpu.Fast, err error) (gpu.Fast, error) { return f, err },
		medium: func(_ gpu.Identity, m gpu.Medium, err error) (gpu.Medium, error) { return m, err },
		allocs: func(a gpu.Allocations) gpu.Allocations { return a },
		user:   func(_ int, u account.User) account.User { return u },
	}
	if mistake != nil {
		mistake(p)
	}
	return p
}

// shown is what the collector gets instead of the sampler's view: one copy per view.
func (p *plant) shown(latest func() *gpu.View) func() *gpu.View {
	var of, made *gpu.View
	return func() *gpu.View {
		if v := latest(); v != of {
			of, made = v, p.view(v)
		}
		return made
	}
}

// forgeries are the pods whose cgroups processes forged, by PID.
var forgeries = map[int]string{}

// planted are mistakes such as programs of this kind make. Each is put between two rooms, and the suite has to name
// it as one of these.
var planted = []struct {
	name   string
	seed   uint64   // of a world in which it shows early, so that the test is quick; in most others it shows later
	caught []string // the invariants, any of them
	make   func(*plant)
}{
	{"a process gets the name of another pod", 1, []string{"wrong pod"}, func(p *plant) {
		var last gpu.Container
		p.user = func(_ int, u account.User) account.User {
			if u.Reason == "" {
				u.Container, last = last, u.Container
			}
			return u
		}
	}},
	{"the innermost pod of a cgroup owns the process", 4, []string{"wrong pod", "false zero"}, func(p *plant) {
		p.user = func(pid int, u account.User) account.User {
			if victim := forgeries[pid]; victim != "" && u.Reason == "" {
				u.Container.Pod = victim
			}
			return u
		}
	}},
	{"a process that cannot be read is its predecessor", 5, []string{"wrong pod", "leak"}, func(p *plant) {
		last := map[int]account.User{}
		p.user = func(pid int, u account.User) account.User {
			if u.Reason == "" {
				last[pid] = u
			}
			return last[pid]
		}
	}},
	{"a PID keeps its first owner", 11, []string{"wrong pod", "leak"}, func(p *plant) {
		known := map[int]account.User{}
		p.user = func(pid int, u account.User) account.User {
			if first, ok := known[pid]; ok {
				return first
			}
			if u.Reason == "" {
				known[pid] = u
			}
			return u
		}
	}},
	{"an unknown id is guessed to be the first GPU", 10, []string{"wrong pod", "false zero"}, func(p *plant) {
		p.allocs = func(h gpu.Allocations) gpu.Allocations {
			for _, u := range h.Unresolved {
				h.List = append(slices.Clone(h.List), gpu.Allocation{Container: u.Container, Resource: u.Resource,
					GPU: "GPU-aaaaaaa0-0000-4000-8000-000000000000", Share: gpu.Some(gpu.Ratio(1)), Source: gpu.SourcePodResources})
			}
			h.Unresolved = nil
			return h
		}
	}},
	{"the last word of the kubelet is believed for ever", 5, []string{"stale"}, func(p *plant) {
		var last gpu.Allocations
		p.allocs = func(h gpu.Allocations) gpu.Allocations {
			if h.Known {
				last = h
				return h
			}
			last.Sources, last.PollGroups = h.Sources, h.PollGroups
			return last
		}
	}},
	{"a kubelet that cannot be asked holds nothing", 5, []string{"false zero", "stale"}, func(p *plant) {
		p.allocs = func(h gpu.Allocations) gpu.Allocations {
			if !h.Known {
				h.Known, h.List = true, nil
			}
			return h
		}
	}},
	{"a read that failed is a GPU at rest", 9, []string{"false zero", "ended", "recovery"}, func(p *plant) {
		p.fast = func(_ gpu.Identity, f gpu.Fast, err error) (gpu.Fast, error) {
			if err != nil {
				f = gpu.Fast{Power: gpu.Some(gpu.Watts(0))}
			}
			return f, nil
		}
		p.medium = func(_ gpu.Identity, m gpu.Medium, err error) (gpu.Medium, error) {
			if err != nil {
				m = gpu.Medium{Memory: gpu.Some(gpu.Memory{Total: 80 << 30, Free: 80 << 30})}
			}
			return m, nil
		}
	}},
	{"a list that could not be read is empty", 3, []string{"false zero"}, func(p *plant) {
		p.medium = func(_ gpu.Identity, m gpu.Medium, err error) (gpu.Medium, error) {
			if !m.Processes.Present() {
				m.Processes = gpu.Some([]gpu.Process{})
			}
			return m, err
		}
	}},
	{"an event is told twice", 9, []string{"xid doubled"}, func(p *plant) {
		p.events = func(e []gpu.XIDEvent) []gpu.XIDEvent { return append(slices.Clone(e), e...) }
	}},
	{"the last event of a batch is lost", 21, []string{"xid lost"}, func(p *plant) {
		p.events = func(e []gpu.XIDEvent) []gpu.XIDEvent { return e[:max(0, len(e)-1)] }
	}},
	{"what both sources tell is counted for each", 11, []string{"xid doubled"}, func(p *plant) {
		p.events = func(e []gpu.XIDEvent) []gpu.XIDEvent {
			e = slices.Clone(e)
			for i := range e {
				e[i].Time = e[i].Time.Add(-time.Hour)
			}
			return e
		}
	}},
	{"a counter restarts when its GPU was away", 5, []string{"counter", "sum"}, func(p *plant) {
		before := map[gpu.UUID]gpu.Joules{}
		away := map[gpu.UUID]bool{}
		p.view = func(v *gpu.View) *gpu.View {
			return withGPUs(v, func(c *gpu.GPU) {
				e, ok := c.Activity.Energy.Get()
				if !ok {
					away[c.UUID] = true
					return
				}
				if away[c.UUID] {
					away[c.UUID], before[c.UUID] = false, e
				}
				c.Activity.Energy = gpu.Some(e - before[c.UUID])
			})
		}
	}},
	{"work counts double after a fault", 15, []string{"twice", "healthy", "recovery"}, func(p *plant) {
		var mu sync.Mutex
		failed := map[gpu.UUID]bool{}
		p.fast = func(id gpu.Identity, f gpu.Fast, err error) (gpu.Fast, error) {
			mu.Lock()
			defer mu.Unlock()
			failed[id.UUID] = failed[id.UUID] || err != nil
			if ring, ok := f.Busy.Get(); ok && failed[id.UUID] {
				ring = slices.Clone(ring)
				for i := range ring {
					ring[i].Value = min(100, 2*ring[i].Value)
				}
				f.Busy = gpu.Some(ring)
			}
			return f, err
		}
	}},
	{"a GPU's failure is every GPU's", 5, []string{"healthy"}, func(p *plant) {
		var mu sync.Mutex
		var lost error
		var at int
		p.fast = func(_ gpu.Identity, f gpu.Fast, err error) (gpu.Fast, error) {
			mu.Lock()
			defer mu.Unlock()
			if at++; err != nil {
				lost, at = err, 0
			}
			if lost != nil && at < 200 {
				return gpu.Fast{}, lost
			}
			return f, err
		}
	}},
	{"the unattributed part is omitted", 3, []string{"sum"}, func(p *plant) {
		p.view = func(v *gpu.View) *gpu.View {
			return withGPUs(v, func(c *gpu.GPU) { c.Unattributed = nil })
		}
	}},
	{"the idle part of the energy is given twice", 3, []string{"sum"}, func(p *plant) {
		p.view = func(v *gpu.View) *gpu.View {
			v = withGPUs(v, func(*gpu.GPU) {})
			v.Containers = slices.Clone(v.Containers)
			for i := range v.Containers {
				c := &v.Containers[i]
				if e, ok := c.Energy.Get(); ok {
					c.Energy = gpu.Some(e + 10*gpu.Joules(c.Allocated.Or(0)))
				}
			}
			return v
		}
	}},
	{"containers that ended are shown for ever", 14, []string{"leak"}, func(p *plant) {
		kept := map[gpu.Container]gpu.ContainerGPU{}
		p.view = func(v *gpu.View) *gpu.View {
			v = withGPUs(v, func(*gpu.GPU) {})
			there := map[gpu.Container]bool{}
			v.Containers = slices.Clone(v.Containers)
			for _, c := range v.Containers {
				kept[c.Container], there[c.Container] = c, true
			}
			for name, c := range kept {
				if !there[name] {
					v.Containers = append(v.Containers, c)
				}
			}
			return v
		}
	}},
	{"a lost GPU shows what it showed", 9, []string{"ended"}, func(p *plant) {
		kept := map[gpu.UUID]gpu.GPU{}
		p.view = func(v *gpu.View) *gpu.View {
			return withGPUs(v, func(c *gpu.GPU) {
				if c.Fast.Present() {
					kept[c.UUID] = *c
				} else if old, ok := kept[c.UUID]; ok {
					*c = old
				}
			})
		}
	}},
	{"a driver that went is not asked again", 15, []string{"recovery", "healthy"}, func(p *plant) {
		opened, ended := false, false
		p.open = func(err error) error {
			ended = ended || err != nil && opened
			opened = opened || err == nil
			if ended {
				return gpu.ErrNoDriver
			}
			return err
		}
	}},
	{"a goroutine stays behind with each reading", 13, []string{"bounded"}, func(p *plant) {
		never := make(chan struct{})
		p.medium = func(_ gpu.Identity, m gpu.Medium, err error) (gpu.Medium, error) {
			go func() { <-never }()
			return m, err
		}
	}},
	{"a scrape waits for the hardware", 9, []string{"scrape"}, func(p *plant) {
		p.view = func(v *gpu.View) *gpu.View {
			for _, dev := range p.devs {
				if i := slices.IndexFunc(v.GPUs, func(g gpu.GPU) bool { return g.UUID == dev.Identity().UUID }); i >= 0 &&
					v.GPUs[i].State == gpu.DeviceUp {
					_, _ = dev.Fast(false)
					break
				}
			}
			return v
		}
	}},
	{"polls that come late lose time", 1, []string{"sum"}, func(p *plant) {
		last, lost := time.Time{}, time.Duration(0)
		p.view = func(v *gpu.View) *gpu.View {
			if late := v.At.Sub(last) - time.Minute; !last.IsZero() && late > 0 {
				lost += late
			}
			last = v.At
			return withGPUs(v, func(c *gpu.GPU) {
				c.GPUSeconds = maps.Clone(c.GPUSeconds)
				c.GPUSeconds[gpu.TimeUnknown] -= gpu.Seconds(lost.Seconds())
			})
		}
	}},
	{"frozen readings are shown", 45, []string{"frozen"}, func(p *plant) {
		p.view = func(v *gpu.View) *gpu.View {
			return withGPUs(v, func(c *gpu.GPU) {
				if f, ok := c.Fast.Get(); ok && !f.Power.Present() {
					shown := *f
					shown.Power = gpu.Some(gpu.Watts(345.678))
					c.Fast = gpu.Some(&shown)
				}
			})
		}
	}},
	{"a value that cannot be is cut to one that can", 3, []string{"truth"}, func(p *plant) {
		p.fast = func(_ gpu.Identity, f gpu.Fast, err error) (gpu.Fast, error) {
			if w, ok := f.Power.Get(); ok && w > 1000 {
				f.Power = gpu.Some(gpu.Watts(1000))
			}
			return f, err
		}
		p.medium = func(_ gpu.Identity, m gpu.Medium, err error) (gpu.Medium, error) {
			if t, ok := m.Temperature.Get(); ok && t > 150 {
				m.Temperature = gpu.Some(gpu.Celsius(150))
			}
			return m, err
		}
	}},
}

// withGPUs returns a copy of a view whose GPUs are changed.
func withGPUs(v *gpu.View, change func(*gpu.GPU)) *gpu.View {
	w := *v
	w.GPUs = slices.Clone(v.GPUs)
	for i := range w.GPUs {
		change(&w.GPUs[i])
	}
	return &w
}
