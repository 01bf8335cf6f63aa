package podmap

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// podMeta is what the API server tells of one pod of this node. It is never changed once it is in a table.
type podMeta struct {
	uid         string
	labels      map[string]string
	annotations map[string]string // those that a scheme reads
	ownerKind   string
	ownerName   string
	// since is when the pod was first seen; absent for what the first list had.
	since gpu.Opt[time.Time]
}

// podTable is the metadata of this node's pods at one moment. It is immutable; nil is an empty one.
type podTable struct {
	pods map[podKey]*podMeta
}

func (t *podTable) get(key podKey) *podMeta {
	if t == nil {
		return nil
	}
	return t.pods[key]
}

// keys are the pods in the order of their names.
func (t *podTable) keys() []podKey {
	if t == nil {
		return nil
	}
	return slices.SortedFunc(maps.Keys(t.pods), podKey.compare)
}

func (k podKey) compare(l podKey) int {
	return cmp.Or(cmp.Compare(k.namespace, l.namespace), cmp.Compare(k.name, l.name))
}

// wantedAnnotation tells which annotations some scheme reads.
func wantedAnnotation(key string) bool {
	switch key {
	case volcanoGPUIndex, volcanoVGPUIDs, hamiAllocated, hamiAllocatedOld, hamiMIG, hamiPhase, aliyunAllocation, aliyunCores,
		vgpuManagerAllocated, koordinatorAllocated, kaiReserved, kaiFraction, kaiMemory, kaiDevices, kaiContainer,
		kubeShareUUID, kubeShareMemory, kubeShareOldID, kubeShareOldRequest, kubeShareOldMemory:
		return true
	}
	for _, prefix := range []string{"ALIYUN_COM_GPU_MEM_", tencentIndex, elasticContainer} {
		if strings.HasPrefix(key, prefix) {
			return true
		}
	}
	return false
}

// Pod is what is known of one pod of this node besides what it holds.
type Pod struct {
	Namespace, Name, UID string
	// Labels are the pod's labels. Do not change them.
	Labels map[string]string
	// OwnerKind and OwnerName are the controller that made the pod, "ReplicaSet" and "web-5d4f"; empty: none.
	OwnerKind, OwnerName string
}

// Pods returns the metadata of this node's pods in the order of their names, nil where Options.API is not set or
// has not answered yet. It does no input or output.
func (m *Map) Pods() []Pod {
	table := m.watched()
	var out []Pod
	for _, key := range table.keys() {
		p := table.pods[key]
		out = append(out, Pod{Namespace: key.namespace, Name: key.name, UID: p.uid, Labels: p.labels, OwnerKind: p.ownerKind, OwnerName: p.ownerName})
	}
	return out
}
