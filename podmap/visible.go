package podmap

import (
	"maps"
	"slices"
	"strings"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// volumeDevices is where the container runtime looks for device names that are given as mounts.
const volumeDevices = "/var/run/nvidia-container-devices"

// readVisible reads a list in the words of NVIDIA_VISIBLE_DEVICES: NVML names, NVML indices, "gpu:mig"
// indices, CDI names; "all" is told only where there is one GPU. It is false where the list names nothing, or
// anything that is not understood.
func readVisible(list string) ([]ref, bool) {
	var out []ref
	for name := range strings.SplitSeq(list, ",") {
		name = strings.TrimSpace(name)
		if name == "" {
			continue
		}
		r, ok := readVisibleName(name)
		if !ok || len(out) >= mostNames {
			return nil, false
		}
		out = append(out, r)
	}
	return out, len(out) > 0
}

func readVisibleName(name string) (ref, bool) {
	if kind, device, ok := strings.Cut(name, "="); ok {
		return readCDI(kind, device)
	}
	if name == "all" {
		return ref{by: bySole, gi: -1, ci: -1}, true
	}
	if r, ok := readNVML(name); ok {
		return r, true
	}
	return readIndex(name)
}

// readIndex reads an NVML index, "1", or the index of a MIG device on its GPU, "0:1".
func readIndex(text string) (ref, bool) {
	dev, mig, isMIG := strings.Cut(text, ":")
	index, ok := decimal(dev)
	if !ok {
		return ref{}, false
	}
	r := ref{by: byIndex, minor: index, gi: -1, ci: -1}
	if isMIG {
		r.by = byMIGIndex
		r.ci, ok = decimal(mig)
	}
	return r, ok
}

// readCDI reads the device of a CDI name whose class is one of GPUs. The names are NVML's, indices, or
// indices behind a type: "gpu0", "mig0:1".
func readCDI(kind, device string) (ref, bool) {
	vendor, class, ok := strings.Cut(kind, "/")
	if !ok || class != "gpu" && class != "mig" {
		return ref{}, false
	}
	if r, ok := readNVML(device); ok {
		return r, true
	}
	if vendor != "nvidia.com" && vendor != "k8s.device-plugin.nvidia.com" {
		return ref{}, false
	}
	if device == "all" {
		return ref{by: bySole, gi: -1, ci: -1}, true
	}
	device = strings.TrimPrefix(strings.TrimPrefix(device, "gpu"), "mig")
	return readIndex(device)
}

// Visible returns the GPUs of a list in the words of NVIDIA_VISIBLE_DEVICES, in the order of the inventory. A name
// that nobody knows here shows nothing, and neither do none and void; all shows every GPU, and a MIG device its
// GPU. It does not say that the runtime followed the list. Inv may be nil.
func Visible(inv *gpu.Inventory, list string) []gpu.UUID {
	if inv == nil || len(list) > longestValue {
		return nil
	}
	named := map[gpu.UUID]bool{}
	for name := range strings.SplitSeq(list, ",") {
		r, ok := readVisibleName(strings.TrimSpace(name))
		if !ok {
			continue
		}
		if r.by == bySole {
			r.by = byAll
		}
		targets, _ := locate(inv, r)
		for _, t := range targets {
			named[t.dev] = true
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

// isCardName tells whether a CDI name is one of a GPU at all: others stand beside it, like nvidia.com/gds=all.
func isGPUName(name string) bool {
	kind, _, _ := strings.Cut(name, "=")
	return strings.HasSuffix(kind, "/gpu") || strings.HasSuffix(kind, "/mig")
}

// visible are the GPUs that the runtime will show to the container, in the runtime's own order of precedence:
// CDI names, names given as mounts, the environment. It is false where the answer names none of its own.
func (a *allotment) visible() ([]ref, bool) {
	names := slices.DeleteFunc(slices.Clone(a.cdi), func(n string) bool { return !isGPUName(n) })
	if len(names) == 0 {
		for _, key := range slices.Sorted(maps.Keys(a.annotations)) {
			if strings.HasPrefix(key, "cdi.k8s.io/") {
				for name := range strings.SplitSeq(a.annotations[key], ",") {
					if isGPUName(name) && !slices.Contains(names, name) {
						names = append(names, name)
					}
				}
			}
		}
	}
	if len(names) == 0 {
		names = a.volumes
	}
	if len(names) > 0 {
		return readVisible(strings.Join(names, ","))
	}
	return readVisible(a.env["NVIDIA_VISIBLE_DEVICES"])
}

// minors are the GPUs whose device nodes the container gets. It is false where it gets none.
func (a *allotment) minors(nodes []string) ([]ref, bool) {
	var out []ref
	for _, node := range nodes {
		n, ok := strings.CutPrefix(node, "/dev/nvidia")
		if !ok {
			continue
		}
		if minor, ok := decimal(n); ok {
			out = append(out, ref{by: byMinor, minor: minor, gi: -1, ci: -1})
		}
	}
	return out, len(out) > 0
}
