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

	"github.com/gpu-exporter/gpu-exporter/internal/must"
)

// The format is that of the kernel: dmemcg_limit_show of kernel/cgroup/dmem.c (Linux 6.14) prints each region with its
// bytes, or max; the region's name is the one that NVIDIA documents for R615 (MPS v3 Memory Partitioning). Regions of
// amdgpu and xe are beside it on a mixed node.
func TestCgroupScanner(t *testing.T) {
	n := newNode(t)
	n.pod("ml", "train", uid, "main", cid)
	pod := "/kubepods.slice/kubepods-pod" + uid_ + ".slice"
	own, pause := pod+"/cri-containerd-"+cid+".scope", pod+"/cri-containerd-"+other+".scope"
	charge := func(path string, used int, limit, least string) {
		for file, value := range map[string]any{"current": used, "max": limit, "min": least} {
			n.write("cgroup"+path+"/dmem."+file, fmt.Sprintf("drm/0000:03:00.0/vram0 4096\nnvidia/0000:18:00.0/vidmem %v\n"+
				"nvidia/00000000:2A:00.0/vidmem 0\n", value))
		}
	}
	charge("/kubepods.slice", 600, "max", "0")
	charge(pod, 600, "700", "0")
	charge(own, 600, "max", "400")
	charge(own+"/made-by-"+hash, 600, "max", "0") // a container's own
	charge(pause, 0, "max", "0")
	charge("/system.slice", 100, "max", "0")
	charge("/system.slice/xorg.service", 100, "max", "0")
	root := filepath.Join(n.root, "cgroup")
	s := NewCgroupScanner(CgroupOptions{Root: root, Finder: n.finder(true).o})

	s.Scan(t.Context())
	if _, offered := s.Source(); offered || len(s.Memory()) > 0 || len(s.Paths()) > 0 {
		t.Error("a private hierarchy, without dmem.capacity, is read, or there are paths before they were needed")
	}
	n.write("cgroup/cgroup.controllers", "dmem\n")
	n.write("cgroup/cgroup.type", "domain\n")
	if s.Scan(t.Context()); len(s.Paths()) > 0 {
		t.Error("the driver is queried for cgroups of a private hierarchy")
	}
	must.OK(t, os.Remove(filepath.Join(root, "cgroup.type")))
	s.Scan(t.Context())
	owners := map[string]string{}
	for _, path := range append(s.Paths(), "/elsewhere") {
		container, reason := s.Owner(path)
		owners[strings.TrimPrefix(path, root)] = container.Pod + string(reason)
	}
	if want := map[string]string{own: "train", pause: "unresolved", "/system.slice": "host",
		"/elsewhere": "unresolved"}; !maps.Equal(owners, want) {
		t.Errorf("the driver is queried for %v, want %v", owners, want)
	}
	n.write("cgroup/dmem.capacity", "drm/0000:03:00.0/vram0 8514437120\nnvidia/0000:18:00.0/vidmem 85520809984\n"+
		"nvidia/00000000:2A:00.0/vidmem 85520809984\n")
	s.Scan(t.Context())
	got := map[string]string{}
	for pci, list := range s.Memory() {
		for _, m := range list {
			got[fmt.Sprintf("%s %s%s", pci, m.Container.Pod, m.Reason)] = fmt.Sprint(m.Used, m.Limit.Or(0), m.Guaranteed.Or(0))
		}
	}
	if want := map[string]string{"0000:18:00.0 train": "600 700 400", "0000:18:00.0 host": "100 0 0", "0000:18:00.0 ": "0 0 0",
		"0000:2a:00.0 ": "0 0 0"}; !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if source, offered := s.Source(); len(s.Paths()) > 0 || !offered || !source.Up || !source.Duration.Present() {
		t.Errorf("the driver is queried although the kernel accounts memory, or %+v", source)
	}
	n.now = n.now.Add(time.Minute) // the scans stopped
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if s.Scan(ended); s.Memory() != nil {
		t.Error("a result of a minute ago is used, or a scan that was given up counts")
	}
}

// Cgroups below the limit of the depth are part of the deepest that is read.
func TestCgroupsWithoutEnd(t *testing.T) {
	root, path := t.TempDir(), ""
	write := func(name, text string) {
		must.OK(t, os.WriteFile(filepath.Join(root, name), []byte("nvidia/0000:18:00.0/vidmem "+text+"\n"), 0o644))
	}
	write("dmem.capacity", "1000")
	for range maxCgroupDepth + 3 {
		path += "/c"
		must.OK(t, os.Mkdir(filepath.Join(root, path), 0o755))
		write(path+"/dmem.current", "10")
	}
	found, err := walkCgroups(root)
	must.OK(t, err)
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
		must.OK(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must.OK(t, os.WriteFile(path, []byte(text), 0o644))
	}
	s := NewCgroupScanner(CgroupOptions{Root: root})
	s.Scan(t.Context())
	if source, _ := s.Source(); source.Up || source.Errors != 1 || len(s.Memory()) > 0 {
		t.Errorf("%+v, %v", source, s.Memory())
	}
}
