package hwcheck

import (
	"context"
	"fmt"
	"syscall"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/testkit"
)

// letGo requests an exporter to close the GPUs, as a tool that unbinds one does, and to open them again, and notes the seconds of each.
func (r *run) letGo(ctx context.Context, _ *exporter, p *period) error {
	e, err := r.startExporter(defaultPolls, "--no-kubelet")
	if err != nil {
		return err
	}
	defer func() { _ = e.Stop() }()
	if _, err := e.until(ctx, 20*time.Second, polled([]string{p.uuid}, time.Now(), "fast")); err != nil {
		return err
	}
	open := func() ([]string, error) { return testkit.OpenFiles(e.PID(), r.hostPath("dev/nvidia")) }
	if files, _ := open(); len(files) == 0 { // or they cannot be seen
		return cannot("not testable here: no device file is open in process %d of the exporter", e.PID())
	}
	sent := time.Now()
	if err := syscall.Kill(e.PID(), syscall.SIGUSR1); err != nil {
		return fmt.Errorf("SIGUSR1: %w", err)
	}
	err = testkit.Within(ctx, 10*time.Second, func() error {
		files, err := open()
		if len(files) > 0 {
			err = fmt.Errorf("%d device files are open", len(files))
		}
		return err
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
