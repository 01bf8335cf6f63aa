package metric

import (
	"maps"
	"regexp"
	"slices"
	"strings"
)

// DCGM is one quantity under the names that releases of dcgm-exporter give it. The unit is derived from the name:
// since 4.9 it is its suffix.
type DCGM struct {
	Name *regexp.Regexp
	unit float64 // of names without a unit, in base units
}

// The quantities of dcgm-exporter that are read.
var (
	DCGMUtilization = DCGM{regexp.MustCompile(`^DCGM_FI_DEV_GPU_UTIL(_RATIO)?$`), 0.01}
	DCGMEngine      = DCGM{regexp.MustCompile(`^DCGM_FI_PROF_GR_ENGINE_ACTIVE(_RATIO)?$`), 1}
	DCGMUsed        = DCGM{regexp.MustCompile(`^DCGM_FI_DEV_FB_USED(_BYTES)?$`), 1 << 20}
	DCGMFree        = DCGM{regexp.MustCompile(`^DCGM_FI_DEV_FB_FREE(_BYTES)?$`), 1 << 20}
	DCGMReserved    = DCGM{regexp.MustCompile(`^DCGM_FI_DEV_FB_RESERVED(_BYTES)?$`), 1 << 20}
	DCGMTotal       = DCGM{regexp.MustCompile(`^DCGM_FI_DEV_FB_(TOTAL|CAPACITY_BYTES)$`), 1 << 20}
	DCGMPower       = DCGM{regexp.MustCompile(`^DCGM_FI_DEV_(POWER_USAGE|BOARD_POWER_WATTS)$`), 1}
)

// Scale is the factor to base units.
func (f DCGM) Scale(name string) float64 {
	if strings.HasSuffix(name, "_RATIO") || strings.HasSuffix(name, "_BYTES") {
		return 1
	}
	return f.unit
}

// Find returns the existing names of a field: two, if the exporter was upgraded within the period.
func (f DCGM) Find(has map[string]bool) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(has)), func(n string) bool { return !f.Name.MatchString(n) })
}
