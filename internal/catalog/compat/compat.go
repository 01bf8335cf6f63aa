// Package compat renders the catalog under the names, units and labels of dcgm-exporter, so that what was
// written for it (dashboards, alerts, autoscalers, recording rules) goes on working on the day of the switch.
//
// Nothing is measured here: each row names families of the catalog, reads them through the catalog's own
// readers and scales them. What those families cannot say has no row; it stands in the list of what is
// missing, with its reason. docs/compatibility-dcgm.md is generated from the same rows.
//
// Where the names come from: those of 4.8 from the collector file that its releases ship and from NVIDIA's
// list of DCGM fields; those of 4.9 from its release notes (which fields are renamed, their units, the label
// of the driver version), from the field list of DCGM 4.7 and from the table of base-unit fields in NVIDIA's
// Go bindings. A name without a public source is not used.
package compat

import (
	"fmt"
	"sync/atomic"

	"github.com/gpu-exporter/gpu-exporter/internal/catalog"
	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// Release is a release of dcgm-exporter whose exposition is rendered.
type Release string

// The releases. 4.8 stands for 4.8.0 to 4.8.4; 4.9 renamed 22 of its families and a label.
const (
	DCGM48 Release = "dcgm-4.8"
	DCGM49 Release = "dcgm-4.9"
)

// Releases lists them all, as a flag spells them.
func Releases() []string { return []string{string(DCGM48), string(DCGM49)} }

// Path is where the exposition is served.
const Path = "/metrics/dcgm"

// Page renders one release. Published is for one goroutine; everything else is safe for concurrent use.
type Page struct {
	release  Release
	families map[string]catalog.Family
	rows     []row
	past     atomic.Pointer[past]
	frame    atomic.Pointer[frame] // of the view that was rendered last
}

// New returns the page of a release. The error is a release that is not known, or a broken row.
func New(r Release) (*Page, error) {
	if r != DCGM48 && r != DCGM49 {
		return nil, fmt.Errorf("no release %q of dcgm-exporter is known; there are %v", r, Releases())
	}
	p := &Page{release: r, families: map[string]catalog.Family{}, rows: table()}
	for _, f := range catalog.All() {
		p.families[f.Name] = f
	}
	for _, row := range p.rows {
		for _, f := range row.figures() {
			if err := f.check(p.families); err != nil {
				return nil, fmt.Errorf("%s: %w", row.name, err)
			}
		}
	}
	return p, nil
}

// Families returns the rows as the collector takes them, in the order of the table.
func (p *Page) Families() []catalog.Family {
	out := make([]catalog.Family, 0, len(p.rows))
	for _, r := range p.rows {
		out = append(out, catalog.Family{
			Name: r.nameIn(p.release), Type: r.typ, Help: r.helpIn(p.release), Scope: catalog.ScopeCompat,
			Labels: append(labelsOf(p.release), r.own()...), Stability: catalog.Stable,
			Read: func(v *gpu.View, emit catalog.Emit) { p.read(&r, v, emit) },
		})
	}
	return out
}

// read emits the series of a row.
func (p *Page) read(r *row, v *gpu.View, emit catalog.Emit) {
	f := p.frameOf(v)
	scale := r.unit.scaleIn(p.release, r.renamed != "")
	whole := r.dev.read(p, v)
	inside := r.instance.read(p, v)
	parts := r.tenant.read(p, v)
	show := func(c *dev, in *instance, who gpu.Container, readings []reading) {
		for _, x := range readings {
			emit(scale(x.value), c.labels(in, who, x.own)...)
		}
	}
	nobody := gpu.Container{}
	for i := range f.devs {
		c := &f.devs[i]
		if !c.alone() && !r.copied() {
			show(c, &instance{}, nobody, whole[key{dev: c.uuid}])
			continue
		}
		for j := range c.parts {
			in := &c.parts[j]
			readings := whole[key{dev: c.uuid}]
			if r.instance != nil && in.uuid != "" {
				readings = inside[key{dev: c.uuid, instance: in.uuid}]
			}
			switch n := len(in.holders); {
			case n == 1:
				show(c, in, in.holders[0], readings)
			case n == 0 || n > mostCopies || r.tenant != nil:
				show(c, in, nobody, readings)
			default:
				for _, who := range in.holders {
					show(c, in, who, readings)
				}
			}
			if r.tenant == nil || len(in.holders) < 2 {
				continue
			}
			// Beside a shared device stands each tenant with its own part, as that exporter has it.
			for _, who := range in.holders {
				if c.held[who] == 1 { // else nobody can tell in which of its parts it worked
					show(c, in, who, parts[key{dev: c.uuid, container: who}])
				}
			}
		}
	}
}

// mostCopies is how many holders of one GPU or instance have a copy each of its readings. Where there are more, the
// readings stand once: a node of some hundred tenants would else make a page of tens of megabytes.
const mostCopies = 16
