package catalog

import (
	"strconv"
	"strings"
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

// fast, medium and slow read one value of the last reading of a poll group.
func fast[T number](field func(*gpu.Fast) gpu.Opt[T]) func(*gpu.View, Emit) {
	return fastGPU(func(f *gpu.Fast, emit gpuEmit) { opt(emit, field(f)) })
}

func fastGPU(read func(*gpu.Fast, gpuEmit)) func(*gpu.View, Emit) {
	return availableGPUs(func(c *gpu.GPU, emit gpuEmit) {
		if f, ok := c.Fast.Get(); ok {
			read(f, emit)
		}
	})
}

func medium[T number](field func(*gpu.Medium) gpu.Opt[T]) func(*gpu.View, Emit) {
	return mediumGPU(func(m *gpu.Medium, emit gpuEmit) { opt(emit, field(m)) })
}

func mediumFlag(field func(*gpu.Medium) gpu.Opt[bool]) func(*gpu.View, Emit) {
	return mediumGPU(func(m *gpu.Medium, emit gpuEmit) { optFlag(emit, field(m)) })
}

func mediumGPU(read func(*gpu.Medium, gpuEmit)) func(*gpu.View, Emit) {
	return availableGPUs(func(c *gpu.GPU, emit gpuEmit) {
		if m, ok := c.Medium.Get(); ok {
			read(m, emit)
		}
	})
}

func slow[T number](field func(*gpu.Slow) gpu.Opt[T]) func(*gpu.View, Emit) {
	return slowGPU(func(s *gpu.Slow, emit gpuEmit) { opt(emit, field(s)) })
}

func slowFlag(field func(*gpu.Slow) gpu.Opt[bool]) func(*gpu.View, Emit) {
	return slowGPU(func(s *gpu.Slow, emit gpuEmit) { optFlag(emit, field(s)) })
}

func slowGPU(read func(*gpu.Slow, gpuEmit)) func(*gpu.View, Emit) {
	return availableGPUs(func(c *gpu.GPU, emit gpuEmit) {
		if s, ok := c.Slow.Get(); ok {
			read(s, emit)
		}
	})
}

// activityValue reads one value of what was summed for a GPU.
func activityValue[T number](field func(*gpu.Activity) gpu.Opt[T]) func(*gpu.View, Emit) {
	return availableGPUs(func(c *gpu.GPU, emit gpuEmit) { opt(emit, field(&c.Activity)) })
}

// instances reads every MIG instance of the readable GPUs.
func instances(read func(*gpu.InstanceActivity, gpuEmit)) func(*gpu.View, Emit) {
	return func(v *gpu.View, emit Emit) {
		sub, give := newLabeledSeries(ScopeInstance, emit)
		for i := range v.GPUs {
			c := &v.GPUs[i]
			if c.State != gpu.DeviceUp {
				continue
			}
			for j := range c.Instances {
				in := &c.Instances[j]
				sub.set(v.Node, string(c.UUID), indexLabel(c.Index), string(in.UUID), strconv.Itoa(in.GI), in.Profile)
				read(in, give)
			}
		}
	}
}

// instanceActivityValue reads one value of what was summed for an instance.
func instanceActivityValue[T number](field func(*gpu.Activity) gpu.Opt[T]) func(*gpu.View, Emit) {
	return instances(func(in *gpu.InstanceActivity, emit gpuEmit) { opt(emit, field(&in.Activity)) })
}

// instanceMemory reads one value of an instance's memory.
func instanceMemory(field func(gpu.Memory) gpu.Opt[gpu.Bytes]) func(*gpu.View, Emit) {
	return instances(func(in *gpu.InstanceActivity, emit gpuEmit) {
		if m, ok := in.Memory.Get(); ok {
			opt(emit, field(m))
		}
	})
}

// containerGPUs reads every container on every GPU. Gauges are exported until the container ends, counters for a while
// longer.
func containerGPUs(gone bool, read func(*gpu.ContainerGPU, gpuEmit)) func(*gpu.View, Emit) {
	return func(v *gpu.View, emit Emit) {
		sub, give := newLabeledSeries(ScopeContainer, emit)
		for i := range v.Containers {
			c := &v.Containers[i]
			if c.Ended && !gone {
				continue
			}
			sub.set(v.Node, string(c.GPU), indexLabel(c.Index), c.Namespace, c.Pod, c.Name)
			read(c, give)
		}
	}
}

func containerCounter[T number](field func(*gpu.ContainerGPU) gpu.Opt[T]) func(*gpu.View, Emit) {
	return containerGPUs(true, func(c *gpu.ContainerGPU, emit gpuEmit) { opt(emit, field(c)) })
}

// containerCreated emits when the counters of the containers began, once for each combination of further labels.
func containerCreated(more ...string) func(*gpu.View, Emit) {
	return containerGPUs(true, func(c *gpu.ContainerGPU, emit gpuEmit) {
		if len(more) == 0 {
			emitCreated(emit, c.Created)
		}
		for _, label := range more {
			emitCreated(emit, c.Created, label)
		}
	})
}

// emitCreated emits when a counter began.
func emitCreated(emit gpuEmit, at time.Time, own ...string) {
	if !at.IsZero() {
		emit(float64(at.UnixNano())/1e9, own...)
	}
}

func containerGauge[T number](field func(*gpu.ContainerGPU) gpu.Opt[T]) func(*gpu.View, Emit) {
	return containerGPUs(false, func(c *gpu.ContainerGPU, emit gpuEmit) { opt(emit, field(c)) })
}

// processes reads the processes that have series of their own, and the others together.
func processes(field func(*gpu.ProcessActivity) gpu.Opt[float64]) func(*gpu.View, Emit) {
	return func(v *gpu.View, emit Emit) {
		sub, give := newLabeledSeries(ScopeContainer, emit)
		for i := range v.GPUs {
			c := &v.GPUs[i]
			for j := range c.Processes {
				p := &c.Processes[j]
				pid := ""
				if p.PID != 0 {
					pid = strconv.Itoa(p.PID)
				}
				sub.set(v.Node, string(c.UUID), indexLabel(c.Index), p.Container.Namespace, p.Container.Pod, p.Container.Name)
				opt(give, field(p), pid, p.Command, joined(p.Kinds), string(p.Instance))
			}
		}
	}
}

// joined is the value of a label with several values.
func joined[T ~string](list []T) string {
	text := ""
	for i, v := range list {
		if i > 0 {
			text += "+"
		}
		text += string(v)
	}
	return text
}

// node reads families with no label of a scope but node.
func node(read func(*gpu.View, gpuEmit)) func(*gpu.View, Emit) {
	return func(v *gpu.View, emit Emit) {
		sub, give := newLabeledSeries(ScopeNode, emit)
		sub.set(v.Node)
		read(v, give)
	}
}

// ResourceLabel converts a resource name as kube-state-metrics does: nvidia.com/gpu becomes nvidia_com_gpu.
func ResourceLabel(resource string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', r == '_':
			return r
		}
		return '_'
	}, resource)
}
