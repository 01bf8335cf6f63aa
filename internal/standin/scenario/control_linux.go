package scenario

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

// The layout of the control file, as testdata/fakenvml/control.c has it.
const (
	controlFunctions = 256
	controlMagic     = "FAKENVML"
	controlVersion   = 1
)

type functionCount struct {
	name  [56]byte
	total atomic.Uint64
	devs  [MaxGPUs]atomic.Uint64
}

type controlFile struct {
	magic          [8]byte
	version        uint32
	stepped        atomic.Uint32
	now            atomic.Int64
	startMonotonic int64
	startRealtime  int64
	sessions       atomic.Uint32
	hanging        atomic.Uint32
	overlaps       atomic.Uint64
	functions      atomic.Uint32
	lock           atomic.Uint32
	counts         [controlFunctions]functionCount
	processor      atomic.Int64
}

// Control is the test's end of the control file: it owns the clock of the scenario, and sees what the
// stand-in driver counted, over all processes that play it. It is safe for concurrent use.
type Control struct {
	path string
	mem  []byte
	file *controlFile
}

// NewControl creates a control file for a stepped clock, which is 0 until Advance or Set. start is
// the wall time of second 0: what the driver's timestamps show.
func NewControl(path string, start time.Time) (*Control, error) {
	return newControl(path, start, true)
}

// NewRealControl makes a control file for a clock that runs by itself, from now on.
func NewRealControl(path string) (*Control, error) {
	return newControl(path, time.Now(), false)
}

func newControl(path string, start time.Time, stepped bool) (*Control, error) {
	c := &Control{path: path}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("making control file: %w", err)
	}
	defer f.Close()
	if err := f.Truncate(int64(unsafe.Sizeof(controlFile{}))); err != nil {
		return nil, fmt.Errorf("making control file %s: %w", path, err)
	}
	if err := c.mapFile(f); err != nil {
		return nil, err
	}
	c.file.version = controlVersion
	c.file.startRealtime = start.UnixNano()
	if stepped {
		c.file.stepped.Store(1)
	} else if c.file.startMonotonic, err = monotonic(); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	copy(c.file.magic[:], controlMagic)
	return c, nil
}

func (c *Control) mapFile(f *os.File) (err error) {
	if c.mem, err = syscall.Mmap(int(f.Fd()), 0, int(unsafe.Sizeof(controlFile{})), syscall.PROT_READ|syscall.PROT_WRITE,
		syscall.MAP_SHARED); err != nil {
		return fmt.Errorf("mapping control file %s: %w", c.path, err)
	}
	c.file = (*controlFile)(unsafe.Pointer(&c.mem[0]))
	return nil
}

// monotonic reads CLOCK_MONOTONIC, which the stand-in driver reads too.
func monotonic() (int64, error) {
	const clockMonotonic = 1
	var ts syscall.Timespec
	_, _, errno := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, clockMonotonic, uintptr(unsafe.Pointer(&ts)), 0)
	if errno != 0 {
		return 0, fmt.Errorf("reading the monotonic clock: %w", errno)
	}
	return ts.Nano(), nil
}

// Path is the control file, for the environment variable FAKENVML_CONTROL.
func (c *Control) Path() string { return c.path }

// Now is the time of the scenario.
func (c *Control) Now() time.Duration {
	if c.file.stepped.Load() != 0 {
		return time.Duration(c.file.now.Load())
	}
	now, err := monotonic()
	if err != nil {
		return 0
	}
	return max(0, time.Duration(now-c.file.startMonotonic))
}

// Time is the wall time that the driver's timestamps show now.
func (c *Control) Time() time.Time { return time.Unix(0, c.file.startRealtime).Add(c.Now()) }

// Advance steps the clock forward. On a clock that runs by itself it does nothing.
func (c *Control) Advance(d time.Duration) { c.file.now.Add(int64(d)) }

// Set sets the clock. On a clock that runs by itself it does nothing.
func (c *Control) Set(t time.Duration) { c.file.now.Store(int64(t)) }

// Sessions is how many NVML sessions are open: initialized and not shut down.
func (c *Control) Sessions() int { return int(c.file.sessions.Load()) }

// Hanging is how many calls hang now.
func (c *Control) Hanging() int { return int(c.file.hanging.Load()) }

// Overlaps counts the calls that found another call under way on the same GPU.
func (c *Control) Overlaps() uint64 { return c.file.overlaps.Load() }

// Processor is the processor time that calls took.
func (c *Control) Processor() time.Duration { return time.Duration(c.file.processor.Load()) }

// Calls counts the calls of a function, by NVML's full name: "nvmlDeviceGetFieldValues".
func (c *Control) Calls(function string) uint64 {
	if f := c.find(function); f != nil {
		return f.total.Load()
	}
	return 0
}

// CallsOn counts the calls of a function on one GPU.
func (c *Control) CallsOn(function string, dev int) uint64 {
	if f := c.find(function); f != nil && dev >= 0 && dev < MaxGPUs {
		return f.devs[dev].Load()
	}
	return 0
}

// AllCalls counts the calls of every function that was called.
func (c *Control) AllCalls() map[string]uint64 {
	out := map[string]uint64{}
	for i := range c.count() {
		f := &c.file.counts[i]
		out[f.function()] = f.total.Load()
	}
	return out
}

func (c *Control) count() int { return min(int(c.file.functions.Load()), controlFunctions) }

func (c *Control) find(function string) *functionCount {
	for i := range c.count() {
		if c.file.counts[i].function() == function {
			return &c.file.counts[i]
		}
	}
	return nil
}

func (f *functionCount) function() string {
	name, _, _ := bytes.Cut(f.name[:], []byte{0})
	return string(name)
}

// OpenControl maps a control file that another process made and keeps.
func OpenControl(path string) (*Control, error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("opening control file: %w", err)
	}
	defer f.Close()
	c := &Control{path: path}
	if info, err := f.Stat(); err != nil || info.Size() != int64(unsafe.Sizeof(controlFile{})) {
		return nil, errors.Join(fmt.Errorf("%s is not a control file", path), err)
	}
	return c, c.mapFile(f)
}

// Close unmaps the file. No method may be called afterwards; processes that play it keep their mapping.
func (c *Control) Close() error {
	if c.mem == nil {
		return nil
	}
	mem := c.mem
	c.mem, c.file = nil, nil
	if err := syscall.Munmap(mem); err != nil {
		return fmt.Errorf("unmapping control file %s: %w", c.path, err)
	}
	return nil
}
