package nvml

import (
	"slices"
	"strconv"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/dl"
)

// symbolSet is a driver branch as a scenario names it: what the stand-in driver exports and answers then.
type symbolSet struct {
	name   string
	branch int
	// adds are the functions of the guard table that the set before lacks.
	adds []string
	// fields and metrics are the first field and metric that it does not know.
	fields, metrics int
}

// symbolSets in the order of their age. A test holds them against the stand-in driver.
var symbolSets = []symbolSet{
	{name: "R470", branch: 470, fields: 161, metrics: 1},
	{name: "R535", branch: 535, fields: 197, metrics: 98, adds: []string{"nvmlDeviceGetComputeRunningProcesses_v3",
		"nvmlDeviceGetGraphicsRunningProcesses_v3", "nvmlDeviceGetMPSComputeRunningProcesses_v3", "nvmlDeviceGetMemoryBusWidth",
		"nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetNumFans", "nvmlDeviceGetNumGpuCores", "nvmlGpmMetricsGet", "nvmlGpmMigSampleGet",
		"nvmlGpmQueryDeviceSupport", "nvmlGpmSampleAlloc", "nvmlGpmSampleFree", "nvmlGpmSampleGet"}},
	{name: "R580", branch: 580, fields: 274, metrics: 210, adds: []string{"nvmlDeviceGetGpuFabricInfoV", "nvmlDeviceGetJpgUtilization",
		"nvmlDeviceGetMarginTemperature", "nvmlDeviceGetOfaUtilization", "nvmlDeviceGetTemperatureV"}},
	{name: "R595", branch: 595, fields: 303, metrics: 333},
	{name: "newest", branch: 600, fields: 1 << 30, metrics: 1 << 30},
}

// nearestSet chooses the set for a library: the oldest that has every function that the library exports and
// knows every field and metric that it answered, or the driver's own branch if that is newer. What a set has
// and the library lacks, the recording says line by line.
func nearestSet(exports func(symbol string) bool, driver string, field, metric int) string {
	branch, _, _ := strings.Cut(driver, ".")
	number, _ := strconv.Atoi(branch)
	least := 0
	for i, set := range symbolSets {
		if slices.ContainsFunc(set.adds, exports) || set.branch <= number {
			least = i
		}
	}
	for least < len(symbolSets)-1 && (field >= symbolSets[least].fields || metric >= symbolSets[least].metrics) {
		least++
	}
	return symbolSets[least].name
}

// exported returns a lookup of the library's symbols, and what to call when done. A library that cannot be
// opened any more exports nothing.
func (l *Library) exported() (has func(symbol string) bool, done func()) {
	file := dl.New(l.options.Path, dl.RTLD_LAZY|dl.RTLD_LOCAL)
	if err := file.Open(); err != nil {
		return func(string) bool { return false }, func() {}
	}
	return func(symbol string) bool { return file.Lookup(symbol) == nil }, func() { _ = file.Close() }
}
