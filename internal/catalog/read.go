package catalog

import (
	"strconv"
	"strings"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// This file lifts a field of the vocabulary to the series of a family, once per scope, so that a row
// names the field and nothing else.

// number is every unit that can become a sample.
type number interface {
	~float64 | ~uint64 | ~int
}

// gpuEmit emits a series of one GPU; its labels are the family's own.
type gpuEmit func(value float64, own ...string)

// indexLabel is the label gpu: empty for a GPU that NVML never showed.
func indexLabel(index int) string {
	if index < 0 {
		return ""
	}
	return strconv.Itoa(index)
}

// subject is what the series of a family speak of, one after the other: it holds the values of the scope's labels, and
// puts the family's own behind them. One serves a whole reading, so that a series costs no memory.
type subject struct {
	labels []string
	scope  int
	emit   Emit
}

// ownLabels is how many labels of its own a family has at most without the subject's memory growing.
const ownLabels = 4

func newSubject(s Scope, emit Emit) (*subject, gpuEmit) {
	scope := len(s.Labels())
	sub := &subject{labels: make([]string, scope, scope+ownLabels), scope: scope, emit: emit}
	return sub, func(value float64, own ...string) {
		sub.labels = append(sub.labels[:sub.scope], own...)
		sub.emit(value, sub.labels...)
	}
}

// is says of what the following series speak.
func (s *subject) is(values ...string) { copy(s.labels[:s.scope], values) }

// GPUs reads every GPU of the node that this exporter answers for, readable or not.
func devs(read func(*gpu.GPU, gpuEmit)) func(*gpu.View, Emit) {
	return func(v *gpu.View, emit Emit) {
		sub, give := newSubject(ScopeGPU, emit)
		for i := range v.GPUs {
			c := &v.GPUs[i]
			if c.State == gpu.DeviceDetached {
				continue
			}
			sub.is(v.Node, string(c.UUID), indexLabel(c.Index))
			read(c, give)
		}
	}
}

// live reads the GPUs that are readable: the values of a lost GPU end with it.
func live(read func(*gpu.GPU, gpuEmit)) func(*gpu.View, Emit) {
	return devs(func(c *gpu.GPU, emit gpuEmit) {
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

// flag emits 0 or 1 if there is a value.
func flag(emit gpuEmit, o gpu.Opt[bool], own ...string) {
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

// moment emits a timestamp in seconds if there is one.
func moment(emit gpuEmit, o gpu.Opt[time.Time], own ...string) {
	if t, ok := o.Get(); ok {
		emit(unix(t), own...)
	}
}

func unix(t time.Time) float64 { return float64(t.UnixMilli()) / 1000 }

// states emits a state set: 1 for the state that holds, 0 for the others.
func states[T ~string](emit gpuEmit, all []T, now T) {
	for _, s := range all {
		emit(b2f(s == now), string(s))
	}
}

// fast, medium and slow read one value of a poll group's last reading.
func fast[T number](field func(*gpu.Fast) gpu.Opt[T]) func(*gpu.View, Emit) {
	return fastGPU(func(f *gpu.Fast, emit gpuEmit) { opt(emit, field(f)) })
}

func fastGPU(read func(*gpu.Fast, gpuEmit)) func(*gpu.View, Emit) {
	return live(func(c *gpu.GPU, emit gpuEmit) {
		if f, ok := c.Fast.Get(); ok {
			read(f, emit)
		}
	})
}

func medium[T number](field func(*gpu.Medium) gpu.Opt[T]) func(*gpu.View, Emit) {
	return mediumGPU(func(m *gpu.Medium, emit gpuEmit) { opt(emit, field(m)) })
}

func mediumFlag(field func(*gpu.Medium) gpu.Opt[bool]) func(*gpu.View, Emit) {
	return mediumGPU(func(m *gpu.Medium, emit gpuEmit) { flag(emit, field(m)) })
}

func mediumGPU(read func(*gpu.Medium, gpuEmit)) func(*gpu.View, Emit) {
	return live(func(c *gpu.GPU, emit gpuEmit) {
		if m, ok := c.Medium.Get(); ok {
			read(m, emit)
		}
	})
}

func slow[T number](field func(*gpu.Slow) gpu.Opt[T]) func(*gpu.View, Emit) {
	return slowGPU(func(s *gpu.Slow, emit gpuEmit) { opt(emit, field(s)) })
}

func slowFlag(field func(*gpu.Slow) gpu.Opt[bool]) func(*gpu.View, Emit) {
	return slowGPU(func(s *gpu.Slow, emit gpuEmit) { flag(emit, field(s)) })
}

func slowGPU(read func(*gpu.Slow, gpuEmit)) func(*gpu.View, Emit) {
	return live(func(c *gpu.GPU, emit gpuEmit) {
		if s, ok := c.Slow.Get(); ok {
			read(s, emit)
		}
	})
}

// summed reads one value of what was summed for a GPU.
func summed[T number](field func(*gpu.Activity) gpu.Opt[T]) func(*gpu.View, Emit) {
	return live(func(c *gpu.GPU, emit gpuEmit) { opt(emit, field(&c.Activity)) })
}

// instances reads every MIG instance of the readable GPUs.
func instances(read func(*gpu.InstanceActivity, gpuEmit)) func(*gpu.View, Emit) {
	return func(v *gpu.View, emit Emit) {
		sub, give := newSubject(ScopeInstance, emit)
		for i := range v.GPUs {
			c := &v.GPUs[i]
			if c.State != gpu.DeviceUp {
				continue
			}
			for j := range c.Instances {
				in := &c.Instances[j]
				sub.is(v.Node, string(c.UUID), indexLabel(c.Index), string(in.UUID), strconv.Itoa(in.GI), in.Profile)
				read(in, give)
			}
		}
	}
}

// instanceSummed reads one value of what was summed for an instance.
func instanceSummed[T number](field func(*gpu.Activity) gpu.Opt[T]) func(*gpu.View, Emit) {
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

// containerGPUs reads every container on every GPU. Gauges end with the holding; counters stay for a
// while after it, standing still.
func containerGPUs(gone bool, read func(*gpu.ContainerGPU, gpuEmit)) func(*gpu.View, Emit) {
	return func(v *gpu.View, emit Emit) {
		sub, give := newSubject(ScopeContainer, emit)
		for i := range v.Containers {
			c := &v.Containers[i]
			if c.Ended && !gone {
				continue
			}
			sub.is(v.Node, string(c.GPU), indexLabel(c.Index), c.Namespace, c.Pod, c.Name)
			read(c, give)
		}
	}
}

func containerCounter[T number](field func(*gpu.ContainerGPU) gpu.Opt[T]) func(*gpu.View, Emit) {
	return containerGPUs(true, func(c *gpu.ContainerGPU, emit gpuEmit) { opt(emit, field(c)) })
}

func containerGauge[T number](field func(*gpu.ContainerGPU) gpu.Opt[T]) func(*gpu.View, Emit) {
	return containerGPUs(false, func(c *gpu.ContainerGPU, emit gpuEmit) { opt(emit, field(c)) })
}

// node reads what has no label but the node.
func node(read func(*gpu.View, gpuEmit)) func(*gpu.View, Emit) {
	return func(v *gpu.View, emit Emit) {
		sub, give := newSubject(ScopeNode, emit)
		sub.is(v.Node)
		read(v, give)
	}
}

// ResourceLabel spells a resource as kube-state-metrics does: nvidia.com/gpu becomes nvidia_com_gpu.
func ResourceLabel(resource string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', r == '_':
			return r
		}
		return '_'
	}, resource)
}
