package hwcheck

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"os/exec"
	"slices"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-exporter/gpu-exporter/internal/nvml/direct"
)

// probed is what one GPU's driver returns to direct calls, by a process of its own (RunProbe): a call that hangs or
// crashes is an error of that process. It is saved beside the report.
type probed struct {
	// Fields are all field values with each scope, read twice.
	Fields []fieldAnswer
	// Ring is the ring of GPU utilization at the end, and Reads the process samples that were read again and again.
	Ring  []ringSample
	Reads []processRead
	// BAR1 and Memory are totals in bytes, 0 where not offered.
	BAR1, Memory uint64
	// Rings are all sample rings by kind, and Long those of GPU utilization as a buffer longer than the ring has them,
	// without a query for their number.
	Rings map[string][]ringSample
	Long  []ringSample
	// PCIe is what the counters and GPM did, by stage.
	PCIe map[string]*pcieWatch
}

// with adds what another probe read.
func (p *probed) with(q *probed) *probed {
	if p == nil {
		return q
	}
	out := *p
	if len(q.Fields) > 0 {
		out.Fields = q.Fields
	}
	if len(q.Reads) > 0 {
		out.Ring, out.Reads = q.Ring, q.Reads
	}
	if len(q.Rings) > 0 {
		out.Rings, out.Long = q.Rings, q.Long
	}
	out.PCIe = maps.Clone(p.PCIe)
	if out.PCIe == nil {
		out.PCIe = map[string]*pcieWatch{}
	}
	maps.Copy(out.PCIe, q.PCIe)
	return &out
}

// fieldAnswer is one entry of nvmlDeviceGetFieldValues.
type fieldAnswer struct {
	ID, Scope uint32
	Round     int
	Code      nvml.Return
	Type      nvml.ValueType
	Raw       uint64 // the 8 bytes of the union, little-endian
	Time      int64  // microseconds
	Wall      int64  // when the call returned, Unix microseconds
	Latency   int64  // of the call, microseconds
}

type ringSample struct {
	Time  uint64 // microseconds
	Value uint64
}

// processRead is a call of nvmlDeviceGetProcessUtilization for what is newer than the call before.
type processRead struct {
	Window  float64 // seconds since the call before, as intended
	From    uint64  // time of the ring's newest sample at the call before, microseconds
	Ring    float64 // busy seconds of the ring's samples within
	Samples []processSample
}

type processSample struct {
	PID  uint32
	Time uint64
	SM   uint32
}

// windows are the intervals, in seconds, at which process samples are read.
var windows = []float64{0.2, 0.5, 1, 2, 5}

// probeOptions are what RunProbe gets as arguments.
type probeOptions struct {
	library, uuid string
	processes     float64 // windows of process samples beyond are left out; 0: all
	sweep, rings  bool
	pcie          time.Duration // for how long to sample the PCIe counters
}

// probe runs RunProbe in a process of its own.
func (c config) probe(ctx context.Context, uuid string, what ...string) (*probed, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	args := c.prefix(self, append([]string{"probe", "--library=" + c.library, "--uuid=" + uuid}, what...)...)
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.WaitDelay = time.Second
	out, err := cmd.Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		err = fmt.Errorf("%w: %s", err, firstLine(string(exit.Stderr)))
	}
	if err != nil {
		return nil, fmt.Errorf("probe the driver: %w", err)
	}
	p := &probed{}
	return p, json.Unmarshal(out, p)
}

// RunProbe makes direct calls of NVML on one GPU and writes what they return as JSON.
func RunProbe(args []string, stdout io.Writer) error {
	var o probeOptions
	f := flag.NewFlagSet("probe", flag.ContinueOnError)
	f.StringVar(&o.library, "library", "", "")
	f.StringVar(&o.uuid, "uuid", "", "")
	f.Float64Var(&o.processes, "processes", 0, "")
	f.BoolVar(&o.sweep, "sweep", false, "")
	f.BoolVar(&o.rings, "rings", false, "")
	f.DurationVar(&o.pcie, "pcie", 0, "")
	if err := f.Parse(args); err != nil {
		return err
	}
	var options []nvml.LibraryOption
	if o.library != "" {
		options = append(options, nvml.WithLibraryPath(o.library))
	}
	lib := nvml.New(options...)
	if ret := lib.Init(); ret != nvml.SUCCESS {
		return fmt.Errorf("nvmlInit: %w", ret)
	}
	defer func() { _ = lib.Shutdown() }()
	dev, ret := lib.DeviceGetHandleByUUID(o.uuid)
	if ret != nvml.SUCCESS {
		return fmt.Errorf("nvmlDeviceGetHandleByUUID: %w", ret)
	}
	p := probed{}
	if bar1, ret := dev.GetBAR1MemoryInfo(); ret == nvml.SUCCESS {
		p.BAR1 = bar1.Bar1Total
	}
	if memory, ret := dev.GetMemoryInfo(); ret == nvml.SUCCESS {
		p.Memory = memory.Total
	}
	if o.pcie > 0 {
		p.PCIe = map[string]*pcieWatch{"": watchPCIe(lib, dev, o.pcie)}
		return json.NewEncoder(stdout).Encode(p)
	}
	if o.sweep {
		p.sweep(dev, 0)
	}
	if o.processes > 0 {
		p.readProcesses(dev, o.processes)
	}
	p.Ring = readRing(dev, nvml.GPU_UTILIZATION_SAMPLES)
	if o.rings {
		p.readRings(dev)
	}
	if o.sweep {
		time.Sleep(sweepPause)
		p.sweep(dev, 1)
	}
	return json.NewEncoder(stdout).Encode(p)
}

// encode is what is saved of it: of the fields those with a value.
func (p *probed) encode() ([]byte, error) {
	q := *p
	q.Fields = slices.DeleteFunc(slices.Clone(p.Fields), func(a fieldAnswer) bool { return a.Code != nvml.SUCCESS })
	text, err := json.Marshal(q)
	return append(text, '\n'), err
}

// scopes are those of any field: none or link 0 or the GPU's power, further links and power scopes, and all links.
func scopes() []uint32 {
	var out []uint32
	for s := range uint32(18) {
		out = append(out, s)
	}
	return append(out, math.MaxUint32)
}

// slowField is the longest that a batch of fields may take.
const slowField = 50 * time.Millisecond

// sweepPause is the time between two sweeps, in which counters move.
const sweepPause = 2 * time.Second

// sweepBatch is how many fields are read at once.
const sweepBatch = 8

// sweep reads every field that go-nvml knows with every scope. Some drivers refuse a batch for one of its entries: such
// a batch is read field by field.
func (p *probed) sweep(dev nvml.Device, round int) {
	read := func(first, last uint32, whole bool) bool {
		var batch []nvml.FieldValue
		for id := first; id <= last; id++ {
			for _, scope := range scopes() {
				batch = append(batch, nvml.FieldValue{FieldId: id, ScopeId: scope})
			}
		}
		var ret nvml.Return
		var end time.Time
		took := time.Hour
		// A call that took long is made again: what interrupted this process is not the driver's latency.
		for again := 0; again < 2 && took > slowField/2; again++ {
			start := time.Now()
			ret, end = dev.GetFieldValues(batch), time.Now()
			took = min(took, end.Sub(start))
		}
		if whole && ret != nvml.SUCCESS {
			return false
		}
		for _, v := range batch {
			a := fieldAnswer{ID: v.FieldId, Scope: v.ScopeId, Round: round, Code: nvml.Return(v.NvmlReturn),
				Type: nvml.ValueType(v.ValueType), Raw: binary.LittleEndian.Uint64(v.Value[:]), Time: v.Timestamp,
				Wall: end.UnixMicro(), Latency: took.Microseconds()}
			if ret != nvml.SUCCESS {
				a.Code = ret
			}
			p.Fields = append(p.Fields, a)
		}
		return true
	}
	for first := uint32(1); first < nvml.FI_MAX; first += sweepBatch {
		last := min(first+sweepBatch, nvml.FI_MAX) - 1
		if read(first, last, true) {
			continue
		}
		for id := first; id <= last; id++ {
			read(id, id, false)
		}
	}
}

// kinds are the sample rings, by NVML's name.
var kinds = map[string]nvml.SamplingType{"GPU": nvml.GPU_UTILIZATION_SAMPLES, "memory": nvml.MEMORY_UTILIZATION_SAMPLES,
	"encoder": nvml.ENC_UTILIZATION_SAMPLES, "decoder": nvml.DEC_UTILIZATION_SAMPLES}

// readRings reads every ring with a buffer of its size, and that of GPU utilization with one that is longer.
func (p *probed) readRings(dev nvml.Device) {
	// A GPU that was idle and closed until now begins with empty rings: wait until they are full.
	for n, limit := -1, 60; limit > 0; limit-- {
		ring := readRing(dev, nvml.GPU_UTILIZATION_SAMPLES)
		if len(ring) == n {
			break
		}
		n = len(ring)
		time.Sleep(time.Second)
	}
	p.Rings = map[string][]ringSample{}
	for name, kind := range kinds {
		if ring := readRing(dev, kind); len(ring) > 0 {
			p.Rings[name] = ring
		}
	}
	buffer := make([]nvml.Sample, 1024)
	if kind, n, ret, ok := direct.Samples(dev, nvml.GPU_UTILIZATION_SAMPLES, 0, buffer); ok && ret == nvml.SUCCESS {
		p.Long = ringOf(kind, buffer[:n])
	}
}

func readRing(dev nvml.Device, of nvml.SamplingType) []ringSample {
	kind, samples, ret := dev.GetSamples(of, 0)
	if ret != nvml.SUCCESS {
		return nil
	}
	return ringOf(kind, samples)
}

func ringOf(kind nvml.ValueType, samples []nvml.Sample) (out []ringSample) {
	for _, s := range samples {
		if s.TimeStamp == 0 {
			continue
		}
		v := binary.LittleEndian.Uint64(s.SampleValue[:])
		if kind == nvml.VALUE_TYPE_UNSIGNED_INT {
			v &= math.MaxUint32
		}
		out = append(out, ringSample{s.TimeStamp, v})
	}
	return out
}

// readProcesses reads process samples in each of the windows, for at least a second each, and what the ring has of the
// same time.
func (p *probed) readProcesses(dev nvml.Device, longest float64) {
	newest := func() (at uint64) {
		if ring := readRing(dev, nvml.GPU_UTILIZATION_SAMPLES); len(ring) > 0 {
			at = ring[len(ring)-1].Time
		}
		return at
	}
	for _, window := range windows {
		if window > longest {
			continue
		}
		last := newest()
		for range max(1, int(math.Round(1/window))) {
			time.Sleep(time.Duration(window * float64(time.Second)))
			read := processRead{Window: window, From: last}
			samples, ret := dev.GetProcessUtilization(last)
			ring := readRing(dev, nvml.GPU_UTILIZATION_SAMPLES)
			if ret == nvml.SUCCESS {
				for _, s := range samples {
					read.Samples = append(read.Samples, processSample{s.Pid, s.TimeStamp, s.SmUtil})
				}
			}
			period := ringPeriod(ring)
			for _, s := range ring {
				if s.Time > last {
					read.Ring += float64(s.Value) / 100 * period
					last = s.Time
				}
			}
			p.Reads = append(p.Reads, read)
		}
	}
}

// ringPeriod is the median time between two samples, in seconds.
func ringPeriod(ring []ringSample) float64 {
	var gaps []uint64
	for i := 1; i < len(ring); i++ {
		gaps = append(gaps, ring[i].Time-ring[i-1].Time)
	}
	if len(gaps) == 0 {
		return 0
	}
	slices.Sort(gaps)
	return float64(gaps[len(gaps)/2]) / 1e6
}

// prefix is a command line behind that of --under.
func (c config) prefix(program string, args ...string) []string {
	return append(append(slices.Clone(c.under), program), args...)
}
