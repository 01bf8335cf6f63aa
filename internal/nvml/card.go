package nvml

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// unreadable returns a GPU with an identity and an error alone.
func unreadable(id gpu.Identity, err error) *GPU {
	return &GPU{identity: id, lost: err}
}

// Identity returns the GPU's identity. It does not change during a session.
func (c *GPU) Identity() gpu.Identity { return c.identity }

// Err returns why the GPU as a whole cannot be read; nil while it can.
func (c *GPU) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lost
}

// String names the GPU in messages.
func (c *GPU) String() string {
	if c.identity.UUID == "" {
		return fmt.Sprintf("GPU %d", c.identity.Index)
	}
	return fmt.Sprintf("GPU %d (%s)", c.identity.Index, c.identity.UUID)
}

func (c *GPU) log() *slog.Logger         { return c.dev.session.library.log }
func (c *GPU) now() time.Time            { return c.dev.session.library.options.Clock() }
func (c *GPU) handle() nvml.Device       { return c.dev.handle }
func (c *GPU) interval() time.Duration   { return c.dev.session.library.options.FastInterval }
func (c *GPU) driver() nvml.Interface    { return c.dev.session.nvml }
func (c *GPU) sysfs() string             { return c.dev.session.library.options.SysfsRoot }
func (c *GPU) count(id callID, n string) { c.dev.session.library.stats[id].count(n) }
