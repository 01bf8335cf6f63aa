package catalog

import (
	"strconv"
	"strings"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

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
