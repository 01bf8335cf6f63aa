package deviceid

import (
	"slices"
	"strings"
	"testing"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

func TestVisible(t *testing.T) {
	all := []gpu.UUID{GPUA, GPUB, GPUC, GPUD}
	for list, want := range map[string][]gpu.UUID{
		"all":                 all,
		"none":                nil,
		"void":                nil,
		"":                    nil,
		"0":                   {GPUA},
		"2, 0":                {GPUA, GPUC},
		GPUB:                  {GPUB},
		migD7:                 {GPUD},
		"nvidia.com/gpu=all":  all,
		"nvidia.com/gpu=1":    {GPUB},
		"nvidia.com/gpu=gpu1": {GPUB},
		"k8s.device-plugin.nvidia.com/gpu=" + GPUC: {GPUC},
		"runtime.nvidia.com/gpu=" + GPUC:           {GPUC},
		"9":                                        nil,
		"GPU-99999999-0000-4000-8000-000000000000": nil,
		"0,what-is-this":            {GPUA},
		strings.Repeat("0,", 1<<20): nil,
	} {
		if got := Visible(node(), list); !slices.Equal(got, want) {
			t.Errorf("%.60q: %v, want %v", list, got, want)
		}
	}
	for text, want := range map[string]int{GPUA + "," + GPUB: 2, GPUA + ",what": 0, GPUA + ", ," + GPUB: 2, "": 0,
		strings.Repeat("0,", maxRefs): maxRefs, strings.Repeat("0,", maxRefs+1): 0} {
		if got := parseVisible(text); len(got) != want {
			t.Errorf("%.60q: %d GPUs, want %d", text, len(got), want)
		}
	}
	if Visible(nil, "all") != nil {
		t.Error("GPUs of no inventory")
	}
}

func FuzzVisible(f *testing.F) {
	for _, list := range []string{GPUA, GPUA + "," + migD3, "0,1", "0:1", "all", "none", "void", "nvidia.com/gpu=gpu0",
		"nvidia.com/mig=mig0:1", ",", "no-gpu-has-3GiB-to-run"} {
		f.Add(list)
	}
	f.Fuzz(func(t *testing.T, list string) {
		refs := parseVisible(list)
		if len(refs) > maxRefs || len(refs) > strings.Count(list, ",")+1 {
			t.Fatalf("%q gives %d refs", list, len(refs))
		}
		for _, r := range refs {
			targets, _ := Locate(node(), r)
			for _, at := range targets {
				if _, ok := node().ByUUID(at.GPU); !ok {
					t.Fatalf("%q gives GPU %s", list, at.GPU)
				}
			}
		}
	})
}
