package recording

import (
	"slices"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/dl"

	"github.com/gpu-exporter/gpu-exporter/internal/nvml/calls"
	"github.com/gpu-exporter/gpu-exporter/internal/standin"
	"github.com/gpu-exporter/gpu-exporter/internal/standin/scenario"
)

// TestRecordSymbolSets holds the table of symbol sets against the stand-in driver: a set has what it says, and
// what the sets before it have.
func TestRecordSymbolSets(t *testing.T) {
	names := []string{}
	for _, set := range symbolSets {
		names = append(names, set.name)
	}
	if !slices.Equal(names, scenario.SymbolSets) {
		t.Fatalf("the sets are %v, the language's %v", names, scenario.SymbolSets)
	}
	first := map[string]int{}
	for i, set := range symbolSets {
		for _, s := range set.adds() {
			first[s] = i
		}
	}
	for i, set := range symbolSets {
		path, err := standin.BuildFakeNVML(t.Context(), set.name, t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		file := dl.New(path, dl.RTLD_LAZY|dl.RTLD_LOCAL)
		if err := file.Open(); err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		var symbols []string
		for _, c := range calls.Calls {
			if !c.Unused {
				symbols = append(symbols, c.Symbols()...)
			}
		}
		for _, s := range symbols {
			has := file.Lookup(s) == nil
			if at, listed := first[s]; listed && has != (i >= at) {
				t.Errorf("%s: %s is there: %v", set.name, s, has)
			} else if !listed && has && i > 0 && !had(t, s) {
				t.Errorf("%s has %s, which the table does not say", set.name, s)
			}
		}
	}
}

// had reports whether the oldest set has a symbol.
func had(t *testing.T, symbol string) bool {
	t.Helper()
	path, err := standin.BuildFakeNVML(t.Context(), symbolSets[0].name, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	file := dl.New(path, dl.RTLD_LAZY|dl.RTLD_LOCAL)
	if err := file.Open(); err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	return file.Lookup(symbol) == nil
}

func TestRecordNearestSet(t *testing.T) {
	has := func(symbols ...string) func(string) bool {
		return func(s string) bool { return slices.Contains(symbols, s) }
	}
	for _, c := range []struct {
		name          string
		exports       func(string) bool
		driver        string
		field, metric int
		want          string
	}{
		{"an old driver", has(), "470.256.02", 91, 0, "R470"},
		{"a driver between the sets", has("nvmlDeviceGetMemoryInfo_v2"), "510.47.03", 91, 0, "R535"},
		{"the branch itself", has("nvmlGpmSampleGet"), "535.183.01", 186, 13, "R535"},
		{"a field that the branch's set lacks", has("nvmlGpmSampleGet"), "535.183.01", 198, 13, "R580"},
		{"between the newer sets", has("nvmlDeviceGetTemperatureV"), "590.48.01", 271, 13, "R580"},
		{"R595", has("nvmlDeviceGetTemperatureV"), "595.91.07", 271, 13, "R595"},
		{"newer than all", has("nvmlDeviceGetTemperatureV"), "610.43.02", 271, 13, "newest"},
		{"a version that is none", has(), "unknown", 0, 0, "R470"},
	} {
		if got := nearestSet(c.exports, c.driver, c.field, c.metric); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}
