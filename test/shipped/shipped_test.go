// Package shipped_test starts the exporter in every form in which it is shipped: the packages' unit, the commands of the
// documentation and the Makefile, compose, the chart with its documented values, and the kustomizations. Arguments, environment, user,
// capabilities, mounts and namespaces are read from the form's own file, and nothing is added: neither a flag nor a port, as each has a
// network of its own. cmd/exporter starts those that need no root as the ordinary user in `make test`.
//
// Namespaces with real users and devices need root, on a machine and not in a container; without it the tests fail.
package shipped_test

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"html"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/internal/standin/machine"
	"github.com/gpu-exporter/gpu-exporter/internal/testkit"
	"github.com/gpu-exporter/gpu-exporter/test/servers"
)

var (
	update = flag.Bool("update", false, "write testdata/forms.txt instead of comparing it")
	only   = flag.String("form", "", "start the forms alone whose names match this regular expression")
)

// lifetime is how long every form has to publish, by its own clock.
const lifetime = time.Minute

// patience is how long all forms together may take.
const patience = 5 * time.Minute

// certificate is the files of a TLS certificate that this process trusts nothing by.
func certificate(t *testing.T) map[string]string {
	t.Helper()
	dir := t.TempDir()
	machine.WebConfig(t, dir, machine.Web{})
	out := map[string]string{}
	for _, name := range []string{"cert.pem", "key.pem"} {
		b := must.Read(t, filepath.Join(dir, name))
		out[name] = b
	}
	return out
}

// ownSecret is a secret that a user of the chart creates: a certificate, or a web configuration.
func ownSecret(t *testing.T, name string) map[string]string {
	t.Helper()
	switch name {
	case "gpu-exporter-tls":
		c := certificate(t)
		return map[string]string{"tls.crt": c["cert.pem"], "tls.key": c["key.pem"]}
	case "my-web-config":
		return map[string]string{"web-config.yml": "basic_auth_users:\n  prometheus: " + machine.PasswordHash + "\n"}
	}
	t.Fatalf("whose is the secret %s?", name)
	return nil
}

// host prepares the directories and sockets of a node that forms mount, and returns its root.
func host(t *testing.T, n *machine.Node) string {
	t.Helper()
	root := t.TempDir()
	for path, target := range map[string]string{"var/lib/kubelet/pod-resources": filepath.Dir(n.Socket), "var/log/pods": n.Trees.PodLogs,
		"var/log/containers": n.Trees.ContainerLogs, "var/lib/k0s/kubelet": filepath.Join(root, "var/lib/kubelet")} {
		link(t, filepath.Join(root, path), target)
	}
	for path, text := range map[string]string{
		// Checkpoints of a kubelet and of a DRA driver that have allocated nothing; podmap/source has their formats.
		"var/lib/kubelet/device-plugins/kubelet_internal_checkpoint": "" +
			`{"Data":{"PodDeviceEntries":null,"RegisteredDevices":{}},"Checksum":0}`,
		"var/lib/kubelet/plugins/gpu.nvidia.com/checkpoint.json": `{"checksum":1,"v1":{"preparedClaims":{}},"v2":{}}`,
		"var/run/gpu-fractioning/map/.keep":                      "",
		"run/slurm/gpus/.keep":                                   "",
		"sys/fs/cgroup/cgroup.controllers":                       "cpu memory pids\n",
		"home/kubernetes/bin/nvidia/.keep":                       "",
		"dev/.keep":                                              "",
	} {
		write(t, filepath.Join(root, path), text)
	}
	socket := filepath.Join(root, "var/run/docker.sock")
	short := filepath.Join(filepath.Dir(n.Socket), "docker.sock") // a socket's path is limited to about a hundred characters
	l, err := net.Listen("unix", short)
	must.OK(t, err)
	engine := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "[]") })}
	go engine.Serve(l)
	t.Cleanup(func() { engine.Close() })
	must.OK(t, errors.Join(os.Chmod(short, 0o660), os.Chown(short, 0, dockerGroup)))
	link(t, socket, short)
	return root
}

func link(t *testing.T, path, target string) {
	t.Helper()
	must.OK(t, errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.Symlink(target, path)))
}

func write(t *testing.T, path, text string) {
	t.Helper()
	must.OK(t, errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)))
}

// linked are the files that the dynamic linker loads for a program.
func linked(t *testing.T, path string) []string {
	t.Helper()
	out, err := exec.Command("ldd", path).Output()
	if err != nil {
		t.Fatalf("ldd %s: %v", path, err)
	}
	return libraries(string(out))
}

// prepare completes the form's container by what is not in its file: the image or the installed files, the host, and
// the driver with what its simulation reads.
func (f form) prepare(t *testing.T, withDriver bool) container {
	t.Helper()
	root := servers.Root(t)
	exporter := machine.Binary(t)
	n := machine.Parse(t, machine.TwoGPUs, machine.TwoPods)
	node := host(t, n)
	c := f.container
	c.Env = slices.Clone(c.Env)
	c.Root, c.HostDev = t.TempDir(), filepath.Join(node, "dev")
	shown := map[string]string{} // path to the file there
	need := append(linked(t, exporter), linked(t, n.Library)...)
	switch {
	case f.image == "demo":
		// Its image is that of the build stage: Debian with Go and gcc, here this machine's, and the repository.
		places, err := exec.Command("go", "env", "GOMODCACHE", "GOROOT").Output()
		must.OK(t, err)
		for _, path := range []string{"/usr", "/etc", "/bin", "/lib", "/lib64"} {
			if _, err := os.Stat(path); err == nil {
				c.Binds = append(c.Binds, bind{path, path, true})
			}
		}
		c.Binds = append(c.Binds, bind{root, "/src", true}, bind{strings.Fields(string(places))[0], "/go/pkg/mod", true},
			bind{strings.Fields(string(places))[1], "/goroot", true})
		c.Env = append(c.Env, "GOPATH=/go", "HOME=/nonexistent", "GOFLAGS=-buildvcs=false", "GOTOOLCHAIN=local")
		for i, e := range c.Env {
			if path, ok := strings.CutPrefix(e, "PATH="); ok {
				c.Env[i] = "PATH=/goroot/bin:" + path
			}
		}
		need = nil
		programs := t.TempDir()
		for _, name := range stages(t)["demo"].programs {
			servers.Build(t, servers.Program(name))
			copyFile(t, filepath.Join(root, "bin", name), filepath.Join(programs, name))
		}
		c.Binds = append(c.Binds, bind{programs, "/usr/local/bin", true})
	case f.Host:
		shown["/usr/bin/gpu-exporter"] = exporter
		shown["/src/bin/gpu-exporter"] = exporter
	default:
		for _, name := range stages(t)[f.image].programs {
			shown["/usr/local/bin/"+name] = filepath.Join(root, "bin", name)
			servers.Build(t, servers.Program(name))
		}
	}
	for _, path := range need {
		shown[path] = path
	}
	if withDriver {
		// Where the runtime puts it, and a distribution: a directory in which the dynamic linker looks.
		libc := need[slices.IndexFunc(need, func(p string) bool { return strings.Contains(p, "/libc.so.") })]
		if f.driver {
			shown[filepath.Join("/usr", strings.TrimPrefix(filepath.Dir(libc), "/usr"), "libnvidia-ml.so.1")] = n.Library
		}
		copyFile(t, n.Library, filepath.Join(node, "home/kubernetes/bin/nvidia/lib64/libnvidia-ml.so.1"))
		// What the fake driver reads is the simulated hardware.
		must.OK(t, os.Chmod(n.Control.Path(), 0o666))
		c.Binds = append(c.Binds, bind{n.Dir, n.Dir, false})
		c.Env = append(c.Env, n.Env...)
	}
	for _, to := range slices.Sorted(maps.Keys(shown)) {
		c.Binds = append(c.Binds, bind{shown[to], to, true})
	}
	for _, m := range f.mounts {
		m.From = filepath.Join(node, m.From)
		c.Binds = append(c.Binds, m)
	}
	for to, files := range f.secrets {
		dir := t.TempDir()
		if err := os.Chmod(dir, 0o777); err != nil { // an empty directory is a volume to write to
			t.Fatal(err)
		}
		for name, text := range files {
			write(t, filepath.Join(dir, name), text)
		}
		c.Binds = append(c.Binds, bind{dir, to, len(files) > 0})
	}
	return c
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	b, err := os.ReadFile(from)
	if err == nil {
		err = errors.Join(os.MkdirAll(filepath.Dir(to), 0o755), os.WriteFile(to, b, 0o755))
	}
	must.OK(t, err)
}

// command is this test binary as the first process of the container.
func command(t *testing.T, c container) *exec.Cmd {
	t.Helper()
	b, err := json.Marshal(c)
	must.OK(t, err)
	path := filepath.Join(t.TempDir(), "container.json")
	write(t, path, string(b))
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = []string{specVariable + "=" + path}
	cmd.SysProcAttr = c.attributes()
	return cmd
}

// started is a running form.
type started struct {
	form
	driver bool
	child  *testkit.Child
	base   string
	client *http.Client
	doctor func(*testing.T)
	// deadline is the end of all waits: a busy machine is slow, and no fault.
	deadline time.Time
}

// start runs the form until the test ends.
func (f form) start(t *testing.T, withDriver bool) *started {
	t.Helper()
	child, err := testkit.Start(command(t, f.prepare(t, withDriver)))
	must.OK(t, err)
	t.Cleanup(func() {
		if child.Exited() != nil {
			return // its check has reported it
		}
		if err := child.Stop(); err != nil {
			t.Errorf("%s: %v", f.name, err)
		}
	})
	s := &started{form: f, driver: withDriver || f.image == "demo", child: child, base: "http://" + f.address(),
		deadline: time.Now().Add(patience)}
	dial := func(context.Context, string, string) (net.Conn, error) { return dialIn(child.PID(), f.address()) }
	s.client = &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true,
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	for _, files := range f.secrets {
		if files["tls.crt"] != "" {
			s.base = "https://" + f.address()
		}
	}
	if s.doctor = func(*testing.T) {}; s.chart != nil && withDriver {
		s.doctor = f.examine(t)
	}
	return s
}

// address is where the form listens.
func (f form) address() string {
	out := ":10835" // by default, as all pages have it
	for _, e := range f.Env {
		for _, name := range []string{"GPU_EXPORTER_WEB_LISTEN_ADDRESS=", "DCGM_EXPORTER_LISTEN="} {
			if v, ok := strings.CutPrefix(e, name); ok {
				out = v
			}
		}
	}
	for _, a := range f.Args {
		if v, ok := strings.CutPrefix(a, "--web.listen-address="); ok {
			out = v
		}
	}
	if strings.HasPrefix(out, ":") {
		return "127.0.0.1" + out
	}
	return out
}

// dialIn connects within the network of a process.
func dialIn(pid int, address string) (net.Conn, error) {
	runtime.LockOSThread() // not unlocked where the thread cannot return to its own network: it then ends with the goroutine
	own, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return nil, err
	}
	defer own.Close()
	other, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", pid))
	if err != nil {
		runtime.UnlockOSThread()
		return nil, err
	}
	defer other.Close()
	if err := unix.Setns(int(other.Fd()), unix.CLONE_NEWNET); err != nil {
		runtime.UnlockOSThread()
		return nil, err
	}
	c, err := net.DialTimeout("tcp", address, 10*time.Second)
	if unix.Setns(int(own.Fd()), unix.CLONE_NEWNET) == nil {
		runtime.UnlockOSThread()
	}
	return c, err
}

// get requests a page, with the password of the forms that have one.
func (s *started) get(path string) (int, string, error) { return s.getAs(path, machine.Password) }

func (s *started) getAs(path, password string) (int, string, error) {
	p, err := testkit.Client{Client: s.client, User: "prometheus", Password: password}.Get(context.Background(), s.base+path)
	return p.Status, p.Text, err
}

// until repeats check until it succeeds, and fails at once where the program has ended.
func (s *started) until(t *testing.T, what string, check func() error) {
	t.Helper()
	if err := s.child.Within(t.Context(), max(time.Until(s.deadline), time.Second), check); err != nil {
		t.Fatalf("%s: %v\n%s", what, err, s.child.End())
	}
}

var (
	readAt      = regexp.MustCompile(`read (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) UTC`)
	startedAt   = regexp.MustCompile(`(?m)^process_start_time_seconds(?:\{.*\})? (\S+)$`)
	sourceUp    = regexp.MustCompile(`(?m)^gpu_exporter_source_up\{.*source="([^"]+)"\} ([01])$`)
	featureOf   = regexp.MustCompile(`(?m)^gpu_exporter_feature\{feature="([^"]+)",.*state="([^"]+)"\} 1$`)
	logMessage  = regexp.MustCompile(`(?m)\blevel=(?:WARN|ERROR) .*?\b(msg=.*)$`)
	jsonMessage = regexp.MustCompile(`(?m)"level":"(?:WARN|ERROR)".*?("msg":.*)$`)
)

var errNotFound = errors.New("not found")

// own is the path of the exporter's own metrics.
func (s *started) own() string {
	if s.standIn {
		return "/metrics/gpu"
	}
	return "/metrics"
}

// published is the time up to which the program has published, and that of its start.
func (s *started) published() (start, last time.Time, err error) {
	_, metrics, err := s.get(s.own())
	if err != nil {
		return start, last, err
	}
	_, page, err := s.get("/")
	m, at := startedAt.FindStringSubmatch(metrics), readAt.FindStringSubmatch(page)
	if err != nil || m == nil || at == nil {
		return start, last, fmt.Errorf("the pages have no time: %w\n%.300s", cmp.Or(err, errNotFound), metrics)
	}
	seconds, err := strconv.ParseFloat(m[1], 64)
	if err != nil {
		return start, last, err
	}
	last, err = time.Parse(time.DateTime, at[1])
	return time.Unix(int64(seconds), 0), last, err
}

// TestShipped starts every form, with the driver and without one. Each serves, publishes for a minute, is ready if there is a driver,
// and names what it lacks. testdata/forms.txt has the data sources and features of each.
func TestShipped(t *testing.T) {
	needsRoot(t)
	runtime.LockOSThread() // the programs end with the thread that started them
	defer runtime.UnlockOSThread()
	var all []*started
	match := regexp.MustCompile(*only)
	for _, f := range forms(t) {
		if !match.MatchString(f.name) {
			continue
		}
		all = append(all, f.start(t, false))
		if f.image != "demo" { // it brings its driver
			all = append(all, f.start(t, true))
		}
	}
	var list strings.Builder
	for _, s := range all {
		name := s.name + map[bool]string{true: ", driver", false: ", no driver"}[s.driver]
		t.Run(name, func(t *testing.T) { s.check(t, &list, name) })
	}
	path := filepath.Join("testdata", "forms.txt")
	if *only != "" {
		t.Log(list.String())
		return
	}
	if *update {
		write(t, path, list.String())
	}
	if want, err := os.ReadFile(path); err != nil || string(want) != list.String() {
		t.Errorf("%s is not what the forms have (%v): run go -C test test ./shipped -update and review the diff:\n%s", path, err,
			list.String())
	}
}

// needsRoot fails where the namespaces of the forms cannot be made.
func needsRoot(t *testing.T) {
	t.Helper()
	if ns, err := os.Readlink("/proc/self/ns/pid"); os.Geteuid() != 0 || err != nil || ns != "pid:[4026531836]" {
		t.Fatalf("the forms need namespaces and users as a runtime makes them: run this as root on a machine, not in a container "+
			"(user %d, %s)", os.Geteuid(), ns)
	}
	if restricted, err := os.ReadFile("/proc/sys/kernel/dmesg_restrict"); strings.TrimSpace(string(restricted)) != "1" {
		t.Fatalf("kernel.dmesg_restrict is %q (%v): set it to 1, as Debian and Ubuntu do", restricted, err)
	}
}

func (s *started) check(t *testing.T, list io.Writer, name string) {
	s.until(t, "serves", func() error {
		code, _, err := s.get("/-/healthy")
		if err == nil && code != http.StatusOK {
			err = fmt.Errorf("/-/healthy responds with %d", code)
		}
		return err
	})
	if s.driver {
		s.until(t, "ready", func() error {
			code, body, err := s.get("/-/ready")
			if err == nil && code != http.StatusOK {
				err = fmt.Errorf("/-/ready responds with %d: %s", code, body)
			}
			return err
		})
	}
	s.until(t, fmt.Sprintf("publishes for %v", lifetime), func() error {
		start, last, err := s.published()
		if err == nil && last.Sub(start) < lifetime {
			err = fmt.Errorf("for %v until now", last.Sub(start))
		}
		return err
	})
	if code, body, err := s.get("/-/ready"); (code == http.StatusOK) != s.driver {
		t.Errorf("/-/ready responds with %d, %v: %s", code, err, body)
	}
	if code, _, err := s.get("/health"); code != http.StatusOK {
		t.Errorf("/health responds with %d, %v", code, err)
	}
	_, metrics, err := s.get(s.own())
	must.OK(t, err)
	_, page, err := s.get("/")
	must.OK(t, err)
	fmt.Fprintln(list, name)
	for _, other := range s.also {
		fmt.Fprintf(list, "= %s\n", other)
	}
	states := map[string][]string{}
	for _, m := range sourceUp.FindAllStringSubmatch(metrics, -1) {
		state := map[string]string{"1": "up", "0": "down"}[m[2]]
		states[state] = append(states[state], m[1])
		if text := cell(page, m[1]); state == "down" && text == "" {
			t.Errorf("%s is down, and the page has no reason", m[1])
		}
	}
	for _, m := range featureOf.FindAllStringSubmatch(metrics, -1) {
		state := "feature " + m[2]
		states[state] = append(states[state], m[1])
		if m[2] != "on" && cell(page, m[1]) == "" {
			t.Errorf("the feature %s is disabled, and the page does not say how to enable it", m[1])
		}
	}
	if slices.Contains(states["up"], "nvml") != s.driver {
		t.Errorf("the data source nvml is up: %v", !s.driver)
	}
	for _, state := range slices.Sorted(maps.Keys(states)) {
		slices.Sort(states[state])
		fmt.Fprintf(list, "  %s: %s\n", state, strings.Join(states[state], " "))
	}
	said := map[string]bool{}
	log := s.child.String()
	for _, m := range append(logMessage.FindAllStringSubmatch(log, -1), jsonMessage.FindAllStringSubmatch(log, -1)...) {
		if said[m[1]] {
			t.Errorf("said more than once: %s", m[1])
		}
		said[m[1]] = true
	}
	s.scrapes(t)
	s.doctor(t)
}

// scrapes requests what the form's monitors scrape, and without its password.
func (s *started) scrapes(t *testing.T) {
	t.Helper()
	for _, path := range s.scraped {
		_, page, err := s.get(path)
		if names := strings.Contains(page, "\nDCGM_FI_DEV_"); err != nil || s.driver && names != (path != s.own()) {
			t.Errorf("%s is scraped; it has dcgm-exporter's names: %v, %v", path, names, err)
		}
	}
	for _, files := range s.secrets {
		if files["web-config.yml"] == "" {
			continue
		}
		if code, _, err := s.getAs("/metrics", "wrong"); code != http.StatusUnauthorized {
			t.Errorf("/metrics responds with %d to a wrong password, %v", code, err)
		}
	}
}

var tag = regexp.MustCompile(`<[^>]*>`)

// cell is the text beside a name in the tables of the page, without its state.
func cell(page, name string) string {
	_, row, _ := strings.Cut(page, "<div>"+name+"</div></td>")
	row, _, _ = strings.Cut(row, "</tr>")
	_, text, _ := strings.Cut(row, "</span>")
	return strings.TrimSpace(html.UnescapeString(tag.ReplaceAllString(text, " ")))
}

// chartValue matches the values that doctor recommends.
var chartValue = regexp.MustCompile(`features\.[a-zA-Z]+=[^);]+`)

// examine starts gpu-exporter doctor in the container, as kubectl exec does: with its environment and without its arguments. The
// function that it returns waits for the result: the chart takes the values that it recommends.
func (f form) examine(t *testing.T) func(*testing.T) {
	t.Helper()
	c := f.prepare(t, true)
	c.Args = []string{f.Args[0], "doctor", "--output=json"}
	cmd := command(t, c)
	var out, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaint
	must.OK(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	return func(t *testing.T) {
		t.Helper()
		err := cmd.Wait()
		var d struct {
			Node     string
			Findings []struct{ Check, Severity, Finding, Fix string }
		}
		if wrong := json.Unmarshal(out.Bytes(), &d); wrong != nil {
			t.Fatalf("doctor: %v, %v: %s%s", err, wrong, out.String(), complaint.String())
		}
		if d.Node != nodeName {
			t.Errorf("doctor: the node name is %s", d.Node)
		}
		for _, finding := range d.Findings {
			values := chartValue.FindAllString(finding.Fix, -1)
			for _, value := range values {
				f.takes(t, value)
			}
			name, feature := strings.CutPrefix(finding.Check, "feature ")
			// Without a kubelet doctor takes the container for a service of a host.
			kubelet := !slices.Contains(f.Env, "GPU_EXPORTER_KUBELET=false")
			if feature && finding.Severity != "ok" && len(values) == 0 && kubelet && !onHosts[name] {
				t.Errorf("doctor names no chart value that enables the feature %s: %s", name, finding.Fix)
			}
		}
	}
}

// onHosts are features of hosts without Kubernetes.
var onHosts = map[string]bool{"container_names": true, "slurm_job_numbers": true}

// taken are the values that the chart was rendered with.
var taken = map[string]bool{}

func (f form) takes(t *testing.T, value string) {
	t.Helper()
	args := append([]string{"template", "gpu-exporter", "deploy/helm/gpu-exporter"}, f.chart...)
	args = append(args, "--set", "features.ownership=true,features.processes=true,"+value)
	if key := strings.Join(args, " "); !taken[key] {
		taken[key] = true
		output(t, servers.Helm, args...)
	}
}
