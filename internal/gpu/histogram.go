package gpu

import (
	"math"
	"slices"
	"sync"
)

// Observer collects a Histogram. It is safe for concurrent use.
type Observer struct {
	mu sync.Mutex // guards h
	h  Histogram
}

// Observe adds one value in seconds. Negative values and NaN are not counted.
func (o *Observer) Observe(v float64) {
	if !(v >= 0) || math.IsInf(v, 1) {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.h.Count++
	o.h.Sum += v
	if v == 0 {
		o.h.Zero++
		return
	}
	i := bucketOf(v)
	at, ok := slices.BinarySearchFunc(o.h.Buckets, i, func(b Bucket, i int) int { return b.Index - i })
	if !ok {
		o.h.Buckets = slices.Insert(o.h.Buckets, at, Bucket{Index: i})
	}
	o.h.Buckets[at].Count++
}

// Add adds the values of another histogram.
func (h *Histogram) Add(other Histogram) {
	h.Count, h.Sum, h.Zero = h.Count+other.Count, h.Sum+other.Sum, h.Zero+other.Zero
	for _, b := range other.Buckets {
		at, ok := slices.BinarySearchFunc(h.Buckets, b.Index, func(b Bucket, i int) int { return b.Index - i })
		if !ok {
			h.Buckets = slices.Insert(h.Buckets, at, Bucket{Index: b.Index})
		}
		h.Buckets[at].Count += b.Count
	}
}

// Snapshot returns a copy of the histogram.
func (o *Observer) Snapshot() Histogram {
	o.mu.Lock()
	defer o.mu.Unlock()
	h := o.h
	h.Buckets = slices.Clone(o.h.Buckets)
	return h
}

// bucketOf returns the i of which 2^((i-1)/8) < v <= 2^(i/8).
func bucketOf(v float64) int {
	i := int(math.Ceil(math.Log2(v) * 8))
	// The logarithm rounds, and may land one bucket off beside a bound.
	switch {
	case v <= math.Exp2(float64(i-1)/8):
		return i - 1
	case v > math.Exp2(float64(i)/8):
		return i + 1
	}
	return i
}
