package proc

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// The format is that of the kernel: dmemcg_limit_show of kernel/cgroup/dmem.c (Linux 6.14) prints each region with its
// bytes, or max; the region's name is the one that NVIDIA documents for R615 (MPS v3 Memory Partitioning). Regions of
// amdgpu and xe are beside it on a mixed node.
func TestCgroupScanner(t *testing.T) {
	const (
		uidA, uidB = "11111111-2222-3333-4444-555555555555", "aaaaaaaa-2222-3333-4444-555555555555"
		other      = "drm/0000:03:00.0/vram0 4096\n"
	)
	idA, idB, pause := strings.Repeat("a", 64), strings.Repeat("b", 64), strings.Repeat("c", 64)
	podA := "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" + strings.ReplaceAll(uidA, "-", "_") + ".slice"
	podB := "kubepods.slice/kubepods-pod" + strings.ReplaceAll(uidB, "-", "_") + ".slice"
	root, logs, links := t.TempDir(), t.TempDir(), t.TempDir()
	write := func(path, text string) {
		t.Helper()
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	cgroup := func(path string, current0, current1 int, limit, least string) {
		line := func(a, b any) string {
			return fmt.Sprintf("%snvidia/0000:18:00.0/vidmem %v\nnvidia/00000000:2A:00.0/vidmem %v\n", other, a, b)
		}
		write(path+"/dmem.current", line(current0, current1))
		write(path+"/dmem.max", line(limit, "max"))
		write(path+"/dmem.min", line(least, 0))
	}
	cgroup("kubepods.slice", 900, 50, "max", "0")
	cgroup("kubepods.slice/kubepods-burstable.slice", 600, 50, "max", "0")
	cgroup(podA, 600, 50, "700", "0")
	cgroup(podA+"/cri-containerd-"+idA+".scope", 600, 50, "max", "400")
	cgroup(podA+"/cri-containerd-"+idA+".scope/made-by-"+uidB, 600, 50, "max", "0") // a container's own
	cgroup(podA+"/cri-containerd-"+pause+".scope", 0, 0, "max", "0")
	cgroup(podB, 300, 0, "max", "0")
	cgroup(podB+"/cri-containerd-"+idB+".scope", 300, 0, "250", "0")
	cgroup("system.slice", 100, 0, "max", "0")
	cgroup("system.slice/xorg.service", 100, 0, "max", "0")
	for _, path := range []string{logs + "/ml_train_" + uidA + "/main", logs + "/ml_serve_" + uidB + "/main"} {
		if err := os.MkdirAll(path, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"train_ml_main-" + idA + ".log", "serve_ml_main-" + idB + ".log"} {
		if err := os.WriteFile(filepath.Join(links, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	now := time.Unix(1e9, 0)
	s := NewCgroupScanner(CgroupOptions{Root: root, Finder: Options{PodLogs: logs, ContainerLogs: links, Kubernetes: true,
		Clock: func() time.Time { return now }, Deadline: 10 * time.Second}})

	s.Scan(t.Context())
	if _, offered := s.Source(); offered || len(s.Memory()) > 0 {
		t.Error("a private hierarchy, without dmem.capacity, is read")
	}
	if list := s.Paths(); len(list) > 0 {
		t.Errorf("paths before a scan: %v", list)
	}
	write("cgroup.controllers", "dmem\n")
	write("cgroup.type", "domain\n")
	if s.Scan(t.Context()); len(s.Paths()) > 0 {
		t.Error("the driver is queried for cgroups of a private hierarchy")
	}
	if err := os.Remove(filepath.Join(root, "cgroup.type")); err != nil {
		t.Fatal(err)
	}
	s.Scan(t.Context())
	owners := map[string]string{}
	for _, path := range s.Paths() {
		container, reason := s.Owner(path)
		owners[strings.TrimPrefix(path, root+"/")] = containerText(container) + string(reason)
	}
	if want := map[string]string{podA + "/cri-containerd-" + idA + ".scope": "ml/train/main",
		podA + "/cri-containerd-" + pause + ".scope": "unresolved", podB + "/cri-containerd-" + idB + ".scope": "ml/serve/main",
		"system.slice": "host"}; !maps.Equal(owners, want) {
		t.Errorf("the driver is queried for %v, want %v", owners, want)
	}
	if _, reason := s.Owner("/elsewhere"); reason != gpu.UnattributedUnresolved {
		t.Errorf("the owner of an unknown cgroup is %q", reason)
	}
	write("dmem.capacity", "drm/0000:03:00.0/vram0 8514437120\nnvidia/0000:18:00.0/vidmem 85520809984\n"+
		"nvidia/00000000:2A:00.0/vidmem 85520809984\n")
	s.Scan(t.Context())
	got := map[string]gpu.CgroupMemory{}
	for pci, list := range s.Memory() {
		for _, m := range list {
			if m.Used > 0 {
				got[fmt.Sprintf("%s %s%s", pci, containerText(m.Container), m.Reason)] = m
			}
		}
	}
	for key, want := range map[string]struct{ used, limit, guaranteed gpu.Bytes }{
		"0000:18:00.0 ml/train/main": {600, 700, 400}, "0000:2a:00.0 ml/train/main": {50, 0, 0},
		"0000:18:00.0 ml/serve/main": {300, 250, 0}, "0000:18:00.0 host": {100, 0, 0},
	} {
		m := got[key]
		if m.Used != want.used || m.Limit.Or(0) != want.limit || m.Guaranteed.Or(0) != want.guaranteed {
			t.Errorf("%s: %+v, want %v", key, m, want)
		}
		delete(got, key)
	}
	if len(got) > 0 {
		t.Errorf("also %+v", got)
	}
	if len(s.Paths()) > 0 {
		t.Error("the driver is queried although the kernel accounts memory")
	}
	if source, offered := s.Source(); !offered || !source.Up || !source.Duration.Present() {
		t.Errorf("source %+v", source)
	}

	now = now.Add(time.Minute) // the scans stopped
	if s.Memory() != nil {
		t.Error("a result of a minute ago is used")
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	s.Scan(ended)
	if s.Memory() != nil {
		t.Error("a scan that was given up counts")
	}
}

// Cgroups below the limit of the depth are part of the deepest that is read.
func TestCgroupsWithoutEnd(t *testing.T) {
	root, path := t.TempDir(), ""
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(root, name), []byte("nvidia/0000:18:00.0/vidmem "+text+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("dmem.capacity", "1000")
	for range maxCgroupDepth + 3 {
		path += "/c"
		if err := os.Mkdir(filepath.Join(root, path), 0o755); err != nil {
			t.Fatal(err)
		}
		write(path+"/dmem.current", "10")
	}
	found, err := walkCgroups(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, u := range found {
		if n := strings.Count(u.path, "/"); u.used > 0 && n != maxCgroupDepth {
			t.Errorf("%d bytes at depth %d", u.used, n)
		}
	}
}

// A cgroup that cannot be read fails the scan, however deep it is, and the default clock is that of the machine.
func TestCgroupThatCannotBeRead(t *testing.T) {
	root := t.TempDir()
	const used = "nvidia/0000:18:00.0/vidmem 10\n"
	for path, text := range map[string]string{"dmem.capacity": used, "a/dmem.current": used, "a/b/dmem.current/x": ""} {
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	s := NewCgroupScanner(CgroupOptions{Root: root})
	s.Scan(t.Context())
	if source, _ := s.Source(); source.Up || source.Errors != 1 || len(s.Memory()) > 0 {
		t.Errorf("%+v, %v", source, s.Memory())
	}
}

func containerText(c gpu.Container) string {
	if c == (gpu.Container{}) {
		return ""
	}
	return c.Namespace + "/" + c.Pod + "/" + c.Name
}
