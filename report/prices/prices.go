// Package prices reads the price list of GPUs and energy.
package prices

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path"
	"slices"
	"strings"

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

// GPU is the price of a model: its name as the driver reports it, or a pattern such as "*H100*".
type GPU struct {
	Model   string   `yaml:"model"`
	PerHour *float64 `yaml:"per_hour"`
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
	for i, c := range p.GPUs {
		if _, err := path.Match(c.Model, ""); c.Model == "" || err != nil {
			return nil, fmt.Errorf("gpus[%d]: model %q must be the name in gpu_info or a pattern such as \"*H100*\"", i,
				c.Model)
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

// PerHour returns the price of a GPU-hour.
func (p *List) PerHour(model string) (float64, bool) {
	if p != nil {
		for _, c := range p.GPUs {
			if c.matches(model) {
				return *c.PerHour, true
			}
		}
	}
	return 0, false
}

func (c *GPU) matches(model string) bool {
	// The pattern was checked by Parse; a slash in a model would stop the star.
	plain := func(s string) string { return strings.ToLower(strings.ReplaceAll(s, "/", " ")) }
	ok, _ := path.Match(plain(c.Model), plain(model))
	return ok
}

// Cost is the price of GPU-hours of a model; nil if it is unknown.
func (p *List) Cost(model string, hours float64) *float64 {
	if per, ok := p.PerHour(model); ok {
		cost := per * hours
		return &cost
	}
	return nil
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

// Unmatched lists the models of the price list that the fleet does not have.
func (p *List) Unmatched(models []string) []string {
	var out []string
	for _, c := range p.GPUs {
		if !slices.ContainsFunc(models, c.matches) {
			out = append(out, c.Model)
		}
	}
	return out
}
