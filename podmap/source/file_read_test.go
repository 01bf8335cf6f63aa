package source

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/internal/host"
	"github.com/gpu-exporter/gpu-exporter/internal/must"
)

// textFile is a File whose value is its text, and which counts how often it is read.
func textFile(path string, clock func() time.Time, reads *int) *File[string] {
	return newFile(Options{Clock: clock, Logger: slog.New(slog.DiscardHandler), MaxAge: time.Minute}, path, "x", "thing",
		func(r io.Reader) (*string, int, error) {
			*reads++
			b, err := io.ReadAll(r)
			text := string(b)
			return &text, 0, err
		})
}

func mustWrite(t *testing.T, path, text string) {
	t.Helper()
	must.OK(t, os.WriteFile(path, []byte(text), 0o600))
}

// A file is read again after every change, of which some are only visible in one of its attributes, and not without.
func TestChangesOfAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	reads := 0
	f := textFile(path, time.Now, &reads)
	at := time.Unix(1e9, 0)
	poll := func(want string, again int) {
		t.Helper()
		before := reads
		f.Poll(t.Context())
		if f.Value() == nil || *f.Value() != want || reads-before != again {
			t.Errorf("%v, read %d times; want %q, %d", f.Value(), reads-before, want, again)
		}
	}
	replace := func(text string) {
		t.Helper()
		mustWrite(t, path+".new", text)
		must.OK(t, os.Chtimes(path+".new", at, at))
		must.OK(t, os.Rename(path+".new", path))
	}
	replace("one")
	poll("one", 1)
	poll("one", 0)
	replace("two") // of the same size and time of modification
	poll("two", 1)
	poll("two", 0)
	text := ""
	for range 300 { // several in one tick of the kernel's clock, which stamps files
		text += "x"
		mustWrite(t, path, text)
		poll(text, 1)
	}
	must.OK(t, os.Remove(path))
	f.Poll(t.Context())
	if f.Value() != nil {
		t.Error("a value of no file")
	}
	replace("one")
	poll("one", 1)
}

// A file that could not be decoded is read at every poll: it may have been written meanwhile, at the same time.
func TestAFileThatWasNotDecoded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	mustWrite(t, path, "x")
	reads := 0
	f := newFile(Options{Clock: time.Now, Logger: slog.New(slog.DiscardHandler)}, path, "x", "thing", func(io.Reader) (*int, int, error) {
		reads++
		return new(int), 0, errors.New("broken")
	})
	for i := range 3 {
		if f.Poll(t.Context()); reads != i+1 || f.Value() != nil {
			t.Errorf("read %d times, value %v", reads, f.Value())
		}
	}
}

// Each way in which a file cannot be read, and what to do about it.
func TestFilesThatCannotBeRead(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	for _, c := range []struct {
		name    string
		prepare func() error
		load    error // in place of reading
		want    string
	}{
		{"missing", func() error { return nil }, nil, path + " does not exist: mount its directory read-only, or set its path"},
		{"a directory", func() error { return os.Mkdir(path, 0o700) }, nil, path + " is not a file: mount its directory, not the file"},
		{"a pipe", func() error { return syscall.Mkfifo(path, 0o600) }, nil,
			path + ": no response within 20ms: a hung file system, or not a file"},
		{"not decodable", func() error { return os.WriteFile(path, []byte("x"), 0o600) }, nil, path + " cannot be decoded: truncated"},
		{"no permission", func() error { return nil }, &fs.PathError{Op: "open", Path: path, Err: syscall.EACCES},
			path + ": permission denied: run as user 0"},
		{"a disk that fails", func() error { return nil }, &fs.PathError{Op: "read", Path: path, Err: syscall.EIO},
			"read " + path + ": input/output error"},
	} {
		t.Run(c.name, func(t *testing.T) {
			must.OK(t, c.prepare())
			defer os.Remove(path)
			f := newFile(Options{Clock: time.Now, Logger: slog.New(slog.DiscardHandler)}, path, "x", "thing",
				func(io.Reader) (*int, int, error) { return nil, 0, errors.New("truncated") })
			if c.name == "a pipe" {
				f.reader = host.NewReader(20 * time.Millisecond)
			}
			if c.load != nil {
				f.load = func() (*int, int, error) { return nil, 0, c.load }
			}
			f.Poll(t.Context())
			if s := f.Source(); s.Up || s.Errors != 1 || s.Message != c.want || f.Value() != nil || f.Fresh() {
				t.Errorf("%+v, want %q", s, c.want)
			}
		})
	}
	// A read that hangs does not let go before the pipe has a writer.
	if w, err := os.OpenFile(path, os.O_WRONLY|syscall.O_NONBLOCK, 0); err == nil {
		w.Close()
	}
}

// What was read last may be used for MaxAge after the last success; the duration is that of the attempt, and the end of
// the program is no failure.
func TestHealthOfAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	now := time.Unix(1e9, 0)
	reads := 0
	f := textFile(path, func() time.Time { return now }, &reads)
	if s := f.Source(); s.Name != "x" || s.Message != "thing not read yet" || s.Up || f.Fresh() || s.Duration.Present() {
		t.Errorf("before: %+v", s)
	}
	mustWrite(t, path, "x")
	start := now
	f.Clock = func() time.Time { now = now.Add(time.Second); return now }
	f.Poll(t.Context())
	f.Clock = func() time.Time { return now }
	if s := f.Source(); !s.Up || s.Duration != gpu.Some(time.Second) || s.LastSuccess != gpu.Some(start.Add(2*time.Second)) {
		t.Errorf("%+v", s)
	}
	must.OK(t, os.Remove(path))
	now = now.Add(time.Minute)
	f.Poll(t.Context())
	if s := f.Source(); !f.Fresh() || s.Up || !strings.HasSuffix(s.Message, "; using the response from 1m0s ago") {
		t.Errorf("a minute: %+v", s)
	}
	now = now.Add(1)
	if s := f.Source(); f.Fresh() || !strings.HasSuffix(s.Message, "; the last response is 1m0s old and no longer used") {
		t.Errorf("longer: %+v", s)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	before := f.Source()
	if f.Poll(ended); fmt.Sprint(f.Source()) != fmt.Sprint(before) {
		t.Errorf("%+v after the end", f.Source())
	}
}

// The sources by the names under which their health is published.
func TestNamesOfTheFiles(t *testing.T) {
	o := Options{Clock: time.Now, Logger: slog.New(slog.DiscardHandler)}
	path := filepath.Join(t.TempDir(), "kubelet_internal_checkpoint")
	f := NewCheckpoint(path, maphash.MakeSeed(), keepGPU, o)
	if s := f.Source(); s.Name != gpu.SourceCheckpoint || s.Message != "kubelet device checkpoint not read yet" {
		t.Errorf("%+v", s)
	}
	mustWrite(t, path, `{"Data":{"PodDeviceEntries":[{"PodUID":"u","ContainerName":"c","ResourceName":"r","AllocResp":"%"}]}}`)
	if f.Poll(t.Context()); f.Value() == nil || len(f.Value().Entries) != 1 || f.Source().Errors != 1 || !f.Source().Up {
		t.Errorf("%+v, %+v", f.Value(), f.Source())
	}
	mustWrite(t, path, `{}`)
	if f.Poll(t.Context()); f.Value() != nil || f.Source().Message !=
		path+" cannot be decoded: no device entries: not a kubelet's device checkpoint; using the response from 0s ago" {
		t.Errorf("%+v", f.Source())
	}
}
