package host

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

func TestRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const deadline = time.Second
		r := NewReader(deadline)
		free, hang := make(chan struct{}), make(chan struct{})
		close(free)
		failed := errors.New("failed")
		read := func(what string, until chan struct{}, err error) (time.Duration, int, error) {
			start := time.Now()
			v, got := Read(t.Context(), r, what, func() (int, error) { <-until; return 7, err })
			return time.Since(start), v, got
		}
		for _, c := range []struct {
			name, what string
			until      chan struct{}
			err        error
			took       time.Duration
			value      int
			want       error
		}{
			{"a value", "a", free, nil, 0, 7, nil},
			{"an error", "a", free, failed, 0, 7, failed},
			{"one that hangs", "a", hang, nil, deadline, 0, ErrHung},
			{"the same again", "a", free, nil, 0, 0, ErrHung},
			{"another", "b", free, nil, 0, 7, nil},
			{"another that hangs is given up sooner", "b", hang, nil, deadline / hungFraction, 0, ErrHung},
		} {
			if took, v, err := read(c.what, c.until, c.err); took != c.took || v != c.value || !errors.Is(err, c.want) {
				t.Errorf("%s: %v, %v after %s", c.name, v, err, took)
			}
		}
		for i := range maxHung {
			read(fmt.Sprint(i), hang, nil)
		}
		if took, _, err := read("c", free, nil); !errors.Is(err, ErrHung) || took != 0 {
			t.Errorf("beside %d that hang: %v after %s", maxHung, err, took)
		}
		close(hang)
		synctest.Wait()
		if _, v, err := read("a", free, nil); v != 7 || err != nil {
			t.Errorf("after they returned: %v %v", v, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		again := make(chan struct{})
		if _, err := Read(ctx, r, "a", func() (int, error) { <-again; return 0, nil }); !errors.Is(err, context.Canceled) {
			t.Errorf("at the end: %v", err)
		}
		close(again)
	})
}
