package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/test/measure/page"
)

// The pages of docs/evidence are what their figures render to.
func TestPages(t *testing.T) {
	dir := filepath.Join("..", "..", page.Dir)
	for name, f := range pages() {
		got, err := render(dir, name, f)
		must.OK(t, err)
		want := must.Read(t, filepath.Join(dir, name+".md"))
		if got != want {
			t.Errorf("%s.md differs from its figures; run `bin/measure pages`", name)
		}
		for _, hole := range []string{"NaN", "Inf", "%!", "no value"} {
			if strings.Contains(got, hole) {
				t.Errorf("%s.md contains %s", name, hole)
			}
		}
	}
}
