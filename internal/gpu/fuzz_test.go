package gpu

import (
	"math"
	"regexp"
	"strings"
	"testing"
)

// FuzzParsePCIAddress: what is read is spelled as Linux does, whatever the case, and reads as itself.
func FuzzParsePCIAddress(f *testing.F) {
	for _, s := range []string{"00000000:18:00.0", "0000:18:00", "18:00.0", "10000:E1:1F.7", "0000:18:20.0", "", "::", " 0:0:0.0 "} {
		f.Add(s)
	}
	spelling := regexp.MustCompile(`^[0-9a-f]{4,8}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7]$`)
	f.Fuzz(func(t *testing.T, s string) {
		p, err := ParsePCIAddress(s)
		if err != nil {
			if p != "" {
				t.Errorf("%q: an error and %q", s, p)
			}
			return
		}
		if !spelling.MatchString(string(p)) {
			t.Errorf("%q is read as %q", s, p)
		}
		for _, again := range []string{string(p), strings.ToUpper(string(p)), "\t" + string(p) + "\n"} {
			if q, err := ParsePCIAddress(again); err != nil || q != p {
				t.Errorf("%q is read as %q, and %q as %q, %v", s, p, again, q, err)
			}
		}
	})
}

// FuzzObserver: each value that is a duration lies in one bucket, within its bounds; nothing else is counted.
func FuzzObserver(f *testing.F) {
	for _, v := range []float64{0, 1, 0.5, math.Nextafter(0.5, 1), 1e-9, 3600, math.MaxFloat64, math.SmallestNonzeroFloat64, -1,
		math.Inf(1), math.NaN()} {
		f.Add(v, v/3)
	}
	f.Fuzz(func(t *testing.T, a, b float64) {
		var o Observer
		want := uint64(0)
		for _, v := range []float64{a, b} {
			o.Observe(v)
			if v >= 0 && !math.IsInf(v, 1) {
				want++
			}
			if v > 1e-300 && !math.IsInf(v, 1) { // below, neighboring bounds are one number
				i := bucketOf(v)
				if low, high := math.Exp2(float64(i-1)/8), math.Exp2(float64(i)/8); !(v > low && v <= high) {
					t.Errorf("%v is put between %v and %v", v, low, high)
				}
			}
		}
		h := o.Snapshot()
		sum := h.Zero
		for _, b := range h.Buckets {
			sum += b.Count
		}
		if h.Count != want || sum != want || math.IsNaN(h.Sum) || h.Sum < 0 {
			t.Errorf("%v and %v make %+v", a, b, h)
		}
	})
}
