package main

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// A loop that hangs does not keep the program from ending, and one that returns does not end it.
func TestPrompt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		for _, c := range []struct {
			name string
			loop func(context.Context)
			took time.Duration
		}{
			{"ends by itself", func(context.Context) {}, time.Minute},
			{"ends with the program", func(ctx context.Context) { <-ctx.Done() }, time.Minute},
			{"hangs", func(context.Context) { <-release }, time.Minute + leave},
		} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			start := time.Now()
			if prompt(ctx, c.loop); time.Since(start) != c.took {
				t.Errorf("%s: after %s", c.name, time.Since(start))
			}
			cancel()
		}
		close(release)
	})
}
