package compat_test

import (
	"flag"
	"fmt"
	"strings"
	"testing"

	"github.com/gpu-exporter/gpu-exporter/internal/catalog/catalogtest"
	"github.com/gpu-exporter/gpu-exporter/internal/catalog/compat"
	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

var update = flag.Bool("update", false, "write the series of the views to testdata")

// Every series of each page is as in testdata, of a view whose values differ and of GPUs in several states.
func TestEveryFigure(t *testing.T) {
	for _, release := range []compat.Release{compat.DCGM48, compat.DCGM49, compat.NvidiaSMI} {
		var b strings.Builder
		p := newPage(t, release)
		for _, v := range []*gpu.View{catalogtest.DistinctView(), catalogtest.FullView()} {
			for _, f := range p.Families() {
				f.Read(v, func(value float64, labels ...string) {
					if release == compat.DCGM48 {
						labels = nil // its values differ from those of 4.9, its labels do not
					}
					fmt.Fprintf(&b, "%s %s %v\n", f.Name, strings.Trim(strings.Join(labels, ","), ","), value)
				})
			}
		}
		catalogtest.Golden(t, "figures-"+string(release)+".txt", b.String(), *update)
	}
}
