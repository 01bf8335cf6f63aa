package main

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/standin/scenario"
)

// TestComputeInstances: two compute instances of one GPU instance, busy for 25 % and 50 % of the time, one after the other,
// have series of their own, and the GPU instance the 75 % of both. From 65 s on the driver refuses to sample MIG devices:
// their series end, gpu_mig_ci_sampling_info says so, and those of the GPU instance continue.
func TestComputeInstances(t *testing.T) {
	isolated(t, func(t *testing.T) {
		text := "scenario 1\ntitle \"compute instances\"\ninclude boards/h100-sxm.scenario\nsymbols R580\n" +
			"system DriverVersion = \"580.105.08\"\n" +
			"gpu 0 board=h100 uuid=" + sharedGPU + " pci=0000:18:00.0 minor=0\n" +
			"mig gpu=0 layout=\"gi=1 ci=0 profile=3g.40gb slices=1 start=0 size=4 ; gi=1 ci=1 slices=2 index=1 ; " +
			"gi=9 profile=1g.10gb start=4 size=1 index=2\"\n" +
			"process gpu=0 pid=5000 gi=1 ci=0 memory=1GiB busy=25% period=1s\n" +
			"process gpu=0 pid=5001 gi=1 ci=1 memory=1GiB busy=50% period=1s phase=250ms\n" +
			"process gpu=0 pid=5002 gi=9 memory=1GiB busy=100% period=1s\n" +
			"at 65s gpu 0 GpmSampleGet = !NOT_SUPPORTED\n"
		s, err := scenario.Parse("compute.scenario", text, os.DirFS(filepath.Join("..", "..", "testdata", "scenarios")))
		if err != nil {
			t.Fatal(err)
		}
		st := play(t, s, "")
		st.step()
		const own, whole = `method="compute_instance"`, `method="gpu_instance"`
		now := st.watched(61*time.Second - st.control.Now())
		for _, c := range []struct {
			family, labels string
			want           float64
		}{
			{"gpu_mig_ci_busy_seconds_total", `ci="0"`, .25}, {"gpu_mig_ci_busy_seconds_total", `ci="1"`, .5},
			{"gpu_mig_ci_observed_seconds_total", `ci="0"`, 1}, {"gpu_mig_ci_observed_seconds_total", `ci="1"`, 1},
			{"gpu_mig_busy_seconds_total", `gi="1"`, .75}, {"gpu_mig_busy_seconds_total", `gi="9"`, 1},
		} {
			// Polls are 2 s apart.
			if v, err := now.one(c.family, c.labels); err != nil || math.Abs(v-60*c.want) > 2.5 {
				t.Errorf("%s{%s} is %v after 60 s, not %v: %v", c.family, c.labels, v, 60*c.want, err)
			}
		}
		if err := errors.Join(now.is(1, "gpu_mig_ci_sampling_info", `ci="0"`, own),
			now.is(1, "gpu_mig_ci_sampling_info", `ci="1"`, own),
			now.none("gpu_mig_ci_sampling_info", whole), now.none("gpu_mig_ci_sampling_info", `gi="9"`),
			now.none("gpu_mig_ci_busy_seconds_total", `gi="9"`)); err != nil {
			t.Error(err)
		}
		now = st.watched(121*time.Second - st.control.Now())
		if err := errors.Join(now.is(1, "gpu_mig_ci_sampling_info", `ci="0"`, whole),
			now.is(1, "gpu_mig_ci_sampling_info", `ci="1"`, whole),
			now.none("gpu_mig_ci_sampling_info", own), now.none("gpu_mig_ci_busy_seconds_total"),
			now.none("gpu_mig_ci_sm_active_seconds_total"), now.none("gpu_mig_ci_profiled_seconds_total")); err != nil {
			t.Error(err)
		}
		if v, err := now.one("gpu_mig_busy_seconds_total", `gi="1"`); err != nil || math.Abs(v-90) > 3 {
			t.Errorf("the GPU instance was busy for %v s, not 90: %v", v, err)
		}
	})
}
