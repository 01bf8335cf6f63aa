package catalog_test

import (
	"flag"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/gpu-exporter/gpu-exporter/internal/catalog"
	"github.com/gpu-exporter/gpu-exporter/internal/catalog/catalogtest"
	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

var update = flag.Bool("update", false, "write the series of the views to testdata")

// figures lists all series of a view, one a line.
func figures(v *gpu.View) string {
	var b strings.Builder
	for _, f := range catalog.WithPodLabels(catalog.All(), []string{"team"}) {
		line := func(value any, labels ...string) { fmt.Fprintf(&b, "%s %q %v\n", f.Name, labels, value) }
		if f.ReadHistogram != nil {
			f.ReadHistogram(v, func(h gpu.Histogram, labels ...string) { line(h, labels...) })
		} else {
			f.Read(v, func(value float64, labels ...string) { line(value, labels...) })
		}
		if f.Created != nil {
			f.Created(v, func(value float64, labels ...string) {
				fmt.Fprintf(&b, "%s created %q %v\n", f.Name, labels, math.Round(value*1e3)/1e3)
			})
		}
	}
	return b.String()
}

// No value is that of two families: each reads a field of its own.
func TestNoFieldIsReadTwice(t *testing.T) {
	of := map[float64]string{}
	for _, f := range catalog.All() {
		if f.Read == nil {
			continue
		}
		f.Read(catalogtest.DistinctView(), func(value float64, labels ...string) {
			if other := of[value]; value > 10 && other != "" && other != f.Name {
				t.Errorf("%s %q and %s show %v", f.Name, labels, other, value)
			}
			of[value] = f.Name
		})
	}
}

// Every series of three views is as in testdata: one that has all and whose values differ, one of GPUs in several states, and one
// whose GPUs have readings without a value.
func TestEveryFigure(t *testing.T) {
	zero := catalogtest.FullView()
	for i := range zero.GPUs {
		c := &zero.GPUs[i]
		c.Activity, c.Fast, c.Medium, c.Slow = gpu.Activity{}, gpu.Some(&gpu.Fast{}), gpu.Some(&gpu.Medium{}), gpu.Some(&gpu.Slow{})
	}
	var rows strings.Builder // what the values do not show
	for _, f := range catalog.All() {
		fmt.Fprintf(&rows, "%s type=%v unit=%s scope=%v stability=%v values=%q sourced=%v offered=%v\n", f.Name, f.Type, f.Unit, f.Scope,
			f.Stability, f.Values, f.Source != "", f.Offered)
	}
	catalogtest.Golden(t, "rows.txt", rows.String(), *update)
	for name, v := range map[string]*gpu.View{"distinct": catalogtest.DistinctView(), "full": catalogtest.FullView(), "absent": zero} {
		catalogtest.Golden(t, "figures-"+name+".txt", figures(v), *update)
	}
}
