package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func readFile(t *testing.T, parts ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(parts...))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func documentedFields(t *testing.T) []field {
	t.Helper()
	fields, err := queryFields()
	if err != nil {
		t.Fatal(err)
	}
	return fields
}

// recordedGPU reads an answer of testdata: a comment that says where its values are from, then the answer.
func recordedGPU(t *testing.T, name string) dev {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(readFile(t, "testdata", name)), "\n")
	lines = slices.DeleteFunc(lines, func(l string) bool { return strings.HasPrefix(l, "#") })
	var fields []string
	for _, column := range splitCSV(lines[0]) {
		name, _, _ := strings.Cut(column, " ")
		fields = append(fields, name)
	}
	devs, err := parseCSV(strings.Join(lines, "\n"), fields)
	if err != nil {
		t.Fatal(err)
	}
	return devs[0]
}

// golden is the repository's own exposition of eight H100 at rest, and the same ten seconds before.
func golden(t *testing.T) (before, after exposition) {
	t.Helper()
	text := readFile(t, "..", "..", "testdata", "golden", "8xh100-idle.prom")
	after, err := parseExposition(text)
	if err != nil {
		t.Fatal(err)
	}
	before, err = parseExposition(text)
	if err != nil {
		t.Fatal(err)
	}
	for i := range before["gpu_last_read_timestamp_seconds"] {
		before["gpu_last_read_timestamp_seconds"][i].value -= 10
	}
	return before, after
}

func rowOf(t *testing.T, rows []row, field string) row {
	t.Helper()
	i := slices.IndexFunc(rows, func(r row) bool { return r.field == field })
	if i < 0 {
		t.Fatalf("no row for %s", field)
	}
	return rows[i]
}

func TestDocumentedFields(t *testing.T) {
	fields := documentedFields(t)
	if len(fields) < 120 {
		t.Errorf("only %d fields", len(fields))
	}
	at := func(name string) field {
		return fields[slices.IndexFunc(fields, func(f field) bool { return slices.Contains(f.names, name) })]
	}
	if f := at("gpu_name"); f.name() != "name" || f.family != "gpu_info" || f.label != "model" || f.kind != "info" || f.scope != "GPU" {
		t.Errorf("%+v", f)
	}
	if f := at("count"); f.scope != "node" || len(f.matchers) != 1 || !f.matchers[0].value.MatchString("failed") || f.matchers[0].value.MatchString("missing") {
		t.Errorf("%+v", f)
	}
	if f := at("compute_mode"); f.kind != "state set" || f.label != "mode" {
		t.Errorf("%+v", f)
	}
	if f := at("ecc.errors.corrected.volatile.sram"); len(f.matchers) != 2 || f.kind != "counter" {
		t.Errorf("%+v", f)
	}
	if slices.ContainsFunc(fields, func(f field) bool { return f.name() == "inforom.oem" }) {
		t.Error("a field that is not exported is compared")
	}
}

func TestAgreement(t *testing.T) {
	before, after := golden(t)
	c := recordedGPU(t, "h100.csv")
	rows := compare(documentedFields(t), []dev{c}, before, after)[c["uuid"]]
	for _, r := range findings(rows) {
		t.Errorf("%+v", r)
	}
	counts := map[verdict]int{}
	for _, r := range rows {
		counts[r.verdict]++
	}
	if counts[agrees] < 80 || counts[absentInBoth] < 20 {
		t.Errorf("%v", counts)
	}
	for name, want := range map[string]row{
		"memory.total":                        {theirs: "81559", ours: "81559", verdict: agrees},                                          // bytes
		"clocks.current.graphics":             {theirs: "345", ours: "345", verdict: agrees},                                              // hertz
		"power.draw":                          {theirs: "69.85", ours: "69", verdict: agrees},                                             // within 5 %
		"temperature.gpu.tlimit":              {theirs: "58", ours: "58", verdict: agrees},                                                // limit less temperature
		"pci.bus_id":                          {theirs: "00000000:18:00.0", ours: "0000:18:00.0", verdict: agrees},                        //
		"gpu_recovery_action":                 {theirs: "None", ours: "none", verdict: agrees},                                            // the state that is 1
		"count":                               {theirs: "8", ours: "8", verdict: agrees},                                                  // of the node
		"fan.speed":                           {theirs: "[N/A]", verdict: absentInBoth},                                                   //
		"fabric.health.bandwidth":             {theirs: "N/A", verdict: absentInBoth},                                                     //
		"kmd_version":                         {verdict: notCompared, remark: "this nvidia-smi has no such field"},                        //
		"ecc.errors.corrected.volatile.total": {theirs: "0", ours: "0", verdict: agrees},                                                  // a sum
		"clocks_event_reasons.sw_power_cap":   {theirs: "Not Active", ours: "+0 s", verdict: agrees},                                      //
		"clocks_event_reasons.active":         {theirs: "0x0000000000000001", ours: "none", verdict: agrees},                              //
		"timestamp":                           {theirs: c["timestamp"], verdict: notCompared, remark: "a scrape has a moment of its own"}, //
	} {
		want.field = name
		if got := rowOf(t, rows, name); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
}

// TestDisagreements plants one wrong answer at a time, at least one for each kind of field.
func TestDisagreements(t *testing.T) {
	fields := documentedFields(t)
	before, after := golden(t)
	planted := map[string]bool{}
	for _, plant := range []struct {
		field, theirs string
		want          verdict
	}{
		{"name", "NVIDIA H200", differs},
		{"driver_version", "580.65.06", differs},
		{"pci.bus_id", "00000000:19:00.0", differs},
		{"pci.domain", "0x0001", differs},
		{"count", "7", differs},
		{"compute_mode", "E. Process", differs},
		{"gpu_recovery_action", "Drain and Reset", differs},
		{"persistence_mode", "Disabled", differs},
		{"persistence_mode", "Perhaps", differs},
		{"remapped_rows.pending", "Yes", differs},
		{"memory.total", "81556", differs},
		{"memory.used", "479", differs}, // what is reserved is not used
		{"utilization.gpu", "60", differs},
		{"utilization.encoder", "50", differs},
		{"temperature.gpu", "32", differs},
		{"temperature.gpu", "31", agrees},
		{"temperature.gpu", "hot", differs},
		{"temperature.gpu.tlimit", "50", differs},
		{"power.draw", "74", differs},
		{"power.draw", "72", agrees},
		{"power.limit", "650.00", differs},
		{"clocks.current.sm", "1980", differs},
		{"clocks.current.sm", "390", agrees},
		{"clocks.max.sm", "1965", differs},
		{"pstate", "P2", differs},
		{"pcie.link.gen.current", "4", differs},
		{"remapped_rows.histogram.max", "2559", differs},
		{"ecc.errors.uncorrected.aggregate.total", "1", differs},
		{"clocks_event_reasons.supported", "0x0000000000000003", differs},
		{"clocks_event_reasons.active", "0x0000000000000004", differs}, // a reason that holds makes its counter grow
		{"clocks_event_reasons.sw_power_cap", "Active", differs},
		{"clocks_event_reasons_counters.sw_power_cap", "5000000", differs},
		{"clocks_event_reasons_counters.sw_power_cap", "900000", agrees},
		{"fan.speed", "30", absentHere},
		{"module.power.draw.average", "467.00", absentHere},
		{"fabric.health.bandwidth", "True", absentHere},
		{"temperature.memory", "N/A", onlyHere},
		{"mig.mode.current", "[N/A]", onlyHere},
		{"power.draw", "[N/A]", notCompared}, // the GPU answers power.draw.average
		{"power.draw", "[Unknown Error]", notCompared},
		{"power.limit", "[Requested functionality has been deprecated]", notCompared},
	} {
		c := recordedGPU(t, "h100.csv")
		c[plant.field] = plant.theirs
		rows := compare(fields, []dev{c}, before, after)[c["uuid"]]
		if got := rowOf(t, rows, plant.field); got.verdict != plant.want {
			t.Errorf("%s %q: %+v, want %s", plant.field, plant.theirs, got, plant.want)
		}
		for _, r := range findings(rows) {
			if r.field != plant.field {
				t.Errorf("%s %q: %s is a finding too", plant.field, plant.theirs, r.field)
			}
		}
		if plant.want == differs {
			i := slices.IndexFunc(fields, func(f field) bool { return f.name() == plant.field })
			planted[ruleOf(fields[i]).kind] = true
		}
	}
	planted["fan"] = true // no golden has a fan beside a ring; TestFans
	for _, r := range rules() {
		if !planted[r.kind] && r.kind != "moment" {
			t.Errorf("nothing was planted of kind %s", r.kind)
		}
	}
}

func TestFans(t *testing.T) {
	scrape := func(speeds string) exposition {
		e, err := parseExposition("gpu_fan_speed_ratio{uuid=\"GPU-1\",fan=\"0\"} " + strings.ReplaceAll(speeds, " ", "\ngpu_fan_speed_ratio{uuid=\"GPU-1\",fan=\"1\"} "))
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	fields := documentedFields(t)
	for theirs, want := range map[string]verdict{"30": agrees, "35 %": agrees, "52": agrees, "70": differs, "20": differs, "[N/A]": onlyHere} {
		c := dev{"uuid": "GPU-1", "fan.speed": theirs}
		if got := rowOf(t, compare(fields, []dev{c}, scrape("0.3 0.45"), scrape("0.32 0.5"))["GPU-1"], "fan.speed"); got.verdict != want {
			t.Errorf("%s: %+v, want %s", theirs, got, want)
		}
	}
}

// The scrapes before and after span what moves in between; MIG and old drivers lack what they lack.
func TestMovingAndMissing(t *testing.T) {
	fields := documentedFields(t)
	const card0 = `{uuid="GPU-1"}`
	parse := func(text string) exposition {
		e, err := parseExposition(text)
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	before := parse(strings.ReplaceAll("gpu_power_watts# 100\ngpu_busy_seconds_total# 10\ngpu_observed_seconds_total# 100\n"+
		"gpu_performance_state# 8\ngpu_last_read_timestamp_seconds{uuid=\"GPU-1\",poll=\"fast\"} 50\n"+
		"gpu_clock_limited_seconds_total{uuid=\"GPU-1\",reason=\"power_cap\"} 1\ngpu_clock_limited_seconds_total{uuid=\"GPU-1\",reason=\"sync_boost\"} 1\n", "#", card0))
	after := parse(strings.ReplaceAll("gpu_power_watts# 300\ngpu_busy_seconds_total# 18\ngpu_observed_seconds_total# 110\n"+
		"gpu_performance_state# 0\ngpu_last_read_timestamp_seconds{uuid=\"GPU-1\",poll=\"fast\"} 60\n"+
		"gpu_clock_limited_seconds_total{uuid=\"GPU-1\",reason=\"power_cap\"} 1.5\ngpu_clock_limited_seconds_total{uuid=\"GPU-1\",reason=\"sync_boost\"} 11\n", "#", card0))
	for _, row := range []struct {
		field, theirs string
		more          dev
		want          verdict
	}{
		{"power.draw", "200", nil, agrees},
		{"power.draw", "90", nil, differs},
		{"pstate", "P5", nil, agrees},
		{"utilization.gpu", "100", nil, agrees}, // 80 %, loosely
		{"utilization.gpu", "20", nil, differs},
		{"clocks_event_reasons.sw_power_cap", "Active", nil, agrees},
		{"clocks_event_reasons.sw_power_cap", "Not Active", nil, agrees},
		{"clocks_event_reasons.sync_boost", "Not Active", nil, differs}, // its counter grew all the time
		{"clocks_event_reasons.active", "0x04", nil, differs},           // sync boost too
		{"clocks_event_reasons.active", "0x14", nil, agrees},
		{"clocks_event_reasons.hw_thermal_slowdown", "Not Active", nil, notCompared}, // R535 does not count it
		{"clocks_event_reasons.hw_thermal_slowdown", "Not Active", dev{"clocks_event_reasons_counters.hw_thermal_slowdown": "0"}, absentHere},
		{"utilization.gpu", "[N/A]", nil, onlyHere},
		{"utilization.gpu", "[N/A]", dev{"mig.mode.current": "Enabled"}, notCompared},
	} {
		c := dev{"uuid": "GPU-1", row.field: row.theirs}
		for k, v := range row.more {
			c[k] = v
		}
		if got := rowOf(t, compare(fields, []dev{c}, before, after)["GPU-1"], row.field); got.verdict != row.want {
			t.Errorf("%s %q: %+v, want %s", row.field, row.theirs, got, row.want)
		}
	}
}

func TestRoundsForgiveWhatMissesOnce(t *testing.T) {
	rows := func(verdicts ...verdict) map[string][]row {
		out := map[string][]row{}
		for _, v := range verdicts {
			out["GPU-1"] = append(out["GPU-1"], row{verdict: v})
		}
		return out
	}
	got := merge(merge(nil, rows(differs, agrees, absentHere)), rows(agrees, differs, absentHere))
	var verdicts []verdict
	for _, r := range got["GPU-1"] {
		verdicts = append(verdicts, r.verdict)
	}
	if !slices.Equal(verdicts, []verdict{agrees, agrees, absentHere}) {
		t.Errorf("%v", verdicts)
	}
}

func TestHelpOfNvidiaSmi(t *testing.T) {
	got := parseHelp("List of valid properties to query for the switch \"--query-gpu=\":\n\n\"timestamp\"\nThe timestamp of when the query was made.\n\n" +
		"\"name\" or \"gpu_name\"\nThe official product name, \"as sold\".\n\n\"clocks_event_reasons.active\" or \"clocks_throttle_reasons.active\"\n")
	if len(got) != 5 || !got["gpu_name"] || !got["clocks_throttle_reasons.active"] || got["as sold"] {
		t.Errorf("%v", got)
	}
	if parseHelp("unknown option") != nil {
		t.Error("names from nothing")
	}
}

func TestAnswersThatCannotBeRead(t *testing.T) {
	for _, text := range []string{"", "No devices were found\n", "uuid, name\n", "uuid\nGPU-1\n", "uuid, name\nGPU-1, a, b\n"} {
		if devs, err := parseCSV(text, []string{"uuid", "name"}); err == nil {
			t.Errorf("%q: %v", text, devs)
		}
	}
}

func TestExposition(t *testing.T) {
	e, err := parseExposition("# HELP a b\na 1\na{x=\"1\",y=\"say \\\"hi\\\"\\n, {}\\\\\"} 2e3 1700000000\nb{} +Inf\n")
	if err != nil {
		t.Fatal(err)
	}
	if s := e.find("a", is("y", "say \"hi\"\n, {}\\")); len(s) != 1 || s[0].value != 2000 || s[0].labels["x"] != "1" {
		t.Errorf("%+v", e)
	}
	if total, ok := e.sum("a"); !ok || total != 2001 {
		t.Errorf("%v", total)
	}
	if _, ok := e.sum("c"); ok {
		t.Error("a sum of nothing")
	}
	for _, text := range []string{"a", "{} 1", "a{x=\"1 2", "a{x} 1", "a{x=\"1\"} one"} {
		if e, err := parseExposition(text); err == nil {
			t.Errorf("%q: %v", text, e)
		}
	}
}

func FuzzExposition(f *testing.F) {
	f.Add("a{x=\"1\",y=\"\\\\\"} 2e3 17\n")
	f.Fuzz(func(t *testing.T, text string) {
		e, err := parseExposition(text)
		if err != nil {
			return
		}
		for family, samples := range e {
			if family == "" || len(samples) == 0 {
				t.Errorf("%q: %v", text, e)
			}
		}
	})
}

// A report may be published: what names one machine is not in it.
func TestReportKeepsNamesBack(t *testing.T) {
	before, after := golden(t)
	c := recordedGPU(t, "h100.csv")
	c["serial"] = "1650000000999" // disagrees
	fields := documentedFields(t)
	r := &report{model: c["name"], driver: c["driver_version"], devs: []dev{c}, checked: c, fields: compare(fields, []dev{c}, before, after)}
	r.add(fieldChecks("fields", r)...)
	for _, text := range []string{r.markdown(), r.text()} {
		if regexp.MustCompile(`5a0e1100|1650000000`).MatchString(text) {
			t.Error("a serial number or UUID is shown")
		}
		if !strings.Contains(text, "serial") || !strings.Contains(text, string(differs)) {
			t.Errorf("the finding is missing:\n%s", text)
		}
	}
	if got := r.fileName(); got != "h100-80gb-hbm3-580.105.08.md" {
		t.Error(got)
	}
}
