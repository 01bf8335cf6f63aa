package nvml

import "github.com/gpu-exporter/gpu-exporter/internal/gpu"

// callID names one kind of driver call: an index into guards.
type callID int

// guard says what must be in the library before a call may be made.
type guard struct {
	// name is what the call is called in metrics and in messages: the NVML function without the version
	// that go-nvml picks.
	name string
	// methods are the go-nvml methods that may be used under this guard, as "Type.Method".
	methods []string
	// anyOf are the symbols of which go-nvml calls whichever it found; one of them must be there. Nil: name itself.
	anyOf []string
	// required marks what nothing works without: a library that lacks one is not NVML.
	required bool
	// waits marks calls that sleep on purpose: their duration is no cost and is not observed.
	waits bool
}

// symbols returns the symbols of which one must exist.
func (g *guard) symbols() []string {
	if g.anyOf != nil {
		return g.anyOf
	}
	return []string{g.name}
}

// offers is which calls the loaded library has, and what it lacks.
type offers struct {
	have    [callKinds]bool
	missing []string // symbols of which no version is there, in the order of the table
	fatal   []string // those of them that nothing works without
	symbols []string // what the library exports of the table
}

// probe looks every symbol up. lookup returns an error for a symbol that is not there; it must not call it.
func probe(lookup func(symbol string) error) offers {
	var o offers
	for id := range guards {
		g := &guards[id]
		symbols := g.symbols()
		for _, s := range symbols {
			if lookup(s) == nil {
				o.have[id] = true
				o.symbols = append(o.symbols, s)
			}
		}
		if o.have[id] {
			continue
		}
		o.missing = append(o.missing, symbols[0])
		if g.required {
			o.fatal = append(o.fatal, symbols[0])
		}
	}
	return o
}

// Reading is one row of what this package can read, for the documentation.
type Reading struct {
	// Name is the reading. Several rows may serve one: the later ones are asked where the earlier are not offered.
	Name string
	// Symbols are the functions of the library that the row needs; of a function with versions, the newest.
	Symbols []string
	// Poll group is when it is read; empty for what is read once per session.
	PollGroup gpu.PollGroup
	// Doc says what is read and in which unit the driver gives it.
	Doc string
}
