package scenario

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// token is a word of a line. A quoted token was in quotes from end to end, and is text whatever it contains.
type token struct {
	text   string
	quoted bool
}

// splitLine breaks a line into words. Quotes keep spaces, also within a word (layout="gi=1 ..."); a
// backslash in quotes takes the next byte as it is; an unquoted # ends the line.
func splitLine(line string) ([]token, error) {
	if !utf8.ValidString(line) || strings.ContainsFunc(line, func(r rune) bool { return r < ' ' && r != '\t' }) {
		return nil, errors.New("expected printable text")
	}
	var (
		tokens []token
		word   strings.Builder
		inWord bool
		quoted bool
	)
	end := func() {
		if inWord {
			tokens = append(tokens, token{text: word.String(), quoted: quoted})
		}
		word.Reset()
		inWord, quoted = false, false
	}
	for i := 0; i < len(line); i++ {
		switch c := line[i]; c {
		case '#':
			end()
			return tokens, nil
		case ' ', '\t':
			end()
		case '"':
			quoted = !inWord
			inWord = true
			closed := false
			for i++; i < len(line); i++ {
				if line[i] == '"' {
					closed = true
					break
				}
				if line[i] == '\\' && i+1 < len(line) {
					i++
				}
				word.WriteByte(line[i])
			}
			if !closed {
				return nil, errors.New(`expected a closing "`)
			}
		default:
			inWord = true
			quoted = false
			word.WriteByte(c)
		}
	}
	end()
	return tokens, nil
}

// options are the words of the form name=value.
type options map[string]string

// parseOptions reads the words as name=value. Names must be among the allowed.
func parseOptions(tokens []token, allowed ...string) (options, error) {
	opts := options{}
	for _, t := range tokens {
		name, value, found := strings.Cut(t.text, "=")
		known := false
		for _, a := range allowed {
			known = known || a == name
		}
		if !found || !known || t.quoted {
			return nil, fmt.Errorf("expected options of %s, found %q", strings.Join(allowed, "=, ")+"=", t.text)
		}
		if _, twice := opts[name]; twice {
			return nil, fmt.Errorf("expected option %s= once", name)
		}
		opts[name] = value
	}
	return opts, nil
}

func (o options) duration(name string, fallback time.Duration) (time.Duration, error) {
	text, ok := o[name]
	if !ok {
		return fallback, nil
	}
	d, err := parseDuration(text)
	if err != nil {
		return 0, fmt.Errorf("option %s=: %w", name, err)
	}
	return d, nil
}

func (o options) integer(name string, fallback, low, high int) (int, error) {
	text, ok := o[name]
	if !ok {
		return fallback, nil
	}
	v, err := strconv.Atoi(text)
	if err != nil || v < low || v > high {
		return 0, fmt.Errorf("option %s=: expected a number from %d to %d, found %q", name, low, high, text)
	}
	return v, nil
}

func (o options) number(name string, fallback float64) (float64, error) {
	text, ok := o[name]
	if !ok {
		return fallback, nil
	}
	v, err := parseNumber(text)
	if err != nil {
		return 0, fmt.Errorf("option %s=: %w", name, err)
	}
	return v, nil
}

// parseDuration reads a time of the scenario: not negative, and not beyond its limit.
func parseDuration(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 || d > maxDuration {
		return 0, fmt.Errorf("expected a duration like 60s or 166667us, found %q", text)
	}
	return d, nil
}

// parsePercent reads "30%" or "0.3" as a part of a whole.
func parsePercent(text string) (float64, error) {
	digits, percent := strings.CutSuffix(text, "%")
	v, err := strconv.ParseFloat(digits, 64)
	if percent {
		v /= 100
	}
	if err != nil || !(v >= 0 && v <= 1) {
		return 0, fmt.Errorf("expected a part of a whole like 30%% or 0.3, found %q", text)
	}
	return v, nil
}

var sizeSuffixes = []struct {
	suffix string
	factor uint64
}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40}}

// parseInteger reads an exact number: decimal or 0x hexadecimal, perhaps with KiB to TiB, perhaps
// negative; ones is the number of all ones with which NVML says "not available".
func parseInteger(text string) (uint64, bool) {
	if text == "ones" {
		return ^uint64(0), true
	}
	digits, negative := strings.CutPrefix(text, "-")
	factor := uint64(1)
	for _, s := range sizeSuffixes {
		if cut, ok := strings.CutSuffix(digits, s.suffix); ok {
			digits, factor = cut, s.factor
		}
	}
	base := 10
	if hex, ok := strings.CutPrefix(digits, "0x"); ok {
		digits, base = hex, 16
	}
	v, err := strconv.ParseUint(digits, base, 64)
	if err != nil || v > ^uint64(0)/factor {
		return 0, false
	}
	v *= factor
	if negative {
		if v > 1<<63 {
			return 0, false
		}
		v = -v
	}
	return v, true
}

// parseNumber reads any finite number, with the spellings of parseInteger.
func parseNumber(text string) (float64, error) {
	if v, ok := parseInteger(text); ok && text != "ones" {
		if strings.HasPrefix(text, "-") {
			return float64(int64(v)), nil
		}
		return float64(v), nil
	}
	v, err := strconv.ParseFloat(text, 64)
	if err != nil || v-v != 0 || strings.ContainsAny(text, "xX_pP") {
		return 0, fmt.Errorf("expected a number, found %q", text)
	}
	return v, nil
}

// parseSize reads an amount of memory of at most 1 PiB.
func parseSize(text string) (int64, error) {
	v, ok := parseInteger(text)
	if !ok || v > 1<<50 {
		return 0, fmt.Errorf("expected an amount of memory like 4GiB, found %q", text)
	}
	return int64(v), nil
}

// parseRange reads "3" or "0-7".
func parseRange(text string, limit int) (first, last int, err error) {
	from, to, isRange := strings.Cut(text, "-")
	if !isRange {
		to = from
	}
	first, err1 := strconv.Atoi(from)
	last, err2 := strconv.Atoi(to)
	if err1 != nil || err2 != nil || first < 0 || last < first || last >= limit {
		return 0, 0, fmt.Errorf("expected a number or a range below %d, found %q", limit, text)
	}
	return first, last, nil
}
