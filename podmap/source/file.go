package source

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/internal/host"
)

// Options are what all data sources need.
type Options struct {
	Timeout time.Duration // of one read of a file; none where 0
	Clock   func() time.Time
	Logger  *slog.Logger
	MaxAge  time.Duration // how long the last response is used after a failure
}

// File is a data source that is a file, which is read again when it has changed. Poll, Value and Fresh belong to one
// goroutine.
type File[T any] struct {
	Options
	path, name, what string
	// read decodes the file, and returns how many of its entries it could not decode.
	read func(io.Reader) (value *T, undecoded int, err error)
	// load takes its place where path is a directory, which is read every time.
	load   func() (value *T, undecoded int, err error)
	reader *host.Reader
	state  fileState
	value  *T
	lost   int // entries that were not decoded

	mu     sync.Mutex // guards health
	health gpu.Health
}

// newFile returns a file that was not read yet.
func newFile[T any](o Options, path, name, what string, read func(io.Reader) (*T, int, error)) *File[T] {
	return &File[T]{Options: o, path: path, name: name, what: what, read: read, reader: host.NewReader(o.Timeout)}
}

// content is what one read of a file found.
type content[T any] struct {
	state     fileState
	value     *T
	undecoded int
}

// Poll reads the file if it has changed.
func (f *File[T]) Poll(ctx context.Context) {
	start, before := f.Clock(), content[T]{f.state, f.value, 0}
	now, err := host.Read(ctx, f.reader, f.path, func() (content[T], error) {
		c := before
		var err error
		if f.load != nil {
			c.value, c.undecoded, err = f.load()
			return c, err
		}
		c.state, err = readChanged(f.path, before.state, func(r io.Reader) (err error) {
			c.value, c.undecoded, err = f.read(r)
			return err
		})
		return c, err
	})
	if ctx.Err() != nil {
		return // the end of this program is no failure of the file
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	end := f.Clock()
	f.health.Took(end.Sub(start))
	if err != nil {
		// A file that could not be decoded is read again at the next poll.
		f.state, f.value = fileState{}, nil
		message := f.explain(err)
		if f.health.Failed(message) {
			f.Logger.Warn("cannot read "+f.what, "err", message)
		}
		return
	}
	f.state, f.value = now.state, now.value
	if f.health.Succeeded(end) > 0 {
		f.Logger.Info(f.what + " readable again")
	}
	if changed := now.undecoded != f.lost; f.load != nil {
		if f.lost = now.undecoded; !changed {
			return
		}
	}
	if now.undecoded > 0 {
		f.health.Lost()
		f.Logger.Warn("ignoring undecodable entries of "+f.what, "entries", now.undecoded)
	}
}

// Value is what the file contains; nil while it cannot be read.
func (f *File[T]) Value() *T { return f.value }

// Fresh reports whether what was read last may still be used.
func (f *File[T]) Fresh() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.health.Fresh(f.Clock(), f.MaxAge)
}

// Source implements Source.
func (f *File[T]) Source() gpu.Source {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.health.Source(f.name, f.what+" not read yet", f.Clock(), f.MaxAge)
}

func (f *File[T]) explain(err error) string {
	var where *fs.PathError
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return f.path + " does not exist: mount its directory read-only, or set its path"
	case errors.Is(err, fs.ErrPermission):
		return f.path + ": permission denied: run as user 0"
	case errors.Is(err, errNotFile):
		return f.path + " is not a file: mount its directory, not the file"
	case errors.As(err, &where), errors.Is(err, host.ErrHung):
		return err.Error()
	}
	return f.path + " cannot be decoded: " + err.Error()
}

var errNotFile = errors.New("not a regular file")

// fileState distinguishes the states of a file.
type fileState struct {
	device, inode uint64
	changed       syscall.Timespec
	size          int64
}

// readChanged opens a file and reads it, unless its state is the one before. It returns the state of what was read.
func readChanged(path string, before fileState, read func(io.Reader) error) (fileState, error) {
	f, err := os.Open(path)
	if err != nil {
		return fileState{}, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return fileState{}, err
	}
	if !info.Mode().IsRegular() {
		return fileState{}, &fs.PathError{Op: "read", Path: path, Err: errNotFile}
	}
	stat := info.Sys().(*syscall.Stat_t) // on Linux it is nothing else
	now := fileState{stat.Dev, stat.Ino, stat.Ctim, stat.Size}
	if now == before {
		return now, nil
	}
	return now, read(f)
}
