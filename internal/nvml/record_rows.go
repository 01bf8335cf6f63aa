package nvml

import (
	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-exporter/gpu-exporter/internal/standin/scenario"
)

// question is one call with one set of arguments, as a recording asks it. What needs more than a call and an
// answer (memory, fields, rings, processes, profiling, MIG) has files of its own.
type question struct {
	// key and index are the call's name and arguments in a scenario.
	key   string
	index []int64
	ask   func(c *GPU) (scenario.Value, nvml.Return)
}

// integer is what NVML's plain calls return.
type integer interface {
	~int | ~int32 | ~int64 | ~uint8 | ~uint32 | ~uint64
}

// one asks a call that returns a number, two one that returns a pair.
func one[N integer](id callID, method func(nvml.Device) (N, nvml.Return)) func(*GPU) (scenario.Value, nvml.Return) {
	return func(c *GPU) (scenario.Value, nvml.Return) {
		n, ret := get(c, id, func() (N, nvml.Return) { return method(c.handle()) })
		return scenario.Numbers(scenario.Integer(n)), ret
	}
}

func two[N, M integer](id callID, method func(nvml.Device) (N, M, nvml.Return)) func(*GPU) (scenario.Value, nvml.Return) {
	return func(c *GPU) (scenario.Value, nvml.Return) {
		n, m, ret := get2(c, id, func() (N, M, nvml.Return) { return method(c.handle()) })
		return scenario.Numbers(scenario.Integer(n), scenario.Integer(m)), ret
	}
}

// several asks a call that returns a structure.
func several[V any](id callID, method func(nvml.Device) (V, nvml.Return), numbers func(V) []string) func(*GPU) (scenario.Value, nvml.Return) {
	return func(c *GPU) (scenario.Value, nvml.Return) {
		v, ret := get(c, id, func() (V, nvml.Return) { return method(c.handle()) })
		return scenario.Numbers(numbers(v)...), ret
	}
}

// words asks a call that returns a text.
func words(id callID, method func(nvml.Device) (string, nvml.Return)) func(*GPU) (scenario.Value, nvml.Return) {
	return func(c *GPU) (scenario.Value, nvml.Return) {
		s, ret := get(c, id, func() (string, nvml.Return) { return method(c.handle()) })
		return scenario.Text(s), ret
	}
}

// questions are asked of every GPU, in the order in which a recording shows them.
func questions() []question {
	list := []question{
		{key: "Name", ask: words(callName, nvml.Device.GetName)},
		{key: "BoardPartNumber", ask: words(callBoardPart, nvml.Device.GetBoardPartNumber)},
		{key: "VbiosVersion", ask: words(callVBIOS, nvml.Device.GetVbiosVersion)},
		{key: "Brand", ask: one(callBrand, nvml.Device.GetBrand)},
		{key: "Architecture", ask: one(callArchitecture, nvml.Device.GetArchitecture)},
		{key: "CudaComputeCapability", ask: two(callComputeCapability, nvml.Device.GetCudaComputeCapability)},
		{key: "NumGpuCores", ask: one(callCores, nvml.Device.GetNumGpuCores)},
		{key: "MemoryBusWidth", ask: one(callBusWidth, nvml.Device.GetMemoryBusWidth)},

		{key: "EncoderUtilization", ask: two(callEncoderUtilization, nvml.Device.GetEncoderUtilization)},
		{key: "DecoderUtilization", ask: two(callDecoderUtilization, nvml.Device.GetDecoderUtilization)},
		{key: "JpgUtilization", ask: two(callJPEGUtilization, nvml.Device.GetJpgUtilization)},
		{key: "OfaUtilization", ask: two(callOFAUtilization, nvml.Device.GetOfaUtilization)},
	}
	for _, t := range thresholds {
		list = append(list, question{key: "TemperatureThreshold", index: []int64{int64(t.kind)},
			ask: one(callTemperatureThreshold, func(d nvml.Device) (uint32, nvml.Return) { return d.GetTemperatureThreshold(t.kind) })})
	}
	list = append(list,
		question{key: "PowerUsage", ask: one(callPowerUsage, nvml.Device.GetPowerUsage)},
		question{key: "EnforcedPowerLimit", ask: one(callEnforcedLimit, nvml.Device.GetEnforcedPowerLimit)},
		question{key: "PowerManagementLimit", ask: one(callPowerLimit, nvml.Device.GetPowerManagementLimit)},
		question{key: "PowerManagementDefaultLimit", ask: one(callDefaultLimit, nvml.Device.GetPowerManagementDefaultLimit)},
		question{key: "PowerManagementLimitConstraints", ask: two(callLimitConstraints, nvml.Device.GetPowerManagementLimitConstraints)},
	)
	for _, t := range clockTypes {
		list = append(list, question{key: "ClockInfo", index: []int64{int64(t.kind)},
			ask: one(callClockInfo, func(d nvml.Device) (uint32, nvml.Return) { return d.GetClockInfo(t.kind) })})
	}
	for _, t := range clockTypes {
		list = append(list, question{key: "MaxClockInfo", index: []int64{int64(t.kind)},
			ask: one(callMaxClock, func(d nvml.Device) (uint32, nvml.Return) { return d.GetMaxClockInfo(t.kind) })})
	}
	list = append(list, question{key: "PerformanceState", ask: one(callPerformanceState, nvml.Device.GetPerformanceState)})
	list = append(list, eccQuestions()...)
	list = append(list,
		question{key: "RemappedRows", ask: askRemappedRows},
		question{key: "RowRemapperHistogram", ask: several(callRemapHistogram, nvml.Device.GetRowRemapperHistogram,
			func(h nvml.RowRemapperHistogramValues) []string {
				return []string{scenario.Integer(h.Max), scenario.Integer(h.High), scenario.Integer(h.Partial), scenario.Integer(h.Low), scenario.Integer(h.None)}
			})},
		question{key: "CurrPcieLinkGeneration", ask: one(callPCIeGeneration, nvml.Device.GetCurrPcieLinkGeneration)},
		question{key: "CurrPcieLinkWidth", ask: one(callPCIeWidth, nvml.Device.GetCurrPcieLinkWidth)},
		question{key: "MaxPcieLinkGeneration", ask: one(callPCIeMaxGeneration, nvml.Device.GetMaxPcieLinkGeneration)},
		question{key: "MaxPcieLinkWidth", ask: one(callPCIeMaxWidth, nvml.Device.GetMaxPcieLinkWidth)},
		question{key: "PcieReplayCounter", ask: one(callPCIeReplays, nvml.Device.GetPcieReplayCounter)},
	)
	for link := range nvml.NVLINK_MAX_LINKS {
		list = append(list, question{key: "NvLinkState", index: []int64{int64(link)},
			ask: one(callNVLinkState, func(d nvml.Device) (nvml.EnableState, nvml.Return) { return d.GetNvLinkState(link) })})
	}
	return append(list,
		question{key: "PersistenceMode", ask: one(callPersistenceMode, nvml.Device.GetPersistenceMode)},
		question{key: "ComputeMode", ask: one(callComputeMode, nvml.Device.GetComputeMode)},
		question{key: "EccMode", ask: two(callECCMode, nvml.Device.GetEccMode)},
		question{key: "DisplayActive", ask: one(callDisplayActive, nvml.Device.GetDisplayActive)},
		question{key: "AccountingMode", ask: one(callAccountingMode, nvml.Device.GetAccountingMode)},
		question{key: "SupportedEventTypes", ask: one(callSupportedEvents, nvml.Device.GetSupportedEventTypes)},
	)
}

func eccQuestions() []question {
	var list []question
	for _, s := range eccSeverities {
		for _, n := range eccCounters {
			list = append(list, question{key: "TotalEccErrors", index: []int64{int64(s.kind), int64(n.kind)},
				ask: one(callTotalECC, func(d nvml.Device) (uint64, nvml.Return) { return d.GetTotalEccErrors(s.kind, n.kind) })})
			for _, l := range eccLocations {
				list = append(list, question{key: "MemoryErrorCounter", index: []int64{int64(s.kind), int64(n.kind), int64(l.location)},
					ask: one(callMemoryErrors, func(d nvml.Device) (uint64, nvml.Return) {
						return d.GetMemoryErrorCounter(s.kind, n.kind, l.location)
					})})
			}
		}
	}
	return list
}

func askRemappedRows(c *GPU) (scenario.Value, nvml.Return) {
	var corrected, uncorrected int
	var pending, failed bool
	ret := c.call(callRemappedRows, func() (r nvml.Return) {
		corrected, uncorrected, pending, failed, r = c.handle().GetRemappedRows()
		return r
	})
	return scenario.Numbers(scenario.Integer(corrected), scenario.Integer(uncorrected), bit(pending), bit(failed)), ret
}

func bit(on bool) string {
	if on {
		return "1"
	}
	return "0"
}
