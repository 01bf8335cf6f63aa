package reference

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gpu-exporter/gpu-exporter/internal/catalog"
	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// The fields in the help text of nvidia-smi --help-query-gpu of driver 610.57.04, in its order and without aliases.
// Source: the capture of that driver in the public repository utkuozdemir/nvidia_gpu_exporter (internal/captures);
// 580.173.02 and 595.80 have fewer, and no others. The sum is that of the names, one per line.
const (
	newestCount = 241
	newestSum   = "6e67d8f06f9dd920199dc268b7d9e4964f5754c48ab4a20cabe88d03b074058d"
)

func TestQueryFieldsFollowNvidiaSMI(t *testing.T) {
	var names []string
	for _, q := range QueryFields() {
		if q.Section != olderDrivers {
			names = append(names, q.Field)
		}
	}
	sum := sha256.Sum256([]byte(strings.Join(names, "\n")))
	if len(names) != newestCount || hex.EncodeToString(sum[:]) != newestSum {
		t.Errorf("%d fields with the sum %x are not the %d of nvidia-smi", len(names), sum, newestCount)
	}
}

func TestQueryFieldsHaveOneValue(t *testing.T) {
	taken := map[string]string{}
	var sections []string
	for _, q := range QueryFields() {
		if (q.Family == "") == (q.Missing == "") {
			t.Errorf("%s: exactly one of family %q and reason %q must be set", q.Field, q.Family, q.Missing)
		}
		if q.Family == "" && (q.Selector != "" || q.Note != "") {
			t.Errorf("%s is not exported and has a selector or note", q.Field)
		}
		for _, name := range append([]string{q.Field}, q.Aliases...) {
			if strings.TrimSpace(name) != name || name == "" {
				t.Errorf("invalid field name %q", name)
			}
			if by, ok := taken[name]; ok {
				t.Errorf("%s belongs to %s and to %s", name, by, q.Field)
			}
			taken[name] = q.Field
		}
		if n := len(sections); n == 0 || sections[n-1] != q.Section {
			if slices.Contains(sections, q.Section) {
				t.Errorf("section %q is interrupted before %s", q.Section, q.Field)
			}
			sections = append(sections, q.Section)
		}
	}
	// Users still type the older names of renamed fields.
	for older, field := range map[string]string{
		"clocks_throttle_reasons.active":       "clocks_event_reasons.active",
		"clocks_throttle_reasons.sw_power_cap": "clocks_event_reasons.sw_power_cap",
		"gpu_name":                             "name",
		"clocks.sm":                            "clocks.current.sm",
		"retired_pages.sbe":                    "retired_pages.single_bit_ecc.count",
	} {
		if taken[older] != field {
			t.Errorf("%s is an alias of %q, want %s", older, taken[older], field)
		}
	}
}

// labelValues are the values of the labels by which fields select.
var labelValues = map[string][]string{
	"state":        append(words(gpu.DeviceStates), words(gpu.FabricStates)...),
	"fault":        words(gpu.FabricFaults),
	"action":       words(gpu.RecoveryActions),
	"reason":       append(words(gpu.LimitReasons), gpu.ClockReasons...),
	"engine":       words(gpu.Engines),
	"clock":        words(gpu.Clocks),
	"availability": words(gpu.BankAvailabilities),
	"cause":        words([]gpu.RemapCause{gpu.CauseCorrected, gpu.CauseUncorrected, gpu.CauseSingleBit, gpu.CauseDoubleBit}),
	"severity":     words([]gpu.ECCSeverity{gpu.ECCCorrected, gpu.ECCUncorrected}),
	"memory": words([]gpu.ECCMemory{gpu.ECCDRAM, gpu.ECCSRAM, gpu.ECCL1, gpu.ECCL2, gpu.ECCRegisterFile,
		gpu.ECCTextureMemory, gpu.ECCTextureShared, gpu.ECCCBU, gpu.ECCAll}),
	"sensor": words([]gpu.Sensor{gpu.SensorGPU, gpu.SensorMemory}),
	"limit": append(words([]gpu.TemperatureLimit{gpu.LimitSlowdown, gpu.LimitShutdown, gpu.LimitMaxOperating}),
		"enforced", "requested", "default", "min", "max"),
	"scope":  {"module", "gpu_base"},
	"kind":   {"parity", "secded"},
	"source": {"l2", "sm", "pcie", "mcu", "other"},
}

func words[T ~string](list []T) []string {
	all := make([]string, len(list))
	for i, w := range list {
		all[i] = string(w)
	}
	return all
}

var (
	selectorSyntax = regexp.MustCompile(`^\{(\w+=~?"[^"]+")(, \w+=~?"[^"]+")*\}$`)
	matcherSyntax  = regexp.MustCompile(`(\w+)(=~?)"([^"]+)"`)
)

// brokenSelector returns what is wrong with the family and selector of a field, or nothing.
func brokenSelector(q QueryField) string {
	f, ok := catalog.Lookup(q.Family)
	if !ok {
		return "family " + q.Family + " is not in the catalog"
	}
	if q.Selector == "" {
		return ""
	}
	if label, ok := strings.CutPrefix(q.Selector, "label "); ok {
		if !slices.Contains(f.AllLabels(), label) {
			return q.Family + " has no label " + label
		}
		return ""
	}
	if !selectorSyntax.MatchString(q.Selector) {
		return "invalid selector " + q.Selector
	}
	for _, m := range matcherSyntax.FindAllStringSubmatch(q.Selector, -1) {
		label, operator, want := m[1], m[2], []string{m[3]}
		if !slices.Contains(f.Labels, label) {
			return q.Family + " has no label " + label
		}
		if operator == "=~" {
			want = strings.Split(m[3], "|")
		}
		for _, w := range want {
			if !slices.Contains(labelValues[label], w) {
				return label + " of " + q.Family + " is never " + w
			}
		}
	}
	return ""
}

func TestQueryFieldsSelectExistingSeries(t *testing.T) {
	for _, q := range QueryFields() {
		if q.Family == "" {
			continue
		}
		if broken := brokenSelector(q); broken != "" {
			t.Errorf("%s: %s", q.Field, broken)
		}
	}
	for _, q := range []QueryField{
		{Family: "gpu_none"},
		{Family: "gpu_info", Selector: "label color"},
		{Family: "gpu_clock_hertz", Selector: `{clock="tensor"}`},
		{Family: "gpu_clock_hertz", Selector: `{color="red"}`},
		{Family: "gpu_clock_hertz", Selector: `{clock=sm}`},
		{Family: "gpu_clock_limited_seconds_total", Selector: `{reason=~"hw_thermal|none"}`},
	} {
		if brokenSelector(q) == "" {
			t.Errorf("%s%s passed", q.Family, q.Selector)
		}
	}
}

// A field of a family with labels selects by them, or names the label that has the value: otherwise it would be the
// sum of different quantities.
func TestQueryFieldsSelectOneQuantity(t *testing.T) {
	free := map[string]bool{"fan": true, "poll": true}
	for _, q := range QueryFields() {
		f, ok := catalog.Lookup(q.Family)
		if !ok || q.Selector != "" {
			continue
		}
		for _, label := range f.Labels {
			if !free[label] {
				t.Errorf("%s is %s without a selector for its label %s", q.Field, q.Family, label)
			}
		}
	}
}

func TestQueryFieldUnits(t *testing.T) {
	for _, q := range QueryFields() {
		if q.Family == "" {
			continue
		}
		// The units in which nvidia-smi prints these groups.
		for _, u := range []struct{ field, family, note string }{
			{`^memory\.`, `_bytes$`, "MiB -> bytes"},
			{`^(clocks\.)`, `_hertz$`, "MHz -> hertz"},
			{`^(fan\.speed|utilization\.)`, `(_ratio|_seconds_total)$`, "% "},
			{`^clocks_event_reasons_counters\.`, `_seconds_total$`, "µs -> seconds"},
			{`power\.(draw|.*limit)|power\.limit`, `_watts$`, ""},
			{`^temperature\.`, `_celsius$`, ""},
		} {
			if regexp.MustCompile(u.field).MatchString(q.Field) &&
				(!regexp.MustCompile(u.family).MatchString(q.Family) || !strings.HasPrefix(q.Note, u.note)) {
				t.Errorf("%s -> %s with note %q: want a family like %s and a note that begins with %q", q.Field, q.Family, q.Note, u.family,
					u.note)
			}
		}
	}
}

func TestQueryFieldsMarkdown(t *testing.T) {
	text := QueryFieldsMarkdown()
	for _, q := range QueryFields() {
		if !strings.Contains(text, "`"+q.Field+"`") {
			t.Errorf("%s is not in the list", q.Field)
		}
	}
	for _, want := range []string{
		"### Temperature\n",
		"- `name`: `gpu_info` (`model`)\n",
		"- `temperature.memory`: `gpu_temperature_celsius{sensor}`",
		"- `timestamp`: `gpu_last_read_timestamp_seconds` (date",
		"- `clocks.max.graphics`, `clocks.max.sm`, `clocks.max.memory`: `gpu_clock_max_hertz{clock}`\n",
		"- `bbx.time_run`: age of the GPU, no condition\n",
		"Driver 610.57 has 241 fields",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the text lacks %q", want)
		}
	}
}

// A field that is "not exported yet" belongs to the family that reads its call, once there is one.
func TestPendingFieldsResolve(t *testing.T) {
	families := append(catalog.All(), catalog.Family{Name: "gpu_addressing_mode", Source: "nvmlDeviceGetAddressingMode"})
	for missing, want := range map[string]string{notYet + "nvmlDeviceGetAddressingMode": "gpu_addressing_mode",
		notYet + "nvmlDeviceGetAddressing": "", "not in NVML": ""} {
		if got := (QueryField{Missing: missing}).resolve(families); got.Family != want || (got.Missing == "") != (want != "") {
			t.Errorf("%s is of family %q (%s), want %q", missing, got.Family, got.Missing, want)
		}
	}
	for _, row := range []struct {
		source, call string
		want         bool
	}{
		{"nvmlDeviceGetName, GetBrand", "nvmlDeviceGetBrand", true}, {"nvmlDeviceGetBrandName", "nvmlDeviceGetBrand", false},
		{"NVML fields 74 to 79 and 269", "NVML field 75", true}, {"NVML fields 74 to 79 and 269", "NVML field 269", true},
		{"NVML field 185 (scope GPU)", "NVML field 18", false}, {"NVML field 185 (scope GPU)", "NVML field 185 (scope module)", false},
	} {
		if got := reads(row.source, row.call); got != row.want {
			t.Errorf("reads(%q, %q) = %v", row.source, row.call, got)
		}
	}
}

// An introduction of a group that does not exist is in no document.
func TestChaptersAreGroups(t *testing.T) {
	for title := range chapters {
		if !slices.ContainsFunc(catalog.Groups(), func(g catalog.Group) bool { return g.Title == title }) {
			t.Errorf("there is no group %q", title)
		}
	}
}
