package architecture

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Setting is a line of a unit file of systemd.
type Setting struct{ Section, Name, Value string }

// Unit reads a unit file.
func Unit(path string) (out []Setting, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	section := ""
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		name, value, ok := strings.Cut(line, "=")
		switch {
		case line == "" || line[0] == '#':
		case line[0] == '[':
			section = strings.Trim(line, "[]")
		case !ok || strings.HasSuffix(line, `\`):
			return nil, fmt.Errorf("%s: cannot read %q", path, line)
		default:
			out = append(out, Setting{section, name, value})
		}
	}
	return out, nil
}

// Started is how a unit starts its program: its arguments and environment, with the lines of its environment files, which
// lie in the repository under other names.
func Started(unit []Setting, files map[string]string) (args, env []string, err error) {
	for _, s := range unit {
		switch s.Name {
		case "ExecStart":
			args = append(args, strings.Fields(s.Value)...)
		case "Environment":
			env = append(env, strings.Fields(s.Value)...)
		case "EnvironmentFile":
			text, err := os.ReadFile(files[strings.TrimPrefix(s.Value, "-")])
			if err != nil {
				return nil, nil, fmt.Errorf("%s: %w", s.Value, err)
			}
			for line := range strings.Lines(string(text)) {
				if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
					env = append(env, line)
				}
			}
		}
	}
	for i := len(args) - 1; i >= 0; i-- {
		name, variable := strings.CutPrefix(args[i], "$")
		if !variable {
			continue
		}
		var words []string
		for _, e := range env {
			if value, ok := strings.CutPrefix(e, name+"="); ok {
				words = strings.Fields(strings.Trim(value, `"`))
			}
		}
		args = append(args[:i], append(words, args[i+1:]...)...)
	}
	return args, env, nil
}

// Making returns the last command of a target of the Makefile, without running it.
func Making(root, target string, variables ...string) ([]string, error) {
	cmd := exec.Command("make", append([]string{"--no-print-directory", "-n", target}, variables...)...)
	cmd.Dir = root
	out, err := cmd.Output()
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if err != nil || len(lines) == 0 {
		return nil, fmt.Errorf("make -n %s: %w: %s", target, err, out)
	}
	return strings.Fields(lines[len(lines)-1]), nil
}

// Packaged are the files of the packages, by the paths at which they are installed.
func Packaged(root string) (map[string]string, error) {
	text, err := os.ReadFile(filepath.Join(root, "deploy", "packages", "nfpm.yaml"))
	out, from := map[string]string{}, ""
	for line := range strings.Lines(string(text)) {
		line = strings.TrimPrefix(strings.TrimSpace(line), "- ")
		if path, ok := strings.CutPrefix(line, "src: "); ok {
			from = strings.Replace(path, "${PKG_ARCH}/", "", 1)
		}
		if path, ok := strings.CutPrefix(line, "dst: "); ok {
			out[path] = filepath.Join(root, from)
		}
	}
	return out, err
}
