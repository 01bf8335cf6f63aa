package compat_test

import (
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/catalog"
	"github.com/gpu-exporter/gpu-exporter/internal/catalog/catalogtest"
	"github.com/gpu-exporter/gpu-exporter/internal/catalog/compat"
	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/internal/must"
)

// page is a page and its rows by name.
type page struct {
	*compat.Page
	rows map[string]catalog.Family
}

func newPage(t *testing.T, r compat.Release) page {
	t.Helper()
	return pageOf(t, compat.Options{Release: r, Copies: true})
}

func pageOf(t *testing.T, o compat.Options) page {
	t.Helper()
	p, err := compat.New(o)
	must.OK(t, err)
	out := page{p, map[string]catalog.Family{}}
	rows := p.Families()
	must.OK(t, catalog.ValidateCompat(rows))
	for _, f := range rows {
		out.rows[f.Name] = f
	}
	return out
}

// series is what a family shows of a view: values by the labels that the test asks for.
func (p page) series(t *testing.T, v *gpu.View, family string, labels ...string) map[string]float64 {
	t.Helper()
	f, ok := p.rows[family]
	if !ok {
		t.Fatalf("there is no %s", family)
	}
	out := map[string]float64{}
	f.Read(v, func(value float64, values ...string) {
		if len(values) != len(f.Labels) {
			t.Fatalf("%s emits %d values for %d labels", family, len(values), len(f.Labels))
		}
		var key []string
		for _, l := range labels {
			at := slices.Index(f.Labels, l)
			if at < 0 {
				t.Fatalf("%s has no label %s", family, l)
			}
			key = append(key, values[at])
		}
		text := strings.Join(key, " ")
		if _, twice := out[text]; twice {
			t.Errorf("%s has %q twice", family, text)
		}
		out[text] = value
	})
	return out
}

func equal(t *testing.T, what string, got, want map[string]float64) {
	t.Helper()
	for k, w := range want {
		if g, ok := got[k]; !ok || math.Abs(g-w) > 1e-9*math.Max(1, math.Abs(w)) {
			t.Errorf("%s: %q is %v (%v), want %v", what, k, g, ok, w)
		}
	}
	for k, g := range got {
		if _, ok := want[k]; !ok {
			t.Errorf("%s: %q is there, with %v", what, k, g)
		}
	}
}

func TestUnknownReleaseIsRefused(t *testing.T) {
	if _, err := compat.New(compat.Options{Release: "dcgm-5.0"}); err == nil || !strings.Contains(err.Error(), "dcgm-4.8") {
		t.Errorf("the error is %v", err)
	}
}

// The release notes of 4.9.0 say that 23 default fields are renamed, 11 of them with another unit; one of the 23
// is the label of the driver's version.
func TestRenamesOf49(t *testing.T) {
	old, new := newPage(t, compat.DCGM48), newPage(t, compat.DCGM49)
	a, b := old.Families(), new.Families()
	if len(a) != len(b) {
		t.Fatalf("%d families in 4.8, %d in 4.9", len(a), len(b))
	}
	renamed, rescaled := 0, 0
	for i := range a {
		if a[i].Name == b[i].Name {
			if a[i].Help != b[i].Help {
				t.Errorf("%s has another unit under the same name: %q and %q", a[i].Name, a[i].Help, b[i].Help)
			}
			continue
		}
		if a[i].Name == "DCGM_FI_DEV_FB_TOTAL" {
			continue // not shown by default in 4.8
		}
		renamed++
		if a[i].Help != b[i].Help {
			rescaled++
		}
	}
	if renamed != 22 || rescaled != 11 {
		t.Errorf("%d families are renamed, %d of them with another unit; want 22 and 11", renamed, rescaled)
	}
	if l := b[0].Labels; slices.Contains(l, "DCGM_FI_DRIVER_VERSION") || !slices.Contains(l, "DCGM_FI_SYSTEM_DRIVER_VERSION") ||
		slices.Contains(l, "Hostname") {
		t.Errorf("the labels of 4.9 are %v", l)
	}
}

// minuteLater is a view and the same a minute after, with everything that counts counting.
func minuteLater() (then, now *gpu.View) {
	then, now = catalogtest.FullView(), catalogtest.FullView()
	now.At = then.At.Add(time.Minute)
	for i := range now.GPUs {
		c := &now.GPUs[i]
		if c.State != gpu.DeviceUp {
			continue
		}
		c.LastRead = map[gpu.PollGroup]time.Time{gpu.PollFast: then.GPUs[i].LastRead[gpu.PollFast].Add(50 * time.Second)}
		grow := func(a *gpu.Activity) {
			for _, s := range []struct {
				of *gpu.Opt[gpu.Seconds]
				by gpu.Seconds
			}{{&a.Busy, 30}, {&a.Observed, 60}, {&a.MemoryBusy, 15}, {&a.Profiled, 40}, {&a.SMActive, 10}, {&a.SMOccupancy, 4},
				{&a.TensorActive, 8}, {&a.DRAMActive, 2}} {
				if v, ok := s.of.Get(); ok {
					*s.of = gpu.Some(v + s.by)
				}
			}
			if a.Pipes != nil {
				a.Pipes = map[gpu.Pipe]gpu.Seconds{gpu.PipeFP32: a.Pipes[gpu.PipeFP32] + 20}
			}
			for _, b := range []*gpu.Opt[float64]{&a.PCIeTransmit, &a.PCIeReceive, &a.NVLinkTransmit, &a.NVLinkReceive} {
				if v, ok := b.Get(); ok {
					*b = gpu.Some(v + 50*1024*1e6)
				}
			}
		}
		grow(&c.Activity)
		for j := range c.Instances {
			grow(&c.Instances[j].Activity)
		}
	}
	c := &now.Containers[0]
	c.Busy, c.Observed = gpu.Some(gpu.Seconds(75)), gpu.Some(gpu.Seconds(160))
	return then, now
}

// Every row has a series where every field of a view has a value, and what it shows a minute later is finite.
func TestEveryRowReads(t *testing.T) {
	for _, release := range []compat.Release{compat.DCGM48, compat.DCGM49} {
		p := newPage(t, release)
		then, now := minuteLater()
		p.Published(then)
		for _, f := range p.Families() {
			n := 0
			for _, v := range []*gpu.View{now, catalogtest.DistinctView()} {
				f.Read(v, func(value float64, labels ...string) {
					n++
					if math.IsNaN(value) || math.IsInf(value, 0) || value < 0 && v == now || len(labels) != len(f.Labels) {
						t.Errorf("%s %q is %v", f.Name, labels, value)
					}
				})
			}
			if n == 0 && !strings.Contains(f.Name, "PIPE_FP64") && !strings.Contains(f.Name, "PIPE_FP16") { // they need a minute of it
				t.Errorf("%s: %s has no series", release, f.Name)
			}
		}
	}
}

func TestUnits(t *testing.T) {
	v := catalogtest.FullView()
	v.GPUs[0].Medium = gpu.Some(&gpu.Medium{Memory: gpu.Some(gpu.Memory{Total: 80 << 30, Used: 3<<20 + 700<<10, Free: 10 << 20}),
		Clocks: map[gpu.Clock]gpu.Hertz{gpu.ClockSM: 1.98e9}, ClockEvents: gpu.Some(4)})
	v.GPUs[0].Activity.Energy = gpu.Some(gpu.Joules(1234.5))
	old, new := newPage(t, compat.DCGM48), newPage(t, compat.DCGM49)
	for _, c := range []struct {
		page   page
		family string
		want   float64
	}{
		{old, "DCGM_FI_DEV_SM_CLOCK", 1980}, {new, "DCGM_FI_DEV_SM_CLOCK_HERTZ", 1.98e9},
		{old, "DCGM_FI_DEV_FB_USED", 3}, {new, "DCGM_FI_DEV_FB_USED_BYTES", 3<<20 + 700<<10},
		{old, "DCGM_FI_DEV_FB_TOTAL", 80 << 10}, {new, "DCGM_FI_DEV_FB_CAPACITY_BYTES", 80 << 30},
		{old, "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", 1234500}, {new, "DCGM_FI_DEV_GPU_ENERGY_JOULES_TOTAL", 1234.5},
		{old, "DCGM_FI_DEV_GPU_UTIL", 60},
		{old, "DCGM_FI_DEV_CLOCKS_EVENT_REASONS", 4}, {old, "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", 4}, {old, "DCGM_FI_DEV_COUNT", 4},
		{new, "DCGM_FI_DEV_GPU_UTIL_RATIO", 0.6},
		{old, "DCGM_FI_PROF_GR_ENGINE_ACTIVE", 0.6}, {new, "DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO", 0.6},
		{old, "DCGM_FI_DEV_POWER_USAGE", 300}, {new, "DCGM_FI_DEV_BOARD_POWER_WATTS", 300},
		{old, "DCGM_FI_DEV_DEC_UTIL", 50}, {new, "DCGM_FI_DEV_DEC_UTIL_RATIO", 0.5},
		{old, "DCGM_FI_DEV_POWER_VIOLATION", 5e9}, {new, "DCGM_FI_DEV_POWER_VIOLATION", 5e9},
	} {
		got := c.page.series(t, v, c.family, "gpu", "GPU_I_ID")
		if math.Abs(got["0 "]-c.want) > 1e-9*c.want {
			t.Errorf("%s is %v, want %v", c.family, got["0 "], c.want)
		}
	}
}

// The means and rates are those of the last minute, by the time between the readings.
func TestWindows(t *testing.T) {
	p := newPage(t, compat.DCGM48)
	then, now := minuteLater()
	for _, family := range []string{"DCGM_FI_DEV_MEM_COPY_UTIL", "DCGM_FI_PROF_SM_ACTIVE", "DCGM_FI_PROF_PCIE_TX_BYTES"} {
		if got := p.series(t, then, family, "gpu", "GPU_I_ID"); len(got) != 0 {
			t.Errorf("%s has a value for an unobserved minute: %v", family, got)
		}
	}
	p.Published(then)
	if got := p.series(t, then, "DCGM_FI_PROF_SM_ACTIVE", "gpu", "GPU_I_ID"); len(got) != 0 {
		t.Errorf("a window of no length has %v", got)
	}
	p.Published(now)
	for family, want := range map[string]float64{
		"DCGM_FI_DEV_MEM_COPY_UTIL":          25,      // 15 of 60 s
		"DCGM_FI_PROF_SM_ACTIVE":             0.25,    // 10 of 40 s
		"DCGM_FI_PROF_PIPE_TENSOR_ACTIVE":    0.2,     //
		"DCGM_FI_PROF_PIPE_FP32_ACTIVE":      0.5,     //
		"DCGM_FI_PROF_PCIE_TX_BYTES":         1.024e9, // in 50 s between the readings
		"DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL": 2000,    // both directions, in thousands of KiB
	} {
		equal(t, family, map[string]float64{"": p.series(t, now, family, "gpu", "GPU_I_ID")["0 "]}, map[string]float64{"": want})
	}
	equal(t, "an instance has its own", p.series(t, now, "DCGM_FI_DEV_GPU_UTIL", "gpu", "GPU_I_ID"),
		map[string]float64{"0 ": 60, "1 7": 50})
	equal(t, "an instance has no pipes", p.series(t, now, "DCGM_FI_PROF_PIPE_FP32_ACTIVE", "gpu", "GPU_I_ID"),
		map[string]float64{"0 ": 0.5})
}

// A window reaches back a minute, not further, and starts anew when the clock was set.
func TestWindowMoves(t *testing.T) {
	p := newPage(t, compat.DCGM48)
	at := func(second int, busy float64) *gpu.View {
		v := catalogtest.FullView()
		v.At = catalogtest.At.Add(time.Duration(second) * time.Second)
		v.GPUs[0].Activity.MemoryBusy, v.GPUs[0].Activity.Observed = gpu.Some(gpu.Seconds(busy)), gpu.Some(gpu.Seconds(second))
		return v
	}
	busy := 0.0
	for second := 0; second <= 600; second += 2 {
		if second > 300 {
			busy += 2
		}
		v := at(second, busy)
		p.Published(v)
		got, ok := p.series(t, v, "DCGM_FI_DEV_MEM_COPY_UTIL", "gpu", "GPU_I_ID")["0 "]
		switch {
		case second >= 12 && !ok:
			t.Fatalf("nothing after %d s", second)
		case second > 60 && second <= 300 && got != 0, second > 372 && got != 100:
			t.Fatalf("after %d s it is %v", second, got)
		}
	}
	back := at(-3600, busy)
	p.Published(back)
	if got := p.series(t, back, "DCGM_FI_DEV_MEM_COPY_UTIL", "gpu", "GPU_I_ID"); len(got) != 0 {
		t.Errorf("after the clock was set back there is %v", got)
	}
}

// What comes later than the oldest view that is remembered has a window as soon as it was seen twice.
func TestWindowOfNewcomers(t *testing.T) {
	p := newPage(t, compat.DCGM48)
	var last *gpu.View
	for i := range 3 {
		v := catalogtest.NodeView(1, 2)
		v.At = v.At.Add(time.Duration(i) * 10 * time.Second)
		for j := range v.Containers {
			v.Containers[j].Busy, v.Containers[j].Observed = gpu.Some(gpu.Seconds(5*i)), gpu.Some(gpu.Seconds(10*i))
		}
		if i == 0 {
			v.Containers, v.Allocations = v.Containers[:1], v.Allocations[:1]
		}
		p.Published(v)
		last = v
	}
	equal(t, "parts", p.series(t, last, "DCGM_FI_DEV_GPU_UTIL", "gpu", "pod"),
		map[string]float64{"0 ": 60, "0 inference-6f9d8c7b5-00000": 50, "0 inference-6f9d8c7b5-00001": 50})
}

// Scrapes read while views are published.
func TestConcurrentUse(t *testing.T) {
	p := newPage(t, compat.DCGM48)
	rows := p.Families()
	latest := make(chan *gpu.View, 1)
	latest <- catalogtest.NodeView(2, 3)
	var scrapers sync.WaitGroup
	for range 4 {
		scrapers.Go(func() {
			for range 20 {
				v := <-latest
				latest <- v
				for _, f := range rows {
					f.Read(v, func(float64, ...string) {})
				}
			}
		})
	}
	for i := range 100 {
		v := catalogtest.NodeView(2, 3)
		v.At = v.At.Add(time.Duration(i) * 5 * time.Second)
		p.Published(v)
		<-latest
		latest <- v
	}
	scrapers.Wait()
}

func TestLabels(t *testing.T) {
	p := newPage(t, compat.DCGM48)
	v := catalogtest.FullView()
	equal(t, "labels", p.series(t, v, "DCGM_FI_DEV_POWER_USAGE", "gpu", "UUID", "pci_bus_id", "device", "modelName", "Hostname", "hostname",
		"DCGM_FI_DRIVER_VERSION", "container", "namespace", "pod"),
		map[string]float64{"0 GPU-11111111-1111-1111-1111-111111111111 00000000:18:00.0 nvidia0 NVIDIA H100 80GB HBM3 node-1 node-1 " +
			"580.105.08 main ml train-0": 300})
	equal(t, "an instance", p.series(t, v, "DCGM_FI_DEV_FB_USED", "gpu", "GPU_I_ID", "GPU_I_PROFILE", "pod"),
		map[string]float64{"0   train-0": 0, "1 7 1g.10gb serve-0": 0})
	if got := p.series(t, v, "DCGM_FI_DEV_PCIE_REPLAY_COUNTER", "gpu"); len(got) != 1 {
		t.Errorf("a lost or missing GPU has readings: %v", got)
	}
}

// The labels of an allocation: the replica of a shared GPU where there is a series for each, the DRA device, the Slurm job.
func TestWorkloadLabels(t *testing.T) {
	claim := gpu.ClaimDevice{Namespace: "ml", Name: "train-gpu-x", Driver: "gpu.nvidia.com", Pool: "node-1", Device: "gpu-0"}
	for _, c := range []struct {
		name   string
		copies bool
		change func(*gpu.View)
		labels []string
		want   map[string]float64
	}{
		{"copies have the replica", true, func(v *gpu.View) { v.Allocations[0].Replica = "3" }, []string{"gpu", "vgpu"},
			map[string]float64{"0 3": 300}},
		{"one series has none", false, func(v *gpu.View) { v.Allocations[0].Replica = "3" }, []string{"gpu", "vgpu"},
			map[string]float64{"0 ": 300}},
		{"a claim", false, func(v *gpu.View) { v.Allocations[0].Claim = claim },
			[]string{"pod", "dra_claim_namespace", "dra_claim_name", "dra_driver_name", "dra_pool_name", "dra_device_name",
				"dra_mig_profile"},
			map[string]float64{"inference-6f9d8c7b5-00000 ml train-gpu-x gpu.nvidia.com node-1 gpu-0 ": 300}},
		{"without one", false, func(*gpu.View) {}, []string{"gpu", "dra_claim_name", "dra_mig_device_uuid"},
			map[string]float64{"0  ": 300}},
		{"a container with two replicas of a GPU, or a GPU by two names, has one copy", true, func(v *gpu.View) {
			again := v.Allocations[0]
			again.Resource = "nvidia.com/gpu.shared"
			v.Allocations = append(v.Allocations, again)
		}, []string{"gpu", "pod"}, map[string]float64{"0 inference-6f9d8c7b5-00000": 300}},
		{"a Slurm job", true, func(v *gpu.View) { v.Allocations[0].Container = gpu.Container{Pod: "slurm/4711"} },
			[]string{"gpu", "pod", "hpc_job"}, map[string]float64{"0  4711": 300}},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := catalogtest.NodeView(1, 1)
			c.change(v)
			p := pageOf(t, compat.Options{Release: compat.DCGM48, Copies: c.copies})
			equal(t, "labels", p.series(t, v, "DCGM_FI_DEV_POWER_USAGE", c.labels...), c.want)
		})
	}
	v := catalogtest.FullView()
	in := slices.IndexFunc(v.Allocations, func(a gpu.ContainerAllocation) bool { return a.Instance != "" })
	v.Allocations[in].Claim = claim
	equal(t, "a MIG device", newPage(t, compat.DCGM48).series(t, v, "DCGM_FI_DEV_FB_USED", "pod", "dra_device_name", "dra_mig_profile",
		"dra_mig_device_uuid"), map[string]float64{"train-0   ": 0,
		"serve-0 gpu-0 1g.10gb " + string(v.Allocations[in].Instance): 0})
}

// The labels that dcgm-exporter has by configuration: of the pod, and of the GPU.
func TestChosenLabels(t *testing.T) {
	p := pageOf(t, compat.Options{Release: compat.DCGM48, PodLabels: []string{"app.kubernetes.io/name"},
		DeviceLabels: []string{"DCGM_FI_DEV_SERIAL", "DCGM_FI_DEV_VBIOS_VERSION"}})
	v := catalogtest.FullView()
	v.GPUs[0].Serial, v.GPUs[0].VBIOS = "1654321", "96.00.74.00.1C"
	v.Pods = []gpu.PodRef{{Namespace: "ml", Pod: "train-0", UID: "u-1",
		Meta: &gpu.PodMeta{Labels: map[string]string{"app.kubernetes.io/name": "llm"}}}}
	equal(t, "labels", p.series(t, v, "DCGM_FI_DEV_GPU_TEMP", "gpu", "GPU_CI_ID", "DCGM_FI_DEV_SERIAL", "DCGM_FI_DEV_VBIOS_VERSION", "pod",
		"pod_uid",
		"app_kubernetes_io_name"), map[string]float64{"0  1654321 96.00.74.00.1C train-0 u-1 llm": 55})
}

// Without copies a GPU has one series, whose sums are those of the node; none has the name of one of several pods.
func TestOneSeriesPerSharedGPU(t *testing.T) {
	p := pageOf(t, compat.Options{Release: compat.DCGM48})
	v := catalogtest.NodeView(2, 3)
	v.GPUs[0].Medium = gpu.Some(&gpu.Medium{Memory: gpu.Some(gpu.Memory{Used: 40 << 30})})
	equal(t, "power", p.series(t, v, "DCGM_FI_DEV_POWER_USAGE", "gpu", "pod"),
		map[string]float64{"0 ": 300, "1 inference-6f9d8c7b5-00001": 300})
	equal(t, "memory", p.series(t, v, "DCGM_FI_DEV_FB_USED", "gpu", "pod"),
		map[string]float64{"0 ": 40 << 10, "1 inference-6f9d8c7b5-00001": 0})
}

// Percents are whole, and 0 only if the GPU was idle: who stops idle pods compares with 0.
func TestPercents(t *testing.T) {
	p := newPage(t, compat.DCGM48)
	v := catalogtest.FullView()
	for ratio, want := range map[gpu.Ratio]float64{0: 0, 0.0001: 1, 0.582: 58, 0.999: 100} {
		v.GPUs[0].Medium = gpu.Some(&gpu.Medium{Fans: []gpu.Opt[gpu.Ratio]{gpu.Some(ratio)}})
		if got := p.series(t, v, "DCGM_FI_DEV_FAN_SPEED", "gpu")["0"]; got != want {
			t.Errorf("%v is %v percent, want %v", ratio, got, want)
		}
	}
}

// A clock event that passed is counted for five minutes.
func TestClockEvents(t *testing.T) {
	p := newPage(t, compat.DCGM48)
	at := func(second, mask int) *gpu.View {
		v := catalogtest.NodeView(1, 1)
		v.At = v.At.Add(time.Duration(second) * time.Second)
		v.GPUs[0].Medium = gpu.Some(&gpu.Medium{ClockEvents: gpu.Some(mask)})
		p.Published(v)
		return v
	}
	const family = "DCGM_EXP_CLOCK_EVENTS_COUNT"
	equal(t, "none", p.series(t, at(0, 0), family, "clock_event", "window_size_in_ms"), map[string]float64{" 300000": 0})
	at(10, 0x48)
	at(20, 0x48)
	equal(t, "passed", p.series(t, at(30, 0), family, "clock_event"), map[string]float64{"hw_slowdown": 2, "hw_thermal": 2})
}

func TestHealth(t *testing.T) {
	p := newPage(t, compat.DCGM48)
	v := catalogtest.NodeView(1, 1)
	medium, _ := v.GPUs[0].Medium.Get()
	for _, c := range []struct {
		recovery        gpu.RecoveryAction
		failed, pending bool
		want            map[string]float64
	}{
		{gpu.RecoveryNone, false, false, map[string]float64{"ALL DCGM_FR_OK": 0, "MEM DCGM_FR_OK": 0}},
		{gpu.RecoveryReset, false, true, map[string]float64{"ALL DCGM_FR_UNKNOWN": 20, "MEM DCGM_FR_PENDING_ROW_REMAP": 10}},
		{gpu.RecoveryNone, true, true, map[string]float64{"ALL DCGM_FR_OK": 0, "MEM DCGM_FR_ROW_REMAP_FAILURE": 20}},
	} {
		medium.RemapFailed, medium.RemapPending, v.GPUs[0].Recovery = gpu.Some(c.failed), gpu.Some(c.pending), gpu.Some(c.recovery)
		equal(t, string(c.recovery), p.series(t, v, "DCGM_EXP_GPU_HEALTH_STATUS", "health_watch", "health_error_code"), c.want)
	}
}

// nvidia_gpu_exporter's names are the names of nvidia-smi's fields, or are in what it exports for its test devices.
func TestNvidiaSMI(t *testing.T) {
	text := must.Read(t, "testdata/nvidia_gpu_exporter.txt")
	p := newPage(t, compat.NvidiaSMI)
	theirs, common := text, 0
	for _, f := range p.Families() {
		field := "nvidia_smi_" + strings.ReplaceAll(f.Help, ".", "_")
		switch mig := strings.HasPrefix(f.Name, "nvidia_smi_mig_") || strings.Contains(f.Name, "last_") ||
			strings.Contains(f.Name, "pcie_throughput"); {
		case strings.Contains(theirs, "\n"+f.Name+" "+string(f.Type)+"\n"):
			common++
		case f.Name != field && !mig:
			t.Errorf("%s (%s) is not a name of nvidia_gpu_exporter", f.Name, f.Type)
		}
	}
	if common < 90 {
		t.Errorf("%d names in common", common)
	}
	v := catalogtest.FullView()
	v.GPUs[0].Recovery = gpu.Some(gpu.RecoveryReset)
	slow, _ := v.GPUs[0].Slow.Get()
	slow.ComputeMode = gpu.Some(gpu.ComputeExclusiveProcess)
	const uuid = "11111111-1111-1111-1111-111111111111"
	for family, want := range map[string]float64{"clocks_event_reasons_sw_power_cap": 1, "clocks_event_reasons_hw_slowdown": 0, "count": 4,
		"compute_mode": 3, "gpu_recovery_action": 1} {
		if got := p.series(t, v, "nvidia_smi_"+family, "uuid")[uuid]; got != want {
			t.Errorf("%s is %v, want %v", family, got, want)
		}
	}
	equal(t, "info", p.series(t, v, "nvidia_smi_gpu_info", "uuid", "name", "index", "driver_version"), map[string]float64{
		uuid + " NVIDIA H100 80GB HBM3 0 580.105.08": 1, "22222222-2222-2222-2222-222222222222 NVIDIA H100 80GB HBM3 1 580.105.08": 1})
}

// A shared GPU: a copy for each holder, and of what a holder has a part of its own, that part.
func TestSharedGPU(t *testing.T) {
	p := newPage(t, compat.DCGM48)
	v := catalogtest.NodeView(2, 3) // GPU 0 has two holders, GPU 1 one
	v.Containers[2].Memory, v.Containers[2].GPU = gpu.None[gpu.Bytes](), v.GPUs[0].UUID
	v.GPUs[0].Medium = gpu.Some(&gpu.Medium{Memory: gpu.Some(gpu.Memory{Used: 40 << 30})})
	v.GPUs[1].Medium = gpu.Some(&gpu.Medium{Memory: gpu.Some(gpu.Memory{Used: 9 << 30})})
	equal(t, "copies", p.series(t, v, "DCGM_FI_DEV_POWER_USAGE", "gpu", "pod"), map[string]float64{
		"0 inference-6f9d8c7b5-00000": 300, "0 inference-6f9d8c7b5-00002": 300, "1 inference-6f9d8c7b5-00001": 300})
	// The second holder's memory cannot be told: it has none, never 0.
	equal(t, "parts", p.series(t, v, "DCGM_FI_DEV_FB_USED", "gpu", "pod"), map[string]float64{
		"0 ": 40 << 10, "0 inference-6f9d8c7b5-00000": 8 << 10, "1 inference-6f9d8c7b5-00001": 9 << 10})
}

// What is not shown by default there stands once on a GPU that is shared or cut; with very many holders everything does.
func TestPageStaysSmall(t *testing.T) {
	p := newPage(t, compat.DCGM48)
	few, many := catalogtest.NodeView(1, 16), catalogtest.NodeView(1, 200)
	for family, want := range map[string]int{"DCGM_FI_DEV_POWER_USAGE": 16, "DCGM_FI_DEV_POWER_MGMT_LIMIT": 16, "DCGM_FI_DEV_PSTATE": 1} {
		if got := p.series(t, few, family, "gpu", "pod"); len(got) != want {
			t.Errorf("16 containers: %s has %d series, want %d", family, len(got), want)
		}
	}
	for family, want := range map[string]int{"DCGM_FI_DEV_POWER_USAGE": 1, "DCGM_FI_DEV_PSTATE": 1, "DCGM_FI_DEV_FB_USED": 201} {
		if got := p.series(t, many, family, "gpu", "pod"); len(got) != want {
			t.Errorf("200 containers: %s has %d series, want %d", family, len(got), want)
		}
	}
	cut := catalogtest.FullView()
	equal(t, "a GPU that is cut", p.series(t, cut, "DCGM_FI_DEV_MIG_MODE", "gpu", "GPU_I_ID", "pod"),
		map[string]float64{"0  train-0": 0, "1  ": 1})
}

func TestXIDs(t *testing.T) {
	p := newPage(t, compat.DCGM48)
	v := catalogtest.FullView()
	at := func(seconds int) gpu.Opt[time.Time] {
		return gpu.Some(v.At.Add(time.Duration(seconds) * time.Second))
	}
	v.GPUs[0].XIDs = []gpu.XIDCount{{XID: 13, Count: 2, Last: at(-30)}, {XID: 31, Count: 1, Last: at(-10)}, {XID: 43, Last: at(-1)},
		{XID: 79}}
	v.GPUs[1].XIDs = []gpu.XIDCount{{XID: 79}}
	got := p.series(t, v, "DCGM_FI_DEV_XID_ERRORS", "gpu", "GPU_I_ID", "err_code")
	// 43 was before the exporter; the lost GPU keeps its last.
	equal(t, "last", got, map[string]float64{"0  31": 31, "1 7 0": 0, "2  79": 79})
	equal(t, "total", p.series(t, v, "DCGM_EXP_XID_ERRORS_TOTAL", "gpu", "GPU_I_ID", "xid"),
		map[string]float64{"0  13": 2, "0  31": 1, "0  43": 0, "0  79": 0, "1  79": 0, "2  79": 1})
	p.Published(v)
	later := catalogtest.FullView()
	later.At = v.At.Add(2 * time.Minute)
	later.GPUs[0].XIDs = []gpu.XIDCount{{XID: 13, Count: 5, Last: at(100)}, {XID: 31, Count: 1, Last: at(-10)}}
	later.GPUs[1].XIDs, later.GPUs[2].XIDs = nil, nil
	p.Published(later)
	equal(t, "window", p.series(t, later, "DCGM_EXP_XID_ERRORS_COUNT", "gpu", "GPU_I_ID", "xid"),
		map[string]float64{"0  13": 3, "0  31": 0})
}

// Without a driver and without GPUs there is nothing.
func TestEmptyView(t *testing.T) {
	p := newPage(t, compat.DCGM49)
	for _, f := range p.Families() {
		f.Read(&gpu.View{Node: "n"}, func(float64, ...string) { t.Errorf("%s is empty", f.Name) })
	}
}
