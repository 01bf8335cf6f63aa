package fleet

import (
	"fmt"
	"math/rand/v2"
)

// stamp is a time in milliseconds, since 1970 if the fleet's epoch is DefaultEpoch. Integers keep sums over time
// exact.
type stamp int64

const (
	second stamp = 1000
	minute       = 60 * second
	hour         = 60 * minute
	day          = 24 * hour
)

func (s stamp) seconds() float64 { return float64(s) / 1000 }
func (s stamp) floor(d stamp) stamp {
	r := s % d
	if r < 0 {
		r += d
	}
	return s - r
}

// mix hashes several numbers into one (the finalizer of splitmix64).
func mix(keys ...uint64) uint64 {
	h := uint64(0x9e3779b97f4a7c15)
	for _, k := range keys {
		h ^= k
		h += 0x9e3779b97f4a7c15
		h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
		h = (h ^ h>>27) * 0x94d049bb133111eb
		h ^= h >> 31
	}
	return h
}

// newRandom returns a random source determined by the keys.
func newRandom(keys ...uint64) *rand.Rand {
	h := mix(keys...)
	return rand.New(rand.NewPCG(h, mix(h)))
}

// noise is a number in [0, 1) determined by the keys.
func noise(keys ...uint64) float64 { return float64(mix(keys...)>>11) / (1 << 53) }

// span is a range from which values are drawn.
type span[T stamp | float64] struct{ low, high T }

func (s span[T]) draw(r *rand.Rand) T { return s.low + T(r.Float64()*float64(s.high-s.low)) }

// uid formats a number as the UID of a Kubernetes object.
func uid(h uint64) string {
	l := mix(h)
	return fmt.Sprintf("%08x-%04x-4%03x-%04x-%012x", h>>32, h>>16&0xffff, h&0xfff, 0x8000|l>>48&0x3fff, l&0xffffffffffff)
}

// suffix formats a number as the suffix of a generated name, in the letters that Kubernetes uses.
func suffix(h uint64, n int) string {
	const letters = "bcdfghjklmnpqrstvwxz2456789"
	out := make([]byte, n)
	for i := range out {
		out[i] = letters[h%uint64(len(letters))]
		h /= uint64(len(letters))
	}
	return string(out)
}
