package deviceid

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

const (
	mib = 1 << 20
	gib = 1 << 30
)

// opt renders a limit: "none" where it is absent.
func opt[T gpu.Bytes | float64](o gpu.Opt[T]) string {
	if v, ok := o.Get(); ok {
		return fmt.Sprint(v)
	}
	return "none"
}

// Numbers that plugins write, and the bounds beyond which they are none.
func TestAmounts(t *testing.T) {
	for text, want := range map[string]float64{"0": 0, "5": 5, " 5\n": 5, "0.5": .5, "1e3": 1000, "4611686018427387904": 1 << 62} {
		if v, ok := amount(text); !ok || v != want {
			t.Errorf("%q: %v, %v", text, v, ok)
		}
	}
	for _, text := range []string{"", "-1", "-0.001", "NaN", "Inf", "-Inf", "x", "5x", "1e999", "4.7e18"} {
		if v, ok := amount(text); ok || v != 0 {
			t.Errorf("%q: %v", text, v)
		}
	}
	for text, ok := range map[string]bool{"4095Pi": true, "4096Pi": false, " 8Gi ": true, "8Gi x": false, "8 Gi": false, "0x1p4": false,
		"Infinity": false,
		"1e-3":     true, "+5": true, "1_000": false} {
		if _, got := ParseQuantity(text); got != ok {
			t.Errorf("%q: %v", text, got)
		}
	}
	for n, want := range map[float64]string{-1: "none", 0: "none", .999: "none", 1: "1", 1.5: "1", 1 << 60: "1152921504606846976",
		math.Nextafter(1<<60, math.Inf(1)): "none"} {
		if got := opt(Bytes(n)); got != want {
			t.Errorf("%v bytes: %s, want %s", n, got, want)
		}
	}
	for n, want := range map[float64]string{-1: "none", 0: "none", .5: "524288", 1: "1048576", 1 << 40: "1152921504606846976",
		math.Nextafter(1<<40, math.Inf(1)): "none"} {
		if got := opt(mebibytes(n)); got != want {
			t.Errorf("%v MiB: %s, want %s", n, got, want)
		}
	}
	for n, want := range map[float64]string{-1: "none", 0: "none", .5: "0.005", 50: "0.5", 100: "1", 150: "1"} {
		if got := opt(percent(n)); got != want {
			t.Errorf("%v %%: %s, want %s", n, got, want)
		}
	}
	for text, want := range map[string]string{"3000m": "3145728000", "3000M": "3145728000", "1g": "1073741824", " 2G\n": "2147483648",
		"5k":  "5120",
		"100": "100", "0": "none", "0m": "none", "": "none", "m": "none", "x": "none", "1gm": "none", "-1g": "none", "1.5k": "1536"} {
		if got := opt(parseLimit(text)); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}

// The unit of a plugin's amounts follows from the memory of the GPU: 15 % less are what the driver reserves, 5 % more are
// rounding.
func TestUnits(t *testing.T) {
	for _, c := range []struct {
		total float64
		want  gpu.Bytes
	}{{67, 0}, {67.1, gib}, {80, gib}, {84.9, gib}, {85, 0}, {69631, 0}, {69632, mib}, {81920, mib}, {86016, mib}, {86017, 0}, {1, 0}, {0,
		0}} {
		if got := unitOf(c.total, 80*gib); got != c.want {
			t.Errorf("%v units of 80 GiB: %v, want %v", c.total, got, c.want)
		}
	}
}

// The share of a target and the limit of its memory, by what a scheme records.
func TestLimits(t *testing.T) {
	of := func(b float64) gpu.Opt[gpu.Bytes] { return gpu.Some(gpu.Bytes(b * gib)) }
	at := func(b float64) Target { return Target{Part: 1, Memory: of(b)} }
	node := func(sizes ...float64) *gpu.Inventory {
		inv := &gpu.Inventory{}
		for _, s := range sizes {
			d := gpu.InventoryGPU{}
			if s > 0 {
				d.Memory = of(s)
			}
			inv.GPUs = append(inv.GPUs, d)
		}
		return inv
	}
	some := gpu.Some[float64]
	for _, c := range []struct {
		name string
		a    Assignment
		inv  *gpu.Inventory
		t    Target
		want string // share and memory in GiB
	}{
		{"nothing recorded", Assignment{}, nil, at(80.5), "none none"},
		{"units of GiB", Assignment{units: 20, total: 80}, nil, at(80.5), "0.25 20"},
		{"units of MiB", Assignment{units: 10240, total: 81920}, nil, at(80.5), "0.125 10"},
		{"units of another size", Assignment{units: 25, total: 100}, nil, at(80.5), "0.25 20.125"},
		{"units of a GPU of unknown size", Assignment{units: 20, total: 80}, nil, Target{}, "0.25 none"},
		{"units of an unknown total", Assignment{units: 20}, nil, at(80.5), "none none"},
		{"a total without units", Assignment{total: 80}, nil, at(80.5), "none none"},
		{"more units than there are", Assignment{units: 90, total: 80}, nil, at(80.5), "none none"},
		{"the one unit", Assignment{units: 1, total: 1}, nil, at(80.5), "1 80.5"},
		{"all units", Assignment{units: 80, total: 80}, nil, at(80.5), "1 80"},
		{"units before a part", Assignment{part: some(.1), units: 1, total: 4}, nil, Target{}, "0.25 none"},
		{"units of no total beside a part", Assignment{part: some(.1), units: 1}, nil, Target{}, "0.1 none"},
		{"no units of a total beside a part", Assignment{part: some(.1), total: 4}, nil, Target{}, "0.1 none"},
		{"units that are only a ratio", Assignment{units: 20, total: 80, relative: true}, nil, at(80.5), "0.25 20.125"},
		{"a ratio beside the memory", Assignment{units: 40, total: 80, relative: true, memory: of(7)}, nil, at(80), "0.5 7"},
		{"a ratio to an unknown total", Assignment{units: 20, relative: true, memory: of(1)}, nil, Target{}, "none none"},
		{"memory", Assignment{memory: of(20.125)}, nil, at(80.5), "0.25 20.125"},
		{"memory of a GPU of unknown size", Assignment{memory: of(1)}, nil, Target{}, "none 1"},
		{"memory of a GPU of no size", Assignment{memory: of(1)}, nil, at(0), "none 1"},
		{"more memory than there is", Assignment{memory: of(161)}, nil, at(80.5), "1 161"},
		{"a part of the memory", Assignment{part: some(.5)}, nil, at(1), "0.5 0.5"},
		{"a part beside the memory", Assignment{part: some(.5), memory: of(7)}, nil, at(1), "0.5 7"},
		{"a part of an unknown memory", Assignment{part: some(.5)}, nil, Target{}, "0.5 none"},
		{"a part before time", Assignment{part: some(.5), Compute: some(.2), fraction: some(.3)}, nil, Target{}, "0.5 none"},
		{"a fraction before memory", Assignment{fraction: some(.25), memory: of(.5)}, nil, at(1), "0.25 0.5"},
		{"a fraction before time", Assignment{fraction: some(.5), Compute: some(.3)}, nil, at(80.5), "0.5 none"},
		{"memory before time", Assignment{Compute: some(.25), memory: of(.5)}, nil, at(1), "0.5 0.5"},
		{"time alone", Assignment{Compute: some(.3)}, nil, at(80.5), "0.3 none"},
		{"more than a GPU", Assignment{Compute: some(1.5)}, nil, at(80.5), "1 none"},
		{"an instance, which has its own memory", Assignment{Compute: some(.3), memory: of(7)}, nil, Target{Instance: "MIG", Part: .4},
			"0.4 7"},
		{"exclusive", Assignment{Exclusive: true, Compute: some(.3)}, nil, Target{Part: 1}, "1 none"},
		// Where the units of all GPUs together are known, their size follows from the memory of all GPUs.
		{"GiB of a node", Assignment{units: 10, pool: 80}, node(40, 40), at(40), "0.25 10"},
		{"one GiB of a node", Assignment{units: 1, pool: 80}, node(40, 40), at(40), "0.025 1"},
		{"MiB of a node", Assignment{units: 10240, pool: 81920}, node(40, 40), at(40), "0.25 10"},
		{"units of a node, of an unknown size", Assignment{units: 10, pool: 8}, node(40, 40), at(40), "none none"},
		{"a fraction of a node", Assignment{units: 1, pool: 8, relative: true}, node(40, 40), at(40), "0.25 10"},
		{"no units of a node", Assignment{pool: 80}, node(40, 40), at(40), "none none"},
		{"units of no pool", Assignment{units: 10}, node(40, 40), at(40), "none none"},
		{"the GPU's own before the node's", Assignment{units: 10, total: 40, pool: 7}, node(40, 40), at(40), "0.25 10"},
		{"of a node whose memory is not known", Assignment{units: 10, pool: 40}, node(40, 0), at(40), "none none"},
		{"a fraction of no GPUs", Assignment{units: 1, pool: 8, relative: true}, node(), at(40), "none none"},
		{"no inventory", Assignment{units: 10, pool: 80}, nil, at(40), "none none"},
	} {
		share, memory := c.a.Limits(c.inv, c.t)
		size := "none"
		if b, ok := memory.Get(); ok {
			size = fmt.Sprint(float64(b) / gib)
		}
		if got := opt(share) + " " + size; got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

// What one data source lacks is taken from the other as a whole: limits of two sources are never mixed.
func TestCompletedLimits(t *testing.T) {
	r, _ := ParseNVML(GPUA)
	some := func(b gpu.Bytes) gpu.Opt[gpu.Bytes] { return gpu.Some(b) }
	other := Assignment{Ref: r, Compute: gpu.Some(.3), Guaranteed: some(5), memory: some(7), part: gpu.Some(.2), fraction: gpu.Some(.1),
		units: 1,
		total: 2, pool: 3, relative: true}
	for name, c := range map[string]struct{ mine, want Assignment }{
		"nothing": {Assignment{Ref: r}, other},
		"time":    {Assignment{Ref: r, Compute: gpu.Some(.9)}, func() Assignment { a := other; a.Compute = gpu.Some(.9); return a }()},
		"memory":  {Assignment{Ref: r, memory: some(9)}, Assignment{Ref: r, memory: some(9), Compute: gpu.Some(.3), Guaranteed: some(5)}},
		"a part": {Assignment{Ref: r, part: gpu.Some(.9)},
			Assignment{Ref: r, part: gpu.Some(.9), Compute: gpu.Some(.3), Guaranteed: some(5)}},
		"a fraction": {Assignment{Ref: r, fraction: gpu.Some(.9)},
			Assignment{Ref: r, fraction: gpu.Some(.9), Compute: gpu.Some(.3), Guaranteed: some(5)}},
		"units of a total": {Assignment{Ref: r, units: 9, total: 10},
			Assignment{Ref: r, units: 9, total: 10, Compute: gpu.Some(.3), Guaranteed: some(5)}},
		"units alone":   {Assignment{Ref: r, units: 9}, other},
		"a total alone": {Assignment{Ref: r, total: 9}, other},
	} {
		mine := []Assignment{c.mine}
		if (&Request{Inventory: node()}).complete(mine, []Assignment{other}); mine[0] != c.want {
			t.Errorf("%s: %+v, want %+v", name, mine[0], c.want)
		}
	}
	// By another name of the same GPU: its minor number is 3.
	mine := []Assignment{{Ref: minorRef(3)}}
	if (&Request{Inventory: node()}).complete(mine, []Assignment{other}); mine[0].Compute.Or(0) != .3 || mine[0].Ref != minorRef(3) {
		t.Errorf("by another name: %+v", mine[0])
	}
	// One name for several GPUs is no GPU's.
	mine = []Assignment{{Ref: Ref{by: byAll}}}
	if (&Request{Inventory: node()}).complete(mine, []Assignment{{Ref: Ref{by: byAll}, Compute: gpu.Some(.3)}}); mine[0].Compute.Present() {
		t.Errorf("all of them: %+v", mine[0])
	}
}

// A hundred cores are a GPU: less are a part of one, and the number of GPUs must fit.
func TestCores(t *testing.T) {
	for _, c := range []struct {
		refs, cores int
		want        string // of each GPU: time, "!" where exclusive; empty: another container's
	}{{1, 0, "none"}, {1, 1, "0.01"}, {1, 50, "0.5"}, {1, 99, "0.99"}, {1, 100, "1!"}, {1, 199, "1!"}, {1, 200, ""}, {2, 100, ""},
		{2, 199, ""}, {2, 200, "1! 1!"}, {2, 299, "1! 1!"}, {2, 300, ""}, {3, 300, "1! 1! 1!"}, {0, 50, ""}, {0, 0, ""}} {
		var got []string
		for _, a := range byCores(parseIndices(strings.TrimSuffix(strings.Repeat("0,", c.refs), ",")), c.cores) {
			text := opt(a.Compute)
			if a.Exclusive {
				text += "!"
			}
			got = append(got, text)
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%d GPUs, %d cores: %q, want %q", c.refs, c.cores, got, c.want)
		}
	}
	for devices, want := range map[int]int{1: 0, 2: 2, 3: 0} {
		got := (&Request{Devices: devices}).wholeGPUs([]Ref{indexRef(0), indexRef(1)})
		if len(got) != want || want > 0 && (!got[0].Exclusive || !got[1].Exclusive) {
			t.Errorf("%d devices: %+v", devices, got)
		}
	}
}

// Limits are one per virtual device, the GPUs are listed once: they fit, or only their sum on one GPU is known.
func TestMemoryLimitsOfVirtualDevices(t *testing.T) {
	for _, c := range []struct {
		gpus, devices int
		limits        []string
		want          string // of each GPU; "other": of another allocation
	}{
		{1, 1, []string{"1m"}, "1048576"},
		{2, 2, []string{"1m", "2m"}, "1048576 2097152"},
		{2, 2, []string{"1m", "x"}, "1048576 none"},
		{2, 2, []string{"1m"}, "none none"},
		{2, 3, []string{"1m", "2m", "3m"}, "none none"},
		{1, 2, []string{"1m", "2m"}, "3145728"},
		{1, 3, []string{"1m", "x", "2m"}, "none"},
		{1, 2, []string{"1m", "0"}, "none"},
		{1, 1, nil, "none"},
		{1, 1, []string{"1m", "2m"}, "1048576"}, // the second is not this allocation's
		{1, 3, []string{"1m", "", "4m"}, "1048576"},
		{2, 1, []string{"1m", "2m"}, "other"},
	} {
		env := map[string]string{}
		for i, l := range c.limits {
			env[fmt.Sprint("L_", i)] = l
		}
		refs := parseIndices("0,1")[:c.gpus]
		gpus := (&Request{Devices: c.devices, Response: &Response{Env: env}}).withMemoryLimits(refs, "L_")
		var got []string
		for _, a := range gpus {
			got = append(got, opt(a.memory))
		}
		if gpus == nil {
			got = []string{"other"}
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%+v: %q", c, got)
		}
	}
}

// A record of a GPU is one whole or none.
func TestRecordsOfAGPU(t *testing.T) {
	for _, c := range []struct {
		uuid, memory, cores string
		want                string
	}{{GPUA, "10", "50", "10485760 0.5"}, {GPUA, "0", "0", "none none"}, {migD3, "1", "1", "1048576 0.01"}, {"GPU", "10", "50", ""}, {GPUA,
		"x", "50", ""},
		{GPUA, "10", "", ""}, {GPUA, "-1", "50", ""}} {
		a, ok := parseAssignment(c.uuid, c.memory, c.cores)
		if got := opt(a.memory) + " " + opt(a.Compute); ok != (c.want != "") || ok && got != c.want {
			t.Errorf("%+v: %s, %v", c, got, ok)
		}
	}
	// The records of the GPU fractioning operator.
	got := Fraction([]string{GPUA, "what"}, []int{3, 0}, 10, 50)
	if len(got) != 4 || got[0].Ref.uuid != GPUA || got[1].Ref != (Ref{}) || got[2].Ref != minorRef(3) || got[3].Ref != minorRef(0) {
		t.Errorf("%+v", got)
	}
	for _, a := range append(got, Fraction(nil, nil, 10, 50)...) {
		if opt(a.memory) != "10485760" || opt(a.Compute) != "0.5" {
			t.Errorf("%+v", a)
		}
	}
	if got := Fraction(nil, []int{-1, 0}, 0, 0); len(got) != 2 || got[0].Ref != (Ref{}) || got[1].Ref != minorRef(0) {
		t.Errorf("a number that is not certain: %+v", got)
	}
	if got := Fraction(nil, nil, 0, 0); !slices.Equal(got, []Assignment{{}}) {
		t.Errorf("nothing recorded: %+v", got)
	}
}

// Another data source adds what is missing, where it names the same GPUs.
func TestComplete(t *testing.T) {
	of := func(words string) (out []Assignment) { // GPUs, with their time
		for word := range strings.FieldsSeq(words) {
			uuid, compute, limited := strings.Cut(word, ":")
			r, _ := ParseNVML(uuid)
			a := Assignment{Ref: r}
			if v, ok := amount(compute); limited && ok {
				a.Compute = gpu.Some(v)
			}
			out = append(out, a)
		}
		return out
	}
	const a, b = GPUA + " ", GPUB + " "
	for _, c := range []struct {
		name, mine, other string
		inv               *gpu.Inventory
		want              string // compute
	}{
		{"the same GPU", a, GPUA + ":0.3", node(), "0.3"},
		{"another GPU", a, GPUB + ":0.3", node(), "none"},
		{"a GPU that is not there", missing, missing + ":0.3", node(), "none"},
		{"another order", a + b, GPUB + ":0.3 " + GPUA + ":0.4", node(), "0.4 0.3"},
		{"one of them twice", a + b, GPUA + ":0.3 " + GPUA + ":0.4", node(), "none none"},
		{"no inventory", a, GPUA + ":0.3", nil, "none"},
		{"more", a, GPUA + ":0.3 " + GPUB + ":0.4", node(), "none"},
		{"fewer", a + b, GPUA + ":0.3", node(), "none none"},
	} {
		mine := of(c.mine)
		(&Request{Inventory: c.inv}).complete(mine, of(c.other))
		var got []string
		for _, g := range mine {
			got = append(got, opt(g.Compute))
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}
