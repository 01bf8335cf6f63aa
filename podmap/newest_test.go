package podmap

import (
	"fmt"
	"strings"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/podmap/deviceid"
	"github.com/gpu-exporter/gpu-exporter/podmap/source"
)

// newest is the part of a world that has containers of NvFractions with their records, claims that serve the extended
// resources of a pod, and shares and capacities of one device: see the fixtures nvfractions-map, dra-extended and dra.
type newest struct {
	records source.Fractions
	// recorded are the containers of NvFractions, noted those of them whose pod has annotations, and reserves those to
	// which the kubelet allocated their GPUs.
	recorded, noted, reserves map[gpu.Container]bool
	// served are the GPUs of all containers of a pod, where one claim serves them: the kubelet lists each for each.
	served map[gpu.Container]map[gpu.UUID]bool
}

const newestKinds = 3

func newNewest() newest {
	return newest{recorded: map[gpu.Container]bool{}, noted: map[gpu.Container]bool{}, reserves: map[gpu.Container]bool{},
		served: map[gpu.Container]map[gpu.UUID]bool{}}
}

// addNewest gives a container its GPUs by one of the newest kinds, and returns the annotations of its pod.
func (w *world) addNewest(kind int, c gpu.Container, devs []*gpu.InventoryGPU) (annotations map[string]string) {
	line := func(c gpu.Container, rest string) {
		w.lines = append(w.lines, strings.TrimSpace(fmt.Sprintf("%s/%s/%s %s", c.Namespace, c.Pod, c.Name, rest)))
	}
	switch kind {
	case 0: // NvFractions, with or without an MPS namespace
		line(c, "")
		w.recorded[c] = true
		f := source.Fraction{PodName: c.PodName(), UID: "uid-" + c.Pod, Container: w.pick("", c.Name), MiB: int64(w.IntN(30000)),
			Percent: w.IntN(101)}
		var uuids []string
		for _, d := range devs {
			uuids = append(uuids, string(d.UUID))
			switch w.IntN(4) {
			case 0:
				f.UUIDs = append(f.UUIDs, string(d.UUID))
			case 1:
				f.Minors = append(f.Minors, source.UnknownMinor)
			default:
				f.Minors = append(f.Minors, d.Minor.Or(source.UnknownMinor))
			}
		}
		switch w.IntN(6) {
		case 0: // the runtime adds the GPUs after the record is written
			f.UUIDs, f.Minors = nil, nil
		case 1: // of the pod that had this name before
			before := f
			before.UID, before.Minors, before.UUIDs = "uid-before", nil, []string{string(w.devices()[0].UUID)}
			w.records.List = append(w.records.List, before)
			w.pods[c.PodName()] = &source.Pod{UID: f.UID}
		}
		w.records.List = append(w.records.List, f)
		if w.IntN(2) == 0 {
			w.noted[c] = true
			annotations = map[string]string{"nvidia.com/container." + c.Name + ".gpus.devices": strings.Join(uuids, ","),
				"nvidia.com/container." + c.Name + ".gpu-memory.limit": "5Gi"}
		}
		if w.IntN(2) == 0 {
			reserve := gpu.Container{Namespace: "kai-resource-reservation", Pod: "gpu-reservation-" + c.Pod, Name: "reserve"}
			if !deviceid.Placeholder(reserve) {
				panic("no placeholder")
			}
			line(reserve, "nvidia.com/gpu="+uuids[0])
			w.has[reserve], w.reserves[reserve] = map[gpu.UUID]bool{devs[0].UUID: true}, true
		}
	case 1: // one claim for the extended resources of two containers, behind init containers and beside another without
		names := []gpu.Container{c, {Namespace: c.Namespace, Pod: c.Pod, Name: "d"}}[:len(devs)]
		var devices []string
		var results []any
		all := map[gpu.UUID]bool{}
		first := w.IntN(3)
		for i, d := range devs {
			name := fmt.Sprintf("gpu-%d", d.Minor.Or(-1))
			devices = append(devices, name)
			results = append(results, map[string]any{"request": fmt.Sprintf("container-%d-request-%d", first+2*i, w.IntN(3)),
				"driver": "gpu.nvidia.com", "pool": "node", "device": name})
			w.has[names[i]], all[d.UUID] = map[gpu.UUID]bool{d.UUID: true}, true
		}
		w.Shuffle(len(devices), func(i, j int) { devices[i], devices[j] = devices[j], devices[i] })
		claim := c.Pod + "-extended-resources-x7k2p"
		for i, at := range names {
			line(at, "gpu.nvidia.com:"+claim+"="+strings.Join(devices, ","))
			if i == 0 {
				line(gpu.Container{Namespace: c.Namespace, Pod: c.Pod, Name: "beside"}, "")
			}
			w.served[at], w.exact[at] = all, true
		}
		w.claims["uid-"+c.Pod] = map[string]any{"namespace": c.Namespace, "name": claim,
			"status": map[string]any{"allocation": map[string]any{"devices": map[string]any{"results": results}}}}
	case 2: // a share, or a part of the memory, of each device
		var devices []string
		var results []any
		for i, d := range devs {
			name, share := fmt.Sprintf("gpu-%d", d.Minor.Or(-1)), fmt.Sprintf("%s-s%d", c.Pod, i)
			devices = append(devices, name+"@"+share)
			results = append(results, map[string]any{"request": "r", "driver": "gpu.nvidia.com", "pool": "node", "device": name,
				"shareID": share, "consumedCapacity": map[string]string{w.pick("memory", "shares"): w.pick("0", "1", "10Gi", "x")}})
			w.slices[[2]string{"gpu.nvidia.com", name}] = &source.SliceDevice{UUID: string(d.UUID),
				Capacity: map[string]string{"memory": "40Gi", "shares": "4"}}
		}
		line(c, "gpu.nvidia.com:claim-"+c.Pod+"="+strings.Join(devices, ","))
		w.exact[c] = true
		w.claims["uid-"+c.Pod] = map[string]any{"namespace": c.Namespace, "name": "claim-" + c.Pod,
			"status": map[string]any{"allocation": map[string]any{"devices": map[string]any{"results": results}}}}
	}
	return annotations
}
