package deviceid

import (
	"strings"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// quantitySuffixes are those of Kubernetes' quantities that amounts of memory and of cores are written with.
var quantitySuffixes = []struct {
	text string
	by   float64
}{
	{"Ki", 1 << 10}, {"Mi", 1 << 20}, {"Gi", 1 << 30}, {"Ti", 1 << 40}, {"Pi", 1 << 50},
	{"m", 1e-3}, {"k", 1e3}, {"M", 1e6}, {"G", 1e9}, {"T", 1e12}, {"P", 1e15},
}

// ParseQuantity reads a Kubernetes quantity that is not negative: "8Gi", "50", "1e9".
func ParseQuantity(text string) (float64, bool) {
	text = strings.TrimSpace(text)
	by := 1.0
	for _, s := range quantitySuffixes {
		if head, ok := strings.CutSuffix(text, s.text); ok {
			text, by = head, s.by
			break
		}
	}
	if text == "" || strings.Trim(text, "0123456789.eE+-") != "" {
		return 0, false
	}
	v, ok := amount(text)
	return v * by, ok && v*by < 1<<62
}

// Bytes turns a number of bytes into an amount that was granted; 0 gpus none.
func Bytes(n float64) gpu.Opt[gpu.Bytes] {
	if n < 1 || n > 1<<60 {
		return gpu.None[gpu.Bytes]()
	}
	return gpu.Some(gpu.Bytes(n))
}

// parseLimit parses a limit as HAMi's library does: "3000m" are MiB.
func parseLimit(text string) gpu.Opt[gpu.Bytes] {
	text = strings.ToLower(strings.TrimSpace(text))
	by := 1.0
	for suffix, factor := range map[string]float64{"k": 1 << 10, "m": 1 << 20, "g": 1 << 30} {
		if head, ok := strings.CutSuffix(text, suffix); ok {
			text, by = head, factor
			break
		}
	}
	v, ok := amount(text)
	if !ok {
		return gpu.None[gpu.Bytes]()
	}
	return Bytes(v * by)
}
