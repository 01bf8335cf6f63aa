package expose

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/standin/fleet"
)

// History is a stretch of a fleet's past to be written.
type History struct {
	From, To time.Time
	Step     time.Duration
	// Want says which families are written; nil: all.
	Want func(name string) bool
	// Memory bounds what is kept in memory for one target, in bytes; 256 MiB where it is 0.
	Memory int
}

// Write writes the history as OpenMetrics text with timestamps: what a Prometheus would have stored that scraped
// the fleet at every step from From on, before To. Each family stands in one piece, and so does each series
// in it; between, the text lies in a temporary folder, so that memory does not grow with the fleet. promtool tsdb
// create-blocks-from openmetrics reads it, and VictoriaMetrics' /api/v1/import/prometheus.
func (h History) Write(ctx context.Context, f *fleet.Fleet, out io.Writer) (err error) {
	if h.Step < time.Millisecond || !h.From.Before(h.To) {
		return fmt.Errorf("a history from %v to %v in steps of %v has no step", h.From, h.To, h.Step)
	}
	if h.Memory == 0 {
		h.Memory = 256 << 20
	}
	dir, err := os.MkdirTemp("", "standin-history-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	s := NewSampler(f, h.Want)
	w := &spool{dir: dir, files: map[string]*spooled{}}
	defer w.close()
	for i := range f.Len() {
		if err := h.target(ctx, w, s, func(s *Sampler, at time.Time, emit func(Sample)) { s.Node(i, at, emit) }); err != nil {
			return err
		}
	}
	for _, c := range f.Clusters() {
		if err := h.target(ctx, w, s, func(s *Sampler, at time.Time, emit func(Sample)) { s.Kube(c, at, emit) }); err != nil {
			return err
		}
	}
	return w.join(s.Families(), out)
}

// run is a stretch of steps in which a series had one value.
type run struct {
	value        float64
	first, steps int32
}

// series is one series of the target that is written.
type series struct {
	family string
	head   string
	runs   []run
}

// target writes the history of one target. Where it does not fit into memory, the families go one part after
// the other, each with a walk over the time of its own.
func (h History) target(ctx context.Context, w *spool, s *Sampler, scrape func(*Sampler, time.Time, func(Sample))) error {
	steps := int(h.To.Sub(h.From)+h.Step-1) / int(h.Step)
	count := 0
	scrape(s, h.From, func(Sample) { count++ })
	parts := max(1, min(len(s.Families()), count*min(steps, 100000)/max(1, h.Memory/16)+1))
	for part := range parts {
		known := map[string]*series{}
		var order []*series
		var key []byte
		for step := range steps {
			if err := ctx.Err(); err != nil {
				return err
			}
			at := h.From.Add(time.Duration(step) * h.Step)
			scrape(s, at, func(sample Sample) {
				if parts > 1 && int(hash(sample.Family.Name)%uint32(parts)) != part {
					return
				}
				key = sample.AppendKey(key[:0])
				it := known[string(key)]
				if it == nil {
					it = &series{family: sample.Family.Name, head: head(&sample)}
					known[string(key)] = it
					order = append(order, it)
				}
				if n := len(it.runs); n > 0 {
					if r := &it.runs[n-1]; r.value == sample.Value && int(r.first+r.steps) == step {
						r.steps++
						return
					}
				}
				it.runs = append(it.runs, run{sample.Value, int32(step), 1})
			})
		}
		for _, it := range order {
			if err := w.write(it, h); err != nil {
				return err
			}
		}
	}
	return nil
}

// hash spreads the names of families over parts (FNV-1a).
func hash(name string) uint32 {
	h := uint32(2166136261)
	for i := range len(name) {
		h = (h ^ uint32(name[i])) * 16777619
	}
	return h
}

func head(s *Sample) string {
	b := append([]byte(s.Name), '{')
	for i, l := range s.Labels {
		if s.Values[i] == "" {
			continue
		}
		if b[len(b)-1] != '{' {
			b = append(b, ',')
		}
		b = append(appendEscaped(append(append(b, l...), '=', '"'), s.Values[i]), '"')
	}
	return string(append(b, '}', ' '))
}

// spool is a file for each family.
type spool struct {
	dir   string
	files map[string]*spooled
	line  []byte
}

type spooled struct {
	file *os.File
	*bufio.Writer
}

func (w *spool) write(s *series, h History) error {
	f := w.files[s.family]
	if f == nil {
		file, err := os.Create(filepath.Join(w.dir, s.family))
		if err != nil {
			return err
		}
		f = &spooled{file, bufio.NewWriterSize(file, 64<<10)}
		w.files[s.family] = f
	}
	var value []byte
	for _, r := range s.runs {
		value = appendValue(value[:0], r.value)
		for step := r.first; step < r.first+r.steps; step++ {
			at := h.From.Add(time.Duration(step) * h.Step).UnixMilli()
			w.line = append(append(append(w.line[:0], s.head...), value...), ' ')
			w.line = strconv.AppendInt(w.line, at/1000, 10)
			if ms := at % 1000; ms != 0 {
				w.line = append(w.line, fmt.Sprintf(".%03d", ms)...)
			}
			if _, err := f.Write(append(w.line, '\n')); err != nil {
				return err
			}
		}
	}
	return nil
}

// join writes the families one after the other.
func (w *spool) join(families []*Family, out io.Writer) error {
	for _, f := range families {
		s := w.files[f.Name]
		if s == nil {
			continue
		}
		name := f.metadataName()
		if _, err := fmt.Fprintf(out, "# HELP %s %s\n# TYPE %s %s\n", name, escapeHelp(f.Help), name, f.Type); err != nil {
			return err
		}
		if f.Unit != "" {
			if _, err := fmt.Fprintf(out, "# UNIT %s %s\n", name, f.Unit); err != nil {
				return err
			}
		}
		if err := s.Flush(); err != nil {
			return err
		}
		if _, err := s.file.Seek(0, io.SeekStart); err != nil {
			return err
		}
		if _, err := io.Copy(out, s.file); err != nil {
			return err
		}
	}
	_, err := io.WriteString(out, "# EOF\n")
	return err
}

func escapeHelp(s string) string {
	return strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`).Replace(s)
}

func (w *spool) close() {
	for _, f := range w.files {
		f.file.Close()
	}
}
