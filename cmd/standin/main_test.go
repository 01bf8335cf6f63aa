package main

import "testing"

// The lines with which the demo begins are rounded and fit a terminal of 80 columns.
func TestExcerpt(t *testing.T) {
	page := shown[0].family + "{} 0\n"
	for _, s := range shown {
		page += s.family + `{uuid="GPU-aaaaaaaa-0000-4000-8000-000000000000",gpu="0",namespace="a-namespace-with-a-long-name",` +
			`pod="training-run-with-a-very-long-name-0",container="main",resource="nvidia.com/gpu"} 1.7999999999999998` + "\n"
	}
	lines := excerpt(page)
	if len(lines) != len(shown) {
		t.Errorf("%q", lines)
	}
	for _, l := range lines {
		if len(l) > width || l[len(l)-4:] != " 1.8" {
			t.Errorf("%d columns: %s", len(l), l)
		}
	}
	if excerpt("up 1\n") != nil {
		t.Error("it does not wait for all families")
	}
}
