package nvml

import (
	"fmt"
	"math"
	"slices"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// row is one thing to read into a T: by a call of its own, or as a field of the batch that all field rows
// of the table share.
type row[T any] struct {
	// reading is the name under which the row is reported. Rows of one reading with a higher rank are
	// asked only where no row of a lower rank is offered: newer calls first, their elders after.
	reading string
	rank    int
	// instead names readings of which none may be offered for this row to be asked.
	instead []string
	doc     string

	// calls are what read may call.
	calls []callID
	// read makes the call and stores the value. It returns the code that says how the row fared.
	read func(c *GPU, to *T) nvml.Return

	// field is the NVML field id; scope its scope, or everyLink.
	field, scope uint32
	// set stores the value of the field: of everyLink, the sum.
	set func(to *T, v value)
}

// allLinks asks for the sum over a GPU's NVLinks in one answer. everyLink, which is never sent, stands for
// one entry per link, summed here.
const (
	allLinks  = math.MaxUint32
	everyLink = math.MaxUint32 - 1
)

// notAsked is what a read returns that found nothing to ask about, such as instances of a GPU that has none:
// nothing is learned from it. It is no code of NVML's.
const notAsked nvml.Return = -1

// rowState is what a GPU's answers taught about a row. Dropped rows are not asked again until the next
// session or MIG layout.
type rowState struct {
	dropped bool
	locked  bool // dropped for want of a right
	worked  bool // it answered once
	last    nvml.Return
	// entries are the states of the row's entries in the batch, made when first asked.
	entries []entryState
}

// entryState is one entry of a field batch.
type entryState struct {
	dropped bool
	blanks  int // answers in a row that were no answer
}

// blankLimit is after how many empty answers in a row a field is taken as not offered.
const blankLimit = 3

// active reports whether a row is to be asked.
func active[T any](rows []row[T], states []rowState, i int) bool {
	if states[i].dropped {
		return false
	}
	for j := range rows {
		if states[j].dropped {
			continue
		}
		if rows[j].reading == rows[i].reading && rows[j].rank < rows[i].rank || slices.Contains(rows[i].instead, rows[j].reading) {
			return false
		}
	}
	return true
}

// readRows asks every active row once, the fields in one batch first. A row that becomes active because its
// elder turned out not to be offered is asked in the same read. The error is that of a code which speaks for
// the whole GPU, or says that nothing at all could be read.
func readRows[T any](c *GPU, rows []row[T], states []rowState, to *T) error {
	done := make([]bool, len(rows))
	tally := tally{}
	for {
		var fields, calls []int
		for i := range rows {
			if done[i] || !active(rows, states, i) {
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
			c.probing = !states[i].worked
			ret := rows[i].read(c, to)
			c.probing = false
			if ret == notAsked {
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

// tally counts how the rows of one read fared.
type tally struct {
	answered, failed int
	last             nvml.Return
}

func (t *tally) add(ret nvml.Return) {
	if silent(ret) || ret == nvml.ERROR_NO_PERMISSION || ret == nvml.ERROR_INVALID_ARGUMENT {
		t.answered++
		return
	}
	t.failed++
	t.last = ret
}

// verdict is an error where everything that was asked failed: the GPU does not speak to us, as when the
// device cgroup took it away.
func (t *tally) verdict(c *GPU) error {
	if t.answered > 0 || t.failed == 0 {
		return nil
	}
	return fmt.Errorf("read %s: none of %d calls worked, the last said %s", c, t.failed, codeName(t.last))
}

// learn notes how a row fared.
func learn(c *GPU, reading string, s *rowState, ret nvml.Return) {
	unknown := ret == nvml.ERROR_INVALID_ARGUMENT && !s.worked
	c.mu.Lock()
	switch {
	case ret == nvml.SUCCESS:
		s.worked = true
	case notOffered(ret), unknown:
		s.dropped = true
	case ret == nvml.ERROR_NO_PERMISSION:
		s.dropped, s.locked = true, true
	}
	changed := s.last != ret
	s.last = ret
	c.mu.Unlock()
	switch {
	case ret == nvml.ERROR_NO_PERMISSION:
		if c.dev.session.library.hint(reading) {
			c.log().Info("A reading needs a right that this process does not have; it is left out.", "reading", reading, "gpu", c.identity.UUID)
		}
	case changed && !silent(ret) && !unknown:
		c.log().Warn("A reading failed.", "reading", reading, "gpu", c.identity.UUID, "code", codeName(ret))
	}
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
