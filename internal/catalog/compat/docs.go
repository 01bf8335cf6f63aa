package compat

import (
	"fmt"
	"strings"
)

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
		if r.renamed != "" && r.shipped == on {
			renamed++
			if r.unit.old != r.unit.new {
				rescaled++
			}
		}
	}
	fmt.Fprintf(&b, `# dcgm-exporter's names

Generated from `+"`internal/catalog/compat`"+` by `+"`make generate`"+`. How to switch: [the guide](migrate-from-dcgm-exporter.md).

With `+"`--compat=dcgm-4.8`"+` or `+"`--compat=dcgm-4.9`"+` the exporter also serves, at `+"`%s`"+`, names, units, types and labels of that release of dcgm-exporter, from the same readings as
`+"`/metrics`"+` and in the text format only. They were compared with dcgm-exporter's published configuration and with NVIDIA's field list, not with a running dcgm-exporter.

%d families: %d of dcgm-exporter's default configuration, %d that its file has as comments, %d for collector files of one's own. %d are equal. 4.9 renames %d default families and changes the unit of %d of them.

## Labels

| label | value |
|---|---|
| `+"`gpu`, `UUID`, `device`, `modelName`, `pci_bus_id`, `hpc_job`"+` | equal; `+"`hpc_job`"+` needs `+"`--slurm.job-mapping-dir`"+` |
| `+"`Hostname`, `hostname`"+` | the node (`+"`--node-name`"+`): dcgm-4.8 has both, because 4.8.0 to 4.8.2 use the first and later ones the second; dcgm-4.9 has the second |
| `+"`DCGM_FI_DRIVER_VERSION`"+` | 4.9: `+"`DCGM_FI_SYSTEM_DRIVER_VERSION`"+` |
| `+"`GPU_I_ID`, `GPU_I_PROFILE`"+` | under MIG each instance has a series; figures of the whole GPU are repeated for each instance, as in dcgm-exporter, so that their sum is too high |
| `+"`namespace`, `pod`, `container`"+` | a shared GPU has a series for each of its containers, up to %d. `+"`DCGM_FI_DEV_GPU_UTIL` and `DCGM_FI_DEV_FB_USED`"+` have the container's own part, as with dcgm-exporter's virtual GPUs, and the GPU's value without a pod; other default families repeat the GPU's value. Sum where `+"`pod`"+` is empty, or use `+"`gpu_container_*`"+` |

With `+"`honor_labels: false`"+`, as in dcgm-exporter's chart, Prometheus renames them to `+"`exported_pod`"+` and so on.

## Families that differ

Means are of the last 60 s before the latest reading, at any scrape interval.

| dcgm-exporter 4.8 | 4.9 | here | difference |
|---|---|---|---|
`, Path, len(p.rows), count[on], count[off], count[chosen], equal, renamed, rescaled, mostCopies)
	var equals strings.Builder
	for _, r := range p.rows {
		query := "`" + r.dev.promQL(p.families) + "`"
		if r.instance != nil && r.instance.of != nil {
			query += "; instance: `" + r.instance.promQL(p.families) + "`"
		}
		if r.tenant != nil {
			query += "; container: `" + r.tenant.promQL(p.families) + "`"
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
	b.WriteString("\n## Families that are equal\n\n| dcgm-exporter 4.8 | 4.9 | here, in base units |\n|---|---|---|\n" + equals.String())
	b.WriteString("\n## What is missing\n\nThe last column has the family here that covers the same question.\n\n| dcgm-exporter | reason | here |\n|---|---|---|\n")
	for _, g := range missing() {
		instead := ""
		if g.instead != nil {
			instead = "`" + strings.Join(g.instead, "`, `") + "`"
		}
		fmt.Fprintf(&b, "| %s | %s | %s |\n", g.what, g.why, instead)
	}
	return b.String(), nil
}
