package deploy_test

import (
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/gpu-exporter/gpu-exporter/internal/must"
)

const (
	releaseVersion  = "v1.2.3-rc1"
	releaseRevision = "0123456789abcdef0123456789abcdef01234567"
)

// makeRelease makes a whole release in a copy of the repository and returns its directory. The image has no base: this machine
// may reach no registry.
func makeRelease(t *testing.T, copied string) string {
	t.Helper()
	pipe := exec.Command("bash", "-euo", "pipefail", "-c",
		`tar --exclude=./bin --exclude=./.git --exclude=./.cache -cf - . | tar -C "$1" -xf -`, "copy", copied)
	pipe.Dir = root(t)
	if out, err := pipe.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	cmd := exec.Command(filepath.Join(copied, "deploy", "release"))
	cmd.Env = append(os.Environ(), "VERSION="+releaseVersion, "REVISION="+releaseRevision, "SOURCE_DATE_EPOCH=1750000000", "BASE=scratch",
		"IMAGE=ghcr.io/gpu-exporter/gpu-exporter",
		"ARCHS="+releaseArch(), "SYSTEMS="+strings.Join(slices.Sorted(maps.Keys(otherSystems())), " "))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return filepath.Join(copied, "bin", "release")
}

// releaseArch is the architecture to make a release for: this machine's, or that of test/deploy/cross.
func releaseArch() string {
	if arch := os.Getenv("CROSS"); arch != "" {
		return arch
	}
	return runtime.GOARCH
}

var (
	releaseOnce sync.Once
	releaseDir  string
)

// release is made once for all tests.
func release(t *testing.T) string {
	t.Helper()
	releaseOnce.Do(func() {
		dir, err := os.MkdirTemp("", "gpu-exporter-release-")
		must.OK(t, err)
		releaseDir = makeRelease(t, dir)
	})
	if releaseDir == "" {
		t.Fatal("the release could not be made")
	}
	return releaseDir
}

func TestMain(m *testing.M) {
	code := m.Run()
	if releaseDir != "" {
		os.RemoveAll(filepath.Dir(filepath.Dir(releaseDir)))
	}
	os.Exit(code)
}

// unpack unpacks one file of the release.
func unpack(t *testing.T, name string) string {
	t.Helper()
	dir := t.TempDir()
	output(t, dir, "tar", "-xzf", filepath.Join(release(t), name))
	return dir
}

// A release has its parts and their checksums, and its programs and chart name its version. Made in another directory it is the same, byte
// for byte.
func TestRelease(t *testing.T) {
	dir, arch := release(t), releaseArch()
	sums := must.Read(t, filepath.Join(dir, "SHA256SUMS"))
	var names []string
	for _, m := range regexp.MustCompile(`(?m)^[0-9a-f]{64}  (\S+)$`).FindAllStringSubmatch(sums, -1) {
		names = append(names, m[1])
	}
	programs := "gpu-exporter-" + releaseVersion + "-linux-" + arch
	rpmArch := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[arch]
	want := []string{"gpu-exporter-1.2.3.rc1-1." + rpmArch + ".rpm", "gpu-exporter-chart-1.2.3-rc1.tgz",
		"gpu-exporter-" + releaseVersion + "-dashboards-and-rules.tar.gz", "gpu-exporter-" + releaseVersion + "-image.tar.gz",
		"gpu-exporter-" + releaseVersion + "-root-image.tar.gz",
		programs + ".cdx.json", programs + ".tar.gz",
		"gpu-hwcheck-" + releaseVersion + "-linux-" + arch + ".tar.gz", "gpu-exporter_1.2.3.rc1-1_" + arch + ".deb",
		"gpu-report-" + releaseVersion + "-linux-" + arch + ".cdx.json", "gpu-migrate-" + releaseVersion + "-linux-" + arch + ".cdx.json"}
	for system := range otherSystems() {
		of := releaseVersion + "-" + system
		want = append(want, "gpu-report-"+of+".tar.gz", "gpu-report-"+of+".cdx.json", "gpu-migrate-"+of+".cdx.json")
	}
	slices.Sort(want)
	slices.Sort(names)
	if !slices.Equal(names, want) {
		t.Errorf("the release consists of\n%s\nwant\n%s", strings.Join(names, "\n"), strings.Join(want, "\n"))
	}
	output(t, dir, "sha256sum", "--check", "--strict", "SHA256SUMS")

	unpacked := filepath.Join(unpack(t, programs+".tar.gz"), programs)
	for _, name := range []string{"gpu-exporter", "gpu-report", "gpu-migrate"} {
		isRelease(t, "", filepath.Join(unpacked, name))
		hasModules(t, filepath.Join(dir, name+"-"+releaseVersion+"-linux-"+arch+".cdx.json"), filepath.Join(unpacked, name),
			must.Read(t, filepath.Join(unpacked, "THIRD_PARTY_NOTICES")))
	}
	for _, name := range []string{"LICENSE", "CHANGELOG.md", "gpu-exporter.service"} {
		if must.Read(t, filepath.Join(unpacked, name)) == "" {
			t.Errorf("%s is empty", name)
		}
	}
	shared := filepath.Join(unpack(t, "gpu-exporter-"+releaseVersion+"-dashboards-and-rules.tar.gz"), "*")
	for pattern, minimum := range map[string]int{"dashboards/*.json": 9, "dashboards-v2/*.json": 9, "alerts/*.yaml": 4} {
		if found, _ := filepath.Glob(filepath.Join(shared, pattern)); len(found) < minimum {
			t.Errorf("%d files of %s", len(found), pattern)
		}
	}
	out, err := helm(t, "template", "gpu-exporter", filepath.Join(dir, "gpu-exporter-chart-1.2.3-rc1.tgz"))
	if err != nil || !strings.Contains(out, `image: "registry.example.com/gpu-exporter:1.2.3-rc1"`) ||
		!strings.Contains(out, "helm.sh/chart: gpu-exporter-1.2.3-rc1\n") {
		t.Errorf("the chart of the release: %v\n%.2000s", err, out)
	}
	values := must.Read(t, filepath.Join(unpack(t, "gpu-exporter-chart-1.2.3-rc1.tgz"), "gpu-exporter", "values.yaml"))
	if !strings.Contains(values, "\n  repository: \"ghcr.io/gpu-exporter/gpu-exporter\"\n") {
		t.Error("the chart of a published release does not name its image")
	}

	if again := must.Read(t, filepath.Join(makeRelease(t, t.TempDir()), "SHA256SUMS")); again != sums {
		t.Errorf("made again in another directory, the release differs:\n%s\n%s", sums, again)
	}
}

// otherSystems are those that gpu-report and gpu-migrate are also released for, with how an executable file of it begins: here the one
// that differs most, as each takes minutes of a core, and all of them in test/deploy/cross.
func otherSystems() map[string]string {
	systems := map[string]string{"windows-amd64": "MZ"}
	if os.Getenv("CROSS") != "" {
		systems["darwin-amd64"] = "\xcf\xfa\xed\xfe\x07\x00\x00\x01" // <mach-o/loader.h>: MH_MAGIC_64, CPU_TYPE_X86_64
		systems["darwin-arm64"] = "\xcf\xfa\xed\xfe\x0c\x00\x00\x01" // CPU_TYPE_ARM64
	}
	return systems
}

// Each archive for another system has programs of this system and version, with no C library, and their licenses. Nothing here runs them.
func TestOtherSystems(t *testing.T) {
	for system, form := range otherSystems() {
		name := "gpu-report-" + releaseVersion + "-" + system
		dir := filepath.Join(unpack(t, name+".tar.gz"), name)
		goos, goarch, _ := strings.Cut(system, "-")
		for _, program := range []string{"gpu-report", "gpu-migrate"} {
			file := filepath.Join(dir, program+map[string]string{"windows": ".exe"}[goos])
			bytes, built := must.Read(t, file), output(t, "", "go", "version", "-m", file)
			if !strings.HasPrefix(bytes, form) || !strings.Contains(bytes, releaseVersion) || !strings.Contains(built, "GOARCH="+goarch) ||
				!strings.Contains(built, "GOOS="+goos) || !strings.Contains(built, "CGO_ENABLED=0") {
				t.Errorf("%s is not one of %s for %s: it begins with %q and is built with\n%s", file, releaseVersion, system, bytes[:8],
					built)
			}
			hasModules(t, filepath.Join(release(t), program+"-"+releaseVersion+"-"+system+".cdx.json"), file,
				must.Read(t, filepath.Join(dir, "THIRD_PARTY_NOTICES")))
		}
		if must.Read(t, filepath.Join(dir, "LICENSE")) == "" || must.Read(t, filepath.Join(dir, "CHANGELOG.md")) == "" {
			t.Errorf("%s has no license or no changelog", name)
		}
	}
}

// isRelease checks that a program of the release starts, in an emulator where it is for another architecture, and what it prints for
// --version.
func isRelease(t *testing.T, rootfs, program string) {
	t.Helper()
	args := []string{program, "--version"}
	if releaseArch() != runtime.GOARCH {
		args = append([]string{"qemu-aarch64", "-L", "/usr/aarch64-linux-gnu"}, args...)
	}
	out := output(t, rootfs, args[0], args[1:]...)
	for _, want := range []string{filepath.Base(program) + ", version " + releaseVersion + " (revision " + releaseRevision + ")",
		"platform:    linux/" + releaseArch(), "go version:  " + runtime.Version()} {
		if !strings.Contains(out, want) {
			t.Errorf("%s --version prints\n%s\nwithout %q", program, out, want)
		}
	}
}

// hasModules checks that every module that a program links is in its SBOM, and has its license in the notices.
func hasModules(t *testing.T, sbom, program, notices string) {
	t.Helper()
	var listed struct {
		Components []struct{ Name, Version string }
	}
	must.OK(t, json.Unmarshal([]byte(must.Read(t, sbom)), &listed))
	modules := 0
	for _, line := range strings.Split(output(t, "", "go", "version", "-m", program), "\n") {
		f := strings.Fields(line)
		if len(f) < 3 || f[0] != "dep" || f[1] == "github.com/gpu-exporter/gpu-exporter" { // the module beside gpu-migrate's
			continue
		}
		modules++
		if !slices.Contains(listed.Components, struct{ Name, Version string }{f[1], f[2]}) {
			t.Errorf("%s lacks %s %s", sbom, f[1], f[2])
		}
		if !strings.Contains(notices, "\n======== "+f[1]+"/") {
			t.Errorf("the notices lack the license of %s", f[1])
		}
	}
	if modules < 5 || !strings.Contains(notices, "\n======== Go standard library/LICENSE") {
		t.Errorf("%d modules are linked into %s", modules, program)
	}
}

// The image is that of the Dockerfile's last stage: configuration, labels, and files that belong to root.
func TestImage(t *testing.T) {
	dir := filepath.Join(unpack(t, "gpu-exporter-"+releaseVersion+"-image.tar.gz"), "image")
	type described struct {
		Digest      string
		Annotations map[string]string
	}
	blob := func(d described) string {
		return filepath.Join(dir, "blobs", "sha256", strings.TrimPrefix(d.Digest, "sha256:"))
	}
	read := func(path string, into any) {
		must.OK(t, json.Unmarshal([]byte(must.Read(t, path)), into))
	}
	var top, index struct{ Manifests []described }
	var manifest struct {
		Config described
		Layers []described
	}
	var image struct {
		Architecture, OS, Created string
		Config                    struct {
			User                 string
			Entrypoint, Cmd, Env []string
			ExposedPorts         map[string]any
			Labels               map[string]string
		}
	}
	read(filepath.Join(dir, "index.json"), &top)
	read(blob(top.Manifests[0]), &index)
	read(blob(index.Manifests[0]), &manifest)
	read(blob(manifest.Config), &image)
	c := image.Config
	if image.Architecture != releaseArch() || image.OS != "linux" || image.Created != "2025-06-15T15:06:40Z" || c.User != "65534:65534" ||
		!slices.Equal(c.Entrypoint, []string{"/usr/local/bin/gpu-exporter"}) || len(c.Cmd) != 0 || len(c.ExposedPorts) != 1 {
		t.Errorf("the image's configuration is %+v", image)
	}
	// NVIDIA_MIG_MONITOR_DEVICES would keep NVIDIA's runtime from starting a container without CAP_SYS_ADMIN.
	if want := []string{"NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_DRIVER_CAPABILITIES=utility"}; !slices.Equal(c.Env, want) {
		t.Errorf("environment %v, want %v", c.Env, want)
	}
	if _, ok := c.ExposedPorts["10835/tcp"]; !ok || top.Manifests[0].Annotations["org.opencontainers.image.ref.name"] != releaseVersion {
		t.Errorf("ports %v, tagged %v", c.ExposedPorts, top.Manifests[0].Annotations)
	}
	for label, want := range map[string]string{"version": releaseVersion, "revision": releaseRevision, "licenses": "Apache-2.0"} {
		if got := c.Labels["org.opencontainers.image."+label]; got != want {
			t.Errorf("label %s is %q, want %q", label, got, want)
		}
	}
	if len(manifest.Layers) != 1 {
		t.Fatalf("%d layers on the base image", len(manifest.Layers))
	}
	listing := regexp.MustCompile(`(?m) +\d+ \d{4}-\d\d-\d\d \d\d:\d\d `).ReplaceAllString(output(t, "", "tar", "-tvzf",
		blob(manifest.Layers[0])), " ")
	const want = `-rwxr-xr-x 0/0 usr/local/bin/gpu-exporter
-rwxr-xr-x 0/0 usr/local/bin/gpu-report
-rw-r--r-- 0/0 licenses/gpu-exporter/THIRD_PARTY_NOTICES
-rw-r--r-- 0/0 licenses/gpu-exporter/LICENSE
`
	if listing != want {
		t.Errorf("the image adds to its base\n%s\nwant\n%s", listing, want)
	}
	rootfs := t.TempDir()
	output(t, rootfs, "tar", "-xzf", blob(manifest.Layers[0]))
	isRelease(t, rootfs, filepath.Join(rootfs, c.Entrypoint[0]))
}

// The changelog's lines have one form, so that tools can read it.
func TestChangelog(t *testing.T) {
	form := regexp.MustCompile(`^- \[(CHANGE|FEATURE|ENHANCEMENT|BUGFIX)\] [A-Za-z0-9 ./_-]+: .+\.$`)
	for i, line := range strings.Split(strings.TrimSpace(must.Read(t, filepath.Join(root(t), "CHANGELOG.md"))), "\n") {
		if line == "" || strings.HasPrefix(line, "# ") || strings.HasPrefix(line, "## ") || strings.HasPrefix(line, "Lines are ") {
			continue
		}
		if !form.MatchString(line) {
			t.Errorf("CHANGELOG.md:%d: %q is not of the form - [KIND] subject: effect.", i+1, line)
		}
	}
}
