// Package mig is the table of the MIG profiles that each GPU model offers, as in NVIDIA's MIG user guide, with what a
// capacity planner needs: the GPU's compute and memory that a MIG device has, and how many of them fit. The table has a
// version, which advice from it names.
package mig

import (
	"slices"
	"strings"
	"unicode"
)

// Version names the state of the table.
const Version = "2026-11"

// Profile is a kind of GPU instance.
type Profile struct {
	// Name is as in mig-parted's configuration: 1g.10gb.
	Name string
	// Compute and Memory are the GPU's slices that it has.
	Compute, Memory int
	// Bytes is the memory that a program can use, the smallest figure known of the driver; a little less than the name
	// has.
	Bytes float64
	// PerGPU is how many of them fit on one GPU.
	PerGPU int
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

	names []string // one of them is in the model's name
}

const mib = 1 << 20

// Resource is the name under which the device plugin offers a profile under the strategy "mixed".
func (p Profile) Resource() string {
	return "nvidia.com/mig-" + strings.ReplaceAll(p.Name, "+", ".")
}

// ComputeRatio is the fraction of the GPU's compute.
func (g *GPU) ComputeRatio(p Profile) float64 { return float64(p.Compute) / float64(g.Compute) }

// Profile returns the profile of a name.
func (g *GPU) Profile(name string) (Profile, bool) {
	i := slices.IndexFunc(g.Profiles, func(p Profile) bool { return p.Name == name })
	if i < 0 {
		return Profile{}, false
	}
	return g.Profiles[i], true
}

// FromResource returns the profile of a resource as Kubernetes or kube-state-metrics spells it:
// nvidia.com/mig-3g.40gb, nvidia_com_mig_3g_40gb. ok is false for any other resource.
func (g *GPU) FromResource(resource string) (Profile, bool) {
	plain := func(s string) string { return strings.NewReplacer("/", "_", ".", "_", "-", "_", "+", "_").Replace(s) }
	r := strings.TrimSuffix(plain(resource), "_shared")
	for _, p := range g.Profiles {
		if r == plain(p.Resource()) {
			return p, true
		}
	}
	return Profile{}, false
}

// For returns the GPU of a model's name as the driver reports it, such as "NVIDIA H100 80GB HBM3". memory, in bytes,
// decides between models with equal names; 0 if it is unknown.
func For(model string, memory float64) (*GPU, bool) {
	letter := func(c rune) bool { return unicode.IsLetter(c) || unicode.IsDigit(c) }
	words := strings.FieldsFunc(strings.ToUpper(model), func(c rune) bool { return !letter(c) })
	for _, g := range GPUs() {
		named := slices.ContainsFunc(g.names, func(name string) bool {
			return !slices.ContainsFunc(strings.Fields(name), func(w string) bool { return !slices.Contains(words, w) })
		})
		if named && (memory <= 0 || memory >= 0.85*g.Bytes && memory <= 1.15*g.Bytes) {
			return &g, true
		}
	}
	return nil, false
}

// WithProfile returns the GPU of a model's name that has a profile, which decides between models with equal names.
func WithProfile(model, profile string) (*GPU, Profile, bool) {
	for _, g := range GPUs() {
		if named, ok := For(model, g.Bytes); ok && named.Key == g.Key {
			if p, ok := g.Profile(profile); ok {
				return &g, p, true
			}
		}
	}
	return nil, Profile{}, false
}

// sevenths builds the profiles of every GPU with seven compute and eight memory slices. names and mebibytes are those
// of one, two, four and eight memory slices.
func sevenths(names [4]string, mebibytes [4]float64) []Profile {
	b := func(i int) float64 { return mebibytes[i] * mib }
	return []Profile{
		{"1g." + names[0], 1, 1, b(0), 7}, {"1g." + names[1], 1, 2, b(1), 4},
		{"2g." + names[1], 2, 2, b(1), 3}, {"3g." + names[2], 3, 4, b(2), 2},
		{"4g." + names[2], 4, 4, b(2), 1}, {"7g." + names[3], 7, 8, b(3), 1},
	}
}

// GPUs returns the whole table.
func GPUs() []GPU {
	return []GPU{
		{Key: "a30-24gb", Compute: 4, Memory: 4, Bytes: 24576 * mib, names: []string{"A30"}, Profiles: []Profile{
			{"1g.6gb", 1, 1, 5952 * mib, 4}, {"2g.12gb", 2, 2, 11968 * mib, 2}, {"4g.24gb", 4, 4, 24125 * mib, 1}}},
		{Key: "a100-40gb", Compute: 7, Memory: 8, Bytes: 40960 * mib, names: []string{"A100"},
			Profiles: sevenths([4]string{"5gb", "10gb", "20gb", "40gb"}, [4]float64{4864, 9856, 19968, 40192})},
		{Key: "a100-80gb", Compute: 7, Memory: 8, Bytes: 81920 * mib, names: []string{"A100", "A800"},
			Profiles: sevenths([4]string{"10gb", "20gb", "40gb", "80gb"}, [4]float64{9728, 19968, 40192, 80640})},
		{Key: "h100-80gb", Compute: 7, Memory: 8, Bytes: 81559 * mib, names: []string{"H100", "H800"},
			Profiles: sevenths([4]string{"10gb", "20gb", "40gb", "80gb"}, [4]float64{9984, 20096, 40448, 81024})},
		{Key: "h100-94gb", Compute: 7, Memory: 8, Bytes: 95830 * mib, names: []string{"H100"},
			Profiles: sevenths([4]string{"12gb", "24gb", "47gb", "94gb"}, [4]float64{11008, 22144, 46080, 95232})},
		{Key: "h100-96gb", Compute: 7, Memory: 8, Bytes: 97871 * mib, names: []string{"H100", "GH200", "H20"},
			Profiles: sevenths([4]string{"12gb", "24gb", "48gb", "96gb"}, [4]float64{11136, 22528, 47104, 97280})},
		{Key: "h200-141gb", Compute: 7, Memory: 8, Bytes: 143771 * mib, names: []string{"H200", "GH200", "H20"},
			Profiles: sevenths([4]string{"18gb", "35gb", "71gb", "141gb"}, [4]float64{16384, 33280, 71168, 143104})},
		{Key: "b200-180gb", Compute: 7, Memory: 8, Bytes: 183359 * mib, names: []string{"B200"},
			Profiles: sevenths([4]string{"23gb", "45gb", "90gb", "180gb"}, [4]float64{21504, 43520, 91136, 182272})},
		{Key: "gb200-186gb", Compute: 7, Memory: 8, Bytes: 189471 * mib, names: []string{"GB200"},
			Profiles: sevenths([4]string{"23gb", "47gb", "93gb", "186gb"}, [4]float64{22528, 45056, 94208, 188416})},
		{Key: "b300-269gb", Compute: 7, Memory: 8, Bytes: 275040 * mib, names: []string{"B300"},
			Profiles: sevenths([4]string{"34gb", "67gb", "135gb", "269gb"}, [4]float64{32768, 66560, 135168, 273408})},
		{Key: "rtx-pro-6000-96gb", Compute: 4, Memory: 4, Bytes: 97887 * mib,
			names: []string{"RTX PRO 6000 BLACKWELL SERVER"}, Profiles: []Profile{
				{"1g.24gb", 1, 1, 23552 * mib, 4}, {"2g.48gb", 2, 2, 48128 * mib, 2},
				{"4g.96gb", 4, 4, 97280 * mib, 1}}},
	}
}
