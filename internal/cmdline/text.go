package cmdline

import (
	"fmt"
	"strings"

	"github.com/alecthomas/kingpin/v2"
)

// helpTemplate is the text of --help. Wrap and FormatTwoColumns are kingpin's.
const helpTemplate = `usage: {{Usage}}

{{.App.Help|Wrap 0}}
{{if Commands}}Commands (each has a --help):
{{Commands|FormatTwoColumns}}
{{end}}{{range Groups .Context.Flags}}{{.Title}}:
{{.Rows|FormatTwoColumns}}
{{end}}{{if .Context.Args}}Arguments:
{{.Context.Args|ArgsToTwoColumns|FormatTwoColumns}}
{{end}}{{if ExitCodes}}Exit codes:
{{ExitCodes|FormatTwoColumns}}{{end}}`

// manualTemplate is the manual page in the form of man(7).
const manualTemplate = `.TH {{Name|Upper}} 1 "" "{{Name}} {{Release}}" "User Commands"
.SH "NAME"
{{Name}} \- {{Purpose}}
.SH "SYNOPSIS"
.B {{Usage}}
.SH "DESCRIPTION"
{{.App.Help|Roff}}
{{if Commands}}.SH "COMMANDS"
{{range Commands}}.TP
\fB{{index . 0}}\fR
{{index . 1|Roff}}
{{end}}{{end}}.SH "OPTIONS"
{{if Variables}}Each can be set by the environment variable in parentheses; one that is repeatable has one value per line there.
{{end}}{{range Groups .Context.Flags}}.SS "{{.Title}}"
{{range .Rows}}.TP
\fB{{index . 0|Trim}}\fR
{{index . 1|Roff}}
{{end}}{{end}}{{if .Context.Args}}.SH "ARGUMENTS"
{{range .Context.Args}}.TP
\fB{{.Name|Upper}}\fR
{{.Help|Roff}}
{{end}}{{end}}{{if ExitCodes}}.SH "EXIT STATUS"
{{range ExitCodes}}.TP
\fB{{index . 0}}\fR
{{index . 1|Roff}}
{{end}}{{end}}{{if Files}}.SH "FILES"
{{range Files}}.TP
\fB{{index . 0}}\fR
{{index . 1|Roff}}
{{end}}{{end}}.SH "SEE ALSO"
{{range $i, $n := Others}}{{if $i}}, {{end}}\fB{{$n}}\fR(1){{end}}
`

// group is a group of flags in the help: names and texts.
type group struct {
	Title string
	Rows  [][2]string
}

func flagName(f *kingpin.FlagModel) string {
	name := "    --" + f.Name
	if f.Short != 0 {
		name = fmt.Sprintf("-%c, --%s", f.Short, f.Name)
	}
	switch {
	case f.Name == "help" || f.Name == "version":
	case f.IsBoolFlag():
		name = strings.Replace(name, "--", "--[no-]", 1)
	default:
		name += "=" + f.FormatPlaceHolder()
	}
	if c, ok := f.Value.(interface{ IsCumulative() bool }); ok && c.IsCumulative() {
		name += " ..."
	}
	return name
}

// roff makes a text one paragraph of a manual page.
func roff(text string) string {
	text = strings.ReplaceAll(text, `\`, `\e`)
	if strings.HasPrefix(text, ".") || strings.HasPrefix(text, "'") {
		text = `\&` + text
	}
	return text
}
