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
		family("index", []string{"uuid"}, "index", func(v *gpu.View, emit catalog.Emit) {
			for i := range v.GPUs {
				if c := &v.GPUs[i]; c.State == gpu.DeviceUp {
					emit(float64(c.Index), smiUUID(c.UUID))
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
		collected("last_collect_success", "Whether the most recent collection succeeded (1) or not (0)",
			func(s gpu.Source) (float64, bool) {
				if s.Up {
					return 1, true
				}
				return 0, true
			}),
		collected("last_collect_duration_seconds", "Duration of the most recent collection",
			func(s gpu.Source) (float64, bool) {
				d, ok := s.Duration.Get()
				return d.Seconds(), ok
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

// readInstances emits a row of MIG instances.
func (p *Page) readInstances(r *Row, v *gpu.View, emit catalog.Emit) {
	readings := r.GPU.read(p, v)
	eachInstance(v, func(c *gpu.GPU, in *gpu.InstanceActivity) {
		for _, x := range readings[key{gpu: string(c.UUID), instance: string(in.UUID)}] {
			emit(x.value, smiUUID(c.UUID), strconv.Itoa(in.GI))
		}
	})
}

func eachInstance(v *gpu.View, do func(*gpu.GPU, *gpu.InstanceActivity)) {
	for i := range v.GPUs {
		for j := range v.GPUs[i].Instances {
			do(&v.GPUs[i], &v.GPUs[i].Instances[j])
		}
	}
}
