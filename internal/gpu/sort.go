package gpu

import "sort"

// Sort sorts as slices.SortStableFunc does. Of that function each type of element has 15 to 20 KB of machine code in the
// exporter, which sorts two dozen types; of this one it has a few hundred bytes.
func Sort[T any](s []T, compare func(a, b T) int) { sort.Stable(byOrder[T]{s, compare}) }

type byOrder[T any] struct {
	slice   []T
	compare func(a, b T) int
}

func (o byOrder[T]) Len() int           { return len(o.slice) }
func (o byOrder[T]) Less(i, j int) bool { return o.compare(o.slice[i], o.slice[j]) < 0 }
func (o byOrder[T]) Swap(i, j int)      { o.slice[i], o.slice[j] = o.slice[j], o.slice[i] }
