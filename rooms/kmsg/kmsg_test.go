package kmsg

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/internal/testkit"
)

func TestParseXID(t *testing.T) {
	for _, c := range []struct {
		line string
		pci  gpu.PCIAddress
		xid  int
	}{
		{"NVRM: Xid (PCI:0000:18:00): 79, pid=1234, GPU has fallen off the bus.", "0000:18:00.0", 79},
		{"NVRM: Xid (PCI:0000:18:00): 79, GPU has fallen off the bus.", "0000:18:00.0", 79},
		{"NVRM: Xid (PCI:0000:3b:00): 31, pid='<unknown>', name=<unknown>, Ch 00000010, intr 00000000. MMU Fault: ENGINE HOST7",
			"0000:3b:00.0", 31},
		{"NVRM: Xid (PCI:0000:9b:00 GPU-I:05): 94, pid=7194, name=python3, Contained: CE User Channel (0x9). RST: No, D-RST: No",
			"0000:9b:00.0", 94},
		{"NVRM: Xid (PCI:0000:9B:00.0): 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)", "0000:9b:00.0", 154},
		{"NVRM: Xid (0000:18:00): 13, 0003 00000000 0000a0c0 00001b0c 00000000", "0000:18:00.0", 13},
		{"NVRM: Xid (0002:01:00): 8, Channel 00000001", "0002:01:00.0", 8},
		{"NVRM: Xid (PCI:00000009:01:00): 119, pid=4711, name=nvidia-smi, Timeout after 6s of waiting for RPC response from GPU0 GSP!",
			"0009:01:00.0", 119},
		{"NVRM: GPU0 Xid (PCI:0000:18:00): 48, DBE", "0000:18:00.0", 48},
		{"NVRM: Xid (PCI:0000:18:00): 61", "0000:18:00.0", 61},
		{"  NVRM: Xid (PCI:0000:18:00):   43 , Ch 00000008", "0000:18:00.0", 43},

		{line: "NVRM: GPU at PCI:0000:18:00: GPU-5a0e1100-8c1d-4e6b-9d10-000000000000"},
		{line: "NVRM: GPU 0000:18:00.0: GPU has fallen off the bus."},
		{line: "NVRM: SXid (PCI:0000:c1:00.0): 28006, Non-fatal, Link 46"},
		{line: "nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 28006, Non-fatal, Link 46"},
		{line: "NVRM: Xid (PCI:0000:18:00): 0, nothing"},
		{line: "NVRM: Xid (PCI:0000:18:00): 79x"},
		{line: "NVRM: Xid (PCI:0000:18:00): 123456, too large"},
		{line: "NVRM: Xid (PCI:0000:18:00): -1"},
		{line: "NVRM: Xid (PCI:nowhere): 79"},
		{line: "NVRM: Xid (PCI:0000:18:00"},
		{line: "NVRM: quoted: Xid (PCI:0000:18:00): 79"},
		{line: "my app says NVRM: Xid (PCI:0000:18:00): 79"},
		{line: ""},
	} {
		x, ok := parseXID(c.line)
		if x.pci != c.pci || x.xid != c.xid || ok != (c.xid != 0) {
			t.Errorf("%q: got %q, %d, %v", c.line, x.pci, x.xid, ok)
		}
	}
}

func TestParseXIDOrigin(t *testing.T) {
	for line, want := range map[string]string{
		"NVRM: Xid (PCI:0000:9b:00 GPU-I:05): 94, pid=7194, name=python3, Contained":   "5 – 7194",
		"NVRM: Xid (PCI:0000:9b:00 GPU-I:11 GPU-CI:01): 13, pid=7, name=a, pid=8":      "11 1 7",
		"NVRM: Xid (PCI:0000:9b:00): 31, pid='<unknown>', name=<unknown>, Ch 00000010": "– – 0",
		"NVRM: Xid (PCI:0000:9b:00 GPU-I:x): 79, GPU has fallen off the bus. pid=3":    "– – 0",
	} {
		x, ok := parseXID(line)
		if got := fmt.Sprint(x.gi, " ", x.ci, " ", x.pid); !ok || got != want {
			t.Errorf("%q: got %q, want %q", line, got, want)
		}
	}
}

// The message is that of open-gpu-kernel-modules, kernel-open/nvidia/nv-pci.c, nv_pci_probe (595.45.04): one printk. The
// kernel escapes its line ends (msg_print_ext_body in kernel/printk/printk.c).
func TestFallenOffTheBus(t *testing.T) {
	const first, second, third = "NVRM: The NVIDIA GPU 0000:b3:00.0", "NVRM: (PCI ID: 10de:26b5) installed in this system has",
		"NVRM: fallen off the bus and is not responding to commands."
	for name, c := range map[string]struct {
		lines []string
		want  int
	}{
		"one record":       {[]string{"3,7,1843308145,-;" + first + `\x0a` + second + `\x0a` + third}, 1},
		"three lines":      {[]string{first, second, third}, 1},
		"three records":    {[]string{"3,7,5,-;" + first, "3,8,5,-;" + second, "3,9,5,-;" + third}, 1},
		"two lines":        {[]string{first + " (PCI ID: 10de:26b5) installed in this", "NVRM: system has " + third[6:]}, 1},
		"the end alone":    {[]string{second, third}, 0},
		"too far apart":    {[]string{first, second, "usb 1-1: new device", third}, 0},
		"another message":  {[]string{first + " is not supported", "NVRM: none of the devices"}, 0},
		"of a program":     {[]string{"12,7,5,-;" + first + `\x0a` + second + `\x0a` + third}, 0},
		"no address":       {[]string{"NVRM: The NVIDIA GPU x", second, third}, 0},
		"twice, two GPUs":  {[]string{first, second, third, strings.Replace(first, "b3", "b4", 1), second, third}, 2},
		"a GPU interrupts": {[]string{first, first, second, third}, 1},
	} {
		var p parser
		got := 0
		for _, line := range c.lines {
			if x, ok := p.parseRecord(line); ok {
				got++
				if x.xid != 79 || !x.probe || got == 1 && x.pci != "0000:b3:00.0" {
					t.Errorf("%s: %+v", name, x)
				}
			}
		}
		if got != c.want {
			t.Errorf("%s: %d events, want %d", name, got, c.want)
		}
	}
}

func TestParseRecord(t *testing.T) {
	const text = "NVRM: Xid (PCI:0000:18:00): 79, pid=1, GPU has fallen off the bus."
	for _, c := range []struct {
		line   string
		ok     bool
		uptime gpu.Opt[time.Duration]
	}{
		{"4,1234,567890123,-;" + text, true, gpu.Some(567890123 * time.Microsecond)},
		{"3,1,0,c;" + text, true, gpu.Some(time.Duration(0))},
		{"6,2,5,-,caller=T1;" + text, true, gpu.Some(5 * time.Microsecond)},
		{text, true, gpu.None[time.Duration]()},
		{"12,9,5,-;" + text, false, gpu.None[time.Duration]()}, // a program wrote it
		{"4,9,-5,-;" + text, false, gpu.None[time.Duration]()},
		{"4,9,9223372036854775807,-;" + text, false, gpu.None[time.Duration]()},
		{"4,9,5,-;usb 1-1: new device; NVRM: Xid (PCI:0000:18:00): 79", false, gpu.None[time.Duration]()},
		{" SUBSYSTEM=pci", false, gpu.None[time.Duration]()},
	} {
		got, ok := new(parser).parseRecord(c.line)
		if ok != c.ok || ok && (got.uptime != c.uptime || got.xid != 79 || got.pci != "0000:18:00.0") {
			t.Errorf("%q: got %+v, %v", c.line, got, ok)
		}
	}
}

func FuzzParseRecord(f *testing.F) {
	f.Add("4,1234,567890123,-;NVRM: Xid (PCI:0000:18:00): 79, pid=1, GPU has fallen off the bus.")
	f.Add("NVRM: Xid (0000:18:00): 13, 0003")
	f.Add("NVRM: Xid (PCI:0000:9b:00 GPU-I:05): 94, pid=7194")
	f.Add("4,1,2;;;")
	f.Add("NVRM: Xid ():")
	f.Fuzz(func(t *testing.T, line string) {
		x, ok := new(parser).parseRecord(line)
		if !ok {
			return
		}
		if x.xid < 1 || x.xid > 99999 {
			t.Errorf("XID %d out of %q", x.xid, line)
		}
		if again, err := gpu.ParsePCIAddress(string(x.pci)); err != nil || again != x.pci {
			t.Errorf("address %q out of %q is not in its own spelling: %v", x.pci, line, err)
		}
		if up, ok := x.uptime.Get(); ok && (up < 0 || up > maxUptime) {
			t.Errorf("uptime %v out of %q", up, line)
		}
		if !strings.Contains(line, "Xid (") && !x.probe {
			t.Errorf("an XID out of %q", line)
		}
	})
}

// follower runs a Log and hands on what it reports.
type follower struct {
	kmsg   *Log
	events chan gpu.XIDEvent
	looked chan struct{} // whenever it asked for the time
	stop   context.CancelFunc
	done   chan struct{}
}

var kmsgNow = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

func follow(t *testing.T, path string) *follower {
	t.Helper()
	f := &follower{events: make(chan gpu.XIDEvent, 64), looked: make(chan struct{}, 1), done: make(chan struct{})}
	clock := func() time.Time {
		select {
		case f.looked <- struct{}{}:
		default:
		}
		return kmsgNow
	}
	f.kmsg = Open(Options{Path: path, Poll: time.Millisecond, Clock: clock, Uptime: func() time.Duration { return time.Hour }})
	ctx, stop := context.WithCancel(t.Context())
	f.stop = stop
	go func() {
		defer close(f.done)
		f.kmsg.Run(ctx, func(e gpu.XIDEvent) { f.events <- e })
	}()
	t.Cleanup(stop)
	return f
}

func (f *follower) next(t *testing.T) gpu.XIDEvent {
	t.Helper()
	select {
	case e := <-f.events:
		return e
	case <-f.done:
		t.Fatal("it ended")
	}
	return gpu.XIDEvent{}
}

func (f *follower) end(t *testing.T) {
	t.Helper()
	f.stop()
	<-f.done
	select {
	case e := <-f.events:
		t.Errorf("one event too many: %+v", e)
	default:
	}
}

// up waits until the log was read to its end once.
func (f *follower) up(t *testing.T) {
	t.Helper()
	for !f.kmsg.Source().Up {
		<-f.looked
	}
}

func record(uptime time.Duration, xid int) string {
	return fmt.Sprintf("4,77,%d,-;NVRM: Xid (PCI:0000:18:00): %d, pid=1\n SUBSYSTEM=pci\n", uptime.Microseconds(), xid)
}

func TestKmsgFollowsAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kmsg")
	old := record(50*time.Minute, 31) + "6,78,1,-;something else\n" + record(2*time.Hour, 32) + "NVRM: Xid (PCI:0000:18:00): 33, no time\n"
	must.OK(t, os.WriteFile(path, []byte(old), 0o600))
	f := follow(t, path)
	want := gpu.XIDEvent{PCI: "0000:18:00.0", XID: 31, Time: kmsgNow.Add(-10 * time.Minute), Source: gpu.SourceKmsg, Old: true, PID: 1}
	if got := f.next(t); !reflect.DeepEqual(got, want) {
		t.Errorf("old line: got %+v, want %+v", got, want)
	}
	f.up(t)
	w, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	must.OK(t, err)
	defer w.Close()
	// In pieces: a line counts when it is whole.
	line := record(time.Hour, 79)
	for _, piece := range []string{line[:10], line[10:]} {
		if _, err := w.WriteString(piece); err != nil {
			t.Fatal(err)
		}
	}
	want = gpu.XIDEvent{PCI: "0000:18:00.0", XID: 79, Time: kmsgNow, Source: gpu.SourceKmsg, PID: 1}
	if got := f.next(t); !reflect.DeepEqual(got, want) {
		t.Errorf("new line: got %+v, want %+v", got, want)
	}
	f.end(t)
	if s := f.kmsg.Source(); !s.Up || s.Errors != 0 || s.LastSuccess.Or(time.Time{}) != kmsgNow {
		t.Errorf("source: %+v", s)
	}
}

func TestKmsgFollowsAFIFO(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kmsg")
	must.OK(t, unix.Mkfifo(path, 0o600))
	f := follow(t, path)
	testkit.Until(func() bool { return f.kmsg.Source().Errors > 0 })
	if s := f.kmsg.Source(); s.Up || s.Errors != 1 || !strings.Contains(s.Message, "FIFO without a writer") {
		t.Errorf("without a writer: %+v", s)
	}
	w, err := os.OpenFile(path, os.O_WRONLY, 0)
	must.OK(t, err)
	for xid := 1; xid <= 3; xid++ {
		if _, err := w.WriteString(record(time.Hour, xid)); err != nil {
			t.Fatal(err)
		}
		if got := f.next(t); got.XID != xid || got.Old {
			t.Errorf("got %+v, want XID %d", got, xid)
		}
	}
	f.up(t)
	must.OK(t, w.Close())
	f.end(t)
}

// A log that cannot be opened or read is tried again, less and less often; each reason is logged once.
func TestKmsgIsTriedAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kmsg")
	synctest.Test(t, func(t *testing.T) {
		var said strings.Builder
		var events []string
		logger := slog.New(slog.NewTextHandler(&said, &slog.HandlerOptions{
			ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
				if a.Key == slog.TimeKey {
					return slog.Attr{}
				}
				return a
			}}))
		k := Open(Options{Path: path, Logger: logger, Uptime: func() time.Duration { return time.Hour }})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			k.Run(ctx, func(e gpu.XIDEvent) { events = append(events, fmt.Sprint(e.XID, " ", e.Old)) })
		}()
		start := time.Now()
		down := func(errors uint64, message string) {
			t.Helper()
			synctest.Wait()
			if s := k.Source(); s.Up || s.Errors != errors || !strings.Contains(s.Message, message) {
				t.Errorf("after %v: %+v, not %d times %q", time.Since(start), s, errors, message)
			}
		}
		for i, wait := range []time.Duration{0, 1, 2, 4, 8, 16, 30, 30} {
			time.Sleep(wait * time.Second)
			down(uint64(i)+1, "mount the host's kernel log there")
		}
		if err := os.Mkdir(path, 0o700); err != nil { // it can be opened, and not read
			t.Fatal(err)
		}
		time.Sleep(maxRetry)
		down(9, "read "+path+": is a directory")
		time.Sleep(maxRetry)
		down(10, "read "+path+": is a directory")
		must.OK(t, errors.Join(os.Remove(path), os.WriteFile(path, []byte(record(50*time.Minute, 31)), 0o600)))
		time.Sleep(maxRetry)
		synctest.Wait()
		if s := k.Source(); !s.Up || s.Message != "" || s.Errors != 10 || !reflect.DeepEqual(events, []string{"31 true"}) {
			t.Errorf("once it is readable: %+v, %q", s, events)
		}
		cancel()
		<-ended
		var lines []string
		for line := range strings.Lines(said.String()) {
			lines = append(lines, strings.TrimSpace(strings.ReplaceAll(line, path, "PATH")))
		}
		if want := []string{
			`level=WARN msg="kernel log not readable; retrying" err="open PATH: no such file or directory (mount the host's ` +
				`kernel log there)"`,
			`level=WARN msg="kernel log not readable; retrying" err="read PATH: is a directory"`,
			`level=INFO msg="kernel log readable" path=PATH`,
		}; !reflect.DeepEqual(lines, want) {
			t.Errorf("log:\n%s", said.String())
		}
	})
	if err := openError("/dev/kmsg", unix.EPERM); !strings.Contains(err.Error(), "CAP_SYSLOG") {
		t.Errorf("permission: %v", err)
	}
}

// A log that is opened again has the lines of before: none is reported twice, and what was missed is old.
func TestKmsgOpenedAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kmsg")
	k := Open(Options{Path: path, Clock: func() time.Time { return kmsgNow }, Uptime: func() time.Duration { return time.Hour }})
	for _, c := range []struct {
		lines string
		want  []string
	}{
		{record(time.Minute, 13) + record(2*time.Minute, 31) + record(2*time.Minute, 43), []string{"13 true", "31 true", "43 true"}},
		{record(3*time.Minute, 79), []string{"79 true"}},
	} {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		must.OK(t, err)
		if _, err := f.WriteString(c.lines); err != nil {
			t.Fatal(err)
		}
		f.Close()
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			var got []string
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				k.Run(ctx, func(e gpu.XIDEvent) { got = append(got, fmt.Sprint(e.XID, " ", e.Old)) })
			}()
			synctest.Wait()
			cancel()
			<-ended
			if !reflect.DeepEqual(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// TestKmsgOverrun: lines that the kernel overwrote are counted as lost, and reading goes on.
func TestKmsgOverrun(t *testing.T) {
	k := Open(Options{Clock: func() time.Time { return kmsgNow }, Uptime: func() time.Duration { return time.Hour }})
	answers := []struct {
		text string
		err  error
	}{
		{record(time.Minute, 13), nil}, {"", unix.EPIPE}, {record(time.Minute, 31), nil}, {"", unix.EINTR}, {"", unix.EAGAIN},
		{"", unix.EINVAL}, {record(time.Hour, 79), nil}, {"", unix.EIO},
	}
	read := func(b []byte) (int, error) {
		a := answers[0]
		answers = answers[1:]
		if a.err != nil {
			return -1, a.err
		}
		return copy(b, a.text), nil
	}
	var got []string
	err := k.drain(t.Context(), func(e gpu.XIDEvent) { got = append(got, fmt.Sprint(e.XID, e.Old)) }, read, func(atEnd bool) error {
		if atEnd {
			t.Error("EAGAIN is no end of a file")
		}
		return nil
	})
	if want := []string{"13 true", "31 true", "79 false"}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if err == nil || !strings.Contains(err.Error(), "/dev/kmsg") {
		t.Errorf("error: %v", err)
	}
	if s := k.Source(); s.Errors != 2 {
		t.Errorf("source: %+v", s)
	}
}

func TestUptime(t *testing.T) {
	if a, b := monotonic(), monotonic(); a <= 0 || b < a {
		t.Errorf("the kernel's clock: %v, then %v", a, b)
	}
}

func TestSplitter(t *testing.T) {
	var s splitter
	var got []string
	add := func(b string) { s.add([]byte(b), func(l string) { got = append(got, l) }) }
	add("one\ntw")
	add("o\n\nthree")
	add("\n" + strings.Repeat("x", maxRecord) + "y")
	add("z\nfour\n")
	if want := []string{"one", "two", "", "three", "four"}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
