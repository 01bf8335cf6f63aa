// Package process runs programs, and reads what they use of the machine.
package process

import (
	"errors"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/prometheus/procfs"
)

// Usage is what a process has used of the machine up to a time.
type Usage struct {
	At time.Time
	// Resident is its memory, Peak the maximum of that, Anonymous what of Resident is not backed by files (its heap
	// and stacks; the system drops pages of files as it likes), in MiB.
	Resident, Anonymous, Peak float64
	// CPU is the processor time of all its threads, in the kernel too.
	CPU time.Duration
}

// Of reads the usage of a process.
func Of(pid int) (Usage, error) {
	u := Usage{At: time.Now()}
	p, err := procfs.NewProc(pid)
	if err != nil {
		return u, err
	}
	status, err := p.NewStatus()
	if err != nil {
		return u, err
	}
	const mib = 1 << 20
	u.Resident, u.Anonymous, u.Peak = float64(status.VmRSS)/mib, float64(status.RssAnon)/mib, float64(status.VmHWM)/mib
	stat, err := p.Stat()
	u.CPU = time.Duration(stat.CPUTime() * float64(time.Second))
	return u, err
}

// Run runs a command to its end and returns its peak memory in MiB. The kernel's own figure, ru_maxrss of the child,
// begins with the memory of the parent.
func Run(cmd *exec.Cmd) (peak float64, err error) {
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	ended := make(chan struct{})
	last := make(chan float64)
	go func() {
		every := time.NewTicker(5 * time.Millisecond)
		defer every.Stop()
		most := 0.0
		for {
			// Start returns after the child's exec: this is the program's own memory.
			if u, err := Of(cmd.Process.Pid); err == nil {
				most = max(most, u.Peak)
			}
			select {
			case <-ended:
				last <- most
				return
			case <-every.C:
			}
		}
	}()
	err = cmd.Wait()
	close(ended)
	return <-last, err
}

// Precise is the processor time of the current threads of a process, to the nanosecond, where Usage.CPU counts in
// ticks of 10 ms. Threads that ended are not included: it is for programs whose threads stay, such as those written in
// Go.
func Precise(pid int) (sum time.Duration, err error) {
	threads, err := procfs.AllThreads(pid)
	for _, t := range threads {
		if s, err := t.Schedstat(); err == nil { // else the thread ended
			sum += time.Duration(s.RunningNanoseconds)
		}
	}
	return sum, err
}

// PerMinute is the processor time per minute between two readings.
func PerMinute(from, to Usage) time.Duration {
	if !to.At.After(from.At) {
		return 0
	}
	return time.Duration(float64(to.CPU-from.CPU) * float64(time.Minute) / float64(to.At.Sub(from.At)))
}

// Memory is the memory of the machine, and what programs can still allocate of it, in MiB.
func Memory() (total, available float64, err error) {
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return 0, 0, err
	}
	m, err := fs.Meminfo()
	if err != nil || m.MemTotal == nil || m.MemAvailable == nil {
		return 0, 0, errors.Join(errors.New("/proc/meminfo has no figures of memory"), err)
	}
	return float64(*m.MemTotal) / 1024, float64(*m.MemAvailable) / 1024, nil
}

// ChildOf returns the first child of a process that runs a program, by the base name of its file; 0 while there is
// none.
func ChildOf(pid int, program string) int {
	all, _ := procfs.AllProcs()
	for _, p := range all {
		if stat, err := p.Stat(); err != nil || stat.PPID != pid {
			continue
		}
		if exe, err := p.Executable(); err == nil && filepath.Base(exe) == program {
			return p.PID
		}
	}
	return 0
}

// Command returns the arguments and the environment of a process.
func Command(pid int) (args, environ []string, err error) {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return nil, nil, err
	}
	if args, err = p.CmdLine(); err != nil {
		return nil, nil, err
	}
	environ, err = p.Environ()
	return args, environ, err
}

// Processor is the model name of the processor.
func Processor() string {
	if fs, err := procfs.NewDefaultFS(); err == nil {
		if all, err := fs.CPUInfo(); err == nil && len(all) > 0 && all[0].ModelName != "" {
			return all[0].ModelName
		}
	}
	return "unknown processor"
}
