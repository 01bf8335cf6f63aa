// Package nvml reads NVIDIA's management library: go-nvml behind a symbol guard.
//
// A Library is a path on disk and the statistics of every call made through it. Open loads it, looks up every symbol
// that this package may call, and starts a Session; a Session scans for GPUs and waits for events; a GPU reads one poll
// group at a time into the plain values of internal/gpu.
//
// The guard exists because go-nvml binds lazily: a call of a function that the loaded library lacks ends the process,
// with no panic to recover from. So every call takes one path, which knows the symbols that the call needs; a missing
// one is "not offered". A test parses this package and fails on a call that bypasses it.
//
// The readings are tables of rows: a name, the call or the field, and where the value is stored. The
// rows of plain values are generated from internal/nvml/calls. A row that a GPU does not offer is not read again until
// the next session or the next change of the MIG layout. A row that fails is absent for that read and counted; only a
// code that concerns the whole GPU (lost, reset required, session closed) becomes an error.
//
// Two calls never run at once on one GPU: each call locks the GPU. Different GPUs are read concurrently. A call that
// hangs blocks its GPU and nothing else.
//
// The binary must be linked dynamically and lazily (-extldflags=-Wl,-z,lazy): with immediate binding the symbols that
// this driver lacks end the process at start.
package nvml

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/dl"
	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/internal/nvml/bus"
)

// Open loads the library, looks up its symbols and initializes it. There is one session at a time: Open
// fails while another is open, and wraps ErrBusy while a closed one has a running call.
//
// The error wraps gpu.ErrNoDriver where there is no library or no kernel module (try again later), as gpu.ErrNoModule where
// there is neither; gpu.ErrNoLibrary where the kernel module is loaded and the library is missing; gpu.ErrNotNVML where
// the file is something else, and gpu.ErrVersionMismatch where library and kernel module differ: that takes a new
// process, because the old library stays mapped in this one.
func (l *Library) Open() (*Session, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.session != nil {
		if !l.session.isClosed() {
			return nil, errors.New("open NVML: the previous session is still open; close it first")
		}
		if err := l.session.release(0); err != nil {
			return nil, fmt.Errorf("open NVML: %w", err)
		}
		l.session = nil
	}

	have, err := l.look()
	if err != nil {
		return nil, err
	}
	// go-nvml counts every load, also one whose nvmlInit failed, and closes at the last Shutdown only. A new value for
	// each attempt keeps that count at one. A failed attempt leaves a reference of the dynamic linker to a library that
	// stays mapped anyway, as calls into it were bound.
	s := &Session{
		library:  l,
		nvml:     nvml.New(nvml.WithLibraryPath(l.options.Path)),
		offers:   have,
		byHandle: map[nvml.Device]*device{},
		byIndex:  map[int]*device{},
		wake:     make(chan struct{}, 1),
	}
	if ret := call(s, callInit, s.nvml.Init); ret != nvml.SUCCESS {
		return nil, initError(l.options.Path, ret)
	}
	if maps, err := os.ReadFile("/proc/self/maps"); err == nil {
		s.system.Wrapper = bus.Wrapper(string(maps), DefaultPath)
	}
	s.cgroup = bus.OwnCgroup()
	// From here on nvmlShutdown must follow.
	if err := s.readSystem(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	s.watchBindings()
	l.session = s
	l.log.Info("NVML initialized", "library", l.options.Path, "driver", s.system.DriverVersion, "symbols_missing", len(have.missing))
	if len(have.missing) > 0 {
		l.log.Debug("driver lacks functions, their readings are not offered", "missing", have.missing)
	}
	return s, nil
}

// look loads the library separately and looks up every symbol without a call: a file that is not NVML is detected
// before go-nvml calls a function that does not exist.
func (l *Library) look() (offers, error) {
	path := l.options.Path
	// Local: a file that is something else must not add its symbols to the process.
	file := dl.New(path, dl.RTLD_LAZY|dl.RTLD_LOCAL)
	if err := file.Open(); err != nil {
		return offers{}, loadError(path, l.options.SysfsRoot, err)
	}
	// go-nvml opens it once more.
	defer func() { _ = file.Close() }()
	have := probe(file.Lookup)
	if len(have.fatal) > 0 {
		return offers{}, fmt.Errorf("load %s: %w: it lacks %s (the library path must be %s of the installed driver)",
			path, gpu.ErrNotNVML, strings.Join(have.fatal, ", "), DefaultPath)
	}
	return have, nil
}

// loadError distinguishes a library that does not exist from a file that cannot be loaded, and whether the kernel module
// is loaded: NVIDIA's runtime adds the library to a container only if it is when the container is created.
func loadError(path, sysfs string, err error) error {
	if strings.Contains(path, "/") {
		if _, statErr := os.Stat(path); statErr == nil {
			return fmt.Errorf("load %s: %w: %w (it must be the NVML of this machine's driver, for this architecture "+
				"and C library)",
				path, gpu.ErrNotNVML, err)
		}
	}
	const class = "runtime class nvidia, NVIDIA_DRIVER_CAPABILITIES=utility"
	switch _, module := os.Stat(filepath.Join(sysfs, "module", "nvidia")); {
	case module == nil:
		return fmt.Errorf("load %s: %w: %w (a container gets the library when it is created, by its %s; on a host, install "+
			"the driver's NVML library)", path, gpu.ErrNoLibrary, err, class)
	case errors.Is(module, fs.ErrNotExist):
		return fmt.Errorf("load %s: %w: %w (install the driver; a container needs its files: %s)", path, gpu.ErrNoModule, err, class)
	}
	return fmt.Errorf("load %s: %w: %w (install the driver; a container needs its files: %s)", path, gpu.ErrNoDriver, err, class)
}

// initError is the error of a failed nvmlInit, with what to do.
func initError(path string, ret nvml.Return) error {
	code := codeName(ret)
	switch ret {
	case nvml.ERROR_DRIVER_NOT_LOADED:
		return fmt.Errorf("initialize %s: %w: the kernel module is not loaded (%s)", path, gpu.ErrNoDriver, code)
	case nvml.ERROR_LIBRARY_NOT_FOUND:
		return fmt.Errorf("initialize %s: %w: the library could not be loaded (%s)", path, gpu.ErrNoDriver, code)
	case nvml.ERROR_LIB_RM_VERSION_MISMATCH:
		return fmt.Errorf("initialize %s: %w: the driver was replaced while this process had the old library (%s): "+
			"restart the process, "+
			"or the container where the files are mounted",
			path, gpu.ErrVersionMismatch, code)
	case nvml.ERROR_NO_PERMISSION, nvml.ERROR_OPERATING_SYSTEM, nvml.ERROR_UNKNOWN:
		return fmt.Errorf("initialize %s: %s: the device nodes /dev/nvidiactl and /dev/nvidia* must exist, be "+
			"readable and allowed "+
			"by the device cgroup", path, code)
	}
	return fmt.Errorf("initialize %s: %s", path, code)
}

// remember keeps the identity of a readable GPU, with the index under which it was first seen.
func (l *Library) remember(id gpu.Identity) gpu.Identity {
	l.mu.Lock()
	defer l.mu.Unlock()
	if id.PCI == "" {
		return id
	}
	if old, ok := l.known[id.PCI]; ok && old.UUID == id.UUID {
		id.Index = old.Index
	}
	l.known[id.PCI] = id
	return id
}

// recall returns the identity of the GPU at an address.
func (l *Library) recall(pci gpu.PCIAddress) (gpu.Identity, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	id, ok := l.known[pci]
	return id, ok
}

// recallIndex returns a known GPU that was first seen under an index and is not among the assigned ones.
func (l *Library) recallIndex(index int, taken map[gpu.PCIAddress]bool) (gpu.Identity, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for pci, id := range l.known {
		if id.Index == index && !taken[pci] {
			return id, true
		}
	}
	return gpu.Identity{}, false
}

// hint reports whether the missing permission of a reading has not been logged yet.
func (l *Library) hint(reading string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.hinted[reading] {
		return false
	}
	l.hinted[reading] = true
	return true
}

// probe looks up every symbol. lookup returns an error for a symbol that does not exist; it must not call it.
func probe(lookup func(symbol string) error) offers {
	var o offers
	for id := range guards {
		g := &guards[id]
		symbols := g.symbols()
		for _, s := range symbols {
			if lookup(s) == nil {
				o.have[id] = true
				o.symbols = append(o.symbols, s)
			}
		}
		if o.have[id] {
			continue
		}
		o.missing = append(o.missing, symbols[0])
		if g.required {
			o.fatal = append(o.fatal, symbols[0])
		}
	}
	return o
}
