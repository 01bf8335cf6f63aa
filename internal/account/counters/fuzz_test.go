package counters

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/gpu-exporter/gpu-exporter/internal/testkit"
)

// FuzzCounter: whatever the driver says, and however often it restarts, the sum never falls, and grows by no more than
// hardware can do, garbage that agrees with itself apart.
func FuzzCounter(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{2, 10, 1, 0, 2, 20, 1, 0, 2, 30, 1, 0, 0, 255, 255, 255, 255, 255, 255, 255, 127, 1, 0, 2, 40, 1, 1})
	f.Add([]byte("\x01\xf0\xff\xff\xff\x00\x00\x00\x00\x05\x00\x02\x05\x05\x00\x02\x06\x05\x01"))
	random := rand.NewChaCha8([32]byte{1, 2})
	for range 500 {
		b := make([]byte, 400)
		random.Read(b)
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, kind := range []Kind{Energy, PCIe, NVLink, LimitedTime} {
			in := testkit.Tape(data)
			var c Counter
			begun := false
			for len(in) > 0 {
				v, elapsed, fresh := in.Float(), float64(in.Byte())/4, in.Byte()%4 == 0
				before := c.Total
				step, ok := c.Add(kind, v, elapsed, fresh)
				maxRate := kind.MaxRate * (elapsed + leeway)
				switch {
				case step < 0 || math.IsNaN(step) || math.IsInf(c.Total, 0) || math.IsNaN(c.Total):
					t.Fatalf("%v after %v s: a step of %v to %v", v, elapsed, step, c.Total)
				case !ok && step != 0:
					t.Fatalf("%v after %v s is refused, and is a step of %v", v, elapsed, step)
				case begun && c.Total < before:
					t.Fatalf("%v after %v s: it fell from %v to %v", v, elapsed, before, c.Total)
				case begun && c.Total-before > maxRate*(1+1e-9)+2*(math.Nextafter(c.Total, math.Inf(1))-c.Total):
					t.Fatalf("%v after %v s: it grew by %v, and no hardware does more than %v", v, elapsed, c.Total-before, maxRate)
				}
				begun = begun || c.Seen
			}
		}
	})
}
