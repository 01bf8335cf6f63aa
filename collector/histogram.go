package collector

import (
	dto "github.com/prometheus/client_model/go"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// histogram renders a native histogram; the text format contains its count and sum.
func histogram(h gpu.Histogram) *dto.Histogram {
	out := &dto.Histogram{
		SampleCount: new(h.Count), SampleSum: new(h.Sum),
		Schema: new(int32(gpu.HistogramSchema)), ZeroThreshold: new(0.0), ZeroCount: new(h.Zero),
	}
	var previous gpu.Bucket
	for n, b := range h.Buckets {
		switch {
		case n == 0:
			out.PositiveSpan = append(out.PositiveSpan, &dto.BucketSpan{Offset: new(int32(b.Index)), Length: new(uint32(1))})
		case b.Index == previous.Index+1:
			*out.PositiveSpan[len(out.PositiveSpan)-1].Length++
		default:
			out.PositiveSpan = append(out.PositiveSpan,
				&dto.BucketSpan{Offset: new(int32(b.Index - previous.Index - 1)), Length: new(uint32(1))})
		}
		out.PositiveDelta = append(out.PositiveDelta, int64(b.Count)-int64(previous.Count))
		previous = b
	}
	if len(h.Buckets) == 0 {
		// An empty span distinguishes a native histogram without buckets from a classic one.
		out.PositiveSpan = []*dto.BucketSpan{{Offset: new(int32(0)), Length: new(uint32(0))}}
	}
	return out
}
