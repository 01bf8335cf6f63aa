package main

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/gpu-exporter/gpu-exporter/internal/must"
)

// Without Kubernetes a container is called by its engine's name, the real binary asks for the list alone, and an engine
// that goes away costs no name that was told.
func TestContainersAreCalledByTheirNames(t *testing.T) {
	t.Parallel()
	named, unnamed := strings.Repeat("a1", 32), strings.Repeat("b2", 32)
	m := node(t, twoGPUs+"process gpu=0 pid=5000 memory=4GiB busy=50% period=1s\nprocess gpu=1 pid=5001 memory=1GiB busy=10% period=1s\n",
		"")
	for pid, id := range map[int]string{5000: named, 5001: unnamed} {
		must.OK(t, os.WriteFile(filepath.Join(m.Trees.Procfs, fmt.Sprint(pid), "cgroup"), []byte("0::/system.slice/docker-"+id+".scope\n"),
			0o644))
	}
	dir := must.ShortDir(t)
	socket := filepath.Join(dir, "docker.sock")
	l, err := net.Listen("unix", socket)
	must.OK(t, err)
	var unrecognized atomic.Value
	engine := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet || r.URL.String() != "/containers/json" {
			unrecognized.Store(r.Method + " " + r.URL.String())
		}
		fmt.Fprintf(w, `[{"Id":%q,"Names":["/llm-train"],"Command":"train --token=secret","Labels":{"token":"secret"}}]`, named)
	})}
	done := make(chan struct{})
	go func() { defer close(done); _ = engine.Serve(l) }()
	t.Cleanup(func() { engine.Close(); <-done })

	p := m.start("--no-kubelet", "--containers.socket="+socket, "--containers.socket="+filepath.Join(dir, "podman.sock"))
	reported := func(s series) error {
		return all(s.is(4<<30, "gpu_container_memory_used_bytes", GPUA, `pod="docker/llm-train"`, `namespace=""`),
			s.is(1<<30, "gpu_container_memory_used_bytes", GPUB, `pod="docker/`+unnamed[:12]+`"`),
			s.none("gpu_container_memory_used_bytes", `pod="docker/`+named[:12]+`"`), s.is(0, "gpu_exporter_source_up", `source="podman"`),
			s.is(1, "gpu_exporter_feature", `feature="container_names"`, `state="on"`))
	}
	p.until(t, "names where the engine reports them", func(s series) error {
		return all(reported(s), s.is(1, "gpu_exporter_source_up", `source="docker"`),
			s.is(0, "gpu_exporter_source_errors_total", `source="docker"`))
	})
	engine.Close()
	p.until(t, "the engine is ended, the name stays", func(s series) error {
		return all(reported(s), s.is(0, "gpu_exporter_source_up", `source="docker"`))
	})
	if printed := unrecognized.Load(); printed != nil {
		t.Errorf("it asks the engine %q", printed)
	}
	for _, path := range []string{"/", "/metrics"} {
		if _, body, _ := p.get(path); strings.Contains(body, "secret") {
			t.Errorf("%s holds what else the engine said", path)
		}
	}
}
