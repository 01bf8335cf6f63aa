package deploy_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// admitTool builds the judge of tools/kubernetes once.
var admitTool = sync.OnceValues(func() (string, error) {
	path, err := filepath.Abs(filepath.Join("..", "..", "bin", "admit"))
	if err != nil {
		return "", err
	}
	cmd := exec.Command("go", "build", "-o", path, ".")
	cmd.Dir = filepath.Join("..", "..", "tools", "kubernetes")
	cmd.Stderr = os.Stderr
	return path, cmd.Run()
})

// admit is what an API server says to manifests.
func admit(t *testing.T, manifests string) (string, error) {
	t.Helper()
	program, err := admitTool()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "manifests.yaml")
	if err := os.WriteFile(path, []byte(manifests), 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(program, "--skip=PodMonitor,ServiceMonitor,PrometheusRule,"+unchecked, path).CombinedOutput()
	return string(out), err
}

// An API server takes every object of every values file, and of every overlay.
func TestAdmitted(t *testing.T) {
	for name, values := range cases(t) {
		if out, err := admit(t, render(t, append([]string{"-f", values}, operator...)...)); err != nil {
			t.Errorf("%s: %s", name, out)
		}
	}
	for _, v := range variants {
		if v.placed {
			continue
		}
		if out, err := admit(t, kustomize(t, filepath.Join(root(t), "deploy", "kustomize", filepath.FromSlash(v.path)))); err != nil {
			t.Errorf("%s: %s", v.path, out)
		}
	}
}

// The judge refuses what no schema finds.
func TestAdmitRefuses(t *testing.T) {
	rendered := render(t)
	for _, c := range []struct{ old, new, want string }{
		{"privileged: false", "privileged: true", "allowPrivilegeEscalation` to false and `privileged` to true"},
		{"        app.kubernetes.io/name: gpu-exporter\n        app.kubernetes.io/instance: gpu-exporter\n        app.kubernetes.io/version", "        app.kubernetes.io/version", "does not match template `labels`"},
		{"            path: /var/lib/kubelet/pod-resources", "            path: /var/lib/../lib/kubelet/pod-resources", "must not contain '..'"},
		{"- name: metrics", "- name: a-name-of-a-port-that-is-too-long", "must be no more than 15 characters"},
		{"maxUnavailable: 10%", "maxUnavailable: 0", "cannot be 0 when maxSurge is 0"},
		{"      enableServiceLinks", "      enableServiceLink", "unknown field"},
	} {
		broken := strings.Replace(rendered, c.old, c.new, 1)
		if broken == rendered {
			t.Errorf("%s: nothing was broken", c.old)
			continue
		}
		if out, err := admit(t, broken); err == nil || !strings.Contains(out, c.want) {
			t.Errorf("%s: %s", c.new, out)
		}
	}
}
