package nvml

import (
	"fmt"
	"slices"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// ensureLayout reads the MIG layout once, for poll groups that come before the first slow one.
func (c *GPU) ensureLayout() error {
	if c.mig.read {
		return nil
	}
	var to gpu.Slow
	c.probing = true
	defer func() { c.probing = false }()
	for _, read := range []func(*GPU, *gpu.Slow) nvml.Return{readMIGMode, readInstances} {
		if ret := read(c, &to); whole(ret) != nil {
			return fmt.Errorf("read the MIG layout of %s: %w (%s)", c, whole(ret), codeName(ret))
		}
	}
	return nil
}

func readMIGMode(c *GPU, to *gpu.Slow) nvml.Return {
	current, pending, ret := get2(c, callMigMode, c.handle().GetMigMode)
	if ret == nvml.SUCCESS {
		to.MIGMode = gpu.Some(gpu.ModePair{Current: current == nvml.DEVICE_MIG_ENABLE, Pending: pending == nvml.DEVICE_MIG_ENABLE})
		c.mig.on = current == nvml.DEVICE_MIG_ENABLE
	} else if notOffered(ret) || ret == nvml.ERROR_INVALID_ARGUMENT {
		c.mig.on = false
	}
	return ret
}

// readInstances lists the GPU instances with their compute instances, by walking the MIG devices. What depends on the
// layout is dropped when it changes. A walk that fails returns the previous layout: instances still exist when they
// cannot be read.
func readInstances(c *GPU, to *gpu.Slow) nvml.Return {
	layout, ret := []gpu.Instance(nil), nvml.SUCCESS
	handles := c.mig.handles // of the layout before
	if c.mig.handles = nil; c.mig.on {
		layout, ret = c.walkMIG()
	}
	if ret == nvml.SUCCESS {
		c.adopt(layout)
	} else {
		c.mig.handles = handles
	}
	to.Instances = append(to.Instances, c.mig.instances...)
	if !c.mig.on {
		return nothingToRead
	}
	return ret
}

// adopt makes a layout the GPU's.
func (c *GPU) adopt(layout []gpu.Instance) {
	var key strings.Builder
	fmt.Fprint(&key, c.mig.on)
	for _, in := range layout {
		fmt.Fprintf(&key, " %d/%s/%s/%d", in.GI, in.UUID, in.Profile, len(in.Compute))
	}
	if c.mig.read && key.String() != c.mig.key {
		c.log().Info("MIG layout changed", "gpu", c.identity.UUID, "instances", len(layout))
		c.relearn()
		c.gpm.keep(layout)
		c.mig.perInstance, c.mig.suspected = false, nil
	}
	c.gpm.keepDevices(layout, c.mig.handles)
	c.mig.read, c.mig.key, c.mig.instances = true, key.String(), layout
}

// suspect marks the layout as stale where the driver has no such GPU instance, once for each instance and layout: what
// contradicts a layout that was just read has another cause.
func (c *GPU) suspect(gi int, ret nvml.Return) {
	if (ret == nvml.ERROR_INVALID_ARGUMENT || ret == nvml.ERROR_NOT_FOUND) && !slices.Contains(c.mig.suspected, gi) {
		c.mig.suspected, c.mig.stale = append(c.mig.suspected, gi), true
	}
}

// walkMIG reads every MIG device of the GPU and groups them by GPU instance, in the order of their IDs. Gaps in the
// index are normal, and a device that is destroyed meanwhile is left out; any other failure fails the walk.
func (c *GPU) walkMIG() ([]gpu.Instance, nvml.Return) {
	most, ret := get(c, callMaxMigDeviceCount, c.handle().GetMaxMigDeviceCount)
	if ret != nvml.SUCCESS {
		return nil, ret
	}
	var layout []gpu.Instance
	for index := range min(most, maxMIGDevices) {
		handle, ret := get(c, callMigDeviceHandleByIndex,
			func() (nvml.Device, nvml.Return) { return c.handle().GetMigDeviceHandleByIndex(index) }, index)
		var in gpu.Instance
		if ret == nvml.SUCCESS {
			in, ret = c.describeMIG(handle, index)
		}
		switch ret {
		case nvml.SUCCESS:
			put(&c.mig.handles, index, handle)
		case nvml.ERROR_NOT_FOUND, nvml.ERROR_INVALID_ARGUMENT:
			continue
		default:
			return nil, ret
		}
		at := slices.IndexFunc(layout, func(o gpu.Instance) bool { return o.GI == in.GI })
		if in.GI < 0 || slices.ContainsFunc(layout, func(o gpu.Instance) bool { return collide(o, in) }) {
			return nil, nvml.ERROR_UNKNOWN // garbage: no two devices have one place or one name
		}
		if at < 0 {
			layout = append(layout, in)
			continue
		}
		// The first compute instance names the GPU instance.
		all := append(layout[at].Compute, in.Compute...)
		gpu.Sort(all, func(a, b gpu.ComputeInstance) int { return a.CI - b.CI })
		if all[0].CI == in.Compute[0].CI {
			layout[at] = in
		}
		layout[at].Compute = all
	}
	gpu.Sort(layout, func(a, b gpu.Instance) int { return a.GI - b.GI })
	return layout, nvml.SUCCESS
}

// collide reports whether two MIG devices cannot both be right.
func collide(in, o gpu.Instance) bool {
	return slices.ContainsFunc(in.Compute, func(c gpu.ComputeInstance) bool {
		return c.UUID == o.Compute[0].UUID || in.GI == o.GI && c.CI == o.Compute[0].CI
	})
}

// describeMIG reads one MIG device. Its IDs and UUID are required; the rest may not be offered.
func (c *GPU) describeMIG(handle nvml.Device, index int) (in gpu.Instance, ret nvml.Return) {
	uuid, ret := get(c, callUUID, handle.GetUUID, index)
	if ret != nvml.SUCCESS {
		return in, ret
	}
	gi, ret := get(c, callGpuInstanceId, handle.GetGpuInstanceId, index)
	if ret != nvml.SUCCESS {
		return in, ret
	}
	ci, ret := get(c, callComputeInstanceId, handle.GetComputeInstanceId, index)
	if ret != nvml.SUCCESS {
		return in, ret
	}
	in.UUID, in.GI = gpu.UUID(uuid), gi
	compute := gpu.ComputeInstance{UUID: gpu.UUID(uuid), CI: ci, Index: index}
	attributes, ret := get(c, callAttributes, handle.GetAttributes, index)
	if ret != nvml.SUCCESS && !notOffered(ret) {
		return in, ret
	}
	if ret == nvml.SUCCESS {
		in.Slices = int(attributes.GpuInstanceSliceCount)
		compute.SMs = gpu.Some(int(attributes.MultiprocessorCount))
	}
	name, ret := get(c, callName, handle.GetName, index)
	if ret != nvml.SUCCESS && !notOffered(ret) {
		return in, ret
	}
	if ret == nvml.SUCCESS {
		in.Profile = profileOf(name)
	}
	in.Compute = []gpu.ComputeInstance{compute}
	return in, nvml.SUCCESS
}

// profileOf takes the profile of the GPU instance out of the name of a MIG device: "… MIG 1g.10gb", or
// "… MIG 1c.3g.20gb" for a compute instance that is smaller than its GPU instance.
func profileOf(name string) string {
	at := strings.LastIndex(name, "MIG ")
	if at < 0 {
		return ""
	}
	profile, _, _ := strings.Cut(strings.TrimSpace(name[at+len("MIG "):]), " ")
	if head, rest, ok := strings.Cut(profile, "."); ok && strings.HasSuffix(head, "c") && strings.Contains(rest, "g.") {
		return rest
	}
	return profile
}

// readPlacement adds each instance's placement and profile ID, which the driver reports to privileged users only.
func readPlacement(c *GPU, to *gpu.Slow) nvml.Return {
	result := nothingToRead
	for i := range to.Instances {
		in := &to.Instances[i]
		instance, ret := get(c, callGpuInstanceById,
			func() (nvml.GpuInstance, nvml.Return) { return c.handle().GetGpuInstanceById(in.GI) }, in.GI)
		if ret == nvml.SUCCESS {
			var info nvml.GpuInstanceInfo
			if info, ret = get(c, callGpuInstanceGetInfo, instance.GetInfo, in.GI); ret == nvml.SUCCESS {
				in.PlacementStart = gpu.Some(int(info.Placement.Start))
				in.PlacementSize = gpu.Some(int(info.Placement.Size))
				in.ProfileID = gpu.Some(int(info.ProfileId))
			}
		}
		if whole(ret) != nil || ret == nvml.ERROR_NO_PERMISSION {
			return ret
		}
		if result != nvml.SUCCESS {
			result = ret
		}
	}
	return result
}

// readShares adds the share of the GPU that each instance has: its compute slices over those of the GPU.
// The GPU's are those of its largest profile, which is the GPU as one instance (7 on A100, H100 and H200,
// 4 on A30); it is read once.
func readShares(c *GPU, to *gpu.Slow) nvml.Return {
	if len(to.Instances) == 0 {
		return nothingToRead
	}
	if c.mig.slices == 0 {
		result := nvml.ERROR_NOT_SUPPORTED
		for profile := range nvml.GPU_INSTANCE_PROFILE_COUNT {
			info, ret := get(c, callGpuInstanceProfileInfo, func() (nvml.GpuInstanceProfileInfo, nvml.Return) {
				return c.handle().GetGpuInstanceProfileInfo(profile)
			}, profile)
			if whole(ret) != nil {
				return ret
			}
			switch {
			case ret == nvml.SUCCESS:
				c.mig.slices = max(c.mig.slices, int(info.SliceCount))
			case !notOffered(ret) && ret != nvml.ERROR_INVALID_ARGUMENT:
				result = ret
			}
		}
		if c.mig.slices == 0 {
			return result
		}
	}
	for i := range to.Instances {
		in := &to.Instances[i]
		if in.Slices > 0 && in.Slices <= c.mig.slices {
			in.Share = gpu.Some(gpu.Ratio(in.Slices) / gpu.Ratio(c.mig.slices))
		}
	}
	return nvml.SUCCESS
}
