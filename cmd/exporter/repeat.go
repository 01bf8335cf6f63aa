package main

import (
	"context"
	"time"
)

// repeat returns a loop that calls do immediately and again an interval after each return, until ctx ends.
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
			do(ctx)
			timer.Reset(every)
		}
	}
}

// leave is how long the end of the program waits for a loop.
const leave = 800 * time.Millisecond

// prompt runs a loop, and soon after the end of ctx no longer waits for it: it may hang in a system call.
func prompt(ctx context.Context, loop func(context.Context) error) error {
	done := make(chan error, 1)
	go func() { done <- loop(ctx) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-done:
		return err
	case <-time.After(leave):
		return nil
	}
}
