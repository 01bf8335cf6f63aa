package catalog

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// newestFields are the names in the help text of nvidia-smi --help-query-gpu, driver 610.57.04, in its order:
// 241 of them, without their other spellings. Source: the capture of that driver in the public repository
// utkuozdemir/nvidia_gpu_exporter (internal/captures); 580.173.02 and 595.80 know fewer, and no other.
const newestFields = `
timestamp driver_version kmd_version vgpu_driver_capability.heterogenous_multivGPU count name serial uuid
pci.bus_id pci.domain pci.bus pci.device pci.baseClass pci.subClass pci.device_id pci.sub_device_id
vgpu_device_capability.fractional_multiVgpu vgpu_device_capability.heterogeneous_timeSlice_profile
vgpu_device_capability.heterogeneous_timeSlice_sizes vgpu_device_capability.homogeneous_placements
vgpu_device_capability.mig_timeSlicing vgpu_device_capability.mig_timeSlicing_mode
pcie.link.gen.current pcie.link.gen.gpucurrent pcie.link.gen.max pcie.link.gen.gpumax pcie.link.gen.hostmax
pcie.link.width.current pcie.link.width.max
index display_mode display_attached display_active persistence_mode addressing_mode accounting.mode
accounting.buffer_size driver_model.current driver_model.pending
vbios_version inforom.img inforom.oem inforom.ecc inforom.pwr inforom.checksum_validation gpu_recovery_action
gom.current gom.pending fan.speed pstate
clocks_event_reasons.supported clocks_event_reasons.active clocks_event_reasons.gpu_idle
clocks_event_reasons.applications_clocks_setting clocks_event_reasons.sw_power_cap clocks_event_reasons.hw_slowdown
clocks_event_reasons.hw_thermal_slowdown clocks_event_reasons.hw_power_brake_slowdown
clocks_event_reasons.sw_thermal_slowdown clocks_event_reasons.sync_boost
clocks_event_reasons_counters.sw_power_cap clocks_event_reasons_counters.sync_boost
clocks_event_reasons_counters.sw_thermal_slowdown clocks_event_reasons_counters.hw_thermal_slowdown
clocks_event_reasons_counters.hw_power_brake_slowdown
memory.total memory.reserved memory.used memory.free compute_mode compute_cap
utilization.gpu utilization.memory utilization.encoder utilization.decoder utilization.jpeg utilization.ofa
encoder.stats.sessionCount encoder.stats.averageFps encoder.stats.averageLatency
dramEncryption.mode.current dramEncryption.mode.pending ecc.mode.current ecc.mode.pending
ecc.errors.corrected.volatile.device_memory ecc.errors.corrected.volatile.dram
ecc.errors.corrected.volatile.register_file ecc.errors.corrected.volatile.l1_cache
ecc.errors.corrected.volatile.l2_cache ecc.errors.corrected.volatile.texture_memory
ecc.errors.corrected.volatile.cbu ecc.errors.corrected.volatile.sram ecc.errors.corrected.volatile.total
ecc.errors.corrected.aggregate.device_memory ecc.errors.corrected.aggregate.dram
ecc.errors.corrected.aggregate.register_file ecc.errors.corrected.aggregate.l1_cache
ecc.errors.corrected.aggregate.l2_cache ecc.errors.corrected.aggregate.texture_memory
ecc.errors.corrected.aggregate.cbu ecc.errors.corrected.aggregate.sram ecc.errors.corrected.aggregate.total
ecc.errors.uncorrected.volatile.device_memory ecc.errors.uncorrected.volatile.dram
ecc.errors.uncorrected.volatile.register_file ecc.errors.uncorrected.volatile.l1_cache
ecc.errors.uncorrected.volatile.l2_cache ecc.errors.uncorrected.volatile.texture_memory
ecc.errors.uncorrected.volatile.cbu ecc.errors.uncorrected.volatile.sram ecc.errors.uncorrected.volatile.total
ecc.errors.uncorrected.aggregate.device_memory ecc.errors.uncorrected.aggregate.dram
ecc.errors.uncorrected.aggregate.register_file ecc.errors.uncorrected.aggregate.l1_cache
ecc.errors.uncorrected.aggregate.l2_cache ecc.errors.uncorrected.aggregate.texture_memory
ecc.errors.uncorrected.aggregate.cbu ecc.errors.uncorrected.aggregate.sram ecc.errors.uncorrected.aggregate.total
ecc.errors.uncorrected.volatile.sram.parity ecc.errors.uncorrected.volatile.sram.secded
ecc.errors.uncorrected.aggregate.sram.parity ecc.errors.uncorrected.aggregate.sram.secded
ecc.errors.uncorrected.aggregate.sram.thresholdExceeded ecc.errors.uncorrected.aggregate.sram.l2
ecc.errors.uncorrected.aggregate.sram.sm ecc.errors.uncorrected.aggregate.sram.mcu
ecc.errors.uncorrected.aggregate.sram.pcie ecc.errors.uncorrected.aggregate.sram.other
retired_pages.single_bit_ecc.count retired_pages.double_bit.count retired_pages.pending
remapped_rows.correctable remapped_rows.correctable_inactive remapped_rows.uncorrectable
remapped_rows.uncorrectable_inactive remapped_rows.pending remapped_rows.failure
remapped_rows.histogram.max remapped_rows.histogram.high remapped_rows.histogram.partial
remapped_rows.histogram.low remapped_rows.histogram.none
temperature.gpu temperature.gpu.tlimit temperature.memory
power.management power.draw power.draw.average power.draw.instant power.limit enforced.power.limit
power.default_limit power.min_limit power.max_limit
module.power.draw.average module.power.draw.instant module.power.limit module.enforced.power.limit
module.power.default_limit module.power.min_limit module.power.max_limit
gpu.base.current gpu.base.requested gpu.base.default gpu.base.min gpu.base.max
power_smoothing.tmp_floor power_smoothing.tmp_ceil power_smoothing.hw_lifetime_remaining_percent
power_smoothing.enabled power_smoothing.delayed_power_smoothing_supported
power_smoothing.soc_power_smoothing_enabled power_smoothing.priv_level power_smoothing.imm_ramp_down
power_smoothing.max_percent_tmp_floor power_smoothing.min_percent_tmp_floor
power_smoothing.primary_power_floor power_smoothing.secondary_power_floor
power_smoothing.min_primary_floor_activation_offset power_smoothing.min_primary_floor_activation_point
power_smoothing.window_multiplier power_smoothing.num_preset_profiles
power_smoothing.curr_profile.percent_tmp_floor power_smoothing.curr_profile.ramp_up_rate
power_smoothing.curr_profile.ramp_down_rate power_smoothing.curr_profile.ramp_down_hysteresis
power_smoothing.curr_profile.secondary_power_floor
power_smoothing.curr_profile.primary_floor_act_window_multiplier
power_smoothing.curr_profile.primary_floor_tar_window_multiplier
power_smoothing.curr_profile.primary_floor_act_offset power_smoothing.active_profile
power_smoothing.admin_override.percent_tmp_floor power_smoothing.admin_override.ramp_up_rate
power_smoothing.admin_override.ramp_down_rate power_smoothing.admin_override.ramp_down_hysteresis
power_smoothing.admin_override.secondary_power_floor
power_smoothing.admin_override.primary_floor_act_window_multiplier
power_smoothing.admin_override.primary_floor_tar_window_multiplier
power_smoothing.admin_override.primary_floor_act_offset edpp_multiplier
clocks.current.graphics clocks.current.sm clocks.current.memory clocks.current.video
clocks.applications.graphics clocks.applications.memory
clocks.default_applications.graphics clocks.default_applications.memory
clocks.max.graphics clocks.max.sm clocks.max.memory
mig.mode.current mig.mode.pending gsp.mode.current gsp.mode.default c2c.mode
protected_memory.total protected_memory.used protected_memory.free
fabric.state fabric.status fabric.cliqueId fabric.clusterUuid
fabric.health.summary fabric.health.bandwidth fabric.health.route_recovery_in_progress
fabric.health.route_unhealthy fabric.health.access_timeout_recovery fabric.health.incorrect_configuration
fabric.health.partition_assigned
platform.chassis_serial_number platform.slot_number platform.tray_index platform.host_id platform.peer_type
platform.module_id platform.gpu_fabric_guid hostname bbx.time_run
`

// newestCount is how many the driver lists.
const newestCount = 241

func TestQueryFieldsFollowNvidiaSMI(t *testing.T) {
	want := strings.Fields(newestFields)
	if len(want) != newestCount {
		t.Fatalf("the list of the newest driver holds %d fields, not %d", len(want), newestCount)
	}
	var got []string
	for _, q := range QueryFields() {
		if q.Section != olderDrivers {
			got = append(got, q.Field)
		}
	}
	for i := range max(len(got), len(want)) {
		switch {
		case i >= len(got):
			t.Fatalf("field %s is missing", want[i])
		case i >= len(want):
			t.Fatalf("field %s is none of the newest driver", got[i])
		case got[i] != want[i]:
			t.Fatalf("field %d is %s, nvidia-smi has %s there", i, got[i], want[i])
		}
	}
}

func TestQueryFieldsSayExactlyOneThing(t *testing.T) {
	taken := map[string]string{}
	var sections []string
	for _, q := range QueryFields() {
		if (q.Family == "") == (q.Why == "") {
			t.Errorf("%s: exactly one of family %q and reason %q must be set", q.Field, q.Family, q.Why)
		}
		if q.Family == "" && (q.Selector != "" || q.Note != "") {
			t.Errorf("%s is not here and has a selector or note", q.Field)
		}
		for _, name := range append([]string{q.Field}, q.Aliases...) {
			if strings.TrimSpace(name) != name || name == "" {
				t.Errorf("%q is no field name", name)
			}
			if by, ok := taken[name]; ok {
				t.Errorf("%s belongs to %s and to %s", name, by, q.Field)
			}
			taken[name] = q.Field
		}
		if n := len(sections); n == 0 || sections[n-1] != q.Section {
			if slices.Contains(sections, q.Section) {
				t.Errorf("section %q is torn apart before %s", q.Section, q.Field)
			}
			sections = append(sections, q.Section)
		}
	}
	// What the renamed fields were called is what people still type.
	for older, field := range map[string]string{
		"clocks_throttle_reasons.active":       "clocks_event_reasons.active",
		"clocks_throttle_reasons.sw_power_cap": "clocks_event_reasons.sw_power_cap",
		"gpu_name":                             "name",
		"clocks.sm":                            "clocks.current.sm",
		"retired_pages.sbe":                    "retired_pages.single_bit_ecc.count",
	} {
		if taken[older] != field {
			t.Errorf("%s leads to %q, want %s", older, taken[older], field)
		}
	}
}

// values returns the values that a label of a family can have; false when any value is possible.
func values(family, label string) ([]string, bool) {
	switch family + " " + label {
	case "gpu_node_devices state":
		return words(gpu.DeviceStates), true
	case "gpu_fabric_fault fault":
		return words(gpu.FabricFaults), true
	case "gpu_recovery_action action":
		return words(gpu.RecoveryActions), true
	case "gpu_clock_limited_seconds_total reason":
		return words(gpu.LimitReasons), true
	case "gpu_engine_utilization_ratio engine":
		return words(gpu.Engines), true
	case "gpu_clock_hertz clock", "gpu_clock_max_hertz clock":
		return words(gpu.Clocks), true
	case "gpu_row_remap_banks availability":
		return words(gpu.BankAvailabilities), true
	case "gpu_remapped_rows_total cause":
		return words([]gpu.RemapCause{gpu.CauseCorrected, gpu.CauseUncorrected}), true
	case "gpu_retired_pages_total cause":
		return words([]gpu.RemapCause{gpu.CauseSingleBit, gpu.CauseDoubleBit}), true
	case "gpu_ecc_errors_total severity", "gpu_ecc_lifetime_errors_total severity":
		return words([]gpu.ECCSeverity{gpu.ECCCorrected, gpu.ECCUncorrected}), true
	case "gpu_ecc_errors_total memory", "gpu_ecc_lifetime_errors_total memory":
		return words([]gpu.ECCMemory{gpu.ECCDRAM, gpu.ECCSRAM, gpu.ECCL1, gpu.ECCL2, gpu.ECCRegisterFile, gpu.ECCTextureMemory,
			gpu.ECCTextureShared, gpu.ECCCBU, gpu.ECCAll}), true
	case "gpu_temperature_celsius sensor", "gpu_temperature_limit_celsius sensor":
		return words([]gpu.Sensor{gpu.SensorGPU, gpu.SensorMemory}), true
	case "gpu_temperature_limit_celsius limit":
		return words([]gpu.TemperatureLimit{gpu.LimitSlowdown, gpu.LimitShutdown, gpu.LimitMaxOperating}), true
	}
	return nil, false
}

func words[T ~string](list []T) []string {
	all := make([]string, len(list))
	for i, w := range list {
		all[i] = string(w)
	}
	return all
}

var (
	selectorSyntax = regexp.MustCompile(`^\{(\w+=~?"[^"]+")(, \w+=~?"[^"]+")*\}$`)
	matcherSyntax  = regexp.MustCompile(`(\w+)(=~?)"([^"]+)"`)
)

// brokenSelector says what is wrong with the family and selector of a field, or nothing.
func brokenSelector(q QueryField) string {
	f, ok := Lookup(q.Family)
	if !ok {
		return "family " + q.Family + " is not in the catalog"
	}
	if q.Selector == "" {
		return ""
	}
	if label, ok := strings.CutPrefix(q.Selector, "label "); ok {
		if !slices.Contains(f.AllLabels(), label) {
			return q.Family + " has no label " + label
		}
		return ""
	}
	if !selectorSyntax.MatchString(q.Selector) {
		return "selector " + q.Selector + " cannot be read"
	}
	for _, m := range matcherSyntax.FindAllStringSubmatch(q.Selector, -1) {
		label, operator, want := m[1], m[2], []string{m[3]}
		if !slices.Contains(f.Labels, label) {
			return q.Family + " has no label " + label
		}
		known, ok := values(q.Family, label)
		if !ok {
			return "no list of the values of " + label + " of " + q.Family
		}
		if operator == "=~" {
			want = strings.Split(m[3], "|")
		}
		for _, w := range want {
			if !slices.Contains(known, w) {
				return label + " of " + q.Family + " is never " + w
			}
		}
	}
	return ""
}

func TestQueryFieldsLeadToSeriesThatExist(t *testing.T) {
	for _, q := range QueryFields() {
		if q.Family == "" {
			continue
		}
		if broken := brokenSelector(q); broken != "" {
			t.Errorf("%s: %s", q.Field, broken)
		}
	}
	for _, q := range []QueryField{
		{Family: "gpu_none"},
		{Family: "gpu_info", Selector: "label color"},
		{Family: "gpu_clock_hertz", Selector: `{clock="tensor"}`},
		{Family: "gpu_clock_hertz", Selector: `{colour="red"}`},
		{Family: "gpu_clock_hertz", Selector: `{clock=sm}`},
		{Family: "gpu_clock_limited_seconds_total", Selector: `{reason=~"hw_thermal|moon"}`},
	} {
		if brokenSelector(q) == "" {
			t.Errorf("%s%s passed", q.Family, q.Selector)
		}
	}
}

// A row with a closed set of label values must say which of them is meant, or which label is the answer:
// without that, a field would lead to the sum of different things.
func TestQueryFieldsSelectWhatTheyMean(t *testing.T) {
	free := map[string]bool{"fan": true, "poll": true}
	for _, q := range QueryFields() {
		f, ok := Lookup(q.Family)
		if !ok || q.Selector != "" {
			continue
		}
		for _, label := range f.Labels {
			if !free[label] {
				t.Errorf("%s leads to %s without a word on its label %s", q.Field, q.Family, label)
			}
		}
	}
}

func TestQueryFieldUnits(t *testing.T) {
	for _, q := range QueryFields() {
		if q.Family == "" {
			continue
		}
		// The units in which nvidia-smi prints these groups.
		for _, u := range []struct{ field, family, note string }{
			{`^memory\.`, `_bytes$`, "MiB -> bytes"},
			{`^(clocks\.)`, `_hertz$`, "MHz -> hertz"},
			{`^(fan\.speed|utilization\.)`, `(_ratio|_seconds_total)$`, "% "},
			{`^clocks_event_reasons_counters\.`, `_seconds_total$`, "µs -> seconds"},
			{`power\.(draw|.*limit)|power\.limit`, `_watts$`, ""},
			{`^temperature\.`, `_celsius$`, ""},
		} {
			if regexp.MustCompile(u.field).MatchString(q.Field) &&
				(!regexp.MustCompile(u.family).MatchString(q.Family) || !strings.HasPrefix(q.Note, u.note)) {
				t.Errorf("%s -> %s with note %q: want a family like %s and a note that begins with %q", q.Field, q.Family, q.Note, u.family, u.note)
			}
		}
	}
}

func TestQueryFieldsMarkdown(t *testing.T) {
	text := queryFieldsMarkdown()
	rows := 0
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "|") {
			continue
		}
		if cells := strings.Count(strings.ReplaceAll(line, `\|`, ""), "|"); cells != 4 {
			t.Errorf("a row has %d cell borders, not 4: %s", cells, line)
		}
		if strings.HasPrefix(line, "| `") {
			rows++
		}
	}
	all := QueryFields()
	if rows != len(all) {
		t.Errorf("%d rows for %d fields", rows, len(all))
	}
	for _, q := range all {
		if !strings.Contains(text, "| `"+q.Field+"`") {
			t.Errorf("%s is not in the table", q.Field)
		}
	}
	for _, want := range []string{
		"### Temperature\n",
		"| `name`, `gpu_name` | label `model` of `gpu_info` |",
		"| `temperature.memory` | `gpu_temperature_celsius{sensor=\"memory\"}` |",
		"| `timestamp` | `gpu_last_read_timestamp_seconds` |",
		"| `pcie.link.gen.gpumax` | no | not exported yet: nvmlDeviceGetGpuMaxPcieLinkGeneration |",
		`{reason=~"hw_thermal\|hw_power_brake"}`,
		"the 241 fields of driver 610.57.",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the text lacks %q", want)
		}
	}
}
