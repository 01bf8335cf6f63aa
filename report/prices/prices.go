// Package prices reads the price list of GPUs and energy.
package prices

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v2"
)

// List are the cost of a GPU-hour and of a kilowatt-hour. A nil one has no price.
type List struct {
	// Currency is printed as it is.
	Currency string `yaml:"currency"`
	// GPUs are searched in order; the first that matches counts.
	GPUs []GPU `yaml:"gpus"`
	// EnergyPerKWh is the price of a kilowatt-hour, Overhead the factor for cooling: 1.3 for 30 % more.
	EnergyPerKWh *float64 `yaml:"energy_per_kwh"`
	Overhead     *float64 `yaml:"power_usage_effectiveness"`
	// Budgets are amounts for a month, by group or namespace; fleet is that of all.
	Budgets map[string]float64 `yaml:"budget_per_month"`
}

// GPU is the price of GPUs: of a model by its name as the driver reports it, or a pattern such as "*H100*", and if they are set of a node
// pool, a cluster, nodes with labels and a time alone, such as spot and reserved ones.
type GPU struct {
	Model    string            `yaml:"model"`
	NodePool string            `yaml:"node_pool"`
	Cluster  string            `yaml:"cluster"`
	Labels   map[string]string `yaml:"node_labels"`
	From     string            `yaml:"from"` // days, in UTC, up to but without
	To       string            `yaml:"to"`
	PerHour  *float64          `yaml:"per_hour"`
	from, to time.Time
}

// Part is what has a price: GPUs of a model, and of a node pool, a cluster and nodes with labels where that is known.
type Part struct {
	Model, NodePool, Cluster string
	Labels                   map[string]string
}

// Read reads a price list.
func Read(file string) (*List, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read the price list: %w", err)
	}
	p, err := Parse(text)
	if err != nil {
		return nil, fmt.Errorf("price list %s: %w", file, err)
	}
	return p, nil
}

// Parse reads a price list in YAML.
func Parse(text []byte) (*List, error) {
	var p List
	if err := yaml.UnmarshalStrict(text, &p); err != nil {
		return nil, errors.New(strings.Join(strings.Fields(err.Error()), " "))
	}
	if p.Currency == "" {
		p.Currency = "USD"
	}
	for i := range p.GPUs {
		c := &p.GPUs[i]
		if _, err := path.Match(c.Model, ""); c.Model == "" || err != nil {
			return nil, fmt.Errorf("gpus[%d]: model %q must be the name in gpu_info or a pattern such as \"*H100*\"", i, c.Model)
		}
		for _, pattern := range append(slices.Collect(maps.Values(c.Labels)), c.NodePool, c.Cluster) {
			if _, err := path.Match(pattern, ""); err != nil {
				return nil, fmt.Errorf("gpus[%d]: %q is no pattern", i, pattern)
			}
		}
		for _, x := range []struct {
			text string
			into *time.Time
		}{{c.From, &c.from}, {c.To, &c.to}} {
			var err error
			if *x.into, err = time.Parse(time.DateOnly, cmp.Or(x.text, "0001-01-01")); err != nil {
				return nil, fmt.Errorf("gpus[%d]: %q must be a day such as 2026-01-31", i, x.text)
			}
		}
		if !valid(c.PerHour, 0) {
			return nil, fmt.Errorf("gpus[%d]: per_hour of %q is missing or not a price", i, c.Model)
		}
	}
	switch {
	case p.EnergyPerKWh != nil && !valid(p.EnergyPerKWh, 0):
		return nil, errors.New("energy_per_kwh is not a price")
	case p.Overhead != nil && !valid(p.Overhead, 1):
		return nil, errors.New("power_usage_effectiveness must be at least 1")
	case len(p.GPUs) == 0 && len(p.Budgets) > 0:
		return nil, errors.New("budget_per_month needs the prices of gpus")
	case len(p.GPUs) == 0 && p.EnergyPerKWh == nil:
		return nil, errors.New("neither gpus nor energy_per_kwh is set")
	}
	for _, name := range slices.Sorted(maps.Keys(p.Budgets)) {
		if v := p.Budgets[name]; !valid(&v, 0) {
			return nil, fmt.Errorf("budget_per_month of %q is not an amount", name)
		}
	}
	return &p, nil
}

func valid(v *float64, minimum float64) bool {
	return v != nil && *v >= minimum && !math.IsInf(*v, 0) && *v < 1e12
}

// PerHour returns the price of a GPU-hour at a time; ok is false if there is none.
func (p *List) PerHour(x Part, at time.Time) (price float64, ok bool) {
	if p != nil {
		for i := range p.GPUs {
			if c := &p.GPUs[i]; c.matches(x) && !at.Before(c.from) && (c.to.Year() == 1 || at.Before(c.to)) {
				return *c.PerHour, true
			}
		}
	}
	return 0, false
}

// Mean is the price of a GPU-hour over a time; nil if a part of it has none.
func (p *List) Mean(x Part, from, to time.Time) *float64 {
	if p == nil {
		return nil
	}
	changes := []time.Time{from, to}
	for _, c := range p.GPUs {
		for _, at := range []time.Time{c.from, c.to} {
			if at.After(from) && at.Before(to) {
				changes = append(changes, at)
			}
		}
	}
	slices.SortFunc(changes, time.Time.Compare)
	sum := 0.0
	for i, at := range changes[1:] {
		price, ok := p.PerHour(x, changes[i])
		if !ok {
			return nil
		}
		sum += price * at.Sub(changes[i]).Hours()
	}
	return new(sum / to.Sub(from).Hours())
}

// Cost is the price of GPU-hours; nil if it is unknown.
func Cost(price *float64, hours float64) *float64 {
	if price == nil {
		return nil
	}
	return new(*price * hours)
}

// Labels are those of nodes that prices depend on.
func (p *List) Labels() (names []string) {
	if p != nil {
		for _, c := range p.GPUs {
			names = slices.AppendSeq(names, maps.Keys(c.Labels))
		}
	}
	return names
}

func (c *GPU) matches(x Part) bool {
	// The patterns were checked by Parse; a slash in a name would stop the star.
	plain := func(s string) string { return strings.ToLower(strings.ReplaceAll(s, "/", " ")) }
	match := func(pattern, name string) bool {
		ok, _ := path.Match(plain(pattern), plain(name))
		return ok || pattern == ""
	}
	for name, pattern := range c.Labels {
		if !match(pattern, x.Labels[name]) {
			return false
		}
	}
	return match(c.Model, x.Model) && match(c.NodePool, x.NodePool) && match(c.Cluster, x.Cluster)
}

// Energy is the price of energy; nil if it is unknown.
func (p *List) Energy(kwh float64) *float64 {
	if p == nil || p.EnergyPerKWh == nil {
		return nil
	}
	cost := kwh * *p.EnergyPerKWh
	if p.Overhead != nil {
		cost *= *p.Overhead
	}
	return &cost
}

// Unmatched lists the models of the prices that no part of the fleet has.
func (p *List) Unmatched(parts []Part) []string {
	var out []string
	for _, c := range p.GPUs {
		if !slices.ContainsFunc(parts, c.matches) {
			out = append(out, c.Model)
		}
	}
	return out
}
