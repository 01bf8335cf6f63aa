package sampler

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// fakeDriver plays a driver. Tests change it between steps, holding mu.
type fakeDriver struct {
	t  *testing.T
	mu sync.Mutex

	openErr  error
	scanErr  error
	closeErr error
	eventErr error
	devs     []*fakeGPU
	events   []gpu.XIDEvent
	settled  bool                     // a session knows the GPUs of its beginning, as NVML does
	hang     map[string]chan struct{} // open, scan, events, close: blocks while there is a channel
	panics   string                   // open, scan, events or close: panics
	waits    []time.Time              // of WaitEvents
	hasty    bool                     // WaitEvents returns at once
	unbound  bool                     // WaitEvents returns and Bindings reports it
	bound    bool

	opens, closes, scans int
	open                 bool
	inside               int // calls of GPUs under way
}

// fakeGPU plays one GPU.
type fakeGPU struct {
	d        *fakeDriver
	id       gpu.Identity
	err      error    // of every poll group
	errs     [3]error // of one poll group; gpu.ErrPanic panics
	hang     chan struct{}
	util     float64
	power    float64
	memory   gpu.Opt[gpu.Memory]
	procs    gpu.Opt[[]gpu.Process]
	samples  gpu.Opt[[]gpu.ProcessSample]
	mig      gpu.Opt[gpu.ModePair]
	layout   []gpu.Instance
	staleIn  int                  // the poll group that contradicts the layout, + 1; 0: none does
	gpm      map[gpu.UUID]float64 // of its instances
	recovery gpu.Opt[gpu.RecoveryAction]
	accounts gpu.Opt[[]gpu.ProcessAccount]
	cgroups  []gpu.CgroupMemory
	delay    time.Duration // of each call
	noRing   bool
	links    gpu.Opt[gpu.NVLinkCount]

	// depth and period are those of its ring; rings is how often that was read.
	depth, period time.Duration
	rings         int

	calls  [3]int
	inside int
	read   time.Time // of the ring
	fills  time.Time // when the ring is full, whatever its size; zero once it was read so
}

func newFake(t *testing.T, devs int) *fakeDriver {
	d := &fakeDriver{t: t, hang: map[string]chan struct{}{}}
	for i := range devs {
		d.devs = append(d.devs, &fakeGPU{d: d, power: 100, depth: 9900 * time.Millisecond, period: 100 * time.Millisecond,
			id: gpu.Identity{UUID: gpu.UUID(fmt.Sprintf("GPU-%d", i)), Index: i, Model: "H100", XIDEvents: true,
				PCI: gpu.PCIAddress(fmt.Sprintf("0000:%02x:00.0", i+1))}, memory: gpu.Some(gpu.Memory{Total: 80 << 30, Used: 8 << 30})})
	}
	return d
}

// with changes the driver.
func (d *fakeDriver) with(f func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f()
}

// waited returns when WaitEvents was called.
func (d *fakeDriver) waited() []time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.waits)
}

// calls returns how often each poll group of a GPU was called.
func (d *fakeDriver) calls(dev int) [3]int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.devs[dev].calls
}

func (d *fakeDriver) block(what string) {
	d.mu.Lock()
	c, panics := d.hang[what], d.panics == what
	d.open = d.open && !(panics && what == "close")
	d.mu.Unlock()
	if c != nil {
		<-c
	}
	if panics {
		panic("nil map")
	}
}

func (d *fakeDriver) Open() (Session, error) {
	d.block("open")
	d.mu.Lock()
	defer d.mu.Unlock()
	d.opens++
	if d.openErr != nil {
		return nil, d.openErr
	}
	if d.open {
		d.t.Error("two sessions at once")
	}
	d.open = true
	return &fakeSession{d: d, devs: d.devs}, nil
}

type fakeSession struct {
	d      *fakeDriver
	devs   []*fakeGPU // at Open
	closed bool
}

func (s *fakeSession) System() gpu.System { return gpu.System{DriverVersion: "580.1"} }

func (s *fakeSession) Scan() ([]GPU, error) {
	s.d.block("scan")
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	s.d.scans++
	if s.d.scanErr != nil {
		return nil, s.d.scanErr
	}
	var out []GPU
	known := s.d.devs
	if s.d.settled {
		known = s.devs
	}
	for _, c := range known {
		out = append(out, &handle{c, s})
	}
	return out, nil
}

func (s *fakeSession) WaitEvents(timeout time.Duration) ([]gpu.XIDEvent, error) {
	s.d.mu.Lock()
	s.d.waits = append(s.d.waits, time.Now())
	s.d.mu.Unlock()
	s.d.block("events")
	s.d.mu.Lock()
	events, err, hasty := s.d.events, s.d.eventErr, s.d.hasty || s.d.unbound || s.d.bound
	s.d.events = nil
	s.d.mu.Unlock()
	if len(events) == 0 && err == nil && timeout > 0 && !hasty {
		time.Sleep(timeout)
	}
	return events, err
}

func (s *fakeSession) Bindings() (unbound, bound bool) {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	unbound, bound, s.d.unbound, s.d.bound = s.d.unbound, s.d.bound, false, false
	return unbound, bound
}

func (s *fakeSession) Close() error {
	s.d.block("close")
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	if s.d.inside > 0 {
		s.d.t.Error("the driver is shut down under a call")
	}
	s.closed, s.d.open = true, false
	s.d.closes++
	return s.d.closeErr
}

// handle is a GPU of one session.
type handle struct {
	*fakeGPU
	s *fakeSession
}

func (c *handle) Identity() gpu.Identity { return c.id }
func (c *handle) NotOffered() []string   { return []string{"fan_speed"} }

// call counts a call of a poll group in and out, and responds its error.
func (c *handle) call(pollGroup int) error {
	c.d.mu.Lock()
	c.calls[pollGroup]++
	c.inside++
	c.d.inside++
	if c.inside > 1 {
		c.d.t.Errorf("two calls at once on %s", c.id.UUID)
	}
	if c.s.closed {
		c.d.t.Errorf("%s is called after its session", c.id.UUID)
	}
	hang, delay := c.hang, c.delay
	c.d.mu.Unlock()
	if hang != nil {
		<-hang
	}
	time.Sleep(delay)
	c.d.mu.Lock()
	defer c.d.mu.Unlock()
	c.inside--
	c.d.inside--
	if c.err != nil {
		return c.err
	}
	if errors.Is(c.errs[pollGroup], gpu.ErrPanic) {
		panic("index out of range")
	}
	return c.errs[pollGroup]
}

func (c *handle) Fast(samples bool) (gpu.Fast, error) {
	if err := c.call(pollFast); err != nil {
		return gpu.Fast{}, err
	}
	c.d.mu.Lock()
	defer c.d.mu.Unlock()
	f := gpu.Fast{Taken: time.Now(), Power: gpu.Some(gpu.Watts(c.power)), Unsampled: !samples,
		Energy: gpu.Some(gpu.Joules(time.Now().Unix()))}
	if samples {
		c.rings++
		f.Utilization = gpu.Some(gpu.Utilization{GPU: gpu.Ratio(c.util)})
		var ring gpu.Ring
		now := time.Now()
		if c.rings == 1 {
			c.fills = now.Add(20 * time.Second)
		}
		due := !c.fills.IsZero() && !now.Before(c.fills)
		for at := now.Add(-c.depth).Truncate(c.period); !at.After(now); at = at.Add(c.period) {
			if due || at.After(c.read) {
				ring = append(ring, gpu.Sample{Time: at.UnixMicro(), Value: c.util * 100})
			}
		}
		if f.RingFull = !c.fills.IsZero() && (due || len(ring) >= 60); f.RingFull {
			c.fills = time.Time{}
		}
		c.read = now
		f.Busy, f.Processes, f.Accounts = gpu.Some(ring), c.samples, c.accounts
		if c.noRing {
			f.Busy = gpu.None[gpu.Ring]()
		}
	}
	for _, in := range c.layout {
		i := gpu.InstanceFast{UUID: in.UUID}
		if v, ok := c.gpm[in.UUID]; ok {
			i.GPM = gpu.Some(gpu.GPM{Window: 2 * time.Second, GraphicsActive: gpu.Some(gpu.Ratio(v))})
		}
		f.Instances = append(f.Instances, i)
	}
	f.LayoutStale = c.staleIn == pollFast+1
	return f, nil
}

func (c *handle) Medium() (gpu.Medium, error) {
	if err := c.call(pollMedium); err != nil {
		return gpu.Medium{}, err
	}
	c.d.mu.Lock()
	defer c.d.mu.Unlock()
	return gpu.Medium{Taken: time.Now(), Memory: c.memory, Processes: c.procs, Recovery: c.recovery,
		Temperature: gpu.Some(gpu.Celsius(50)), Cgroups: slices.Clone(c.cgroups),
		LayoutStale: c.staleIn == pollMedium+1}, nil
}

func (c *handle) Slow() (gpu.Slow, error) {
	if err := c.call(pollSlow); err != nil {
		return gpu.Slow{}, err
	}
	c.d.mu.Lock()
	defer c.d.mu.Unlock()
	c.staleIn = 0
	return gpu.Slow{Taken: time.Now(), MIGMode: c.mig, Instances: c.layout, NVLinks: c.links}, nil
}

// fakeResolver always gives the same answer.
type fakeResolver struct {
	mu  sync.Mutex
	h   gpu.Allocations
	inv []*gpu.Inventory
}

func (f *fakeResolver) Allocations(inv *gpu.Inventory) gpu.Allocations {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.inv = append(f.inv, inv)
	return f.h
}

func holdsWhole(pod string, dev gpu.UUID) gpu.Allocation {
	return gpu.Allocation{Container: gpu.Container{Namespace: "t", Pod: pod, Name: "c"}, Resource: "nvidia.com/gpu", GPU: dev,
		Share: gpu.Some(gpu.Ratio(1)), Source: gpu.SourcePodResources}
}

// expecterFunc is an Expecter.
type expecterFunc func() ([]Expected, error)

func (f expecterFunc) Expected() ([]Expected, error) { return f() }

// stand is a sampler on a fake driver, in a bubble of its own time.
type stand struct {
	*Sampler
	t *testing.T
	d *fakeDriver
}

// bubble runs f on a stepped sampler; time stands still unless a step or a wait lets it go.
func bubble(t *testing.T, d *fakeDriver, o Options, f func(*stand)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		d.t = t
		o.Driver, o.Node = d, "n1"
		s := &stand{New(o), t, d}
		f(s)
		// Let everything go that hangs, so that no goroutine stays behind.
		d.mu.Lock()
		for what, c := range d.hang {
			close(c)
			delete(d.hang, what)
		}
		for _, c := range d.devs {
			if c.hang != nil {
				close(c.hang)
				c.hang = nil
			}
		}
		d.mu.Unlock()
		time.Sleep(time.Second)
		s.Close()
		if d.open {
			t.Error("the driver was not shut down at the end")
		}
	})
}

// step lets two seconds go by, n times.
func (s *stand) step(n int) *gpu.View {
	for range n {
		time.Sleep(2 * time.Second)
		s.Step(time.Now())
	}
	return s.Latest()
}

func (s *stand) dev(i int) *gpu.GPU {
	s.t.Helper()
	v := s.Latest()
	if i >= len(v.GPUs) {
		s.t.Fatalf("GPU %d of %d", i, len(v.GPUs))
	}
	return &v.GPUs[i]
}

func (s *stand) source(name string) gpu.Source {
	s.t.Helper()
	for _, x := range s.Latest().Sources {
		if x.Name == name {
			return x
		}
	}
	s.t.Fatalf("no source %s", name)
	return gpu.Source{}
}

// seconds asserts where the seconds of a GPU went, and that no other was spent.
func (s *stand) seconds(i int, intent map[gpu.TimeState]float64) {
	s.t.Helper()
	c := s.dev(i)
	for _, use := range gpu.TimeStates {
		if got := float64(c.GPUSeconds[use]); got-intent[use] > 1e-6 || intent[use]-got > 1e-6 {
			s.t.Errorf("%s: %s is %v, want %v", c.UUID, use, got, intent[use])
		}
	}
}

var errOdd = errors.New("UNKNOWN")
