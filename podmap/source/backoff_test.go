package source

import (
	"hash/maphash"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// The mean doubles with every failure, from the first to the longest; a jitter of 0 is half of it, and one of almost 1
// three halves.
func TestBackoff(t *testing.T) {
	const s = time.Second
	for _, c := range []struct {
		failures             int
		first, longest, mean time.Duration
	}{{0, 2 * s, 60 * s, 2 * s}, {1, 2 * s, 60 * s, 2 * s}, {2, 2 * s, 60 * s, 4 * s}, {3, 2 * s, 60 * s, 8 * s}, {5, 2 * s, 60 * s,
		32 * s},
		{6, 2 * s, 60 * s, 60 * s}, {7, 2 * s, 60 * s, 60 * s}, {1 << 20, 2 * s, 60 * s, 60 * s}, {3, 2 * s, 8 * s, 8 * s},
		{4, 2 * s, 8 * s, 8 * s}, {1, 9 * s, 4 * s, 4 * s}, {3, 9 * s, 4 * s, 4 * s}} {
		for jitter, want := range map[float64]time.Duration{0: c.mean / 2, 0.25: c.mean * 3 / 4, 0.5: c.mean, 0.75: c.mean * 5 / 4} {
			if got := Backoff(c.failures, c.first, c.longest, func() float64 { return jitter }); got != want {
				t.Errorf("%+v, jitter %v: %v, want %v", c, jitter, got, want)
			}
		}
		if got := Backoff(c.failures, c.first, c.longest, func() float64 { return math.Nextafter(1, 0) }); got > c.mean*3/2 {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

// Sets are equal where the same IDs are in them, in whatever order and however often.
func TestIDSets(t *testing.T) {
	seed := maphash.MakeSeed()
	set := func(ids ...string) IDSet {
		var hashes []uint64
		for _, id := range ids {
			hashes = append(hashes, Hash(seed, id))
		}
		return NewIDSet(hashes)
	}
	random := rand.New(rand.NewPCG(1, 2))
	seen := map[IDSet]string{}
	for n := range 300 {
		var ids []string
		for i := range 8 {
			if n>>i&1 == 1 {
				ids = append(ids, string(rune('a'+i)))
			}
		}
		want := strings.Join(ids, "")
		shuffled := slices.Concat(ids, ids[:random.IntN(len(ids)+1)])
		random.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		s := set(shuffled...)
		if other, ok := seen[s]; ok && other != want || s.Len() != len(ids) || s != set(ids...) {
			t.Errorf("%q is %q, with %d IDs", shuffled, other, s.Len())
		}
		seen[s] = want
	}
	// Too long to be an ID: compared by the first 513 bytes, so that it never is an ID that is valid.
	long := strings.Repeat("x", 512)
	if Hash(seed, long) == Hash(seed, long+"y") || Hash(seed, long+"y") == Hash(seed, long+"z") || Hash(seed, long+"yz") != Hash(seed,
		long+"y") {
		t.Error("long IDs")
	}
}
