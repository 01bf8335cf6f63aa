package web

import (
	"fmt"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

const absent = "–"

func format[T any](o gpu.Opt[T], layout string, of func(T) any) string {
	if v, ok := o.Get(); ok {
		return fmt.Sprintf(layout, of(v))
	}
	return absent
}

func percent(o gpu.Opt[gpu.Ratio]) string {
	return format(o, "%.0f\u00a0%%", func(r gpu.Ratio) any { return float64(r) * 100 })
}

func watts(o gpu.Opt[gpu.Watts]) string {
	return format(o, "%.0f W", func(w gpu.Watts) any { return float64(w) })
}

func celsius(o gpu.Opt[gpu.Celsius]) string {
	return format(o, "%.0f °C", func(c gpu.Celsius) any { return float64(c) })
}

func pstate(o gpu.Opt[int]) string { return format(o, "P%d", func(p int) any { return p }) }

func humanBytes(b gpu.Bytes) string {
	const unit = 1024
	if b < unit {
		return fmt.Sprintf("%d B", b)
	}
	v, prefix := float64(b)/unit, 0
	for ; v >= unit && prefix < 4; prefix++ {
		v /= unit
	}
	return fmt.Sprintf("%.3g %ciB", v, "KMGTP"[prefix])
}

// share is a percentage for the length of a bar.
func share(of, total gpu.Bytes) string {
	if total == 0 {
		return "0"
	}
	return fmt.Sprintf("%.1f", min(100, 100*float64(of)/float64(total)))
}

func age(now time.Time, o gpu.Opt[time.Time]) string {
	if t, ok := o.Get(); ok {
		return since(now, t)
	}
	return "never"
}

func since(now, t time.Time) string {
	d := now.Sub(t)
	switch {
	case d < 2*time.Second:
		return "just now"
	case d < 2*time.Minute:
		return fmt.Sprintf("%d s ago", int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%d min ago", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h ago", int(d.Hours()))
	}
	return fmt.Sprintf("%d days ago", int(d.Hours()/24))
}
