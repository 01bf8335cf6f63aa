package collector

import (
	"hash/maphash"
	"slices"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// labelCache holds the labels of the rows that have the same ones.
type labelCache struct {
	seed           maphash.Seed
	byValues       map[uint64]*labels
	learned, known int // since the last forget, and after it
}

// spareLabels is how many labels that no series has any more are cached in addition to as many as are in use.
const spareLabels = 64

func newLabelCache() *labelCache {
	return &labelCache{seed: maphash.MakeSeed(), byValues: map[uint64]*labels{}}
}

func (c *labelCache) get(values []string) *labels {
	h := c.hash(values)
	for l := c.byValues[h]; l != nil; l = l.sibling {
		if slices.Equal(l.values, values) {
			return l
		}
	}
	c.learned++
	l := &labels{values: slices.Clone(values), sibling: c.byValues[h]}
	l.shown = l
	c.byValues[h] = l
	if slices.ContainsFunc(values, func(v string) bool { return gpu.Printable(v) != v }) {
		exposed := slices.Clone(values)
		for i, v := range exposed {
			exposed[i] = gpu.Printable(v)
		}
		l.shown = c.get(exposed)
	}
	return l
}

// forget removes labels that no reading since one contained, if there are many.
func (c *labelCache) forget(since uint64) {
	if c.learned <= c.known+spareLabels {
		return
	}
	c.learned, c.known = 0, 0
	all := c.byValues
	c.byValues = make(map[uint64]*labels, len(all))
	for h, l := range all {
		for l != nil {
			next := l.sibling
			if l.stood >= since {
				l.sibling, c.byValues[h] = c.byValues[h], l
				c.known++
			}
			l = next
		}
	}
}

func (c *labelCache) hash(values []string) uint64 {
	var h maphash.Hash
	h.SetSeed(c.seed)
	for _, v := range values {
		h.WriteString(v)
		h.WriteByte(0xff)
	}
	return h.Sum64()
}
