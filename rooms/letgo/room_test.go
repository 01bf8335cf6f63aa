package letgo

import (
	"context"
	"os"
	"slices"
	"syscall"
	"testing"
	"time"
)

func TestSignals(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	signals := make(chan os.Signal, 3)
	signals <- syscall.SIGUSR1
	signals <- syscall.SIGUSR2
	signals <- syscall.SIGUSR1
	var got []time.Duration
	follow(ctx, signals, func(d time.Duration) {
		if got = append(got, d); len(got) == 3 {
			cancel()
		}
	})
	if !slices.Equal(got, []time.Duration{length, 0, length}) {
		t.Error(got)
	}
}
