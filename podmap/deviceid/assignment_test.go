package deviceid

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

func TestLimits(t *testing.T) {
	const gib, none = 1 << 30, -1.0
	size := gpu.Some(gpu.Bytes(80*gib + gib/2))
	for _, c := range []struct {
		name          string
		a             Assignment
		t             Target
		share, memory float64
	}{
		{"nothing recorded", Assignment{}, Target{Memory: size}, none, none},
		{"units of GiB", Assignment{units: 20, total: 80}, Target{Memory: size}, .25, 20 * gib},
		{"units of MiB", Assignment{units: 10240, total: 81920}, Target{Memory: size}, .125, 10 * gib},
		{"units of another size", Assignment{units: 25, total: 100}, Target{Memory: size}, .25, 20.125 * gib},
		{"units of a GPU of unknown size", Assignment{units: 20, total: 80}, Target{}, .25, none},
		{"units of an unknown total", Assignment{units: 20}, Target{Memory: size}, none, none},
		{"a total without units", Assignment{total: 80}, Target{Memory: size}, none, none},
		{"more units than there are", Assignment{units: 90, total: 80}, Target{Memory: size}, none, none},
		{"the one unit", Assignment{units: 1, total: 1}, Target{Memory: size}, 1, 80.5 * gib},
		{"all units", Assignment{units: 80, total: 80}, Target{Memory: size}, 1, 80 * gib},
		{"units that are only a ratio", Assignment{units: 20, total: 80, relative: true}, Target{Memory: size}, .25,
			20.125 * gib},
		{"a ratio to an unknown total", Assignment{units: 20, relative: true, memory: gpu.Some[gpu.Bytes](gib)},
			Target{}, none, none},
		{"bytes", Assignment{memory: gpu.Some[gpu.Bytes](161 * gib / 8)}, Target{Memory: size}, .25, 20.125 * gib},
		{"bytes of a GPU of unknown size", Assignment{memory: gpu.Some[gpu.Bytes](gib)}, Target{}, none, gib},
		{"more bytes than there are", Assignment{memory: gpu.Some[gpu.Bytes](161 * gib)}, Target{Memory: size}, 1,
			161 * gib},
		{"a fraction before compute", Assignment{fraction: gpu.Some(.5), Compute: gpu.Some(.3)}, Target{Memory: size},
			.5, none},
		{"compute alone", Assignment{Compute: gpu.Some(.3)}, Target{Memory: size}, .3, none},
		{"more than a GPU", Assignment{Compute: gpu.Some(1.5)}, Target{Memory: size}, 1, none},
		{"an instance", Assignment{Compute: gpu.Some(.3)}, Target{Instance: "MIG", Part: .4}, .4, none},
		{"exclusive", Assignment{Exclusive: true, Compute: gpu.Some(.3)}, Target{Part: 1}, 1, none},
	} {
		share, memory := c.a.Limits(nil, c.t)
		if math.Abs(share.Or(none)-c.share) > 1e-9 || share.Present() != (c.share >= 0) ||
			memory.Present() != (c.memory >= 0) ||
			c.memory >= 0 && float64(memory.Or(0)) != c.memory {
			t.Errorf("%s: %v, %v, want %v, %v", c.name, share, memory, c.share, c.memory)
		}
	}
}

// Another data source adds what is missing, where it names the same GPUs.
func TestComplete(t *testing.T) {
	ref := func(uuid string) Ref { r, _ := ParseNVML(uuid); return r }
	const third = .3
	for _, c := range []struct {
		name        string
		mine, other []Assignment
		inv         *gpu.Inventory
		want        []float64 // compute; 0: none
	}{
		{"the same GPU", []Assignment{{Ref: ref(GPUA)}}, []Assignment{{Ref: ref(GPUA), Compute: gpu.Some(third)}},
			node(), []float64{third}},
		{"another GPU", []Assignment{{Ref: ref(GPUA)}}, []Assignment{{Ref: ref(GPUB), Compute: gpu.Some(third)}},
			node(), []float64{0}},
		{"a GPU that is not there", []Assignment{{Ref: ref(missing)}},
			[]Assignment{{Ref: ref(missing), Compute: gpu.Some(third)}}, node(),
			[]float64{0}},
		{"what is there stays", []Assignment{{Ref: ref(GPUA), Compute: gpu.Some(.7)}},
			[]Assignment{{Ref: ref(GPUA), Compute: gpu.Some(third)}},
			node(), []float64{.7}},
		{"another order", []Assignment{{Ref: ref(GPUA)}, {Ref: ref(GPUB)}},
			[]Assignment{{Ref: ref(GPUB), Compute: gpu.Some(third)}, {Ref: ref(GPUA), Compute: gpu.Some(.4)}}, node(),
			[]float64{.4, third}},
		{"one of them twice", []Assignment{{Ref: ref(GPUA)}, {Ref: ref(GPUB)}},
			[]Assignment{{Ref: ref(GPUA), Compute: gpu.Some(third)}, {Ref: ref(GPUA), Compute: gpu.Some(.4)}}, node(),
			[]float64{0, 0}},
		{"no inventory", []Assignment{{Ref: ref(GPUA)}}, []Assignment{{Ref: ref(GPUA), Compute: gpu.Some(third)}}, nil,
			[]float64{0}},
		{"more", []Assignment{{Ref: ref(GPUA)}},
			[]Assignment{{Ref: ref(GPUA), Compute: gpu.Some(third)}, {Ref: ref(GPUB), Compute: gpu.Some(.4)}}, node(), []float64{0}},
		{"fewer", []Assignment{{Ref: ref(GPUA)}, {Ref: ref(GPUB)}},
			[]Assignment{{Ref: ref(GPUA), Compute: gpu.Some(third)}}, node(),
			[]float64{0, 0}},
	} {
		(&Request{Inventory: c.inv}).complete(c.mine, c.other)
		for i, g := range c.mine {
			if g.Compute.Or(0) != c.want[i] {
				t.Errorf("%s: GPU %d has %v, want %v", c.name, i, g.Compute, c.want[i])
			}
		}
	}
}

// Limits that an annotation or label does not have, or has in no valid form, are absent.
func TestInvalidFractions(t *testing.T) {
	for _, c := range []struct {
		text string
		want float64 // 0: none
	}{{"", 0}, {"x", 0}, {"0", 0}, {"-0.5", 0}, {"0.5", .5}, {"NaN", 0}} {
		shared := kubeShare.annotated(&Request{Pod: &Pod{Labels: map[string]string{kubeShareRequest: c.text},
			Annotations: map[string]string{kubeShareUUID: GPUA}}})
		reserved := kai.annotated(&Request{Pod: &Pod{Labels: map[string]string{kaiGroup: "g"},
			Annotations: map[string]string{kaiFraction: c.text}}})
		if len(reserved) != 1 || reserved[0].fraction.Or(0) != c.want ||
			reserved[0].fraction.Present() != (c.want > 0) {
			t.Errorf("%q: %+v", c.text, reserved)
		}
		if len(shared) != 1 || shared[0].fraction.Or(0) != c.want || shared[0].fraction.Present() != (c.want > 0) ||
			shared[0].Exclusive {
			t.Errorf("%q: %+v", c.text, shared)
		}
	}
}

// Where the units of all GPUs together are known, their size follows from the memory of all GPUs.
func TestUnitsOfANode(t *testing.T) {
	const gib, none = 1 << 30, -1.0
	sized := func(sizes ...gpu.Bytes) *gpu.Inventory {
		inv := &gpu.Inventory{}
		for _, s := range sizes {
			d := gpu.InventoryGPU{Memory: gpu.Some(s * gib)}
			if s == 0 {
				d.Memory = gpu.None[gpu.Bytes]()
			}
			inv.GPUs = append(inv.GPUs, d)
		}
		return inv
	}
	for _, c := range []struct {
		name          string
		a             Assignment
		inv           *gpu.Inventory
		share, memory float64
	}{
		{"GiB", Assignment{units: 10, pool: 80}, sized(40, 40), .25, 10 * gib},
		{"one GiB", Assignment{units: 1, pool: 80}, sized(40, 40), 1. / 40, gib},
		{"MiB", Assignment{units: 10240, pool: 81920}, sized(40, 40), .25, 10 * gib},
		{"of an unknown size", Assignment{units: 10, pool: 8}, sized(40, 40), none, none},
		{"a fraction", Assignment{units: 1, pool: 8, relative: true}, sized(40, 40), .25, 10 * gib},
		{"no units", Assignment{pool: 80}, sized(40, 40), none, none},
		{"no pool", Assignment{units: 10}, sized(40, 40), none, none},
		{"the GPU's own", Assignment{units: 10, total: 40, pool: 7}, sized(40, 40), .25, 10 * gib},
		{"of a GPU that does not report its memory", Assignment{units: 10, pool: 80}, sized(40, 0), none, none},
		{"a fraction of no GPUs", Assignment{units: 1, pool: 8, relative: true}, sized(), none, none},
		{"no inventory", Assignment{units: 10, pool: 80}, nil, none, none},
	} {
		share, memory := c.a.Limits(c.inv, Target{Part: 1, Memory: gpu.Some[gpu.Bytes](40 * gib)})
		if math.Abs(share.Or(none)-c.share) > 1e-9 || share.Present() != (c.share >= 0) || memory.Present() != (c.memory >= 0) ||
			c.memory >= 0 && float64(memory.Or(0)) != c.memory {
			t.Errorf("%s: %v, %v, want %v, %v", c.name, share, memory, c.share, c.memory)
		}
	}
}

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

// Words that only look like those of a scheme.
func TestWordsOfAnother(t *testing.T) {
	groups := kai.annotated(&Request{Pod: &Pod{Labels: map[string]string{kaiGroup: "g", kaiGroup + "/h": "h", kaiGroup + "/i": "j",
		"x": "x"}}})
	if len(groups) != 2 || groups[0].Group != "g" || groups[1].Group != "h" {
		t.Errorf("groups %+v", groups)
	}
	if got := minors([]string{"/dev/nvidiactl", "3", "/dev/fuse", "/dev/nvidia2", "/dev/nvidia-uvm"}); len(got) != 1 ||
		got[0] != minorRef(2) {
		t.Errorf("minors %+v", got)
	}
	for text, want := range map[string]int{GPUA + "," + GPUB: 2, GPUA + ",what": 0, GPUA + ", ," + GPUB: 2, "": 0,
		strings.Repeat("0,", maxRefs): maxRefs, strings.Repeat("0,", maxRefs+1): 0} {
		if got := parseVisible(text); len(got) != want {
			t.Errorf("%.60q: %d GPUs, want %d", text, len(got), want)
		}
	}
	reserved := kai.annotated(&Request{Pod: &Pod{Labels: map[string]string{kaiGroup: "g"},
		Annotations: map[string]string{kaiMemory: "100"}}})
	if len(reserved) != 1 || reserved[0].memory != gpu.Some[gpu.Bytes](100<<20) {
		t.Errorf("memory of a member: %+v", reserved)
	}
	for uuids, known := range map[string]bool{GPUA: true, GPUA + ",": true, migD3: true, "0": false, "what": false, GPUA + ",1": false} {
		got := kubeShare.annotated(&Request{Pod: &Pod{Annotations: map[string]string{kubeShareUUID: uuids}}})
		if len(got) != 1 || (got[0] != Assignment{}) != known {
			t.Errorf("%s: %+v", uuids, got)
		}
	}
	for _, c := range []struct {
		devices, portion string
		known            bool
		compute          float64
	}{{GPUA, "0.5", true, .5}, {GPUA, "1", true, 1}, {GPUA, "1.5", true, 0}, {GPUA, "", true, 0},
		{strings.Repeat(" ,", maxText) + GPUA, "0.5", false, 0}, {"what", "0.5", false, 0}} {
		got := nvFractions.annotated(&Request{Container: gpu.Container{Name: "c"}, Pod: &Pod{Annotations: map[string]string{
			nvFractionsPrefix + "c.gpus.devices": c.devices, nvFractionsPrefix + "c.gpu-compute.portion": c.portion}}})
		if len(got) != 1 || (got[0].Ref != Ref{}) != c.known || got[0].Compute.Or(0) != c.compute {
			t.Errorf("%.40q, %s: %+v", c.devices, c.portion, got)
		}
	}
	for name, want := range map[string]float64{"VOLCANO_GPU_MEMORY_TOTAL": 80, "VOLCANO_GPU_TOTAL": 80, "VOLCANO_OTHER": 0} {
		got := volcanoGPUShare.allocated(&Request{Resource: "volcano.sh/gpu-memory", Response: &Response{Env: map[string]string{
			"NVIDIA_VISIBLE_DEVICES": "0", "VOLCANO_GPU_ALLOCATED": "20", name: "80"}}})
		if len(got) != 1 || got[0].total != want || got[0].relative != (want > 0) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
