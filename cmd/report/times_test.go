package main

import (
	"strings"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/must"
)

func TestTimes(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	must.OK(t, err)
	now := time.Date(2026, 11, 4, 12, 30, 0, 0, time.UTC) // a Wednesday
	for _, tt := range []struct {
		text, start, end string // in UTC; an empty end is none
		zone             *time.Location
	}{
		{"7d", "2026-10-28T12:30:00Z", "", time.UTC},
		{"now-7d", "2026-10-28T12:30:00Z", "", time.UTC},
		{"now", "2026-11-04T12:30:00Z", "", time.UTC},
		{"2026-11-02", "2026-11-02T00:00:00Z", "", time.UTC},
		{"2026-11-02 10:00", "2026-11-02T10:00:00Z", "", time.UTC},
		{"2026-11-02 10:00", "2026-11-02T09:00:00Z", "", berlin},
		{"2026-11-02T10:00:05", "2026-11-02T10:00:05Z", "", time.UTC},
		{"2026-11-02T10:00:00+05:30", "2026-11-02T04:30:00Z", "", berlin},
		{"1770000000", "2026-02-02T02:40:00Z", "", time.UTC},
		{"2026-10", "2026-10-01T00:00:00Z", "2026-11-01T00:00:00Z", time.UTC},
		// Summer time ends within the month.
		{"2026-10", "2026-09-30T22:00:00Z", "2026-10-31T23:00:00Z", berlin},
		{"October", "2026-10-01T00:00:00Z", "2026-11-01T00:00:00Z", time.UTC},
		{"dec", "2025-12-01T00:00:00Z", "2026-01-01T00:00:00Z", time.UTC},
		{"november", "2026-11-01T00:00:00Z", "2026-12-01T00:00:00Z", time.UTC},
		{"oct 2025", "2025-10-01T00:00:00Z", "2025-11-01T00:00:00Z", time.UTC},
		{"last-month", "2026-10-01T00:00:00Z", "2026-11-01T00:00:00Z", time.UTC},
		{"this-month", "2026-11-01T00:00:00Z", "2026-12-01T00:00:00Z", time.UTC},
		{"2026-W45", "2026-11-02T00:00:00Z", "2026-11-09T00:00:00Z", time.UTC},
		{"2026-W01", "2025-12-29T00:00:00Z", "2026-01-05T00:00:00Z", time.UTC},
		{"this-week", "2026-11-02T00:00:00Z", "2026-11-09T00:00:00Z", time.UTC},
		{"last-week", "2026-10-26T00:00:00Z", "2026-11-02T00:00:00Z", time.UTC},
	} {
		start, end, err := timeForms{now, tt.zone}.parse("from", tt.text)
		if err != nil || start.UTC().Format(time.RFC3339) != tt.start || tt.end == "" != end.IsZero() ||
			tt.end != "" && end.UTC().Format(time.RFC3339) != tt.end {
			t.Errorf("%s in %s: %v to %v, %v", tt.text, tt.zone, start.UTC(), end.UTC(), err)
		}
	}
	for _, text := range []string{"soon", "2026-13", "2026-W54", "2026-W00", "w45", "now-", "5"} {
		if _, _, err := (timeForms{now, time.UTC}).parse("from", text); err == nil || !strings.Contains(err.Error(), "--from must be") {
			t.Errorf("%s: %v", text, err)
		}
	}
}
