package deviceid

import (
	"maps"
	"slices"
	"strings"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// parseVisible parses a value of NVIDIA_VISIBLE_DEVICES: NVML names, NVML indices, "gpu:mig" indices, CDI names; "all"
// is resolved only on a node with one GPU. It is nil where the list names nothing, or anything unknown.
func parseVisible(list string) []Ref {
	var out []Ref
	for name := range strings.SplitSeq(list, ",") {
		name = strings.TrimSpace(name)
		if name == "" {
			continue
		}
		r, ok := parseVisibleName(name)
		if !ok || len(out) >= maxRefs {
			return nil
		}
		out = append(out, r)
	}
	return out
}

func parseVisibleName(name string) (Ref, bool) {
	if kind, device, ok := strings.Cut(name, "="); ok {
		return parseCDI(kind, device)
	}
	if name == "all" {
		return Ref{by: bySole}, true
	}
	if r, ok := ParseNVML(name); ok {
		return r, true
	}
	return parseIndex(name)
}

// parseCDI parses the device of a CDI name whose class is one of GPUs. The names are NVML's, indices, or indices after
// a type: "gpu0", "mig0:1".
func parseCDI(kind, device string) (Ref, bool) {
	vendor, class, ok := strings.Cut(kind, "/")
	if !ok || class != "gpu" && class != "mig" {
		return Ref{}, false
	}
	if r, ok := ParseNVML(device); ok {
		return r, true
	}
	if vendor != "nvidia.com" && vendor != "k8s.device-plugin.nvidia.com" {
		return Ref{}, false
	}
	if device == "all" {
		return Ref{by: bySole}, true
	}
	device = strings.TrimPrefix(strings.TrimPrefix(device, "gpu"), "mig")
	return parseIndex(device)
}

// Visible returns the GPUs that a value of NVIDIA_VISIBLE_DEVICES names, in the order of the inventory, which may be
// nil. Unknown names, none and void name no GPU, all names every GPU, and a MIG device its GPU. Whether the runtime
// followed the list is unknown.
func Visible(inv *gpu.Inventory, list string) []gpu.UUID {
	if inv == nil || len(list) > maxText {
		return nil
	}
	named := map[gpu.UUID]bool{}
	for name := range strings.SplitSeq(list, ",") {
		r, ok := parseVisibleName(strings.TrimSpace(name))
		if !ok {
			continue
		}
		if r.by == bySole {
			r.by = byAll
		}
		targets, _ := Locate(inv, r)
		for _, t := range targets {
			named[t.GPU] = true
		}
	}
	var out []gpu.UUID
	for i := range inv.GPUs {
		if named[inv.GPUs[i].UUID] {
			out = append(out, inv.GPUs[i].UUID)
		}
	}
	return out
}

// isGPUName reports whether a CDI name is that of a GPU: there are others, like nvidia.com/gds=all.
func isGPUName(name string) bool {
	kind, _, _ := strings.Cut(name, "=")
	return strings.HasSuffix(kind, "/gpu") || strings.HasSuffix(kind, "/mig")
}

// visible are the GPUs that the runtime makes visible in the container, in the runtime's own precedence: CDI names,
// names in mounts, the environment. It is nil where the response names none.
func (r *Response) visible() []Ref {
	names := slices.DeleteFunc(slices.Clone(r.CDI), func(n string) bool { return !isGPUName(n) })
	if len(names) == 0 {
		for _, key := range slices.Sorted(maps.Keys(r.Annotations)) {
			if strings.HasPrefix(key, "cdi.k8s.io/") {
				for name := range strings.SplitSeq(r.Annotations[key], ",") {
					if isGPUName(name) && !slices.Contains(names, name) {
						names = append(names, name)
					}
				}
			}
		}
	}
	if len(names) == 0 {
		names = r.Mounts
	}
	if len(names) > 0 {
		return parseVisible(strings.Join(names, ","))
	}
	return parseVisible(r.Env["NVIDIA_VISIBLE_DEVICES"])
}

// minors are the GPUs of the device nodes among nodes.
func minors(nodes []string) []Ref {
	var out []Ref
	for _, node := range nodes {
		n, ok := strings.CutPrefix(node, "/dev/nvidia")
		if !ok {
			continue
		}
		if minor, ok := decimal(n); ok {
			out = append(out, minorRef(minor))
		}
	}
	return out
}

// received are the GPUs that the container can use by the plugin's response: those that the runtime makes visible, else
// those of its device nodes. It is nil where the response names none.
func (r *Response) received() []Ref {
	if refs := r.visible(); refs != nil {
		return refs
	}
	return minors(r.Nodes)
}

// ReceivesGPU reports whether the response gives the container a GPU of NVIDIA's, known or not.
func (r *Response) ReceivesGPU() bool {
	switch r.Env["NVIDIA_VISIBLE_DEVICES"] {
	case "", "void", "none", volumeDevices:
		return r.received() != nil
	}
	return true
}

// volumeDevices is the value of NVIDIA_VISIBLE_DEVICES for GPUs that are named by mounts.
const volumeDevices = "/var/run/nvidia-container-devices"

// MPSLimits are the limits of NVIDIA's MPS that plugins set for a container of one shared GPU:
// CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=50 and CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=20480M.
func (r *Response) MPSLimits() (memory gpu.Opt[gpu.Bytes], compute gpu.Opt[float64]) {
	if text, ok := strings.CutPrefix(r.Env["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"], "0="); ok {
		memory = parseLimit(text)
	}
	if threads, ok := amount(r.Env["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"]); ok {
		compute = percent(threads)
	}
	return memory, compute
}

// ToolkitLimits are the limit and the guaranteed amount of memory that NVIDIA's container toolkit applies to the cgroup
// of a container, NVIDIA_GPU_MEMORY_LIMIT and NVIDIA_GPU_MEMORY_REQUEST in MiB, where the plugin sets them.
func (r *Response) ToolkitLimits() (limit, guaranteed gpu.Opt[gpu.Bytes]) {
	most, ok := amount(r.Env["NVIDIA_GPU_MEMORY_LIMIT"])
	least, _ := amount(r.Env["NVIDIA_GPU_MEMORY_REQUEST"])
	if !ok {
		return limit, mebibytes(least)
	}
	return mebibytes(most), mebibytes(min(least, most))
}
