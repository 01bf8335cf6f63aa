package catalog_test

import (
	"slices"
	"testing"

	"github.com/gpu-exporter/gpu-exporter/internal/catalog"
	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/internal/must"
)

func TestRowsKeepTheLaws(t *testing.T) {
	must.OK(t, catalog.Validate(catalog.All()))
}

func TestValidateFindsBrokenRows(t *testing.T) {
	good := catalog.Family{Name: "gpu_x_seconds_total", Type: catalog.Counter, Unit: "seconds", Help: "X.", Scope: catalog.ScopeGPU,
		Stability: catalog.Stable, Read: func(*gpu.View, catalog.Emit) {}}
	if err := catalog.Validate([]catalog.Family{good}); err != nil {
		t.Fatalf("a good row was refused: %v", err)
	}
	for name, change := range map[string]func(*catalog.Family){
		"prefix":         func(f *catalog.Family) { f.Name = "dcgm_x_seconds_total" },
		"counter name":   func(f *catalog.Family) { f.Name = "gpu_x_seconds" },
		"gauge name":     func(f *catalog.Family) { f.Type = catalog.Gauge },
		"info name":      func(f *catalog.Family) { f.Type = catalog.Info },
		"unit":           func(f *catalog.Family) { f.Unit = "bytes" },
		"help":           func(f *catalog.Family) { f.Help = "X" },
		"stability":      func(f *catalog.Family) { f.Stability = "" },
		"no reader":      func(f *catalog.Family) { f.Read = nil },
		"label twice":    func(f *catalog.Family) { f.Labels = []string{"uuid"} },
		"reserved label": func(f *catalog.Family) { f.Labels = []string{"job"} },
	} {
		f := good
		change(&f)
		if catalog.Validate([]catalog.Family{f}) == nil {
			t.Errorf("%s: the broken row passed", name)
		}
	}
	if catalog.Validate([]catalog.Family{good, good}) == nil {
		t.Error("a family that stands twice passed")
	}
}

// An empty view must neither panic nor pretend: no family about a GPU, a pod or an instance.
func TestEmptyViewSaysNothingOfGPUs(t *testing.T) {
	for _, f := range catalog.All() {
		if f.Read == nil {
			continue
		}
		f.Read(&gpu.View{Node: "n"}, func(v float64, labels ...string) {
			if f.Name != "gpu_exporter_build_info" {
				t.Errorf("%s emits %v %q of an empty view", f.Name, v, labels)
			}
		})
	}
}

func TestResourceLabel(t *testing.T) {
	for resource, want := range map[string]string{"nvidia.com/gpu": "nvidia_com_gpu", "nvidia.com/mig-1g.5gb": "nvidia_com_mig_1g_5gb",
		"a/é": "a__"} {
		if got := catalog.ResourceLabel(resource); got != want {
			t.Errorf("ResourceLabel(%q) = %q, want %q", resource, got, want)
		}
	}
}

func TestPodLabelsAreAdded(t *testing.T) {
	rows := catalog.WithPodLabels(catalog.All(), []string{"team", "app.kubernetes.io/name"})
	must.OK(t, catalog.Validate(rows))
	i := slices.IndexFunc(rows, func(f catalog.Family) bool { return f.Name == "gpu_pod_info" })
	v := &gpu.View{Node: "n", Pods: []gpu.PodRef{{Namespace: "a", Pod: "b", UID: "u",
		Meta: &gpu.PodMeta{WorkloadType: "Job", Workload: "w", Labels: map[string]string{"team": "red", "other": "x"}}}}}
	var got []string
	rows[i].Read(v, func(_ float64, labels ...string) { got = slices.Clone(labels) })
	if want := []string{"n", "a", "b", "u", "Job", "w", "red", ""}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if want := []string{"node", "namespace", "pod", "pod_uid", "workload_type", "workload", "label_team",
		"label_app_kubernetes_io_name"}; !slices.Equal(rows[i].AllLabels(), want) {
		t.Errorf("%q, want %q", rows[i].AllLabels(), want)
	}
	if catalog.Validate(catalog.WithPodLabels(catalog.All(), []string{"a.b", "a/b"})) == nil {
		t.Error("two labels that come to one name passed")
	}
}
