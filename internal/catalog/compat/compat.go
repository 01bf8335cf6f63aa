// Package compat renders the catalog with the names, units and labels of dcgm-exporter, so that dashboards, alerts,
// autoscalers and recording rules written for it keep working.
//
// Nothing is measured here: each row of table.csv names families of the catalog, which are read through the catalog's
// own readers and scaled. Package guide renders the documentation of the same rows, with what is missing.
//
// Sources of the names: for 4.8 the collector file of its releases and NVIDIA's list of DCGM fields; for 4.9 its
// release notes (renamed fields, units, the label of the driver version), the field list of DCGM 4.7 and the table of base-unit
// fields in NVIDIA's Go bindings. A name without a public source is not used.
package compat

import (
	"fmt"
	"slices"

	"github.com/gpu-exporter/gpu-exporter/internal/catalog"
	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// New returns a page. The error is an unknown release or label, or an invalid row.
func New(o Options) (*Page, error) {
	if !slices.Contains(Releases(), string(o.Release)) {
		return nil, fmt.Errorf("unknown release %q; supported: %v", o.Release, Releases())
	}
	rows, err := table(o.Release)
	if err != nil {
		return nil, err
	}
	p := &Page{Options: o, families: map[string]catalog.Family{}, rows: rows}
	p.choose()
	for _, f := range catalog.All() {
		p.families[f.Name] = f
	}
	for _, row := range p.rows {
		for _, f := range []*Figure{row.GPU, row.Instance, row.Container} {
			if f == nil {
				continue
			}
			if err := f.check(p.families); err != nil {
				return nil, fmt.Errorf("%s: %w", row.Name, err)
			}
		}
	}
	return p, nil
}

// With returns a page of other options that has the history of this one.
func (p *Page) With(o Options) (*Page, error) {
	out, err := New(o)
	if err == nil {
		out.history.Store(p.history.Load())
	}
	return out, err
}

// Rows returns the rows of the table, in its order.
func (p *Page) Rows() []Row { return p.rows }

// Families returns the rows as the collector takes them, in the order of the table.
func (p *Page) Families() []catalog.Family {
	out := make([]catalog.Family, 0, len(p.rows))
	for _, r := range p.rows {
		out = append(out, catalog.Family{
			Name: r.name(), Type: r.Type, Help: r.helpText(), Scope: catalog.ScopeCompat,
			Labels: append(p.labelNames(), r.own()...), Stability: catalog.Stable,
			Read: func(v *gpu.View, emit catalog.Emit) { p.read(&r, v, emit) },
		})
		if p.Release == NvidiaSMI && p.families[r.GPU.Of[0].Name].Scope == catalog.ScopeInstance {
			out[len(out)-1].Labels = []string{"uuid", "gpu_instance_id"}
			out[len(out)-1].Read = func(v *gpu.View, emit catalog.Emit) { p.readInstances(&r, v, emit) }
		}
	}
	if p.Release == NvidiaSMI {
		out = append(out, smiFamilies()...)
	}
	return out
}

// read emits the series of a row.
func (p *Page) read(r *Row, v *gpu.View, emit catalog.Emit) {
	f := p.frameOf(v)
	scale := r.scale()
	ofGPU, ofInstance, ofContainer := r.GPU.read(p, v), r.Instance.read(p, v), r.Container.read(p, v)
	show := func(d *device, in *instance, to gpu.Container, readings []reading) {
		for _, x := range readings {
			emit(scale(x.value), p.labels(f, d, in, to, x.own)...)
		}
	}
	none := gpu.Container{}
	for i := range f.gpus {
		d := &f.gpus[i]
		if !d.exclusive() && !r.repeated() {
			show(d, &instance{}, none, ofGPU[key{gpu: d.uuid}])
			continue
		}
		for j := range d.parts {
			in := &d.parts[j]
			readings := ofGPU[key{gpu: d.uuid}]
			if r.Instance != nil && in.uuid != "" {
				readings = ofInstance[key{gpu: d.uuid, instance: in.uuid}]
			}
			switch n := len(in.containers); {
			case n == 1:
				show(d, in, in.containers[0], readings)
			case n == 0 || n > MaxRepeats || r.Container != nil:
				show(d, in, none, readings)
			default:
				for _, to := range in.containers {
					show(d, in, to, readings)
				}
			}
			if r.Container == nil || len(in.containers) < 2 {
				continue
			}
			// Beside a shared device is each container's own part, as in dcgm-exporter.
			for _, to := range in.containers {
				if d.count[to] == 1 { // otherwise it is unknown in which part of the GPU it was active
					show(d, in, to, ofContainer[key{gpu: d.uuid, container: to}])
				}
			}
		}
	}
}

// MaxRepeats is the maximum number of containers of one GPU or instance for which its readings are repeated; above,
// they occur once. Otherwise a node with some hundred containers would have a page of tens of megabytes.
const MaxRepeats = 16
