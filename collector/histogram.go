package collector

import (
	"slices"

	dto "github.com/prometheus/client_model/go"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// histogram renders a native histogram; the text format contains its count and sum.
func histogram(h gpu.Histogram) *dto.Histogram {
	out := &dto.Histogram{
		SampleCount: new(h.Count), SampleSum: new(h.Sum),
		Schema: new(int32(gpu.HistogramSchema)), ZeroThreshold: new(0.0), ZeroCount: new(h.Zero),
	}
	at := make([]int, 0, len(h.Buckets))
	for i := range h.Buckets {
		at = append(at, i)
	}
	slices.Sort(at)
	var previous int64
	for n, i := range at {
		switch {
		case n == 0:
			out.PositiveSpan = append(out.PositiveSpan, &dto.BucketSpan{Offset: new(int32(i)), Length: new(uint32(1))})
		case i == at[n-1]+1:
			*out.PositiveSpan[len(out.PositiveSpan)-1].Length++
		default:
			out.PositiveSpan = append(out.PositiveSpan,
				&dto.BucketSpan{Offset: new(int32(i - at[n-1] - 1)), Length: new(uint32(1))})
		}
		count := int64(h.Buckets[i])
		out.PositiveDelta = append(out.PositiveDelta, count-previous)
		previous = count
	}
	if len(at) == 0 {
		// An empty span distinguishes a native histogram without buckets from a classic one.
		out.PositiveSpan = []*dto.BucketSpan{{Offset: new(int32(0)), Length: new(uint32(0))}}
	}
	return out
}
