package nvml

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// Card is one card of a session. Fast, Medium and Slow are called by one goroutine, the card's worker;
// different cards are read concurrently. Identity, Err, NotOffered and Locked may be called by anybody.
//
// A card that was lost, or needs a reset, stays so: its lanes return the error without a call. Scan gives a
// new Card once the driver answers for it again.
type Card struct {
	dev      *device // nil for a card of which not even the handle could be had
	identity gpu.Identity

	mu     sync.Mutex // guards gone and tables
	gone   error
	tables laneStates

	// What follows belongs to the worker.
	asking bool // the row under way has never worked
	busy   cursor
	memory cursor
	procs  cursor
	// procsSeen: the processes' buffer was read once.
	procsSeen bool
	gpm       gpmState
	mig       migState
	links     []int // NVLinks that answer; nil until asked
	kinds     [3]bool
	margin    marginState
}

// laneStates is what was learned of the rows of each table.
type laneStates struct {
	identity, fast, medium, slow []rowState
}

func newLaneStates() laneStates {
	return laneStates{
		identity: make([]rowState, len(identityRows)),
		fast:     make([]rowState, len(fastRows)),
		medium:   make([]rowState, len(mediumRows)),
		slow:     make([]rowState, len(slowRows)),
	}
}

// unreadable returns a card that has only a name and an error.
func unreadable(id gpu.Identity, err error) *Card {
	return &Card{identity: id, gone: err}
}

// Identity returns who the card is. It does not change during a session.
func (c *Card) Identity() gpu.Identity { return c.identity }

// Err returns why the card as a whole cannot be read, nil while it can.
func (c *Card) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.gone
}

// String names the card in messages.
func (c *Card) String() string {
	if c.identity.UUID == "" {
		return fmt.Sprintf("card %d", c.identity.Index)
	}
	return fmt.Sprintf("card %d (%s)", c.identity.Index, c.identity.UUID)
}

func (c *Card) log() *slog.Logger         { return c.dev.session.library.log }
func (c *Card) now() time.Time            { return c.dev.session.library.options.Clock() }
func (c *Card) handle() nvml.Device       { return c.dev.handle }
func (c *Card) interval() time.Duration   { return c.dev.session.library.options.FastInterval }
func (c *Card) driver() nvml.Interface    { return c.dev.session.nvml }
func (c *Card) sysfs() string             { return c.dev.session.library.options.SysfsRoot }
func (c *Card) count(id callID, n string) { c.dev.session.library.stats[id].count(n) }

// Fast reads the fast lane: one field-value batch, the rings since the last read, one pair of profiling
// samples. See Err for what the error means; a reading that was refused alone is only absent.
func (c *Card) Fast() (gpu.Fast, error) {
	var to gpu.Fast
	err := c.lane(func() error {
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

// Medium reads the medium lane: memory and process lists back to back, errors, clocks, temperature.
func (c *Card) Medium() (gpu.Medium, error) {
	var to gpu.Medium
	err := c.lane(func() error {
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

// Slow reads the slow lane: limits, modes, links and the MIG layout. A changed layout makes the card forget
// which readings it does not offer: most of them depend on it.
func (c *Card) Slow() (gpu.Slow, error) {
	var to gpu.Slow
	err := c.lane(func() error {
		c.margin.fresh = false
		return readRows(c, slowRows, c.tables.slow, &to)
	})
	to.Taken = c.taken()
	if err != nil {
		return gpu.Slow{}, err
	}
	return to, nil
}

// lane runs one read unless the card is gone, and remembers when it goes.
func (c *Card) lane(read func() error) error {
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

func (c *Card) taken() time.Time {
	if c.dev == nil {
		return time.Time{}
	}
	return c.now()
}

// NotOffered lists the readings that this card and driver do not offer, as far as they were asked for.
func (c *Card) NotOffered() []string {
	return c.missing(func(s *rowState) bool { return s.dropped })
}

// Locked lists the readings that need a right which this process does not have.
func (c *Card) Locked() []string {
	return c.missing(func(s *rowState) bool { return s.locked })
}

// missing lists, in the order of the tables, the readings none of whose rows is left and of which a row is
// as asked.
func (c *Card) missing(is func(*rowState) bool) []string {
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
func (c *Card) relearn() {
	c.mu.Lock()
	defer c.mu.Unlock()
	// In place: a read that is under way goes on with the same slices.
	for _, states := range [][]rowState{c.tables.fast, c.tables.medium, c.tables.slow} {
		clear(states)
	}
	c.kinds = [3]bool{}
	c.links = nil
}
