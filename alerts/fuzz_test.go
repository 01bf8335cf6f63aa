package alerts

import (
	"testing"
	"time"
)

// FuzzDuration: what is read is written so that it reads the same, and what is written can be read.
func FuzzDuration(f *testing.F) {
	for _, s := range []string{"90s", "1h30m", "1w", "10y", "0s", "1m1h", "", "9999999999w", "1ms"} {
		f.Add(s, int64(12345))
	}
	f.Fuzz(func(t *testing.T, text string, n int64) {
		if d, err := parseDuration(text); err == nil {
			if d < 0 {
				t.Errorf("%q is %v", text, d)
			}
			if again, err := parseDuration(FormatDuration(d)); err != nil || again != d {
				t.Errorf("%q is %v, written %q and read as %v, %v", text, d, FormatDuration(d), again, err)
			}
		}
		d := time.Duration(n) % (time.Duration(3650) * day)
		if d < 0 {
			d = -d
		}
		if again, err := parseDuration(FormatDuration(d)); err != nil || again != d.Truncate(time.Millisecond) {
			t.Errorf("%v is written %q and read as %v, %v", d, FormatDuration(d), again, err)
		}
	})
}
