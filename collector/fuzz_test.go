package collector_test

import (
	"testing"

	"github.com/gpu-exporter/gpu-exporter/internal/catalog"
	"github.com/gpu-exporter/gpu-exporter/internal/catalog/catalogtest"
	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/internal/testkit"
)

// FuzzNames: whatever a node, a GPU or a pod is called, the page can be read, and says what they are called.
func FuzzNames(f *testing.F) {
	f.Add("node", "H100", "pod", "gpu")
	f.Add("a\"b\\c\nd", "} 1\nx{", "\xff\x00", "nvidia.com/gpu\"")
	f.Fuzz(func(t *testing.T, node, dev, pod, resource string) {
		v := catalogtest.FullView()
		v.Node, v.GPUs[0].Model, v.Allocations[0].Container.Pod, v.Allocations[0].Resource = node, dev, pod, resource
		want := gpu.Printable
		families, err := newCollector(t, func() *gpu.View { return v }, catalog.All()).Gather()
		if err != nil {
			return // two containers of one name: the series that are there twice are named
		}
		read, err := testkit.Families(text(t, families))
		if err != nil {
			t.Fatalf("%q, %q, %q, %q: %v", node, dev, pod, resource, err)
		}
		if len(read) != len(families) {
			t.Errorf("%d families are read of %d", len(read), len(families))
		}
		found := map[string]bool{}
		for name, family := range read {
			for _, m := range family.Metric {
				for _, l := range m.Label {
					switch name + " " + l.GetName() {
					case "gpu_info model", "gpu_info node", "gpu_container_allocation_ratio pod":
						found[l.GetName()+" "+l.GetValue()] = true
					}
				}
			}
		}
		for label, value := range map[string]string{"model": dev, "node": node, "pod": pod} {
			// An empty label is none.
			if value != "" && !found[label+" "+want(value)] {
				t.Errorf("%s is %q, and the page says %v", label, value, found)
			}
		}
	})
}
