package main

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestRepeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var done atomic.Int32
		ended := make(chan error, 1)
		go func() {
			ended <- repeat(time.Minute, func(context.Context) { done.Add(1); time.Sleep(time.Second) })(ctx)
		}()
		time.Sleep(2*time.Minute + 30*time.Second) // at 0 s, 61 s and 122 s
		if n := done.Load(); n != 3 {
			t.Errorf("it was done %d times in two and a half minutes", n)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// A loop that hangs does not keep the program from ending.
func TestPrompt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		for _, c := range []struct {
			name string
			loop func(context.Context) error
			took time.Duration
			want error
		}{
			{"ends by itself", func(context.Context) error { return errReplaced }, 0, errReplaced},
			{"ends when it is told", func(ctx context.Context) error { <-ctx.Done(); return errReplaced }, time.Minute, errReplaced},
			{"hangs", func(context.Context) error { <-release; return errReplaced }, time.Minute + leave, nil},
		} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			start := time.Now()
			if err := prompt(ctx, c.loop); !errors.Is(err, c.want) || time.Since(start) != c.took {
				t.Errorf("%s: %v after %s", c.name, err, time.Since(start))
			}
			cancel()
		}
		close(release)
	})
}
