// Package cmdline is the command line of the programs: the flags of kingpin, with refusals in one line that name the flag or
// the variable, its value and what is allowed, and with a help, a manual page and a completion that have all of a program.
package cmdline

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"text/template"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"github.com/prometheus/common/version"
)

// ErrPrinted means that the arguments only requested a text, which was printed.
var ErrPrinted = errors.New("only a text was requested")

// About is what the help and the manual page have beside the flags.
type About struct {
	Name, Purpose string // of the program; the purpose is a noun phrase
	Text          string // one paragraph
	// Titles are the groups of flags, by what their names begin with up to the first dot (words), and their titles. The first
	// has the others.
	Titles    [][2]string
	Commands  [][2]string // name and purpose
	ExitCodes [][2]string // code and meaning
	Files     [][2]string // path and use
	// Renamed are former names of flags and the current ones; empty: the flag is not needed any more.
	Renamed map[string]string
	// Variables are whether each flag has an environment variable.
	Variables bool
}

// App is the command line of a program.
type App struct {
	*kingpin.Application
	about   About
	prefix  string // of variables
	printed bool
	stdout  io.Writer
	args    []string
}

// New returns a command line without flags of its own.
func New(about *About, stdout, stderr io.Writer) *App {
	stdout = unread{stdout}
	a := &App{Application: kingpin.New(about.Name, about.Text), about: *about, stdout: stdout,
		prefix: strings.ToUpper(notLetters.ReplaceAllString(about.Name, "_")) + "_"}
	a.UsageWriter(stdout).ErrorWriter(stderr).Terminate(func(int) { a.printed = true })
	a.HelpFlag.Short('h').Help("Print this text.")
	a.Version(Version(strings.Fields(about.Name)[0]))
	a.GetFlag("version").Help("Print the version.")
	a.UsageTemplate(helpTemplate).UsageFuncs(a.functions())
	if about.Variables {
		a.DefaultEnvars()
	}
	for _, f := range a.Model().Flags {
		a.GetFlag(f.Name).NoEnvar() // these only print; images and manifests set GPU_EXPORTER_VERSION to a version
	}
	return a
}

// unread is a Writer that nobody may read to the end, as `--help | head`: kingpin panics at an error.
type unread struct{ io.Writer }

// Write implements io.Writer.
func (u unread) Write(b []byte) (int, error) {
	_, _ = u.Writer.Write(b)
	return len(b), nil
}

var notLetters = regexp.MustCompile(`[^a-zA-Z0-9]+`)

// Version is what --version prints.
func Version(program string) string {
	text := fmt.Sprintf("%s, version %s (revision %s)\n", program, cmp.Or(version.Version, "unknown"), version.GetRevision())
	return text + fmt.Sprintf("  go version:  %s\n  platform:    %s/%s", runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

func (a *App) variable(flag string) string {
	return a.prefix + strings.ToUpper(notLetters.ReplaceAllString(flag, "_"))
}

// Parse sets the flags. Its error is one line for the person who typed them.
func (a *App) Parse(args []string) error {
	a.args = args
	if err := a.renamed(); err != nil {
		return err
	}
	for _, f := range a.Model().Flags {
		a.prepare(a.GetFlag(f.Name), f)
	}
	switch {
	case slices.Contains(args, "--help-man"):
		context, err := a.ParseContext(nil)
		if err == nil {
			err = a.UsageForContextWithTemplate(context, 2, manualTemplate)
		}
		return cmp.Or(err, ErrPrinted)
	case len(args) > 0 && args[0] == "--completion-bash":
		if len(args) < 3 {
			for _, c := range a.about.Commands {
				fmt.Fprintln(a.stdout, c[0])
			}
		}
	}
	for i, arg := range args {
		if name, _, ok := strings.Cut(arg, "="); ok && a.isSwitch(name) {
			return fmt.Errorf("%s takes no value, got %q: use %s or --no-%s", name, arg, name, strings.TrimPrefix(name, "--"))
		}
		if arg == "--help-long" {
			args = append(slices.Clone(args[:i]), "--help")
			break
		}
	}
	_, err := a.Application.Parse(args)
	if a.printed {
		return ErrPrinted
	}
	return cmp.Or(a.unknownVariable(os.Environ()), a.refusal(err))
}

// isSwitch reports whether an argument is a flag without a value.
func (a *App) isSwitch(arg string) bool {
	return slices.ContainsFunc(a.Model().Flags, func(f *kingpin.FlagModel) bool { return "--"+f.Name == arg && f.IsBoolFlag() })
}

// prepare makes a flag's refusal name the flag, and its help a value.
func (a *App) prepare(f *kingpin.FlagClause, model *kingpin.FlagModel) {
	f.SetValue(named{model.Value, model, a})
	if model.PlaceHolder == "" && len(model.Default) == 0 {
		f.PlaceHolder(strings.ToUpper(model.Name[strings.LastIndexAny(model.Name, ".-")+1:]))
	}
}

// renamed rejects a former flag, or its variable, with the current name in the error.
func (a *App) renamed() error {
	for old, name := range a.about.Renamed {
		_, set := os.LookupEnv(a.variable(old))
		switch given := a.given(old); {
		case !given && (!set || !a.about.Variables):
		case given && name == "":
			return fmt.Errorf("--%s is not needed any more: remove it", old)
		case given:
			return fmt.Errorf("--%s was renamed to --%s", old, name)
		case name == "":
			return fmt.Errorf("the environment variable %s is not needed any more: remove it", a.variable(old))
		default:
			return fmt.Errorf("the environment variable %s was renamed to %s", a.variable(old), a.variable(name))
		}
	}
	return nil
}

// given reports whether a flag is among the arguments.
func (a *App) given(flag string) bool {
	return slices.ContainsFunc(a.args, func(arg string) bool {
		name, _, _ := strings.Cut(arg, "=")
		return name == "--"+flag || name == "--no-"+flag
	})
}

// Given reports whether a flag is among the arguments or set by its variable.
func (a *App) Given(f *kingpin.FlagModel) bool { return a.given(f.Name) || os.Getenv(f.Envar) != "" }

// Named is the error of a later check, which begins with a flag, with the flag's variable where that set it.
func (a *App) Named(err error) error {
	if err == nil {
		return nil
	}
	for _, f := range a.Model().Flags {
		if rest, ok := strings.CutPrefix(err.Error(), "--"+f.Name); ok && strings.IndexAny(rest+" ", " :=") == 0 && !a.given(f.Name) &&
			os.Getenv(f.Envar) != "" {
			return fmt.Errorf("%s (--%s)%s", f.Envar, f.Name, rest)
		}
	}
	return err
}

// unknownVariable rejects a variable that is nearly one of a flag. Others of this prefix are no errors: images and manifests
// set some, and the kubelet some for each Service.
func (a *App) unknownVariable(environ []string) error {
	var known []string
	for _, f := range a.Model().Flags {
		if suffix, ok := strings.CutPrefix(f.Envar, a.prefix); ok && a.about.Variables {
			known = append(known, suffix)
		}
	}
	for _, e := range environ {
		key, value, _ := strings.Cut(e, "=")
		name, ours := strings.CutPrefix(key, a.prefix)
		if near := nearest(name, known); ours && near != "" && near != name && len(name) > 5 {
			return fmt.Errorf("unknown environment variable %s, which is %q: did you mean %s?", key, value, a.prefix+near)
		}
	}
	return nil
}

// refusal is an error of kingpin in the words of this package.
func (a *App) refusal(err error) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	var flags, commands []string
	for _, f := range a.Model().Flags {
		flags = append(flags, "--"+f.Name)
		if f.IsBoolFlag() {
			flags = append(flags, "--no-"+f.Name)
		}
	}
	for _, c := range a.about.Commands {
		commands = append(commands, c[0])
	}
	const list = "--help lists the flags"
	quoted := strings.Trim(text[strings.IndexByte(text, '\'')+1:], "'")
	flag := a.GetFlag(strings.TrimPrefix(quoted, "--"))
	if list, ok := strings.CutPrefix(text, "required flag(s) "); ok {
		name, _, _ := strings.Cut(strings.TrimPrefix(list, "'--"), "'")
		text = "--" + name + " is required"
		if a.about.Variables {
			text += ", or the environment variable " + a.variable(name)
		}
		return fmt.Errorf("%s: %s", text, a.GetFlag(name).Model().Help)
	}
	near := ""
	switch {
	case strings.HasPrefix(text, "unknown "):
		text, near = "unknown flag "+quoted, nearest(quoted, flags)
	case strings.HasPrefix(text, "expected argument for flag") && flag != nil:
		return fmt.Errorf("%s needs a value: %s", quoted, flag.Model().Help)
	case strings.HasSuffix(text, "cannot be repeated"):
		return fmt.Errorf("--%s is set twice", strings.Split(text, "'")[1])
	case strings.HasPrefix(text, "required argument"):
		text = strings.ToUpper(quoted[:strings.IndexByte(quoted+"'", '\'')]) + " is required"
	case strings.HasPrefix(text, "unexpected "):
		quoted = strings.TrimPrefix(text, "unexpected ")
		text, near = fmt.Sprintf("unexpected argument %q", quoted), nearest(quoted, commands)
	case strings.HasPrefix(text, "--"), strings.HasPrefix(text, a.prefix), strings.Contains(text, " must be "):
		return err
	}
	if near != "" {
		return fmt.Errorf("%s: did you mean %s?", text, near)
	}
	return fmt.Errorf("%s; %s", text, list)
}

// named is the value of a flag, whose refusals name the flag, or its variable if that has the value.
type named struct {
	kingpin.Value
	flag *kingpin.FlagModel
	app  *App
}

// Set implements kingpin.Value.
func (n named) Set(text string) error {
	var kind any
	if v, ok := n.Value.(kingpin.Getter); ok {
		kind = v.Get()
	}
	err := n.Value.Set(text)
	if _, whole := kind.(int); whole && err == nil {
		_, err = strconv.Atoi(text) // kingpin takes 1.5 for 1
	}
	if err == nil {
		return nil
	}
	name := "--" + n.flag.Name
	if !n.app.given(n.flag.Name) {
		name = cmp.Or(n.app.GetFlag(n.flag.Name).Model().Envar, name) // kingpin names it when it parses
	}
	got := fmt.Sprintf("got %q", text)
	switch kind.(type) {
	case time.Duration:
		return fmt.Errorf("%s must be a duration such as 500ms, 10s or 5m, %s", name, got)
	case bool:
		return fmt.Errorf("%s must be true or false, %s", name, got)
	case float64:
		return fmt.Errorf("%s must be a number, %s", name, got)
	case int, uint64:
		return fmt.Errorf("%s must be a whole number, %s", name, got)
	}
	if list, ok := strings.CutPrefix(err.Error(), "enum value must be one of "); ok {
		list, _, _ = strings.Cut(list, ", got ")
		allowed := slices.DeleteFunc(strings.Split(list, ","), func(s string) bool { return s == "" })
		if near := nearest(text, allowed); near != "" {
			got += ": did you mean " + near + "?"
		}
		return fmt.Errorf("%s must be one of %s, %s", name, strings.Join(allowed, ", "), got)
	}
	if strings.HasPrefix(err.Error(), "must be ") {
		return fmt.Errorf("%s %w", name, err)
	}
	return fmt.Errorf("%s: %w (%s)", name, err, strings.TrimSuffix(n.flag.Help, "."))
}

// IsBoolFlag makes kingpin treat the flag as its own value.
func (n named) IsBoolFlag() bool {
	v, ok := n.Value.(interface{ IsBoolFlag() bool })
	return ok && v.IsBoolFlag()
}

// IsCumulative makes kingpin treat the flag as its own value.
func (n named) IsCumulative() bool {
	v, ok := n.Value.(interface{ IsCumulative() bool })
	return ok && v.IsCumulative()
}

// functions are those that the templates call.
func (a *App) functions() template.FuncMap {
	return template.FuncMap{
		"Name": func() string { return a.about.Name }, "Purpose": func() string { return a.about.Purpose },
		"Release":  func() string { return version.Version },
		"Commands": func() [][2]string { return a.about.Commands }, "ExitCodes": func() [][2]string { return a.about.ExitCodes },
		"Files": func() [][2]string { return a.about.Files }, "Upper": strings.ToUpper, "Trim": strings.TrimSpace, "Roff": roff,
		"Groups": a.groups, "Variables": func() bool { return a.about.Variables },
		"Usage": a.usage, "Others": func() []string {
			all := []string{"gpu-exporter", "gpu-report", "gpu-migrate"}
			return slices.DeleteFunc(all, func(n string) bool { return n == a.about.Name })
		}}
}

func (a *App) usage() string {
	text := a.about.Name
	if len(a.about.Commands) > 0 {
		text += " [COMMAND]"
	}
	for _, f := range a.Model().Flags {
		if f.Required {
			text += fmt.Sprintf(" --%s=%s", f.Name, f.FormatPlaceHolder())
		}
	}
	text += " [FLAGS]"
	for _, arg := range a.Model().Args {
		text += " " + strings.ToUpper(arg.Name) + "..."
	}
	return text
}

// groups sorts the flags into groups, in the order of the titles; a flag without one is in the first.
func (a *App) groups(flags []*kingpin.FlagModel) []group {
	titles := a.about.Titles
	if len(titles) == 0 {
		titles = [][2]string{{"", "Flags"}}
	}
	out := make([]group, len(titles))
	for i, t := range titles {
		out[i].Title = t[1]
	}
	for _, f := range flags {
		if f.Hidden {
			continue
		}
		first, _, _ := strings.Cut(f.Name, ".")
		at := max(0, slices.IndexFunc(titles, func(t [2]string) bool { return slices.Contains(strings.Fields(t[0]), first) }))
		shown := *f
		if f.IsBoolFlag() && slices.Equal(f.Default, []string{"true"}) {
			shown.Help += " Default: true."
		}
		out[at].Rows = append(out[at].Rows, [2]string{flagName(f), shown.HelpWithEnvar()})
	}
	return slices.DeleteFunc(out, func(g group) bool { return g.Rows == nil })
}

// nearest returns what was probably meant: of a few wrong letters, or the end of a flag such as fast of poll.fast.
func nearest(word string, of []string) string {
	best, at := "", min(2, len(word)/3)+1
	for _, candidate := range of {
		if d := distance(word, candidate); d < at {
			best, at = candidate, d
		}
	}
	for _, candidate := range of {
		if tail := strings.TrimLeft(word, "-"); best == "" && len(tail) > 3 && strings.HasSuffix(candidate, "."+tail) {
			best = candidate
		}
	}
	return best
}

// distance is the number of letters to insert, remove, replace or swap with the next.
func distance(a, b string) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		for j := range rows[i] {
			if rows[i][j] = i + j; i == 0 || j == 0 {
				continue
			}
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			rows[i][j] = min(rows[i-1][j-1]+cost, rows[i-1][j]+1, rows[i][j-1]+1)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(a)][len(b)]
}
