package nvml

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/internal/nvml/bus"
	"github.com/gpu-exporter/gpu-exporter/internal/nvml/journal"
)

// ErrNoGPU is wrapped by the error of Record where the driver lists no GPU.
var ErrNoGPU = errors.New("no GPU to record")

// recordInterval is how often Record reads the fast poll group: well before the shortest known ring is full.
const recordInterval = time.Second

// RecordOptions configure Record.
type RecordOptions struct {
	// Duration is how long the GPUs are observed. 0: 10 s.
	Duration time.Duration
	// Program and Date go into the journal's header.
	Program, Date string
	// Observing is called once every GPU was read for the first time. Nil: nothing.
	Observing func()
	// Wait lets time pass; it returns early with ctx's error. Nil: real time.
	Wait func(ctx context.Context, d time.Duration) error
}

// Record makes every call that this package can make on every GPU, reads the fast poll group once a second for
// RecordOptions.Duration, makes every call again, and returns the journal of the session (Options.Journal, which
// must be set). The values are as the driver returned them. A lost GPU is not called again; the error wraps
// ErrNoGPU where the driver lists none, and an error of internal/gpu where the driver itself goes away. Nothing
// else may use the session meanwhile; a call that hangs makes Record hang.
func (s *Session) Record(ctx context.Context, o RecordOptions) ([]byte, error) {
	if o.Duration <= 0 {
		o.Duration = 10 * time.Second
	}
	if o.Wait == nil {
		o.Wait = wait
	}
	gpus, err := s.Scan()
	if err != nil {
		return nil, fmt.Errorf("record: %w", err)
	}
	if len(gpus) == 0 {
		return nil, fmt.Errorf("record: %w: driver %s lists none", ErrNoGPU, s.system.DriverVersion)
	}
	err = each(gpus, (*GPU).readEverything)
	if err == nil && o.Observing != nil {
		o.Observing()
	}
	for passed := time.Duration(0); err == nil && passed < o.Duration; {
		step := min(recordInterval, o.Duration-passed)
		if err = o.Wait(ctx, step); err != nil {
			break
		}
		if passed += step; passed < o.Duration {
			err = each(gpus, func(c *GPU) error { _, err := c.Fast(true); return err })
		}
		err = errors.Join(err, s.library.options.Journal.Err())
	}
	if err == nil {
		err = each(gpus, (*GPU).readEverything)
	}
	if err == nil { // the whole rings once more: whether they were full shows how deep they are
		err = each(gpus, func(c *GPU) error { c.busy, c.memory = 0, 0; return c.readRings() })
	}
	if err != nil {
		return nil, fmt.Errorf("record: %w", err)
	}
	h := journal.Header{Program: o.Program, Date: o.Date, Symbols: s.offers.symbols}
	if list, err := s.library.Expected(); err == nil {
		for _, e := range list {
			if !e.Detached {
				d := journal.BusDevice{PCI: string(e.PCI)}
				if node, ok := bus.NUMANode(s.library.options.SysfsRoot, e.PCI).Get(); ok {
					d.NUMA = &node
				}
				h.Bus = append(h.Bus, d)
			}
		}
	}
	return s.library.options.Journal.Bytes(h)
}

// wait lets real time pass.
func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// each reads every GPU. Only an error of the driver as a whole ends the recording.
func each(gpus []*GPU, read func(*GPU) error) error {
	for _, c := range gpus {
		if c.dev == nil || c.Err() != nil {
			continue
		}
		err := c.pollGroup(func() error { return read(c) })
		for _, whole := range []error{gpu.ErrUninitialized, gpu.ErrNoDriver, gpu.ErrVersionMismatch} {
			if errors.Is(err, whole) {
				return err
			}
		}
	}
	return nil
}

// readEverything reads every row of every table, whatever its state, and makes the calls that belong to no row.
func (c *GPU) readEverything() error {
	c.margin.fresh, c.links = false, nil
	err := errors.Join(c.ensureLayout(), readEach(c, identityRows), readEach(c, slowRows), readEach(c, mediumRows), readEach(c, fastRows))
	if err != nil {
		return err
	}
	_, _ = c.marginEnd()
	_, _ = get(c, callSupportedEventTypes, c.handle().GetSupportedEventTypes)
	_, _ = get(c, callMemoryBusWidth, c.handle().GetMemoryBusWidth)
	_, _ = get(c, callNumGpuCores, c.handle().GetNumGpuCores)
	_, _ = get(c, callMaxMigDeviceCount, c.handle().GetMaxMigDeviceCount)
	for profile := range nvml.GPU_INSTANCE_PROFILE_COUNT {
		_, _ = get(c, callGpuInstanceProfileInfo, func() (nvml.GpuInstanceProfileInfo, nvml.Return) {
			return c.handle().GetGpuInstanceProfileInfo(profile)
		}, profile)
	}
	return nil
}

func readEach[T any](c *GPU, rows []row[T]) error {
	var to T
	var fields []int
	for i := range rows {
		if rows[i].read == nil {
			fields = append(fields, i)
		}
	}
	if err := readFields(c, rows, make([]rowState, len(rows)), fields, &to, &tally{}); err != nil {
		return err
	}
	for i := range rows {
		if rows[i].read == nil {
			continue
		}
		if ret := rows[i].read(c, &to); whole(ret) != nil {
			return fmt.Errorf("read %s of %s: %w", rows[i].reading, c, whole(ret))
		}
	}
	return nil
}

func (c *GPU) readRings() error {
	var to gpu.Fast
	for kind, seen := range map[nvml.SamplingType]*cursor{nvml.GPU_UTILIZATION_SAMPLES: &c.busy,
		nvml.MEMORY_UTILIZATION_SAMPLES: &c.memory} {
		if ret := readRing(c, kind, seen, &to.Busy); whole(ret) != nil {
			return whole(ret)
		}
	}
	return nil
}
