package main

import (
	"cmp"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
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
	named  func(gpu.Identity) gpu.Identity
	kernel func(gpu.XIDEvent) bool // whether an event of the kernel log counts
	page   func(http.Handler) http.Handler
	// What the world makes of a GPU that the driver lists, and of a reading.
	found      func(gpu.Identity) gpu.Identity
	taken      func() bool           // the driver's events, by another process
	listed     func(pod string) bool // by an API server
	lists      func(pid int) string  // the pod that the kubelet lists with the device of a process
	sick       func(gpu.Identity, *gpu.Fast)
	view       func(*gpu.View) *gpu.View // nil: the collector has the sampler's own
	devs       []sampler.GPU             // of the last scan
	checkpoint string                    // its path
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
		named:  func(id gpu.Identity) gpu.Identity { return id },
		kernel: func(gpu.XIDEvent) bool { return true },
		page:   func(h http.Handler) http.Handler { return h },
		found:  func(id gpu.Identity) gpu.Identity { return id },
		sick:   func(gpu.Identity, *gpu.Fast) {},
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
	{"the innermost pod of a cgroup owns the process", 2, []string{"wrong pod", "false zero"}, func(p *plant) {
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
	{"what both sources tell is counted for each", 2, []string{"xid doubled"}, func(p *plant) {
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
	{"time without samples is not busy", 1, []string{"false zero"}, func(p *plant) {
		p.view = func(v *gpu.View) *gpu.View {
			return withGPUs(v, func(c *gpu.GPU) {
				c.GPUSeconds = maps.Clone(c.GPUSeconds)
				c.GPUSeconds[gpu.TimeGap] += c.GPUSeconds[gpu.TimeUnknown]
				c.GPUSeconds[gpu.TimeUnknown] = 0
			})
		}
	}},
	{"a GPU is known by its address", 349, []string{"ended"}, func(p *plant) {
		first := map[gpu.PCIAddress]gpu.UUID{}
		p.named = func(id gpu.Identity) gpu.Identity {
			if _, known := first[id.PCI]; !known {
				first[id.PCI] = id.UUID
			}
			id.UUID = first[id.PCI]
			return id
		}
	}},
	{"the driver's clock counts the time", 14, []string{"sum"}, func(p *plant) {
		var mu sync.Mutex
		type clock struct{ first, last int64 }
		driver, started := map[gpu.UUID]clock{}, map[gpu.UUID]time.Time{}
		p.fast = func(id gpu.Identity, f gpu.Fast, err error) (gpu.Fast, error) {
			mu.Lock()
			defer mu.Unlock()
			for _, s := range f.Busy.Or(nil) {
				c := driver[id.UUID]
				driver[id.UUID] = clock{cmp.Or(c.first, s.Time), max(c.last, s.Time)}
			}
			return f, err
		}
		p.view = func(v *gpu.View) *gpu.View {
			mu.Lock()
			defer mu.Unlock()
			return withGPUs(v, func(c *gpu.GPU) {
				if started[c.UUID].IsZero() {
					started[c.UUID] = v.At
				}
				ahead := float64(driver[c.UUID].last-driver[c.UUID].first)/1e6 - v.At.Sub(started[c.UUID]).Seconds()
				c.GPUSeconds = maps.Clone(c.GPUSeconds)
				c.GPUSeconds[gpu.TimeUnknown] += gpu.Seconds(max(0, ahead))
			})
		}
	}},
	{"the rate of a profile is the counter", 17, []string{"twice"}, func(p *plant) {
		var mu sync.Mutex
		sent := map[gpu.UUID]gpu.Bytes{}
		p.fast = func(id gpu.Identity, f gpu.Fast, err error) (gpu.Fast, error) {
			mu.Lock()
			defer mu.Unlock()
			pair := f.GPM.Or(gpu.GPM{})
			sent[id.UUID] += gpu.Bytes(pair.PCIeTransmit.Or(0) * pair.Window.Seconds())
			f.PCIeTransmit = gpu.Some(1<<33 + sent[id.UUID])
			return f, err
		}
	}},
	{"the checkpoint is the list", 14, []string{"false zero"}, func(p *plant) {
		p.allocs = func(h gpu.Allocations) gpu.Allocations {
			text, _ := os.ReadFile(p.checkpoint)
			h.List = slices.DeleteFunc(slices.Clone(h.List), func(a gpu.Allocation) bool {
				return !strings.Contains(string(text), uidOf(a.Container.Pod))
			})
			return h
		}
	}},
	{"what the API server does not list has ended", 14, []string{"false zero"}, func(p *plant) {
		p.allocs = func(h gpu.Allocations) gpu.Allocations {
			h.List = slices.DeleteFunc(slices.Clone(h.List), func(a gpu.Allocation) bool { return !p.listed(a.Container.Pod) })
			return h
		}
	}},
	{"a UID is that of the pod which the kubelet lists with its devices", 283, []string{"wrong pod"}, func(p *plant) {
		p.user = func(pid int, u account.User) account.User {
			if c := p.lists(pid); u.Reason != "" && c != "" {
				u = account.User{Container: gpu.Container{Namespace: "team", Pod: c, Name: "main"}}
			}
			return u
		}
	}},
	{"the kernel log counts while the driver's events come", 19, []string{"xid lost"}, func(p *plant) {
		kept := false
		p.events = func(e []gpu.XIDEvent) []gpu.XIDEvent {
			kept = kept || len(e) > 0
			return e
		}
		p.kernel = func(gpu.XIDEvent) bool { return !kept || !p.taken() }
	}},
	{"a page ends with its connection", 311, []string{"scrape"}, func(p *plant) {
		p.page = func(h http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				page := httptest.NewRecorder()
				h.ServeHTTP(page, r)
				w.Header().Set("Transfer-Encoding", "identity")
				_, _ = w.Write(page.Body.Bytes())
			})
		}
	}},
	{"frozen readings are shown", 188, []string{"frozen"}, func(p *plant) {
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
