package scenario

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/internal/nvml/calls"
)

func migUUID(name string, dev int, d migDevice) gpu.UUID {
	if name != "" {
		return gpu.UUID(name)
	}
	return gpu.UUID(fmt.Sprintf("MIG-%08x-%04x-5000-8000-%012x", dev, d.gi, d.ci))
}

// finish puts boards and GPUs together, once every line has been read.
func (p *parser) finish() error {
	for _, c := range p.devs {
		if err := p.finishGPU(c); err != nil {
			return err
		}
		p.s.GPUs = append(p.s.GPUs, c.dev)
	}
	p.addMIGEvents()
	slices.SortStableFunc(p.s.events, func(a, b event) int { return cmp.Compare(a.at, b.at) })
	slices.SortStableFunc(p.s.system, func(a, b answer) int { return cmp.Compare(a.at, b.at) })
	slices.SortStableFunc(p.s.driver, func(a, b driverStep) int { return cmp.Compare(a.at, b.at) })
	slices.SortStableFunc(p.s.stalls, func(a, b stall) int { return cmp.Compare(a.at, b.at) })
	return nil
}

func (p *parser) finishGPU(c *GPUBlock) error {
	dev := &c.dev
	board := p.boards[dev.Board]
	if board == nil {
		board = &boardBlock{}
	}
	dev.ring, dev.model = board.ring, board.model
	if c.block.ring.entries > 0 {
		dev.ring = c.block.ring
	}
	if c.block.model.given {
		dev.model = c.block.model
	}
	dev.profiles = slices.Concat(board.profiles, c.block.profiles)
	if len(dev.profiles) > maxProfilesPerGPU {
		return c.at.errorf("expected at most %d profiles", maxProfilesPerGPU)
	}

	// The board's lines, the GPU's, and then what follows from the model, which the first two override.
	base := map[string]value{}
	var order []string
	set := func(a answer) {
		if _, known := base[a.key]; !known {
			order = append(order, a.key)
		}
		base[a.key] = a.value
	}
	for _, a := range slices.Concat(board.answers, c.block.answers) {
		set(a)
	}
	for _, a := range dev.implied(base) {
		set(a)
	}
	for _, key := range order {
		dev.answers = append(dev.answers, answer{key: key, value: base[key]})
	}
	for _, line := range c.scripts {
		a := line.answer
		if line.back {
			v, known := base[a.key]
			if !known {
				v = value{code: calls.ReturnCodes["NOT_SUPPORTED"]}
				if line.key.override || len(line.key.components) == 0 {
					v = value{} // works again by itself
				}
			}
			a.value = v
		}
		dev.answers = append(dev.answers, a)
	}
	slices.SortStableFunc(dev.answers, func(a, b answer) int { return cmp.Compare(a.at, b.at) })
	slices.SortStableFunc(dev.faults, func(a, b fault) int { return cmp.Compare(a.at, b.at) })
	slices.SortStableFunc(dev.stalls, func(a, b stall) int { return cmp.Compare(a.at, b.at) })
	return c.finishMIG()
}

// implied are the answers that follow from the model, the ring and each other. A line of the scenario
// goes before them.
func (c *GPU) implied(base map[string]value) []answer {
	var out []answer
	sum := func(key string, components ...component) {
		if _, known := base[key]; !known {
			v := value{components: components, valueType: typeULongLong}
			if len(key) > 5 && key[:6] == "Field[" {
				v.valueType = fieldType(key)
			}
			out = append(out, answer{key: key, value: v})
		}
	}
	variable := func(name string, factor float64) component {
		return component{terms: []term{{factor, name}}}
	}
	if c.model.busyWatts > 0 {
		sum("PowerUsage", variable("power", 1))
		sum("TotalEnergyConsumption", variable("energy", 1))
		sum("Field[83]", variable("energy", 1))
		sum("Field[185,0]", variable("power", 1))
		sum("Field[186,0]", variable("power_instant", 1))
	}
	if c.model.busyCelsius > 0 {
		sum("Temperature[0]", variable("temperature", 1))
	}
	if c.ring.entries > 0 {
		sum("UtilizationRates", variable("util", 100), variable("memutil", 100))
	}
	// The older call counts reserved memory as used.
	if v2, known := base["MemoryInfo_v2"]; known && len(v2.components) == 4 {
		if total, used, free, reserved := v2.components[0], v2.components[1], v2.components[2],
			v2.components[3]; total.isExact &&
			reserved.isExact && !used.isExact {
			all := append(slices.Clone(used.terms), term{float64(reserved.exact), "1"})
			sum("MemoryInfo", total, component{terms: all}, free)
		}
	}
	return out
}

func (c *GPUBlock) finishMIG() error {
	dev := &c.dev
	slices.SortStableFunc(c.migs, func(a, b migLine) int { return cmp.Compare(a.at, b.at) })
	if len(c.migs) > maxLayoutsPerGPU {
		return c.migs[maxLayoutsPerGPU].errorf("expected at most %d MIG changes of a gpu", maxLayoutsPerGPU)
	}
	state := layout{}
	for _, line := range c.migs {
		if len(dev.profiles) == 0 {
			return line.errorf("expected a board with MIG profiles")
		}
		state.at = line.at
		switch line.kind {
		case "pending":
			state.pending = line.pending
		case "apply":
			state.current = state.pending
			devices, err := parseLayout(line.layout, dev)
			if err != nil {
				return line.errorf("layout: %w", err)
			}
			if len(devices) > 0 && !state.current {
				return line.errorf("expected mig pending on before a layout")
			}
			state.devices = devices
		}
		dev.layouts = append(dev.layouts, state)
	}
	seen := map[gpu.UUID]bool{}
	for _, l := range dev.layouts {
		clear(seen)
		for _, d := range l.devices {
			if seen[d.uuid] {
				return c.at.errorf("expected each MIG device to have its own uuid, found %s twice", d.uuid)
			}
			seen[d.uuid] = true
		}
	}
	return nil
}

// addMIGEvents adds the driver's event of a new layout.
func (p *parser) addMIGEvents() {
	for _, c := range p.s.GPUs {
		for _, l := range c.layouts {
			if l.at > 0 {
				p.s.events = append(p.s.events, event{at: l.at, dev: c.Index, kind: eventMIGChange, gi: 1<<32 - 1, ci: 1<<32 - 1})
			}
		}
	}
}

// parseLayout reads the MIG devices of a layout: entries separated by semicolons, one for each compute
// instance. Entries with the same gi share a GPU instance.
func parseLayout(text string, dev *GPU) ([]migDevice, error) {
	var devices []migDevice
	taken := map[int]bool{}
	for _, entry := range strings.Split(text, ";") {
		words := strings.Fields(entry)
		if len(words) == 0 {
			continue
		}
		if len(devices) == maxMIGDevices {
			return nil, fmt.Errorf("expected at most %d MIG devices", maxMIGDevices)
		}
		tokens := make([]token, len(words))
		for i, w := range words {
			tokens[i].text = w
		}
		o, err := parseOptions(tokens, "gi", "ci", "profile", "start", "size", "slices", "index", "uuid")
		if err != nil {
			return nil, err
		}
		d := migDevice{index: len(devices), profile: -1}
		for _, f := range []struct {
			name      string
			to        *int
			low, high int
		}{{"gi", &d.gi, 0, maxGI - 1}, {"ci", &d.ci, 0, maxGI - 1}, {"start", &d.start, 0, 15},
			{"size", &d.size, 0, 16},
			{"slices", &d.slices, 0, 16}, {"index", &d.index, 0, maxMIGDevices - 1}} {
			if *f.to, err = o.integer(f.name, *f.to, f.low, f.high); err != nil {
				return nil, err
			}
		}
		if _, set := o["gi"]; !set {
			return nil, fmt.Errorf("expected gi= of each MIG device")
		}
		if name, set := o["profile"]; set {
			d.profile = slices.IndexFunc(dev.profiles, func(p profile) bool { return p.name == name })
			if d.profile < 0 {
				return nil, fmt.Errorf("option profile=: expected a profile of the board, found %q", name)
			}
		}
		for _, other := range devices {
			if other.gi == d.gi {
				if other.ci == d.ci {
					return nil, fmt.Errorf("expected another ci= within gi=%d", d.gi)
				}
				if d.profile >= 0 && d.profile != other.profile {
					return nil, fmt.Errorf("expected one profile for gi=%d", d.gi)
				}
				d.profile, d.start, d.size = other.profile, other.start, other.size
			}
		}
		if d.profile < 0 {
			return nil, fmt.Errorf("expected profile= of gi=%d", d.gi)
		}
		if d.slices == 0 {
			d.slices = dev.profiles[d.profile].slices
		}
		if taken[d.index] {
			return nil, fmt.Errorf("option index=: expected each index once")
		}
		taken[d.index] = true
		d.uuid = migUUID(o["uuid"], dev.Index, d)
		if !validName(string(d.uuid)) {
			return nil, fmt.Errorf("option uuid=: expected a name of at most %d bytes", maxNameBytes)
		}
		devices = append(devices, d)
	}
	return devices, nil
}
