package main

import (
	"fmt"
	"strings"

	"github.com/gpu-exporter/gpu-exporter/internal/catalog"
)

// field is a property that both nvidia-smi and the exporter tell: one row of catalog.QueryFields.
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

// queryFields returns the fields that the exporter exports.
func queryFields() ([]field, error) {
	var out []field
	for _, q := range catalog.QueryFields() {
		family, ok := catalog.Lookup(q.Family)
		if !ok {
			continue
		}
		f := field{names: append([]string{q.Field}, q.Aliases...), family: q.Family, place: q.Family + q.Selector, note: q.Note,
			kind: string(family.Type), scope: string(family.Scope)}
		if f.label, ok = strings.CutPrefix(q.Selector, "label "); !ok {
			var err error
			if f.matchers, err = parseSelector(q.Selector); err != nil {
				return nil, fmt.Errorf("field %s: %w", q.Field, err)
			}
			f.label = ""
		}
		out = append(out, f)
	}
	return out, nil
}
