package deviceid

import (
	"math"
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
