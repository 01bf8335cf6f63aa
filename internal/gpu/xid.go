package gpu

import "time"

// XIDTier is the severity of an XID by who must act.
type XIDTier string

// Critical: the GPU or the node needs an operator now. Warning: watch it. Application: the application has to be
// restarted or fixed. Info: nothing to do.
const (
	XIDCritical    XIDTier = "critical"
	XIDWarning     XIDTier = "warning"
	XIDApplication XIDTier = "application"
	XIDInfo        XIDTier = "info"
)

// XIDEvent is one or more reports of the same code, from one data source, at one time.
type XIDEvent struct {
	GPU UUID
	PCI PCIAddress
	XID int
	// Time is the exporter's clock when the event arrived, or the kernel's time of an older line.
	Time time.Time
	// Source is SourceNVML, SourceKmsg or SourceKmsgProbe. The same event arrives from several.
	Source string
	// GI is the MIG GPU instance that the error occurred on, where the source names one.
	GI Opt[int]
	// CI is the compute instance of it, likewise.
	CI Opt[int]
	// PID is the process of the channel in error, else the one that was running (kernel log); 0 if unknown.
	PID int
	// Container is the one that the sampler attributes the event to; zero if unknown.
	Container Container
	// Old marks a line from before the exporter's start: it sets the time of the last event and is not counted.
	Old bool
}

// The names of the data sources, as values of the label source.
const (
	SourceNVML         = "nvml"
	SourceKmsg         = "kmsg"
	SourceKmsgProbe    = "kmsg_probe" // of XIDs: the kernel module's message that a GPU fell off the bus, without a code
	SourceEvents       = "nvml_events"
	SourcePodResources = "podresources"
)

// XIDCount is one code on one GPU.
type XIDCount struct {
	XID   int
	Count uint64         // since the exporter started
	Last  Opt[time.Time] // also from kernel log lines before the exporter's start
	// GI and Container are those of the last event, for five minutes; absent and zero where they are unknown.
	GI        Opt[int]
	Container Container
}

// NVMLReportsXID reports whether a code can arrive as an NVML event. Facts: 79, 119 and 120 cannot ("due to limitations
// in the NVML library", NVIDIA staff in NVIDIA/DCGM#162); 62 has never been seen to (NVIDIA/DCGM#235). They are in the
// kernel log only.
func NVMLReportsXID(xid int) bool {
	return xid != 62 && xid != 79 && xid != 119 && xid != 120
}

// XIDTierOf returns the tier of a code. An unknown code is a warning.
func XIDTierOf(xid int) XIDTier {
	if t, ok := xidTiers[xid]; ok {
		return t
	}
	return XIDWarning
}

// XIDsFromZero lists the critical codes whose counters start at 0 where a data source can report them, so that increase()
// in a user's own rule counts the first event. Facts: the codes that page in the rules of nvidia_gpu_exporter's chart. Rules
// and dashboards here count the first event of every code.
func XIDsFromZero() []int { return []int{48, 62, 64, 74, 79, 95, 119, 120} }

// Facts: NVIDIA's XID catalog. 46, 62, 64, 95, 109, 110, 119, 120, 136, 140, 143, 155, 156, 158 require a
// reset of the GPU; 79 and 151 a restart of the node; 48 the double-bit ECC work flow; 74 and 144 to 150
// are NVLink; 154 reports that the recovery action changed.
var criticalXIDs = []int{46, 48, 62, 64, 74, 79, 95, 109, 110, 119, 120, 136, 140, 143, 151, 155, 156, 158}

var xidTiers = func() map[int]XIDTier {
	m := map[int]XIDTier{}
	for _, x := range []int{37, 38, 43, 44, 63, 66, 67, 92, 93, 106, 107, 121, 137, 141, 152, 153, 157, 160, 161} {
		m[x] = XIDInfo
	}
	for _, r := range [][2]int{{8, 8}, {11, 11}, {13, 13}, {25, 25}, {31, 32}, {39, 41}, {45, 45}, {60, 60}, {68, 72},
		{75, 77}, {80, 80}, {82, 86}, {88, 89}, {96, 105}, {126, 135}, {139, 139}} {
		for x := r[0]; x <= r[1]; x++ {
			m[x] = XIDApplication
		}
	}
	for x := 144; x <= 150; x++ {
		m[x] = XIDWarning
	}
	for _, x := range []int{94, 154} {
		m[x] = XIDWarning
	}
	for _, x := range criticalXIDs {
		m[x] = XIDCritical
	}
	return m
}()
