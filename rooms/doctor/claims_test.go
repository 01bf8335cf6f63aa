package doctor

import (
	"strings"
	"testing"

	"github.com/gpu-exporter/gpu-exporter/internal/hardware"
)

// Claims are those of the model and the driver alone.
func TestClaims(t *testing.T) {
	verdicts := []hardware.Verdict{
		{Model: "A", Driver: "1", Claim: 1, Outcome: hardware.Confirmed},
		{Model: "A", Driver: "1", Claim: 2, Outcome: hardware.Contradicted},
		{Model: "A", Driver: "2", Claim: 3, Outcome: hardware.Confirmed}, {Model: "B", Driver: "1", Claim: 4, Outcome: hardware.Confirmed},
	}
	var out strings.Builder
	writeClaims(&out, "1", []string{"A", "A"}, verdicts)
	lines := strings.Split(out.String(), "\n")
	if want := "A, driver 1: 1 of "; !strings.HasPrefix(lines[0], want) || !strings.HasSuffix(lines[0], "confirmed, 1 contradicted") ||
		len(lines) != len(hardware.Names())+2 {
		t.Errorf("%d lines: %s", len(lines), lines[0])
	}
	for i, want := range []string{"  1  confirmed     ", "  2  contradicted  ", "  3  not checked   ", "  4  not checked   "} {
		if lines[i+1] != want+hardware.Names()[i] {
			t.Errorf("%q, want %q", lines[i+1], want+hardware.Names()[i])
		}
	}
	out.Reset()
	if writeClaims(&out, "1", nil, nil); out.String() != "no GPU on this node\n" {
		t.Error(out.String())
	}
}
