package dashboards_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpu-exporter/gpu-exporter/internal/catalog"
	"github.com/gpu-exporter/gpu-exporter/internal/must"
)

// docs/dashboards.md has the labels of each dimension, in their order.
func TestDocumentedLabels(t *testing.T) {
	text := must.Read(t, filepath.Join("..", "docs", "dashboards.md"))
	for _, d := range catalog.Dimensions() {
		row := fmt.Sprintf("| `%s` | %ss | `%s` |\n", d.Name, d.Object, strings.Join(d.Labels, "`, `"))
		if !strings.Contains(text, row) {
			t.Errorf("docs/dashboards.md lacks the row %s", row)
		}
	}
}
