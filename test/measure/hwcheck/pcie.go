package hwcheck

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

const (
	// pcieEvery is how often the counters are read: at most 1.3 GB pass meanwhile at 64 GB/s, of the 4.3 that 32 bits hold.
	pcieEvery = 20 * time.Millisecond
	// pcieLate is the longest time between two reads that the rate of the others bridges.
	pcieLate = 500 * time.Millisecond
	// gpmEvery is the time between two GPM samples, that of the exporter's fast polls by default.
	gpmEvery = 2 * time.Second
	overflow = 1 << 32
)

// directions are the two ways over PCIe: sent and received by the GPU.
var directions = [2]struct {
	name, family string
	field        uint32
	rate, sum    nvml.GpmMetricId
}{
	{"sent", "gpu_pcie_transmit_bytes_total", nvml.FI_DEV_PCIE_COUNT_TX_BYTES, nvml.GPM_METRIC_PCIE_TX_PER_SEC,
		nvml.GPM_METRIC_PCIE_TX},
	{"received", "gpu_pcie_receive_bytes_total", nvml.FI_DEV_PCIE_COUNT_RX_BYTES, nvml.GPM_METRIC_PCIE_RX_PER_SEC,
		nvml.GPM_METRIC_PCIE_RX},
}

// pcieWatch is the PCIe traffic of a stage by the driver's counters, read so often that they overflow once at most between
// two reads, and what GPM has of the same time.
type pcieWatch struct {
	At    []float64    // Unix time of each read
	Raw   [][2]uint64  // the counters
	Bytes [][2]float64 `json:"-"` // counted since the first read, by direction
	Late  int          // reads after more than pcieLate
	Pairs []gpmPair
}

// gpmPair is what GPM and the counters have of the time between two samples. A value that is not offered is absent.
type gpmPair struct {
	Seconds   float64
	From, To  int         // the reads of the counters at the same time
	Rate, Sum [2]*float64 // bytes of ids 20 and 21, and of ids 255 and 256
}

// watchPCIe samples the counters of a GPU.
func watchPCIe(lib nvml.Interface, dev nvml.Device, length time.Duration) *pcieWatch {
	w := &pcieWatch{}
	values := []nvml.FieldValue{{FieldId: directions[0].field}, {FieldId: directions[1].field}}
	g := newGPMReader(lib, dev)
	defer g.free()
	for end := time.Now().Add(length); time.Now().Before(end); time.Sleep(pcieEvery) {
		before := time.Now()
		if dev.GetFieldValues(values) != nvml.SUCCESS || values[0].NvmlReturn != 0 || values[1].NvmlReturn != 0 {
			return w
		}
		w.At = append(w.At, seconds(before.Add(time.Since(before)/2)))
		w.Raw = append(w.Raw, [2]uint64{binary.LittleEndian.Uint64(values[0].Value[:]), binary.LittleEndian.Uint64(values[1].Value[:])})
		if pair, ok := g.read(len(w.At) - 1); ok {
			w.Pairs = append(w.Pairs, pair)
		}
	}
	return w
}

// count adds the steps up. One that was read late may hide overflows, which the median rate of the others shows.
func (w *pcieWatch) count() {
	w.Bytes, w.Late = make([][2]float64, len(w.At)), 0
	for d := range directions {
		steps, rates := []float64{}, []float64{}
		for i := 1; i < len(w.At); i++ {
			now, was := w.Raw[i][d], w.Raw[i-1][d]
			step := float64(now - was)
			if now < overflow && was < overflow {
				step = float64((now - was) % overflow)
			}
			steps, rates = append(steps, step), append(rates, step/(w.At[i]-w.At[i-1]))
		}
		slices.Sort(rates)
		for i, step := range steps {
			gap := w.At[i+1] - w.At[i]
			if w.Raw[i+1][d] < overflow {
				step += overflow * max(0, math.Round((rates[len(rates)/2]*gap-step)/overflow))
			}
			if gap > pcieLate.Seconds() && d == 0 {
				w.Late++
			}
			w.Bytes[i+1][d] = w.Bytes[i][d] + step
		}
	}
}

// gpmReader takes GPM samples of a GPU.
type gpmReader struct {
	lib     nvml.Interface
	dev     nvml.Device
	samples [2]nvml.GpmSample
	taken   time.Time
	at      int // the read of the counters of the newest sample
	sums    [2]*float64
}

func newGPMReader(lib nvml.Interface, dev nvml.Device) *gpmReader {
	g := &gpmReader{lib: lib, dev: dev}
	if s, ret := dev.GpmQueryDeviceSupport(); ret != nvml.SUCCESS || s.IsSupportedDevice == 0 {
		return g
	}
	for i := range g.samples {
		g.samples[i], _ = lib.GpmSampleAlloc()
	}
	return g
}

func (g *gpmReader) free() {
	for _, s := range g.samples {
		if s != nil {
			_ = s.Free()
		}
	}
}

// read takes a sample every gpmEvery, and returns what is known since the one before.
func (g *gpmReader) read(at int) (pair gpmPair, ok bool) {
	if g.samples[0] == nil || g.samples[1] == nil || time.Since(g.taken) < gpmEvery {
		return pair, false
	}
	now, was := time.Now(), g.at
	if g.samples[0].Get(g.dev) != nvml.SUCCESS {
		return pair, false
	}
	g.samples[0], g.samples[1] = g.samples[1], g.samples[0]
	window := now.Sub(g.taken).Seconds()
	first := g.taken.IsZero()
	g.taken, g.at = now, at
	if first {
		return pair, false
	}
	pair = gpmPair{Seconds: window, From: was, To: at}
	for i, d := range directions {
		if rate := g.metric(d.rate); rate != nil {
			*rate *= (1 << 20) * window
			pair.Rate[i] = rate
		}
		sum := g.metric(d.sum)
		if sum != nil && g.sums[i] != nil {
			grown := *sum - *g.sums[i]
			pair.Sum[i] = &grown
		}
		g.sums[i] = sum
	}
	return pair, true
}

// metric reads one metric in a call of its own: a driver may refuse a call for one that it does not know.
func (g *gpmReader) metric(id nvml.GpmMetricId) *float64 {
	m := nvml.GpmMetricsGetType{NumMetrics: 1, Sample1: g.samples[0], Sample2: g.samples[1]}
	m.Metrics[0].MetricId = uint32(id)
	if g.lib.GpmMetricsGet(&m) != nvml.SUCCESS || nvml.Return(m.Metrics[0].NvmlReturn) != nvml.SUCCESS {
		return nil
	}
	v := m.Metrics[0].Value
	return &v
}

// at is what was counted until a Unix time.
func (w *pcieWatch) at(t float64, direction int) float64 {
	for i := 1; i < len(w.At); i++ {
		if w.At[i] >= t {
			share := (t - w.At[i-1]) / (w.At[i] - w.At[i-1])
			return w.Bytes[i-1][direction] + share*(w.Bytes[i][direction]-w.Bytes[i-1][direction])
		}
	}
	return w.Bytes[len(w.Bytes)-1][direction]
}

// pcieStage is copies in one direction at one rate.
type pcieStage struct {
	stage, mode string
	direction   int
	rate        float64
}

// pcieStages are the copies: at rates at which the counters overflow twice and twelve times in a fast poll, and as fast as
// the machine can.
func pcieStages() (out []pcieStage) {
	for _, way := range []pcieStage{{"copies to the GPU", "h2d", 1, 0}, {"copies from the GPU", "d2h", 0, 0}} {
		for _, at := range []struct {
			name string
			rate float64
		}{{"5 GB/s", 5e9}, {"26 GB/s", 26e9}, {"the maximum", 1e12}} {
			out = append(out, pcieStage{way.stage + " at " + at.name, way.mode, way.direction, at.rate})
		}
	}
	return out
}

// run watches the counters from the process of the probe while the exporter is observed.
func (s pcieStage) run(r *run, ctx context.Context, e *exporter, p *period) error {
	if err := r.start(p, roleCopy, "", nil, s.mode, format(s.rate)); err != nil {
		return err
	}
	r.settle(ctx)
	// The probe begins before the first reading that counts, and ends after the last.
	early := time.Duration(1.5 * p.fast * float64(time.Second))
	type result struct {
		*probed
		error
	}
	done := make(chan result, 1)
	go func() {
		got, err := r.probe(ctx, p.uuid, "--pcie="+(r.period+2*early+time.Second).String())
		done <- result{got, err}
	}()
	select {
	case <-ctx.Done():
	case <-time.After(early):
	}
	err := observe(ctx, e, r.smi, r.period, p, func() {})
	if err == nil {
		err = p.loads[roleCopy].exited()
	}
	got := <-done
	if err = errors.Join(err, got.error); err != nil {
		return err
	}
	p.watched = got.PCIe[""]
	p.watched.count()
	p.probe = &probed{PCIe: map[string]*pcieWatch{s.stage: p.watched}}
	return nil
}

// copyPeer copies to another GPU over NVLink.
func (r *run) copyPeer(ctx context.Context, e *exporter, p *period) error {
	if err := r.start(p, roleCopy, "", nil, "p2p", "2e9"); err != nil {
		return err
	}
	r.settle(ctx)
	return observe(ctx, e, r.smi, r.period, p, func() {})
}

// referee is the mean rate of the counters over the period.
func (p *period) referee(direction int) (float64, error) {
	from, to := p.bounds()
	w := p.watched
	switch {
	case w == nil || len(w.At) < 2:
		return 0, errors.New("the driver has no PCIe byte counters (fields 197 and 198)")
	case w.Late > 0:
		return 0, fmt.Errorf("%d reads of the counters were more than %v after the one before", w.Late, pcieLate)
	case from < w.At[0] || to > w.At[len(w.At)-1]:
		return 0, errors.New("the period is not within that of the counters")
	}
	return (w.at(to, direction) - w.at(from, direction)) / (to - from), nil
}

// exportedPCIe is the exported rate; where it is withheld for a reason that is the error.
func exportedPCIe(direction int) func(p *period) (float64, error) {
	return func(p *period) (float64, error) {
		v, err := p.rate(directions[direction].family)
		if err == nil {
			return v, nil
		}
		for _, s := range p.after.find("gpu_unmeasured_info", equal("uuid", p.uuid), equal("reading", "pcie_bytes")) {
			return 0, fmt.Errorf("withheld: %s", s.Get("reason"))
		}
		return 0, wrong("neither %s nor a reason in gpu_unmeasured_info", directions[direction].family)
	}
}

// gpmError returns by how much GPM's bytes differ from those counted, relative to them, at its worst.
func gpmError(direction int, of func(pair gpmPair) *float64) func(p *period) (float64, error) {
	return func(p *period) (float64, error) {
		worst, residual, n := 0.0, 0.0, 0
		if _, err := p.referee(direction); err != nil {
			return 0, err
		}
		for _, pair := range p.watched.Pairs {
			v, counted := of(pair), p.watched.Bytes[pair.To][direction]-p.watched.Bytes[pair.From][direction]
			if v == nil || counted == 0 {
				continue
			}
			n++
			if e := (*v - counted) / counted; math.Abs(e) > math.Abs(worst) {
				worst, residual = e, (*v-counted)/overflow
			}
		}
		if n == 0 {
			return 0, errors.New("GPM does not offer it here")
		}
		p.remark(fmt.Sprintf("periods: %d, off by %.3g overflows of 32 bits at worst", n, residual))
		return 100 * worst, nil
	}
}

// pcieClaims are the same for each of the copies.
func pcieClaims() (out []claim) {
	for _, s := range pcieStages() {
		d := s.direction
		name := func(what string) string { return what + ", " + s.stage }
		counted := func(p *period) (float64, error) { return p.referee(d) }
		out = append(out,
			claim{name: name("PCIe bytes exported"), stage: s.stage, bound: exactly, relative: 0.005,
				against: "bytes per second by the counters, read every 20 ms", because: "the edges meet two reads",
				measured: exportedPCIe(d), expected: counted},
			// PCIe counts headers too: 24 to 28 bytes for a payload of 128 or 256.
			claim{name: name("PCIe bytes counted"), stage: s.stage, bound: exactly, relative: 0.12,
				against: "bytes per second copied, and 10 % for headers", because: "headers are 9 to 22 %",
				measured: counted, expected: copied(roleCopy, 1.1)},
			claim{name: name("GPM rate of PCIe"), stage: s.stage, bound: exactly, tolerance: 1,
				against: "percent off the counters, ids 20 and 21", because: "at 1 % overflows are resolved up to 100 GB/s",
				measured: gpmError(d, func(pair gpmPair) *float64 { return pair.Rate[d] }), expected: is(0)},
			claim{name: name("GPM sum of PCIe"), stage: s.stage, bound: exactly, tolerance: 1,
				against: "percent off the counters, ids 255 and 256", because: "the two are read a moment apart",
				measured: gpmError(d, func(pair gpmPair) *float64 { return pair.Sum[d] }), expected: is(0)})
	}
	return out
}
