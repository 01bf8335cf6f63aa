package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// verdict is what the comparison of one field of one GPU came to.
type verdict string

// The verdicts. Only the last three are findings.
const (
	agrees       verdict = "agrees"
	absentInBoth verdict = "absent in both"
	notCompared  verdict = "not compared"
	differs      verdict = "DIFFERS"
	absentHere   verdict = "ABSENT HERE"
	onlyHere     verdict = "ONLY HERE"
)

func (v verdict) finding() bool { return v == differs || v == absentHere || v == onlyHere }

// row is one line of the table of a GPU.
type row struct {
	field        string
	theirs, ours string
	verdict      verdict
	remark       string
}

// reading is what there is to judge a field of a GPU: nvidia-smi's answers, and the scrapes before and
// after them.
type reading struct {
	field         field
	dev           dev
	theirs        string
	before, after exposition
}

// matchers narrow a family to the GPU.
func (r reading) matchers(more ...matcher) []matcher {
	if r.field.scope == "GPU" {
		more = append(more, is("uuid", r.dev["uuid"]))
	}
	return more
}

// result is what a rule found: our side for the table, and what to think of it.
type result struct {
	ours    string
	verdict verdict
	remark  string
}

// rule compares the fields of one kind.
type rule struct {
	kind    string
	applies func(f field) bool
	// moving: the value changes from moment to moment when the GPU is at work.
	moving  bool
	compare func(reading) result
}

// rules returns the rules; the first that applies is taken, and the last applies to everything.
func rules() []rule {
	name := func(prefixes ...string) func(field) bool {
		return func(f field) bool {
			return slices.ContainsFunc(prefixes, func(p string) bool {
				return f.name() == p || strings.HasSuffix(p, ".") && strings.HasPrefix(f.name(), p)
			})
		}
	}
	note := func(prefixes ...string) func(field) bool {
		return func(f field) bool {
			return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(f.note, p) })
		}
	}
	watts := func(f field) bool { return strings.HasSuffix(f.family, "_watts") }
	return []rule{
		{"moment", name("timestamp"), true, func(reading) result {
			return result{"", notCompared, "a scrape has a moment of its own"}
		}},
		{"reasons", func(f field) bool { return f.family == limitedFamily && f.label != "" }, true, compareReasons},
		{"text", func(f field) bool { return f.label != "" && f.kind != "state set" }, false, compareText},
		{"state", func(f field) bool { return f.label != "" }, false, compareState},
		{"reason", func(f field) bool { return f.family == limitedFamily && strings.Contains(f.note, "Active ->") }, true, compareReason},
		{"reason time", func(f field) bool { return f.family == limitedFamily }, true, number(1e-6, 1, 0.01)},
		{"flag", note("Enabled -> 1", "Yes -> 1"), false, compareFlag},
		{"flag", name("fabric.health."), false, compareFlag},
		{"utilisation", name("utilization.gpu", "utilization.memory"), true, compareUtilisation},
		{"fan", name("fan.speed"), true, compareFans},
		{"utilisation", note("% -> ratio"), true, number(0.01, 0.25, 0)}, // of an engine: a moment against a moment
		{"headroom", name("temperature.gpu.tlimit"), true, compareHeadroom},
		{"temperature", name("temperature."), true, number(1, 2, 0)},
		{"power", func(f field) bool { return watts(f) && strings.Contains(f.name(), "draw") }, true, number(1, 2, 0.05)},
		{"power limit", watts, false, number(1, 0.5, 0)},
		// nvidia-smi rounds to whole MiB; what is used changes with every process.
		{"memory size", name("memory.total", "memory.reserved"), false, number(1<<20, 1.5*(1<<20), 0)},
		{"memory", note("MiB -> bytes"), false, number(1<<20, 64<<20, 0)},
		{"clock limit", name("clocks.max."), false, number(1e6, 1e6, 0)},
		{"clock", note("MHz -> hertz"), true, number(1e6, 100e6, 0.15)},
		{"link", name("pcie.link.gen.current", "pcie.link.gen.gpucurrent", "pcie.link.width.current"), true, number(1, 0, 0)},
		{"performance state", name("pstate"), true, number(1, 0, 0)},
		{"number", func(field) bool { return true }, false, number(1, 0, 0)},
	}
}

// ruleOf returns the rule for a field.
func ruleOf(f field) rule {
	all := rules()
	return all[slices.IndexFunc(all, func(r rule) bool { return r.applies(f) })]
}

const limitedFamily = "gpu_clock_limited_seconds_total"

// compare judges every field of every GPU, in the order of the fields.
func compare(fields []field, devs []dev, before, after exposition) map[string][]row {
	out := map[string][]row{}
	for _, c := range devs {
		rows := make([]row, 0, len(fields))
		for _, f := range fields {
			rows = append(rows, compareField(fields, f, c, before, after))
		}
		out[c["uuid"]] = rows
	}
	return out
}

// compareField judges one field: first whether there is an answer on both sides, then the answers.
func compareField(fields []field, f field, c dev, before, after exposition) row {
	name, theirs, asked := ask(f, c)
	out := row{field: name, theirs: theirs}
	set := func(r result) row {
		out.ours, out.verdict, out.remark = r.ours, r.verdict, r.remark
		return out
	}
	if !asked {
		return set(result{"", notCompared, "this nvidia-smi has no such field"})
	}
	r := reading{f, c, theirs, before, after}
	present := r.present()
	switch classify(theirs) {
	case answeredFailed:
		return set(result{r.show(), notCompared, "nvidia-smi could not read it"})
	case answeredRetired:
		return set(result{r.show(), notCompared, "this driver answers it for no GPU"})
	case answeredNone:
		if !present {
			return set(result{"", absentInBoth, ""})
		}
		if other := sibling(fields, f, c); other != "" {
			return set(result{r.show(), notCompared, "the GPU answers " + other})
		}
		if strings.HasPrefix(f.name(), "utilization.") && c["mig.mode.current"] == "Enabled" {
			return set(result{r.show(), notCompared, "MIG: from the profiling counters, which nvidia-smi does not show here"})
		}
		return set(result{r.show(), onlyHere, ""})
	}
	if !present {
		if why := r.excused(); why != "" {
			return set(result{"", notCompared, why})
		}
		return set(result{"", absentHere, ""})
	}
	rule := ruleOf(f)
	got := rule.compare(r)
	if got.verdict == differs && got.remark == "" {
		got.remark = rule.kind
	}
	return set(got)
}

// ask returns the spelling of the field that nvidia-smi answered to, and its answer.
func ask(f field, c dev) (name, value string, asked bool) {
	for _, name := range f.names {
		if v, ok := c[name]; ok {
			return name, v, true
		}
	}
	return f.name(), "", false
}

// sibling returns another field that is the same fact here and that the GPU answers: nvidia-smi has an older
// and a newer spelling of some, and answers one of them.
func sibling(fields []field, f field, c dev) string {
	for _, other := range fields {
		if other.place == f.place && other.name() != f.name() {
			if name, v, ok := ask(other, c); ok && classify(v) == answeredValue {
				return name
			}
		}
	}
	return ""
}

// excused says why our side may be without an answer that nvidia-smi has, "" if it may not.
func (r reading) excused() string {
	if r.field.family != limitedFamily || r.field.label != "" {
		return ""
	}
	// The moment's reasons are bits that every driver has; the exporter has the driver's counters of them.
	reason, isBit := strings.CutPrefix(r.field.name(), "clocks_event_reasons.")
	if reason == "hw_slowdown" {
		reason = "hw_thermal_slowdown"
	}
	if counter := r.dev["clocks_event_reasons_counters."+reason]; isBit && (counter == "" || classify(counter) != answeredValue) {
		return "this driver does not count the reason"
	}
	return ""
}

// present reports whether there is an answer on our side.
func (r reading) present() bool {
	found := r.after.find(r.field.family, r.matchers(r.field.matchers...)...)
	if r.field.label == "" {
		return len(found) > 0
	}
	return slices.ContainsFunc(found, func(s sample) bool { return s.labels[r.field.label] != "" })
}

// show returns our side as it stands, for rows that no rule judges.
func (r reading) show() string {
	found := r.after.find(r.field.family, r.matchers(r.field.matchers...)...)
	if len(found) == 0 {
		return ""
	}
	if r.field.label != "" {
		return found[0].labels[r.field.label]
	}
	total, _ := r.after.sum(r.field.family, r.matchers(r.field.matchers...)...)
	return format(total)
}

// values returns the field's value in the two scrapes, low and high: of several series the sum, which only a
// field that says so has.
func (r reading) values() (low, high float64, err error) {
	matchers := r.matchers(r.field.matchers...)
	if n := len(r.after.find(r.field.family, matchers...)); n > 1 && !strings.HasSuffix(r.field.note, "their sum") {
		return 0, 0, fmt.Errorf("%d series of %s", n, r.field.place)
	}
	a, _ := r.after.sum(r.field.family, matchers...)
	b, ok := r.before.sum(r.field.family, matchers...)
	if !ok {
		b = a
	}
	return min(a, b), max(a, b), nil
}

// number makes the comparison of numbers: nvidia-smi's times scale is ours, within absolute or relative,
// whichever is more. The scrapes before and after span what ours was.
func number(scale, absolute, relative float64) func(reading) result {
	return func(r reading) result {
		theirs, err := parseNumber(r.theirs)
		if err != nil {
			return result{r.show(), differs, err.Error()}
		}
		low, high, err := r.values()
		if err != nil {
			return result{r.show(), differs, err.Error()}
		}
		return span(theirs, low/scale, high/scale, absolute/scale, relative)
	}
}

// span judges a number against the range low to high, all in nvidia-smi's unit.
func span(theirs, low, high, absolute, relative float64) result {
	tolerance := max(absolute, relative*math.Abs(theirs))
	ours := format(high)
	if format(low) != ours {
		ours = format(low) + " to " + ours
	}
	if theirs >= low-tolerance-1e-9 && theirs <= high+tolerance+1e-9 {
		return result{ours: ours, verdict: agrees}
	}
	return result{ours: ours, verdict: differs}
}

// parseNumber reads a number of nvidia-smi, with its unit or without, and P8 as 8.
func parseNumber(text string) (float64, error) {
	digits, _, _ := strings.Cut(strings.TrimPrefix(text, "P"), " ")
	v, err := strconv.ParseFloat(digits, 64)
	if err != nil {
		return 0, fmt.Errorf("nvidia-smi's %q is no number", text)
	}
	return v, nil
}

func format(v float64) string { return strconv.FormatFloat(v, 'g', 7, 64) }

// compareText compares nvidia-smi's text with a label.
func compareText(r reading) result {
	found := r.after.find(r.field.family, r.matchers(r.field.matchers...)...)
	if len(found) == 0 {
		return result{"", absentHere, ""}
	}
	ours := found[0].labels[r.field.label]
	if r.field.label == "pci_bus_id" {
		return compareAddress(r.field.name(), r.theirs, ours)
	}
	return result{ours, verdictOf(ours == r.theirs), ""}
}

// compareAddress compares a PCI address, or the part of one that the field is.
func compareAddress(name, theirs, ours string) result {
	parts := strings.FieldsFunc(ours, func(r rune) bool { return r == ':' || r == '.' })
	if len(parts) != 4 {
		return result{ours, differs, "is no PCI address"}
	}
	want := theirs
	switch name {
	case "pci.domain":
		ours = parts[0]
	case "pci.bus":
		ours = parts[1]
	case "pci.device":
		ours = parts[2]
	default:
		// nvidia-smi spells the domain with eight digits, Linux with four.
		domain, rest, _ := strings.Cut(theirs, ":")
		return result{ours, verdictOf(strings.EqualFold(rest, strings.Join(parts[1:3], ":")+"."+parts[3]) && hex(domain) == hex(parts[0])), ""}
	}
	return result{ours, verdictOf(hex(want) == hex(ours)), ""}
}

// hex reads a hexadecimal number; -1 is none.
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
	for _, s := range r.after.find(r.field.family, r.matchers(r.field.matchers...)...) {
		if s.value == 1 {
			ours = append(ours, s.labels[r.field.label])
		}
	}
	shown := strings.Join(ours, ", ")
	return result{shown, verdictOf(len(ours) == 1 && ours[0] == word(r.theirs)), ""}
}

// word spells a state of nvidia-smi as a label has it: "Drain and Reset" is drain_and_reset, "E. Process"
// exclusive_process.
func word(text string) string {
	text = strings.ToLower(text)
	text = strings.Replace(text, "e. ", "exclusive ", 1)
	return strings.Join(strings.FieldsFunc(text, func(r rune) bool { return r == ' ' || r == '_' || r == '-' }), "_")
}

// compareFlag compares a word with 0 or 1.
func compareFlag(r reading) result {
	low, high, err := r.values()
	if err != nil {
		return result{r.show(), differs, err.Error()}
	}
	want, known := flag01(r.theirs)
	if !known {
		return result{format(high), differs, fmt.Sprintf("what %q means is not known here", r.theirs)}
	}
	return span(want, low, high, 0, 0)
}

func flag01(text string) (float64, bool) {
	switch word(text) {
	case "enabled", "yes", "active", "true", "pending", "degraded", "1":
		return 1, true
	case "disabled", "no", "not_active", "false", "full", "healthy", "none", "0":
		return 0, true
	}
	return 0, false
}

// compareHeadroom compares the distance to the limit with our limit less our temperature.
func compareHeadroom(r reading) result {
	theirs, err := parseNumber(r.theirs)
	if err != nil {
		return result{r.show(), differs, err.Error()}
	}
	limit, _, err := r.values()
	if err != nil {
		return result{r.show(), differs, err.Error()}
	}
	const family = "gpu_temperature_celsius"
	a, ok := r.after.sum(family, r.matchers(is("sensor", "gpu"))...)
	if !ok {
		return result{format(limit), differs, "no temperature to subtract"}
	}
	b, ok := r.before.sum(family, r.matchers(is("sensor", "gpu"))...)
	if !ok {
		b = a
	}
	return span(theirs, limit-max(a, b), limit-min(a, b), 2, 0)
}

// compareFans compares the one speed that nvidia-smi tells with all fans of the GPU, by five points.
func compareFans(r reading) result {
	theirs, err := parseNumber(r.theirs)
	if err != nil {
		return result{r.show(), differs, err.Error()}
	}
	low, high := math.Inf(1), math.Inf(-1)
	for _, e := range []exposition{r.before, r.after} {
		for _, s := range e.find(r.field.family, r.matchers()...) {
			low, high = min(low, s.value*100), max(high, s.value*100)
		}
	}
	return span(theirs, low, high, 5, 0)
}

// compareUtilisation compares nvidia-smi's last window loosely with the mean between the scrapes: a load that
// comes and goes is anything from 0 to its peak at one moment.
func compareUtilisation(r reading) result {
	theirs, err := parseNumber(r.theirs)
	if err != nil {
		return result{r.show(), differs, err.Error()}
	}
	busy := r.growth(r.field.family)
	observed := r.growth("gpu_observed_seconds_total")
	if observed <= 0 {
		// Nothing was observed in between: all that the exporter has seen.
		busy, _ = r.after.sum(r.field.family, r.matchers()...)
		observed, _ = r.after.sum("gpu_observed_seconds_total", r.matchers()...)
	}
	if observed <= 0 {
		return result{"", differs, "nothing was observed"}
	}
	mean := 100 * busy / observed
	low, high := mean, mean
	if r.field.name() == "utilization.gpu" {
		if peak, ok := r.after.sum("gpu_utilization_peak_ratio", r.matchers()...); ok {
			high = max(high, 100*peak)
		}
		if recent, ok := r.after.sum("gpu_utilization_ratio", r.matchers()...); ok {
			low, high = min(low, 100*recent), max(high, 100*recent)
		}
	}
	if high-low > 15 {
		low = 0
	}
	return span(theirs, low, high, 25, 0)
}

// growth is by how much a counter grew between the scrapes.
func (r reading) growth(family string, more ...matcher) float64 {
	b, known := r.before.sum(family, r.matchers(more...)...)
	a, _ := r.after.sum(family, r.matchers(more...)...)
	if !known || a < b {
		return 0
	}
	return a - b
}

// elapsed is the time between the fast readings of the two scrapes.
func (r reading) elapsed() float64 {
	return r.growth("gpu_last_read_timestamp_seconds", is("poll", "fast"))
}

// compareReason compares a reason that holds at a moment with its counter: one that holds makes the counter
// grow, one that does not must not have filled the whole time.
func compareReason(r reading) result {
	active, known := flag01(r.theirs)
	if !known {
		return result{r.show(), differs, fmt.Sprintf("what %q means is not known here", r.theirs)}
	}
	return judgeReason(active == 1, r.growth(r.field.family, r.field.matchers...), r.elapsed())
}

func judgeReason(active bool, grew, elapsed float64) result {
	ours := "+" + format(grew) + " s"
	switch {
	case active && elapsed > 0 && grew == 0:
		return result{ours, differs, "the reason holds and its counter stands still"}
	case !active && elapsed > 0 && grew > 0.9*elapsed:
		return result{ours, differs, "the reason does not hold and its counter grew all the time"}
	}
	return result{ours, agrees, ""}
}

// compareReasons compares the bits of the reasons, those that the GPU knows or those that hold.
func compareReasons(r reading) result {
	mask := hex(r.theirs)
	if mask < 0 {
		return result{r.show(), differs, fmt.Sprintf("nvidia-smi's %q is no number", r.theirs)}
	}
	bits := []struct {
		reason string
		bit    uint
	}{{"power_cap", 2}, {"sync_boost", 4}, {"sw_thermal", 5}, {"hw_thermal", 6}, {"hw_power_brake", 7}}
	var ours, wrong []string
	for _, b := range bits {
		set := mask>>b.bit&1 == 1
		here := len(r.after.find(r.field.family, r.matchers(is("reason", b.reason))...)) > 0
		if !here {
			continue // whether it should be here, the reason's own rows tell
		}
		switch strings.HasSuffix(r.field.name(), ".supported") {
		case true:
			ours = append(ours, b.reason)
			if !set {
				wrong = append(wrong, b.reason)
			}
		case false:
			grew := r.growth(r.field.family, is("reason", b.reason))
			if grew > 0 {
				ours = append(ours, b.reason)
			}
			if judgeReason(set, grew, r.elapsed()).verdict == differs {
				wrong = append(wrong, b.reason)
			}
		}
	}
	shown := cmp.Or(strings.Join(ours, " "), "none")
	if len(wrong) > 0 {
		return result{shown, differs, strings.Join(wrong, ", ")}
	}
	return result{shown, agrees, ""}
}

func verdictOf(same bool) verdict {
	if same {
		return agrees
	}
	return differs
}

// merge keeps, of two rounds of the same comparison, the better verdict of each field: a value that moves may
// miss once, what is wrong misses each time.
func merge(first, second map[string][]row) map[string][]row {
	if first == nil {
		return second
	}
	out := map[string][]row{}
	for uuid, rows := range first {
		again := second[uuid]
		merged := slices.Clone(rows)
		for i := range merged {
			if merged[i].verdict.finding() && i < len(again) {
				merged[i] = again[i]
			}
		}
		out[uuid] = merged
	}
	return out
}

// findings returns the rows that are findings.
func findings(rows []row) []row {
	var out []row
	for _, r := range rows {
		if r.verdict.finding() {
			out = append(out, r)
		}
	}
	return out
}

// steady drops the fields whose value changes from moment to moment.
func steady(fields []field) []field {
	var out []field
	for _, f := range fields {
		if !ruleOf(f).moving {
			out = append(out, f)
		}
	}
	return out
}
