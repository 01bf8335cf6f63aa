package gpu

// The small closed sets that become label values. Each has its list, in the order in which it is shown:
// a state set renders every member of its list.

// Lane is one rhythm of polling. Lanes differ by what a call costs the workloads.
type Lane string

// The lanes of the driver, dearest last, and the two that are not polls of NVML.
const (
	LaneFast    Lane = "fast"
	LaneMedium  Lane = "medium"
	LaneSlow    Lane = "slow"
	LaneKubelet Lane = "kubelet"
	LaneEvents  Lane = "events"
)

// DeviceLanes are the lanes that read cards.
var DeviceLanes = []Lane{LaneFast, LaneMedium, LaneSlow}

// CardState says whether a card can be read.
type CardState string

// Up is readable. Failed is known to NVML and not readable: lost, stuck or needing a reset. Missing is on
// the PCI bus and not in NVML. Detached is on the bus, bound to another driver (vfio-pci) on purpose.
const (
	CardUp       CardState = "up"
	CardFailed   CardState = "failed"
	CardMissing  CardState = "missing"
	CardDetached CardState = "detached"
)

// CardStates lists them all.
var CardStates = []CardState{CardUp, CardFailed, CardMissing, CardDetached}

// RecoveryAction is what the driver wants done with a card: NVML field 230.
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

// Use is where a card's second went. Every second of every card goes to exactly one.
type Use string

// Busy first; the rest by held share: underused and idle are held, unallocated is known to be free,
// unavailable is a card that cannot be read, unknown is a second of which nobody can tell.
const (
	UseBusy        Use = "busy"
	UseUnderused   Use = "underused"
	UseIdle        Use = "idle"
	UseUnallocated Use = "unallocated"
	UseUnavailable Use = "unavailable"
	UseUnknown     Use = "unknown"
)

// Uses lists them all.
var Uses = []Use{UseBusy, UseUnderused, UseIdle, UseUnallocated, UseUnavailable, UseUnknown}

// Method says how the busy seconds of a card were measured.
type Method string

// Ring: integral of the driver's own sample ring, exact. Rate: the driver's last window, sampled at each
// fast tick. GPM: the profiling counters, used under MIG.
const (
	MethodRing Method = "ring"
	MethodRate Method = "rate"
	MethodGPM  Method = "gpm"
)

// Engine is a fixed-function engine of a card.
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

// LimitReason is why clocks were held below what was asked for. Reasons overlap in time.
type LimitReason string

// The reasons of which the driver counts the nanoseconds.
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

// Where the card slows down, where it shuts down, and the highest temperature of normal operation.
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

// ECCMemory is where an error was counted. The parts of one card never overlap: a card that counts by
// location has no "all".
type ECCMemory string

// The locations. All stands for a card that tells only its total.
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

// The causes. Rows know corrected and uncorrected errors; pages know repeated single-bit and double-bit errors.
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

// NVLinkError is a kind of link error.
type NVLinkError string

// The kinds, summed over the links of a card.
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

// FabricState is the card's registration with the NVSwitch fabric.
type FabricState string

// The states of nvmlGpuFabricInfo; "not supported" is no state, but absence.
const (
	FabricNotStarted FabricState = "not_started"
	FabricInProgress FabricState = "in_progress"
	FabricCompleted  FabricState = "completed"
)

// FabricStates lists those that a card with a fabric can be in.
var FabricStates = []FabricState{FabricNotStarted, FabricInProgress, FabricCompleted}

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

// ProcessKind is the list in which NVML showed a process.
type ProcessKind string

// The kinds. One process may be of several.
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
