package faults_test

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/internal/standin"
	"github.com/gpu-exporter/gpu-exporter/internal/standin/faultkinds"
	"github.com/gpu-exporter/gpu-exporter/internal/standin/machine"
	"github.com/gpu-exporter/gpu-exporter/test/process"
)

const GPUA, GPUB = machine.GPUA, machine.GPUB

// devs are the GPUs of most rows: faults affect the first.
const devs = machine.TwoGPUs + `process gpu=0 pid=100 memory=20GiB busy=80% period=1s
process gpu=1 pid=200 memory=30GiB busy=60% period=1s
`

const twoPods = `allocatable nvidia.com/gpu ` + GPUA + ` ` + GPUB + `
pod ml/train-0 container main nvidia.com/gpu=` + GPUA + ` pids=100
pod ml/train-1 container main nvidia.com/gpu=` + GPUB + ` pids=200
`

// span is a period of a row's scenario.
type span struct{ from, to time.Duration }

// usual is the period of most faults.
var usual = span{15 * time.Second, 40 * time.Second}

// row is one failure.
type row struct {
	name string // also of its node; its kind is in faultkinds.All

	scenario, pods string // instead of the usual
	script         string // lines of the scenario
	flags          []string
	before         func(*run) error // before the exporter starts
	steps          []step

	fault   span
	symptom string        // series that shows the fault, from its start until it is healed
	within  time.Duration // of its start; 0: six seconds
	stays   bool          // the symptom stays after healing

	assertions []assertion
	fires      []string // alerts, with GPU and label
	mayFire    []string
	others     []string // pods and their GPUs beside the usual pods; all of them if pods is set
	restarts   bool     // counters start at zero in a new process
	noNeighbor bool     // it affects both GPUs
}

func together(lists ...[]assertion) []assertion { return slices.Concat(lists...) }

func one(q ...assertion) []assertion { return q }

// valuesEnd: the values of a GPU are absent after a while, and present again at the end.
func valuesEnd(dev string, from, to, back time.Duration) []assertion {
	var out []assertion
	for _, family := range []string{"gpu_power_watts", "gpu_memory_used_bytes", "gpu_busy_seconds_total", "gpu_utilization_ratio",
		"gpu_temperature_celsius", "gpu_clock_hertz"} {
		out = append(out, never(from, to, family+"{"+dev+"}"), always(back, ended, family+"{"+dev+"}"))
	}
	return out
}

// paused: all values are absent except for the counters of activity, which do not grow.
func paused(dev string, from, to, back time.Duration) []assertion {
	var out []assertion
	for _, q := range valuesEnd(dev, from, to, back) {
		if !strings.HasPrefix(q.query, "(count by (node) (gpu_busy_seconds_total") {
			out = append(out, q)
		}
	}
	return together(out, grows(from, to, "gpu_busy_seconds_total{"+dev+"}", 0, 0))
}

// held: both pods are exported with their GPUs all the time.
func allocated(from, to time.Duration) []assertion {
	return together(is(from, to, `gpu_container_allocation_ratio{$a,pod="train-0"}`, 1),
		is(from, to, `gpu_container_allocation_ratio{$b,pod="train-1"}`, 1),
		is(from, to, "gpu_allocation_ratio{$a}", 1), is(from, to, "gpu_allocation_ratio{$b}", 1))
}

// kubeletFault makes the kubelet fail in a way, and heals it.
func kubeletFault(during span, f standin.KubeletFault) []step {
	set := func(f standin.KubeletFault) func(*run) error {
		return func(s *run) error { s.node.Kubelet.SetFault(f); return nil }
	}
	return []step{{during.from, set(f)}, {during.to, set(standin.KubeletFault{})}}
}

// kubeletDown takes the kubelet's socket away; the new one lists no pods for so many calls.
func kubeletDown(during span, empty int) []step {
	return []step{{during.from, func(s *run) error { return s.node.Kubelet.Stop(s.t.Context()) }},
		{during.to, func(s *run) error { return s.node.Kubelet.Restart(s.t.Context(), empty) }}}
}

// inhibited are alerts that Alertmanager does not send while the alert of their cause is there.
func inhibited(names ...string) []string { return names }

const (
	joinDown = `gpu_exporter_source_up{$n,source="podresources"} == 0`
	nvmlDown = `gpu_exporter_source_up{$n,source="nvml"} == 0`
)

// sharedGPU has two tenants on GPU a, whose processes alone tell who works.
func sharedGPU(processes string) string {
	at := strings.Index(devs, "process gpu=0")
	return devs[:at] + "process gpu=1 pid=200 memory=30GiB busy=60% period=1s\n" + processes
}

const sharedPods = `allocatable nvidia.com/gpu.shared ` + GPUA + `::0 ` + GPUA + `::1
allocatable nvidia.com/gpu ` + GPUB + `
pod ml/p container main nvidia.com/gpu.shared=` + GPUA + `::0 pids=100,103
pod ml/q container main nvidia.com/gpu.shared=` + GPUA + `::1 pids=101
pod ml/train-1 container main nvidia.com/gpu=` + GPUB + ` pids=200
`

var containers = []string{"a ml/p", "a ml/q", "b ml/train-1"}

// move gives a PID to another process of another container: that of the process that has the PID from.
func move(s *run, pid, from int) error {
	proc := func(pid int, name string) string {
		return filepath.Join(s.node.Trees.Procfs, fmt.Sprint(pid), name)
	}
	cgroup, err := os.ReadFile(proc(from, "cgroup"))
	if err != nil {
		return err
	}
	stat := fmt.Sprintf("%d (python) S 1 1 1 0 -1 4194304 0 0 0 0 0 0 0 0 20 0 1 0 777777 0 0\n", pid)
	return errors.Join(os.WriteFile(proc(pid, "cgroup"), cgroup, 0o644), os.WriteFile(proc(pid, "stat"), []byte(stat), 0o644))
}

// kernelLine is a line of the kernel's log, of now.
func kernelLine(sequence int, text string) string {
	var ts syscall.Timespec
	const monotonic = 1 // CLOCK_MONOTONIC, by which the kernel stamps its lines
	syscall.Syscall(syscall.SYS_CLOCK_GETTIME, monotonic, uintptr(unsafe.Pointer(&ts)), 0)
	return fmt.Sprintf("4,%d,%d,-;%s\n", sequence, ts.Nano()/1000, text)
}

func appendTo(path, text string) error {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

// table is the table of failures.
func table() []row {
	const s = time.Second
	random = rand.New(rand.NewPCG(*seed, 0))
	down := span{15 * s, 40 * s}
	late := span{0, 25 * s}
	changing := span{15 * s, 19 * s}
	return []row{
		{name: "driver-late", fault: late, symptom: nvmlDown, noNeighbor: true,
			before: func(s *run) error {
				s.node.Library = filepath.Join(s.node.Dir, "late", "libnvidia-ml.so.1")
				return os.MkdirAll(filepath.Dir(s.node.Library), 0o755)
			},
			steps: []step{{late.to, func(s *run) error {
				return os.Symlink(filepath.Join(s.node.Dir, "libnvidia-ml.so.1"), s.node.Library)
			}}},
			assertions: together(one(never(0, late.to, "gpu_driver_info{$n}"),
				never(0, late.to, `{__name__=~"gpu_.+",$n,uuid="`+GPUA+`"}`)),
				is(60*s, ended, "gpu_device_up{$a}", 1), is(60*s, ended, "gpu_device_up{$b}", 1), allocated(60*s, ended),
				is(started, ended, "up{$n}", 1)),
			// A new node has half an hour for its driver, here 30 s.
			mayFire: inhibited("GPUDriverDown", "GPUUnavailable", "GPUAllocationUnknown")},
		{name: "driver-unloaded", fault: down, symptom: nvmlDown, noNeighbor: true,
			script:     "at 15s driver unload\nat 40s driver load\n",
			assertions: together(valuesEnd("$a", 20*s, 40*s, 60*s), valuesEnd("$b", 20*s, 40*s, 60*s), allocated(started, ended)),
			fires:      []string{"GPUDriverDown"}, mayFire: []string{"GPUUnavailable a", "GPUUnavailable b"}},
		{name: "driver-replaced", fault: down, restarts: true, noNeighbor: true,
			script: "at 15s driver replace\n",
			assertions: together(is(25*s, ended, "gpu_device_up{$a}", 1), is(25*s, ended, "gpu_device_up{$b}", 1), allocated(25*s, ended),
				one(assertion{started, ended, "resets(gpu_observed_seconds_total{$b}[$w]) != 1"}))},
		{name: "driver-mismatch", fault: down, symptom: "up{$n} == 0", restarts: true, noNeighbor: true,
			script: "at 15s driver mismatch\nat 40s driver load\n",
			steps: []step{{38 * s, func(s *run) error {
				select {
				case <-s.exporter.Done:
				default:
					return errors.New("it runs on, although its library cannot serve the kernel's module")
				}
				if !strings.Contains(s.exporter.Err.Error(), "exit status 3") {
					return fmt.Errorf("it ended with %w, not with the code of a driver that differs", s.exporter.Err)
				}
				return nil
			}}, {41 * s, func(s *run) error { s.start(); return nil }}},
			assertions: together(is(50*s, ended, "gpu_device_up{$a}", 1), allocated(50*s, ended)),
			fires:      []string{"GPUExporterDown"}},
		{name: "mig-pending", fault: changing,
			symptom: `gpu_exporter_paused{$n,reason="mig_change"} == 1`, noNeighbor: true,
			script: "at 15s gpu 0 mig pending on\nat 19s gpu 0 mig pending off\n",
			steps: []step{{30 * s, func(s *run) error {
				if n := s.node.Control.Sessions(); n != 0 {
					return fmt.Errorf("%d sessions of the driver are open while a MIG change is pending", n)
				}
				return nil
			}}},
			assertions: together(is(started, ended, `gpu_node_devices{$n,state="failed"}`, 0),
				is(started, ended, `gpu_node_devices{$n,state="missing"}`, 0), allocated(started, ended),
				paused("$a", 24*s, 40*s, 58*s), paused("$b", 24*s, 40*s, 58*s)),
			fires: []string{"GPUExporterPaused"}, mayFire: []string{"GPUDriverDown"}},
		{name: "gpu-lost", fault: down, symptom: "gpu_device_up{$a} == 0",
			script: "at 15s gpu 0 xid 79\nat 15s gpu 0 lose\nat 40s gpu 0 restore\n",
			// NVML does not report XID 79: without the kernel log it has no series.
			assertions: together(valuesEnd("$a", 20*s, 40*s, 60*s), one(never(started, ended, `gpu_xid_events_total{$a,xid="79"}`)),
				allocated(started, ended), one(always(started, ended, "gpu_info{$a}")),
				is(22*s, 38*s, `gpu_node_devices{$n,state="failed"}`, 1)),
			// The kubelet still offers the GPU: with the time of the recovery that is nearly as long as the alert waits.
			fires: []string{"GPUUnavailable a"}},
		{name: "gpu-reset", fault: down, symptom: "gpu_device_up{$a} == 0",
			script: "at 15s gpu 0 xid 95\nat 15s gpu 0 Field[230] = 1\nat 17s gpu 0 reset_required\nat 39s gpu 0 Field[230] = 0\nat 40s " +
				"gpu 0 restore\n",
			assertions: together(valuesEnd("$a", 22*s, 40*s, 60*s), is(20*s, ended, `gpu_xid_events_total{$a,xid="95"}`, 1),
				is(20*s, 40*s, `gpu_recovery_action{$a,action="reset"}`, 1),
				one(never(66*s, ended, `gpu_recovery_action{$a,action="reset"}`)), allocated(started, ended)),
			fires: []string{"GPUUnavailable a"}, mayFire: []string{"GPUXIDFatal a 95", "GPURepairRequired a"}},
		{name: "gpu-missing", fault: span{0, 20 * s},
			symptom: `gpu_node_devices{$n,state="missing"} == 1`, within: started,
			script: "at 0s gpu 0 remove\nat 20s gpu 0 restore\n",
			assertions: together(one(never(0, 20*s, "gpu_power_watts{$a}")), is(started, 20*s, "gpu_node_devices{$n,state=\"up\"}", 1),
				is(66*s, ended, "gpu_device_up{$a}", 1)),
			fires: []string{"GPUUnavailable"}, mayFire: []string{"GPUAllocationUnknown", "GPUMissing"}},
		{name: "call-hangs", fault: down, symptom: "gpu_device_up{$a} == 0",
			script: "at 15s gpu 0 hang FieldValues\nat 40s gpu 0 restore\n",
			steps: []step{{38 * s, func(s *run) error {
				if n := s.node.Control.Hanging(); n != 1 {
					return fmt.Errorf("%d calls hang: there must be one, and no second on its GPU", n)
				}
				return nil
			}}},
			assertions: together(valuesEnd("$a", 21*s, 40*s, 52*s), allocated(started, ended),
				is(22*s, 38*s, `gpu_node_devices{$n,state="failed"}`, 1)),
			fires: []string{"GPUUnavailable a"}},
		{name: "call-hangs-at-end", fault: span{15 * s, ended}, symptom: "gpu_device_up{$a} == 0",
			stays: true, restarts: true, noNeighbor: true,
			script: "at 15s gpu 0 hang *\n",
			steps:  []step{{50 * s, stopsAtOnce}},
			assertions: together(valuesEnd("$a", 21*s, 48*s, 90*s)[:1], is(started, 48*s, "gpu_device_up{$b}", 1),
				one(never(53*s, ended, "gpu_device_up{$b}"))),
			fires: []string{"GPUUnavailable a", "GPUExporterDown"}},
		{name: "call-refused", fault: down,
			symptom: `rate(gpu_exporter_call_errors_total{$n}[3s]) > 0`,
			script: "at 15s gpu 0 Temperature[gpu] = !UNKNOWN\nat 15s gpu 0 TemperatureV = !UNKNOWN\nat 40s gpu 0 Temperature[gpu] = " +
				"default\nat 40s gpu 0 TemperatureV = default\n",
			assertions: together(one(never(20*s, 40*s, `gpu_temperature_celsius{$a,sensor="gpu"}`),
				always(46*s, ended, `gpu_temperature_celsius{$a,sensor="gpu"}`), always(started, ended, "gpu_power_watts{$a}")),
				is(started, ended, "gpu_device_up{$a}", 1), allocated(started, ended)),
			fires: []string{"GPUExporterNVMLErrors"}},
		{name: "driver-old", fault: usual,
			scenario: strings.NewReplacer("symbols R580", "symbols R470", "580.105.08", "470.256.02").Replace(devs),
			assertions: together(is(started, ended, "gpu_device_up{$a}", 1), allocated(started, ended),
				one(never(0, ended, "gpu_memory_reserved_bytes{$n}"), never(0, ended, "gpu_recovery_action{$n}"),
					always(started, ended, "gpu_memory_total_bytes{$a}"), never(0, ended, "gpu_exporter_call_errors_total{$n}")))},
		{name: "implausible", fault: down,
			symptom: `rate(gpu_exporter_rejected_values_total{$n}[3s]) > 0`,
			script: implausible("at 15s", map[string]string{"UtilizationRates": "gpu=808334905 memory=3", "Samples[gpu]": "808334905",
				"ProcessUtilization": "sm=808334905", "PowerUsage": "0xffffffff",
				"Field[185,gpu]": "0xffffffff", "Temperature[gpu]": "4294967295",
				"MemoryInfo_v2": "total=80GiB used=ones free=ones reserved=480MiB", "Field[83]": "0xffffffffffffffff",
				"Field[191,gpu]": "0xffffffffffffffff"}) +
				implausible("at 40s", map[string]string{"UtilizationRates": "default", "Samples[gpu]": "default",
					"ProcessUtilization": "default", "PowerUsage": "default", "Field[185,gpu]": "default",
					"Temperature[gpu]": "default", "MemoryInfo_v2": "default", "Field[83]": "default", "Field[191,gpu]": "default"}),
			assertions: together(one(never(20*s, 40*s, "gpu_power_watts{$a}"),
				never(20*s, 40*s, `gpu_temperature_celsius{$a,sensor="gpu"}`),
				never(20*s, 40*s, "gpu_memory_used_bytes{$a}"),
				always(48*s, ended, "gpu_power_watts{$a}"), always(48*s, ended, "gpu_memory_used_bytes{$a}"),
				assertion{started, ended, "max_over_time(gpu_busy_seconds_total{$a}[$w]) > 70"},
				assertion{started, ended, "max_over_time(gpu_energy_joules_total{$a}[$w]) - " +
					"min_over_time(gpu_energy_joules_total{$a}[$w]) " +
					"> 62 * 700"}),
				is(started, ended, "gpu_device_up{$a}", 1), allocated(started, ended))},
		{name: "kubelet-down", fault: down, symptom: joinDown,
			steps:      kubeletDown(down, 0),
			assertions: allocated(started, ended), fires: []string{"GPUExporterSourceDown podresources"}},
		{name: "kubelet-gone", fault: down,
			symptom: "absent(gpu_allocation_ratio{$b})", within: 14 * s, steps: kubeletDown(down, 0),
			flags: []string{"--kubelet.max-age=8s"},
			assertions: together(allocated(started, 20*s), one(never(28*s, 40*s, "gpu_allocation_ratio{$n}"),
				never(28*s, 40*s, "gpu_container_allocation_ratio{$n}"), always(started, ended, "gpu_power_watts{$a}")),
				allocated(50*s, ended)),
			fires: []string{"GPUExporterSourceDown podresources"}},
		{name: "kubelet-hangs", fault: down,
			symptom: joinDown, within: 10 * s, steps: kubeletFault(down, standin.KubeletFault{Hang: true}),
			assertions: allocated(started, ended), fires: []string{"GPUExporterSourceDown podresources"}},
		{name: "kubelet-slow", fault: down,
			symptom: `gpu_exporter_source_duration_seconds{$n,source="podresources"} > 1.5`,
			steps:   kubeletFault(down, standin.KubeletFault{Delay: 2 * s}), within: 10 * s, assertions: allocated(started, ended)},
		{name: "kubelet-exhausted", fault: down,
			symptom: joinDown, steps: kubeletFault(down, standin.KubeletFault{Exhausted: true}),
			assertions: allocated(started, ended), fires: []string{"GPUExporterSourceDown podresources"}},
		{name: "kubelet-garbage", fault: down,
			symptom: joinDown, steps: kubeletFault(down, standin.KubeletFault{Garbage: true}),
			assertions: allocated(started, ended), fires: []string{"GPUExporterSourceDown podresources"}},
		{name: "kubelet-huge", fault: down,
			steps: kubeletFault(down, standin.KubeletFault{Padding: 20 << 20}),
			// So much is read; what is more than 64 MiB is refused, which is a test of podmap.
			assertions: allocated(started, ended)},
		{name: "kubelet-restarted",
			fault: span{15 * s, 20 * s}, symptom: joinDown, steps: kubeletDown(span{15 * s, 20 * s}, 1),
			assertions: allocated(started, ended), mayFire: []string{"GPUExporterSourceDown podresources"}},
		{name: "ids-unknown", fault: down,
			symptom: "sum by (node) (gpu_container_unresolved_devices{$n}) == 2",
			pods:    strings.Replace(twoPods, "pod ml/train-0", "#", 1), others: []string{"b ml/train-1"},
			steps: []step{{15 * s, func(s *run) error {
				return s.repod("pod x/liar container c aliyun.com/gpu-mem=" + GPUA +
					"-_-1\npod x/odd container c nvidia.com/gpu=what-is-this\n")
			}}, {40 * s, func(s *run) error { return s.repod("") }}},
			assertions: together(is(started, 14*s, "gpu_allocation_ratio{$a}", 0), one(never(20*s, 40*s, "gpu_allocation_ratio{$a}")),
				is(started, ended, "gpu_allocation_ratio{$b}", 1), is(48*s, ended, "gpu_allocation_ratio{$a}", 0)),
			fires: []string{"GPUAllocationUnknown"}, mayFire: []string{"GPUUsedWithoutAllocation", "GPUUsedWithoutAllocation a"}},
		{name: "pid-reused", fault: span{16 * s, 20 * s},
			scenario: sharedGPU("process gpu=0 pid=103 memory=1GiB busy=0%\nprocess gpu=0 pid=100 memory=20GiB busy=50% period=1s " +
				"to=16s\nprocess gpu=0 pid=101 memory=10GiB busy=10% period=1s\nprocess gpu=0 pid=100 memory=20GiB busy=50% period=1s " +
				"from=20s\n"),
			pods: sharedPods, others: containers,
			steps: []step{{18 * s, func(s *run) error { return move(s, 100, 101) }}},
			// Of p's twelve seconds some were before the exporter; of the rest none is p's.
			assertions: together(grows(started, 16*s, `gpu_container_busy_seconds_total{$a,pod="p"}`, 2, 6),
				grows(22*s, ended, `gpu_container_busy_seconds_total{$a,pod="p"}`, 0, 0.5),
				grows(22*s, ended, `gpu_container_busy_seconds_total{$a,pod="q"}`, 20, 34),
				one(assertion{24 * s, ended, `(gpu_container_memory_used_bytes{$a,pod="q"} < 29 * 2^30)[$w:1s]`}))},
		{name: "cgroup-garbage", fault: span{16 * s, 20 * s},
			scenario: sharedGPU("process gpu=0 pid=103 memory=1GiB busy=0%\nprocess gpu=0 pid=100 memory=20GiB busy=50% period=1s " +
				"to=16s\nprocess gpu=0 pid=101 memory=10GiB busy=10% period=1s\nprocess gpu=0 pid=102 memory=20GiB busy=50% period=1s " +
				"from=20s\n"),
			pods: sharedPods, others: containers,
			steps: []step{{18 * s, func(s *run) error {
				dir := filepath.Join(s.node.Trees.Procfs, "102")
				return errors.Join(os.MkdirAll(dir, 0o755),
					os.WriteFile(filepath.Join(dir, "cgroup"), []byte("0::/\xff\x00kubepods//pod/../\n7:\n"), 0o644),
					os.WriteFile(filepath.Join(dir, "stat"), []byte("102 (x) S 1 1 1 0 -1 4194304 0 0 0 0 0 0 0 0 20 0 1 0 777777 0 0\n"),
						0o644))
			}}},
			assertions: together(grows(22*s, ended, `gpu_container_busy_seconds_total{$a,pod="q"}`, 0, 8),
				one(assertion{22 * s, ended,
					`max_over_time(gpu_container_busy_seconds_total{$a,pod="p"}[$w]) - ` +
						`min_over_time(gpu_container_busy_seconds_total{$a,pod="p"}[$w]) > 0.5`},
					assertion{22 * s, ended,
						`sum by (node) (max_over_time(gpu_unattributed_busy_seconds_total{$a}[$w]) - ` +
							`min_over_time(gpu_unattributed_busy_seconds_total{$a}[$w])) < 18`}))},
		{name: "xids", fault: span{15 * s, 30 * s},
			symptom: `gpu_xid_events_total{$a,xid="95"} > 0`, stays: true,
			script: "at 15s gpu 0 xid 95\nat 19s gpu 0 xid 95\nat 23s gpu 0 xid 95\nat 23s gpu 0 xid 95\nat 27s gpu 0 xid 31\n",
			before: func(s *run) error {
				s.node.Kmsg = filepath.Join(s.node.Dir, "kmsg")
				return os.WriteFile(s.node.Kmsg, nil, 0o644)
			},
			steps: []step{kernelXID(15*s, 1, "0000:18:00", 95), kernelXID(19*s, 2, "0000:18:00", 95), kernelXID(23*s, 3, "0000:18:00", 95),
				kernelXID(30*s, 4, "0000:2a:00", 119)},
			assertions: together(is(35*s, ended, `gpu_xid_events_total{$a,xid="95"}`, 4),
				is(35*s, ended, `gpu_xid_events_total{$a,xid="31"}`, 1), is(35*s, ended, `gpu_xid_events_total{$b,xid="119"}`, 1),
				is(started, ended, "gpu_device_up{$a}", 1), allocated(started, ended)),
			fires: []string{"GPUXIDFatal a 95", "GPUXIDFatal b 119", "GPUXIDApplication a 31"}},
		{name: "exporter-stopped", fault: down, symptom: "up{$n} == 0", within: 3 * s, noNeighbor: true,
			steps: []step{{15 * s, signal(syscall.SIGSTOP)}, {40 * s, signal(syscall.SIGCONT)}},
			// No second is lost, and the driver's samples and counters have what was done meanwhile.
			assertions: together(one(assertion{12 * s, 60 * s, "abs(sum by (node, uuid) (gpu_time_seconds_total{$n}) - " +
				"sum by (node, uuid) (gpu_time_seconds_total{$n} offset 47s) - 47) > 4"}),
				grows(12*s, 60*s, "gpu_busy_seconds_total{$a}", 0.4*48, 0.9*48)[1:], allocated(50*s, ended)),
			fires: []string{"GPUExporterDown"}},
		{name: "exporter-killed", fault: down, restarts: true, noNeighbor: true,
			steps: kills(down, 4),
			assertions: together(one(assertion{started, ended, "resets(gpu_energy_joules_total{$n}[$w]) > 0"}),
				is(55*s, ended, "gpu_device_up{$a}", 1), allocated(55*s, ended)),
			// A busy machine does not list thousands of pods within its deadline of a second.
			mayFire: []string{"GPUExporterDown", "GPUExporterSourceDown podresources"}},
		{name: "proc-hangs", fault: down, symptom: `gpu_exporter_source_up{$n,source="processes"} == 0`, within: 12 * s,
			scenario: sharedGPU("process gpu=0 pid=103 memory=1GiB busy=0%\nprocess gpu=0 pid=100 memory=20GiB busy=50% period=1s\n" +
				"process gpu=0 pid=101 memory=10GiB busy=10% period=1s\n"),
			pods: sharedPods, others: containers, steps: hungEntry(down, 103),
			assertions: together(is(started, ended, "gpu_device_up{$a}", 1),
				grows(started, ended, `gpu_container_busy_seconds_total{$a,pod="p"}`, 20, 34)),
			fires: []string{"GPUExporterSourceDown processes"}},
		{name: "sigterm", fault: down, symptom: "up{$n} == 0", restarts: true, noNeighbor: true,
			steps: []step{{15 * s, stopsAtOnce}, {40 * s, func(s *run) error {
				if n := s.node.Control.Sessions(); n != 0 {
					return fmt.Errorf("%d sessions of the driver are left open", n)
				}
				s.start()
				return nil
			}}},
			assertions: together(one(never(20*s, 40*s, `{__name__=~"gpu_.+",$n}`)), is(50*s, ended, "gpu_device_up{$a}", 1),
				allocated(50*s, ended)),
			fires: []string{"GPUExporterDown"}},
	}
}

// TestTableIsWhole: each promise of the documentation is kept by a kind of failure, or names its test; each kind is of a promise,
// and is simulated; each row is of one kind.
func TestTableIsWhole(t *testing.T) {
	text := must.Read(t, filepath.Join("..", "..", "docs", "developer", "testing.md"))
	_, after, found := strings.Cut(text, "| what happens | what you see |\n|---|---|\n")
	promised, _, ended := strings.Cut(after, "\n\n")
	if !found || !ended {
		t.Fatal("docs/developer/testing.md has no table of what is promised")
	}
	kept, kinds := map[string]bool{}, map[string]int{}
	for _, k := range faultkinds.All {
		if kept[k.Promise] = true; !strings.Contains(promised, "| "+k.Promise+" |") {
			t.Errorf("%q is no row of docs/developer/testing.md", k.Promise)
		}
		if k.Name == "" && len(k.Rows) == 0 {
			t.Errorf("nothing simulates %q", k.Promise)
		}
		for _, r := range k.Rows {
			kinds[r]++
		}
	}
	for _, r := range table() {
		if kinds[r.name]--; kinds[r.name] != 0 {
			t.Errorf("%s is not of one kind", r.name)
		}
	}
	for name, n := range kinds {
		if n != 0 {
			t.Errorf("there is no row %s", name)
		}
	}
	for line := range strings.Lines(promised) {
		if what := strings.Split(line, " | ")[0]; !kept[strings.TrimPrefix(what, "| ")] && !strings.Contains(line, "`Test") {
			t.Errorf("docs/developer/testing.md promises something for %q, and no kind of failure keeps it, nor does it name a test", what)
		}
	}
}

// signal sends the exporter a signal.
func signal(sig syscall.Signal) func(*run) error {
	return func(s *run) error { return syscall.Kill(s.exporter.PID, sig) }
}

// kills ends the exporter so many times without notice, as the kernel does where memory runs out, at times that the seed decides,
// and starts it again at once. Meanwhile thousands of pods come and go, which fit into the memory that the chart requests.
func kills(during span, n int) []step {
	steps := kubeletFault(during, standin.KubeletFault{Pods: 1000, Containers: 2})
	for i := range n {
		at := during.from + time.Duration(random.Int64N(int64(during.to-during.from)))
		steps = append(steps, step{at, func(s *run) error {
			u, err := process.Of(s.exporter.PID)
			if err == nil && u.Peak > 64 {
				err = fmt.Errorf("it took %.0f MiB", u.Peak)
			}
			if err = errors.Join(err, syscall.Kill(s.exporter.PID, syscall.SIGKILL)); err != nil {
				return err
			}
			<-s.exporter.Done
			s.start()
			s.node.Kubelet.SetFault(standin.KubeletFault{Pods: 2000 * i, Containers: 2})
			return nil
		}})
	}
	slices.SortFunc(steps, func(a, b step) int { return cmp.Compare(a.at, b.at) })
	return steps
}

// hungEntry has the cgroup file of a PID never respond, until it does.
func hungEntry(during span, pid int) []step {
	path := func(s *run) string { return filepath.Join(s.node.Trees.Procfs, fmt.Sprint(pid), "cgroup") }
	var was []byte
	return []step{{during.from, func(s *run) (err error) {
		if was, err = os.ReadFile(path(s)); err != nil {
			return err
		}
		return errors.Join(os.Remove(path(s)), syscall.Mkfifo(path(s), 0o644))
	}}, {during.to, func(s *run) error {
		fifo, err := os.OpenFile(path(s), os.O_RDWR|syscall.O_NONBLOCK, 0)
		if err != nil {
			return err
		}
		_, err = fifo.Write(was)
		return errors.Join(err, os.Remove(path(s)), os.WriteFile(path(s), was, 0o644), fifo.Close())
	}}}
}

// repod has the kubelet list other pods beside those of the row.
func (s *run) repod(more string) error {
	n, err := standin.ParsePods("pods", strings.NewReader(s.pods+more))
	if err != nil {
		return err
	}
	s.node.Kubelet.SetNode(n)
	return nil
}

// stopsAtOnce ends the exporter as an operator would: it takes a second, and some more on a busy machine.
func stopsAtOnce(s *run) error {
	start := time.Now()
	s.exporter.Stop()
	if err := s.exporter.Err; err != nil {
		return fmt.Errorf("it ended with an error: %w", err)
	}
	if took := time.Since(start); took > 5*time.Second {
		return fmt.Errorf("it took %v to end", took)
	}
	return nil
}

func kernelXID(at time.Duration, sequence int, pci string, code int) step {
	return step{at, func(s *run) error {
		return appendTo(s.node.Kmsg, kernelLine(sequence,
			fmt.Sprintf("NVRM: Xid (PCI:%s): %d, pid='<unknown>', name=<unknown>, and more", pci, code)))
	}}
}

func implausible(at string, answers map[string]string) string {
	var b strings.Builder
	for key, value := range answers {
		fmt.Fprintf(&b, "%s gpu 0 %s = %s\n", at, key, value)
	}
	return b.String()
}
