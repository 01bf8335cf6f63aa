package source

import (
	"hash/maphash"
	"slices"
)

// IDSet stands for a set of device IDs: equal sets are equal, and its size does not depend on theirs.
type IDSet struct {
	sum   uint64
	count int
}

// NewIDSet returns the set of IDs with these hashes. It sorts and compacts the slice.
func NewIDSet(hashes []uint64) IDSet {
	slices.Sort(hashes)
	hashes = slices.Compact(hashes)
	s := IDSet{count: len(hashes)}
	for _, h := range hashes {
		s.sum ^= h
	}
	return s
}

// Len is the number of IDs.
func (s IDSet) Len() int { return s.count }

// Hash returns the hash by which IDs are compared; one too long to be valid is compared by its beginning.
func Hash(seed maphash.Seed, id string) uint64 {
	return maphash.String(seed, id[:min(len(id), maxName+1)])
}
