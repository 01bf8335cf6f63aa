package security_test

import (
	"bufio"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/internal/standin/machine"
	"github.com/gpu-exporter/gpu-exporter/internal/testkit"
)

// call is one system call as strace writes it.
type call struct {
	name, args, result string
}

var (
	oneCall = regexp.MustCompile(`^\d+\s+([a-z0-9_]+)\((.*)\)\s+= (.*)$`)
	begun   = regexp.MustCompile(`^(\d+)\s+(.*) <unfinished \.\.\.>$`)
	resumed = regexp.MustCompile(`^(\d+)\s+<\.\.\. (\S+) resumed>(.*)$`)
	quoted  = regexp.MustCompile(`"((?:[^"\\]|\\.)*)"`)
	// probe is how Go finds out which IP versions there are; nothing listens there.
	probe  = regexp.MustCompile(`sin6_port=htons\(0\), .*"::(1|ffff:127\.0\.0\.1)"`)
	onFile = regexp.MustCompile(`^\d+<((?:[^>\\]|\\.)*)>`)
)

// read parses the output of strace and joins calls that others interrupted.
func read(t *testing.T, path string) []call {
	t.Helper()
	f, err := os.Open(path)
	must.OK(t, err)
	defer f.Close()
	var out []call
	unfinished := map[string]string{}
	scan := bufio.NewScanner(f)
	scan.Buffer(nil, 16<<20)
	for scan.Scan() {
		line := scan.Text()
		if m := begun.FindStringSubmatch(line); m != nil {
			unfinished[m[1]] = m[0][:len(m[0])-len(" <unfinished ...>")]
			continue
		}
		if m := resumed.FindStringSubmatch(line); m != nil {
			thread := m[1]
			if m[2] == "execve" {
				// The executed program continues in the first thread of the process.
				for other, text := range unfinished {
					if strings.Contains(text, " execve(") {
						thread = other
					}
				}
			}
			line = unfinished[thread] + m[3]
			delete(unfinished, thread)
		}
		if m := oneCall.FindStringSubmatch(line); m != nil {
			out = append(out, call{m[1], m[2], m[3]})
		} else if !strings.Contains(line, "+++ ") && !strings.Contains(line, "--- ") {
			t.Errorf("strace wrote what is not understood: %.200s", line)
		}
	}
	must.OK(t, scan.Err())
	return out
}

// traced runs the exporter under strace, calls visit, stops it, and returns its calls.
func traced(t *testing.T, n *machine.Node, o machine.Options, visit func(*machine.Exporter)) []call {
	t.Helper()
	tracer, err := exec.LookPath("strace")
	if err != nil {
		t.Fatal("strace is not installed: make strace, or apt-get install strace")
	}
	out := filepath.Join(t.TempDir(), "calls")
	o.Under = []string{tracer, "-f", "-y", "-s", "4096", "-o", out, "-e", "signal=none",
		"-e", "trace=%file,%process,%network,write,writev,pwrite64,pwritev,sendfile,ftruncate,fchmod,fchown,ptrace,process_vm_writev," +
			"mount,bpf,keyctl,setuid,setgid,capset,io_uring_setup,memfd_create,fallocate,copy_file_range,splice"}
	e := n.Start(t, o)
	visit(e)
	e.Stop()
	return read(t, out)
}

// permitted is a file, or a directory of files, that may be opened for reading.
type permitted struct {
	path   *regexp.Regexp
	reason string
}

func under(path string) string { return "^" + regexp.QuoteMeta(path) + "(/|$)" }

// ground is what every run opens.
func ground(n *machine.Node, pid int) []permitted {
	row := func(expression, reason string) permitted { return permitted{regexp.MustCompile(expression), reason} }
	self := fmt.Sprintf("(self|thread-self|%d)", pid)
	return []permitted{
		row(`^/etc/ld\.so\.(cache|preload)$`, "the loader looks libraries up"),
		row(`^(/usr)?/lib(64)?/([^/]+/)*[^/]+\.so(\.[0-9.]+)?$`, "the C library"),
		row(`^(/usr)?/lib(64)?/([^/]+/)*$`, "the loader looks for libraries"),
		row(`^`+regexp.QuoteMeta(n.Library)+`$`, "the driver's library"),
		row(`^/sys/kernel/mm/transparent_hugepage/hpage_pmd_size$`, "Go's memory manager"),
		row(`^/sys/devices/system/cpu/online$`, "the C library's allocator counts processors when threads meet in it"),
		row(`^/sys/fs/cgroup(/|$)`, "Go reads its CPU limit"),
		row(`^/proc/self/exe$`, "protobuf derives a seed from the program"),
		row(`/bin/gpu-exporter$`, "protobuf derives a seed from the program"),
		row(`^/proc/self/maps$`, "the C library looks up its stack"),
		row(`^/proc/`+self+`/(cgroup|mountinfo)$`, "Go reads its CPU limit"),
		row(`^/proc/(stat|sys/kernel/.*|uptime)$`, "process_start_time_seconds"),
		row(`^/proc(/|$)`+self+`?/?(stat|status|limits|fd|net/netstat|net/snmp)?$`, "process_ metrics"),
		row(`^/(etc/localtime|usr/share/zoneinfo/.*)$`, "the time zone of the log"),
		row(`^/proc/sys/net/core/somaxconn$`, "how many connections may wait"),
		row(under(n.Trees.Sysfs), "the PCI bus: GPUs that the driver lacks"),
		row("^"+regexp.QuoteMeta(filepath.Dir(n.Socket))+"$", "changes of the kubelet's socket"),
		row(under(n.Trees.Procfs), "what a process belongs to"),
		row(under(n.Trees.PodLogs), "names of pods"),
		row(under(n.Trees.ContainerLogs), "names of containers"),
		row(`^`+regexp.QuoteMeta(n.Socket)+`$`, "the kubelet's socket"),
		row(`^/var/run/gpu-fractioning/map$`, "whether the GPU fractioning operator records containers there"),
	}
}

// judge checks calls: only permitted files are opened, nothing is modified, no process is started.
func judge(t *testing.T, calls []call, files []permitted, sockets []string, executions int) {
	t.Helper()
	found, opened, used := against(calls, files, sockets, executions)
	for _, f := range found {
		t.Error(f)
	}
	if opened < 20 {
		t.Errorf("only %d files were opened: does the test see anything?", opened)
	}
	for _, p := range files {
		if !used[p.path.String()] {
			t.Logf("not opened in this run: %s (%s)", p.path, p.reason)
		}
	}
}

// written is where a call may write to: what is no file.
var written = regexp.MustCompile(`^(socket|pipe|anon_inode|TCP|TCPv6|UNIX)\b|^/dev/null$`)

// against lists what is against the law, each once, the number of files that were opened, and the rows that permitted them.
func against(calls []call, files []permitted, sockets []string, executions int) (found []string, opened int, used map[string]bool) {
	ran := 0
	used = map[string]bool{}
	report := func(format string, args ...any) {
		if text := fmt.Sprintf(format, args...); !slices.Contains(found, text) {
			found = append(found, text)
		}
	}
	for _, c := range calls {
		line := fmt.Sprintf("%s(%.300s) = %.60s", c.name, c.args, c.result)
		switch c.name {
		case "execve", "execveat":
			if !strings.HasPrefix(c.result, "-1") {
				ran++
			}
			if !strings.Contains(c.args, "gpu-exporter\"") {
				report("another program is executed: %s", line)
			}
		case "clone", "clone3", "fork", "vfork":
			if !strings.Contains(c.args, "CLONE_THREAD") {
				report("a process is started: %s", line)
			}
		case "open", "openat", "openat2", "access", "faccessat", "faccessat2", "stat", "lstat", "newfstatat", "statx", "readlink",
			"readlinkat", "statfs", "chdir", "getcwd", "inotify_add_watch":
			names := quoted.FindStringSubmatch(c.args)
			if names == nil || names[1] == "" {
				continue // of an open file
			}
			path := names[1]
			if dir := onFile.FindStringSubmatch(c.args); dir != nil && !filepath.IsAbs(path) {
				path = filepath.Join(dir[1], path) // relative to an open directory
			} else if strings.HasPrefix(c.args, "AT_FDCWD<") && !filepath.IsAbs(path) {
				path = filepath.Join(c.args[len("AT_FDCWD<"):strings.IndexByte(c.args, '>')], path)
			}
			if strings.HasPrefix(c.name, "open") {
				opened++
				for _, flag := range []string{"O_WRONLY", "O_RDWR", "O_CREAT", "O_TRUNC", "O_APPEND", "O_TMPFILE"} {
					if strings.Contains(c.args, flag) && !ofTheFake(path) {
						report("opened for writing: %s", line)
					}
				}
			}
			at := slices.IndexFunc(files, func(p permitted) bool { return p.path.MatchString(path) })
			if at < 0 && !ofTheFake(path) {
				report("not permitted: %s: %s", path, line)
			} else if at >= 0 {
				used[files[at].path.String()] = true
			}
		case "connect", "bind":
			if c.name == "bind" && probe.MatchString(c.args) {
				continue
			}
			if !slices.ContainsFunc(sockets, func(s string) bool { return strings.Contains(c.args, s) }) {
				report("socket not permitted: %s", line)
			}
		case "socket":
			if !strings.HasPrefix(c.args, "AF_UNIX") && !strings.HasPrefix(c.args, "AF_INET") {
				report("type of socket not permitted: %s", line)
			}
		case "write", "writev", "pwrite64", "pwritev":
			if file := onFile.FindStringSubmatch(c.args); file == nil || !written.MatchString(file[1]) {
				report("written: %s", line)
			}
		case "wait4", "waitid", "exit", "exit_group", "getpeername", "getsockname", "getsockopt", "setsockopt", "listen", "accept",
			"accept4", "shutdown",
			"sendto", "sendmsg", "sendmmsg", "recvfrom", "recvmsg", "recvmmsg", "socketpair", "kill", "tgkill", "tkill", "pidfd_open",
			"pidfd_send_signal", "arch_prctl", "rt_sigreturn":
		default:
			report("call not permitted: %s", line)
		}
	}
	if ran != executions {
		report("%d programs were executed, want %d", ran, executions)
	}
	return found, opened, used
}

// The law catches those who break it.
func TestJudgeReports(t *testing.T) {
	path := filepath.Join(t.TempDir(), "calls")
	files := []permitted{{regexp.MustCompile(`^/allowed(/|$)`), "a test"}}
	for _, c := range []struct{ line, want string }{
		{`7 openat(AT_FDCWD</>, "/allowed/file", O_RDONLY|O_CLOEXEC) = 3</allowed/file>`, ""},
		{`7 openat(9</allowed/dir>, "file", O_RDONLY) = 3</allowed/dir/file>`, ""},
		{`7 write(1<pipe:[1]>, "x", 1) = 1`, ""},
		{`7 clone(child_stack=0x1, flags=CLONE_VM|CLONE_THREAD) = 8`, ""},
		{`7 connect(5<socket:[1]>, {sa_family=AF_UNIX, sun_path="/run/k.sock"}, 20) = 0`, ""},
		{`7 openat(AT_FDCWD</>, "/etc/shadow", O_RDONLY) = -1 EACCES (Permission denied)`, "not permitted: /etc/shadow"},
		{`7 openat(9</allowed/dir>, "../../etc/shadow", O_RDONLY) = 3</etc/shadow>`, "not permitted: /etc/shadow"},
		{`7 openat(AT_FDCWD</root>, ".ssh/id", O_RDONLY) = 3</root/.ssh/id>`, "not permitted: /root/.ssh/id"},
		{`7 newfstatat(AT_FDCWD</>, "/home", {st_mode=S_IFDIR}, 0) = 0`, "not permitted: /home"},
		{`7 openat(AT_FDCWD</>, "/allowed/file", O_WRONLY|O_CREAT, 0600) = 3</allowed/file>`, "opened for writing"},
		{`7 write(4</allowed/file>, "x", 1) = 1`, "written"},
		{`7 unlinkat(AT_FDCWD</>, "/allowed/file", 0) = 0`, "call not permitted"},
		{`7 mkdirat(AT_FDCWD</>, "/allowed/x", 0777) = 0`, "call not permitted"},
		{`7 execve("/bin/sh", ["sh"], 0x1 /* 9 vars */) = 0`, "another program is executed"},
		{`7 clone(child_stack=NULL, flags=CLONE_VM|CLONE_VFORK|SIGCHLD) = 8`, "a process is started"},
		{`7 vfork() = 8`, "a process is started"},
		{`7 connect(5<socket:[1]>, {sa_family=AF_INET, sin_port=htons(53), sin_addr=inet_addr("10.0.0.1")}, 16) = 0`,
			"socket not permitted"},
		{`7 socket(AF_PACKET, SOCK_RAW, 0) = 5`, "type of socket not permitted"},
		{`7 ptrace(PTRACE_ATTACH, 1) = 0`, "call not permitted"},
	} {
		write(t, path, c.line+"\n")
		calls := read(t, path)
		if len(calls) != 1 {
			t.Fatalf("%s: %d calls", c.line, len(calls))
		}
		found, _, _ := against(calls, files, []string{`"/run/k.sock"`}, 0)
		if c.want == "" && len(found) > 0 || c.want != "" && (len(found) == 0 || !strings.Contains(found[0], c.want)) {
			t.Errorf("%s\n\tfound %q, want %q", c.line, found, c.want)
		}
	}
}

// ofTheFake reports whether a file is of the fake driver's scenario, which only the fake driver maps and writes.
func ofTheFake(path string) bool {
	return filepath.Base(path) == "scenario.control" || filepath.Base(path) == "scenario.flat"
}

// visit requests every page and a missing one, and waits until every poll group has run.
func visit(t *testing.T, e *machine.Exporter, until string) {
	t.Helper()
	await(t, http.DefaultClient, e.Base(), "", until)
	for _, path := range []string{"/", "/-/healthy", "/-/ready", "/../../etc/passwd", "/nothing"} {
		ask(t, http.DefaultClient, e.Base()+path)
	}
	time.Sleep(1500 * time.Millisecond) // the slow poll groups, once more
}

var quick = []string{"--poll.fast=200ms", "--poll.medium=400ms", "--poll.slow=1s", "--poll.kubelet=1s"}

// With default flags.
func TestNothingElseIsOpened(t *testing.T) {
	t.Parallel()
	n := machine.Shipped(t, "demo", "demo")
	var e *machine.Exporter
	calls := traced(t, n, machine.Options{Flags: quick}, func(started *machine.Exporter) {
		e = started
		visit(t, e, "gpu_container_busy_seconds_total{")
	})
	_, port, _ := strings.Cut(e.Address, ":")
	judge(t, calls, ground(n, e.PID), []string{`"` + n.Socket + `"`, "htons(" + port + ")"}, 1)
}

// A driver that was replaced: the one program that is run is this one, once more.
func TestOnlyItselfIsRunAgain(t *testing.T) {
	t.Parallel()
	text := twoGPUs
	for at := 10; at <= 600; at += 10 { // on a busy machine the exporter may load the library after the first
		text += fmt.Sprintf("at %ds driver replace\n", at)
	}
	n := machine.Parse(t, text, twoPods)
	var e *machine.Exporter
	calls := traced(t, n, machine.Options{Flags: quick}, func(started *machine.Exporter) {
		e = started
		testkit.Until(func() bool { return strings.Contains(e.Said(), "re-executing") })
		visit(t, e, "gpu_device_up{")
	})
	_, port, _ := strings.Cut(e.Address, ":")
	judge(t, calls, ground(n, e.PID), []string{`"` + n.Socket + `"`, "htons(" + port + ")"}, 1+strings.Count(e.Said(), "re-executing"))
}

// With all features.
func TestNothingElseIsOpenedWithEveryRight(t *testing.T) {
	t.Parallel()
	n := machine.Parse(t, twoGPUs, twoPods)
	dir := n.Dir
	files := map[string]string{
		"token":      "the-token-of-a-service-account",
		"jobs/0":     "4711\n",
		"kmsg":       "",
		"checkpoint": `{"Data":{"PodDeviceEntries":[],"RegisteredDevices":{}},"Checksum":1}`,
		"dra.json":   `{"v2":{"preparedClaims":{}}}`,
		"dev/null":   "",
	}
	for name, text := range files {
		write(t, filepath.Join(dir, name), text)
	}
	api := apiServer(t, filepath.Join(dir, "ca.crt"), func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, `{"metadata":{"resourceVersion":"1"},"items":[]}`)
	})
	engine := filepath.Join(filepath.Dir(n.Socket), "docker.sock")
	engineServer(t, engine, `[]`)
	config := machine.WebConfig(t, dir, machine.Web{Users: true})
	n.Kmsg = filepath.Join(dir, "kmsg")
	flags := append(slices.Clone(quick), "--kubelet.checkpoint="+dir+"/checkpoint", "--kubelet.dra-checkpoint="+dir+"/dra.json",
		"--kubernetes.pods",
		"--kubernetes.api-server="+api.URL, "--kubernetes.token-file="+dir+"/token", "--kubernetes.ca-file="+dir+"/ca.crt",
		"--slurm.job-mapping-dir="+dir+"/jobs",
		"--slurm.job-numbers", "--containers.visible", "--compat=dcgm-4.8", "--path.dev="+dir+"/dev", "--containers.socket="+engine,
		"--web.config.file="+config)
	var e *machine.Exporter
	calls := traced(t, n, machine.Options{Flags: flags}, func(started *machine.Exporter) {
		e = started
		e.TLS = true
		await(t, trusting(t, filepath.Join(dir, "cert.pem")), e.Base(), machine.Password, `source="`+gpu.SourceAPI+`"} 1`)
		time.Sleep(2 * time.Second)
	})
	allowed := ground(n, e.PID)
	for _, name := range []string{"token", "jobs", "kmsg", "checkpoint", "dra.json", "dev", "ca.crt", "web.yml", "cert.pem", "key.pem"} {
		allowed = append(allowed, permitted{regexp.MustCompile(under(filepath.Join(dir, name))), "named by a flag"})
	}
	allowed = append(allowed, permitted{regexp.MustCompile("^" + regexp.QuoteMeta(dir) + "$"), "changes of the checkpoints"},
		permitted{regexp.MustCompile(`^/(etc/(ssl|pki|ca-certificates).*)$`), "authorities of the system"})
	_, port, _ := strings.Cut(e.Address, ":")
	_, apiPort, _ := strings.Cut(strings.TrimPrefix(api.URL, "https://"), ":")
	judge(t, calls, allowed, []string{`"` + n.Socket + `"`, `"` + engine + `"`, "htons(" + port + ")", "htons(" + apiPort + ")"}, 1)
}
