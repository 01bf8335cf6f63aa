package hwcheck

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"time"
)

// smi is the path of nvidia-smi.
type smi string

// smiTimeout limits one run of nvidia-smi, which can hang on a faulty GPU; a cold start of eight GPUs takes half of it.
const smiTimeout = 45 * time.Second

// device is what nvidia-smi reports of one GPU, by queried field.
type device map[string]string

func (s smi) run(ctx context.Context, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, smiTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, string(s), args...)
	cmd.WaitDelay = time.Second
	out, err := cmd.Output()
	if err == nil {
		return string(out), nil
	}
	message := firstLine(string(out))
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && message == "" {
		message = firstLine(string(exit.Stderr))
	}
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	return string(out), fmt.Errorf("%s %s: %w: %s", s, args[0], err, message)
}

// fields returns the fields that nvidia-smi --help-query-gpu lists; nil if it lists none.
func (s smi) fields(ctx context.Context) map[string]bool {
	help, err := s.run(ctx, "--help-query-gpu")
	if err != nil {
		return nil
	}
	return parseHelp(help)
}

var (
	helpLine     = regexp.MustCompile(`(?m)^\s*"[^"]+"(?:\s*(?:,|or)\s*"[^"]+")*`)
	quoted       = regexp.MustCompile(`"([^"]+)"`)
	invalidField = regexp.MustCompile(`Field "([^"]+)" is not a valid field`)
)

// parseHelp reads the lines that begin with quoted names: "name" or "gpu_name".
func parseHelp(help string) map[string]bool {
	var names map[string]bool
	for _, line := range helpLine.FindAllString(help, -1) {
		for _, m := range quoted.FindAllStringSubmatch(line, -1) {
			if names == nil {
				names = map[string]bool{}
			}
			names[m[1]] = true
		}
	}
	return names
}

// query returns the fields of all GPUs. A field that this nvidia-smi does not know is left out.
func (s smi) query(ctx context.Context, fields []string, extra ...string) ([]device, error) {
	fields = append([]string{"uuid"}, fields...)
	for {
		out, err := s.run(
			ctx,
			append([]string{"--query-gpu=" + strings.Join(fields, ","), "--format=csv,nounits"}, extra...)...)
		m := invalidField.FindStringSubmatch(out)
		if m == nil && err == nil {
			return parseCSV(out, fields)
		}
		if m == nil {
			return nil, err
		}
		// One unknown field fails the whole query.
		i := slices.Index(fields, m[1])
		if i < 0 {
			return nil, fmt.Errorf("%s rejects field %s, which was not queried", s, m[1])
		}
		fields = slices.Delete(fields, i, i+1)
	}
}

// parseCSV reads the format csv: a header with units, then a line for each GPU, columns in the order of the query.
func parseCSV(text string, fields []string) ([]device, error) {
	r := csv.NewReader(strings.NewReader(text))
	r.TrimLeadingSpace, r.LazyQuotes, r.FieldsPerRecord = true, true, len(fields)
	lines, err := r.ReadAll()
	if err != nil || len(lines) < 2 {
		return nil, errors.Join(fmt.Errorf("nvidia-smi lists no GPU: %s", firstLine(text)), err)
	}
	var out []device
	for _, line := range lines[1:] {
		d := device{}
		for i, f := range fields {
			d[f] = strings.TrimSpace(line[i])
		}
		out = append(out, d)
	}
	return out, nil
}

// kind classifies a value that nvidia-smi prints.
type kind int

const (
	aValue kind = iota
	// notOffered: by the GPU or the driver.
	notOffered
	// deprecated: by the driver, for every GPU.
	deprecated
	// unreadable: nvidia-smi failed to read what may exist.
	unreadable
)

func classify(value string) kind {
	switch word := strings.ToLower(strings.Trim(value, "[]")); {
	case word == "", word == "n/a", word == "not supported", word == "function not found":
		return notOffered
	case strings.Contains(word, "deprecated"):
		return deprecated
	case strings.HasPrefix(value, "["), word == "err!", strings.HasPrefix(word, "unknown"):
		return unreadable
	}
	return aValue
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return line
}
