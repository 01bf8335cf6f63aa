package proc

import (
	"bufio"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Limits of what is read of the node.
const (
	maxProcesses = 65536
	maxNodes     = 8192
)

// processes lists the PIDs of a /proc, sorted.
func processes(procfs string) ([]int, error) {
	d, err := os.Open(procfs)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	var pids []int
	for len(pids) < maxProcesses {
		entries, err := d.Readdirnames(1024)
		for _, e := range entries {
			if pid, err := strconv.Atoi(e); err == nil && pid > 0 {
				pids = append(pids, pid)
			}
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
	}
	slices.Sort(pids)
	return pids, nil
}

// gpuInstance is a GPU instance on the GPU of a minor number.
type gpuInstance struct{ minor, gi int }

// isProcfs reports whether a path is a kernel's /proc: a test or demonstration has files instead of devices.
func isProcfs(path string) bool {
	var s unix.Statfs_t
	return unix.Statfs(path, &s) == nil && s.Type == unix.PROC_SUPER_MAGIC
}

const (
	nvidiaMajor = 195 // the character devices of NVIDIA GPUs
	// Minors from here on are those of the driver's own nodes, such as nvidiactl.
	firstOwnMinor = 254
)

var (
	gpuNode        = regexp.MustCompile(`^nvidia([0-9]{1,3})$`)
	capabilityNode = regexp.MustCompile(`^nvidia-cap([0-9]{1,5})$`)
)

// deviceNodes lists the minor numbers of the GPUs and MIG capabilities that have a node below the root of a process.
// They are those of the nodes, whatever their names: some plugins name every GPU nvidia0. It never leaves that root:
// links that a container creates are not followed.
func deviceNodes(dir string, kernel bool) (minors, caps []int, err error) {
	root, err := os.OpenRoot(filepath.Join(dir, "root"))
	if err != nil {
		return nil, nil, err
	}
	defer root.Close()
	minors, err = numbered(root, "dev", gpuNode, kernel, nvidiaMajor)
	if err != nil {
		return nil, nil, err
	}
	minors = slices.DeleteFunc(minors, func(m int) bool { return m >= firstOwnMinor })
	// The capabilities' major number is assigned at boot; their directory contains nothing else.
	caps, _ = numbered(root, "dev/nvidia-caps", capabilityNode, kernel, 0) // there are none without MIG
	return minors, caps, nil
}

// numbered lists the minor numbers of the character devices in a directory whose names match. A major of 0 is any.
func numbered(root *os.Root, dir string, name *regexp.Regexp, kernel bool, major uint32) ([]int, error) {
	d, err := root.Open(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	names, err := d.Readdirnames(maxNodes)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	var out []int
	for _, n := range names {
		m := name.FindStringSubmatch(n)
		if m == nil {
			continue
		}
		if !kernel {
			number, _ := strconv.Atoi(m[1])
			out = append(out, number)
			continue
		}
		info, err := root.Stat(dir + "/" + n)
		if err != nil || info.Mode()&fs.ModeCharDevice == 0 {
			continue
		}
		if stat, ok := info.Sys().(*syscall.Stat_t); ok && (major == 0 || unix.Major(stat.Rdev) == major) {
			out = append(out, int(unix.Minor(stat.Rdev)))
		}
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// capabilities is the driver's table of MIG capabilities, /proc/driver/nvidia-caps/mig-minors: GPU instances by the
// minor number of the capability. It is nil where it cannot be read.
type capabilities map[int]gpuInstance

// maxCapabilities bounds the table: eight GPUs have some two thousand lines.
const maxCapabilities = 65536

func readCapabilities(procfs string) capabilities {
	f, err := os.Open(filepath.Join(procfs, "driver", "nvidia-caps", "mig-minors"))
	if err != nil {
		return nil
	}
	defer f.Close()
	c := capabilities{}
	lines := bufio.NewScanner(f)
	for n := 0; lines.Scan() && n < maxCapabilities; n++ {
		// gpu0/gi1/access 12; a compute instance is gpu0/gi1/ci0/access 13.
		path, number, ok := strings.Cut(lines.Text(), " ")
		parts := strings.Split(path, "/")
		if !ok || len(parts) != 3 || parts[2] != "access" {
			continue
		}
		minor, okMinor := suffixed(parts[0], "gpu")
		gi, okGI := suffixed(parts[1], "gi")
		if capability, err := strconv.Atoi(number); err == nil && okMinor && okGI {
			c[capability] = gpuInstance{minor, gi}
		}
	}
	return c
}

func suffixed(s, prefix string) (int, bool) {
	number, ok := strings.CutPrefix(s, prefix)
	n, err := strconv.Atoi(number)
	return n, ok && err == nil && n >= 0
}

// instances returns the instances that capabilities give access to; nil where the table could not be read.
func (c capabilities) instances(caps []int) map[gpuInstance]bool {
	if c == nil && len(caps) > 0 {
		return nil
	}
	out := map[gpuInstance]bool{}
	for _, m := range caps {
		if in, ok := c[m]; ok {
			out[in] = true
		}
	}
	return out
}
