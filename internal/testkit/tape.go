package testkit

import (
	"encoding/binary"
	"math"
)

// Tape gives out numbers from the bytes of a fuzzer; 0 when they are used up.
type Tape []byte

// Byte is the next byte.
func (t *Tape) Byte() byte {
	if len(*t) == 0 {
		return 0
	}
	c := (*t)[0]
	*t = (*t)[1:]
	return c
}

// Word is of the next eight bytes, the lowest first.
func (t *Tape) Word() uint64 {
	var w [8]byte
	n := copy(w[:], *t)
	*t = (*t)[n:]
	return binary.LittleEndian.Uint64(w[:])
}

// Float is any number that a driver's bits may make, mostly a sane one.
func (t *Tape) Float() float64 {
	switch t.Byte() % 4 {
	case 0:
		return math.Float64frombits(t.Word())
	case 1:
		return float64(t.Word())
	default:
		return float64(t.Byte()) * 1.7
	}
}
