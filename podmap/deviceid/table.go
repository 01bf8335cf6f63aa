package deviceid

import (
	"slices"
	"strings"
)

// Table maps resource names to schemes.
type Table struct {
	// Direct are additional resource names whose device IDs contain the GPU's UUID or index.
	Direct []string
}

// Plugin returns the parser of a device plugin's resource.
func (t Table) Plugin(resource string) Parser {
	p := newParser(pluginSchemes, resource)
	if slices.Contains(t.Direct, resource) {
		// After the table: a scheme that is known to be opaque stays so.
		p.rows = append(p.rows, &configured)
		p.isGPU = true
	}
	return p
}

// Driver returns the parser of a DRA driver's device names.
func (Table) Driver(name string) Parser { return newParser(driverSchemes, name) }

// PodSchemes are the schemes whose pods request nothing of the kubelet.
func PodSchemes() []*Scheme { return podSchemes }

// OpaqueSchemes are the schemes of device plugins whose device IDs do not identify the GPU.
func OpaqueSchemes() []*Scheme {
	return slices.DeleteFunc(slices.Clone(pluginSchemes), func(s *Scheme) bool { return s.class != Opaque })
}

// Parser parses the device IDs of one resource.
type Parser struct {
	resource string
	rows     []*Scheme
	// isGPU is true where the resource is one of GPUs, so that an unknown ID counts as unresolved.
	isGPU bool
}

func newParser(table []*Scheme, resource string) Parser {
	p := Parser{resource: resource}
	for _, s := range table {
		if !s.Matches(resource) {
			continue
		}
		p.rows = append(p.rows, s)
		p.isGPU = p.isGPU || s.class == Direct || s.class == Opaque
		if s.parse == nil {
			break // no later row is reached
		}
	}
	return p
}

// IsGPU reports whether the resource is known to be one of GPUs.
func (p Parser) IsGPU() bool { return p.isGPU }

// Ignores reports whether an ID can be dropped unread: that spares a copy of every ID of every network device.
func (p Parser) Ignores(id string) bool {
	return len(p.rows) == 0 && (id == "" || id[0] != 'G' && id[0] != 'M' && id[0] != 'n')
}

// Fixed returns what is parsed from every ID of the resource, where that does not depend on the ID.
func (p Parser) Fixed() (Parsed, bool) {
	if len(p.rows) == 0 || p.rows[0].parse != nil {
		return Parsed{}, false
	}
	return Parsed{Class: p.rows[0].class, Scheme: p.rows[0]}, true
}

// Parse returns what the first row that knows the form of an ID makes of it.
func (p Parser) Parse(id string) Parsed {
	for _, s := range p.rows {
		if s.parse == nil {
			return Parsed{Class: s.class, Scheme: s}
		}
		if len(id) > maxIDLength {
			continue
		}
		if r, ok := s.parse(p.resource, id); ok {
			return Parsed{Class: s.class, Scheme: s, Ref: r}
		}
	}
	switch {
	case p.isGPU:
		return Parsed{Class: Unknown}
	case looksLikeGPU(id):
		// A plugin offers GPUs under a name that is not in the table. Taking the ID for the GPU could name the wrong
		// pod; ignoring it could make an allocated GPU unallocated.
		return Parsed{Class: Opaque, Scheme: &unlisted}
	}
	return Parsed{Class: NotGPU}
}

// WantsEnv reports whether some scheme reads an environment variable. Others may be secrets, and are not kept.
func WantsEnv(name string) bool {
	return hasPrefix(name, "NVIDIA_VISIBLE_DEVICES", "ALIYUN_COM_GPU_", "VOLCANO_GPU_", "CUDA_DEVICE_MEMORY_LIMIT",
		"CUDA_DEVICE_SM_LIMIT", "CUDA_MEM_LIMIT", "CUDA_CORE_LIMIT", "MANAGER_VISIBLE_DEVICE", "CUDA_MPS_")
}

// WantsContainerAnnotation reports whether some scheme reads an annotation that a plugin sets on a container.
func WantsContainerAnnotation(name string) bool { return hasPrefix(name, "cdi.k8s.io/", tencentVCUDA) }

// WantsAnnotation reports whether some scheme reads an annotation of a pod.
func WantsAnnotation(key string) bool {
	switch key {
	case volcanoGPUIndex, volcanoVGPUIDs, hamiAllocated, hamiAllocatedOld, hamiMIG, hamiPhase, aliyunAllocation,
		aliyunCores, vgpuManagerAllocated, koordinatorAllocated, kaiReserved, kaiFraction, kaiMemory, kaiDevices,
		kaiContainer, kubeShareUUID, kubeShareMemory, kubeShareOldID, kubeShareOldRequest, kubeShareOldMemory:
		return true
	}
	return hasPrefix(key, "ALIYUN_COM_GPU_MEM_", tencentIndex, elasticContainer)
}

func hasPrefix(s string, prefixes ...string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(s, p) })
}
