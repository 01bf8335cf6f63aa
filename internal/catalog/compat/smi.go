package compat

import (
	"strconv"
	"strings"

	"github.com/gpu-exporter/gpu-exporter/internal/catalog"
	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// smiFamilies are the families of nvidia_gpu_exporter that are not one value per GPU.
func smiFamilies() []catalog.Family {
	family := func(name string, labels []string, help string, read func(*gpu.View, catalog.Emit)) catalog.Family {
		typ := catalog.Gauge
		if strings.HasSuffix(name, "_total") {
			typ = catalog.Counter
		}
		return catalog.Family{Name: "nvidia_smi_" + name, Type: typ, Help: help, Scope: catalog.ScopeCompat,
			Labels: labels, Stability: catalog.Stable, Read: read}
	}
	// collected reads the health of the source nvml.
	collected := func(name, help string, value func(gpu.Source) (float64, bool)) catalog.Family {
		return family(name, nil, help, func(v *gpu.View, emit catalog.Emit) {
			for _, s := range v.Sources {
				if x, ok := value(s); ok && s.Name == gpu.SourceNVML {
					emit(x)
				}
			}
		})
	}
	memory := func(kind string, of func(gpu.Memory) gpu.Opt[gpu.Bytes]) catalog.Family {
		return family("mig_memory_"+kind+"_bytes", []string{"uuid", "gpu_instance_id"}, "Memory of the GPU instance: "+
			kind+".", func(v *gpu.View, emit catalog.Emit) {
			eachInstance(v, func(c *gpu.GPU, in *gpu.InstanceActivity) {
				if m, ok := in.Memory.Get(); ok {
					if b, ok := of(m).Get(); ok {
						emit(float64(b), smiUUID(c.UUID), strconv.Itoa(in.GI))
					}
				}
			})
		})
	}
	return []catalog.Family{
		family("gpu_info", []string{"uuid", "name", "driver_model_current", "driver_model_pending", "vbios_version",
			"driver_version", "pci_bus_id", "serial", "compute_cap", "pci_sub_device_id", "index", "cuda_version"},
			"A metric with a constant '1' value labeled by the properties of the GPU.",
			func(v *gpu.View, emit catalog.Emit) {
				system, _ := v.System.Get()
				for i := range v.GPUs {
					if c := &v.GPUs[i]; c.State == gpu.DeviceUp {
						emit(1, smiUUID(c.UUID), c.Model, "[N/A]", "[N/A]", c.VBIOS, system.DriverVersion, longPCI(c.PCI),
							c.Serial, c.ComputeCapability, "", strconv.Itoa(c.Index), system.CUDAVersion)
					}
				}
			}),
		family("mig_info", []string{"uuid", "mig_uuid", "gpu_instance_id", "compute_instance_id", "profile"},
			"A metric with a constant '1' value labeled by the identity of a MIG device.",
			func(v *gpu.View, emit catalog.Emit) {
				eachInstance(v, func(c *gpu.GPU, in *gpu.InstanceActivity) {
					for _, ci := range in.Compute {
						emit(1, smiUUID(c.UUID), smiUUID(ci.UUID), strconv.Itoa(in.GI), strconv.Itoa(ci.CI), in.Profile)
					}
				})
			}),
		memory("total", func(m gpu.Memory) gpu.Opt[gpu.Bytes] { return gpu.Some(m.Total) }),
		memory("used", func(m gpu.Memory) gpu.Opt[gpu.Bytes] { return gpu.Some(m.Used) }),
		memory("free", func(m gpu.Memory) gpu.Opt[gpu.Bytes] { return gpu.Some(m.Free) }),
		memory("reserved", func(m gpu.Memory) gpu.Opt[gpu.Bytes] { return m.Reserved }),
		collected("last_collect_success", "Whether the most recent collection succeeded (1) or not (0)",
			func(s gpu.Source) (float64, bool) {
				if s.Up {
					return 1, true
				}
				return 0, true
			}),
		collected("failed_scrapes_total", "Number of failed collections",
			func(s gpu.Source) (float64, bool) { return float64(s.Errors), true }),
		collected("last_collect_success_timestamp_seconds", "Unix timestamp of the most recent successful collection",
			func(s gpu.Source) (float64, bool) {
				t, ok := s.LastSuccess.Get()
				return float64(t.Unix()), ok
			}),
	}
}

func eachInstance(v *gpu.View, do func(*gpu.GPU, *gpu.InstanceActivity)) {
	for i := range v.GPUs {
		for j := range v.GPUs[i].Instances {
			do(&v.GPUs[i], &v.GPUs[i].Instances[j])
		}
	}
}
