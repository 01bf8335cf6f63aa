package nvml

import "github.com/gpu-exporter/gpu-exporter/internal/gpu"

// callID names one kind of driver call: an index into guards.
type callID int

// The calls, in the order of the guard table.
const (
	callInit callID = iota
	callShutdown
	callDriverVersion
	callCUDAVersion
	callNVMLVersion
	callDeviceCount
	callHandleByIndex

	callUUID
	callPciInfo
	callMinorNumber
	callName
	callBrand
	callArchitecture
	callComputeCapability
	callSerial
	callBoardPart
	callVBIOS

	callFieldValues
	callPowerUsage
	callTotalEnergy
	callUtilizationRates
	callSamples
	callProcessUtilization
	callEncoderUtilization
	callDecoderUtilization
	callJPEGUtilization
	callOFAUtilization
	callGPMSupport
	callGPMSampleAlloc
	callGPMSampleFree
	callGPMSampleGet
	callGPMMIGSampleGet
	callGPMMetricsGet

	callMemoryInfoV2
	callMemoryInfo
	callBAR1
	callTemperatureV
	callTemperature
	callNumFans
	callFanSpeed
	callClockInfo
	callPerformanceState
	callMemoryErrors
	callTotalECC
	callRemappedRows
	callPCIeReplays
	callComputeProcesses
	callGraphicsProcesses
	callMPSProcesses

	callEnforcedLimit
	callPowerLimit
	callDefaultLimit
	callLimitConstraints
	callTemperatureThreshold
	callMarginTemperature
	callMaxClock
	callPersistenceMode
	callAccountingMode
	callDisplayActive
	callComputeMode
	callMIGMode
	callECCMode
	callRemapHistogram
	callPCIeGeneration
	callPCIeWidth
	callPCIeMaxGeneration
	callPCIeMaxWidth
	callNVLinkState
	callFabric
	callBusWidth
	callCores

	callMaxMIGCount
	callMIGHandle
	callGPUInstanceID
	callComputeInstanceID
	callAttributes
	callGPUInstance
	callGPUInstanceInfo
	callProfileInfo

	callSupportedEvents
	callEventSetCreate
	callEventSetFree
	callRegisterEvents
	callEventSetWait

	callCount // how many there are
)

// guard says what must be in the library before a call may be made.
type guard struct {
	// name is what the call is called in metrics and in messages: the NVML function without the version
	// that go-nvml picks.
	name string
	// methods are the go-nvml methods that may be used under this guard, as "Type.Method".
	methods []string
	// anyOf are the symbols of which go-nvml calls whichever it found; one of them must be there. Nil: name itself.
	anyOf []string
	// required marks what nothing works without: a library that lacks one is not NVML.
	required bool
	// waits marks calls that sleep on purpose: their duration is no cost and is not observed.
	waits bool
}

// symbols returns the symbols of which one must exist.
func (g *guard) symbols() []string {
	if g.anyOf != nil {
		return g.anyOf
	}
	return []string{g.name}
}

// versions returns name_v<n> for n down to 2, and name itself: what go-nvml chooses among.
func versions(name string, newest int) []string {
	list := make([]string, 0, newest)
	for v := newest; v > 1; v-- {
		list = append(list, name+"_v"+string(rune('0'+v)))
	}
	return append(list, name)
}

// guards has one row for every call of this package. A test holds it against go-nvml's source (does the
// method reach no other symbol?) and against this package's (is every call made under its row?).
var guards = [callCount]guard{
	callInit:          {name: "nvmlInit", methods: []string{"Interface.Init"}, anyOf: versions("nvmlInit", 2), required: true},
	callShutdown:      {name: "nvmlShutdown", methods: []string{"Interface.Shutdown"}, required: true},
	callDriverVersion: {name: "nvmlSystemGetDriverVersion", methods: []string{"Interface.SystemGetDriverVersion"}, required: true},
	callCUDAVersion:   {name: "nvmlSystemGetCudaDriverVersion", methods: []string{"Interface.SystemGetCudaDriverVersion"}},
	callNVMLVersion:   {name: "nvmlSystemGetNVMLVersion", methods: []string{"Interface.SystemGetNVMLVersion"}},
	callDeviceCount:   {name: "nvmlDeviceGetCount", methods: []string{"Interface.DeviceGetCount"}, anyOf: versions("nvmlDeviceGetCount", 2), required: true},
	callHandleByIndex: {name: "nvmlDeviceGetHandleByIndex", methods: []string{"Interface.DeviceGetHandleByIndex"}, anyOf: versions("nvmlDeviceGetHandleByIndex", 2), required: true},

	callUUID:              {name: "nvmlDeviceGetUUID", methods: []string{"Device.GetUUID"}, required: true},
	callPciInfo:           {name: "nvmlDeviceGetPciInfo", methods: []string{"Device.GetPciInfo"}, anyOf: versions("nvmlDeviceGetPciInfo", 3), required: true},
	callMinorNumber:       {name: "nvmlDeviceGetMinorNumber", methods: []string{"Device.GetMinorNumber"}},
	callName:              {name: "nvmlDeviceGetName", methods: []string{"Device.GetName"}},
	callBrand:             {name: "nvmlDeviceGetBrand", methods: []string{"Device.GetBrand"}},
	callArchitecture:      {name: "nvmlDeviceGetArchitecture", methods: []string{"Device.GetArchitecture"}},
	callComputeCapability: {name: "nvmlDeviceGetCudaComputeCapability", methods: []string{"Device.GetCudaComputeCapability"}},
	callSerial:            {name: "nvmlDeviceGetSerial", methods: []string{"Device.GetSerial"}},
	callBoardPart:         {name: "nvmlDeviceGetBoardPartNumber", methods: []string{"Device.GetBoardPartNumber"}},
	callVBIOS:             {name: "nvmlDeviceGetVbiosVersion", methods: []string{"Device.GetVbiosVersion"}},

	callFieldValues:        {name: "nvmlDeviceGetFieldValues", methods: []string{"Device.GetFieldValues"}},
	callPowerUsage:         {name: "nvmlDeviceGetPowerUsage", methods: []string{"Device.GetPowerUsage"}},
	callTotalEnergy:        {name: "nvmlDeviceGetTotalEnergyConsumption", methods: []string{"Device.GetTotalEnergyConsumption"}},
	callUtilizationRates:   {name: "nvmlDeviceGetUtilizationRates", methods: []string{"Device.GetUtilizationRates"}},
	callSamples:            {name: "nvmlDeviceGetSamples", methods: []string{"Device.GetSamples"}},
	callProcessUtilization: {name: "nvmlDeviceGetProcessUtilization", methods: []string{"Device.GetProcessUtilization"}},
	callEncoderUtilization: {name: "nvmlDeviceGetEncoderUtilization", methods: []string{"Device.GetEncoderUtilization"}},
	callDecoderUtilization: {name: "nvmlDeviceGetDecoderUtilization", methods: []string{"Device.GetDecoderUtilization"}},
	callJPEGUtilization:    {name: "nvmlDeviceGetJpgUtilization", methods: []string{"Device.GetJpgUtilization"}},
	callOFAUtilization:     {name: "nvmlDeviceGetOfaUtilization", methods: []string{"Device.GetOfaUtilization"}},
	callGPMSupport:         {name: "nvmlGpmQueryDeviceSupport", methods: []string{"Device.GpmQueryDeviceSupport"}},
	callGPMSampleAlloc:     {name: "nvmlGpmSampleAlloc", methods: []string{"Interface.GpmSampleAlloc"}},
	callGPMSampleFree:      {name: "nvmlGpmSampleFree", methods: []string{"GpmSample.Free"}},
	callGPMSampleGet:       {name: "nvmlGpmSampleGet", methods: []string{"GpmSample.Get"}},
	callGPMMIGSampleGet:    {name: "nvmlGpmMigSampleGet", methods: []string{"GpmSample.MigGet"}},
	callGPMMetricsGet:      {name: "nvmlGpmMetricsGet", methods: []string{"Interface.GpmMetricsGet"}},

	callMemoryInfoV2:      {name: "nvmlDeviceGetMemoryInfo_v2", methods: []string{"Device.GetMemoryInfo_v2"}},
	callMemoryInfo:        {name: "nvmlDeviceGetMemoryInfo", methods: []string{"Device.GetMemoryInfo"}},
	callBAR1:              {name: "nvmlDeviceGetBAR1MemoryInfo", methods: []string{"Device.GetBAR1MemoryInfo"}},
	callTemperatureV:      {name: "nvmlDeviceGetTemperatureV", methods: []string{"Device.GetTemperatureV", "TemperatureHandler.V1"}},
	callTemperature:       {name: "nvmlDeviceGetTemperature", methods: []string{"Device.GetTemperature"}},
	callNumFans:           {name: "nvmlDeviceGetNumFans", methods: []string{"Device.GetNumFans"}},
	callFanSpeed:          {name: "nvmlDeviceGetFanSpeed_v2", methods: []string{"Device.GetFanSpeed_v2"}},
	callClockInfo:         {name: "nvmlDeviceGetClockInfo", methods: []string{"Device.GetClockInfo"}},
	callPerformanceState:  {name: "nvmlDeviceGetPerformanceState", methods: []string{"Device.GetPerformanceState"}},
	callMemoryErrors:      {name: "nvmlDeviceGetMemoryErrorCounter", methods: []string{"Device.GetMemoryErrorCounter"}},
	callTotalECC:          {name: "nvmlDeviceGetTotalEccErrors", methods: []string{"Device.GetTotalEccErrors"}},
	callRemappedRows:      {name: "nvmlDeviceGetRemappedRows", methods: []string{"Device.GetRemappedRows"}},
	callPCIeReplays:       {name: "nvmlDeviceGetPcieReplayCounter", methods: []string{"Device.GetPcieReplayCounter"}},
	callComputeProcesses:  {name: "nvmlDeviceGetComputeRunningProcesses", methods: []string{"Device.GetComputeRunningProcesses"}, anyOf: versions("nvmlDeviceGetComputeRunningProcesses", 3)},
	callGraphicsProcesses: {name: "nvmlDeviceGetGraphicsRunningProcesses", methods: []string{"Device.GetGraphicsRunningProcesses"}, anyOf: versions("nvmlDeviceGetGraphicsRunningProcesses", 3)},
	callMPSProcesses:      {name: "nvmlDeviceGetMPSComputeRunningProcesses", methods: []string{"Device.GetMPSComputeRunningProcesses"}, anyOf: versions("nvmlDeviceGetMPSComputeRunningProcesses", 3)},

	callEnforcedLimit:        {name: "nvmlDeviceGetEnforcedPowerLimit", methods: []string{"Device.GetEnforcedPowerLimit"}},
	callPowerLimit:           {name: "nvmlDeviceGetPowerManagementLimit", methods: []string{"Device.GetPowerManagementLimit"}},
	callDefaultLimit:         {name: "nvmlDeviceGetPowerManagementDefaultLimit", methods: []string{"Device.GetPowerManagementDefaultLimit"}},
	callLimitConstraints:     {name: "nvmlDeviceGetPowerManagementLimitConstraints", methods: []string{"Device.GetPowerManagementLimitConstraints"}},
	callTemperatureThreshold: {name: "nvmlDeviceGetTemperatureThreshold", methods: []string{"Device.GetTemperatureThreshold"}},
	callMarginTemperature:    {name: "nvmlDeviceGetMarginTemperature", methods: []string{"Device.GetMarginTemperature"}},
	callMaxClock:             {name: "nvmlDeviceGetMaxClockInfo", methods: []string{"Device.GetMaxClockInfo"}},
	callPersistenceMode:      {name: "nvmlDeviceGetPersistenceMode", methods: []string{"Device.GetPersistenceMode"}},
	callAccountingMode:       {name: "nvmlDeviceGetAccountingMode", methods: []string{"Device.GetAccountingMode"}},
	callDisplayActive:        {name: "nvmlDeviceGetDisplayActive", methods: []string{"Device.GetDisplayActive"}},
	callComputeMode:          {name: "nvmlDeviceGetComputeMode", methods: []string{"Device.GetComputeMode"}},
	callMIGMode:              {name: "nvmlDeviceGetMigMode", methods: []string{"Device.GetMigMode"}},
	callECCMode:              {name: "nvmlDeviceGetEccMode", methods: []string{"Device.GetEccMode"}},
	callRemapHistogram:       {name: "nvmlDeviceGetRowRemapperHistogram", methods: []string{"Device.GetRowRemapperHistogram"}},
	callPCIeGeneration:       {name: "nvmlDeviceGetCurrPcieLinkGeneration", methods: []string{"Device.GetCurrPcieLinkGeneration"}},
	callPCIeWidth:            {name: "nvmlDeviceGetCurrPcieLinkWidth", methods: []string{"Device.GetCurrPcieLinkWidth"}},
	callPCIeMaxGeneration:    {name: "nvmlDeviceGetMaxPcieLinkGeneration", methods: []string{"Device.GetMaxPcieLinkGeneration"}},
	callPCIeMaxWidth:         {name: "nvmlDeviceGetMaxPcieLinkWidth", methods: []string{"Device.GetMaxPcieLinkWidth"}},
	callNVLinkState:          {name: "nvmlDeviceGetNvLinkState", methods: []string{"Device.GetNvLinkState"}},
	callFabric:               {name: "nvmlDeviceGetGpuFabricInfoV", methods: []string{"Device.GetGpuFabricInfoV", "GpuFabricInfoHandler.V3", "GpuFabricInfoHandler.V2"}},
	callBusWidth:             {name: "nvmlDeviceGetMemoryBusWidth", methods: []string{"Device.GetMemoryBusWidth"}},
	callCores:                {name: "nvmlDeviceGetNumGpuCores", methods: []string{"Device.GetNumGpuCores"}},

	callMaxMIGCount:       {name: "nvmlDeviceGetMaxMigDeviceCount", methods: []string{"Device.GetMaxMigDeviceCount"}},
	callMIGHandle:         {name: "nvmlDeviceGetMigDeviceHandleByIndex", methods: []string{"Device.GetMigDeviceHandleByIndex"}},
	callGPUInstanceID:     {name: "nvmlDeviceGetGpuInstanceId", methods: []string{"Device.GetGpuInstanceId"}},
	callComputeInstanceID: {name: "nvmlDeviceGetComputeInstanceId", methods: []string{"Device.GetComputeInstanceId"}},
	callAttributes:        {name: "nvmlDeviceGetAttributes", methods: []string{"Device.GetAttributes"}, anyOf: versions("nvmlDeviceGetAttributes", 2)},
	callGPUInstance:       {name: "nvmlDeviceGetGpuInstanceById", methods: []string{"Device.GetGpuInstanceById"}},
	callGPUInstanceInfo:   {name: "nvmlGpuInstanceGetInfo", methods: []string{"GpuInstance.GetInfo"}},
	callProfileInfo:       {name: "nvmlDeviceGetGpuInstanceProfileInfo", methods: []string{"Device.GetGpuInstanceProfileInfo"}},

	callSupportedEvents: {name: "nvmlDeviceGetSupportedEventTypes", methods: []string{"Device.GetSupportedEventTypes"}},
	callEventSetCreate:  {name: "nvmlEventSetCreate", methods: []string{"Interface.EventSetCreate"}},
	callEventSetFree:    {name: "nvmlEventSetFree", methods: []string{"EventSet.Free"}},
	callRegisterEvents:  {name: "nvmlDeviceRegisterEvents", methods: []string{"Device.RegisterEvents"}},
	callEventSetWait:    {name: "nvmlEventSetWait", methods: []string{"EventSet.Wait"}, anyOf: versions("nvmlEventSetWait", 2), waits: true},
}

// offers is which calls the loaded library has, and what it lacks.
type offers struct {
	have    [callCount]bool
	missing []string // symbols of which no version is there, in the order of the table
	fatal   []string // those of them that nothing works without
	symbols []string // what the library exports of the table
}

// probe looks every symbol up. lookup returns an error for a symbol that is not there; it must not call it.
func probe(lookup func(symbol string) error) offers {
	var o offers
	for id := range guards {
		g := &guards[id]
		symbols := g.symbols()
		for _, s := range symbols {
			if lookup(s) == nil {
				o.have[id] = true
				o.symbols = append(o.symbols, s)
			}
		}
		if o.have[id] {
			continue
		}
		o.missing = append(o.missing, symbols[0])
		if g.required {
			o.fatal = append(o.fatal, symbols[0])
		}
	}
	return o
}

// Reading is one row of what this package can read, for the documentation.
type Reading struct {
	// Name is the reading. Several rows may serve one: the later ones are asked where the earlier are not offered.
	Name string
	// Symbols are the functions of the library that the row needs; of a function with versions, the newest.
	Symbols []string
	// Poll group is when it is read; empty for what is read once per session.
	PollGroup gpu.PollGroup
	// Doc says what is read and in which unit the driver gives it.
	Doc string
}

// Symbols lists the functions of the library that this package may call.
func Symbols() []string {
	var list []string
	for id := range guards {
		list = append(list, guards[id].symbols()...)
	}
	return list
}
