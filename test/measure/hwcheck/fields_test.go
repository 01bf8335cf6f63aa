package hwcheck

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/test/measure/page"
)

func readFile(t *testing.T, parts ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(parts...))
	must.OK(t, err)
	return string(text)
}

func allFields(t *testing.T) []field {
	t.Helper()
	fields, err := queryFields()
	must.OK(t, err)
	return fields
}

// recordedGPU reads an output of nvidia-smi in testdata, behind a comment with its source.
func recordedGPU(t *testing.T, name string) device {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(readFile(t, "testdata", name)), "\n")
	lines = slices.DeleteFunc(lines, func(l string) bool { return strings.HasPrefix(l, "#") })
	var fields []string
	for _, column := range strings.Split(lines[0], ", ") {
		name, _, _ := strings.Cut(column, " ")
		fields = append(fields, name)
	}
	devs, err := parseCSV(strings.Join(lines, "\n"), fields)
	must.OK(t, err)
	return devs[0]
}

func parseText(t *testing.T, text string) *scrape {
	t.Helper()
	s, err := parse([]byte(strings.TrimSpace(text)+"\n"), "text/plain")
	must.OK(t, err)
	return s
}

// golden is the repository's own exposition of eight H100 at rest, and the same ten seconds before.
func golden(t *testing.T) (before, after *scrape) {
	t.Helper()
	text := readFile(t, "..", "..", "..", "testdata", "golden", "8xh100-idle.prom")
	before, after = parseText(t, text), parseText(t, text)
	for i := range before.families["gpu_last_read_timestamp_seconds"] {
		before.families["gpu_last_read_timestamp_seconds"][i].value -= 10
	}
	return before, after
}

func rowOf(t *testing.T, rows []Row, field string) Row {
	t.Helper()
	i := slices.IndexFunc(rows, func(r Row) bool { return r.Field == field })
	if i < 0 {
		t.Fatalf("no row for %s", field)
	}
	return rows[i]
}

func TestQueryFields(t *testing.T) {
	fields := allFields(t)
	if len(fields) < 120 {
		t.Errorf("only %d fields", len(fields))
	}
	at := func(name string) field {
		return fields[slices.IndexFunc(fields, func(f field) bool { return slices.Contains(f.spellings(), name) })]
	}
	if f := at("gpu_name"); f.Field != "name" || f.Family != "gpu_info" || f.label != "model" {
		t.Errorf("%+v", f)
	}
	if f := at("count"); len(f.matchers) != 2 || !f.matchers[0].Matches("failed") || f.matchers[0].Matches("missing") {
		t.Errorf("%+v", f)
	}
	if slices.ContainsFunc(fields, func(f field) bool { return f.Field == "inforom.checksum_validation" }) {
		t.Error("a field that is not exported is compared")
	}
}

func TestAgreement(t *testing.T) {
	before, after := golden(t)
	c := recordedGPU(t, "h100.csv")
	rows := compare(allFields(t), c, before, after)
	for _, r := range findings(rows) {
		t.Errorf("%+v", r)
	}
	counts := map[verdict]int{}
	for _, r := range rows {
		counts[r.Verdict]++
	}
	if counts[agrees] < 80 || counts[absentInBoth] < 20 {
		t.Errorf("%v", counts)
	}
	for name, want := range map[string]Row{
		"memory.total":                        {SMI: "81559", Ours: "81559", Verdict: agrees},
		"clocks.current.graphics":             {SMI: "345", Ours: "345", Verdict: agrees},
		"power.draw":                          {SMI: "69.85", Ours: "69", Verdict: agrees},
		"temperature.gpu.tlimit":              {SMI: "58", Ours: "58", Verdict: agrees},
		"pci.bus_id":                          {SMI: "00000000:18:00.0", Ours: "0000:18:00.0", Verdict: agrees},
		"gpu_recovery_action":                 {SMI: "None", Ours: "none", Verdict: agrees},
		"count":                               {SMI: "8", Ours: "8", Verdict: agrees},
		"fan.speed":                           {SMI: "[N/A]", Verdict: absentInBoth},
		"fabric.health.bandwidth":             {SMI: "N/A", Verdict: absentInBoth},
		"kmd_version":                         {Verdict: notCompared, Remark: "this nvidia-smi has no such field"},
		"ecc.errors.corrected.volatile.total": {SMI: "0", Ours: "0", Verdict: agrees},
		"clocks_event_reasons.sw_power_cap":   {SMI: "Not Active", Ours: "+0 s", Verdict: agrees},
		"clocks_event_reasons.active":         {SMI: "0x0000000000000001", Ours: "none", Verdict: agrees},
		"timestamp":                           {SMI: c["timestamp"], Verdict: notCompared, Remark: "a scrape has a timestamp of its own"},
	} {
		want.Field = name
		if got := rowOf(t, rows, name); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
}

// TestDisagreements plants one wrong answer at a time, at least one for each kind of field.
func TestDisagreements(t *testing.T) {
	fields := allFields(t)
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
		{"fan.speed", "30", notExported},
		{"module.power.draw.average", "467.00", notExported},
		{"fabric.health.bandwidth", "True", notExported},
		{"temperature.memory", "N/A", onlyExported},
		{"mig.mode.current", "[N/A]", onlyExported},
		{"encoder.stats.sessionCount", "1", differs},
		{"encoder.stats.averageFps", "0", notCompared}, // without a session
		{"power.draw", "[N/A]", notCompared},           // the GPU reports power.draw.average
		{"power.draw", "[Unknown Error]", notCompared},
		{"power.limit", "[Requested functionality has been deprecated]", notCompared},
	} {
		c := recordedGPU(t, "h100.csv")
		c["encoder.stats.sessionCount"] = "0"
		c[plant.field] = plant.theirs
		rows := compare(fields, c, before, after)
		if got := rowOf(t, rows, plant.field); got.Verdict != plant.want {
			t.Errorf("%s %q: %+v, want %s", plant.field, plant.theirs, got, plant.want)
		}
		for _, r := range findings(rows) {
			if r.Field != plant.field {
				t.Errorf("%s %q: %s is a finding too", plant.field, plant.theirs, r.Field)
			}
		}
		if plant.want == differs {
			i := slices.IndexFunc(fields, func(f field) bool { return f.Field == plant.field })
			planted[ruleOf(fields[i]).kind] = true
		}
	}
	planted["fan"] = true // no golden has a fan beside a ring; TestFans
	for _, r := range rules() {
		if !planted[r.kind] && r.kind != "timestamp" {
			t.Errorf("nothing was planted of kind %s", r.kind)
		}
	}
}

func TestFans(t *testing.T) {
	fans := func(speeds string) *scrape {
		const fan = `gpu_fan_speed_ratio{uuid="GPU-1",fan="%s"} `
		return parseText(t, strings.ReplaceAll(fan, "%s", "0")+strings.ReplaceAll(speeds, " ", "\n"+strings.ReplaceAll(fan, "%s", "1")))
	}
	fields := allFields(t)
	for theirs, want := range map[string]verdict{"30": agrees, "35 %": agrees, "52": agrees, "70": differs,
		"20":    differs,
		"[N/A]": onlyExported} {
		c := device{"uuid": "GPU-1", "fan.speed": theirs}
		if got := rowOf(t, compare(fields, c, fans("0.3 0.45"), fans("0.32 0.5")), "fan.speed"); got.Verdict != want {
			t.Errorf("%s: %+v, want %s", theirs, got, want)
		}
	}
}

// The scrapes before and after span what moves in between; MIG and old drivers lack what they lack.
func TestMovingAndMissing(t *testing.T) {
	fields := allFields(t)
	const card0 = `{uuid="GPU-1"}`
	const active = `gpu_clock_event_active{uuid="GPU-1",reason="power_cap"} 1
gpu_clock_event_active{uuid="GPU-1",reason="sync_boost"} 1
`
	before := parseText(
		t,
		strings.ReplaceAll("gpu_power_watts# 100\ngpu_busy_seconds_total# 10\ngpu_observed_seconds_total# 100\n"+
			"gpu_performance_state# 8\ngpu_last_read_timestamp_seconds{uuid=\"GPU-1\",poll=\"fast\"} 50\n"+
			"gpu_clock_limited_seconds_total{uuid=\"GPU-1\",reason=\"power_cap\"} "+
			"1\ngpu_clock_limited_seconds_total{uuid=\"GPU-1\",reason=\"sync_boost\"} 1\n"+active, "#", card0),
	)
	after := parseText(
		t,
		strings.ReplaceAll("gpu_power_watts# 300\ngpu_busy_seconds_total# 18\ngpu_observed_seconds_total# 110\n"+
			"gpu_performance_state# 0\ngpu_last_read_timestamp_seconds{uuid=\"GPU-1\",poll=\"fast\"} 60\n"+
			"gpu_clock_limited_seconds_total{uuid=\"GPU-1\",reason=\"power_cap\"} "+
			"1.5\ngpu_clock_limited_seconds_total{uuid=\"GPU-1\",reason=\"sync_boost\"} 11\n"+active, "#", card0),
	)
	for _, row := range []struct {
		field, theirs string
		more          device
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
		{"clocks_event_reasons.hw_thermal_slowdown", "Not Active",
			device{"clocks_event_reasons_counters.hw_thermal_slowdown": "0"},
			notExported},
		{"utilization.gpu", "[N/A]", nil, onlyExported},
		{"utilization.gpu", "[N/A]", device{"mig.mode.current": "Enabled"}, notCompared},
	} {
		c := device{"uuid": "GPU-1", row.field: row.theirs}
		for k, v := range row.more {
			c[k] = v
		}
		if got := rowOf(t, compare(fields, c, before, after), row.field); got.Verdict != row.want {
			t.Errorf("%s %q: %+v, want %s", row.field, row.theirs, got, row.want)
		}
	}
}

// A moving value may differ once; a wrong one differs each time.
func TestBetter(t *testing.T) {
	rows := func(verdicts ...verdict) (out []Row) {
		for _, v := range verdicts {
			out = append(out, Row{Verdict: v})
		}
		return out
	}
	got := better(better(nil, rows(differs, agrees, notExported)), rows(agrees, differs, notExported))
	if !slices.Equal(got, rows(agrees, agrees, notExported)) {
		t.Errorf("%v", got)
	}
}

func TestParseHelp(t *testing.T) {
	got := parseHelp(
		"List of valid properties to query for the switch \"--query-gpu=\":\n\n\"timestamp\"\nThe timestamp of when " +
			"the query was " +
			"made.\n\n" +
			"\"name\" or \"gpu_name\"\nThe official product name, \"as sold\".\n\n\"clocks_event_reasons.active\" or " +
			"\"clocks_throttle_reasons.active\"\n",
	)
	if len(got) != 5 || !got["gpu_name"] || !got["clocks_throttle_reasons.active"] || got["as sold"] {
		t.Errorf("%v", got)
	}
	if parseHelp("unknown option") != nil {
		t.Error("names from nothing")
	}
}

func TestParseCSVErrors(t *testing.T) {
	for _, text := range []string{"", "No devices were found\n", "uuid, name\n", "uuid\nGPU-1\n", "uuid, name\nGPU-1, a, b\n"} {
		if devs, err := parseCSV(text, []string{"uuid", "name"}); err == nil {
			t.Errorf("%q: %v", text, devs)
		}
	}
}

// Reports are published: what identifies one machine is not in them.
func TestReportHidesIdentity(t *testing.T) {
	before, after := golden(t)
	c := recordedGPU(t, "h100.csv")
	c["serial"] = "1650000000999" // disagrees
	r := Report{Model: c["name"], Driver: c["driver_version"]}
	r.addFields("fields", c, compare(allFields(t), c, before, after), true)
	text, err := page.Render("hwcheck", &r)
	must.OK(t, err)
	if regexp.MustCompile(`5a0e1100|1650000000`).MatchString(text) {
		t.Error("a serial number or UUID is shown")
	}
	if !strings.Contains(text, "serial") || !strings.Contains(text, string(differs)) {
		t.Errorf("the finding is missing:\n%s", text)
	}
	if got := r.fileName(); got != "h100-80gb-hbm3-580.105.08.md" {
		t.Error(got)
	}
}
