package shipped_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// container is what a runtime is requested to run: a file system made of parts of others, the namespaces, and the
// permissions. What is not in it, the program does not have.
type container struct {
	Root     string // an empty directory, which becomes the root
	Dirs     []string
	Links    map[string]string // path to target
	Binds    []bind
	HostDev  string // directory of a prepared host that gets the device nodes of a host
	Hostname string

	ReadOnlyRoot, Privileged, HostPID bool
	// Host: the program is no container's; it has the host's devices, and no path of /proc is hidden from it.
	Host bool

	UID, GID          int
	Groups            []int
	Bounding, Ambient []string // capabilities
	NoNewPrivileges   bool

	Args, Env []string
	Dir       string
}

// bind is a part of another file system.
type bind struct {
	From, To string
	ReadOnly bool
}

// specVariable names the file with the container that this test binary becomes.
const specVariable = "TEST_SHIPPED_CONTAINER"

// TestMain is the tests, and the first process of a container.
func TestMain(m *testing.M) {
	if path := os.Getenv(specVariable); path != "" {
		// Credentials belong to threads: the one that gives them up is the one that runs the program.
		runtime.LockOSThread()
		fmt.Fprintf(os.Stderr, "container: %v\n", become(path))
		os.Exit(70)
	}
	os.Exit(m.Run())
}

// attributes are the namespaces of the container. Its network has a loopback alone, so that every form may have its own port.
func (c container) attributes() *syscall.SysProcAttr {
	flags := uintptr(unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC)
	if !c.Host {
		flags |= unix.CLONE_NEWCGROUP
	}
	if !c.HostPID {
		flags |= unix.CLONE_NEWPID
	}
	return &syscall.SysProcAttr{Setpgid: true, Cloneflags: flags}
}

// become makes the container of this process and replaces it by the container's program.
func become(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var c container
	if err := json.Unmarshal(text, &c); err != nil {
		return err
	}
	for _, step := range []struct {
		name string
		do   func() error
	}{{"files", c.files}, {"/dev", c.devices}, {"/proc and /sys", c.kernel}, {"mounts", c.mounts}, {"root", c.pivot},
		{"network", loopback}, {"permissions", c.permissions}} {
		if err := step.do(); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
	}
	return syscall.Exec(c.Args[0], c.Args, c.Env)
}

func (c container) in(path string) string { return filepath.Join(c.Root, path) }

func (c container) files() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", c.Root, "tmpfs", 0, "mode=755"); err != nil {
		return err
	}
	for _, dir := range append([]string{"proc", "sys", "dev"}, c.Dirs...) {
		if err := os.MkdirAll(c.in(dir), 0o755); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(c.in("tmp"), 0o777); err != nil {
		return err
	}
	for path, target := range c.Links {
		if err := os.MkdirAll(filepath.Dir(c.in(path)), 0o755); err != nil {
			return err
		}
		if err := os.Symlink(target, c.in(path)); err != nil {
			return err
		}
	}
	return unix.Sethostname([]byte(c.Hostname))
}

// node makes a character device.
func node(dir, name string, mode, major, minor uint32) error {
	path := filepath.Join(dir, name)
	if err := unix.Mknod(path, unix.S_IFCHR|mode, int(unix.Mkdev(major, minor))); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return os.Chmod(path, os.FileMode(mode))
}

// devices makes /dev: the default devices of the OCI runtime specification (config-linux.md), none of which is the kernel
// log. A host and a privileged container have the host's.
func (c container) devices() error {
	all := func(dir string) error {
		return errors.Join(node(dir, "null", 0o666, 1, 3), node(dir, "zero", 0o666, 1, 5), node(dir, "full", 0o666, 1, 7),
			node(dir, "random", 0o666, 1, 8), node(dir, "urandom", 0o666, 1, 9), node(dir, "tty", 0o666, 5, 0))
	}
	// Readable by all, as udev makes it; the kernel denies it to those without CAP_SYSLOG.
	log := func(dir string) error { return node(dir, "kmsg", 0o644, 1, 11) }
	if c.HostDev != "" {
		if err := unix.Mount("tmpfs", c.HostDev, "tmpfs", 0, "mode=755"); err != nil {
			return err
		}
		if err := errors.Join(all(c.HostDev), log(c.HostDev)); err != nil {
			return err
		}
	}
	if err := unix.Mount("tmpfs", c.in("dev"), "tmpfs", unix.MS_NOSUID, "mode=755"); err != nil {
		return err
	}
	if err := all(c.in("dev")); err != nil {
		return err
	}
	if c.Host || c.Privileged {
		if err := log(c.in("dev")); err != nil {
			return err
		}
	}
	return errors.Join(os.Symlink("/proc/self/fd", c.in("dev/fd")), os.Mkdir(c.in("dev/shm"), 0o777))
}

// masked and frozen are what Docker hides from containers, and lets them read: MaskedPaths and ReadonlyPaths of docker inspect.
var (
	masked = []string{"/proc/acpi", "/proc/asound", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/timer_list",
		"/proc/timer_stats", "/proc/sched_debug", "/proc/scsi", "/sys/firmware", "/sys/devices/virtual/powercap"}
	frozen = []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}
)

func (c container) kernel() error {
	if err := unix.Mount("proc", c.in("proc"), "proc", unix.MS_NOSUID|unix.MS_NOEXEC|unix.MS_NODEV, ""); err != nil {
		return err
	}
	if err := unix.Mount("sysfs", c.in("sys"), "sysfs", unix.MS_NOSUID|unix.MS_NOEXEC|unix.MS_NODEV, ""); err != nil {
		return err
	}
	if c.Host || c.Privileged {
		return nil
	}
	if err := unix.Mount("cgroup2", c.in("sys/fs/cgroup"), "cgroup2", unix.MS_RDONLY, ""); err != nil {
		return fmt.Errorf("cgroup2: %w", err)
	}
	for _, path := range masked {
		info, err := os.Stat(c.in(path))
		switch {
		case errors.Is(err, os.ErrNotExist):
			continue
		case err == nil && info.IsDir():
			err = unix.Mount("tmpfs", c.in(path), "tmpfs", unix.MS_RDONLY, "")
		case err == nil:
			err = unix.Mount(c.in("dev/null"), c.in(path), "", unix.MS_BIND, "")
		}
		if err != nil {
			return fmt.Errorf("mask %s: %w", path, err)
		}
	}
	for _, path := range append(frozen, "/sys") {
		if _, err := os.Stat(c.in(path)); err != nil {
			continue
		}
		if err := bindMount(bind{c.in(path), c.in(path), true}); err != nil {
			return fmt.Errorf("read-only %s: %w", path, err)
		}
	}
	return nil
}

func bindMount(b bind) error {
	if err := unix.Mount(b.From, b.To, "", unix.MS_BIND|unix.MS_REC, ""); err != nil || !b.ReadOnly {
		return err
	}
	return unix.Mount("", b.To, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, "")
}

func (c container) mounts() error {
	for _, b := range c.Binds {
		info, err := os.Stat(b.From)
		if err != nil {
			return err
		}
		to := c.in(b.To)
		if _, err := os.Stat(to); err != nil {
			if info.IsDir() {
				err = os.MkdirAll(to, 0o755)
			} else if err = os.MkdirAll(filepath.Dir(to), 0o755); err == nil {
				err = os.WriteFile(to, nil, 0o644)
			}
			if err != nil {
				return err
			}
		}
		if err := bindMount(bind{b.From, to, b.ReadOnly}); err != nil {
			return fmt.Errorf("%s at %s: %w", b.From, b.To, err)
		}
	}
	return nil
}

// pivot makes the tree the root, and forgets the old one.
func (c container) pivot() error {
	if err := os.Chdir(c.Root); err != nil {
		return err
	}
	if err := os.Mkdir(".old", 0o700); err != nil {
		return err
	}
	if err := unix.PivotRoot(".", ".old"); err != nil {
		return err
	}
	if err := errors.Join(os.Chdir("/"), unix.Unmount("/.old", unix.MNT_DETACH), os.Remove("/.old")); err != nil {
		return err
	}
	if c.ReadOnlyRoot {
		if err := unix.Mount("", "/", "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""); err != nil {
			return err
		}
	}
	return os.Chdir(max(c.Dir, "/"))
}

// loopback starts the only device of the network.
func loopback() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	request, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	request.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, request)
}

// capabilities are those that a form may add, and CAP_LAST_CAP of Linux 5.9 and newer.
var capabilities = map[string]int{"CAP_SYS_PTRACE": unix.CAP_SYS_PTRACE, "CAP_SYS_ADMIN": unix.CAP_SYS_ADMIN,
	"CAP_SYSLOG": unix.CAP_SYSLOG}

// permissions gives up what the program must not have. The calls change this thread alone.
func (c container) permissions() error {
	keep := map[int]bool{}
	for _, name := range c.Bounding {
		n, known := capabilities[name]
		if !known {
			return fmt.Errorf("unknown capability %s", name)
		}
		keep[n] = true
	}
	for n := 0; n <= unix.CAP_LAST_CAP && !c.Privileged; n++ {
		if !keep[n] {
			if err := unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(n), 0, 0, 0); err != nil && !errors.Is(err, unix.EINVAL) {
				return err
			}
		}
	}
	if err := unix.Prctl(unix.PR_SET_KEEPCAPS, 1, 0, 0, 0); err != nil {
		return err
	}
	groups := []uint32{0}[:0]
	for _, g := range c.Groups {
		groups = append(groups, uint32(g))
	}
	if _, _, err := syscall.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(groups)), uintptr(unsafe.Pointer(&groups[:1][0])), 0); err != 0 {
		return err
	}
	gid, uid := uintptr(c.GID), uintptr(c.UID)
	if _, _, err := syscall.RawSyscall(unix.SYS_SETRESGID, gid, gid, gid); err != 0 {
		return err
	}
	if _, _, err := syscall.RawSyscall(unix.SYS_SETRESUID, uid, uid, uid); err != 0 {
		return err
	}
	if len(c.Ambient) > 0 {
		var set [2]unix.CapUserData
		for _, name := range c.Ambient {
			n := capabilities[name]
			set[n/32].Permitted |= 1 << (n % 32)
			set[n/32].Inheritable |= 1 << (n % 32)
		}
		if err := unix.Capset(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &set[0]); err != nil {
			return err
		}
		for _, name := range c.Ambient {
			if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_RAISE, uintptr(capabilities[name]), 0, 0); err != nil {
				return err
			}
		}
	}
	// A new user resets it. A test that is killed leaves no program behind.
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return err
	}
	if c.NoNewPrivileges {
		return unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
	}
	return nil
}

// libraries are the files that the dynamic linker loads for a program or a library, as ldd prints them.
func libraries(output string) (paths []string) {
	for line := range strings.Lines(output) {
		for _, word := range strings.Fields(line) {
			if strings.HasPrefix(word, "/") {
				paths = append(paths, word)
			}
		}
	}
	return paths
}
