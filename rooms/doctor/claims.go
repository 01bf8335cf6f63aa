package doctor

import (
	"fmt"
	"io"
	"slices"

	"github.com/gpu-exporter/gpu-exporter/internal/hardware"
)

// writeClaims lists each claim of the hardware check, and what reports of real GPUs said of it for the models and the driver
// of this node.
func writeClaims(w io.Writer, driver string, models []string, verdicts []hardware.Verdict) {
	slices.Sort(models)
	models = slices.Compact(models)
	names := hardware.Names()
	for _, model := range models {
		lines, confirmed, contradicted := "", 0, 0
		for i, name := range names {
			state := "not checked"
			for _, v := range verdicts {
				if v.Model == model && v.Driver == driver && v.Claim == i+1 {
					state = v.Outcome
				}
			}
			switch state {
			case hardware.Confirmed:
				confirmed++
			case hardware.Contradicted:
				contradicted++
			}
			lines += fmt.Sprintf("%3d  %-12s  %s\n", i+1, state, name)
		}
		fmt.Fprintf(w, "%s, driver %s: %d of %d claims confirmed, %d contradicted\n%s", model, driver, confirmed, len(names),
			contradicted, lines)
	}
	if len(models) == 0 {
		fmt.Fprintln(w, "no GPU on this node")
	}
}
