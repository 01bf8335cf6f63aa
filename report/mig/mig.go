// Package mig is the table of the MIG profiles that each model of GPU offers, as NVIDIA's MIG user guide
// lists them, with what a capacity planner needs: how much of the GPU's compute and memory an instance has, and how many of
// them fit. The table has a version, because advice that was taken from it must say which.
package mig

import (
	"slices"
	"strings"
)

// Version names the state of the table.
const Version = "2026-11"

// Profile is a kind of GPU instance.
type Profile struct {
	// Name is as in mig-parted's configuration: 1g.10gb.
	Name string
	// Compute is how many of the GPU's compute slices it has.
	Compute int
	// Memory is how many of the GPU's memory slices it has.
	Memory int
	// Bytes is the device memory that a program can use, as the smallest driver figure known; a little less than the name says.
	Bytes float64
	// Most is how many of them one GPU holds.
	Most int
}

// GPU is a model with MIG.
type GPU struct {
	// Key is the short name: h100-80gb.
	Key string
	// Compute and Memory are the slices of the whole GPU: 7 and 8, of the A30 4 and 4.
	Compute, Memory int
	// Bytes is the memory of the whole GPU.
	Bytes float64
	// Profiles are in ascending order of compute, then memory; the last is the whole GPU.
	Profiles []Profile
	// Activity says whether the activity of an instance can be measured (Hopper and newer).
	Activity bool

	match func(model string) bool
}

const mib = 1 << 20

// Resource is the name under which the device plugin offers a profile under the strategy "mixed".
func (p Profile) Resource() string {
	return "nvidia.com/mig-" + strings.ReplaceAll(p.Name, "+", ".")
}

// ComputeRatio is the part of the GPU's compute.
func (c *GPU) ComputeRatio(p Profile) float64 { return float64(p.Compute) / float64(c.Compute) }

// Profile returns the profile of a name.
func (c *GPU) Profile(name string) (Profile, bool) {
	i := slices.IndexFunc(c.Profiles, func(p Profile) bool { return p.Name == name })
	if i < 0 {
		return Profile{}, false
	}
	return c.Profiles[i], true
}

// FromResource returns the profile of a resource as Kubernetes or kube-state-metrics spells it:
// nvidia.com/mig-3g.40gb, nvidia_com_mig_3g_40gb. ok is false for any other resource.
func (c *GPU) FromResource(resource string) (Profile, bool) {
	plain := func(s string) string { return strings.NewReplacer("/", "_", ".", "_", "-", "_", "+", "_").Replace(s) }
	r := strings.TrimSuffix(plain(resource), "_shared")
	for _, p := range c.Profiles {
		if r == plain(p.Resource()) {
			return p, true
		}
	}
	return Profile{}, false
}

// For returns the GPU of a model's name as the driver tells it, such as "NVIDIA H100 80GB HBM3". memory, in bytes,
// settles between models that the name does not tell apart; 0 when it is not known.
func For(model string, memory float64) (*GPU, bool) {
	m := strings.ToUpper(model)
	for _, c := range devs() {
		if !c.match(m) {
			continue
		}
		if memory > 0 && (memory < 0.85*c.Bytes || memory > 1.15*c.Bytes) {
			continue
		}
		return &c, true
	}
	return nil, false
}

// GPUs returns the whole table.
func GPUs() []GPU { return devs() }

// sevenths builds the profiles that every GPU with seven compute and eight memory slices has. names are of one, two, four
// and eight memory slices, mebibytes what they hold.
func sevenths(names [4]string, mebibytes [4]float64) []Profile {
	b := func(i int) float64 { return mebibytes[i] * mib }
	return []Profile{
		{"1g." + names[0], 1, 1, b(0), 7}, {"1g." + names[1], 1, 2, b(1), 4},
		{"2g." + names[1], 2, 2, b(1), 3}, {"3g." + names[2], 3, 4, b(2), 2},
		{"4g." + names[2], 4, 4, b(2), 1}, {"7g." + names[3], 7, 8, b(3), 1},
	}
}

// has returns a test for a name that contains one of the alternatives whole: words are ended by anything but
// a letter or a digit, so that A100 is not A1000.
func has(words ...string) func(string) bool {
	return func(model string) bool {
		return slices.ContainsFunc(words, func(w string) bool {
			all := strings.Fields(w)
			return !slices.ContainsFunc(all, func(part string) bool { return !word(model, part) })
		})
	}
}

func word(model, w string) bool {
	letter := func(i int) bool {
		return i >= 0 && i < len(model) && (model[i] >= 'A' && model[i] <= 'Z' || model[i] >= '0' && model[i] <= '9')
	}
	for from := 0; ; {
		i := strings.Index(model[from:], w)
		if i < 0 {
			return false
		}
		i += from
		if !letter(i-1) && !letter(i+len(w)) {
			return true
		}
		from = i + 1
	}
}

func devs() []GPU {
	return []GPU{
		{Key: "a30-24gb", Compute: 4, Memory: 4, Bytes: 24576 * mib, match: has("A30"), Profiles: []Profile{
			{"1g.6gb", 1, 1, 5952 * mib, 4}, {"2g.12gb", 2, 2, 11968 * mib, 2}, {"4g.24gb", 4, 4, 24125 * mib, 1}}},
		{Key: "a100-40gb", Compute: 7, Memory: 8, Bytes: 40960 * mib, match: has("A100"),
			Profiles: sevenths([4]string{"5gb", "10gb", "20gb", "40gb"}, [4]float64{4864, 9856, 19968, 40192})},
		{Key: "a100-80gb", Compute: 7, Memory: 8, Bytes: 81920 * mib, match: has("A100", "A800"),
			Profiles: sevenths([4]string{"10gb", "20gb", "40gb", "80gb"}, [4]float64{9728, 19968, 40192, 80640})},
		{Key: "h100-80gb", Compute: 7, Memory: 8, Bytes: 81559 * mib, Activity: true, match: has("H100", "H800"),
			Profiles: sevenths([4]string{"10gb", "20gb", "40gb", "80gb"}, [4]float64{9984, 20096, 40448, 81024})},
		{Key: "h100-94gb", Compute: 7, Memory: 8, Bytes: 95830 * mib, Activity: true, match: has("H100"),
			Profiles: sevenths([4]string{"12gb", "24gb", "47gb", "94gb"}, [4]float64{11008, 22144, 46080, 95232})},
		{Key: "h100-96gb", Compute: 7, Memory: 8, Bytes: 97871 * mib, Activity: true, match: has("H100", "GH200", "H20"),
			Profiles: sevenths([4]string{"12gb", "24gb", "48gb", "96gb"}, [4]float64{11136, 22528, 47104, 97280})},
		{Key: "h200-141gb", Compute: 7, Memory: 8, Bytes: 143771 * mib, Activity: true, match: has("H200", "GH200", "H20"),
			Profiles: sevenths([4]string{"18gb", "35gb", "71gb", "141gb"}, [4]float64{16384, 33280, 71168, 143104})},
		{Key: "b200-180gb", Compute: 7, Memory: 8, Bytes: 183359 * mib, Activity: true, match: has("B200"),
			Profiles: sevenths([4]string{"23gb", "45gb", "90gb", "180gb"}, [4]float64{21504, 43520, 91136, 182272})},
		{Key: "gb200-186gb", Compute: 7, Memory: 8, Bytes: 189471 * mib, Activity: true, match: has("GB200"),
			Profiles: sevenths([4]string{"23gb", "47gb", "93gb", "186gb"}, [4]float64{22528, 45056, 94208, 188416})},
		{Key: "b300-269gb", Compute: 7, Memory: 8, Bytes: 275040 * mib, Activity: true, match: has("B300"),
			Profiles: sevenths([4]string{"34gb", "67gb", "135gb", "269gb"}, [4]float64{32768, 66560, 135168, 273408})},
		{Key: "rtx-pro-6000-96gb", Compute: 4, Memory: 4, Bytes: 97887 * mib, Activity: true, match: has("RTX PRO 6000 BLACKWELL SERVER"), Profiles: []Profile{
			{"1g.24gb", 1, 1, 23552 * mib, 4}, {"2g.48gb", 2, 2, 48128 * mib, 2}, {"4g.96gb", 4, 4, 97280 * mib, 1}}},
	}
}
