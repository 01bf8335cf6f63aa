package main

import (
	"encoding/binary"
	"math"
	"testing"
)

// wire builds protobuf messages, for the decoder to read.
type wire []byte

func (w wire) number(field int, v uint64) wire {
	return binary.AppendUvarint(binary.AppendUvarint(w, uint64(field)<<3), v)
}

func (w wire) signed(field int, v int64) wire { return w.number(field, uint64(v)<<1^uint64(v>>63)) }

func (w wire) double(field int, v float64) wire {
	return binary.LittleEndian.AppendUint64(binary.AppendUvarint(w, uint64(field)<<3|1), math.Float64bits(v))
}

func (w wire) message(field int, m []byte) wire {
	return append(binary.AppendUvarint(binary.AppendUvarint(w, uint64(field)<<3|2), uint64(len(m))), m...)
}

func (w wire) text(field int, s string) wire { return w.message(field, []byte(s)) }

func label(name, value string) wire { return wire(nil).text(1, name).text(2, value) }

// family is one delimited MetricFamily with one histogram.
func family(name string, h wire) []byte {
	metric := wire(nil).message(1, label("node", "n")).message(1, label("call", "nvmlInit")).message(7, h)
	m := wire(nil).text(1, name).text(2, "help").number(3, 4).message(4, metric)
	return append(binary.AppendUvarint(nil, uint64(len(m))), m...)
}

// tenCalls has one zero, two in bucket -5, three in -4, none in -3, four in 7.
func tenCalls(packed bool) wire {
	h := wire(nil).number(1, 10).double(2, 1.5).signed(5, 3).double(6, 0).number(7, 1).
		message(12, wire(nil).signed(1, -5).number(2, 2)).message(12, wire(nil).signed(1, 10).number(2, 1))
	deltas := []int64{2, 1, 1}
	if !packed {
		for _, d := range deltas {
			h = h.signed(13, d)
		}
		return h
	}
	var all []byte
	for _, d := range deltas {
		all = binary.AppendUvarint(all, uint64(d)<<1)
	}
	return h.message(13, all)
}

func TestDurations(t *testing.T) {
	for _, packed := range []bool{false, true} {
		body := append(family("something_else", tenCalls(packed)), family(durationsFamily, tenCalls(packed))...)
		got, err := decodeDurations(body)
		if err != nil {
			t.Fatal(err)
		}
		h := got["nvmlInit"]
		if len(got) != 1 || h.count != 10 || h.sum != 1.5 || h.schema != 3 || h.zero != 1 || len(h.buckets) != 3 ||
			h.buckets[-5] != 2 || h.buckets[-4] != 3 || h.buckets[7] != 4 {
			t.Errorf("packed %v: %+v", packed, got)
		}
		if _, err := decodeDurations(body[:len(body)-1]); err == nil {
			t.Error("a body that is cut short is read")
		}
	}
}

func TestQuantiles(t *testing.T) {
	h := histogram{count: 10, sum: 1.5, schema: 3, zero: 1, buckets: map[int]int64{-5: 2, -4: 3, 7: 4}}
	for q, want := range map[float64]float64{0.05: 0, 0.3: math.Exp2(-5.0 / 8), 0.6: math.Exp2(-4.0 / 8), 0.8: math.Exp2(6.5 / 8), 1: math.Exp2(7.0 / 8)} {
		if got := h.quantile(q); math.Abs(got-want) > 1e-12 {
			t.Errorf("quantile %v: %v, want %v", q, got, want)
		}
	}
	later := histogram{count: 14, sum: 2, schema: 3, zero: 1, buckets: map[int]int64{-5: 2, -4: 3, 7: 7, 8: 1}}
	d := later.less(h)
	if d.count != 4 || d.sum != 0.5 || d.zero != 0 || len(d.buckets) != 2 || d.buckets[7] != 3 || d.mean() != 0.125 {
		t.Errorf("%+v", d)
	}
	if !math.IsNaN((histogram{}).quantile(0.5)) || microseconds((histogram{}).mean()) != "" {
		t.Error("an empty histogram has a quantile")
	}
}

func FuzzDurations(f *testing.F) {
	f.Add(family(durationsFamily, tenCalls(true)))
	f.Add(family(durationsFamily, tenCalls(false)))
	f.Fuzz(func(t *testing.T, body []byte) {
		got, err := decodeDurations(body)
		if err != nil {
			return
		}
		for _, h := range got {
			h.quantile(0.99)
		}
	})
}
