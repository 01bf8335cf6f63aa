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

// Fast reads the fast poll group: one field-value batch, the rings since the last read, one pair of profiling
// samples. See Err for what the error means; a reading that was refused alone is only absent.
func (c *GPU) Fast() (gpu.Fast, error) {
	var to gpu.Fast
	err := c.pollGroup(func() error {
		if err := c.ensureLayout(); err != nil {
			return err
		}
		return readRows(c, fastRows, c.tables.fast, &to)
	})
	to.Taken = c.taken()
	if err != nil {
		return gpu.Fast{}, err
	}
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
	to.Taken = c.taken()
	if err != nil {
		return gpu.Medium{}, err
	}
	return to, nil
}

// Slow reads the slow poll group: limits, modes, links and the MIG layout. A changed layout makes the GPU forget
// which readings it does not offer: most of them depend on it.
func (c *GPU) Slow() (gpu.Slow, error) {
	var to gpu.Slow
	err := c.pollGroup(func() error {
		c.margin.fresh = false
		return readRows(c, slowRows, c.tables.slow, &to)
	})
	to.Taken = c.taken()
	if err != nil {
		return gpu.Slow{}, err
	}
	return to, nil
}

// poll group runs one read unless the GPU is gone, and remembers when it goes.
func (c *GPU) pollGroup(read func() error) error {
	if err := c.Err(); err != nil {
		return err
	}
	err := read()
	if errors.Is(err, gpu.ErrLost) || errors.Is(err, gpu.ErrResetRequired) {
		c.mu.Lock()
		c.gone = err
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

// NotOffered lists the readings that this GPU and driver do not offer, as far as they were asked for.
func (c *GPU) NotOffered() []string {
	return c.missing(func(s *rowState) bool { return s.dropped })
}

// Locked lists the readings that need a right which this process does not have.
func (c *GPU) Locked() []string {
	return c.missing(func(s *rowState) bool { return s.locked })
}

// missing lists, in the order of the tables, the readings none of whose rows is left and of which a row is
// as asked.
func (c *GPU) missing(is func(*rowState) bool) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dev == nil {
		return nil
	}
	var names []string
	names = append(names, missingRows(identityRows, c.tables.identity, is)...)
	names = append(names, missingRows(fastRows, c.tables.fast, is)...)
	names = append(names, missingRows(mediumRows, c.tables.medium, is)...)
	return append(names, missingRows(slowRows, c.tables.slow, is)...)
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

// relearn forgets what was learned.
func (c *GPU) relearn() {
	c.mu.Lock()
	defer c.mu.Unlock()
	// In place: a read that is under way goes on with the same slices.
	for _, states := range [][]rowState{c.tables.fast, c.tables.medium, c.tables.slow} {
		clear(states)
	}
	c.kinds = [3]bool{}
	c.links = nil
}

// Readings lists the rows of all poll groups, for the documentation.
func Readings() []Reading {
	var list []Reading
	list = append(list, describe("", identityRows)...)
	list = append(list, describe(gpu.PollFast, fastRows)...)
	list = append(list, describe(gpu.PollMedium, mediumRows)...)
	return append(list, describe(gpu.PollSlow, slowRows)...)
}

func describe[T any](pollGroup gpu.PollGroup, rows []row[T]) []Reading {
	var list []Reading
	for i := range rows {
		r := Reading{Name: rows[i].reading, PollGroup: pollGroup, Doc: rows[i].doc}
		for _, id := range rows[i].calls {
			r.Symbols = append(r.Symbols, guards[id].symbols()[0])
		}
		if rows[i].read == nil {
			r.Symbols = []string{guards[callFieldValues].name}
		}
		list = append(list, r)
	}
	return list
}

// Reading is one row of what this package can read, for the documentation.
type Reading struct {
	// Name is the reading. Several rows may serve one: the later ones are asked where the earlier are not offered.
	Name string
	// Symbols are the functions of the library that the row needs; of a function with versions, the newest.
	Symbols []string
	// Poll group is when it is read; empty for what is read once per session.
	PollGroup gpu.PollGroup
	// Doc says what is read and in which unit the driver gives it.
	Doc string
}
