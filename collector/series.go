package collector

import (
	"slices"

	dto "github.com/prometheus/client_model/go"
)

// series caches the series of one row. Readers emit a node's series in the same order each time, so a
// series mostly follows the same one as before.
type series struct {
	cache    *labelCache
	building uint64    // the reading in progress
	order    []*labels // of the last reading
	next     int       // in order: the expected one
	now      []*labels // of this reading
}

// labels are the labels of a series, which those of other families with the same labels share: each container has a
// dozen series.
type labels struct {
	values []string // as emitted by readers
	// shown has the values as they are exposed, mostly itself. Some characters are exposed as others: two series of a
	// reader may then be one, and the second is a duplicate.
	shown   *labels
	text    []byte  // the pairs as the text formats have them; nil until a series is written
	stood   uint64  // the last reading that contained them
	sibling *labels // next with the same hash
	// counter is the one of this reading, until its start timestamp is set.
	counter *dto.Counter
}

func (s *series) begin(building uint64) {
	s.building, s.next, s.now = building, 0, s.now[:0]
}

func (s *series) end() { s.order, s.now = s.now, s.order }

// labels returns the exposed labels of a series, and whether it is the first with them in this reading.
func (s *series) labels(values []string) (*labels, bool) {
	l := s.find(values)
	s.next += slices.Index(s.order[s.next:], l) + 1 // mostly 1; more if some are gone, 0 if it is new
	if l.shown.stood == s.building {
		return nil, false
	}
	l.stood, l.shown.stood = s.building, s.building
	s.now = append(s.now, l)
	return l.shown, true
}

func (s *series) find(values []string) *labels {
	if s.next < len(s.order) && slices.Equal(s.order[s.next].values, values) {
		return s.order[s.next]
	}
	return s.cache.get(values)
}
