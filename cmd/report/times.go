package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/common/model"
)

// timeForms reads times as people write them.
type timeForms struct {
	now  time.Time
	zone *time.Location
}

// parse reads an age, a time, or the name of a month or a week, of which end is the end.
func (f timeForms) parse(flag, text string) (start, end time.Time, err error) {
	age := strings.TrimPrefix(text, "now-")
	if text == "now" {
		return f.now, end, nil
	}
	if d, err := model.ParseDuration(age); err == nil {
		return f.now.Add(-time.Duration(d)), end, nil
	}
	for _, form := range []string{time.RFC3339, "2006-01-02T15:04:05", "2006-01-02T15:04", "2006-01-02 15:04:05",
		"2006-01-02 15:04", "2006-01-02"} {
		if t, err := time.ParseInLocation(form, text, f.zone); err == nil {
			return t, end, nil
		}
	}
	if s, err := strconv.ParseFloat(text, 64); err == nil && s > 1e9 && s < 1e11 {
		return time.UnixMilli(int64(s * 1000)), end, nil
	}
	if start, end, ok := f.month(strings.ToLower(text)); ok {
		return start, end, nil
	}
	if start, end, ok := f.week(strings.ToLower(text)); ok {
		return start, end, nil
	}
	return start, end, fmt.Errorf("--%s must be an age such as 30d, a time such as 2026-01-31 or 2026-01-31T12:00:00Z, or a "+
		"month or week such as 2026-01, last-month or 2026-W05, got %s", flag, text)
}

// month reads 2026-10, october, oct 2026, this-month and last-month. A month without a year is the last one that began.
func (f timeForms) month(text string) (start, end time.Time, ok bool) {
	now := f.now.In(f.zone)
	first := func(year int, m time.Month) (time.Time, time.Time, bool) {
		start := time.Date(year, m, 1, 0, 0, 0, 0, f.zone)
		return start, start.AddDate(0, 1, 0), true
	}
	switch text {
	case "this-month":
		return first(now.Year(), now.Month())
	case "last-month":
		return first(now.Year(), now.Month()-1)
	}
	for _, form := range []string{"2006-01", "January 2006", "Jan 2006"} {
		if t, err := time.Parse(form, text); err == nil {
			return first(t.Year(), t.Month())
		}
	}
	for _, form := range []string{"January", "Jan"} {
		if t, err := time.Parse(form, text); err == nil {
			year := now.Year()
			if t.Month() > now.Month() {
				year--
			}
			return first(year, t.Month())
		}
	}
	return start, end, false
}

// week reads 2026-W45, this-week and last-week; weeks begin on Monday.
func (f timeForms) week(text string) (start, end time.Time, ok bool) {
	monday := func(t time.Time) time.Time {
		return time.Date(t.Year(), t.Month(), t.Day()-(int(t.Weekday())+6)%7, 0, 0, 0, 0, f.zone)
	}
	now := f.now.In(f.zone)
	switch text {
	case "this-week":
		start = monday(now)
	case "last-week":
		start = monday(now).AddDate(0, 0, -7)
	default:
		year, week, found := strings.Cut(text, "-w")
		y, err1 := strconv.Atoi(year)
		w, err2 := strconv.Atoi(week)
		if !found || err1 != nil || err2 != nil || w < 1 || w > 53 {
			return start, end, false
		}
		// The fourth of January is always in the first week.
		start = monday(time.Date(y, 1, 4, 0, 0, 0, 0, f.zone)).AddDate(0, 0, 7*(w-1))
	}
	return start, start.AddDate(0, 0, 7), true
}
