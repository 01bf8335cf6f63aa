package metric

import (
	"math"
	"slices"
	"testing"

	"github.com/gpu-exporter/gpu-exporter/internal/catalog"
	"github.com/gpu-exporter/gpu-exporter/internal/catalog/catalogtest"
	"github.com/gpu-exporter/gpu-exporter/internal/catalog/compat"
	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/internal/must"
)

// The names of every release of the compatibility page are found, and their scales give one figure:
// the page shows the same node in the names of each.
func TestDCGMNamesOfAllReleases(t *testing.T) {
	fields := map[string]DCGM{"utilization": DCGMUtilization, "used": DCGMUsed, "free": DCGMFree, "reserved": DCGMReserved,
		"total": DCGMTotal, "power": DCGMPower}
	pages := map[string][]catalog.Family{}
	for _, release := range []string{string(compat.DCGM48), string(compat.DCGM49)} {
		p, err := compat.New(compat.Options{Release: compat.Release(release)})
		must.OK(t, err)
		pages[release] = p.Families()
	}
	first := pages[string(compat.DCGM48)]
	view := catalogtest.NodeView(2, 2)
	for i := range view.GPUs { // a whole number of MiB
		medium, _ := view.GPUs[i].Medium.Get()
		medium.Memory = gpu.Some(gpu.Memory{Total: 80 << 30, Used: 60 << 30, Free: 19 << 30, Reserved: gpu.Some(gpu.Bytes(1 << 30))})
	}
	read := func(f catalog.Family, scale float64) (out []float64) {
		f.Read(view, func(v float64, _ ...string) { out = append(out, v*scale) })
		return out
	}
	for name, field := range fields {
		base := slices.IndexFunc(first, func(f catalog.Family) bool { return field.Name.MatchString(f.Name) })
		if base < 0 {
			t.Errorf("%s: %s has no name of %s", compat.Releases()[0], name, field.Name)
			continue
		}
		want := read(first[base], field.Scale(first[base].Name))
		if len(want) == 0 || want[0] == 0 {
			t.Errorf("%s shows %v", first[base].Name, want)
		}
		for release, families := range pages {
			for i, f := range families {
				if is := field.Name.MatchString(f.Name); is != (i == base) {
					t.Errorf("%s in %s is read as %s: %v", f.Name, release, name, is)
				}
			}
			f := families[base]
			got := read(f, field.Scale(f.Name))
			if !slices.EqualFunc(got, want, func(a, b float64) bool { return math.Abs(a-b) <= 1e-9*math.Abs(b) }) {
				t.Errorf("%s in %s: %s comes to %v, and to %v as %s", name, release, f.Name, got, want, first[base].Name)
			}
		}
	}
}
