package gpu

import (
	"math"
	"slices"
	"testing"
)

func TestParsePCIAddress(t *testing.T) {
	for in, want := range map[string]PCIAddress{
		"00000000:18:00.0": "0000:18:00.0",
		"0000:18:00.0":     "0000:18:00.0",
		"0000:AF:1f.7":     "0000:af:1f.7",
		"18:00.0":          "0000:18:00.0",
		"0000:18:00":       "0000:18:00.0",
		"00010000:01:00.0": "10000:01:00.0",
	} {
		if got, err := ParsePCIAddress(in); err != nil || got != want {
			t.Errorf("%q: %q, %v; want %q", in, got, err, want)
		}
	}
	for _, in := range []string{"", ":", "::", "18", "0000:18:20.0", "0000:18:00.8", "0000:100:00.0", "0000:18:00.", "g:18:00.0",
		"0000:18:00.0:1", "000000001:18:00.0"} {
		if got, err := ParsePCIAddress(in); err == nil {
			t.Errorf("%q passed as %q", in, got)
		}
	}
}

func TestPrintable(t *testing.T) {
	for in, want := range map[string]string{
		"jupyter-amira": "jupyter-amira", "日本語 é": "日本語 é", "nul\x00and\x1b[2J\x7f": "nul␀and␛[2J␡",
		"a\nb\r\tc": "a␊b␍␉c", "abc\u202edcba\u2066x\u2028y": "abc\uFFFDdcba\uFFFDx\uFFFDy", "csi\u009b\xff\xfe": "csi\uFFFD\uFFFD",
	} {
		if got := Printable(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
	if got := PrintableText("a\tb\x1b\r\n"); got != "a\tb␛␍\n" {
		t.Errorf("%q", got)
	}
}

// Every bucket holds what lies above the bound of the bucket below and up to its own.
func TestHistogramBuckets(t *testing.T) {
	for i := -160; i <= 80; i++ {
		bound := math.Exp2(float64(i) / 8)
		if got := bucketOf(bound); got != i {
			t.Errorf("the bound of bucket %d falls into %d", i, got)
		}
		if got := bucketOf(math.Nextafter(bound, math.Inf(1))); got != i+1 {
			t.Errorf("just above the bound of bucket %d falls into %d", i, got)
		}
	}
}

func TestObserver(t *testing.T) {
	var o Observer
	for _, v := range []float64{0, 1, 1, -1, math.NaN(), math.Inf(1)} {
		o.Observe(v)
	}
	h := o.Snapshot()
	if h.Count != 3 || h.Sum != 2 || h.Zero != 1 || !slices.Equal(h.Buckets, []Bucket{{0, 2}}) {
		t.Errorf("%+v", h)
	}
	o.Observe(1)
	if h.Buckets[0].Count != 2 {
		t.Error("a snapshot changed after it was taken")
	}
	for _, v := range []float64{4, 0.5, 2} {
		o.Observe(v)
	}
	if h := o.Snapshot(); !slices.Equal(h.Buckets, []Bucket{{-8, 1}, {0, 3}, {8, 1}, {16, 1}}) {
		t.Errorf("%+v", h)
	}
}

func TestXIDTiers(t *testing.T) {
	for xid, want := range map[int]XIDTier{79: XIDCritical, 48: XIDCritical, 13: XIDApplication, 31: XIDApplication, 43: XIDInfo,
		94: XIDWarning, 145: XIDWarning, 165: XIDWarning, 9999: XIDWarning} {
		if got := XIDTierOf(xid); got != want {
			t.Errorf("XID %d is %s, want %s", xid, got, want)
		}
	}
	for _, x := range XIDsFromZero() {
		if XIDTierOf(x) != XIDCritical {
			t.Errorf("XID %d starts at 0 and is %s", x, XIDTierOf(x))
		}
	}
}

func TestInventoryLookups(t *testing.T) {
	inv := &Inventory{GPUs: []InventoryGPU{
		{UUID: "GPU-a", Index: 0, Minor: Some(3)},
		{UUID: "GPU-b", Index: 1, Minor: Some(0), Instances: []Instance{{UUID: "MIG-1", GI: 7,
			Compute: []ComputeInstance{{UUID: "MIG-1"}, {UUID: "MIG-2", CI: 1}}}}},
	}}
	if c, ok := inv.ByMinor(0); !ok || c.UUID != "GPU-b" {
		t.Errorf("minor 0 is %v", c)
	}
	if _, ok := inv.ByMinor(1); ok {
		t.Error("a minor that is not there was found")
	}
	if c, in, ok := inv.ByInstance("MIG-2"); !ok || c.UUID != "GPU-b" || in.GI != 7 {
		t.Errorf("the second compute instance: %v %v %v", c, in, ok)
	}
	var none *Inventory
	if _, ok := none.ByUUID("GPU-a"); ok {
		t.Error("no inventory has a GPU")
	}
}
