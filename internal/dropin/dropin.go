// Package dropin lets the exporter stand in for dcgm-exporter where others start it: it turns dcgm-exporter's flags and
// variables into the exporter's own. Nothing else of the program knows of them.
package dropin

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// program is the name that selects this by itself.
const program = "dcgm-exporter"

// given are the values that were set, by option, and what set them.
type given map[string]struct{ value, by string }

// Args returns the arguments of the exporter for a command line and an environment. Those are of dcgm-exporter where the
// program is called by its name, where all flags are its own, or without flags where one of its variables is set; else the
// arguments are returned as they are. The error is one line for the person who typed them.
func Args(argv, environ []string) ([]string, error) {
	args, options := argv[1:], Options()
	named := filepath.Base(argv[0]) == program
	if !named {
		theirs, ours := sorted(args, options)
		switch {
		case theirs != "" && ours != "":
			return nil, fmt.Errorf("%s is a flag of dcgm-exporter, and %s is not: beside flags of dcgm-exporter the exporter's own are "+
				"set by variables, such as GPU_EXPORTER_POLL_FAST", theirs, ours)
		case theirs == "" && (len(args) > 0 || !hasVariable(environ, options)):
			return args, nil
		}
	}
	values := given{}
	if err := values.environment(environ, options); err != nil {
		return nil, err
	}
	for len(args) > 0 {
		if slices.Contains([]string{"-h", "--help", "-help", "-v", "--version", "-version"}, args[0]) {
			return args[:1], nil
		}
		var err error
		if args, err = values.argument(args, options); err != nil {
			return nil, err
		}
	}
	return values.translate(options)
}

// sorted returns a flag of dcgm-exporter, and one that is not, among the arguments. A first word without a dash is a command
// of the exporter.
func sorted(args []string, options []Option) (theirs, ours string) {
	for i, a := range args {
		switch name, _, isFlag := split(a); {
		case !isFlag && i > 0:
		case isFlag && find(options, name) != nil:
			theirs = a
		default:
			ours = a
		}
	}
	return theirs, ours
}

// split returns the name of a flag, written with one dash or two, and its value behind an equals sign.
func split(arg string) (name, value string, isFlag bool) {
	name, isFlag = strings.CutPrefix(arg, "-")
	name = strings.TrimPrefix(name, "-")
	name, value, _ = strings.Cut(name, "=")
	return name, value, isFlag && name != ""
}

func find(options []Option, name string) *Option {
	i := slices.IndexFunc(options, func(o Option) bool { return name == o.Name || name == o.Alias })
	if i < 0 {
		return nil
	}
	return &options[i]
}

// hasVariable reports whether a variable is set that only dcgm-exporter has.
func hasVariable(environ []string, options []Option) bool {
	return slices.ContainsFunc(environ, func(e string) bool {
		name, _, _ := strings.Cut(e, "=")
		return strings.HasPrefix(name, "DCGM_") || name != "DISABLE_STARTUP_VALIDATE" &&
			slices.ContainsFunc(options, func(o Option) bool { return o.Variable == name })
	})
}

// environment takes the variables; an empty one is not set, as there.
func (g given) environment(environ []string, options []Option) error {
	for _, e := range environ {
		name, value, _ := strings.Cut(e, "=")
		i := slices.IndexFunc(options, func(o Option) bool { return o.Variable == name })
		if i < 0 || value == "" {
			continue
		}
		if err := g.take(&options[i], value, "the environment variable "+name); err != nil {
			return err
		}
	}
	return nil
}

// argument takes the first flag, and returns the arguments after it. Flags come before variables.
func (g given) argument(args []string, options []Option) ([]string, error) {
	name, value, isFlag := split(args[0])
	o := find(options, name)
	switch {
	case !isFlag:
		return nil, fmt.Errorf("unexpected argument %q: dcgm-exporter has flags alone", args[0])
	case o == nil:
		return nil, fmt.Errorf("unknown flag %s; those of dcgm-exporter are in docs/dcgm-exporter.md, and the exporter's own are set "+
			"by variables here, such as GPU_EXPORTER_POLL_FAST", args[0])
	case strings.Contains(args[0], "="):
		return args[1:], g.take(o, value, args[0])
	case o.Kind == onOff:
		return args[1:], g.take(o, "true", args[0])
	case len(args) == 1:
		return nil, fmt.Errorf("%s needs a value", args[0])
	}
	return args[2:], g.take(o, args[1], args[0])
}

func (g given) take(o *Option, value, by string) error {
	value, err := o.check(value)
	if err != nil {
		return fmt.Errorf("%s: %w", by, err)
	}
	if before, again := g[o.Name]; again && o.Kind == list && strings.HasPrefix(before.by, "-") {
		value = before.value + "," + value // a list may be given in parts
	}
	g[o.Name] = struct{ value, by string }{value, by}
	return nil
}

// on reports whether an option is true.
func (g given) on(name string) bool { return g[name].value == "true" }

// translate returns the exporter's flags.
func (g given) translate(options []Option) ([]string, error) {
	out := []string{"--compat=dcgm-4.8", "--compat.set=main=true"}
	if _, set := g["config-file"]; set {
		out = append(out, "--compat.set=config-file="+g["config-file"].value)
	}
	if _, set := g["collectors"]; set || g["config-file"].value == "" {
		out = append(out, "--compat.set=collectors="+g.value(find(options, "collectors")))
	}
	pods := g.on("kubernetes-enable-pod-labels") || g.on("kubernetes-enable-pod-uid")
	if g.on("kubernetes") && pods {
		out = append(out, "--kubernetes.pods")
	}
	if g.on("kubernetes") && g.on("kubernetes-enable-dra") {
		out = append(out, "--kubernetes.resource-slices")
	}
	var ignored []string
	for i := range options {
		o := &options[i]
		if _, set := g[o.Name]; set && o.Ignored {
			ignored = append(ignored, "--compat.note="+g[o.Name].by+": "+o.Meaning)
		}
		if o.flags == nil || o.Name == "address" && g.on("web-systemd-socket") {
			continue
		}
		flags, err := o.flags(g.value(o))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", g[o.Name].by, err)
		}
		out = append(out, flags...)
	}
	out = append(out, "--compat.note=/metrics has the fields of the collector file, /metrics/gpu the exporter's own metrics")
	return append(out, ignored...), nil
}

// value is what was set, or the default.
func (g given) value(o *Option) string {
	if v, set := g[o.Name]; set {
		return v.value
	}
	return o.Default
}
