package page

import (
	"fmt"
	"testing"
	"time"
)

func TestAxis(t *testing.T) {
	for _, c := range []struct {
		low, high float64
		min, max  *float64
		unit      string
		most      int
		want      string
	}{
		{0, 1, new(0.0), new(1.0), "percentunit", 5, "0..1 [0% 20% 40% 60% 80% 100%]"},
		{0, 87, new(0.0), nil, "short", 5, "0..100 [0 20 40 60 80 100]"},
		{0, 79 * 1024 * 1024 * 1024, new(0.0), nil, "bytes", 5, "0..8.589934592e+10 [0 B 16 GiB 32 GiB 48 GiB 64 GiB 80 GiB]"},
		{-1, 2, nil, nil, "short", 4, "-1..2 [-1 0 1 2]"},
		{0, 0, nil, nil, "short", 4, "0..1 [0.00 0.25 0.50 0.75 1.00]"},
		{50, 50, new(0.0), nil, "short", 5, "0..50 [0 10 20 30 40 50]"},
		{0, 100, new(0.0), nil, "s", 5, "0..120 [0 s 30 s 1 mins 1.5 mins 2 mins]"},
		{0, 330, new(0.0), nil, "dtdurations", 5, "0..360 [0 seconds 2 minutes 4 minutes 6 minutes]"},
		{0, 0.9, new(0.0), nil, "short", 5, "0..1 [0.0 0.2 0.4 0.6 0.8 1.0]"},
	} {
		a := newAxis(c.low, c.high, c.min, c.max, c.unit, c.most)
		texts, err := tickTexts(a.ticks, c.unit, nil, time.Now())
		if got := fmt.Sprintf("%v..%v %v", a.from, a.to, texts); got != c.want || err != nil {
			t.Errorf("%v to %v: %s, %v; want %s", c.low, c.high, got, err, c.want)
		}
	}
}

// Everything that is drawn is inside its axis, and there are never more labels than there is room.
func FuzzAxis(f *testing.F) {
	f.Add(0.0, 1.0)
	f.Add(-1e9, 1e-9)
	f.Add(3.0, 3.0)
	f.Fuzz(func(t *testing.T, a, b float64) {
		if !(a <= b) || b-a > 1e300 || a < -1e300 || b > 1e300 || (b != a && b-a < 1e-12*max(b, -a)) {
			t.Skip()
		}
		x := newAxis(a, b, nil, nil, "short", 6)
		if !(x.from < x.to) || x.place(a) < -1e-9 || x.place(b) > 1+1e-9 {
			t.Errorf("%v to %v: axis %v to %v", a, b, x.from, x.to)
		}
		if len(x.ticks) > 9 {
			t.Errorf("%v to %v: %d labels", a, b, len(x.ticks))
		}
	})
}

func TestTimeTicks(t *testing.T) {
	from := time.Date(2026, 11, 20, 22, 7, 0, 0, time.UTC)
	for _, c := range []struct {
		length time.Duration
		most   int
		want   string
	}{
		{20 * time.Minute, 5, "[22:10 22:15 22:20 22:25]"},
		{6 * time.Hour, 7, "[23:00 00:00 01:00 02:00 03:00 04:00]"},
		{48 * time.Hour, 5, "[11/21 00:00 11/21 12:00 11/22 00:00 11/22 12:00]"},
		{7 * 24 * time.Hour, 8, "[11/21 11/22 11/23 11/24 11/25 11/26 11/27]"},
	} {
		var texts []string
		for _, tick := range timeTicks(from, from.Add(c.length), c.most) {
			if tick.at < 0 || tick.at > 1 {
				t.Errorf("%v: %s is outside", c.length, tick.text)
			}
			texts = append(texts, tick.text)
		}
		if got := fmt.Sprint(texts); got != c.want {
			t.Errorf("%v: %s, want %s", c.length, got, c.want)
		}
	}
}
