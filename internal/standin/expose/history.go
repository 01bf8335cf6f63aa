package expose

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/gpu-exporter/gpu-exporter/collector"
	"github.com/gpu-exporter/gpu-exporter/internal/standin/fleet"
)

// History is a period of a fleet.
type History struct {
	From, To time.Time
	Step     time.Duration
	// Want selects families; nil: all.
	Want func(name string) bool
}

// Write writes what a Prometheus would have stored that scraped the fleet at every step from From on, before To, in the
// text format with timestamps in milliseconds. VictoriaMetrics' /api/v1/import/prometheus reads it.
func (h History) Write(ctx context.Context, f *fleet.Fleet, out io.Writer) error {
	if h.Step < time.Millisecond || !h.From.Before(h.To) {
		return fmt.Errorf("history from %v to %v in steps of %v is empty", h.From, h.To, h.Step)
	}
	s := NewSampler(f, h.Want)
	scrapes := make([]func(at time.Time, emit func(Sample)), 0, f.Len())
	for i := range f.Len() {
		scrapes = append(scrapes, func(at time.Time, emit func(Sample)) { s.Node(i, at, emit) })
	}
	for _, c := range f.Clusters() {
		scrapes = append(scrapes, func(at time.Time, emit func(Sample)) { s.Kube(c, at, emit) })
	}
	var b []byte
	for _, scrape := range scrapes {
		for at := h.From; at.Before(h.To); at = at.Add(h.Step) {
			b = b[:0]
			scrape(at, func(x Sample) {
				b = append(collector.AppendFloat(append(x.AppendSeries(b), ' '), x.Value), ' ')
				b = append(strconv.AppendInt(b, at.UnixMilli(), 10), '\n')
			})
			if _, err := out.Write(b); err != nil {
				return err
			}
			if err := ctx.Err(); err != nil {
				return err
			}
		}
	}
	return nil
}
