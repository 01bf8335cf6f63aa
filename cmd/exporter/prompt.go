package main

import (
	"context"
	"time"
)

// leave is how long the end of the program waits for a loop.
const leave = 800 * time.Millisecond

// prompt runs a loop until ctx ends, and soon after that no longer waits for it: it may hang in a system call. A loop that
// returns by itself ends nothing else.
func prompt(ctx context.Context, loop func(context.Context)) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		loop(ctx)
	}()
	<-ctx.Done()
	select {
	case <-done:
	case <-time.After(leave):
	}
}
