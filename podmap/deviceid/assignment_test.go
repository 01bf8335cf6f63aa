package deviceid

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// Two records of one container: the larger limits of the same GPUs, and an unknown GPU where they differ.
func TestMerge(t *testing.T) {
	record := func(mib float64, threads int, uuids ...string) []Assignment {
		return Fraction(uuids, nil, mib, threads)
	}
	for name, c := range map[string]struct {
		a, b, want []Assignment
	}{
		"larger limits":         {record(10, 50, GPUA), record(20, 30, GPUA), record(20, 50, GPUA)},
		"limits of one alone":   {record(0, 0, GPUA), record(20, 30, GPUA), record(20, 30, GPUA)},
		"another GPU":           {record(10, 50, GPUA), record(10, 50, GPUB), []Assignment{{}}},
		"another number":        {record(10, 50, GPUA), record(10, 50, GPUA, GPUB), []Assignment{{}}},
		"no GPU in either":      {record(10, 0), record(5, 0), record(10, 0)},
		"several, in one order": {record(10, 0, GPUA, GPUB), record(20, 0, GPUA, GPUB), record(20, 0, GPUA, GPUB)},
	} {
		if got := Merge(c.a, c.b); !slices.Equal(got, c.want) {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

// MIG devices in HAMi's annotation: by UUID, or by the numbers of their instances.
func TestHAMiMIG(t *testing.T) {
	const place = `"containerIndex":1,"deviceIndex":0,"gpuUUID":"` + GPUD + `"`
	at := func(gi, ci int) string { return fmt.Sprintf(`,"gpuInstanceID":%d,"computeInstanceID":%d`, gi, ci) }
	for _, c := range []struct {
		name, text string
		want       string // the instance; empty: the annotation is invalid
		part       float64
	}{
		{"by UUID", `[{` + place + `,"migUUID":"` + migD3 + `"}]`, migD3, 1},
		{"by UUID and numbers", `[{` + place + `,"migUUID":"` + migD3 + `"` + at(7, 0) + `}]`, migD3, 1},
		{"by numbers", `[{` + place + at(3, 0) + `}]`, migD3, 1},
		{"by numbers, the second compute instance", `[{` + place + at(7, 1) + `}]`, migD7, 1. / 3},
		{"without the compute instance", `[{` + place + `,"gpuInstanceID":3}]`, "", 0},
		{"without the GPU instance", `[{` + place + `,"computeInstanceID":0}]`, "", 0},
		{"negative numbers", `[{` + place + at(-1, 0) + `}]`, "", 0},
		{"a negative compute instance", `[{` + place + at(3, -1) + `}]`, "", 0},
		{"not created yet", `[{` + place + `}]`, "", 0},
		{"the UUID of a GPU", `[{` + place + `,"migUUID":"` + GPUD + `"}]`, "", 0},
		{"of no GPU", `[{"containerIndex":1,"gpuUUID":"` + migD3 + `","migUUID":"` + migD3 + `"}]`, "", 0},
		{"twice", `[{` + place + at(3, 0) + `},{` + place + at(3, 0) + `}]`, "", 0},
		{"no JSON", `[`, "", 0},
		{"too long", `[` + strings.Repeat(" ", maxText) + `]`, "", 0},
	} {
		got, ok := parseHAMiMIG(c.text)
		if ok != (c.want != "") {
			t.Errorf("%s: valid %v", c.name, ok)
			continue
		}
		if !ok {
			continue
		}
		m := got[[2]int{1, 0}]
		targets, _ := Locate(node(), m.ref)
		if len(got) != 1 || m.gpu != GPUD || len(targets) != 1 || targets[0].GPU != GPUD || targets[0].Instance != gpu.UUID(c.want) ||
			math.Abs(targets[0].Part-c.part) > 1e-9 {
			t.Errorf("%s: %+v, %+v", c.name, got, targets)
		}
	}
	if got, ok := parseHAMiMIG(""); !ok || len(got) > 0 {
		t.Errorf("no annotation: %v, %v", got, ok)
	}
}
