package deviceid

import (
	"math"
	"strconv"
	"strings"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// quantitySuffixes are those of Kubernetes' quantities for memory and cores.
var quantitySuffixes = []struct {
	text string
	by   float64
}{
	{"Ki", 1 << 10}, {"Mi", 1 << 20}, {"Gi", 1 << 30}, {"Ti", 1 << 40}, {"Pi", 1 << 50},
	{"m", 1e-3}, {"k", 1e3}, {"M", 1e6}, {"G", 1e9}, {"T", 1e12}, {"P", 1e15},
}

// ParseQuantity parses a Kubernetes quantity that is not negative: "8Gi", "50", "1e9".
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

// Bytes converts a number of bytes to a limit; 0 is none.
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

// maxText bounds the annotations that are parsed.
const maxText = 16 << 10

// amount parses a finite number that is not negative.
func amount(text string) (float64, bool) {
	v, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	if err != nil || math.IsNaN(v) || v < 0 || v > 1<<62 {
		return 0, false
	}
	return v, true
}

// mebibytes converts a number of MiB to a limit.
func mebibytes(n float64) gpu.Opt[gpu.Bytes] {
	if n <= 0 || n > 1<<40 {
		return gpu.None[gpu.Bytes]()
	}
	return gpu.Some(gpu.Bytes(n * (1 << 20)))
}

// percent converts a percentage of a GPU's time to a fraction. Where a scheme writes 0 there is no limit.
func percent(n float64) gpu.Opt[float64] {
	if n <= 0 {
		return gpu.None[float64]()
	}
	return gpu.Some(min(n/100, 1))
}
