package prices

import (
	"math"
	"strings"
	"testing"

	"github.com/gpu-exporter/gpu-exporter/internal/must"
)

const h100 = "NVIDIA H100 80GB HBM3"

func TestPrices(t *testing.T) {
	for text, want := range map[string]string{
		"": "neither", "gpus: [{model: x}]": "per_hour", "gpus: [{per_hour: 1}]": "model", "gpus: [{model: x, per_hour: -1}]": "per_hour",
		"gpus: [{model: '[', per_hour: 1}]": "model",
		"energy_per_kwh: .nan":              "energy_per_kwh", "energy_per_kwh: 1\npower_usage_effectiveness: 0.5": "at least 1",
		"energy_per_kwh: 1\nbudget_per_month: {a: 5}":                "needs the prices",
		"gpus: [{model: x, per_hour: 1}]\nbudget_per_month: {a: -5}": "of \"a\"",
		"gpus: [{model: x, per_hour: 1e12}]":                         "per_hour",
		"gpu: 1":                                                     "gpu",
		"GPUs: {":                                                    "yaml", "gpus: [{model: x, per_hour: a}]": "cannot",
	} {
		if _, err := Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %v", text, err)
		}
	}
	p, err := Parse([]byte("currency: EUR\nenergy_per_kwh: 0.2\npower_usage_effectiveness: 1.5\ngpus:\n- {model: 'NVIDIA H100 80GB " +
		"HBM3', per_hour: 3}\n- {model: '*h100*', per_hour: 2}"))
	must.OK(t, err)
	for model, want := range map[string]float64{h100: 3, "NVIDIA H100 NVL": 2} {
		if v, ok := p.PerHour(model); !ok || v != want {
			t.Errorf("%s costs %v", model, v)
		}
	}
	if _, ok := p.PerHour("NVIDIA L40S"); ok || *p.Energy(10) != 3 || p.Unmatched([]string{h100}) != nil {
		t.Error("a price of an unpriced model")
	}
}

// FuzzParse: a price list that is taken has prices, and no other.
func FuzzParse(f *testing.F) {
	f.Add("currency: EUR\ngpus:\n- model: \"*H100*\"\n  per_hour: 2.5\nenergy_per_kwh: 0.2\npower_usage_effectiveness: 1.3\n",
		"NVIDIA H100 80GB HBM3")
	f.Add("gpus: [{model: '[', per_hour: 1}]", "[")
	f.Add("energy_per_kwh: .nan", "")
	f.Add("gpus: [{model: a/b, per_hour: .inf}]", "a/b")
	f.Fuzz(func(t *testing.T, text, model string) {
		p, err := Parse([]byte(text))
		if err != nil {
			if p != nil || strings.ContainsAny(err.Error(), "\n\r") {
				t.Errorf("%v beside %q", p, err)
			}
			return
		}
		price := func(what string, v float64) {
			if !(v >= 0) || math.IsInf(v, 0) {
				t.Errorf("%s costs %v", what, v)
			}
		}
		if v, ok := p.PerHour(model); ok {
			price(model, v)
		}
		if c := p.Cost(model, 24); c != nil {
			price("a day", *c)
		}
		if e := p.Energy(100); e != nil {
			price("100 kWh", *e)
		}
		if p.Currency == "" {
			t.Error("a price without a currency")
		}
	})
}
