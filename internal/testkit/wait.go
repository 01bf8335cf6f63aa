// Package testkit is what tests and measurements share: programs, pages of metrics, and waits.
package testkit

import (
	"context"
	"fmt"
	"time"
)

// Until returns when done reports true. It has no deadline of its own: on a busy machine none is long enough, and what never
// comes ends with the limit of `go test`, which prints where it is waited for.
func Until(done func() bool) {
	for !done() {
		time.Sleep(time.Millisecond)
	}
}

// Within repeats check until it succeeds. Past the limit the last error of check is returned. That is for the tests that run
// programs in real time, and for measurements.
func Within(ctx context.Context, limit time.Duration, check func() error) error {
	ctx, stop := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not within %v", limit))
	defer stop()
	// Short pauses first: what is measured may be there at once.
	for pause := time.Millisecond; ; pause = min(2*pause, 200*time.Millisecond) {
		err := check()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		case <-time.After(pause):
		}
	}
}

// Within is Within while the program runs; its exit is an error.
func (c *Child) Within(ctx context.Context, limit time.Duration, check func() error) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	go func() {
		select {
		case <-c.done:
			stop(c.Exited())
		case <-ctx.Done():
		}
	}()
	return Within(ctx, limit, check)
}
