package nvml

import (
	"fmt"
	"slices"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// retryDropped is how often what was not offered is tried again: it may depend on a service that starts after us, such
// as the fabric manager.
const retryDropped = 10 * time.Minute

// retry makes every dropped row be tried once more, if it is time to.
func (c *GPU) retry() {
	now := c.now()
	if c.retried.IsZero() {
		c.retried = now
	}
	if now.Sub(c.retried) < retryDropped {
		return
	}
	c.retried, c.linkEntries, c.kinds = now, nil, [3]bool{}
	c.gpm.dev.Retry()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, states := range [][]rowState{c.tables.fast, c.tables.medium, c.tables.slow} {
		for i := range states {
			if states[i].dropped && !states[i].denied {
				states[i].retry, states[i].entries = true, nil
			}
		}
	}
}

// active reports whether a row is to be read.
func active[T any](rows []row[T], states []rowState, i int) bool {
	if states[i].dropped && !states[i].retry {
		return false
	}
	for j := range rows {
		if states[j].dropped && !states[j].retry {
			continue
		}
		if rows[j].reading == rows[i].reading && rows[j].rank < rows[i].rank ||
			slices.Contains(rows[i].instead, rows[j].reading) {
			return false
		}
	}
	return true
}

// fastOffers reports whether the fast poll group reads a reading.
func (c *GPU) fastOffers(reading string) bool {
	for i := range fastRows {
		if s := &c.tables.fast[i]; fastRows[i].reading == reading && s.worked && !s.dropped && active(fastRows, c.tables.fast, i) {
			return true
		}
	}
	return false
}

// readRows reads every active row once, the fields in one batch first. A row that becomes active because its newer
// alternative is not offered is read in the same poll. The error is that of a code that concerns the whole GPU, or of a
// poll in which every call failed.
func readRows[T any](c *GPU, rows []row[T], states []rowState, to *T) error {
	done := make([]bool, len(rows))
	tally := tally{}
	for {
		var fields, calls []int
		for i := range rows {
			if done[i] || !active(rows, states, i) || slices.Contains(c.dev.session.library.options.Unread, rows[i].reading) {
				continue
			}
			if rows[i].read == nil {
				fields = append(fields, i)
			} else {
				calls = append(calls, i)
			}
		}
		if len(fields) == 0 && len(calls) == 0 {
			break
		}
		if err := readFields(c, rows, states, fields, to, &tally); err != nil {
			return err
		}
		for _, i := range fields {
			done[i] = true
		}
		for _, i := range calls {
			done[i] = true
			if rows[i].sampled && !c.sampling || slices.ContainsFunc(rows[i].instead, c.fastOffers) {
				continue
			}
			c.probing = !states[i].worked
			ret := rows[i].read(c, to)
			c.probing = false
			if ret == nothingToRead {
				continue
			}
			if err := whole(ret); err != nil {
				return fmt.Errorf("read %s of %s: %w (%s)", rows[i].reading, c, err, codeName(ret))
			}
			tally.add(ret)
			learn(c, rows[i].reading, &states[i], ret)
		}
	}
	return tally.verdict(c)
}

// learn keeps the result of a row.
func learn(c *GPU, reading string, s *rowState, ret nvml.Return) {
	unknown := ret == nvml.ERROR_INVALID_ARGUMENT && !s.worked
	c.mu.Lock()
	s.retry = false
	switch {
	case ret == nvml.SUCCESS:
		s.worked, s.dropped = true, false
	case notOffered(ret), unknown:
		s.dropped = true
	case ret == nvml.ERROR_NO_PERMISSION:
		s.dropped, s.denied = true, true
	}
	changed := s.last != ret
	s.last = ret
	c.mu.Unlock()
	switch {
	case ret == nvml.ERROR_NO_PERMISSION:
		if c.dev.session.library.hint(reading) {
			c.log().Info("reading disabled, permission missing", "reading", reading, "gpu", c.identity.UUID)
		}
	case changed && !silent(ret) && !unknown:
		c.log().Warn("reading failed", "reading", reading, "gpu", c.identity.UUID, "code", codeName(ret))
	}
}
