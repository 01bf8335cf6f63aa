package catalog_test

import (
	"slices"
	"testing"

	"github.com/gpu-exporter/gpu-exporter/internal/catalog"
	"github.com/gpu-exporter/gpu-exporter/internal/catalog/catalogtest"
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

// Every row says something about the full view, with as many label values as it has labels: a row that
// nobody reads would never be missed.
func TestEveryRowReads(t *testing.T) {
	v := catalogtest.FullView()
	for _, f := range catalog.All() {
		n, want := 0, len(f.AllLabels())
		check := func(labels []string) {
			n++
			if len(labels) != want {
				t.Errorf("%s emits %d label values for %d labels", f.Name, len(labels), want)
			}
			if labels[0] != v.Node {
				t.Errorf("%s: the first label value is %q, not the node", f.Name, labels[0])
			}
		}
		if f.ReadHistogram != nil {
			f.ReadHistogram(v, func(_ gpu.Histogram, labels ...string) { check(labels) })
		} else {
			f.Read(v, func(_ float64, labels ...string) { check(labels) })
		}
		if n == 0 {
			t.Errorf("%s emits nothing of a view that has everything", f.Name)
		}
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

// A lost GPU keeps what the contract names and nothing else.
func TestLostGPUKeepsOnlyItsState(t *testing.T) {
	kept := map[string]bool{"gpu_info": true, "gpu_device_up": true, "gpu_last_read_timestamp_seconds": true, "gpu_recovery_action": true,
		"gpu_time_seconds_total": true, "gpu_xid_events_total": true, "gpu_xid_last_timestamp_seconds": true,
		"gpu_xid_last_event_info": true, "gpu_health": true, "gpu_taint_info": true, "gpu_kubelet_healthy": true,
		"gpu_health_reason_info": true, "gpu_allocation_ratio": true}
	v := catalogtest.FullView()
	for _, f := range catalog.All() {
		if f.Scope != catalog.ScopeGPU {
			continue
		}
		f.Read(v, func(value float64, labels ...string) {
			if labels[1] == "GPU-33333333-3333-3333-3333-333333333333" && !kept[f.Name] {
				t.Errorf("%s of a lost GPU reads %v", f.Name, value)
			}
			if labels[1] == "0000:52:00.0" {
				t.Errorf("%s has a detached GPU", f.Name)
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
