package main

import (
	"context"
	"time"
)

// repeat returns a loop that calls do immediately and again an interval after each return, until ctx ends. It does not
// wait for a call that hangs, such as on an unresponsive file system, and starts no other meanwhile: do may outlive it.
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
