package catalogtest

import (
	"fmt"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// NodeView returns the View of a node in work: so many H100, shared evenly by so many pods.
func NodeView(allGPUs, pods int) *gpu.View {
	v := FullView()
	v.GPUs, v.Containers, v.Allocations, v.Unresolved, v.Pods = nil, nil, nil, nil, nil
	v.Devices = map[gpu.DeviceState]int{gpu.DeviceUp: allGPUs}
	for i := range allGPUs {
		c := fullGPU()
		c.UUID, c.Index, c.Minor = gpu.UUID(fmt.Sprintf("GPU-%08d-1111-4111-8111-111111111111", i)), i, gpu.Some(i)
		c.PCI = gpu.NewPCIAddress(0, uint32(0x10+i), 0, 0)
		v.GPUs = append(v.GPUs, c)
	}
	for i := range pods {
		dev := &v.GPUs[i%allGPUs]
		who := gpu.Container{Namespace: fmt.Sprintf("team-%d", i%7), Pod: fmt.Sprintf("inference-6f9d8c7b5-%05d", i),
			Name: "server"}
		share := gpu.Some(gpu.Ratio(float64(allGPUs) / float64(max(pods, allGPUs))))
		v.Containers = append(v.Containers, gpu.ContainerGPU{Container: who, GPU: dev.UUID, Index: dev.Index,
			Allocated: gpu.Some(gpu.Seconds(100)), Busy: gpu.Some(gpu.Seconds(6)),
			Observed: gpu.Some(gpu.Seconds(100)), Idle: gpu.Some(gpu.Seconds(1)), Gap: gpu.Some(gpu.Seconds(3)),
			Energy: gpu.Some(gpu.Joules(3000)), Memory: gpu.Some(gpu.Bytes(1 << 33)),
			Processes: gpu.Some(1), LastBusy: gpu.Some(At), Since: gpu.Some(At.Add(-100 * time.Second)),
			Attribution: "process", Source: gpu.SourcePodResources})
		v.Allocations = append(v.Allocations, gpu.ContainerAllocation{Allocation: gpu.Allocation{Container: who,
			Resource: "nvidia.com/gpu", GPU: dev.UUID, Share: share, Source: gpu.SourcePodResources,
			Shared: pods > allGPUs}, Index: dev.Index, AllocationRatio: share})
		v.Pods = append(v.Pods, gpu.PodRef{Namespace: who.Namespace, Pod: who.Pod})
	}
	for i := range 60 {
		v.Calls = append(v.Calls, gpu.CallStats{Call: fmt.Sprintf("nvmlDeviceGetReading%d", i),
			Duration: gpu.Histogram{Count: 1000, Sum: 0.01,
				Buckets: []gpu.Bucket{{Index: -130, Count: 400}, {Index: -129, Count: 300},
					{Index: -128, Count: 200}, {Index: -100, Count: 100}}}})
	}
	return v
}
