package hwcheck

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/testkit"
)

// letGo requests an exporter to close the GPUs, as a tool does that unbinds or passes one through, and then to open them: how long
// the process has device files open, and until the GPU is read again.
func (r *run) letGo(ctx context.Context, _ *exporter, p *period) error {
	e, err := r.startExporter(defaultPolls, "--no-kubelet")
	if err != nil {
		return err
	}
	defer func() { _ = e.Stop() }()
	if _, err := e.until(ctx, 20*time.Second, polled([]string{p.uuid}, time.Now(), "fast")); err != nil {
		return err
	}
	files := func() (open int) {
		links, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", e.PID()))
		for _, l := range links {
			if to, err := os.Readlink(l); err == nil && strings.HasPrefix(to, r.hostPath("dev/nvidia")) {
				open++
			}
		}
		return open
	}
	if files() == 0 {
		return cannot("not testable here: no device file is open in process %d of the exporter", e.PID())
	}
	sent := time.Now()
	if err := syscall.Kill(e.PID(), syscall.SIGUSR1); err != nil {
		return fmt.Errorf("SIGUSR1: %w", err)
	}
	err = testkit.Within(ctx, 10*time.Second, func() error {
		if n := files(); n > 0 {
			return fmt.Errorf("%d device files are open", n)
		}
		return nil
	})
	p.noted["closed after"] = time.Since(sent).Seconds()
	if err != nil {
		return err
	}
	sent = time.Now()
	if err := syscall.Kill(e.PID(), syscall.SIGUSR2); err != nil {
		return fmt.Errorf("SIGUSR2: %w", err)
	}
	_, err = e.until(ctx, 20*time.Second, polled([]string{p.uuid}, sent, "fast"))
	p.noted["read after"] = time.Since(sent).Seconds()
	return err
}
