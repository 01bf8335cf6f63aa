package health

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/internal/testkit"
)

// Each clause of accelerator_metrics is met by what the exporter serves of the models of testdata, and the command fails
// where a required one is not.
func TestConformance(t *testing.T) {
	golden := func(name string, change func([]byte) []byte) (string, bool) {
		t.Helper()
		page, err := os.ReadFile(filepath.Join("..", "..", "testdata", "golden", name))
		must.OK(t, err)
		families, err := testkit.Families(string(change(page)))
		must.OK(t, err)
		return conformance(families)
	}
	same := func(page []byte) []byte { return page }
	for _, name := range []string{"8xh100-loaded.prom", "h200-loaded.prom", "8xb200-loaded.prom"} {
		text, met := golden(name, same)
		if !met {
			t.Errorf("%s: a required clause is not met\n%s", name, text)
		}
		for _, c := range conformanceClauses {
			for _, metric := range c.metrics {
				if !regexp.MustCompile(`\| ` + c.clause + ` \| [a-z ]+ \| .` + metric + `. \| [1-9]\d* \| [0-9]`).MatchString(text) {
					t.Errorf("%s: %s: %s is missing\n%s", name, c.clause, metric, text)
				}
			}
		}
	}
	for _, c := range conformanceClauses {
		for _, metric := range c.metrics {
			without := func(page []byte) []byte { return regexp.MustCompile(`(?m)^`+metric+`\{.*\n`).ReplaceAll(page, nil) }
			if text, met := golden("8xh100-loaded.prom", without); met == c.required || !strings.Contains(text, metric+"` | 0 | –") {
				t.Errorf("without %s: %v\n%s", metric, met, text)
			}
		}
	}
	if _, met := golden("8xh100-loaded.prom", func([]byte) []byte { return nil }); met {
		t.Error("no GPU meets it")
	}
}
