package catalog

import (
	"strconv"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

func faults() Group {
	ecc := func(of func(gpu.ECCCount) gpu.Opt[uint64]) func(*gpu.View, Emit) {
		return mediumGPU(func(m *gpu.Medium, emit gpuEmit) {
			for _, e := range m.ECC {
				opt(emit, of(e), string(e.Severity), string(e.Memory))
			}
		})
	}
	cause := func(field func(*gpu.Medium) map[gpu.RemapCause]uint64) func(*gpu.View, Emit) {
		return mediumGPU(func(m *gpu.Medium, emit gpuEmit) {
			counts := field(m)
			for _, c := range []gpu.RemapCause{gpu.CauseCorrected, gpu.CauseUncorrected, gpu.CauseSingleBit,
				gpu.CauseDoubleBit} {
				if n, ok := counts[c]; ok {
					emit(float64(n), string(c))
				}
			}
		})
	}
	sram := func(name, label, help string, of func(gpu.SRAMErrors) map[string]uint64, values ...string) Family {
		return Family{Name: name, Scope: ScopeGPU, Help: help, Source: "nvmlDeviceGetSramEccErrorStatus",
			Labels: []string{label}, Read: slowGPU(func(s *gpu.Slow, emit gpuEmit) {
				if e, ok := s.SRAM.Get(); ok {
					for _, v := range values {
						emit(float64(of(e)[v]), v)
					}
				}
			})}
	}
	flag := func(name, help, source, offered string, of func(*gpu.Slow) gpu.Opt[bool]) Family {
		return Family{Name: name, Scope: ScopeGPU, Help: help, Source: source, Offered: offered, Read: slowFlag(of)}
	}
	return Group{
		Name:  "errors",
		Title: "Errors",
		Rows: []Family{
			{Name: "gpu_xid_events_total", Scope: ScopeGPU,
				Help: "XID errors since the exporter started, by code.", Source: "nvmlEventSetWait and /dev/kmsg",
				Labels: []string{"xid"},
				Read: allGPUs(func(c *gpu.GPU, emit gpuEmit) {
					for _, x := range c.XIDs {
						emit(float64(x.Count), strconv.Itoa(x.XID))
					}
				})},
			{Name: "gpu_xid_last_timestamp_seconds", Scope: ScopeGPU,
				Help: "Unix time of the last XID error by code, including those in the kernel log from before the exporter " +
					"started.", Source: "nvmlEventSetWait and /dev/kmsg", Labels: []string{"xid"},
				Read: allGPUs(func(c *gpu.GPU, emit gpuEmit) {
					for _, x := range c.XIDs {
						timestamp(emit, x.Last, strconv.Itoa(x.XID))
					}
				})},
			{Name: "gpu_xid_last_event_info", Scope: ScopeGPU,
				Help: "MIG GPU instance and container of the last XID error by code, for five minutes. Labels are " +
					"empty where they are unknown.",
				Source: "nvmlEventSetWait and /dev/kmsg",
				Labels: []string{"xid", "gi", "namespace", "pod", "container"},
				Read: allGPUs(func(c *gpu.GPU, emit gpuEmit) {
					for _, x := range c.XIDs {
						if x.GI.Present() || x.Container != (gpu.Container{}) {
							emit(1, strconv.Itoa(x.XID), optLabel(x.GI), x.Container.Namespace, x.Container.Pod, x.Container.Name)
						}
					}
				})},
			{Name: "gpu_ecc_errors_total", Scope: ScopeGPU,
				Help:    "ECC errors since the driver was loaded, by severity and memory location.",
				Source:  "nvmlDeviceGetMemoryErrorCounter, else nvmlDeviceGetTotalEccErrors (volatile)",
				Offered: "GPUs with ECC enabled",
				Labels:  []string{"severity", "memory"},
				Read:    ecc(func(e gpu.ECCCount) gpu.Opt[uint64] { return e.Volatile })},
			{Name: "gpu_ecc_lifetime_errors_total", Scope: ScopeGPU,
				Help:    "ECC errors over the lifetime of the GPU, by severity and memory location.",
				Source:  "nvmlDeviceGetMemoryErrorCounter, else nvmlDeviceGetTotalEccErrors (aggregate)",
				Offered: "GPUs with ECC enabled",
				Labels:  []string{"severity", "memory"},
				Read:    ecc(func(e gpu.ECCCount) gpu.Opt[uint64] { return e.Lifetime })},
			{Name: "gpu_remapped_rows_total", Scope: ScopeGPU,
				Help: "Memory rows remapped in the lifetime of the GPU, by cause.", Source: "nvmlDeviceGetRemappedRows",
				Labels: []string{"cause"},
				Read:   cause(func(m *gpu.Medium) map[gpu.RemapCause]uint64 { return m.RemappedRows })},
			{Name: "gpu_retired_pages_total", Scope: ScopeGPU,
				Help: "Memory pages retired in the lifetime of the GPU, by cause.", Source: "nvmlDeviceGetRetiredPages",
				Labels: []string{"cause"},
				Read:   cause(func(m *gpu.Medium) map[gpu.RemapCause]uint64 { return m.RetiredPages })},
			{Name: "gpu_row_remap_pending", Scope: ScopeGPU,
				Help:   "Whether a row remapping is pending until the next GPU reset.",
				Source: "nvmlDeviceGetRemappedRows",
				Read:   mediumFlag(func(m *gpu.Medium) gpu.Opt[bool] { return m.RemapPending })},
			{Name: "gpu_row_remap_failed", Scope: ScopeGPU,
				Help:   "Whether a row remapping has failed; the GPU should then be replaced.",
				Source: "nvmlDeviceGetRemappedRows",
				Read:   mediumFlag(func(m *gpu.Medium) gpu.Opt[bool] { return m.RemapFailed })},
			{Name: "gpu_row_remap_banks", Scope: ScopeGPU,
				Help: "Memory banks, by availability of spare rows.", Source: "nvmlDeviceGetRowRemapperHistogram",
				Labels: []string{"availability"}, Values: names([]gpu.BankAvailability{gpu.BanksLow, gpu.BanksNone}),
				Read: slowGPU(func(s *gpu.Slow, emit gpuEmit) {
					for _, a := range gpu.BankAvailabilities {
						if n, ok := s.RemapBanks[a]; ok {
							emit(float64(n), string(a))
						}
					}
				})},
			{Name: "gpu_remapped_rows_inactive", Scope: ScopeGPU,
				Help: "Row remappings that are not active, by cause.", Source: "NVML fields 301 and 302",
				Offered: "R595 and newer drivers", Labels: []string{"cause"},
				Read: cause(func(m *gpu.Medium) map[gpu.RemapCause]uint64 { return m.RemapInactive })},
			sram("gpu_ecc_sram_uncorrected_errors_total", "kind",
				"Uncorrectable SRAM errors since the driver was loaded, by kind of detection.",
				func(e gpu.SRAMErrors) map[string]uint64 { return e.Volatile }, "parity", "secded"),
			sram("gpu_ecc_sram_uncorrected_lifetime_errors_total", "kind",
				"Uncorrectable SRAM errors over the lifetime of the GPU, by kind of detection.",
				func(e gpu.SRAMErrors) map[string]uint64 { return e.Lifetime }, "parity", "secded"),
			sram("gpu_ecc_sram_source_lifetime_errors_total", "source",
				"Uncorrectable SRAM errors over the lifetime of the GPU, by unit.",
				func(e gpu.SRAMErrors) map[string]uint64 { return e.Sources }, "l2", "sm", "pcie", "mcu", "other"),
			flag("gpu_ecc_sram_threshold_exceeded",
				"Whether the SRAM errors exceed the threshold for replacing the GPU.", "nvmlDeviceGetSramEccErrorStatus",
				"", func(s *gpu.Slow) gpu.Opt[bool] {
					if e, ok := s.SRAM.Get(); ok {
						return gpu.Some(e.Exceeded)
					}
					return gpu.None[bool]()
				}),
			flag("gpu_channel_repair_pending", "Whether a repair of memory channels is pending until the next GPU reset.",
				"nvmlDeviceGetRepairStatus", "R580 and newer drivers",
				func(s *gpu.Slow) gpu.Opt[bool] { return s.ChannelRepair }),
			flag("gpu_tpc_repair_pending", "Whether a repair of TPCs is pending until the next GPU reset.",
				"nvmlDeviceGetRepairStatus", "R580 and newer drivers",
				func(s *gpu.Slow) gpu.Opt[bool] { return s.TPCRepair }),
			flag("gpu_memory_unrepairable", "Whether the memory has errors that cannot be repaired; replace the GPU.",
				"nvmlDeviceGetUnrepairableMemoryFlag_v1", "Blackwell and newer",
				func(s *gpu.Slow) gpu.Opt[bool] { return s.Unrepairable }),
			{Name: "gpu_retired_pages_pending", Scope: ScopeGPU,
				Help:   "Whether a page retirement is pending until the next reboot.",
				Source: "nvmlDeviceGetRetiredPagesPendingStatus",
				Read:   mediumFlag(func(m *gpu.Medium) gpu.Opt[bool] { return m.RetirePending })},
		},
	}
}
