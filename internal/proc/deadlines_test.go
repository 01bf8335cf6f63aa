package proc

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/internal/host"
	"github.com/gpu-exporter/gpu-exporter/internal/must"
)

// The texts of errors: what failed, and what to do.
func TestMessages(t *testing.T) {
	n := newNode(t)
	f := n.finder(true)
	if err := f.HostPID(); err == nil || !strings.HasPrefix(err.Error(), "cannot determine the PID namespace: readlink ") {
		t.Errorf("%v", err)
	}
	n.write("proc/self/ns/x", "")
	must.OK(t, os.Symlink("pid:[4026532000]", filepath.Join(n.root, "proc/self/ns/pid")))
	if err := f.HostPID(); err == nil ||
		err.Error() != "not in the host's PID namespace (pid:[4026532000]); set hostPID: true" {
		t.Errorf("%v", err)
	}
}

// Each change of a source's health is logged once.
func TestHealthIsLoggedOnce(t *testing.T) {
	n := newNode(t)
	var text strings.Builder
	logger := slog.New(slog.NewTextHandler(&text, nil))
	logged := func(what string, want int, message string) {
		t.Helper()
		if got := strings.Count(text.String(), message); got != want {
			t.Errorf("%s: %q is logged %d times, want %d:\n%s", what, message, got, want, text.String())
		}
		text.Reset()
	}
	f := n.finder(true)
	f.o.Logger = logger
	for range 3 {
		f.Sources()
	}
	logged("finder", 1, "cannot look up processes")
	n.hostPID()
	n.write("log/pods", "")
	n.write("log/containers", "")
	for range 3 {
		n.now = n.now.Add(staleNames)
		if s := f.Sources(); !s[0].Up || len(s) != 2 || s[1].Up || s[1].Name != gpu.SourceLogs {
			t.Errorf("%+v", s)
		}
	}
	logged("log names", 1, "cannot read the names of pod logs")
	l := n.scanner()
	l.found.Logger = logger
	l.finder.o.Procfs, l.o.Finder.Procfs = filepath.Join(n.root, "missing"), filepath.Join(n.root, "missing")
	for range 3 {
		l.Scan(t.Context())
	}
	logged("scanner", 1, "cannot determine all GPUs visible in containers")
	if s := l.Source(); s.Errors != 3 || s.Name != gpu.SourceVisible || !strings.HasPrefix(s.Message, "cannot list processes: open ") {
		t.Errorf("%+v", s)
	}
	n.write("cgroup/dmem.capacity/x", "")
	s := NewCgroupScanner(CgroupOptions{Root: filepath.Join(n.root, "cgroup"), Finder: Options{Logger: logger}})
	for range 3 {
		s.Scan(t.Context())
	}
	logged("cgroups", 1, "cannot read GPU memory by cgroup")
}

// A process whose entry hangs is looked up every 10 s, the health is queried every 2 s: the source is down in each of them until
// the read returns, and what hangs is logged once.
func TestHungUntilItReturns(t *testing.T) {
	n := newNode(t)
	n.hostPID()
	n.write("log/pods/x", "")
	n.write("log/containers/x", "")
	var text strings.Builder
	f := n.finder(true)
	f.o.Logger = slog.New(slog.NewTextHandler(&text, nil))
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // it is given up at once
	path, release := filepath.Join(n.root, "proc/10/cgroup"), make(chan struct{})
	hang := func(what string) {
		_, _ = host.Read(ctx, f.reader, what, func() (int, error) { <-release; return 0, nil })
	}
	hang(filepath.Join(n.root, "proc")) // the batch of Expect
	hang(path)
	up := 0
	for i := range 44 {
		if n.now = n.now.Add(2 * time.Second); i%5 == 0 {
			f.Find(10)
		}
		if s := f.Sources()[0]; s.Up || !strings.HasPrefix(s.Message, path+": ") {
			up++
		}
	}
	if warnings := strings.Count(text.String(), "cannot look up processes"); up != 0 || warnings != 1 {
		t.Errorf("up %d of 44 times, logged %d times: %s", up, warnings, text.String())
	}
	close(release)
	for f.reader.Hung() != nil {
		runtime.Gosched()
	}
	if s := f.Sources()[0]; !s.Up {
		t.Errorf("it has returned: %+v", s)
	}
}

// A cgroup hierarchy that is removed has no GPU memory any more, at once; one that cannot be read keeps the last.
func TestHierarchyThatIsRemoved(t *testing.T) {
	root, now := t.TempDir(), time.Unix(1000, 0)
	capacity := filepath.Join(root, "dmem.capacity")
	write := func() {
		must.OK(t, os.WriteFile(capacity, []byte("nvidia/0000:18:00.0/vidmem 1\n"), 0o644))
	}
	write()
	s := NewCgroupScanner(CgroupOptions{Root: root, Finder: Options{Clock: func() time.Time { return now }}})
	check := func(what string, memory, offered bool, errors uint64) {
		t.Helper()
		s.Scan(t.Context())
		source, got := s.Source()
		if (len(s.Memory()) > 0) != memory || got != offered || source.Errors != errors {
			t.Errorf("%s: %v, offered %v, %+v", what, s.Memory(), got, source)
		}
	}
	check("there", true, true, 0)
	os.Remove(capacity)
	must.OK(t, os.Mkdir(capacity, 0o755))
	check("it cannot be read", true, true, 1)
	os.Remove(capacity)
	check("removed", false, false, 1)
	write()
	check("there again", true, true, 1)
}

// A process that was not looked up for five minutes is forgotten.
func TestProcessesAreForgotten(t *testing.T) {
	n := newNode(t)
	n.process(10, "555", "0::/system.slice/a.service\n")
	f := n.finder(false)
	f.Find(10)
	n.now = n.now.Add(forgetAfter)
	if f.Forget(); len(f.entries) != 1 {
		t.Error("forgotten too early")
	}
	n.now = n.now.Add(1)
	if f.Forget(); len(f.entries) != 0 {
		t.Error("not forgotten")
	}
	// Without a call it happens while another process is looked up.
	f.Find(10)
	n.process(11, "556", "0::/\n")
	os.RemoveAll(filepath.Join(n.root, "proc/10"))
	n.now = n.now.Add(forgetAfter)
	f.Find(11)
	if _, ok := f.entries[10]; !ok {
		t.Error("forgotten too early")
	}
	n.now = n.now.Add(forgetAfter + 1)
	f.Find(11)
	if _, ok := f.entries[10]; ok || len(f.entries) != 1 {
		t.Errorf("%v", slices.Collect(maps.Keys(f.entries)))
	}
}

// A process that has ended is known for fifteen seconds after it was last looked up, one that cannot be read is not.
func TestEndedProcessIsKnownForAWhile(t *testing.T) {
	n := newNode(t)
	n.process(10, "555", "0::/system.slice/a.service\n")
	f := n.finder(false)
	a := gpu.Container{Pod: "systemd/a.service"}
	expect(t, f, 10, a, Owned)
	os.RemoveAll(filepath.Join(n.root, "proc/10"))
	n.now = n.now.Add(sampledFor)
	expect(t, f, 10, a, Owned)
	n.now = n.now.Add(1)
	expect(t, f, 10, gpu.Container{}, Unknown)
	if len(f.entries) != 0 {
		t.Error("it is still remembered")
	}
	n.process(10, "556", "0::/system.slice/a.service\n")
	expect(t, f, 10, a, Owned)
	must.OK(t, os.Remove(filepath.Join(n.root, "proc/10/stat")))
	must.OK(t, os.Mkdir(filepath.Join(n.root, "proc/10/stat"), 0o755))
	expect(t, f, 10, gpu.Container{}, Unknown)
}

// What the watch saw: a process is known for fifteen seconds, at most 256 are looked up after one list, and 8192 are
// remembered. It lists for a minute after a process was missed.
func TestLimitsOfTheWatch(t *testing.T) {
	n := newNode(t)
	n.write("proc/1/stat", "")
	f := n.finder(false)
	w := f.watch
	w.miss(n.now)
	if !f.Glance(t.Context()) {
		t.Fatal("no list")
	}
	for pid := 100; pid < 100+maxNew+10; pid++ {
		n.process(pid, "1", "0::/system.slice/a.service\n")
	}
	if f.Glance(t.Context()); len(w.seen) != maxNew {
		t.Errorf("%d are looked up", len(w.seen))
	}
	if _, ok := w.of(100, n.now.Add(sampledFor)); !ok {
		t.Error("forgotten too early")
	}
	if _, ok := w.of(100, n.now.Add(sampledFor+1)); ok {
		t.Error("too old")
	}
	n.now = n.now.Add(sampledFor)
	if f.Glance(t.Context()); len(w.seen) != maxNew {
		t.Errorf("%d are remembered", len(w.seen))
	}
	n.now = n.now.Add(1)
	if f.Glance(t.Context()); len(w.seen) != 0 {
		t.Errorf("%d are remembered", len(w.seen))
	}
	n.now = time.Unix(1000, 0).Add(watchFor)
	if !f.Glance(t.Context()) {
		t.Error("it ends too early")
	}
	n.now = n.now.Add(1)
	if f.Glance(t.Context()) {
		t.Error("it does not end")
	}
	// A full memory takes no other process, and one that it has again.
	w.miss(n.now)
	f.Glance(t.Context())
	for pid := range maxSeen {
		w.seen[1_000_000+pid] = glimpse{at: n.now}
	}
	delete(w.seen, 1_000_000)
	n.process(50, "7", "0::/system.slice/a.service\n")
	if f.Glance(t.Context()); len(w.seen) != maxSeen {
		t.Errorf("%d are remembered", len(w.seen))
	}
	n.process(51, "7", "0::/system.slice/a.service\n")
	os.RemoveAll(filepath.Join(n.root, "proc/50"))
	f.Glance(t.Context())
	n.process(50, "8", "0::/system.slice/a.service\n")
	f.Glance(t.Context())
	if _, ok := w.seen[51]; ok || len(w.seen) != maxSeen || !w.seen[50].reused || w.seen[50].start != "8" {
		t.Errorf("%d are remembered, %+v", len(w.seen), w.seen[50])
	}
}

// A PID that two processes had while it was watched is neither's, also when the second is found again.
func TestReusedWhileWatched(t *testing.T) {
	n := newNode(t)
	n.write("proc/1/stat", "")
	f := n.finder(false)
	f.watch.miss(n.now)
	for i, start := range []string{"7", "8", "8"} {
		f.Glance(t.Context())
		n.process(10, start, "0::/system.slice/a.service\n")
		f.Glance(t.Context())
		if g := f.watch.seen[10]; g.reused != (i > 0) {
			t.Errorf("process %d: %+v", i, g)
		}
		os.RemoveAll(filepath.Join(n.root, "proc/10"))
	}
	expect(t, f, 10, gpu.Container{}, Unknown)
	// The same process again is none that was reused.
	f.Glance(t.Context())
	n.process(11, "5", "0::/system.slice/a.service\n")
	f.Glance(t.Context())
	hidden := filepath.Join(n.root, "hidden")
	must.OK(t, os.Rename(filepath.Join(n.root, "proc/11"), hidden))
	f.Glance(t.Context())
	must.OK(t, os.Rename(hidden, filepath.Join(n.root, "proc/11")))
	if f.Glance(t.Context()); f.watch.seen[11].reused {
		t.Error("one process passes for two")
	}
	expect(t, f, 11, gpu.Container{Pod: "systemd/a.service"}, Owned)
}

// Watch lists every 400 ms while there is a reason, and ends with its context, listing or not.
func TestWatchInterval(t *testing.T) {
	n := newNode(t)
	n.write("proc/1/stat", "")
	synctest.Test(t, func(t *testing.T) {
		f := New(Options{Procfs: filepath.Join(n.root, "proc")})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); f.Watch(ctx) }()
		synctest.Wait()
		start := time.Now()
		f.watch.miss(start)
		f.watch.miss(start)
		time.Sleep(watchInterval / 2)
		n.process(10, "5", "0::/\n")
		seen := func() bool {
			_, ok := f.watch.of(10, time.Now())
			return ok
		}
		time.Sleep(watchInterval/2 - 1)
		synctest.Wait()
		if seen() {
			t.Error("it lists more often than every 400 ms")
		}
		time.Sleep(2 * time.Nanosecond)
		synctest.Wait()
		if !seen() {
			t.Error("it does not list after 400 ms")
		}
		time.Sleep(2 * watchFor)
		synctest.Wait()
		f.watch.miss(time.Now()) // it can be woken again
		synctest.Wait()
		n.process(11, "5", "0::/\n")
		time.Sleep(watchInterval)
		synctest.Wait()
		if _, ok := f.watch.of(11, time.Now()); !ok {
			t.Error("it is not woken a second time")
		}
		cancel()
		<-done
	})
}

// A finder reads /proc with a deadline of half a second, where none is configured.
func TestDeadlineOfAFinder(t *testing.T) {
	for deadline, want := range map[time.Duration]time.Duration{0: 500 * time.Millisecond, 100 * time.Millisecond: 100 * time.Millisecond} {
		n := newNode(t)
		n.hostPID()
		n.write("proc/10/cgroup", "0::/\n")
		end := n.fifo("proc/10/stat")
		f := New(Options{Procfs: filepath.Join(n.root, "proc"), Deadline: deadline})
		if _, owner := f.Find(10); owner != Unknown {
			t.Errorf("deadline %v: %v", deadline, owner)
		}
		s := f.Sources()
		if want := fmt.Sprintf("no response within %v", want); s[0].Up || !strings.Contains(s[0].Message, want) {
			t.Errorf("%+v, want %s", s[0], want)
		}
		end()
	}
}

// A process that ended before it was looked up has the name with which the watch saw it.
func TestNameOfAProcessThatEnded(t *testing.T) {
	for command, want := range map[string]bool{mpsCommand: true, "python": false} {
		n := newNode(t)
		n.write("proc/1/stat", "")
		f := n.finder(false)
		f.watch.miss(n.now)
		f.Glance(t.Context())
		n.write("proc/10/stat", "10 ("+command+") S 1 1 1 0 -1 4194304 100 0 0 0 1 2 3 4 20 0 1 0 555 1000 10\n")
		n.write("proc/10/cgroup", "0::/system.slice/a.service\n")
		f.Glance(t.Context())
		os.RemoveAll(filepath.Join(n.root, "proc/10"))
		expect(t, f, 10, gpu.Container{Pod: "systemd/a.service"}, Owned)
		if f.NamedMPS(10) != want || f.Command(10) != command {
			t.Errorf("%s: %v, %q", command, f.NamedMPS(10), f.Command(10))
		}
	}
}
