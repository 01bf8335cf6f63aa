package deploy_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// released makes the quick parts of a release in a copy of the repository and returns their folder. The image and the packages have tests of
// their own, which make them twice.
func released(t *testing.T) string {
	t.Helper()
	copied := filepath.Join(t.TempDir(), "elsewhere")
	if err := os.Mkdir(copied, 0o755); err != nil {
		t.Fatal(err)
	}
	pipe := exec.Command("bash", "-euo", "pipefail", "-c", `tar --exclude=./bin --exclude=./.git --exclude=./.cache -cf - . | tar -C "$1" -xf -`, "copy", copied)
	pipe.Dir = root(t)
	if out, err := pipe.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	output(t, copied, "make", "release", "VERSION=v1.2.3", "REVISION=0123456789abcdef0123456789abcdef01234567", "EPOCH=1750000000", "RELEASE_PARTS=programs chart boards", "RELEASE_ARCHS="+runtime.GOARCH)
	return filepath.Join(copied, "bin", "release")
}

// A release has its parts and their sums, its programs say which they are, its chart installs them, and made again elsewhere it is the same.
func TestRelease(t *testing.T) {
	dir := released(t)
	sums := fileText(t, filepath.Join(dir, "SHA256SUMS"))
	programs := "gpu-exporter-v1.2.3-linux-" + runtime.GOARCH
	var names []string
	for _, m := range regexp.MustCompile(`(?m)^[0-9a-f]{64}  (\S+)$`).FindAllStringSubmatch(sums, -1) {
		names = append(names, m[1])
	}
	if want := []string{"gpu-exporter-chart-1.2.3.tgz", "gpu-exporter-v1.2.3-boards-and-rules.tar.gz", programs + ".tar.gz"}; !slices.Equal(names, want) {
		t.Errorf("a release of %v", names)
	}
	output(t, dir, "sha256sum", "--check", "--strict", "SHA256SUMS")

	unpacked := t.TempDir()
	for _, name := range names {
		output(t, unpacked, "tar", "-xzf", filepath.Join(dir, name))
	}
	for _, name := range []string{"gpu-exporter", "gpu-report"} {
		out := output(t, unpacked, filepath.Join(unpacked, programs, name), "--version")
		for _, want := range []string{name + ", version v1.2.3 (branch: , revision: 0123456789abcdef0123456789abcdef01234567)", "platform:         linux/" + runtime.GOARCH, "go version:       " + runtime.Version()} {
			if !strings.Contains(out, want) {
				t.Errorf("%s --version says\n%s\nwithout %q", name, out, want)
			}
		}
	}
	for _, name := range []string{"LICENSE", "THIRD_PARTY_NOTICES", "CHANGELOG.md", "gpu-exporter.service"} {
		if fileText(t, filepath.Join(unpacked, programs, name)) == "" {
			t.Errorf("%s is empty", name)
		}
	}
	for pattern, least := range map[string]int{"dashboards/*.json": 9, "alerts/*.yaml": 4} {
		if found, _ := filepath.Glob(filepath.Join(unpacked, "gpu-exporter-v1.2.3-boards-and-rules", pattern)); len(found) < least {
			t.Errorf("%d files of %s", len(found), pattern)
		}
	}
	out, err := helm(t, "template", "gpu-exporter", filepath.Join(dir, "gpu-exporter-chart-1.2.3.tgz"))
	if err != nil || !strings.Contains(out, "image: ghcr.io/gpu-exporter/gpu-exporter:1.2.3\n") || !strings.Contains(out, "helm.sh/chart: gpu-exporter-1.2.3\n") {
		t.Errorf("the chart of the release: %v\n%.2000s", err, out)
	}

	if again := fileText(t, filepath.Join(released(t), "SHA256SUMS")); again != sums {
		t.Errorf("made again in another folder, the release is another:\n%s\n%s", sums, again)
	}
}

// What is linked is licensed, and the page that says so is what the binaries say.
func TestLicencesGenerated(t *testing.T) {
	programs(t)
	output(t, root(t), "make", "bin/THIRD_PARTY_NOTICES")
	page := filepath.Join(t.TempDir(), "licences.md")
	output(t, root(t), filepath.Join("bin", "licences"), "--page="+page, "bin/gpu-exporter", "bin/gpu-report")
	if want := fileText(t, page); want != fileText(t, filepath.Join(root(t), "docs", "licences.md")) {
		t.Errorf("docs/licences.md is not what is linked: run make licences and review the diff. It should be\n%s", want)
	}
	// Every module that a binary names has its text in the notices.
	notices := fileText(t, filepath.Join(root(t), "bin", "THIRD_PARTY_NOTICES"))
	modules := 0
	for _, line := range strings.Split(output(t, root(t), "go", "version", "-m", "bin/gpu-exporter", "bin/gpu-report"), "\n") {
		if f := strings.Fields(line); len(f) >= 3 && f[0] == "dep" {
			modules++
			if !strings.Contains(notices, fmt.Sprintf("\n%s %s, ", f[1], f[2])) {
				t.Errorf("the notices have nothing of %s %s", f[1], f[2])
			}
		}
	}
	if modules < 20 {
		t.Errorf("%d modules are linked", modules)
	}
}

// The changelog's lines are of its own form, so that tools can read it.
func TestChangelog(t *testing.T) {
	for i, line := range strings.Split(strings.TrimSpace(fileText(t, filepath.Join(root(t), "CHANGELOG.md"))), "\n") {
		if line == "" || strings.HasPrefix(line, "# ") || strings.HasPrefix(line, "## ") || strings.HasPrefix(line, "Lines are ") {
			continue
		}
		if !regexp.MustCompile(`^- \[(CHANGE|FEATURE|ENHANCEMENT|BUGFIX)\] [A-Za-z0-9 ./_-]+: .+\.$`).MatchString(line) {
			t.Errorf("CHANGELOG.md:%d: %q is not of the form - [KIND] subject: effect.", i+1, line)
		}
	}
}
