package main

import (
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/catalog"
	"github.com/gpu-exporter/gpu-exporter/internal/proc"
	"github.com/gpu-exporter/gpu-exporter/podmap"
	"github.com/gpu-exporter/gpu-exporter/rooms"
)

// config holds the flags. Every flag may also be set by the environment: --poll.fast is GPU_EXPORTER_POLL_FAST.
type config struct {
	rooms.Common
	checks []func(*rooms.Common) error
	opens  []func(*plan) (*rooms.Room, error)

	node string

	library string
	sysfs   string
	procfs  string

	podLogs, containerLogs string

	kubeletSocket  string
	gpuIDResources []string
	gpuResources   []string
	checkpoint     string
	dev            string
	kubeconfig     string

	deadline time.Duration

	accounts int
	metrics  catalog.Selection
	silenced []string // alerts that cannot fire with metrics
}

// part is one line of the list of parts: of the program itself, or an optional one.
type part struct {
	own  func(*plan) (*rooms.Room, error)
	room rooms.New
}

// plan is what the program's own parts prepare beside the optional ones.
type plan struct {
	rooms.Plan
	c *config

	pods           *podmap.Map  // nil without a kubelet
	finder         *proc.Finder // nil without the host's PID namespace
	processMetrics *processMetrics
	// allocationsChanged makes the next poll early; it is set before anything runs.
	allocationsChanged func()
}
