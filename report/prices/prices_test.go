package prices

import (
	"math"
	"strings"
	"testing"
	"time"

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
		"gpus: [{model: x, per_hour: 1, from: May}]":                 "2026-01-31",
		"gpus: [{model: x, per_hour: 1, cluster: '['}]":              "no pattern",
		"gpu: 1":  "gpu",
		"GPUs: {": "yaml", "gpus: [{model: x, per_hour: a}]": "cannot",
	} {
		if _, err := Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %v", text, err)
		}
	}
	p, err := Parse([]byte("currency: EUR\nenergy_per_kwh: 0.2\npower_usage_effectiveness: 1.5\ngpus:\n- {model: 'NVIDIA H100 80GB " +
		"HBM3', per_hour: 3}\n- {model: '*h100*', per_hour: 2}"))
	must.OK(t, err)
	for model, want := range map[string]float64{h100: 3, "NVIDIA H100 NVL": 2} {
		if v, ok := p.PerHour(Part{Model: model}, day(1)); !ok || v != want {
			t.Errorf("%s costs %v", model, v)
		}
	}
	if _, ok := p.PerHour(Part{Model: "NVIDIA L40S"}, day(1)); ok || *p.Energy(10) != 3 || p.Unmatched([]Part{{Model: h100}}) != nil {
		t.Error("a price of an unpriced model")
	}
}

func day(n int) time.Time { return time.Date(2026, 3, n, 0, 0, 0, 0, time.UTC) }

// Spot, reserved and other GPUs of one model have prices of their own, and prices change within a period.
func TestPartsAndTimes(t *testing.T) {
	p, err := Parse([]byte(`gpus:
- {model: '*', node_labels: {karpenter.sh/capacity-type: spot}, per_hour: 1}
- {model: '*H100*', node_pool: 'reserved-*', to: 2026-03-11, per_hour: 4}
- {model: '*H100*', node_pool: 'reserved-*', from: 2026-03-21, per_hour: 2}
- {model: '*H100*', cluster: west, per_hour: 6}
- {model: '*H100*', from: 2026-03-02, per_hour: 8}`))
	must.OK(t, err)
	spot := map[string]string{"karpenter.sh/capacity-type": "spot"}
	for _, tt := range []struct {
		name     string
		part     Part
		from, to int
		want     float64 // 0 is none
	}{
		{"spot", Part{h100, "reserved-a", "west", spot}, 1, 31, 1},
		{"a pool before its price changes", Part{h100, "reserved-a", "", nil}, 1, 11, 4},
		// Ten days at 4, ten at the price of others, ten at 2.
		{"a pool whose price changes", Part{h100, "reserved-a", "", nil}, 1, 31, (4 + 8 + 2) / 3.},
		{"a cluster", Part{h100, "other", "west", nil}, 1, 31, 6},
		{"any other", Part{Model: h100, NodePool: "other", Cluster: "east"}, 2, 31, 8},
		{"without a price for a day", Part{Model: h100}, 1, 31, 0},
		{"another model", Part{Model: "NVIDIA L40S"}, 2, 31, 0},
	} {
		if got := p.Mean(tt.part, day(tt.from), day(tt.to)); (got == nil) != (tt.want == 0) || got != nil && math.Abs(*got-tt.want) > 1e-9 {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
	if len(p.Labels()) != 1 || len(p.Unmatched([]Part{{Model: h100}})) != 4 {
		t.Errorf("%v, %v", p.Labels(), p.Unmatched([]Part{{Model: h100}}))
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
		if v := p.Mean(Part{Model: model}, day(1), day(2)); v != nil {
			price(model, *v)
		}
		if e := p.Energy(100); e != nil {
			price("100 kWh", *e)
		}
		if p.Currency == "" {
			t.Error("a price without a currency")
		}
	})
}
