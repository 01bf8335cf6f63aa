package main

import (
	"fmt"
	"regexp"
	"strings"
)

// field is a property that both nvidia-smi and the exporter tell: one row of the last chapter of
// docs/metrics.md.
type field struct {
	// names are the spellings that nvidia-smi takes, the newest first.
	names []string
	// family and matchers lead to the answer; with label, the answer is the value of that label.
	family   string
	matchers []matcher
	label    string
	// place is family and matchers, or label, as the document spells them; fields of the same place are
	// spellings of one fact.
	place string
	note  string
	// kind and scope are those of the family: gauge, counter, info, state set; GPU, node.
	kind, scope string
}

func (f field) name() string { return f.names[0] }

// fieldsChapter is the title under which docs/metrics.md lists every field of nvidia-smi.
const fieldsChapter = "## Every field of nvidia-smi"

// parseFields reads the fields that are in the exporter from the text of docs/metrics.md, which is generated
// from the exporter's catalog and so is as true as it is.
func parseFields(doc string) ([]field, error) {
	chapters, table, found := strings.Cut(doc, fieldsChapter)
	if !found {
		return nil, fmt.Errorf("no chapter %q", fieldsChapter)
	}
	type family struct{ kind, scope string }
	families := map[string]family{}
	for _, line := range strings.Split(chapters, "\n") {
		if cells := tableRow(line); len(cells) == 7 && strings.HasPrefix(cells[0], "`") {
			families[codes(cells[0])[0]] = family{cells[1], cells[2]}
		}
	}
	var out []field
	for _, line := range strings.Split(table, "\n") {
		cells := tableRow(line)
		if len(cells) != 3 || !strings.HasPrefix(cells[0], "`") || cells[1] == "no" {
			continue
		}
		f := field{names: codes(cells[0]), place: cells[1], note: cells[2]}
		words := codes(cells[1])
		switch {
		case len(words) == 2 && strings.HasPrefix(cells[1], "label "):
			f.label, f.family = words[0], words[1]
		case len(words) == 1:
			var selector string
			if at := strings.IndexByte(words[0], '{'); at >= 0 {
				words[0], selector = words[0][:at], words[0][at:]
			}
			f.family = words[0]
			var err error
			if f.matchers, err = parseSelector(selector); err != nil {
				return nil, fmt.Errorf("field %s: %w", f.name(), err)
			}
		default:
			return nil, fmt.Errorf("field %s: cannot tell where %q is", f.name(), cells[1])
		}
		of, known := families[f.family]
		if !known {
			return nil, fmt.Errorf("field %s: family %s is in no chapter", f.name(), f.family)
		}
		f.kind, f.scope = of.kind, of.scope
		out = append(out, f)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("chapter %q lists no field", fieldsChapter)
	}
	return out, nil
}

// tableRow returns the cells of a line of a Markdown table, nil of any other line.
func tableRow(line string) []string {
	inner, ok := strings.CutPrefix(line, "|")
	if !ok || !strings.HasSuffix(inner, "|") {
		return nil
	}
	const bar = "\x00" // a bar inside a cell is written \|
	cells := strings.Split(strings.TrimSuffix(strings.ReplaceAll(inner, `\|`, bar), "|"), "|")
	for i := range cells {
		cells[i] = strings.TrimSpace(strings.ReplaceAll(cells[i], bar, "|"))
	}
	return cells
}

// codes returns the words of a cell that are set as code.
func codes(cell string) []string {
	var out []string
	for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cell, -1) {
		out = append(out, m[1])
	}
	return out
}
