package reference

import (
	_ "embed" // the table of nvidia-smi's fields
	"encoding/csv"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/gpu-exporter/gpu-exporter/internal/catalog"
)

// QueryField is a field of nvidia-smi --query-gpu and the family that carries its value: a row of nvidia-smi.csv.
// Exactly one of Family and Missing is set.
type QueryField struct {
	Section string
	Field   string
	// Aliases are other names that some driver accepts for the field, older ones among them.
	Aliases []string
	Family  string
	// Selector narrows Family to the value: a PromQL selector, or "label NAME" where the value of a label is meant.
	// Empty: every series of the family.
	Selector string
	// Note is the difference to nvidia-smi, units above all: "MiB -> bytes".
	Note string
	// Missing is the reason why no family carries the value.
	Missing string
}

const (
	// QueryFieldsDriver is the driver release whose fields are all in QueryFields, in its order.
	QueryFieldsDriver = "610.57"
	// olderDrivers is the section of the fields that this driver no longer accepts.
	olderDrivers = "Fields of older drivers"
	// notYet begins the reason of a field that NVML has and no family carries yet; the call follows. Once a family has
	// the call as its source, the field is that family's.
	notYet = "not exported yet: "
)

//go:embed nvidia-smi.csv
var queryFields string

// QueryFields returns every field of nvidia-smi --query-gpu in the order of nvidia-smi, then those that only older
// drivers accept.
func QueryFields() []QueryField {
	rows, err := csv.NewReader(strings.NewReader(queryFields)).ReadAll()
	if err != nil {
		panic(fmt.Sprintf("nvidia-smi.csv: %v", err)) // part of the source; a test reads it
	}
	all := make([]QueryField, 0, len(rows))
	for _, r := range rows[1:] {
		all = append(all, QueryField{r[0], r[1], strings.Fields(r[2]), r[3], r[4], r[5], r[6]}.resolve(catalog.All()))
	}
	return all
}

// resolve turns a field that is not exported yet into one of the family that reads its call, once there is one.
func (q QueryField) resolve(families []catalog.Family) QueryField {
	if call, pending := strings.CutPrefix(q.Missing, notYet); pending {
		if i := slices.IndexFunc(families, func(f catalog.Family) bool { return reads(f.Source, call) }); i >= 0 {
			q.Family, q.Missing = families[i].Name, ""
		}
	}
	return q
}

var fieldIDs = regexp.MustCompile(`(\d+)(?: to (\d+))?`)

// reads reports whether the source of a family names a call or an NVML field.
func reads(source, call string) bool {
	if id, err := strconv.Atoi(strings.TrimPrefix(call, "NVML field ")); err == nil {
		_, fields, _ := strings.Cut(source, "NVML field")
		for _, m := range fieldIDs.FindAllStringSubmatch(fields, -1) {
			first, _ := strconv.Atoi(m[1])
			last, _ := strconv.Atoi(m[2])
			if first <= id && id <= max(first, last) {
				return true
			}
		}
		return false
	}
	return regexp.MustCompile(`\b` + regexp.QuoteMeta(strings.TrimPrefix(call, "nvmlDevice")) + `\b`).MatchString(
		strings.ReplaceAll(source, "nvmlDevice", ""))
}

// converted are the notes that the introduction of the page has for all fields.
var converted = regexp.MustCompile(`^(MiB -> bytes|MHz -> hertz|% -> ratio|µs -> seconds|(Enabled|Yes|Active) -> 1|` +
	`the series with value 1|Active -> seconds; active while the rate is above 0)$`)

// QueryFieldsMarkdown renders the fields in docs/nvidia-gpu-exporter.md: an item per run of neighbors that differ in one selector, or are
// missing for the same reason.
func QueryFieldsMarkdown() string {
	all := QueryFields()
	var exported, pending, missing, older int
	for _, q := range all {
		switch {
		case q.Section == olderDrivers:
			older++
		case q.Family != "":
			exported++
		case strings.HasPrefix(q.Missing, notYet):
			pending++
		default:
			missing++
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "## Fields of nvidia-smi\n\nGenerated from [nvidia-smi.csv](../internal/catalog/reference/nvidia-smi.csv), which "+
		"has every field of `nvidia-smi --query-gpu` in its own row,\nwith its aliases and label values.\n\nDriver %s has %d fields: "+
		"%d are exported, %d are not exported yet although NVML has them, %d are omitted for the\nreason given. %d fields that only "+
		"older drivers accept come last. `family{label}` has one series per value of the label,\n`family` (`label`) is the label of "+
		"an info metric. Values are in base units (MiB as bytes, MHz as hertz, %% as a ratio, µs as\nseconds); Enabled, Yes and "+
		"Active are 1, or seconds, whose rate is above 0 while active. The state is the series with value 1.\n",
		QueryFieldsDriver, len(all)-older, exported, pending, missing, older)
	section := ""
	for i := 0; i < len(all); {
		q := all[i]
		if q.Section != section {
			section = q.Section
			fmt.Fprintf(&b, "\n### %s\n\n", section)
		}
		n := slices.IndexFunc(all[i:], func(o QueryField) bool {
			return o.Section != section || o.place() != q.place() || o.Note != q.Note
		})
		if n < 0 {
			n = len(all) - i
		}
		var names []string
		for _, o := range all[i : i+n] {
			names = append(names, o.Field)
		}
		line := fmt.Sprintf("- %s: %s", code(names), q.place())
		if q.Note != "" && !converted.MatchString(q.Note) {
			line += " (" + q.Note + ")"
		}
		b.WriteString(line + "\n")
		i += n
	}
	return b.String()
}

// place is where the value is: a family with the labels that select it, a label of a family, or the reason for neither.
func (q QueryField) place() string {
	if q.Family == "" {
		return q.Missing
	}
	if label, ok := strings.CutPrefix(q.Selector, "label "); ok {
		return "`" + q.Family + "` (`" + label + "`)"
	}
	var labels []string
	for matcher := range strings.SplitSeq(strings.Trim(q.Selector, "{}"), ", ") {
		if label, _, ok := strings.Cut(matcher, "="); ok {
			labels = append(labels, label)
		}
	}
	if len(labels) == 0 {
		return "`" + q.Family + "`"
	}
	return "`" + q.Family + "{" + strings.Join(labels, ", ") + "}`"
}
