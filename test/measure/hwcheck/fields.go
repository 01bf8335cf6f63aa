package hwcheck

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/gpu-exporter/gpu-exporter/internal/catalog"
	"github.com/gpu-exporter/gpu-exporter/internal/catalog/reference"
)

// field is a row of reference.QueryFields that the exporter reports too.
type field struct {
	reference.QueryField
	family   catalog.Family
	matchers []*labels.Matcher
	label    string // whose value is the answer; empty: the value of the series is
}

// queryFields returns the fields that nvidia-smi and the exporter both report.
func queryFields() ([]field, error) {
	var out []field
	for _, q := range reference.QueryFields() {
		family, ok := catalog.Lookup(q.Family)
		if !ok {
			continue
		}
		f := field{QueryField: q, family: family}
		if f.label, ok = strings.CutPrefix(q.Selector, "label "); !ok {
			var err error
			if f.matchers, err = parser.NewParser(parser.Options{}).ParseMetricSelector(q.Family +
				q.Selector); err != nil {
				return nil, fmt.Errorf("field %s: %w", q.Field, err)
			}
			f.label = ""
		}
		out = append(out, f)
	}
	return out, nil
}

// spellings are the names that nvidia-smi takes for the field, the newest first.
func (f field) spellings() []string { return append([]string{f.Field}, f.Aliases...) }

// of returns the spelling that nvidia-smi reported and its value.
func (f field) of(d device) (name, value string, ok bool) {
	for _, name := range f.spellings() {
		if v, ok := d[name]; ok {
			return name, v, true
		}
	}
	return f.Field, "", false
}

// verdict is the result of comparing one field of one GPU.
type verdict string

// The verdicts. Only the last three are findings.
const (
	agrees       verdict = "agrees"
	absentInBoth verdict = "absent in both"
	notCompared  verdict = "not compared"
	differs      verdict = "DIFFERS"
	notExported  verdict = "NOT EXPORTED"
	onlyExported verdict = "ONLY EXPORTED"
)

func (v verdict) finding() bool { return v == differs || v == notExported || v == onlyExported }

// Row is one line of the table of a GPU: a field as nvidia-smi and the exporter report it.
type Row struct {
	Field   string
	SMI     string
	Ours    string
	Verdict verdict
	Remark  string
}

// reading is what one field is judged by: nvidia-smi's value and the scrapes before and after it.
type reading struct {
	field
	device        device
	smi           string
	before, after *scrape
}

// result is our side and the verdict.
type result struct {
	ours    string
	verdict verdict
	remark  string
}

// rule says how one kind of fields is compared.
type rule struct {
	kind    string
	applies func(f field) bool
	// moving: the value changes while the GPU is busy.
	moving  bool
	compare func(reading) result
}

const limitedFamily = "gpu_clock_limited_seconds_total"

// rules is the table of comparisons: the first rule that applies to a field is used, and the last applies to all.
// Numbers are
// compared as nvidia-smi's value times a scale, within an absolute tolerance in the exporter's unit or a relative one.
func rules() []rule {
	named := func(names ...string) func(field) bool { // a name that ends in a dot is a prefix
		return func(f field) bool {
			return slices.ContainsFunc(names, func(n string) bool {
				return f.Field == n || strings.HasSuffix(n, ".") && strings.HasPrefix(f.Field, n)
			})
		}
	}
	noted := func(prefixes ...string) func(field) bool {
		return func(f field) bool {
			return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(f.Note, p) })
		}
	}
	limited := func(f field) bool { return f.Family == limitedFamily }
	watts := func(f field) bool { return f.family.Unit == "watts" }
	return []rule{
		{"timestamp", named("timestamp"), true, func(reading) result {
			return result{"", notCompared, "a scrape has a timestamp of its own"}
		}},
		{"reasons", named("clocks_event_reasons.active", "clocks_event_reasons.supported"), true, compareReasons},
		{"text", func(f field) bool { return f.label != "" && f.family.Type != catalog.StateSet }, false, compareText},
		{"state", func(f field) bool { return f.label != "" }, false, compareState},
		{"reason", func(f field) bool { return limited(f) && strings.Contains(f.Note, "Active ->") }, true,
			compareReason},
		{"reason time", limited, true, number(1e-6, 1, 0.01)},
		{"flag", noted("Enabled -> 1", "Yes -> 1", "Active -> 1"), false, compareFlag},
		{"flag", named("fabric.health."), false, compareFlag},
		{"utilization", named("utilization.gpu", "utilization.memory"), true, compareUtilization},
		{"fan", named("fan.speed"), true, compareFans},
		{"utilization", noted("% -> ratio"), true, number(0.01, 0.25, 0)}, // of an engine: both are momentary
		{"temperature", named("temperature."), true, number(1, 2, 0)},
		{"power", func(f field) bool { return watts(f) && strings.Contains(f.Field, "draw") }, true,
			number(1, 2, 0.05)},
		{"power limit", watts, false, number(1, 0.5, 0)},
		// nvidia-smi rounds to whole MiB; used memory changes with every process.
		{"memory size", named("memory.total", "memory.reserved"), false, number(1<<20, 1.5*(1<<20), 0)},
		{"memory", noted("MiB -> bytes"), false, number(1<<20, 64<<20, 0)},
		{"clock limit", named("clocks.max."), false, number(1e6, 1e6, 0)},
		{"clock", noted("MHz -> hertz"), true, number(1e6, 100e6, 0.15)},
		{"link", named("pcie.link.gen.current", "pcie.link.gen.gpucurrent", "pcie.link.width.current"), true,
			number(1, 0, 0)},
		{"performance state", named("pstate"), true, number(1, 0, 0)},
		{"number", func(field) bool { return true }, false, number(1, 0, 0)},
	}
}

func ruleOf(f field) rule {
	all := rules()
	return all[slices.IndexFunc(all, func(r rule) bool { return r.applies(f) })]
}

// compare judges every field of a GPU.
func compare(fields []field, d device, before, after *scrape) []Row {
	out := make([]Row, 0, len(fields))
	for _, f := range fields {
		name, value, ok := f.of(d)
		r := result{"", notCompared, "this nvidia-smi has no such field"}
		if ok {
			r = reading{f, d, value, before, after}.judge(fields)
		}
		row := Row{name, value, r.ours, r.verdict, r.remark}
		switch name {
		case "uuid", "gpu_uuid", "serial", "gpu_serial": // reports are published
			if classify(value) == aValue {
				row.SMI = "(not shown)"
			}
			if row.Ours != "" {
				row.Ours = "(not shown)"
			}
		}
		out = append(out, row)
	}
	return out
}

// encoderSessions is the number of which nvidia-smi shows the means, 0 without any.
const encoderSessions = "encoder.stats.sessionCount"

// judge looks whether both sides have a value, and compares the values by the field's rule.
func (r reading) judge(fields []field) result {
	exported := r.exported()
	switch classify(r.smi) {
	case unreadable:
		return result{r.show(), notCompared, "nvidia-smi could not read it"}
	case deprecated:
		return result{r.show(), notCompared, "this driver reports it for no GPU"}
	case notOffered:
		switch {
		case !exported:
			return result{"", absentInBoth, ""}
		case r.sibling(fields) != "":
			return result{r.show(), notCompared, "nvidia-smi reports it as " + r.sibling(fields)}
		case strings.HasPrefix(r.Field, "utilization.") && r.device["mig.mode.current"] == "Enabled":
			return result{
				r.show(),
				notCompared,
				"MIG: from the profiling counters, which nvidia-smi does not show here",
			}
		}
		return result{r.show(), onlyExported, ""}
	}
	if off, err := parseFlag(r.smi); !exported && r.family.Type == catalog.StateSet && err == nil && off == 0 {
		return result{"", agrees, "a state that is not present has no series"}
	}
	if !exported && r.uncounted() {
		return result{"", notCompared, "this driver does not count the reason"}
	}
	if !exported && r.Field != encoderSessions && strings.HasPrefix(r.Field, "encoder.stats.") &&
		r.device[encoderSessions] == "0" {
		return result{"", notCompared, "a mean of no session"}
	}
	if !exported {
		return result{"", notExported, ""}
	}
	rule := ruleOf(r.field)
	got := rule.compare(r)
	if got.verdict == differs && got.remark == "" {
		got.remark = rule.kind
	}
	return got
}

// sibling returns another field with the same place in the exporter for which nvidia-smi has a value: some facts have
// an older and a newer field, and a GPU reports one of them.
func (r reading) sibling(fields []field) string {
	for _, other := range fields {
		if other.Family == r.Family && other.Selector == r.Selector && other.Field != r.Field {
			if name, v, ok := other.of(r.device); ok && classify(v) == aValue {
				return name
			}
		}
	}
	return ""
}

// uncounted reports whether the field is a momentary clock event reason, which every driver has as a bit, without the
// driver's counter that the exporter reads.
func (r reading) uncounted() bool {
	reason, momentary := strings.CutPrefix(r.Field, "clocks_event_reasons.")
	if r.Family != limitedFamily || r.label != "" || !momentary {
		return false
	}
	if reason == "hw_slowdown" {
		reason = "hw_thermal_slowdown"
	}
	return classify(r.device["clocks_event_reasons_counters."+reason]) != aValue
}

// on narrows matchers to the GPU where the family is per GPU.
func (r reading) on(matchers ...*labels.Matcher) []*labels.Matcher {
	if r.family.Scope == catalog.ScopeGPU {
		matchers = append(slices.Clone(matchers), equal("uuid", r.device["uuid"]))
	}
	return matchers
}

func (r reading) found() []sample { return r.after.find(r.Family, r.on(r.matchers...)...) }

func (r reading) exported() bool {
	return slices.ContainsFunc(r.found(), func(s sample) bool { return r.label == "" || s.Get(r.label) != "" })
}

// show returns our side as exported.
func (r reading) show() string {
	found := r.found()
	if len(found) > 0 && r.label != "" {
		return found[0].Get(r.label)
	}
	total, ok := r.after.sum(r.Family, r.on(r.matchers...)...)
	if !ok {
		return ""
	}
	return format(total)
}

func (r reading) differs(remark string, args ...any) result {
	return result{r.show(), differs, fmt.Sprintf(remark, args...)}
}

// span returns the lowest and highest value of a family in the two scrapes.
func (r reading) span(family string, matchers ...*labels.Matcher) (low, high float64, ok bool) {
	a, ok := r.after.sum(family, r.on(matchers...)...)
	b, before := r.before.sum(family, r.on(matchers...)...)
	if !before {
		b = a
	}
	return min(a, b), max(a, b), ok
}

// numbers makes a comparison from nvidia-smi's number and the range of ours.
func numbers(compare func(r reading, theirs, low, high float64) result) func(reading) result {
	return func(r reading) result {
		theirs, err := parseNumber(r.smi)
		if err != nil {
			return r.differs("%v", err)
		}
		if n := len(r.found()); n > 1 && r.Field != "fan.speed" && !strings.HasSuffix(r.Note, "their sum") {
			return r.differs("%d series", n)
		}
		low, high, _ := r.span(r.Family, r.matchers...)
		return compare(r, theirs, low, high)
	}
}

// number compares nvidia-smi's value times scale with ours.
func number(scale, absolute, relative float64) func(reading) result {
	return numbers(func(_ reading, theirs, low, high float64) result {
		return within(theirs, low/scale, high/scale, absolute/scale, relative)
	})
}

// within judges a number against the range low to high, all in nvidia-smi's unit.
func within(theirs, low, high, absolute, relative float64) result {
	tolerance := max(absolute, relative*math.Abs(theirs)) + 1e-9
	ours := format(high)
	if format(low) != ours {
		ours = format(low) + " to " + ours
	}
	return result{ours, verdictOf(theirs >= low-tolerance && theirs <= high+tolerance), ""}
}

// parseNumber reads a number of nvidia-smi, with or without its unit, and P8 as 8.
func parseNumber(text string) (float64, error) {
	digits, _, _ := strings.Cut(strings.TrimPrefix(text, "P"), " ")
	v, err := strconv.ParseFloat(digits, 64)
	if err != nil {
		return 0, fmt.Errorf("nvidia-smi's %q is no number", text)
	}
	return v, nil
}

func format(v float64) string { return strconv.FormatFloat(v, 'g', 7, 64) }

func verdictOf(same bool) verdict {
	if same {
		return agrees
	}
	return differs
}

// compareText compares nvidia-smi's text with a label.
func compareText(r reading) result {
	ours := r.show()
	if r.Field == "fabric.status" { // a code: Success in nvidia-smi, SUCCESS in NVML's enumeration
		return result{ours, verdictOf(strings.EqualFold(ours, r.smi)), ""}
	}
	if r.label != "pci_bus_id" {
		return result{ours, verdictOf(ours == r.smi), ""}
	}
	parts := strings.FieldsFunc(ours, func(r rune) bool { return r == ':' || r == '.' })
	if len(parts) != 4 {
		return r.differs("is no PCI address")
	}
	if i := slices.Index([]string{"pci.domain", "pci.bus", "pci.device"}, r.Field); i >= 0 {
		return result{parts[i], verdictOf(hex(r.smi) == hex(parts[i])), ""}
	}
	// nvidia-smi prints the domain with eight digits, Linux with four.
	domain, rest, _ := strings.Cut(r.smi, ":")
	same := strings.EqualFold(rest, strings.Join(parts[1:3], ":")+"."+parts[3]) && hex(domain) == hex(parts[0])
	return result{ours, verdictOf(same), ""}
}

// hex reads a hexadecimal number; -1 if it is none.
func hex(text string) int64 {
	v, err := strconv.ParseInt(strings.TrimPrefix(strings.ToLower(text), "0x"), 16, 64)
	if err != nil {
		return -1
	}
	return v
}

// compareState compares nvidia-smi's word with the state that is 1.
func compareState(r reading) result {
	var ours []string
	for _, s := range r.found() {
		if s.value == 1 {
			ours = append(ours, s.Get(r.label))
		}
	}
	return result{strings.Join(ours, ", "), verdictOf(len(ours) == 1 && ours[0] == word(r.smi)), ""}
}

// word turns a state of nvidia-smi into a label value: "Drain and Reset" is drain_and_reset, "E. Process"
// exclusive_process.
func word(text string) string {
	text = strings.Replace(strings.ToLower(text), "e. ", "exclusive ", 1)
	return strings.Join(strings.FieldsFunc(text, func(r rune) bool { return r == ' ' || r == '_' || r == '-' }), "_")
}

// parseFlag reads a word as 0 or 1.
func parseFlag(text string) (float64, error) {
	switch word(text) {
	case "enabled", "yes", "active", "true", "pending", "degraded", "1":
		return 1, nil
	case "disabled", "no", "not_active", "false", "full", "healthy", "none", "0":
		return 0, nil
	}
	return 0, fmt.Errorf("unknown word %q", text)
}

func compareFlag(r reading) result {
	theirs, err := parseFlag(r.smi)
	if err != nil {
		return r.differs("%v", err)
	}
	low, high, _ := r.span(r.Family, r.matchers...)
	return within(theirs, low, high, 0, 0)
}

// compareFans compares the one speed that nvidia-smi reports with all fans of the GPU.
func compareFans(r reading) result {
	return numbers(func(r reading, theirs, _, _ float64) result {
		low, high := math.Inf(1), math.Inf(-1)
		for _, s := range append(r.before.find(r.Family, r.on()...), r.found()...) {
			low, high = min(low, s.value*100), max(high, s.value*100)
		}
		return within(theirs, low, high, 5, 0)
	})(r)
}

// compareUtilization compares nvidia-smi's last sample period with the mean between the scrapes. The tolerance is wide:
// under an intermittent load a momentary value is anything from 0 to the peak.
func compareUtilization(r reading) result {
	return numbers(func(r reading, theirs, _, _ float64) result {
		busy, observed := r.increase(r.Family), r.increase("gpu_observed_seconds_total")
		if observed <= 0 { // no sample between the scrapes: all since the start
			_, busy, _ = r.span(r.Family)
			_, observed, _ = r.span("gpu_observed_seconds_total")
		}
		if observed <= 0 {
			return r.differs("no time was observed")
		}
		low := 100 * busy / observed
		high := low
		if r.Field == "utilization.gpu" {
			_, peak, _ := r.span("gpu_utilization_peak_ratio")
			high = max(high, 100*peak)
			if recent, ok := r.after.sum("gpu_utilization_ratio", r.on()...); ok {
				low, high = min(low, 100*recent), max(high, 100*recent)
			}
		}
		if high-low > 15 {
			low = 0
		}
		return within(theirs, low, high, 25, 0)
	})(r)
}

// increase is by how much a counter grew between the scrapes.
func (r reading) increase(family string, matchers ...*labels.Matcher) float64 {
	b, ok := r.before.sum(family, r.on(matchers...)...)
	a, _ := r.after.sum(family, r.on(matchers...)...)
	if !ok || a < b {
		return 0
	}
	return a - b
}

// compareReason compares a reason that holds now with its counter: an active reason makes the counter grow, and an
// inactive one cannot have filled the whole period.
func compareReason(r reading) result {
	active, err := parseFlag(r.smi)
	if err != nil {
		return r.differs("%v", err)
	}
	return r.reason(active == 1, r.matchers...)
}

func (r reading) reason(active bool, matchers ...*labels.Matcher) result {
	grew, elapsed := r.increase(
		r.Family,
		matchers...), r.increase(
		"gpu_last_read_timestamp_seconds",
		equal("poll", "fast"),
	)
	ours := "+" + format(grew) + " s"
	switch {
	case active && elapsed > 0 && grew == 0:
		return result{ours, differs, "the reason is active and its counter did not grow"}
	case !active && elapsed > 0 && grew > 0.9*elapsed:
		return result{ours, differs, "the reason is inactive and its counter grew all the time"}
	}
	return result{ours, agrees, ""}
}

// compareReasons compares the bit mask of the reasons that are supported or active.
func compareReasons(r reading) result {
	mask := hex(r.smi)
	if mask < 0 {
		return r.differs("nvidia-smi's %q is no number", r.smi)
	}
	var ours, wrong []string
	for _, b := range []struct {
		reason string
		bit    uint
	}{{"power_cap", 2}, {"sync_boost", 4}, {"sw_thermal", 5}, {"hw_thermal", 6}, {"hw_power_brake", 7}} {
		set, reason := mask>>b.bit&1 == 1, equal("reason", b.reason)
		if r.family.Type != catalog.StateSet && len(r.after.find(r.Family, r.on(reason)...)) == 0 {
			continue // the reason's own rows cover whether it is exported
		}
		shown, good := true, set
		if r.Field == "clocks_event_reasons.active" {
			low, high, _ := r.span(r.Family, reason)
			shown, good = high == 1, set && high == 1 || !set && low == 0
		}
		if shown {
			ours = append(ours, b.reason)
		}
		if !good {
			wrong = append(wrong, b.reason)
		}
	}
	return result{cmp.Or(strings.Join(ours, " "), "none"), verdictOf(len(wrong) == 0), strings.Join(wrong, ", ")}
}
