package source

import (
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// Source is a data source. Its health is published under its name.
type Source interface {
	// Source returns the health. It does no input or output and is safe for concurrent use.
	Source() gpu.Source
}

// Backoff is the delay after so many failures: its mean doubles from first to longest, and it is spread by half to both
// sides, so that the clients of a server do not retry together. Jitter returns a number in [0, 1).
func Backoff(failures int, first, longest time.Duration, jitter func() float64) time.Duration {
	mean := min(first, longest)
	for range failures - 1 {
		mean = min(2*mean, longest)
	}
	return mean/2 + time.Duration(jitter()*float64(mean))
}
