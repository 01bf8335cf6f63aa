package demand

import (
	"github.com/gpu-exporter/gpu-exporter/report/document"
	"github.com/gpu-exporter/gpu-exporter/report/series"
)

// Folds divide the second half of a number of steps into four.
func Folds(n int) (out []series.Span) {
	for i := range 4 {
		out = append(out, series.Span{From: n/2 + i*n/8, To: n/2 + (i+1)*n/8})
	}
	return out
}

// Validation adds up the folds in which something was recommended.
type Validation struct {
	folds, steps, train int
	exceeded, worst     float64
	size                string
}

// Add adds a fold with the fraction of it in which the demand exceeded the size.
func (v *Validation) Add(size string, f series.Span, exceeded float64) {
	v.folds++
	v.steps += f.Len()
	v.train, v.size = f.From, size
	v.exceeded += exceeded * float64(f.Len())
	v.worst = max(v.worst, exceeded)
}

// Result is nil if nothing was tested.
func (v *Validation) Result(p series.Period) *document.Validation {
	if v.steps == 0 {
		return nil
	}
	h := p.StepHours()
	return &document.Validation{Folds: v.folds, TrainHours: float64(v.train) * h, TestHours: float64(v.steps) * h, Size: v.size,
		Exceeded: v.exceeded / float64(v.steps), Worst: v.worst}
}
