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

// cardEmit emits a series of one card; its labels are the family's own.
type cardEmit func(value float64, own ...string)

// indexLabel is the label gpu: empty for a card that NVML never showed.
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

func newSubject(s Scope, emit Emit) (*subject, cardEmit) {
	scope := len(s.Labels())
	sub := &subject{labels: make([]string, scope, scope+ownLabels), scope: scope, emit: emit}
	return sub, func(value float64, own ...string) {
		sub.labels = append(sub.labels[:sub.scope], own...)
		sub.emit(value, sub.labels...)
	}
}

// is says of what the following series speak.
func (s *subject) is(values ...string) { copy(s.labels[:s.scope], values) }

// cards reads every card of the node that this exporter answers for, readable or not.
func cards(read func(*gpu.Card, cardEmit)) func(*gpu.View, Emit) {
	return func(v *gpu.View, emit Emit) {
		sub, give := newSubject(ScopeCard, emit)
		for i := range v.Cards {
			c := &v.Cards[i]
			if c.State == gpu.CardDetached {
				continue
			}
			sub.is(v.Node, string(c.UUID), indexLabel(c.Index))
			read(c, give)
		}
	}
}

// live reads the cards that are readable: the values of a lost card end with it.
func live(read func(*gpu.Card, cardEmit)) func(*gpu.View, Emit) {
	return cards(func(c *gpu.Card, emit cardEmit) {
		if c.State == gpu.CardUp {
			read(c, emit)
		}
	})
}

// opt emits a value if there is one.
func opt[T number](emit cardEmit, o gpu.Opt[T], own ...string) {
	if v, ok := o.Get(); ok {
		emit(float64(v), own...)
	}
}

// flag emits 0 or 1 if there is a value.
func flag(emit cardEmit, o gpu.Opt[bool], own ...string) {
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
func moment(emit cardEmit, o gpu.Opt[time.Time], own ...string) {
	if t, ok := o.Get(); ok {
		emit(unix(t), own...)
	}
}

func unix(t time.Time) float64 { return float64(t.UnixMilli()) / 1000 }

// states emits a state set: 1 for the state that holds, 0 for the others.
func states[T ~string](emit cardEmit, all []T, now T) {
	for _, s := range all {
		emit(b2f(s == now), string(s))
	}
}

// fast, medium and slow read one value of a lane's last reading.
func fast[T number](field func(*gpu.Fast) gpu.Opt[T]) func(*gpu.View, Emit) {
	return fastCard(func(f *gpu.Fast, emit cardEmit) { opt(emit, field(f)) })
}

func fastCard(read func(*gpu.Fast, cardEmit)) func(*gpu.View, Emit) {
	return live(func(c *gpu.Card, emit cardEmit) {
		if f, ok := c.Fast.Get(); ok {
			read(f, emit)
		}
	})
}

func medium[T number](field func(*gpu.Medium) gpu.Opt[T]) func(*gpu.View, Emit) {
	return mediumCard(func(m *gpu.Medium, emit cardEmit) { opt(emit, field(m)) })
}

func mediumFlag(field func(*gpu.Medium) gpu.Opt[bool]) func(*gpu.View, Emit) {
	return mediumCard(func(m *gpu.Medium, emit cardEmit) { flag(emit, field(m)) })
}

func mediumCard(read func(*gpu.Medium, cardEmit)) func(*gpu.View, Emit) {
	return live(func(c *gpu.Card, emit cardEmit) {
		if m, ok := c.Medium.Get(); ok {
			read(m, emit)
		}
	})
}

func slow[T number](field func(*gpu.Slow) gpu.Opt[T]) func(*gpu.View, Emit) {
	return slowCard(func(s *gpu.Slow, emit cardEmit) { opt(emit, field(s)) })
}

func slowFlag(field func(*gpu.Slow) gpu.Opt[bool]) func(*gpu.View, Emit) {
	return slowCard(func(s *gpu.Slow, emit cardEmit) { flag(emit, field(s)) })
}

func slowCard(read func(*gpu.Slow, cardEmit)) func(*gpu.View, Emit) {
	return live(func(c *gpu.Card, emit cardEmit) {
		if s, ok := c.Slow.Get(); ok {
			read(s, emit)
		}
	})
}

// summed reads one value of what was summed for a card.
func summed[T number](field func(*gpu.Activity) gpu.Opt[T]) func(*gpu.View, Emit) {
	return live(func(c *gpu.Card, emit cardEmit) { opt(emit, field(&c.Activity)) })
}

// instances reads every MIG instance of the readable cards.
func instances(read func(*gpu.InstanceActivity, cardEmit)) func(*gpu.View, Emit) {
	return func(v *gpu.View, emit Emit) {
		sub, give := newSubject(ScopeInstance, emit)
		for i := range v.Cards {
			c := &v.Cards[i]
			if c.State != gpu.CardUp {
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
	return instances(func(in *gpu.InstanceActivity, emit cardEmit) { opt(emit, field(&in.Activity)) })
}

// instanceMemory reads one value of an instance's memory.
func instanceMemory(field func(gpu.Memory) gpu.Opt[gpu.Bytes]) func(*gpu.View, Emit) {
	return instances(func(in *gpu.InstanceActivity, emit cardEmit) {
		if m, ok := in.Memory.Get(); ok {
			opt(emit, field(m))
		}
	})
}

// containerCards reads every container on every card. Gauges end with the holding; counters stay for a
// while after it, standing still.
func containerCards(gone bool, read func(*gpu.ContainerCard, cardEmit)) func(*gpu.View, Emit) {
	return func(v *gpu.View, emit Emit) {
		sub, give := newSubject(ScopeContainer, emit)
		for i := range v.Containers {
			c := &v.Containers[i]
			if c.Gone && !gone {
				continue
			}
			sub.is(v.Node, string(c.Card), indexLabel(c.Index), c.Namespace, c.Pod, c.Name)
			read(c, give)
		}
	}
}

func containerCounter[T number](field func(*gpu.ContainerCard) gpu.Opt[T]) func(*gpu.View, Emit) {
	return containerCards(true, func(c *gpu.ContainerCard, emit cardEmit) { opt(emit, field(c)) })
}

func containerGauge[T number](field func(*gpu.ContainerCard) gpu.Opt[T]) func(*gpu.View, Emit) {
	return containerCards(false, func(c *gpu.ContainerCard, emit cardEmit) { opt(emit, field(c)) })
}

// node reads what has no label but the node.
func node(read func(*gpu.View, cardEmit)) func(*gpu.View, Emit) {
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
