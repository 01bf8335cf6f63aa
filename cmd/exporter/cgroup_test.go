package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/must"
)

// Without the host's PID namespace the memory of containers that share a GPU comes from their cgroups where the kernel
// accounts it, with the limits that the driver enforces, and adds up to the GPU's. Where the kernel accounts a part only,
// it is not used. The files are the kernel's, whatever the driver's branch.
func TestMemoryByCgroup(t *testing.T) {
	list := cases{}
	for _, symbols := range []string{"R620", "R615", "R550"} {
		list.add(symbols, symbols, func(t *testing.T) {
			text := strings.Replace(twoGPUs, "symbols R580", "symbols "+symbols, 1) +
				"process gpu=0 pid=100 memory=30GiB busy=30% period=1s\nprocess gpu=0 pid=101 memory=10GiB busy=20% period=1s\n" +
				"process gpu=0 pid=102 memory=1GiB\nprocess gpu=1 pid=103 memory=5GiB\n"
			s := parseScenario(t, text)
			a, b := GPUA[len(`uuid="`):len(GPUA)-1], GPUB[len(`uuid="`):len(GPUB)-1]
			pods := fmt.Sprintf("allocatable nvidia.com/gpu %s::0 %[1]s::1 %[1]s::2 %[2]s\n"+
				"pod ml/train container main nvidia.com/gpu=%[1]s::0 pids=100\n"+
				"pod ml/serve container main nvidia.com/gpu=%[1]s::1 pids=101\n"+
				"pod ml/idle container main nvidia.com/gpu=%[1]s::2\n"+
				"pod ml/alone container main nvidia.com/gpu=%[2]s pids=103\n", a, b)
			root := t.TempDir()
			st := play(t, s, pods, "--path.procfs=/nonexistent", "--path.cgroup="+root)
			charge := func(file string, bytes map[int]string) {
				t.Helper()
				paths := map[string]string{"": bytes[0]}
				for pid, value := range bytes {
					cgroup, err := os.ReadFile(filepath.Join(st.trees.Procfs, fmt.Sprint(pid), "cgroup"))
					if pid == 0 {
						continue
					} else if err != nil {
						t.Fatal(err)
					}
					path := strings.TrimSpace(strings.TrimPrefix(string(cgroup), "0::"))
					paths[path] = value
					for path = filepath.Dir(path); path != "/"; path = filepath.Dir(path) {
						if _, ok := paths[path]; !ok && file == "dmem.current" {
							// What is above a container is charged for all below it.
							paths[path] = "sum"
						}
					}
				}
				for path, value := range paths {
					if value == "sum" {
						total := 0
						for at, v := range maps.All(paths) {
							if n := 0; strings.HasPrefix(at, path+"/") {
								if _, err := fmt.Sscan(v, &n); err == nil {
									total += n
								}
							}
						}
						value = fmt.Sprint(total)
					}
					if value == "" {
						continue
					}
					must.OK(t, os.MkdirAll(root+path, 0o755))
					line := fmt.Sprintf("nvidia/0000:18:00.0/vidmem %s\n", value)
					must.OK(t, os.WriteFile(filepath.Join(root, path, file), []byte(line), 0o644))
				}
			}
			const main = `container="main"`
			container := func(s series, family, pod string, labels ...string) float64 {
				t.Helper()
				v, err := s.one(family, append(labels, GPUA, `pod="`+pod+`"`)...)
				if err != nil {
					t.Error(err)
				}
				return v
			}
			now := st.watched(20 * time.Second)
			verify(t, now.none("gpu_container_memory_used_bytes", GPUA), // nothing is known
				now.is(5<<30, "gpu_container_memory_used_bytes", GPUB, `pod="alone"`, main))
			charge("dmem.capacity", map[int]string{0: fmt.Sprint(81559 << 20)})
			charge("dmem.current", map[int]string{100: fmt.Sprint(30 << 30), 101: fmt.Sprint(10 << 30), 102: fmt.Sprint(1 << 30)})
			charge("dmem.max", map[int]string{100: "max", 101: fmt.Sprint(12 << 30)})
			charge("dmem.min", map[int]string{100: "0", 101: fmt.Sprint(8 << 30)})
			now = st.watched(20 * time.Second)
			for pod, want := range map[string]float64{"train": 30 << 30, "serve": 10 << 30, "idle": 0} {
				if got := container(now, "gpu_container_memory_used_bytes", pod); got != want {
					t.Errorf("%s uses %g bytes, want %g", pod, got, want)
				}
				container(now, "gpu_container_attribution_info", pod, `memory="cgroup"`)
			}
			used, err := now.one("gpu_memory_used_bytes", GPUA)
			sum := 0.0
			for _, family := range []string{"gpu_container_memory_used_bytes", "gpu_unattributed_memory_used_bytes"} {
				for _, v := range now.match(family, GPUA) {
					sum += v
				}
			}
			verify(t, err, now.is(12<<30, "gpu_container_memory_limit_bytes", GPUA, `pod="serve"`),
				now.none("gpu_container_memory_limit_bytes", GPUA, `pod="train"`),
				now.is(8<<30, "gpu_container_memory_guaranteed_bytes", GPUA, `pod="serve"`),
				now.is(1<<30, "gpu_unattributed_memory_used_bytes", GPUA, `reason="host"`),
				now.is(0, "gpu_attribution_error_ratio", GPUA, `quantity="memory"`),
				now.is(1, "gpu_exporter_source_up", `source="cgroups"`),
				now.is(5<<30, "gpu_container_memory_used_bytes", GPUB, `pod="alone"`))
			if sum != used {
				t.Errorf("the parts of GPU 0 add up to %g, the GPU uses %g", sum, used)
			}
			// A quarter of the memory is charged to none: the figures of containers would be too small.
			charge("dmem.current", map[int]string{100: fmt.Sprint(20 << 30), 101: fmt.Sprint(10 << 30), 102: fmt.Sprint(1 << 30)})
			now = st.watched(20 * time.Second)
			verify(t, now.none("gpu_container_memory_used_bytes", GPUA),
				now.is(41<<30, "gpu_unattributed_memory_used_bytes", GPUA, `reason="hidden"`),
				now.is(12<<30, "gpu_container_memory_limit_bytes", GPUA, `pod="serve"`))
		})
	}
	list.run(t)
}

// Where the kernel has no dmem files, the driver reports the memory of the containers' cgroups, R615 and newer. It is used
// if it adds up to the GPU's; doctor says why there is none. The second set of answers is that of a driver which accounts
// only cgroups with a limit: the header allows both.
func TestMemoryByDriver(t *testing.T) {
	list := cases{}
	for _, c := range []struct{ symbols, answer, said string }{
		{"R620", "", ""}, {"R615", "", ""}, {"R620", "!NOT_FOUND", "does not add up"},
		{"R610", "", "does not report memory by cgroup"}, {"R550", "", "does not report memory by cgroup"},
	} {
		list.add(c.symbols, c.symbols+c.answer, func(t *testing.T) {
			text := strings.Replace(twoGPUs, "symbols R580", "symbols "+c.symbols, 1) +
				"at 0s system DriverVersion = \"" + c.symbols[1:] + ".10\"\n" +
				"process gpu=0 pid=100 memory=30GiB busy=30% period=1s\nprocess gpu=0 pid=101 memory=10GiB busy=20% period=1s\n" +
				"process gpu=0 pid=102 memory=1GiB\nprocess gpu=1 pid=103 memory=5GiB\n"
			if c.answer != "" {
				text += "at 0s gpu 0 MemoryLimits_v1 = " + c.answer + "\n"
			}
			s := parseScenario(t, text)
			a, b := GPUA[len(`uuid="`):len(GPUA)-1], GPUB[len(`uuid="`):len(GPUB)-1]
			root := t.TempDir()
			st := play(t, s, fmt.Sprintf("allocatable nvidia.com/gpu %s::0 %[1]s::1 %[1]s::2 %[2]s\n"+
				"pod ml/train container main nvidia.com/gpu=%[1]s::0 pids=100\n"+
				"pod ml/serve container main nvidia.com/gpu=%[1]s::1 pids=101\n"+
				"pod ml/idle container main nvidia.com/gpu=%[1]s::2\n"+
				"pod ml/alone container main nvidia.com/gpu=%[2]s pids=103\n", a, b), "--path.procfs=/nonexistent",
				"--path.cgroup="+root)
			write := func(path, text string) {
				t.Helper()
				path = filepath.Join(root, path)
				must.OK(t, errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)))
			}
			write("cgroup.controllers", "cpu memory\n")
			for pid := 100; pid <= 103; pid++ {
				cgroup, err := os.ReadFile(filepath.Join(st.trees.Procfs, fmt.Sprint(pid), "cgroup"))
				must.OK(t, err)
				path := strings.TrimSpace(strings.TrimPrefix(string(cgroup), "0::"))
				write(path+"/worker/cgroup.procs", fmt.Sprintln(pid))
				if pid == 101 {
					write(path+"/memory_limits", fmt.Sprintln(8<<30, 12<<30))
				}
			}
			now := st.watched(40 * time.Second)
			if said, _ := st.doctor(); c.said == "" && strings.Contains(said, "memory of containers") ||
				!strings.Contains(said, c.said) {
				t.Errorf("doctor:\n%s", said)
			}
			used, err := now.one("gpu_memory_used_bytes", GPUA)
			sum := 0.0
			for _, family := range []string{"gpu_container_memory_used_bytes", "gpu_unattributed_memory_used_bytes"} {
				for _, v := range now.match(family, GPUA) {
					sum += v
				}
			}
			if err := all(err, now.is(5<<30, "gpu_container_memory_used_bytes", GPUB, `pod="alone"`)); err != nil || sum != used {
				t.Errorf("the parts of GPU 0 add up to %g, the GPU uses %g: %v", sum, used, err)
			}
			if c.symbols >= "R615" {
				verify(t, now.is(12<<30, "gpu_container_memory_limit_bytes", GPUA, `pod="serve"`),
					now.none("gpu_container_memory_limit_bytes", GPUA, `pod="train"`),
					now.is(8<<30, "gpu_container_memory_guaranteed_bytes", GPUA, `pod="serve"`),
					now.is(1, "gpu_exporter_source_up", `source="cgroups"`))
			}
			if c.said != "" {
				verify(t, now.none("gpu_container_memory_used_bytes", GPUA),
					now.none("gpu_container_attribution_info", GPUA, `memory="driver"`),
					now.is(used, "gpu_unattributed_memory_used_bytes", GPUA, `reason="hidden"`))
				return
			}
			for pod, want := range map[string]float64{"train": 30 << 30, "serve": 10 << 30, "idle": 0} {
				verify(t, now.is(want, "gpu_container_memory_used_bytes", GPUA, `pod="`+pod+`"`),
					now.is(1, "gpu_container_attribution_info", GPUA, `pod="`+pod+`"`, `memory="driver"`))
			}
			verify(t, now.is(1<<30, "gpu_unattributed_memory_used_bytes", GPUA, `reason="host"`),
				now.is(0, "gpu_attribution_error_ratio", GPUA, `quantity="memory"`))
		})
	}
	list.run(t)
}
