package hwcheck

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// suspendLimit is how long an idle GPU may take to suspend: 30 s until the exporter shuts down NVML, and what the driver needs.
const suspendLimit = 75 * time.Second

// suspend starts an exporter, waits until the idle GPU is suspended, or, where the kernel suspends none and persistence mode is
// disabled, until nothing has it open, and measures for how long it is active, or open, in the period.
func (r *run) suspend(ctx context.Context, _ *exporter, p *period) error {
	devices, err := r.smi.query(ctx, []string{"pci.bus_id", "persistence_mode"}, "--id="+p.uuid)
	if err != nil {
		return err
	}
	read := func(path string) string { // from sysfs: nvidia-smi would resume it, and writes the domain with eight digits
		text, _ := os.ReadFile(r.hostPath("sys/" + path))
		return strings.TrimSpace(string(text))
	}
	power := "bus/pci/devices/" + strings.TrimPrefix(strings.ToLower(devices[0]["pci.bus_id"]), "0000") + "/power/"
	flags, sleeps := []string{"--no-kubelet"}, func() bool { return read(power+"runtime_status") == "suspended" }
	open, active := 0.0, func() (milliseconds float64) {
		_, _ = fmt.Sscan(read(power+"runtime_active_time"), &milliseconds)
		return milliseconds
	}
	if control, mode := read(power+"control"), devices[0]["persistence_mode"]; control != "auto" {
		if mode != "Disabled" {
			return cannot("not testable here: the kernel does not suspend this GPU (power/control is %q), and persistence mode is %s",
				control, mode)
		}
		flags, active = append(flags, "--suspend-unopened"), func() float64 { return open }
		sleeps = func() bool {
			by, _ := os.ReadDir(r.hostPath("sys/module/nvidia/holders"))
			references, err := strconv.Atoi(read("module/nvidia/refcnt"))
			return err == nil && references <= len(by)
		}
	}
	e, err := r.startExporter(defaultPolls, flags...)
	if err != nil {
		return err
	}
	defer func() { _ = e.Stop() }()
	if _, err = e.until(ctx, suspendLimit, func(s *scrape) error {
		if closed, known := s.sum("gpu_exporter_paused", equal("reason", "runtime_suspend")); !known || closed != 1 || !sleeps() {
			return errors.New("it does not suspend: the driver does not manage its runtime power, or something uses it")
		}
		return nil
	}); err != nil {
		return cannot("not testable here: %v", err)
	}
	before, end := active(), time.After(r.period)
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-end:
			p.noted["active"] = active() - before
			return nil
		case <-time.After(100 * time.Millisecond):
			if !sleeps() {
				open += 100
			}
		}
	}
}
