package page

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// amount is a value as it is read: 12.3 GiB is {12.3, GiB}.
type amount struct{ number, unit string }

func (a amount) String() string {
	switch a.unit {
	case "":
		return a.number
	case "%":
		return a.number + a.unit
	}
	return a.number + " " + a.unit
}

// scale is a family of units: each is factor times the one before.
type scale struct {
	factor float64
	units  []string
	start  int // which of units the value is in
}

func si(unit string, start int) scale {
	s := scale{factor: 1000, start: 3 + start}
	for _, p := range []string{"n", "µ", "m", "", "k", "M", "G", "T", "P", "E"} {
		s.units = append(s.units, p+unit)
	}
	return s
}

func binary(unit string, start int) scale {
	s := scale{factor: 1024, start: start, units: []string{unit}}
	for _, p := range []string{"Ki", "Mi", "Gi", "Ti", "Pi", "Ei"} {
		s.units = append(s.units, p+unit)
	}
	return s
}

func counted(unit string) scale {
	s := scale{factor: 1000}
	for _, p := range []string{"", "K", "Mil", "Bil", "Tri"} {
		s.units = append(s.units, strings.TrimSpace(p+" "+unit))
	}
	return s
}

// perSecond is a rate of things: 1.2K c/s.
func perSecond(unit string) scale {
	s := scale{factor: 1000}
	for _, p := range []string{"", "K", "M", "B", "T"} {
		s.units = append(s.units, strings.TrimSpace(p+" "+unit))
	}
	return s
}

// scales are the units of Grafana that grow by a factor.
func scales() map[string]scale {
	return map[string]scale{
		"short": counted(""), "cps": perSecond("c/s"), "ops": perSecond("ops/s"), "reqps": perSecond("req/s"), "rps": perSecond("rd/s"),
		"bytes": binary("B", 0), "kbytes": binary("B", 1), "mbytes": binary("B", 2), "gbytes": binary("B", 3), "binBps": binary("B/s", 0),
		"decbytes": si("B", 0), "deckbytes": si("B", 1), "decmbytes": si("B", 2), "decgbytes": si("B", 3), "Bps": si("B/s", 0), "bps": si("b/s", 0),
		"watt": si("W", 0), "kwatt": si("W", 1), "watth": si("Wh", 0), "kwatth": si("Wh", 1), "joule": si("J", 0), "hertz": si("Hz", 0),
		"rothz": si("Hz", 0), "volt": si("V", 0), "amp": si("A", 0),
	}
}

// plainUnits are those that stay as they are, with what stands behind the number.
func plainUnits() map[string]string {
	return map[string]string{"none": "", "string": "", "": "", "celsius": "°C", "percent": "%", "rotrpm": "rpm", "dB": "dB", "locale": ""}
}

// steps of time, in seconds.
var spans = []struct {
	length    float64
	one, many string
}{
	{365.25 * 86400, "year", "years"}, {7 * 86400, "week", "weeks"}, {86400, "day", "days"}, {3600, "hour", "hours"},
	{60, "min", "mins"}, {1, "s", "s"}, {1e-3, "ms", "ms"}, {1e-6, "µs", "µs"}, {1e-9, "ns", "ns"},
}

// seconds tells how many seconds the unit of a length of time has.
func seconds(unit string) (float64, bool) {
	s, ok := map[string]float64{"ns": 1e-9, "µs": 1e-6, "ms": 1e-3, "s": 1, "m": 60, "h": 3600, "d": 86400}[unit]
	return s, ok
}

// format writes a value in a unit of Grafana. Without decimals it keeps three significant digits. An unknown
// unit is an error that names it.
func format(value float64, unit string, decimals *int, now time.Time) (amount, error) {
	if math.IsInf(value, 0) {
		return amount{number: strings.Replace(strconv.FormatFloat(value, 'f', -1, 64), "Inf", "∞", 1)}, nil
	}
	if s, ok := scales()[unit]; ok {
		return s.amount(value, decimals), nil
	}
	if suffix, ok := plainUnits()[unit]; ok {
		return amount{digits(value, decimals), suffix}, nil
	}
	if second, ok := seconds(unit); ok {
		return span(value*second, decimals), nil
	}
	if suffix, ok := strings.CutPrefix(unit, "suffix:"); ok {
		return amount{digits(value, decimals), strings.TrimSpace(suffix)}, nil
	}
	if prefix, ok := strings.CutPrefix(unit, "prefix:"); ok {
		return amount{number: prefix + digits(value, decimals)}, nil
	}
	switch unit {
	case "percentunit":
		return amount{digits(value*100, decimals), "%"}, nil
	case "dtdurations":
		return amount{number: longSpan(value, decimals)}, nil
	case "dateTimeFromNow":
		return amount{number: fromNow(time.UnixMilli(int64(value)), now)}, nil
	case "dateTimeAsIso":
		return amount{number: time.UnixMilli(int64(value)).UTC().Format("2006-01-02 15:04:05")}, nil
	case "bool":
		return amount{number: map[bool]string{true: "True", false: "False"}[value != 0]}, nil
	case "bool_yes_no":
		return amount{number: map[bool]string{true: "Yes", false: "No"}[value != 0]}, nil
	case "currencyUSD":
		a := scale{factor: 1000, units: []string{"", "K", "M", "B", "T"}}.amount(value, decimals)
		return amount{number: "$" + a.number + a.unit}, nil
	}
	return amount{}, fmt.Errorf("unknown unit %q: teach it to test/preview/page/unit.go", unit)
}

func (s scale) amount(value float64, decimals *int) amount {
	at, size := s.start, math.Abs(value)
	for size >= s.factor && at+1 < len(s.units) {
		size, value, at = size/s.factor, value/s.factor, at+1
	}
	for size != 0 && size < 1 && at > 0 && s.factor == 1000 && len(s.units) > 5 {
		size, value, at = size*s.factor, value*s.factor, at-1
	}
	return amount{digits(value, decimals), s.units[at]}
}

// digits writes a number with that many decimals, by default with three significant digits.
func digits(value float64, decimals *int) string {
	n := 0
	switch {
	case decimals != nil:
		n = *decimals
	case value == math.Trunc(value):
	default:
		n = min(max(0, 2-int(math.Floor(math.Log10(math.Abs(value))))), 12)
	}
	text := strconv.FormatFloat(value, 'f', n, 64)
	if strings.Trim(text, "-0.") == "" {
		text = strings.TrimPrefix(text, "-")
	}
	return text
}

// span is a length of time in its largest fitting unit: 2.5 hours.
func span(value float64, decimals *int) amount {
	if value == 0 {
		return amount{digits(0, decimals), "s"}
	}
	for _, s := range spans {
		if math.Abs(value) >= s.length || s.length == 1e-9 {
			text := digits(value/s.length, decimals)
			if text == "1" {
				return amount{text, s.one}
			}
			return amount{text, s.many}
		}
	}
	return amount{digits(value, decimals), "s"}
}

// longSpan is a length of time in words; decimals says how many units follow the largest: 2 hours, 5 minutes.
func longSpan(value float64, decimals *int) string {
	if value < 0 {
		return longSpan(-value, decimals) + " ago"
	}
	more := 0
	if decimals != nil {
		more = *decimals
	}
	var parts []string
	for _, s := range []struct {
		length float64
		name   string
	}{{365.25 * 86400, "year"}, {30 * 86400, "month"}, {7 * 86400, "week"}, {86400, "day"}, {3600, "hour"}, {60, "minute"}, {1, "second"}, {1e-3, "millisecond"}} {
		n := math.Floor(value/s.length + 1e-9)
		if n > 0 || len(parts) > 0 {
			word := s.name
			if n != 1 {
				word += "s"
			}
			parts = append(parts, fmt.Sprintf("%.0f %s", n, word))
			value -= n * s.length
		}
		if len(parts) > more {
			break
		}
	}
	if len(parts) == 0 {
		return "0 seconds"
	}
	return strings.Join(parts, ", ")
}

// fromNow says how long ago a moment was, or how far ahead it is.
func fromNow(at, now time.Time) string {
	d := now.Sub(at)
	ahead := d < 0
	s := math.Abs(d.Seconds())
	var text string
	switch {
	case s < 45:
		text = "a few seconds"
	case s < 90:
		text = "a minute"
	case s < 45*60:
		text = fmt.Sprintf("%.0f minutes", s/60)
	case s < 90*60:
		text = "an hour"
	case s < 22*3600:
		text = fmt.Sprintf("%.0f hours", s/3600)
	case s < 36*3600:
		text = "a day"
	case s < 26*86400:
		text = fmt.Sprintf("%.0f days", s/86400)
	case s < 45*86400:
		text = "a month"
	case s < 320*86400:
		text = fmt.Sprintf("%.0f months", s/86400/30.4)
	case s < 548*86400:
		text = "a year"
	default:
		text = fmt.Sprintf("%.0f years", s/86400/365)
	}
	if ahead {
		return "in " + text
	}
	return text + " ago"
}
