package dashboards

import (
	"strconv"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// xidWords are short descriptions of the most common codes, after NVIDIA's XID catalog.
var xidWords = []struct {
	code int
	text string
}{
	{13, "graphics engine exception"}, {31, "memory page fault"}, {32, "broken push buffer"}, {38, "firmware error"},
	{43, "channel stopped"}, {45, "clean-up after another error"}, {46, "stopped responding"},
	{48, "double-bit memory error"},
	{61, "micro-controller breakpoint"}, {62, "micro-controller halted"}, {63, "row remapped or page retired"},
	{64, "remap or retirement failed"},
	{68, "video processor exception"}, {69, "graphics engine class error"}, {74, "NVLink error"},
	{79, "fell off the bus"},
	{92, "many corrected memory errors"}, {94, "contained memory error"}, {95, "uncontained memory error"},
	{109, "context switch timed out"},
	{110, "security fault"}, {119, "GSP timeout"}, {120, "GSP error"}, {121, "chip-to-chip link corrected error"},
	{136, "link training failed"}, {137, "NVLink access fault"}, {140, "unrecovered memory error"},
	{143, "initialization failed"},
	{144, "NVLink error"}, {145, "NVLink error"}, {149, "NVLink error"}, {154, "recovery action changed"},
}

// xidMappings name the codes, colored by severity.
func xidMappings() []Mapping {
	var out []Mapping
	for _, x := range xidWords {
		color := Gray
		switch gpu.XIDTierOf(x.code) {
		case gpu.XIDCritical:
			color = Red
		case gpu.XIDWarning:
			color = Amber
		case gpu.XIDApplication:
			color = Blue
		}
		code := strconv.Itoa(x.code)
		out = append(out, Mapping{code, code + " " + x.text, color})
	}
	return out
}
