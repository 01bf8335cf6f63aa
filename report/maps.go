package report

import (
	"maps"
	"slices"
	"time"
)

// key is a key of a map that is sorted by its parts.
type key interface {
	comparable
	parts() []string
}

// nodeKey names the GPUs of one model on one node; without a model, the node; without a node, a model or a cluster.
type nodeKey struct{ cluster, node, model string }

func (k nodeKey) parts() []string { return []string{k.cluster, k.node, k.model} }

// gpuKey names a GPU.
type gpuKey struct{ cluster, node, uuid string }

func (k gpuKey) parts() []string { return []string{k.cluster, k.node, k.uuid} }

// podKey names a pod, or without a pod a namespace.
type podKey struct{ cluster, namespace, pod string }

func (k podKey) parts() []string { return []string{k.cluster, k.namespace, k.pod} }

// allocationKey names a pod on a GPU.
type allocationKey struct{ cluster, namespace, pod, node, uuid string }

func (k allocationKey) parts() []string {
	return []string{k.cluster, k.namespace, k.pod, k.node, k.uuid}
}

func (k allocationKey) gpu() gpuKey { return gpuKey{k.cluster, k.node, k.uuid} }

// loadKey names one owner's use of one model.
type loadKey struct{ cluster, namespace, kind, name, model string }

func (k loadKey) parts() []string { return []string{k.cluster, k.namespace, k.kind, k.name, k.model} }

// sorted returns the keys of a map in order.
func sorted[K key, V any](m map[K]V) []K {
	return slices.SortedFunc(maps.Keys(m), func(a, b K) int { return slices.Compare(a.parts(), b.parts()) })
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// entry returns the value of a key, which it makes if there is none.
func entry[K comparable, V any](m map[K]*V, k K) *V {
	if m[k] == nil {
		m[k] = new(V)
	}
	return m[k]
}

// over divides; 0 if the divisor is 0.
func over(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}

const day = 24 * time.Hour
