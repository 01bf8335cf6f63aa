package nvml

import (
	"slices"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-exporter/gpu-exporter/internal/nvml/calls"
)

// TestFieldsHaveTheirNumbers: the number of a field in the call table is that of go-nvml's constant.
func TestFieldsHaveTheirNumbers(t *testing.T) {
	ids := slices.Concat(fieldsOf(fastValues), fieldsOf(mediumValues), fieldsOf(slowValues))
	var want []uint32
	for _, group := range []calls.Group{calls.Fast, calls.Medium, calls.Slow} {
		for _, f := range calls.Fields {
			if f.Reading.Group == group {
				want = append(want, f.ID)
			}
		}
	}
	if !slices.Equal(ids, want) || len(ids) < 30 {
		t.Errorf("fields %v, of the table %v", ids, want)
	}
}

// TestReturnCodesHaveTheirNumbers: the number of a return code in the call table is that of go-nvml's constant.
func TestReturnCodesHaveTheirNumbers(t *testing.T) {
	for code, name := range codeNames {
		if want, ok := calls.ReturnCodes[name]; code != nvml.SUCCESS && (!ok || int(code) != want) {
			t.Errorf("%s is %d in the table, %d in go-nvml", name, want, int(code))
		}
	}
	if len(codeNames) != len(calls.ReturnCodes)+1 {
		t.Errorf("%d names, %d in the table", len(codeNames), len(calls.ReturnCodes))
	}
}

func fieldsOf[T any](rows []row[T]) (list []uint32) {
	for _, r := range rows {
		if r.field != 0 {
			list = append(list, r.field)
		}
	}
	return list
}
