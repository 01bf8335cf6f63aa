package nvml

import (
	"fmt"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-exporter/gpu-exporter/internal/nvml/calls"
)

// TestFieldsHaveTheirNumbers: the number of a field in the call table is that of go-nvml's constant.
func TestFieldsHaveTheirNumbers(t *testing.T) {
	checked := 0
	checkFields(t, fastValues, &checked)
	checkFields(t, mediumValues, &checked)
	checkFields(t, slowValues, &checked)
	if checked < 30 {
		t.Errorf("only %d fields", checked)
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

func checkFields[T any](t *testing.T, rows []row[T], checked *int) {
	t.Helper()
	for _, r := range rows {
		if r.field == 0 {
			continue
		}
		*checked++
		if want := fmt.Sprintf("Field %d: ", r.field); !strings.HasPrefix(r.doc, want) {
			t.Errorf("%s is field %d of go-nvml; the table has %q", r.reading, r.field, r.doc)
		}
	}
}
