package catalog

import (
	"strconv"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// The functions of this file turn a field of the View into the series of a family, once per scope, so that a row names
// only the field.

// number is every unit that can become a sample.
type number interface {
	~float64 | ~uint64 | ~int
}

// gpuEmit emits a series of one GPU; its labels are the family's own.
type gpuEmit func(value float64, own ...string)

// indexLabel is the label gpu: empty for a GPU that was never in NVML.
func indexLabel(index int) string {
	if index < 0 {
		return ""
	}
	return strconv.Itoa(index)
}

// labeledSeries is what the series of a family speak of, one after the other: it holds the values of the scope's
// labels, and puts the family's own behind them. One serves a whole reading, so that a series costs no memory.
type labeledSeries struct {
	labels []string
	scope  int
	emit   Emit
	memory [6 + ownLabels]string // of labels, unless there are more
}

// ownLabels is how many labels of its own a family has at most without the subject's memory growing.
const ownLabels = 4

func newLabeledSeries(s Scope, emit Emit) (*labeledSeries, gpuEmit) {
	sub := &labeledSeries{scope: len(s.Labels()), emit: emit}
	sub.labels = sub.memory[:sub.scope]
	return sub, func(value float64, own ...string) {
		sub.labels = append(sub.labels[:sub.scope], own...)
		sub.emit(value, sub.labels...)
	}
}

// set sets the values of the scope's labels.
func (s *labeledSeries) set(values ...string) { copy(s.labels[:s.scope], values) }

// allGPUs reads the GPUs of the node, available or not, except detached ones.
func allGPUs(read func(*gpu.GPU, gpuEmit)) func(*gpu.View, Emit) {
	return func(v *gpu.View, emit Emit) {
		sub, give := newLabeledSeries(ScopeGPU, emit)
		for i := range v.GPUs {
			c := &v.GPUs[i]
			if c.State == gpu.DeviceDetached {
				continue
			}
			sub.set(v.Node, string(c.UUID), indexLabel(c.Index))
			read(c, give)
		}
	}
}

// availableGPUs reads the GPUs that are readable: the values of a lost GPU end with it.
func availableGPUs(read func(*gpu.GPU, gpuEmit)) func(*gpu.View, Emit) {
	return allGPUs(func(c *gpu.GPU, emit gpuEmit) {
		if c.State == gpu.DeviceUp {
			read(c, emit)
		}
	})
}

// opt emits a value if there is one.
func opt[T number](emit gpuEmit, o gpu.Opt[T], own ...string) {
	if v, ok := o.Get(); ok {
		emit(float64(v), own...)
	}
}

// optFlag emits 0 or 1 if there is a value.
func optFlag(emit gpuEmit, o gpu.Opt[bool], own ...string) {
	if v, ok := o.Get(); ok {
		emit(b2f(v), own...)
	}
}

func b2f(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// names returns the names of states.
func names[T ~string](states []T) (list []string) {
	for _, s := range states {
		list = append(list, string(s))
	}
	return list
}

// timestamp emits a timestamp in seconds if there is one.
func timestamp(emit gpuEmit, o gpu.Opt[time.Time], own ...string) {
	if t, ok := o.Get(); ok {
		emit(unix(t), own...)
	}
}

func unix(t time.Time) float64 { return float64(t.UnixMilli()) / 1000 }

// last reads the last reading of a poll group.
func last[T any](reading func(*gpu.GPU) gpu.Opt[*T], read func(*T, gpuEmit)) func(*gpu.View, Emit) {
	return availableGPUs(func(c *gpu.GPU, emit gpuEmit) {
		if r, ok := reading(c).Get(); ok {
			read(r, emit)
		}
	})
}

// fast, medium and slow read one value of the last reading of a poll group.
func fast[T number](field func(*gpu.Fast) gpu.Opt[T]) func(*gpu.View, Emit) {
	return fastGPU(func(f *gpu.Fast, emit gpuEmit) { opt(emit, field(f)) })
}

func fastGPU(read func(*gpu.Fast, gpuEmit)) func(*gpu.View, Emit) {
	return last(func(c *gpu.GPU) gpu.Opt[*gpu.Fast] { return c.Fast }, read)
}

func medium[T number](field func(*gpu.Medium) gpu.Opt[T]) func(*gpu.View, Emit) {
	return mediumGPU(func(m *gpu.Medium, emit gpuEmit) { opt(emit, field(m)) })
}

func mediumFlag(field func(*gpu.Medium) gpu.Opt[bool]) func(*gpu.View, Emit) {
	return mediumGPU(func(m *gpu.Medium, emit gpuEmit) { optFlag(emit, field(m)) })
}

func mediumGPU(read func(*gpu.Medium, gpuEmit)) func(*gpu.View, Emit) {
	return last(func(c *gpu.GPU) gpu.Opt[*gpu.Medium] { return c.Medium }, read)
}

func slow[T number](field func(*gpu.Slow) gpu.Opt[T]) func(*gpu.View, Emit) {
	return slowGPU(func(s *gpu.Slow, emit gpuEmit) { opt(emit, field(s)) })
}

func slowFlag(field func(*gpu.Slow) gpu.Opt[bool]) func(*gpu.View, Emit) {
	return slowGPU(func(s *gpu.Slow, emit gpuEmit) { optFlag(emit, field(s)) })
}

func slowGPU(read func(*gpu.Slow, gpuEmit)) func(*gpu.View, Emit) {
	return last(func(c *gpu.GPU) gpu.Opt[*gpu.Slow] { return c.Slow }, read)
}

// activityValue reads one value of what was summed for a GPU.
func activityValue[T number](field func(*gpu.Activity) gpu.Opt[T]) func(*gpu.View, Emit) {
	return availableGPUs(func(c *gpu.GPU, emit gpuEmit) { opt(emit, field(&c.Activity)) })
}
