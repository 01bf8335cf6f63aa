// Package kmsg follows the kernel log for XIDs: some of the gravest never arrive through NVML.
package kmsg

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// DefaultPath is the kernel log.
const DefaultPath = "/dev/kmsg"

// Options configure a Log.
type Options struct {
	// Path is the log, or a plain file or FIFO of the same lines. Empty: DefaultPath.
	Path   string
	Logger *slog.Logger     // nil: discarded
	Clock  func() time.Time // nil: time.Now
	// Uptime returns the time since boot, with which the kernel stamps lines. Nil: CLOCK_MONOTONIC.
	Uptime func() time.Duration
	// Poll is how often Run checks its context, and whether a plain file has grown. 0: 500 ms.
	Poll time.Duration
}

// Log is the kernel log.
type Log struct {
	options Options
	fifo    bool          // belongs to Run
	latest  time.Duration // of the XIDs that were reported, by the kernel's clock; belongs to Run

	mu     sync.Mutex // guards source
	source gpu.Source
}

// minRetry and maxRetry bound the wait until a log that cannot be read is opened again; it doubles.
const (
	minRetry = time.Second
	maxRetry = 30 * time.Second
)

// maxRecord is more than the longest record of the kernel.
const maxRecord = 16 << 10

// Open returns a Log; Run opens the file.
func Open(o Options) *Log {
	if o.Path == "" {
		o.Path = DefaultPath
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Clock == nil {
		o.Clock = time.Now
	}
	if o.Uptime == nil {
		o.Uptime = monotonic
	}
	if o.Poll <= 0 {
		o.Poll = 500 * time.Millisecond
	}
	return &Log{options: o, latest: -1, source: gpu.Source{Name: gpu.SourceKmsg, Message: "not read yet"}}
}

func monotonic() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return 0
	}
	return time.Duration(ts.Nano())
}

// Source returns the log's health as a data source. Errors counts failed opens and reads, and how often the kernel
// overwrote lines before they were read. It is safe for concurrent use.
func (k *Log) Source() gpu.Source {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.source
}

func (k *Log) up() {
	k.mu.Lock()
	again := !k.source.Up && k.source.Errors > 0
	k.source.Up, k.source.Message = true, ""
	k.source.LastSuccess = gpu.Some(k.options.Clock())
	k.mu.Unlock()
	if again {
		k.options.Logger.Info("kernel log readable", "path", k.options.Path)
	}
}

func (k *Log) fail(err error) {
	k.mu.Lock()
	same := k.source.Message == err.Error()
	k.source.Up, k.source.Message = false, err.Error()
	k.source.Errors++
	k.mu.Unlock()
	if !same {
		k.options.Logger.Warn("kernel log not readable; retrying", "err", err)
	}
}

// silent is called at the end of a FIFO: no process writes to it, so that nothing is read of the kernel.
func (k *Log) silent() {
	if err := errors.New(k.options.Path + " is a FIFO without a writer"); k.Source().Message != err.Error() {
		k.fail(err)
	}
}

func (k *Log) lost() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.source.Errors++
}

// Run follows the log until ctx ends. A log that cannot be opened or read is opened again, after a wait that doubles: the
// permission may be given later, and the device mounted. Run calls report, from this goroutine, for every XID: first
// those of existing lines, marked Old and with the time at which the kernel wrote them, then new ones; what was written
// while the log could not be read is Old too. Events carry the PCI address and no UUID.
func (k *Log) Run(ctx context.Context, report func(gpu.XIDEvent)) {
	for wait := minRetry; ctx.Err() == nil; wait = min(2*wait, maxRetry) {
		start := time.Now()
		err := k.follow(ctx, report)
		if err == nil {
			return
		}
		k.fail(err)
		if time.Since(start) > maxRetry {
			wait = minRetry // it was readable
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
}

func (k *Log) follow(ctx context.Context, report func(gpu.XIDEvent)) error {
	fd, err := unix.Open(k.options.Path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return openError(k.options.Path, err)
	}
	defer func() { _ = unix.Close(fd) }()
	var stat unix.Stat_t
	k.fifo = unix.Fstat(fd, &stat) == nil && stat.Mode&unix.S_IFMT == unix.S_IFIFO
	return k.drain(ctx, report,
		func(b []byte) (int, error) { return unix.Read(fd, b) },
		func(atEnd bool) error { return k.wait(ctx, fd, atEnd) })
}

// drain reads until ctx ends. read returns 0 at the end of a file and EAGAIN where a log has no more for now; wait is
// called then.
func (k *Log) drain(ctx context.Context, report func(gpu.XIDEvent), read func([]byte) (int, error), wait func(atEnd bool) error) error {
	lines, parse := splitter{}, parser{}
	buffer := make([]byte, maxRecord)
	old, reported := true, k.latest
	for ctx.Err() == nil {
		n, err := read(buffer)
		switch {
		case n > 0:
			lines.add(buffer[:n], func(line string) {
				if e, ok := k.event(&parse, line, old, reported); ok {
					report(e)
				}
			})
			continue
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EPIPE):
			// The kernel overwrote what was next; the next read continues with its oldest line.
			k.lost()
			k.options.Logger.Warn("kernel log overrun, XIDs may have been missed")
			continue
		case errors.Is(err, unix.EINVAL):
			k.lost() // a record larger than any the kernel should make; it is skipped
			continue
		case err != nil && !errors.Is(err, unix.EAGAIN):
			return fmt.Errorf("read %s: %w", k.options.Path, err)
		}
		// The end: further lines are new.
		old = false
		if err == nil && k.fifo {
			k.silent()
		} else {
			k.up()
		}
		if err := wait(err == nil); err != nil {
			return err
		}
	}
	return nil
}

// wait sleeps until there may be more to read, or for Poll. A plain file, and a FIFO without a writer, are always
// readable: they are read again after Poll.
func (k *Log) wait(ctx context.Context, fd int, atEnd bool) error {
	if atEnd {
		timer := time.NewTimer(k.options.Poll)
		defer timer.Stop()
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		return nil
	}
	poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	_, err := unix.Poll(poll, int(max(k.options.Poll.Milliseconds(), 1)))
	if err != nil && !errors.Is(err, unix.EINTR) {
		return fmt.Errorf("wait for %s: %w", k.options.Path, err)
	}
	return nil
}

// event turns a line into an event, if it is an XID. An old line without a time is dropped, and one that was reported
// before the log was opened again.
func (k *Log) event(parse *parser, line string, old bool, reported time.Duration) (gpu.XIDEvent, bool) {
	x, ok := parse.parseRecord(line)
	if !ok {
		return gpu.XIDEvent{}, false
	}
	e := gpu.XIDEvent{PCI: x.pci, XID: x.xid, Time: k.options.Clock(), Source: gpu.SourceKmsg, Old: old, GI: x.gi, CI: x.ci,
		PID: x.pid}
	if x.probe {
		e.Source = gpu.SourceKmsgProbe // an XID 79 beside it is the same event
	}
	at, ok := x.uptime.Get()
	if old {
		ago := k.options.Uptime() - at
		if !ok || ago < 0 || at <= reported {
			return gpu.XIDEvent{}, false
		}
		e.Time = e.Time.Add(-ago)
	}
	if ok {
		k.latest = max(k.latest, at)
	}
	return e, true
}

func openError(path string, err error) error {
	switch {
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("open %s: %w (reading the kernel log requires CAP_SYSLOG, and in a container a privileged "+
			"one)", path, err)
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("open %s: %w (mount the host's kernel log there)", path, err)
	}
	return fmt.Errorf("open %s: %w", path, err)
}

// splitter splits the input into lines. The kernel returns one record per read, a file any piece.
type splitter struct {
	rest []byte
	skip bool // within a line that is too long
}

func (s *splitter) add(b []byte, line func(string)) {
	for len(b) > 0 {
		head, tail, whole := bytes.Cut(b, []byte{'\n'})
		b = tail
		if !s.skip {
			s.rest = append(s.rest, head...)
		}
		if len(s.rest) > maxRecord {
			s.rest, s.skip = s.rest[:0], true
		}
		if !whole {
			return
		}
		if !s.skip {
			line(string(s.rest))
		}
		s.rest, s.skip = s.rest[:0], false
	}
}
