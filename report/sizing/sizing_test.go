package sizing

import (
	"math"
	"strings"
	"testing"

	"github.com/gpu-exporter/gpu-exporter/report/mig"
)

const gib = 1 << 30

// TestFit compares the size for a demand, or the reason for none, with what was computed by hand: an H100 with 80 GiB has
// sevenths of compute; headroom is a quarter of the activity and a tenth of the memory.
func TestFit(t *testing.T) {
	h100, ok := mig.For("NVIDIA H100 80GB HBM3", 0)
	if !ok {
		t.Fatal("no table")
	}
	whole := Current{Sharing: "whole", GPU: h100, Total: 80 * gib}
	plain := Current{Sharing: "whole", Total: 80 * gib}
	several := Current{Sharing: "whole", GPU: h100, Total: 80 * gib, Several: true}
	half := Current{Sharing: "mig", Profile: "3g.40gb", GPU: h100, Total: 80 * gib}
	for _, tt := range []struct {
		name    string
		now     Current
		demand  Demand
		size    string // empty: none, for the reason
		reason  string
		part    float64
		limit   float64
		smaller string
	}{
		// 1/7 is 14.3 %: 11.4 % with headroom fit, 11.5 % do not.
		{"a seventh", whole, Demand{High: 0.114, Memory: 8 * gib}, "1g.10gb", "", 1. / 7, 1. / 7,
			"1g.10gb is the smallest profile. The next larger is 1g.20gb."},
		{"more than a seventh", whole, Demand{High: 0.115, Memory: 8 * gib}, "2g.20gb", "", 1. / 3, 2. / 7,
			"Not 1g.20gb: it has 14 % of the GPU's compute, and it needs 14 % with headroom. The next larger is 3g.40gb."},
		{"a higher minute", whole, Demand{High: 0.05, Minute: 0.2}, "2g.20gb", "", 1. / 3, 2. / 7, "Not 1g.20gb: it has 14 %"},
		{"memory of 9.06 GiB", whole, Demand{High: 0.1, Memory: 9.06 * gib}, "1g.20gb", "", 1. / 4, 1. / 7,
			"Not 1g.10gb: it has 9.8 GiB, and the memory needed is 9.1 GiB. The next larger is 2g.20gb."},
		{"memory of 8.8 GiB", whole, Demand{High: 0.1, Memory: 8.8 * gib}, "1g.10gb", "", 1. / 7, 1. / 7, ""},
		{"bursts", whole, Demand{High: 0.1, Burst: 0.4, Bursts: true, Memory: gib}, "3g.40gb", "", 1. / 2, 3. / 7,
			"Not 2g.20gb: it has 29 % of the GPU's compute, and its bursts use 40 % within seconds, and would take longer."},
		{"bursts that fill the GPU are time-sliced", whole, Demand{High: 0.1, Burst: 1, Bursts: true, Memory: gib}, "1/4 of a GPU", "",
			1. / 4, 1. / 4, "Not more than 4 on one GPU before a trial."},
		{"a quarter", plain, Demand{High: 0.2, Memory: 17 * gib}, "1/4 of a GPU", "", 1. / 4, 1. / 4, "Not more than 4"},
		{"a third", plain, Demand{High: 0.201, Memory: 17 * gib}, "1/3 of a GPU", "", 1. / 3, 1. / 3,
			"Not 1/4: it needs 25 % with headroom."},
		{"a third by memory", plain, Demand{High: 0.1, Memory: 17.5 * gib}, "1/3 of a GPU", "", 1. / 3, 1. / 3,
			"Not 1/4: its memory of 17.5 GiB does not fit."},
		{"a half by memory", plain, Demand{High: 0.24, Memory: 30 * gib}, "1/2 of a GPU", "", 1. / 2, 1. / 2,
			"Not 1/3: its memory of 30.0 GiB does not fit."},
		{"a half", plain, Demand{High: 0.4, Memory: gib}, "1/2 of a GPU", "", 1. / 2, 1. / 2, "Not 1/3: it needs 50 % with headroom."},
		{"more than a half", plain, Demand{High: 0.41, Memory: gib}, "", "peaks_too_high", 0, 0, "it needs 51 % of its allocation"},
		{"far more", plain, Demand{High: 0.9, Memory: gib}, "", "peaks_too_high", 0, 0, "it needs 100 % of its allocation"},
		{"much memory", plain, Demand{High: 0.1, Memory: 35 * gib}, "", "memory_too_high", 0, 0, "its memory of 35.0 GiB needs the GPU"},
		{"much memory, MIG and shares", whole, Demand{High: 0.1, Memory: 60 * gib}, "", "memory_too_high", 0, 0, "60.0 GiB"},
		{"preallocated", whole, Demand{High: 0.1, Memory: 72 * gib, Preallocated: true}, "1/4 of a GPU", "", 1. / 4, 1. / 4,
			"Not more than 4"},
		{"preallocated and busier", whole, Demand{High: 0.3, Memory: 72 * gib, Preallocated: true}, "1/2 of a GPU", "", 1. / 2, 1. / 2,
			"Not 1/3: it needs 38 %"},
		{"preallocated and too busy", whole, Demand{High: 0.45, Memory: 72 * gib, Preallocated: true}, "", "peaks_too_high", 0, 0, ""},
		{"several GPUs get no profile", several, Demand{High: 0.1, Memory: 5 * gib}, "1/4 of a GPU", "", 1. / 4, 1. / 4, ""},
		{"shared", Current{Sharing: "shared"}, Demand{}, "", "already_shared", 0, 0, ""},
		// A third of three sevenths, with headroom, is 0.16 of the GPU.
		{"of a MIG device", half, Demand{High: 0.3, Memory: 5 * gib}, "2g.20gb", "", 2. / 3, 2. / 3,
			"Not 1g.20gb: it has 14 % of the GPU's compute, and it needs 16 %"},
		{"a small one of a MIG device", half, Demand{High: 0.2, Memory: 5 * gib}, "1g.10gb", "", 2. / 7, 1. / 3,
			"1g.10gb is the smallest"},
		{"a busy MIG device", half, Demand{High: 0.6, Memory: 5 * gib}, "", "peaks_too_high", 0, 0, "it needs 75 %"},
		{"a full MIG device", half, Demand{High: 0.1, Memory: 30 * gib}, "", "memory_too_high", 0, 0,
			"no smaller profile fits its memory of 30.0 GiB"},
		{"a preallocated MIG device", half, Demand{High: 0.1, Preallocated: true}, "", "memory_too_high", 0, 0, "allocated at the start"},
		{"an unknown profile", Current{Sharing: "mig", Profile: "9g.1tb", GPU: h100}, Demand{}, "", "activity_unknown", 0, 0, "profile"},
		{"an unknown model", Current{Sharing: "mig", Profile: "3g.40gb"}, Demand{}, "", "activity_unknown", 0, 0, "no such model"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			size, reason := tt.now.Fit(tt.demand)
			if size == nil {
				if tt.size != "" || reason.Code != tt.reason || !strings.Contains(reason.Text, tt.smaller) {
					t.Errorf("no size: %+v", reason)
				}
				return
			}
			if size.Name() != tt.size || math.Abs(size.Part-tt.part) > 1e-9 || math.Abs(size.Limit-tt.limit) > 1e-9 ||
				!strings.HasPrefix(size.Smaller, tt.smaller) {
				t.Errorf("%+v", size)
			}
			if memory := size.Memory; tt.demand.Preallocated != (memory == 0) ||
				size.Replicas > 0 && !tt.demand.Preallocated && math.Abs(memory-tt.now.Total/float64(size.Replicas)) > 1 {
				t.Errorf("memory %v", memory)
			}
		})
	}
}
