package demand

import (
	"math"

	"github.com/gpu-exporter/gpu-exporter/report/document"
	"github.com/gpu-exporter/gpu-exporter/report/series"
)

// plotPoints is the number of points of a workload's plot.
const plotPoints = 96

// Plot reduces a workload to few points: busy and observed GPUs, the activity of the busiest, memory, and allocated GPUs.
func Plot(p series.Period, busy, observed, busiest, memory, allocated *series.Track) *document.Plot {
	n := min(plotPoints, p.Steps())
	out := &document.Plot{Busy: make([]float64, n), Peak: make([]float64, n), Memory: make([]float64, n), GPUs: make([]float64, n)}
	for i := range n {
		from, to := i*p.Steps()/n, (i+1)*p.Steps()/n
		var used, known, gpus float64
		for k, v := range observed.Within(from, to) {
			if v > 0 {
				known += v
				used += busy.Or(k, 0)
			}
		}
		for _, v := range allocated.Within(from, to) {
			gpus += max(0, v)
		}
		largest := func(t *series.Track) float64 {
			m := -1.0
			for _, v := range t.Within(from, to) {
				m = max(m, v)
			}
			return m
		}
		out.Busy[i] = -1
		if known > 0 {
			out.Busy[i] = thousandths(min(1, used/known))
		}
		out.Peak[i], out.Memory[i] = thousandths(largest(busiest)), math.Round(largest(memory))
		out.GPUs[i] = thousandths(gpus / float64(to-from))
	}
	return out
}

func thousandths(x float64) float64 { return math.Round(x*1000) / 1000 }
