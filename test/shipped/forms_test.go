package shipped_test

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/gpu-exporter/gpu-exporter/internal/architecture"
	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/internal/standin/machine"
	"github.com/gpu-exporter/gpu-exporter/test/servers"
)

// form is one way to start the exporter, as its file has it. What it mounts is of a prepared host.
type form struct {
	name string
	also []string // names of those that start the same in the same way
	container
	mounts []bind // From is a path of the host
	// driver is true where the runtime, or the installer of a host, puts the driver's library where programs find it.
	driver bool
	image  string // stage of the Dockerfile; empty: the program is the host's
	// secrets are the files of mounted secrets, by mount path.
	secrets map[string]map[string]string
	chart   []string // arguments of helm
	scraped []string // paths of the endpoints that its monitors scrape
	standIn bool     // started as dcgm-exporter
}

// as returns the form under another name, with what differs.
func (f form) as(name string, change func(*form)) form {
	f.name = name
	f.Args, f.Env, f.mounts = slices.Clone(f.Args), slices.Clone(f.Env), slices.Clone(f.mounts)
	change(&f)
	return f
}

// same reports whether two forms start the same program in the same way.
func (f form) same(g form) bool {
	f.name, f.also, f.chart, f.scraped = g.name, g.also, g.chart, g.scraped
	return fmt.Sprintf("%+v", f) == fmt.Sprintf("%+v", g)
}

func text(t *testing.T, path ...string) string {
	t.Helper()
	return must.Read(t, filepath.Join(append([]string{servers.Root(t)}, path...)...))
}

// The names of what a shell or an API server replaces.
const (
	nodeName    = "gpu-node-1"
	dockerGroup = 999
)

// words splits a command of a shell.
func words(t *testing.T, command string) (out []string) {
	t.Helper()
	command = strings.NewReplacer("\\\n", " ", `"$(hostname)"`, nodeName,
		`"$(stat -c %g /var/run/docker.sock)"`, strconv.Itoa(dockerGroup)).Replace(command)
	for _, word := range strings.Fields(command) {
		if out = append(out, strings.Trim(word, `'"`)); strings.ContainsAny(word, "$`;|&\\") {
			t.Fatalf("what is %q of %s?", word, command)
		}
	}
	return out
}

// stage is a stage of the Dockerfile: how its image starts, and which programs it has.
type stage struct {
	user, entrypoint, env, programs []string
	runAs                           string
}

var copied = regexp.MustCompile(`(?:/src/)?bin/([a-z-]+)`)

// stages reads the Dockerfile; the last stage is named "".
func stages(t *testing.T) map[string]stage {
	t.Helper()
	out, name := map[string]stage{}, ""
	for line := range strings.Lines(strings.ReplaceAll(text(t, "deploy/Dockerfile"), "\\\n", " ")) {
		f := strings.Fields(line)
		if len(f) == 0 || f[0] == "#" {
			continue
		}
		s := out[name]
		switch instruction := f[0]; {
		case instruction == "FROM":
			if name, s = "", (stage{}); len(f) == 4 {
				name = f[3]
			}
		case instruction == "ARG" && strings.HasPrefix(f[1], "RUN_AS="):
			s.runAs = strings.TrimPrefix(f[1], "RUN_AS=")
		case instruction == "USER":
			s.user = strings.Split(strings.ReplaceAll(f[1], "$RUN_AS", s.runAs), ":")
		case instruction == "ENV":
			s.env = append(s.env, f[1:]...)
		case instruction == "ENTRYPOINT":
			s.entrypoint = list(t, strings.Join(f[1:], " "))
		case strings.HasSuffix(strings.TrimSpace(line), "/usr/local/bin/"):
			for _, m := range copied.FindAllStringSubmatch(line, -1) {
				s.programs = append(s.programs, m[1])
			}
		}
		out[name] = s
	}
	return out
}

func list(t *testing.T, text string) (out []string) {
	t.Helper()
	must.OK(t, yaml.Unmarshal([]byte(text), &out))
	return out
}

func number(t *testing.T, text string) int {
	t.Helper()
	n, err := strconv.Atoi(text)
	must.OK(t, err)
	return n
}

// ofImage is a container of an image before anything is requested.
func ofImage(t *testing.T, name, stageName string) form {
	t.Helper()
	s, known := stages(t)[stageName]
	if !known || len(s.user) == 0 || len(s.entrypoint) == 0 {
		t.Fatalf("the Dockerfile has no stage %q with a user and an entry point", stageName)
	}
	f := form{name: name, image: stageName}
	f.Hostname, f.Dir = "3f1c9f1d2b7a", "/"
	f.UID = number(t, s.user[0])
	f.GID = number(t, s.user[len(s.user)-1])
	f.Args = slices.Clone(s.entrypoint)
	f.Env = append([]string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOSTNAME=" + f.Hostname}, s.env...)
	return f
}

// flagsOfDocker are the flags of docker run that have a value.
func (f *form) docker(t *testing.T, args []string) {
	t.Helper()
	dropped := false
	for len(args) > 0 && strings.HasPrefix(args[0], "-") {
		flag := args[0]
		args = args[1:]
		value := func() string {
			v := args[0]
			args = args[1:]
			return v
		}
		switch flag {
		case "-d":
		case "--name", "--restart", "-p":
			value()
		case "--gpus", "--device":
			f.driver = slices.Contains([]string{"all", "nvidia.com/gpu=all"}, value())
		case "--pid":
			f.HostPID = value() == "host"
		case "--read-only":
			f.ReadOnlyRoot = true
		case "--cap-drop":
			dropped = value() == "ALL"
		case "--security-opt":
			f.NoNewPrivileges = value() == "no-new-privileges"
		case "--group-add":
			f.Groups = append(f.Groups, number(t, value()))
		case "-v":
			from, to, _ := strings.Cut(value(), ":")
			f.mounts = append(f.mounts, bind{from, to, false})
		default:
			t.Fatalf("%s: a flag that is not simulated: %s", f.name, flag)
		}
	}
	if !dropped {
		t.Fatalf("%s: the default capabilities of Docker are not simulated", f.name)
	}
	f.Args = append(f.Args, args[1:]...) // after the image
}

// dockerForms are the commands of docs/install.md, and what its text says about Podman and the names of containers.
func dockerForms(t *testing.T) (out []form) {
	t.Helper()
	page := text(t, "docs/install.md")
	_, run, ok := strings.Cut(page, "\ndocker run -d ")
	if !ok {
		t.Fatal("docs/install.md has no docker run -d")
	}
	command, rest, _ := strings.Cut(run, "\ncurl ")
	section, _, _ := strings.Cut(rest, "\n## ")
	section = strings.ReplaceAll(section, "\n", " ")
	m := regexp.MustCompile("Podman takes `([^`]+)` instead of `([^`]+)`").FindStringSubmatch(section)
	names := regexp.MustCompile("for names add `([^`]+)` before the image and `([^`]+)` after it").FindStringSubmatch(section)
	const image = " gpu-exporter --no-kubelet "
	if m == nil || names == nil || !strings.Contains(command, m[2]) || !strings.Contains(command, image) {
		t.Fatalf("docs/install.md describes Podman and names of containers in another way: %s", section)
	}
	for _, c := range []struct{ name, command string }{{"docker run", command}, {"podman run", strings.Replace(command, m[2], m[1], 1)},
		{"docker run, names of containers", strings.Replace(command, image, " "+names[1]+image, 1) + " " + names[2]}} {
		f := ofImage(t, "docs/install.md: "+c.name, "")
		f.docker(t, words(t, c.command))
		out = append(out, f)
	}
	return out
}

// composeForm is the service of deploy/compose.
func composeForm(t *testing.T) form {
	t.Helper()
	var c struct {
		Services map[string]map[string]any
	}
	must.OK(t, yaml.Unmarshal([]byte(text(t, "deploy/compose/compose.yaml")), &c))
	f := ofImage(t, "deploy/compose", "")
	service := c.Services["gpu-exporter"]
	for _, key := range slices.Sorted(maps.Keys(service)) {
		value := service[key]
		all := fmt.Sprint(value)
		switch key {
		case "build", "image", "ports", "restart":
		case "command":
			for _, arg := range value.([]any) {
				f.Args = append(f.Args, regexp.MustCompile(`\$\{NODE_NAME:-([^}]*)\}`).ReplaceAllString(arg.(string), "$1"))
			}
		case "pid":
			f.HostPID = all == "host"
		case "read_only":
			f.ReadOnlyRoot = value == true
		case "cap_drop":
			if all != "[ALL]" {
				t.Fatalf("capabilities without %s are not simulated", all)
			}
		case "security_opt":
			f.NoNewPrivileges = all == "[no-new-privileges:true]"
		case "deploy":
			f.driver = strings.Contains(all, "driver:nvidia") && strings.Contains(all, "count:all")
		default:
			t.Fatalf("a key that is not simulated: %s", key)
		}
	}
	return f
}

// unitForm is the service of the packages, with drop-ins. Of the sandbox that is simulated which can take a file, a device or
// a permission away.
func unitForm(t *testing.T, name string, dropIns ...string) form {
	t.Helper()
	root := servers.Root(t)
	packaged, err := architecture.Packaged(root)
	must.OK(t, err)
	var settings []architecture.Setting
	for _, path := range append([]string{packaged["/usr/lib/systemd/system/gpu-exporter.service"]}, dropIns...) {
		more, err := architecture.Unit(path)
		must.OK(t, err)
		settings = append(settings, more...)
	}
	f := form{name: name, driver: true}
	f.Host, f.HostPID, f.Hostname, f.Dir = true, true, nodeName, "/"
	if f.Args, f.Env, err = architecture.Started(settings, packaged); err != nil {
		t.Fatal(err)
	}
	if packaged[f.Args[0]] == "" {
		t.Fatalf("%s is in no package", f.Args[0])
	}
	f.Env = append(f.Env, "LANG=C.UTF-8", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin")
	for _, s := range settings {
		if s.Section != "Service" {
			continue
		}
		switch s.Name {
		case "ExecStart", "EnvironmentFile", "Environment":
		case "DynamicUser":
			f.UID, f.GID = 61184, 61184 // the first of systemd's range
		case "SupplementaryGroups":
			f.Groups = append(f.Groups, 44) // video, on Debian
		case "CapabilityBoundingSet":
			f.Bounding = append(f.Bounding, strings.Fields(s.Value)...)
		case "AmbientCapabilities":
			f.Ambient = append(f.Ambient, strings.Fields(s.Value)...)
		case "NoNewPrivileges":
			f.NoNewPrivileges = s.Value == "yes"
		case "ProtectSystem":
			f.ReadOnlyRoot = s.Value == "strict"
		case "Type", "Restart", "RestartSec", "RestartPreventExitStatus", "TimeoutStopSec", // of the service manager
			"MemoryMax", "UMask", "KeyringMode", "RemoveIPC", // take no file, device or permission that is used
			"PrivateTmp", "ProtectHome", "ProtectHostname", "ProtectKernelModules", "LockPersonality", // of a host with nothing in them
			"ProtectControlGroups", "ProtectKernelTunables", // writing alone
			// test/security compares the system calls of the running program with these.
			"RestrictAddressFamilies", "RestrictNamespaces", "RestrictRealtime", "RestrictSUIDSGID", "SystemCallArchitectures",
			"SystemCallErrorNumber", "SystemCallFilter":
		default:
			t.Fatalf("%s: a setting that is not simulated: %s", name, s.Name)
		}
	}
	return f
}

// hostForms are the commands of the README, docs/install.md and the Makefile that start the program of a clone.
func hostForms(t *testing.T) (out []form) {
	t.Helper()
	base := form{driver: true}
	base.Host, base.HostPID, base.Hostname, base.Dir = true, true, nodeName, "/src"
	base.Env = []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/tmp"}
	base.UID, base.GID = 1000, 1000
	run, err := architecture.Making(servers.Root(t), "run")
	must.OK(t, err)
	commands := map[string][]string{"make run": run}
	for _, path := range []string{"README.md", "docs/install.md"} {
		for _, m := range regexp.MustCompile("`(bin/gpu-exporter[^`]*)`").FindAllStringSubmatch(text(t, path), -1) {
			commands[path+": "+m[1]] = words(t, m[1])
		}
	}
	if len(commands) < 2 {
		t.Errorf("the pages start %v", commands)
	}
	for _, name := range slices.Sorted(maps.Keys(commands)) {
		args := commands[name]
		args[0] = "/src/" + args[0]
		out = append(out, base.as(name, func(f *form) { f.Args = args }), base.as(name+", as root", func(f *form) {
			f.Args, f.UID, f.GID, f.Privileged = args, 0, 0, true
		}))
	}
	return out
}

func output(t *testing.T, p servers.Program, args ...string) string {
	t.Helper()
	cmd := exec.Command(servers.Build(t, p), args...)
	cmd.Dir = servers.Root(t)
	home := t.TempDir()
	cmd.Env = append(os.Environ(), "HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home)
	out, err := cmd.Output()
	if err != nil {
		stderr := ""
		if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
			stderr = string(exit.Stderr)
		}
		t.Fatalf("%s %s: %v\n%s", p, strings.Join(args, " "), err, stderr)
	}
	return string(out)
}

// podForm is the container of the DaemonSet among rendered objects.
func podForm(t *testing.T, name, rendered string) form {
	t.Helper()
	var d appsv1.DaemonSet
	given := map[string]map[string]string{}
	var scraped []string
	for _, doc := range strings.Split("\n"+rendered, "\n---") {
		var o struct {
			Kind     string
			Metadata struct{ Name string }
			Spec     struct{ PodMetricsEndpoints, Endpoints []struct{ Path string } }
		}
		must.OK(t, yaml.Unmarshal([]byte(doc), &o))
		switch o.Kind {
		case "DaemonSet":
			must.OK(t, yaml.UnmarshalStrict([]byte(doc), &d))
		case "ConfigMap":
			var m corev1.ConfigMap
			must.OK(t, yaml.UnmarshalStrict([]byte(doc), &m))
			given[o.Metadata.Name] = m.Data
		case "Secret":
			var s corev1.Secret
			must.OK(t, yaml.UnmarshalStrict([]byte(doc), &s))
			given[o.Metadata.Name] = s.StringData
		case "PodMonitor", "ServiceMonitor":
			for _, e := range append(o.Spec.PodMetricsEndpoints, o.Spec.Endpoints...) {
				scraped = append(scraped, e.Path)
			}
		}
	}
	pod := d.Spec.Template.Spec
	if len(pod.Containers) != 1 || len(pod.InitContainers) != 0 {
		t.Fatalf("%s: %d containers", name, len(pod.Containers))
	}
	c := pod.Containers[0]
	stageName := map[bool]string{true: "demo", false: ""}[strings.Contains(c.Image, "demo")]
	f := ofImage(t, name, stageName)
	if strings.HasSuffix(c.Image, "-root") {
		f.UID, f.GID = 0, 0
	}
	f.Hostname, f.HostPID = "gpu-exporter-x7k2p", pod.HostPID
	f.Env[1] = "HOSTNAME=" + f.Hostname
	if pod.HostNetwork || pod.HostIPC || len(c.Command) != 0 || c.WorkingDir != "" || len(c.EnvFrom) != 0 {
		t.Fatalf("%s: a field that is not simulated", name)
	}
	if stageName == "" {
		f.Args = append(f.Args, c.Args...)
	} else {
		f.Args, f.Dir = append(f.Args, c.Args...), "/src"
	}
	for _, e := range c.Env {
		value := e.Value
		if e.ValueFrom != nil {
			if e.ValueFrom.FieldRef == nil || e.ValueFrom.FieldRef.FieldPath != "spec.nodeName" {
				t.Fatalf("%s: the variable %s is not simulated", name, e.Name)
			}
			value = nodeName
		}
		f.Env = slices.DeleteFunc(f.Env, func(old string) bool { return strings.HasPrefix(old, e.Name+"=") })
		f.Env = append(f.Env, e.Name+"="+value)
	}
	if s := pod.SecurityContext; s != nil {
		if s.RunAsUser != nil {
			f.UID = int(*s.RunAsUser)
		}
		if s.RunAsGroup != nil {
			f.GID = int(*s.RunAsGroup)
		}
	}
	s := c.SecurityContext
	if s.RunAsUser != nil {
		f.UID = int(*s.RunAsUser)
	}
	f.Privileged = s.Privileged != nil && *s.Privileged
	f.NoNewPrivileges = s.AllowPrivilegeEscalation != nil && !*s.AllowPrivilegeEscalation
	f.ReadOnlyRoot = s.ReadOnlyRootFilesystem != nil && *s.ReadOnlyRootFilesystem
	if !f.Privileged {
		if s.Capabilities == nil || !slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) {
			t.Fatalf("%s: the default capabilities are not simulated", name)
		}
		for _, a := range s.Capabilities.Add {
			f.Bounding = append(f.Bounding, "CAP_"+string(a))
		}
	}
	// NVIDIA's runtime, a CDI device or a claim; with gpu.access=none the default runtime, by the variable.
	visible := slices.Contains(f.Env, "NVIDIA_VISIBLE_DEVICES=all")
	cdi := d.Spec.Template.Annotations["cdi.k8s.io/gpu-exporter"] != ""
	f.driver = stageName == "" && (visible || cdi || len(c.Resources.Claims) > 0)
	f.volumes(t, pod, c, given)
	f.scraped = scraped
	return f
}

// tokens is where the kubelet mounts the token of the service account.
const tokens = "/var/run/secrets/kubernetes.io/serviceaccount"

func (f *form) volumes(t *testing.T, pod corev1.PodSpec, c corev1.Container, given map[string]map[string]string) {
	t.Helper()
	f.secrets = map[string]map[string]string{}
	volumes := map[string]corev1.Volume{}
	for _, v := range pod.Volumes {
		volumes[v.Name] = v
	}
	for _, m := range c.VolumeMounts {
		switch v := volumes[m.Name]; {
		case v.ConfigMap != nil && m.SubPath != "":
			text := given[v.ConfigMap.Name][v.ConfigMap.Items[0].Key]
			f.secrets[filepath.Dir(m.MountPath)] = map[string]string{filepath.Base(m.MountPath): text}
		case v.HostPath != nil:
			f.mounts = append(f.mounts, bind{v.HostPath.Path, m.MountPath, m.ReadOnly})
		case v.Secret != nil:
			files, rendered := given[v.Secret.SecretName]
			if !rendered {
				files = ownSecret(t, v.Secret.SecretName)
			}
			f.secrets[m.MountPath] = files
		case v.EmptyDir != nil:
			f.secrets[m.MountPath] = map[string]string{}
		default:
			t.Fatalf("%s: the volume %s is not simulated", f.name, m.Name)
		}
	}
	if pod.AutomountServiceAccountToken == nil || *pod.AutomountServiceAccountToken {
		f.secrets[tokens] = map[string]string{"token": "token", "ca.crt": certificate(t)["cert.pem"], "namespace": "monitoring"}
		// The kubelet sets these in every container. The network has no such address: the API server does not respond.
		f.Env = append(f.Env, "KUBERNETES_SERVICE_HOST=10.96.0.1", "KUBERNETES_SERVICE_PORT=443")
	}
}

// kustomizeForms are the base and the overlays.
func kustomizeForms(t *testing.T) (out []form) {
	t.Helper()
	root := filepath.Join(servers.Root(t), "deploy", "kustomize")
	overlays, err := filepath.Glob(filepath.Join(root, "overlays", "*"))
	if err != nil || len(overlays) < 5 {
		t.Fatalf("%d overlays: %v", len(overlays), err)
	}
	for _, dir := range append([]string{filepath.Join(root, "base")}, overlays...) {
		name, err := filepath.Rel(servers.Root(t), dir)
		must.OK(t, err)
		out = append(out, podForm(t, name, output(t, servers.Kustomize, "build", dir)))
	}
	return out
}

var (
	helmCommand = regexp.MustCompile(`(?m)^ *helm (?:upgrade|install) gpu-exporter (deploy/helm/gpu-exporter(?: .*\\\n)*.*)$`)
	tableValue  = regexp.MustCompile("\\| `(features\\.[^`]+=[^`]+)` \\|")
)

// chartForms are the chart with each of its values files, with the arguments of every helm command of the pages, and with
// each value of the table in docs/install.md.
func chartForms(t *testing.T) (out []form) {
	t.Helper()
	sets := map[string][]string{"": nil}
	files, err := filepath.Glob(filepath.Join(servers.Root(t), "deploy/helm/gpu-exporter/ci/*-values.yaml"))
	if err != nil || len(files) < 6 {
		t.Fatalf("%d values files: %v", len(files), err)
	}
	for _, path := range files {
		name := strings.TrimSuffix(filepath.Base(path), "-values.yaml") + " values"
		sets[name] = []string{"--values=" + path}
		if strings.Contains(text(t, "deploy/helm/gpu-exporter/ci", filepath.Base(path)), "basicAuth:\n    users:") {
			// The user's own password.
			sets[name] = append(sets[name], "--set", "web.basicAuth.users.prometheus="+machine.PasswordHash)
		}
	}
	pages, err := architecture.Pages(servers.Root(t))
	must.OK(t, err)
	commands := 0
	for _, p := range pages {
		ofPage := 0
		for _, b := range p.Blocks {
			for _, m := range helmCommand.FindAllStringSubmatch(b.Text, -1) {
				commands++
				ofPage++
				args := slices.DeleteFunc(words(t, m[1])[1:], func(a string) bool {
					return a == "--create-namespace" || a == "--reset-then-reuse-values" || a == "--reuse-values"
				})
				sets[fmt.Sprintf("%s, command %d", p.Path, ofPage)] = args
			}
		}
		for _, m := range tableValue.FindAllStringSubmatch(p.Prose, -1) {
			sets[m[1]] = []string{"--set", m[1]}
		}
	}
	if commands < 10 || len(sets) < 20 {
		t.Errorf("the pages have %d commands, and %d sets of values", commands, len(sets))
	}
	for _, name := range slices.Sorted(maps.Keys(sets)) {
		// As in a cluster with the Prometheus operator.
		args := append([]string{"-a", "monitoring.coreos.com/v1/PodMonitor", "-a", "monitoring.coreos.com/v1/PrometheusRule", "--set",
			"dashboards.kind=none,image.repository=registry.example.com/gpu-exporter"}, sets[name]...)
		f := podForm(t, strings.TrimSuffix("chart: "+name, ": "), output(t, servers.Helm, append([]string{"template", "gpu-exporter",
			"deploy/helm/gpu-exporter"}, args...)...))
		f.chart = args
		out = append(out, f)
	}
	return out
}

// standIns are the DaemonSets of others for dcgm-exporter, with the exporter's image in them.
func standIns(t *testing.T) (out []form) {
	t.Helper()
	for _, name := range []string{"gpu-operator", "dcgm-exporter-chart"} {
		f := podForm(t, "as dcgm-exporter: "+name, text(t, "test/shipped/testdata/stands-in/"+name+".yaml"))
		f.standIn, f.scraped = true, []string{"/metrics"}
		out = append(out, f)
	}
	return out
}

// forms are all of them; those that start the same in the same way are one.
func forms(t *testing.T) (out []form) {
	t.Helper()
	kernelLog := filepath.Join(servers.Root(t), "deploy/systemd/kernel-log.conf")
	all := slices.Concat([]form{unitForm(t, "deploy/systemd"), unitForm(t, "deploy/systemd, kernel-log.conf", kernelLog),
		composeForm(t)}, dockerForms(t), hostForms(t), chartForms(t), kustomizeForms(t), standIns(t))
	for _, f := range all {
		at := slices.IndexFunc(out, f.same)
		if at < 0 {
			out = append(out, f)
			continue
		}
		out[at].also, out[at].scraped = append(out[at].also, f.name), append(out[at].scraped, f.scraped...)
		if out[at].chart == nil {
			out[at].chart = f.chart
		}
	}
	return out
}
