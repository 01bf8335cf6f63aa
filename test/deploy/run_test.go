package deploy_test

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/gpu-exporter/gpu-exporter/test/servers"
)

// built builds the exporter and the stand-in of its node.
func built(t *testing.T) (exporter, standin string) {
	t.Helper()
	return servers.Build(t, servers.Exporter), servers.Build(t, servers.Standin)
}

// onNode is a command that runs a program on a simulated node with eight GPUs, in the environment of a container.
func onNode(t *testing.T, standin string, env []corev1.EnvVar, program ...string) *exec.Cmd {
	t.Helper()
	args := append([]string{"--scenario=testdata/scenarios/demo.scenario", "--pods=testdata/kubelet/demo.pods", "--quiet", "--"},
		program...)
	cmd := exec.Command(standin, args...)
	cmd.Dir = root(t)
	cmd.Env = append(os.Environ(), "NODE_NAME=gpu-node-1")
	for _, e := range env {
		if e.ValueFrom == nil {
			cmd.Env = append(cmd.Env, e.Name+"="+e.Value)
		}
	}
	return cmd
}

// served runs a command and returns its metrics once they contain a text.
func served(t *testing.T, cmd *exec.Cmd, address, wanted string) (page string) {
	t.Helper()
	servers.Run(t, cmd)
	servers.Within(t, 30*time.Second, "the metrics contain "+wanted, func() (err error) {
		if page, err = servers.Fetch("http://" + address + "/metrics"); err == nil && !strings.Contains(page, wanted) {
			err = errors.New("they do not")
		}
		return err
	})
	return page
}

// features are the exporter's features and the chart values that enable them.
var features = map[string]string{
	"processes": "processes", "process_names": "processNames", "device_checkpoint": "deviceCheckpoint", "pod_metadata": "podMetadata",
	"container_visible": "containerVisible",
}

// chartValue matches the chart value that doctor recommends.
var chartValue = regexp.MustCompile(`features\.[a-zA-Z]+=[^);]+`)

// The exporter accepts the flags of the chart, and the chart's values enable the features that doctor lists as disabled.
func TestFlagsAndFeatures(t *testing.T) {
	exporter, standin := built(t)
	for name, values := range cases(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := install(t, "-f", values)
			out, err := onNode(t, standin, in.container.Env,
				append([]string{exporter, "doctor", "--output=json"}, in.container.Args...)...).Output()
			var exit *exec.ExitError
			if err != nil && !errors.As(err, &exit) {
				t.Fatal(err)
			}
			var d struct {
				Node     string
				Findings []struct{ Check, Severity, Finding, Fix string }
			}
			if err := json.Unmarshal(out, &d); err != nil {
				t.Fatalf("%v: %s%s", err, out, exit.Stderr)
			}
			if d.Node != "gpu-node-1" {
				t.Errorf("the node name is %s", d.Node)
			}
			states := map[string]string{}
			var inChart []string
			for _, f := range d.Findings {
				inChart = append(inChart, chartValue.FindAllString(f.Fix, -1)...)
				if feature, ok := strings.CutPrefix(f.Check, "feature "); ok {
					states[feature] = f.Severity
				}
			}
			value := func(name string) bool {
				for _, e := range in.container.Env {
					if e.Name == name {
						return true
					}
				}
				return false
			}
			for feature, want := range map[string]bool{"device_checkpoint": value("GPU_EXPORTER_KUBELET_CHECKPOINT"),
				"pod_metadata": value("GPU_EXPORTER_KUBERNETES_PODS")} {
				if got := states[feature]; (got == "ok") != want && !(got == "" && !want) {
					t.Errorf("feature %s has severity %q", feature, got)
				}
			}
			for _, value := range inChart {
				if _, err := helm(t, "template", chart(t), "-f", values, "--set",
					"dashboards.kind=none,features.ownership=true,features.processes=true,"+value); err != nil {
					t.Errorf("doctor recommends %s, which the chart refuses", value)
				}
			}
			for feature := range states {
				if features[feature] == "" && !onHosts[feature] {
					t.Errorf("no chart value enables the feature %s", feature)
				}
			}
		})
	}
}

// onHosts are features of hosts without Kubernetes.
var onHosts = map[string]bool{"container_names": true, "slurm_job_numbers": true}

// The second endpoint of the monitor serves the names of the release.
func TestDCGMNamesAreServed(t *testing.T) {
	exporter, standin := built(t)
	in := install(t, "--set", "monitoring.kind=PodMonitor,compat.release=dcgm-4.9")
	var m monitor
	unmarshal(t, in.find(t, "PodMonitor"), &m)
	address := servers.Address(t)
	served(t, onNode(t, standin, in.container.Env, exporter, "--web.listen-address="+address), address, "gpu_container_allocation_ratio{")
	for _, e := range m.endpoints() {
		text, err := servers.Fetch("http://" + address + e.Path)
		if err != nil {
			t.Fatal(err)
		}
		if want := e.Path != "/metrics"; strings.Contains(text, "\nDCGM_FI_DEV_BOARD_POWER_WATTS{") != want {
			t.Errorf("%s has dcgm-exporter's names: %v", e.Path, !want)
		}
	}
}

// The server accepts the web configuration that the chart writes.
func TestBasicAuth(t *testing.T) {
	exporter, standin := built(t)
	// The hash of "scrape", with the minimum cost of bcrypt.
	const hash = "$2y$04$W.NwSwoVB3TfB7e0yR6E4uC9nUW9Uq7Nn1LxJ3nS5n6cYb0E1b9Xq"
	in := install(t, "--set", "web.basicAuth.users.prometheus="+strings.ReplaceAll(hash, ",", "\\,"))
	var s struct{ StringData map[string]string }
	unmarshal(t, in.find(t, "Secret"), &s)
	path := filepath.Join(t.TempDir(), "web-config.yml")
	if err := os.WriteFile(path, []byte(s.StringData["web-config.yml"]), 0o600); err != nil {
		t.Fatal(err)
	}
	address := servers.Address(t)
	cmd := onNode(t, standin, in.container.Env, exporter, "--web.listen-address="+address, "--web.config.file="+path)
	servers.Run(t, cmd)
	servers.Within(t, 20*time.Second, "a request without a password is refused", func() error {
		_, err := servers.Fetch("http://" + address + "/metrics")
		if err == nil {
			t.Fatal("it is served")
		}
		if strings.Contains(err.Error(), "401") {
			err = nil
		}
		return err
	})
}
