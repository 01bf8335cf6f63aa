package compat

import (
	"slices"
	"strconv"
	"strings"

	"github.com/gpu-exporter/gpu-exporter/internal/catalog"
	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// labelNames lists the labels of every series. Empty labels are omitted from the exposition.
func (p *Page) labelNames() []string {
	if p.Release == NvidiaSMI {
		return []string{"uuid"}
	}
	// The label is Hostname up to 4.8.2 and hostname since 4.8.3: with both, either query works.
	host := []string{"Hostname", "hostname"}
	if p.Release == DCGM49 {
		host = host[1:]
	}
	uuid, pod := "UUID", []string{"container", "namespace", "pod"}
	if p.OldLabels {
		uuid, pod = "uuid", []string{"container_name", "pod_namespace", "pod_name"}
	}
	out := slices.Concat([]string{"gpu", uuid, "pci_bus_id", "device", "modelName"}, host, []string{p.driver},
		p.DeviceLabels, []string{"GPU_I_PROFILE", "GPU_I_ID", "GPU_CI_ID"}, pod, []string{"hpc_job", "pod_uid"}, workloadLabels)
	for _, l := range p.PodLabels {
		out = append(out, PodLabel(l))
	}
	return out
}

// PodLabel is the label of a page for a label of pods.
func PodLabel(name string) string { return catalog.ResourceLabel(name) }

// workloadLabels are those of an allocation: the replica of a shared GPU, and the device of a DRA claim.
var workloadLabels = []string{"vgpu", "dra_claim_name", "dra_claim_namespace", "dra_driver_name", "dra_pool_name",
	"dra_device_name", "dra_mig_profile", "dra_mig_device_uuid"}

// workload returns the values of workloadLabels.
func (p *Page) workload(a *gpu.ContainerAllocation, profile string) []string {
	out := make([]string, len(workloadLabels))
	if p.Copies { // as there, one series per GPU names no replica
		out[0] = a.Replica
	}
	if a.Claim != (gpu.ClaimDevice{}) {
		copy(out[1:], []string{a.Claim.Name, a.Claim.Namespace, a.Claim.Driver, a.Claim.Pool, a.Claim.Device})
		if a.Instance != "" {
			out[6], out[7] = profile, string(a.Instance)
		}
	}
	return out
}

// exclusive tells that the GPU is not partitioned and allocated to one container at most: its readings occur once.
func (d *device) exclusive() bool {
	return len(d.parts) == 1 && d.parts[0].uuid == "" && len(d.parts[0].containers) < 2
}

// labels returns the label values of one series.
func (p *Page) labels(f *frame, d *device, in *instance, to gpu.Container, own []string) []string {
	out := append(make([]string, 0, len(d.base)+8+len(workloadLabels)+len(p.PodLabels)+len(own)), d.base...)
	if p.Release != NvidiaSMI {
		pod, job := to.Pod, ""
		if number, ok := strings.CutPrefix(to.Pod, "slurm/"); ok {
			pod, job = "", number
		}
		out = append(out, in.profile, in.id, in.ci, to.Name, to.Namespace, pod, job)
		of, ok := f.pods[gpu.PodName{Namespace: to.Namespace, Pod: to.Pod}]
		if !ok {
			of = make([]string, 1+len(p.PodLabels))
		}
		out = append(out, of[0])
		if i := slices.Index(in.containers, to); i >= 0 {
			out = append(out, in.workload[i]...)
		} else {
			out = append(out, make([]string, len(workloadLabels))...)
		}
		out = append(out, of[1:]...)
	}
	return append(out, own...)
}

// frameOf returns the frame of a view; all rows of one rendering share it.
func (p *Page) frameOf(v *gpu.View) *frame {
	if f := p.frame.Load(); f != nil && f.view == v {
		return f
	}
	f := &frame{view: v, pods: map[gpu.PodName][]string{}}
	for _, pod := range v.Pods {
		values := []string{pod.UID}
		if p.NoPodUID {
			values[0] = ""
		}
		for _, l := range p.PodLabels {
			value := ""
			if pod.Meta != nil {
				value = pod.Meta.Labels[l]
			}
			values = append(values, value)
		}
		f.pods[gpu.PodName{Namespace: pod.Namespace, Pod: pod.Pod}] = values
	}
	system, _ := v.System.Get()
	hosts, driver := p.hosts(v.Node), system.DriverVersion
	if p.Collectors != nil && !slices.ContainsFunc(p.Collectors, func(c Collector) bool { return c.Field == p.driver }) {
		driver = ""
	}
	instances := 0 // of all GPUs
	for i := range v.GPUs {
		c := &v.GPUs[i]
		if c.State == gpu.DeviceDetached || c.Index < 0 {
			continue
		}
		index := strconv.Itoa(c.Index)
		out := device{uuid: string(c.UUID), count: map[gpu.Container]int{}}
		if p.Release == NvidiaSMI {
			out.base = []string{smiUUID(c.UUID)}
			out.parts = []instance{{}}
			f.gpus = append(f.gpus, out)
			continue
		}
		out.base = slices.Concat([]string{index, string(c.UUID), longPCI(c.PCI), "nvidia" + index, p.model(c.Model)}, hosts,
			[]string{driver})
		out.base = append(out.base, p.deviceLabels(c, system.NVMLVersion)...)
		whole := p.Devices.gpu(c.Index)
		for j := range c.Instances {
			in := &c.Instances[j]
			instances++
			if whole || !p.Devices.instance(instances-1) {
				continue
			}
			ci := ""
			if len(in.Compute) == 1 {
				ci = strconv.Itoa(in.Compute[0].CI)
			}
			part := instance{uuid: string(in.UUID), profile: in.Profile, id: strconv.Itoa(in.GI), ci: ci}
			p.allocated(v, c.UUID, &part, func(h gpu.UUID) bool {
				return h == in.UUID || slices.ContainsFunc(in.Compute, func(ci gpu.ComputeInstance) bool { return ci.UUID == h })
			})
			out.parts = append(out.parts, part)
		}
		if len(out.parts) == 0 && (whole || len(c.Instances) == 0 && p.Devices.Kind == "") {
			out.parts = []instance{{}}
			p.allocated(v, c.UUID, &out.parts[0], func(h gpu.UUID) bool { return h == "" })
		}
		if len(out.parts) == 0 {
			continue // not selected
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

// allocated sets the containers to which a part of a GPU is allocated, each once; without Copies none if there are
// several.
func (p *Page) allocated(v *gpu.View, uuid gpu.UUID, in *instance, part func(gpu.UUID) bool) {
	for i := range v.Allocations {
		a := &v.Allocations[i]
		if a.GPU == uuid && part(a.Instance) && !slices.Contains(in.containers, a.Container) {
			in.containers = append(in.containers, a.Container)
			in.workload = append(in.workload, p.workload(a, in.profile))
		}
	}
	if len(in.containers) > 1 && !p.Copies {
		in.containers, in.workload = nil, nil
	}
}

// hosts are the values of the labels of the node.
func (p *Page) hosts(node string) []string {
	if p.NoHostname {
		node = ""
	}
	if p.Release == DCGM49 {
		return []string{node}
	}
	return []string{node, node}
}

// deviceLabels are the values of the label-typed fields.
func (p *Page) deviceLabels(c *gpu.GPU, nvml string) (out []string) {
	for _, l := range p.DeviceLabels {
		out = append(out, map[string]string{"DCGM_FI_DEV_SERIAL": c.Serial, "DCGM_FI_DEV_BRAND": c.Brand,
			"DCGM_FI_DEV_VBIOS_VERSION": c.VBIOS, "DCGM_FI_NVML_VERSION": nvml,
			"DCGM_FI_DEV_OEM_INFOROM_VER": c.Firmware.InforomOEM, "DCGM_FI_DEV_ECC_INFOROM_VER": c.Firmware.InforomECC,
			"DCGM_FI_DEV_POWER_INFOROM_VER": c.Firmware.InforomPower, "DCGM_FI_DEV_INFOROM_IMAGE_VER": c.Firmware.InforomImage}[l])
	}
	return out
}

// model is the name of a model as a label.
func (p *Page) model(name string) string {
	if p.Dashes {
		return strings.Join(strings.Fields(name), "-")
	}
	return name
}

// longPCI formats an address as nvidia-smi does: with a domain of eight digits, in capitals.
func longPCI(a gpu.PCIAddress) string {
	domain, rest, ok := strings.Cut(string(a), ":")
	if !ok {
		return string(a)
	}
	return strings.ToUpper(strings.Repeat("0", max(0, 8-len(domain))) + domain + ":" + rest)
}
