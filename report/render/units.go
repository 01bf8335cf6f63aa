package render

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// clean removes what a terminal would interpret: control characters and those that change the direction of text.
func clean(s string) string {
	return strings.Map(func(c rune) rune {
		if unicode.IsControl(c) || unicode.Is(unicode.Cf, c) || c == '\u2028' || c == '\u2029' {
			return -1
		}
		return c
	}, s)
}

func decimals(x float64, digits int) string { return strconv.FormatFloat(x, 'f', digits, 64) }

// whole writes a rounded number with a separator between thousands.
func whole(x float64) string {
	s := decimals(x, 0)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

func hours(h float64) string {
	switch a := math.Abs(h); {
	case a >= 10:
		return whole(h)
	case a < 0.005:
		return "0"
	}
	return decimals(h, 1)
}

// share writes a fraction as a percentage.
func share(a, of float64) string {
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

func ratio(x float64) string { return share(x, 1) }

// difference writes a difference as a percentage; what rounds to nothing has no sign.
func difference(x float64) string {
	return strings.Replace(decimals(100*x, 3)+" %", "-0.000", "0.000", 1)
}

func money(x float64, currency string) string {
	s := whole(x)
	if math.Abs(x) < 100 {
		s = decimals(x, 2)
	}
	return s + " " + clean(currency)
}

func gibibytes(x float64) string { return decimals(x/(1<<30), 1) + " GiB" }

func gpus(x float64) string {
	switch {
	case x == math.Trunc(x) || math.Abs(x) >= 100:
		return whole(x)
	case math.Abs(x) >= 10:
		return decimals(x, 1)
	}
	return strings.TrimSuffix(strings.TrimSuffix(decimals(x, 2), "0"), ".0")
}

func minute(t time.Time) string { return t.UTC().Format("2006-01-02 15:04") }

func span(h float64) string {
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
