package main

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/internal/must"
)

// TestHealthIsDocumented: docs/troubleshooting.md has every rule as the code has it.
func TestHealthIsDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/troubleshooting.md")
	must.OK(t, err)
	rows := regexp.MustCompile("(?m)^\\| `[a-z_]+` \\| `[a-z_]+` \\| .* \\|$").FindAllString(string(text), -1)
	if len(rows) != len(gpu.HealthRules) {
		t.Errorf("%d rows for %d rules", len(rows), len(gpu.HealthRules))
	}
	for _, r := range gpu.HealthRules {
		if want := fmt.Sprintf("| `%s` | `%s` | %s |", r.Reason, r.Verdict, r.Source); !strings.Contains(string(text), want) {
			t.Errorf("docs/troubleshooting.md lacks %s", want)
		}
	}
}
