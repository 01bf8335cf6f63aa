package scenario

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// keyRow is one thing that a scenario can answer: the name of the NVML function without nvmlDeviceGet,
// what it is asked with, and what it answers with. A row without components is a call of which only the
// return code can be set.
type keyRow struct {
	name       string
	index      []indexRow
	components []string // in the order of the stand-in driver
	optional   int      // so many of the last components may be left out, and are 0
	text       bool
	system     bool // concerns no GPU
	override   bool // without a line the driver computes it; a line only says otherwise
}

// indexRow is one argument of a call: a name from a list, or a number below a limit. Where all is set,
// the word all means this number.
type indexRow struct {
	names []string
	limit int
	all   string
	or    bool // may be left out
}

var (
	sensors    = indexRow{names: []string{"gpu", "gpu_max"}}
	thresholds = indexRow{names: []string{"shutdown", "slowdown", "mem_max", "gpu_max", "acoustic_min", "acoustic_curr",
		"acoustic_max", "gps_curr"}}
	clocks     = indexRow{names: []string{"graphics", "sm", "mem", "video"}}
	severities = indexRow{names: []string{"corrected", "uncorrected"}}
	counters   = indexRow{names: []string{"volatile", "aggregate"}}
	locations  = indexRow{names: []string{"l1_cache", "l2_cache", "dram", "register_file", "texture_memory", "texture_shm",
		"cbu", "sram"}}
	causes     = indexRow{names: []string{"single_bit", "double_bit"}}
	links      = indexRow{limit: 36}
	linkErrors = indexRow{names: []string{"replay", "recovery", "crc_flit", "crc_data", "ecc_data"}}
	fans       = indexRow{limit: 16}
	fields     = indexRow{limit: 1024}
	scopes     = indexRow{names: []string{"gpu", "module", "memory", "gpu_base"}, limit: 64, all: "4294967295", or: true}
	metrics    = indexRow{limit: 1024}
	samples    = indexRow{names: []string{"power", "gpu", "memory", "encoder", "decoder", "processor_clock", "memory_clock",
		"module_power", "jpeg", "ofa"}}

	one  = []string{"value"}
	mode = []string{"current", "pending"}
)

// keys are all that the stand-in driver looks up.
var keys = []keyRow{
	{name: "DriverVersion", components: one, text: true, system: true},
	{name: "NVMLVersion", components: one, text: true, system: true},
	{name: "CudaDriverVersion", components: one, system: true},
	{name: "Init", system: true},
	{name: "Count", system: true},
	{name: "HandleByIndex", system: true},
	{name: "HandleByUUID", system: true},
	{name: "HandleByPciBusId", system: true},
	{name: "EventSetCreate", system: true},
	{name: "EventSetWait", system: true},
	{name: "GpmSampleAlloc", system: true},
	{name: "GpmMetricsGet", system: true},

	{name: "Handle"},
	{name: "UUID"},
	{name: "Name", components: one, text: true},
	{name: "Serial", components: one, text: true},
	{name: "BoardPartNumber", components: one, text: true},
	{name: "VbiosVersion", components: one, text: true},
	{name: "MinorNumber"},
	{name: "Index"},
	{name: "PciInfo", components: []string{"device", "subsystem"}},
	{name: "Brand", components: one},
	{name: "Architecture", components: one},
	{name: "CudaComputeCapability", components: []string{"major", "minor"}},
	{name: "NumaNodeId", components: one},
	{name: "NumGpuCores", components: one},
	{name: "MemoryBusWidth", components: one},
	{name: "BusType", components: one},

	{name: "FieldValues"},
	{name: "Field", index: []indexRow{fields, scopes}, components: one},
	{name: "FieldLatency", components: one},

	{name: "UtilizationRates", components: []string{"gpu", "memory"}},
	{name: "EncoderUtilization", components: []string{"utilization", "period"}},
	{name: "DecoderUtilization", components: []string{"utilization", "period"}},
	{name: "JpgUtilization", components: []string{"utilization", "period"}},
	{name: "OfaUtilization", components: []string{"utilization", "period"}},
	{name: "Samples", index: []indexRow{samples}, components: one, override: true},
	{name: "ProcessUtilization", components: []string{"sm", "memory", "encoder", "decoder"}, optional: 3, override: true},

	{name: "MemoryInfo", components: []string{"total", "used", "free"}},
	{name: "MemoryInfo_v2", components: []string{"total", "used", "free", "reserved"}},
	{name: "BAR1MemoryInfo", components: []string{"total", "used", "free"}},

	{name: "Temperature", index: []indexRow{sensors}, components: one},
	{name: "TemperatureV"},
	{name: "TemperatureThreshold", index: []indexRow{thresholds}, components: one},
	{name: "MarginTemperature", components: one},
	{name: "NumFans", components: one},
	{name: "FanSpeed", components: one},
	{name: "FanSpeed_v2", index: []indexRow{fans}, components: one},

	{name: "PowerUsage", components: one},
	{name: "EnforcedPowerLimit", components: one},
	{name: "PowerManagementLimit", components: one},
	{name: "PowerManagementDefaultLimit", components: one},
	{name: "PowerManagementLimitConstraints", components: []string{"min", "max"}},
	{name: "TotalEnergyConsumption", components: one},

	{name: "ClockInfo", index: []indexRow{clocks}, components: one},
	{name: "MaxClockInfo", index: []indexRow{clocks}, components: one},
	{name: "PerformanceState", components: one},
	{name: "CurrentClocksEventReasons", components: one},
	{name: "CurrentClocksThrottleReasons", components: one},

	{name: "TotalEccErrors", index: []indexRow{severities, counters}, components: one},
	{name: "MemoryErrorCounter", index: []indexRow{severities, counters, locations}, components: one},
	{name: "RemappedRows", components: []string{"corrected", "uncorrected", "pending", "failure"}},
	{name: "RowRemapperHistogram", components: []string{"max", "high", "partial", "low", "none"}},
	{name: "RetiredPages", index: []indexRow{causes}, components: one},
	{name: "RetiredPagesPendingStatus", components: one},

	{name: "CurrPcieLinkGeneration", components: one},
	{name: "CurrPcieLinkWidth", components: one},
	{name: "MaxPcieLinkGeneration", components: one},
	{name: "MaxPcieLinkWidth", components: one},
	{name: "GpuMaxPcieLinkGeneration", components: one},
	{name: "PcieReplayCounter", components: one},
	{name: "NvLinkState", index: []indexRow{links}, components: one},
	{name: "NvLinkErrorCounter", index: []indexRow{links, linkErrors}, components: one},
	{name: "GpuFabricInfo", components: []string{"state", "status", "clique", "health_mask", "health_summary"}, optional: 4},
	{name: "GpuFabricInfoV"},

	{name: "PersistenceMode", components: one},
	{name: "ComputeMode", components: one},
	{name: "EccMode", components: mode},
	{name: "DefaultEccMode", components: one},
	{name: "DisplayActive", components: one},
	{name: "DisplayMode", components: one},
	{name: "AccountingMode", components: one},
	{name: "VirtualizationMode", components: one},

	{name: "ComputeRunningProcesses"},
	{name: "GraphicsRunningProcesses"},
	{name: "MPSComputeRunningProcesses"},

	{name: "MigMode"},
	{name: "MaxMigDeviceCount"},
	{name: "MigDeviceHandleByIndex"},
	{name: "IsMigDeviceHandle"},
	{name: "DeviceHandleFromMigDeviceHandle"},
	{name: "GpuInstanceId"},
	{name: "ComputeInstanceId"},
	{name: "Attributes"},
	{name: "GpuInstances"},
	{name: "GpuInstanceById"},
	{name: "GpuInstanceInfo"},
	{name: "GpuInstanceProfileInfo"},

	{name: "GpmQueryDeviceSupport", components: one},
	{name: "GpmSampleGet"},
	{name: "GpmMigSampleGet"},
	{name: "Gpm", index: []indexRow{metrics}, components: one},

	{name: "SupportedEventTypes", components: one},
	{name: "RegisterEvents"},
}

func findKey(name string) (keyRow, bool) {
	i := slices.IndexFunc(keys, func(k keyRow) bool { return k.name == name })
	if i < 0 {
		return keyRow{}, false
	}
	return keys[i], true
}

// HasKey reports whether a scenario can say what a call answers; the name is the NVML function's without its prefix.
func HasKey(call string) bool {
	_, known := findKey(call)
	return known
}

// Components are the names of the numbers of a call's value, in the order of the language.
func Components(call string) []string {
	k, _ := findKey(call)
	return k.components
}

// parseKey reads "Temperature[gpu]" or "NvLinkState[0-17]" and returns its row and the canonical keys,
// "Temperature[0]", of which a range makes many.
func parseKey(text string) (keyRow, []string, error) {
	name, rest, indexed := strings.Cut(text, "[")
	k, known := findKey(name)
	if !known {
		return k, nil, fmt.Errorf("expected the name of an answer like PowerUsage or Temperature[gpu], found %q", text)
	}
	if !indexed {
		if len(k.index) > 0 { // the whole call: only a return code can be set
			k.components = nil
		}
		return k, []string{name}, nil
	}
	inner, closed := strings.CutSuffix(rest, "]")
	words := strings.Split(inner, ",")
	required := len(k.index)
	for required > 1 && k.index[required-1].or {
		required--
	}
	if !closed || len(words) > len(k.index) || len(words) < required {
		return k, nil, fmt.Errorf("expected %s, found %q", k.usage(), text)
	}
	all := []string{""}
	for i, w := range words {
		first, last, err := k.index[i].parse(w)
		if err != nil {
			return k, nil, fmt.Errorf("expected %s: %w", k.usage(), err)
		}
		if int64(len(all))*(last-first+1) > maxAnswersPerLine {
			return k, nil, fmt.Errorf("expected ranges that make at most %d answers", maxAnswersPerLine)
		}
		var next []string
		for _, prefix := range all {
			for n := first; n <= last; n++ {
				next = append(next, prefix+","+strconv.FormatInt(n, 10))
			}
		}
		all = next
	}
	for i := range all {
		all[i] = name + "[" + all[i][1:] + "]"
	}
	return k, all, nil
}

func (k keyRow) usage() string {
	if len(k.index) == 0 {
		return k.name + " without an index"
	}
	var words []string
	for _, r := range k.index {
		if len(r.names) > 0 {
			words = append(words, strings.Join(r.names, "|"))
		} else {
			words = append(words, fmt.Sprintf("0-%d", r.limit-1))
		}
	}
	return k.name + "[" + strings.Join(words, ",") + "]"
}

func (r indexRow) parse(word string) (first, last int64, err error) {
	if r.all != "" && word == "all" {
		n, err := strconv.ParseInt(r.all, 10, 64)
		return n, n, err
	}
	if i := slices.Index(r.names, word); i >= 0 {
		return int64(i), int64(i), nil
	}
	limit := max(r.limit, len(r.names))
	a, b, err := parseRange(word, limit)
	return int64(a), int64(b), err
}

// uintFields are the field values that the driver gives as unsigned int, by the ranges of their ids.
var uintFields = [][2]int{{1, 2}, {29, 31}, {82, 82}, {84, 95}, {142, 147}, {161, 190}, {192, 192}, {199, 200},
	{226, 227}, {230, 234}}

// fieldType is NVML's type of a field value.
func fieldType(key string) int {
	id, _, _ := strings.Cut(strings.TrimSuffix(strings.TrimPrefix(key, "Field["), "]"), ",")
	n, err := strconv.Atoi(id)
	if err != nil {
		return typeULongLong
	}
	if n >= 193 && n <= 196 { // distances to a temperature limit
		return typeInt
	}
	for _, r := range uintFields {
		if n >= r[0] && n <= r[1] {
			return typeUint
		}
	}
	return typeULongLong
}
