package main

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"
)

// computeInstances: two compute instances of one GPU instance, busy for 25 % and 50 % of the time, one after the other,
// have series of their own, and the GPU instance the 75 % of both. From 65 s on the driver refuses to sample MIG devices:
// their series end, gpu_mig_ci_sampling_info says so, and those of the GPU instance continue.
func computeInstances(t *testing.T) {
	text := oneGPU +
		"mig gpu=0 layout=\"gi=1 ci=0 profile=3g.40gb slices=1 start=0 size=4 ; gi=1 ci=1 slices=2 index=1 ; " +
		"gi=9 profile=1g.10gb start=4 size=1 index=2\"\n" +
		"process gpu=0 pid=5000 gi=1 ci=0 memory=1GiB busy=25% period=1s\n" +
		"process gpu=0 pid=5001 gi=1 ci=1 memory=1GiB busy=50% period=1s phase=250ms\n" +
		"process gpu=0 pid=5002 gi=9 memory=1GiB busy=100% period=1s\n" +
		"at 65s gpu 0 GpmSampleGet = !NOT_SUPPORTED\n"
	s := parseScenario(t, text)
	st := play(t, s, "")
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
	verify(t, now.is(1, "gpu_mig_ci_sampling_info", `ci="0"`, own),
		now.is(1, "gpu_mig_ci_sampling_info", `ci="1"`, own),
		now.none("gpu_mig_ci_sampling_info", whole), now.none("gpu_mig_ci_sampling_info", `gi="9"`),
		now.none("gpu_mig_ci_busy_seconds_total", `gi="9"`))
	now = st.watched(121*time.Second - st.control.Now())
	verify(t, now.is(1, "gpu_mig_ci_sampling_info", `ci="0"`, whole),
		now.is(1, "gpu_mig_ci_sampling_info", `ci="1"`, whole),
		now.none("gpu_mig_ci_sampling_info", own), now.none("gpu_mig_ci_busy_seconds_total"),
		now.none("gpu_mig_ci_sm_active_seconds_total"), now.none("gpu_mig_ci_profiled_seconds_total"))
	if v, err := now.one("gpu_mig_busy_seconds_total", `gi="1"`); err != nil || math.Abs(v-90) > 3 {
		t.Errorf("the GPU instance was busy for %v s, not 90: %v", v, err)
	}
}

// containersOfComputeInstances: a GPU instance has three compute instances, each the MIG device of another container. One
// container is busy, one has an idle process, one has none; after two minutes the first two change places; after four the
// driver refuses to sample MIG devices. Each container gets the time of its own compute instance, or none with a reason.
func containersOfComputeInstances(t *testing.T) {
	uuid := func(n int) string { return fmt.Sprintf("MIG-0000000%d-0000-4000-8000-000000000000", n) }
	text := oneGPU +
		"mig gpu=0 layout=\"gi=1 ci=0 profile=3g.40gb slices=1 start=0 size=4 uuid=" + uuid(1) +
		" ; gi=1 ci=1 slices=1 index=1 uuid=" + uuid(2) + " ; gi=1 ci=2 slices=1 index=2 uuid=" + uuid(3) + "\"\n" +
		"process gpu=0 pid=5000 gi=1 ci=0 memory=1GiB busy=80% period=1s to=120s\n" +
		"process gpu=0 pid=5001 gi=1 ci=1 memory=2GiB busy=50% period=1s from=120s\n" +
		"process gpu=0 pid=5002 gi=1 ci=0 memory=1GiB busy=0%\nprocess gpu=0 pid=5003 gi=1 ci=1 memory=1GiB busy=0%\n" +
		"at 240s gpu 0 GpmSampleGet = !NOT_SUPPORTED\n"
	s := parseScenario(t, text)
	pods := "allocatable nvidia.com/mig-1c.3g.40gb " + uuid(1) + " " + uuid(2) + " " + uuid(3) + "\n"
	for i, pids := range []string{" pids=5000,5002", " pids=5001,5003", ""} {
		pods += fmt.Sprintf("pod team/%c container c nvidia.com/mig-1c.3g.40gb=%s%s\n", 'a'+i, uuid(i+1), pids)
	}
	st := play(t, s, pods)
	const busy, idle, allocated = "gpu_container_busy_seconds_total", "gpu_container_unused_seconds_total",
		"gpu_container_allocated_seconds_total"
	before := st.watched(10 * time.Second)
	check := func(step string, now series, seconds float64, want map[string]float64) {
		t.Helper()
		for pod, share := range want {
			pod := fmt.Sprintf(`pod="%s"`, pod)
			increase := func(family string) float64 {
				return sum(now.match(family, pod)) - sum(before.match(family, pod))
			}
			if got := increase(busy); math.Abs(got-share*seconds/7) > 0.6 {
				t.Errorf("%s: %s was busy for %v s, not %v", step, pod, got, share*seconds/7)
			}
			if got := increase(allocated); math.Abs(got-seconds/7) > 0.1 {
				t.Errorf("%s: a seventh is allocated to %s for %v s, and it has %v", step, pod, seconds, got)
			}
			if got := increase(idle); math.Abs(got-(1-share)*seconds/7) > 0.6 {
				t.Errorf("%s: %s did not use %v s of %v", step, pod, got, seconds/7)
			}
			if err := now.is(1, "gpu_container_attribution_info", pod, `method="mig"`); err != nil {
				t.Errorf("%s: %v", step, err)
			}
		}
	}
	now := st.watched(108 * time.Second)
	check("one is busy", now, 108, map[string]float64{"a": .8, "b": 0, "c": 0})
	if got := sum(now.match("gpu_busy_seconds_total")) - sum(before.match("gpu_busy_seconds_total")); math.Abs(got-.8*108/7) > .6 {
		t.Errorf("the GPU was busy for %v s", got)
	}
	for pod, gib := range map[string]float64{"a": 2, "b": 1, "c": 0} {
		if err := now.is(gib*(1<<30), "gpu_container_memory_used_bytes", `pod="`+pod+`"`); err != nil {
			t.Error(err)
		}
	}
	before = now
	now = st.watched(118 * time.Second)
	check("another is", now, 118, map[string]float64{"a": 0, "b": .5, "c": 0})
	before = st.watched(20 * time.Second)
	now = st.watched(60 * time.Second)
	for _, pod := range []string{"a", "b", "c"} {
		if got := sum(now.match(busy, `pod="`+pod+`"`)) - sum(before.match(busy, `pod="`+pod+`"`)); got != 0 {
			t.Errorf("%s got %v s that may be another's", pod, got)
		}
		if err := now.is(1, "gpu_container_attribution_info", `pod="`+pod+`"`, `method="none"`); err != nil {
			t.Error(err)
		}
	}
	const lost, unmeasured = "gpu_unattributed_busy_seconds_total", `reason="unmeasured"`
	if got := sum(now.match(lost, unmeasured)) - sum(before.match(lost, unmeasured)); math.Abs(got-.5*60*3/7) > 1 {
		t.Errorf("%v s are unmeasured", got)
	}
	for text := range now {
		if family, _, _ := strings.Cut(text, "{"); family == "gpu_container_allocation_ratio" && !strings.Contains(text, uuid(1)) {
			t.Errorf("%s: the label is not that of the GPU instance", text)
		}
	}
}
