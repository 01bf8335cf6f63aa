package deviceid

import (
	"regexp"
	"slices"
	"strings"
)

// Table maps resource names to schemes.
type Table struct {
	// Direct are additional resource names whose device IDs contain the GPU's UUID or index.
	Direct []string
	// Whole are resource names each device of which is one GPU, whatever its IDs.
	Whole []string
}

// Plugin returns the parser of a device plugin's resource.
func (t Table) Plugin(resource string) Parser {
	p := newParser(pluginSchemes, resource)
	p.isGPU = p.isGPU || gpuName.MatchString(resource) && !otherVendor.MatchString(resource)
	if slices.Contains(t.Direct, resource) {
		// After the table: a scheme that is known to be opaque stays so.
		p.rows = append(p.rows, &configured)
		p.isGPU = true
	}
	if slices.Contains(t.Whole, resource) && !slices.ContainsFunc(p.rows, func(s *Scheme) bool { return s.parse == nil }) {
		p.rows = append(p.rows, &configuredWhole)
		p.isGPU = true
	}
	return p
}

// Claim parses a device of a DRA claim: its name, and the CDI names that the driver gave it, separated by commas. Unlike
// a device plugin, a driver allocates exactly the device that is named.
func (Table) Claim(driver, device, cdi string) Parsed {
	p := newParser(driverSchemes, driver)
	parsed := p.Parse(device)
	if parsed.Class == Direct {
		return parsed
	}
	if r, ok := guessed(device, cdi); ok {
		return Parsed{Class: Direct, Scheme: &draUnlisted, Ref: r}
	}
	if parsed.Class != NotGPU {
		parsed = Parsed{Class: Opaque, Scheme: &draUnlisted}
	}
	return parsed
}

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

// Ignores reports whether an ID can be taken for Foreign unread: that spares a copy of every ID of every network device.
func (p Parser) Ignores(id string) bool {
	return len(p.rows) == 0 && !p.isGPU && (id == "" || id[0] != 'G' && id[0] != 'M' && id[0] != 'n')
}

// Fixed returns what is parsed from every ID of the resource, where that does not depend on the ID.
func (p Parser) Fixed() (Parsed, bool) {
	switch {
	case len(p.rows) == 0 && p.isGPU:
		return Parsed{Class: Opaque, Scheme: &unlisted}, true
	case len(p.rows) == 0 || p.rows[0].parse != nil:
		return Parsed{Scheme: &unlisted}, false
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
	if p.isGPU || looksLikeGPU(id) {
		// A plugin offers GPUs under a name or in a form that is not in the table. Taking the ID for the GPU could name
		// the wrong pod; ignoring it could make an allocated GPU unallocated.
		return Parsed{Class: Opaque, Scheme: &unlisted}
	}
	return Parsed{Class: Foreign, Scheme: &unlisted}
}

// Unread reports whether a resource whose IDs are Foreign may be one of GPUs: its name is of no other kind of device that
// is known.
func Unread(resource string) bool {
	return !otherVendor.MatchString(resource) && !otherDevices.MatchString(resource)
}

// otherDevices matches the names of resources of network, storage and host devices: rdma/hca_shared, openshift.io/sriov_net,
// devices.kubevirt.io/kvm, smarter-devices/fuse, vpc.amazonaws.com/pod-eni, aws.amazon.com/neuron, intel.com/sgx.
var otherDevices = regexp.MustCompile(`(?i)(^|[^a-z])(rdma|roce|infiniband|ib|hca|efa|eni|ipv4|nics?|net|netdevice|network|vlan|sriov|` +
	`vfs?|vfio|vdpa|mlx|mlnx|mlnxnics|bf[23]|fuse|kvm|tun|vhost|vsock|sev|tdx|sgx|tpm|qat|dsa|iaa|dlb|usb|serial|tty[a-z]*|` +
	`video[0-9]*|camera|snd|sound|i2c|spi|gpio|rtc|fpga|tpu|npu|neuron|neuroncore|neurondevice|gaudi|hpu|dpu|vpu|dla|nvme|` +
	`disk|storage|csi|cpu|cpuset|memory|hugepages|epc|enclave|provision|networking|devices\.kubevirt\.io|xilinx|solarflare)` +
	`([^a-z]|$)`)

// WantsEnv reports whether some scheme reads an environment variable. Others may be secrets, and are not kept.
func WantsEnv(name string) bool {
	return hasPrefix(name, "NVIDIA_VISIBLE_DEVICES", "NVIDIA_GPU_MEMORY_", "ALIYUN_COM_GPU_", "VOLCANO_GPU_", "CUDA_DEVICE_MEMORY_LIMIT",
		"CUDA_DEVICE_SM_LIMIT", "CUDA_MEM_LIMIT", "CUDA_CORE_LIMIT", "MANAGER_VISIBLE_DEVICES", "CUDA_MPS_")
}

// WantsContainerAnnotation reports whether some scheme reads an annotation that a plugin sets on a container.
func WantsContainerAnnotation(name string) bool { return hasPrefix(name, "cdi.k8s.io/", tencentVCUDA) }

var (
	// gpuName matches the names of resources whose devices may be NVIDIA's GPUs, otherVendor those of other vendors'.
	gpuName     = regexp.MustCompile(`(?i)gpu|nvidia|cuda`)
	otherVendor = regexp.MustCompile(`^([a-z0-9-]+\.)*(amd|intel|habana|huawei|cambricon|hygon|iluvatar|metax-tech|mthreads|` +
		`enflame|kunlunxin|birentech|vastaitech)\.[a-z]+(/|$)`)
)

// WantsAnnotation reports whether some scheme reads an annotation of a pod.
func WantsAnnotation(key string) bool {
	switch key {
	case volcanoGPUIndex, volcanoVGPUIDs, hamiAllocated, hamiAllocatedOld, hamiMIG, hamiPhase, aliyunAllocation,
		aliyunCores, koordinatorAllocated, kaiFraction, kaiMemory, kaiDevices,
		kaiContainer, kubeShareUUID, kubeShareMemory, kubeShareOldID, kubeShareOldRequest, kubeShareOldMemory:
		return true
	}
	return hasPrefix(key, nvFractionsPrefix, "ALIYUN_COM_GPU_MEM_", tencentIndex, elasticContainer) || hasSuffix(key, vgpuManagerAllocated)
}

func hasPrefix(s string, prefixes ...string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(s, p) })
}

func hasSuffix(s string, suffixes ...string) bool {
	return slices.ContainsFunc(suffixes, func(p string) bool { return strings.HasSuffix(s, p) })
}
