package report

import (
	"fmt"
	"strings"
	"time"
)

func duration(d time.Duration) string {
	switch {
	case d >= 48*time.Hour:
		return fmt.Sprintf("%.1f days", d.Hours()/24)
	case d >= 2*time.Hour:
		return fmt.Sprintf("%.1f hours", d.Hours())
	}
	return fmt.Sprintf("%.0f minutes", d.Minutes())
}

func gpusText(n float64) string {
	switch {
	case n > 0.995 && n < 1.005:
		return "1 GPU"
	case n == float64(int(n+0.5)) || n >= 10:
		return fmt.Sprintf("%.0f GPUs", n)
	}
	return fmt.Sprintf("%.2f GPUs", n)
}

func nodesText(n int) string {
	if n == 1 {
		return "1 node"
	}
	return fmt.Sprintf("%d nodes", n)
}

func bytesText(b float64) string { return fmt.Sprintf("%.1f GiB", b/(1<<30)) }

func percent(x float64) string {
	if x > 0 && x < 0.0995 {
		return fmt.Sprintf("%.1f %%", 100*x)
	}
	return fmt.Sprintf("%.0f %%", 100*x)
}

// sentence joins its parts, starts with a capital and ends with a full stop.
func sentence(parts ...string) string {
	s := strings.Join(parts, "")
	return strings.ToUpper(s[:1]) + s[1:] + "."
}
