package nvml

import (
	"errors"
	"slices"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

func newPollStates() pollStates {
	return pollStates{
		identity: make([]rowState, len(identityRows)),
		fast:     make([]rowState, len(fastRows)),
		medium:   make([]rowState, len(mediumRows)),
		slow:     make([]rowState, len(slowRows)),
	}
}

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

// NotOffered lists the readings that this GPU and driver do not offer, of those tried so far.
func (c *GPU) NotOffered() []string {
	return c.missing(func(s *rowState) bool { return s.dropped })
}

// Denied lists the readings for which this process has no permission.
func (c *GPU) Denied() []string {
	return c.missing(func(s *rowState) bool { return s.denied })
}

// missing lists, in the order of the tables, the readings with no row left and with a row for which is is true.
func (c *GPU) missing(is func(*rowState) bool) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dev == nil {
		return nil
	}
	return slices.Concat(missingRows(identityRows, c.tables.identity, is), missingRows(fastRows, c.tables.fast, is),
		missingRows(mediumRows, c.tables.medium, is), missingRows(slowRows, c.tables.slow, is))
}

func missingRows[T any](rows []row[T], states []rowState, is func(*rowState) bool) []string {
	var names []string
	for i := range rows {
		name := rows[i].reading
		if slices.Contains(names, name) || !is(&states[i]) {
			continue
		}
		left := false
		for j := range rows {
			left = left || rows[j].reading == name && !states[j].dropped
		}
		if !left {
			names = append(names, name)
		}
	}
	return names
}

// relearn makes the GPU try every row again.
func (c *GPU) relearn() {
	c.mu.Lock()
	defer c.mu.Unlock()
	// In place: a running read uses the same slices.
	for _, states := range [][]rowState{c.tables.fast, c.tables.medium, c.tables.slow} {
		clear(states)
	}
	c.kinds = [3]bool{}
	c.links, c.linkEntries = nil, nil
}
