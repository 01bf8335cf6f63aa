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
	fmt.Fprintf(&b, `# The names of dcgm-exporter

Generated from the table in `+"`internal/catalog/compat`"+` by `+"`make generate`"+`; a test compares it byte for byte.

With `+"`--compat=dcgm-4.8`"+` or `+"`--compat=dcgm-4.9`"+` the exporter also serves, at `+"`%s`"+`, the families of that release of dcgm-exporter:
names, units, types and labels, rendered from the same readings as `+"`/metrics`"+`. The page at `+"`/metrics`"+` stays as it is. [The guide](migrate-from-dcgm-exporter.md) says how to
switch. The format is the text format alone, as there: OpenMetrics would add _total to the names of counters.

%d families: %d that dcgm-exporter shows by default, %d that its collector file ships as comments, %d that a list of one's own may name. %d are equal; of
the others the last column says what differs and why. 4.9 renames %d of the default families, %d of which change their unit, and the label of the driver's version.

Where the names come from: for 4.8 the collector file of its releases and NVIDIA's list of DCGM fields; for 4.9 its release notes, the fields of DCGM 4.7 and the
table of base-unit fields in NVIDIA's Go bindings. 4.9 keeps the names of what it does not show by default, so the column is then empty.

## Labels

| label | value | remark |
|---|---|---|
| `+"`gpu`, `UUID`, `device`, `modelName`"+` | index, UUID, nvidiaN, name of the GPU | equal |
| `+"`pci_bus_id`"+` | 00000000:18:00.0 | equal |
| `+"`Hostname`, `hostname`"+` | the node | 4.8.0 to 4.8.2 have the first, 4.8.3 and 4.8.4 the second: dcgm-4.8 has both, dcgm-4.9 the second. It is the value of `+"`--node-name`"+` |
| `+"`DCGM_FI_DRIVER_VERSION`"+` | version of the driver | 4.9: `+"`DCGM_FI_SYSTEM_DRIVER_VERSION`"+`. The chart of dcgm-exporter 4.8 does not have it |
| `+"`GPU_I_ID`, `GPU_I_PROFILE`"+` | GPU instance | under MIG a series is of an instance; what only the GPU can tell stands at each, so sums count it several times, as there. Families that are not shown there by default and that only the GPU can tell stand once, without these labels; limits that one divides by do not |
| `+"`namespace`, `pod`, `container`"+` | the holder | of a shared GPU or instance there is a copy for each holder; of `+"`DCGM_FI_DEV_GPU_UTIL` and `DCGM_FI_DEV_FB_USED`"+` the GPU's own without a pod, and beside it each holder's part. So it is there with virtual GPUs on; without, one holder at random has the GPU. A sum over copies counts the GPU several times: sum where `+"`pod`"+` is empty, or use `+"`gpu_container_*`"+`. Families that are not shown there by default stand once, without a pod, and so does everything but the holders' parts where there are more than %d holders |
| `+"`hpc_job`"+` | number of the Slurm job | equal; with `+"`--slurm.job-mapping-dir`"+` |

A label without a value is left out. A GPU that cannot be read ends all its series but those of XIDs. With `+"`honor_labels: false`"+`, which is what the chart of dcgm-exporter
sets, a Prometheus calls the holders `+"`exported_namespace`, `exported_pod`, `exported_container`"+` where the target has labels of those names: set it as it was.

## Families

Windows: what is a mean here is one of the last 60 s before the newest reading (up to 70 s; less in the first minute), whatever the interval of the scrapes.

| dcgm-exporter 4.8 | 4.9 | type | unit in 4.8 | in 4.9 | shown there | the same here, in base units | differs |
|---|---|---|---|---|---|---|---|
`, Path, len(p.rows), count[on], count[off], count[chosen], equal, renamed, rescaled, mostCopies)
	for _, r := range p.rows {
		query := "`" + r.dev.promQL(p.families) + "`"
		if r.instance != nil && r.instance.of != nil {
			query += "; instance: `" + r.instance.promQL(p.families) + "`"
		}
		if r.tenant != nil {
			query += "; container: `" + r.tenant.promQL(p.families) + "`"
		}
		next, differs := "", "equal"
		if r.renamed != "" {
			next = "`" + r.renamed + "`"
		}
		if r.differs != "" {
			differs = r.differs
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s | %s | %s | %s |\n", r.name, next, r.typ, r.unitIn(DCGM48), r.unitIn(DCGM49), r.shipped, query, differs)
	}
	b.WriteString("\n## What is missing\n\nA number that cannot be measured is not made up. The last column names what answers the question here.\n\n| there | why not here | here |\n|---|---|---|\n")
	for _, g := range missing() {
		instead := ""
		if g.instead != nil {
			instead = "`" + strings.Join(g.instead, "`, `") + "`"
		}
		fmt.Fprintf(&b, "| %s | %s | %s |\n", g.what, g.why, instead)
	}
	return b.String(), nil
}
