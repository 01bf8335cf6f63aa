package hwcheck

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"
)

// suspendLimit is how long an idle GPU may take to suspend: 30 s until the exporter shuts down NVML, and what the driver needs.
const suspendLimit = 75 * time.Second

// suspend starts an exporter, waits until the idle GPU is suspended, and measures for how long it is active in the period.
func (r *run) suspend(ctx context.Context, _ *exporter, p *period) error {
	devices, err := r.smi.query(ctx, []string{"pci.bus_id"}, "--id="+p.uuid)
	if err != nil {
		return err
	}
	power := func(attribute string) string { // from sysfs: nvidia-smi would resume it, and writes the domain with eight digits
		address := strings.TrimPrefix(strings.ToLower(devices[0]["pci.bus_id"]), "0000")
		text, _ := os.ReadFile(r.hostPath("sys/bus/pci/devices/" + address + "/power/" + attribute))
		return strings.TrimSpace(string(text))
	}
	if control := power("control"); control != "auto" {
		return cannot("not testable here: the kernel does not suspend this GPU (power/control is %q)", control)
	}
	e, err := r.startExporter(defaultPolls, "--no-kubelet")
	if err != nil {
		return err
	}
	defer func() { _ = e.Stop() }()
	if _, err = e.until(ctx, suspendLimit, func(s *scrape) error {
		if closed, known := s.sum("gpu_exporter_paused", equal("reason", "runtime_suspend")); !known || closed != 1 {
			return errors.New("the driver does not manage its runtime power, or something uses it")
		} else if status := power("runtime_status"); status != "suspended" {
			return fmt.Errorf("runtime_status is %s, although the exporter has closed the driver", status)
		}
		return nil
	}); err != nil {
		return cannot("not testable here: %v", err)
	}
	active := func() (milliseconds float64) {
		_, _ = fmt.Sscan(power("runtime_active_time"), &milliseconds)
		return milliseconds
	}
	before := active()
	select {
	case <-ctx.Done():
	case <-time.After(r.period):
	}
	p.noted["active"] = active() - before
	return ctx.Err()
}
