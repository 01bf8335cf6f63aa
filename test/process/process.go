// Package process runs programs, and reads from /proc what they use of the machine.
package process

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
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
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return u, err
	}
	if u.Resident, u.Anonymous, u.Peak, err = memory(string(status)); err != nil {
		return u, fmt.Errorf("/proc/%d/status: %w", pid, err)
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return u, err
	}
	if u.CPU, err = processor(string(stat)); err != nil {
		return u, fmt.Errorf("/proc/%d/stat: %w", pid, err)
	}
	return u, nil
}

// memory reads VmRSS, RssAnon and VmHWM in KiB. A zombie has none of them.
func memory(status string) (resident, anonymous, peak float64, err error) {
	for l := range strings.Lines(status) {
		f := strings.Fields(l)
		if len(f) < 2 {
			continue
		}
		var to *float64
		switch f[0] {
		case "VmRSS:":
			to = &resident
		case "RssAnon:":
			to = &anonymous
		case "VmHWM:":
			to = &peak
		default:
			continue
		}
		kib, err := strconv.ParseFloat(f[1], 64)
		if err != nil {
			return 0, 0, 0, err
		}
		*to = kib / 1024
	}
	return resident, anonymous, peak, nil
}

// processor reads utime and stime. The name before them may contain spaces and brackets.
func processor(stat string) (time.Duration, error) {
	f := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	if len(f) < 13 {
		return 0, fmt.Errorf("%d fields behind the name: expected 13 and more", len(f))
	}
	user, err := strconv.ParseInt(f[11], 10, 64)
	if err != nil {
		return 0, err
	}
	system, err := strconv.ParseInt(f[12], 10, 64)
	if err != nil {
		return 0, err
	}
	const ticks = 100 // USER_HZ, the same on every Linux that runs Go
	return time.Duration(user+system) * time.Second / ticks, nil
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

// Children are the running processes that the threads of a process started.
func Children(pid int) []int {
	var out []int
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, t := range tasks {
		text, _ := os.ReadFile(t) // the thread may have ended
		for f := range strings.FieldsSeq(string(text)) {
			if id, err := strconv.Atoi(f); err == nil {
				out = append(out, id)
			}
		}
	}
	return out
}

// Precise is the processor time of the current threads of a process, to the nanosecond, where Usage.CPU counts in
// ticks of 10 ms. Threads that ended are not included: it is for programs whose threads stay, such as those written in
// Go.
func Precise(pid int) (time.Duration, error) {
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil {
		return 0, err
	}
	if len(tasks) == 0 {
		return 0, fmt.Errorf("/proc/%d/task: no thread has schedstat", pid)
	}
	var sum time.Duration
	for _, t := range tasks {
		text, err := os.ReadFile(t)
		if err != nil {
			continue // the thread ended
		}
		ran, _, _ := strings.Cut(string(text), " ")
		ns, err := strconv.ParseInt(ran, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", t, err)
		}
		sum += time.Duration(ns)
	}
	return sum, nil
}

// PerMinute is the processor time per minute between two readings.
func PerMinute(from, to Usage) time.Duration {
	if !to.At.After(from.At) {
		return 0
	}
	return time.Duration(float64(to.CPU-from.CPU) * float64(time.Minute) / float64(to.At.Sub(from.At)))
}

// Available is the memory that programs can still allocate, in MiB.
func Available() (float64, error) { return meminfo("MemAvailable:") }

// Total is the memory of the machine in MiB.
func Total() (float64, error) { return meminfo("MemTotal:") }

func meminfo(name string) (float64, error) {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, err
	}
	for l := range strings.Lines(string(text)) {
		if f := strings.Fields(l); len(f) >= 2 && f[0] == name {
			kib, err := strconv.ParseFloat(f[1], 64)
			return kib / 1024, err
		}
	}
	return 0, fmt.Errorf("/proc/meminfo has no %s", name)
}

// Load is the machine's load average of the last minute; empty if unknown.
func Load() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return ""
	}
	first, _, _ := strings.Cut(string(text), " ")
	return first
}

// ChildOf returns the first child of a process that runs a program, by the base name of its file; 0 while there is
// none.
func ChildOf(pid int, program string) int {
	for _, id := range Children(pid) {
		if exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", id)); err == nil && filepath.Base(exe) == program {
			return id
		}
	}
	return 0
}

// Command returns the arguments and the environment of a process.
func Command(pid int) (args, environ []string, err error) {
	var lists [2][]string
	for i, file := range []string{"cmdline", "environ"} {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, file))
		if err != nil {
			return nil, nil, err
		}
		lists[i] = strings.Split(strings.TrimSuffix(string(text), "\x00"), "\x00")
	}
	return lists[0], lists[1], nil
}

// Processor is the model name of the processor, as /proc/cpuinfo has it.
func Processor() string {
	text, _ := os.ReadFile("/proc/cpuinfo")
	for l := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(l, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "unknown processor"
}
