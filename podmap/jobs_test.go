package podmap

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/internal/sampler"
)

// jobNode is a node of four GPUs, its kubelet and its driver. A GPU is busy while a job has it.
type jobNode struct {
	mu     sync.Mutex
	listed [4]string // the job that the kubelet lists
	since  [4]time.Time
	truth  map[string]float64 // seconds for which it was
	rings  [4]gpu.Ring        // since they were read
}

// sample adds to the rings what a driver does, every 100 ms.
func (n *jobNode) sample(ctx context.Context) {
	for ctx.Err() == nil {
		time.Sleep(100 * time.Millisecond)
		n.mu.Lock()
		for i := range n.rings {
			s := gpu.Sample{Time: time.Now().UnixMicro()}
			if n.listed[i] != "" {
				s.Value = 100
			}
			n.rings[i] = append(n.rings[i], s)
		}
		n.mu.Unlock()
	}
}

func (n *jobNode) uuid(i int) gpu.UUID {
	return gpu.UUID(fmt.Sprintf("GPU-%08d-0000-4000-8000-000000000000", i))
}

func (n *jobNode) set(i int, job string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := time.Now()
	if before := n.listed[i]; before != "" {
		n.truth[before] += now.Sub(n.since[i]).Seconds()
	}
	n.listed[i], n.since[i] = job, now
}

func (n *jobNode) list() *podresources.ListPodResourcesResponse {
	n.mu.Lock()
	defer n.mu.Unlock()
	lines := []string{"kube-system/exporter/c"}
	for i, job := range n.listed {
		if job != "" {
			lines = append(lines, fmt.Sprintf("a/%s/c nvidia.com/gpu=%s", job, n.uuid(i)))
		}
	}
	return pods(lines...)
}

// Open and the rest are a driver whose rings have a sample per 100 ms.
func (n *jobNode) Open() (sampler.Session, error)                     { return n, nil }
func (n *jobNode) System() gpu.System                                 { return gpu.System{} }
func (n *jobNode) Close() error                                       { return nil }
func (n *jobNode) Bindings() (unbound, bound bool)                    { return false, false }
func (n *jobNode) WaitEvents(d time.Duration) ([]gpu.XIDEvent, error) { time.Sleep(d); return nil, nil }
func (n *jobNode) Scan() (out []sampler.GPU, err error) {
	for i := range n.listed {
		out = append(out, &jobGPU{n, i})
	}
	return out, nil
}

type jobGPU struct {
	n *jobNode
	i int
}

func (g *jobGPU) Identity() gpu.Identity {
	return gpu.Identity{UUID: g.n.uuid(g.i), Index: g.i, PCI: gpu.PCIAddress(fmt.Sprintf("0000:%02x:00.0", g.i+1))}
}
func (g *jobGPU) NotOffered() []string        { return nil }
func (g *jobGPU) Medium() (gpu.Medium, error) { return gpu.Medium{}, nil }
func (g *jobGPU) Slow() (gpu.Slow, error)     { return gpu.Slow{}, nil }
func (g *jobGPU) Fast(bool) (gpu.Fast, error) {
	g.n.mu.Lock()
	defer g.n.mu.Unlock()
	now := time.Now()
	f := gpu.Fast{Taken: now, Busy: gpu.Some(g.n.rings[g.i])}
	g.n.rings[g.i] = nil
	return f, nil
}

// Jobs whose pods have a GPU for seconds: what is counted of their allocated and busy time. The GPUs are allocated to
// nobody else.
func TestJobsOfSeconds(t *testing.T) {
	const second = time.Second
	for _, c := range []struct {
		name         string
		interval     time.Duration // of the kubelet's poll
		events       bool          // at each begin and end
		length       time.Duration
		skew, late   time.Duration // of the four pods of a wave; of the kubelet's list after the event of an end
		within, busy float64       // limits of the errors of all
		worst        float64       // limit of the error of one, in seconds
	}{
		{"events, four at once", 0, true, 6400 * time.Millisecond, 100 * time.Millisecond, 0, 0.03, 0.05, 0.8},
		{"events before the kubelet's list", 0, true, 6400 * time.Millisecond, 100 * time.Millisecond, second, 0.03, 0.05, 0.8},
		{"events, scattered", 0, true, 6400 * time.Millisecond, 5 * second, 0, 0.03, 0.05, 0.8},
		{"events before the kubelet's list, scattered", 0, true, 6400 * time.Millisecond, 5 * second, second, 0.03, 0.05, 0.8},
		{"longer", 0, true, 8600 * time.Millisecond, 3 * second, 0, 0.03, 0.05, 0.8},
		{"a poll per second", second, false, 6400 * time.Millisecond, 5 * second, 0, 0.03, 0.12, 1.6},
		{"a poll in 10 s", 0, false, 6400 * time.Millisecond, 5 * second, 0, 0.7, 0.8, 20},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := &jobNode{truth: map[string]float64{}}
				k := &fakeKubelet{answer: n.list}
				var s *sampler.Sampler
				m := newMap(Options{Interval: c.interval, Polled: func() { s.AllocationsChanged() }}, k)
				s = sampler.New(sampler.Options{Driver: n, Resolver: m})
				ctx, cancel := context.WithCancel(t.Context())
				var loops sync.WaitGroup
				loops.Go(func() { m.Run(ctx) })
				loops.Go(func() { s.Run(ctx) })
				loops.Go(func() { n.sample(ctx) })
				counted, busy := map[string]float64{}, map[string]float64{}
				loops.Go(func() { // a page twice a second
					for ctx.Err() == nil {
						time.Sleep(second / 2)
						for _, x := range s.Latest().Containers {
							counted[x.Container.Pod] = max(counted[x.Container.Pod], float64(x.Allocated.Or(0)))
							busy[x.Container.Pod] = max(busy[x.Container.Pod], float64(x.Busy.Or(0)))
						}
					}
				})
				event := func() {
					if c.events {
						m.changed()
					}
				}
				random := rand.New(rand.NewPCG(1, 2))
				start := time.Now()
				time.Sleep(20 * second)
				for wave := range 25 {
					var all sync.WaitGroup
					for i := range n.listed {
						skew := time.Duration(random.Int64N(int64(c.skew)))
						all.Go(func() {
							time.Sleep(skew)
							n.set(i, fmt.Sprintf("job-%d-%d", wave, i))
							event()
							time.Sleep(c.length - c.late)
							event()
							time.Sleep(c.late)
							n.set(i, "")
						})
					}
					all.Wait()
					time.Sleep(time.Duration(random.Int64N(int64(4 * second))))
				}
				time.Sleep(20 * second)
				if calls, most := k.lists.Load(), int64(time.Since(start)/spacing); calls > most {
					t.Errorf("%d queries, want at most %d", calls, most)
				}
				cancel()
				loops.Wait()
				var truth, sum, sumBusy, worst float64
				for job, seconds := range n.truth {
					truth += seconds
					sum += counted[job]
					sumBusy += busy[job]
					worst = max(worst, math.Abs(counted[job]-seconds))
				}
				t.Logf("%d jobs, %.1f GPU-seconds: allocated %+.1f %%, at worst %.2f s; busy %+.1f %%", len(n.truth), truth,
					100*(sum/truth-1), worst, 100*(sumBusy/truth-1))
				if math.Abs(sum/truth-1) > c.within || math.Abs(sumBusy/truth-1) > c.busy || worst > c.worst {
					t.Errorf("want allocated within %v, busy within %v, and each within %v s", c.within, c.busy, c.worst)
				}
			})
		})
	}
}
