package nvml

import (
	"fmt"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// accountant is a device that reports memory by cgroup.
type accountant struct {
	nvml.Device
	calls  []string
	limits func(cgroup string) (nvml.MemoryLimits_v1, nvml.Return)
}

func (a *accountant) GetMemoryLimits_v1(cgroup string) (nvml.MemoryLimits_v1, nvml.Return) {
	a.calls = append(a.calls, cgroup)
	return a.limits(cgroup)
}

// TestCgroups: one call for each cgroup and poll, bounded; one without an account is queried again later, and costs no
// other. Without the function, and under MIG, the cgroups are not even listed.
func TestCgroups(t *testing.T) {
	const none = nvml.DEVICE_MEMORY_LIMIT_MAX
	code := map[string]nvml.Return{"/absent": nvml.ERROR_NOT_FOUND, "/removed": nvml.ERROR_OPERATING_SYSTEM}
	a := &accountant{limits: func(cgroup string) (nvml.MemoryLimits_v1, nvml.Return) {
		if cgroup == "/limited" {
			return nvml.MemoryLimits_v1{SoftLimit: 3, HardLimit: 9, CurrentUsed: 5}, nvml.SUCCESS
		}
		return nvml.MemoryLimits_v1{HardLimit: none, CurrentUsed: 7}, code[cgroup]
	}}
	c, now, listed := stubGPU(a), time.Unix(1e9, 0), 0
	paths := []string{"/limited", "/absent", "/plain", "/removed"}
	c.dev.session.library.options.Clock = func() time.Time { return now }
	c.dev.session.library.options.Cgroups = func() []string { listed++; return paths }
	read := func() ([]gpu.CgroupMemory, nvml.Return) {
		var to gpu.Medium
		a.calls = nil
		ret := readCgroups(c, &to)
		return to.Cgroups, ret
	}
	for i, calls := range []int{4, 4, 2, 4, 2, 2, 2, 4, 2, 2, 2, 2, 2, 4} { // at 0, 10, 30, 70 and 130 s
		list, ret := read()
		if got := fmt.Sprint(list, ret == nvml.SUCCESS, len(a.calls)); got !=
			fmt.Sprint([]gpu.CgroupMemory{{Path: "/limited", Used: 5, Limit: gpu.Some[gpu.Bytes](9), Guaranteed: gpu.Some[gpu.Bytes](3)},
				{Path: "/plain", Used: 7}}, true, calls) {
			t.Errorf("poll %d: %s", i, got)
		}
		now = now.Add(10 * time.Second)
	}
	paths = []string{"/absent"}
	if list, ret := read(); len(list) > 0 || ret != nothingToRead || len(c.cgroups) != 1 {
		t.Errorf("no account: %v, %s; %v", list, codeName(ret), c.cgroups)
	}
	paths = make([]string, 2*maxCgroups)
	if list, _ := read(); len(list) != maxCgroups {
		t.Errorf("%d of %d cgroups", len(list), len(paths))
	}
	for _, ret := range []nvml.Return{nvml.ERROR_NOT_SUPPORTED, nvml.ERROR_GPU_IS_LOST, nvml.ERROR_UNKNOWN} {
		code[""], paths = ret, []string{"/plain", "", "/plain"}
		if list, got := read(); got != ret || len(list) > 0 || len(a.calls) != 2 {
			t.Errorf("%s: %v, %s, %v", codeName(ret), list, codeName(got), a.calls)
		}
	}
	listed = 0
	c.mig.on = true
	if _, ret := read(); ret != nothingToRead {
		t.Errorf("under MIG: %s", codeName(ret))
	}
	c.mig.on, c.dev.session.offers.have[callMemoryLimitsV1] = false, false
	if _, ret := read(); ret != nvml.ERROR_FUNCTION_NOT_FOUND || listed > 0 {
		t.Errorf("an older driver: %s, listed %d times", codeName(ret), listed)
	}
}

// The journal has no path of a cgroup, which contains the IDs of pod and container.
func TestJournalHasNoCgroup(t *testing.T) {
	got := fmt.Sprint(journaled(callMemoryLimitsV1, &nvml.MemoryLimits_v1{NameSpace: "/sys/fs/cgroup/pod", SoftLimit: 1, HardLimit: 2}))
	if got != "map[currentused:0 hardlimit:2 softlimit:1]" {
		t.Error(got)
	}
}
