package nvml

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// Fast reads the fast poll group: one batch of field values, one pair of profiling samples and, if samples is set, the
// rings since they were last read, which stop the driver for all its clients. The error is that of the whole GPU; a
// single reading that fails is absent.
func (c *GPU) Fast(samples bool) (gpu.Fast, error) {
	to := gpu.Fast{Unsampled: !samples}
	c.sampling = samples
	err := c.pollGroup(func() error {
		if err := c.ensureLayout(); err != nil {
			return err
		}
		return readRows(c, fastRows, c.tables.fast, &to)
	})
	to.Taken, c.reasons = c.taken(), to.SampledReasons
	if err != nil {
		return gpu.Fast{}, err
	}
	to.LayoutStale, c.mig.stale = c.mig.stale, false
	return to, nil
}

// Medium reads the medium poll group: memory and process lists back to back, errors, clocks, temperature.
func (c *GPU) Medium() (gpu.Medium, error) {
	var to gpu.Medium
	err := c.pollGroup(func() error {
		if err := c.ensureLayout(); err != nil {
			return err
		}
		return readRows(c, mediumRows, c.tables.medium, &to)
	})
	if mask, ok := c.reasons.Get(); ok && !to.ClockEvents.Present() {
		to.ClockEvents = gpu.Some(int(mask))
	}
	if !to.Memory.Present() {
		to.Integrated = slices.Contains(c.NotOffered(), "memory")
	}
	to.Taken = c.taken()
	if err != nil {
		return gpu.Medium{}, err
	}
	to.LayoutStale, c.mig.stale = c.mig.stale, false
	return to, nil
}

// Slow reads the slow poll group: limits, modes, links and the MIG layout. After a change of the layout every reading
// is tried again: which are offered depends on it.
func (c *GPU) Slow() (gpu.Slow, error) {
	var to gpu.Slow
	err := c.pollGroup(func() error {
		c.margin.fresh = false
		c.retry()
		return readRows(c, slowRows, c.tables.slow, &to)
	})
	to.Taken = c.taken()
	if err != nil {
		return gpu.Slow{}, err
	}
	return to, nil
}

// pollGroup runs one read unless the GPU is lost, and keeps the error when it is.
func (c *GPU) pollGroup(read func() error) error {
	if err := c.Err(); err != nil {
		return err
	}
	err := read()
	if errors.Is(err, gpu.ErrLost) || errors.Is(err, gpu.ErrResetRequired) {
		c.mu.Lock()
		c.lost = err
		c.mu.Unlock()
	}
	return err
}

func (c *GPU) taken() time.Time {
	if c.dev == nil {
		return time.Time{}
	}
	return c.now()
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
			if done[i] || states[i].unread || !active(rows, states, i) {
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
