package podmap

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/internal/must"
)

// A pod that requests nvidia.com/gpu has the same allocations if the device plugin serves it, and if a claim does, with the
// metadata of the pod: the fixtures' claims, by the plugin. Only the claim and the data source differ.
func TestServedClaims(t *testing.T) {
	plugin := map[string][]string{
		"one container": {"team/train/main nvidia.com/gpu=" + GPUA + "," + GPUB},
		"a GPU for each of two containers, beside one without and behind an init container without": {
			"team/train/first nvidia.com/gpu=" + GPUB, "team/train/sidecar", "team/train/second nvidia.com/gpu=" + GPUA},
	}
	for _, c := range readSharing(t, sharingDir+"/dra-extended.txt").cases {
		lists, ok := plugin[c.name]
		if !ok {
			continue
		}
		delete(plugin, c.name)
		var got [2][]string
		for i, by := range []*sharingCase{{lists: lists}, c} {
			m, _ := by.setUp(t, []string{"socket", "dra"}[i], newClock())
			m.watch = &fakeWatch{podsOf(by.pods)}
			must.OK(t, m.Poll(t.Context()))
			h := m.Allocations(sharingNode(false))
			if h.Uncertain || len(h.Unresolved) > 0 {
				t.Errorf("%s: %+v", c.name, h)
			}
			slices.SortFunc(h.List, func(a, b gpu.Allocation) int {
				return cmp.Or(a.Container.Compare(b.Container), strings.Compare(string(a.GPU), string(b.GPU)))
			})
			for _, a := range h.List {
				a.Source, a.Claim = "", gpu.ClaimDevice{}
				got[i] = append(got[i], fmt.Sprintf("%+v", a))
			}
		}
		if !slices.Equal(got[0], got[1]) {
			t.Errorf("%s: by the plugin\n\t%s\nby a claim\n\t%s", c.name, strings.Join(got[0], "\n\t"), strings.Join(got[1], "\n\t"))
		}
	}
	if len(plugin) > 0 {
		t.Errorf("no fixture: %v", plugin)
	}
}

// The scheduler's claim for a pod keeps 58 characters before the random ones.
func TestServes(t *testing.T) {
	long := strings.Repeat("p", 50)
	for _, c := range []struct {
		claim, pod string
		want       bool
	}{
		{"train-extended-resources-x7k2p", "train", true},
		{"train-gpu-x7k2p", "train", false},
		{"other-extended-resources-x7k2p", "train", false},
		{(long + "-extended-resources-")[:58] + "x7k2p", long, true},
		{long + "-gpus-x7k2p", long, false},
	} {
		if got := serves(c.claim, c.pod); got != c.want {
			t.Errorf("%s of %s: %v", c.claim, c.pod, got)
		}
	}
}
