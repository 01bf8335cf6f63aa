package sampler

import (
	"slices"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// busInterval is the interval of PCI bus scans.
const busInterval = 30 * time.Second

// scanBus lists the PCI bus if it is due. A GPU that the driver does not list is identified by its address until it has
// a UUID.
func (s *Sampler) scanBus() {
	e := &s.expected
	if s.o.Expecter == nil || e.at != 0 && s.clock < e.at {
		return
	}
	e.at = s.clock + busInterval
	list, err := s.o.Expecter.Expected()
	if err != nil {
		if e.err != err.Error() {
			s.log.Warn("cannot scan the PCI bus: missing GPUs are not detected", "err", err)
		}
		e.ok, e.err, e.list = false, err.Error(), nil
		return
	}
	e.ok, e.err, e.list = true, "", list
	for _, x := range list {
		if !slices.ContainsFunc(s.devs, func(t *tracked) bool { return t.id.PCI == x.PCI }) {
			s.devs = append(s.devs, &tracked{id: gpu.Identity{UUID: gpu.UUID(x.PCI), PCI: x.PCI, Index: -1}})
		}
	}
	s.devs = slices.DeleteFunc(s.devs, func(t *tracked) bool {
		onBus, _ := e.has(t.id.PCI)
		removed := !onBus && t.dev == nil && !t.known && !t.pending
		if removed {
			s.ledger.Forget(t.id.UUID)
		}
		return removed
	})
	s.sortGPUs()
}

// devices counts the expected GPUs by state; nil if unknown.
func (s *Sampler) devices() map[gpu.DeviceState]int {
	if s.session.state != sessionOpen && !s.expected.ok && len(s.devs) == 0 && s.o.GPUs == 0 {
		return nil
	}
	counts := make(map[gpu.DeviceState]int, len(gpu.DeviceStates))
	for _, state := range gpu.DeviceStates {
		counts[state] = 0
	}
	for _, t := range s.devs {
		counts[t.state]++
	}
	if short := s.o.GPUs - len(s.devs); short > 0 {
		counts[gpu.DeviceMissing] += short
	}
	return counts
}
