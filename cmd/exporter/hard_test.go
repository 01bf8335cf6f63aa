package main

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/internal/standin"
)

// Processes that once got the GPU time of others, or lost their own. Each case lets time pass on one GPU that two pods
// share, and names what /metrics must say of it. Other causes have tests of their own: TestAnyPluginAndDriver,
// TestHungSources, TestHiddenWork, TestAllocationsByEvent, TestGPUsThatContainersSee and TestGolden.
func TestHardToAttribute(t *testing.T) {
	list := cases{}
	const shared = "allocatable nvidia.com/gpu " + sharedGPU + "::0 " + sharedGPU + "::1\n" +
		"pod team/a container c nvidia.com/gpu=" + sharedGPU + "::0 pids=5000\n" +
		"pod team/b container c nvidia.com/gpu=" + sharedGPU + "::1 pids=5001\n"
	const busy, last = "gpu_container_busy_seconds_total", "gpu_container_last_busy_timestamp_seconds"
	both := "process gpu=0 pid=5000 memory=1GiB busy=40% period=1s\n" +
		"process gpu=0 pid=5001 memory=2GiB busy=20% period=1s phase=500ms\n"
	// within asserts a value to a twentieth of the time that passed.
	within := func(s series, want, span float64, family string, pairs ...string) error {
		got, err := s.one(family, pairs...)
		if err == nil && math.Abs(got-want) > span/20 {
			err = fmt.Errorf("%s%v is %.1f, want %.1f", family, pairs, got, want)
		}
		return err
	}
	for _, c := range []struct {
		name, load, pods string
		flags            []string
		// act lets time pass, and check has the series after it.
		act   func(st *stage)
		check func(st *stage, s series) error
	}{
		{"a child cgroup with another pod's names", both, strings.Replace(shared, "pids=5001", "pids=4999", 1) +
			// b's process made it: what b does is not a's.
			"process 5001 cgroup=/kubepods/pod" + standin.PodUID("team", "b") + "/" + standin.ContainerID("team", "b", "c") +
			"/kubepods/pod" + standin.PodUID("team", "a") + "/" + standin.ContainerID("team", "a", "c") + "\n", nil,
			func(st *stage) { st.watched(2 * time.Minute) },
			func(_ *stage, s series) error {
				return all(within(s, 48, 120, busy, `pod="a"`), within(s, 24, 120, busy, `pod="b"`),
					s.is(1<<30, "gpu_container_memory_used_bytes", `pod="a"`), s.is(2<<30, "gpu_container_memory_used_bytes", `pod="b"`))
			}},
		{"activity while it could not be measured", "process gpu=0 pid=6000 memory=1GiB busy=60% period=1s from=0s to=120s\n",
			// The process may be a's or b's: its pod is in no source.
			shared + "process 6000 cgroup=/kubepods/pod11111111-1111-4111-8111-111111111111/" + strings.Repeat("1", 64) + "\n", nil,
			func(st *stage) { st.run(140 * time.Second) },
			func(st *stage, s series) error {
				var errs []error
				for _, pod := range []string{`pod="a"`, `pod="b"`} {
					errs = append(errs, s.is(1, "gpu_container_attribution_info", pod, `method="process"`))
					at, err := s.one(last, pod)
					if ended := float64(st.control.Time().Add(-20 * time.Second).Unix()); err == nil && at < ended {
						err = fmt.Errorf("last busy %v s before its process ended", ended-at)
					}
					// Not busy for 60 s is idle, and none has been for so long.
					errs = append(errs, err, s.is(0, "gpu_container_unused_seconds_total", pod, `state="idle"`))
				}
				return all(errs...)
			}},
		{"init and ephemeral containers", "process gpu=0 pid=5000 memory=1GiB busy=40% period=1s\n" +
			"process gpu=0 pid=5001 memory=2GiB busy=20% period=1s phase=500ms\n" +
			"process gpu=0 pid=5002 memory=3GiB busy=10% period=1s phase=750ms\n" +
			"process gpu=0 pid=5003 memory=4GiB busy=5% period=1s phase=900ms\n" +
			"process gpu=0 pid=5004 memory=5GiB\n",
			shared + "pod team/a container setup kind=init pids=5002\n" +
				"pod team/a container debug kind=ephemeral pids=5003\npod team/a container beside pids=5004\n", nil,
			func(st *stage) { st.watched(2 * time.Minute) },
			func(_ *stage, s series) error {
				errs := []error{s.is(1, "gpu_container_mismatch", `container="beside"`, `kind="used_not_allocated"`),
					s.none("gpu_container_mismatch", `container="setup"`), s.none("gpu_container_mismatch", `container="debug"`),
					s.none("gpu_container_mismatch", `container="c"`), s.none("gpu_container_allocation_ratio", `container="setup"`),
					s.none("gpu_container_allocation_ratio", `container="debug"`),
					s.is(0, "gpu_unattributed_busy_seconds_total", `reason="unresolved"`)}
				for container, want := range map[string][2]float64{"c": {48, 1}, "setup": {12, 3}, "debug": {6, 4}} {
					is := []string{`pod="a"`, `container="` + container + `"`}
					errs = append(errs, within(s, want[0], 120, busy, is...),
						s.is(want[1]*(1<<30), "gpu_container_memory_used_bytes", is...))
				}
				return all(append(errs, within(s, 24, 120, busy, `pod="b"`))...)
			}},
		{"a process that moves to another pod", both, shared, nil,
			func(st *stage) {
				st.run(time.Minute)
				cgroup := filepath.Join(st.trees.Procfs, "5001", "cgroup")
				must.OK(st.t, os.WriteFile(cgroup, []byte("0::/kubepods/pod"+standin.PodUID("team", "a")+"/"+
					standin.ContainerID("team", "a", "c")+"\n"), 0o600))
				st.run(time.Minute)
			},
			func(_ *stage, s series) error {
				// The 10 s until it is seen may be either's.
				return all(within(s, 58, 80, busy, `pod="a"`), within(s, 13, 40, busy, `pod="b"`),
					s.is(3<<30, "gpu_container_memory_used_bytes", `pod="a"`))
			}},
		{"Docker beside a container whose GPU is unknown", "process gpu=0 pid=5000 memory=1GiB busy=40% period=1s\n",
			"allocatable example.com/gpu x-1\npod team/a container c example.com/gpu=x-1\n" +
				"process 5000 cgroup=/system.slice/docker-" + strings.Repeat("d", 64) + ".scope\n", nil,
			func(st *stage) { st.run(time.Minute) },
			func(_ *stage, s series) error {
				return all(within(s, 24, 60, busy, `pod="docker/dddddddddddd"`), s.none("gpu_allocation_ratio"),
					s.is(1<<30, "gpu_container_memory_used_bytes", `pod="docker/dddddddddddd"`))
			}},
		{"processes of a second", func() string {
			var b strings.Builder
			for i := range 120 {
				fmt.Fprintf(&b, "process gpu=0 pid=%d memory=1GiB busy=80%% period=250ms from=%ds to=%ds\n", 7000+i, i, i+1)
			}
			return b.String()
		}(), shared, nil,
			func(st *stage) { st.shortLived(7000, 120, "a", "b") },
			func(_ *stage, s series) error {
				return all(within(s, 48, 96, busy, `pod="a"`), within(s, 48, 96, busy, `pod="b"`))
			}},
	} {
		list.add("R580", c.name, func(t *testing.T) {
			st := play(t, parseScenario(t, oneGPU+c.load), c.pods, c.flags...)
			c.act(st)
			if err := c.check(st, st.series()); err != nil {
				t.Error(err)
			}
		})
	}
	list.run(t)
}

// shortLived lets n seconds pass with a process in each, of the pods by turns. The program looks for new ones as often as
// it does when time is not stepped.
func (s *stage) shortLived(first, n int, pods ...string) {
	s.t.Helper()
	const glance = 400 * time.Millisecond
	dir := func(pid int) string { return filepath.Join(s.trees.Procfs, fmt.Sprint(pid)) }
	hidden := filepath.Join(s.dir, "ended")
	err := os.Mkdir(hidden, 0o755)
	for i := range n {
		pod := pods[i%len(pods)]
		err = errors.Join(err, os.WriteFile(filepath.Join(dir(first+i), "cgroup"), []byte("0::/kubepods/pod"+
			standin.PodUID("team", pod)+"/"+standin.ContainerID("team", pod, "c")+"\n"), 0o600),
			os.Rename(dir(first+i), filepath.Join(hidden, fmt.Sprint(first+i))))
	}
	running := -1
	for end := s.control.Now() + time.Duration(n)*time.Second; s.control.Now() < end; {
		s.control.Advance(glance)
		if i := int(s.control.Now() / time.Second); i != running && i < n {
			if running >= 0 {
				err = errors.Join(err, os.RemoveAll(dir(first+running)))
			}
			running = i
			err = errors.Join(err, os.Rename(filepath.Join(hidden, fmt.Sprint(first+i)), dir(first+i)))
		}
		s.e.finder.Glance(s.t.Context())
		if s.control.Now()%fastPoll == 0 {
			s.step()
		}
	}
	must.OK(s.t, err)
}
