package account

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// sampling is a driver that records for each period the GPU's utilization and one process, and what it returns of them.
type sampling struct {
	random *rand.Rand
	period int64 // microseconds
	// present is true where the driver always has the process that was active last, false where it has one only if it was
	// active at the end of the period.
	present bool
	// truncated and omitted: the means of processes are whole percentages, those of 0 are left out. stops: periods of an
	// idle GPU are not recorded.
	truncated, omitted, stops bool
	cells                     []sampledCell
	// The newest samples of the GPU and of its processes that were read.
	ringCursor, cursor int64
}

type sampledCell struct {
	at, pid int64
	busy    float64
}

// record appends a period in which processes 1 to n were busy for a part of it.
func (d *sampling) record(at int64, busy float64, n int) {
	if last := len(d.cells) - 1; d.stops && busy == 0 && last >= 0 && d.cells[last].busy == 0 {
		return
	}
	c := sampledCell{at: at, busy: busy}
	if busy > 0 && (d.present || d.random.Float64() < busy) {
		c.pid = 1 + d.random.Int64N(int64(n))
	}
	d.cells = append(d.cells, c)
}

// keep drops what is older than the driver's 72 samples.
func (d *sampling) keep() {
	d.cells = d.cells[max(0, len(d.cells)-72):]
}

func (d *sampling) ring(until int64) (ring gpu.Ring) {
	for _, c := range d.cells {
		if c.at > d.ringCursor && c.at <= until {
			ring = append(ring, gpu.Sample{Time: c.at, Value: math.Round(c.busy * 100)})
			d.ringCursor = c.at
		}
	}
	return ring
}

func (d *sampling) processes(until int64) []gpu.ProcessSample {
	sums, newest, n := map[int64]float64{}, map[int64]int64{}, 0
	for _, c := range d.cells {
		if c.at > d.cursor && c.at <= until {
			n++
			if c.pid > 0 {
				sums[c.pid], newest[c.pid] = sums[c.pid]+c.busy*100, c.at
			}
		}
	}
	list := []gpu.ProcessSample{}
	for pid, sum := range sums {
		sm := math.Round(sum / float64(n))
		if d.truncated {
			sm = math.Floor(sum / float64(n))
		}
		if sm > 0 || !d.omitted {
			list = append(list, gpu.ProcessSample{PID: int(pid), SM: sm, Time: newest[pid]})
			d.cursor = max(d.cursor, newest[pid])
		}
	}
	return list
}

// A container that is alone on its GPU has no hidden work, whatever its load and whatever the driver leaves out of the
// samples: processes of less than a percent, all processes in periods at whose end none was active, the pauses of an
// idle GPU. Its processes are read up to two periods after the ring, and some reads fail. Where it uses managed memory, which
// is in no process's figure, it loses no more than half a percent of its time. So it is on each of two GPUs, of which what
// one shows of the driver holds for the other.
func TestContainerAloneHasNoHiddenWork(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 23))
	one := func(in int) bool { return random.IntN(in) == 0 }
	for i := range *cases / 25 {
		d := &sampling{random: random, period: []int64{100_000, 166_667, 200_000}[random.IntN(3)],
			present: one(2), truncated: one(2), omitted: one(2), stops: one(3)}
		poll := []float64{2, 4, 6}[random.IntN(3)]
		n := 1 + random.IntN(8)
		users := Users{}
		var list []gpu.Process
		for pid := 1; pid <= n; pid++ {
			users[pid] = User{Container: pod("p")}
			list = append(list, gpu.Process{PID: pid})
		}
		medium, managed := &gpu.Medium{Processes: gpu.Some(list)}, one(2)
		if managed {
			medium.Memory = gpu.Some(gpu.Memory{Total: 80 << 30, Used: 60 << 30, Reserved: gpu.Some(gpu.Bytes(1 << 29))})
			for i := range list {
				list[i].Memory = gpu.Some(gpu.Bytes(500 << 20))
			}
		}
		// A load is constant, or bursts and pauses of up to 100 s.
		load, bursts := []float64{0.005, 0.02, 0.1, 0.5, 0.9, 1}[random.IntN(6)], one(2)
		longest := []int{3, 30, 600}[random.IntN(3)]
		l := New(Options{})
		at := int64(1e12)
		devices := []*sampling{d, {random: d.random, period: d.period, present: d.present, truncated: d.truncated, omitted: d.omitted,
			stops: d.stops}}
		on, left := []bool{true, true}, []int{0, 0}
		for step := 0; float64(step)*poll < 600; step++ {
			begin := at
			var readings []Reading
			for k, d := range devices {
				for at = begin; at < begin+int64(poll*1e6); at += d.period {
					if left[k]--; bursts && left[k] < 0 {
						on[k], left[k] = !on[k], random.IntN(longest)
					}
					busy := 0.0
					if on[k] {
						busy = min(1, max(0, load*(0.7+0.6*random.Float64())))
					}
					d.record(at, busy, n)
				}
				d.keep()
				f := &gpu.Fast{}
				if !one(20) {
					f.Busy = gpu.Some(d.ring(at - int64(1+random.IntN(3))*d.period))
				}
				if !one(20) {
					f.Processes = gpu.Some(d.processes(at))
				}
				if f.Busy.Present() && f.Processes.Present() && one(40) {
					f = nil // both were read, and another call failed
				}
				name := gpu.UUID("AB"[k : k+1])
				readings = append(readings, Reading{Identity: gpu.Identity{UUID: name, Model: "M"}, Fast: f, Medium: medium})
			}
			l.Advance(Poll{Now: epoch, Elapsed: time.Duration(poll * float64(time.Second)), Users: users,
				Allocations: gpu.Allocations{Known: true, Configured: true,
					List: []gpu.Allocation{allocate("p", "A", 1), allocate("p", "B", 1)}},
				GPUs: readings})
			for _, r := range readings {
				found := gpu.GPU{Identity: r.Identity}
				l.Fill(&found)
				for _, u := range found.Unattributed {
					allowed := gpu.Seconds(0)
					if managed {
						allowed = max(1, .005*found.Activity.Busy.Or(0))
					}
					if u.Busy.Or(0) > allowed && step > 0 {
						t.Fatalf("case %d, poll %d: %v s are %s, load %v in bursts %v up to %d, driver %+v", i, step, u.Busy, u.Reason,
							load, bursts, longest, *d)
					}
				}
			}
		}
		if c := l.Containers(); len(c) != 2 || !managed && c[0].Attribution != attributionExclusive {
			t.Fatalf("case %d: %+v", i, c)
		}
	}
}

// How many readings of 2 s with 20 samples of the ring it takes until hidden work beside a sole container is proven: the
// time without a process has to exceed five samples and five standard deviations. v is the utilization in the ring, sum
// that of the processes. A reading adds 2 v² - 2.2 sum - 0.03 s, and 20 (0.1 v)² v (1 - v) to the variance.
func TestProofOfHiddenWork(t *testing.T) {
	for _, c := range []struct {
		v, sum float64
		want   int // 0: never
	}{
		{1, 1, 0}, {1, .98, 0},
		{1, .86, 7},  // 7 * 0.078 = 0.546 > 5 * 0.1
		{1, .5, 1},   // 0.87 > 5 * 0.1
		{.5, 0, 4},   // 4 * 0.47 = 1.88 > 5 (√(4 * 0.0125) + 0.1) = 1.62; 3 * 0.47 = 1.41 < 1.47
		{.5, .1, 9},  // 9 * 0.25 = 2.25 > 5 (√(9 * 0.0125) + 0.1) = 2.18; 8 * 0.25 = 2.00 < 2.08
		{.5, .25, 0}, // 0.5 - 0.55 - 0.03 < 0
		{.1, 0, 0}, {.02, 0, 0},
	} {
		var x explained
		at, got := 1000.0, 0
		for i := range 200 {
			ring := regular(at, at+2, .1, c.v*100)
			at += 2
			list := []gpu.ProcessSample{{PID: 1, SM: c.sum * 100, Time: ring[len(ring)-1].Time}}
			if c.sum == 0 && i > 0 {
				list = nil
			}
			if x.add(list, ring, .2); x.proven && got == 0 {
				got = i
			}
		}
		if got != c.want {
			t.Errorf("%v of the time busy, %v explained: proven in reading %d, want %d", c.v, c.sum, got, c.want)
		}
	}
	// A reading that is explained ends the doubt of those before, and a single one of garbage proves nothing.
	var x explained
	at := 1000.0
	read := func(percent float64, sm ...float64) {
		ring := regular(at, at+2, .1, percent)
		at += 2
		var list []gpu.ProcessSample
		for i, v := range sm {
			list = append(list, gpu.ProcessSample{PID: i, SM: v, Time: ring[len(ring)-1].Time})
		}
		x.add(list, ring, .2)
	}
	read(50, 50)
	for range 20 {
		for range 3 {
			read(50)
		}
		if read(50, 50); x.proven || x.missing != (excess{}) || x.some {
			t.Fatalf("%+v", x)
		}
	}
}

// Periods that need no process prove nothing, neither for nor against hidden work later; and a sample of the ring that is
// returned again is not one more.
func TestEvidenceOfHiddenWork(t *testing.T) {
	at := 1000.0
	var x explained
	read := func(percent, sm float64) {
		ring := regular(at, at+2, .1, percent)
		at += 2
		x.add([]gpu.ProcessSample{{PID: 1, SM: sm, Time: ring[len(ring)-1].Time}}, ring, .2)
	}
	read(100, 100)
	for range 50 {
		if read(10, 0); x.proven || !x.some || x.missing != (excess{}) {
			t.Fatalf("%+v", x)
		}
	}
	if read(100, 50); !x.proven {
		t.Errorf("%+v", x)
	}
	near(t, "missing", x.missing.sum, .87)
	near(t, "variance", x.missing.variance, 0)
	x = explained{}
	x.add([]gpu.ProcessSample{{PID: 1, SM: 100, Time: 10e6}}, samples(9.9, 100, 10, 100), .2)
	if x.add(nil, samples(10, 100, 10.1, 100, 10.2, 100), .2); x.some || len(x.cells) != 2 {
		t.Errorf("%+v", x)
	}
	if x.add(nil, samples(10.3, 100), .2); !x.some || x.proven { // 0.1 - 0.0015 s: the two before were not counted
		t.Errorf("%+v", x)
	}
	near(t, "missing", x.missing.sum, .0985)
	// A distance of two periods is one, a longer one a pause: its sample is that of one period.
	for distance, want := range map[float64]float64{.2: .2 * .985, .3: .1 * .985} {
		x = explained{until: 10e6}
		x.add([]gpu.ProcessSample{{PID: 1, Time: 10e6 + int64(distance*1e6)}}, samples(10+distance, 100), .2)
		near(t, "missing after a pause", x.missing.sum, want)
	}
}

// Hidden work is the same in whatever order the driver returns the samples of the ring.
func TestHiddenWorkInAnyOrder(t *testing.T) {
	for _, slots := range []bool{false, true} {
		w := newWorld(t, "A")
		c := w.devices[0]
		w.users, w.allocs.List = testUsers, []gpu.Allocation{allocate("p", "A", 1)}
		c.medium, c.hasWeights, c.util, c.slots = medium(3, 1, 1), true, 1, slots
		for i := range 10 {
			sm := map[bool]float64{true: 100, false: 50}[i < 5]
			c.weights = []gpu.ProcessSample{{PID: 1, SM: sm, Time: int64((1000 + w.now + 2) * 1e6)}}
			w.step(2)
		}
		value(t, "hidden", unattributedBy(t, w.device("A"), gpu.UnattributedHidden).Busy, 5)
		closes(t, w, "A")
	}
}

// A minute after hidden work beside a sole container it has the whole GPU again, though nothing runs on it, and though
// the ring is no longer offered.
func TestHiddenWorkIsOver(t *testing.T) {
	for name, after := range map[string]func(*fakeGPU){
		"idle":             func(c *fakeGPU) { c.util = 0 },
		"the ring stopped": func(c *fakeGPU) { c.util, c.emptyRing = 0, true },
		"no ring":          func(c *fakeGPU) { c.noRing = true },
	} {
		w := newWorld(t, "A")
		c := w.devices[0]
		w.users, w.allocs.List = testUsers, []gpu.Allocation{allocate("p", "A", 1)}
		c.medium, c.hasWeights, c.util = medium(3, 1, 1), true, 1
		step := func(sm float64) {
			c.weights = nil
			if sm > 0 {
				c.weights = []gpu.ProcessSample{{PID: 1, SM: sm, Time: int64((1000 + w.now + 2) * 1e6)}}
			}
			w.step(2)
		}
		for range 5 {
			step(100)
		}
		for range 5 {
			step(50)
		}
		if got := w.container("p", "A"); got.Attribution != attributionProcess {
			t.Fatalf("%s: method %s with hidden work", name, got.Attribution)
		}
		value(t, name+": hidden", unattributedBy(t, w.device("A"), gpu.UnattributedHidden).Busy, 5)
		after(c)
		for i := range 60 {
			step(0)
			want := attributionProcess
			if 2*i+2 >= hiddenHold {
				want = attributionExclusive
			}
			if got := w.container("p", "A"); got.Attribution != want {
				t.Fatalf("%s: method %s, %d s after the hidden work", name, got.Attribution, 2*i+2)
			}
		}
		before := unattributedBy(t, w.device("A"), gpu.UnattributedHidden).Busy.Or(0)
		c.util = .5
		for range 10 {
			step(50)
		}
		value(t, name+": hidden later", unattributedBy(t, w.device("A"), gpu.UnattributedHidden).Busy, float64(before))
		closes(t, w, "A")
	}
}

// What a reading of the processes covers is not compared again, though the ring had nothing new in it.
func TestProcessesAheadOfTheRing(t *testing.T) {
	var x explained
	x.add([]gpu.ProcessSample{{SM: 50, Time: 1e6}}, samples(1, 50), .2)
	x.add([]gpu.ProcessSample{{SM: 100, Time: 1_200_000}}, samples(1, 50), .2) // the ring follows in the next reading
	x.add([]gpu.ProcessSample{{SM: 50, Time: 1_400_000}}, samples(1.1, 100, 1.2, 100, 1.3, 50, 1.4, 50), .2)
	if x.some || x.until != 1_400_000 || len(x.cells) != 0 {
		t.Errorf("%+v", x)
	}
}
