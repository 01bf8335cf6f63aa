package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math"
	"slices"
)

// histogram is a native histogram: bucket i of schema s counts the values in (2^((i-1)/2^s), 2^(i/2^s)].
type histogram struct {
	count   uint64
	sum     float64
	schema  int
	zero    uint64
	buckets map[int]int64
}

// less returns what was added to h since earlier.
func (h histogram) less(earlier histogram) histogram {
	d := histogram{count: h.count - earlier.count, sum: h.sum - earlier.sum, schema: h.schema, zero: h.zero - earlier.zero, buckets: map[int]int64{}}
	for i, n := range h.buckets {
		if n -= earlier.buckets[i]; n > 0 {
			d.buckets[i] = n
		}
	}
	return d
}

// mean is in seconds; NaN of an empty histogram.
func (h histogram) mean() float64 { return h.sum / float64(h.count) }

// quantile is in seconds, within the width of a bucket, which at schema 3 is 9 %; NaN of an empty histogram.
func (h histogram) quantile(q float64) float64 {
	if h.count == 0 {
		return math.NaN()
	}
	rank := q * float64(h.count)
	seen := float64(h.zero)
	if rank <= seen {
		return 0
	}
	grow := math.Exp2(-float64(h.schema))
	last := 0.0
	for _, i := range slices.Sorted(maps.Keys(h.buckets)) {
		n := float64(h.buckets[i])
		last = math.Exp2(float64(i) * grow)
		if seen+n >= rank {
			// Even on the logarithmic scale, as the buckets are.
			return math.Exp2((float64(i) - 1 + (rank-seen)/n) * grow)
		}
		seen += n
	}
	return last
}

// durationsFamily is the native histogram of the driver's calls. The text format shows no more of it than sum
// and count; its buckets are in the protobuf format, of which this file reads the few fields that it needs
// (io.prometheus.client.MetricFamily, delimited by varint lengths).
const durationsFamily = "gpu_exporter_call_duration_seconds"

// decodeDurations returns the histograms of durationsFamily by the label call.
func decodeDurations(body []byte) (map[string]histogram, error) {
	out := map[string]histogram{}
	for len(body) > 0 {
		size, n := binary.Uvarint(body)
		if n <= 0 || size > uint64(len(body)-n) {
			return nil, errShort
		}
		message := body[n : n+int(size)]
		body = body[n+int(size):]
		if err := decodeFamily(message, out); err != nil {
			return nil, fmt.Errorf("the protobuf exposition: %w", err)
		}
	}
	return out, nil
}

func decodeFamily(message []byte, out map[string]histogram) error {
	var name string
	for f, err := range wireFields(message) {
		switch {
		case err != nil:
			return err
		case f.number == 1:
			name = string(f.bytes)
		case f.number == 4 && name == durationsFamily:
			call, h, err := decodeMetric(f.bytes)
			if err != nil {
				return err
			}
			out[call] = h
		}
	}
	return nil
}

func decodeMetric(message []byte) (call string, h histogram, err error) {
	for f, err := range wireFields(message) {
		switch {
		case err != nil:
			return "", h, err
		case f.number == 1: // a label
			var pair [3]string
			for part, err := range wireFields(f.bytes) {
				if err != nil {
					return "", h, err
				}
				if part.number < 3 {
					pair[part.number] = string(part.bytes)
				}
			}
			if pair[1] == "call" {
				call = pair[2]
			}
		case f.number == 7:
			if h, err = decodeHistogram(f.bytes); err != nil {
				return "", h, err
			}
		}
	}
	return call, h, nil
}

func decodeHistogram(message []byte) (histogram, error) {
	h := histogram{buckets: map[int]int64{}}
	var offsets, lengths, deltas []int64
	for f, err := range wireFields(message) {
		if err != nil {
			return h, err
		}
		switch f.number {
		case 1:
			h.count = f.varint
		case 2:
			h.sum = math.Float64frombits(f.varint)
		case 5:
			h.schema = int(zigzag(f.varint))
		case 7:
			h.zero = f.varint
		case 12: // a span: how far from the last one, how many buckets
			var offset, length int64
			for part, err := range wireFields(f.bytes) {
				switch {
				case err != nil:
					return h, err
				case part.number == 1:
					offset = zigzag(part.varint)
				case part.number == 2:
					length = int64(part.varint)
				}
			}
			offsets, lengths = append(offsets, offset), append(lengths, length)
		case 13: // each bucket's count less that of the one before; packed, or one by one
			if f.bytes == nil {
				deltas = append(deltas, zigzag(f.varint))
			}
			for rest := f.bytes; len(rest) > 0; {
				v, n := binary.Uvarint(rest)
				if n <= 0 {
					return h, errShort
				}
				deltas, rest = append(deltas, zigzag(v)), rest[n:]
			}
		}
	}
	var at, count int64
	for i, offset := range offsets {
		at += offset
		for range min(lengths[i], int64(len(deltas))) {
			count += deltas[0]
			deltas = deltas[1:]
			h.buckets[int(at)] = count
			at++
		}
	}
	return h, nil
}

func zigzag(v uint64) int64 { return int64(v>>1) ^ -int64(v&1) }

var errShort = errors.New("a message ends before its end")

// wireField is one field of a protobuf message: its number and, by its type, the bytes or the number.
type wireField struct {
	number int
	varint uint64
	bytes  []byte
}

// wireFields walks through the fields of a message; the walk ends with the first error.
func wireFields(message []byte) iter.Seq2[wireField, error] {
	return func(yield func(wireField, error) bool) {
		for len(message) > 0 {
			key, n := binary.Uvarint(message)
			if n <= 0 {
				yield(wireField{}, errShort)
				return
			}
			message = message[n:]
			f := wireField{number: int(key >> 3)}
			var size int
			switch key & 7 {
			case 0:
				f.varint, size = binary.Uvarint(message)
			case 1:
				if size = 8; len(message) >= size {
					f.varint = binary.LittleEndian.Uint64(message)
				}
			case 2:
				length, n := binary.Uvarint(message)
				if n <= 0 || length > uint64(len(message)-n) {
					yield(f, errShort)
					return
				}
				size = n + int(length)
				f.bytes = message[n:size:size]
			case 5:
				if size = 4; len(message) >= size {
					f.varint = uint64(binary.LittleEndian.Uint32(message))
				}
			default:
				yield(f, fmt.Errorf("wire type %d", key&7))
				return
			}
			if size <= 0 || size > len(message) {
				yield(f, errShort)
				return
			}
			message = message[size:]
			if !yield(f, nil) {
				return
			}
		}
	}
}
