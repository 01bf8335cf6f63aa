package main

import (
	"context"
	"time"
)

// repeat returns a loop that calls do immediately and again an interval after each return, until ctx ends.
func repeat(every time.Duration, do func(context.Context)) func(context.Context) {
	return func(ctx context.Context) {
		timer := time.NewTimer(0)
		defer timer.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-timer.C:
			}
			do(ctx)
			timer.Reset(every)
		}
	}
}

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
