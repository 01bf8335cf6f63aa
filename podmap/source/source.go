package source

import "github.com/gpu-exporter/gpu-exporter/internal/gpu"

// Source is a data source. Its health is published under its name.
type Source interface {
	// Source returns the health. It does no input or output and is safe for concurrent use.
	Source() gpu.Source
}
