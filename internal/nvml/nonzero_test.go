package nvml

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/internal/standin/scenario"
)

// TestNoReadingIsZero: the boards have few errors and limits; here every counter of them has a value of its own, so that
// none is read in place of another or in another unit.
func TestNoReadingIsZero(t *testing.T) {
	text := &strings.Builder{}
	text.WriteString("scenario 1\nsymbols newest\nsystem DriverVersion = \"610.57\"\nsystem NVMLVersion = \"13.610.57\"\n" +
		"system CudaDriverVersion = 13030\ninclude boards/gb200.scenario\ngpu 0 board=gb200 pci=0000:01:00.0 minor=0 uuid=GPU-1\n")
	for i, field := range []int{74, 75, 76, 77, 79, 269, 270, 271} {
		fmt.Fprintf(text, "  Field[%d] = %d\n", field, (i+2)*1e9)
	}
	text.WriteString("  UnrepairableMemoryFlag_v1 = bUnrepairableMemory=1\n  RepairStatus = bChannelRepairPending=1 bTpcRepairPending=0\n" +
		"  ConfComputeProtectedMemoryUsage = total=100 used=30 free=70\n" +
		"  SramEccErrorStatus = aggregateUncParity=3 aggregateUncSecDed=4 volatileUncParity=1 volatileUncSecDed=2 " +
		"aggregateUncBucketL2=5 aggregateUncBucketSm=6 aggregateUncBucketPcie=7 aggregateUncBucketMcu=8 " +
		"aggregateUncBucketOther=9 bThresholdExceeded=1\n")
	s, err := scenario.Parse("n.scenario", text.String(), os.DirFS(filepath.Join("..", "..", "testdata", "scenarios")))
	must.OK(t, err)
	r := play(t, s, "newest")
	r.at(20 * time.Second)
	l := readAll(t, r.open()[0])
	checkGPU(r, 0, l)
	for i, reason := range []gpu.LimitReason{"power_cap", "thermal", "sync_boost", "board_limit"} {
		if got := l.fast.Limited[reason]; got != gpu.Seconds(i+2) {
			t.Errorf("%s: %v s, want %d", reason, got, i+2)
		}
	}
	sram, _ := l.slow.SRAM.Get()
	if got := fmt.Sprint(sram); got != "{map[parity:1 secded:2] map[parity:3 secded:4] map[l2:5 mcu:8 other:9 pcie:7 sm:6] true}" {
		t.Errorf("SRAM: %s", got)
	}
	if got := fmt.Sprint(l.slow.Unrepairable, l.slow.ChannelRepair, l.slow.TPCRepair, l.slow.ProtectedMemory); got !=
		"true true false {100 30 70 –}" {
		t.Error(got)
	}
}
