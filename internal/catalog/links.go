package catalog

import (
	"strconv"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

func links() Group {
	pcie := func(name, help, source string, field func(gpu.PCIeLink) gpu.Opt[int]) Family {
		return Family{Name: name, Scope: ScopeGPU, Help: help, Source: source,
			Read: slow(func(s *gpu.Slow) gpu.Opt[int] { return field(s.PCIe) })}
	}
	bytes := func(name, help, source, offered string, field func(*gpu.Activity) gpu.Opt[float64]) Family {
		return Family{Name: name, Scope: ScopeGPU, Help: help, Source: source, Offered: offered, Read: activityValue(field)}
	}
	// link are series of single links of a kind, labeled with the link and for errors with their kind.
	link := func(name, help, source string, kind gpu.LinkKind, value string) Family {
		of := func(links []gpu.Link, emit gpuEmit) {
			for _, l := range links {
				switch isError := l.Value != gpu.LinkUp && l.Value != gpu.LinkTransmit && l.Value != gpu.LinkReceive; {
				case l.Kind != kind || l.Value != value && (value != "" || !isError):
				case kind == gpu.LinkPCIe:
					emit(float64(l.N), l.Value)
				case value != "":
					emit(float64(l.N), strconv.Itoa(l.Index))
				default:
					emit(float64(l.N), strconv.Itoa(l.Index), l.Value)
				}
			}
		}
		labels := []string{"link", "kind"}
		switch {
		case kind == gpu.LinkPCIe:
			labels = labels[1:]
		case value != "":
			labels = labels[:1]
		}
		return Family{Name: name, Scope: ScopeGPU, Help: help, Source: source, Offered: "with --link-details",
			Labels: labels, Stability: Experimental, Read: availableGPUs(func(c *gpu.GPU, emit gpuEmit) {
				of(c.Medium.Or(&gpu.Medium{}).Links, emit)
				of(c.Slow.Or(&gpu.Slow{}).Links, emit)
			})}
	}
	const fabric = "Hopper and newer in an NVSwitch system"
	return Group{
		Name:  "links",
		Title: "PCIe, NVLink and fabric",
		Rows: []Family{
			pcie("gpu_pcie_link_generation", "Current PCIe link generation; lower while idle.",
				"nvmlDeviceGetCurrPcieLinkGeneration", func(p gpu.PCIeLink) gpu.Opt[int] { return p.Generation }),
			pcie("gpu_pcie_link_width", "Current PCIe link width in lanes.", "nvmlDeviceGetCurrPcieLinkWidth",
				func(p gpu.PCIeLink) gpu.Opt[int] { return p.Width }),
			pcie("gpu_pcie_link_generation_max", "Maximum PCIe link generation of this GPU in this slot.",
				"nvmlDeviceGetMaxPcieLinkGeneration", func(p gpu.PCIeLink) gpu.Opt[int] { return p.MaxGeneration }),
			pcie("gpu_pcie_link_generation_gpu_max", "Maximum PCIe link generation of the GPU in any slot.",
				"nvmlDeviceGetGpuMaxPcieLinkGeneration",
				func(p gpu.PCIeLink) gpu.Opt[int] { return p.GPUMaxGeneration }),
			pcie("gpu_pcie_link_width_max", "Maximum PCIe link width of this GPU in this slot, in lanes.",
				"nvmlDeviceGetMaxPcieLinkWidth", func(p gpu.PCIeLink) gpu.Opt[int] { return p.MaxWidth }),
			bytes("gpu_pcie_transmit_bytes_total", "Bytes sent by the GPU over PCIe.",
				"NVML field 197; its 32-bit overflows are resolved by GPM metric 20", hopper,
				func(a *gpu.Activity) gpu.Opt[float64] { return a.PCIeTransmit }),
			bytes("gpu_pcie_receive_bytes_total", "Bytes received by the GPU over PCIe.",
				"NVML field 198; its 32-bit overflows are resolved by GPM metric 21", hopper,
				func(a *gpu.Activity) gpu.Opt[float64] { return a.PCIeReceive }),
			{Name: "gpu_pcie_replays_total", Scope: ScopeGPU,
				Help: "PCIe replays (retransmitted packets) since the driver was loaded.", Source: "nvmlDeviceGetPcieReplayCounter",
				Read: medium(func(m *gpu.Medium) gpu.Opt[uint64] { return m.PCIeReplays })},
			{Name: "gpu_nvlink_links", Scope: ScopeGPU,
				Help: "NVLinks of the GPU, by state.", Source: "nvmlDeviceGetNvLinkState",
				Labels: []string{"state"},
				Read: slowGPU(func(s *gpu.Slow, emit gpuEmit) {
					if n, ok := s.NVLinks.Get(); ok {
						emit(float64(n.Up), "up")
						emit(float64(n.Down), "down")
					}
				})},
			bytes("gpu_nvlink_transmit_bytes_total", "Bytes sent by the GPU over all its NVLinks.",
				"NVML field 202 or 138, scope all links", "",
				func(a *gpu.Activity) gpu.Opt[float64] { return a.NVLinkTransmit }),
			bytes("gpu_nvlink_receive_bytes_total", "Bytes received by the GPU over all its NVLinks.",
				"NVML field 204 or 139, scope all links", "",
				func(a *gpu.Activity) gpu.Opt[float64] { return a.NVLinkReceive }),
			{Name: "gpu_nvlink_errors_total", Scope: ScopeGPU,
				Help:   "NVLink errors since the driver was loaded, over all links of the GPU, by kind.",
				Source: "NVML link error fields, nvmlDeviceGetNvLinkErrorCounter",
				Labels: []string{"kind"},
				Read: mediumGPU(func(m *gpu.Medium, emit gpuEmit) {
					for _, k := range gpu.NVLinkErrors {
						if n, ok := m.NVLinkErrors[k]; ok {
							emit(float64(n), string(k))
						}
					}
				})},
			link("gpu_nvlink_link_up", "Whether the NVLink is up.", "nvmlDeviceGetNvLinkState", gpu.LinkNVLink, gpu.LinkUp),
			link("gpu_nvlink_link_transmit_bytes_total", "Bytes sent over the NVLink, since the driver was loaded.",
				"NVML field 202 or 138", gpu.LinkNVLink, gpu.LinkTransmit),
			link("gpu_nvlink_link_receive_bytes_total", "Bytes received over the NVLink, since the driver was loaded.",
				"NVML field 204 or 139", gpu.LinkNVLink, gpu.LinkReceive),
			link("gpu_nvlink_link_errors_total", "Errors of the NVLink, by kind.",
				"NVML fields 32 to 58, 96 to 119, 161 to 163, 215, 221", gpu.LinkNVLink, ""),
			link("gpu_c2c_link_up", "Whether the link between GPU and CPU is up.", "NVML field 171", gpu.LinkC2C, gpu.LinkUp),
			link("gpu_c2c_link_errors_total", "Errors of the link between GPU and CPU, by kind.", "NVML fields 231 to 233",
				gpu.LinkC2C, ""),
			link("gpu_pcie_errors_total", "Errors of the PCIe link, by kind. correctable, non_fatal and fatal: Advanced Error Reporting.",
				"NVML fields 169 and 173 to 183", gpu.LinkPCIe, ""),
			{Name: "gpu_fabric_state", Type: StateSet, Scope: ScopeGPU,
				Help: "State of the GPU's registration with the NVSwitch fabric; 1 for the current state. failed: it " +
					"completed with an error, and CUDA does not start on the GPU.",
				Source: "nvmlDeviceGetGpuFabricInfoV", Offered: fabric, Labels: []string{"state"}, States: names(gpu.FabricStates),
				Read: slowGPU(func(s *gpu.Slow, emit gpuEmit) {
					if f, ok := s.Fabric.Get(); ok {
						emit(1, string(f.State))
					}
				})},
			{Name: "gpu_fabric_info", Scope: ScopeGPU,
				Help:   "Place of the GPU in the NVLink fabric, and the NVML code with which its registration completed.",
				Source: "nvmlDeviceGetGpuFabricInfoV", Offered: fabric,
				Labels: []string{"cluster_uuid", "clique_id", "status", "partition_assigned"},
				Read: slowGPU(func(s *gpu.Slow, emit gpuEmit) {
					if f, ok := s.Fabric.Get(); ok {
						assigned := ""
						if v, ok := f.Partitioned.Get(); ok {
							assigned = strconv.FormatBool(v)
						}
						emit(1, f.Cluster, strconv.Itoa(f.Clique), f.Status, assigned)
					}
				})},
			{Name: "gpu_fabric_health", Type: StateSet, Scope: ScopeGPU,
				Help:   "Summary of the fabric's health for the GPU; 1 for the current one.",
				Source: "nvmlDeviceGetGpuFabricInfoV (health summary)", Offered: "Blackwell in an NVSwitch system",
				Labels: []string{"health"}, States: gpu.FabricHealths,
				Read: slowGPU(func(s *gpu.Slow, emit gpuEmit) {
					if f, ok := s.Fabric.Get(); ok && f.Health != "" {
						emit(1, f.Health)
					}
				})},
			{Name: "gpu_fabric_fault", Type: StateSet, Scope: ScopeGPU,
				Help:   "Faults of the GPU's connection to the fabric; 1 for each present fault.",
				Source: "nvmlDeviceGetGpuFabricInfoV (health mask)", Offered: fabric, Labels: []string{"fault"},
				Read: slowGPU(func(s *gpu.Slow, emit gpuEmit) {
					if f, ok := s.Fabric.Get(); ok {
						for _, fault := range gpu.FabricFaults {
							if f.Faults[fault] {
								emit(1, string(fault))
							}
						}
					}
				})},
		},
	}
}
