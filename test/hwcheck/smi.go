package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"strings"
	"time"
)

// smi is the nvidia-smi of this machine. Each question has a limit in time: on a sick GPU it can hang.
type smi struct{ path string }

// smiLimit is the longest that one question may take; a cold start of eight GPUs takes half of it.
const smiLimit = 45 * time.Second

// GPU is what nvidia-smi answered for one GPU, by the name of the field that was asked.
type dev map[string]string

func (s smi) run(ctx context.Context, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, smiLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, s.path, args...)
	cmd.WaitDelay = time.Second
	out, err := cmd.Output()
	if err == nil {
		return string(out), nil
	}
	said := firstLine(string(out))
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && said == "" {
		said = firstLine(string(exit.Stderr))
	}
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	return string(out), fmt.Errorf("%s %s: %w: %s", s.path, args[0], err, said)
}

// offered returns the fields that this nvidia-smi says it takes, nil where it does not list them.
func (s smi) offered(ctx context.Context) map[string]bool {
	help, err := s.run(ctx, "--help-query-gpu")
	if err != nil {
		return nil
	}
	return parseHelp(help)
}

// parseHelp reads the names off nvidia-smi --help-query-gpu: lines such as "name" or "gpu_name".
func parseHelp(help string) map[string]bool {
	names := map[string]bool{}
	quoted := regexp.MustCompile(`^"([^"]+)"`)
	for _, line := range strings.Split(help, "\n") {
		for line = strings.TrimSpace(line); ; {
			m := quoted.FindStringSubmatch(line)
			if m == nil {
				break
			}
			names[m[1]] = true
			line = strings.TrimLeft(strings.TrimPrefix(strings.TrimSpace(line[len(m[0]):]), "or "), " ,")
		}
	}
	if len(names) == 0 {
		return nil
	}
	return names
}

// query asks for fields of all GPUs. A field that this nvidia-smi does not take is left out of the answers.
func (s smi) query(ctx context.Context, fields []string, extra ...string) ([]dev, error) {
	fields = append([]string{"uuid"}, fields...)
	invalid := regexp.MustCompile(`Field "([^"]+)" is not a valid field`)
	for {
		args := append([]string{"--query-gpu=" + strings.Join(fields, ","), "--format=csv,nounits"}, extra...)
		out, err := s.run(ctx, args...)
		if m := invalid.FindStringSubmatch(out); m != nil {
			// It refuses the whole question for one unknown field: ask again without it.
			kept := fields[:0:0]
			for _, f := range fields {
				if f != m[1] {
					kept = append(kept, f)
				}
			}
			if len(kept) == len(fields) {
				return nil, fmt.Errorf("%s refuses field %s, which it was not asked for", s.path, m[1])
			}
			fields = kept
			continue
		}
		if err != nil {
			return nil, err
		}
		return parseCSV(out, fields)
	}
}

// parseCSV reads an answer in the format csv. The columns are those that were asked for, in their order; the
// header repeats them with their units and is checked for it.
func parseCSV(text string, fields []string) ([]dev, error) {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	if len(lines) < 2 {
		return nil, fmt.Errorf("nvidia-smi lists no GPU: %s", firstLine(text))
	}
	header := splitCSV(lines[0])
	if len(header) != len(fields) {
		return nil, fmt.Errorf("nvidia-smi answered with %d columns to %d fields: %s", len(header), len(fields), lines[0])
	}
	var devs []dev
	for _, line := range lines[1:] {
		values := splitCSV(line)
		if len(values) != len(fields) {
			return nil, fmt.Errorf("nvidia-smi answered with %d values to %d fields: %s", len(values), len(fields), line)
		}
		c := dev{}
		for i, f := range fields {
			c[f] = values[i]
		}
		devs = append(devs, c)
	}
	return devs, nil
}

func splitCSV(line string) []string {
	cells := strings.Split(line, ",")
	for i := range cells {
		cells[i] = strings.TrimSpace(cells[i])
	}
	return cells
}

// answered tells what kind of answer a value of nvidia-smi is.
type answered int

const (
	answeredValue answered = iota
	// answeredNone: the GPU or the driver does not offer it.
	answeredNone
	// answeredRetired: this driver answers the question for no GPU any more.
	answeredRetired
	// answeredFailed: nvidia-smi could not read what may well be there.
	answeredFailed
)

func classify(value string) answered {
	switch word := strings.ToLower(strings.Trim(value, "[]")); {
	case word == "", word == "n/a", word == "not supported", word == "function not found":
		return answeredNone
	case strings.Contains(word, "deprecated"):
		return answeredRetired
	case strings.HasPrefix(value, "["), word == "err!", strings.HasPrefix(word, "unknown"):
		return answeredFailed
	}
	return answeredValue
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return line
}
