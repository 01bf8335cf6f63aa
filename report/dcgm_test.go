package report

import (
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/report/document"
)

// An exporter that was upgraded within the period is one history: nothing is lost or counted twice at the upgrade.
func TestDCGMUpgradedInTheWindow(t *testing.T) {
	var s scene
	day := monday.Add(5 * 24 * time.Hour).Unix()
	before := func(v float64) func(int64) (float64, bool) {
		return func(at int64) (float64, bool) { return v, at <= day }
	}
	after := func(v float64) func(int64) (float64, bool) {
		return func(at int64) (float64, bool) { return v, at > day }
	}
	old := map[string]string{"Hostname": "n1", "UUID": "a", "modelName": "NVIDIA A100-SXM4-80GB", "namespace": "team", "pod": "train-0"}
	now := map[string]string{"hostname": "n1", "UUID": "a", "modelName": "NVIDIA A100-SXM4-80GB", "namespace": "team", "pod": "train-0"}
	s.add("DCGM_FI_DEV_GPU_UTIL", old, before(80))
	s.add("DCGM_FI_DEV_FB_USED", old, before(60000))
	s.add("DCGM_FI_DEV_FB_FREE", old, before(20000))
	s.add("DCGM_FI_DEV_FB_RESERVED", old, before(1920))
	s.add("DCGM_FI_DEV_POWER_USAGE", old, before(300))
	s.add("DCGM_FI_DEV_GPU_UTIL_RATIO", now, after(0.8))
	s.add("DCGM_FI_DEV_FB_USED_BYTES", now, after(60000<<20))
	s.add("DCGM_FI_DEV_FB_FREE_BYTES", now, after(20000<<20))
	s.add("DCGM_FI_DEV_FB_RESERVED_BYTES", now, after(1920<<20))
	s.add("DCGM_FI_DEV_FB_CAPACITY_BYTES", now, after(81920<<20))
	s.add("DCGM_FI_DEV_BOARD_POWER_WATTS", now, after(300))
	d := s.must(t, func(o *Options) { o.DCGM = true })
	near(t, "busy", d.Fleet.States.Busy, 240*0.8)
	near(t, "gap", d.Fleet.States.Gap, 240*0.2)
	near(t, "unknown", d.Fleet.States.Unknown, 0)
	if d.Fleet.EnergyKWh == nil {
		t.Error("no energy")
	} else {
		near(t, "energy", *d.Fleet.EnergyKWh, 0.3*240)
	}
	if len(d.Workloads) != 1 {
		t.Fatalf("%d workloads", len(d.Workloads))
	}
	near(t, "memory in GiB", *d.Workloads[0].MemoryPeak/(1<<30), 60000.0/1024)
	near(t, "memory of the GPU in GiB", *d.Workloads[0].MemoryTotal/(1<<30), 80)
	if d.Checks.Difference > 1e-6 || d.Checks.Difference < -1e-6 {
		t.Errorf("difference %v", d.Checks.Difference)
	}
}

// A fleet of MIG devices alone: activity is that of the instances, allocation that of their pods. Series that do not
// honor labels have the exporter's pod, whatever it is called.
func TestMIGOfDCGM(t *testing.T) {
	t.Run("up", func(t *testing.T) { migOfDCGM(t, true) })
	t.Run("federated", func(t *testing.T) { migOfDCGM(t, false) })
}

func migOfDCGM(t *testing.T, up bool) {
	var s scene
	l := func(instance, profile, pod string) map[string]string {
		m := map[string]string{"Hostname": "n1", "UUID": "a", "modelName": "NVIDIA A100-SXM4-80GB", "GPU_I_ID": instance, "job": "metrics",
			"GPU_I_PROFILE": profile, "namespace": "monitoring", "pod": "gpu-metrics-x"}
		if pod != "" {
			m["exported_namespace"], m["exported_pod"] = "team", pod
		}
		return m
	}
	if up {
		s.add("up", map[string]string{"job": "metrics", "namespace": "monitoring", "pod": "gpu-metrics-x"}, constant(1))
	}
	s.add("DCGM_FI_PROF_GR_ENGINE_ACTIVE", l("1", "3g.40gb", "train-0"), constant(0.5))
	s.add("DCGM_FI_PROF_GR_ENGINE_ACTIVE", l("2", "2g.20gb", "idle-0"), constant(0))
	s.add("DCGM_FI_PROF_GR_ENGINE_ACTIVE", l("3", "1g.10gb", ""), constant(0))
	d := s.must(t, func(o *Options) { o.DCGM = true })
	for state, want := range map[document.State]float64{document.Busy: 240 * 1.5 / 7, document.Gap: 240 * 1.5 / 7,
		document.Idle: 240 * 2. / 7, document.Unallocated: 240 * 2. / 7} {
		near(t, state.String(), d.Fleet.States.Of(state), want)
	}
	near(t, "coverage", d.Fleet.Coverage, 1)
	if len(d.Workloads) != 2 || d.Partial {
		t.Fatalf("%v %+v", d.PartialReasons, d.Workloads)
	}
	for _, w := range d.Workloads {
		switch w.Name {
		case "train":
			near(t, "busy mean", *w.BusyMean, 0.5)
			near(t, "allocated", w.Allocated, 240*3./7)
		case "idle":
			if w.Advice != document.AdviseRelease || w.Sharing != "mig" || w.Profile != "2g.20gb" {
				t.Errorf("%+v", w)
			}
		}
	}
}
