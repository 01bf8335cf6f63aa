package catalog

import "github.com/gpu-exporter/gpu-exporter/internal/gpu"

func identity() Group {
	return Group{
		Title: "Identity and state",
		Intro: "Which cards there are, whether each can be read, and where each of its seconds went. A card that cannot be read keeps the families of this chapter, its XIDs and its allocation; all its other values end.",
		Examples: []Example{
			{"Which cards are broken?", `gpu_device_up == 0`},
			{"Where did the cards of the fleet spend the last hour, in cards?", `sum by (use) (increase(gpu_card_seconds_total[1h])) / 3600`},
		},
		Rows: []Family{
			{Name: "gpu_info", Type: Info, Scope: ScopeCard, Stability: Stable,
				Help:   "What the card is; 1.",
				Source: "nvmlDeviceGetName, GetBrand, GetArchitecture, GetCudaComputeCapability, GetPciInfo, GetMinorNumber, GetSerial, GetBoardPartNumber, GetVbiosVersion; numa_node of the PCI device in sysfs",
				Labels: []string{"model", "brand", "architecture", "compute_capability", "pci_bus_id", "minor_number", "serial", "board_part", "vbios_version", "numa_node"},
				Read: cards(func(c *gpu.Card, emit cardEmit) {
					emit(1, c.Model, c.Brand, c.Architecture, c.ComputeCapability, string(c.PCI), optLabel(c.Minor),
						c.Serial, c.BoardPart, c.VBIOS, optLabel(c.NUMANode))
				})},
			{Name: "gpu_driver_info", Type: Info, Scope: ScopeNode, Stability: Stable,
				Help:   "Versions of the driver and of what it offers; 1.",
				Source: "nvmlSystemGetDriverVersion, GetCudaDriverVersion, GetNVMLVersion",
				Labels: []string{"driver_version", "cuda_version", "nvml_version"},
				Read: node(func(v *gpu.View, emit cardEmit) {
					if s, ok := v.System.Get(); ok {
						emit(1, s.DriverVersion, s.CUDAVersion, s.NVMLVersion)
					}
				})},
			{Name: "gpu_device_up", Type: Gauge, Scope: ScopeCard, Stability: Stable,
				Help: "1 while the card can be read; 0 when it is lost, missing, stuck in a call or needs a reset.",
				Read: cards(func(c *gpu.Card, emit cardEmit) { emit(b2f(c.State == gpu.CardUp)) })},
			{Name: "gpu_last_read_timestamp_seconds", Type: Gauge, Unit: "seconds", Scope: ScopeCard, Stability: Stable,
				Help:   "When the lane last read the card, Unix time.",
				Labels: []string{"lane"},
				Read: cards(func(c *gpu.Card, emit cardEmit) {
					for _, lane := range gpu.DeviceLanes {
						if t, ok := c.LastRead[lane]; ok {
							emit(unix(t), string(lane))
						}
					}
				})},
			{Name: "gpu_recovery_action", Type: StateSet, Scope: ScopeCard, Stability: Stable,
				Help: "What the driver wants done with the card: 1 for the action that holds.", Source: "NVML field 230", Offered: "R570 and newer drivers",
				Labels: []string{"action"},
				Read: cards(func(c *gpu.Card, emit cardEmit) {
					if a, ok := c.Recovery.Get(); ok {
						states(emit, gpu.RecoveryActions, a)
					}
				})},
			{Name: "gpu_node_devices", Type: Gauge, Scope: ScopeNode, Stability: Stable,
				Help:   "Cards of the node by state. Missing: on the PCI bus and not in NVML. Detached: bound to another driver on purpose.",
				Source: "/sys/bus/pci/devices and NVML",
				Labels: []string{"state"},
				Read: node(func(v *gpu.View, emit cardEmit) {
					if v.Devices == nil {
						return
					}
					for _, s := range gpu.CardStates {
						emit(float64(v.Devices[s]), string(s))
					}
				})},
			{Name: "gpu_card_seconds_total", Type: Counter, Unit: "seconds", Scope: ScopeCard, Stability: Stable,
				Help:   "Each second of the card once: busy first, the rest by held share. Idle: the holder was not busy for 60 s. Unknown: nobody can tell.",
				Labels: []string{"use"},
				Read: cards(func(c *gpu.Card, emit cardEmit) {
					if c.CardSeconds == nil {
						return
					}
					for _, u := range gpu.Uses {
						emit(float64(c.CardSeconds[u]), string(u))
					}
				})},
		},
	}
}

func optLabel(o gpu.Opt[int]) string {
	if v, ok := o.Get(); ok {
		return indexLabel(v)
	}
	return ""
}
