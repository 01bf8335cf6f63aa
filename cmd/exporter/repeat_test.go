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

// What hangs is begun once, and does not keep the program from ending.
func TestRepeatEndsBesideWhatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		release := make(chan struct{})
		var begun atomic.Int32
		ended := make(chan error, 1)
		go func() { ended <- repeat(time.Second, func(context.Context) { begun.Add(1); <-release })(ctx) }()
		time.Sleep(time.Minute)
		if n := begun.Load(); n != 1 {
			t.Errorf("it was begun %d times while it hung", n)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		close(release)
	})
}
