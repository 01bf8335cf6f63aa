package recording

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/nvml/journal"
	"github.com/gpu-exporter/gpu-exporter/internal/standin/scenario"
)

// share is how much of the time somebody was busy: a part of 1.
type share struct {
	pid    uint32
	part   float64
	gi, ci int
}

var processLists = []struct{ key, kind string }{{"ComputeRunningProcesses", "compute"},
	{"GraphicsRunningProcesses", "graphics"},
	{"MPSComputeRunningProcesses", "mps"}}

// processes are those of the GPU's lists, or of its MIG devices' where those were read instead.
func (d *device) processes() []process {
	var list []process
	codes := map[string]journal.Line{}
	read := func(gi, ci int, args ...int64) (found bool) {
		for _, l := range processLists {
			line := d.last(l.key, args...)
			if line.Code == "" {
				continue
			}
			found = true
			codes[l.key] = line
			var infos []struct {
				Pid, GpuInstanceId, ComputeInstanceId uint32
				UsedGpuMemory                         uint64
			}
			decode(line, &infos)
			for _, info := range infos {
				p := process{pid: info.Pid, kind: l.kind, memory: info.UsedGpuMemory, gi: gi, ci: ci}
				if info.GpuInstanceId != math.MaxUint32 {
					p.gi, p.ci = int(info.GpuInstanceId), max(0, int(int32(info.ComputeInstanceId)))
				}
				if !slices.Contains(list, p) {
					list = append(list, p)
				}
			}
		}
		return found
	}
	perDevice := false
	for _, m := range d.mig {
		perDevice = read(m.gi, m.ci, int64(m.index)) || perDevice
	}
	if perDevice {
		d.note("The GPU's own list of processes was closed, or named no instances: its MIG devices were read one by " +
			"one.")
	} else {
		read(-1, -1)
	}
	for _, l := range processLists {
		d.refuse(l.key, codes[l.key])
	}
	const limit = 200
	if len(list) > limit {
		slices.SortStableFunc(list, func(a, b process) int {
			return cmp.Compare(b.memory>>20, a.memory>>20)
		})
		d.note(fmt.Sprintf("%d processes were listed; the %d with most memory are included.", len(list), limit))
		list = list[:limit]
	}
	return list
}

// writeProcesses writes processes and loads: who is there, their memory, and which part of the time they were busy,
// one after the other within a second, so that together they keep the GPU as busy as it was.
func (d *device) writeProcesses(dram float64) {
	list := d.processes()
	var shares []share
	if len(d.mig) > 0 {
		shares, dram = d.instanceShares(list), 0.4
		d.writeInstanceRest(list)
	} else {
		shares = d.gpuShares(list)
	}
	offset := map[int]float64{}
	busy := func(part float64, gi int) string {
		text := " busy=" + percent(part) + " period=1s"
		if at := offset[gi]; at > 0 && part > 0 {
			text += fmt.Sprintf(" phase=%v", time.Duration(at*1e9+0.5))
		}
		offset[gi] += part
		return text + " dram=" + percent(dram)
	}
	place := func(gi, ci int) string {
		if gi < 0 {
			return ""
		}
		return fmt.Sprintf(" gi=%d ci=%d", gi, ci)
	}
	written := make([]bool, len(shares))
	for _, p := range list {
		if p.pid == 0 || p.pid > 1<<30 {
			continue
		}
		part := 0.0
		for i, s := range shares {
			if !written[i] && s.pid == p.pid && s.gi == p.gi && s.ci == p.ci {
				part, written[i] = s.part, true
			}
		}
		memory := "na"
		if p.memory != math.MaxUint64 {
			memory = scenario.Integer(min(p.memory, 1<<50))
		}
		d.say("process gpu=%d pid=%d kind=%s memory=%s%s%s", d.index, p.pid, p.kind, memory, place(p.gi, p.ci),
			busy(part, p.gi))
	}
	for i, s := range shares {
		if written[i] || s.part <= 0 {
			continue
		}
		who := ""
		if s.pid != 0 {
			who = fmt.Sprintf(" pid=%d", s.pid)
		}
		d.say("load gpu=%d%s%s%s", d.index, who, place(s.gi, s.ci), busy(s.part, s.gi))
	}
}

// gpuShares divides the busy part of a GPU that is not in MIG mode among the processes with utilization samples. The
// rest is a share without a process.
func (d *device) gpuShares(list []process) []share {
	busy, work := d.busy.mean(), d.work()
	var shares []share
	sum := 0.0
	for pid, percent := range work.work {
		if part := percent / work.reads / 100; part > 0 {
			shares = append(shares, share{pid: pid, part: part, gi: -1, ci: -1})
			sum += part
		}
	}
	slices.SortFunc(shares, func(a, b share) int { return cmp.Compare(a.pid, b.pid) })
	if !exists(d.busy.code) {
		busy = min(1, sum)
	}
	users := map[uint32]bool{}
	for _, p := range list {
		users[p.pid] = true
	}
	switch rest := busy - sum; {
	case busy <= 0:
		return nil
	case sum == 0 && len(users) == 1 && !exists(work.code):
		return []share{{pid: list[0].pid, part: busy, gi: -1, ci: -1}}
	case rest > max(0.03, 0.15*busy):
		return append(shares, share{part: rest, gi: -1, ci: -1})
	}
	for i := range shares {
		shares[i].part *= busy / sum
	}
	return shares
}

// instanceShares are the busy parts of the GPU instances, which profiling alone reports, divided evenly among their
// processes.
func (d *device) instanceShares(list []process) []share {
	var shares []share
	known := false
	for _, p := range d.gpm {
		if p.gi < 0 || len(p.values[graphicsActive]) == 0 {
			continue
		}
		known = true
		part := min(1, max(0, p.mean(graphicsActive)/100))
		if part == 0 {
			continue
		}
		var users []process
		for _, u := range list {
			if u.gi == p.gi {
				users = append(users, u)
			}
		}
		if len(users) == 0 {
			shares = append(shares, share{part: part, gi: p.gi, ci: d.firstCI(p.gi)})
		}
		for _, u := range users {
			shares = append(shares, share{pid: u.pid, part: part / float64(len(users)), gi: u.gi, ci: u.ci})
		}
	}
	if !known && len(list) > 0 {
		d.note("This GPU does not report how busy its MIG instances are: its processes are written down as idle.")
	}
	return shares
}

func (d *device) firstCI(gi int) int {
	for _, m := range d.mig {
		if m.gi == gi {
			return m.ci
		}
	}
	return 0
}

// writeInstanceRest writes the memory that instances use beside that of their processes.
func (d *device) writeInstanceRest(list []process) {
	seen := map[int]bool{}
	for _, m := range d.mig {
		if seen[m.gi] {
			continue
		}
		seen[m.gi] = true
		rest := m.used
		for _, p := range list {
			if p.gi == m.gi && p.memory != ^uint64(0) {
				rest -= min(rest, p.memory)
			}
		}
		if rest > 0 && rest <= 1<<50 {
			d.say("load gpu=%d gi=%d ci=%d memory=%d busy=0%%   # not used by a listed process", d.index, m.gi, m.ci,
				rest)
		}
	}
}
