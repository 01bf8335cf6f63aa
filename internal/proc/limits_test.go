package proc

import (
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/internal/must"
)

// Of a /proc, names that are positive numbers are processes, in the order of their PIDs.
func TestProcessesOfAProc(t *testing.T) {
	n := newNode(t)
	for _, name := range []string{"10", "2", "0", "-1", "+7", "x", "1x", "self", "3"} {
		n.write("proc/"+name+"/stat", "")
	}
	if pids, err := processes(filepath.Join(n.root, "proc")); err != nil || !slices.Equal(pids, []int{2, 3, 7, 10}) {
		t.Errorf("%v %v", pids, err)
	}
	if pids, err := processes(filepath.Join(n.root, "missing")); !os.IsNotExist(err) || pids != nil {
		t.Errorf("%v %v", pids, err)
	}
	if pids, err := processes(filepath.Join(n.root, "proc/10/stat")); err == nil || pids != nil {
		t.Errorf("a file: %v %v", pids, err)
	}
	for pid := range 1100 { // more than one batch
		must.OK(t, os.Link(filepath.Join(n.root, "proc/10/stat"), filepath.Join(n.root, fmt.Sprint("proc/", 100+pid))))
	}
	if pids, err := processes(filepath.Join(n.root, "proc")); err != nil || len(pids) != 1104 || !slices.IsSorted(pids) {
		t.Errorf("%d %v", len(pids), err)
	}
}

// The nodes of GPUs are nvidia0 to nvidia253; those of capabilities are in a directory of their own, which may be missing.
func TestNodesOfGPUs(t *testing.T) {
	dir := t.TempDir()
	dev := filepath.Join(dir, "root", "dev")
	if _, _, err := deviceNodes(dir, false); !os.IsNotExist(err) {
		t.Errorf("without a root: %v", err)
	}
	must.OK(t, os.MkdirAll(dev, 0o755))
	if minors, caps, err := deviceNodes(dir, false); err != nil || minors != nil || caps != nil {
		t.Errorf("an empty /dev: %v %v %v", minors, caps, err)
	}
	write := func(names ...string) {
		for _, name := range names {
			path := filepath.Join(dev, name)
			must.OK(t, os.MkdirAll(filepath.Dir(path), 0o755))
			must.OK(t, os.WriteFile(path, nil, 0o644))
		}
	}
	write("nvidia253", "nvidia254", "nvidia255", "nvidia3", "nvidia03", "nvidia1000", "xnvidia5", "nvidia", "nvidiactl", "nvidia-uvm")
	if minors, caps, err := deviceNodes(dir, false); err != nil || !slices.Equal(minors, []int{3, 253}) || caps != nil {
		t.Errorf("%v %v %v", minors, caps, err)
	}
	write("nvidia-caps/nvidia-cap12", "nvidia-caps/nvidia-cap2", "nvidia-caps/nvidia-cap99999",
		"nvidia-caps/nvidia-cap100000", "nvidia-caps/x")
	if minors, caps, err := deviceNodes(dir, false); err != nil || !slices.Equal(minors, []int{3, 253}) ||
		!slices.Equal(caps, []int{2, 12, 99999}) {
		t.Errorf("%v %v %v", minors, caps, err)
	}
}

// On a kernel's /proc the minor number is that of the node. A capability may have any major number.
func TestNodesOfCapabilities(t *testing.T) {
	dir := t.TempDir()
	caps := filepath.Join(dir, "root", "dev", "nvidia-caps")
	must.OK(t, os.MkdirAll(caps, 0o755))
	var want []int
	for name, device := range map[string]uint64{"nvidia-cap1": unix.Mkdev(240, 31), "nvidia-cap2": unix.Mkdev(241, 7)} {
		if err := unix.Mknod(filepath.Join(caps, name), unix.S_IFCHR|0o600, int(device)); err != nil {
			t.Logf("no devices can be made here: %v", err)
			continue
		}
		want = append(want, int(unix.Minor(device)))
	}
	must.OK(t, os.WriteFile(filepath.Join(caps, "nvidia-cap3"), nil, 0o644))
	slices.Sort(want)
	if minors, got, err := deviceNodes(dir, true); err != nil || minors != nil || !slices.Equal(got, want) {
		t.Errorf("%v %v %v, want %v", minors, got, err, want)
	}
}

// The table of capabilities: GPU instances alone, at most 65536 lines.
func TestTableOfCapabilities(t *testing.T) {
	n := newNode(t)
	procfs := filepath.Join(n.root, "proc")
	if c := readCapabilities(procfs); c != nil || c.instances([]int{1}) != nil {
		t.Errorf("without a table: %v", c)
	}
	if in := capabilities(nil).instances(nil); in == nil || len(in) != 0 {
		t.Errorf("without a table and without a capability: %v", in)
	}
	n.write("proc/driver/nvidia-caps/mig-minors", "config 1\nmonitor 2\ngpu0/gi0/access 3\ngpu2/gi14/access 4\ngpu0/gi0/ci0/access 5\n"+
		"gpu-1/gi0/access 6\ngpu0/gi-1/access 7\nGPU0/gi1/access 8\ngpu0/xgi1/access 9\ngpu0/gi1/excess 10\ngpu0/gi1/access\n"+
		"gpu0/gi1/access x\ngpu0/gi1/access 11\n")
	table := readCapabilities(procfs)
	if !maps.Equal(table, capabilities{3: {0, 0}, 4: {2, 14}, 11: {0, 1}}) {
		t.Errorf("%v", table)
	}
	if in := table.instances([]int{2, 4, 11}); !maps.Equal(in, map[gpuInstance]bool{{2, 14}: true, {0, 1}: true}) {
		t.Errorf("%v", in)
	}
	var long strings.Builder
	for i := range maxCapabilities + 1 {
		fmt.Fprintf(&long, "gpu0/gi%d/access %d\n", i, i)
	}
	n.write("proc/driver/nvidia-caps/mig-minors", long.String())
	if table := readCapabilities(procfs); len(table) != maxCapabilities {
		t.Errorf("%d lines are read", len(table))
	}
}

// What is visible under MIG: a GPU with one of its instances, or any GPU where the table could not be read.
func TestVisibleByNodes(t *testing.T) {
	whole, mig := gpu.InventoryGPU{Minor: gpu.Some(1)}, gpu.InventoryGPU{Minor: gpu.Some(1), MIG: true}
	for _, c := range []struct {
		name       string
		v          visible
		whole, mig bool
	}{
		{"no node", visible{instances: map[gpuInstance]bool{{1, 1}: true}}, false, false},
		{"another node", visible{minors: []int{0, 2}}, false, false},
		{"the node", visible{minors: []int{0, 1}, instances: map[gpuInstance]bool{}}, true, false},
		{"an instance of another GPU", visible{minors: []int{1}, instances: map[gpuInstance]bool{{2, 1}: true}}, true, false},
		{"an instance", visible{minors: []int{1}, instances: map[gpuInstance]bool{{2, 1}: true, {1, 5}: true}}, true, true},
		{"no table", visible{minors: []int{1}}, true, true},
	} {
		if c.v.has(&whole) != c.whole || c.v.has(&mig) != c.mig || c.v.has(&gpu.InventoryGPU{}) {
			t.Errorf("%s: whole %v, MIG %v", c.name, c.v.has(&whole), c.v.has(&mig))
		}
	}
}

// Lines of the kernel's dmem files: regions of NVIDIA GPUs with a number of bytes or max.
func TestRegionsOfDmem(t *testing.T) {
	w := &cgroupWalk{root: t.TempDir()}
	text := "drm/0000:03:00.0/vram0 1\nnvidia/0000:18:00.0/vidmem 2\nnvidia/00000000:2A:00.0/vidmem max\n" +
		"nvidia/0000:19:00.0/vidmem\nnvidia/0000:1a:00.0/vidmem -1\nnvidia/0000:1b:00.0/sysmem 3\nnvidia/x/vidmem 4\n" +
		"amd/0000:1c:00.0/vidmem 5\n0000:1f:00.0/vidmem 7\nnvidia/0000:1f:00.0 8\n" +
		"nvidia/0000:1d:00.0/vidmem 0\n  nvidia/0000:1e:00.0/vidmem 6  "
	must.OK(t, os.WriteFile(filepath.Join(w.root, "dmem.max"), []byte(text), 0o644))
	got, err := w.values("", "dmem.max")
	if want := map[gpu.PCIAddress]uint64{"0000:18:00.0": 2, "0000:2a:00.0": math.MaxUint64, "0000:1d:00.0": 0,
		"0000:1e:00.0": 6}; err != nil || !maps.Equal(got, want) {
		t.Errorf("%v %v, want %v", got, err, want)
	}
	if got, err := w.values("", "missing"); got != nil || gone(err) != nil || err == nil {
		t.Errorf("%v %v", got, err)
	}
	if gone(unix.ENODEV) != nil || gone(unix.EACCES) == nil {
		t.Error("a cgroup that was removed is an error, or a permission is none")
	}
}

// A walk ends with an error at 20,000 cgroups, whichever kind it is.
func TestCgroupsAreBounded(t *testing.T) {
	root := t.TempDir()
	for _, dir := range []string{"a", "b"} {
		must.OK(t, os.Mkdir(filepath.Join(root, dir), 0o755))
	}
	must.OK(t, os.WriteFile(filepath.Join(root, "file"), nil, 0o644))
	const message = "more than 20000 cgroups"
	for _, c := range []struct {
		before int
		err    string
	}{{maxCgroups - 2, ""}, {maxCgroups - 1, message}} {
		text := func(err error) string {
			if err == nil {
				return ""
			}
			return err.Error()
		}
		w := &cgroupWalk{root: root, read: c.before}
		if _, err := w.children("", nil, 0); text(err) != c.err {
			t.Errorf("children after %d: %v", c.before, err)
		}
		w = &cgroupWalk{root: root, read: c.before}
		if _, others, err := w.list("", 0); text(err) != c.err || c.err == "" && !slices.Equal(others, []string{"/a", "/b"}) {
			t.Errorf("list after %d: %v %v", c.before, others, err)
		}
	}
	if err := os.Mkdir(filepath.Join(root, "a", "x"), 0o755); err != nil { // also below
		t.Fatal(err)
	}
	w := &cgroupWalk{root: root, read: maxCgroups - 1}
	if containers, others, err := w.list("", 0); err == nil || err.Error() != message || containers != nil || others != nil {
		t.Errorf("below: %v %v %v", containers, others, err)
	}
}

// The driver is queried for containers and jobs, and for the topmost cgroups without any, down to 16 levels.
func TestCgroupsForTheDriver(t *testing.T) {
	root := t.TempDir()
	mkdir := func(paths ...string) {
		for _, path := range paths {
			must.OK(t, os.MkdirAll(filepath.Join(root, path), 0o755))
		}
	}
	if list, err := listCgroups(root); !os.IsNotExist(err) || list != nil {
		t.Errorf("cgroup v1: %v %v", list, err)
	}
	must.OK(t, os.WriteFile(filepath.Join(root, "cgroup.controllers"), nil, 0o644))
	deep := "d" + strings.Repeat("/d", maxCgroupDepth)
	mkdir("kubepods/pod"+uid+"/"+cid+"/child", "kubepods/pod"+uid+"/"+other, "kubepods/empty/x", "system.slice/a.service/b",
		"system.slice/slurmstepd.scope/job_7/step_0", "init.scope", deep+"/docker-"+cid+".scope")
	list, err := listCgroups(root)
	slices.Sort(list)
	want := []string{"/d", "/init.scope", "/kubepods/empty", "/kubepods/pod" + uid + "/" + other, "/kubepods/pod" + uid + "/" + cid,
		"/system.slice/a.service", "/system.slice/slurmstepd.scope/job_7"}
	slices.Sort(want)
	if err != nil || !slices.Equal(list, want) {
		t.Errorf("%v %q, want %q", err, list, want)
	}
}

// Limits of the cgroups above a container apply to it: the lowest. What is charged to a cgroup and to none below it is
// its own, and one without memory is not read further.
func TestLimitsOfCgroupsAbove(t *testing.T) {
	const region, second = "nvidia/0000:18:00.0/vidmem ", "nvidia/0000:19:00.0/vidmem "
	root := t.TempDir()
	write := func(path, text string) {
		path = filepath.Join(root, path)
		must.OK(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must.OK(t, os.WriteFile(path, []byte(text), 0o644))
	}
	charge := func(path, used, limit, least string) {
		write(path+"/dmem.current", used)
		if limit != "" {
			write(path+"/dmem.max", limit)
		}
		if least != "" {
			write(path+"/dmem.min", least)
		}
	}
	write("dmem.capacity", "drm/0000:03:00.0/vram0 4096\n")
	write("a/dmem.current/x", "") // would be an error
	if found, err := walkCgroups(root); found != nil || err != nil {
		t.Errorf("without an NVIDIA GPU: %v %v", found, err)
	}
	os.RemoveAll(filepath.Join(root, "a"))
	write("dmem.capacity", region+"1000\n"+second+"1000\n")
	charge("a", region+"100\n"+second+"7\n", region+"500\n"+second+"max\n", "")
	charge("a/low", region+"60\n"+second+"7\n", region+"400\n", "")
	charge("a/low/docker-"+cid+".scope", region+"50\n"+second+"7\n", region+"450\n", region+"20\n"+second+"0\n")
	charge("a/docker-"+other+".scope", region+"40\n", region+"300\n", "")
	charge("empty", region+"0\n", "", "")
	write("empty/docker-"+cid+".scope/dmem.current/x", "") // would be an error
	write("notenabled/x", "")
	found, err := walkCgroups(root)
	must.OK(t, err)
	got := map[string]cgroupUse{}
	for _, u := range found {
		if u.path != "" {
			got[u.path+" "+string(u.gpu)] = u
		}
	}
	some, none := gpu.Some[gpu.Bytes], gpu.None[gpu.Bytes]()
	const one, two = gpu.PCIAddress("0000:18:00.0"), gpu.PCIAddress("0000:19:00.0")
	own := "/a/low/docker-" + cid + ".scope"
	want := map[string]cgroupUse{
		own + " " + string(one):                        {own, one, 50, some(400), some(20)},
		own + " " + string(two):                        {own, two, 7, none, none},
		"/a/low " + string(one):                        {"/a/low", one, 10, none, none},
		"/a/docker-" + other + ".scope " + string(one): {"/a/docker-" + other + ".scope", one, 40, some(300), none},
	}
	if !maps.Equal(got, want) || len(found) != len(want)+2 {
		t.Errorf("%+v\nwant %+v", got, want)
	}
	// A file of a limit that cannot be read is an error, not a container without a limit.
	for _, name := range []string{"dmem.max", "dmem.min"} {
		path := filepath.Join(root, "a", name)
		os.RemoveAll(path)
		write("a/"+name+"/x", "")
		if found, err := walkCgroups(root); err == nil {
			t.Errorf("%s: %+v", name, found)
		}
		os.RemoveAll(path)
	}
}

// The result of a walk is used for three intervals, of ten seconds where none is configured.
func TestWalksAreKept(t *testing.T) {
	for interval, kept := range map[time.Duration]time.Duration{0: 30 * time.Second, time.Second: 3 * time.Second} {
		root, now := t.TempDir(), time.Unix(1000, 0)
		must.OK(t, os.WriteFile(filepath.Join(root, "dmem.capacity"), []byte("nvidia/0000:18:00.0/vidmem 1\n"), 0o644))
		s := NewCgroupScanner(CgroupOptions{Root: root, Interval: interval, Finder: Options{Clock: func() time.Time { return now }}})
		if source, offered := s.Source(); source.Up || offered || source.Message != "not read yet" || s.Memory() != nil {
			t.Errorf("before the first walk: %+v", source)
		}
		s.Scan(t.Context())
		for _, c := range []struct {
			age  time.Duration
			used bool
		}{{0, true}, {kept, true}, {1, false}} {
			now = now.Add(c.age)
			if source, offered := s.Source(); (s.Memory() != nil) != c.used || !source.Up || !offered {
				t.Errorf("interval %v, %v later: %v, %+v", interval, c.age, s.Memory(), source)
			}
		}
	}
}

// A file is read in full up to its bound, whatever its size is beside that of the first read.
func TestReadBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cgroup")
	for _, size := range []int{1, usualSize - 1, usualSize, usualSize + 1, maxCgroup, maxCgroup + 1} {
		text := strings.Repeat("0123456", size/7+1)[:size]
		must.OK(t, os.WriteFile(path, []byte(text), 0o644))
		if got, err := readBounded(path); err != nil || got != text[:min(size, maxCgroup)] {
			t.Errorf("%d bytes of %d are read: %v", len(got), size, err)
		}
	}
	must.OK(t, os.Truncate(path, 0))
	if got, err := readBounded(path); err == nil {
		t.Errorf("an empty file is read as %q", got)
	}
	if _, err := readBounded(path + "-missing"); !os.IsNotExist(err) {
		t.Errorf("a missing file: %v", err)
	}
}
