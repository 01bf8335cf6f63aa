package podmap

import (
	"hash/maphash"
	"slices"
)

// verdict says what the ids of a scheme are worth.
type verdict int

const (
	unknown  verdict = iota // a GPU resource, and nobody knows ids of this shape: unresolved
	honest                  // the id names the GPU
	lying                   // the id is invented, or may be swapped for another: unresolved
	quantity                // not devices at all, but an amount (memory, cores) beside a device: ignored
	foreign                 // not a GPU: ignored
)

// scheme is one row of the table: one plugin's way of writing device ids.
type scheme struct {
	name    string
	verdict verdict
	// owns says for which resource names (for DRA, driver names) the row speaks.
	owns func(resource string) bool
	// read parses an id; false means that it is not of this scheme's shape and the next row is asked. A nil
	// read takes every id.
	read func(resource, id string) (ref, bool)
	// truth tells a person where the GPU of a holding stands written when the id does not say. It is where
	// a lying scheme can be resolved from.
	truth string
	// allocated reads a claim's GPU from what the plugin gave the container, annotated from the annotations of
	// the pod. False means that it is not told there. Either may be nil.
	allocated, annotated func(*claim) ([]grant, bool)
}

// reading is what the table says about one id.
type reading struct {
	verdict verdict
	scheme  string // empty: no row knows the id
	truth   string
	ref     ref
	row     *scheme // nil: no row knows the id
}

// lens is the part of the table that speaks for one resource name.
type lens struct {
	resource string
	rows     []scheme
	// GPUs is true where the resource stands for GPUs, so that an id that no row can read still counts.
	devs bool
	seed maphash.Seed // of the answer that it looks at
}

// fixed returns what is said of every id of the resource alike, where nothing depends on the id.
func (l *lens) fixed() (reading, bool) {
	if len(l.rows) == 0 || l.rows[0].read != nil {
		return reading{}, false
	}
	s := &l.rows[0]
	return reading{verdict: s.verdict, scheme: s.name, truth: s.truth, row: s}, true
}

// grammar is the table, with the resources that the operator named as honest.
type grammar struct {
	honest []string
	// seed is by what ids are hashed; the zero one is replaced for every answer.
	seed maphash.Seed
}

// lens picks the rows for a resource of a device plugin.
func (g grammar) lens(resource string) lens {
	l := focus(pluginSchemes, resource)
	if slices.Contains(g.honest, resource) {
		// Behind the table: a scheme that is known to lie does so under any promise.
		l.rows = append(l.rows, namedHonest)
		l.devs = true
	}
	return l
}

// driverLens picks the rows for a DRA driver.
func (grammar) driverLens(driver string) lens { return focus(driverSchemes, driver) }

func focus(table []scheme, resource string) lens {
	l := lens{resource: resource}
	for _, s := range table {
		if !s.owns(resource) {
			continue
		}
		l.rows = append(l.rows, s)
		switch s.verdict {
		case honest, lying:
			l.devs = true
		}
		if s.read == nil {
			break // nothing behind it is ever asked
		}
	}
	return l
}

// read asks the rows in order; the first that knows the shape answers.
func (l lens) read(id string) reading {
	for i := range l.rows {
		s := &l.rows[i]
		if s.read == nil {
			return reading{verdict: s.verdict, scheme: s.name, truth: s.truth, row: s}
		}
		if len(id) > maxIDLength {
			continue
		}
		if r, ok := s.read(l.resource, id); ok {
			return reading{verdict: s.verdict, scheme: s.name, truth: s.truth, ref: r, row: s}
		}
	}
	switch {
	case l.devs:
		return reading{verdict: unknown}
	case namesGPU(id):
		// Somebody hands out GPUs under a name that is not in the table. Believing it could blame the
		// wrong pod; ignoring it could call a held GPU free.
		return reading{verdict: lying, scheme: "unlisted",
			truth: "if the ids of this resource always name the real GPU, name the resource as honest"}
	}
	return reading{verdict: foreign}
}
