package main

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestRepeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var done atomic.Int32
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			repeat(time.Minute, func(context.Context) { done.Add(1); time.Sleep(time.Second) })(ctx)
		}()
		time.Sleep(2*time.Minute + 30*time.Second) // at 0 s, 61 s and 122 s
		if n := done.Load(); n != 3 {
			t.Errorf("it was done %d times in two and a half minutes", n)
		}
		cancel()
		<-ended
	})
}

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
