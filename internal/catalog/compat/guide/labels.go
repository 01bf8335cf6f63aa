package guide

import (
	_ "embed"
	"encoding/csv"
	"fmt"
	"strings"
)

//go:embed labels.csv
var labelTable string

// Label is a label of dcgm-exporter, or one that is only here.
type Label struct {
	Name string
	// Upstream is the file or option of dcgm-exporter that sets it; empty: only here.
	Upstream string
	// Is says whether it is "equal", "differs", needs an "option", was "added" here, or is "absent".
	Is string
	// Here describes the difference or the reason. Labels with the same text are listed together.
	Here string
}

// Labels lists all labels of dcgm-exporter, from labels.csv, where "as NAME" stands for the text of another label. The
// error is a row that cannot be read.
func Labels() ([]Label, error) {
	lines, err := csv.NewReader(strings.NewReader(labelTable)).ReadAll()
	if err != nil {
		return nil, fmt.Errorf("labels.csv: %w", err)
	}
	var out []Label
	texts := map[string]string{}
	for _, l := range lines[1:] {
		if name, ok := strings.CutPrefix(l[3], "as "); ok && texts[name] != "" {
			l[3] = texts[name]
		}
		texts[l[0]] = l[3]
		out = append(out, Label{l[0], l[1], l[2], l[3]})
	}
	return out, nil
}

// labelsMarkdown is the table of the labels that are not absent, or of those that are.
func labelsMarkdown(absent bool) (string, error) {
	labels, err := Labels()
	if err != nil {
		return "", err
	}
	var order []string
	names := map[string][]string{}
	for _, l := range labels {
		if (l.Is == "absent") != absent {
			continue
		}
		text := l.Here
		if l.Is == "equal" {
			text = "equal"
		}
		if names[text] == nil {
			order = append(order, text)
		}
		name := "`" + l.Name + "`"
		if strings.HasPrefix(l.Name, "(") {
			name = strings.Trim(l.Name, "()")
		}
		names[text] = append(names[text], name)
	}
	var b strings.Builder
	for _, text := range order {
		if absent {
			fmt.Fprintf(&b, "| labels %s | %s | |\n", strings.Join(names[text], ", "), text)
		} else {
			fmt.Fprintf(&b, "| %s | %s |\n", strings.Join(names[text], ", "), text)
		}
	}
	return b.String(), nil
}
