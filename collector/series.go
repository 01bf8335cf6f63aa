package collector

import (
	"hash/maphash"
	"slices"
	"strings"

	dto "github.com/prometheus/client_model/go"

	"github.com/gpu-exporter/gpu-exporter/internal/catalog"
)

// series is what is known of the series of one row: their labels as they are exposed. Readers go through a node in
// the same order each time, so that a series is mostly the one that followed the last one the time before.
type series struct {
	building uint64   // the rendering under way
	order    []*known // of the last rendering
	next     int      // in order: the one that is expected
	now      []*known // of this one
	byValues map[uint64]*known
	seed     maphash.Seed
}

// known is one series.
type known struct {
	values  []string // as the reader gives them
	labels  *labels
	like    *known // the one whose values are these as they are exposed; nil: itself
	at      int    // in series.order
	sibling *known // another with the same hash
}

// labels are those of one series as they are exposed. Two series that readers tell apart may share them, as bytes that
// are not UTF-8 are exposed as one and the same character: then the second is one that stands already.
type labels struct {
	pairs []*dto.LabelPair
	stood uint64 // the last rendering in which they stood
}

// spareSeries is how many series that are gone a row remembers besides as many as it has.
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

// labels returns the labels of a series in alphabetical order, and whether it stands once in this rendering so far.
func (s *series) labels(r *row, shared pairs, values []string) ([]*dto.LabelPair, bool) {
	k := s.find(values)
	if k == nil {
		k = s.learn(r, shared, values)
	}
	if k.labels.stood == s.building {
		return nil, false
	}
	k.labels.stood = s.building
	s.next = k.at + 1
	s.now = append(s.now, k)
	return k.labels.pairs, true
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

// learn makes a series known.
func (s *series) learn(r *row, shared pairs, values []string) *known {
	exposed := make([]string, len(values))
	for i, v := range values {
		exposed[i] = strings.ToValidUTF8(v, "\uFFFD")
	}
	k := &known{values: slices.Clone(values), at: len(s.order)}
	if !slices.Equal(exposed, values) {
		// Its labels are those of the series whose values are written so.
		like := s.find(exposed)
		if like == nil {
			like = s.learn(r, shared, exposed)
		}
		k.like, k.labels = like, like.labels
		s.keep(k)
		return k
	}
	k.labels = &labels{pairs: make([]*dto.LabelPair, 0, len(values))}
	for _, i := range r.order {
		if values[i] != "" || r.Scope != catalog.ScopeForeign {
			k.labels.pairs = append(k.labels.pairs, shared.pair(r.labels[i], k.values[i]))
		}
	}
	s.keep(k)
	return k
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

// pairs are the pairs of a label and a value, which many series share.
type pairs map[[2]string]*dto.LabelPair

// maxPairs bounds the memory of pairs: beyond it the memory starts anew. A node of 16 GPUs and some hundred pods
// needs a few thousand.
const maxPairs = 65536

func (p pairs) pair(name, value string) *dto.LabelPair {
	key := [2]string{name, value}
	if known, ok := p[key]; ok {
		return known
	}
	made := &dto.LabelPair{Name: new(name), Value: new(value)}
	p[key] = made
	return made
}

func (p pairs) bound() {
	if len(p) > maxPairs {
		clear(p)
	}
}
