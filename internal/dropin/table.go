package dropin

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// kind is how the value of an option is written.
type kind string

const (
	text   kind = "text"
	number kind = "number"
	onOff  kind = "true or false"
	list   kind = "list"
)

// Option is a flag of dcgm-exporter with its alias, variable and default, and what it means here.
type Option struct {
	Name, Alias, Variable, Default string
	Kind                           kind
	// Meaning is a sentence for the documentation, and for the log where it is Ignored.
	Meaning string
	// Ignored: it is accepted, and changes nothing.
	Ignored bool
	// flags returns the flags of the exporter for a value; nil where Translate or nothing does.
	flags func(value string) ([]string, error)
}

// set returns a setting of the page.
func set(name string) func(string) ([]string, error) {
	return func(value string) ([]string, error) { return []string{"--compat.set=" + name + "=" + value}, nil }
}

// flag returns a flag with the value, and none without one.
func flag(name string) func(string) ([]string, error) {
	return func(value string) ([]string, error) {
		if value == "" {
			return nil, nil
		}
		return []string{"--" + name + "=" + value}, nil
	}
}

// where returns flags for one value of two.
func where(is string, flags ...string) func(string) ([]string, error) {
	return func(value string) ([]string, error) {
		if value == is {
			return flags, nil
		}
		return nil, nil
	}
}

// one returns a flag by the value, of which only these are allowed.
func one(flags map[string][]string) func(string) ([]string, error) {
	return func(value string) ([]string, error) {
		if out, ok := flags[value]; ok {
			return out, nil
		}
		var all []string
		for v := range flags {
			all = append(all, v)
		}
		slices.Sort(all)
		return nil, errors.New("want " + strings.Join(all, " or "))
	}
}

// each returns a flag for each item of a list.
func each(name string) func(string) ([]string, error) {
	return func(value string) (out []string, err error) {
		for item := range strings.SplitSeq(value, ",") {
			if item = strings.TrimSpace(item); item != "" {
				out = append(out, "--"+name+"="+item)
			}
		}
		return out, nil
	}
}

// What Options say of those that mean nothing here.
const (
	ofDCGM  = "Accepted without effect: there is no DCGM here; the exporter reads NVML itself."
	ofDumps = "Accepted without effect: `gpu-exporter record` writes the responses of the driver to a file."
)

// Options are those of dcgm-exporter (pkg/cmd/app.go at d5e5f51, and of later releases up to 4.9), in its order.
func Options() []Option {
	return []Option{
		{"collectors", "f", "DCGM_EXPORTER_COLLECTORS", imageCollectors, text, "Fields, types and HELP texts of `/metrics`. Read again " +
			"when it changes, and at SIGHUP. The two files of dcgm-exporter's image are built in. Fields that are not offered are " +
			"in the log and on the page `/`.", false, nil},
		{"config-file", "", "DCGM_EXPORTER_CONFIG_FILE", "", text, "The file or the fields under its `metrics` are used as `collectors`, " +
			"unless that is set; collection intervals are not.", false, nil},
		{"address", "a", "DCGM_EXPORTER_LISTEN", ":9400", text, "Listen address.", false, flag("web.listen-address")},
		{"web-read-timeout", "", "DCGM_EXPORTER_WEB_READ_TIMEOUT", "", text, "Accepted without effect: 10 s.", true, nil},
		{"web-write-timeout", "", "DCGM_EXPORTER_WEB_WRITE_TIMEOUT", "", text, "Accepted without effect: 10 s.", true, nil},
		{"max-concurrent-scrapes", "", "DCGM_EXPORTER_MAX_CONCURRENT_SCRAPES", "", number,
			"Accepted without effect: each page is written " +
				"once, for all scrapes.", true, nil},
		{"enable-exporter-metrics", "", "DCGM_EXPORTER_ENABLE_EXPORTER_METRICS", "false", onOff,
			"Accepted without effect: metrics of the " +
				"exporter itself are at `/metrics/gpu`.", true, nil},
		{"collect-interval", "c", "DCGM_EXPORTER_INTERVAL", "30000", number, "Accepted without effect: readings are 2 s, 10 s or a " +
			"minute old (`GPU_EXPORTER_POLL_FAST`, `_MEDIUM`, `_SLOW`).", true, nil},
		{"watch-max-keep-age", "", "DCGM_EXPORTER_WATCH_MAX_KEEP_AGE", "", text, ofDCGM, true, nil},
		{"watch-max-keep-samples", "", "DCGM_EXPORTER_WATCH_MAX_KEEP_SAMPLES", "", number, ofDCGM, true, nil},
		{"kubernetes", "k", "DCGM_EXPORTER_KUBERNETES", "false", onOff, "Query the kubelet for the GPUs of pods.", false,
			where("false", "--no-kubelet")},
		{"use-old-namespace", "o", "DCGM_EXPORTER_USE_OLD_NAMESPACE", "false", onOff, "Labels `uuid`, `pod_name`, `pod_namespace` and " +
			"`container_name`.", false, set("use-old-namespace")},
		{"cpu-devices", "p", "DCGM_EXPORTER_CPU_DEVICES_STR", "f", text, "Accepted without effect: CPUs are not read.", true, nil},
		{"configmap-data", "m", "DCGM_EXPORTER_CONFIGMAP_DATA", "none", text, "Key `metrics` of that ConfigMap, read through the API " +
			"server, instead of the file.", false, func(value string) ([]string, error) {
			if value == "none" || value == "" {
				return nil, nil
			}
			return []string{"--compat.set=configmap-data=" + value}, nil
		}},
		{"remote-hostengine-info", "r", "DCGM_REMOTE_HOSTENGINE_INFO", "localhost:5555", text, ofDCGM, true, nil},
		{"kubernetes-enable-pod-labels", "", "DCGM_EXPORTER_KUBERNETES_ENABLE_POD_LABELS", "false", onOff,
			"Labels of pods, watched through " +
				"the API server (`--kubernetes.pods`).", false, set("kubernetes-enable-pod-labels")},
		{"kubernetes-enable-pod-uid", "", "DCGM_EXPORTER_KUBERNETES_ENABLE_POD_UID", "false", onOff, "The label `pod_uid`, from the same " +
			"watch.", false, set("kubernetes-enable-pod-uid")},
		{"kubernetes-gpu-id-type", "", "DCGM_EXPORTER_KUBERNETES_GPU_ID_TYPE", "uid", text, "Checked; device IDs of both types are " +
			"recognized.", false, one(map[string][]string{"uid": nil, "device-name": nil})},
		{"kubernetes-pod-label-allowlist-regex", "", "DCGM_EXPORTER_KUBERNETES_POD_LABEL_ALLOWLIST_REGEX", "", list,
			"Which labels of pods.",
			false, set("kubernetes-pod-label-allowlist-regex")},
		{"devices", "d", "DCGM_EXPORTER_DEVICES_STR", "f", text, "Which GPUs and MIG instances `/metrics` has. Numbers that do not exist " +
			"select nothing, and are no error.", false, set("devices")},
		{"no-hostname", "n", "DCGM_EXPORTER_NO_HOSTNAME", "false", onOff, "No label `Hostname` or `hostname`.", false, set("no-hostname")},
		{"health-require-gpus", "", "DCGM_EXPORTER_HEALTH_REQUIRE_GPUS", "false", onOff,
			"Accepted without effect: a restart brings no GPU " +
				"back; `/-/ready` and `gpu_exporter_source_up` say what is missing.", true, nil},
		{"switch-devices", "s", "DCGM_EXPORTER_OTHER_DEVICES_STR", "f", text,
			"Accepted without effect: NVSwitches are not read.", true, nil},
		{"fake-gpus", "", "DCGM_EXPORTER_USE_FAKE_GPUS", "false", onOff, ofDCGM, true, nil},
		{"web-config-file", "", "DCGM_EXPORTER_WEB_CONFIG_FILE", "", text, "TLS and users: the same file.", false, flag("web.config.file")},
		{"xid-count-window-size", "x", "DCGM_EXPORTER_XID_COUNT_WINDOW_SIZE", "300000", number,
			"Milliseconds of `DCGM_EXP_XID_ERRORS_COUNT`, " +
				"an hour at most.", false, set("xid-count-window-size")},
		{"replace-blanks-in-model-name", "rbmn", "DCGM_EXPORTER_REPLACE_BLANKS_IN_MODEL_NAME", "false", onOff, "Dashes in `modelName`.",
			false, set("replace-blanks-in-model-name")},
		{"debug", "", "DCGM_EXPORTER_DEBUG", "false", onOff, "Log level.", false, where("true", "--log.level=debug")},
		{"clock-events-count-window-size", "", "DCGM_EXPORTER_CLOCK_EVENTS_COUNT_WINDOW_SIZE", "300000", number, "Milliseconds of " +
			"`DCGM_EXP_CLOCK_EVENTS_COUNT`, an hour at most.", false, set("clock-events-count-window-size")},
		{"enable-dcgm-log", "", "DCGM_EXPORTER_ENABLE_DCGM_LOG", "false", onOff, ofDCGM, true, nil},
		{"dcgm-log-level", "", "DCGM_EXPORTER_DCGM_LOG_LEVEL", "NONE", text, ofDCGM, true, nil},
		{"log-format", "", "DCGM_EXPORTER_LOG_FORMAT", "text", text, "Format of the log.", false,
			one(map[string][]string{"text": {"--log.format=logfmt"}, "json": {"--log.format=json"}})},
		{"pod-resources-kubelet-socket", "", "DCGM_POD_RESOURCES_KUBELET_SOCKET", "/var/lib/kubelet/pod-resources/kubelet.sock", text,
			"The kubelet's socket.", false, flag("kubelet.socket")},
		{"hpc-job-mapping-dir", "", "DCGM_HPC_JOB_MAPPING_DIR", "", text, "Jobs of each GPU: the same files.", false,
			flag("slurm.job-mapping-dir")},
		{"container-labels", "", "DCGM_EXPORTER_CONTAINER_LABELS", "false", onOff,
			"Accepted without effect: `GPU_EXPORTER_CONTAINERS_SOCKET` names " +
				"containers outside pods.", true, nil},
		{"container-runtime-socket", "", "DCGM_CONTAINER_RUNTIME_SOCKET", "", text, "As `container-labels`.", true, nil},
		{"nvidia-resource-names", "", "NVIDIA_RESOURCE_NAMES", "", list, "Further resources of the device plugin.", false,
			each("kubelet.gpu-id-resource")},
		{"kubernetes-virtual-gpus", "", "KUBERNETES_VIRTUAL_GPUS", "false", onOff, "A series for each container of a shared GPU.", false,
			where("true", "--compat.set=kubernetes-virtual-gpus=true")},
		{"dump-enabled", "", "DCGM_EXPORTER_DUMP_ENABLED", "false", onOff, ofDumps, true, nil},
		{"dump-directory", "", "DCGM_EXPORTER_DUMP_DIRECTORY", "", text, ofDumps, true, nil},
		{"dump-retention", "", "DCGM_EXPORTER_DUMP_RETENTION", "24", number, ofDumps, true, nil},
		{"dump-compression", "", "DCGM_EXPORTER_DUMP_COMPRESSION", "true", onOff, ofDumps, true, nil},
		{"kubernetes-enable-dra", "", "KUBERNETES_ENABLE_DRA", "false", onOff, "Devices of claims, with the ResourceSlices of the API " +
			"server.", false, nil},
		{"disable-startup-validate", "", "DISABLE_STARTUP_VALIDATE", "false", onOff,
			"Accepted without effect: a missing driver never ends " +
				"the exporter.", true, nil},
		{"enable-gpu-bind-unbind-watch", "", "DCGM_EXPORTER_ENABLE_GPU_BIND_UNBIND_WATCH", "false", onOff,
			"Accepted without effect: GPUs " +
				"that come and go are always noticed.", true, nil},
		{"gpu-bind-unbind-poll-interval", "", "DCGM_EXPORTER_GPU_BIND_UNBIND_POLL_INTERVAL", "1s", text, "As " +
			"`enable-gpu-bind-unbind-watch`.", true, nil},
		{"enable-pprof", "", "DCGM_EXPORTER_ENABLE_PPROF", "false", onOff, "Accepted without effect: profiles are not served.", true, nil},
		{"web-systemd-socket", "", "DCGM_EXPORTER_SYSTEMD_SOCKET", "false", onOff, "Listen on the sockets that systemd passes.", false,
			where("true", "--web.systemd-socket")},
	}
}

// imageCollectors is the collector file that dcgm-exporter reads by default.
const imageCollectors = "/etc/dcgm-exporter/default-counters.csv"

// check returns a value as it is meant, with booleans spelled in one way.
func (o *Option) check(value string) (string, error) {
	switch o.Kind {
	case onOff:
		on, err := strconv.ParseBool(value)
		if err != nil {
			return "", fmt.Errorf("%q is not true or false", value)
		}
		return strconv.FormatBool(on), nil
	case number:
		if _, err := strconv.Atoi(value); err != nil {
			return "", fmt.Errorf("%q is no whole number", value)
		}
	}
	return value, nil
}
