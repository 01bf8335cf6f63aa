package collector

import (
	"hash/maphash"
	"slices"

	dto "github.com/prometheus/client_model/go"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// series caches the series of one row. Readers emit a node's series in the same order each time, so a
// series mostly follows the same one as before.
type series struct {
	building uint64   // the pass in progress
	order    []*known // of the last pass
	next     int      // in order: the expected one
	now      []*known // of this pass
	byValues map[uint64]*known
	seed     maphash.Seed
}

// known is one series.
type known struct {
	values  []string // as emitted by the reader
	labels  *labels
	like    *known // the series with the same exposed values; nil: itself
	at      int    // in series.order
	sibling *known // next with the same hash
}

// labels are the exposed labels of a series. Two series of a reader may share them, since some characters are exposed as
// others: the second is then a duplicate.
type labels struct {
	values []string
	line   []byte   // the first of row.lines; nil until the series is written
	lines  [][]byte // the others, of a histogram
	stood  uint64   // the last pass that contained them
	// counter is the one of this pass, until its start timestamp is set.
	counter *dto.Counter
}

// spareSeries is how many removed series a row caches in addition to as many as it has.
const spareSeries = 64

func (s *series) begin(building uint64) {
	s.building, s.next, s.now = building, 0, s.now[:0]
}

func (s *series) end() {
	s.order, s.now = s.now, s.order
	for i, k := range s.order {
		k.at = i
	}
	if len(s.byValues) <= 2*len(s.order)+spareSeries {
		return
	}
	s.byValues = make(map[uint64]*known, len(s.order))
	for _, k := range s.order {
		s.keep(k)
		if like := k.like; like != nil && s.find(like.values) == nil {
			s.keep(like)
		}
	}
}

// labels returns the labels of a series, and whether it is the first with them in this pass.
func (s *series) labels(values []string) (*labels, bool) {
	k := s.find(values)
	if k == nil {
		k = s.learn(values)
	}
	if k.labels.stood == s.building {
		return nil, false
	}
	k.labels.stood = s.building
	s.next = k.at + 1
	s.now = append(s.now, k)
	return k.labels, true
}

func (s *series) find(values []string) *known {
	if s.next < len(s.order) && slices.Equal(s.order[s.next].values, values) {
		return s.order[s.next]
	}
	for k := s.byValues[s.hash(values)]; k != nil; k = k.sibling {
		if slices.Equal(k.values, values) {
			return k
		}
	}
	return nil
}

// learn adds a series to the cache.
func (s *series) learn(values []string) *known {
	exposed := make([]string, len(values))
	for i, v := range values {
		exposed[i] = gpu.Printable(v)
	}
	if !slices.Equal(exposed, values) {
		k := &known{values: slices.Clone(values), at: len(s.order)}
		// Its exposed values equal those of another series.
		like := s.find(exposed)
		if like == nil {
			like = s.learn(exposed)
		}
		k.like, k.labels = like, like.labels
		s.keep(k)
		return k
	}
	both := &struct {
		known
		labels labels
	}{known{values: exposed, at: len(s.order)}, labels{values: exposed}}
	both.known.labels = &both.labels
	s.keep(&both.known)
	return &both.known
}

func (s *series) keep(k *known) {
	if s.byValues == nil {
		s.byValues = map[uint64]*known{}
	}
	h := s.hash(k.values)
	k.sibling = s.byValues[h]
	s.byValues[h] = k
}

func (s *series) hash(values []string) uint64 {
	var h maphash.Hash
	h.SetSeed(s.seed)
	for _, v := range values {
		h.WriteString(v)
		h.WriteByte(0xff)
	}
	return h.Sum64()
}
