package podmap

import (
	"slices"
	"strings"
	"testing"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

func TestVisible(t *testing.T) {
	all := []gpu.UUID{cardA, cardB, cardC, cardD}
	for list, want := range map[string][]gpu.UUID{
		"all":                 all,
		"none":                nil,
		"void":                nil,
		"":                    nil,
		"0":                   {cardA},
		"2, 0":                {cardA, cardC},
		cardB:                 {cardB},
		migD7:                 {cardD},
		"nvidia.com/gpu=all":  all,
		"nvidia.com/gpu=1":    {cardB},
		"nvidia.com/gpu=gpu1": {cardB},
		"k8s.device-plugin.nvidia.com/gpu=" + cardC: {cardC},
		"runtime.nvidia.com/gpu=" + cardC:           {cardC},
		"9":                                         nil,
		"GPU-99999999-0000-4000-8000-000000000000": nil,
		"0,what-is-this":            {cardA},
		strings.Repeat("0,", 1<<20): nil,
	} {
		if got := Visible(node(), list); !slices.Equal(got, want) {
			t.Errorf("%.60q: %v, want %v", list, got, want)
		}
	}
	if Visible(nil, "all") != nil {
		t.Error("cards of no inventory")
	}
}
