package recording

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpu-exporter/gpu-exporter/internal/nvml/journal"
)

// profileNumbers is below how much NVML numbers the profiles, with room for newer ones; enabled is its value of a mode.
const (
	profileNumbers = 32
	enabled        = 1
)

// profileInfo is NVML's structure of the same members.
type profileInfo struct {
	Id, SliceCount, InstanceCount, MultiprocessorCount               uint32
	CopyEngineCount, DecoderCount, EncoderCount, JpegCount, OfaCount uint32
	MemorySizeMB                                                     uint64
}

// profile is a GPU instance profile of the GPU.
type profile struct {
	number int
	name   string
	info   profileInfo
}

// statement is the profile as a scenario has it.
func (p profile) statement() string {
	i := p.info
	text := fmt.Sprintf("profile %s number=%d id=%d slices=%d memory=%dMiB", p.name, p.number, min(i.Id, 255),
		max(1, min(i.SliceCount, 16)), min(i.MemorySizeMB, 1<<28))
	for _, o := range []struct {
		name      string
		is, limit uint32
	}{{"sms", i.MultiprocessorCount, 1024}, {"count", i.InstanceCount, 16}, {"copies", i.CopyEngineCount, 64},
		{"decoders", i.DecoderCount, 64},
		{"encoders", i.EncoderCount, 64}, {"jpg", i.JpegCount, 64}, {"ofa", i.OfaCount, 64}} {
		if o.is > 0 {
			text += fmt.Sprintf(" %s=%d", o.name, min(o.is, o.limit))
		}
	}
	return text
}

// writeMIG writes the MIG mode, and the layout of a GPU that is in it.
func (d *device) writeMIG() {
	var mode [2]int
	if !decode(d.last("MigMode"), &mode) {
		d.refuse("MigMode", d.last("MigMode"))
		d.refuse("MaxMigDeviceCount", d.last("MaxMigDeviceCount"))
		return
	}
	on, pending := mode[0] == enabled, mode[1] == enabled
	d.refuse("MaxMigDeviceCount", d.last("MaxMigDeviceCount"))
	var profiles []profile
	refused := journal.Line{Code: "NOT_SUPPORTED"}
	for number := range profileNumbers {
		line := d.last("GpuInstanceProfileInfo", int64(number))
		p := profile{number: number}
		switch {
		case decode(line, &p.info):
			profiles = append(profiles, p)
		case !slices.Contains([]string{"", "NOT_SUPPORTED", "FUNCTION_NOT_FOUND", "INVALID_ARGUMENT"}, line.Code):
			refused = line
		}
	}
	if len(profiles) == 0 {
		d.refuse("GpuInstanceProfileInfo", refused)
	}
	if on {
		d.readLayout()
	}
	profiles = d.matchProfiles(profiles)
	if len(profiles) == 0 { // the language wants one of a GPU with a MIG mode
		profiles = []profile{{name: "none", info: profileInfo{SliceCount: 1}}}
	}
	for _, p := range profiles {
		d.draft.Lines = append(d.draft.Lines, p.statement())
	}
	if on {
		d.say("mig gpu=%d layout=%q", d.index, d.layout())
	}
	if on != pending {
		d.say("at 0s gpu %d mig pending %s", d.index, map[bool]string{true: "on", false: "off"}[pending])
	}
}

// readLayout reads the MIG devices.
func (d *device) readLayout() {
	const limit = 8 // of a scenario; no GPU has more
	for index := range int64(limit) {
		switch line := d.last("MigDeviceHandleByIndex", index); line.Code {
		case "SUCCESS":
			if m := (migDevice{index: int(index), profileID: -1}); d.describe(&m) {
				d.mig = append(d.mig, m)
			}
		case "", "NOT_FOUND", "INVALID_ARGUMENT":
		default:
			d.refuse("MigDeviceHandleByIndex", line)
			return
		}
	}
}

// describe reads what a MIG device is; false where it cannot be written.
func (d *device) describe(m *migDevice) bool {
	index := int64(m.index)
	if line := d.last("UUID", index); !decode(line, &m.uuid) {
		d.note(fmt.Sprintf("MIG device %d did not report its UUID (%s) and is left out.", m.index, line.Code))
		return false
	}
	for key, to := range map[string]*int{"GpuInstanceId": &m.gi, "ComputeInstanceId": &m.ci} {
		if line := d.last(key, index); !decode(line, to) {
			d.refuse(key, line)
		}
	}
	if m.gi < 0 || m.gi > 15 || m.ci < 0 || m.ci > 15 {
		d.note(fmt.Sprintf("MIG device %d has the ids %d and %d, which a scenario cannot express; it is left out.",
			m.index, m.gi, m.ci))
		return false
	}
	var attributes struct {
		MultiprocessorCount, GpuInstanceSliceCount, ComputeInstanceSliceCount int
		MemorySizeMB                                                          uint64
	}
	if line := d.last("Attributes", index); decode(line, &attributes) {
		m.slices, m.giSlices = attributes.ComputeInstanceSliceCount, attributes.GpuInstanceSliceCount
		m.sms, m.memoryMiB = attributes.MultiprocessorCount, attributes.MemorySizeMB
	} else {
		d.refuse("Attributes", line)
	}
	var name string
	decode(d.last("Name", index), &name)
	m.profile = profileOf(name)
	var info struct{ Profile, Start, Size int }
	gi := int64(m.gi)
	if line := d.last("GpuInstanceById", gi); line.Code != "SUCCESS" {
		d.refuse("GpuInstanceById", line)
	} else if line := d.last("GpuInstanceGetInfo", gi); decode(line, &info) {
		m.start, m.size, m.profileID = info.Start, info.Size, info.Profile
	} else {
		d.refuse("GpuInstanceInfo", line)
	}
	var memory struct{ Total, Used, Reserved uint64 }
	if decode(d.last("MemoryInfo_v2", index), &memory) || decode(d.last("MemoryInfo", index), &memory) {
		m.memoryMiB, m.used = memory.Total>>20, memory.Used
		if memory.Reserved > 0 {
			d.note(fmt.Sprintf("GPU instance %d has %d bytes reserved, which a scenario cannot express.", m.gi,
				memory.Reserved))
		}
	}
	return true
}

// profileOf takes the profile of the GPU instance out of the name of a MIG device: "… MIG 1g.10gb", or
// "… MIG 1c.3g.20gb" for a compute instance that is smaller than its GPU instance.
func profileOf(name string) string {
	_, after, _ := strings.Cut(name, "MIG ")
	profile, _, _ := strings.Cut(strings.TrimSpace(after), " ")
	if head, rest, ok := strings.Cut(profile, "."); ok && strings.HasSuffix(head, "c") && strings.Contains(rest, "g.") {
		return rest
	}
	return profile
}

// matchProfiles gives the profiles in use the names of their instances, and adds those that the GPU did not list.
func (d *device) matchProfiles(profiles []profile) []profile {
	for i := range d.mig {
		m := &d.mig[i]
		at := slices.IndexFunc(profiles, func(p profile) bool {
			return m.profileID >= 0 && int(p.info.Id) == m.profileID
		})
		if at < 0 && m.profile != "" {
			at = slices.IndexFunc(profiles, func(p profile) bool { return p.name == m.profile })
		}
		if at < 0 {
			at = slices.IndexFunc(profiles, func(p profile) bool {
				return p.name == "" && int(p.info.SliceCount) == m.giSlices && near(p.info.MemorySizeMB, m.memoryMiB)
			})
		}
		if at < 0 {
			sms := m.sms
			if m.slices > 0 && m.giSlices > m.slices {
				sms = m.sms * m.giSlices / m.slices
			}
			profiles = append(profiles, profile{number: unusedNumber(profiles), info: profileInfo{
				Id: uint32(max(0, m.profileID)), SliceCount: uint32(m.giSlices), MultiprocessorCount: uint32(sms)}})
			at = len(profiles) - 1
		}
		p := &profiles[at]
		if m.memoryMiB > 0 {
			p.info.MemorySizeMB = m.memoryMiB
		}
		if p.name == "" {
			p.name = profileName(profiles, m.profile, p.info)
		}
		m.profile = p.name
	}
	for i := range profiles {
		if profiles[i].name == "" {
			profiles[i].name = profileName(profiles, "", profiles[i].info)
		}
	}
	return profiles
}

func near(a, b uint64) bool { return max(a, b)-min(a, b) <= 64 }

// unusedNumber is a number that no profile has.
func unusedNumber(profiles []profile) int {
	for n := profileNumbers - 1; n > 0; n-- {
		if !slices.ContainsFunc(profiles, func(p profile) bool { return p.number == n }) {
			return n
		}
	}
	return 255
}

// profileName is the driver's name of a profile, or one made of slices and memory that no other has.
func profileName(profiles []profile, reported string, info profileInfo) string {
	name := strings.Map(func(c rune) rune {
		if c > ' ' && c < 0x7f && !strings.ContainsRune(`"=[]#;\`, c) {
			return c
		}
		return -1
	}, reported)
	if name == "" || len(name) > 24 {
		name = fmt.Sprintf("%dg.%dgb", info.SliceCount, (info.MemorySizeMB+1023)/1024)
	}
	unique := name
	for n := 1; slices.ContainsFunc(profiles, func(p profile) bool { return p.name == unique }); n++ {
		unique = fmt.Sprintf("%s+%d", name, n)
	}
	return unique
}

// layout is the MIG devices as a scenario has them.
func (d *device) layout() string {
	var entries []string
	for _, m := range d.mig {
		entry := fmt.Sprintf("gi=%d ci=%d profile=%s start=%d size=%d index=%d uuid=%s", m.gi, m.ci, m.profile,
			min(max(m.start, 0), 15), min(max(m.size, 0), 16), m.index, m.uuid)
		if m.slices > 0 && m.slices <= 16 {
			entry += fmt.Sprintf(" slices=%d", m.slices)
		}
		entries = append(entries, entry)
	}
	return strings.Join(entries, " ; ")
}
