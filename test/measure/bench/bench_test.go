package bench

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/internal/standin"
	"github.com/gpu-exporter/gpu-exporter/internal/standin/scenario"
)

// The fake driver and the fake kubelet accept every node of the curves, with as many GPUs and pods as it should have.
func TestNodes(t *testing.T) {
	root := filepath.Join("..", "..", "..")
	for of, curve := range curves() {
		for _, n := range curve {
			path, pods, err := n.files(root, t.TempDir())
			must.OK(t, err)
			s, err := scenario.Load(path)
			if err != nil {
				t.Errorf("%s: %v", n.name, err)
				continue
			}
			text := must.Read(t, pods)
			if _, err := standin.ParsePods(pods, strings.NewReader(text)); err != nil {
				t.Errorf("%s: %v", n.name, err)
			}
			want := map[string]int{"gpus": n.gpus, "pods": n.podCount, "mig": 7 * n.mig}[of]
			if got := strings.Count("\n"+text, "\npod "); len(s.GPUs) != n.gpus || got != n.podCount+7*n.mig ||
				want != n.at {
				t.Errorf("%s has %d GPUs and %d pods", n.name, len(s.GPUs), got)
			}
		}
	}
}

// What is added can be read again, by benchstat too: medians and 99th percentiles, in the units written.
func TestParse(t *testing.T) {
	var tr tree
	for i := range 100 {
		tr.add("HTTP/shared/plain/first", 1000+i, "ns/op")
	}
	tr.add("Node/shared", 2492, "series", 0.2, "cpu-%")
	got, err := Parse(&tr.results)
	must.OK(t, err)
	f := Figures{Results: got}
	if f.Of("HTTP/shared/plain/first", "ns/op") != 1050 || f.P99("HTTP/shared/plain/first", "ns/op") != 1099 ||
		f.Of("Node/shared", "cpu-%") != 0.2 {
		t.Errorf("%v", got)
	}
	if _, err := Parse(strings.NewReader("PASS\n")); err == nil {
		t.Error("no lines are no error")
	}
}
