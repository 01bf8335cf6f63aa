package main

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/internal/standin/scenario"
	"github.com/gpu-exporter/gpu-exporter/internal/testkit"
)

// deviceFiles makes the files that a session of the fake driver has open.
func deviceFiles(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for _, name := range []string{"nvidiactl", "nvidia0", "nvidia1"} {
		must.OK(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
	}
	return dir
}

// openFiles lists those that a process has open.
func openFiles(t *testing.T, pid int, dir string) string {
	t.Helper()
	names, err := testkit.OpenFiles(pid, dir+"/")
	must.OK(t, err)
	return strings.Join(names, " ")
}

// A GPU is unbound from the driver for half a minute. The kernel waits until nobody has it open: that is so in the poll that
// follows the event. The other GPU is read again as soon as that is done, and this one as soon as it is bound. Time of the pauses
// is unknown, and none is missing or counted twice.
func unboundGPU(t *testing.T) {
	dir := deviceFiles(t)
	t.Setenv("FAKENVML_DEV", dir)
	s, err := scenario.Parse("unbound.scenario", twoGPUs+"load gpu=0-1 busy=50% period=1s\nat 60s gpu 0 unbind\nat 100s gpu 0 bind\n",
		os.DirFS(filepath.Join("..", "..", "testdata", "scenarios")))
	must.OK(t, err)
	st := play(t, s, twoPods)
	look := func(d time.Duration, open string, paused, up float64, unknown ...float64) {
		t.Helper()
		now := st.watched(d)
		if got := openFiles(t, os.Getpid(), dir); got != open {
			t.Errorf("at %s open: %q, want %q", st.control.Now(), got, open)
		}
		verify(t, now.is(paused, "gpu_exporter_paused", `reason="driver_binding"`), now.is(up, "gpu_device_up", GPUA),
			now.is(1, "gpu_device_up", GPUB))
		for i, dev := range []string{GPUA, GPUB} {
			total := 0.0
			for _, v := range now.match("gpu_time_seconds_total", dev) {
				total += v
			}
			busy, observed := now.match("gpu_busy_seconds_total", dev), now.match("gpu_observed_seconds_total", dev)
			if at := st.control.Now().Seconds(); total < at-3 || total > at || len(busy) > 0 && math.Abs(busy[0]-observed[0]/2) > 1 {
				t.Errorf("at %v s: GPU %d, %v s in all, busy %v of %v", at, i, total, busy, observed)
			}
			if got, err := now.one("gpu_time_seconds_total", dev, `state="unknown"`); err != nil || i < len(unknown) && got < unknown[i] {
				t.Errorf("at %s: unknown %v, %v, want at least %v", st.control.Now(), got, err, unknown)
			}
		}
	}
	driver := filepath.Join(st.trees.Sysfs, "bus", "pci", "devices", "0000:18:00.0", "driver")
	to, err := os.Readlink(driver)
	must.OK(t, err)
	look(58*time.Second, "nvidia0 nvidia1 nvidiactl", 0, 1)
	look(4*time.Second, "", 1, 1, 1, 1)
	look(10*time.Second, "", 1, 1, 10, 10)
	must.OK(t, os.Remove(driver))
	look(6*time.Second, "nvidia1 nvidiactl", 0, 0, 10, 10)
	look(20*time.Second, "nvidia1 nvidiactl", 0, 0)
	must.OK(t, os.Symlink(to, driver))
	look(8*time.Second, "nvidia0 nvidia1 nvidiactl", 0, 1, 10, 12)
	look(time.Minute, "nvidia0 nvidia1 nvidiactl", 0, 1)
}

// A signal closes every descriptor of the driver of the real program, and another one opens it again.
func TestSignalsOfTheRealBinary(t *testing.T) {
	t.Parallel()
	dir := deviceFiles(t)
	m := node(t, twoGPUs, twoPods)
	m.Env = append(m.Env, "FAKENVML_DEV="+dir)
	p := m.start()
	for _, step := range []struct {
		signal syscall.Signal
		open   string
		paused float64
	}{{0, "nvidia0 nvidia1 nvidiactl", 0}, {syscall.SIGUSR1, "", 1}, {syscall.SIGUSR2, "nvidia0 nvidia1 nvidiactl", 0}} {
		must.OK(t, syscall.Kill(p.PID, step.signal))
		p.until(t, fmt.Sprintf("signal %d", step.signal), func(s series) error {
			if got := openFiles(t, p.PID, dir); got != step.open {
				return fmt.Errorf("open: %q, want %q", got, step.open)
			}
			return all(s.is(step.paused, "gpu_exporter_paused", `reason="request"`), bothUp(s))
		})
	}
}
