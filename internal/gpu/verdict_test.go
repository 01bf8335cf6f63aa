package gpu

import (
	"strings"
	"testing"
	"time"
)

func TestHealth(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	seen := map[string]bool{}
	for name, tt := range map[string]struct {
		change func(g *GPU, m *Medium, s *Slow)
		want   string
	}{
		"healthy": {func(*GPU, *Medium, *Slow) {}, "healthy"},
		"lost":    {func(g *GPU, _ *Medium, _ *Slow) { g.State, g.Failure = DeviceFailed, FailureLost }, "lost lost"},
		"missing": {func(g *GPU, _ *Medium, _ *Slow) { g.State = DeviceMissing }, "lost missing"},
		"needs a reset": {func(g *GPU, _ *Medium, _ *Slow) { g.State, g.Failure = DeviceFailed, FailureReset },
			"needs_reset reset_required"},
		"hung":           {func(g *GPU, _ *Medium, _ *Slow) { g.State, g.Failure = DeviceFailed, FailureHung }, "unknown driver_hung"},
		"refused":        {func(g *GPU, _ *Medium, _ *Slow) { g.State, g.Failure = DeviceFailed, FailureOther }, "unknown not_readable"},
		"not read":       {func(g *GPU, _ *Medium, _ *Slow) { g.Medium = None[*Medium]() }, "unknown not_read"},
		"action":         {func(g *GPU, _ *Medium, _ *Slow) { g.Recovery = Some(RecoveryDrainAndReset) }, "needs_reset recovery_reset"},
		"action reboot":  {func(g *GPU, _ *Medium, _ *Slow) { g.Recovery = Some(RecoveryReboot) }, "needs_reboot recovery_reboot"},
		"action peers":   {func(g *GPU, _ *Medium, _ *Slow) { g.Recovery = Some(RecoveryDrainP2P) }, "degraded recovery_peers"},
		"XID":            {func(g *GPU, _ *Medium, _ *Slow) { g.XIDs = xidAt(119, now.Add(-time.Minute)) }, "needs_reset xid_reset"},
		"XID 79":         {func(g *GPU, _ *Medium, _ *Slow) { g.XIDs = xidAt(79, now) }, "needs_reboot xid_reboot"},
		"old XID":        {func(g *GPU, _ *Medium, _ *Slow) { g.XIDs = xidAt(119, now.Add(-2*time.Hour)) }, "healthy"},
		"application":    {func(g *GPU, _ *Medium, _ *Slow) { g.XIDs = xidAt(31, now) }, "healthy"},
		"XID and action": {func(g *GPU, _ *Medium, _ *Slow) { g.XIDs, g.Recovery = xidAt(119, now), Some(RecoveryNone) }, "healthy"},
		"remap failed": {func(_ *GPU, m *Medium, _ *Slow) { m.RemapFailed, m.RemapPending = Some(true), Some(true) },
			"replace row_remap_failed row_remap_pending"},
		"remap pending": {func(_ *GPU, m *Medium, _ *Slow) { m.RemapPending = Some(true) }, "needs_reset row_remap_pending"},
		"SRAM":          {func(_ *GPU, _ *Medium, s *Slow) { s.SRAM = Some(SRAMErrors{Exceeded: true}) }, "replace sram_threshold"},
		"SRAM errors":   {func(_ *GPU, _ *Medium, s *Slow) { s.SRAM = Some(SRAMErrors{}) }, "healthy"},
		"no repair": {func(_ *GPU, _ *Medium, s *Slow) { s.Unrepairable, s.ChannelRepair = Some(true), Some(true) },
			"replace memory_unrepairable channel_repair_pending"},
		"TPC repair": {func(_ *GPU, _ *Medium, s *Slow) { s.TPCRepair, s.ChannelRepair = Some(true), Some(false) },
			"needs_reset tpc_repair_pending"},
		"pages": {func(_ *GPU, m *Medium, _ *Slow) { m.RetiredPages = map[RemapCause]uint64{CauseDoubleBit: 60} },
			"replace retired_pages"},
		"pages pending": {func(_ *GPU, m *Medium, _ *Slow) { m.RetirePending = Some(true) }, "needs_reset retired_pages_pending"},
		"ECC": {func(_ *GPU, m *Medium, _ *Slow) {
			m.ECC = []ECCCount{{ECCUncorrected, ECCDRAM, Some(uint64(1)), None[uint64]()}}
		}, "degraded uncorrected_ecc"},
		"corrected": {func(_ *GPU, m *Medium, _ *Slow) {
			m.ECC = []ECCCount{{ECCCorrected, ECCDRAM, Some(uint64(1)), None[uint64]()}}
		}, "healthy"},
		"fabric failed": {func(_ *GPU, _ *Medium, s *Slow) { s.Fabric = Some(Fabric{State: FabricFailed}) }, "needs_reset fabric_failed"},
		"fabric waits": {func(_ *GPU, _ *Medium, s *Slow) { s.Fabric = Some(Fabric{State: FabricInProgress}) },
			"degraded fabric_not_ready"},
		"fabric is fine": {func(_ *GPU, _ *Medium, s *Slow) { s.Fabric = Some(Fabric{State: FabricCompleted, Health: "healthy"}) },
			"healthy"},
		"fabric fault": {func(_ *GPU, _ *Medium, s *Slow) {
			s.Fabric = Some(Fabric{State: FabricCompleted, Faults: map[FabricFault]bool{FabricRouteUnhealthy: true}})
		}, "degraded fabric_unhealthy"},
		"a link is down": {func(g *GPU, _ *Medium, s *Slow) {
			s.NVLinks, g.LinksExpected = Some(NVLinkCount{Up: 17, Down: 1}), 18
		}, "degraded nvlink_down"},
		"links that are not there": {func(g *GPU, _ *Medium, s *Slow) {
			s.NVLinks, g.LinksExpected = Some(NVLinkCount{Up: 12, Down: 6}), 12
		}, "healthy"},
		"another has a bridge": {func(g *GPU, _ *Medium, s *Slow) {
			s.NVLinks, g.LinksExpected = Some(NVLinkCount{Down: 12}), 12
		}, "healthy"},
		"no bridge": {func(_ *GPU, _ *Medium, s *Slow) { s.NVLinks = Some(NVLinkCount{Down: 12}) }, "healthy"},
		"unknown and degraded": {func(g *GPU, _ *Medium, s *Slow) {
			g.Medium, s.NVLinks, g.LinksExpected = None[*Medium](), Some(NVLinkCount{Up: 17, Down: 1}), 18
		}, "unknown nvlink_down not_read"},
	} {
		m, s := &Medium{}, &Slow{}
		g := &GPU{State: DeviceUp, Medium: Some(m), Slow: Some(s)}
		tt.change(g, m, s)
		verdict, reasons := g.Health(now)
		got := string(verdict)
		for _, r := range reasons {
			got += " " + r.Reason
			seen[r.Reason] = true
		}
		if got != tt.want || verdict.Broken() != !strings.ContainsAny(string(verdict[0]), "hdu") {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
	for _, r := range HealthRules {
		if !seen[r.Reason] || r.Source == "" {
			t.Errorf("the rule %s is not tested, or has no source", r.Reason)
		}
	}
}

func xidAt(code int, at time.Time) []XIDCount {
	return []XIDCount{{XID: code, Count: 1, Last: Some(at)}}
}
