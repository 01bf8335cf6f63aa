package deploy_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/gpu-exporter/gpu-exporter/internal/must"
)

func output(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// installedFiles are the files of both packages with their modes; only the directory of zsh completions differs.
func installedFiles(zsh string) []string {
	return []string{
		"-rw-r--r-- /etc/default/gpu-exporter",
		"-rw-r--r-- /usr/lib/systemd/system/gpu-exporter.service",
		"-rw-r--r-- /usr/lib/systemd/system/gpu-exporter.socket",
		"-rw-r--r-- /usr/share/bash-completion/completions/gpu-exporter",
		"-rw-r--r-- /usr/share/bash-completion/completions/gpu-migrate",
		"-rw-r--r-- /usr/share/bash-completion/completions/gpu-report",
		"-rw-r--r-- /usr/share/doc/gpu-exporter/CHANGELOG.md",
		"-rw-r--r-- /usr/share/doc/gpu-exporter/THIRD_PARTY_NOTICES",
		"-rw-r--r-- /usr/share/doc/gpu-exporter/copyright",
		"-rw-r--r-- /usr/share/doc/gpu-exporter/examples/kernel-log.conf",
		"-rw-r--r-- /usr/share/man/man1/gpu-exporter.1.gz",
		"-rw-r--r-- /usr/share/man/man1/gpu-migrate.1.gz",
		"-rw-r--r-- /usr/share/man/man1/gpu-report.1.gz",
		"-rw-r--r-- /usr/share/zsh/" + zsh + "/_gpu-exporter",
		"-rw-r--r-- /usr/share/zsh/" + zsh + "/_gpu-migrate",
		"-rw-r--r-- /usr/share/zsh/" + zsh + "/_gpu-report",
		"-rwxr-xr-x /usr/bin/gpu-exporter",
		"-rwxr-xr-x /usr/bin/gpu-migrate",
		"-rwxr-xr-x /usr/bin/gpu-report",
		"-rwxr-xr-x /usr/share/doc/gpu-exporter/examples/slurm/epilog.sh",
		"-rwxr-xr-x /usr/share/doc/gpu-exporter/examples/slurm/prolog.sh",
	}
}

// listed returns modes and paths of a listing without directories; all belong to root.
func listed(t *testing.T, listing string) []string {
	t.Helper()
	var out []string
	for _, line := range strings.Split(strings.TrimSpace(listing), "\n") {
		f := strings.Fields(line)
		if strings.HasPrefix(f[0], "d") {
			continue
		}
		if !strings.Contains(line, "root/root") && !strings.Contains(line, " root     root ") {
			t.Errorf("not root's: %s", line)
		}
		out = append(out, f[0]+" "+strings.TrimPrefix(f[len(f)-1], "."))
	}
	slices.Sort(out)
	return out
}

// Both packages install the same files, their programs run, and every variable of the unit's environment is a flag.
func TestPackages(t *testing.T) {
	deb, err := filepath.Glob(filepath.Join(release(t), "*.deb"))
	rpm, err2 := filepath.Glob(filepath.Join(release(t), "*.rpm"))
	if len(deb) != 1 || len(rpm) != 1 {
		t.Fatalf("packages %v %v: %v %v", deb, rpm, err, err2)
	}
	isPackage(t, deb[0], rpm[0])
}

func isPackage(t *testing.T, deb, rpm string) {
	if got := listed(t, output(t, "", "dpkg-deb", "-c", deb)); !slices.Equal(got, installedFiles("vendor-completions")) {
		t.Errorf("the deb has\n%s", strings.Join(got, "\n"))
	}
	if got := listed(t, output(t, "", "rpm", "-qplv", rpm)); !slices.Equal(got, installedFiles("site-functions")) {
		t.Errorf("the rpm has\n%s", strings.Join(got, "\n"))
	}
	for field, want := range map[string]string{"Version": "1.2.3.rc1-1", "Depends": "libc6 (>= 2.34)", "Architecture": runtime.GOARCH} {
		if got := strings.TrimSpace(output(t, "", "dpkg-deb", "-f", deb, field)); got != want {
			t.Errorf("the deb's %s is %s", field, got)
		}
	}
	for what, args := range map[string][]string{
		"1.2.3.rc1 1 Apache-2.0 gpu-exporter": {"--qf", "%{VERSION} %{RELEASE} %{LICENSE} %{BUILDHOST}"},
		"/etc/default/gpu-exporter":           {"-c"},
		"glibc >= 2.34":                       {"--requires"},
	} {
		if got := output(t, "", "rpm", append([]string{"-qp", rpm}, args...)...); !strings.Contains(got, what) {
			t.Errorf("rpm prints %q, want %s", got, what)
		}
	}

	dir := t.TempDir()
	output(t, "", "dpkg-deb", "-x", deb, dir)
	output(t, "", "dpkg-deb", "-e", deb, filepath.Join(dir, "DEBIAN"))
	if got := must.Read(t, filepath.Join(dir, "DEBIAN", "conffiles")); strings.TrimSpace(got) != "/etc/default/gpu-exporter" {
		t.Errorf("files of the administrator's: %q", got)
	}
	for _, script := range []string{"postinst", "prerm"} {
		output(t, "", "sh", "-n", filepath.Join(dir, "DEBIAN", script))
	}
	for _, p := range []struct {
		name, purpose, flag string // flag is a prefix to complete
		offers, manual      []string
	}{
		{"gpu-exporter", "Prometheus exporter of NVIDIA GPUs", "--poll.",
			[]string{"--poll.fast", "--poll.medium", "--poll.slow", "--poll.kubelet"},
			[]string{"/etc/default/gpu-exporter", "its library and kernel module differ"}},
		{"gpu-report", "capacity report of a GPU fleet: how GPU-hours were used, and how to use more of them", "--prometheus.",
			[]string{"--prometheus.url", "--prometheus.token-file"},
			[]string{"a partial report was written", "GPU_REPORT_PROMETHEUS_URL"}},
		{"gpu-migrate", "check of queries written for other GPU exporters", "ch", []string{"check"},
			[]string{"some are not supported", "--rewrite"}},
	} {
		t.Run(p.name, func(t *testing.T) {
			program := filepath.Join(dir, "usr", "bin", p.name)
			if got := output(t, "", program, "--version"); !strings.Contains(got, p.name+", version ") {
				t.Errorf("--version prints %s", got)
			}
			completes(t, dir, p.name, p.flag, p.offers)
			isManual(t, filepath.Join(dir, "usr/share/man/man1", p.name+".1.gz"), program, p.name+` \- `+p.purpose, p.manual)
		})
	}
	t.Run("environment", func(t *testing.T) { environmentIsTaken(t, filepath.Join(dir, "usr", "bin", "gpu-exporter")) })
}

// completes completes a prefix of a flag in bash with the installed file, and checks that the zsh file is one.
func completes(t *testing.T, dir, name, begin string, offers []string) {
	t.Helper()
	script := `source "$1"; COMP_WORDS=("$2" "$4"); COMP_CWORD=1; "_$3_bash_autocomplete"; printf '%s\n' "${COMPREPLY[@]}"`
	got := strings.Fields(output(t, "", "bash", "-c", script, "bash", filepath.Join(dir, "usr/share/bash-completion/completions", name),
		filepath.Join(dir, "usr", "bin", name), name, begin))
	for _, want := range offers {
		if !slices.Contains(got, want) {
			t.Errorf("bash does not offer %s: %s", want, got)
		}
	}
	for _, word := range got {
		if !strings.HasPrefix(word, begin) {
			t.Errorf("bash offers %s for %s", word, begin)
		}
	}
	if zsh := must.Read(t, filepath.Join(dir, "usr/share/zsh/vendor-completions/_"+name)); !strings.HasPrefix(zsh, "#compdef "+name+"\n") {
		t.Errorf("the zsh completion is %s", zsh)
	}
}

// isManual checks the form of a manual page and that it has every flag of its program.
func isManual(t *testing.T, path, program, first string, has []string) {
	t.Helper()
	page := output(t, "", "gzip", "-dc", path)
	name, _, _ := strings.Cut(first, " ")
	if !strings.HasPrefix(page, `.TH `+strings.ToUpper(name)+` 1 "" "`+name+` v1.2.3-rc1" "User Commands"`+"\n.SH \"NAME\"\n"+first+"\n") {
		t.Errorf("the page begins with %.200s", page)
	}
	for _, flag := range flagsOf(t, program) {
		if !strings.Contains(page, "--"+flag) && !strings.Contains(page, "--[no-]"+flag) {
			t.Errorf("the page lacks --%s", flag)
		}
	}
	for _, want := range has {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	unpacked := filepath.Join(t.TempDir(), name+".1")
	must.OK(t, os.WriteFile(unpacked, []byte(page), 0o644))
	if out := output(t, "", "groff", "-man", "-Tutf8", "-ww", "-z", unpacked); out != "" {
		t.Errorf("groff complains of the page: %s", out)
	}
}

var inHelp = regexp.MustCompile(`(?m)^ +(?:-., )?--(?:\[no-\])?([a-z][a-z.-]+)`)

func flagsOf(t *testing.T, program string) []string {
	t.Helper()
	var out []string
	for _, m := range inHelp.FindAllStringSubmatch(output(t, "", program, "--help"), -1) {
		out = append(out, m[1])
	}
	if len(out) < 4 {
		t.Fatalf("--help lists %d flags", len(out))
	}
	return out
}

// The exporter accepts every line of the environment file.
func environmentIsTaken(t *testing.T, program string) {
	known := []string{"NODE_NAME"}
	for _, f := range flagsOf(t, program) {
		known = append(known, "GPU_EXPORTER_"+strings.ToUpper(regexp.MustCompile(`[^a-z]+`).ReplaceAllString(f, "_")))
	}
	cmd := exec.Command(program, "doctor", "--no-kubelet", "--path.kmsg=")
	cmd.Env = os.Environ()
	lines := 0
	for _, line := range strings.Split(must.Read(t, filepath.Join(root(t), "deploy/systemd/gpu-exporter.default")), "\n") {
		name, value, ok := strings.Cut(strings.TrimPrefix(line, "#"), "=")
		if !ok || strings.Contains(name, " ") {
			continue
		}
		lines++
		if name == "OPTIONS" {
			if value != `"--path.kmsg="` {
				t.Errorf("the example of OPTIONS is %s", value)
			}
			continue
		}
		if !slices.Contains(known, name) {
			t.Errorf("no flag reads %s", name)
		}
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	out, err := cmd.CombinedOutput()
	// 20: it examined this machine, which has no driver. 2 would be a flag that cannot be.
	if code := cmd.ProcessState.ExitCode(); code != 20 && code != 10 && code != 0 || lines < 8 {
		t.Errorf("%d lines; %v\n%s", lines, err, out)
	}
}

// The unit keeps the exporter as small as it can be: systemd's own measure, and the lines that it must not have.
func TestUnit(t *testing.T) {
	dir := filepath.Join(root(t), "deploy", "systemd")
	output(t, "", "systemd-analyze", "security", "--offline=yes", "--threshold=26", filepath.Join(dir, "gpu-exporter.service"))

	// Verified in a tree of its own, where the program is at its place.
	tree := t.TempDir()
	units := filepath.Join(tree, "units")
	for _, d := range []string{units, filepath.Join(tree, "bin")} {
		must.OK(t, os.MkdirAll(d, 0o755))
	}
	program := filepath.Join(tree, "bin", "gpu-exporter")
	must.OK(t, os.WriteFile(program, []byte("#!/bin/sh\n"), 0o755))
	var paths []string
	for _, name := range []string{"gpu-exporter.service", "gpu-exporter.socket"} {
		path := filepath.Join(units, name)
		text := strings.ReplaceAll(must.Read(t, filepath.Join(dir, name)), "/usr/bin/gpu-exporter", program)
		text = strings.ReplaceAll(text, "man:gpu-exporter(1) ", "")
		must.OK(t, os.WriteFile(path, []byte(text), 0o644))
		paths = append(paths, path)
	}
	if out := output(t, "", "systemd-analyze", append([]string{"verify", "--recursive-errors=no"},
		paths...)...); strings.TrimSpace(out) != "" {
		t.Errorf("systemd-analyze: %s", out)
	}

	set := map[string]string{}
	for _, line := range strings.Split(must.Read(t, filepath.Join(dir, "gpu-exporter.service")), "\n") {
		if name, value, ok := strings.Cut(line, "="); ok && !strings.HasPrefix(line, "#") {
			set[name] = value
		}
	}
	for name, reason := range map[string]string{
		"PrivateDevices": "it hides the GPUs", "DeviceAllow": "it fixes the list of devices before the driver is loaded",
		"DevicePolicy": "as DeviceAllow",
		"ProtectClock": "it sets DeviceAllow", "ProtectProc": "it hides the owners of processes",
		"PrivateUsers":      "it hides the owners of processes",
		"ProtectKernelLogs": "it hides /dev/kmsg",
		"PrivateNetwork":    "it could not be scraped",
	} {
		if v, ok := set[name]; ok {
			t.Errorf("%s=%s: %s", name, v, reason)
		}
	}
	if set["CapabilityBoundingSet"] != "" || set["AmbientCapabilities"] != "" || set["DynamicUser"] != "yes" {
		t.Errorf("capabilities %q and %q, a user of its own: %q", set["CapabilityBoundingSet"], set["AmbientCapabilities"],
			set["DynamicUser"])
	}
	// A flag of --no-kubelet beside those that need it would end the service at once.
	if !strings.HasPrefix(set["ExecStart"], "/usr/bin/gpu-exporter --no-kubelet $OPTIONS") {
		t.Errorf("starts %s", set["ExecStart"])
	}
}
