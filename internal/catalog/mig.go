package catalog

import (
	"strconv"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

func mig() Group {
	bytes := func(name, help, offered string, part func(gpu.Memory) gpu.Opt[gpu.Bytes]) Family {
		return Family{Name: name, Scope: ScopeInstance,
			Help: help, Source: "nvmlDeviceGetMemoryInfo_v2 of the MIG device", Offered: offered,
			Read: instanceMemory(part)}
	}
	return Group{
		Name:  "mig",
		Title: "MIG instances",
		Rows: append([]Family{
			{Name: "gpu_mig_info", Scope: ScopeInstance,
				Help:   "Compute instances and placement of the GPU instance.",
				Source: "nvmlDeviceGetAttributes_v2, nvmlGpuInstanceGetInfo",
				Labels: []string{"ci", "placement", "sm_count"},
				Read: instances(func(in *gpu.InstanceActivity, emit gpuEmit) {
					placement := ""
					if start, ok := in.PlacementStart.Get(); ok {
						placement = strconv.Itoa(start)
						if size, ok := in.PlacementSize.Get(); ok {
							placement += ":" + strconv.Itoa(size)
						}
					}
					for _, ci := range in.Compute {
						emit(1, strconv.Itoa(ci.CI), placement, optLabel(ci.SMs))
					}
				})},
			{Name: "gpu_mig_share_ratio", Scope: ScopeInstance,
				Help:   "Compute slices of the instance divided by those of the GPU.",
				Source: "nvmlDeviceGetAttributes_v2",
				Read:   instances(func(in *gpu.InstanceActivity, emit gpuEmit) { opt(emit, in.Share) })},
			{Name: "gpu_mig_allocation_ratio", Scope: ScopeInstance,
				Help:   "Fraction of the instance that is allocated; 0 if unallocated, absent if unknown.",
				Source: "kubelet PodResources",
				Read:   instances(func(in *gpu.InstanceActivity, emit gpuEmit) { opt(emit, in.AllocationRatio) })},
			bytes("gpu_mig_memory_total_bytes", "Total device memory of the instance.", "",
				func(m gpu.Memory) gpu.Opt[gpu.Bytes] { return gpu.Some(m.Total) }),
			bytes("gpu_mig_memory_used_bytes", "Device memory of the instance allocated by processes.", "",
				func(m gpu.Memory) gpu.Opt[gpu.Bytes] { return gpu.Some(m.Used) }),
			bytes("gpu_mig_memory_free_bytes", "Free device memory of the instance.", "",
				func(m gpu.Memory) gpu.Opt[gpu.Bytes] { return gpu.Some(m.Free) }),
			bytes("gpu_mig_memory_reserved_bytes", "Device memory of the instance reserved by driver and firmware.",
				"R510 and newer drivers", func(m gpu.Memory) gpu.Opt[gpu.Bytes] { return m.Reserved }),
			{Name: "gpu_mig_ci_sampling_info", Scope: ScopeInstance,
				Help: "Profiling sample that covers a compute instance, where the instance has several. " +
					"compute_instance: its own, with series gpu_mig_ci_*. gpu_instance: the sum over the instance.",
				Source: "nvmlGpmSampleGet of the MIG device, nvmlGpmMigSampleGet",
				Labels: []string{"ci", "method"},
				Read: instances(func(in *gpu.InstanceActivity, emit gpuEmit) {
					for i, a := range in.ComputeActivity {
						switch ci := strconv.Itoa(in.Compute[i].CI); {
						case a.Profiled.Present():
							emit(1, ci, "compute_instance")
						case in.Activity.Profiled.Present():
							emit(1, ci, "gpu_instance")
						}
					}
				})},
		}, append(activities("gpu_mig_", "the instance", "the instance", nil, instanceActivityValue[gpu.Seconds]),
			activities("gpu_mig_ci_", "the compute instance", "its MIG device", []string{"ci"}, computeActivity)...)...),
	}
}

// activities are the families of the activity of a subject: a GPU instance or a compute instance.
func activities(prefix, subject, sampled string, labels []string,
	read func(func(*gpu.Activity) gpu.Opt[gpu.Seconds]) func(*gpu.View, Emit)) []Family {
	family := func(name, help, source string, field func(*gpu.Activity) gpu.Opt[gpu.Seconds]) Family {
		return Family{Name: prefix + name, Scope: ScopeInstance, Labels: labels, Help: help, Source: source + sampled, Read: read(field)}
	}
	return []Family{
		family("busy_seconds_total", "Time during which at least one kernel was running on "+subject+".", "GPM metric 1 of ",
			func(a *gpu.Activity) gpu.Opt[gpu.Seconds] { return a.Busy }),
		family("observed_seconds_total", "Time covered by "+prefix+"busy_seconds_total.", "GPM sample pairs of ",
			func(a *gpu.Activity) gpu.Opt[gpu.Seconds] { return a.Observed }),
		family("sm_active_seconds_total",
			"Time during which an SM of "+subject+" had a resident warp, averaged over its SMs.", "GPM metric 2 of ",
			func(a *gpu.Activity) gpu.Opt[gpu.Seconds] { return a.SMActive }),
		family("sm_occupancy_seconds_total", "Resident warps of "+subject+" divided by the maximum, integrated over time.",
			"GPM metric 3 of ", func(a *gpu.Activity) gpu.Opt[gpu.Seconds] { return a.SMOccupancy }),
		family("tensor_active_seconds_total",
			"Time during which tensor cores of "+subject+" were active, averaged over its SMs.", "GPM metric 5 of ",
			func(a *gpu.Activity) gpu.Opt[gpu.Seconds] { return a.TensorActive }),
		family("dram_active_seconds_total",
			"Memory bandwidth used by "+subject+" divided by the maximum, integrated over time.", "GPM metric 10 of ",
			func(a *gpu.Activity) gpu.Opt[gpu.Seconds] { return a.DRAMActive }),
		family("profiled_seconds_total", "Time covered by the GPM counters of "+subject+"; divide them by it.",
			"GPM sample pairs of ", func(a *gpu.Activity) gpu.Opt[gpu.Seconds] { return a.Profiled }),
	}
}

// computeActivity reads one value of what was summed for a compute instance, where there are several.
func computeActivity(field func(*gpu.Activity) gpu.Opt[gpu.Seconds]) func(*gpu.View, Emit) {
	return instances(func(in *gpu.InstanceActivity, emit gpuEmit) {
		for i := range in.ComputeActivity {
			opt(emit, field(&in.ComputeActivity[i]), strconv.Itoa(in.Compute[i].CI))
		}
	})
}
