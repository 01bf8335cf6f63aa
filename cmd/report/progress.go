package main

import (
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/gpu-exporter/gpu-exporter/report"
)

// progress shows on a terminal how far the reading is, in one line that is written over. Elsewhere it is silent.
type progress struct {
	mu   sync.Mutex
	w    io.Writer // nil: silent
	said bool
}

func newProgress(w io.Writer, quiet bool) *progress {
	f, ok := w.(*os.File)
	if !ok || quiet {
		return &progress{}
	}
	if info, err := f.Stat(); err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return &progress{}
	}
	return &progress{w: w}
}

func (p *progress) show(s report.Progress) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.w == nil {
		return
	}
	p.said = true
	if s.Total > 1 {
		fmt.Fprintf(p.w, "\r\x1b[Kreading %s: %d of %d", s.Stage, s.Done, s.Total)
	} else {
		fmt.Fprintf(p.w, "\r\x1b[Kreading %s", s.Stage)
	}
}

func (p *progress) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.said {
		fmt.Fprint(p.w, "\r\x1b[K")
	}
}
