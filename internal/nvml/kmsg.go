package nvml

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

// DefaultKmsgPath is the kernel's log.
const DefaultKmsgPath = "/dev/kmsg"

// KmsgOptions are what a Kmsg needs to know.
type KmsgOptions struct {
	// Path is the log; a plain file or a FIFO of the same lines does too. Empty: DefaultKmsgPath.
	Path   string
	Logger *slog.Logger     // nil: discarded
	Clock  func() time.Time // nil: time.Now
	// Uptime returns the kernel's clock since boot, by which it stamps lines. Nil: CLOCK_MONOTONIC.
	Uptime func() time.Duration
	// Poll is how often it looks whether it is to end, and whether a plain file has grown. 0: 500 ms.
	Poll time.Duration
}

// Kmsg follows the kernel's log for XIDs: some of the gravest never arrive through NVML.
type Kmsg struct {
	options KmsgOptions

	mu     sync.Mutex // guards source
	source gpu.Source
}

// kmsgRecord is more than the longest record that the kernel makes.
const kmsgRecord = 16 << 10

// NewKmsg returns a Kmsg. It opens nothing.
func NewKmsg(o KmsgOptions) *Kmsg {
	if o.Path == "" {
		o.Path = DefaultKmsgPath
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
	return &Kmsg{options: o, source: gpu.Source{Name: gpu.SourceKmsg, Message: "not read yet"}}
}

func monotonic() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return 0
	}
	return time.Duration(ts.Nano())
}

// Source returns the health of the log as a source. Errors counts failed opens and reads, and the times
// that the kernel overwrote lines before they were read. It is safe for concurrent use.
func (k *Kmsg) Source() gpu.Source {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.source
}

func (k *Kmsg) up() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.source.Up, k.source.Message = true, ""
	k.source.LastSuccess = gpu.Some(k.options.Clock())
}

func (k *Kmsg) fail(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.source.Up, k.source.Message = false, err.Error()
	k.source.Errors++
}

func (k *Kmsg) lost() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.source.Errors++
}

// Run follows the log until ctx ends, which is no error, or until the log cannot be read. It calls report,
// from this goroutine, for every XID: first those of lines that are already there, marked Old and with the
// time at which the kernel wrote them, then new ones as they come. Events carry the PCI address and no UUID.
func (k *Kmsg) Run(ctx context.Context, report func(gpu.XIDEvent)) error {
	err := k.follow(ctx, report)
	if err != nil {
		k.fail(err)
	}
	return err
}

func (k *Kmsg) follow(ctx context.Context, report func(gpu.XIDEvent)) error {
	fd, err := unix.Open(k.options.Path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return openError(k.options.Path, err)
	}
	defer func() { _ = unix.Close(fd) }()
	return k.drain(ctx, report,
		func(b []byte) (int, error) { return unix.Read(fd, b) },
		func(atEnd bool) error { return k.wait(ctx, fd, atEnd) })
}

// drain reads until ctx ends. read gives what is there, 0 at the end of a file and EAGAIN where a log has no
// more for now; wait is called then.
func (k *Kmsg) drain(ctx context.Context, report func(gpu.XIDEvent), read func([]byte) (int, error), wait func(atEnd bool) error) error {
	lines := splitter{}
	buffer := make([]byte, kmsgRecord)
	old := true
	for ctx.Err() == nil {
		n, err := read(buffer)
		switch {
		case n > 0:
			lines.add(buffer[:n], func(line string) {
				if e, ok := k.event(line, old); ok {
					report(e)
				}
			})
			continue
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EPIPE):
			// The kernel overwrote what was next; the read after this one goes on with the oldest line it has.
			k.lost()
			k.options.Logger.Warn("The kernel log ran over before it was read: XIDs may have been missed.")
			continue
		case errors.Is(err, unix.EINVAL):
			k.lost() // a record larger than any the kernel should make; it is skipped
			continue
		case err != nil && !errors.Is(err, unix.EAGAIN):
			return fmt.Errorf("read %s: %w", k.options.Path, err)
		}
		// The end. From here on lines are new.
		old = false
		k.up()
		if err := wait(err == nil); err != nil {
			return err
		}
	}
	return nil
}

// wait sleeps until there may be more to read, or it is time to look. A plain file is always readable, and
// so is a FIFO without a writer: they are looked at again after a while.
func (k *Kmsg) wait(ctx context.Context, fd int, atEnd bool) error {
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

// event turns a line into an event, if it is an XID. An old line of which the time is not known is useless.
func (k *Kmsg) event(line string, old bool) (gpu.XIDEvent, bool) {
	x, ok := parseRecord(line)
	if !ok {
		return gpu.XIDEvent{}, false
	}
	e := gpu.XIDEvent{PCI: x.pci, XID: x.xid, Time: k.options.Clock(), Source: gpu.SourceKmsg, Old: old}
	if old {
		at, ok := x.uptime.Get()
		ago := k.options.Uptime() - at
		if !ok || ago < 0 {
			return gpu.XIDEvent{}, false
		}
		e.Time = e.Time.Add(-ago)
	}
	return e, true
}

func openError(path string, err error) error {
	switch {
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("open %s: %w; reading the kernel log takes CAP_SYSLOG, and in a container a privileged one", path, err)
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("open %s: %w; mount the host's kernel log there", path, err)
	}
	return fmt.Errorf("open %s: %w", path, err)
}

// splitter cuts what is read into lines. The kernel gives one record per read; a file gives any piece.
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
		if len(s.rest) > kmsgRecord {
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
