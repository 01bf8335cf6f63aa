package collector

import (
	"bytes"
	"math"
	"strconv"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"

	"github.com/gpu-exporter/gpu-exporter/internal/catalog"
)

func appendFamily(page []byte, openMetrics bool, f *dto.MetricFamily) (_ []byte, err error) {
	b := bytes.NewBuffer(page)
	if openMetrics {
		_, err = expfmt.MetricFamilyToOpenMetrics(b, f)
	} else {
		_, err = expfmt.MetricFamilyToText(b, f)
	}
	return b.Bytes(), err
}

// comments returns the comment lines of the family, as expfmt writes them.
func (r *row) comments(openMetrics bool) (head []byte) {
	l := &labels{values: make([]string, len(r.labels))}
	m := r.metric(l, 0)
	if r.Type == catalog.Histogram {
		m = &dto.Metric{Label: r.pairs(l), Histogram: &dto.Histogram{SampleCount: new(uint64), SampleSum: new(float64)}}
	}
	page, _ := appendFamily(nil, openMetrics, r.with(m)) // a row has a name and a type: never an error
	for line := range bytes.Lines(page) {
		if line[0] == '#' {
			head = append(head, line...)
		}
	}
	return head
}

// text returns the labels of a series as expfmt writes them: a new process writes hundreds.
func (r *row) text(l *labels) []byte {
	var buffer [1 << 10]byte
	pairs := buffer[:0]
	for _, i := range r.order {
		if l.values[i] == "" && r.Scope == catalog.ScopeCompat {
			continue
		}
		if len(pairs) > 0 {
			pairs = append(pairs, ',')
		}
		pairs = append(append(pairs, r.labels[i]...), `="`...)
		pairs = append(AppendEscaped(pairs, l.values[i]), '"')
	}
	return append(make([]byte, 0, len(pairs)), pairs...)
}

// AppendEscaped appends a label's value as the text formats have it.
func AppendEscaped(b []byte, value string) []byte {
	for i := range len(value) {
		switch c := value[i]; c {
		case '\\', '"':
			b = append(b, '\\', c)
		case '\n':
			b = append(b, '\\', 'n')
		default:
			b = append(b, c)
		}
	}
	return b
}

// AppendFloat appends a value as the text format has it.
func AppendFloat(b []byte, v float64) []byte {
	if v == math.Trunc(v) && math.Abs(v) < 1e6 { // faster, and equal
		return strconv.AppendInt(b, int64(v), 10)
	}
	return strconv.AppendFloat(b, v, 'g', -1, 64)
}

// appendOpenMetricsFloat appends a value as OpenMetrics has it, where 1 is 1.0.
func appendOpenMetricsFloat(b []byte, v float64) []byte {
	at := len(b)
	b = AppendFloat(b, v)
	if bytes.ContainsAny(b[at:], ".eNI") {
		return b
	}
	return append(b, ".0"...)
}
