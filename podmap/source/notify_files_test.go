package source

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/internal/testkit"
)

// watches counts the directories that this process watches.
func watches(t *testing.T) (n int) {
	t.Helper()
	files, err := os.ReadDir("/proc/self/fdinfo")
	must.OK(t, err)
	for _, f := range files {
		text, err := os.ReadFile("/proc/self/fdinfo/" + f.Name())
		if err == nil {
			n += strings.Count(string(text), "inotify wd:")
		}
	}
	return n
}

// A call follows each change of one of the files, by whichever system call, and none a change of another file.
func TestChangesThatAreNotified(t *testing.T) {
	dir := must.ShortDir(t)
	must.OK(t, os.Mkdir(filepath.Join(dir, "sub"), 0o700))
	at := func(name string) string { return filepath.Join(dir, name) }
	mustWrite(t, at("b"), "x")
	mustWrite(t, at("other"), "x")
	mustWrite(t, at("long"+strings.Repeat("x", 251)), "x")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	calls, done := make(chan struct{}, 100), make(chan error, 1)
	go func() { done <- Notify(ctx, []string{at("a"), at("sub/c")}, func() { calls <- struct{}{} }) }()
	testkit.Until(func() bool { return watches(t) == 2 })
	// heard takes the calls of what was done, and that of a mark behind it.
	heard := func(_ string, want int) {
		t.Helper()
		must.OK(t, os.Mkdir(at("sub/c"), 0o700))
		must.OK(t, os.Remove(at("sub/c")))
		for range want + 1 {
			<-calls
		}
	}
	must := func(err error) {
		t.Helper()
		must.OK(t, err)
	}
	l, err := net.Listen("unix", at("a"))
	must(err)
	heard("a socket", 1)
	must(l.Close()) // and removes it
	heard("it is removed", 0)
	must(os.Rename(at("b"), at("a")))
	heard("moved into its place", 1)
	mustWrite(t, at("a"), "y")
	heard("written", 1)
	must(os.Chmod(at("a"), 0o644))
	heard("permissions", 0)
	must(os.Rename(at("a"), at("b")))
	heard("moved away", 0)
	mustWrite(t, at("a"), "y")
	heard("created and written", 2)
	mustWrite(t, at("other"), "y")
	mustWrite(t, at("aa"), "y")
	mustWrite(t, at("long"+strings.Repeat("x", 251)), "y")
	heard("other files", 0)
	mustWrite(t, at("c"), "y")
	heard("its name in another directory", 0)
	cancel()
	if err := <-done; err != nil || len(calls) > 0 {
		t.Errorf("%d calls too many, %v", len(calls), err)
	}
}

// Files of one directory have one watch.
func TestFilesOfOneDirectory(t *testing.T) {
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	calls, done := make(chan struct{}, 100), make(chan error, 1)
	paths := []string{filepath.Join(dir, "a"), filepath.Join(dir, "b"), filepath.Join(dir, "c")}
	go func() { done <- Notify(ctx, paths, func() { calls <- struct{}{} }) }()
	testkit.Until(func() bool { return watches(t) > 0 })
	for _, p := range paths {
		if err := os.Mkdir(p, 0o700); err != nil { // one event
			t.Fatal(err)
		}
		<-calls
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// A watched directory that is removed ends the watch: another one in its place is another directory.
func TestRemovedDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "sub")
	must.OK(t, os.Mkdir(dir, 0o700))
	done := make(chan error, 1)
	go func() { done <- Notify(t.Context(), []string{filepath.Join(dir, "a")}, func() { t.Error("called") }) }()
	testkit.Until(func() bool { return watches(t) > 0 })
	must.OK(t, os.Remove(dir))
	if err := <-done; err == nil || err.Error() != "a watched directory was removed" {
		t.Errorf("%v", err)
	}
}

// Events that the kernel had to drop may have been of the files.
func TestDroppedEvents(t *testing.T) {
	text := must.Read(t, "/proc/sys/fs/inotify/max_queued_events")
	most, err := strconv.Atoi(strings.TrimSpace(text))
	must.OK(t, err)
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	calls, resume, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		done <- Notify(ctx, []string{filepath.Join(dir, "a")}, func() { calls <- struct{}{}; <-resume })
	}()
	testkit.Until(func() bool { return watches(t) > 0 })
	must.OK(t, os.Mkdir(filepath.Join(dir, "a"), 0o700))
	<-calls // and nothing is read until it returns
	names := [2]string{filepath.Join(dir, "x"), filepath.Join(dir, "y")}
	mustWrite(t, names[0], "")
	for i := range most + 10 {
		if err := os.Rename(names[i%2], names[1-i%2]); err != nil { // the cheapest event
			t.Fatal(err)
		}
	}
	resume <- struct{}{}
	<-calls
	resume <- struct{}{}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// Where the kernel cannot watch, the error says what: the caller polls. No descriptor is left open.
func TestDirectoriesThatCannotBeWatched(t *testing.T) {
	dir := t.TempDir()
	mustWrite(t, filepath.Join(dir, "file"), "x")
	open := func() int {
		files, err := os.ReadDir("/proc/self/fd")
		must.OK(t, err)
		return len(files)
	}
	before := open()
	for range 20 {
		for path, want := range map[string]string{"missing/a": "no such file or directory", "file/a": "not a directory"} {
			path = filepath.Join(dir, path)
			if err := Notify(t.Context(), []string{path}, nil); err == nil || err.Error() != "watch "+filepath.Dir(path)+": "+want {
				t.Errorf("%v, want %q", err, want)
			}
		}
	}
	if now := open(); now > before {
		t.Errorf("%d descriptors were left open", now-before)
	}
	var limit syscall.Rlimit
	must.OK(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit))
	must.OK(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: 0, Max: limit.Max}))
	err := Notify(t.Context(), []string{filepath.Join(dir, "a")}, nil)
	if restored := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); restored != nil {
		t.Fatal(restored)
	}
	if err == nil || err.Error() != "watch files: too many open files" {
		t.Errorf("without descriptors: %v", err)
	}
}
