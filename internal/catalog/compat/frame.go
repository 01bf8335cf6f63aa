package compat

import (
	"slices"
	"strconv"
	"strings"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// labelsOf lists the labels of every series. Those that have no value are left out of the exposition.
func labelsOf(r Release) []string {
	if r == DCGM49 {
		return []string{"gpu", "UUID", "pci_bus_id", "device", "modelName", "hostname", "DCGM_FI_SYSTEM_DRIVER_VERSION",
			"GPU_I_PROFILE", "GPU_I_ID", "container", "namespace", "pod", "hpc_job"}
	}
	// The host's label is Hostname up to 4.8.2 and hostname from 4.8.3 on: with both, either query works.
	return []string{"gpu", "UUID", "pci_bus_id", "device", "modelName", "Hostname", "hostname", "DCGM_FI_DRIVER_VERSION",
		"GPU_I_PROFILE", "GPU_I_ID", "container", "namespace", "pod", "hpc_job"}
}

// frame is what the labels of a view come from: its GPUs, their parts and who holds each.
type frame struct {
	view *gpu.View
	devs []dev
}

// GPU is one GPU that NVML has shown.
type dev struct {
	uuid  string
	base  []string // the values of the labels up to the driver's version
	parts []instance
	held  map[gpu.Container]int // how many parts of the GPU each holds
}

// instance is what is held as one: a MIG instance, else the GPU itself.
type instance struct {
	uuid, profile, id string // empty for a whole GPU
	holders           []gpu.Container
}

// alone tells that the GPU is whole and has one holder at most, so that its readings stand once in any case.
func (c *dev) alone() bool {
	return len(c.parts) == 1 && c.parts[0].uuid == "" && len(c.parts[0].holders) < 2
}

// labels returns the label values of one series.
func (c *dev) labels(in *instance, who gpu.Container, own []string) []string {
	pod, job := who.Pod, ""
	if number, ok := strings.CutPrefix(who.Pod, "slurm/"); ok {
		pod, job = "", number
	}
	out := make([]string, 0, len(c.base)+6+len(own))
	out = append(append(out, c.base...), in.profile, in.id, who.Name, who.Namespace, pod, job)
	return append(out, own...)
}

// frameOf returns the frame of a view; all rows of one rendering share it.
func (p *Page) frameOf(v *gpu.View) *frame {
	if f := p.frame.Load(); f != nil && f.view == v {
		return f
	}
	f := &frame{view: v}
	system, _ := v.System.Get()
	hosts := []string{v.Node, v.Node}
	if p.release == DCGM49 {
		hosts = hosts[1:]
	}
	for i := range v.GPUs {
		c := &v.GPUs[i]
		if c.State == gpu.DeviceDetached || c.Index < 0 {
			continue
		}
		index := strconv.Itoa(c.Index)
		out := dev{uuid: string(c.UUID), held: map[gpu.Container]int{}}
		out.base = append([]string{index, string(c.UUID), longPCI(c.PCI), "nvidia" + index, c.Model}, hosts...)
		out.base = append(out.base, system.DriverVersion)
		for j := range c.Instances {
			in := &c.Instances[j]
			out.parts = append(out.parts, instance{uuid: string(in.UUID), profile: in.Profile, id: strconv.Itoa(in.GI),
				holders: holders(v, c.UUID, func(h gpu.UUID) bool {
					return h == in.UUID || slices.ContainsFunc(in.Compute, func(ci gpu.ComputeInstance) bool { return ci.UUID == h })
				})})
		}
		if len(out.parts) == 0 {
			out.parts = []instance{{holders: holders(v, c.UUID, func(h gpu.UUID) bool { return h == "" })}}
		}
		for j := range out.parts {
			for _, who := range out.parts[j].holders {
				out.held[who]++
			}
		}
		f.devs = append(f.devs, out)
	}
	p.frame.Store(f)
	return f
}

// holders lists who holds a part of a GPU, each once.
func holders(v *gpu.View, dev gpu.UUID, part func(gpu.UUID) bool) []gpu.Container {
	var out []gpu.Container
	for i := range v.Allocations {
		h := &v.Allocations[i]
		if h.GPU == dev && part(h.Instance) && !slices.Contains(out, h.Container) {
			out = append(out, h.Container)
		}
	}
	return out
}

// longPCI spells an address as NVML's tools do, with eight digits of domain and in capitals.
func longPCI(a gpu.PCIAddress) string {
	domain, rest, ok := strings.Cut(string(a), ":")
	if !ok {
		return string(a)
	}
	return strings.ToUpper(strings.Repeat("0", max(0, 8-len(domain))) + domain + ":" + rest)
}
