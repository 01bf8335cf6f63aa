package reference

import (
	"fmt"
	"strings"

	"github.com/gpu-exporter/gpu-exporter/internal/catalog"
)

// glossary ends docs/metrics.md.
func glossary() string {
	var b strings.Builder
	b.WriteString("\n## Glossary of quantities\n\nDashboards, alerts, the report and the node page use these words with these " +
		"definitions. All are shares of GPU-time unless they say otherwise.\n\n| word | label `state` | definition |\n|---|---|---|\n")
	for _, q := range catalog.Quantities() {
		state := ""
		if q.State != "" {
			state = "`" + string(q.State) + "`"
		}
		fmt.Fprintf(&b, "| <a id=\"%s\"></a>%s | %s | %s |\n", strings.ReplaceAll(q.Lower(), " ", "-"), q.Word, state, q.Definition)
	}
	b.WriteString("\nThe six states of `gpu_time_seconds_total` add up to all reported GPU-time; with *not reported*, to all GPU-time " +
		"that must have existed. A ratio whose denominator leaves a state out says so in its title.\n")
	return b.String()
}
