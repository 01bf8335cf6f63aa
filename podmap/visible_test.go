package podmap

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
	if Visible(nil, "all") != nil {
		t.Error("GPUs of no inventory")
	}
}
