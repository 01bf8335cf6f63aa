package nvml

import (
	"slices"
	"time"
)

func newPollStates(unread []string) pollStates {
	return pollStates{identity: newRowStates(identityRows, nil), fast: newRowStates(fastRows, unread),
		medium: newRowStates(mediumRows, unread), slow: newRowStates(slowRows, unread)}
}

func newRowStates[T any](rows []row[T], unread []string) []rowState {
	states := make([]rowState, len(rows))
	for i := range rows {
		states[i].unread = slices.Contains(unread, rows[i].reading)
	}
	return states
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
		for i := range states {
			states[i] = rowState{unread: states[i].unread}
		}
	}
	c.kinds = [3]bool{}
	c.links, c.linkEntries = nil, nil
}

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
