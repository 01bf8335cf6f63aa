// Package suspend is the part of the exporter that lets GPUs with runtime power management suspend, and resumes none.
//
// In NVIDIA's open kernel modules (595.45.04) each call of a client resumes every initialized GPU (rmapi.c, rmapiPrologue), and
// so does the close of a GPU's last open file (nv.c, nv_stop_device). A GPU suspends after two idle checks 5 s apart
// (dynamic-power.c); with coarse-grained management not while it is open (nv-priv.h). So NVML is shut down while idle GPUs are
// still active, and initialized again after another program has resumed them.
//
// On request the same is done for other GPUs without persistence mode, which the driver deinitializes when their last file is
// closed. An open file holds a reference to the module (open-gpu-kernel-modules: nvidia_fops in nv.c at 01db2841, nv-frontend.c at
// 1739a20e), and so does each module that uses it, once (Linux at 01d5b167, kernel/module/main.c: ref_module).
package suspend

import (
	"cmp"
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/internal/host"
	"github.com/gpu-exporter/gpu-exporter/rooms"
)

const (
	// lookEvery is the interval of the search for GPUs that may suspend.
	lookEvery = 30 * time.Second
	// minIdle is for how long no GPU is busy before NVML is shut down. It doubles up to maxIdle when the GPUs did not suspend
	// within settle of that: another program uses them, or a display.
	minIdle = 30 * time.Second
	maxIdle = time.Hour
	settle  = 20 * time.Second
)

// New is this package as a part of the exporter.
func New(app *kingpin.Application) rooms.Part {
	unopened := app.Flag("suspend-unopened", "Shut NVML down while no other program has a GPU open, so that the driver deinitializes "+
		"GPUs without persistence mode; nothing is read of any GPU meanwhile.").Bool()
	return rooms.Part{Open: func(p *rooms.Plan) (*rooms.Room, error) {
		p.Sampler.Suspend = (&watcher{sysfs: p.Driver.SysfsRoot, procfs: p.Finder.Procfs, idle: minIdle, unopened: *unopened,
			reader: host.NewReader(cmp.Or(p.Deadline, time.Second))}).decide
		return &rooms.Room{}, nil
	}}
}

// watcher decides from sysfs and the last View whether NVML may be initialized.
type watcher struct {
	sysfs, procfs string
	reader        *host.Reader
	looked        time.Time
	unopened      bool            // GPUs without persistence mode suspend when nothing has them open
	gpus          map[string]bool // the directories of those that may suspend; true: which do when nothing has them open
	closed        bool
	suspended     bool          // a GPU was, since NVML was shut down
	since         time.Time     // when it was shut down, or else when a GPU was last busy
	idle          time.Duration // minIdle to maxIdle
}

// decide returns for which GPUs NVML is to be shut down, or stay so, and whether one may suspend at all. It calls no driver.
func (w *watcher) decide(v *gpu.View, now time.Time) (closed string, possible bool) {
	if now.Sub(w.looked) >= lookEvery {
		w.looked = now
		w.look(v)
	}
	var may, suspended []string
	for _, dir := range slices.Sorted(maps.Keys(w.gpus)) {
		if may = append(may, filepath.Base(dir)); w.suspends(dir) {
			suspended = append(suspended, filepath.Base(dir))
		}
	}
	if !w.closed {
		up := slices.ContainsFunc(v.Sources, func(s gpu.Source) bool { return s.Name == gpu.SourceNVML && s.Up })
		for i := range v.GPUs {
			if at := v.GPUs[i].Activity.LastBusy.Or(w.since); up && at.After(w.since) {
				w.since = at
			}
		}
		if !up || w.since.IsZero() {
			w.since = now
		}
	}
	switch {
	case len(w.gpus) == 0:
		w.closed = false
	case len(suspended) > 0:
		w.closed, w.suspended, w.idle = true, true, minIdle
	case w.closed && (w.suspended || now.Sub(w.since) >= settle):
		if !w.suspended {
			w.idle = min(2*w.idle, maxIdle)
		}
		w.closed, w.suspended, w.since = false, false, now
	case !w.closed && now.Sub(w.since) >= w.idle:
		w.closed, w.since = true, now
	}
	switch possible = len(w.gpus) > 0; {
	case !w.closed:
		return "", possible
	case len(suspended) > 0:
		return strings.Join(suspended, ", ") + " suspended", possible
	}
	return strings.Join(may, ", ") + " idle", possible
}

// look finds the GPUs of the driver that may suspend. The kernel allows it for each device (power/control), and the driver has to
// manage it: a GPU has been suspended, or the driver reports it. That report does not resume a GPU (rm_get_power_info), but is
// of the driver: it is read while the GPU is active.
func (w *watcher) look(v *gpu.View) {
	dirs, _ := filepath.Glob(filepath.Join(w.sysfs, "bus/pci/drivers/nvidia/*:*"))
	before := w.gpus
	w.gpus = map[string]bool{}
	for _, dir := range dirs {
		address := filepath.Base(dir)
		unopened, known := before[dir]
		may := false
		if read(filepath.Join(dir, "power/control")) == "auto" {
			if may = known && !unopened || isSuspended(dir); !may {
				power := filepath.Join(w.procfs, "driver/nvidia/gpus", address, "power")
				report := func() (bool, error) { return strings.Contains(read(power), "Enabled ("), nil }
				may, _ = host.Read(context.Background(), w.reader, power, report)
			}
		}
		switch {
		case may:
			w.gpus[dir] = false
		case w.unopened && (w.closed && unopened || slices.ContainsFunc(v.GPUs, func(g gpu.GPU) bool {
			slow, ok := g.Slow.Get()
			return ok && string(g.PCI) == address && slow.PersistenceMode == gpu.Some(false)
		})):
			w.gpus[dir] = true
		}
	}
}

// suspends reports whether the GPU of a sysfs directory is suspended or about to be, or has no file open.
func (w *watcher) suspends(dir string) bool {
	if !w.gpus[dir] {
		return isSuspended(dir)
	}
	module := filepath.Join(w.sysfs, "module/nvidia")
	by, _ := os.ReadDir(filepath.Join(module, "holders")) // other modules
	references, err := strconv.Atoi(read(filepath.Join(module, "refcnt")))
	return err == nil && references <= len(by)
}

// isSuspended reports whether the GPU of a sysfs directory is suspended or about to be.
func isSuspended(dir string) bool {
	return strings.HasPrefix(read(filepath.Join(dir, "power/runtime_status")), "suspend")
}

// read returns a file without the space around it, empty where it cannot be read.
func read(path string) string {
	text, _ := os.ReadFile(path)
	return strings.TrimSpace(string(text))
}
