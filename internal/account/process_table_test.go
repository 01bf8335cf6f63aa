package account

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// The processes with series and the others add up to the GPU's busy time and memory, whatever comes and goes.
func TestProcesses(t *testing.T) {
	w := newWorldOf(t, Options{Processes: 2}, "A")
	a := w.devices[0]
	commands := map[int]string{1: "train", 2: "serve", 3: "x", 4: "late"}
	w.command = func(pid int) string { return commands[pid] }
	a.util, a.hasWeights = .5, true
	const gib = 1 << 30
	listed := func(pids ...int) {
		m := &gpu.Medium{Memory: gpu.Some(gpu.Memory{Total: 80 * gib, Used: 20 * gib})}
		list := []gpu.Process{}
		w.users, a.weights = Users{}, nil
		for _, pid := range pids {
			p := gpu.Process{PID: pid, Kinds: []gpu.ProcessKind{gpu.ProcessCompute}}
			if pid != 9 { // its memory is not reported
				p.Memory = gpu.Some(gpu.Bytes(pid * gib))
			}
			list = append(list, p)
			w.users[pid] = User{Container: pod(fmt.Sprint("p", pid))}
			a.weights = append(a.weights, gpu.ProcessSample{PID: pid, SM: float64(pid)})
		}
		m.Processes = gpu.Some(list)
		a.medium = m
	}
	spell := func() (text string) {
		var parts []string
		for _, p := range w.device("A").Processes {
			parts = append(parts, fmt.Sprintf("%d:%s:%s %v", p.PID, p.Command, p.Container.Pod, p.Memory))
		}
		return strings.Join(parts, " ")
	}
	busy := func() map[string]float64 {
		m := map[string]float64{}
		for _, p := range w.device("A").Processes {
			m[fmt.Sprint(p.PID, p.Container)] = float64(p.Busy.Or(-1))
		}
		return m
	}
	const none = "0:other:"
	for _, step := range []struct {
		name   string
		change func()
		want   string
	}{
		{"nobody", func() { listed() }, fmt.Sprintf("%s %d", none, 20*gib)},
		{"two", func() { listed(1, 2) }, fmt.Sprintf("1:train:p1 %d 2:serve:p2 %d %s %d", gib, 2*gib, none, 17*gib)},
		{"one more than the limit", func() { listed(1, 2, 3) }, fmt.Sprintf("1:train:p1 %d 2:serve:p2 %d %s %d", gib, 2*gib, none, 17*gib)},
		{"one ends", func() { listed(2, 3) }, fmt.Sprintf("2:serve:p2 %d 3:x:p3 %d %s %d", 2*gib, 3*gib, none, 15*gib)},
		{"a command comes late", func() { commands[4] = ""; listed(2, 4) },
			fmt.Sprintf("2:serve:p2 %d 4::p4 %d %s %d", 2*gib, 4*gib, none, 14*gib)},
		{"and stays", func() { commands[4] = "late" }, fmt.Sprintf("2:serve:p2 %d 4:late:p4 %d %s %d", 2*gib, 4*gib, none, 14*gib)},
		{"whatever it is called later", func() { commands[4] = "changed" },
			fmt.Sprintf("2:serve:p2 %d 4:late:p4 %d %s %d", 2*gib, 4*gib, none, 14*gib)},
		{"a PID is reused", func() { w.users[4] = User{Container: pod("q")} },
			fmt.Sprintf("2:serve:p2 %d 4:changed:q %d %s %d", 2*gib, 4*gib, none, 14*gib)},
		{"an unresolved one", func() { w.users[4] = User{Container: pod("q"), Reason: gpu.UnattributedUnresolved} },
			fmt.Sprintf("2:serve:p2 %d 4:changed: %d %s %d", 2*gib, 4*gib, none, 14*gib)},
		{"memory that is not reported", func() { listed(2, 9) }, fmt.Sprintf("2:serve:p2 %d 9::p9 – %s %d", 2*gib, none, 18*gib)},
		{"the GPU is lost", func() { a.availability = Unavailable }, ""},
		{"and returns", func() { a.availability = Readable; listed(2, 9) },
			fmt.Sprintf("2:serve:p2 %d 9::p9 – %s %d", 2*gib, none, 18*gib)},
		{"no list", func() { a.medium = &gpu.Medium{} }, ""},
		{"memory of the host", func() { listed(2, 3, 4); a.medium.Memory = gpu.None[gpu.Memory]() },
			fmt.Sprintf("2:serve:p2 %d 3:x:p3 %d %s %d", 2*gib, 3*gib, none, 4*gib)},
		{"more than the GPU has", func() { listed(30, 40) }, fmt.Sprintf("30::p30 %d 40::p40 %d %s 0", 30*gib, 40*gib, none)},
	} {
		t.Run(step.name, func(t *testing.T) {
			total := float64(w.device("A").Activity.Busy.Or(0))
			before := busy()
			step.change()
			w.steps(3, 2)
			if got := spell(); got != step.want {
				t.Errorf("%s\nwant %s", got, step.want)
			}
			// Of a process that ends, what it did before is no longer exported; nothing is counted twice.
			after, sum := busy(), 0.0
			for key, v := range after {
				if v < before[key] {
					t.Errorf("%s fell from %v to %v", key, before[key], v)
				}
				sum += v - before[key]
			}
			if step.want != "" && len(before) > 0 {
				want := float64(w.device("A").Activity.Busy.Or(0)) - total
				if lost := want - sum; lost < -1e-9 || lost > 1+1e-9 || lost > 1e-9 && len(after) == len(before) && same(before, after) {
					t.Errorf("%v of %v busy seconds", sum, want)
				}
			}
		})
	}
	if w := newWorld(t, "A"); w.device("A").Processes != nil {
		t.Error("processes without a limit")
	}
}

// same reports whether two maps have the same keys.
func same(a, b map[string]float64) bool {
	for k := range a {
		if _, ok := b[k]; !ok {
			return false
		}
	}
	return true
}
