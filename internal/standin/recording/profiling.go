package recording

import (
	"math"
	"slices"

	"github.com/gpu-exporter/gpu-exporter/internal/nvml/journal"
	"github.com/gpu-exporter/gpu-exporter/internal/standin/scenario"
)

// graphicsActive is the metric that reports how busy a GPU instance is.
const graphicsActive = 1

func (p *profiling) mean(id uint32) float64 {
	sum := 0.0
	for _, v := range p.values[id] {
		sum += v
	}
	return sum / float64(len(p.values[id]))
}

// writeProfiling writes why samples could not be taken, and the metrics. Instances share one line, so their code is
// written only where no instance could be sampled.
func (d *device) writeProfiling() {
	if line := d.last("GpmSampleAlloc"); line.Code != "" {
		d.refuse("GpmSampleAlloc", line)
	}
	d.refuse("GpmSampleGet", d.last("GpmSampleGet"))
	sampled, refused := false, journal.Line{}
	for _, line := range d.calls["nvmlGpmMigSampleGet"] {
		if line.Code == "SUCCESS" {
			sampled = true
		} else {
			refused = line
		}
	}
	switch {
	case refused.Code == "":
	case sampled:
		d.note("some of its instances could not be profiled (" + refused.Code +
			"), which a scenario cannot say of one alone.")
	default:
		d.refuse("GpmMigSampleGet", refused)
	}
	for _, line := range d.calls["nvmlGpmSampleGet"] {
		if len(line.Args) > 0 && line.Code != "SUCCESS" {
			d.note("some of its compute instances could not be profiled (" + line.Code +
				"), which a scenario cannot say of one alone.")
		}
	}
	var order []uint32
	for _, line := range d.calls["nvmlGpmMetricsGet"] {
		var metrics []journal.Metric
		if len(line.Args) == 2 {
			continue // of a compute instance, whose metrics are those of its GPU instance in a scenario
		}
		if !decode(line, &metrics) || len(line.Args) != 1 {
			d.recording.draft.System.Set("GpmMetricsGet", scenario.Code(line.Code))
			continue
		}
		p := d.profiled(int(line.Args[0]))
		for _, m := range metrics {
			if !slices.Contains(order, m.ID) {
				order = append(order, m.ID)
			}
			p.codes[m.ID] = m.Code
			if m.Code == "SUCCESS" && m.Value != nil {
				p.values[m.ID] = append(p.values[m.ID], *m.Value)
			}
		}
	}
	for _, id := range order {
		d.writeMetric(id)
	}
}

func (d *device) profiled(gi int) *profiling {
	at := slices.IndexFunc(d.gpm, func(p *profiling) bool { return p.gi == gi })
	if at < 0 {
		d.gpm = append(d.gpm, &profiling{gi: gi, values: map[uint32][]float64{}, codes: map[uint32]string{}})
		at = len(d.gpm) - 1
	}
	return d.gpm[at]
}

// writeMetric writes one metric. The GPU and its instances share one line: where they differ, it is the metric's
// share of the time in which graphics or compute was active, over all of them.
func (d *device) writeMetric(id uint32) {
	code := "NO_DATA"
	var values, actives []float64
	for _, p := range d.gpm {
		switch {
		case len(p.values[id]) > 0:
			values, actives = append(values, p.mean(id)), append(actives, p.mean(graphicsActive))
		case p.codes[id] != "" && p.codes[id] != "SUCCESS":
			code = p.codes[id]
		}
	}
	if len(values) == 0 {
		d.draft.Answers.Set("Gpm", scenario.Code(code), int64(id))
		return
	}
	d.metric = max(d.metric, int(id))
	total, active := 0.0, 0.0
	for i := range values {
		total += values[i]
		active += actives[i]
	}
	text, _ := scenario.Real(values[0])
	if slices.Max(values) != slices.Min(values) && active > 0 {
		ratio, _ := scenario.Real(math.Round(1e5*total/active) / 1e3)
		text = ratio + "*util"
	}
	d.draft.Answers.Set("Gpm", scenario.Numbers(text), int64(id))
}
