package rooms

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
			Repeat(time.Minute, func(context.Context) { done.Add(1); time.Sleep(time.Second) })(ctx)
		}()
		time.Sleep(2*time.Minute + 30*time.Second) // at 0 s, 61 s and 122 s
		if n := done.Load(); n != 3 {
			t.Errorf("it was done %d times in two and a half minutes", n)
		}
		cancel()
		<-ended
	})
}
