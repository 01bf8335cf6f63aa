package account

import (
	"cmp"
	"slices"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// processTable is the processes of a GPU that have series of their own. What belongs to none of them is the others':
// processes beyond the limit, those that ended or are not listed yet, and what NVML attributes to no process.
type processTable struct {
	own      []ownProcess
	measured bool // the GPU reports samples by process
	other    float64
}

// ownProcess is a process with series, from the first process list that has it.
type ownProcess struct {
	gpu.Process
	who     User
	command string
	busy    float64
}

// is reports whether a process of a list is this one.
func (p *ownProcess) is(listed *gpu.Process, who User) bool {
	return p.PID == listed.PID && p.GI == listed.GI && p.CI == listed.CI && p.who == who
}

// addProcesses attributes the busy time of one poll to the processes that have series.
func (l *Ledger) addProcesses(c *device, in increment) {
	if l.processLimit == 0 || c.mig || !c.weighable {
		return
	}
	t := &c.processes
	t.measured = true
	busy := in.busy - in.unsampled
	visible, total := busy, 0.0
	if c.explained.some {
		visible = min(busy, c.explained.owed)
	}
	for _, w := range c.weights {
		total += w.weight
	}
	left := busy
	for _, w := range c.weights {
		if i := slices.IndexFunc(t.own, func(p ownProcess) bool { return p.PID == w.pid }); i >= 0 {
			share := min(left, visible*w.weight/total)
			t.own[i].busy += share
			left -= share
		}
	}
	t.other += left + in.unsampled
}

// listProcesses applies the newest process list: a process keeps its series while it is listed, and new ones get what is
// left of the limit in the order of their PIDs.
func (l *Ledger) listProcesses(c *device, users Users, command func(pid int) string) {
	if l.processLimit == 0 || !c.visible {
		return
	}
	before := c.processes.own
	var own, more []ownProcess
	for _, listed := range c.list() {
		p := ownProcess{Process: listed, who: l.who(c, users, listed.PID)}
		if i := slices.IndexFunc(before, func(o ownProcess) bool { return o.is(&listed, p.who) }); i >= 0 {
			p.command, p.busy = before[i].command, before[i].busy
			own = append(own, p)
		} else {
			more = append(more, p)
		}
	}
	own = append(own, more[:min(len(more), max(0, l.processLimit-len(own)))]...)
	for i := range own {
		if own[i].command == "" && command != nil {
			own[i].command = command(own[i].PID)
		}
	}
	c.processes.own = own
}

// publishProcesses returns the processes with series, and the others together.
func (c *device) publishProcesses() []gpu.ProcessActivity {
	t := &c.processes
	if !c.visible {
		return nil
	}
	out := make([]gpu.ProcessActivity, 0, len(t.own)+1)
	var known, rest gpu.Bytes
	for i := range t.own {
		p := &t.own[i]
		a := gpu.ProcessActivity{PID: p.PID, Command: p.command, Kinds: p.Kinds, Memory: p.Memory}
		if p.who.Reason == "" {
			a.Container = p.who.Container
		}
		if part := c.partOfProcess(&p.Process); part != nil {
			a.Instance = part.instance.UUID
		}
		if t.measured {
			a.Busy = gpu.Some(gpu.Seconds(p.busy))
		}
		known += p.Memory.Or(0)
		out = append(out, a)
	}
	gpu.Sort(out, func(a, b gpu.ProcessActivity) int {
		return cmp.Or(cmp.Compare(a.PID, b.PID), cmp.Compare(a.Instance, b.Instance))
	})
	others := gpu.ProcessActivity{Command: gpu.OtherContainers.Pod}
	for _, p := range c.list() {
		rest += p.Memory.Or(0)
	}
	rest -= known
	if m, ok := c.medium.Memory.Get(); ok {
		rest = max(m.Used, known) - known
	}
	others.Memory = gpu.Some(rest)
	if t.measured {
		others.Busy = gpu.Some(gpu.Seconds(t.other))
	}
	return append(out, others)
}
