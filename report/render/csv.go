package render

import (
	"encoding/csv"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/gpu-exporter/gpu-exporter/report/document"
)

// Column is a column of CSV files, for their documentation. In names, CURRENCY stands for that of the prices and LABEL for the label by
// which workloads are added up, as they do in levels.
type Column struct {
	Levels                     []string // whose files have it
	Name, Title, Unit, Meaning string   // the title is that of other formats, empty if they do not have it
}

// Columns are all columns of CSV files, in their order.
func Columns() (out []Column) {
	d := &document.Document{Currency: currency, GroupLabel: groupLabel, Past: make([]document.Past, 1), Comparison: &document.Comparison{}}
	partial := Column{Name: "partial", Meaning: "true if the report misses something, which its other formats list."}
	for _, t := range lists(d, Options{}) {
		if t.Key == "group" {
			t.Key = groupLabel
		}
		partial.Levels = append(partial.Levels, t.Key)
		for _, c := range t.Head {
			same := func(x Column) bool { return x.Name == c.name && x.Meaning == c.meaning }
			if i := slices.IndexFunc(out, same); i >= 0 {
				out[i].Levels = append(out[i].Levels, t.Key)
			} else if c.name != "" {
				out = append(out, Column{[]string{t.Key}, c.name, c.Title, c.unit, c.meaning})
			}
		}
	}
	return append(out, partial)
}

// AllCSVLevels are the levels that a report may have, with that of a label unless it is empty.
func AllCSVLevels(label string) (out []string) {
	all := Columns()
	for _, l := range all[len(all)-1].Levels {
		switch {
		case l != groupLabel:
			out = append(out, l)
		case label != "":
			out = append(out, GroupLevel(label))
		}
	}
	return out
}

// CSVLevels are those of a document, each of which is a CSV file.
func CSVLevels(d *document.Document) []string { return slices.Sorted(maps.Keys(csvTables(d))) }

func csvTables(d *document.Document) map[string]table {
	out := map[string]table{}
	for _, t := range lists(d, Options{}) {
		if t.Key == "group" {
			t.Key = GroupLevel(d.GroupLabel)
		}
		out[t.Key] = t
	}
	return out
}

var notWord = regexp.MustCompile(`[^a-zA-Z0-9_]`)

// GroupLevel is the name of a label's level and column: the label, after label_ where another level or column has that name.
func GroupLevel(label string) string {
	name := notWord.ReplaceAllString(label, "_")
	if slices.ContainsFunc(Columns(), func(c Column) bool { return c.Name == name || slices.Contains(c.Levels, name) }) {
		return "label_" + name
	}
	return name
}

// writeCSV writes the rows of one level.
func writeCSV(w io.Writer, d *document.Document, o Options) error {
	t, ok := csvTables(d)[o.Level]
	if !ok {
		return fmt.Errorf("the report has no level %q", o.Level)
	}
	names := strings.NewReplacer(currency, strings.ToLower(notWord.ReplaceAllString(d.Currency, "_")), groupLabel, GroupLevel(d.GroupLabel))
	var at []int
	var head []string
	for i, c := range t.Head {
		absent := c.name == "" || c.name == "query" && !o.Query || c.name == groupLabel && d.GroupLabel == "" ||
			strings.Contains(c.name, currency) && d.Currency == ""
		if !absent {
			at, head = append(at, i), append(head, names.Replace(c.name))
		}
	}
	out := csv.NewWriter(w)
	_ = out.Write(append(head, "partial")) // the error is kept
	for _, row := range t.Rows {
		var cells []string
		for _, i := range at {
			cells = append(cells, row[i].Sort)
		}
		_ = out.Write(append(cells, strconv.FormatBool(d.Partial)))
	}
	out.Flush()
	return out.Error()
}
