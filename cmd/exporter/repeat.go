package main

import (
	"context"
	"time"
)

// repeat returns a loop that does something at once, and again an interval after it was done, until ctx ends. It does not
// wait for what hangs, such as a file system that never answers, but begins no other meanwhile: what it does may
// outlive it.
func repeat(every time.Duration, do func(context.Context)) func(context.Context) error {
	return func(ctx context.Context) error {
		timer := time.NewTimer(0)
		defer timer.Stop()
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-timer.C:
			}
			done := make(chan struct{})
			go func() {
				defer close(done)
				do(ctx)
			}()
			select {
			case <-ctx.Done():
				return nil
			case <-done:
			}
			timer.Reset(every)
		}
	}
}
