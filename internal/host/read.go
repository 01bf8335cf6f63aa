// Package host reads files and sockets of the node that may never respond: a FIFO, a hung network file system, a process
// in uninterruptible sleep.
package host

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
)

// ErrHung is the error of a read that did not return within the deadline, and of those that are refused while it hangs.
var ErrHung = errors.New("no response")

const (
	// maxHung bounds the reads of a Reader that hang, each of which keeps a thread: further ones are refused.
	maxHung = 8
	// hungFraction is the part of the deadline for other reads while one hangs, so that the total stays short where a
	// whole file system does not respond.
	hungFraction = 5
)

// Reader runs reads, each in a goroutine of its own. Its methods are safe for concurrent use.
type Reader struct {
	deadline time.Duration
	// Over, where a test sets it, ends a read instead of the deadline: it returns a closed channel for what hangs.
	Over func(what string) <-chan time.Time

	mu   sync.Mutex
	hung map[string]bool // what reads that were given up read
}

// NewReader returns a Reader with a deadline for each read, none where 0.
func NewReader(deadline time.Duration) *Reader {
	return &Reader{deadline: deadline, hung: map[string]bool{}}
}

// Read returns the result of read, or after the deadline an ErrHung, or when ctx ends its error. The read may go on
// after that: it must share nothing with its caller. Until it returns, reads of the same are refused.
func Read[T any](ctx context.Context, r *Reader, what string, read func() (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	var none T
	deadline, err := r.admit(what)
	if err != nil {
		return none, err
	}
	done := make(chan result)
	late := make(chan struct{})
	go func() {
		value, err := read()
		select {
		case done <- result{value, err}:
		case <-late:
			r.forget(what)
		}
	}()
	var over <-chan time.Time
	if r.Over != nil {
		over = r.Over(what)
	} else if deadline > 0 {
		timer := time.NewTimer(deadline)
		defer timer.Stop()
		over = timer.C
	}
	select {
	case out := <-done:
		return out.value, out.err
	case <-over:
		err = r.explain(what)
	case <-ctx.Done():
		err = ctx.Err()
	}
	r.mu.Lock()
	r.hung[what] = true
	r.mu.Unlock()
	close(late)
	return none, err
}

// admit returns the deadline of a read, or the reason why it may not start.
func (r *Reader) admit(what string) (time.Duration, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch n := len(r.hung); {
	case r.hung[what]:
		return 0, r.explain(what)
	case n >= maxHung:
		return 0, fmt.Errorf("%d reads hang: %w", n, r.explain(slices.Min(slices.Collect(maps.Keys(r.hung)))))
	case n > 0:
		return r.deadline / hungFraction, nil
	}
	return r.deadline, nil
}

// Hung returns nil, or an ErrHung while some read has been given up and has not returned: of the last in the order of their
// names, since a directory precedes what is in it.
func (r *Reader) Hung() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.hung) == 0 {
		return nil
	}
	return r.explain(slices.Max(slices.Collect(maps.Keys(r.hung))))
}

func (r *Reader) forget(what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.hung, what)
}

func (r *Reader) explain(what string) error {
	return fmt.Errorf("%s: %w within %s: a hung file system, or not a file", what, ErrHung, r.deadline)
}
