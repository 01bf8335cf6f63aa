// Package gpm pairs the samples of NVML's GPU performance monitoring and reads the metrics between the two of a pair. It
// makes no driver call.
package gpm

import (
	"math"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

const (
	// shortest is the shortest time between two samples that NVML's documentation allows.
	shortest = 100 * time.Millisecond
	// Longest is the longest time between two samples of a GPU. DCGM pairs samples up to twice its update interval and a
	// second apart (GetDerivedMaxSampleAge in dcgmlib/src/DcgmGpmManager.cpp of NVIDIA/DCGM@72fa3fe), which is 61 s at the
	// default of dcgm-exporter and two minutes at an interval of one.
	Longest = 2 * time.Minute
)

// metrics are the metrics that are read.
var metrics = []struct {
	id nvml.GpmMetricId
	at func(*gpu.GPM) *gpu.Opt[gpu.Ratio]
	// rate is in place of at for what is measured in MiB/s, sum for what is counted since reboot, of the GPU alone.
	rate, sum func(*gpu.GPM) *gpu.Opt[float64]
}{
	{id: nvml.GPM_METRIC_GRAPHICS_UTIL, at: func(g *gpu.GPM) *gpu.Opt[gpu.Ratio] { return &g.GraphicsActive }},
	{id: nvml.GPM_METRIC_SM_UTIL, at: func(g *gpu.GPM) *gpu.Opt[gpu.Ratio] { return &g.SMActive }},
	{id: nvml.GPM_METRIC_SM_OCCUPANCY, at: func(g *gpu.GPM) *gpu.Opt[gpu.Ratio] { return &g.SMOccupancy }},
	{id: nvml.GPM_METRIC_INTEGER_UTIL, at: func(g *gpu.GPM) *gpu.Opt[gpu.Ratio] { return &g.IntegerActive }},
	{id: nvml.GPM_METRIC_ANY_TENSOR_UTIL, at: func(g *gpu.GPM) *gpu.Opt[gpu.Ratio] { return &g.TensorActive }},
	{id: nvml.GPM_METRIC_DRAM_BW_UTIL, at: func(g *gpu.GPM) *gpu.Opt[gpu.Ratio] { return &g.DRAMActive }},
	{id: nvml.GPM_METRIC_FP64_UTIL, at: func(g *gpu.GPM) *gpu.Opt[gpu.Ratio] { return &g.FP64Active }},
	{id: nvml.GPM_METRIC_FP32_UTIL, at: func(g *gpu.GPM) *gpu.Opt[gpu.Ratio] { return &g.FP32Active }},
	{id: nvml.GPM_METRIC_FP16_UTIL, at: func(g *gpu.GPM) *gpu.Opt[gpu.Ratio] { return &g.FP16Active }},
	{id: nvml.GPM_METRIC_PCIE_TX_PER_SEC, rate: func(g *gpu.GPM) *gpu.Opt[float64] { return &g.PCIeTransmit }},
	{id: nvml.GPM_METRIC_PCIE_RX_PER_SEC, rate: func(g *gpu.GPM) *gpu.Opt[float64] { return &g.PCIeReceive }},
	// "The PCIe TX traffic since reboot" (nvml.h of CUDA 13.4, in go-nvml v0.13.4-0); R580 and older have IDs below 210.
	{id: nvml.GPM_METRIC_PCIE_TX, sum: func(g *gpu.GPM) *gpu.Opt[float64] { return &g.PCIeTransmitted }},
	{id: nvml.GPM_METRIC_PCIE_RX, sum: func(g *gpu.GPM) *gpu.Opt[float64] { return &g.PCIeReceived }},
}

// Pair is two samples of one subject, used in turn.
type Pair struct {
	Samples [2]nvml.GpmSample
	Taken   time.Time // when the newest was taken; zero: there is none
	newest  int
	dropped [16]bool // metrics that the subject does not offer, by their place in metrics
	noSums  bool
}

// Early reports whether it is too early for another sample.
func (p *Pair) Early(now time.Time) bool {
	return !p.Taken.IsZero() && now.Sub(p.Taken) >= 0 && now.Sub(p.Taken) < shortest
}

// Next returns the older sample, which is overwritten next.
func (p *Pair) Next() nvml.GpmSample { return p.Samples[1-p.newest] }

// Both returns the older sample and the newest.
func (p *Pair) Both() (older, newest nvml.GpmSample) {
	return p.Samples[1-p.newest], p.Samples[p.newest]
}

// Add makes the sample of Next the newest. It returns the period since the previous one, and whether the two are a pair:
// two that are further apart than longest are none.
func (p *Pair) Add(now time.Time, longest time.Duration) (window time.Duration, ok bool) {
	window, seeded := now.Sub(p.Taken), !p.Taken.IsZero()
	p.newest, p.Taken = 1-p.newest, now
	return window, seeded && window >= shortest && window <= longest
}

// Reset makes the next sample the first of a pair.
func (p *Pair) Reset() { p.Taken = time.Time{} }

// DropSums leaves the sums since reboot out for good; false if they were left out before.
func (p *Pair) DropSums() bool {
	was := p.noSums
	p.noSums = true
	return !was
}

// Retry makes all metrics be read once more.
func (p *Pair) Retry() { p.dropped = [16]bool{} }

// Request is a query for the metrics of a pair. It is reused.
type Request struct {
	Metrics []nvml.GpmMetric
	place   []int // in metrics
}

// Fill asks for the metrics that the pair's subject offers, with the rates if it is a GPU. It returns false if there are
// none.
func (r *Request) Fill(p *Pair, rates bool) bool {
	r.Metrics, r.place = r.Metrics[:0], r.place[:0]
	for i, m := range metrics {
		if p.dropped[i] || m.at == nil && !rates || m.sum != nil && p.noSums {
			continue
		}
		r.Metrics, r.place = append(r.Metrics, nvml.GpmMetric{MetricId: uint32(m.id)}), append(r.place, i)
	}
	return len(r.Metrics) > 0
}

// Read returns the metrics that the driver filled in; absent if it has none. refused gets the code of each other one and
// reports whether the subject does not offer it.
func (r *Request) Read(p *Pair, window time.Duration, refused func(nvml.Return) bool) gpu.Opt[gpu.GPM] {
	g, known := gpu.GPM{Window: window}, false
	for n, m := range r.Metrics {
		i := r.place[n]
		if code := nvml.Return(m.NvmlReturn); code != nvml.SUCCESS {
			p.dropped[i] = refused(code)
			continue
		}
		if math.IsNaN(m.Value) || math.IsInf(m.Value, 0) {
			continue
		}
		switch of := metrics[i]; {
		case of.rate != nil:
			*of.rate(&g) = gpu.Some(m.Value * (1 << 20))
		case of.sum != nil:
			*of.sum(&g) = gpu.Some(m.Value)
		default:
			*of.at(&g) = gpu.Some(gpu.Ratio(m.Value / 100))
		}
		known = true
	}
	if !known {
		return gpu.None[gpu.GPM]()
	}
	return gpu.Some(g)
}
