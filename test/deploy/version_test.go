package deploy_test

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/gpu-exporter/gpu-exporter/internal/must"
)

// The version is that of Chart.yaml, the image's name that of SECURITY.md or, until one is published, an example: everything that names
// either agrees, and what is built without VERSION has it.
func TestVersionAgrees(t *testing.T) {
	find := func(file, pattern string) string {
		m := regexp.MustCompile(pattern).FindStringSubmatch(must.Read(t, filepath.Join(root(t), file)))
		if m == nil {
			t.Fatalf("%s has no %s", file, pattern)
		}
		return m[1]
	}
	version := find("deploy/helm/gpu-exporter/Chart.yaml", `(?m)^version: (\S+)$`)
	image := find("SECURITY.md", `(ghcr\.io/[^:\s]+):`)
	const example = "registry.example.com/gpu-exporter"
	for _, c := range []struct {
		files, pattern, want string
		atLeast              int
	}{
		{"deploy/helm/gpu-exporter/Chart.yaml", `appVersion: "([^"]+)"`, version, 1},
		{"README.md", `version (\d[\w.]*\w)`, version, 1},
		{"SECURITY.md", `[Vv]ersion (\d[\w.]*\w)`, version, 2},
		{"*.md docs/*.md deploy/*/*.md deploy/helm/*/*.md", `image\.tag=(\S+)`, version, 6},
		{"docs/install.md", `(?:VERSION=|, version |gpu-exporter:)(\d[\w.]*\w)`, version, 5},
		{"deploy/kustomize/README.md", `newTag: (\S+)`, version, 1},
		{"deploy/Dockerfile", `ARG VERSION=(\S+)`, version, 2},
		{"deploy/Dockerfile", `(?m)^FROM \S+@(sha256):[0-9a-f]{64}`, "sha256", 2}, // not a tag, which may move
		{"deploy/kustomize/*/*.yaml deploy/kustomize/*/*/*.yaml", `app\.kubernetes\.io/version: "([^"]+)"`, version, 5},
		{"deploy/kustomize/*/*.yaml deploy/kustomize/*/*/*.yaml", `image: "([^"]+)"`, example + ":" + version, 5},
		{"SECURITY.md", `(ghcr\.io/[^\s]+)`, image + ":" + version, 2},
		{"*.md docs/*.md deploy/*/*.md deploy/helm/*/*.md", `image\.repository=(\S+)`, example, 6},
	} {
		found := 0
		for pattern := range strings.FieldsSeq(c.files) {
			files, err := filepath.Glob(filepath.Join(root(t), pattern))
			must.OK(t, err)
			for _, file := range files {
				for _, m := range regexp.MustCompile(c.pattern).FindAllStringSubmatch(must.Read(t, file), -1) {
					if found++; m[1] != c.want && m[1] != "0.2.0" { // the example of an upgrade
						t.Errorf("%s: %s, want %s", file, m[0], c.want)
					}
				}
			}
		}
		if found < c.atLeast {
			t.Errorf("%s: %d times %s, want %d", c.files, found, c.pattern, c.atLeast)
		}
	}
	out, err := exec.Command("env", "-u", "VERSION", filepath.Join(root(t), "deploy", "version")).Output()
	if got := strings.TrimSpace(string(out)); err != nil || got != version {
		t.Errorf("deploy/version prints %q: %v", got, err)
	}
	// The workflow's names are those of its repository.
	source := find("deploy/Dockerfile", `image\.source=(\S+)`)
	if !strings.HasSuffix(source, strings.TrimPrefix(image, "ghcr.io")) ||
		find(".github/workflows/release.yml", `IMAGE: (\S+ \S+ \S+)\n`) != "ghcr.io/${{ github.repository }}" {
		t.Errorf("the release workflow publishes another image than %s", image)
	}
}
