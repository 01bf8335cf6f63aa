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

// GPU is one GPU of a session. Fast, Medium and Slow are called by one goroutine, the GPU's worker;
// different GPUs are read concurrently. Identity, Err, NotOffered and Locked may be called by anybody.
//
// A GPU that was lost, or needs a reset, stays so: its poll groups return the error without a call. Scan gives a
// new GPU once the driver answers for it again.
type GPU struct {
	dev      *device // nil for a GPU of which not even the handle could be had
	identity gpu.Identity

	mu     sync.Mutex // guards gone and tables
	gone   error
	tables pollStates

	// What follows belongs to the worker.
	probing bool // the row that is being read has never worked
	busy    cursor
	memory  cursor
	procs   cursor
	// procsSeen: the processes' buffer was read once.
	procsSeen bool
	gpm       gpmState
	mig       migState
	links     []int // NVLinks that answer; nil until asked
	kinds     [3]bool
	margin    marginState
}

// laneStates is what was learned of the rows of each table.
type pollStates struct {
	identity, fast, medium, slow []rowState
}

func newPollStates() pollStates {
	return pollStates{
		identity: make([]rowState, len(identityRows)),
		fast:     make([]rowState, len(fastRows)),
		medium:   make([]rowState, len(mediumRows)),
		slow:     make([]rowState, len(slowRows)),
	}
}

// unreadable returns a GPU that has only a name and an error.
func unreadable(id gpu.Identity, err error) *GPU {
	return &GPU{identity: id, gone: err}
}

// Identity returns who the GPU is. It does not change during a session.
func (c *GPU) Identity() gpu.Identity { return c.identity }

// Err returns why the GPU as a whole cannot be read, nil while it can.
func (c *GPU) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.gone
}

// String names the GPU in messages.
func (c *GPU) String() string {
	if c.identity.UUID == "" {
		return fmt.Sprintf("GPU %d", c.identity.Index)
	}
	return fmt.Sprintf("GPU %d (%s)", c.identity.Index, c.identity.UUID)
}

func (c *GPU) log() *slog.Logger         { return c.dev.session.library.log }
func (c *GPU) now() time.Time            { return c.dev.session.library.options.Clock() }
func (c *GPU) handle() nvml.Device       { return c.dev.handle }
func (c *GPU) interval() time.Duration   { return c.dev.session.library.options.FastInterval }
func (c *GPU) driver() nvml.Interface    { return c.dev.session.nvml }
func (c *GPU) sysfs() string             { return c.dev.session.library.options.SysfsRoot }
func (c *GPU) count(id callID, n string) { c.dev.session.library.stats[id].count(n) }

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
