package page

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/gpu-exporter/gpu-exporter/test/board"
)

// sheet is one panel while it is drawn.
type sheet struct {
	board              board.Board
	panel              board.Panel
	answers            []Answer
	looks              looks
	window             board.Window
	values             board.Values
	links              Links
	now                time.Time
	rangeFrom, rangeTo string
	// marks are moments that are drawn into graphs.
	marks []moment
	notes []string
}

// moment is an annotation's moment.
type moment struct {
	at     time.Time
	text   string
	colour string
}

func (s *sheet) note(format string, args ...any) {
	s.notes = append(s.notes, fmt.Sprintf(format, args...))
}

func (s *sheet) options(into any) error {
	if len(s.panel.Options) == 0 {
		return nil
	}
	if err := json.Unmarshal(s.panel.Options, into); err != nil {
		return fmt.Errorf("options: %w", err)
	}
	return nil
}

func (s *sheet) lines() ([]line, error) { return lines(s.answers, s.looks) }

// room is what the panel has for its picture at the width for which pages are drawn.
func (s *sheet) room() (wide, high float64) {
	wide, high = size(s.panel.W, s.panel.H)
	return wide - 18, high - 42
}

// timeTicks leaves each label about 76 pixels; a legend at the right takes its part of the room.
func (s *sheet) timeTicks(o legendOptions) []timeTick {
	wide, _ := s.room()
	wide -= 50
	if o.Legend.Placement == "right" {
		wide *= 0.6
	}
	return timeTicks(s.window.From, s.window.To, int(max(1, wide/76)))
}

// draw draws the panel; nil: its queries have no answer.
func (s *sheet) draw() (*node, error) {
	switch s.panel.Type {
	case "stat":
		return s.stat()
	case "timeseries":
		return s.timeseries()
	case "table":
		return s.table()
	case "bargauge":
		return s.bargauge()
	case "gauge":
		return s.gauge()
	case "state-timeline":
		return s.timeline()
	case "heatmap":
		return s.heatmap()
	case "text":
		return s.text()
	}
	return nil, fmt.Errorf("unknown kind of panel %q: teach it to test/preview/page/sheet.go", s.panel.Type)
}

// markLines draws the moments of annotations.
func (s *sheet) markLines() *node {
	if len(s.marks) == 0 {
		return nil
	}
	g := el("g", "class", "marks")
	length := s.window.To.Sub(s.window.From).Seconds()
	for _, m := range s.marks {
		x := near(plane * m.at.Sub(s.window.From).Seconds() / length)
		g.add(el("line", "x1", x, "x2", x, "y1", "0", "y2", "1000", "style", "stroke:"+m.colour).add(el("title").say(m.text)))
	}
	return g
}
