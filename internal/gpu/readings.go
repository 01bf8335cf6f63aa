package gpu

import "time"

// Sample is one entry of a driver ring: the mean over the window that ends at Time.
type Sample struct {
	// Time is the driver's own clock in microseconds. It may be the epoch or the time since boot, so it
	// is only ever compared with other samples of the same GPU and ring.
	Time int64
	// Value is 0 to 100 percent as the driver gave it; what lies outside has not been filtered yet.
	Value float64
}

// Ring is what one read of a driver ring returned: the samples that are newer than those of the read
// before, unsorted; unfilled entries (time 0) are possible. An idle GPU may stop its ring and return none.
type Ring []Sample

// ProcessSample is one entry of nvmlDeviceGetProcessUtilization, percent of the period that ends at Time.
// The driver records one process per sample, so shares are statistical.
type ProcessSample struct {
	PID                          int
	Time                         int64 // as Sample.Time
	SM, Memory, Encoder, Decoder float64
}

// ProcessAccount is what the driver accounts for one process since its start, in units of its utilization samples: of
// each sample the process that was seen on the GPU gets the busy time. Source: nvmlDeviceGetAccountingStats_v2.
type ProcessAccount struct {
	PID   int
	Start uint64 // with the PID identifies the process
	// New is true for a process that started after the reading before; of others, what they did until then is unknown.
	New bool
	// Busy and Memory are sums over the samples, 1 for a sample in which the engine was busy all the time.
	Busy, Memory float64
}

// Utilization covers the driver's last sampling period (1/6 s to 1 s): the share of time in which any kernel ran, and
// in which memory was read or written. Source: nvmlDeviceGetUtilizationRates.
type Utilization struct{ GPU, Memory Ratio }

// GPM holds the metrics of one pair of profiling samples. Source: nvmlGpmMetricsGet;
// Hopper and newer. A metric that the GPU does not support is absent.
type GPM struct {
	Window                    time.Duration // between the two samples
	GraphicsActive            Opt[Ratio]    // id 1
	SMActive, SMOccupancy     Opt[Ratio]    // ids 2, 3
	TensorActive              Opt[Ratio]    // id 5
	DRAMActive                Opt[Ratio]    // id 10
	IntegerActive, FP64Active Opt[Ratio]    // ids 4, 11
	FP32Active, FP16Active    Opt[Ratio]    // ids 12, 13
	// PCIeTransmit and PCIeReceive are bytes per second: ids 20, 21. They resolve the overflows of the PCIe counters.
	PCIeTransmit, PCIeReceive Opt[float64]
	// PCIeTransmitted and PCIeReceived are the driver's own sums since reboot, from R595 on: ids 255, 256. The header has
	// no unit; they count as bytes where that agrees with the counters of 32 bits.
	PCIeTransmitted, PCIeReceived Opt[float64]
}

// Fast is the fast poll group of one GPU: one field-value batch, the rings since the last read, one GPM pair.
type Fast struct {
	Taken time.Time // the exporter's clock when the read ended

	Power        Opt[Watts] // field 185, scope GPU, else nvmlDeviceGetPowerUsage: the driver's average
	PowerInstant Opt[Watts] // field 186, scope GPU
	PowerModule  Opt[Watts] // field 185, scope module
	PowerMemory  Opt[Watts] // field 185, scope memory
	// PowerModuleInstant is field 186, scope module.
	PowerModuleInstant Opt[Watts]
	Energy             Opt[Joules] // field 83: since the driver was loaded

	MemoryTemperature Opt[Celsius]            // field 82
	Limited           map[LimitReason]Seconds // fields 74 ff.; offered reasons only
	// PCIeTransmit and PCIeReceive have 32 bits, which overflow many times between two polls at full speed. With
	// GPM they are as of the profiling sample.
	PCIeTransmit   Opt[Bytes] // field 197
	PCIeReceive    Opt[Bytes] // field 198
	NVLinkTransmit Opt[Bytes] // field 202, else 138 (KiB), all links
	NVLinkReceive  Opt[Bytes] // field 204, else 139

	// SampledReasons is nvmlDeviceGetCurrentClocksEventReasons, read where Limited lacks a reason.
	SampledReasons Opt[uint64]

	// Unsampled is set where the readings from here to Accounts were not due.
	Unsampled   bool
	Utilization Opt[Utilization]
	Busy        Opt[Ring] // GPU utilization samples; absent where not offered (MIG)
	MemoryBusy  Opt[Ring]
	// RingFull is set once: in the reading whose Busy is all that the ring holds when it is full.
	RingFull bool
	// Processes are the utilization samples newer than the last read. Present and empty: no process was active.
	Processes Opt[[]ProcessSample]
	// Accounts are the processes that run or have ended since the last read, where accounting mode is enabled.
	Accounts Opt[[]ProcessAccount]
	Engines  map[Engine]Ratio

	GPM       Opt[GPM]
	Instances []InstanceFast
	// LayoutStale: a reading contradicts the MIG layout of the last slow poll group.
	LayoutStale bool
}

// InstanceFast is the fast poll group of one MIG GPU instance.
type InstanceFast struct {
	UUID UUID
	GPM  Opt[GPM] // of all its compute instances together
	// Compute are the compute instances that are sampled on their own, where there is more than one.
	Compute []ComputeFast
}

// ComputeFast is the fast poll group of one compute instance.
type ComputeFast struct {
	UUID UUID
	GPM  Opt[GPM] // absent after the first of two samples
}

// Memory is device memory. Used excludes Reserved where Reserved is present
// (nvmlDeviceGetMemoryInfo_v2); the older call counts it as used.
type Memory struct {
	Total, Used, Free Bytes
	Reserved          Opt[Bytes]
}

// BAR1 is the aperture through which the host maps device memory. Recent drivers map all of it.
type BAR1 struct{ Total, Used Bytes }

// ECCCount is one error counter. Volatile counts since the driver was loaded, Lifetime over the GPU's life.
type ECCCount struct {
	Severity ECCSeverity
	Memory   ECCMemory
	Volatile Opt[uint64]
	Lifetime Opt[uint64]
}

// Process is a process that NVML lists on a GPU, the compute, graphics and MPS lists merged by PID.
type Process struct {
	PID    int
	Kinds  []ProcessKind // in the order of ProcessKinds
	Memory Opt[Bytes]    // absent where the driver does not report it, never all ones
	// GI and CI place the process on a MIG instance.
	GI, CI Opt[int]
}

// Medium is the medium poll group of one GPU.
type Medium struct {
	Taken time.Time

	Memory     Opt[Memory]
	Integrated bool // the driver does not offer Memory: the GPU uses the memory of the host
	// OwnLimit is the hard memory limit of the cgroup that this process is in (nvmlDeviceGetMemoryLimits_v1, R615 and
	// newer); absent without a limit. MemoryInfo reports it as the total to its processes.
	OwnLimit Opt[Bytes]
	// Cgroups is what the driver charges to the cgroups that it was queried for (nvmlDeviceGetMemoryLimits_v1); empty where
	// it has an account of none. Containers are not named yet.
	Cgroups []CgroupMemory
	// Unmeasured are readings that were dropped because they do not describe the GPU.
	Unmeasured []Unmeasured
	// MemoryDoubt is what contradicts the total of Memory without proving it wrong; empty: nothing.
	MemoryDoubt string
	BAR1        Opt[BAR1]
	Temperature Opt[Celsius] // nvmlDeviceGetTemperatureV, else nvmlDeviceGetTemperature
	Fans        []Opt[Ratio] // nvmlDeviceGetFanSpeed_v2, one per fan; empty without fans
	Clocks      map[Clock]Hertz
	PState      Opt[int] // 0 to 15
	ClockEvents Opt[int] // nvmlDeviceGetCurrentClocksEventReasons: a bit mask
	// Margin is nvmlDeviceGetMarginTemperature: degrees left until the GPU slows down.
	Margin        Opt[Celsius]
	RemapInactive map[RemapCause]uint64

	ECC           []ECCCount
	RemappedRows  map[RemapCause]uint64
	RemapPending  Opt[bool]
	RemapFailed   Opt[bool]
	RetiredPages  map[RemapCause]uint64
	RetirePending Opt[bool]
	PCIeReplays   Opt[uint64]
	NVLinkErrors  map[NVLinkError]uint64
	Recovery      Opt[RecoveryAction]
	Links         []Link // of single links, where enabled

	// Processes is present only where the list was read; present and empty means that there is no process
	// on the GPU (among those visible in this PID namespace).
	Processes Opt[[]Process]
	Instances []InstanceMedium
	// LayoutStale is that of Fast.
	LayoutStale bool
}

// InstanceMedium is the medium poll group of one MIG GPU instance.
type InstanceMedium struct {
	UUID   UUID
	Memory Opt[Memory]
}

// Slow is the slow poll group of one GPU: configuration, inventory and link state.
type Slow struct {
	Taken time.Time

	PowerLimit          Opt[Watts] // enforced
	PowerLimitRequested Opt[Watts]
	PowerLimitDefault   Opt[Watts]
	PowerLimitMin       Opt[Watts]
	PowerLimitMax       Opt[Watts]
	// TemperatureLimits are absolute, also where the driver reports margins.
	TemperatureLimits []TemperatureThreshold
	MaxClocks         map[Clock]Hertz
	// ApplicationClocks and DefaultClocks are the applications clocks as set, and after boot; until R590.
	ApplicationClocks, DefaultClocks map[Clock]Hertz
	// ScopeLimits are power limits of the module and of the GPU base, by scope and limit ("module min"): fields 187 to 192.
	ScopeLimits map[string]Watts
	// MarginLimits are the margins at which limits are reached, by sensor and limit: fields 193 to 196.
	MarginLimits   map[string]Celsius
	EDPPMultiplier Opt[Ratio] // field 274

	SRAM                     Opt[SRAMErrors]
	ChannelRepair, TPCRepair Opt[bool]   // nvmlDeviceGetRepairStatus: pending
	Unrepairable             Opt[bool]   // nvmlDeviceGetUnrepairableMemoryFlag
	ProtectedMemory          Opt[Memory] // nvmlDeviceGetConfComputeProtectedMemoryUsage
	GSPMode, GSPModeDefault  Opt[bool]
	C2C                      Opt[bool]
	Encoder, Capture         Opt[Sessions] // nvmlDeviceGetEncoderStats, nvmlDeviceGetFBCStats
	DRAMEncryption           Opt[ModePair]

	PersistenceMode Opt[bool]
	AccountingMode  Opt[bool]
	DisplayActive   Opt[bool]
	DisplayAttached Opt[bool]
	ComputeMode     Opt[ComputeMode]
	MIGMode         Opt[ModePair]
	ECCMode         Opt[ModePair]

	RemapBanks map[BankAvailability]uint64

	PCIe    PCIeLink
	NVLinks Opt[NVLinkCount]
	Links   []Link // the state of each NVLink, where enabled
	Fabric  Opt[Fabric]
	// Instances are the MIG GPU instances that exist, in the order of their ids.
	Instances []Instance
}

// Sessions are the video encoding or frame buffer capture sessions of a GPU, with moving averages over them.
type Sessions struct {
	Count   int
	FPS     float64 // frames per second
	Latency Seconds
}

// SRAMErrors is nvmlDeviceGetSramEccErrorStatus: uncorrectable errors by kind and, over the GPU's life, by source.
type SRAMErrors struct {
	Volatile, Lifetime, Sources map[string]uint64
	// Exceeded: the driver's threshold for replacing the GPU.
	Exceeded bool
}

// TemperatureThreshold is one limit of one sensor.
type TemperatureThreshold struct {
	Sensor Sensor
	Limit  TemperatureLimit
	Value  Celsius
}

// ModePair is a mode that changes at the next reset.
type ModePair struct{ Current, Pending bool }

// PCIeLink is the current link, and the maximum that GPU and slot support together.
type PCIeLink struct {
	Generation, Width, MaxGeneration, MaxWidth Opt[int]
	GPUMaxGeneration                           Opt[int] // of the GPU alone
}

// Link is one value of one link: LinkUp (0 or 1), bytes that were transmitted or received, or errors of the kind that
// Value names, both since the driver was loaded.
type Link struct {
	Kind  LinkKind
	Index int
	Value string
	N     uint64
}

// NVLinkCount counts links by state.
type NVLinkCount struct{ Up, Down int }

// Fabric is nvmlDeviceGetGpuFabricInfoV. A fault is absent from Faults where the driver does not report it.
type Fabric struct {
	State  FabricState
	Status string // NVML's name of the code with which the registration completed; empty before
	// Cluster is the UUID of the NVLink domain, empty where there is none; Clique the partition of it.
	Cluster string
	Clique  int
	Health  string // of FabricHealths; empty where not reported
	Faults  map[FabricFault]bool
	// Partitioned is whether the GPU is assigned to a partition of the fabric.
	Partitioned Opt[bool]
}

// Instance is a MIG GPU instance and the compute instances in it.
type Instance struct {
	// UUID is that of the first compute instance's MIG device; series of the instance carry it.
	UUID    UUID
	GI      int
	Profile string // "1g.10gb"
	// Slices are compute slices, out of the GPU's.
	Slices         int
	PlacementStart Opt[int] // first memory slice
	PlacementSize  Opt[int]
	ProfileID      Opt[int] // GPU instance profile id
	Compute        []ComputeInstance
	// Share is Slices over the GPU's compute slices.
	Share Opt[Ratio]
}

// ComputeShare is the fraction of the instance that one of its compute instances is: by multiprocessors where all have
// theirs.
func (in *Instance) ComputeShare(at int) Ratio {
	sum := 0
	for _, ci := range in.Compute {
		sms := ci.SMs.Or(0)
		if sms <= 0 {
			return 1 / Ratio(len(in.Compute))
		}
		sum += sms
	}
	return Ratio(in.Compute[at].SMs.Or(0)) / Ratio(sum)
}

// ComputeInstance is one MIG device.
type ComputeInstance struct {
	UUID  UUID
	CI    int
	Index int // MIG index on its GPU, the 1 in "0:1"
	SMs   Opt[int]
}

// Fault is a failed call; NOT_SUPPORTED and its like are not faults.
type Fault struct {
	GPU  UUID
	Call string // the NVML function
	Code string // NVML's name of the return code
}
