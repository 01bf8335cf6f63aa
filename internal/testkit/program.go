package testkit

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Child is a program that runs until Stop or until it exits by itself.
type Child struct {
	cmd  *exec.Cmd
	done chan struct{}
	err  error // of Wait; valid once done is closed

	Output // unless the command has one of its own
}

// Start starts cmd in a process group of its own, so that a Ctrl-C does not reach it, and keeps the end of its output
// unless cmd.Stdout is set. The program stops when the thread of the caller ends: call runtime.LockOSThread before.
// A command that has attributes of its own keeps them instead.
func Start(cmd *exec.Cmd) (*Child, error) {
	c := &Child{cmd: cmd, done: make(chan struct{})}
	if cmd.Stdout == nil {
		cmd.Stdout = &c.Output
	}
	cmd.Stderr = &c.Output
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	}
	cmd.WaitDelay = 5 * time.Second
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	go func() { c.err = cmd.Wait(); close(c.done) }()
	return c, nil
}

// PID is the id of the process.
func (c *Child) PID() int { return c.cmd.Process.Pid }

// Args is the command line.
func (c *Child) Args() []string { return c.cmd.Args }

// Done is closed once the program has exited.
func (c *Child) Done() <-chan struct{} { return c.done }

// Exited returns nil while the program runs, and afterwards how it exited with its last line of output.
func (c *Child) Exited() error {
	select {
	case <-c.done:
		return fmt.Errorf("%s exited (%v): %s", filepath.Base(c.cmd.Path), c.cmd.ProcessState, c.LastLine())
	default:
		return nil
	}
}

// stopTimeout is how long a program may take to exit after SIGTERM.
const stopTimeout = 15 * time.Second

// Stop sends SIGTERM and waits; it kills a program that does not exit in time. The error says what went wrong: the
// program had exited already, failed, or was killed.
func (c *Child) Stop() error {
	if err := c.Exited(); err != nil {
		return err
	}
	if err := c.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-c.done:
	case <-time.After(stopTimeout):
		err := c.cmd.Process.Kill()
		<-c.done
		return errors.Join(fmt.Errorf("%s did not exit within %v of SIGTERM and was killed", filepath.Base(c.cmd.Path),
			stopTimeout),
			err)
	}
	if c.err != nil {
		return fmt.Errorf("%w: %s", c.err, c.LastLine())
	}
	return nil
}

// outputLimit is the maximum of what an Output keeps.
const outputLimit = 16 << 20

// Output keeps the end of what is written to it, at least 8 MiB, and is read meanwhile.
type Output struct {
	mu   sync.Mutex
	text []byte // guarded by mu
}

// Write appends to the output.
func (o *Output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.text = append(o.text, b...)
	if over := len(o.text) - outputLimit; over > 0 {
		o.text = append(o.text[:0], o.text[over+outputLimit/2:]...)
	}
	return len(b), nil
}

// String returns the output so far.
func (o *Output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return string(o.text)
}

// LastLine returns the last line.
func (o *Output) LastLine() string {
	lines := strings.Split(strings.TrimSpace(o.String()), "\n")
	return lines[len(lines)-1]
}

// End returns the last 4,000 bytes, for messages.
func (o *Output) End() string {
	text := o.String()
	return text[max(0, len(text)-4000):]
}

// OpenFiles lists the paths with a prefix that a process has open (/proc/PID/fd), without the prefix, in order.
func OpenFiles(pid int, prefix string) (names []string, err error) {
	descriptors := fmt.Sprintf("/proc/%d/fd", pid)
	list, err := os.ReadDir(descriptors)
	for _, d := range list {
		to, _ := os.Readlink(filepath.Join(descriptors, d.Name())) // empty if closed meanwhile
		if name, has := strings.CutPrefix(to, prefix); has {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, err
}
