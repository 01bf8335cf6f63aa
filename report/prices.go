package report

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path"
	"strings"

	"go.yaml.in/yaml/v2"
)

// Prices are what an hour of a GPU and a kilowatt-hour cost. A nil one knows no price.
type Prices struct {
	// Currency is printed as it is.
	Currency string `yaml:"currency"`
	// GPUs are looked through in order; the first that matches counts.
	GPUs []GPUPrice `yaml:"gpus"`
	// EnergyPerKWh is the price of a kilowatt-hour, and Overhead what cooling adds: 1.3 for 30 % more.
	EnergyPerKWh *float64 `yaml:"energy_per_kwh"`
	Overhead     *float64 `yaml:"power_usage_effectiveness"`
}

// CardPrice is the price of a model: its name as the driver tells it, or a pattern such as "*H100*".
type GPUPrice struct {
	Model   string   `yaml:"model"`
	PerHour *float64 `yaml:"per_hour"`
}

// ReadPrices reads a price list.
func ReadPrices(file string) (*Prices, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read the price list: %w", err)
	}
	p, err := ParsePrices(text)
	if err != nil {
		return nil, fmt.Errorf("price list %s: %w", file, err)
	}
	return p, nil
}

// ParsePrices reads a price list in YAML.
func ParsePrices(text []byte) (*Prices, error) {
	var p Prices
	if err := yaml.UnmarshalStrict(text, &p); err != nil {
		return nil, errors.New(strings.Join(strings.Fields(err.Error()), " "))
	}
	if p.Currency == "" {
		p.Currency = "USD"
	}
	for i, c := range p.GPUs {
		if _, err := path.Match(c.Model, ""); c.Model == "" || err != nil {
			return nil, fmt.Errorf("entry %d of GPUs has the model %q: give the name that gpu_info tells, or a pattern such as \"*H100*\"", i+1, c.Model)
		}
		if !sensible(c.PerHour, 0) {
			return nil, fmt.Errorf("the price per_hour of %q is missing or no price", c.Model)
		}
	}
	if p.EnergyPerKWh != nil && !sensible(p.EnergyPerKWh, 0) {
		return nil, errors.New("energy_per_kwh is no price")
	}
	if p.Overhead != nil && !sensible(p.Overhead, 1) {
		return nil, errors.New("power_usage_effectiveness is at least 1")
	}
	if len(p.GPUs) == 0 && p.EnergyPerKWh == nil {
		return nil, errors.New("it has neither GPUs nor energy_per_kwh")
	}
	return &p, nil
}

func sensible(v *float64, least float64) bool {
	return v != nil && *v >= least && !math.IsInf(*v, 0) && *v < 1e9
}

// GPU returns the price of a GPU-hour.
func (p *Prices) dev(model string) (float64, bool) {
	if p == nil {
		return 0, false
	}
	for _, c := range p.GPUs {
		if c.matches(model) {
			return *c.PerHour, true
		}
	}
	return 0, false
}

func (c *GPUPrice) matches(model string) bool {
	// The pattern is checked when it is read; a slash in a model would stop the star.
	ok, _ := path.Match(strings.ToLower(strings.ReplaceAll(c.Model, "/", " ")), strings.ToLower(strings.ReplaceAll(model, "/", " ")))
	return ok
}

// energy returns the price of energy.
func (p *Prices) energy(kwh float64) *float64 {
	if p == nil || p.EnergyPerKWh == nil {
		return nil
	}
	v := kwh * *p.EnergyPerKWh
	if p.Overhead != nil {
		v *= *p.Overhead
	}
	return &v
}

// unknown lists the models of the price list that the fleet does not have.
func (p *Prices) unknown(models []string) []string {
	var out []string
	if p == nil {
		return nil
	}
	for _, c := range p.GPUs {
		found := false
		for _, m := range models {
			found = found || c.matches(m)
		}
		if !found {
			out = append(out, c.Model)
		}
	}
	return out
}

// cost prices GPU-hours of a model.
func (p *Prices) cost(model string, hours float64) *float64 {
	per, ok := p.dev(model)
	if !ok {
		return nil
	}
	v := per * hours
	return &v
}
