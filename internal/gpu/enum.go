package gpu

// The closed sets that become label values. Each has a list of its members in display order: a state set renders every
// member of its list.

// PollGroup is a set of readings that share one interval, chosen by what their calls cost the workloads.
type PollGroup string

// The poll groups of the driver, the most expensive last, and the two that do not poll NVML.
const (
	PollFast    PollGroup = "fast"
	PollMedium  PollGroup = "medium"
	PollSlow    PollGroup = "slow"
	PollKubelet PollGroup = "kubelet"
	PollEvents  PollGroup = "events"
)

// DevicePollGroups are the poll groups that read GPUs.
var DevicePollGroups = []PollGroup{PollFast, PollMedium, PollSlow}

// DeviceState is whether a GPU can be read.
type DeviceState string

// Up is readable. Failed is known to NVML and not readable: lost, stuck or needing a reset. Missing is on
// the PCI bus and not in NVML. Detached is on the bus and bound to another driver (vfio-pci).
const (
	DeviceUp       DeviceState = "up"
	DeviceFailed   DeviceState = "failed"
	DeviceMissing  DeviceState = "missing"
	DeviceDetached DeviceState = "detached"
)

// DeviceStates lists them all.
var DeviceStates = []DeviceState{DeviceUp, DeviceFailed, DeviceMissing, DeviceDetached}

// RecoveryAction is the action that the driver recommends for a GPU: NVML field 230.
type RecoveryAction string

// The actions, mildest first.
const (
	RecoveryNone          RecoveryAction = "none"
	RecoveryReset         RecoveryAction = "reset"
	RecoveryReboot        RecoveryAction = "reboot"
	RecoveryDrainP2P      RecoveryAction = "drain_p2p"
	RecoveryDrainAndReset RecoveryAction = "drain_and_reset"
	RecoveryRecoverIMEX   RecoveryAction = "recover_imex"
	RecoveryBusReset      RecoveryAction = "bus_reset"
	RecoverySystemReboot  RecoveryAction = "system_reboot"
)

// RecoveryActions lists them all.
var RecoveryActions = []RecoveryAction{RecoveryNone, RecoveryReset, RecoveryReboot, RecoveryDrainP2P,
	RecoveryDrainAndReset, RecoveryRecoverIMEX, RecoveryBusReset, RecoverySystemReboot}

// TimeState classifies GPU-time: every second of every GPU is in exactly one state.
type TimeState string

// Busy time is counted first, the rest by allocated share: gap and idle are allocated (idle: no kernel for 60 s),
// unallocated is allocated to no container, unavailable is a GPU that cannot be read, unknown is what could not be
// measured.
const (
	TimeBusy        TimeState = "busy"
	TimeGap         TimeState = "gap"
	TimeIdle        TimeState = "idle"
	TimeUnallocated TimeState = "unallocated"
	TimeUnavailable TimeState = "unavailable"
	TimeUnknown     TimeState = "unknown"
)

// TimeStates lists them all.
var TimeStates = []TimeState{TimeBusy, TimeGap, TimeIdle, TimeUnallocated, TimeUnavailable, TimeUnknown}

// Method is how the busy seconds of a GPU are measured.
type Method string

// Ring: integral of the driver's own sample ring, exact. Rate: the driver's last sampling period, read at
// each fast poll. GPM: the profiling counters, used under MIG.
const (
	MethodRing Method = "ring"
	MethodRate Method = "rate"
	MethodGPM  Method = "gpm"
)

// Engine is a fixed-function engine of a GPU.
type Engine string

// The engines that NVML reports.
const (
	EngineEncoder Engine = "encoder"
	EngineDecoder Engine = "decoder"
	EngineJPEG    Engine = "jpeg"
	EngineOFA     Engine = "ofa"
)

// Engines lists them all.
var Engines = []Engine{EngineEncoder, EngineDecoder, EngineJPEG, EngineOFA}

// Clock is a clock domain.
type Clock string

// The clock domains that NVML reports.
const (
	ClockGraphics Clock = "graphics"
	ClockSM       Clock = "sm"
	ClockMemory   Clock = "memory"
	ClockVideo    Clock = "video"
)

// Clocks lists them all.
var Clocks = []Clock{ClockGraphics, ClockSM, ClockMemory, ClockVideo}

// LimitReason is why clocks were below the requested frequency. Reasons overlap in time.
type LimitReason string

// The reasons whose duration the driver counts.
const (
	LimitPowerCap     LimitReason = "power_cap"      // field 74
	LimitThermal      LimitReason = "thermal"        // field 75
	LimitSyncBoost    LimitReason = "sync_boost"     // field 76
	LimitBoard        LimitReason = "board_limit"    // field 77
	LimitReliability  LimitReason = "reliability"    // field 79
	LimitSWThermal    LimitReason = "sw_thermal"     // field 269
	LimitHWThermal    LimitReason = "hw_thermal"     // field 270
	LimitHWPowerBrake LimitReason = "hw_power_brake" // field 271
)

// LimitReasons lists them all.
var LimitReasons = []LimitReason{LimitPowerCap, LimitThermal, LimitSyncBoost, LimitBoard, LimitReliability,
	LimitSWThermal, LimitHWThermal, LimitHWPowerBrake}

// Sensor is a temperature sensor.
type Sensor string

// The sensors that NVML reports.
const (
	SensorGPU    Sensor = "gpu"
	SensorMemory Sensor = "memory"
)

// TemperatureLimit names a threshold.
type TemperatureLimit string

// Where the GPU slows down, where it shuts down, and the highest temperature of normal operation.
const (
	LimitSlowdown     TemperatureLimit = "slowdown"
	LimitShutdown     TemperatureLimit = "shutdown"
	LimitMaxOperating TemperatureLimit = "max_operating"
)

// ComputeMode is nvmlDeviceGetComputeMode.
type ComputeMode string

// The compute modes.
const (
	ComputeDefault          ComputeMode = "default"
	ComputeExclusiveThread  ComputeMode = "exclusive_thread"
	ComputeProhibited       ComputeMode = "prohibited"
	ComputeExclusiveProcess ComputeMode = "exclusive_process"
)

// ComputeModes lists them all.
var ComputeModes = []ComputeMode{ComputeDefault, ComputeExclusiveThread, ComputeProhibited, ComputeExclusiveProcess}

// ECCSeverity is corrected or uncorrected.
type ECCSeverity string

// The severities.
const (
	ECCCorrected   ECCSeverity = "corrected"
	ECCUncorrected ECCSeverity = "uncorrected"
)

// ECCMemory is where an error was counted. The parts of one GPU never overlap: a GPU that counts by
// location has no "all".
type ECCMemory string

// The locations. All is for a GPU that reports its total only.
const (
	ECCDRAM          ECCMemory = "dram"
	ECCSRAM          ECCMemory = "sram"
	ECCL1            ECCMemory = "l1"
	ECCL2            ECCMemory = "l2"
	ECCRegisterFile  ECCMemory = "register_file"
	ECCTextureMemory ECCMemory = "texture_memory"
	ECCTextureShared ECCMemory = "texture_shm"
	ECCCBU           ECCMemory = "cbu"
	ECCAll           ECCMemory = "all"
)

// RemapCause is why a row was remapped or a page retired.
type RemapCause string

// The causes. Corrected and uncorrected apply to rows; repeated single-bit and double-bit apply to pages.
const (
	CauseCorrected   RemapCause = "corrected"
	CauseUncorrected RemapCause = "uncorrected"
	CauseSingleBit   RemapCause = "multiple_single_bit"
	CauseDoubleBit   RemapCause = "double_bit"
)

// BankAvailability is how much spare capacity the row remapper has left in a bank.
type BankAvailability string

// The availabilities, best first: nvmlDeviceGetRowRemapperHistogram.
const (
	BanksMax     BankAvailability = "max"
	BanksHigh    BankAvailability = "high"
	BanksPartial BankAvailability = "partial"
	BanksLow     BankAvailability = "low"
	BanksNone    BankAvailability = "none"
)

// BankAvailabilities lists them all.
var BankAvailabilities = []BankAvailability{BanksMax, BanksHigh, BanksPartial, BanksLow, BanksNone}

// LinkKind is a kind of link.
type LinkKind string

// The kinds.
const (
	LinkNVLink LinkKind = "nvlink"
	LinkC2C    LinkKind = "c2c"
	LinkPCIe   LinkKind = "pcie"
)

// The values of a link that are no kind of error.
const (
	LinkUp       = "up"
	LinkTransmit = "transmit"
	LinkReceive  = "receive"
)

// NVLinkError is a kind of link error.
type NVLinkError string

// The kinds, summed over the links of a GPU.
const (
	NVLinkCRCFlit  NVLinkError = "crc_flit"
	NVLinkCRCData  NVLinkError = "crc_data"
	NVLinkReplay   NVLinkError = "replay"
	NVLinkRecovery NVLinkError = "recovery"
	NVLinkECC      NVLinkError = "ecc"
	NVLinkSymbol   NVLinkError = "symbol"
)

// NVLinkErrors lists them all.
var NVLinkErrors = []NVLinkError{NVLinkCRCFlit, NVLinkCRCData, NVLinkReplay, NVLinkRecovery, NVLinkECC, NVLinkSymbol}

// FabricState is the GPU's registration with the NVSwitch fabric.
type FabricState string

// The states of nvmlGpuFabricInfo; "not supported" is absent, not a state.
const (
	FabricNotStarted FabricState = "not_started"
	FabricInProgress FabricState = "in_progress"
	FabricCompleted  FabricState = "completed"
	// FabricFailed: the registration completed with an error. CUDA does not start on such a GPU (error 802).
	FabricFailed FabricState = "failed"
)

// FabricStates lists those that a GPU with a fabric can be in, the first three as NVML numbers them.
var FabricStates = []FabricState{FabricNotStarted, FabricInProgress, FabricCompleted, FabricFailed}

// FabricHealths are the summaries of the fabric's health, as NVML numbers them after "not supported".
var FabricHealths = []string{"healthy", "unhealthy", "limited_capacity"}

// FabricFault is a member of the fabric's health mask.
type FabricFault string

// The faults of the health mask.
const (
	FabricDegradedBandwidth FabricFault = "degraded_bandwidth"
	FabricRouteRecovery     FabricFault = "route_recovery"
	FabricRouteUnhealthy    FabricFault = "route_unhealthy"
	FabricAccessTimeout     FabricFault = "access_timeout"
	FabricIncorrectConfig   FabricFault = "incorrect_configuration"
)

// FabricFaults lists them all.
var FabricFaults = []FabricFault{FabricDegradedBandwidth, FabricRouteRecovery, FabricRouteUnhealthy,
	FabricAccessTimeout, FabricIncorrectConfig}

// ProcessKind is the NVML process list that contains a process.
type ProcessKind string

// The kinds. A process may have several.
const (
	ProcessCompute  ProcessKind = "compute"
	ProcessGraphics ProcessKind = "graphics"
	ProcessMPS      ProcessKind = "mps"
)

// ProcessKinds lists them all.
var ProcessKinds = []ProcessKind{ProcessCompute, ProcessGraphics, ProcessMPS}

// Pipe is an arithmetic pipe of an SM, other than the tensor cores.
type Pipe string

// The pipes that GPM reports.
const (
	PipeFP16    Pipe = "fp16"
	PipeFP32    Pipe = "fp32"
	PipeFP64    Pipe = "fp64"
	PipeInteger Pipe = "integer"
)

// Pipes lists them all.
var Pipes = []Pipe{PipeFP16, PipeFP32, PipeFP64, PipeInteger}

// ClockReasons are the bits of Medium.ClockEvents: the reasons for reduced clocks by their bit in NVML's mask, lowest first.
var ClockReasons = []string{"idle", "applications_clocks", string(LimitPowerCap), "hw_slowdown", string(LimitSyncBoost),
	string(LimitSWThermal), string(LimitHWThermal), string(LimitHWPowerBrake), "display_clocks", string(LimitBoard),
	string(LimitReliability)}
