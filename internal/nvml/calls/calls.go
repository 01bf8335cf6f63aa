// Package calls is the table of what is read from NVML: each function and each field of nvmlDeviceGetFieldValues
// once, with the driver branch that has it, its arguments and values, and the readings that are made of it.
//
// Generated from it by tools/gen: the symbol guard and the readers of plain values (internal/nvml/calls_gen.go), the
// checks of their ranges (internal/account/plausible_gen.go) and the plain getters of the stand-in driver
// (testdata/fakenvml/calls.c). The keys of scenarios, the journal's reader and the tests of the stand-in look it up.
// A new plain reading is one row here, a member of the structures of internal/gpu and a row of internal/catalog.
package calls

import (
	"math"
	"strings"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// Call is one function of NVML.
type Call struct {
	Function string
	// Newest is the newest version that go-nvml calls where the library has it (nvmlInit_v2: 2), NewestSince the
	// branch from which on the stand-in has that version. 0: the function has no versions; all branches have it.
	Newest, NewestSince int
	// Since is the driver branch from which on the stand-in has the function. 0: all branches.
	Since int
	// Methods are the methods of go-nvml that call it; nil where the name follows from the function's.
	Methods []string
	// Group is the poll group that makes the call; Once for those of a session.
	Group Group
	// Required: a library that lacks it is not NVML. Waits: it sleeps on purpose, so its duration is not observed.
	// Unused: only the stand-in has it, for other programs.
	Required, Waits, Unused bool

	// Key is the name in scenarios, where it does not follow from the function's; "-" for none. Args are the arguments
	// beside the handle, Values the names of the values.
	Key    string
	Args   []Arg
	Values []string
	// Optional is how many of the last values may be left out of a scenario. Text: the value is a text. System: it
	// concerns no GPU. Computed: the stand-in computes the value; a scenario only overrides it.
	Optional               int
	Text, System, Computed bool
	// C is the C type of the value (or of both) of a getter that the stand-in has from this table; CArg that of the
	// argument. C may be a structure whose members Values names. NotMIG: it does not answer in MIG mode.
	C, CArg string
	NotMIG  bool
	// Int: go-nvml returns an int.
	Int bool

	// Readings are the readings whose readers follow from the row.
	Readings []Reading
}

// Field is one field of nvmlDeviceGetFieldValues.
type Field struct {
	ID uint32
	// Name is go-nvml's constant without FI_DEV_, or without FI_ for fields of power smoothing (PWR_…); Scope Go code of the scope, if it
	// has one.
	Name, Scope string
	Reading     Reading
}

// Group is a poll group; Once is what is read once per session.
type Group string

// The poll groups.
const (
	Once   Group = ""
	Fast         = Group(gpu.PollFast)
	Medium       = Group(gpu.PollMedium)
	Slow         = Group(gpu.PollSlow)
)

// Kind is what a value is.
type Kind int

// The kinds of values.
const (
	Value   Kind = iota // a value of the moment
	Counter             // it grows with the work that is done
	Errors              // it grows with errors and repairs
	State               // one of a set
)

// Unit is NVML's unit, how a value v of it becomes one of internal/gpu, and what the latter can be.
type Unit struct {
	Name, Go string
	Range    Range
	// Signed values may be negative.
	Signed bool
}

// Range is what a value can be, in the unit of internal/gpu. The zero Range is any value.
type Range struct{ Min, Max float64 }

// The units.
var (
	Milliwatts  = Unit{Name: "in milliwatts", Go: "gpu.Watts(v) / 1000", Range: Range{0, 10e3}}
	Millijoules = Unit{Name: "in millijoules", Go: "gpu.Joules(v) / 1000", Range: Range{0, math.MaxFloat64}}
	Celsius     = Unit{Name: "in degrees Celsius", Go: "gpu.Celsius(v)", Range: Range{-50, 200}, Signed: true}
	Bytes       = Unit{Name: "in bytes", Go: "gpu.Bytes(v)"}
	KiB         = Unit{Name: "in KiB", Go: "gpu.Bytes(v * 1024)"}
	Nanoseconds = Unit{Name: "in nanoseconds", Go: "gpu.Seconds(float64(v) / 1e9)", Range: Range{0, math.MaxFloat64}}
	Megahertz   = Unit{Name: "in MHz", Go: "gpu.Hertz(v) * 1e6", Range: Range{0, 100e9}}
	Percent     = Unit{Name: "in percent", Go: "gpu.Ratio(v) / 100", Range: Range{0, 1}}
	Count       = Unit{Go: "uint64(v)"}
	Number      = Unit{Go: "int(v)"}
	Switch      = Unit{Go: "v != 0"}
	Flag        = Unit{Go: "bool(v)"}
	Text        = Unit{Go: "strings.TrimSpace(v)"}
)

// OneOf is the unit of a state: NVML numbers the states in the order of a list of internal/gpu.
func OneOf(list string) Unit { return Unit{Go: "gpu." + list + "[v]"} }

// Reading is one reading of a call or field.
type Reading struct {
	Group     Group
	Name, Doc string
	// Rank: rows of one reading with a higher rank are read only where no row of a lower rank is offered.
	Rank int
	// Instead is a reading that must not be offered for this row to be read.
	Instead string
	Kind    Kind
	Unit    Unit
	// To is where the values are stored: members of gpu.Fast, gpu.Medium, gpu.Slow or gpu.Identity, one for each value
	// that is kept, or a member and a key of it.
	To []string
	// When is Go code of the condition, on v, under which the value is stored; empty: always.
	When string
	// Arg is the argument of the call, a constant of go-nvml.
	Arg   string
	Range Range
	// ByHand: the reader is written by hand; the row has the range alone.
	ByHand bool
	// Rejected is the name under which implausible values are counted; empty for Name.
	Rejected string
}

func reading(g Group, name, doc string, unit Unit, to []string) Reading {
	return Reading{Group: g, Name: name, Doc: doc, Unit: unit, To: to, Range: unit.Range}
}
func once(name, doc string, unit Unit, to ...string) Reading {
	return reading(Once, name, doc, unit, to)
}
func fast(name, doc string, unit Unit, to ...string) Reading {
	return reading(Fast, name, doc, unit, to)
}
func medium(name, doc string, unit Unit, to ...string) Reading {
	return reading(Medium, name, doc, unit, to)
}
func slow(name, doc string, unit Unit, to ...string) Reading {
	return reading(Slow, name, doc, unit, to)
}

func (r Reading) rank(n int) Reading               { r.Rank = n; return r }
func (r Reading) instead(of string) Reading        { r.Instead = of; return r }
func (r Reading) kind(k Kind) Reading              { r.Kind = k; return r }
func (r Reading) when(condition string) Reading    { r.When, r.Kind = condition, State; return r }
func (r Reading) arg(constant string) Reading      { r.Arg = constant; return r }
func (r Reading) within(low, high float64) Reading { r.Range = Range{low, high}; return r }
func (r Reading) byHand() Reading                  { r.ByHand = true; return r }
func (r Reading) rejected(name string) Reading     { r.Rejected = name; return r }

// Arg is one argument of a call: a name from a list, or a number below a limit.
type Arg struct {
	Names []string
	Limit int
	// All, if set, is the number that the word all means. Optional: it may be left out.
	All      string
	Optional bool
}

// ScenarioKey is what a scenario calls the function; empty for none.
func (c *Call) ScenarioKey() string {
	switch c.Key {
	case "":
		return c.Suffix()
	case "-":
		return ""
	}
	return c.Key
}

// Suffix is the function's name without its prefix.
func (c *Call) Suffix() string {
	for _, prefix := range []string{"nvmlDeviceGet", "nvmlSystemGet", "nvml"} {
		if suffix, ok := strings.CutPrefix(c.Function, prefix); ok {
			return suffix
		}
	}
	return c.Function
}

// GoMethods are the methods of go-nvml, as "Type.Method".
func (c *Call) GoMethods() []string {
	switch {
	case c.Methods != nil:
		return c.Methods
	case strings.HasPrefix(c.Function, "nvmlDeviceGet"):
		return []string{"Device." + strings.TrimPrefix(c.Function, "nvmlDevice")}
	}
	return []string{"Interface." + strings.TrimPrefix(c.Function, "nvml")}
}
