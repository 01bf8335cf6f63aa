package prom

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"unsafe"
)

// Series is one series of a response. Its slices are reused for the next one: copy what is kept.
type Series struct {
	Labels Labels
	// At are Unix times in milliseconds, ascending.
	At []int64
	// Value has one element for each of At.
	Value []float64
}

// response is what surrounds the series of a response.
type response struct {
	status, message string
	warnings        []string
	partial         bool // VictoriaMetrics has a field of its own for it
	resultType      string
}

var errNotJSON = errors.New("not JSON of the Prometheus API")

// decoder reads one response. The first error is kept in err and ends the reading.
type decoder struct {
	b      []byte
	at     int
	err    error
	names  map[string]string // one string per label name or value
	series Series
	each   func(*Series) error
}

func (d *decoder) fail(expected string) {
	if d.err == nil {
		rest := d.b[min(d.at, len(d.b)):]
		d.err = fmt.Errorf("%w: expected %s at byte %d, found %q", errNotJSON, expected, d.at, rest[:min(20, len(rest))])
	}
	d.at = len(d.b)
}

// next skips white space and returns the next byte; 0 at the end.
func (d *decoder) next() byte {
	for ; d.at < len(d.b); d.at++ {
		switch c := d.b[d.at]; c {
		case ' ', '\n', '\t', '\r':
		default:
			return c
		}
	}
	return 0
}

// is consumes the byte if it is the next one.
func (d *decoder) is(c byte) bool {
	if d.next() != c {
		return false
	}
	d.at++
	return true
}

func (d *decoder) want(c byte) {
	if !d.is(c) {
		d.fail(strconv.Quote(string(c)))
	}
}

// text reads a string; the result is valid as long as the buffer.
func (d *decoder) text() []byte {
	if !d.is('"') {
		d.fail("a string")
		return nil
	}
	from, escaped := d.at, false
	for ; d.at < len(d.b); d.at++ {
		switch d.b[d.at] {
		case '\\':
			escaped = true
			d.at++
		case '"':
			d.at++
			if !escaped {
				return d.b[from : d.at-1]
			}
			var s string
			if json.Unmarshal(d.b[from-1:d.at], &s) != nil {
				d.fail("a string")
			}
			return []byte(s)
		}
	}
	d.fail("the end of a string")
	return nil
}

// once returns the text as a string, the same one for equal texts.
func (d *decoder) once(b []byte) string {
	if s, ok := d.names[string(b)]; ok {
		return s
	}
	s := string(b)
	d.names[s] = s
	return s
}

// number reads the bytes of a number.
func (d *decoder) number() []byte {
	d.next()
	from := d.at
	for ; d.at < len(d.b); d.at++ {
		if c := d.b[d.at]; (c < '0' || c > '9') && c != '-' && c != '+' && c != '.' && c != 'e' && c != 'E' {
			break
		}
	}
	return d.b[from:d.at]
}

// point reads [1712345678.123,"0.5"].
func (d *decoder) point() {
	d.want('[')
	at, err := float(d.number())
	if err != nil || math.Abs(at) > 1e12 {
		d.fail("a time in seconds")
	}
	d.want(',')
	v, err := float(d.text())
	if err != nil {
		d.fail("a value")
	}
	d.want(']')
	d.series.At = append(d.series.At, int64(math.Round(at*1000)))
	d.series.Value = append(d.series.Value, v)
}

// powers are those of ten by which a number of at most 15 digits can be divided without rounding twice.
var powers = [...]float64{1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15}

// float parses a number. Short decimals, which are most, need no call of strconv.
func float(b []byte) (float64, error) {
	mantissa, digits, after, fraction := uint64(0), 0, 0, false
	for _, c := range b {
		switch {
		case c >= '0' && c <= '9' && digits < 15:
			mantissa = mantissa*10 + uint64(c-'0')
			digits++
			if fraction {
				after++
			}
		case c == '.' && !fraction:
			fraction = true
		default:
			return strconv.ParseFloat(unsafe.String(&b[0], len(b)), 64)
		}
	}
	if digits == 0 {
		return 0, strconv.ErrSyntax
	}
	return float64(mantissa) / powers[after], nil
}

// skip passes over any value, without recursion: the nesting is the server's choice.
func (d *decoder) skip() {
	for depth := 0; d.err == nil; {
		switch d.next() {
		case '"':
			d.text()
		case '{', '[':
			depth++
			d.at++
			continue
		case '}', ']':
			depth--
			d.at++
		case ',', ':':
			if depth == 0 {
				d.fail("a value")
			}
			d.at++
			continue
		default:
			from := d.at
			for d.at < len(d.b) && bytes.IndexByte([]byte(",}] \n\r\t"), d.b[d.at]) < 0 {
				d.at++
			}
			if d.at == from {
				d.fail("a value")
			}
		}
		if depth < 0 {
			d.fail("a value")
		}
		if depth <= 0 {
			return
		}
	}
}

// fields reads an object and calls do with each name; do reads the value.
func (d *decoder) fields(do func(name []byte)) {
	d.want('{')
	for first := true; d.err == nil && !d.is('}'); first = false {
		if !first {
			d.want(',')
		}
		name := d.text()
		d.want(':')
		if d.err == nil {
			do(name)
		}
	}
}

// list reads an array and calls do for each of its elements.
func (d *decoder) list(do func()) {
	d.want('[')
	for first := true; d.err == nil && !d.is(']'); first = false {
		if !first {
			d.want(',')
		}
		if d.err == nil {
			do()
		}
	}
}

func (d *decoder) oneSeries() {
	s := &d.series
	s.Labels, s.At, s.Value = s.Labels[:0], s.At[:0], s.Value[:0]
	d.fields(func(name []byte) {
		switch string(name) {
		case "metric":
			d.fields(func(name []byte) { s.Labels = append(s.Labels, Label{d.once(name), d.once(d.text())}) })
		case "values":
			d.list(d.point)
		case "value":
			d.point()
		default:
			d.skip()
		}
	})
	if d.err == nil {
		d.err = d.each(s)
	}
}

func (d *decoder) data(r *response) {
	if d.next() != '{' {
		d.skip()
		return
	}
	d.fields(func(name []byte) {
		switch {
		case string(name) == "resultType":
			r.resultType = string(d.text())
		case string(name) == "result" && r.resultType != "scalar" && r.resultType != "string" && d.next() == '[':
			d.list(d.oneSeries)
		default:
			d.skip()
		}
	})
}

// decode reads a whole response and passes each series on. An error of each is returned as it is.
func decode(b []byte, each func(*Series) error) (r response, err error) {
	d := &decoder{b: b, names: map[string]string{}, each: each}
	d.fields(func(name []byte) {
		switch string(name) {
		case "status":
			r.status = string(d.text())
		case "error":
			r.message = string(d.text())
		case "isPartial":
			r.partial = r.partial || d.next() == 't'
			d.skip()
		case "warnings":
			if d.next() != '[' {
				d.skip()
				return
			}
			d.list(func() { r.warnings = append(r.warnings, string(d.text())) })
		case "data":
			d.data(&r)
		default:
			d.skip()
		}
	})
	if d.next(); d.err == nil && d.at != len(d.b) {
		d.fail("the end")
	}
	if d.err == nil && r.status == "" {
		d.err = fmt.Errorf("%w: no status", errNotJSON)
	}
	return r, d.err
}
