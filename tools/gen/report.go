package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpu-exporter/gpu-exporter/report/render"
)

// reportColumns renders the table of the columns of the report's CSV files. Accounts are the levels that have the column gpus
// but are no workloads; a column of all levels says so.
func reportColumns() string {
	all := render.Columns()
	at := slices.IndexFunc(all, func(c render.Column) bool { return c.Name == "gpus" })
	accounts, every := all[at].Levels, all[len(all)-1].Levels
	var b strings.Builder
	b.WriteString("| column | unit | files | meaning |\n|---|---|---|---|\n")
	for _, c := range all {
		files := strings.Join(c.Levels, ", ")
		if slices.Equal(c.Levels, every) {
			files = "all"
		} else if len(c.Levels) >= len(accounts) && slices.Equal(c.Levels[:len(accounts)], accounts) {
			files = strings.Join(append([]string{"accounts"}, c.Levels[len(accounts):]...), ", ")
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", c.Name, c.Unit, files, cell(c.Meaning))
	}
	return b.String()
}
