package rooms

import (
	"context"
	"time"
)

// Repeat returns a loop that calls do immediately and again an interval after each return, until ctx ends.
func Repeat(every time.Duration, do func(context.Context)) func(context.Context) {
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
