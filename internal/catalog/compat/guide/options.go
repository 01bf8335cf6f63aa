package guide

import (
	"fmt"
	"strings"

	"github.com/gpu-exporter/gpu-exporter/internal/dropin"
)

// options writes the table of dcgm-exporter's flags and variables.
func options(b *strings.Builder) {
	b.WriteString("\n### Flags and variables\n\nOf dcgm-exporter 4.8 and 4.9, where the exporter " +
		"[takes its place](#one-line-in-one-line-out). Flags come before variables; " +
		"an unknown flag is an error. " +
		"They are written with one dash or two.\n\n" +
		"| flag | variable | default | here |\n|---|---|---|---|\n")
	for _, o := range dropin.Options() {
		name, value := "`"+o.Name+"`", ""
		if o.Alias != "" {
			name += ", `" + o.Alias + "`"
		}
		if o.Default != "" {
			value = "`" + o.Default + "`"
		}
		fmt.Fprintf(b, "| %s | `%s` | %s | %s |\n", name, o.Variable, value, o.Meaning)
	}
}
