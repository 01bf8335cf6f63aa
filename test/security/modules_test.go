package security_test

import (
	"debug/buildinfo"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/internal/standin/machine"
)

// linked is a row of the table of modules in docs/security.md: their names, and why they are there.
var linked = regexp.MustCompile("(?m)^\\| (`[^|]+`) \\| (.*) \\|$")

// Each module in the binary is in docs/security.md with a reason.
func TestModulesAreReviewed(t *testing.T) {
	info, err := buildinfo.ReadFile(machine.Binary(t))
	must.OK(t, err)
	text := must.Read(t, filepath.Join(machine.Root(t), "docs", "security.md"))
	_, section, ok := strings.Cut(text, "\n## What is linked in\n")
	if !ok {
		t.Fatal("docs/security.md has no section What is linked in")
	}
	section, _, _ = strings.Cut(section, "\n## ")
	reasons := map[string]string{}
	for _, row := range linked.FindAllStringSubmatch(section, -1) {
		if len(row[2]) < 8 {
			t.Errorf("%s has no reason", row[1])
		}
		for name := range strings.SplitSeq(row[1], ", ") {
			reasons[strings.Trim(name, "`")] = row[2]
		}
	}
	for _, m := range info.Deps {
		if m.Replace != nil {
			t.Errorf("%s is replaced by %s", m.Path, m.Replace.Path)
		}
		if reasons[m.Path] == "" {
			t.Errorf("%s is linked, and not in docs/security.md", m.Path)
		}
		delete(reasons, m.Path)
	}
	for path := range reasons {
		t.Errorf("docs/security.md lists %s, which is not linked", path)
	}
	if len(info.Deps) < 10 {
		t.Errorf("the binary names %d modules only", len(info.Deps))
	}
}
