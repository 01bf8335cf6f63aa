package compat_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/gpu-exporter/gpu-exporter/internal/catalog"
	"github.com/gpu-exporter/gpu-exporter/internal/catalog/catalogtest"
	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/test/fleet/replay"
)

// A node is scraped for three hours, as dcgm-exporter and nvidia_gpu_exporter would expose it and as gpu-exporter does.
const (
	storyLength = 3 * time.Hour
	tick        = 15 * time.Second
)

// changes are the times at which the load or the exporter changes: busy until the first, then idle, busy with a fault,
// throttled, a restart of the exporter, a reload of the driver, which the exporter survives.
var changes = []time.Duration{30 * time.Minute, 60 * time.Minute, 90 * time.Minute, 110 * time.Minute, reloaded}

const reloaded = 135 * time.Minute

// down reports whether the target is not scraped.
func down(t time.Duration) bool {
	return t >= changes[3] && t < changes[3]+time.Minute || t >= reloaded && t < reloaded+3*time.Minute
}

// driver is what NVML reports of a GPU, from which both exporters read, and what has happened on it.
type driver struct {
	g          gpu.GPU
	now        gpu.Utilization // in the driver's last sampling period
	rate       float64         // bytes per second of each link at the last reading
	fp64       float64
	xid        int // the last one since the exporter started
	xids       []event
	masks      []event // the mask of clock events at each reading
	containers []gpu.Container
}

type event struct {
	at    time.Duration
	value int
}

// noise moves a value by 1.5 %, otherwise in each sample.
func noise(n int) float64 { return 1 + 0.015*math.Sin(float64(n)*1.7) }

// situations are what a node is: containers on whole GPUs, one GPU unallocated, one shared by two containers, one in
// MIG mode.
var situations = []string{"whole", "free", "shared", "mig"}

// play calls do with the state of the node's GPUs at each tick.
func play(situation string, do func(t time.Duration, all []*driver, v *gpu.View)) {
	trainer, server := gpu.Container{Namespace: "ml", Pod: "train-0", Name: "main"}, gpu.Container{Namespace: "web",
		Pod: "serve-0", Name: "api"}
	all := []*driver{{containers: []gpu.Container{trainer}}, {containers: []gpu.Container{server}}}
	switch situation {
	case "free":
		all[1].containers = nil
	case "shared":
		all = []*driver{{containers: []gpu.Container{trainer, server}}}
	case "mig":
		all = []*driver{{containers: []gpu.Container{trainer, server}}}
	}
	n := 0
	for t := time.Duration(0); t < storyLength; t += tick {
		n++
		v := catalogtest.FullView()
		pattern := v.GPUs
		v.At, v.GPUs, v.Containers, v.Allocations, v.Unresolved = catalogtest.At.Add(t), nil, nil, nil, nil
		for i, d := range all {
			step(d, i, n, t, catalogtest.FullView().GPUs[0])
			if situation == "mig" {
				partition(d, pattern[1].Instances[0])
			}
			v.GPUs = append(v.GPUs, d.g)
			share := 1 / float64(max(1, len(d.containers)))
			for j, who := range d.containers {
				a := d.g.Activity
				c := gpu.ContainerGPU{Container: who, GPU: d.g.UUID, Index: i, Observed: a.Observed, Allocated: a.Observed,
					Busy: gpu.Some(gpu.Seconds(float64(a.Busy.Or(0)) * share)), Memory: gpu.Some(gpu.Bytes(
						float64(d.g.Medium.Or(nil).Memory.Or(gpu.Memory{}).Used) * share))}
				if situation == "mig" {
					c.Memory = gpu.Some(d.g.Instances[j].Memory.Or(gpu.Memory{}).Used)
				}
				v.Containers = append(v.Containers, c)
			}
		}
		do(t, all, v)
	}
}

// step moves the GPU on by a tick. What it does not set is as in a view of the catalog's tests.
func step(d *driver, i, n int, t time.Duration, g gpu.GPU) {
	load := 0.0
	switch {
	case t < changes[0]:
		load = 0.57 - 0.2*float64(i)
	case t >= changes[1]:
		load = 0.97 - 0.1*float64(i)
	}
	restarted, fresh := t == changes[3], t == reloaded
	seconds, at := tick.Seconds(), noise(n+i)
	old, was := d.g.Activity, d.g.Medium.Or(&gpu.Medium{})
	base := func(x gpu.Opt[gpu.Seconds], by float64) gpu.Opt[gpu.Seconds] { // since the exporter started
		if restarted {
			return gpu.Some(gpu.Seconds(0))
		}
		return gpu.Some(x.Or(0) + gpu.Seconds(by))
	}
	d.now = gpu.Utilization{GPU: gpu.Ratio(load * at), Memory: gpu.Ratio(load / 2 * at)}
	d.rate, d.fp64 = 1e9*load*at, load/5*at
	a := &g.Activity
	a.Busy, a.Observed, a.MemoryBusy = base(old.Busy, load*seconds), base(old.Observed, seconds), base(old.MemoryBusy, load/2*seconds)
	a.Profiled, a.SMActive, a.SMOccupancy = base(old.Profiled, seconds), base(old.SMActive, load*.8*seconds),
		base(old.SMOccupancy, load*.4*seconds)
	a.TensorActive, a.DRAMActive = base(old.TensorActive, load*.3*seconds), base(old.DRAMActive, load*.5*seconds)
	a.Pipes = map[gpu.Pipe]gpu.Seconds{}
	for _, p := range gpu.Pipes {
		a.Pipes[p] = base(gpu.Some(old.Pipes[p]), load/5*seconds).Or(0)
	}
	a.Mean, a.Peak = gpu.Some(gpu.Ratio(load)), gpu.Some(gpu.Ratio(load))
	bytes := func(x gpu.Opt[float64]) gpu.Opt[float64] {
		return gpu.Some(float64(base(gpu.Some(gpu.Seconds(x.Or(0))), 1e9*load*seconds).Or(0)))
	}
	a.PCIeTransmit, a.PCIeReceive = bytes(old.PCIeTransmit), bytes(old.PCIeReceive)
	a.NVLinkTransmit, a.NVLinkReceive = bytes(old.NVLinkTransmit), bytes(old.NVLinkReceive)
	watts := math.Round((100 + 500*load) * at)
	f, m, s := g.Fast.Or(nil), g.Medium.Or(nil), g.Slow.Or(nil)
	f.Power, f.PowerInstant, f.MemoryTemperature = gpu.Some(gpu.Watts(watts)), gpu.Some(gpu.Watts(watts+7)),
		gpu.Some(gpu.Celsius(math.Round(40+30*load*at)))
	f.Engines = map[gpu.Engine]gpu.Ratio{gpu.EngineDecoder: gpu.Ratio(math.Round(load*50*at) / 100),
		gpu.EngineEncoder: gpu.Ratio(math.Round(load*20*at) / 100)}
	// The driver's counters restart with it. Those of energy and limits continue in the exporter.
	before := d.g.Fast.Or(&gpu.Fast{})
	f.Energy, f.Limited = gpu.Some(before.Energy.Or(5000)+gpu.Joules(watts*seconds)), map[gpu.LimitReason]gpu.Seconds{}
	a.Energy, a.Limited = gpu.Some(old.Energy.Or(5000)+gpu.Joules(watts*seconds)), map[gpu.LimitReason]gpu.Seconds{}
	for j, reason := range gpu.LimitReasons {
		by := gpu.Seconds(0)
		if t >= changes[2] {
			by = gpu.Seconds(seconds * load / float64(j+2))
		}
		f.Limited[reason], a.Limited[reason] = before.Limited[reason]+by, old.Limited[reason]+by
		if fresh {
			f.Limited[reason] = 0
		}
	}
	if fresh {
		f.Energy = gpu.Some(gpu.Joules(0))
	}
	used := gpu.Bytes(math.Round(load*at*64)) * (512 << 20)
	m.Memory = gpu.Some(gpu.Memory{Total: 80 << 30, Used: used, Free: 79<<30 - used, Reserved: gpu.Some(gpu.Bytes(1 << 30))})
	m.BAR1 = gpu.Some(gpu.BAR1{Total: 128 << 30, Used: gpu.Bytes(1+math.Round(load*at*16)) << 30})
	m.Temperature, m.Fans = gpu.Some(gpu.Celsius(math.Round(35+40*load*at))),
		[]gpu.Opt[gpu.Ratio]{gpu.Some(gpu.Ratio(math.Round(30+60*load*at) / 100))}
	m.Clocks, s.MaxClocks = map[gpu.Clock]gpu.Hertz{}, map[gpu.Clock]gpu.Hertz{}
	late := 0
	if t >= changes[1] {
		late = 1
	}
	for j, c := range gpu.Clocks {
		m.Clocks[c] = gpu.Hertz(math.Round(345+1500*load*at)+float64(j)) * 1e6
		s.MaxClocks[c] = gpu.Hertz(1980-90*late+j) * 1e6
	}
	m.PState, m.ClockEvents = gpu.Some(0), gpu.Some(0)
	switch {
	case load == 0:
		m.PState, m.ClockEvents = gpu.Some(8), gpu.Some(1)
	case t >= changes[2]:
		m.ClockEvents = gpu.Some(4 | 32)
	}
	// A fault begins after the idle period.
	grown := func(was uint64, by int) uint64 {
		if t > changes[1]+10*time.Minute && t < changes[2] && n%(8*by) == 0 {
			was++
		}
		return was
	}
	m.ECC = nil
	for j, severity := range []gpu.ECCSeverity{gpu.ECCCorrected, gpu.ECCUncorrected} {
		for k, where := range []gpu.ECCMemory{gpu.ECCDRAM, gpu.ECCSRAM, gpu.ECCL1, gpu.ECCL2, gpu.ECCRegisterFile,
			gpu.ECCTextureMemory,
			gpu.ECCTextureShared, gpu.ECCCBU} {
			last := gpu.ECCCount{Lifetime: gpu.Some(uint64(100 * k))}
			if len(was.ECC) > 0 {
				last = was.ECC[j*8+k]
			}
			volatile := grown(last.Volatile.Or(0), j+k+1)
			if fresh {
				volatile = 0
			}
			m.ECC = append(m.ECC, gpu.ECCCount{Severity: severity, Memory: where, Volatile: gpu.Some(volatile),
				Lifetime: gpu.Some(grown(last.Lifetime.Or(0), j+k+1))})
		}
	}
	m.RemappedRows = map[gpu.RemapCause]uint64{gpu.CauseCorrected: grown(was.RemappedRows[gpu.CauseCorrected], 3),
		gpu.CauseUncorrected: grown(was.RemappedRows[gpu.CauseUncorrected], 4)}
	m.RetiredPages = map[gpu.RemapCause]uint64{gpu.CauseSingleBit: grown(was.RetiredPages[gpu.CauseSingleBit], 5),
		gpu.CauseDoubleBit: grown(was.RetiredPages[gpu.CauseDoubleBit], 6)}
	m.PCIeReplays, m.NVLinkErrors = gpu.Some(grown(was.PCIeReplays.Or(0), 2)), map[gpu.NVLinkError]uint64{}
	for j, kind := range gpu.NVLinkErrors {
		m.NVLinkErrors[kind] = grown(was.NVLinkErrors[kind], j+1)
	}
	fault := t > changes[1]+10*time.Minute && t < reloaded
	m.RemapPending, m.RemapFailed, m.RetirePending = gpu.Some(fault), gpu.Some(fault && i == 1), gpu.Some(fault)
	g.Recovery = gpu.Some(gpu.RecoveryNone)
	if fault {
		g.Recovery = gpu.Some(gpu.RecoveryReset)
	}
	m.Recovery = g.Recovery
	s.PowerLimit, s.PowerLimitRequested = gpu.Some(gpu.Watts(700-50*late)), gpu.Some(gpu.Watts(701-50*late))
	s.PowerLimitDefault, s.PowerLimitMin, s.PowerLimitMax = gpu.Some(gpu.Watts(699-late)), gpu.Some(gpu.Watts(200+late)),
		gpu.Some(gpu.Watts(702-late))
	s.TemperatureLimits = nil
	for j, x := range []gpu.TemperatureThreshold{{Sensor: gpu.SensorGPU, Limit: gpu.LimitSlowdown},
		{Sensor: gpu.SensorGPU, Limit: gpu.LimitShutdown},
		{Sensor: gpu.SensorGPU, Limit: gpu.LimitMaxOperating}, {Sensor: gpu.SensorMemory, Limit: gpu.LimitMaxOperating}} {
		x.Value = gpu.Celsius(87 + j - late)
		s.TemperatureLimits = append(s.TemperatureLimits, x)
	}
	s.RemapBanks = map[gpu.BankAvailability]uint64{}
	for j, b := range gpu.BankAvailabilities {
		s.RemapBanks[b] = uint64(600 - 100*j + late)
	}
	on := late == 1
	s.PersistenceMode, s.AccountingMode, s.DisplayActive, s.DisplayAttached = gpu.Some(on), gpu.Some(on), gpu.Some(on), gpu.Some(on)
	s.ECCMode, s.MIGMode = gpu.Some(gpu.ModePair{Current: on, Pending: on}), gpu.Some(gpu.ModePair{})
	s.PCIe = gpu.PCIeLink{Generation: gpu.Some(5 - late), Width: gpu.Some(16 - 8*late),
		MaxGeneration: gpu.Some(5 + late), MaxWidth: gpu.Some(16 * (1 + late)),
		GPUMaxGeneration: gpu.Some(6 - late)}
	g.Index, g.UUID = i, gpu.UUID(fmt.Sprintf("GPU-1111111%d-1111-1111-1111-111111111111", i))
	// XID 31 is an application's, 48 is critical and occurs twice.
	if restarted {
		d.xid, d.xids, d.masks = 0, nil, nil
	}
	if code := map[time.Duration]int{65 * time.Minute: 31, 75 * time.Minute: 48, 80 * time.Minute: 48}[t]; code > 0 {
		d.xid, d.xids = code, append(d.xids, event{t, code})
	}
	d.masks = append(d.masks, event{t, m.ClockEvents.Or(0)})
	g.XIDs = nil
	for _, code := range []int{31, 48, 79} {
		x := gpu.XIDCount{XID: code}
		for _, e := range d.xids {
			if e.value == code {
				x.Count, x.Last = x.Count+1, gpu.Some(catalogtest.At.Add(e.at))
			}
		}
		if x.Count > 0 || code != 31 { // critical codes are exported from 0 on
			g.XIDs = append(g.XIDs, x)
		}
	}
	d.g = g
}

// partition gives each container an instance of the GPU.
func partition(d *driver, pattern gpu.InstanceActivity) {
	d.g.Slow.Or(nil).MIGMode = gpu.Some(gpu.ModePair{Current: true, Pending: true})
	for j := range d.containers {
		in := pattern
		in.GI, in.UUID = 7+j, gpu.UUID(fmt.Sprintf("MIG-1111111%d-1111-1111-1111-111111111111", j))
		m := d.g.Medium.Or(nil).Memory.Or(gpu.Memory{})
		in.Memory = gpu.Some(gpu.Memory{Total: m.Total / 2, Used: m.Used / gpu.Bytes(2+j), Free: m.Total/2 - m.Used/gpu.Bytes(2+j)})
		in.Activity = d.g.Activity
		d.g.Instances = append(d.g.Instances, in)
	}
}

// sample is a series of another exporter, with the labels that only it has.
type sample struct {
	name  string
	value float64
	own   []string
}

// dcgm is what dcgm-exporter exposes of a GPU, or of one of its MIG instances.
//
// Source: NVIDIA/dcgm-exporter at d5e5f510a1b6 (4.5.3-4.8.2). etc/default-counters.csv has units (MHz, MiB, mJ, ns, %);
// internal/pkg/collector/gpu_collector.go, toString: integers but for power and profiling, blank values have no series,
// so XID_ERRORS has none before the first
// XID, and then its last code until DCGM restarts (NVIDIA/dcgm-exporter#500, NVIDIA/DCGM#277). DCGM reads the fields
// from the same NVML calls.
// expcollector.go: values of the window are counted by code, and without any there is one series of 0 without a code;
// clock_events_collector.go: by bit of each reading. gpu_health_collector.go: eleven watches, each 0 (pass), 10 (warn)
// or 20 (fail).
func dcgm(d *driver, t time.Duration, in *gpu.InstanceActivity) (out []sample) {
	add := func(name string, v float64, own ...string) {
		out = append(out, sample{"DCGM_" + name, v, own})
	}
	f, m, s := d.g.Fast.Or(nil), d.g.Medium.Or(nil), d.g.Slow.Or(nil)
	whole := math.Floor
	for i, c := range []string{"SM", "MEM", "VIDEO"} {
		add("FI_DEV_"+c+"_CLOCK", whole(float64(m.Clocks[gpu.Clocks[i+1]])/1e6))
		add("FI_DEV_MAX_"+c+"_CLOCK", whole(float64(s.MaxClocks[gpu.Clocks[i+1]])/1e6))
	}
	add("FI_DEV_PSTATE", float64(m.PState.Or(0)))
	add("FI_DEV_GPU_TEMP", float64(m.Temperature.Or(0)))
	add("FI_DEV_MEMORY_TEMP", float64(f.MemoryTemperature.Or(0)))
	for i, name := range []string{"SLOWDOWN_TEMP", "SHUTDOWN_TEMP", "GPU_MAX_OP_TEMP", "MEM_MAX_OP_TEMP"} {
		add("FI_DEV_"+name, float64(s.TemperatureLimits[i].Value))
	}
	add("FI_DEV_FAN_SPEED", math.Round(100*float64(m.Fans[0].Or(0))))
	add("FI_DEV_POWER_USAGE", float64(f.Power.Or(0)))
	add("FI_DEV_POWER_USAGE_INSTANT", float64(f.PowerInstant.Or(0)))
	add("FI_DEV_TOTAL_ENERGY_CONSUMPTION", whole(1000*float64(f.Energy.Or(0))))
	add("FI_DEV_POWER_MGMT_LIMIT", float64(s.PowerLimitRequested.Or(0)))
	add("FI_DEV_ENFORCED_POWER_LIMIT", float64(s.PowerLimit.Or(0)))
	add("FI_DEV_POWER_MGMT_LIMIT_DEF", float64(s.PowerLimitDefault.Or(0)))
	add("FI_DEV_POWER_MGMT_LIMIT_MIN", float64(s.PowerLimitMin.Or(0)))
	add("FI_DEV_POWER_MGMT_LIMIT_MAX", float64(s.PowerLimitMax.Or(0)))
	memory := m.Memory.Or(gpu.Memory{})
	if in != nil {
		memory = in.Memory.Or(gpu.Memory{})
	} else { // NVML has no utilization of a GPU in MIG mode
		add("FI_DEV_GPU_UTIL", math.Round(100*float64(d.now.GPU)))
		add("FI_DEV_MEM_COPY_UTIL", math.Round(100*float64(d.now.Memory)))
		add("FI_DEV_ENC_UTIL", math.Round(100*float64(f.Engines[gpu.EngineEncoder])))
		add("FI_DEV_DEC_UTIL", math.Round(100*float64(f.Engines[gpu.EngineDecoder])))
	}
	load := float64(d.now.GPU)
	for name, v := range map[string]float64{"GR_ENGINE_ACTIVE": load, "SM_ACTIVE": .8 * load, "SM_OCCUPANCY": .4 * load,
		"PIPE_TENSOR_ACTIVE": .3 * load,
		"DRAM_ACTIVE":        .5 * load, "PIPE_FP64_ACTIVE": d.fp64, "PIPE_FP32_ACTIVE": d.fp64, "PIPE_FP16_ACTIVE": d.fp64,
		"PCIE_TX_BYTES": d.rate, "PCIE_RX_BYTES": d.rate, "NVLINK_TX_BYTES": d.rate, "NVLINK_RX_BYTES": d.rate} {
		add("FI_PROF_"+name, v)
	}
	add("FI_DEV_PCIE_TX_THROUGHPUT", whole(d.rate/1000))
	add("FI_DEV_PCIE_RX_THROUGHPUT", whole(d.rate/1000))
	add("FI_DEV_NVLINK_BANDWIDTH_TOTAL", whole(2*d.rate/1e6))
	mebibytes := func(b gpu.Bytes) float64 { return whole(float64(b) / (1 << 20)) }
	add("FI_DEV_FB_USED", mebibytes(memory.Used))
	add("FI_DEV_FB_FREE", mebibytes(memory.Free))
	add("FI_DEV_FB_RESERVED", mebibytes(memory.Reserved.Or(0)))
	add("FI_DEV_FB_TOTAL", mebibytes(memory.Total))
	add("FI_DEV_FB_USED_PERCENT", float64(memory.Used)/float64(memory.Used+memory.Free))
	bar := m.BAR1.Or(gpu.BAR1{})
	add("FI_DEV_BAR1_TOTAL", mebibytes(bar.Total))
	add("FI_DEV_BAR1_USED", mebibytes(bar.Used))
	add("FI_DEV_BAR1_FREE", mebibytes(bar.Total-bar.Used))
	add("FI_DEV_PCIE_REPLAY_COUNTER", float64(m.PCIeReplays.Or(0)))
	add("FI_DEV_PCIE_LINK_GEN", float64(s.PCIe.Generation.Or(0)))
	add("FI_DEV_PCIE_LINK_WIDTH", float64(s.PCIe.Width.Or(0)))
	add("FI_DEV_PCIE_MAX_LINK_GEN", float64(s.PCIe.MaxGeneration.Or(0)))
	add("FI_DEV_PCIE_MAX_LINK_WIDTH", float64(s.PCIe.MaxWidth.Or(0)))
	for name, kind := range map[string]gpu.NVLinkError{"CRC_FLIT_ERROR": gpu.NVLinkCRCFlit,
		"CRC_FLIT_ERROR_COUNT": gpu.NVLinkCRCFlit,
		"CRC_ERROR":            gpu.NVLinkCRCFlit, "CRC_DATA_ERROR": gpu.NVLinkCRCData, "CRC_DATA_ERROR_COUNT": gpu.NVLinkCRCData,
		"REPLAY_ERROR": gpu.NVLinkReplay, "REPLAY_ERROR_COUNT": gpu.NVLinkReplay, "REPLAY": gpu.NVLinkReplay,
		"RECOVERY_ERROR": gpu.NVLinkRecovery, "RECOVERY_ERROR_COUNT": gpu.NVLinkRecovery, "RECOVERY": gpu.NVLinkRecovery,
		"RECOVERY_EVENT": gpu.NVLinkRecovery} {
		add("FI_DEV_NVLINK_"+name+"_TOTAL", float64(m.NVLinkErrors[kind]))
	}
	for name, reason := range map[string]gpu.LimitReason{"POWER": gpu.LimitPowerCap, "THERMAL": gpu.LimitThermal,
		"SYNC_BOOST":  gpu.LimitSyncBoost,
		"BOARD_LIMIT": gpu.LimitBoard, "RELIABILITY": gpu.LimitReliability} {
		add("FI_DEV_"+name+"_VIOLATION", whole(1e9*float64(f.Limited[reason])))
	}
	totals := map[string]float64{}
	for _, e := range m.ECC {
		kind := map[gpu.ECCSeverity]string{gpu.ECCCorrected: "SBE", gpu.ECCUncorrected: "DBE"}[e.Severity]
		where := map[gpu.ECCMemory]string{gpu.ECCDRAM: "DEV", gpu.ECCSRAM: "SRM", gpu.ECCL1: "L1", gpu.ECCL2: "L2",
			gpu.ECCRegisterFile:  "REG",
			gpu.ECCTextureMemory: "TEX", gpu.ECCTextureShared: "SHM", gpu.ECCCBU: "CBU"}[e.Memory]
		for counter, v := range map[string]uint64{"VOL": e.Volatile.Or(0), "AGG": e.Lifetime.Or(0)} {
			add("FI_DEV_ECC_"+kind+"_"+counter+"_"+where, float64(v))
			totals["FI_DEV_ECC_"+kind+"_"+counter+"_TOTAL"] += float64(v)
		}
	}
	for name, v := range totals {
		add(name, v)
	}
	add("FI_DEV_RETIRED_SBE", float64(m.RetiredPages[gpu.CauseSingleBit]))
	add("FI_DEV_RETIRED_DBE", float64(m.RetiredPages[gpu.CauseDoubleBit]))
	add("FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", float64(m.RemappedRows[gpu.CauseUncorrected]))
	add("FI_DEV_CORRECTABLE_REMAPPED_ROWS", float64(m.RemappedRows[gpu.CauseCorrected]))
	ecc, mig := s.ECCMode.Or(gpu.ModePair{}), s.MIGMode.Or(gpu.ModePair{})
	for name, flag := range map[string]bool{"RETIRED_PENDING": m.RetirePending.Or(false),
		"ROW_REMAP_FAILURE": m.RemapFailed.Or(false),
		"ROW_REMAP_PENDING": m.RemapPending.Or(false), "ECC_CURRENT": ecc.Current, "ECC_PENDING": ecc.Pending,
		"MIG_MODE":         mig.Current,
		"PERSISTENCE_MODE": s.PersistenceMode.Or(false)} {
		add("FI_DEV_"+name, flagged(flag))
	}
	for i, name := range []string{"MAX", "HIGH", "PARTIAL", "LOW", "NONE"} {
		add("FI_DEV_BANKS_REMAP_ROWS_AVAIL_"+name, float64(s.RemapBanks[gpu.BankAvailabilities[i]]))
	}
	add("FI_DEV_CLOCKS_EVENT_REASONS", float64(m.ClockEvents.Or(0)))
	add("FI_DEV_CLOCK_THROTTLE_REASONS", float64(m.ClockEvents.Or(0)))
	add("FI_DEV_COUNT", 2)
	if d.xid > 0 {
		add("FI_DEV_XID_ERRORS", float64(d.xid), "err_code", strconv.Itoa(d.xid))
	}
	window := func(name, label string, events []event, values func(int) []string) {
		counts := map[string]float64{}
		for _, e := range events {
			if e.at > t-5*time.Minute {
				for _, v := range values(e.value) {
					counts[v]++
				}
			}
		}
		for v, n := range counts {
			add(name, n, label, v, "window_size_in_ms", "300000")
		}
		if len(counts) == 0 {
			add(name, 0, "window_size_in_ms", "300000")
		}
	}
	window("EXP_XID_ERRORS_COUNT", "xid", d.xids, func(code int) []string { return []string{strconv.Itoa(code)} })
	window("EXP_CLOCK_EVENTS_COUNT", "clock_event", d.masks, func(mask int) (out []string) {
		for bit, name := range []string{"gpu_idle", "clocks_setting", "power_cap", "hw_slowdown", "sync_boost", "sw_thermal"} {
			if mask>>bit&1 == 1 {
				out = append(out, name)
			}
		}
		return out
	})
	// The names and base units of 4.9: its release notes.
	for _, s := range out {
		for _, as := range map[string][]struct {
			name string
			by   float64
		}{
			"SM_CLOCK": {{"SM_CLOCK_HERTZ", 1e6}}, "MEM_CLOCK": {{"MEMORY_CLOCK_HERTZ", 1e6}},
			"GPU_TEMP": {{"GPU_TEMP_CELSIUS", 1}}, "MEMORY_TEMP": {{"MEMORY_TEMP_CELSIUS", 1}},
			"POWER_USAGE": {{"BOARD_POWER_WATTS", 1}}, "TOTAL_ENERGY_CONSUMPTION": {{"GPU_ENERGY_JOULES_TOTAL", .001}},
			"GPU_UTIL": {{"GPU_UTIL_RATIO", .01}}, "MEM_COPY_UTIL": {{"MEMORY_UTIL_RATIO", .01}},
			"ENC_UTIL": {{"ENC_UTIL_RATIO", .01}}, "DEC_UTIL": {{"DEC_UTIL_RATIO", .01}},
			"FB_USED": {{"FB_USED_BYTES", 1 << 20}}, "FB_FREE": {{"FB_FREE_BYTES", 1 << 20}},
			"FB_RESERVED": {{"FB_RESERVED_BYTES", 1 << 20}}, "FB_TOTAL": {{"FB_CAPACITY_BYTES", 1 << 20}},
			"PCIE_REPLAY_COUNTER": {{"PCIE_REPLAY_TOTAL", 1}}, "ROW_REMAP_FAILURE": {{"ROW_REMAP_FAILED", 1}},
			"UNCORRECTABLE_REMAPPED_ROWS": {{"ROW_REMAP_UNCORRECTABLE_TOTAL", 1}},
			"CORRECTABLE_REMAPPED_ROWS":   {{"ROW_REMAP_CORRECTABLE_TOTAL", 1}},
		}[strings.TrimPrefix(s.name, "DCGM_FI_DEV_")] {
			add("FI_DEV_"+as.name, scaled(s.value, as.by))
		}
		if name, ok := strings.CutPrefix(s.name, "DCGM_FI_PROF_"); ok {
			switch name {
			case "GR_ENGINE_ACTIVE", "DRAM_ACTIVE", "PIPE_TENSOR_ACTIVE":
				add("FI_PROF_"+strings.TrimSuffix(strings.TrimPrefix(name, "PIPE_"), "ACTIVE")+"UTIL_RATIO", s.value)
			}
		}
	}
	for _, watch := range []string{"PCIE", "NVLINK", "PMU", "MCU", "MEM", "SM", "INFOROM", "THERMAL", "POWER", "DRIVER", "ALL"} {
		add("EXP_GPU_HEALTH_STATUS", 20*flagged(watch == "MEM" && m.RemapFailed.Or(false)), "health_watch", watch)
	}
	return out
}

// scaled multiplies a value, or divides it by the inverse, which is the rounder number.
func scaled(v, by float64) float64 {
	if by < 1 {
		return v / math.Round(1/by)
	}
	return v * by
}

func flagged(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// smi is what nvidia_gpu_exporter exposes of a GPU: what nvidia-smi prints (whole MiB and percents), in base units.
//
// Source: utkuozdemir/nvidia_gpu_exporter at e656cd81a180, internal/exporter.
func smi(d *driver) (out []sample) {
	add := func(name string, v float64) { out = append(out, sample{"nvidia_smi_" + name, v, nil}) }
	for _, s := range dcgm(d, 0, nil) {
		for _, as := range map[string][]struct {
			name string
			by   float64
		}{
			"SM_CLOCK": {{"clocks_current_sm_clock_hz", 1e6}}, "MEM_CLOCK": {{"clocks_current_memory_clock_hz", 1e6}},
			"VIDEO_CLOCK":  {{"clocks_current_video_clock_hz", 1e6}},
			"MAX_SM_CLOCK": {{"clocks_max_sm_clock_hz", 1e6}}, "MAX_MEM_CLOCK": {{"clocks_max_memory_clock_hz", 1e6}},
			"CLOCKS_EVENT_REASONS": {{"clocks_event_reasons_active", 1}}, "PSTATE": {{"pstate", 1}},
			"GPU_TEMP": {{"temperature_gpu", 1}}, "MEMORY_TEMP": {{"temperature_memory", 1}}, "FAN_SPEED": {{"fan_speed_ratio", .01}},
			"POWER_USAGE":         {{"power_draw_watts", 1}, {"power_draw_average_watts", 1}},
			"POWER_USAGE_INSTANT": {{"power_draw_instant_watts", 1}}, "TOTAL_ENERGY_CONSUMPTION": {{"energy_joules_total", .001}},
			"POWER_MGMT_LIMIT": {{"power_limit_watts", 1}}, "ENFORCED_POWER_LIMIT": {{"enforced_power_limit_watts", 1}},
			"POWER_MGMT_LIMIT_DEF": {{"power_default_limit_watts", 1}}, "POWER_MGMT_LIMIT_MIN": {{"power_min_limit_watts", 1}},
			"POWER_MGMT_LIMIT_MAX": {{"power_max_limit_watts", 1}},
			"GPU_UTIL":             {{"utilization_gpu_ratio", .01}}, "MEM_COPY_UTIL": {{"utilization_memory_ratio", .01}},
			"ENC_UTIL": {{"utilization_encoder_ratio", .01}}, "DEC_UTIL": {{"utilization_decoder_ratio", .01}},
			"FB_USED": {{"memory_used_bytes", 1 << 20}}, "FB_FREE": {{"memory_free_bytes", 1 << 20}},
			"FB_RESERVED": {{"memory_reserved_bytes", 1 << 20}}, "FB_TOTAL": {{"memory_total_bytes", 1 << 20}},
			"PCIE_LINK_GEN":     {{"pcie_link_gen_current", 1}, {"pcie_link_gen_gpucurrent", 1}},
			"PCIE_MAX_LINK_GEN": {{"pcie_link_gen_max", 1}}, "PCIE_LINK_WIDTH": {{"pcie_link_width_current", 1}},
			"PCIE_MAX_LINK_WIDTH": {{"pcie_link_width_max", 1}}, "PCIE_TX_THROUGHPUT": {{"pcie_throughput_tx_bytes_per_second", 1000}},
			"PCIE_RX_THROUGHPUT":          {{"pcie_throughput_rx_bytes_per_second", 1000}},
			"CORRECTABLE_REMAPPED_ROWS":   {{"remapped_rows_correctable", 1}},
			"UNCORRECTABLE_REMAPPED_ROWS": {{"remapped_rows_uncorrectable", 1}},
			"ROW_REMAP_FAILURE":           {{"remapped_rows_failure", 1}}, "ROW_REMAP_PENDING": {{"remapped_rows_pending", 1}},
			"RETIRED_SBE": {{"retired_pages_single_bit_ecc_count", 1}}, "RETIRED_DBE": {{"retired_pages_double_bit_count", 1}},
			"RETIRED_PENDING": {{"retired_pages_pending", 1}}, "ECC_CURRENT": {{"ecc_mode_current", 1}},
			"ECC_PENDING": {{"ecc_mode_pending", 1}},
			"MIG_MODE":    {{"mig_mode_current", 1}}, "PERSISTENCE_MODE": {{"persistence_mode", 1}},
		}[strings.TrimPrefix(s.name, "DCGM_FI_DEV_")] {
			add(as.name, scaled(s.value, as.by))
		}
	}
	f, m, s := d.g.Fast.Or(nil), d.g.Medium.Or(nil), d.g.Slow.Or(nil)
	add("clocks_current_graphics_clock_hz", float64(m.Clocks[gpu.ClockGraphics]))
	add("clocks_max_graphics_clock_hz", float64(s.MaxClocks[gpu.ClockGraphics]))
	totals := map[string]float64{}
	for _, e := range m.ECC {
		where := map[gpu.ECCMemory]string{gpu.ECCL1: "l1_cache", gpu.ECCL2: "l2_cache"}[e.Memory]
		if where == "" {
			where = string(e.Memory)
		}
		for counter, v := range map[string]uint64{"volatile": e.Volatile.Or(0), "aggregate": e.Lifetime.Or(0)} {
			name := "ecc_errors_" + string(e.Severity) + "_" + counter + "_"
			if totals[name+"total"] += float64(v); e.Memory != gpu.ECCTextureShared {
				add(name+where, float64(v))
			}
			if e.Memory == gpu.ECCDRAM {
				add(name+"device_memory", float64(v))
			}
		}
	}
	for name, v := range totals {
		add(name, v)
	}
	for _, b := range gpu.BankAvailabilities {
		add("remapped_rows_histogram_"+string(b), float64(s.RemapBanks[b]))
	}
	for name, reason := range map[string]gpu.LimitReason{"sync_boost": gpu.LimitSyncBoost,
		"sw_thermal_slowdown": gpu.LimitSWThermal,
		"hw_thermal_slowdown": gpu.LimitHWThermal, "hw_power_brake_slowdown": gpu.LimitHWPowerBrake,
		"sw_power_cap": gpu.LimitPowerCap} {
		add("clocks_event_reasons_counters_"+name+"_seconds", float64(f.Limited[reason]))
	}
	add("display_active", flagged(s.DisplayActive.Or(false)))
	add("display_attached", flagged(s.DisplayAttached.Or(false)))
	add("accounting_mode", flagged(s.AccountingMode.Or(false)))
	return out
}

// scraped returns a Prometheus that has scraped the story of a node.
func scraped(t *testing.T, situation string, interval time.Duration) *replay.Server {
	t.Helper()
	s := replay.WithRules(t, nil)
	families := catalog.All()
	scope := func(name, job string, pairs ...string) labels.Labels {
		return labels.FromStrings(append([]string{"__name__", name, "job", job, "instance", "node-1:9400"}, pairs...)...)
	}
	play(situation, func(at time.Duration, all []*driver, v *gpu.View) {
		if at%interval != 0 {
			return
		}
		scrape := func(target string, do func(put func(labels.Labels, float64))) {
			must.OK(t, s.Scrape(context.Background(), target, v.At, do))
		}
		scrape("ours", func(put func(labels.Labels, float64)) {
			for _, f := range families {
				if f.Read == nil || down(at) {
					continue
				}
				names := f.AllLabels()
				f.Read(v, func(value float64, values ...string) {
					var pairs []string
					for i, x := range values {
						if x != "" {
							pairs = append(pairs, names[i], x)
						}
					}
					put(scope(f.Name, "gpu", pairs...), value)
				})
			}
		})
		scrape("theirs", func(put func(labels.Labels, float64)) {
			for i, d := range all {
				if down(at) {
					continue
				}
				pairs := []string{"gpu", strconv.Itoa(i), "UUID", string(d.g.UUID), "pci_bus_id", "00000000:18:00.0", "device",
					"nvidia" + strconv.Itoa(i),
					"modelName", d.g.Model, "Hostname", v.Node, "hostname", v.Node, "DCGM_FI_DRIVER_VERSION", "580.105.08"}
				// One series per GPU or instance, with the container that the kubelet lists last: transformation/kubernetes.go.
				emit := func(list []sample, pairs []string, who ...gpu.Container) {
					if len(who) > 0 {
						pairs = append(slices.Clone(pairs), "namespace", who[len(who)-1].Namespace, "pod", who[len(who)-1].Pod,
							"container", who[len(who)-1].Name)
					}
					for _, x := range list {
						put(scope(x.name, "gpu", slices.Concat(pairs, x.own)...), x.value)
					}
				}
				if situation != "mig" {
					emit(dcgm(d, at, nil), pairs, d.containers...)
				}
				for j := range d.g.Instances {
					if situation == "mig" {
						in := &d.g.Instances[j]
						emit(dcgm(d, at, in), append(slices.Clone(pairs), "GPU_I_ID", strconv.Itoa(in.GI), "GPU_I_PROFILE", in.Profile),
							d.containers[j])
					}
				}
				emit(smi(d), []string{"uuid", string(d.g.UUID)[len("GPU-"):]})
			}
		})
		scrape("kube-state-metrics", func(put func(labels.Labels, float64)) {
			for _, x := range [][3]string{{"ml", "train-0", "vision"}, {"web", "serve-0", "search"}} {
				put(scope("kube_pod_labels", "ksm", "namespace", x[0], "pod", x[1], "label_team", x[2], "label_a", "b"), 1)
				put(scope("kube_pod_info", "ksm", "namespace", x[0], "pod", x[1], "node", v.Node, "uid", "u-"+x[1]), 1)
			}
			put(scope("kube_node_info", "ksm", "node", v.Node), 1)
		})
	})
	return s
}
