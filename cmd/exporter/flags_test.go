package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/must"
)

// The environment has more variables of this prefix than those of the flags: what images and manifests set, and what the
// kubelet sets in every pod of a namespace with a Service gpu-exporter.
func TestVariablesThatAreNotFlags(t *testing.T) {
	for name, value := range map[string]string{
		"VERSION": "0.1.0", "HELP": "true", "HELP_LONG": "true", "HELP_MAN": "true", "COMPLETION_BASH": "true",
		"COMPLETION_SCRIPT_BASH": "true", "COMPLETION_SCRIPT_ZSH": "true",
		"IMAGE": "registry.example.com/gpu-exporter:0.1.0", "NO_SUCH_FLAG": "1", "RESTARTED": "2026-05-01T12:00:00Z",
		"SERVICE_HOST": "10.0.0.1", "SERVICE_PORT": "10835", "SERVICE_PORT_METRICS": "10835", "PORT": "tcp://10.0.0.1:10835",
		"PORT_10835_TCP": "tcp://10.0.0.1:10835", "PORT_10835_TCP_PROTO": "tcp", "PORT_10835_TCP_PORT": "10835",
		"PORT_10835_TCP_ADDR": "10.0.0.1",
	} {
		t.Setenv("GPU_EXPORTER_"+name, value)
	}
	t.Setenv("GPU_EXPORTER_POLL_MEDIUM", "20s")
	c, err := parse(nil, io.Discard, io.Discard)
	must.OK(t, err)
	if c.Medium != 20*time.Second || c.Slow != time.Minute {
		t.Errorf("poll intervals %v and %v", c.Medium, c.Slow)
	}
}

// Paths of the host are those below its mount point where they are mounted there, the former flags take precedence and are named
// in a warning.
func TestPathsOfTheHost(t *testing.T) {
	root := t.TempDir()
	for _, dir := range []string{"sys/fs/cgroup", "proc/self", "var/log/pods"} {
		must.OK(t, os.MkdirAll(filepath.Join(root, dir), 0o755))
	}
	var log bytes.Buffer
	c, err := parse([]string{"--path.host=" + root}, io.Discard, &log)
	must.OK(t, err)
	for got, want := range map[string]string{c.sysfs: "/sys", c.procfs: root + "/proc", c.podLogs: root + "/var/log/pods",
		c.containerLogs: "/var/log/containers", c.dev: "/dev"} {
		if got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	if log.Len() > 0 {
		t.Errorf("logged: %s", &log)
	}
	t.Setenv("GPU_EXPORTER_PATH_DEV", "/host-dev")
	c, err = parse([]string{"--path.host=" + root, "--path.procfs", "/elsewhere", "--path.cgroup="}, io.Discard, &log)
	must.OK(t, err)
	if c.procfs != "/elsewhere" || c.dev != "/host-dev" || c.sysfs != "/sys" {
		t.Errorf("/proc is %s, /dev %s, /sys %s", c.procfs, c.dev, c.sysfs)
	}
	for _, flag := range []string{"--path.procfs", "--path.dev", "--path.cgroup"} {
		if !strings.Contains(log.String(), "flag="+flag+" instead=--path.host") {
			t.Errorf("no warning of %s: %s", flag, &log)
		}
	}
}

// The API server is the kubeconfig's.
func TestKubeconfig(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config")
	must.OK(t, os.WriteFile(path, []byte(`current-context: b
contexts: [{name: a, context: {cluster: x, user: x}}, {name: b, context: {cluster: c, user: u}}]
clusters: [{name: x, cluster: {server: "https://wrong"}}, {name: c, cluster: {server: "https://10.0.0.1", certificate-authority: ca.crt}}]
users: [{name: u, user: {tokenFile: /run/token}}]
`), 0o600))
	flags := []string{"--kubernetes.kubeconfig=" + path, "--kubernetes.pods", "--node-name=n"}
	c, err := parse(flags, io.Discard, io.Discard)
	must.OK(t, err)
	if a := c.API; a.Server != "https://10.0.0.1" || a.CAFile != filepath.Join(filepath.Dir(path), "ca.crt") ||
		a.TokenFile != "/run/token" || a.Node != "n" {
		t.Errorf("%+v", a)
	}
	c, err = parse(append(flags, "--kubernetes.token-file=/other"), io.Discard, io.Discard)
	if must.OK(t, err); c.API.TokenFile != "/other" {
		t.Errorf("the former flag does not take precedence: %s", c.API.TokenFile)
	}
	for _, text := range []string{"current-context: none", "{", ""} {
		must.OK(t, os.WriteFile(path, []byte(text), 0o600))
		if _, err := parse(flags, io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%q: %v", text, err)
		}
	}
	if _, err := parse(flags[:1], io.Discard, io.Discard); err == nil {
		t.Error("it is accepted without a use")
	}
}

// maxFlags bounds the flags that the help lists. --collector.NAME is one for each group of metrics, and does not count.
const maxFlags = 40

func TestFewFlags(t *testing.T) {
	var help bytes.Buffer
	_, _ = parse([]string{"--help"}, &help, io.Discard)
	var names []string
	for _, m := range regexp.MustCompile(`(?m)^ {2,6}(?:-h, )?--(?:\[no-\])?([a-z][a-z0-9.-]*)`).FindAllStringSubmatch(help.String(), -1) {
		if name := m[1]; !strings.HasPrefix(name, "collector.") && !strings.HasPrefix(name, "help") && name != "version" {
			names = append(names, name)
		}
	}
	if len(names) > maxFlags || len(names) < 30 {
		t.Errorf("%d flags, at most %d: %v", len(names), maxFlags, names)
	}
}
