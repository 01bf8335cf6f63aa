package main

import (
	"flag"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/internal/standin"
)

var (
	soakFor       = flag.Duration("soak", 0, "how long the simulated soak lasts: 168h is a week; 0: the short form")
	soakBinaryFor = flag.Duration("soak-binary", 0, "how long the soak of the real binary lasts; 0: the short form")
)

const (
	shortSoak       = 30 * time.Minute
	shortSoakBinary = 10 * time.Second
)

// TestSoak lets days go by in which nothing fails and nothing stands still: pods, MIG layouts, XID storms. At the end
// every counter is that of the world, and the program holds no more than at the beginning.
func TestSoak(t *testing.T) {
	isolated(t, func(t *testing.T) {
		length := *soakFor
		if length == 0 {
			length = shortSoak
		}
		r := begin(t, newQuietWorld(5, length), nil, "--poll.fast=5s")
		r.tick, r.every = 5*time.Second, 12
		r.run()
		r.every = 1
		r.advance()
		r.step()
		checkAccounts(r)
		r.finish()
		r.report()
		f := r.figures
		t.Logf("%v of the scenario: %d steps, %d pods, %d layouts, %d XIDs; %d statements checked, at most %d series, %d "+
			"goroutines and %d MiB; violations: %d",
			length, f.Steps, len(r.w.workloads), len(r.w.devs[GPUMIG].migs), xidsOf(r.w), f.Checks,
			f.Series, f.Goroutines, f.Heap>>20, len(r.violations))
	})
}

func xidsOf(w *world) int {
	n := 0
	for _, x := range w.xids {
		n += max(x.nvml, x.kmsg)
	}
	return n
}

// checkAccounts compares the last values of all counters with what happened.
func checkAccounts(r *trial) {
	c := &r.check
	for i := range c.devs {
		k := &c.devs[i]
		if i == GPUMIG {
			busy := c.last[key{family: "gpu_busy_seconds_total", dev: i}]
			c.expect(math.Abs(busy-k.busy) < 0.03*k.busy+5, "truth", "GPU %d worked %.1f s and shows %.1f s", i, k.busy, busy)
		} else {
			busy := c.last[key{family: "gpu_busy_seconds_total", dev: i}]
			c.expect(math.Abs(busy-k.sampled) < 0.6, "truth", "GPU %d worked %.2f s by its samples and shows %.2f s", i, k.sampled, busy)
			c.expect(math.Abs(busy-k.busy) < 2+1e-4*r.at.Seconds(), "truth", "GPU %d worked %.2f s and shows %.2f s", i, k.busy, busy)
		}
		energy := c.last[key{family: "gpu_energy_joules_total", dev: i}]
		c.expect(math.Abs(energy-k.energy) < 1e-6*k.energy+1, "truth", "GPU %d used %.1f J and shows %.1f J", i, k.energy, energy)
		observed := c.last[key{family: "gpu_observed_seconds_total", dev: i}]
		c.expect(i == GPUMIG || math.Abs(observed-r.at.Seconds()) < 15, "truth", "GPU %d was observed for %.0f s of %.0f s", i, observed,
			r.at.Seconds())
	}
	for id, n := range c.low {
		shown := c.last[key{family: "gpu_xid_events_total", dev: id[0], rest: fmt.Sprintf("xid=%d,", id[1])}]
		c.expect(int(shown) >= n && int(shown) <= c.high[id], "xid lost", "XID %d of GPU %d came %d to %d times and is counted %v times",
			id[1], id[0], n, c.high[id], shown)
	}
	for _, p := range r.w.workloads {
		if p.dev == everyGPU || p.listed.from > r.at-time.Minute {
			continue
		}
		k := c.pods[p]
		allocated := c.last[key{"gpu_container_allocated_seconds_total", p.dev, p.name, ""}]
		want := p.share * (min(p.listed.to, r.at) - p.listed.from).Seconds()
		unseen := 0.0
		if p.dev == GPUMIG {
			unseen = 60 * p.share // a new layout is seen by the slow poll group
		}
		c.expect(math.Abs(allocated-want) < 16+unseen, "truth", "%s allocated %.1f s and is said to have allocated %.1f s", p.name, want,
			allocated)
		busy := c.last[key{"gpu_container_busy_seconds_total", p.dev, p.name, ""}]
		slack := 0.02*k.busy + 0.5 + r.tick.Seconds() + unseen
		if p.dev == GPUShared {
			slack = 0.1*k.busy + 8 // the driver names one process per sample
		}
		c.expect(math.Abs(busy-k.busy) < slack, "truth", "%s worked %.1f s and is said to have worked %.1f s", p.name, k.busy, busy)
	}
}

// TestSoakBinary runs the real binary with poll groups a hundred times faster, as far as it allows, and pods that come and
// go: what it holds stays flat.
func TestSoakBinary(t *testing.T) {
	t.Parallel()
	length := *soakBinaryFor
	if length == 0 {
		length = shortSoakBinary
	}
	m := node(t, twoGPUs+"process gpu=0 pid=5000 memory=4GiB busy=50% period=1s\nload gpu=1 busy=30% period=700ms\n", twoPods)
	p := m.startAt("--poll.fast=100ms", "--poll.medium=100ms", "--poll.slow=600ms", "--poll.kubelet=1s", "--container-limit=20")
	p.until(t, "both sources are up", bothUp)
	for attempt := 1; ; attempt++ {
		grows := m.grows(t, p, length)
		// In a few seconds a single garbage collection is a slope, but not three times; over some minutes it is none.
		if len(grows) == 0 {
			break
		}
		if t.Log(grows); attempt == 3 || length >= 3*time.Minute {
			t.Error(grows)
			break
		}
	}
}

// grows replaces the node's pods each second, and returns what of the exporter grows meanwhile.
func (m *simulated) grows(t *testing.T, p *process, length time.Duration) (out []string) {
	t.Helper()
	families := []string{"process_resident_memory_bytes", "go_goroutines", "process_open_fds"}
	var at []float64
	values := map[string][]float64{}
	generation := 0
	update := time.NewTicker(250 * time.Millisecond)
	defer update.Stop()
	for start := time.Now(); time.Since(start) < length; {
		<-update.C // real time is what this test is about
		if n := int(time.Since(start) / time.Second); n != generation {
			generation = n
			pods, err := standin.ParsePods("pods", strings.NewReader(strings.ReplaceAll(twoPods, "ml/train-0",
				fmt.Sprintf("ml/train-%d", n))))
			must.OK(t, err)
			m.Kubelet.SetNode(pods)
		}
		s, err := p.scrape()
		must.OK(t, err)
		if time.Since(start) < length/3 {
			continue // what is made once is made by now
		}
		at = append(at, time.Since(start).Minutes())
		for _, f := range families {
			v, err := s.one(f)
			must.OK(t, err)
			values[f] = append(values[f], v)
		}
	}
	for _, f := range families {
		slope, mean := line(at, values[f])
		t.Logf("%s: %.0f on average, %+.2f a minute", f, mean, slope)
		if grown := slope * (at[len(at)-1] - at[0]); grown > 0.06*mean+2 || length >= 3*time.Minute && slope > 0.02*mean+0.5 {
			out = append(out, fmt.Sprintf("%s grows by %.1f a minute, and is %.1f on average", f, slope, mean))
		}
	}
	return out
}

// line fits a straight line by least squares, and returns its slope and the mean.
func line(x, y []float64) (slope, mean float64) {
	mx, my := sum(x)/float64(len(x)), sum(y)/float64(len(y))
	var xy, xx float64
	for i := range x {
		xy += (x[i] - mx) * (y[i] - my)
		xx += (x[i] - mx) * (x[i] - mx)
	}
	return xy / xx, my
}
