package report

import (
	"github.com/gpu-exporter/gpu-exporter/report/document"
	"github.com/gpu-exporter/gpu-exporter/report/series"
)

// folds divide the second half of the period into four.
func (a *analysis) folds() (out []series.Span) {
	n := a.p.Steps()
	for i := range 4 {
		out = append(out, series.Span{From: n/2 + i*n/8, To: n/2 + (i+1)*n/8})
	}
	return out
}

// foldSum adds up the folds in which something was recommended.
type foldSum struct {
	folds, steps, train int
	exceeded, worst     float64
	size                string
}

// add adds a fold with the fraction of it in which the demand exceeded the size.
func (v *foldSum) add(size string, f series.Span, exceeded float64) {
	v.folds++
	v.steps += f.Len()
	v.train, v.size = f.From, size
	v.exceeded += exceeded * float64(f.Len())
	v.worst = max(v.worst, exceeded)
}

// validated is nil if nothing was tested.
func (a *analysis) validated(v *foldSum) *document.Validation {
	if v.steps == 0 {
		return nil
	}
	h := a.p.StepHours()
	return &document.Validation{Folds: v.folds, TrainHours: float64(v.train) * h, TestHours: float64(v.steps) * h, Size: v.size,
		Exceeded: v.exceeded / float64(v.steps), Worst: v.worst}
}
