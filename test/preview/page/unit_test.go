package page

import (
	"math"
	"strings"
	"testing"
	"time"
)

func TestFormat(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	for _, c := range []struct {
		value    float64
		unit     string
		decimals *int
		want     string
	}{
		{0, "short", nil, "0"},
		{1234, "short", nil, "1.23 K"},
		{0.12345, "short", nil, "0.123"},
		{0.000012345, "short", nil, "0.0000123"},
		{12, "none", nil, "12"},
		{12345, "none", nil, "12345"},
		{0.5, "percentunit", nil, "50%"},
		{0.12345, "percentunit", nil, "12.3%"},
		{1, "percentunit", new(1), "100.0%"},
		{-0.0001, "percentunit", new(0), "0%"},
		{85899345920, "bytes", nil, "80 GiB"},
		{1536, "bytes", nil, "1.50 KiB"},
		{1e9, "decbytes", nil, "1 GB"},
		{2048, "binBps", nil, "2 KiB/s"},
		{700, "watt", nil, "700 W"},
		{5600, "watt", nil, "5.60 kW"},
		{0.83, "kwatth", nil, "830 Wh"},
		{12, "kwatth", nil, "12 kWh"},
		{1200, "kwatth", nil, "1.20 MWh"},
		{61, "celsius", nil, "61 °C"},
		{1980e6, "hertz", nil, "1.98 GHz"},
		{0.0015, "s", nil, "1.50 ms"},
		{59, "s", nil, "59 s"},
		{60, "s", nil, "1 min"},
		{5400, "s", nil, "1.50 hours"},
		{0, "s", nil, "0 s"},
		{36, "h", nil, "1.50 days"},
		{7500, "dtdurations", nil, "2 hours"},
		{7500, "dtdurations", new(1), "2 hours, 5 minutes"},
		{0, "dtdurations", nil, "0 seconds"},
		{3, "suffix: cards", nil, "3 cards"},
		{1500, "cps", nil, "1.50 K c/s"},
		{float64(now.Add(-5 * time.Minute).UnixMilli()), "dateTimeFromNow", nil, "5 minutes ago"},
		{float64(now.Add(2 * time.Hour).UnixMilli()), "dateTimeFromNow", nil, "in 2 hours"},
		{math.Inf(1), "bytes", nil, "+∞"},
	} {
		got, err := format(c.value, c.unit, c.decimals, now)
		if err != nil || got.String() != c.want {
			t.Errorf("%v in %s: %q, %v; want %q", c.value, c.unit, got, err, c.want)
		}
	}
}

func TestUnknownUnitIsNamed(t *testing.T) {
	_, err := format(1, "parsec", nil, time.Now())
	if err == nil || !strings.Contains(err.Error(), `"parsec"`) {
		t.Errorf("parsec: %v", err)
	}
}

// Whatever the value, what is written is the value: off by no more than its last digit.
func FuzzFormat(f *testing.F) {
	f.Add(1234.5)
	f.Add(-0.00012)
	f.Add(1e17)
	f.Fuzz(func(t *testing.T, v float64) {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			t.Skip()
		}
		for unit := range scales() {
			a, err := format(v, unit, nil, time.Now())
			if err != nil || a.number == "" || strings.Contains(a.number, "NaN") {
				t.Errorf("%v in %s: %q, %v", v, unit, a, err)
			}
		}
	})
}
