package podmap

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// health is what a source of truth beside the socket says of itself. The Map's mu guards it.
type health struct {
	errors   uint64
	failing  bool
	problem  string
	duration gpu.Opt[time.Duration]
	success  gpu.Opt[time.Time]
}

// source renders a health. Using tells whether an earlier answer is in use.
func (h *health) source(name, unasked string, now time.Time, using bool) gpu.Source {
	src := gpu.Source{Name: name, Up: !h.failing && h.success.Present(), LastSuccess: h.success, Errors: h.errors,
		Duration: h.duration, Message: h.problem}
	at, ok := h.success.Get()
	switch {
	case src.Up:
		src.Message = ""
	case !h.failing:
		src.Message = unasked
	case ok && using:
		src.Message += fmt.Sprintf("; using what was read %s ago", max(now.Sub(at), 0).Round(time.Second))
	}
	return src
}

// sources lists the health of all that was asked for. The caller holds mu.
func (m *Map) sources(age time.Duration) []gpu.Source {
	out := []gpu.Source{m.source(age)}
	now := m.options.Clock()
	if m.options.Checkpoint != "" {
		out = append(out, m.state.checkpoint.source(SourceCheckpoint, "the kubelet's device checkpoint has not been read yet", now, m.fresh(&m.state.checkpoint)))
	}
	if m.options.DRACheckpoint != "" {
		out = append(out, m.state.dra.source(SourceDRA, "the DRA driver's checkpoint has not been read yet", now, m.fresh(&m.state.dra)))
	}
	if m.watch != nil {
		out = append(out, m.watch.source())
	}
	return out
}

// fresh tells whether the last good state of a source is young enough to be used. The caller holds mu.
func (m *Map) fresh(h *health) bool {
	at, ok := h.success.Get()
	return ok && m.options.Clock().Sub(at) <= m.options.MaxAge
}

// files are the checkpoints as they were read last. Only Poll touches them.
type files struct {
	checkpoint      *allotments // nil: nothing good was read since the last failure
	checkpointState fileState
	prepared        *preparedClaims
	preparedState   fileState
}

// read reads the files that changed.
func (m *Map) read(a *answer) {
	f := &m.files
	if m.options.Checkpoint != "" {
		m.readFile(&m.state.checkpoint, m.options.Checkpoint, "the kubelet's device checkpoint", &f.checkpointState, func(r io.Reader) (int, error) {
			entries, err := readCheckpoint(r, m.grammar.seed)
			f.checkpoint = entries
			if err != nil {
				return 0, err
			}
			return entries.unread, nil
		}, func() { f.checkpoint = nil })
	}
	if m.options.DRACheckpoint != "" {
		m.readFile(&m.state.dra, m.options.DRACheckpoint, "the DRA driver's checkpoint", &f.preparedState, func(r io.Reader) (int, error) {
			claims, err := readPreparedClaims(r)
			f.prepared = claims
			return 0, err
		}, func() { f.prepared = nil })
	}
}

func (m *Map) readFile(h *health, path, what string, state *fileState, read func(io.Reader) (unread int, err error), forget func()) {
	began := m.options.Clock()
	unread := 0
	now, err := readChanged(path, *state, func(r io.Reader) (err error) {
		unread, err = read(r)
		return err
	})
	m.mu.Lock()
	defer m.mu.Unlock()
	ended := m.options.Clock()
	h.duration = gpu.Some(ended.Sub(began))
	if err != nil && !errors.Is(err, errUnchanged) {
		// A file that was not understood is read again, and counted again, at the next poll.
		*state = fileState{}
		forget()
		problem := explainFile(err, path)
		if problem != h.problem {
			m.log.Warn("cannot read "+what, "problem", problem)
		}
		h.errors++
		h.failing, h.problem = true, problem
		return
	}
	if h.failing {
		m.log.Info(what + " is read again")
	}
	*state = now
	h.failing, h.problem, h.success = false, "", gpu.Some(ended)
	if err == nil && unread > 0 {
		h.errors++
		m.log.Warn(what+" has entries whose plugin's answer cannot be decoded; they are left out", "entries", unread)
	}
}

// explainFile says in one line what is wrong with a file and what to do.
func explainFile(err error, path string) string {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return path + " does not exist: mount its folder read-only, or give its path"
	case errors.Is(err, fs.ErrPermission):
		return path + ": permission denied: run as user 0"
	}
	var where *fs.PathError
	if errors.As(err, &where) {
		return oneLine(err.Error())
	}
	return path + " cannot be understood: " + oneLine(err.Error())
}

// evidence makes the record of an answer with what the other sources tell of it. The caller holds mu.
func (m *Map) evidence(a *answer, before *record) *record {
	next := &record{answer: a}
	if m.options.Checkpoint != "" {
		switch {
		case m.files.checkpoint != nil:
			next.matched, next.uids = match(a, m.files.checkpoint, before)
			for key, entry := range next.matched {
				next.matched[key] = entry.followed(m.options.Dev)
			}
		case before != nil && m.fresh(&m.state.checkpoint):
			// Ids are given out again: an old file speaks only of those who held when it was read.
			next.matched, next.uids = carry(a, before)
		}
		next.settled = agreed(next.uids, before)
	}
	switch {
	case m.files.prepared != nil:
		next.prepared = m.files.prepared
	case m.options.DRACheckpoint != "" && before != nil && m.fresh(&m.state.dra):
		next.prepared = before.prepared
	}
	return next
}

// watched is the metadata of the node's pods; nil without.
func (m *Map) watched() *podTable {
	if m.watch == nil {
		return nil
	}
	return m.watch.pods()
}
