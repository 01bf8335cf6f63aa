package main

import (
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/internal/standin"
	"github.com/gpu-exporter/gpu-exporter/internal/standin/scenario"
)

const sharedGPU = "GPU-aaaaaaaa-0000-4000-8000-000000000000"

// oneGPU begins the scenarios of a node with one GPU.
const oneGPU = "scenario 1\ntitle \"one GPU\"\ninclude boards/h100-sxm.scenario\nsymbols R580\n" +
	"system DriverVersion = \"580.105.08\"\ngpu 0 board=h100 uuid=" + sharedGPU + " pci=0000:18:00.0 minor=0\n"

// containers is one GPU that so many pods share by time slicing, each with one process of a known duty cycle.
func workloads(t *testing.T, n int) (*scenario.Scenario, string, []int) {
	t.Helper()
	var text, pods strings.Builder
	text.WriteString(oneGPU)
	pods.WriteString("allocatable nvidia.com/gpu")
	var pids []int
	for i := range n {
		fmt.Fprintf(&pods, " %s::%d", sharedGPU, i)
	}
	pods.WriteString("\n")
	for i := range n {
		pid := 5000 + i
		pids = append(pids, pid)
		// The first works most, the last least; the periods have no common measure.
		busy := max(1, 60/n-i*40/n/n)
		fmt.Fprintf(&text, "process gpu=0 pid=%d memory=%dMiB busy=%d%% period=%dms phase=%dms\n", pid, 500+100*i, busy,
			700+137*i, 53*i)
		fmt.Fprintf(&pods, "pod team/tenant-%d container c nvidia.com/gpu=%s::%d pids=%d\n", i, sharedGPU, i, pid)
	}
	s := parseScenario(t, text.String())
	return s, pods.String(), pids
}

func sum(v []float64) float64 {
	var s float64
	for _, x := range v {
		s += x
	}
	return s
}

// Each container's busy seconds are those that its process worked, as far as the driver's samples can tell, and
// in every window the containers and what belongs to nobody add up to the GPU.
func TestContainersGetWhatTheyUsed(t *testing.T) {
	list := cases{}
	for _, n := range []int{2, 4, 20} {
		list.add("R580", fmt.Sprint(n), func(t *testing.T) {
			s, pods, pids := workloads(t, n)
			st := play(t, s, pods, "--process-limit=8")
			st.run(20 * time.Second)
			first, begin := st.series(), st.control.Now()
			previous := first
			const window = 10 * time.Minute
			for range int(window / (10 * time.Second)) {
				st.run(10 * time.Second)
				now := st.series()
				closes(t, previous, now, "gpu_busy_seconds_total", "gpu_container_busy_seconds_total",
					"gpu_unattributed_busy_seconds_total")
				closes(t, previous, now, "gpu_energy_joules_total", "gpu_container_energy_joules_total",
					"gpu_unattributed_energy_joules_total")
				device := sum(now.match("gpu_memory_used_bytes"))
				parts := sum(now.match("gpu_container_memory_used_bytes")) +
					sum(now.match("gpu_unattributed_memory_used_bytes"))
				if math.Abs(device-parts) > 0.001*device {
					t.Fatalf("memory: the parts are %v of %v", parts, device)
				}
				// So do the processes, of which eight have series of their own.
				closes(t, previous, now, "gpu_busy_seconds_total", "gpu_process_busy_seconds_total", "none")
				processes := now.match("gpu_process_memory_used_bytes")
				if of := sum(processes); math.Abs(device-of) > 0.001*device || len(processes) != min(n, 8)+1 {
					t.Fatalf("memory: %d processes have %v of %v", len(processes), of, device)
				}
				previous = now
			}
			last := previous
			end := st.control.Now()
			// The driver names one process per sample: the count of a container's samples is binomial.
			samples := window.Seconds() / 0.166667
			for i, pid := range pids {
				pod := fmt.Sprintf(`pod="tenant-%d"`, i)
				got := sum(last.match("gpu_container_busy_seconds_total",
					pod)) - sum(first.match("gpu_container_busy_seconds_total",
					pod))
				want := float64(s.Truth(0).ProcessBusy(pid, begin, end))
				share := want / window.Seconds()
				allowed := max(0.05*want, 3*math.Sqrt(samples*share*(1-share))*0.166667)
				if math.Abs(got-want) > allowed {
					t.Errorf("container %d worked %.1f s and got %.1f s; %.1f s are allowed", i, want, got, allowed)
				}
			}
		})
	}
	list.run(t)
}

// Work of processes that the driver does not list is hidden, and never attributed to those that it lists.
func TestHiddenWork(t *testing.T) {
	list := cases{}
	for _, c := range []struct {
		name string
		busy []int // of the processes, in percent; 0: none
		load int   // hidden
		idle bool  // the processes end after a minute
		sole bool  // the whole GPU is allocated to the one container
	}{
		{"nothing hidden", []int{40, 20}, 0, false, false},
		{"two containers and hidden work", []int{40, 20}, 30, false, false},
		{"mostly hidden", []int{10, 5}, 60, false, false},
		{"three containers, little hidden", []int{20, 20, 20}, 10, false, false},
		{"idle processes", []int{40, 20}, 30, true, false}, {"one idle process", []int{40}, 30, true, false},
		{"one container, nothing hidden", []int{40}, 0, false, true},
		// Beside one container it takes some periods to prove, and more than what may lack a process by chance.
		{"one container and hidden work", []int{20}, 60, false, true}, {"one idle container", []int{40}, 30, true, true},
	} {
		list.add("R580", c.name, func(t *testing.T) {
			text := oneGPU
			allocatable, pods := "allocatable nvidia.com/gpu", ""
			for i, busy := range c.busy {
				id := fmt.Sprintf("%s::%d", sharedGPU, i)
				allocatable += " " + id
				pods += fmt.Sprintf("pod team/p%d container c nvidia.com/gpu=%s pids=%d\n", i, id, 5000+i)
				text += fmt.Sprintf("process gpu=0 pid=%d memory=1GiB busy=%d%% period=%dms", 5000+i, busy, 310+37*i)
				if c.idle {
					text += " to=60s\nprocess gpu=0 pid=" + fmt.Sprint(5000+i) +
						" memory=1GiB busy=0% period=1s from=60s"
				}
				text += "\n"
			}
			if c.load > 0 {
				text += fmt.Sprintf("load gpu=0 busy=%d%% period=290ms\n", c.load)
			}
			// One replica more than there are containers: none has the whole GPU.
			allocatable += " " + sharedGPU + "::9\n"
			if c.sole {
				allocatable, pods = "allocatable nvidia.com/gpu "+sharedGPU+"\n", strings.ReplaceAll(pods, "::0", "")
			}
			st := play(t, parseScenario(t, text), allocatable+pods)
			st.run(2 * time.Minute)
			before, begin := st.series(), st.control.Now()
			st.run(20 * time.Minute)
			after, truth := st.series(), st.s.Truth(0)
			grew := func(family string, pairs ...string) float64 {
				return sum(after.match(family, pairs...)) - sum(before.match(family, pairs...))
			}
			var all float64
			for i := range c.busy {
				want := float64(truth.ProcessBusy(5000+i, begin, st.control.Now()))
				got := grew("gpu_container_busy_seconds_total", fmt.Sprintf(`pod="p%d"`, i))
				t.Logf("container %d was busy %.1f s and got %.1f s", i, want, got)
				if all += want; math.Abs(got-want) > max(0.05*want, 3*math.Sqrt(want*0.1667))+0.1 {
					t.Errorf("container %d was busy %.1f s and got %.1f s", i, want, got)
				}
			}
			// The driver names one process per sample: see TestContainersGetWhatTheyUsed.
			device := grew("gpu_busy_seconds_total")
			if got := grew("gpu_unattributed_busy_seconds_total",
				`reason="hidden"`); math.Abs(got-(device-all)) > 0.05*20*60 {
				t.Errorf("%.1f s are hidden, and %.1f s are said to be", device-all, got)
			}
			t.Logf("device %.1f s, containers %.1f s, hidden %.1f s", device, grew("gpu_container_busy_seconds_total"),
				grew("gpu_unattributed_busy_seconds_total", `reason="hidden"`))
			closes(t, before, after, "gpu_busy_seconds_total", "gpu_container_busy_seconds_total",
				"gpu_unattributed_busy_seconds_total")
		})
	}
	list.run(t)
}

// Hidden work beside a container that has the whole GPU and is busy for 40 % of the time, with 3 GiB of memory: by its load,
// steady and in bursts of 30 s each 75 s, over twenty minutes from the start of both. Without it the container has all. One
// load is not proven: where the samples lack exactly what chance would leave out, and no container was alone on any GPU of
// the model. Where one was, on another GPU, every load is.
func TestHiddenWorkOfAllSizes(t *testing.T) {
	list := cases{}
	for _, load := range []int{0, 5, 10, 30, 50} {
		for kind := range 4 {
			bursts, beside := kind%2 == 1, kind > 1
			list.add("R580", fmt.Sprintf("%d, in bursts %v, beside another GPU %v", load, bursts, beside), func(t *testing.T) {
				const length, other, dev = 20 * time.Minute, "GPU-bbbbbbbb-0000-4000-8000-000000000000", `uuid="` + sharedGPU + `"`
				begin := map[bool]time.Duration{true: 100 * time.Second}[beside]
				text := oneGPU + "  MemoryInfo_v2 = total=81559MiB used=3GiB reserved=479MiB\n" +
					fmt.Sprintf("process gpu=0 pid=5000 memory=4GiB busy=40%% period=310ms from=%ds\n", int(begin.Seconds()))
				for at := int(begin.Seconds()) + 10; load > 0 && at < int((begin+length).Seconds()); at += 75 {
					if !bursts {
						text += fmt.Sprintf("load gpu=0 busy=%d%% period=290ms from=%ds\n", load, at-10)
						break
					}
					text += fmt.Sprintf("load gpu=0 busy=%d%% period=290ms from=%ds to=%ds\n", load, at, at+30)
				}
				pods := "allocatable nvidia.com/gpu " + sharedGPU + "\npod team/p container c nvidia.com/gpu=" + sharedGPU + " pids=5000\n"
				if beside {
					text += "gpu 1 board=h100 uuid=" + other + " pci=0000:19:00.0 minor=1\n" +
						"process gpu=1 pid=6000 memory=4GiB busy=50% period=310ms\n"
					pods += "pod team/q container c nvidia.com/gpu=" + other + " pids=6000\n"
				}
				st := play(t, parseScenario(t, text), pods)
				for _, until := range []time.Duration{2 * time.Minute, length} {
					st.run(begin + until - st.control.Now())
					now := st.series()
					want := float64(st.s.Truth(0).ProcessBusy(5000, 0, st.control.Now()))
					device := sum(now.match("gpu_busy_seconds_total", dev))
					got := sum(now.match("gpu_container_busy_seconds_total", dev))
					t.Logf("%v: the container was busy %.1f s and got %.1f s (%+.1f %%) of %.1f s; memory %.1f GiB", until, want, got,
						100*(got/want-1), device, sum(now.match("gpu_container_memory_used_bytes", dev))/(1<<30))
					if math.Abs(got/want-1) > .05 && until == length && (load != 30 || bursts || beside) {
						t.Errorf("the container was busy %.1f s and got %.1f s", want, got)
					}
					if load == 0 && got < .995*device {
						t.Errorf("without hidden work the container got %.1f s of %.1f s", got, device)
					}
				}
			})
		}
	}
	list.run(t)
}

// The exporter is stopped for 90 s, as by SIGSTOP or the freezer of its cgroup: no second is lost. What the driver's samples,
// 12 to 14 s of them, do not cover is unknown, unless the profiling counters have it.
func stoppedProcess(t *testing.T) {
	for board, unknown := range map[string]float64{"h100-sxm": 0, "a100-sxm4-80gb": 78} {
		t.Run(board, func(t *testing.T) {
			text := strings.ReplaceAll(strings.ReplaceAll(oneGPU, "h100-sxm", board), "board=h100", "board="+board[:4])
			st := play(t, parseScenario(t, text+"load gpu=0 busy=40% period=3s\n"), "allocatable nvidia.com/gpu "+sharedGPU+
				"\npod team/p container c nvidia.com/gpu="+sharedGPU+"\n", "--path.procfs=/nonexistent")
			st.run(time.Minute)
			before := st.series()
			st.control.Advance(90 * time.Second)
			st.run(fastPoll)
			after := st.series()
			grew := func(family string, pairs ...string) float64 {
				return sum(after.match(family, pairs...)) - sum(before.match(family, pairs...))
			}
			const states, allocated = "gpu_time_seconds_total", "gpu_container_allocated_seconds_total"
			t.Logf("of 92 s %.1f are in a state, %.1f unknown, %.1f busy, and %.1f allocated", grew(states),
				grew(states, `state="unknown"`), grew(states, `state="busy"`), grew(allocated))
			for _, got := range []float64{grew(states), grew(allocated)} {
				if math.Abs(got-92) > 1e-6 {
					t.Errorf("%v s of 92", got)
				}
			}
			if got := grew(states, `state="unknown"`); math.Abs(got-unknown) > 2 {
				t.Errorf("%v s are unknown, want %v", got, unknown)
			}
			verify(t, after.none("gpu_attribution_error_ratio", `quantity="time"`))
		})
	}
}

// parseScenario reads a scenario that includes boards.
func parseScenario(t *testing.T, text string) *scenario.Scenario {
	t.Helper()
	s, err := scenario.Parse("test.scenario", text, os.DirFS("../../testdata/scenarios"))
	must.OK(t, err)
	return s
}

// closes checks that a window's increase of the GPU is that of its parts, to a thousandth.
func closes(t *testing.T, before, after series, device, container, rest string) {
	t.Helper()
	delta := func(family string) float64 { return sum(after.match(family)) - sum(before.match(family)) }
	whole, parts := delta(device), delta(container)+delta(rest)
	if math.Abs(whole-parts) > 0.001*math.Abs(whole)+1e-6 {
		t.Fatalf("%s grew by %v, its parts by %v", device, whole, parts)
	}
}

// Without the host's processes a shared container has no series of work: it never reads 0. Allocation is
// complete, and what the GPU did is hidden, not lost.
func sharedContainersNeverReadZero(t *testing.T) {
	s, pods, _ := workloads(t, 4)
	st := play(t, s, pods, "--path.procfs=/nonexistent")
	st.run(2 * time.Minute)
	now := st.series()
	if v := now.match("gpu_container_busy_seconds_total"); len(v) > 0 {
		t.Errorf("work of containers that cannot be seen: %v", v)
	}
	if v := now.match("gpu_container_allocation_ratio"); len(v) != 4 || math.Abs(sum(v)-1) > 1e-9 {
		t.Errorf("allocation is %v", v)
	}
	verify(t, now.none("gpu_processes"), now.is(1, "gpu_exporter_feature", `feature="processes"`,
		`state="missing_permission"`))
	device, hidden := sum(now.match("gpu_busy_seconds_total")),
		sum(now.match("gpu_unattributed_busy_seconds_total", `reason="hidden"`))
	if device == 0 || math.Abs(device-hidden) > 1 {
		t.Errorf("the GPU worked %v s, of which %v s are hidden", device, hidden)
	}
}

// A sole container has its GPU's figures without any right but the socket.
func soleContainerNeedsOnlyTheSocket(t *testing.T) {
	s := parseScenario(t, twoGPUs+"load gpu=0 busy=40% period=3s\n")
	st := play(t, s, twoPods, "--path.procfs=/nonexistent")
	st.run(2 * time.Minute)
	now := st.series()
	busy, allocated := sum(now.match("gpu_container_busy_seconds_total", `pod="train-0"`)),
		sum(now.match("gpu_container_observed_seconds_total", `pod="train-0"`))
	if rate := busy / allocated; math.Abs(rate-0.4) > 0.02 {
		t.Errorf("the container shows %v, not 0.4", rate)
	}
	if err := now.is(1, "gpu_container_attribution_info", `method="exclusive"`, `pod="train-0"`); err != nil {
		t.Error(err)
	}
}

// A pod is killed, its PID goes to another pod's process, and a successor of the same name comes: never a
// wrong pod, no counter falls, and the sums close in every tick.
func TestPodsComeAndGo(t *testing.T) {
	isolated(t, func(t *testing.T) {
		text := oneGPU +
			"process gpu=0 pid=5000 memory=1GiB busy=40% period=1s from=0s to=64s\n" + // of a, killed
			"process gpu=0 pid=5001 memory=2GiB busy=30% period=1s phase=500ms from=0s\n" + // of b, all the time
			"process gpu=0 pid=5000 memory=1GiB busy=20% period=1s from=80s to=200s\n" + // of c: the same PID
			"process gpu=0 pid=5002 memory=1GiB busy=10% period=1s phase=700ms from=140s to=178s\n" // of the new a
		s := parseScenario(t, text)
		id := func(n int) string { return fmt.Sprintf("%s::%d", sharedGPU, n) }
		allocatable := "allocatable nvidia.com/gpu " + id(0) + " " + id(1) + " " + id(2) + " " + id(3) + "\n"
		b := "pod team/b container c nvidia.com/gpu=" + id(1) + " pids=5001\n"
		st := play(t, s, allocatable+"pod team/a container c nvidia.com/gpu="+id(0)+" pids=5000\n"+b)
		busy := func(now series, pod string) float64 {
			return sum(now.match("gpu_container_busy_seconds_total", `pod="`+pod+`"`))
		}
		now := st.watched(64 * time.Second)
		if got := busy(now, "a"); math.Abs(got-0.4*62) > 3 {
			t.Errorf("a worked about 25 s and got %v", got)
		}

		st.setPods(allocatable + b)
		now = st.watched(14 * time.Second) // the kubelet is asked every ten seconds
		stood := busy(now, "a")
		if err := all(now.none("gpu_container_allocation_ratio", `pod="a"`),
			now.none("gpu_container_memory_used_bytes", `pod="a"`),
			now.none("gpu_container_last_busy_timestamp_seconds", `pod="a"`)); err != nil {
			t.Errorf("gauges of a pod that went: %v", err)
		}
		if len(now.match("gpu_container_busy_seconds_total", `pod="a"`)) != 1 {
			t.Error("the last increase of a pod that went is lost")
		}

		st.setPods(allocatable+b+"pod team/c container c nvidia.com/gpu="+id(0)+" pids=5000\n", 5000)
		now = st.watched(60 * time.Second)
		if got := busy(now, "a"); got != stood {
			t.Errorf("a, which is ended, went on from %v to %v", stood, got)
		}
		if got := busy(now, "c"); got < 5 || got > 0.2*60+3 {
			t.Errorf("c worked less than 12 s and got %v", got)
		}

		st.setPods(allocatable+b+"pod team/c container c nvidia.com/gpu="+id(0)+
			" pids=5000\npod team/a container c nvidia.com/gpu="+id(2)+
			" pids=5002\n", 5000)
		now = st.watched(40 * time.Second)
		if got := busy(now, "a"); got <= stood || got > stood+0.1*40+3 {
			t.Errorf("the new a did not go on from %v: %v", stood, got)
		}

		st.setPods(allocatable + b)
		now = st.watched(6 * time.Minute)
		if err := all(now.none("gpu_container_busy_seconds_total", `pod="a"`),
			now.none("gpu_container_busy_seconds_total", `pod="c"`)); err != nil {
			t.Errorf("after the grace: %v", err)
		}
		if got, want := busy(now, "b"), float64(s.Truth(0).ProcessBusy(5001, 0,
			st.control.Now())); math.Abs(got-want) > 0.1*want {
			t.Errorf("b worked %v s and got %v", want, got)
		}
	})
}

// A kubelet that restarts and first lists nothing ends no allocation, and its counters go on without a jump.
func kubeletRestartEndsNoAlloc(t *testing.T) {
	s, pods, _ := workloads(t, 4)
	st := play(t, s, pods)
	before := st.watched(60 * time.Second)
	must.OK(t, st.kubelet.Restart(t.Context(), 1))
	after := st.watched(60 * time.Second)
	for i := range 4 {
		pod := fmt.Sprintf(`pod="tenant-%d"`, i)
		allocated := sum(after.match("gpu_container_allocated_seconds_total",
			pod)) - sum(before.match("gpu_container_allocated_seconds_total", pod))
		if math.Abs(allocated-15) > 0.01 {
			t.Errorf("container %d allocated a quarter of a GPU for a minute and got %v s", i, allocated)
		}
	}
}

// A pod is deleted by force and its process runs on: the GPU is used by somebody who does not hold it, and
// the container that is left does not get that work.
func processThatOutlivesItsPod(t *testing.T) {
	s, pods, _ := workloads(t, 2)
	st := play(t, s, pods)
	st.watched(30 * time.Second)
	lines := strings.SplitAfter(pods, "\n")
	n, err := standin.ParsePods("pods", strings.NewReader(lines[0]+lines[2])) // without the first container
	must.OK(t, err)
	st.kubelet.SetNode(n)
	before := st.watched(30 * time.Second)
	begin := st.control.Now()
	after := st.watched(time.Minute)
	verify(t, after.is(1, "gpu_container_mismatch", `kind="used_not_allocated"`, `pod="tenant-0"`),
		after.none("gpu_container_allocation_ratio", `pod="tenant-0"`),
		after.none("gpu_container_mismatch", `pod="tenant-1"`))
	for i, pid := range []int{5000, 5001} {
		pod := fmt.Sprintf(`pod="tenant-%d"`, i)
		got := sum(after.match("gpu_container_busy_seconds_total",
			pod)) - sum(before.match("gpu_container_busy_seconds_total", pod))
		want := float64(s.Truth(0).ProcessBusy(pid, begin, st.control.Now()))
		if math.Abs(got-want) > 0.1*want+1 {
			t.Errorf("container %d worked %.1f s and got %.1f s", i, want, got)
		}
	}
}

// lifeOfMIGInstances steps through it: an instance is removed, the last one, too; one of the same size is created at
// its place; it is resized; its GPU hangs and returns. No counter falls and the parts add up (watched); a new instance
// starts at 0; what is gone has no series; the GPU's busy time is that of all its instances.
func lifeOfMIGInstances(t *testing.T) {
	in := func(gi, uuid int, profile string, size int) string {
		return fmt.Sprintf("gi=%d profile=%s start=0 size=%d uuid=MIG-0000000%d-0000-4000-8000-000000000000", gi, profile,
			size, uuid)
	}
	second := strings.Replace(in(2, 2, "1g.10gb", 1), "start=0", "start=1", 1)
	text := oneGPU +
		"mig gpu=0 layout=\"" + in(1, 1, "1g.10gb", 1) + " ; " + second + "\"\n" +
		"process gpu=0 pid=5000 gi=1 memory=1GiB busy=50% period=1s\n"
	for at, layout := range map[int]string{60: in(1, 1, "1g.10gb", 1), 120: "", 180: in(1, 3, "1g.10gb", 1),
		240: in(1, 4, "3g.40gb", 4)} {
		text += fmt.Sprintf("at %ds gpu 0 mig apply layout=\"%s\"\n", at, layout)
	}
	text += "at 300s gpu 0 hang GpmMigSampleGet\nat 330s gpu 0 restore\n"
	s := parseScenario(t, text)
	st := play(t, s, "", "--call-deadline=1s", "--poll.slow=10s")
	st.hangs = func(at time.Duration) int {
		if at >= 300*time.Second && at < 330*time.Second {
			return 1
		}
		return 0
	}
	busy := map[string]float64{}
	for _, step := range []struct {
		until     time.Duration
		instances string  // by the last digit of their UUIDs
		busy      float64 // of the instance with the process, since it exists
	}{{58, "1 2", 28}, {118, "1", 58}, {178, "", 0}, {238, "3", 28}, {298, "4", 28}, {324, "", 0}, {400, "4", 60}} {
		now := st.watched(step.until*time.Second - st.control.Now())
		got := []string{}
		for text, v := range now {
			if !strings.HasPrefix(text, "gpu_mig_busy_seconds_total{") {
				continue
			}
			digit := text[strings.Index(text, "MIG-0000000")+11:][:1]
			got = append(got, digit)
			if digit != "2" && math.Abs(v-step.busy) > 8 || digit == "2" && v != 0 {
				t.Errorf("at %d s instance %s was busy for %v s, not %v", step.until, digit, v, step.busy)
			}
			busy[digit] = v
		}
		slices.Sort(got)
		if strings.Join(got, " ") != step.instances {
			t.Errorf("at %d s: instances %v, want %s", step.until, got, step.instances)
		}
	}
	if n := st.control.Overlaps(); n > 0 {
		t.Errorf("%d calls at once on one GPU", n)
	}
	want := busy["1"]/7 + busy["3"]/7 + busy["4"]*3/7
	if total := sum(st.series().match("gpu_busy_seconds_total")); math.Abs(total-want) > 1 {
		t.Errorf("the GPU was busy for %v s, its instances for %v", total, want)
	}
}

// layoutWithoutNotice divides a GPU anew without a pending mode, which the driver announces nowhere: right after the slow poll
// group has read the layout, one instance stays and two are replaced. What the readings contradict is read at once: of
// 60 s less than two polls are unknown, and each instance has its work.
func layoutWithoutNotice(t *testing.T) {
	in := func(gi, uuid, start, size int, profile string) string {
		return fmt.Sprintf("gi=%d profile=%s start=%d size=%d uuid=MIG-0000000%d-0000-4000-8000-000000000000", gi, profile, start,
			size, uuid)
	}
	var pods strings.Builder
	for _, uuid := range []int{1, 3, 4} {
		fmt.Fprintf(&pods, "pod team/p%d container c nvidia.com/gpu=MIG-0000000%d-0000-4000-8000-000000000000 pids=%d\n",
			uuid, uuid, 5000+uuid)
	}
	stays := in(1, 1, 0, 4, "3g.40gb")
	text := oneGPU + "mig gpu=0 layout=\"" + stays + " ; " + in(2, 2, 4, 4, "3g.40gb") + "\"\n" +
		"at 63s gpu 0 mig apply layout=\"" + stays + " ; " + in(5, 3, 4, 2, "2g.20gb") + " ; " + in(9, 4, 6, 1, "1g.10gb") + "\"\n" +
		"process gpu=0 pid=5001 gi=1 memory=1GiB busy=50% period=1s\n" +
		"process gpu=0 pid=5002 gi=2 memory=1GiB busy=90% period=1s to=63s\n" +
		"process gpu=0 pid=5003 gi=5 memory=1GiB busy=60% period=1s from=64s\n" +
		"process gpu=0 pid=5004 gi=9 memory=1GiB busy=80% period=1s from=64s\n"
	st := play(t, parseScenario(t, text), "allocatable nvidia.com/gpu MIG-1\n"+pods.String())
	before := st.watched(62 * time.Second)
	now := st.watched(60 * time.Second)
	for uuid, want := range map[int]float64{1: 30, 3: 34.8, 4: 46.4} {
		match := fmt.Sprintf(`mig_uuid="MIG-0000000%d-`, uuid)
		got := sum(now.match("gpu_mig_busy_seconds_total", match)) - sum(before.match("gpu_mig_busy_seconds_total", match))
		if math.Abs(got-want) > 0.1*want {
			t.Errorf("instance %d was busy for %.1f s, and shows %.1f s", uuid, want, got)
		}
	}
	unknown := sum(now.match("gpu_time_seconds_total", `state="unknown"`)) - sum(before.match("gpu_time_seconds_total", `state="unknown"`))
	t.Logf("%.1f of 60 s are unknown", unknown)
	if unknown > 6 {
		t.Errorf("%.1f of 60 s are unknown", unknown)
	}
}
