package dropin

import (
	"slices"
	"strings"
	"testing"
)

// Beside the page and its collector file, the flags that a start as dcgm-exporter has without any option.
const always = "--compat=dcgm-4.8 --compat.set=main=true --compat.set=collectors=/etc/dcgm-exporter/default-counters.csv " +
	"--web.listen-address=:9400 "

func TestArgs(t *testing.T) {
	operator := []string{"DCGM_EXPORTER_LISTEN=:9400", "DCGM_EXPORTER_KUBERNETES=true",
		"DCGM_EXPORTER_COLLECTORS=/etc/dcgm-exporter/dcp-metrics-included.csv", "NODE_NAME=a"}
	for name, tt := range map[string]struct {
		argv    string
		environ []string
		want    []string // flags that are among the result
		lacks   string   // a part of one that is not
		as      bool     // the arguments stay as they are
	}{
		"our own":           {"/usr/local/bin/gpu-exporter --poll.fast=1s", nil, nil, "", true},
		"a command":         {"gpu-exporter doctor --url=x", operator, nil, "", true},
		"without arguments": {"gpu-exporter", []string{"NODE_NAME=a", "DISABLE_STARTUP_VALIDATE=1"}, nil, "", true},
		"our own, and a variable of DCGM": {"gpu-exporter --poll.fast=1s", []string{"DCGM_HOME=/x", "NVIDIA_RESOURCE_NAMES=x/y"}, nil, "",
			true},
		"the operator": {"gpu-exporter", operator, []string{"--web.listen-address=:9400",
			"--compat.set=collectors=/etc/dcgm-exporter/dcp-metrics-included.csv", "--compat.set=main=true"}, "--no-kubelet", false},
		"a variable of DCGM": {"gpu-exporter", []string{"DCGM_REMOTE_HOSTENGINE_INFO=x:5555"}, strings.Fields(always), "", false},
		"a variable without prefix": {"gpu-exporter", []string{"KUBERNETES_VIRTUAL_GPUS=true"},
			[]string{"--compat.set=kubernetes-virtual-gpus=true"}, "", false},
		"its name": {"/usr/bin/dcgm-exporter", nil, append(strings.Fields(always), "--no-kubelet"), "", false},
		"its chart": {"gpu-exporter -f /etc/dcgm-exporter/default-counters.csv", []string{"DCGM_EXPORTER_KUBERNETES=true",
			"DCGM_EXPORTER_KUBERNETES_ENABLE_POD_LABELS=true", "DCGM_EXPORTER_KUBERNETES_ENABLE_POD_UID=1"},
			[]string{"--kubernetes.pods", "--compat.set=kubernetes-enable-pod-uid=true",
				"--compat.set=collectors=/etc/dcgm-exporter/default-counters.csv"}, "", false},
		"flags before variables": {"gpu-exporter --address :1234 -k=false -x 60000", operator, []string{"--web.listen-address=:1234",
			"--no-kubelet", "--compat.set=xid-count-window-size=60000"}, ":9400", false},
		"a configuration": {"dcgm-exporter --config-file=/c.yaml", nil, []string{"--compat.set=config-file=/c.yaml"}, "collectors", false},
		"lists": {"dcgm-exporter --nvidia-resource-names nvidia.com/a100 --nvidia-resource-names=x/y,x/z", nil, []string{
			"--kubelet.gpu-id-resource=nvidia.com/a100", "--kubelet.gpu-id-resource=x/y", "--kubelet.gpu-id-resource=x/z"}, "", false},
		"systemd": {"dcgm-exporter --web-systemd-socket --log-format=json --debug", nil, []string{"--web.systemd-socket",
			"--log.format=json",
			"--log.level=debug"}, "listen-address", false},
		"claims": {"dcgm-exporter -k --kubernetes-enable-dra", nil, []string{"--kubernetes.resource-slices"},
			"--no-kubelet", false},
		"what is ignored": {"dcgm-exporter -r host:5555", nil, []string{"--compat.note=-r: " + ofDCGM}, "", false},
		"an empty variable": {"gpu-exporter", append(operator, "DCGM_EXPORTER_INTERVAL="),
			[]string{"--compat.set=main=true"}, "INTERVAL", false},
		// Values of Helm charts, a container and a manifest, as others publish them: DataDog/integrations-core, dcgm/README.md at
		// 8bf82ca6, and GoogleCloudPlatform/prometheus-engine, examples/nvidia-dcgm/exporter.yaml at 03303ccc.
		"Datadog, dcgm-exporter's chart": {"gpu-exporter -m default:datadog-dcgm-exporter-configmap", []string{
			"DCGM_EXPORTER_KUBERNETES=true", "DCGM_EXPORTER_LISTEN=:9400"},
			[]string{"--compat.set=configmap-data=default:datadog-dcgm-exporter-configmap", "--web.listen-address=:9400"}, "", false},
		"Datadog, the operator's chart": {"gpu-exporter", append(slices.Clone(operator[:2]),
			"DCGM_EXPORTER_COLLECTORS=/etc/dcgm-exporter/dcgm-metrics.csv"),
			[]string{"--compat.set=collectors=/etc/dcgm-exporter/dcgm-metrics.csv"}, "dcp-metrics", false},
		"Datadog, a container": {"gpu-exporter", []string{"DCGM_EXPORTER_INTERVAL=3"}, strings.Fields(always), "", false},
		"Google's managed Prometheus": {"dcgm-exporter --remote-hostengine-info 10.0.0.1 --collectors /etc/dcgm-exporter/counters.csv",
			[]string{"DCGM_EXPORTER_KUBERNETES_GPU_ID_TYPE=device-name", "DCGM_EXPORTER_KUBERNETES=true", "DCGM_EXPORTER_LISTEN=:9400"},
			[]string{"--compat.set=collectors=/etc/dcgm-exporter/counters.csv", "--compat.note=--remote-hostengine-info: " + ofDCGM},
			"--no-kubelet", false},
		"help": {"dcgm-exporter --help", nil, []string{"--help"}, "compat", false},
	} {
		argv := strings.Fields(tt.argv)
		got, err := Args(argv, tt.environ)
		all := strings.Join(got, " ")
		if err != nil || tt.as && !slices.Equal(got, argv[1:]) || tt.lacks != "" && strings.Contains(all, tt.lacks) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
		for _, w := range tt.want {
			if !slices.Contains(got, w) {
				t.Errorf("%s: %q lacks %s", name, got, w)
			}
		}
	}
}

func TestRefusals(t *testing.T) {
	for argv, want := range map[string]string{
		"gpu-exporter --kubernetes --poll.fast=1s": "--kubernetes is a flag of dcgm-exporter, and --poll.fast=1s is not",
		"dcgm-exporter --poll.fast=1s":             "unknown flag --poll.fast=1s",
		"dcgm-exporter --nonsense":                 "unknown flag --nonsense",
		"dcgm-exporter now":                        `unexpected argument "now"`,
		"dcgm-exporter -c soon":                    `-c: "soon" is no whole number`,
		"dcgm-exporter -k=perhaps":                 `-k=perhaps: "perhaps" is not true or false`,
		"dcgm-exporter -f":                         "-f needs a value",
		"dcgm-exporter --log-format xml":           "--log-format: want json or text",
		"dcgm-exporter --kubernetes-gpu-id-type=x": "want device-name or uid",
	} {
		if got, err := Args(strings.Fields(argv), nil); err == nil || !strings.Contains(err.Error(), want) ||
			strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %q, %v; want %s", argv, got, err, want)
		}
	}
	_, err := Args([]string{"gpu-exporter"}, []string{"DCGM_EXPORTER_KUBERNETES=yes"})
	if err == nil || !strings.Contains(err.Error(), `the environment variable DCGM_EXPORTER_KUBERNETES: "yes"`) {
		t.Error(err)
	}
}

// Each option is recognized by its name, its alias and its variable, and either changes the flags or is said to change nothing.
func TestEveryOption(t *testing.T) {
	seen := map[string]bool{}
	for _, o := range Options() {
		for _, name := range []string{o.Name, o.Alias, o.Variable} {
			if seen[name] && name != "" {
				t.Errorf("%s stands twice", name)
			}
			seen[name] = true
		}
		value := map[kind]string{text: "/x", number: "7", onOff: "true", list: "a.b/c"}[o.Kind]
		switch o.Name {
		case "kubernetes", "dump-compression":
			value = "false"
		case "devices", "cpu-devices", "switch-devices":
			value = "g"
		case "log-format":
			value = "json"
		case "kubernetes-gpu-id-type":
			value = "device-name"
		}
		base := []string{"dcgm-exporter", "-k=true"}
		before, err := Args(base, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, by := range []string{"--" + o.Name, "-" + o.Alias} {
			if by == "-" {
				continue
			}
			after, err := Args(append(base, by+"="+value), nil)
			changed := len(after) != len(before) || !slices.Equal(before, after)
			noted := slices.ContainsFunc(after, func(a string) bool { return strings.HasPrefix(a, "--compat.note="+by) })
			if err != nil || noted != o.Ignored || !changed && o.Name != "kubernetes-gpu-id-type" {
				t.Errorf("%s=%s: %q, %v", by, value, after, err)
			}
		}
		after, err := Args(base[:1], []string{o.Variable + "=" + value})
		if without, _ := Args(base[:1], nil); err != nil || slices.Equal(after, without) && !slices.Contains([]string{"kubernetes",
			"kubernetes-gpu-id-type", "kubernetes-enable-dra"}, o.Name) {
			t.Errorf("%s=%s: %q, %v", o.Variable, value, after, err)
		}
	}
}
