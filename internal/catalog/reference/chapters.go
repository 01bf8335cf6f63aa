package reference

// chapter is what docs/metrics.md has of a group of the catalog beside its families.
type chapter struct {
	intro    string
	examples []example
}

// example is a question and its PromQL query.
type example struct{ question, query string }

// chapters are the chapters by the titles of the groups. Some have neither introduction nor examples.
var chapters = map[string]chapter{
	"Identity and state": {
		intro: "An unavailable GPU keeps the families of this chapter, its XIDs and its allocation; its other series " +
			"are no longer exported.",
	},
	"Activity": {
		intro: "The counters integrate the driver's utilization samples: the ratio of two rates is the mean " +
			"utilization of any period, independent of the scrape interval. In the protobuf format they have start " +
			"timestamps.",
		examples: []example{
			{"In which share of the time were tensor cores active?",
				`rate(gpu_tensor_active_seconds_total[10m]) / rate(gpu_profiled_seconds_total[10m])`},
		},
	},
	"Memory": {
		intro: "Total = reserved + used + free. Drivers before R510 do not report reserved memory and count it as " +
			"used.",
	},
	"Power and energy": {
		intro: "The rate of the energy counter is the mean power of any period; prefer it to the gauges. Limits need GPUs with " +
			"power management.",
		examples: []example{
			{"What was the mean power of each node's GPUs?", `sum by (node) (rate(gpu_energy_joules_total[5m]))`},
		},
	},
	"Temperature": {
		examples: []example{
			{"Which sensors are within 5 degrees of their limit?",
				`gpu_temperature_celsius > on (node, uuid, sensor) gpu_temperature_limit_celsius{limit="max_operating"} - 5`},
		},
	},
	"Clocks and clock limits": {
		examples: []example{
			{"Which GPUs run at other clocks than the maximum, and why?", `gpu_clock_event_active{reason!="idle"} == 1`},
			{"In which share of the time was each GPU limited by temperature?",
				`rate(gpu_clock_limited_seconds_total{reason=~"sw_thermal|hw_thermal"}[10m])`},
		},
	},
	"Modes": {
		examples: []example{
			{"Which GPUs need a reset for a mode change?",
				`gpu_mig_mode != gpu_mig_mode_pending or gpu_ecc_mode != gpu_ecc_mode_pending`},
		},
	},
	"Errors": {
		intro: "XIDs are read from NVML events and, where permitted, from the kernel log; an error reported by both " +
			"is counted once. Codes 48, 62, 64, 74, 79, 95, 119 and 120 are exported from 0 on where a data source can report " +
			"them, so that the first occurrence is an increase; other codes from their first occurrence on. " +
			"XIDs 62, 79, 119 and 120 do not arrive through NVML: without the kernel log (`gpu_exporter_source_up{source=\"kmsg\"}`) " +
			"they are absent, never 0. Row remapping and SRAM errors: Ampere and newer; retired pages: data-center GPUs before it.",
		examples: []example{
			{"Which GPUs reported an XID in the last ten minutes?",
				`time() - gpu_xid_last_timestamp_seconds < 600`},
			{"Where did uncorrected memory errors grow?",
				`sum by (node, uuid) (increase(gpu_ecc_errors_total{severity="uncorrected"}[1h])) > 0`},
		},
	},
	"PCIe, NVLink and fabric": {
		examples: []example{
			{"Which GPUs have lost a link?",
				`gpu_nvlink_links{state="up"} < max_over_time(gpu_nvlink_links{state="up"}[1d])`},
		},
	},
	"Allocation": {
		intro: "GPU families have no pod labels, so their sums count each GPU once. A GPU whose allocation is " +
			"unknown has no `gpu_allocation_ratio`.",
		examples: []example{
			{"Which pods is each GPU allocated to?",
				`sum by (node, uuid, namespace, pod) (gpu_container_allocation_ratio)`},
			{"In which containers is a GPU visible that is not allocated to them?",
				`gpu_container_visible unless on (node, uuid, namespace, pod, container) gpu_container_allocation_ratio`},
		},
	},
	"Containers": {
		intro: "The containers of a GPU and `gpu_unattributed_*` add up to the GPU's total; `gpu_attribution_error_ratio` is the " +
			"difference. A container whose activity cannot be measured has no series here, never a 0. Values of `reason`: host (a " +
			"process outside of pods), hidden (what visible processes do not explain), unresolved (a process or an allocation that " +
			"could not be resolved to a container), unmeasured (several containers, and no figure for each), mps " +
			"(MPS clients, not reported one by one), driver (contexts of the driver and of the MPS server), idle " +
			"(allocated to no container). When a container stops, its gauges are no longer exported; its counters " +
			"are exported for five more minutes. In the protobuf format they have start timestamps, by which Prometheus 3 " +
			"with --enable-feature=created-timestamp-zero-ingestion counts the first increment of a new container.",
		examples: []example{
			{"Which pods have not used their GPUs for 20 minutes?",
				`sum by (node, namespace, pod) (gpu_container_allocation_ratio) and on (node, namespace, pod) ` +
					`(time() - max by (node, namespace, pod) (gpu_container_last_busy_timestamp_seconds) > 1200)`},
			{"Which share of its allocated GPU-time did each namespace use?",
				`sum by (namespace) (increase(gpu_container_busy_seconds_total[1h])) / ` +
					`sum by (namespace) (increase(gpu_container_allocated_seconds_total[1h]))`},
			{"How many kWh did each namespace use in the last hour?",
				`sum by (namespace) (increase(gpu_container_energy_joules_total[1h])) / 3.6e6`},
		},
	},
	"MIG instances": {
		intro: "One series per GPU instance; `mig_uuid` is the UUID of its first compute instance. An instance's " +
			"time counts towards its GPU's multiplied by `gpu_mig_share_ratio`, or that of its compute instances by " +
			"[their part of it](concepts.md#attribution). Activity: Hopper and newer.",
		examples: []example{
			{"How many instances of each profile are unallocated?",
				`count by (profile) (gpu_mig_allocation_ratio == 0)`},
		},
	},
	"Exporter": {
		intro: "At most `gpu_exporter_container_accounts_limit` containers, counted once per GPU, have series of their own (about " +
			"fifteen each); the others are aggregated into `pod=\"other\"` of each GPU, with an empty namespace. The exporter also " +
			"exposes `process_*`, " +
			"some `go_*` (both read in the medium poll group) and `promhttp_*`.",
		examples: []example{
			{"What is the mean duration of driver calls? (Needs native histograms; otherwise divide `_sum` by " +
				"`_count`.)", `histogram_avg(sum by (poll) (rate(gpu_exporter_poll_call_duration_seconds[10m])))`},
		},
	},
}
