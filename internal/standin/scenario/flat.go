package scenario

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Flat compiles the scenario into the form that the stand-in driver reads: one list of words per line, all
// names resolved, all times in nanoseconds. It is an internal contract between this package and
// testdata/fakenvml/scenario.c, and is only ever written here.
func (s *Scenario) Flat() []byte {
	var b bytes.Buffer
	b.WriteString("fakenvml 1\n")
	for i := range s.GPUs {
		s.GPUs[i].flat(&b)
	}
	for _, a := range s.system {
		a.flat(&b, -1)
	}
	for i := range s.GPUs {
		for _, a := range s.GPUs[i].answers {
			a.flat(&b, i)
		}
	}
	for _, st := range s.stalls {
		st.flat(&b, -1)
	}
	for _, e := range s.events {
		fmt.Fprintf(&b, "event %d %d %d %d %d %d\n", e.dev, e.at, e.kind, e.data, e.gi, e.ci)
	}
	for _, d := range s.driver {
		fmt.Fprintf(&b, "driver %d %s\n", d.at, d.kind)
	}
	return b.Bytes()
}

func (c *GPU) flat(b *bytes.Buffer) {
	var domain, bus, device, function uint32
	// The address was written by gpu.NewPCIAddress, so it reads.
	_, _ = fmt.Sscanf(string(c.PCI), "%x:%x:%x.%x", &domain, &bus, &device, &function)
	r, m := c.ring, c.model
	if r.window == 0 {
		r.window = time.Second
	}
	if r.entries == 0 {
		r.period = 0
	}
	fmt.Fprintf(b, "gpu %s %d %d %d %d %d %d %d %d %d %d %d %d %d %s %s %s %s\n", encode(string(c.UUID)), domain, bus,
		device, c.Minor,
		r.period, r.entries, r.sizing, bit(r.boot), bit(r.zeros), bit(r.slots), bit(r.stops), bit(r.ownMean), r.window,
		float(m.idleWatts*1000), float(m.busyWatts*1000), float(m.idleCelsius), float(m.busyCelsius))
	for _, p := range c.profiles {
		fmt.Fprintf(b, "profile %d %s %d %d %d %d %d %d %d %d %d %d %d\n", c.Index, encode(p.name), p.number, p.id,
			p.slices, p.memoryMiB,
			p.sms, p.count, p.copies, p.decoders, p.encoders, p.jpg, p.ofa)
	}
	for _, d := range c.demands {
		memory := d.memory
		if d.memoryUnknown {
			memory = -1
		}
		fmt.Fprintf(b, "demand %d %d %d %d %d %d %d %d %d %d %d %s %d\n", c.Index, d.pid, d.kind, d.gi, d.ci, memory,
			d.on, d.period, d.phase, d.from, d.to, float(d.dram), bit(d.listed))
	}
	slices := GPUSlices(c.profiles)
	for _, l := range c.layouts {
		fmt.Fprintf(b, "layout %d %d %d %d %d\n", c.Index, l.at, bit(l.current), bit(l.pending), slices)
		for _, d := range l.devices {
			fmt.Fprintf(b, "device %d %d %d %d %d %d %d %d %s\n", c.Index, d.index, d.gi, d.ci, d.profile, d.start,
				d.size, d.slices,
				encode(string(d.uuid)))
		}
	}
	for _, f := range c.faults {
		fmt.Fprintf(b, "fault %d %d %s\n", c.Index, f.at, f.kind)
	}
	for _, st := range c.stalls {
		st.flat(b, c.Index)
	}
}

func (st stall) flat(b *bytes.Buffer, owner int) {
	fmt.Fprintf(b, "stall %d %d %s %d\n", owner, st.at, st.function, st.delay)
}

func (a answer) flat(b *bytes.Buffer, owner int) {
	fmt.Fprintf(b, "answer %d %d %s %d %d %d", owner, a.at, a.key, a.value.code, a.value.valueType, len(a.value.components))
	for _, c := range a.value.components {
		b.WriteString(" " + c.flat())
	}
	b.WriteByte('\n')
}

func (c component) flat() string {
	switch {
	case c.isText:
		return "s:" + encode(c.text)
	case c.isExact:
		return "i:" + strconv.FormatUint(c.exact, 10)
	}
	terms := make([]string, len(c.terms))
	for i, t := range c.terms {
		terms[i] = float(t.factor) + "*" + t.variable
	}
	sum := "e:" + strings.Join(terms, ",")
	if c.modulus > 0 {
		sum += ";" + float(c.modulus)
	}
	return sum
}

func bit(b bool) int {
	if b {
		return 1
	}
	return 0
}

func float(v float64) string { return strconv.FormatFloat(v, 'g', 17, 64) }

// encode writes text as one word: what is not printable ASCII becomes %XX.
func encode(text string) string {
	if text == "" {
		return "%00"
	}
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		if c := text[i]; c > ' ' && c < 0x7f && c != '%' {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}
