package catalog_test

import (
	"strings"
	"testing"

	"github.com/gpu-exporter/gpu-exporter/internal/catalog"
	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// The dictionary has each state of the contract once, and each word and color once.
func TestQuantities(t *testing.T) {
	for _, s := range gpu.TimeStates {
		if q, ok := catalog.QuantityOf(s); !ok || q.Lower() != string(s) {
			t.Errorf("state %s has the quantity %+v", s, q)
		}
	}
	if _, ok := catalog.QuantityOf("moon"); ok {
		t.Error("an unknown state has a quantity")
	}
	words, colors := map[string]bool{}, map[string]bool{}
	for _, q := range catalog.Quantities() {
		if words[q.Word] || q.Definition == "" || strings.HasSuffix(q.Definition, ".") {
			t.Errorf("%+v: a word that occurs twice, or a definition that is missing or ends in a full stop", q)
		}
		words[q.Word] = true
	}
	for _, q := range append(catalog.TimeStates(), catalog.NotReported) {
		if q.Color == "" || colors[q.Color] {
			t.Errorf("%s: color %q is missing or used twice", q.Word, q.Color)
		}
		colors[q.Color] = true
	}
	if got, want := catalog.Define(catalog.Busy, catalog.Unused),
		"Busy: at least one kernel was running. Unused: gap + idle."; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
