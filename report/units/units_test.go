package units

import (
	"math"
	"testing"
	"time"
)

func TestFigures(t *testing.T) {
	for got, want := range map[string]string{
		Hours(0): "0", Hours(0.04): "0.0", Hours(1.26): "1.3", Hours(12.4): "12", Hours(1234.5): "1,234",
		Hours(1234567): "1,234,567", Hours(-1500): "-1,500", Whole(-150): "-150", Whole(-15000): "-15,000",
		Share(math.NaN(), 0): "–", Ratio(0): "0 %", Ratio(0.0004): "<0.1 %", Ratio(0.0994): "9.9 %", Ratio(0.0996): "10 %",
		Ratio(1): "100 %", Difference(-1e-9): "0.000 %", Difference(1e-9): "0.000 %", Difference(-0.0001): "-0.010 %",
		Difference(-0.1): "-10.000 %", Money(99.999, "EUR"): "100.00 EUR", Money(1234.5, "EUR\x1b"): "1,234 EUR",
		GiB(1.5 * (1 << 30)): "1.5 GiB", GPUs(2): "2", GPUs(2.5): "2.5", GPUs(0.25): "0.25", GPUs(12.34): "12.3",
		GPUs(1234.5): "1,234", Span(0): "0", Span(0.5): "30 min", Span(47): "47.0 h", Span(48): "2.0 d",
		Minute(time.Unix(0, 0).UTC()): "1970-01-01 00:00", Count(1, "GPU"): "1 GPU", Count(2, "node"): "2 nodes",
		Count(2.5, "GPU"): "2.50 GPUs", Count(12.4, "GPU"): "12 GPUs", Count(0, "node"): "0 nodes",
		Duration(47 * time.Hour): "47.0 hours", Duration(48 * time.Hour): "2.0 days", Duration(119 * time.Minute): "119 minutes",
		Sentence("busy", ", or not"): "Busy, or not.", Clean("a\u202eb\x1b[2J\n"): "ab[2J",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
