// Package deploy_test checks what is installed: the chart renders, its objects decode into the types of their projects, it takes exactly
// the permissions that its values name, contradictions are refused, and the overlays and compose files match it. helm and kustomize are
// built from tools/helm. test/cluster installs the same into a real control plane.
//
// Go does not see that these programs read files outside this module: run the tests with -count=1.
package deploy_test

import (
	"bytes"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/test/servers"
)

var update = flag.Bool("update", false, "write the golden files instead of comparing them")

// root returns the root directory of the repository.
var root = servers.Root

func chart(t *testing.T) string { return filepath.Join(root(t), "deploy", "helm", "gpu-exporter") }

// helm runs Helm with the one value that every user has to name: no image is published.
func helm(t *testing.T, command string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.Command(servers.Build(t, servers.Helm), append([]string{command, "--values=-"}, args...)...)
	cmd.Stdin = strings.NewReader("image: {repository: registry.example.com/gpu-exporter}")
	home := t.TempDir()
	cmd.Env = append(os.Environ(), "HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home,
		"KUBECONFIG="+filepath.Join(home, "none"))
	var out, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaint
	err := cmd.Run()
	if err != nil {
		return complaint.String(), err
	}
	return out.String(), nil
}

// operator are the kinds of a cluster with the Prometheus operator.
var operator = []string{"-a", "monitoring.coreos.com/v1/PodMonitor", "-a", "monitoring.coreos.com/v1/PrometheusRule"}

// render is helm template of the release gpu-exporter in the namespace monitoring.
func render(t *testing.T, args ...string) string {
	t.Helper()
	out, err := helm(t, "template", append([]string{"gpu-exporter", chart(t), "-n", "monitoring"}, args...)...)
	if err != nil {
		t.Fatalf("helm template %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// cases are the chart's values files by name.
func cases(t *testing.T) map[string]string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(chart(t), "ci", "*-values.yaml"))
	if err != nil || len(paths) < 6 {
		t.Fatalf("the chart has %d values files for tests: %v", len(paths), err)
	}
	out := map[string]string{}
	for _, p := range paths {
		out[strings.TrimSuffix(filepath.Base(p), "-values.yaml")] = p
	}
	return out
}

// compare compares a file with the expected text, or writes it.
func compare(t *testing.T, path, want string) {
	t.Helper()
	if *update {
		must.OK(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must.OK(t, os.WriteFile(path, []byte(want), 0o644))
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v; make generate writes it", err)
	}
	if string(got) != want {
		t.Errorf("%s is not what is rendered: run make generate and review the diff", path)
	}
}

func TestLint(t *testing.T) {
	t.Parallel()
	for name, values := range cases(t) {
		if out, err := helm(t, "lint", "--strict", chart(t), "-f", values); err != nil {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}

// text of dashboards and rules has tests of its own and is left out of goldens.
var text = regexp.MustCompile(`(?m)^((  )(?:[a-z.-]+\.(?:json|yaml)|json): \|-)\n(?:    .*\n)+`)

// Each values file renders what was reviewed.
func TestGolden(t *testing.T) {
	t.Parallel()
	for name, values := range cases(t) {
		t.Run(name, func(t *testing.T) {
			out := text.ReplaceAllString(render(t, append([]string{"-f", values}, operator...)...), "$1\n    (its text)\n")
			if i := strings.Index(out, "kind: PrometheusRule\n"); i >= 0 {
				head, tail, _ := strings.Cut(out[i:], "\nspec:\n")
				_, next, more := strings.Cut(tail, "\n---\n")
				out = out[:i] + head + "\nspec: (its text)\n"
				if more {
					out += "\n---\n" + next
				}
			}
			compare(t, filepath.Join("testdata", "rendered", name+".yaml"), out)
		})
	}
}
