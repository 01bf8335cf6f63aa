package collector

import (
	"cmp"
	"errors"
	"io"
	"strconv"

	dto "github.com/prometheus/client_model/go"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// pieceSize is how many bytes of a page are written at once: a compressed page never exists as a whole.
const pieceSize = 32 << 10

// WriteText writes a page in the Prometheus text format, or OpenMetrics 1.0, as expfmt writes it: the families of the
// latest View and more, both in the order of names. The error is that of out, and Gather's; the page is complete but for
// the series that it names.
func (c *Collector) WriteText(out io.Writer, openMetrics bool, more []*dto.MetricFamily) error {
	piece, ok := c.pieces.Get().(*[]byte)
	if !ok {
		piece = new([]byte)
	}
	p := &textPage{out: out, openMetrics: openMetrics, piece: (*piece)[:0]}
	defer func() {
		*piece = p.piece
		c.pieces.Put(piece)
	}()
	p.reader = newReader(p.value, p.histogram)
	var errs []error
	upTo := func(name string) {
		for len(more) > 0 && (name == "" || more[0].GetName() < name) {
			var err error
			if p.piece, err = appendFamily(p.piece, openMetrics, more[0]); err != nil {
				errs = append(errs, err)
			}
			more = more[1:]
		}
	}
	err := c.each(func(r *row, s *series, view *gpu.View) error {
		upTo(r.Name)
		return p.reader.read(r, s, view)
	})
	upTo("")
	if openMetrics {
		p.piece = append(p.piece, "# EOF\n"...)
	}
	p.flush(0)
	return errors.Join(append(errs, err, p.failed)...)
}

// textPage is a page that is being written.
type textPage struct {
	out         io.Writer
	openMetrics bool
	reader      *reader
	family      *row   // whose comments are written
	piece       []byte // not yet written
	failed      error  // of out
}

// flush writes the piece if it is larger than limit.
func (p *textPage) flush(limit int) {
	if len(p.piece) > limit {
		_, err := p.out.Write(p.piece)
		p.piece, p.failed = p.piece[:0], cmp.Or(p.failed, err)
	}
}

// begin writes the comments of a new family.
func (p *textPage) begin() {
	p.flush(pieceSize)
	if r := p.reader.row; p.family != r {
		head := &r.head.text
		if p.openMetrics {
			head = &r.head.openMetrics
		}
		if *head == nil {
			*head = r.comments(p.openMetrics)
		}
		p.piece, p.family = append(p.piece, *head...), r
	}
}

// name writes what precedes a value: the family's name and suffix, the labels and a further one.
func (p *textPage) name(l *labels, suffix, label string) {
	r := p.reader.row
	if l.text == nil {
		l.text = r.text(l)
	}
	p.piece = append(append(p.piece, r.Name...), suffix...)
	if len(l.text)+len(label) > 0 {
		p.piece = append(append(p.piece, '{'), l.text...)
		if len(l.text) > 0 && label != "" {
			p.piece = append(p.piece, ',')
		}
		p.piece = append(append(p.piece, label...), '}')
	}
	p.piece = append(p.piece, ' ')
}

func (p *textPage) value(l *labels, v float64) {
	p.begin()
	p.name(l, "", "")
	p.appendValue(v)
	p.piece = append(p.piece, '\n')
}

// histogram writes a histogram without its native buckets, which do not exist in text.
func (p *textPage) histogram(l *labels, h gpu.Histogram) {
	p.begin()
	p.name(l, "_bucket", `le="+Inf"`)
	p.appendCount(h.Count)
	p.piece = append(p.piece, '\n')
	p.name(l, "_sum", "")
	p.appendValue(h.Sum)
	p.piece = append(p.piece, '\n')
	p.name(l, "_count", "")
	p.appendCount(h.Count)
	p.piece = append(p.piece, '\n')
}

func (p *textPage) appendValue(v float64) {
	if p.openMetrics {
		p.piece = appendOpenMetricsFloat(p.piece, v)
	} else {
		p.piece = AppendFloat(p.piece, v)
	}
}

func (p *textPage) appendCount(n uint64) {
	if p.openMetrics {
		p.piece = strconv.AppendUint(p.piece, n, 10)
	} else {
		p.piece = AppendFloat(p.piece, float64(n))
	}
}
