package recording

import (
	"slices"
	"testing"

	"github.com/gpu-exporter/gpu-exporter/internal/standin/scenario"
)

func TestRecordNearestSet(t *testing.T) {
	if !slices.EqualFunc(symbolSets, scenario.SymbolSets, func(s symbolSet, name string) bool { return s.name == name }) {
		t.Fatalf("the sets are %v, the language's %v", symbolSets, scenario.SymbolSets)
	}
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
		{"newer than all", has("nvmlDeviceGetTemperatureV"), "630.43.02", 271, 13, "newest"},
		{"R610", has("nvmlDeviceGetTemperatureV"), "610.43.02", 271, 13, "R610"},
		{"a version that is none", has(), "unknown", 0, 0, "R470"},
	} {
		if got := nearestSet(c.exports, c.driver, c.field, c.metric); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}
