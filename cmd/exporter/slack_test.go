package main

import (
	"testing"

	"golang.org/x/sys/unix"
)

// Threads inherit the slack from the first.
func TestTimerSlack(t *testing.T) {
	if slack, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0); err != nil || slack != 500_000 {
		t.Errorf("%d ns, %v", slack, err)
	}
}
