package compat

import (
	"slices"
	"strconv"
	"strings"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// labelsOf lists the labels of every series. Empty labels are omitted from the exposition.
func labelsOf(r Release) []string {
	if r == DCGM49 {
		return []string{"gpu", "UUID", "pci_bus_id", "device", "modelName", "hostname", "DCGM_FI_SYSTEM_DRIVER_VERSION",
			"GPU_I_PROFILE", "GPU_I_ID", "container", "namespace", "pod", "hpc_job"}
	}
	// The label is Hostname up to 4.8.2 and hostname since 4.8.3: with both, either query works.
	return []string{"gpu", "UUID", "pci_bus_id", "device", "modelName", "Hostname", "hostname",
		"DCGM_FI_DRIVER_VERSION",
		"GPU_I_PROFILE", "GPU_I_ID", "container", "namespace", "pod", "hpc_job"}
}

// exclusive tells that the GPU is not partitioned and allocated to one container at most: its readings occur once.
func (d *device) exclusive() bool {
	return len(d.parts) == 1 && d.parts[0].uuid == "" && len(d.parts[0].containers) < 2
}

// labels returns the label values of one series.
func (d *device) labels(in *instance, to gpu.Container, own []string) []string {
	pod, job := to.Pod, ""
	if number, ok := strings.CutPrefix(to.Pod, "slurm/"); ok {
		pod, job = "", number
	}
	out := make([]string, 0, len(d.base)+6+len(own))
	out = append(append(out, d.base...), in.profile, in.id, to.Name, to.Namespace, pod, job)
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
		out := device{uuid: string(c.UUID), count: map[gpu.Container]int{}}
		out.base = append([]string{index, string(c.UUID), longPCI(c.PCI), "nvidia" + index, c.Model}, hosts...)
		out.base = append(out.base, system.DriverVersion)
		for j := range c.Instances {
			in := &c.Instances[j]
			out.parts = append(out.parts, instance{uuid: string(in.UUID), profile: in.Profile, id: strconv.Itoa(in.GI),
				containers: containersOf(v, c.UUID, func(h gpu.UUID) bool {
					return h == in.UUID || slices.ContainsFunc(in.Compute,
						func(ci gpu.ComputeInstance) bool { return ci.UUID == h })
				})})
		}
		if len(out.parts) == 0 {
			out.parts = []instance{{containers: containersOf(v, c.UUID, func(h gpu.UUID) bool { return h == "" })}}
		}
		for j := range out.parts {
			for _, to := range out.parts[j].containers {
				out.count[to]++
			}
		}
		f.gpus = append(f.gpus, out)
	}
	p.frame.Store(f)
	return f
}

// containersOf lists the containers to which a part of a GPU is allocated, each once.
func containersOf(v *gpu.View, uuid gpu.UUID, part func(gpu.UUID) bool) []gpu.Container {
	var out []gpu.Container
	for i := range v.Allocations {
		a := &v.Allocations[i]
		if a.GPU == uuid && part(a.Instance) && !slices.Contains(out, a.Container) {
			out = append(out, a.Container)
		}
	}
	return out
}

// longPCI formats an address as nvidia-smi does: with a domain of eight digits, in capitals.
func longPCI(a gpu.PCIAddress) string {
	domain, rest, ok := strings.Cut(string(a), ":")
	if !ok {
		return string(a)
	}
	return strings.ToUpper(strings.Repeat("0", max(0, 8-len(domain))) + domain + ":" + rest)
}
