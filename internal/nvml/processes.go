package nvml

import (
	"cmp"
	"math"
	"slices"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// processLists are the three lists that NVML keeps, in the order of gpu.ProcessKinds.
var processLists = [3]struct {
	kind   gpu.ProcessKind
	id     callID
	method func(nvml.Device) ([]nvml.ProcessInfo, nvml.Return)
}{
	{gpu.ProcessCompute, callComputeRunningProcesses, nvml.Device.GetComputeRunningProcesses},
	{gpu.ProcessGraphics, callGraphicsRunningProcesses, nvml.Device.GetGraphicsRunningProcesses},
	{gpu.ProcessMPS, callMPSComputeRunningProcesses, nvml.Device.GetMPSComputeRunningProcesses},
}

// unknownInstance is the id of no GPU or compute instance.
const unknownInstance = math.MaxUint32

// readProcesses lists the processes of a GPU. It is all or nothing: a list that lacks one kind would look as if there
// were no such processes. A kind that the driver does not offer has none.
//
// In MIG mode the GPU's list is for privileged users; for others it is denied, or without instances. Then each MIG device,
// which has the processes of its compute instance, is read instead, from there on.
func readProcesses(c *GPU, to *gpu.Medium) nvml.Return {
	var list processList
	if !c.mig.perInstance {
		ret := list.read(c, c.handle(), nil, 0)
		if !c.mig.on || whole(ret) != nil {
			return list.finish(ret, to)
		}
		if ret == nvml.SUCCESS && list.placed() {
			for _, p := range list.all {
				if !slices.ContainsFunc(c.mig.instances, func(in gpu.Instance) bool { return in.GI == p.GI.Or(0) }) {
					c.suspect(p.GI.Or(0), nvml.ERROR_NOT_FOUND)
				}
			}
			return list.finish(ret, to)
		}
		if ret != nvml.SUCCESS && ret != nvml.ERROR_NO_PERMISSION && !notOffered(ret) {
			return ret
		}
		c.mig.perInstance = true
		c.kinds = [3]bool{}
		list = processList{}
	}
	result := nvml.SUCCESS
	for i := range c.mig.instances {
		for _, ci := range c.mig.instances[i].Compute {
			if result == nvml.SUCCESS {
				result = list.read(c, c.mig.handles[ci.Index], &c.mig.instances[i], ci.Index)
			}
		}
	}
	return list.finish(result, to)
}

// processList is the lists merged.
type processList struct {
	all []gpu.Process
}

// read adds the processes of a handle. of is the instance to which the MIG device with the index belongs, nil for the GPU.
func (l *processList) read(c *GPU, handle nvml.Device, of *gpu.Instance, index int) nvml.Return {
	offered := false
	result := nvml.ERROR_NOT_SUPPORTED
	var mig []int
	if of != nil {
		mig = []int{index}
	}
	for i, list := range processLists {
		if c.kinds[i] {
			continue
		}
		infos, ret := get(c, list.id, func() ([]nvml.ProcessInfo, nvml.Return) { return list.method(handle) }, mig...)
		switch {
		case ret == nvml.SUCCESS:
			offered = true
			for _, info := range infos {
				l.add(list.kind, info, of)
			}
		case notOffered(ret):
			c.kinds[i] = true
		default:
			return ret
		}
	}
	if offered {
		return nvml.SUCCESS
	}
	return result
}

func (l *processList) add(kind gpu.ProcessKind, info nvml.ProcessInfo, of *gpu.Instance) {
	p := gpu.Process{PID: int(info.Pid), GI: instanceID(info.GpuInstanceId), CI: instanceID(info.ComputeInstanceId)}
	if of != nil {
		p.GI = gpu.Some(of.GI)
		if !p.CI.Present() && len(of.Compute) == 1 {
			p.CI = gpu.Some(of.Compute[0].CI)
		}
	}
	at := slices.IndexFunc(l.all, func(o gpu.Process) bool { return o.PID == p.PID && o.GI == p.GI && o.CI == p.CI })
	if at < 0 {
		l.all = append(l.all, p)
		at = len(l.all) - 1
	}
	merged := &l.all[at]
	if !slices.Contains(merged.Kinds, kind) {
		merged.Kinds = append(merged.Kinds, kind)
	}
	// Each list gives the memory of the whole process, so two of them do not add up.
	if info.UsedGpuMemory != math.MaxUint64 && info.UsedGpuMemory >= uint64(merged.Memory.Or(0)) {
		merged.Memory = gpu.Some(gpu.Bytes(info.UsedGpuMemory))
	}
}

func instanceID(id uint32) gpu.Opt[int] {
	if id == unknownInstance {
		return gpu.None[int]()
	}
	return gpu.Some(int(id))
}

// placed reports whether every process has its GPU instance.
func (l *processList) placed() bool {
	return !slices.ContainsFunc(l.all, func(p gpu.Process) bool { return !p.GI.Present() })
}

func (l *processList) finish(ret nvml.Return, to *gpu.Medium) nvml.Return {
	if ret == nvml.SUCCESS {
		gpu.Sort(l.all, func(a, b gpu.Process) int {
			return cmp.Or(cmp.Compare(a.PID, b.PID), cmp.Compare(a.GI.Or(-1), b.GI.Or(-1)), cmp.Compare(a.CI.Or(-1), b.CI.Or(-1)))
		})
		to.Processes = gpu.Some(l.all)
	}
	return ret
}
