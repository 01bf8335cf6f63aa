package scenario

import (
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// Scenario is a parsed scenario. It never changes once parsed and is safe to share.
type Scenario struct {
	// Name is the name of the first file, for messages.
	Name  string
	Title string
	// Symbols is the driver branch whose set of functions the stand-in driver exports: R470, R535, R550,
	// R580, R595, R610, R615, R620 or newest. It is chosen when the library is built.
	Symbols string
	GPUs    []GPU

	system []answer
	driver []driverStep
	stalls []stall // of calls that concern no GPU
	events []event // in the order of time
}

// GPU is one GPU of a scenario.
type GPU struct {
	// Index is its number in the scenario; NVML's index too, unless a GPU was removed.
	Index int
	Board string
	UUID  gpu.UUID
	PCI   gpu.PCIAddress
	Minor int

	ring     ring
	model    model
	answers  []answer // in the order of time
	demands  []demand
	profiles []profile
	layouts  []layout // in the order of time
	faults   []fault
	stalls   []stall
}

// Process is a process of a scenario, whether or not it runs at a given time.
type Process struct {
	PID  int
	GPU  int
	Kind gpu.ProcessKind
	// GI and CI place it on a MIG instance.
	GI, CI gpu.Opt[int]
	// Memory is absent where the driver does not report it.
	Memory gpu.Opt[gpu.Bytes]
	// From and To bound its life.
	From, To time.Duration
}

// ring is the driver's ring of utilization samples; entries 0: none.
type ring struct {
	period  time.Duration
	entries int
	sizing  int  // what the sizing call answers
	boot    bool // timestamps count from boot, not from 1970
	zeros   bool // unfilled entries are returned as zeros
	slots   bool // samples are returned in the order of the ring's memory, not of time
	stops   bool // no samples while idle
	ownMean bool // process utilization: mean over the process's own samples
	window  time.Duration
}

// model turns load into power and temperature.
type model struct {
	given                    bool
	idleWatts, busyWatts     float64
	idleCelsius, busyCelsius float64
}

// answer is the answer of a key from a time on.
type answer struct {
	at    time.Duration
	key   string
	value value
}

// demand is a process or a load: a square wave, on for a part of each period, from from until to.
type demand struct {
	pid           int
	listed        bool
	kind          int // as processKinds
	gi, ci        int // -1: the GPU itself
	memory        int64
	memoryUnknown bool
	on, period    time.Duration
	phase         time.Duration
	from, to      time.Duration
	dram          float64 // the part of its time in which memory is read or written
}

// processKinds is the order of the kinds in the flat form.
var processKinds = []gpu.ProcessKind{gpu.ProcessCompute, gpu.ProcessGraphics, gpu.ProcessMPS}

// forever is the end of what does not end.
const forever = time.Duration(1<<63 - 1)

// profile is a MIG GPU instance profile of a board.
type profile struct {
	name                                                                       string
	number, id, slices, memoryMiB, sms, count, copies, decoders, encoders, jpg int
	ofa                                                                        int
}

// migDevice is a MIG device: a compute instance within a GPU instance.
type migDevice struct {
	index, gi, ci int
	profile       int // in the GPU's profiles
	start, size   int
	slices        int // of the compute instance
	uuid          gpu.UUID
}

// layout is the MIG state of a GPU from a time on.
type layout struct {
	at               time.Duration
	current, pending bool
	devices          []migDevice
}

type fault struct {
	at   time.Duration
	kind string // lose, reset_required, restore, remove, unbind, bind
}

type stall struct {
	at       time.Duration
	function string
	delay    time.Duration // negative: hangs
}

type event struct {
	at         time.Duration
	dev        int
	kind, data uint64
	gi, ci     uint32
}

// The events of NVML that a scenario makes by itself.
const (
	eventXID       = 0x8
	eventMIGChange = 0x100
)

type driverStep struct {
	at   time.Duration
	kind string // load, unload, mismatch, replace
}

// Processes lists the processes of the whole scenario, in the order of the file.
func (s *Scenario) Processes() []Process {
	var out []Process
	for i := range s.GPUs {
		for _, d := range s.GPUs[i].demands {
			if d.listed {
				out = append(out, d.process(i))
			}
		}
	}
	return out
}

func (d demand) process(dev int) Process {
	p := Process{PID: d.pid, GPU: dev, Kind: processKinds[d.kind], From: d.from, To: d.to}
	if d.gi >= 0 {
		p.GI, p.CI = gpu.Some(d.gi), gpu.Some(d.ci)
	}
	if !d.memoryUnknown {
		p.Memory = gpu.Some(gpu.Bytes(d.memory))
	}
	return p
}
