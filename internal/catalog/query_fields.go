package catalog

import (
	"fmt"
	"slices"
	"strings"
)

// QueryField is one property that nvidia-smi --query-gpu can be asked for, and where its answer is here.
// Exactly one of Family and Why is set.
type QueryField struct {
	// Section groups neighbors; the fields of one section stand together, in nvidia-smi's order.
	Section string
	Field   string
	// Aliases are other spellings that some driver takes for the same field, older names among them.
	Aliases []string
	// Family is the name of a row of the catalog that carries the answer.
	Family string
	// Selector narrows Family to the answer: a PromQL selector, or "label NAME" where the value of a label
	// is the answer. Empty: every series of the family.
	Selector string
	// Note says how the two spellings differ, units above all: "MiB -> bytes".
	Note string
	// Why says why nothing carries the answer.
	Why string
}

// Pending reports whether NVML could give the answer and no family carries it yet.
func (q QueryField) Pending() bool { return strings.HasPrefix(q.Why, notYet) }

// QueryFieldsDriver is the driver release whose fields are all in QueryFields; older names follow at the end.
const QueryFieldsDriver = "610.57"

// olderDrivers is the section of the fields that the newest driver no longer takes.
const olderDrivers = "Fields of older drivers"

const (
	notYet     = "not exported yet: "
	vgpuHost   = "capability of a virtual GPU host"
	windows    = "driver models exist on Windows alone"
	deprecated = "deprecated: no answer since "
	setting    = "setting or limit of power smoothing, no reading: "
)

// QueryFields returns every field of nvidia-smi --query-gpu in nvidia-smi's own order, then those that only
// older drivers take.
func QueryFields() []QueryField {
	var all []QueryField
	section := func(title string, parts ...[]QueryField) {
		for _, fields := range parts {
			for _, q := range fields {
				q.Section = title
				all = append(all, q)
			}
		}
	}
	section("Driver and node", driverFields())
	section("Identity", identityFields())
	section("Virtual GPU capabilities", vgpuFields())
	section("PCIe link", pcieFields())
	section("Index, display and modes", modeFields())
	section("Firmware and recovery", firmwareFields())
	section("Fan and performance state", fanFields())
	section("Clock event reasons", reasonFields())
	section("Memory and compute", memoryFields())
	section("Utilization and encoder", utilizationFields())
	section("Encryption and ECC mode", encryptionFields())
	section("ECC errors", eccFields(), sramFields())
	section("Retired pages and remapped rows", repairFields())
	section("Temperature", temperatureFields())
	section("Power", powerFields())
	section("Power of the module, base power", modulePowerFields())
	section("Power smoothing", smoothingFields())
	section("Clocks", clockFields())
	section("MIG, firmware, C2C and protected memory", migFields())
	section("Fabric", fabricFields())
	section("Platform", platformFields())
	section(olderDrivers, olderFields())
	return all
}

func driverFields() []QueryField {
	return []QueryField{
		{Field: "timestamp", Family: "gpu_last_read_timestamp_seconds", Note: "date -> Unix time, per poll group; a scrape has a timestamp of its own"},
		{Field: "driver_version", Family: "gpu_driver_info", Selector: "label driver_version"},
		{Field: "kmd_version", Family: "gpu_driver_info", Selector: "label driver_version", Note: "the newer name of driver_version"},
		{Field: "vgpu_driver_capability.heterogenous_multivGPU", Why: vgpuHost},
		{Field: "count", Family: "gpu_node_devices", Selector: `{state=~"up|failed"}`, Note: "their sum"},
	}
}

func identityFields() []QueryField {
	const device = notYet + "nvmlDeviceGetPciInfoExt"
	part := func(field string) QueryField {
		return QueryField{Field: field, Family: "gpu_info", Selector: "label pci_bus_id", Note: "a part of the address"}
	}
	return []QueryField{
		{Field: "name", Aliases: []string{"gpu_name"}, Family: "gpu_info", Selector: "label model"},
		{Field: "serial", Aliases: []string{"gpu_serial"}, Family: "gpu_info", Selector: "label serial"},
		{Field: "uuid", Aliases: []string{"gpu_uuid"}, Family: "gpu_info", Selector: "label uuid", Note: "on every series of a GPU"},
		{Field: "pci.bus_id", Aliases: []string{"gpu_bus_id"}, Family: "gpu_info", Selector: "label pci_bus_id", Note: "00000000:18:00.0 -> 0000:18:00.0, as Linux spells it"},
		part("pci.domain"),
		part("pci.bus"),
		part("pci.device"),
		{Field: "pci.baseClass", Why: device},
		{Field: "pci.subClass", Why: device},
		{Field: "pci.device_id", Why: notYet + "nvmlDeviceGetPciInfo"},
		{Field: "pci.sub_device_id", Why: notYet + "nvmlDeviceGetPciInfo"},
	}
}

func vgpuFields() []QueryField {
	var fields []QueryField
	for _, name := range []string{"fractional_multiVgpu", "heterogeneous_timeSlice_profile", "heterogeneous_timeSlice_sizes",
		"homogeneous_placements", "mig_timeSlicing", "mig_timeSlicing_mode"} {
		fields = append(fields, QueryField{Field: "vgpu_device_capability." + name, Why: vgpuHost})
	}
	return fields
}

func pcieFields() []QueryField {
	return []QueryField{
		{Field: "pcie.link.gen.current", Family: "gpu_pcie_link_generation", Note: "the older name of pcie.link.gen.gpucurrent"},
		{Field: "pcie.link.gen.gpucurrent", Family: "gpu_pcie_link_generation"},
		{Field: "pcie.link.gen.max", Family: "gpu_pcie_link_generation_max"},
		{Field: "pcie.link.gen.gpumax", Why: notYet + "nvmlDeviceGetGpuMaxPcieLinkGeneration"},
		{Field: "pcie.link.gen.hostmax", Why: "no NVML call gives it; gpu_pcie_link_generation_max is the lower of GPU and slot"},
		{Field: "pcie.link.width.current", Family: "gpu_pcie_link_width"},
		{Field: "pcie.link.width.max", Family: "gpu_pcie_link_width_max"},
	}
}

func modeFields() []QueryField {
	return []QueryField{
		{Field: "index", Family: "gpu_info", Selector: "label gpu", Note: "the index when the exporter first saw the GPU; on every series of a GPU"},
		{Field: "display_mode", Why: deprecated + "R580 or earlier; display_attached took its place"},
		{Field: "display_attached", Why: notYet + "nvmlDeviceGetDisplayMode"},
		{Field: "display_active", Family: "gpu_display_active", Note: "Enabled -> 1"},
		{Field: "persistence_mode", Family: "gpu_persistence_mode", Note: "Enabled -> 1"},
		{Field: "addressing_mode", Why: notYet + "nvmlDeviceGetAddressingMode"},
		{Field: "accounting.mode", Family: "gpu_accounting_mode", Note: "Enabled -> 1"},
		{Field: "accounting.buffer_size", Why: "size of a buffer of the driver, no reading of the GPU"},
		{Field: "driver_model.current", Why: windows},
		{Field: "driver_model.pending", Why: windows},
	}
}

func firmwareFields() []QueryField {
	const gom = "a mode that only some Kepler GPUs have"
	return []QueryField{
		{Field: "vbios_version", Family: "gpu_info", Selector: "label vbios_version"},
		{Field: "inforom.img", Aliases: []string{"inforom.image"}, Why: notYet + "nvmlDeviceGetInforomImageVersion"},
		{Field: "inforom.oem", Why: notYet + "nvmlDeviceGetInforomVersion (OEM)"},
		{Field: "inforom.ecc", Why: notYet + "nvmlDeviceGetInforomVersion (ECC)"},
		{Field: "inforom.pwr", Aliases: []string{"inforom.power"}, Why: notYet + "nvmlDeviceGetInforomVersion (power)"},
		{Field: "inforom.checksum_validation", Why: notYet + "nvmlDeviceValidateInforom, which reads the GPU's flash at each call"},
		{Field: "gpu_recovery_action", Family: "gpu_recovery_action", Selector: "label action", Note: "the series that is 1"},
		{Field: "gom.current", Aliases: []string{"gpu_operation_mode.current"}, Why: gom},
		{Field: "gom.pending", Aliases: []string{"gpu_operation_mode.pending"}, Why: gom},
	}
}

func fanFields() []QueryField {
	return []QueryField{
		{Field: "fan.speed", Family: "gpu_fan_speed_ratio", Note: "% -> ratio, one series per fan"},
		{Field: "pstate", Family: "gpu_performance_state", Note: "P8 -> 8"},
	}
}

// reasonFields covers the bits, which say what holds at the moment of the question, and the counters of the
// same reasons. Here both are counters: a reason holds while its rate is above 0.
func reasonFields() []QueryField {
	const family = "gpu_clock_limited_seconds_total"
	bit := func(name string) (string, []string) {
		return "clocks_event_reasons." + name, []string{"clocks_throttle_reasons." + name}
	}
	now := func(name, selector, note string) QueryField {
		field, aliases := bit(name)
		return QueryField{Field: field, Aliases: aliases, Family: family, Selector: selector, Note: note}
	}
	not := func(name, why string) QueryField {
		field, aliases := bit(name)
		return QueryField{Field: field, Aliases: aliases, Why: why}
	}
	counter := func(name, reason string) QueryField {
		return QueryField{Field: "clocks_event_reasons_counters." + name, Family: family, Selector: reason, Note: "µs -> seconds"}
	}
	const (
		held       = "Active -> the time for which it held; it holds while the rate is above 0"
		powerCap   = `{reason="power_cap"}`
		swThermal  = `{reason="sw_thermal"}`
		hwThermal  = `{reason="hw_thermal"}`
		powerBrake = `{reason="hw_power_brake"}`
		syncBoost  = `{reason="sync_boost"}`
	)
	return []QueryField{
		now("supported", "label reason", "bits -> one series per reason that the GPU offers"),
		now("active", "label reason", "bits -> the reasons whose rate is above 0"),
		not("gpu_idle", "idleness is no limit; gpu_busy_seconds_total and gpu_last_busy_timestamp_seconds tell it"),
		not("applications_clocks_setting", notYet+"nvmlDeviceGetCurrentClocksEventReasons, bit 1"),
		now("sw_power_cap", powerCap, held),
		now("hw_slowdown", `{reason=~"hw_thermal|hw_power_brake"}`, "either of the two, without the other power triggers; "+held),
		now("hw_thermal_slowdown", hwThermal, held),
		now("hw_power_brake_slowdown", powerBrake, held),
		now("sw_thermal_slowdown", swThermal, held),
		now("sync_boost", syncBoost, held),
		counter("sw_power_cap", powerCap),
		counter("sync_boost", syncBoost),
		counter("sw_thermal_slowdown", swThermal),
		counter("hw_thermal_slowdown", hwThermal),
		counter("hw_power_brake_slowdown", powerBrake),
	}
}

func memoryFields() []QueryField {
	const mib = "MiB -> bytes"
	return []QueryField{
		{Field: "memory.total", Family: "gpu_memory_total_bytes", Note: mib},
		{Field: "memory.reserved", Family: "gpu_memory_reserved_bytes", Note: mib},
		{Field: "memory.used", Family: "gpu_memory_used_bytes", Note: mib},
		{Field: "memory.free", Family: "gpu_memory_free_bytes", Note: mib},
		{Field: "compute_mode", Family: "gpu_compute_mode", Selector: "label mode", Note: "the series that is 1"},
		{Field: "compute_cap", Family: "gpu_info", Selector: "label compute_capability"},
	}
}

func utilizationFields() []QueryField {
	engine := func(name, engine string) QueryField {
		return QueryField{Field: "utilization." + name, Family: "gpu_engine_utilization_ratio", Selector: `{engine="` + engine + `"}`, Note: "% -> ratio"}
	}
	const encoder = notYet + "nvmlDeviceGetEncoderStats"
	return []QueryField{
		{Field: "utilization.gpu", Family: "gpu_busy_seconds_total",
			Note: "% of the last window -> seconds: rate over rate of gpu_observed_seconds_total is the exact mean; gpu_utilization_ratio is the mean of 60 s"},
		{Field: "utilization.memory", Family: "gpu_memory_busy_seconds_total", Note: "% of the last window -> seconds: the rate is the ratio"},
		engine("encoder", "encoder"),
		engine("decoder", "decoder"),
		engine("jpeg", "jpeg"),
		engine("ofa", "ofa"),
		{Field: "encoder.stats.sessionCount", Why: encoder},
		{Field: "encoder.stats.averageFps", Why: encoder},
		{Field: "encoder.stats.averageLatency", Why: encoder},
	}
}

func encryptionFields() []QueryField {
	return []QueryField{
		{Field: "dramEncryption.mode.current", Why: notYet + "nvmlDeviceGetDramEncryptionMode"},
		{Field: "dramEncryption.mode.pending", Why: notYet + "nvmlDeviceGetDramEncryptionMode"},
		{Field: "ecc.mode.current", Family: "gpu_ecc_mode", Note: "Enabled -> 1"},
		{Field: "ecc.mode.pending", Family: "gpu_ecc_mode_pending", Note: "Enabled -> 1"},
	}
}

// eccFields are the counters by severity, by the time over which they count, and by place.
func eccFields() []QueryField {
	places := []struct{ field, memory string }{
		{"device_memory", "dram"}, {"dram", "dram"}, {"register_file", "register_file"}, {"l1_cache", "l1"}, {"l2_cache", "l2"},
		{"texture_memory", "texture_memory"}, {"cbu", "cbu"}, {"sram", "sram"},
	}
	var fields []QueryField
	for _, severity := range []string{"corrected", "uncorrected"} {
		for _, over := range []struct{ field, family string }{
			{"volatile", "gpu_ecc_errors_total"}, {"aggregate", "gpu_ecc_lifetime_errors_total"},
		} {
			prefix := "ecc.errors." + severity + "." + over.field + "."
			for _, p := range places {
				fields = append(fields, QueryField{Field: prefix + p.field, Family: over.family,
					Selector: fmt.Sprintf("{severity=%q, memory=%q}", severity, p.memory)})
			}
			fields = append(fields, QueryField{Field: prefix + "total", Family: over.family,
				Selector: fmt.Sprintf("{severity=%q}", severity), Note: "their sum"})
		}
	}
	return fields
}

// sramFields split the uncorrected SRAM errors further.
func sramFields() []QueryField {
	var fields []QueryField
	for _, name := range []string{"volatile.sram.parity", "volatile.sram.secded", "aggregate.sram.parity", "aggregate.sram.secded",
		"aggregate.sram.thresholdExceeded", "aggregate.sram.l2", "aggregate.sram.sm", "aggregate.sram.mcu", "aggregate.sram.pcie", "aggregate.sram.other"} {
		fields = append(fields, QueryField{Field: "ecc.errors.uncorrected." + name, Why: notYet + "nvmlDeviceGetSramEccErrorStatus"})
	}
	return fields
}

func repairFields() []QueryField {
	const inactive = ", or nvmlDeviceGetRemappedRows_v2"
	fields := []QueryField{
		{Field: "retired_pages.single_bit_ecc.count", Aliases: []string{"retired_pages.sbe"}, Family: "gpu_retired_pages_total", Selector: `{cause="multiple_single_bit"}`},
		{Field: "retired_pages.double_bit.count", Aliases: []string{"retired_pages.dbe"}, Family: "gpu_retired_pages_total", Selector: `{cause="double_bit"}`},
		{Field: "retired_pages.pending", Family: "gpu_retired_pages_pending", Note: "Yes -> 1"},
		{Field: "remapped_rows.correctable", Aliases: []string{"remapped_rows.sbe"}, Family: "gpu_remapped_rows_total", Selector: `{cause="corrected"}`},
		{Field: "remapped_rows.correctable_inactive", Why: notYet + "NVML field 301" + inactive},
		{Field: "remapped_rows.uncorrectable", Aliases: []string{"remapped_rows.dbe"}, Family: "gpu_remapped_rows_total", Selector: `{cause="uncorrected"}`},
		{Field: "remapped_rows.uncorrectable_inactive", Why: notYet + "NVML field 302" + inactive},
		{Field: "remapped_rows.pending", Family: "gpu_row_remap_pending", Note: "Yes -> 1"},
		{Field: "remapped_rows.failure", Family: "gpu_row_remap_failed", Note: "Yes -> 1"},
	}
	for _, availability := range []string{"max", "high", "partial", "low", "none"} {
		fields = append(fields, QueryField{Field: "remapped_rows.histogram." + availability, Family: "gpu_row_remap_banks",
			Selector: `{availability="` + availability + `"}`})
	}
	return fields
}

func temperatureFields() []QueryField {
	return []QueryField{
		{Field: "temperature.gpu", Family: "gpu_temperature_celsius", Selector: `{sensor="gpu"}`},
		{Field: "temperature.gpu.tlimit", Family: "gpu_temperature_limit_celsius", Selector: `{sensor="gpu", limit="max_operating"}`,
			Note: "distance to the limit -> the limit; subtract gpu_temperature_celsius"},
		{Field: "temperature.memory", Family: "gpu_temperature_celsius", Selector: `{sensor="memory"}`},
	}
}

func powerFields() []QueryField {
	return []QueryField{
		{Field: "power.management", Why: deprecated + "R590 or earlier; a GPU without power management has no power families"},
		{Field: "power.draw", Family: "gpu_power_watts"},
		{Field: "power.draw.average", Aliases: []string{"gpu.power.draw.average"}, Family: "gpu_power_watts"},
		{Field: "power.draw.instant", Aliases: []string{"gpu.power.draw.instant"}, Family: "gpu_power_instant_watts"},
		{Field: "power.limit", Aliases: []string{"gpu.power.requested_limit"}, Family: "gpu_power_limit_requested_watts"},
		{Field: "enforced.power.limit", Aliases: []string{"gpu.power.current_limit"}, Family: "gpu_power_limit_watts"},
		{Field: "power.default_limit", Aliases: []string{"gpu.power.default_limit"}, Family: "gpu_power_limit_default_watts"},
		{Field: "power.min_limit", Aliases: []string{"gpu.power.min_limit"}, Family: "gpu_power_limit_min_watts"},
		{Field: "power.max_limit", Aliases: []string{"gpu.power.max_limit"}, Family: "gpu_power_limit_max_watts"},
	}
}

func modulePowerFields() []QueryField {
	scoped := func(field string, id int, scope string, aliases ...string) QueryField {
		return QueryField{Field: field, Aliases: aliases, Why: fmt.Sprintf("%sNVML field %d (scope %s)", notYet, id, scope)}
	}
	const module, base = "module", "GPU base"
	return []QueryField{
		{Field: "module.power.draw.average", Family: "gpu_power_module_watts"},
		scoped("module.power.draw.instant", 186, module),
		scoped("module.power.limit", 192, module, "module.power.requested_limit"),
		scoped("module.enforced.power.limit", 190, module, "module.power.current_limit"),
		scoped("module.power.default_limit", 189, module),
		scoped("module.power.min_limit", 187, module),
		scoped("module.power.max_limit", 188, module),
		scoped("gpu.base.current", 190, base),
		{Field: "gpu.base.requested", Why: "NVML's header offers no requested limit in the scope GPU base"},
		scoped("gpu.base.default", 189, base),
		scoped("gpu.base.min", 187, base),
		scoped("gpu.base.max", 188, base),
	}
}

// smoothingFields tell power smoothing, which Blackwell and newer GPUs have: a few readings among many
// settings.
func smoothingFields() []QueryField {
	field := func(name, why string, id int) QueryField {
		return QueryField{Field: "power_smoothing." + name, Why: fmt.Sprintf("%sNVML field %d", why, id)}
	}
	reading := func(name string, id int) QueryField { return field(name, notYet, id) }
	set := func(name string, id int) QueryField { return field(name, setting, id) }
	return []QueryField{
		reading("tmp_floor", 255),
		reading("tmp_ceil", 254),
		reading("hw_lifetime_remaining_percent", 258),
		reading("enabled", 251),
		set("delayed_power_smoothing_supported", 280),
		reading("soc_power_smoothing_enabled", 300),
		set("priv_level", 252),
		set("imm_ramp_down", 253),
		set("max_percent_tmp_floor", 256),
		set("min_percent_tmp_floor", 257),
		reading("primary_power_floor", 275),
		reading("secondary_power_floor", 276),
		set("min_primary_floor_activation_offset", 277),
		set("min_primary_floor_activation_point", 278),
		set("window_multiplier", 279),
		set("num_preset_profiles", 259),
		set("curr_profile.percent_tmp_floor", 260),
		set("curr_profile.ramp_up_rate", 261),
		set("curr_profile.ramp_down_rate", 262),
		set("curr_profile.ramp_down_hysteresis", 263),
		set("curr_profile.secondary_power_floor", 281),
		set("curr_profile.primary_floor_act_window_multiplier", 282),
		set("curr_profile.primary_floor_tar_window_multiplier", 283),
		set("curr_profile.primary_floor_act_offset", 284),
		reading("active_profile", 264),
		set("admin_override.percent_tmp_floor", 265),
		set("admin_override.ramp_up_rate", 266),
		set("admin_override.ramp_down_rate", 267),
		set("admin_override.ramp_down_hysteresis", 268),
		set("admin_override.secondary_power_floor", 285),
		set("admin_override.primary_floor_act_window_multiplier", 286),
		set("admin_override.primary_floor_tar_window_multiplier", 287),
		set("admin_override.primary_floor_act_offset", 288),
		{Field: "edpp_multiplier", Why: notYet + "NVML field 274"},
	}
}

func clockFields() []QueryField {
	clock := func(field, alias, family, clock string) QueryField {
		q := QueryField{Field: field, Family: family, Selector: `{clock="` + clock + `"}`, Note: "MHz -> hertz"}
		if alias != "" {
			q.Aliases = []string{alias}
		}
		return q
	}
	gone := func(field, alias string) QueryField {
		return QueryField{Field: field, Aliases: []string{alias}, Why: deprecated + "R590"}
	}
	const now, most = "gpu_clock_hertz", "gpu_clock_max_hertz"
	return []QueryField{
		clock("clocks.current.graphics", "clocks.gr", now, "graphics"),
		clock("clocks.current.sm", "clocks.sm", now, "sm"),
		clock("clocks.current.memory", "clocks.mem", now, "memory"),
		clock("clocks.current.video", "clocks.video", now, "video"),
		gone("clocks.applications.graphics", "clocks.applications.gr"),
		gone("clocks.applications.memory", "clocks.applications.mem"),
		gone("clocks.default_applications.graphics", "clocks.default_applications.gr"),
		gone("clocks.default_applications.memory", "clocks.default_applications.mem"),
		clock("clocks.max.graphics", "clocks.max.gr", most, "graphics"),
		clock("clocks.max.sm", "", most, "sm"),
		clock("clocks.max.memory", "clocks.max.mem", most, "memory"),
	}
}

func migFields() []QueryField {
	const protected = notYet + "nvmlDeviceGetConfComputeProtectedMemoryUsage"
	return []QueryField{
		{Field: "mig.mode.current", Family: "gpu_mig_mode", Note: "Enabled -> 1"},
		{Field: "mig.mode.pending", Family: "gpu_mig_mode_pending", Note: "Enabled -> 1"},
		{Field: "gsp.mode.current", Why: notYet + "nvmlDeviceGetGspFirmwareMode"},
		{Field: "gsp.mode.default", Why: notYet + "nvmlDeviceGetGspFirmwareMode"},
		{Field: "c2c.mode", Why: notYet + "nvmlDeviceGetC2cModeInfoV"},
		{Field: "protected_memory.total", Why: protected},
		{Field: "protected_memory.used", Why: protected},
		{Field: "protected_memory.free", Why: protected},
	}
}

func fabricFields() []QueryField {
	info := func(field, part string) QueryField {
		return QueryField{Field: "fabric." + field, Why: notYet + "nvmlDeviceGetGpuFabricInfoV (" + part + ")"}
	}
	fault := func(field, fault, note string) QueryField {
		return QueryField{Field: "fabric.health." + field, Family: "gpu_fabric_fault", Selector: `{fault="` + fault + `"}`, Note: note}
	}
	return []QueryField{
		{Field: "fabric.state", Family: "gpu_fabric_state", Selector: "label state", Note: "the series that is 1"},
		info("status", "status"),
		info("cliqueId", "clique"),
		info("clusterUuid", "cluster"),
		info("health.summary", "health summary"),
		fault("bandwidth", "degraded_bandwidth", ""),
		fault("route_recovery_in_progress", "route_recovery", ""),
		fault("route_unhealthy", "route_unhealthy", ""),
		fault("access_timeout_recovery", "access_timeout", ""),
		fault("incorrect_configuration", "incorrect_configuration", "1 whatever is wrong in it"),
		info("health.partition_assigned", "health mask"),
	}
}

func platformFields() []QueryField {
	var fields []QueryField
	for _, name := range []string{"chassis_serial_number", "slot_number", "tray_index", "host_id", "peer_type", "module_id", "gpu_fabric_guid"} {
		fields = append(fields, QueryField{Field: "platform." + name, Why: notYet + "nvmlDeviceGetPlatformInfo"})
	}
	return append(fields,
		QueryField{Field: "hostname", Why: "a name that an administrator may give the GPU until its next reset; the label node names the host"},
		QueryField{Field: "bbx.time_run", Why: notYet + "nvmlDeviceGetBBXTimeData_v1"})
}

// olderFields are those that the newest driver no longer takes and that have no newer spelling.
func olderFields() []QueryField {
	return []QueryField{
		{Field: "reset_status.reset_required", Family: "gpu_recovery_action", Selector: `{action="reset"}`, Note: "Yes -> 1, from R570 on; drivers before it have no such series"},
		{Field: "reset_status.drain_and_reset_recommended", Family: "gpu_recovery_action", Selector: `{action="drain_and_reset"}`, Note: "Yes -> 1, from R570 on; drivers before it have no such series"},
		{Field: "clocks_throttle_reasons.unknown", Why: "the driver no longer has a reason of that kind"},
	}
}

// queryFieldsMarkdown renders the fields as one table per section.
func queryFieldsMarkdown() string {
	all := QueryFields()
	var here, pending, not, older int
	for _, q := range all {
		switch {
		case q.Section == olderDrivers:
			older++
		case q.Family != "":
			here++
		case q.Pending():
			pending++
		default:
			not++
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "The table follows the %d fields of driver %s. Of these %d are here, %d are not exported yet though NVML has them (the call is named), and\n"+
		"%d are left out for the reason given. %d fields that only older drivers take come last.\n",
		len(all)-older, QueryFieldsDriver, here, pending, not, older)
	for len(all) > 0 {
		title := all[0].Section
		n := slices.IndexFunc(all, func(q QueryField) bool { return q.Section != title })
		if n < 0 {
			n = len(all)
		}
		fmt.Fprintf(&b, "\n### %s\n\n| nvidia-smi | here | remark |\n|---|---|---|\n", title)
		for _, q := range all[:n] {
			names := code(append([]string{q.Field}, q.Aliases...))
			if q.Family == "" {
				fmt.Fprintf(&b, "| %s | no | %s |\n", names, cell(q.Why))
				continue
			}
			fmt.Fprintf(&b, "| %s | %s | %s |\n", names, cell(place(q)), cell(q.Note))
		}
		all = all[n:]
	}
	return b.String()
}

// place spells where the answer is: a query, or a label of a family.
func place(q QueryField) string {
	if label, ok := strings.CutPrefix(q.Selector, "label "); ok {
		return "label `" + label + "` of `" + q.Family + "`"
	}
	return "`" + q.Family + q.Selector + "`"
}
