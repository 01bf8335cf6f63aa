package compat

import (
	"fmt"
	"strings"
)

// introduction begins docs/compatibility-dcgm.md; ~ stands for a back quote.
const introduction = `# Names of dcgm-exporter

Generated from ~internal/catalog/compat~. How to switch: [the guide](migrate-from-dcgm-exporter.md).

With ~--compat=dcgm-4.8~ or ~--compat=dcgm-4.9~ the exporter also serves, at ~%s~, the names, units, types and labels of
that release of dcgm-exporter, from the same readings as ~/metrics~ and in the text format only. They were compared with
dcgm-exporter's published configuration and with NVIDIA's field list, not with a running dcgm-exporter.

%d families: %d of dcgm-exporter's default configuration, %d that its file has as comments, %d for custom collector
files. %d are equal. 4.9 renames %d default families and changes the unit of %d of them.

## Labels

| label | value |
|---|---|
| ~gpu~, ~UUID~, ~device~, ~modelName~, ~pci_bus_id~ | equal |
| ~hpc_job~ | equal; needs ~--slurm.job-mapping-dir~ |
| ~Hostname~, ~hostname~ | the node (~--node-name~); dcgm-4.8 has both, as 4.8.0 to 4.8.2 use the first, dcgm-4.9 the second |
| ~DCGM_FI_DRIVER_VERSION~ | 4.9: ~DCGM_FI_SYSTEM_DRIVER_VERSION~ |
| ~GPU_I_ID~, ~GPU_I_PROFILE~ | of each MIG instance; values of the whole GPU are repeated for each |
| ~namespace~, ~pod~, ~container~ | of each container that shares a GPU, up to %d |

Values of a whole GPU are repeated for its instances and containers, as in dcgm-exporter, so that their sum is too high.
For containers that share a GPU, ~DCGM_FI_DEV_GPU_UTIL~ and ~DCGM_FI_DEV_FB_USED~ have the container's own part, and the
GPU's value without a pod: sum where ~pod~ is empty, or use ~gpu_container_*~.

With ~honor_labels: false~, as in dcgm-exporter's chart, Prometheus renames them to ~exported_pod~ and so on.

## Families that differ

Means are of the last 60 s before the latest reading, at any scrape interval.

| dcgm-exporter 4.8 | 4.9 | here | difference |
|---|---|---|---|
`

// Markdown renders docs/compatibility-dcgm.md. The error is that of New.
func Markdown() (string, error) {
	p, err := New(DCGM48)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	count := map[shipped]int{}
	equal, renamed, rescaled := 0, 0, 0
	for _, r := range p.rows {
		count[r.shipped]++
		if r.differs == "" {
			equal++
		}
		if r.renamed != "" && r.shipped == byDefault {
			renamed++
			if r.unit.old != r.unit.new {
				rescaled++
			}
		}
	}
	fmt.Fprintf(&b, strings.ReplaceAll(introduction, "~", "`"),
		Path, len(p.rows), count[byDefault], count[commented], count[custom], equal, renamed, rescaled, maxRepeats)
	var equals strings.Builder
	for _, r := range p.rows {
		query := "`" + r.gpu.promQL(p.families) + "`"
		if r.instance != nil && r.instance.of != nil {
			query += "; instance: `" + r.instance.promQL(p.families) + "`"
		}
		if r.container != nil {
			query += "; container: `" + r.container.promQL(p.families) + "`"
		}
		next := ""
		if r.renamed != "" {
			next = "`" + r.renamed + "`"
			if r.unitIn(DCGM48) != r.unitIn(DCGM49) {
				next += " (" + r.unitIn(DCGM49) + ")"
			}
		}
		if r.differs != "" {
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", r.name, next, query, r.differs)
		} else {
			fmt.Fprintf(&equals, "| `%s` | %s | %s |\n", r.name, next, query)
		}
	}
	b.WriteString("\n## Families that are equal\n\n| dcgm-exporter 4.8 | 4.9 | here, in base units |\n|---|---|---|\n" +
		equals.String())
	b.WriteString("\n## Missing families\n\nThe last column has the alternative here.\n\n| dcgm-exporter | reason | " +
		"here |\n|---|---|---|\n")
	for _, m := range missing() {
		instead := ""
		if m.instead != nil {
			instead = "`" + strings.Join(m.instead, "`, `") + "`"
		}
		fmt.Fprintf(&b, "| %s | %s | %s |\n", m.what, m.reason, instead)
	}
	return b.String(), nil
}
