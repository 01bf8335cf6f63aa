package host

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// Record is what was read last of a data source, and the health of the reads. Its methods are safe for concurrent use.
type Record[T any] struct {
	Name, Pending  string // of gpu.Source
	Failing, Again string // log messages where reads begin to fail, and to succeed; none where empty
	MaxAge         time.Duration
	Clock          func() time.Time
	Logger         *slog.Logger // nil: discarded

	mu     sync.Mutex // guards what follows
	value  T
	health gpu.Health
}

// Partial is the error of a read that got most of its source.
type Partial struct {
	Errors  int
	Message string
}

func (p *Partial) Error() string { return p.Message }

// Set records an attempt that began at start, and returns err. One that ends with ctx is none: the end of this program
// is no failure of the source. Where it fails, the value stays.
func (r *Record[T]) Set(ctx context.Context, start time.Time, value T, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	now, changed := r.Clock(), false
	r.health.Took(now.Sub(start))
	var most *Partial
	switch {
	case errors.As(err, &most):
		r.value, changed = value, r.health.Partial(now, most.Errors, most.Message)
	case err != nil:
		changed = r.health.Failed(err.Error())
	default:
		r.value = value
		if n := r.health.Succeeded(now); n > 0 && r.Again != "" && r.Logger != nil {
			r.Logger.Info(r.Again, "after_failures", n)
		}
	}
	if changed && r.Logger != nil {
		r.Logger.Warn(r.Failing, "err", err)
	}
	return err
}

// Last returns the value of the last read that succeeded.
func (r *Record[T]) Last() T {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.value
}

// Value returns it, unless it is too old.
func (r *Record[T]) Value() (value T, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.health.Fresh(r.Clock(), r.MaxAge) {
		return r.value, true
	}
	return value, false
}

// Failures is the number of reads that failed in a row.
func (r *Record[T]) Failures() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.health.Failures()
}

// Source returns the health of the source.
func (r *Record[T]) Source() gpu.Source {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.health.Source(r.Name, r.Pending, r.Clock(), r.MaxAge)
}
