package podmap

import (
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/podmap/deviceid"
	"github.com/gpu-exporter/gpu-exporter/podmap/source"
)

// podClaim is a claim of a pod, by namespace and name.
type podClaim struct {
	pod   gpu.PodName
	claim [2]string
}

// servedRequest is how the scheduler names the requests of the claim that serves a pod's extended resources: by the index
// of the container among the init containers and containers of the pod.
var servedRequest = regexp.MustCompile(`^container-(\d+)-request-\d+$`)

// servedContainers returns the container of each request of the claims that serve extended resources. The kubelet lists
// all devices of such a claim for each container that requests any. The indices of the requests are in the order of the
// containers; where there are more of them, init containers have requests of their own, and the container is unknown.
func (s *snapshot) servedContainers() map[podClaim]map[string]string {
	containers, requests := map[podClaim]map[string]bool{}, map[podClaim]map[string]int{}
	for i := range s.direct {
		d := &s.direct[i]
		key, recorded := podClaim{d.container.PodName(), d.claim}, s.claim(d)
		if recorded == nil || !serves(d.claim[1], key.pod.Pod) {
			continue
		}
		for _, result := range recorded.Results {
			if m := servedRequest.FindStringSubmatch(result.Request); m != nil {
				add(containers, key, d.container.Name)
				if requests[key] == nil {
					requests[key] = map[string]int{}
				}
				requests[key][result.Request], _ = strconv.Atoi(m[1])
			}
		}
	}
	out := map[podClaim]map[string]string{}
	for key, all := range requests {
		var order []string
		for _, name := range s.order[key.pod] {
			if containers[key][name] {
				order = append(order, name)
			}
		}
		indices := slices.Compact(slices.Sorted(maps.Values(all)))
		if len(indices) != len(order) {
			continue
		}
		out[key] = map[string]string{}
		for request, index := range all {
			out[key][request] = order[slices.Index(indices, index)]
		}
	}
	return out
}

// serves reports whether a claim has the name that the scheduler generates for the extended resources of a pod: its last
// five characters are random, and before them at most 58 are kept.
func serves(claim, pod string) bool {
	prefix := pod + "-extended-resources-"
	return strings.HasPrefix(claim, prefix[:min(len(prefix), 58)])
}

// requested returns the extended resource that a container requested and a claim serves: the only one in the metadata of
// the pod that no device plugin serves to the container. Of several it is unknown which.
func (r *resolver) requested(d *directID) string {
	pod := r.metadata(r.pods, d.container.PodName())
	if pod == nil || !serves(d.claim[1], d.container.Pod) {
		return ""
	}
	var only string
	for _, name := range pod.Requests[d.container.Name] {
		switch {
		case slices.Contains(r.plugged[d.container], name):
		case only != "":
			return ""
		default:
			only = name
		}
	}
	return only
}

// consumed is how much of a capacity of the device is allocated to the container.
func (d *directID) consumed(capacity string) (sum float64) {
	for _, result := range d.results {
		n, _ := deviceid.ParseQuantity(result.Consumed[capacity])
		sum += n
	}
	return sum
}

// consumes reports whether a capacity of the device is allocated, of whatever amount.
func (d *directID) consumes() bool {
	return slices.ContainsFunc(d.results, func(r source.DeviceResult) bool { return len(r.Consumed) > 0 })
}
