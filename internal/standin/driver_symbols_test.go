package standin

import (
	"context"
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/internal/nvml/calls"
	"github.com/gpu-exporter/gpu-exporter/internal/standin/scenario"
)

// symbols lists the functions that a library exports.
func symbols(t *testing.T, path string) []string {
	t.Helper()
	f, err := elf.Open(path)
	must.OK(t, err)
	defer f.Close()
	all, err := f.DynamicSymbols()
	must.OK(t, err)
	var names []string
	for _, s := range all {
		if s.Section != elf.SHN_UNDEF && elf.ST_TYPE(s.Info) == elf.STT_FUNC {
			names = append(names, s.Name)
		}
	}
	slices.Sort(names)
	return names
}

// What an old driver lacks is not in the symbol table, and nothing but NVML is.
func TestSymbolSets(t *testing.T) {
	branches := map[string]int{"R470": 470, "R535": 535, "R550": 550, "R580": 580, "R595": 595, "R610": 610, "R615": 615,
		"R620": 620, "newest": 9999}
	var previous []string
	for _, set := range scenario.SymbolSets {
		path, err := BuildFakeNVML(context.Background(), set, t.TempDir())
		must.OK(t, err)
		names := symbols(t, path)
		for _, n := range names {
			if !strings.HasPrefix(n, "nvml") {
				t.Errorf("%s exports %s", set, n)
			}
		}
		for _, n := range previous {
			if !slices.Contains(names, n) {
				t.Errorf("%s lacks %s, which an older driver has", set, n)
			}
		}
		for i := range calls.Calls {
			c := &calls.Calls[i]
			has := slices.ContainsFunc(called(c), func(s string) bool { return slices.Contains(names, s) })
			if has != (branches[set] >= c.Since) {
				t.Errorf("%s has %s: %v", set, c.Function, has)
			}
			if newest := called(c)[0]; c.NewestSince > 0 && slices.Contains(names, newest) != (branches[set] >= c.NewestSince) {
				t.Errorf("%s has %s, or should", set, newest)
			}
		}
		for _, n := range []string{"nvmlInit_v2", "nvmlDeviceGetCount_v2", "nvmlDeviceGetComputeRunningProcesses",
			"nvmlDeviceGetTemperature"} {
			if !slices.Contains(names, n) {
				t.Errorf("%s lacks %s", set, n)
			}
		}
		previous = names
	}
	if _, err := BuildFakeNVML(context.Background(), "R1", t.TempDir()); err == nil {
		t.Error("an unknown set was built")
	}
}

// The checks of struct versions, and the older forms of calls, which go-nvml does not let through.
const rawCalls = `
#define NVML_NO_UNVERSIONED_FUNC_DEFS
#include <nvml.h>
#include <stdio.h>
#include <string.h>
#define SHOW(text, call) printf("%s %d\n", text, (int)(call))
int main(void)
{
    nvmlDevice_t d;
    SHOW("early", nvmlDeviceGetHandleByIndex_v2(0, &d));
    SHOW("init", nvmlInit_v2());
    SHOW("handle", nvmlDeviceGetHandleByIndex_v2(0, &d));
    nvmlMemory_v2_t memory = {.version = nvmlMemory_v2};
    SHOW("memory", nvmlDeviceGetMemoryInfo_v2(d, &memory));
    memory.version = 1;
    SHOW("memory 1", nvmlDeviceGetMemoryInfo_v2(d, &memory));
    nvmlTemperature_t temperature = {.version = 7};
    SHOW("temperature", nvmlDeviceGetTemperatureV(d, &temperature));
    nvmlMarginTemperature_t margin = {.version = 0};
    SHOW("margin", nvmlDeviceGetMarginTemperature(d, &margin));
    nvmlGpuFabricInfoV_t fabric = {.version = 1};
    SHOW("fabric", nvmlDeviceGetGpuFabricInfoV(d, &fabric));
    nvmlGpuInstanceProfileInfo_v2_t profile = {.version = 0};
    SHOW("profile", nvmlDeviceGetGpuInstanceProfileInfoV(d, 0, &profile));
    nvmlGpmSupport_t support = {.version = 9};
    SHOW("gpm", nvmlGpmQueryDeviceSupport(d, &support));
    static nvmlGpmMetricsGet_t metrics = {.version = 9};
    SHOW("metrics", nvmlGpmMetricsGet(&metrics));
    unsigned int n = 1;
    nvmlProcessInfo_v1_t v1[4];
    SHOW("too small", nvmlDeviceGetComputeRunningProcesses(d, &n, v1));
    printf("count %u\n", n);
    SHOW("v1", nvmlDeviceGetComputeRunningProcesses(d, &n, v1));
    printf("pids %u %u, memory %llu\n", v1[0].pid, v1[1].pid, v1[1].usedGpuMemory);
    nvmlProcessInfo_v2_t v2[4];
    n = 4;
    SHOW("v2", nvmlDeviceGetComputeRunningProcesses_v2(d, &n, v2));
    printf("count %u, instance %d\n", n, (int)v2[0].gpuInstanceId);
    n = 0;
    SHOW("sizing", nvmlDeviceGetComputeRunningProcesses_v3(d, &n, NULL));
    char uuid[8];
    SHOW("short", nvmlDeviceGetUUID(d, uuid, sizeof uuid));
    SHOW("null", nvmlDeviceGetUUID(d, NULL, 96));
    nvmlDevice_t stray = {(struct nvmlDevice_st *)uuid};
    SHOW("stray", nvmlDeviceGetUUID(stray, uuid, sizeof uuid));
    nvmlSample_t samples[4];
    nvmlValueType_t type;
    SHOW("samples sizing", nvmlDeviceGetSamples(d, NVML_GPU_UTILIZATION_SAMPLES, 0, &type, &n, NULL));
    printf("count %u\n", n);
    n = 0;
    SHOW("samples none", nvmlDeviceGetSamples(d, NVML_GPU_UTILIZATION_SAMPLES, 0, &type, &n, samples));
    SHOW("shutdown", nvmlShutdown());
    SHOW("again", nvmlShutdown());
    SHOW("late", nvmlDeviceGetCount_v2(&n));
    return 0;
}
`

func TestRawCalls(t *testing.T) {
	s := written(t, plainBoard+`
gpu 0 board=b
process gpu=0 pid=31 memory=1KiB
process gpu=0 pid=32 memory=2KiB
`)
	dir := t.TempDir()
	lib, err := BuildFakeNVML(context.Background(), "newest", dir)
	must.OK(t, err)
	env, control, err := Simulate(s, dir)
	must.OK(t, err)
	defer control.Close()
	root, err := RepositoryRoot()
	must.OK(t, err)
	include, err := headerDir(context.Background(), root)
	must.OK(t, err)
	source, program := filepath.Join(dir, "raw.c"), filepath.Join(dir, "raw")
	must.OK(t, os.WriteFile(source, []byte(rawCalls), 0o644))
	if out, err := exec.Command("gcc", "-Wno-deprecated-declarations", "-I"+include, "-o", program, source,
		lib).CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
	cmd := exec.Command(program)
	cmd.Env = append(env, "LD_LIBRARY_PATH="+dir)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	want := `early 1
init 0
handle 0
memory 0
memory 1 25
temperature 25
margin 25
fabric 25
profile 25
gpm 25
metrics 25
too small 7
count 2
v1 0
pids 31 32, memory 2048
v2 0
count 2, instance -1
sizing 7
short 7
null 2
stray 2
samples sizing 0
count 20
samples none 2
shutdown 0
again 1
late 1
`
	if string(out) != want {
		t.Errorf("got\n%s\nwant\n%s", out, want)
	}
}

// called are the functions of which go-nvml calls the first that the library has.
func called(c *calls.Call) (list []string) {
	for v := c.Newest; v > 1; v-- {
		list = append(list, fmt.Sprintf("%s_v%d", c.Function, v))
	}
	return append(list, c.Function)
}
