package compat

import (
	"bytes"
	"cmp"
	"encoding/csv"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gpu-exporter/gpu-exporter/internal/catalog"
)

// labelType is the type of fields that are labels of all series.
const labelType = "label"

// collectorTypes are the types of fields (dcgm-exporter's internal/pkg/counters/variables.go at d5e5f51).
var collectorTypes = []string{"gauge", "counter", "histogram", "summary", labelType}

// ParseCollectors reads a collector file: on each line a field, a type and a help text; # begins a comment. The error names
// the line.
func ParseCollectors(text []byte) ([]Collector, error) {
	lines := csv.NewReader(bytes.NewReader(text))
	lines.Comment, lines.FieldsPerRecord, lines.TrimLeadingSpace = '#', -1, true
	records, err := lines.ReadAll()
	if err != nil {
		return nil, err
	}
	out := []Collector{}
	for i, r := range records {
		for j := range r {
			r[j] = strings.TrimSpace(r[j])
		}
		if len(r) != 3 {
			return nil, fmt.Errorf("record %d, %q: want a field, a type and a help text", i+1, strings.Join(r, ", "))
		}
		c := Collector{r[0], r[1], r[2]}
		if err := c.Check(); err != nil {
			return nil, err
		}
		out = append(out, c)
	}
	return out, nil
}

// Check finds names and types that dcgm-exporter refuses.
func (c *Collector) Check() error {
	if !strings.HasPrefix(strings.ToLower(c.Field), "dcgm_") { // in lower case in releases 1.x
		return fmt.Errorf("%q is no DCGM field", c.Field)
	}
	if !slices.Contains(collectorTypes, c.Type) {
		return fmt.Errorf("%s: unknown type %q, want %s", c.Field, c.Type, strings.Join(collectorTypes, ", "))
	}
	return nil
}

// ShippedCollectors are the fields of the collector files that dcgm-exporter's image has: both have the same.
func ShippedCollectors() ([]Collector, error) {
	rows, err := table(DCGM48)
	out := []Collector{{DCGM48.driverLabel(), labelType, ""}}
	for _, r := range rows {
		if r.Shipped == ByDefault {
			out = append(out, Collector{r.Name, string(r.Type), r.helpText()})
		}
	}
	return out, err
}

// driverLabel is the label of the driver's version.
func (r Release) driverLabel() string {
	if r == DCGM49 {
		return "DCGM_FI_SYSTEM_DRIVER_VERSION"
	}
	return "DCGM_FI_DRIVER_VERSION"
}

// choose reduces the page to its Collectors. A file with one renamed field has the labels of the later release.
func (p *Page) choose() {
	p.driver = p.Release.driverLabel()
	if p.Collectors == nil {
		return
	}
	all := p.rows
	p.Release, p.rows, p.DeviceLabels = DCGM48, nil, nil
	for _, c := range p.Collectors {
		if c.Field == DCGM49.driverLabel() {
			p.Release = DCGM49
		}
		i := slices.IndexFunc(all, func(r Row) bool { return c.Field == r.Name || c.Field == r.Renamed })
		known := slices.Contains(DeviceLabels(), c.Field)
		switch {
		case c.Type == labelType && known && !slices.Contains(p.DeviceLabels, c.Field):
			p.DeviceLabels = append(p.DeviceLabels, c.Field)
		case c.Type == labelType && (known || c.Field == DCGM48.driverLabel() || c.Field == DCGM49.driverLabel()):
		case c.Type == labelType || i < 0:
			p.absent = append(p.absent, c.Field)
		case slices.ContainsFunc(p.rows, func(r Row) bool { return r.name() == c.Field }): // a second line
		default:
			r := all[i]
			if r.in, r.Type = DCGM48, catalog.Type(c.Type); c.Field != r.Name {
				r.in, p.Release = DCGM49, DCGM49
			}
			r.help, r.chosen = cmp.Or(c.Help, r.helpText()), true
			if r.Type != catalog.Counter {
				r.Type = catalog.Gauge // a value is no histogram
			}
			p.rows = append(p.rows, r)
		}
	}
	p.driver = p.Release.driverLabel()
}

// Absent lists the Collectors that are not offered, in their order.
func (p *Page) Absent() []string { return p.absent }

// ParseDevices parses f, g, i, g:0,2-3 or i:1.
func ParseDevices(text string) (d Devices, err error) {
	kind, numbers, ranged := strings.Cut(text, ":")
	if !slices.Contains([]string{"f", "g", "i"}, kind) || ranged && kind == "f" {
		return d, fmt.Errorf("%q: want f, g, i, or g or i with a range, such as g:0,2-3", text)
	}
	if kind != "f" {
		d.Kind = kind
	}
	if !ranged {
		return d, nil
	}
	for part := range strings.SplitSeq(numbers, ",") {
		first, last, more := strings.Cut(part, "-")
		from, err := strconv.Atoi(first)
		to := from
		if more && err == nil {
			to, err = strconv.Atoi(last)
		}
		if err != nil || to < from || to > maxDevice {
			return d, fmt.Errorf("%q: %q is no number from 0 to %d and no range of such", text, part, maxDevice)
		}
		for i := from; i <= to; i++ {
			d.Numbers = append(d.Numbers, i)
		}
	}
	return d, nil
}

// maxDevice is above what a node has: ranges beyond are mistakes.
const maxDevice = 1023

// gpu reports whether a GPU is selected as a whole.
func (d *Devices) gpu(index int) bool { return d.Kind == "g" && d.has(index) }

// instance reports whether a MIG instance is selected, by its number over all GPUs.
func (d *Devices) instance(number int) bool { return d.Kind == "" || d.Kind == "i" && d.has(number) }

func (d *Devices) has(number int) bool { return d.Numbers == nil || slices.Contains(d.Numbers, number) }
