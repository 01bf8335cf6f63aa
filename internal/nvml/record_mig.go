package nvml

import (
	"fmt"
	"slices"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-exporter/gpu-exporter/internal/standin/scenario"
)

// migRecorded is a MIG device as a recording keeps it.
type migRecorded struct {
	handle      nvml.Device
	index       int
	uuid        string
	gi, ci      int
	profile     string
	start, size int
	slices      int // of the compute instance; 0: not told
	giSlices    int
	sms         int
	memoryMiB   uint64
	profileID   int // -1: not told
	used        uint64
}

// profileRecorded is a GPU instance profile of the GPU.
type profileRecorded struct {
	number int
	name   string
	info   nvml.GpuInstanceProfileInfo
}

// statement spells a profile. What it has none of is left out.
func (p profileRecorded) statement() string {
	i := p.info
	text := fmt.Sprintf("profile %s number=%d id=%d slices=%d memory=%dMiB", p.name, p.number, min(i.Id, 255), max(1, min(i.SliceCount, 16)), min(i.MemorySizeMB, 1<<28))
	for _, o := range []struct {
		name     string
		is, most uint32
	}{{"sms", i.MultiprocessorCount, 1024}, {"count", i.InstanceCount, 16}, {"copies", i.CopyEngineCount, 64}, {"decoders", i.DecoderCount, 64},
		{"encoders", i.EncoderCount, 64}, {"jpg", i.JpegCount, 64}, {"ofa", i.OfaCount, 64}} {
		if o.is > 0 {
			text += fmt.Sprintf(" %s=%d", o.name, min(o.is, o.most))
		}
	}
	return text
}

// recordMIG writes the MIG mode, and the layout of a GPU that is in it.
func (r *GPURecorder) recordMIG() {
	current, pending, ret := get2(r.dev, callMIGMode, r.dev.handle().GetMigMode)
	if r.see(ret) != nvml.SUCCESS {
		r.set("MigMode", scenario.Value{}, ret)
		r.askMaxMIG()
		return
	}
	profiles, told := r.readProfiles()
	if current == nvml.DEVICE_MIG_ENABLE {
		r.readLayout()
	} else {
		r.askMaxMIG()
	}
	profiles = r.matchProfiles(profiles)
	if len(profiles) == 0 { // a GPU with a MIG mode has profiles; one that keeps them to itself gets one for the form
		profiles = []profileRecorded{{name: "none", info: nvml.GpuInstanceProfileInfo{SliceCount: 1}}}
	}
	if told != nvml.SUCCESS {
		r.set("GpuInstanceProfileInfo", scenario.Value{}, told)
	}
	for _, p := range profiles {
		r.draft.Lines = append(r.draft.Lines, p.statement())
	}
	if current == nvml.DEVICE_MIG_ENABLE {
		r.say(fmt.Sprintf("mig gpu=%d layout=%q", r.index, r.layout()))
	}
	if (current == nvml.DEVICE_MIG_ENABLE) != (pending == nvml.DEVICE_MIG_ENABLE) {
		to := "off"
		if pending == nvml.DEVICE_MIG_ENABLE {
			to = "on"
		}
		r.say(fmt.Sprintf("at 0s gpu %d mig pending %s", r.index, to))
	}
}

func (r *GPURecorder) askMaxMIG() int {
	most, ret := get(r.dev, callMaxMIGCount, r.dev.handle().GetMaxMigDeviceCount)
	if r.see(ret) != nvml.SUCCESS {
		r.set("MaxMigDeviceCount", scenario.Value{}, ret)
		return 0
	}
	return most
}

// readProfiles asks for every profile. The code is SUCCESS if one answered.
func (r *GPURecorder) readProfiles() ([]profileRecorded, nvml.Return) {
	var list []profileRecorded
	fate := nvml.ERROR_NOT_SUPPORTED
	for number := range nvml.GPU_INSTANCE_PROFILE_COUNT {
		info, ret := get(r.dev, callProfileInfo, func() (nvml.GpuInstanceProfileInfo, nvml.Return) {
			return r.dev.handle().GetGpuInstanceProfileInfo(number)
		})
		switch {
		case r.see(ret) == nvml.SUCCESS:
			list = append(list, profileRecorded{number: number, info: info})
		case !notOffered(ret) && ret != nvml.ERROR_INVALID_ARGUMENT:
			fate = ret
		}
	}
	if len(list) > 0 {
		fate = nvml.SUCCESS
	}
	return list, fate
}

// readLayout walks the MIG devices.
func (r *GPURecorder) readLayout() {
	const most = 8 // that a scenario has room for; no GPU has more
	for index := range min(r.askMaxMIG(), most) {
		handle, ret := get(r.dev, callMIGHandle, func() (nvml.Device, nvml.Return) { return r.dev.handle().GetMigDeviceHandleByIndex(index) })
		switch {
		case ret == nvml.ERROR_NOT_FOUND, ret == nvml.ERROR_INVALID_ARGUMENT:
			continue
		case r.see(ret) != nvml.SUCCESS:
			r.set("MigDeviceHandleByIndex", scenario.Value{}, ret)
			return
		}
		d := migRecorded{handle: handle, index: index, profileID: -1}
		if !r.describe(&d) {
			continue
		}
		r.mig = append(r.mig, d)
	}
}

// describe asks a MIG device who it is; false where it does not say.
func (r *GPURecorder) describe(d *migRecorded) bool {
	var ret nvml.Return
	if d.uuid, ret = get(r.dev, callUUID, d.handle.GetUUID); r.see(ret) != nvml.SUCCESS {
		r.note(fmt.Sprintf("MIG device %d did not tell its UUID (%s) and is left out.", d.index, codeName(ret)))
		return false
	}
	if d.gi, ret = get(r.dev, callGPUInstanceID, d.handle.GetGpuInstanceId); r.see(ret) != nvml.SUCCESS {
		r.set("GpuInstanceId", scenario.Value{}, ret)
	}
	if d.ci, ret = get(r.dev, callComputeInstanceID, d.handle.GetComputeInstanceId); r.see(ret) != nvml.SUCCESS {
		r.set("ComputeInstanceId", scenario.Value{}, ret)
	}
	if d.gi < 0 || d.gi > 15 || d.ci < 0 || d.ci > 15 {
		r.note(fmt.Sprintf("MIG device %d has the ids %d and %d, which a scenario cannot hold; it is left out.", d.index, d.gi, d.ci))
		return false
	}
	attributes, ret := get(r.dev, callAttributes, d.handle.GetAttributes)
	if r.see(ret) == nvml.SUCCESS {
		d.slices, d.giSlices = int(attributes.ComputeInstanceSliceCount), int(attributes.GpuInstanceSliceCount)
		d.sms, d.memoryMiB = int(attributes.MultiprocessorCount), attributes.MemorySizeMB
	} else {
		r.set("Attributes", scenario.Value{}, ret)
	}
	if name, ret := get(r.dev, callName, d.handle.GetName); r.see(ret) == nvml.SUCCESS {
		d.profile = profileOf(name)
	}
	instance, ret := get(r.dev, callGPUInstance, func() (nvml.GpuInstance, nvml.Return) { return r.dev.handle().GetGpuInstanceById(d.gi) })
	if r.see(ret) != nvml.SUCCESS {
		r.set("GpuInstanceById", scenario.Value{}, ret)
	} else if info, ret := get(r.dev, callGPUInstanceInfo, instance.GetInfo); r.see(ret) != nvml.SUCCESS {
		r.set("GpuInstanceInfo", scenario.Value{}, ret)
	} else {
		d.start, d.size, d.profileID = int(info.Placement.Start), int(info.Placement.Size), int(info.ProfileId)
	}
	r.describeMemory(d)
	return true
}

// describeMemory asks for the memory of a device's GPU instance.
func (r *GPURecorder) describeMemory(d *migRecorded) {
	if m, ret := get(r.dev, callMemoryInfoV2, d.handle.GetMemoryInfo_v2); r.see(ret) == nvml.SUCCESS {
		d.memoryMiB, d.used = m.Total>>20, m.Used
		if m.Reserved > 0 {
			r.note(fmt.Sprintf("GPU instance %d has %d bytes reserved, which a scenario cannot say.", d.gi, m.Reserved))
		}
	} else if m, ret := get(r.dev, callMemoryInfo, d.handle.GetMemoryInfo); r.see(ret) == nvml.SUCCESS {
		d.memoryMiB, d.used = m.Total>>20, m.Used
	}
}

// matchProfiles gives the profiles in use the names by which their instances go, and adds those that the GPU
// did not list.
func (r *GPURecorder) matchProfiles(profiles []profileRecorded) []profileRecorded {
	for i := range r.mig {
		d := &r.mig[i]
		at := slices.IndexFunc(profiles, func(p profileRecorded) bool { return d.profileID >= 0 && int(p.info.Id) == d.profileID })
		if at < 0 && d.profile != "" {
			at = slices.IndexFunc(profiles, func(p profileRecorded) bool { return p.name == d.profile })
		}
		if at < 0 {
			at = slices.IndexFunc(profiles, func(p profileRecorded) bool {
				return p.name == "" && int(p.info.SliceCount) == d.giSlices && near(p.info.MemorySizeMB, d.memoryMiB)
			})
		}
		if at < 0 {
			sms := d.sms
			if d.slices > 0 && d.giSlices > d.slices {
				sms = d.sms * d.giSlices / d.slices
			}
			profiles = append(profiles, profileRecorded{number: freeNumber(profiles), info: nvml.GpuInstanceProfileInfo{Id: uint32(max(0, d.profileID)),
				SliceCount: uint32(d.giSlices), MultiprocessorCount: uint32(sms)}})
			at = len(profiles) - 1
		}
		p := &profiles[at]
		if d.memoryMiB > 0 {
			p.info.MemorySizeMB = d.memoryMiB
		}
		if p.name == "" {
			p.name = profileName(profiles, d.profile, p.info)
		}
		d.profile = p.name
	}
	for i := range profiles {
		if profiles[i].name == "" {
			profiles[i].name = profileName(profiles, "", profiles[i].info)
		}
	}
	return profiles
}

func near(a, b uint64) bool { return max(a, b)-min(a, b) <= 64 }

// freeNumber is a number that no profile has.
func freeNumber(profiles []profileRecorded) int {
	for n := nvml.GPU_INSTANCE_PROFILE_COUNT - 1; n > 0; n-- {
		if !slices.ContainsFunc(profiles, func(p profileRecorded) bool { return p.number == n }) {
			return n
		}
	}
	return 255
}

// profileName is the driver's name of a profile, or one made of slices and memory that no other has.
func profileName(profiles []profileRecorded, told string, info nvml.GpuInstanceProfileInfo) string {
	name := strings.Map(func(c rune) rune {
		if c > ' ' && c < 0x7f && !strings.ContainsRune(`"=[]#;\`, c) {
			return c
		}
		return -1
	}, told)
	if name == "" || len(name) > 24 {
		name = fmt.Sprintf("%dg.%dgb", info.SliceCount, (info.MemorySizeMB+1023)/1024)
	}
	free := name
	for n := 1; slices.ContainsFunc(profiles, func(p profileRecorded) bool { return p.name == free }); n++ {
		free = fmt.Sprintf("%s+%d", name, n)
	}
	return free
}

// layout spells the MIG devices.
func (r *GPURecorder) layout() string {
	var entries []string
	for _, d := range r.mig {
		entry := fmt.Sprintf("gi=%d ci=%d profile=%s start=%d size=%d index=%d uuid=%s", d.gi, d.ci, d.profile,
			min(max(d.start, 0), 15), min(max(d.size, 0), 16), d.index, r.mask.uuid(d.uuid))
		if d.slices > 0 && d.slices <= 16 {
			entry += fmt.Sprintf(" slices=%d", d.slices)
		}
		entries = append(entries, entry)
	}
	return strings.Join(entries, " ; ")
}

// instanceRest writes the memory that instances use beside that of their processes.
func (r *GPURecorder) instanceRest(list []held) {
	seen := map[int]bool{}
	for _, d := range r.mig {
		if seen[d.gi] {
			continue
		}
		seen[d.gi] = true
		rest := d.used
		for _, p := range list {
			if p.gi == d.gi && p.memory != ^uint64(0) {
				rest -= min(rest, p.memory)
			}
		}
		if rest > 0 && rest <= 1<<50 {
			r.say(fmt.Sprintf("load gpu=%d gi=%d ci=%d memory=%d busy=0%%   # used by nobody who is listed", r.index, d.gi, d.ci, rest))
		}
	}
}
