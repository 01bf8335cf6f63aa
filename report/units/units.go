// Package units writes figures of the report for a reader.
package units

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// Clean removes what a terminal would interpret: control characters and those that change the direction of text.
func Clean(s string) string {
	return strings.Map(func(c rune) rune {
		if unicode.IsControl(c) || unicode.Is(unicode.Cf, c) || c == '\u2028' || c == '\u2029' {
			return -1
		}
		return c
	}, s)
}

func decimals(x float64, digits int) string { return strconv.FormatFloat(x, 'f', digits, 64) }

// Whole writes a rounded number with a separator between thousands.
func Whole(x float64) string {
	s := decimals(x, 0)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// Hours writes an amount of GPU-hours.
func Hours(h float64) string {
	switch a := math.Abs(h); {
	case a >= 10:
		return Whole(h)
	case a < 0.005:
		return "0"
	}
	return decimals(h, 1)
}

// Share writes a part of a whole as a percentage.
func Share(a, of float64) string {
	x := a / of
	switch {
	case of == 0:
		return "–"
	case x == 0:
		return "0 %"
	case math.Abs(x) < 0.0005:
		return "<0.1 %"
	case math.Abs(x) < 0.0995:
		return decimals(100*x, 1) + " %"
	}
	return decimals(100*x, 0) + " %"
}

// Ratio writes a fraction as a percentage.
func Ratio(x float64) string { return Share(x, 1) }

// Difference writes a difference as a percentage; what rounds to nothing has no sign.
func Difference(x float64) string {
	return strings.Replace(decimals(100*x, 3)+" %", "-0.000", "0.000", 1)
}

// Money writes an amount of a currency.
func Money(x float64, currency string) string {
	s := Whole(x)
	if math.Abs(x) < 100 {
		s = decimals(x, 2)
	}
	return s + " " + Clean(currency)
}

// GiB writes bytes as gibibytes.
func GiB(x float64) string { return decimals(x/(1<<30), 1) + " GiB" }

// GPUs writes a number of GPUs.
func GPUs(x float64) string {
	switch {
	case x == math.Trunc(x) || math.Abs(x) >= 100:
		return Whole(x)
	case math.Abs(x) >= 10:
		return decimals(x, 1)
	}
	return strings.TrimSuffix(strings.TrimSuffix(decimals(x, 2), "0"), ".0")
}

// Minute writes a time in its own zone.
func Minute(t time.Time) string { return t.Format("2006-01-02 15:04") }

// Span writes wall-clock hours.
func Span(h float64) string {
	switch {
	case h >= 48:
		return decimals(h/24, 1) + " d"
	case h >= 1:
		return decimals(h, 1) + " h"
	case h == 0:
		return "0"
	}
	return fmt.Sprintf("%.0f min", h*60)
}

// Duration writes a duration within a sentence.
func Duration(d time.Duration) string {
	switch {
	case d >= 48*time.Hour:
		return fmt.Sprintf("%.1f days", d.Hours()/24)
	case d >= 2*time.Hour:
		return fmt.Sprintf("%.1f hours", d.Hours())
	}
	return fmt.Sprintf("%.0f minutes", d.Minutes())
}

// Count writes a number of GPUs or nodes within a sentence.
func Count(n float64, noun string) string {
	switch {
	case n > 0.995 && n < 1.005:
		return "1 " + noun
	case n == math.Round(n) || n >= 10:
		return fmt.Sprintf("%.0f %ss", n, noun)
	}
	return fmt.Sprintf("%.2f %ss", n, noun)
}

// Sentence joins its parts, starts with a capital and ends with a full stop.
func Sentence(parts ...string) string {
	s := strings.Join(parts, "")
	return strings.ToUpper(s[:1]) + s[1:] + "."
}

// Few lists some names, at most so many.
func Few(list []string, most int) string {
	if len(list) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(list[:most], ", "), len(list)-most)
	}
	return strings.Join(list, ", ")
}
