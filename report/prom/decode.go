package prom

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"unsafe"
)

// Series is one series of an answer. Its slices are used again for the next one: whoever keeps a point copies it.
type Series struct {
	Labels Labels
	// At are Unix times in milliseconds, ascending.
	At []int64
	// Value has one element for each of At.
	Value []float64
}

// reply is what stands around the series of an answer.
type reply struct {
	status, errorType, message string
	warnings                   []string
	partial                    bool // VictoriaMetrics says so in a field of its own
	resultType                 string
	series, points             int
}

var errNotJSON = errors.New("is not JSON of the Prometheus API")

// decoder reads one answer. It is faster than encoding/json by an order of magnitude, because it knows what it is
// looking for: a month of a fleet is hundreds of megabytes of points.
type decoder struct {
	b      []byte
	at     int
	names  map[string]string // each text of a label once
	series Series
	each   func(*Series) error
}

func (d *decoder) fail(what string) error {
	end := min(len(d.b), d.at+20)
	return fmt.Errorf("%w: expected %s at byte %d, found %q", errNotJSON, what, d.at, d.b[min(d.at, len(d.b)):end])
}

func (d *decoder) space() {
	for d.at < len(d.b) {
		switch d.b[d.at] {
		case ' ', '\n', '\t', '\r':
			d.at++
		default:
			return
		}
	}
}

// is consumes the character if it is the next one.
func (d *decoder) is(c byte) bool {
	d.space()
	if d.at < len(d.b) && d.b[d.at] == c {
		d.at++
		return true
	}
	return false
}

func (d *decoder) want(c byte) error {
	if d.is(c) {
		return nil
	}
	return d.fail(strconv.Quote(string(c)))
}

// text reads a string; the result is valid until the buffer is used again.
func (d *decoder) text() ([]byte, error) {
	if !d.is('"') {
		return nil, d.fail("a string")
	}
	from := d.at
	for d.at < len(d.b) {
		switch d.b[d.at] {
		case '"':
			s := d.b[from:d.at]
			d.at++
			return s, nil
		case '\\':
			return d.escaped(from)
		}
		d.at++
	}
	return nil, d.fail("the end of a string")
}

// escaped reads a string that has escapes, which is rare.
func (d *decoder) escaped(from int) ([]byte, error) {
	for d.at < len(d.b) && d.b[d.at] != '"' {
		if d.b[d.at] == '\\' {
			d.at++
		}
		d.at++
	}
	if d.at >= len(d.b) {
		d.at = len(d.b)
		return nil, d.fail("the end of a string")
	}
	d.at++
	var s string
	if err := json.Unmarshal(d.b[from-1:d.at], &s); err != nil {
		return nil, d.fail("a string")
	}
	return []byte(s), nil
}

// once returns the text as a string of which there is one only.
func (d *decoder) once(b []byte) string {
	if s, ok := d.names[string(b)]; ok {
		return s
	}
	s := string(b)
	d.names[s] = s
	return s
}

// number returns the bytes of a number.
func (d *decoder) number() ([]byte, error) {
	d.space()
	from := d.at
	for d.at < len(d.b) {
		switch c := d.b[d.at]; {
		case c >= '0' && c <= '9', c == '-', c == '+', c == '.', c == 'e', c == 'E':
			d.at++
			continue
		}
		break
	}
	if d.at == from {
		return nil, d.fail("a number")
	}
	return d.b[from:d.at], nil
}

// milliseconds reads a timestamp in seconds.
func (d *decoder) milliseconds() (int64, error) {
	b, err := d.number()
	if err != nil {
		return 0, err
	}
	whole, fraction, digits, seen := int64(0), int64(0), 0, false
	for _, c := range b {
		switch {
		case c == '.' && !seen:
			seen = true
		case c >= '0' && c <= '9' && len(b) < 20:
			if !seen {
				whole = whole*10 + int64(c-'0')
			} else if digits < 3 {
				fraction, digits = fraction*10+int64(c-'0'), digits+1
			}
		default: // an exponent, a sign, or more digits than a time has
			f, err := strconv.ParseFloat(string(b), 64)
			if err != nil || math.Abs(f) > 1e12 {
				return 0, d.fail("a time in seconds")
			}
			return int64(math.Round(f * 1000)), nil
		}
	}
	for ; digits < 3; digits++ {
		fraction *= 10
	}
	return whole*1000 + fraction, nil
}

// point reads [1712345678.123,"0.5"].
func (d *decoder) point() error {
	if err := d.want('['); err != nil {
		return err
	}
	at, err := d.milliseconds()
	if err != nil {
		return err
	}
	if err := d.want(','); err != nil {
		return err
	}
	text, err := d.text()
	if err != nil {
		return err
	}
	v, err := float(text)
	if err != nil {
		return d.fail("a value")
	}
	if err := d.want(']'); err != nil {
		return err
	}
	d.series.At = append(d.series.At, at)
	d.series.Value = append(d.series.Value, v)
	return nil
}

// powers are those of ten by which a number of at most 15 digits may be divided without rounding twice.
var powers = [...]float64{1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22}

// float reads a value: short decimals, which are most, by hand.
func float(b []byte) (float64, error) {
	if len(b) == 0 {
		return 0, strconv.ErrSyntax
	}
	mantissa, digits, after, seen := uint64(0), 0, 0, false
	for _, c := range b {
		switch {
		case c >= '0' && c <= '9' && digits < 15:
			mantissa = mantissa*10 + uint64(c-'0')
			digits++
			if seen {
				after++
			}
		case c == '.' && !seen:
			seen = true
		default:
			return strconv.ParseFloat(unsafe.String(&b[0], len(b)), 64)
		}
	}
	if digits == 0 {
		return 0, strconv.ErrSyntax
	}
	return float64(mantissa) / powers[after], nil
}

// skip passes over any value.
func (d *decoder) skip() error {
	depth := 0
	for {
		d.space()
		if d.at >= len(d.b) {
			return d.fail("a value")
		}
		switch c := d.b[d.at]; c {
		case '"':
			if _, err := d.text(); err != nil {
				return err
			}
		case '{', '[':
			depth++
			d.at++
			continue
		case '}', ']':
			if depth == 0 {
				return d.fail("a value")
			}
			depth--
			d.at++
		case ',', ':':
			if depth == 0 {
				return d.fail("a value")
			}
			d.at++
			continue
		default:
			for d.at < len(d.b) {
				c := d.b[d.at]
				if c == ',' || c == '}' || c == ']' || c == ' ' || c == '\n' || c == '\r' || c == '\t' {
					break
				}
				d.at++
			}
		}
		if depth == 0 {
			return nil
		}
	}
}

// fields reads an object and calls do with each name; do reads the value.
func (d *decoder) fields(do func(name []byte) error) error {
	if err := d.want('{'); err != nil {
		return err
	}
	if d.is('}') {
		return nil
	}
	for {
		name, err := d.text()
		if err != nil {
			return err
		}
		if err := d.want(':'); err != nil {
			return err
		}
		if err := do(name); err != nil {
			return err
		}
		if d.is('}') {
			return nil
		}
		if err := d.want(','); err != nil {
			return err
		}
	}
}

// list reads an array and calls do for each of its elements.
func (d *decoder) list(do func() error) error {
	if err := d.want('['); err != nil {
		return err
	}
	if d.is(']') {
		return nil
	}
	for {
		if err := do(); err != nil {
			return err
		}
		if d.is(']') {
			return nil
		}
		if err := d.want(','); err != nil {
			return err
		}
	}
}

func (d *decoder) one(r *reply) error {
	d.series.Labels, d.series.At, d.series.Value = d.series.Labels[:0], d.series.At[:0], d.series.Value[:0]
	err := d.fields(func(name []byte) error {
		switch string(name) {
		case "metric":
			return d.fields(func(name []byte) error {
				n := d.once(name)
				v, err := d.text()
				if err != nil {
					return err
				}
				d.series.Labels = append(d.series.Labels, Label{n, d.once(v)})
				return nil
			})
		case "values":
			return d.list(d.point)
		case "value":
			return d.point()
		}
		return d.skip()
	})
	if err != nil {
		return err
	}
	r.series++
	r.points += len(d.series.At)
	return d.each(&d.series)
}

// decode reads a whole answer and hands each series on.
func decode(b []byte, names map[string]string, each func(*Series) error) (reply, error) {
	var r reply
	d := &decoder{b: b, names: names, each: each}
	word := func(into *string) error {
		t, err := d.text()
		*into = string(t)
		return err
	}
	err := d.fields(func(name []byte) error {
		switch string(name) {
		case "status":
			return word(&r.status)
		case "error":
			return word(&r.message)
		case "errorType":
			return word(&r.errorType)
		case "isPartial":
			d.space()
			r.partial = r.partial || d.at < len(d.b) && d.b[d.at] == 't'
			return d.skip()
		case "warnings":
			d.space()
			if d.at >= len(d.b) || d.b[d.at] != '[' {
				return d.skip()
			}
			return d.list(func() error {
				var w string
				err := word(&w)
				r.warnings = append(r.warnings, w)
				return err
			})
		case "data":
			d.space()
			if d.at >= len(d.b) || d.b[d.at] != '{' {
				return d.skip()
			}
			return d.fields(func(name []byte) error {
				switch string(name) {
				case "resultType":
					return word(&r.resultType)
				case "result":
					d.space()
					if r.resultType == "scalar" || r.resultType == "string" || d.at >= len(d.b) || d.b[d.at] != '[' {
						return d.skip()
					}
					return d.list(func() error { return d.one(&r) })
				}
				return d.skip()
			})
		}
		return d.skip()
	})
	if err != nil {
		return r, err
	}
	d.space()
	if d.at != len(d.b) {
		return r, d.fail("the end")
	}
	if r.status == "" {
		return r, fmt.Errorf("%w: it has no status", errNotJSON)
	}
	return r, nil
}
