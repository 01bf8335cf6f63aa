package gpu

import (
	"slices"
	"time"
)

// HealthState is the verdict on one GPU, by what has to be done.
type HealthState string

// The verdicts, mildest first. Degraded works, but worse than it should. Lost cannot be read at all; unknown could not be
// judged.
const (
	Healthy     HealthState = "healthy"
	Degraded    HealthState = "degraded"
	NeedsReset  HealthState = "needs_reset"
	NeedsReboot HealthState = "needs_reboot"
	Replace     HealthState = "replace"
	Lost        HealthState = "lost"
	Unknown     HealthState = "unknown"
)

// HealthStates lists them all.
var HealthStates = []HealthState{Healthy, Degraded, NeedsReset, NeedsReboot, Replace, Lost, Unknown}

// HealthRule is one reason for a verdict.
type HealthRule struct {
	Reason  string
	Verdict HealthState
	// Source is NVIDIA's document or the field that the rule follows.
	Source  string
	applies func(g *GPU, m *Medium, s *Slow, now time.Time) bool
}

// Failure is why a GPU cannot be read.
type Failure string

// The failures.
const (
	FailureLost  Failure = "lost"           // GPU_IS_LOST
	FailureReset Failure = "reset_required" // RESET_REQUIRED
	FailureHung  Failure = "hung"           // a call does not return
	FailureOther Failure = "other"
)

const (
	xidCatalog   = "NVIDIA XID catalog"
	memoryErrors = "NVIDIA GPU Memory Error Management"
	pageRetire   = "NVIDIA Dynamic Page Retirement"
	// xidVerdict is how long an XID counts where the driver recommends no action by itself.
	xidVerdict = time.Hour
	// maxRetiredPages is an RMA criterion.
	maxRetiredPages = 60
)

// HealthRules is the table of all verdicts. Where the driver reports the recovery action, it decides about resets and
// reboots, and XIDs do not count: they stay after the reset.
var HealthRules = []HealthRule{
	{"lost", Lost, "NVML_ERROR_GPU_IS_LOST", failed(FailureLost)},
	{"missing", Lost, "/sys/bus/pci/devices and nvmlDeviceGetCount",
		func(g *GPU, _ *Medium, _ *Slow, _ time.Time) bool { return g.State == DeviceMissing }},
	{"reset_required", NeedsReset, "NVML_ERROR_RESET_REQUIRED", failed(FailureReset)},
	{"driver_hung", Unknown, "--call-deadline", failed(FailureHung)},
	{"not_readable", Unknown, "return codes of NVML", failed(FailureOther)},
	{"recovery_reset", NeedsReset, "NVML field 230 (GPU recovery action)",
		action(RecoveryReset, RecoveryDrainAndReset, RecoveryBusReset)},
	{"recovery_reboot", NeedsReboot, "NVML field 230 (GPU recovery action)", action(RecoveryReboot, RecoverySystemReboot)},
	{"recovery_peers", Degraded, "NVML field 230 (GPU recovery action)", action(RecoveryDrainP2P, RecoveryRecoverIMEX)},
	{"xid_reset", NeedsReset, xidCatalog, recentXID(46, 48, 62, 95, 109, 110, 119, 120, 136, 140, 143, 155, 156, 158)},
	{"xid_reboot", NeedsReboot, xidCatalog, recentXID(79, 151)},
	{"row_remap_failed", Replace, memoryErrors + ": row remapping failure",
		func(_ *GPU, m *Medium, _ *Slow, _ time.Time) bool { return m.RemapFailed.Or(false) }},
	{"row_remap_pending", NeedsReset, memoryErrors + ": row remapping pending",
		func(_ *GPU, m *Medium, _ *Slow, _ time.Time) bool { return m.RemapPending.Or(false) }},
	{"sram_threshold", Replace, "nvmlEccSramErrorStatus_t.bThresholdExceeded",
		func(_ *GPU, _ *Medium, s *Slow, _ time.Time) bool { e, _ := s.SRAM.Get(); return e.Exceeded }},
	{"memory_unrepairable", Replace, "nvmlDeviceGetUnrepairableMemoryFlag",
		func(_ *GPU, _ *Medium, s *Slow, _ time.Time) bool { return s.Unrepairable.Or(false) }},
	{"channel_repair_pending", NeedsReset, "nvmlDeviceGetRepairStatus",
		func(_ *GPU, _ *Medium, s *Slow, _ time.Time) bool { return s.ChannelRepair.Or(false) }},
	{"tpc_repair_pending", NeedsReset, "nvmlDeviceGetRepairStatus",
		func(_ *GPU, _ *Medium, s *Slow, _ time.Time) bool { return s.TPCRepair.Or(false) }},
	{"retired_pages", Replace, pageRetire + ": RMA policy", func(_ *GPU, m *Medium, _ *Slow, _ time.Time) bool {
		return m.RetiredPages[CauseSingleBit]+m.RetiredPages[CauseDoubleBit] >= maxRetiredPages
	}},
	{"retired_pages_pending", NeedsReset, pageRetire + ": pending retirements",
		func(_ *GPU, m *Medium, _ *Slow, _ time.Time) bool { return m.RetirePending.Or(false) }},
	{"uncorrected_ecc", Degraded, memoryErrors + ": uncorrectable errors since the driver was loaded",
		func(_ *GPU, m *Medium, _ *Slow, _ time.Time) bool {
			return slices.ContainsFunc(m.ECC, func(e ECCCount) bool {
				return e.Severity == ECCUncorrected &&
					e.Volatile.Or(0) > 0
			})
		}},
	{"fabric_failed", NeedsReset, "nvmlGpuFabricInfoV_t.status; CUDA error 802 (cudaErrorSystemNotReady)", fabric(FabricFailed)},
	{"fabric_not_ready", Degraded, "nvmlGpuFabricInfoV_t.state", fabric(FabricNotStarted, FabricInProgress)},
	{"fabric_unhealthy", Degraded, "nvmlGpuFabricInfoV_t.healthMask", func(_ *GPU, _ *Medium, s *Slow, _ time.Time) bool {
		f, _ := s.Fabric.Get()
		return f.Health == "unhealthy" || slices.ContainsFunc(FabricFaults, func(x FabricFault) bool { return f.Faults[x] })
	}},
	{"nvlink_down", Degraded, "nvmlDeviceGetNvLinkState: fewer links are up than were since the exporter started, or on " +
		"another GPU of the model",
		func(g *GPU, _ *Medium, s *Slow, _ time.Time) bool {
			n, _ := s.NVLinks.Get()
			return n.Up > 0 && n.Up < g.LinksExpected
		}},
	{"not_read", Unknown, "no reading yet, or NVML is shut down", func(g *GPU, _ *Medium, _ *Slow, _ time.Time) bool {
		return g.State == DeviceUp && !g.Medium.Present()
	}},
}

type healthCheck = func(*GPU, *Medium, *Slow, time.Time) bool

func failed(reason Failure) healthCheck {
	return func(g *GPU, _ *Medium, _ *Slow, _ time.Time) bool {
		return g.State == DeviceFailed && g.Failure == reason
	}
}

func action(of ...RecoveryAction) healthCheck {
	return func(g *GPU, _ *Medium, _ *Slow, _ time.Time) bool {
		a, ok := g.Recovery.Get()
		return ok && slices.Contains(of, a)
	}
}

func recentXID(codes ...int) healthCheck {
	return func(g *GPU, _ *Medium, _ *Slow, now time.Time) bool {
		return !g.Recovery.Present() && slices.ContainsFunc(g.XIDs, func(x XIDCount) bool {
			last, ok := x.Last.Get()
			return ok && x.Count > 0 && now.Sub(last) < xidVerdict && slices.Contains(codes, x.XID)
		})
	}
}

func fabric(of ...FabricState) healthCheck {
	return func(_ *GPU, _ *Medium, s *Slow, _ time.Time) bool {
		f, ok := s.Fabric.Get()
		return ok && slices.Contains(of, f.State)
	}
}

// Health returns the verdict on a GPU at a time and the rules that led to it: the gravest of those that apply. What is
// known to be wrong outweighs what is unknown.
func (g *GPU) Health(now time.Time) (verdict HealthState, reasons []HealthRule) {
	m, read := g.Medium.Get()
	if !read {
		m = &Medium{}
	}
	s, read := g.Slow.Get()
	if !read {
		s = &Slow{}
	}
	rank := func(h HealthState) int {
		if h == Unknown {
			return slices.Index(HealthStates, Degraded)*2 + 1 // above degraded, which is no reason to act
		}
		return slices.Index(HealthStates, h) * 2
	}
	verdict = Healthy
	for _, r := range HealthRules {
		if !r.applies(g, m, s, now) {
			continue
		}
		reasons = append(reasons, r)
		if rank(r.Verdict) > rank(verdict) {
			verdict = r.Verdict
		}
	}
	return verdict, reasons
}

// Broken reports whether a verdict requires an action before the GPU is used.
func (h HealthState) Broken() bool {
	return h == NeedsReset || h == NeedsReboot || h == Replace || h == Lost
}
