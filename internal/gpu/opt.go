package gpu

import "fmt"

// Opt is a value that may be absent; the zero Opt is absent. Absent means "not measured": it is never rendered, and it
// is neither zero nor an error. Opt is a plain value and may be copied.
type Opt[T any] struct {
	value T
	ok    bool
}

// Some returns a present value.
func Some[T any](v T) Opt[T] { return Opt[T]{value: v, ok: true} }

// None returns an absent value.
func None[T any]() Opt[T] { return Opt[T]{} }

// Get returns the value and whether it is present.
func (o Opt[T]) Get() (T, bool) { return o.value, o.ok }

// Present reports whether there is a value.
func (o Opt[T]) Present() bool { return o.ok }

// Or returns the value, or fallback when absent. It is for arithmetic and pages, never for
// a series: an absent value has no series.
func (o Opt[T]) Or(fallback T) T {
	if o.ok {
		return o.value
	}
	return fallback
}

// String renders the value for logs and pages, and "–" when absent.
func (o Opt[T]) String() string {
	if !o.ok {
		return "–"
	}
	return fmt.Sprint(o.value)
}
