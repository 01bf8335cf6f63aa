package source

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// setFields is what an entry of the managed fields of a pod has of the resources of containers: {"f:spec": {"f:containers":
// {"k:{\"name\":\"main\"}": {"f:resources": {"f:limits": {"f:nvidia.com/gpu": {}}}}}}}.
type setFields struct {
	Spec struct {
		Containers     map[string]setContainer `json:"f:containers"`
		InitContainers map[string]setContainer `json:"f:initContainers"`
	} `json:"f:spec"`
}

type setContainer struct {
	Resources struct {
		Limits   map[string]json.RawMessage `json:"f:limits"`
		Requests map[string]json.RawMessage `json:"f:requests"`
	} `json:"f:resources"`
}

// maxRequests bounds the extended resources of a pod that are kept.
const maxRequests = 64

// ReadRequests returns the names of the extended resources that each container requests, sorted, by the managed fields of
// a pod: they name the fields that were set, without values, and are all that the metadata has of requests. It returns nil
// if there are too many.
func ReadRequests(managed []byte) map[string][]string {
	var entries []struct{ FieldsV1 json.RawMessage }
	if json.Unmarshal(managed, &entries) != nil {
		return nil
	}
	found, n := map[string]map[string]bool{}, 0
	for _, entry := range entries {
		var set setFields
		if json.Unmarshal(entry.FieldsV1, &set) != nil {
			continue
		}
		all := set.Spec.Containers
		if all == nil {
			all = map[string]setContainer{}
		}
		maps.Copy(all, set.Spec.InitContainers)
		for key, fields := range all {
			var container struct{ Name string }
			text, ok := strings.CutPrefix(key, "k:")
			if !ok || json.Unmarshal([]byte(text), &container) != nil || container.Name == "" {
				continue
			}
			for _, names := range []map[string]json.RawMessage{fields.Resources.Limits, fields.Resources.Requests} {
				for field := range names {
					name, ok := strings.CutPrefix(field, "f:")
					if !ok || !extended(name) || found[container.Name][name] {
						continue
					}
					if found[container.Name] == nil {
						found[container.Name] = map[string]bool{}
					}
					if found[container.Name][name], n = true, n+1; n > maxRequests || len(name) > maxName {
						return nil
					}
				}
			}
		}
	}
	out := make(map[string][]string, len(found))
	for container, names := range found {
		out[container] = slices.Sorted(maps.Keys(names))
	}
	return out
}

// extended reports whether a resource is an extended one: one of a device plugin, or one that a claim may serve, also by
// the name of a device class (IsExtendedResourceName and IsDRAExtendedResourceName of Kubernetes 1.37).
func extended(resource string) bool {
	return strings.HasPrefix(resource, "deviceclass.resource.kubernetes.io/") ||
		strings.Contains(resource, "/") && !strings.Contains(resource, "kubernetes.io/") && !strings.HasPrefix(resource, "requests.")
}
