package nvml

import (
	"encoding/binary"
	"fmt"
	"math"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

func TestValue(t *testing.T) {
	raw := func(n uint64) (b [8]byte) { binary.NativeEndian.PutUint64(b[:], n); return b }
	for _, c := range []struct {
		name     string
		v        value
		number   float64
		isNumber bool
		count    uint64
		isCount  bool
	}{
		{"double", value{kind: nvml.VALUE_TYPE_DOUBLE, raw: raw(math.Float64bits(2.5))}, 2.5, true, 2, true},
		{"not a number", value{kind: nvml.VALUE_TYPE_DOUBLE, raw: raw(math.Float64bits(math.NaN()))}, 0, false, 0, false},
		{"negative double", value{kind: nvml.VALUE_TYPE_DOUBLE, raw: raw(math.Float64bits(-1))}, -1, true, 0, false},
		{"large double", value{kind: nvml.VALUE_TYPE_DOUBLE, raw: raw(math.Float64bits(1 << 63))}, 1 << 63, true, 1 << 63, true},
		{"larger double", value{kind: nvml.VALUE_TYPE_DOUBLE, raw: raw(math.Float64bits(1.5e19))}, 1.5e19, true, 0, false},
		{"unsigned int", value{kind: nvml.VALUE_TYPE_UNSIGNED_INT, raw: raw(0xdeadbeef_00000007)}, 7, true, 7, true},
		{"unsigned long", value{kind: nvml.VALUE_TYPE_UNSIGNED_LONG, raw: raw(1 << 40)}, 1 << 40, true, 1 << 40, true},
		{"unsigned long long", value{kind: nvml.VALUE_TYPE_UNSIGNED_LONG_LONG, raw: raw(math.MaxUint64)}, math.MaxUint64, true,
			math.MaxUint64, true},
		{"signed long long", value{kind: nvml.VALUE_TYPE_SIGNED_LONG_LONG, raw: raw(math.MaxUint64)}, -1, true, 0, false},
		{"signed int", value{kind: nvml.VALUE_TYPE_SIGNED_INT, raw: raw(0xfffffff8)}, -8, true, 0, false},
		{"unsigned short", value{kind: nvml.VALUE_TYPE_UNSIGNED_SHORT, raw: raw(0xffff0003)}, 3, true, 3, true},
		{"sum", summed(1 << 50), 1 << 50, true, 1 << 50, true},
		{"unknown type", value{kind: 99, raw: raw(1)}, 0, false, 0, false},
	} {
		if f, ok := c.v.number(); ok != c.isNumber || ok && f != c.number {
			t.Errorf("%s: number %v, %v", c.name, f, ok)
		}
		if n, ok := c.v.count(); ok != c.isCount || n != c.count {
			t.Errorf("%s: count %v, %v", c.name, n, ok)
		}
	}
}

func TestProfileOf(t *testing.T) {
	for name, want := range map[string]string{
		"NVIDIA A100-SXM4-40GB MIG 1g.5gb":     "1g.5gb",
		"NVIDIA A100-SXM4-40GB MIG 1c.3g.20gb": "3g.20gb",
		"NVIDIA H100 80GB HBM3 MIG 1g.10gb+me": "1g.10gb+me",
		"NVIDIA H100 80GB HBM3":                "",
		"MIG ":                                 "",
	} {
		if got := profileOf(name); got != want {
			t.Errorf("%q: got %q, want %q", name, got, want)
		}
	}
}

func TestFaultsOf(t *testing.T) {
	for mask, want := range map[uint32]string{0: "map[]", 1 << 8: "map[incorrect_configuration:false]",
		// Bandwidth degraded, no route recovery, unhealthy routes not reported, access timeout, wrong partition.
		1 | 2<<2 | 0<<4 | 1<<6 | 4<<8: "map[access_timeout:true degraded_bandwidth:true incorrect_configuration:true " +
			"route_recovery:false]"} {
		if got := fmt.Sprint(faultsOf(mask)); got != want {
			t.Errorf("%#x: %s, want %s", mask, got, want)
		}
	}
}
